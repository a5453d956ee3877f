// SPDX-License-Identifier: MIT
// Questions to devices that may never answer, each in a process of its own: who waits for a device that hangs
// cannot take the request back, nor end before it is done.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace cowraid {

// By one thread of a process at a time.
class AskApart {
public:
    // Nothing: it did not come in time. Empty: the process ended without one.
    using Answer = std::optional<std::vector<std::byte>>;

    // Begins with a question; `question()` returns the bytes of its answer. While a process that was given up
    // still waits for `name`, it is not asked again. The process has no descriptors but the standard ones,
    // which lead nowhere, has no ring, and ends with this one at the latest. Where no process can be had
    // the question is asked at once, here.
    template <typename Question> void ask(const std::string& name, const Question& question)
    {
        switch (begin(name)) {
        case Role::kAsks:
            break;
        case Role::kAnswers:
            end_with(question());
        case Role::kAlone:
            asked_.back().answer = question();
        }
    }
    // In the order of the questions. What has no answer `wait_ms` milliseconds from now is given up.
    std::vector<Answer> wait(uint64_t wait_ms);

private:
    enum class Role : uint8_t { kAsks, kAnswers, kAlone };
    struct Asked {
        std::string name;
        pid_t process = -1;
        UniqueFd pipe;  // as long as there may be more of the answer
        Answer answer;
    };

    Role begin(const std::string& name);
    [[noreturn]] static void end_with(const std::vector<std::byte>& answer);
    static void read_more(Asked& asked);

    std::vector<Asked> asked_;
};

}  // namespace cowraid
