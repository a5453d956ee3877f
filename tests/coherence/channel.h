// SPDX-License-Identifier: MIT
// One open file and one way to read or write it.
#pragma once

#include <linux/aio_abi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/unique_fd.h"
#include "tests/coherence/cells.h"

namespace cowraid::test {

// Ends the program with a message when a system call fails: nothing here may fail.
class Channel {
public:
    enum class Use : uint8_t { kRead, kWrite };

    Channel(const std::string& path, Way way, Use use);
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    // Reads and writes the run; not for writing asynchronously.
    void read(Run run, std::span<std::byte> data);
    void write(Run run, std::span<const std::byte> data);

    // Asynchronous writes. `data` must live until reap() has returned the run.
    void submit(Run run, std::span<const std::byte> data, uint64_t tag);
    // Waits for at least one; returns tags.
    std::vector<uint64_t> reap();

private:
    void submit_one(iocb& request);

    Way way_;
    UniqueFd file_;
    std::byte* mapping_ = nullptr;
    aio_context_t context_ = 0;
    std::vector<iocb> requests_;  // by tag
};

inline constexpr uint64_t kAioDepth = 8;

}  // namespace cowraid::test
