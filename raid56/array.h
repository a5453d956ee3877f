// SPDX-License-Identifier: MIT
// The array: volume addresses to members, with redundancy. Reads verify and heal; writes cover whole rows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/mutex.h"
#include "base/ref.h"
#include "base/status.h"
#include "base/units.h"
#include "device/member_set.h"
#include "format/group_map_codec.h"
#include "format/superblock_codec.h"
#include "raid56/geometry.h"

namespace cowraid {

// What the filesystem knows about a block. The array never calls up except through this.
struct BlockExpectation {
    bool known = false;  // false: never written, discarded, or the answer could not be had
    Checksum checksum = 0;
    bool unavailable = false;  // the answer could not be had: nothing may be recorded of the block
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
    // Whether the data block is known to be lost. What else is wrong in its row may never have been there: a
    // column that was filled without it.
    virtual bool known_lost(VolumeAddress) { return false; }
};

// Where the checksums of a piece come from.
enum class ChecksumSource : uint8_t {
    kVerifier,  // it alone knows whether they still hold
    kPointer,  // the pointer to a tree node, of a commit that is pinned while the piece is read: they hold
};

// A contiguous address range of one group to be read.
struct ReadPiece {
    VolumeAddress address;  // block aligned; the range stays inside one group's data addresses
    uint32_t block_count = 0;
    std::byte* memory = nullptr;  // 4096-aligned, block_count * 4096 bytes, the caller's
    const Checksum* checksums = nullptr;  // one per block
    ChecksumSource source = ChecksumSource::kVerifier;
    Status result;  // per piece: ok, kTooManyFaults, kInvalid (no such address)
    uint32_t bad_blocks = 0;  // on kTooManyFaults: how many could not be had
    uint32_t first_bad = 0, last_bad = 0;  // of them, by their place in the piece
};

// Learns the checksums of what a write changed, parity included.
class ChecksumSink {
public:
    virtual ~ChecksumSink() = default;
    // `checksums` of consecutive blocks, data or parity. Called before the write is done and before any other
    // write of the stripe begins, so that the verifier's answers are never older than the members. No mutex
    // is held. Thread-safe.
    virtual void record(VolumeAddress address, std::span<const Checksum> checksums) = 0;
    // Whether anything refers to the data block. A free one may hold what a crash left there, when the log
    // entry that would tell was on a member that is lost or lied: that is no fault of the member it lies on.
    virtual bool in_use(VolumeAddress address) = 0;
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
    // Learns the checksums of all blocks, pads and parity included, before another write of the stripes
    // begins, whatever becomes of this one; null: nobody does.
    ChecksumSink* sink = nullptr;
    // Ok when enough members took it: at most `tolerance` columns of the group are missing or failed, and
    // those that failed could be taken out of service. kTooManyFaults, kReadOnly, kInvalid (no such rows).
    Status result;
};

// A run of data blocks to be written in place: free addresses in rows that may hold other blocks, which keep
// their content through any crash. The rows were written whole before, by write_rows(). Not for mirrors.
struct BlockWrite {
    VolumeAddress address;  // block aligned; the range stays inside one group's data addresses
    uint32_t block_count = 0;
    const std::byte* memory = nullptr;  // 4096-aligned, unchanged until the write is done
    // Ok: on the members, not flushed, and carried by the redundancy there is. kTooManyFaults: a row cannot
    // be read any more, or too many members failed; blocks of that row may hold anything. kReadOnly, kInvalid
    // (no such addresses), kNoSpace: the row waits for a commit with the checksums of what was written,
    // because the log is full, or because the map does not say yet that a parity column is away; blocks of
    // that row hold what they held.
    Status result;
};

// Whose writes they are.
struct WriteOrigin {
    Generation generation;  // of the commit that will refer to the blocks
    uint64_t epoch = 0;  // Superblock::log_epoch
    ChecksumSink* sink = nullptr;
};

// Writes handed over together, done together. The caller's until wait() returns.
struct WriteRequest {
    std::span<BlockWrite> writes;
    WriteOrigin origin;
    // The array's.
    uint64_t blocks_left = 0;
    uint32_t shards = 0;
    bool done = false, poked = false;
};

// How reads for a partial write are chosen; the numbers are md's.
enum class RmwLevel : uint8_t {
    kNever,  // always read what the write leaves alone
    kFewerReads,  // read old data and parity where that takes fewer reads
    kPrefer,  // ... or as few
};

struct PartialWriteOptions {
    uint32_t stripe_cache_size = 1024;  // stripes, 17 to 32768
    uint64_t stripe_cache_bytes = 256 * kMiB;
    RmwLevel rmw_level = RmwLevel::kFewerReads;
    uint32_t stripe_io_bytes =
        kBlockBytes;  // what reads for a write are rounded to; a power of two up to a chunk
    bool plug = true;  // false: every request is carried out by itself, as it comes
    uint32_t worker_count = 2;  // 0: requests are carried out by whoever waits for them
};

struct PartialWriteStatistics {
    uint64_t rows, rmw_rows, rcw_rows, full_rows;  // full: all data blocks of a row came together
    uint64_t blocks_read, cache_hits, cache_misses;  // hits and misses: blocks that a row needed
    uint64_t log_batches, log_bytes, flushes;  // flushes: of all members, to make room in the cache
    uint64_t repaired_rows;  // something read for a write was bad, and came from redundancy
    uint64_t requests, batches;  // requests per batch tell how well the plug merges
};

// What recover_rows() did.
struct RecoveryCounts {
    uint64_t rows = 0;  // that live entries name
    uint64_t changed = 0;  // of them, rows of which some block on a member was not what it must be
    uint64_t untouched = 0;  // no entry was ever acted upon
};

// What check_stripes() found wrong with one block.
struct BadBlock {
    // kStale: data or parity of a stale column.
    enum class Kind : uint8_t { kData, kParity, kReadError, kMissing, kParityMismatch, kStale };
    VolumeAddress address;
    MemberId member;
    Kind kind = Kind::kData;
};

// Rows [first_row, first_row + row_count) of one stripe.
struct StripeRows {
    uint64_t stripe = 0;
    uint32_t first_row = 0, row_count = 0;
};

// For work in the background: calls read(times) until no member was late in so many times the time that
// readers wait, at most 64 times. Before it reads again await() waits for members. False: that was to stop.
template <typename Read, typename Await>
[[nodiscard]] bool read_until_on_time(const Read& read, const Await& await)
{
    constexpr uint32_t kTimesMax = 64;
    for (uint32_t times = 1; !read(times); times = std::min(2 * times, kTimesMax))
        if (!await())
            return false;
    return true;
}

enum class ScrubMode : uint8_t { kRepair, kLook };

// Whose word a scrub takes. in_use() is of the last commit: what it says is on the members, or lost.
class ScrubSink : public ChecksumSink {
public:
    // Whether anybody may need the block besides: a transaction that is no commit yet may have put it there,
    // or is about to. Asked while the stripe is locked.
    virtual bool may_be_used(VolumeAddress address) = 0;
    // Between the two calls below: whether record() may be called.
    virtual bool may_record() = 0;
    // Around the repair of a stripe: before its lock is taken, and after it was let go. What is recorded in
    // between must take effect before another write of the stripe is recorded, and is a write of the stripe:
    // the content may be on its way to the members. `first`: its first data block.
    virtual void begin_stripe(VolumeAddress first) = 0;
    virtual void end_stripe() = 0;
    // A member did not answer: waits until it does. False: who called is to stop. Not between the two above.
    [[nodiscard]] virtual bool await(MemberId member) = 0;
};

// Whose content goes where, at the same offsets. Both members are in service, and what is written to the one
// is written to the other (MemberSet::set_mirror()).
struct MemberCopy {
    MemberId source, target;
};

// Data blocks that adjoin, one for each checksum: a tree node.
struct CopiedBlocks {
    VolumeAddress address;
    std::span<const Checksum> checksums;
    Status result;  // ok, kTooManyFaults: one of them is lost, kInvalid: no such addresses
};

// What scrub_rows() saw and did; calls add to it.
struct ScrubReport {
    // Blocks that were read and compared with what they must be. Data includes free blocks of rows in use,
    // and every copy. Parity is compared with its checksum and with what the data says.
    uint64_t data_blocks = 0, parity_blocks = 0;
    uint64_t unverified = 0;  // not read: on members that are not in service
    uint64_t repaired = 0;  // rewritten, and read back, but for what was filled of stale columns
    // Redundancy has the content, the member does not: nothing was to be written, it failed, or what is
    // recorded could not be changed just now. Parity that does not follow from its data is among them.
    uint64_t unrepaired = 0;
    uint64_t unfilled = 0;  // of those, blocks of stale columns
    uint64_t adopted = 0;  // right, but something else was recorded of them
    // Rows left alone for now: something in them is not as recorded, or lost that a member which is out of
    // service may have. What could be said to be wrong in them is among `unrepaired`; a pass comes again. And
    // blocks of members in service that did not answer (kMemberGone).
    uint64_t unsettled = 0;
    std::vector<VolumeAddress> lost;  // blocks in use that redundancy does not have any more
    ScrubbedMembers members;  // the same, by member
    // By member, bad blocks of rows that lost something, parity too, whether or not it is known.
    std::map<MemberId, uint64_t> lost_on;
    // Asked to stop while it waited for a member, it left rows out: what it was called for is to be repeated.
    bool given_up = false;

