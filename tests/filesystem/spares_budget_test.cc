// SPDX-License-Identifier: MIT
// Members with many errors: they are copied to devices in reserve, or go.
#include "base/log.h"
#include "tests/filesystem/spares_steps.h"
#include "tests/support/capture.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

// More errors than the budget has, in one second.
void make_doubtful(SimVolume& volume, MemberId id)
{
    MemberSet& members = volume.fs().volume->members();
    members.set_error_budget(4);
    members.note_repair(id, {0}, MemberSet::Repair::kDoesNotHold);
    REQUIRE(members.doubtful(id));
}

}  // namespace

TEST_CASE("spares: a member over its error budget serves on while it is copied to one")
{
    Prng prng(seed());
    uint64_t events = 0;
    for (uint64_t cut = 0; cut == 0 || cut < events; cut = next_cut(cut)) {
        CAPTURE(cut);
        SimVolume volume(kFourRaid5);
        make_for_spares(volume);
        const Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = volume.add_device(kSpareBytes);
        REQUIRE(add_spare(volume, device).ok());
        make_doubtful(volume, {2});
        const uint64_t begin = volume.power().events();
        if (cut > 0)
            volume.power().arm(cut);
        volume.fs().committer.use_spares();
        if (cut == 0) {
            events = volume.power().events() - begin;
            CHECK(device_of(volume, {2}) == "member2");
            CHECK(volume.fs().volume->replacing().source == MemberId{2});
            CHECK(volume.fs().volume->spare_table().empty());
            CHECK(volume.fs().info().spares.empty());
            // Another one has no spare, and nobody else's place is lost by it.
            make_doubtful(volume, {3});
            volume.fs().committer.use_spares();
            CHECK_FALSE(volume.fs().volume->degraded());
        } else {
            // It is the spare still, or the successor.
            volume.power_cut(prng);
            volume.power().turn_on();
            mount(volume, spare_options());
            CHECK(device_of(volume, {2}) == "member2");
            CHECK_FALSE(volume.fs().volume->degraded());
            if (!volume.fs().volume->replacing().active()) {
                REQUIRE(volume.fs().volume->spare_table().size() == 1);
                CHECK(volume.fs().volume->spares().path({5}) == "member5");
                make_doubtful(volume, {2});
                volume.fs().committer.use_spares();
            }
        }
        finish_replacement(volume.fs());
        CHECK(device_of(volume, {2}) == "member5");
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {1});
        mount(volume, spare_options(), {1, static_cast<uint32_t>(prng.below(2) * 2)});
        require_contents(volume.fs(), contents);
        volume.kill();
    }
}

TEST_CASE("spares: a member that is taken out while a spare is chosen for it keeps its place")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    const Contents contents = fill(volume.fs(), prng, kMiB);
    const auto spare = add_spare(volume, volume.add_device(kSpareBytes));
    REQUIRE(spare.ok());
    Committer& committer = volume.fs().committer;
    std::string why;
    REQUIRE(committer.offline_member({2}, why).ok());
    {
        MutexLock lock(committer.remount_mutex);
        CHECK(committer.put_in_place({2}, true, nullptr, *spare, why).err() == Err::kBusy);
    }
    CHECK(volume.fs().volume->spare_table().size() == 1);
    CHECK(volume.fs().volume->spares().device(*spare) != nullptr);
    REQUIRE(committer.online_member({2}, nullptr, why).ok());
    CHECK(device_of(volume, {2}) == "member2");
    require_contents(volume.fs(), contents);
}

TEST_CASE("spares: one that fails when copying to it begins is marked; who cancels keeps the others")
{
    Prng prng(seed());
    bool done = false;
    int marked = 0;
    for (uint64_t skip = 0; !done && skip < 200; ++skip) {
        CAPTURE(skip);
        SimVolume volume(kFourRaid5);
        make_for_spares(volume);
        const Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = volume.add_device(kSpareBytes);
        const auto spare = add_spare(volume, device);
        const auto other = add_spare(volume, volume.add_device(kSpareBytes));
        REQUIRE((spare.ok() && other.ok()));
        make_doubtful(volume, {2});
        volume.cable(device).add_rule({.kinds = kFaultWrites, .skip = skip});
        Committer& committer = volume.fs().committer;
        committer.use_spares();
        done = volume.fs().volume->replacing().active();
        if (!done) {
            ++marked;
            CHECK(volume.fs().volume->spares().useless(*spare));
            CHECK(volume.fs().volume->spare_table().size() == 2);
            committer.use_spares();
            CHECK(volume.fs().volume->replacing().active());
            CHECK(volume.fs().volume->spare_table().size() == 1);
            CHECK(volume.fs().volume->spare_table().front().id == *spare);
        }
        CHECK(device_of(volume, {2}) == "member2");
        std::string why;
        REQUIRE(committer.replace.cancel(why).ok());
        const size_t left = volume.fs().volume->spare_table().size();
        CHECK(left == 1);
        committer.use_spares();
        CHECK_FALSE(volume.fs().volume->replacing().active());
        CHECK(volume.fs().volume->spare_table().size() == left);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
    }
    CHECK(done);
    CHECK(marked > 3);
}

