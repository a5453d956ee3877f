// SPDX-License-Identifier: MIT
// A member in service is replaced while other devices fail or are away, and at the moment of taking over.
#include <pthread.h>

#include "tests/filesystem/replace_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using ReplaceState = ReplaceStatus::State;
constexpr VolumeShape kThree{3, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB};
constexpr VolumeShape kTwo{2, kMemberBytes, ProfileId::kRaid1, ProfileId::kRaid1, 16 * kKiB};

// Both copies of the superblock, or the second one.
void fail_rings(SimVolume& volume, uint32_t device, uint32_t first_ring, uint64_t skip)
{
    volume.cable(device).add_rule(
        {.kinds = kFaultWrites,
         .begin = kSuperblockRingOffset[first_ring],
         .end = kSuperblockRingOffset[1] + kSuperblockSlotCount * kSuperblockSlotBytes,
         .skip = skip});
}

// A group that is not marked yet, as a pass over it tells the volume when it ends.
struct EndedPass {
    Volume* volume;
    StaleColumn copied;

    static void* report(void* self)
    {
        auto* const pass = static_cast<EndedPass*>(self);
        pass->volume->caught_up({pass->copied});
        return nullptr;
    }
    // On a thread of its own, as whoever copies.
    static void begin(void* self, uint64_t)
    {
        pthread_t thread;
        CW_ASSERT(pthread_create(&thread, nullptr, report, self) == 0);
        pthread_join(thread, nullptr);
    }
};

}  // namespace

TEST_CASE("replace: copying a group ends while the commit runs after which the successor takes over")
{
    Prng prng(seed());
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Contents contents = fill(fs, prng, 3 * kMiB);
    const uint32_t device = start(volume);
    MemberSet& members = fs.volume->members();
    EndedPass pass{fs.volume.get(), {.member = fs.volume->replacing().target}};
    for (const GroupRecord& group : fs.volume->map().groups)
        for (const GroupColumn& column : group.columns)
            if (column.member == kSource && (group.flags & kGroupCopied) == 0)
                pass.copied.group = group.address;
    REQUIRE(pass.copied.group.value != 0);
    pass.copied.arrivals = members.arrivals(pass.copied.member) + members.arrivals(kSource);
    volume.cable(kSourceDevice).add_rule({.action = FaultAction::kGone});
    change_one(fs, prng, contents);
    REQUIRE(fs.step(true).ok());
    REQUIRE(members.failed(kSource));
    change_one(fs, prng, contents);
    volume.set_slow_hook({EndedPass::begin, &pass});
    const size_t rule = volume.cable(0).add_rule(
        {.action = FaultAction::kSlow, .kinds = kFaultWrites, .delay_microseconds = 1});
    CHECK(fs.replace_step());
    CHECK(volume.cable(0).hits(rule) > 0);
    volume.cable(0).remove_rule(rule);
    CHECK(is_member(volume, device));
    require_contents(fs, contents);
    volume.power_cut(prng);
    mount(volume, manual_options(), {kSourceDevice});
    require_contents(volume.fs(), contents);
}

TEST_CASE("replace: a member that is taken away is waited for while it has what was not copied")
{
    Prng prng(seed());
    int waited = 0, taken = 0;
    for (int steps = 0; steps < 40; ++steps) {
        SimVolume volume(kRaid5);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        Contents contents = fill(fs, prng, 3 * kMiB);
        const uint32_t device = start(volume);
        for (int step = 0; step < steps; ++step)
            fs.replace_step();
        if (!fs.committer.replace.status().active())
            break;
        std::string why;
        REQUIRE_MESSAGE(fs.committer.offline_member(kSource, why).ok(), why);
        const bool copied =
            fs.committer.replace.status().groups_copied == fs.committer.replace.status().groups_total;
        const uint64_t commits = fs.volume->generation().value;
        const ReplaceStatus status = run(volume);
        (copied ? taken : waited) += 1;
        CHECK(status.state == (copied ? ReplaceState::kFinished : ReplaceState::kWaiting));
        if (!copied) {
            CHECK(status.text.find("cowraid device online") != std::string::npos);
            CHECK(fs.volume->generation().value == commits);
            change_one(fs, prng, contents);
            REQUIRE(fs.step(true).ok());
            REQUIRE(fs.committer.online_member(kSource, nullptr, why).ok());
            CHECK(run(volume).state == ReplaceState::kFinished);
        }
        CHECK(is_member(volume, device));
        for (int step = 0; step < 1000 && fs.catch_up_step().ok(); ++step)
            if (step % 8 == 7)
                REQUIRE(fs.step(true).ok());
        REQUIRE(fs.step(true).ok());
        require_redundant(volume, contents, kSourceDevice);
    }
    CHECK(waited > 2);
    CHECK(taken > 0);
}