    ScrubReport& operator+=(const ScrubReport& more);
};

struct ArrayStatistics {
    uint64_t full_stripes, full_rows, pad_blocks;  // rows outside full stripes; zeros written
    uint64_t data_bytes_written, member_bytes_written;  // without pads; with pads, parity and copies
    // Blocks that readers asked for; of those, had only through redundancy; rewritten on a member; lost.
    uint64_t blocks_read, blocks_reconstructed, blocks_repaired, blocks_unrecoverable;
};

// A range of a member's device.
struct MemberPart {
    MemberId member;
    DeviceOffset offset;
    uint64_t bytes = 0;
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
    // Appends where all chunks of these stripes lie, parity and copies included.
    void locate_stripes(uint64_t first, uint64_t count, std::vector<MemberPart>& out) const;
    // Whether these are blocks of its data addresses, at least one.
    [[nodiscard]] bool has_data(VolumeAddress address, uint64_t block_count) const;
};

// An immutable state of the table of groups.
struct GroupList : RefCounted<GroupList> {
    std::vector<Ref<const ArrayGroup>> groups;  // by rising address

    // The group whose span (parity addresses included) holds `address`, or null. Lives as long as the list.
    [[nodiscard]] const ArrayGroup* find(VolumeAddress address) const;
};

// The groups that there were at one moment, by rising address, for who looks at all of them. A reference: no
// copy.
class Groups {
public:
    explicit Groups(Ref<const GroupList> list) : list_(std::move(list)) { }

