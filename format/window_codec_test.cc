// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstring>

#include "base/random.h"
#include "format/superblock_codec.h"
#include "format/window_codec.h"

using namespace cowraid;

namespace {

std::vector<std::byte> remap_bytes(uint64_t mask, uint64_t starts, const std::vector<uint64_t>& addresses)
{
    DiskRemapWindow head;
    head.mask = mask;
    head.starts = starts;
    std::vector<std::byte> bytes(sizeof head);
    std::memcpy(bytes.data(), &head, sizeof head);
    for (const uint64_t address : addresses) {
        const le64 disk = address;
        bytes.resize(bytes.size() + sizeof disk);
        std::memcpy(bytes.data() + bytes.size() - sizeof disk, &disk, sizeof disk);
    }
    return bytes;
}

bool decodes(uint64_t mask, uint64_t starts, const std::vector<uint64_t>& addresses)
{
    BlockWindow window;
    return decode_remap_window(remap_bytes(mask, starts, addresses), window);
}

}  // namespace

TEST_CASE("remap windows: what goes in comes out, runs take one address")
{
    Prng prng(1);
    for (int round = 0; round < 2000; ++round) {
        BlockWindow window;
        uint64_t address = kBlockBytes * prng.between(1, 1000000);
        for (size_t i = 0; i < kChecksumWindowBlocks; ++i) {
            address = prng.chance(1, 3) ? kBlockBytes * prng.between(1, 1000000) : address + kBlockBytes;
            if (prng.chance(1, 4))
                continue;
            window.mask |= uint64_t{1} << i;
            window.values[i] = prng.chance(1, 5) ? 0 : address;
        }
        const std::vector<std::byte> bytes = encode_remap_window(window);
        BlockWindow back;
        bool any = false;
        const bool decoded = decode_remap_window(bytes, back);
        for (size_t i = 0; i < kChecksumWindowBlocks; ++i) {
            const uint64_t value = (window.mask >> i & 1) != 0 ? window.values[i] : 0;
            any = any || value != 0;
            CHECK((back.mask >> i & 1) == (value != 0));
            if (value != 0)
                CHECK(back.values[i] == value);
        }
        CHECK(decoded == any);
        CHECK(bytes.empty() == !any);
    }
    BlockWindow run;
    run.mask = UINT64_MAX;
    for (size_t i = 0; i < kChecksumWindowBlocks; ++i)
        run.values[i] = (7 + i) * kBlockBytes;
    CHECK(encode_remap_window(run).size() == sizeof(DiskRemapWindow) + 8);
}

TEST_CASE("remap windows that contradict themselves are refused")
{
    CHECK(decodes(1, 1, {kBlockBytes}));
    CHECK(decodes(0b1011, 0b1001, {kBlockBytes, kBlockBytes}));
    CHECK(!decodes(0, 0, {}));
    CHECK(!decodes(1, 0, {}));
    CHECK(!decodes(1, 3, {kBlockBytes, kBlockBytes}));
    CHECK(!decodes(0b101, 0b001, {kBlockBytes}));
    CHECK(!decodes(1, 1, {}));
    CHECK(!decodes(1, 1, {kBlockBytes, kBlockBytes}));
    CHECK(!decodes(1, 1, {0}));
    CHECK(!decodes(1, 1, {kBlockBytes + 1}));
    CHECK(!decodes(1, 1, {kMaxVolumeAddress}));
    CHECK(decodes(1, 1, {kMaxVolumeAddress - kBlockBytes}));
    CHECK(!decodes(3, 1, {kMaxVolumeAddress - kBlockBytes}));
    BlockWindow window;
    CHECK(!decode_remap_window(std::vector<std::byte>(15), window));
    CHECK(!decode_remap_window({}, window));
}