TEST_CASE("replace: with another member away it ends, or is cancelled, as ever")
{
    Prng prng(seed());
    for (const bool cancelled : {false, true})
        for (const bool copied_before : {false, true}) {
            SimVolume volume(kThree);
            make_and_mount(volume);
            Filesystem& fs = volume.fs();
            Contents contents = fill(fs, prng, 3 * kMiB);
            const uint32_t device = start(volume);
            if (copied_before)
                copy_all(volume);
            volume.cable(0).add_rule({.action = FaultAction::kGone});
            change_one(fs, prng, contents);
            REQUIRE(fs.step(true).ok());
            REQUIRE(fs.volume->members().failed({1}));
            std::string why;
            if (cancelled)
                CHECK_MESSAGE(fs.committer.replace.cancel(why).ok(), why);
            const uint64_t commits = fs.volume->generation().value;
            CHECK(run(volume).state == (cancelled ? ReplaceState::kCancelled : ReplaceState::kFinished));
            CHECK(fs.volume->generation().value < commits + 40);
            CHECK(is_member(volume, cancelled ? kSourceDevice : device));
            change_one(fs, prng, contents);
            REQUIRE(fs.step(true).ok());
            volume.power_cut(prng);
            mount(volume, degraded_options(), {0, cancelled ? device : kSourceDevice});
            CHECK_FALSE(volume.fs().volume->read_only_advised());
            require_contents(volume.fs(), contents);
        }
}

TEST_CASE("replace: the successor has no say in whether the volume may be written")
{
    Prng prng(seed());
    for (const bool mounted : {false, true}) {
        SimVolume volume(kThree);
        make_and_mount(volume);
        Contents contents = fill(volume.fs(), prng, 3 * kMiB);
        const uint32_t device = start(volume);
        if (!mounted) {
            REQUIRE(volume.unmount().ok());
            mount(volume, manual_options(), {device});
            CHECK_FALSE(volume.fs().volume->read_only_advised());
            REQUIRE(volume.unmount().ok());
            mount(volume, degraded_options(), {0, device});
            CHECK_FALSE(volume.fs().volume->read_only_advised());
        } else {
            for (const uint32_t gone : {0u, device}) {
                volume.cable(gone).add_rule({.action = FaultAction::kGone});
                change_one(volume.fs(), prng, contents);
                REQUIRE(volume.fs().step(true).ok());
            }
        }
        write_file(volume.fs(), "later", contents["later"] = random_content(prng, kMiB));
        REQUIRE(volume.fs().step(true).ok());
        CHECK_FALSE(volume.fs().store.service.stopped());
        require_contents(volume.fs(), contents);
    }
}

TEST_CASE("replace: nothing is acknowledged by the new table while the old one could be gone by")
{
    Prng prng(seed());
    int stopped = 0, renewed = 0;
    for (uint64_t good = 0; good < 12; ++good)
        for (uint64_t rings = 0; rings < 10; ++rings) {
            SimVolume volume(kTwo);
            make_and_mount(volume);
            Filesystem& fs = volume.fs();
            Contents contents = fill(fs, prng, kMiB);
            const uint32_t device = start(volume);
            copy_all(volume);
            // The other one fails at any write, and so does erasing the member.
            volume.cable(0).add_rule({.kinds = kFaultWrites, .skip = good});
            fail_rings(volume, kSourceDevice, 0, rings);
            run(volume);
            const auto made = fs.names.make_node(kRoot, "later", S_IFREG | 0644, 0, {});
            const bool acknowledged = made.ok() && fs.step(true).ok();
            (acknowledged ? renewed : stopped) += 1;
            volume.power_cut(prng);
            volume.cable(0).remove_all_rules();
            volume.cable(kSourceDevice).remove_all_rules();
            std::vector<uint32_t> absent = blank_ones(volume);
            absent.push_back(device);
            std::string why;
            if (!volume.mount(degraded_options(), why, absent).ok() ||
                volume.fs().volume->read_only_advised())
                continue;
            CHECK_FALSE(acknowledged);
            require_contents(volume.fs(), contents);
        }
    CHECK(stopped > 0);
    CHECK(renewed + stopped == 120);
}

