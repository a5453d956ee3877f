// SPDX-License-Identifier: MIT
// The last operations, for who has to find out what went wrong.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace cowraid::test {

class History {
public:
    // How the run is repeated.
    explicit History(std::string command) : command_(std::move(command)) { }

    void begin(uint64_t number, const char* operation);
    // More about the operation that began last.
    [[gnu::format(printf, 2, 3)]] void note(const char* format, ...);

    // Prints the text, the last operations, and the command; ends the program with 1.
    [[noreturn, gnu::format(printf, 2, 3)]] void mismatch(const char* format, ...);
    // The same, of a call that returned `result`. Errors in errno.
    [[noreturn]] void refused(const char* call, long result);

private:
    struct Entry {
        uint64_t number = 0;
        const char* operation = nullptr;
        std::array<char, 160> text{};
    };
    [[noreturn]] void end();

    const std::string command_;
    std::array<Entry, 40> entries_;
    uint64_t count_ = 0;
};

}  // namespace cowraid::test
