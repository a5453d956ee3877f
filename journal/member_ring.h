// SPDX-License-Identifier: MIT
// What both logs are made of: a ring of blocks on every member, written at its head, freed at its tail, and
// read as a whole after a crash.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "device/member_set.h"
#include "format/superblock_codec.h"

namespace cowraid {

enum class LogKind : uint8_t { kIntent, kFsync };

// Of the fullest member.
struct LogUsage {
    uint32_t used_blocks = 0, room_blocks = 0;
};

// One member's ring: which of its blocks are in use. Its owner has the lock.
class MemberRing {
public:
    // What one write took.
    struct Segment {
        uint32_t first_block;
        uint32_t block_count;
        uint64_t last;  // the owner's number, which rises: until when the blocks are needed
    };

    MemberRing(const MemberRecord& record, LogKind kind);

    [[nodiscard]] MemberId member() const { return member_; }
    [[nodiscard]] uint32_t block_count() const { return block_count_; }
    [[nodiscard]] const std::deque<Segment>& segments() const { return segments_; }  // oldest first
    [[nodiscard]] DeviceOffset offset_of(uint32_t block) const
    {
        return offset_ + uint64_t{block} * kBlockBytes;
    }
    [[nodiscard]] uint32_t block_of(DeviceOffset offset) const
    {
        return static_cast<uint32_t>((offset.value - offset_.value) / kBlockBytes);
    }

    // Finds `wanted` contiguous free blocks: at the head, or at the beginning when too few are left before
    // the end; those then stay unused this time round. False: there is no such place.
    bool find_place(uint32_t wanted, uint32_t& first_block) const;
    // Takes blocks that find_place() named; as many or fewer.
    void take(uint32_t first_block, uint32_t block_count, uint64_t last);
    // Blocks that are to be written by somebody else, which find_place() leaves out until release(). False: a
    // segment that free_below(limit) would leave has some of them.
    bool hold(DeviceOffset first, uint64_t bytes, uint64_t limit);
    void release(DeviceOffset first);
    [[nodiscard]] bool any_held() const { return !held_.empty(); }
    // Frees segments whose `last` is lower, up to one whose is not; returns how many.
    uint64_t free_below(uint64_t limit);

private:
    MemberId member_;
    DeviceOffset offset_;
    uint32_t block_count_;
    uint32_t head_ = 0;  // where the next write goes, if it fits before the end
    std::deque<Segment> segments_;
    std::vector<Segment> held_;
};

// Reads the rings of several members side by side, from begin to end: a mount waits for that.
class RingReader {
public:
    struct Block {
        const MemberRecord* record = nullptr;
        uint32_t number = 0;
        DeviceOffset offset;
        std::span<const std::byte> bytes;  // until the next call of next()
        bool unreadable = false;  // `bytes` are zeros
    };

    RingReader(MemberSet& members, LogKind kind) : members_(members), kind_(kind) { }

    // Before next(); the record must stay. False: the member is not in service, its ring is not read.
    bool add(const MemberRecord& record);
    // The next block; of each ring they come in order. False: that was all. What cannot be read is counted,
    // and costs the blocks that it lies in and no more.
    bool next(Block& block);
    // Whether reading failed anywhere so far.
    [[nodiscard]] bool any_failed() const { return any_failed_; }

private:
    struct Reading {
        const MemberRecord* record;
        BlockDevice* device;
        MemberRing ring;
        AlignedBuffer buffer{};
        iovec piece{};
        bool failed = false;
    };
    bool read_pieces();

    MemberSet& members_;
    const LogKind kind_;
    std::vector<Reading> readings_;
    uint32_t piece_block_ = 0;  // number of the pieces' first block
    uint32_t next_piece_block_ = 0;
    size_t turn_ = 0;  // index of the ring whose block is next
    size_t piece_at_ = 0;  // and where in its piece
    bool any_failed_ = false;
};

}  // namespace cowraid
