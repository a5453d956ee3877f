// SPDX-License-Identifier: MIT
// What the write-intent logs of all members hold after a crash.
#pragma once

#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/member_set.h"
#include "format/intent_codec.h"
#include "format/superblock_codec.h"
#include "journal/member_ring.h"

namespace cowraid {

// One logged write of one row.
struct LoggedRow {
    struct Copy {
        MemberId member;
        uint32_t parity_column = 0;
        DeviceOffset partial;
        Checksum partial_checksum = 0;
    };
    uint64_t sequence = 0;
    VolumeAddress row;
    uint32_t mapping_version = 0;
    std::vector<Checksum> checksums;  // of the data blocks once the write is done
    ColumnBits modified;
    std::vector<Copy> copies;  // whose descriptor is right; the partial parity may not be
};

class IntentScan {
public:
    // Reads the log of every member in service. What cannot be read is as if it were not there; it is
    // counted.
    IntentScan(MemberSet& members, const Superblock& superblock);

    // Live entries: by row, of one row the newest first. Copies that contradict each other are left out.
    [[nodiscard]] std::span<const LoggedRow> rows() const { return rows_; }
    // Above every sequence that any valid descriptor of the superblock's epoch names, dead ones included, and
    // no lower than any floor.
    [[nodiscard]] uint64_t next_sequence() const { return next_sequence_; }
    // Fills `out`, one block long. kIo, kMemberGone, kCorrupt: no such copy, whoever asks must do without.
    Status read_partial(const LoggedRow::Copy& copy, std::span<std::byte> out);
    // Makes all that was found dead on the members, then flushes: the next commit may be of the same
    // generation. After recovery and a flush of what it wrote; also when rows() is empty, before an IntentLog
    // writes where descriptors lie that it does not know. Any part of it that reaches a member is as good as
    // all: each overwritten descriptor says that every entry is below the floor. kTooManyFaults: members
    // failed that the volume cannot do without.
    Status erase();

private:
    struct Found {
        MemberId member;
        DeviceOffset offset;
        IntentBlock block;
    };
    void take_block(const RingReader::Block& read);
    [[nodiscard]] bool too_many_entries(const MemberRecord& record);
    void collect(const Found& found, std::unordered_map<uint64_t, size_t>& by_sequence);

    MemberSet& members_;
    const Superblock& superblock_;
    // Valid descriptors of this epoch and of newer generations; for blocks that cannot be read, empty ones.
    std::vector<Found> found_;
    std::map<MemberId, uint64_t> entry_counts_;  // live ones
    std::vector<LoggedRow> rows_;
    uint64_t floor_ = 0;
    uint64_t next_sequence_ = 1;
};

}  // namespace cowraid