namespace {

// Some blocks of the device are wrong, in the first group of data.
void spoil_some(SimVolume& volume, Prng& prng, uint32_t device)
{
    for (const Ref<const ArrayGroup>& group : volume.fs().volume->array().groups())
        for (uint32_t column = 0; column < group->record.columns.size(); ++column) {
            if (group->record.content != kGroupData ||
                group->record.columns[column].member.value != device + 1)
                continue;
            for (uint64_t block = 0; block < 6; ++block)
                volume.member(device).poke(group->extents[column].front().offset.value + block * kBlockBytes,
                                           random_content(prng, kBlockBytes));
            return;
        }
    FAIL("no such group");
}

}  // namespace

TEST_CASE("spares: a member that is out because repairs of it did not hold is copied, or else rebuilt")
{
    Prng prng(seed());
    for (const bool readable : {true, false}) {
        CAPTURE(readable);
        SimVolume volume(kFourRaid5);
        make_for_spares(volume);
        Contents contents = fill(volume.fs(), prng, 2 * kMiB);
        make_doubtful(volume, {2});
        REQUIRE(volume.fs().volume->members().fail_over_budget());
        REQUIRE(volume.fs().step(true).ok());
        contents["without"] = random_content(prng, kMiB);
        write_file(volume.fs(), "without", contents["without"]);
        REQUIRE(volume.fs().step(true).ok());
        const uint32_t device = volume.add_device(kSpareBytes);
        REQUIRE(add_spare(volume, device).ok());
        if (readable)
            spoil_some(volume, prng, 0);  // it has what is lost there
        else
            volume.cable(1).add_rule({.action = FaultAction::kGone});
        volume.fs().committer.use_spares();
        CHECK(volume.fs().volume->spare_table().empty());
        CHECK(volume.fs().volume->replacing().active() == readable);
        CHECK(device_of(volume, {2}) == (readable ? "member2" : "member5"));
        finish_replacement(volume.fs());
        CHECK(volume.fs().committer.replace.status().copy.lost == 0);
        CHECK(device_of(volume, {2}) == "member5");
        catch_up(volume.fs());
        require_contents(volume.fs(), contents);
        REQUIRE(volume.fs().committer.scrub.start({}).ok());
        for (int step = 0; step < 1000 && volume.fs().committer.scrub.step(); ++step)
            continue;
        CHECK_FALSE(volume.fs().committer.scrub.status().damaged());
        REQUIRE(volume.unmount().ok());
        volume.cable(1).remove_all_rules();
        mount(volume, spare_options(), {1, 3});
        CHECK(device_of(volume, {2}) == "member5");
        require_contents(volume.fs(), contents);
    }
}

TEST_CASE(
    "spares: a member that is out because repairs of it did not hold is copied to what is put there by hand")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    const Contents contents = fill(volume.fs(), prng, 2 * kMiB);
    make_doubtful(volume, {2});
    REQUIRE(volume.fs().committer.fail_over_budget());
    REQUIRE(volume.fs().step(true).ok());
    spoil_some(volume, prng, 0);  // it has what is lost there
    std::string why;
    const uint32_t device = volume.add_device(kSpareBytes);
    REQUIRE(volume.fs().committer.replace_member({2}, volume.borrow_one(device), why).ok());
    CHECK(volume.fs().volume->replacing().source == MemberId{2});
    finish_replacement(volume.fs());
    CHECK(volume.fs().committer.replace.status().copy.lost == 0);
    CHECK(device_of(volume, {2}) == "member5");
    catch_up(volume.fs());
    require_contents(volume.fs(), contents);
}

