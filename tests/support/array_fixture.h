// SPDX-License-Identifier: MIT
// For tests: an array over simulated members, and what must be in it. Every member can fail by rule and
// records its requests; the verifier answers from what was written.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/mutex.h"
#include "base/random.h"
#include "journal/intent_log.h"
#include "raid56/array.h"
#include "sim/fault_device.h"
#include "sim/holding_device.h"
#include "sim/sim_device.h"

namespace cowraid::test {

// Records the requests that reach it.
class CountingDevice final : public BlockDevice {
public:
    struct Entry {
        IoKind kind;
        uint64_t offset;
        uint64_t bytes;
        size_t vectors;
    };

    explicit CountingDevice(std::unique_ptr<BlockDevice> inner) : inner_(std::move(inner)) { }
    [[nodiscard]] uint64_t size_bytes() const override { return inner_->size_bytes(); }
    [[nodiscard]] const char* name() const override { return inner_->name(); }
    void perform(IoRequest& request) override;

    [[nodiscard]] std::vector<Entry> entries(IoKind kind) const;
    void forget();

private:
    const std::unique_ptr<BlockDevice> inner_;
    mutable Mutex mutex_{LockRank::kDevice};
    std::vector<Entry> entries_ CW_GUARDED_BY(mutex_);
};

struct Shape {
    ProfileId profile = ProfileId::kRaid6;
    uint32_t data_columns = 6;
    uint32_t chunk_bytes = 65536;
};

// "raid6 6+2 64K", for failure messages.
std::string describe(const Shape& shape);
// All profiles in widths up to 8 members and some of 16, each with `chunks`.
std::vector<Shape> shapes(std::initializer_list<uint32_t> chunks);
// Every parity shape of at most `widest` members.
std::vector<Shape> parity_shapes(uint32_t widest, std::initializer_list<uint32_t> chunks);

class TestVolume final : public BlockVerifier, public ChecksumSink {
public:
    static constexpr VolumeAddress kGroup{uint64_t{1} << 32};
    static constexpr uint64_t kSlotBytes = 16 * kMiB;
    static constexpr uint64_t kLogBytes = 3 * kMiB;

    explicit TestVolume(const Shape& shape, uint64_t seed = 1, PowerSupply* power = nullptr);
    // The volume as another machine finds it after a power cut, which happened: members hold what was flushed
    // and a random choice of the rest, what is expected is what was committed. Members of `without` are not
    // there.
    TestVolume(const TestVolume& crashed, uint64_t seed, std::span<const uint32_t> without);
    ~TestVolume() override;

    // BlockVerifier: from what was written, unless a test says otherwise.
    void expect(VolumeAddress address, std::span<BlockExpectation> out) override;
    void unrecoverable(VolumeAddress address) override;
    // ChecksumSink: what is expected from now on.
    void record(VolumeAddress address, std::span<const Checksum> written) override;
    bool in_use(VolumeAddress address) override;

    // Lets the array write in place, with the log in the members' ranges for it.
    void start_partial_writes(const PartialWriteOptions& options = {});
    // Origin of writes in place: the next commit.
    [[nodiscard]] WriteOrigin origin() { return {superblock.generation.next(), epoch(), this}; }
    [[nodiscard]] uint64_t epoch() const { return superblock.log_epoch; }
    // Flushes, and makes everything expected by now what a crash cannot take away.
    Status commit_all();
    // What a mount does after a crash.
    Status recover(RecoveryCounts& counts);
    // Writes random blocks in place, makes them what is expected.
    Status overwrite(uint64_t first_block, uint32_t block_count);
    // Makes `content`, written in place from `first_block` on, what is expected: data, and parity of its
    // rows.
    void expect_content(uint64_t first_block, std::span<const std::byte> content);

    // Writes whole stripes of random blocks, or rows of one, a share of them pads.
    Status write(uint64_t first_stripe, uint64_t stripe_count, uint32_t pad_percent = 10);
    Status write_rows(uint64_t stripe, uint32_t first_row, uint32_t row_count, uint32_t pad_percent = 10);
    // Sets up a RowWrite without carrying it out; commit() makes its content what is
    // expected, and compares the checksums that its sink was told, unless the test gave it another sink.
    RowWrite prepare(uint64_t first_stripe, uint64_t stripe_count, uint32_t first_row, uint32_t row_count,
                     uint32_t pad_percent);
    void commit(const RowWrite& write);

