// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstring>

#include "base/checksum.h"
#include "base/random.h"
#include "format/intent_codec.h"

using namespace cowraid;

namespace {

IntentHeader random_header(Prng& prng)
{
    IntentHeader header;
    header.volume_uuid = uuid_random();
    header.member = {static_cast<uint32_t>(prng.between(1, 200))};
    header.epoch = prng.next();
    header.generation = {prng.next()};
    header.floor = prng.next();
    header.block = static_cast<uint32_t>(prng.below(1000));
    return header;
}

IntentEntry random_entry(Prng& prng, size_t columns)
{
    IntentEntry entry;
    entry.sequence = prng.between(1, UINT64_MAX);
    entry.row = {prng.between(1, 1u << 30) * kBlockBytes};
    entry.mapping_version = static_cast<uint32_t>(prng.next());
    entry.parity_column = static_cast<uint32_t>(prng.below(2));
    entry.partial_block = static_cast<uint32_t>(prng.next());
    entry.partial_checksum = prng.next();
    for (size_t column = 0; column < columns; ++column) {
        entry.checksums.push_back(prng.next());
        entry.modified[column] = prng.chance(1, 3);
    }
    return entry;
}

// As many entries as fit.
std::vector<IntentEntry> random_entries(Prng& prng)
{
    std::vector<IntentEntry> entries;
    size_t room = kIntentRoomBytes;
    while (true) {
        const size_t columns = prng.between(1, prng.chance(1, 4) ? kMaxIntentColumns : 14);
        if (intent_entry_bytes(columns) > room)
            return entries;
        room -= intent_entry_bytes(columns);
        entries.push_back(random_entry(prng, columns));
    }
}

}  // namespace

TEST_CASE("intent block: what was encoded comes back")
{
    static_assert(kIntentRoomBytes >= sizeof(DiskIntentEntry) + kMaxIntentColumns * 9);
    Prng prng(3);
    for (int round = 0; round < 200; ++round) {
        const IntentHeader header = random_header(prng);
        const std::vector<IntentEntry> entries = random_entries(prng);
        std::byte block[kBlockBytes];
        encode_intent_block(header, entries, block);
        const Result<IntentBlock> decoded = decode_intent_block(block, header);
        REQUIRE(decoded.ok());
        CHECK(decoded->entries == entries);
        CHECK(decoded->header.epoch == header.epoch);
        CHECK(decoded->header.generation == header.generation);
        CHECK(decoded->header.floor == header.floor);
    }
}

TEST_CASE("intent block: another place, member or volume is no block of this log; damage is told")
{
    Prng prng(4);
    const IntentHeader header = random_header(prng);
    std::byte block[kBlockBytes];
    encode_intent_block(header, random_entries(prng), block);
    IntentHeader other = header;
    other.block += 1;
    CHECK(decode_intent_block(block, other).err() == Err::kNotFound);
    other = header;
    other.member = {header.member.value + 1};
    CHECK(decode_intent_block(block, other).err() == Err::kNotFound);
    other = header;
    other.volume_uuid = uuid_random();
    CHECK(decode_intent_block(block, other).err() == Err::kNotFound);
    for (int round = 0; round < 300; ++round) {
        std::byte damaged[kBlockBytes];
        std::memcpy(damaged, block, sizeof block);
        damaged[prng.below(kBlockBytes)] ^= std::byte{1} << prng.below(8);
        CHECK_FALSE(decode_intent_block(damaged, header).ok());
    }
}

TEST_CASE("intent block: hostile entries under a right checksum are refused")
{
    Prng prng(5);
    const IntentHeader header = random_header(prng);
    for (int round = 0; round < 2000; ++round) {
        std::byte block[kBlockBytes];
        const std::vector<IntentEntry> entries = random_entries(prng);
        encode_intent_block(header, entries, block);
        const size_t at = prng.between(offsetof(DiskIntentHeader, entry_count), kBlockBytes - 1);
        block[at] = static_cast<std::byte>(prng.below(256));
        const le64 checksum(checksum_of(std::span<const std::byte>(block).subspan(sizeof(le64))));
        std::memcpy(block, &checksum, sizeof checksum);
        const Result<IntentBlock> decoded = decode_intent_block(block, header);
        if (!decoded.ok())
            continue;
        for (const IntentEntry& entry : decoded->entries) {
            CHECK(!entry.checksums.empty());
            CHECK(entry.checksums.size() <= kMaxIntentColumns);
            CHECK(entry.row.value % kBlockBytes == 0);
        }
    }
}
