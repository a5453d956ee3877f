// SPDX-License-Identifier: MIT
#include "format/window_codec.h"

#include <bit>
#include <cstring>

#include "format/superblock_codec.h"

namespace cowraid {

namespace {

void append(std::vector<std::byte>& payload, uint64_t value)
{
    const le64 disk = value;
    const auto* bytes = reinterpret_cast<const std::byte*>(&disk);
    payload.insert(payload.end(), bytes, bytes + sizeof disk);
}

uint64_t number_at(std::span<const std::byte> payload, size_t offset)
{
    le64 disk;
    std::memcpy(&disk, payload.data() + offset, sizeof disk);
    return disk;
}

template <typename Disk> bool take_head(std::span<const std::byte> payload, Disk& head)
{
    if (payload.size() < sizeof head)
        return false;
    std::memcpy(&head, payload.data(), sizeof head);
    return true;
}

template <typename Disk> std::vector<std::byte> payload_of(const Disk& head)
{
    std::vector<std::byte> payload(sizeof head);
    std::memcpy(payload.data(), &head, sizeof head);
    return payload;
}

}  // namespace

void BlockWindow::fill_from(const BlockWindow& older)
{
    uint64_t news = older.mask & ~mask;
    mask |= news;
    while (news != 0) {
        const auto bit = static_cast<size_t>(std::countr_zero(news));
        values[bit] = older.values[bit];
        news &= news - 1;
    }
}

std::vector<std::byte> encode_checksum_window(const BlockWindow& window)
{
    DiskChecksumWindow head;
    head.mask = window.mask;
    std::vector<std::byte> payload = payload_of(head);
    for (uint64_t left = window.mask; left != 0; left &= left - 1)
        append(payload, window.values[static_cast<size_t>(std::countr_zero(left))]);
    return payload;
}

bool decode_checksum_window(std::span<const std::byte> payload, BlockWindow& out)
{
    DiskChecksumWindow head;
    if (!take_head(payload, head))
        return false;
    out.mask = head.mask;
    if (payload.size() != sizeof head + sizeof(uint64_t) * static_cast<size_t>(std::popcount(out.mask)))
        return false;
    size_t at = sizeof head;
    for (uint64_t left = out.mask; left != 0; left &= left - 1, at += sizeof(uint64_t))
        out.values[static_cast<size_t>(std::countr_zero(left))] = number_at(payload, at);
    return true;
}

std::vector<std::byte> encode_remap_window(const BlockWindow& window)
{
    DiskRemapWindow head{};
    std::vector<uint64_t> addresses;
    uint64_t expected = 0;  // the address that would go on with the run; 0: none
    for (size_t i = 0; i < kChecksumWindowBlocks; ++i) {
        const uint64_t address = (window.mask >> i & 1) != 0 ? window.values[i] : 0;
        if (address != 0) {
            head.mask = head.mask | uint64_t{1} << i;
            if (address != expected) {
                head.starts = head.starts | uint64_t{1} << i;
                addresses.push_back(address);
            }
        }
        expected = address == 0 ? 0 : address + kBlockBytes;
    }
    if (addresses.empty())
        return {};
    std::vector<std::byte> payload = payload_of(head);
    for (const uint64_t address : addresses)
        append(payload, address);
    return payload;
}

bool decode_remap_window(std::span<const std::byte> payload, BlockWindow& out)
{
    DiskRemapWindow head;
    if (!take_head(payload, head))
        return false;
    out.mask = head.mask;
    const uint64_t starts = head.starts;
    const uint64_t needed = out.mask & ~(out.mask << 1);  // entries with none before them
    if (out.mask == 0 || (starts & ~out.mask) != 0 || (needed & ~starts) != 0 ||
        payload.size() != sizeof head + sizeof(uint64_t) * static_cast<size_t>(std::popcount(starts)))
        return false;
    size_t at = sizeof head;
    uint64_t address = 0;
    for (size_t i = 0; i < kChecksumWindowBlocks; ++i) {
        if ((out.mask >> i & 1) == 0)
            continue;
        if ((starts >> i & 1) != 0) {
            address = number_at(payload, at);
            at += sizeof(uint64_t);
        } else {
            address += kBlockBytes;
        }
        if (address == 0 || address % kBlockBytes != 0 || address >= kMaxVolumeAddress)
            return false;
        out.values[i] = address;
    }
    return true;
}

std::vector<std::byte> encode_space_window(const SpaceWindow& window, Generation committing)
{
    std::vector<std::byte> payload(sizeof(DiskSpaceWindow) + window.bitmap.size());
    DiskSpaceWindow disk;
    disk.last_write = window.written ? committing.value : window.last_write.value;
    disk.block_count = window.block_count;
    disk.used_count = window.used_count;
    std::memcpy(payload.data(), &disk, sizeof disk);
    if (!window.bitmap.empty())
        std::memcpy(payload.data() + sizeof disk, window.bitmap.data(), window.bitmap.size());
    return payload;
}

Result<SpaceWindow> decode_space_window(VolumeAddress group_address, uint64_t first_stripe,
                                        std::span<const std::byte> payload)
{
    DiskSpaceWindow disk;
    if (payload.size() < sizeof disk)
        return Err::kCorrupt;
    std::memcpy(&disk, payload.data(), sizeof disk);
    SpaceWindow window;
    window.group_address = group_address;
    window.first_stripe = first_stripe;
    window.last_write = {disk.last_write};
    window.block_count = disk.block_count;
    window.used_count = disk.used_count;
    const bool uniform = window.used_count == 0 || window.used_count == window.block_count;
    const size_t bitmap_bytes = uniform ? 0 : (size_t{window.block_count} + 7) / 8;
    if (window.used_count > window.block_count || payload.size() != sizeof disk + bitmap_bytes)
        return Err::kCorrupt;
    const auto* bits = reinterpret_cast<const uint8_t*>(payload.data() + sizeof disk);
    window.bitmap.assign(bits, bits + bitmap_bytes);
    uint32_t used = 0;
    for (const uint8_t byte : window.bitmap)
        used += static_cast<uint32_t>(std::popcount(byte));
    if (!uniform && used != window.used_count)
        return Err::kCorrupt;
    return window;
}

}  // namespace cowraid