    [[nodiscard]] auto begin() const { return list_->groups.begin(); }
    [[nodiscard]] auto end() const { return list_->groups.end(); }
    [[nodiscard]] size_t size() const { return list_->groups.size(); }

private:
    Ref<const GroupList> list_;
};

struct ArrayState;
class IntentLog;
class IntentScan;

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
    [[nodiscard]] bool read_only() const;
    // Stale columns are being filled: until that ends readers leave them to who does it.
    void set_filling(bool filling);

    // Makes a group usable; `superblock` gives slot sizes and offsets. kInvalid when it overlaps one.
    Status add_group(const GroupRecord& record, const Superblock& superblock);
    // Forgets groups that hold nothing, all at once. Their addresses rise; others are ignored.
    void remove_groups(std::span<const VolumeAddress> addresses);
    // Null when the address belongs to no group.
    [[nodiscard]] Ref<const ArrayGroup> group_at(VolumeAddress address) const;
    [[nodiscard]] Groups groups() const;
    // The map says anew which columns are stale. Groups that are not the array's are left out.
    Status update_groups(std::span<const GroupRecord> records, const Superblock& superblock);
    // Columns of the group on members that are not in service.
    [[nodiscard]] uint32_t absent_columns(const ArrayGroup& group) const;
    // Columns that tolerance must carry: of members that are not in service, and stale ones.
    [[nodiscard]] uint32_t missing_columns(const ArrayGroup& group) const;