TEST_CASE("replace: a member that could not be erased is left out, also where its successor is not there")
{
    Prng prng(seed());
    int kept = 0;
    for (uint64_t rings = 0; rings < 10; ++rings) {
        SimVolume volume(kTwo);
        make_and_mount(volume);
        Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = start(volume);
        copy_all(volume);
        fail_rings(volume, kSourceDevice, 0, rings);
        const bool finished = run(volume).state == ReplaceState::kFinished;
        volume.power_cut(prng);
        volume.cable(kSourceDevice).remove_all_rules();
        if (!finished || !read_rings(*volume.borrow_one(kSourceDevice)).ok())
            continue;
        ++kept;
        mount(volume, degraded_options(), {device});
        CHECK(volume.fs().volume->members().path(kSource) == "");
        require_contents(volume.fs(), contents);
        volume.power_cut(prng);
        mount(volume, manual_options());
        CHECK(is_member(volume, device));
    }
    CHECK(kept > 0);
}

TEST_CASE("replace: the successor takes one copy of its first superblock, and power fails soon after")
{
    Prng prng(seed());
    int mounts = 0;
    for (uint64_t rings = 0; rings < 4; ++rings)
        for (uint64_t cut = 1; cut < 40; ++cut) {
            CAPTURE(rings);
            CAPTURE(cut);
            SimVolume volume(kTwo);
            make_and_mount(volume);
            const Contents contents = fill(volume.fs(), prng, kMiB);
            const uint32_t device = start(volume);
            copy_all(volume);
            fail_rings(volume, device, 1, rings);
            volume.power().arm(cut);
            run(volume);
            volume.power_cut(prng);
            volume.power().turn_on();
            volume.cable(device).remove_all_rules();
            mount(volume, manual_options(), blank_ones(volume));
            ++mounts;
            require_contents(volume.fs(), contents);
        }
    CHECK(mounts == 4 * 39);
}

TEST_CASE("replace: the figures of one replacement are not those of the one before")
{
    Prng prng(seed());
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    const Contents contents = fill(volume.fs(), prng, 3 * kMiB);
    spoil(volume, prng, kSourceDevice, kGroupData, kMiB, 5);
    start(volume);
    const ReplaceStatus first = run(volume);
    CHECK(first.state == ReplaceState::kFinished);
    CHECK(first.copy.repaired > 0);
    start(volume);
    CHECK(volume.fs().committer.replace.status().copy.bytes_done == 0);
    CHECK(volume.fs().committer.replace.status().copy.repaired == 0);
    std::string why;
    REQUIRE_MESSAGE(volume.fs().committer.replace.cancel(why).ok(), why);
    CHECK(volume.fs().committer.replace.status().copy.bytes_done == 0);
    start(volume);
    const ReplaceStatus second = run(volume);
    CHECK(second.copy.repaired == 0);
    CHECK(second.copy.bytes_done <= first.copy.bytes_done + kMiB);
    require_contents(volume.fs(), contents);
}

TEST_CASE(
    "replace: in a volume of two the successor stands in for a member that fails once it has everything")
{
    Prng prng(seed());
    for (const bool copied : {true, false})
        for (const bool crash : {false, true}) {
            CAPTURE(copied);
            CAPTURE(crash);
            SimVolume volume(kTwo);
            make_and_mount(volume);
            Contents contents = fill(volume.fs(), prng, 3 * kMiB);
            const uint32_t device = start(volume);
            if (copied)
                copy_all(volume);
            volume.cable(kSourceDevice).add_rule({.action = FaultAction::kGone});
            const std::vector<std::byte> later = random_content(prng, kMiB);
            const auto made = volume.fs().names.make_node(kRoot, "later", S_IFREG | 0644, 0, {});
            const bool acknowledged = made.ok() &&
                                      volume.fs().files.write(made->inode, 0, later, {}, {}).ok() &&
                                      volume.fs().step(true).ok();
            CHECK(acknowledged == copied);
            CHECK(volume.fs().store.service.stopped() == !copied);
            if (!copied)
                continue;
            contents["later"] = later;
            if (crash) {
                volume.power_cut(prng);
                // The old one by itself cannot go on without what it missed.
                volume.cable(kSourceDevice).remove_all_rules();
                mount(volume, degraded_options(), {0, device});
                CHECK(volume.fs().volume->read_only_advised());
                volume.kill();
                mount(volume, degraded_options(), {kSourceDevice});
                CHECK_FALSE(volume.fs().volume->read_only_advised());
            }
            require_contents(volume.fs(), contents);
            CHECK(run(volume).state == ReplaceState::kFinished);
            CHECK(is_member(volume, device));
            for (int step = 0; step < 1000 && volume.fs().catch_up_step().ok(); ++step)
                if (step % 8 == 7)
                    REQUIRE(volume.fs().step(true).ok());
            REQUIRE(volume.fs().step(true).ok());
            volume.cable(kSourceDevice).remove_all_rules();
            require_redundant(volume, contents, kSourceDevice);
        }
}