    // A checksum piece over data blocks, by block number of the group; memory is the volume's until the next
    // forget_pieces().
    ReadPiece piece(uint64_t first_block, uint32_t block_count);
    void forget_pieces() { piece_memory_.clear(); }
    // Whether the piece holds what was written; blocks never written may hold anything.
    [[nodiscard]] bool right(const ReadPiece& piece) const;
    // Reads `block_count` blocks as one piece and compares.
    bool read_back(uint64_t first_block, uint32_t block_count);

    [[nodiscard]] uint32_t member_count() const { return static_cast<uint32_t>(sims.size()); }
    // Where a block of the group lies.
    struct Spot {
        uint32_t member;  // index
        uint64_t offset;
    };
    [[nodiscard]] Spot spot(const BlockPlace& place, uint32_t copy = 0) const;
    // Overwrites a block on its member with other content.
    void rot(const BlockPlace& place, uint32_t copy = 0);
    // Makes reads of the block fail until it is written.
    void latent(const BlockPlace& place, uint32_t copy = 0);
    // The map calls the columns of members out of service stale, as the next commit would make durable.
    void record_away();
    // Takes a member out as if it were not there, and the map knew.
    void remove(uint32_t member)
    {
        set.leave_out(member_id(member));
        record_away();
    }
    [[nodiscard]] static MemberId member_id(uint32_t member) { return {member + 1}; }
    // Whether every block written, parity included, is on its member (those not in `without`) as it must be.
    [[nodiscard]] bool disk_is_right(const std::vector<uint32_t>& without = {});
    // The first mebibyte of each slot run of one member.
    [[nodiscard]] std::vector<std::byte> image(uint32_t member) const;
    [[nodiscard]] uint64_t counter(uint32_t member, MemberCounter counter) const;
    // Sum of all counters of all members but `except` (UINT32_MAX: of all).
    [[nodiscard]] uint64_t all_counters(uint32_t except = UINT32_MAX) const;
    [[nodiscard]] size_t requests(IoKind kind) const;
    void forget_requests();

    [[nodiscard]] Checksum checksum_at(const BlockPlace& place) const;
    [[nodiscard]] const std::vector<std::byte>* content_at(const BlockPlace& place) const;

    Shape shape;
    Geometry geometry;
    GroupRecord group_record;
    Superblock superblock;
    MemberSet set;
    std::vector<SimDevice*> sims;
    std::vector<FaultDevice*> faults;
    std::vector<CountingDevice*> counts;  // what the array asked for
    std::vector<HoldingDevice*> holds;  // what holds back is not counted
    std::unique_ptr<IntentLog> log;
    std::unique_ptr<Array> array;
    Prng prng;
    // Answers that differ from what was written, by address.
    std::map<uint64_t, BlockExpectation> answers;
    bool knows_nothing = false;
    std::set<uint64_t> free_addresses;  // of data blocks that nothing refers to
    std::vector<VolumeAddress> given_up;

private:
    void make_members(uint32_t columns, PowerSupply* power);
    void add_member(uint32_t member, std::unique_ptr<SimDevice> sim);
    void make_group();
    void make_array();

    mutable Mutex mutex_{LockRank::kMemberSet};
    std::map<uint64_t, std::vector<std::byte>> contents_;  // by address, parity included
    std::map<uint64_t, Checksum> checksums_;
    std::set<uint64_t> uncommitted_;  // written in place: a crash leaves them free
    std::map<uint64_t, std::vector<std::byte>> committed_contents_;
    std::map<uint64_t, Checksum> committed_checksums_;
    struct Prepared final : ChecksumSink {
        AlignedBuffer data;
        std::vector<const std::byte*> blocks;
        std::map<uint64_t, Checksum> recorded;  // by address
        void record(VolumeAddress address, std::span<const Checksum> checksums) override
        {
            for (size_t i = 0; i < checksums.size(); ++i)
                recorded[address.value + i * kBlockBytes] = checksums[i];
        }
        bool in_use(VolumeAddress) override { return true; }
    };
    std::vector<std::unique_ptr<Prepared>> prepared_;
    struct PieceMemory {
        AlignedBuffer data;
        std::vector<Checksum> checksums;
    };
    std::vector<std::unique_ptr<PieceMemory>> piece_memory_;
};

}  // namespace cowraid::test