    // Reads every piece, as one batch of merged vectored requests per member; verifies every block; what
    // is bad or missing is reconstructed, verified, and rewritten under the stripe lock. Returns ok when
    // every piece is ok, else the first failure; blocks that could be had are delivered all the same.
    // Thread-safe. The caller keeps the addresses from being reused (a snapshot pin).
    // Members that are slow (MemberSet::slow()) are not asked, as if they were missing, where the others
    // suffice. With `lease`, in which the memory of all pieces lies, no read waits longer than
    // read_deadline_ms() for one either where others suffice: then the memory is left to the member, and
    // *lease is another buffer, with everything where it was in the old one; ReadPiece::memory follows.
    Status read(std::span<ReadPiece> pieces, AlignedBuffer* lease = nullptr);

    // Computes checksums and parity and writes all rows as one batch: one contiguous vectored request per
    // member wherever rows adjoin. Not flushed. A member that fails is counted and marked failed, unless some
    // group would lose data without it; the write succeeds while redundancy carries it. Returns the first
    // failure; after one, rows may hold anything. Thread-safe for disjoint rows.
    Status write_rows(std::span<RowWrite> writes);

    // After a crash, before anything else is written: brings every row that `scan` names to a state with all
    // blocks it had, and parity that fits. `sink` learns the checksums of every block of those rows; they
    // must be part of the next commit, which makes the entries dead. Not flushed. A read-only array writes
    // nothing and remembers the rows that differ. kTooManyFaults: members failed. Once at a time.
    Status recover_rows(IntentScan& scan, ChecksumSink& sink, RecoveryCounts& counts);
    // Before the first write_blocks(). `log` outlives the array. kInvalid: an option out of range; for
    // stripe_io_bytes, beyond the smallest chunk is the chunk.
    Status start_partial_writes(IntentLog& log, const PartialWriteOptions& options);
    // Changes the options of an array in use, all but worker_count. kInvalid as above.
    Status set_partial_write_options(const PartialWriteOptions& options);
    // Memory that is kept between calls for parity and what is read for it.
    void keep_buffers(size_t bytes);
    // None while writes in place are not started.
    [[nodiscard]] std::optional<PartialWriteOptions> partial_write_options() const;
    // Writes blocks in place: parity is updated from what is read and verified, or from the stripe cache, and
    // a write-intent entry is durable before. Returns when all are done: the first failure. Thread-safe;
    // writers of the same rows wait for each other and merge.
    Status write_blocks(std::span<BlockWrite> writes, const WriteOrigin& origin);
    // The same in two steps: between them the request may be merged with others. Every submitted request must
    // be waited for. Thread-safe.
    void submit(WriteRequest& request);
    Status wait(WriteRequest& request);
    [[nodiscard]] PartialWriteStatistics partial_write_statistics() const;

    // For who flushes all members itself: while one exists no write in place is under way. flushed() when the
    // flush succeeded; `covered` goes to retire().
    class FlushBarrier {
    public:
        explicit FlushBarrier(Array& array);
        ~FlushBarrier();
        FlushBarrier(const FlushBarrier&) = delete;
        FlushBarrier& operator=(const FlushBarrier&) = delete;
        void flushed();
        const uint64_t covered;

