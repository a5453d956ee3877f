// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>

namespace cowraid {

// Numbers changes, from 1. The operation gate is held shared until a change is complete, so that who holds it
// exclusively finds every change up to newest() complete.
class ChangeCounter {
public:
    uint64_t next() { return newest_.fetch_add(1) + 1; }
    [[nodiscard]] uint64_t newest() const { return newest_.load(); }
    [[nodiscard]] const std::atomic<uint64_t>& counter() const { return newest_; }

private:
    std::atomic<uint64_t> newest_{0};
};

}  // namespace cowraid
