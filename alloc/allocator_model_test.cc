// SPDX-License-Identifier: MIT
// Random histories of the allocator against the naive model: every region obeys the row rule, every commit
// records exactly its own view, a crash comes back to it, and a refusal is due.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "tests/support/space_model.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

struct Counts {
    uint64_t regions = 0, partial_regions = 0, refused = 0, frees = 0, windows = 0, crashes = 0,
             evictions = 0, holes = 0;
    uint64_t commits = 0, delayed_releases = 0;
};

class History {
public:
    History(uint64_t seed, Counts& counts) : random_(seed), counts_(counts)
    {
        allocator_ = std::make_unique<Allocator>(durable_);
        const uint64_t groups = random_.between(1, 4);
        for (uint64_t index = 0; index < groups; ++index)
            add_group();
    }

    void step()
    {
        switch (random_.below(24)) {
        case 0:
            return begin_commit();
        case 1:
            return collect();
        case 2:
        case 3:
            return end_commit();
        case 4:
            return release_one();
        case 5:
            return maintain();
        case 6:
        case 7:
        case 8:
        case 9:
        case 10:
        case 11:
            return free_some();
        case 12:
            return take_of_partial_rows();
        default:
            return allocate();
        }
    }

    void check_numbers()
    {
        for (const uint32_t content : {kGroupData, kGroupMetadata, kAllContent}) {
            const SpaceNumbers is = allocator_->numbers(content);
            const SpaceNumbers should = model_.numbers(content);
            CHECK(is.total_blocks == should.total_blocks);
            CHECK(is.used_blocks == should.used_blocks);
            CHECK(is.pinned_blocks == should.pinned_blocks);
            CHECK(is.free_row_blocks == should.free_row_blocks);
            CHECK(is.free_stripe_blocks == should.free_stripe_blocks);
            CHECK(is.partial_row_blocks == should.partial_row_blocks);
            CHECK(is.returning_blocks == should.returning_blocks);
            CHECK(is.degraded_row_blocks == should.degraded_row_blocks);
            CHECK(is.degraded_stripe_blocks == should.degraded_stripe_blocks);
            CHECK(is.degraded_partial_row_blocks == should.degraded_partial_row_blocks);
        }
    }

    void crash()
    {
        ++counts_.crashes;
        model_.crash(committed_);
        allocator_ = std::make_unique<Allocator>(durable_);
        pending_ = durable_;
        committing_ = {};
        unreleased_.clear();
        std::erase_if(model_.groups, [&](const ModelGroup& group) {
            return group.state == Allocator::GroupState::kPlanned;
        });
        for (ModelGroup& group : model_.groups) {
            allocator_->add_group(group.record, durable_.usage(group.record), group.state);
            for (uint64_t block = 0; block < group.blocks.size(); ++block) {
                if (durable_.is_used(group.record, block) !=
                    (group.blocks[block].state == ModelBlock::State::kLive))
                    FAIL_CHECK("committed state lost: block ", block);
            }
        }
        committed_ = {};
        open_ = {1};
    }

private:
    void add_group()
    {
        struct Shape {
            ProfileId profile;
            uint32_t data_columns;
        };
        static constexpr Shape kShapes[] = {
            {ProfileId::kSingle, 1}, {ProfileId::kRaid1, 1},   {ProfileId::kRaid5, 1},
            {ProfileId::kRaid5, 3},  {ProfileId::kRaid5, 7},   {ProfileId::kRaid6, 2},
            {ProfileId::kRaid6, 14}, {ProfileId::kRaid1c3, 1},
        };
        const Shape& shape = kShapes[random_.below(std::size(kShapes))];
        const auto chunk = static_cast<uint32_t>((4 * kKiB) << random_.below(9));
        const uint64_t stripe_blocks = chunk / kBlockBytes * shape.data_columns;
        const uint64_t stripes = random_.between(1, std::max<uint64_t>(4, 5000 / stripe_blocks));
        static constexpr uint32_t kContents[] = {kGroupData, kGroupData | kGroupMetadata,
                                                 kGroupMetadata | kGroupSystem, kAllContent};
        ModelGroup group;
        group.record = test_group({next_address_}, shape.profile, shape.data_columns, chunk, stripes,
                                  kContents[random_.below(std::size(kContents))]);
        group.geometry = geometry_of(group.record);
        group.blocks.resize(group.geometry.data_blocks());
        group.state = !model_.groups.empty() && random_.chance(1, 4) ? Allocator::GroupState::kPlanned
                                                                     : Allocator::GroupState::kOpen;
        next_address_ += group.record.span_bytes() + random_.below(3) * kMiB;
        allocator_->add_group(group.record, all_free(group.record), group.state);
        model_.groups.push_back(std::move(group));
    }

