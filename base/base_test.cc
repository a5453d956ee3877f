// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/le.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status.h"
#include "base/text.h"
#include "base/uuid.h"

using namespace cowraid;

TEST_CASE("little-endian fields keep byte order and have no alignment")
{
    struct Record {
        uint8_t tag;
        le32 number;
    };
    static_assert(sizeof(Record) == 5 && alignof(Record) == 1);
    Record record{7, 0x01020304u};
    const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
    CHECK(bytes[1] == 4);
    CHECK(bytes[4] == 1);
    CHECK(record.number == 0x01020304u);
}

TEST_CASE("uuid text round trip")
{
    const Uuid uuid = uuid_random();
    const std::string text = uuid_text(uuid);
    REQUIRE(text.size() == 36);
    CHECK(*uuid_parse(text) == uuid);
    CHECK_FALSE(uuid_parse(text.substr(1)).ok());
    for (const char* wrong :
         {"", "0123456g-89ab-cdef-0123-456789abcdef", "01234567-89ab-cdef-0123456789abcdef",
          "012345678-9ab-cdef-0123-456789abcdef", "01234567-89ab-cdef-0123-456789abcdef0",
          "{01234567-89ab-cdef-0123-456789abcde}"})
        CHECK_FALSE(uuid_parse(wrong).ok());
    CHECK_FALSE(uuid_parse(std::string(36, '\0')).ok());
    CHECK(uuid_text(*uuid_parse("01234567-89AB-cdef-0123-456789abcdef")) ==
          "01234567-89ab-cdef-0123-456789abcdef");
}

TEST_CASE("a shell takes a pasted word as it is")
{
    CHECK(shell_word("/dev/sda1") == "/dev/sda1");
    CHECK(shell_word("") == "''");
    for (const char* const word : {"my disk.img", "$(id)", "a;b", "it's", "'", "a\\b", "*"}) {
        const std::string command = std::string("printf %s ") + shell_word(word);
        FILE* const shell = popen(command.c_str(), "re");
        REQUIRE(shell != nullptr);
        char printed[64] = {};
        const size_t bytes = fread(printed, 1, sizeof printed - 1, shell);
        CHECK(pclose(shell) == 0);
        CHECK(std::string(printed, bytes) == word);
    }
}

TEST_CASE("result carries a value or an error, and moves")
{
    Result<AlignedBuffer> made = AlignedBuffer::zeroed(5000);
    REQUIRE(made.ok());
    CHECK(made->size() == 5000);
    CHECK(reinterpret_cast<uintptr_t>(made->data()) % kBlockBytes == 0);
    AlignedBuffer taken = made.take();
    CHECK(taken.data()[4999] == std::byte{0});
    const Result<AlignedBuffer> failed = Err::kNoSpace;
    CHECK(failed.err() == Err::kNoSpace);
}

TEST_CASE("checksum tells one flipped bit, and zeros have the pad checksum")
{
    AlignedBuffer block = AlignedBuffer::zeroed(kBlockBytes);
    CHECK(checksum_of(block.span()) == zero_block_checksum());
    block.data()[100] = std::byte{1};
    CHECK(checksum_of(block.span()) != zero_block_checksum());
}

namespace {

void lock_all(const std::vector<std::unique_ptr<Mutex>>& locks) CW_NO_THREAD_SAFETY_ANALYSIS
{
    for (const auto& lock : locks)
        lock->lock();
    for (const auto& lock : locks)
        lock->unlock();
}

}  // namespace

TEST_CASE("a lock of every rank can be taken, in order, and given back")
{
    std::vector<std::unique_ptr<Mutex>> locks;
    for (size_t rank = 0; rank < static_cast<size_t>(LockRank::kEnd); ++rank)
        locks.push_back(std::make_unique<Mutex>(static_cast<LockRank>(rank)));
    lock_all(locks);
    lock_all(locks);
}

TEST_CASE("a seed repeats its sequence")
{
    Prng a(42);
    Prng b(42);
    for (int i = 0; i < 100; ++i)
        CHECK(a.next() == b.next());
    CHECK(Prng(1).next() != Prng(2).next());
}