TEST_CASE("replace: who is not there is waited for only so long")
{
    Prng prng(seed());
    MountOptions impatient = degraded_options();
    impatient.spare_seconds = 0;
    for (const bool source : {true, false})
        for (const bool by_order : {true, false}) {
            CAPTURE(source);
            CAPTURE(by_order);
            SimVolume volume(kRaid5);
            make_and_mount(volume);
            Contents contents = fill(volume.fs(), prng, 3 * kMiB);
            const uint32_t device = start(volume);
            volume.fs().replace_step();
            REQUIRE(volume.unmount().ok());
            const uint32_t gone = source ? kSourceDevice : device;
            mount(volume, impatient, by_order ? std::vector<uint32_t>{} : std::vector<uint32_t>{gone});
            std::string why;
            const MemberId id = source ? kSource : volume.fs().volume->replacing().target;
            if (by_order)
                REQUIRE_MESSAGE(volume.fs().committer.offline_member(id, why).ok(), why);
            const ReplaceStatus status = run(volume);
            if (by_order) {
                CHECK(status.state == ReplaceState::kWaiting);
                REQUIRE_MESSAGE(volume.fs().committer.online_member(id, nullptr, why).ok(), why);
                CHECK(run(volume).state == ReplaceState::kFinished);
            } else {
                CHECK(status.state == (source ? ReplaceState::kFinished : ReplaceState::kFailed));
            }
            CHECK_FALSE(volume.fs().volume->replacing().active());
            const bool replaced = source || by_order;
            CHECK(is_member(volume, replaced ? device : kSourceDevice));
            CHECK((replaced || status.text.find("did not come back") != std::string::npos));
            if (source && !by_order) {
                CHECK(status.groups_copied < status.groups_total);
                CHECK(status.text.find("not all was copied") != std::string::npos);
            }
            change_one(volume.fs(), prng, contents);
            for (int step = 0; step < 1000 && volume.fs().catch_up_step().ok(); ++step)
                if (step % 8 == 7)
                    REQUIRE(volume.fs().step(true).ok());
            REQUIRE(volume.fs().step(true).ok());
            require_redundant(volume, contents, replaced ? kSourceDevice : device);
        }
}

TEST_CASE("replace: power fails at any write, and no group is called copied whose lost blocks are not listed")
{
    constexpr VolumeShape kPlain{2, kMemberBytes, ProfileId::kSingle, ProfileId::kRaid1, 16 * kKiB};
    VolumeAddress lost{0};
    int cuts = 0, listed = 0;
    for (uint64_t event = 0; event < 400; ++event) {
        Prng prng(seed());
        SimVolume volume(kPlain);
        make_and_mount(volume);
        fill(volume.fs(), prng, 3 * kMiB);
        const uint64_t begin = column_begin(volume, kSourceDevice, kGroupData);
        volume.cable(kSourceDevice)
            .add_rule({.action = FaultAction::kLatent,
                       .kinds = kFaultReads,
                       .begin = begin,
                       .end = begin + kBlockBytes});
        start(volume);
        if (event > 0)
            volume.power().arm(event);
        run(volume);
        if (event == 0) {  // to know which one
            REQUIRE(volume.fs().store.damage.runs().size() == 1);
            lost = volume.fs().store.damage.runs().front().first;
            continue;
        }
        const bool cut = !volume.power().on();
        volume.power().turn_on();
        volume.power_cut(prng);
        mount(volume, degraded_options(), blank_ones(volume));
        Filesystem& fs = volume.fs();
        const Ref<const ArrayGroup> group = fs.volume->array().group_at(lost);
        REQUIRE(group);
        const bool copied = !fs.volume->replacing().active() || (group->record.flags & kGroupCopied) != 0;
        const bool is_listed = fs.store.damage.touches(lost, lost + kBlockBytes);
        CHECK((!copied || is_listed));
        listed += is_listed ? 1 : 0;
        if (!cut)
            break;
        ++cuts;
    }
    CHECK(cuts > 20);
    CHECK(listed > 2);
}