    // The open transaction, or at times the one being committed.
    TransactionId pick_transaction()
    {
        return committing_.value != 0 && random_.chance(1, 3) ? committing_ : open_;
    }

    void allocate()
    {
        static constexpr uint32_t kContents[] = {kGroupData, kGroupMetadata, kGroupSystem, kGroupData};
        const uint64_t stream = random_.below(kStreamCount);
        const uint32_t unit = random_.chance(1, 2) ? 1 : random_.chance(3, 4) ? 4 : 2;
        const uint64_t units = random_.between(0, uint64_t{1} << random_.below(11));
        const TransactionId transaction = pick_transaction();
        std::vector<RowRegion> regions;
        const Status status =
            allocator_->allocate(static_cast<Stream>(stream), unit, units, transaction, regions);
        const uint64_t room = model_.room(kContents[stream], unit);
        if (!status.ok()) {
            ++counts_.refused;
            CHECK(status.err() == Err::kNoSpace);
            CHECK(regions.empty());
            CHECK(room < units);
            return;
        }
        CHECK(room >= units);
        const char* wrong = model_.take(regions, kContents[stream], unit, units, transaction);
        if (wrong != nullptr)
            FAIL_CHECK(wrong);
        counts_.regions += regions.size();
        for (const RowRegion& region : regions)
            counts_.partial_regions += region.row_count < region.geometry.rows() ? 1 : 0;
    }

    void take_of_partial_rows()
    {
        const TransactionId transaction = pick_transaction();
        const uint64_t wanted = random_.between(0, uint64_t{1} << random_.below(9));
        const uint64_t before = model_.numbers(kGroupData).partial_row_blocks;
        std::vector<BlockRun> runs;
        const uint64_t taken = allocator_->allocate_in_partial_rows(wanted, transaction, runs);
        CHECK(taken == std::min(wanted, before));
        const char* wrong = model_.take_of_partial_rows(runs, transaction);
        if (wrong != nullptr)
            FAIL_CHECK(wrong);
        CHECK(model_.numbers(kGroupData).partial_row_blocks == before - taken);
        counts_.holes += taken;
    }

    void free_some()
    {
        const TransactionId transaction = pick_transaction();
        ModelGroup& group = model_.groups[random_.below(model_.groups.size())];
        const auto freeable = [&](uint64_t block) {
            return block < group.blocks.size() && group.blocks[block].state == ModelBlock::State::kLive &&
                   group.blocks[block].allocated <= transaction;
        };
        uint64_t block = random_.below(group.blocks.size());
        while (block < group.blocks.size() && !freeable(block))
            ++block;
        for (uint64_t piece = random_.between(1, 12); piece > 0 && freeable(block); --piece) {
            const uint64_t most = uint64_t{1} << random_.below(10);
            uint64_t count = 1;
            while (count < most && freeable(block + count))
                ++count;
            const VolumeAddress address = group.record.address + block * kBlockBytes;
            REQUIRE(allocator_->free_blocks(address, count, transaction).ok());
            model_.free_blocks(group, block, count, transaction);
            counts_.frees += count;
            block += count + random_.below(3);
        }
    }

    void begin_commit()
    {
        if (committing_.value != 0)
            return;
        committing_ = open_;
        ++open_.value;
        // Groups the last commit published take data from now on.
        for (ModelGroup& group : model_.groups) {
            if (group.state != Allocator::GroupState::kPlanned)
                continue;
            group.state = Allocator::GroupState::kOpen;
            allocator_->set_group_state(group.record.address, group.state);
        }
    }

    void collect()
    {
        if (committing_.value == 0)
            return;
        std::vector<SpaceWindow> windows;
        std::vector<GroupUsage> usages;
        REQUIRE(allocator_->collect(committing_, windows, usages).ok());
        CHECK(pending_.record(windows, usages, generation_.next()));
        counts_.windows += windows.size();
        const size_t once = windows.size() + usages.size();
        REQUIRE(allocator_->collect(committing_, windows, usages).ok());
        CHECK(windows.size() + usages.size() == once);
        compare_recorded();
    }

    void compare_recorded()
    {
        for (const ModelGroup& group : model_.groups) {
            for (uint64_t block = 0; block < group.blocks.size(); ++block) {
                if (pending_.is_used(group.record, block) != group.blocks[block].recorded(committing_))
                    FAIL_CHECK("recorded view differs: group ", group.record.address.value, " block ", block);
            }
            const GroupUsage should = group.recorded_usage(committing_);
            const GroupUsage is = pending_.usage(group.record);
            CHECK(is.used_blocks == should.used_blocks);
            CHECK(is.free_rows == should.free_rows);
            CHECK(is.free_stripes == should.free_stripes);
            compare_last_writes(group);
        }
    }

