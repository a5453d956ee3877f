// SPDX-License-Identifier: MIT
// The array: volume addresses to members, with redundancy. Reads verify and heal; writes cover whole rows.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/ref.h"
#include "base/status.h"
#include "base/units.h"
#include "device/member_set.h"
#include "format/group_map_codec.h"
#include "raid56/geometry.h"

namespace cowraid {

// What the filesystem knows about a block. The array never calls up except through this.
struct BlockExpectation {
    bool known = false;  // false: never written, discarded, or the answer could not be had
    Checksum checksum = 0;
};

// Implemented by fs/: checksums by volume address. Called without array locks held; may read tree nodes
// through the array (of mirrored groups only, so that it cannot recurse for ever). Thread-safe.
class BlockVerifier {
public:
    virtual ~BlockVerifier() = default;
    // Fills out[i] for the block at address + i * 4096; data or parity addresses of one group.
    virtual void expect(VolumeAddress address, std::span<BlockExpectation> out) = 0;
    // A member's block was bad beyond repair: for the log line that names the file.
    virtual void unrecoverable(VolumeAddress address) = 0;
};

// Recognises content whose checksum is not per block: tree nodes.
class ContentCheck {
public:
    virtual ~ContentCheck() = default;
    [[nodiscard]] virtual bool matches(std::span<const std::byte> content) const = 0;
};

// A contiguous address range of one group to be read. Exactly one of `checksums` and `check` is set.
struct ReadPiece {
    VolumeAddress address;  // block aligned; the range stays inside one group's data addresses
    uint32_t block_count = 0;
    std::byte* memory = nullptr;  // 4096-aligned, block_count * 4096 bytes, the caller's
    const Checksum* checksums = nullptr;  // one per block
    const ContentCheck* check = nullptr;  // of the whole piece
    Status result;  // per piece: ok, kTooManyFaults, kInvalid (no such address)
    uint32_t bad_blocks = 0;  // on kTooManyFaults: how many could not be had
};

// Whole rows of one group to be written: either `stripe_count` whole stripes (first_row 0, all rows) or
// rows [first_row, first_row + row_count) of one stripe. None of the rows may hold a block that the last
// commit or an unfinished read refers to.
struct RowWrite {
    VolumeAddress group_address;
    uint64_t first_stripe = 0;
    uint64_t stripe_count = 1;
    uint32_t first_row = 0;
    uint32_t row_count = 0;
    // Data blocks in (stripe, data column, row) order: stripe_count * k * row_count pointers to 4096
    // aligned bytes that stay unchanged until the call returns; null: a pad of zeros.
    std::span<const std::byte* const> blocks;
    // Out, same order with parity columns behind the data columns of each stripe:
    // stripe_count * (k + m) * row_count checksums.
    std::span<Checksum> checksums;
    // Ok when enough members took it: at most `tolerance` columns of the group are missing or failed, and
    // those that failed could be taken out of service. kTooManyFaults, kReadOnly, kInvalid (no such rows).
    Status result;
};

// What check_stripes() found wrong with one block.
struct BadBlock {
    enum class Kind : uint8_t { kData, kParity, kReadError, kMissing, kParityMismatch };
    VolumeAddress address;
    MemberId member;
    Kind kind = Kind::kData;
};

struct ArrayStatistics {
    uint64_t full_stripes, full_rows, pad_blocks;  // rows outside full stripes; zeros written
    uint64_t data_bytes_written, member_bytes_written;  // without pads; with pads, parity and copies
    // Blocks that readers asked for; of those, had only through redundancy; rewritten on a member; lost.
    uint64_t blocks_read, blocks_reconstructed, blocks_repaired, blocks_unrecoverable;
};

// A group as the array uses it. Immutable; replaced, never changed.
struct ArrayGroup : RefCounted<ArrayGroup> {
    GroupRecord record;
    Geometry geometry;
    uint32_t tolerance = 0;
    // Device offset of each column's slot runs, resolved: runs[column] = {device offset, bytes} in order.
    struct Extent {
        DeviceOffset offset;
        uint64_t bytes;
    };
    std::vector<std::vector<Extent>> extents;
    std::vector<std::vector<uint64_t>> starts;  // starts[column][i]: byte of the column where extent i begins

    // Where byte `offset` of a column lies, and how many bytes follow contiguously.
    [[nodiscard]] Extent locate(uint32_t column, uint64_t offset) const;
};

struct ArrayState;

class Array {
public:
    struct Options {
        bool read_only = false;  // heals in memory only: nothing is written, counters stay in memory
    };
    // `members` and `verifier` outlive the array. The verifier may be set once, before the first read that
    // needs it (mount reads the trees' mirrored groups before there is anybody to ask).
    Array(MemberSet& members, const Options& options);
    ~Array();
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    void set_verifier(BlockVerifier* verifier);
    void set_read_only(bool read_only);

    // Makes a group usable; `superblock` gives slot sizes and offsets. kInvalid when it overlaps one.
    Status add_group(const GroupRecord& record, const Superblock& superblock);
    // Forgets a group that holds nothing.
    void remove_group(VolumeAddress address);
    // Null when the address belongs to no group.
    [[nodiscard]] Ref<const ArrayGroup> group_at(VolumeAddress address) const;
    [[nodiscard]] std::vector<Ref<const ArrayGroup>> groups() const;
    // Columns of the group on members that are not in service.
    [[nodiscard]] uint32_t missing_columns(const ArrayGroup& group) const;

    // Reads every piece, as one batch of merged vectored requests per member; verifies every block; what
    // is bad or missing is reconstructed, verified, and rewritten under the stripe lock. Returns ok when
    // every piece is ok, else the first failure; blocks that could be had are delivered all the same.
    // Thread-safe. The caller keeps the addresses from being reused (a snapshot pin).
    Status read(std::span<ReadPiece> pieces);

    // Computes checksums and parity and writes all rows as one batch: one contiguous vectored request per
    // member wherever rows adjoin. Not flushed. A member that fails is counted and marked failed, unless some
    // group would lose data without it; the write succeeds while redundancy carries it. Returns the first
    // failure; after one, rows may hold anything. Thread-safe for disjoint rows.
    Status write_rows(std::span<RowWrite> writes);

    // Reads every column of the given stripes and reports blocks that are not what they should be, without
    // changing anything. Blocks without expectation are skipped (never written rows).
    Status check_stripes(VolumeAddress group_address, uint64_t first_stripe, uint64_t stripe_count,
                         std::vector<BadBlock>& found);

    // Reads every copy of `block_count` blocks of a mirrored group separately and reports those of which
    // `check` does not approve, without changing anything: for content that has no checksum per block. On a
    // parity group it looks at the data blocks alone. kInvalid as for read().
    Status check_copies(VolumeAddress address, uint32_t block_count, const ContentCheck& check,
                        std::vector<BadBlock>& found);

    [[nodiscard]] ArrayStatistics statistics() const;

private:
    std::unique_ptr<ArrayState> state_;
};

}  // namespace cowraid