TEST_CASE("replace: what a source that cannot be spared does not say for a moment is copied by a later pass")
{
    Prng prng(seed());
    for (const VolumeShape& shape : {kSingle, kStriped, kRaid5})
        for (const Err error : {Err::kMemberGone, Err::kIo}) {
            CAPTURE(static_cast<int>(shape.data_profile));
            CAPTURE(static_cast<int>(error));
            SimVolume volume(shape);
            make_and_mount(volume);
            Filesystem& fs = volume.fs();
            Contents contents = fill(fs, prng, 3 * kMiB);
            if (shape.data_profile == ProfileId::kRaid5) {
                volume.cable(0).add_rule({.action = FaultAction::kGone});
                change_one(fs, prng, contents);
                REQUIRE(fs.step(true).ok());
                REQUIRE(fs.volume->members().failed({1}));
            }
            const uint32_t device = start(volume);
            const uint64_t begin = column_begin(volume, kSourceDevice, kGroupData);
            // Every read of one pass: the large one, which is repeated block by block after an error, that of
            // the stripe, and a last one of the block.
            const uint64_t reads = error == Err::kIo ? 4 : 3;
            const size_t rule = volume.cable(kSourceDevice)
                                    .add_rule({.kinds = kFaultReads,
                                               .begin = begin,
                                               .end = begin + kBlockBytes,
                                               .limit = reads,
                                               .error = error});
            const ReplaceStatus status = run(volume);
            CHECK(volume.cable(kSourceDevice).hits(rule) == reads);
            CHECK(status.state == ReplaceState::kFinished);
            CHECK(is_member(volume, device));
            CHECK(fs.store.damage.runs().empty());
            require_contents(fs, contents);
        }
}

TEST_CASE("replace: a node that cannot be read costs what is not there, and no more spares than one")
{
    Prng prng(seed());
    for (const bool redundant : {true, false}) {
        CAPTURE(redundant);
        SimVolume volume(
            redundant ? kRaid5
                      : VolumeShape{2, kMemberBytes, ProfileId::kSingle, ProfileId::kSingle, 16 * kKiB});
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        const Contents contents = fill(fs, prng, 3 * kMiB);
        Committer& committer = fs.committer;
        std::string why;
        std::vector<uint32_t> spares;
        for (int number = 0; number < 2; ++number) {
            spares.push_back(volume.add_device(kMemberBytes));
            REQUIRE(committer.add_spare(volume.borrow_one(spares.back()), why).ok());
        }
        // No copy of the root of the files is to be had.
        const VolumeAddress root = fs.store.timeline.view().committed->tree(TreeIndex::kFiles).root.address;
        std::vector<uint32_t> faulty;
        std::vector<FaultRule> rules;
        for (const Ref<const ArrayGroup>& group : fs.volume->array().groups()) {
            if (root < group->record.address || group->record.address + group->record.span_bytes() <= root)
                continue;
            for (uint32_t column = 0; column < group->record.columns.size(); ++column) {
                const uint64_t offset = group->locate(column, root - group->record.address).offset.value;
                faulty.push_back(group->record.columns[column].member.value - 1);
                rules.push_back({.kinds = kFaultReads, .begin = offset, .end = offset + kNodeBytes});
            }
        }
        REQUIRE(faulty.size() == (redundant ? 2 : 1));
        const MemberId source = redundant ? kSource : MemberId{faulty.front() + 1};
        MemberSet& members = fs.volume->members();
        members.set_error_budget(4);
        members.note_repair(source, {0}, MemberSet::Repair::kDoesNotHold);
        committer.use_spares();
        REQUIRE(fs.volume->replacing().source == source);
        REQUIRE(fs.volume->spare_table().size() == 1);
        for (size_t copy = 0; copy < faulty.size(); ++copy)
            volume.cable(faulty[copy]).add_rule(rules[copy]);
        fs.store.cache.clear();
        const ReplaceStatus status = run(volume);
        for (const uint32_t index : faulty)
            volume.cable(index).remove_all_rules();
        CHECK_MESSAGE(status.state == ReplaceState::kFinished, status.text);
        CHECK(status.copy.unreadable_nodes == 1);
        CHECK(fs.info().damaged_node_blocks == kNodeBlocks);
        CHECK(members.path(source) == "member" + std::to_string(spares[0] + 1));
        CHECK_FALSE(members.doubtful(source));
        committer.use_spares();
        CHECK_FALSE(fs.volume->replacing().active());
        CHECK(fs.volume->spare_table().size() == 1);
        if (!redundant) {
            std::vector<std::byte> node(kNodeBytes);
            volume.member(source.value - 1).peek(rules.front().begin, node);
            volume.member(spares[0]).poke(rules.front().begin, node);
        }
        fs.store.cache.clear();
        require_contents(fs, contents);
        CHECK_FALSE(scrub(fs).damaged());
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {source.value - 1});
    }
}