TEST_CASE("spares: a member that came back only to be copied goes out again when its successor fails")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    Contents contents = fill(volume.fs(), prng, 2 * kMiB);
    make_doubtful(volume, {2});
    REQUIRE(volume.fs().volume->members().fail_over_budget());
    REQUIRE(volume.fs().step(true).ok());
    const uint32_t first = volume.add_device(kSpareBytes);
    REQUIRE(add_spare(volume, first).ok());
    volume.fs().committer.use_spares();
    REQUIRE(volume.fs().volume->replacing().active());
    CHECK(device_of(volume, {2}) == "member2");
    fail_writes(volume, first, prng, contents);
    finish_replacement(volume.fs());
    CHECK(volume.fs().committer.replace.status().state == ReplaceStatus::State::kFailed);
    CHECK(device_of(volume, {2}).empty());
    CHECK(volume.fs().volume->members().failure_reason({2}) == MemberSet::kRepairsDoNotHold);
    // The next spare is for it, and this time everything is copied.
    REQUIRE(add_spare(volume, volume.add_device(kSpareBytes)).ok());
    volume.fs().committer.use_spares();
    finish_replacement(volume.fs());
    CHECK(volume.fs().committer.replace.status().state == ReplaceStatus::State::kFinished);
    catch_up(volume.fs());
    CHECK(device_of(volume, {2}) == "member6");
    require_contents(volume.fs(), contents);
}

TEST_CASE("spares: a member that came back only to be copied goes out again when that is cancelled")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    Contents contents = fill(volume.fs(), prng, 2 * kMiB);
    make_doubtful(volume, {2});
    REQUIRE(volume.fs().volume->members().fail_over_budget());
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE(add_spare(volume, volume.add_device(kSpareBytes)).ok());
    volume.fs().committer.use_spares();
    REQUIRE(volume.fs().volume->replacing().active());
    CHECK(device_of(volume, {2}) == "member2");
    std::string why;
    REQUIRE(volume.fs().committer.replace.cancel(why).ok());
    CHECK(device_of(volume, {2}).empty());
    CHECK(volume.fs().volume->members().failure_reason({2}) == MemberSet::kRepairsDoNotHold);
    // No other spare is used for it.
    REQUIRE(add_spare(volume, volume.add_device(kSpareBytes)).ok());
    volume.fs().committer.use_spares();
    CHECK_FALSE(volume.fs().volume->replacing().active());
    CHECK(device_of(volume, {2}).empty());
    require_contents(volume.fs(), contents);
}

TEST_CASE("spares: the budget takes nobody out while the successor of a member is away")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    Contents contents = fill(volume.fs(), prng, 2 * kMiB);
    Committer& committer = volume.fs().committer;
    std::string why;
    REQUIRE(committer.replace_member({2}, volume.borrow_one(volume.add_device(kSpareBytes)), why).ok());
    const uint64_t unallocated = volume.fs().info().unallocated_raw_bytes;
    CHECK(unallocated < 4 * kSpareBytes);
    const MemberId target = volume.fs().volume->replacing().target;
    REQUIRE(committer.offline_member(target, why).ok());
    CHECK(committer.replace.status().state == ReplaceStatus::State::kWaiting);
    make_doubtful(volume, {2});
    CHECK_FALSE(committer.fail_over_budget());
    CHECK(device_of(volume, {2}) == "member2");
    // Where it fails it has its time to come back; then nobody is waited for, and a spare takes its place.
    REQUIRE(add_spare(volume, volume.add_device(kSpareBytes)).ok());
    fail_writes(volume, 1, prng, contents);
    REQUIRE(device_of(volume, {2}).empty());
    for (int step = 0; step < 10 && volume.fs().volume->replacing().active(); ++step)
        volume.fs().replace_step();
    CHECK(committer.replace.status().state == ReplaceStatus::State::kFailed);
    committer.use_spares();
    CHECK(device_of(volume, {2}) == "member6");
    catch_up(volume.fs());
    require_contents(volume.fs(), contents);
}

TEST_CASE("spares: while a member is copied it is told of others that they are over their budget")
{
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    Committer& committer = volume.fs().committer;
    std::string why;
    REQUIRE(committer.replace_member({2}, volume.borrow_one(volume.add_device(kSpareBytes)), why).ok());
    make_doubtful(volume, {2});
    make_doubtful(volume, {3});
    usleep(500'000);  // for a few lines more, however many were logged before
    log_suppressed();
    Captured captured;
    for (int look = 0; look < 2; ++look) {
        CHECK_FALSE(committer.fail_over_budget());
        CHECK(captured.text() == "cowraid: member 3 (member3): errors in 5 seconds of the last ten minutes, "
                                 "more than error_budget=4; it stays: replace it, or add a spare\n");
    }
    CHECK(device_of(volume, {3}) == "member3");
}

TEST_CASE("spares: what is not whole loses nobody more by the budget")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    Contents contents = fill(volume.fs(), prng, kMiB);
    fail_writes(volume, 0, prng, contents);
    make_doubtful(volume, {3});
    CHECK_FALSE(volume.fs().volume->members().fail_over_budget());
    CHECK(device_of(volume, {3}) == "member3");
    require_contents(volume.fs(), contents);
}
