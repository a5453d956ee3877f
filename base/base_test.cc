// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <string>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/le.h"
#include "base/random.h"
#include "base/status.h"
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
    CHECK_FALSE(uuid_parse("0123456g-89ab-cdef-0123-456789abcdef").ok());
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

TEST_CASE("a seed repeats its sequence")
{
    Prng a(42);
    Prng b(42);
    for (int i = 0; i < 100; ++i)
        CHECK(a.next() == b.next());
    CHECK(Prng(1).next() != Prng(2).next());
}