namespace {

// Since when which group's column on the source lacks something.
std::vector<std::pair<VolumeAddress, Generation>> source_marks(Filesystem& fs)
{
    std::vector<std::pair<VolumeAddress, Generation>> marks;
    for (const GroupRecord& group : fs.volume->map().groups)
        for (const GroupColumn& column : group.columns)
            if (column.member == kSource)
                marks.emplace_back(group.address, column.stale_since);
    return marks;
}

void fill_lost(Filesystem& fs)
{
    for (int step = 0; step < 1000 && fs.catch_up_step().ok(); ++step)
        if (step % 8 == 7)
            REQUIRE(fs.step(true).ok());
    REQUIRE(fs.step(true).ok());
}

}  // namespace

TEST_CASE(
    "replace: the successor of a failed member fails as it takes over, and the member lacks no more for it")
{
    Prng prng(seed());
    int failures = 0;
    for (uint64_t good = 0;; ++good) {
        REQUIRE(good < 100);
        CAPTURE(good);
        SimVolume volume(kRaid5);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        Contents contents = fill(fs, prng, 3 * kMiB);
        const uint32_t device = start(volume);
        for (int step = 0; step < 3; ++step)
            fs.replace_step();
        volume.cable(kSourceDevice).add_rule({.action = FaultAction::kGone});
        change_one(fs, prng, contents);
        REQUIRE(fs.step(true).ok());
        REQUIRE(fs.volume->members().failed(kSource));
        const auto marks = source_marks(fs);
        volume.cable(device).add_rule({.kinds = kFaultWrites | kFaultFlushes, .skip = good});
        const ReplaceStatus status = run(volume);
        if (is_member(volume, device))
            break;
        ++failures;
        CHECK(status.state == ReplaceState::kFailed);
        CHECK((source_marks(fs) == marks));
        volume.cable(kSourceDevice).remove_all_rules();
        std::string why;
        REQUIRE_MESSAGE(fs.committer.online_member(kSource, nullptr, why).ok(), why);
        CHECK((source_marks(fs) == marks));
        fill_lost(fs);
        require_redundant(volume, contents, device);
    }
    CHECK(failures > 5);
}

namespace {

// Power fails when the successor has its superblock and the others have not, at a moment that is rising with
// `cut`. False: it was another moment.
bool cut_at_the_end(SimVolume& volume, Prng& prng, Contents& contents, uint64_t cut, uint32_t& device)
{
    make_and_mount(volume);
    contents = fill(volume.fs(), prng, kMiB);
    device = start(volume);
    copy_all(volume);
    volume.power().arm(cut);
    run(volume);
    volume.power_cut(prng);
    volume.power().turn_on();
    const Result<RingReading> own = read_rings(*volume.borrow_one(device));
    const Result<RingReading> other = read_rings(*volume.borrow_one(0));
    return own.ok() && own->valid.front().member_id == kSource && other->valid.front().replace.active();
}

}  // namespace

