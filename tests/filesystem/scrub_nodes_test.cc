// SPDX-License-Identifier: MIT
// Mirrored tree nodes are read in few requests, in turns that users wait for no longer than for rows.
#include <utility>

#include "base/clock.h"
#include "tests/filesystem/replace_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr VolumeShape kManyNodes{4, 160 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * kKiB};
constexpr uint64_t kNodeCopies = 2;

// Names that fill nodes, changed by several commits.
void make_names(Filesystem& fs)
{
    for (int file = 0; file < 10000; ++file) {
        const std::string name = std::string(200, 'x') + std::to_string(file * 7919 % 10000);
        REQUIRE(fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {}).ok());
        if (file % 2500 == 2499)
            REQUIRE(fs.step(true).ok());
    }
}

// Reads of what is in block groups, of all members.
class CountedReads {
public:
    explicit CountedReads(SimVolume& volume) : volume_(volume)
    {
        for (uint32_t index = 0; index < volume.member_count(); ++index)
            rules_.push_back(volume.cable(index).add_rule({.action = FaultAction::kSlow,
                                                           .kinds = kFaultReads,
                                                           .begin = slots_offset(volume.fs()),
                                                           .delay_microseconds = 1}));
    }
    [[nodiscard]] uint64_t count() const
    {
        uint64_t count = 0;
        for (uint32_t index = 0; index < rules_.size(); ++index)
            count += volume_.cable(index).hits(rules_[index]);
        return count;
    }

private:
    SimVolume& volume_;
    std::vector<size_t> rules_;
};

// A user who wants something as soon as something is read, and has it when the step is over.
struct User {
    ForegroundLoad* load;
    bool waits = false;

    static void come(void* self, uint64_t)
    {
        auto& user = *static_cast<User*>(self);
        if (!std::exchange(user.waits, true))
            user.load->began(monotonic_ns());
    }
    void go()
    {
        if (std::exchange(waits, false))
            load->ended();
    }
};

}  // namespace

TEST_CASE("nodes: a scrub, and copying a member, read them by far fewer requests than there are copies")
{
    SimVolume volume(kManyNodes);
    make_and_mount(volume);
    make_names(volume.fs());
    const CountedReads reads(volume);
    const ScrubStatus scrubbed = scrub(volume.fs());
    CHECK_FALSE(scrubbed.damaged());
    REQUIRE(scrubbed.nodes > 300);
    CHECK(scrubbed.data_blocks >= scrubbed.nodes * kNodeCopies * kNodeBlocks);
    CHECK(reads.count() * 4 < scrubbed.nodes * kNodeCopies);
    const uint32_t device = start(volume);
    const uint64_t before = reads.count();
    const ReplaceStatus replaced = run(volume);
    CHECK(replaced.state == ReplaceStatus::State::kFinished);
    CHECK(replaced.copy.nodes >= scrubbed.nodes);
    CHECK((reads.count() - before) * 4 < replaced.copy.nodes * kNodeCopies);
    CHECK(is_member(volume, device));
    const ScrubStatus again = scrub(volume.fs());
    CHECK(again.repaired == 0);
    CHECK_FALSE(again.damaged());
}

TEST_CASE("nodes: who comes while they are scrubbed waits for a mebibyte of them, not for a piece")
{
    SimVolume volume(kManyNodes);
    make_and_mount(volume);
    make_names(volume.fs());
    WorkBudget& budget = volume.fs().store.budget;
    const CountedReads reads(volume);
    User user{&budget.foreground};
    volume.set_slow_hook({User::come, &user});
    // The first turn of a step begins without users.
    constexpr uint64_t kFirst = 8 * kMiB / kNodeBytes / kNodeCopies, kOther = kMiB / kNodeBytes / kNodeCopies;
    REQUIRE(volume.fs().committer.scrub.start({}).ok());
    uint64_t nodes = 0, turns = 0;
    for (int step = 0; step < 8 && nodes <= kFirst; ++step) {
        const timespec quiet{0, static_cast<long>(ForegroundLoad::kQuietNs + 10'000'000)};
        nanosleep(&quiet, nullptr);
        REQUIRE_FALSE(budget.holds_back());
        nodes = volume.fs().committer.scrub.status().nodes;
        turns = budget.turns_begun();
        volume.fs().committer.scrub.step();
        nodes = volume.fs().committer.scrub.status().nodes - nodes;
        turns = budget.turns_begun() - turns;
        user.go();
    }
    REQUIRE(nodes > kFirst + 2 * kOther);
    CHECK(turns >= 1 + (nodes - kFirst) / kOther);
}