    private:
        ArrayState& state_;
    };
    // The commit that refers to everything written before that flush is durable: room for new log entries.
    void retire(uint64_t covered);

    // Reads every column of the given stripes and reports blocks that are not what they should be, without
    // changing anything. Blocks without expectation are skipped (never written rows).
    Status check_stripes(VolumeAddress group_address, uint64_t first_stripe, uint64_t stripe_count,
                         std::vector<BadBlock>& found);

    // Reads every column and copy of the rows and verifies checksums, and parity against its data, from the
    // same buffers. What only stale columns under parity lack is solved from these, and written with up to
    // 2 MiB of a member's stripes locked. Else the stripe is locked, read again, examined and repaired: data
    // from parity or a copy, parity from data, free blocks too. Only rows with a block in use count: others
    // may hold what a crash left. What is right and recorded otherwise is told to the sink. `rows`: rising,
    // of one group. kInvalid: no such rows. Not for mirrored nodes, of which the verifier knows nothing.
    // What a member does not answer within the time that readers wait is read again when it answers, with
    // twice as much time each time; until then no stripe is locked (ScrubSink::await()). Thread-safe.
    Status scrub_rows(VolumeAddress group_address, std::span<const StripeRows> rows, ScrubMode mode,
                      ScrubSink& sink, ScrubReport& report);
    // The same for blocks of mirrored groups of which the verifier knows nothing: every copy of them. Those
    // of all pieces are read as one batch. The caller keeps the addresses from being reused. Blocks under
    // parity are left out: scrub_rows() has them. kWouldWait: a member did not answer in `times` times the
    // time that readers wait, and nothing was done. Thread-safe.
    [[nodiscard]] Status scrub_copies(std::span<CopiedBlocks> pieces, ScrubMode mode, uint32_t times,
                                      ScrubReport& report);

    // Writes to the target what the source has of these rows, or must have: its blocks are verified; what is
    // unreadable or wrong comes from the other members. Stripes are locked once the source has answered;
    // while one of the two is slow nothing new is locked, however long that takes. Adds to the report the
    // blocks that were written, as `repaired` those that the source did not have, what is lost, and as
    // `unsettled` what the target did not take, being out of service then, and what the source may have that
    // did not answer: it is not lost. Nothing is repaired. Rows, sink and errors as for scrub_rows().
    Status copy_rows(VolumeAddress group_address, std::span<const StripeRows> rows, const MemberCopy& copy,
                     ScrubSink& sink, ScrubReport& report);
    // The same for blocks as scrub_copies() takes them.
    [[nodiscard]] Status copy_copies(std::span<CopiedBlocks> pieces, const MemberCopy& copy, uint32_t times,
                                     ScrubReport& report);

    // Where nodes above could not be read: columns of these rows of mirrored nodes that are stale since the
    // group was made get what a column that is not stale holds, unverified. Blocks that no member in service
    // has, or one may have that is out of service, are `unsettled`, and left as they are. Rows, sink and
    // errors as for scrub_rows(); kInvalid under parity, too.
    Status fill_copies(VolumeAddress group_address, std::span<const StripeRows> rows, ScrubSink& sink,
                       ScrubReport& report);

    // Reads every copy of the blocks from `address` on separately, one per checksum, and reports those that
    // do not match, without changing anything: for blocks of which the verifier knows nothing. On a parity
    // group it looks at the data blocks alone. kInvalid as for read().
    Status check_copies(VolumeAddress address, std::span<const Checksum> checksums,
                        std::vector<BadBlock>& found);

    [[nodiscard]] ArrayStatistics statistics() const;

private:
    std::unique_ptr<ArrayState> state_;
};

}  // namespace cowraid