TEST_CASE("replace: power fails as the successor takes over, and it comes late")
{
    Prng prng(seed());
    int erased = 0, kept = 0;
    for (const bool mounted : {true, false})
        for (uint64_t cut = 1; cut < 40; ++cut) {
            CAPTURE(mounted);
            CAPTURE(cut);
            SimVolume volume(kRaid5);
            Contents contents;
            uint32_t device = 0;
            if (!cut_at_the_end(volume, prng, contents, cut, device))
                continue;
            std::vector<uint32_t> absent = blank_ones(volume);
            const bool source_there = absent.empty();
            (source_there ? kept : erased) += 1;
            absent.push_back(device);
            mount(volume, degraded_options(), absent);
            CHECK_FALSE(volume.fs().volume->read_only_advised());
            for (int change = 0; change < 5; ++change)
                change_one(volume.fs(), prng, contents);
            REQUIRE(volume.fs().step(true).ok());
            if (mounted) {
                std::string why;
                REQUIRE_MESSAGE(volume.fs().committer.online_member({}, volume.borrow_one(device), why).ok(),
                                why);
            } else {
                REQUIRE(volume.unmount().ok());
                absent.pop_back();
                mount(volume, degraded_options(), absent);
            }
            Filesystem& fs = volume.fs();
            const ReplaceStatus status = fs.committer.replace.status();
            CHECK(status.groups_copied == (source_there ? 0 : status.groups_total));
            CHECK(run(volume).state == ReplaceState::kFinished);
            CHECK(is_member(volume, device));
            for (const GroupRecord& group : fs.volume->map().groups)
                for (const GroupColumn& column : group.columns)
                    CHECK((!column.stale() || column.stale_since > group.created_generation));
            require_contents(fs, contents);
            fill_lost(fs);
            require_redundant(volume, contents, kSourceDevice);
        }
    CHECK(erased > 1);
    CHECK(kept > 1);
}

TEST_CASE("replace: the member and its successor leave one after the other, and come back in any order")
{
    Prng prng(seed());
    int taken = 0, anew = 0;
    for (const bool source_first : {true, false})
        for (const bool commit : {true, false})
            for (const char* const back : {"target", "source, target", "mount"}) {
                CAPTURE(source_first);
                CAPTURE(commit);
                CAPTURE(back);
                SimVolume volume(kRaid5);
                make_and_mount(volume);
                Contents contents = fill(volume.fs(), prng, 3 * kMiB);
                const uint32_t device = start(volume);
                copy_all(volume);
                const MemberId target = volume.fs().volume->replacing().target;
                const uint32_t leaving[] = {source_first ? kSourceDevice : device,
                                            source_first ? device : kSourceDevice};
                for (const uint32_t index : leaving) {
                    change_one(volume.fs(), prng, contents);
                    volume.cable(index).add_rule({.action = FaultAction::kGone});
                    for (int change = 0; change < 5; ++change)
                        change_one(volume.fs(), prng, contents);
                    if (commit)
                        REQUIRE(volume.fs().step(true).ok());
                }
                REQUIRE(volume.fs().step(true).ok());
                for (const MemberId id : {kSource, target})
                    REQUIRE(volume.fs().volume->members().failed(id));
                for (int change = 0; change < 5; ++change)
                    change_one(volume.fs(), prng, contents);
                for (const uint32_t index : leaving)
                    volume.cable(index).remove_all_rules();
                std::string why;
                const std::string_view order = back;
                if (order == "mount") {
                    REQUIRE(volume.unmount().ok());
                    mount(volume, degraded_options());
                }
                if (order == "source, target")
                    REQUIRE_MESSAGE(volume.fs().committer.online_member(kSource, nullptr, why).ok(), why);
                if (order != "mount")
                    REQUIRE_MESSAGE(volume.fs().committer.online_member(target, nullptr, why).ok(), why);
                Filesystem& fs = volume.fs();
                const ReplaceStatus status = fs.committer.replace.status();
                const bool copied = status.groups_copied == status.groups_total;
                (copied ? taken : anew) += 1;
                // What came to the source alone is nowhere else.
                CHECK((!copied || order == "target"));
                CHECK((copied || order != "target" || !source_first));
                CHECK(run(volume).state == ReplaceState::kFinished);
                CHECK(is_member(volume, device));
                fill_lost(fs);
                const ScrubStatus found = scrub(fs);
                CHECK(found.repaired + found.lost + found.unreadable_nodes == 0);
                require_redundant(volume, contents, kSourceDevice);
            }
    CHECK(taken > 1);
    CHECK(anew > 7);
}