    // Never older than the last commit that wrote into the window.
    void compare_last_writes(const ModelGroup& group)
    {
        const uint64_t window_blocks = window_stripes(group.geometry) * group.geometry.stripe_data_blocks();
        for (uint64_t first = 0; first < group.blocks.size(); first += window_blocks) {
            TransactionId newest;
            for (uint64_t block = first; block < std::min(first + window_blocks, group.blocks.size());
                 ++block) {
                if (group.blocks[block].state != ModelBlock::State::kFree &&
                    group.blocks[block].allocated <= committing_)
                    newest = std::max(newest, group.blocks[block].allocated);
            }
            if (newest.value == 0)
                continue;
            const auto window = pending_.windows.find(
                {group.record.address.value, first / group.geometry.stripe_data_blocks()});
            REQUIRE(window != pending_.windows.end());
            const uint64_t written = base_generation_.value + newest.value;
            CHECK(window->second.last_write.value >= written);
            CHECK(window->second.last_write.value <= base_generation_.value + committing_.value);
        }
    }

    void end_commit()
    {
        if (committing_.value == 0)
            return;
        collect();
        durable_ = pending_;
        generation_ = generation_.next();
        committed_ = committing_;
        unreleased_.push_back({committing_, generation_});
        committing_ = {};
        ++counts_.commits;
        counts_.delayed_releases += unreleased_.size() > 1 ? 1 : 0;
        if (random_.chance(2, 3))
            release_one();
    }

    void release_one()
    {
        if (unreleased_.empty())
            return;
        allocator_->release(unreleased_.front().first, unreleased_.front().second);
        model_.release(unreleased_.front().first);
        unreleased_.pop_front();
    }

    void maintain()
    {
        ModelGroup& group = model_.groups[random_.below(model_.groups.size())];
        const uint64_t block = random_.below(group.blocks.size());
        switch (random_.below(5)) {
        case 0:
            allocator_->evict_idle(random_.below(2000));
            ++counts_.evictions;
            break;
        case 1:
            if (group.state != Allocator::GroupState::kPlanned) {
                constexpr Allocator::GroupState kStates[] = {Allocator::GroupState::kOpen,
                                                             Allocator::GroupState::kClosed,
                                                             Allocator::GroupState::kDegraded};
                group.state =
                    group.state == Allocator::GroupState::kOpen ? kStates[1 + random_.below(2)] : kStates[0];
                allocator_->set_group_state(group.record.address, group.state);
            }
            break;
        case 2:
            if (model_.groups.size() < 7 && random_.chance(1, 8))
                add_group();
            break;
        case 3:
            if (random_.chance(1, 6)) {
                base_generation_ = generation_;
                crash();
            }
            break;
        default:
            CHECK(*allocator_->is_used(group.record.address + block * kBlockBytes) ==
                  (group.blocks[block].state == ModelBlock::State::kLive ||
                   pending_.is_used(group.record, block)));
        }
    }

    Prng random_;
    Counts& counts_;
    Model model_;
    TestDisk durable_;  // the last commit
    TestDisk pending_;  // with what the running commit collected
    std::unique_ptr<Allocator> allocator_;
    uint64_t next_address_ = kMiB;
    TransactionId open_ = {1};
    TransactionId committing_;  // 0: none
    TransactionId committed_;
    Generation generation_ = {10};
    Generation base_generation_ = {10};  // transaction t of this life commits as this plus t
    std::deque<std::pair<TransactionId, Generation>> unreleased_;
};

}  // namespace

TEST_CASE("random histories keep every rule of the model")
{
    const uint64_t seed = test_seed();
    Counts counts;
    for (uint64_t round = 0; round < 200; ++round) {
        CAPTURE(seed);
        CAPTURE(round);
        History history(seed * 1000 + round, counts);
        for (int step = 0; step < 300; ++step) {
            CAPTURE(step);
            history.step();
            if (step % 20 == 0)
                history.check_numbers();
        }
        history.check_numbers();
    }
    MESSAGE("regions ", counts.regions, ", partial ", counts.partial_regions, ", refused ", counts.refused,
            ", frees ", counts.frees, ", windows ", counts.windows, ", commits ", counts.commits,
            ", crashes ", counts.crashes, ", evictions ", counts.evictions, ", delayed releases ",
            counts.delayed_releases, ", holes ", counts.holes);
    CHECK(counts.holes > 2000);
    CHECK(counts.regions > 2000);
    CHECK(counts.partial_regions > 1000);
    CHECK(counts.refused > 500);
    CHECK(counts.frees > 20000);
    CHECK(counts.windows > 500);
    CHECK(counts.commits > 200);
    CHECK(counts.crashes > 10);
    CHECK(counts.evictions > 50);
    CHECK(counts.delayed_releases > 20);
}
