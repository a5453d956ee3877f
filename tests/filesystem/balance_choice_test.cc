// SPDX-License-Identifier: MIT
// What a balance would take, and which block groups its filters let through.
#include <unistd.h>

#include "base/clock.h"
#include "format/feature_table.h"
#include "tests/filesystem/volume_contents.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kChoiceMemberBytes = 160 * kMiB;

BalanceOptions converted_to(ProfileId data, ProfileId metadata, bool force = false)
{
    return {.profiles = {data, metadata}, .content = kAllContent, .convert = true, .force = force};
}

}  // namespace

TEST_CASE("balance: a plan says what it takes and refuses what it would refuse, and changes nothing")
{
    SimVolume volume({4, kChoiceMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const Contents contents = fill(fs, prng, 30 * kMiB);
    const auto planned = [&](const BalanceOptions& options, std::string& why) {
        const BalanceStatus::State before = fs.committer.balance.status().state;
        const size_t groups = fs.volume->map().groups.size();
        BalancePlan plan;
        const Status status = fs.committer.balance.plan(options, plan, why);
        CHECK(fs.volume->superblock().balance == BalanceRecord());
        CHECK(fs.volume->map().groups.size() == groups);
        CHECK(fs.committer.balance.status().state == before);
        CHECK(status.ok() == why.empty());
        return status.ok() ? Result<BalancePlan>(plan) : Result<BalancePlan>(status.err());
    };
    REQUIRE(fs.step(true).ok());
    // The same answers in the same words.
    const auto require_same = [&](const BalanceOptions& options, Err expected) {
        std::string why, why_start, ignored;
        CHECK_MESSAGE(planned(options, why).err() == expected, why);
        CHECK(fs.committer.balance.start(options, why_start).err() == expected);
        CHECK(why == why_start);
        CHECK(fs.committer.balance.cancel(ignored).ok() == (expected == Err::kOk));
    };
    const auto removal = [&](uint32_t member) {
        return BalanceOptions{
            .profiles = fs.volume->profiles(), .content = kAllContent, .member = MemberId{member}};
    };
    require_same(converted_to(ProfileId::kSingle, ProfileId::kRaid1), Err::kInvalid);
    require_same(removal(9), Err::kInvalid);
    require_same(removal(1), Err::kOk);
    const BalanceOptions options = converted_to(ProfileId::kRaid6, ProfileId::kRaid1c3);
    std::string why;
    const auto plan = planned(options, why);
    REQUIRE_MESSAGE(plan.ok(), why);
    CHECK(plan->moved_bytes > 30 * kMiB);
    CHECK(plan->data.needed >= 30 * kMiB);
    CHECK(plan->data.there >= plan->data.needed);
    CHECK(plan->metadata.there >= plan->metadata.needed);
    CHECK(plan->tolerance_before == 1);
    CHECK(plan->tolerance_meanwhile == 1);
    CHECK(plan->tolerance_after == 2);
    CHECK(plan->rate == 0);
    REQUIRE(start_balance(fs, options).ok());
    CHECK(fs.committer.balance.status().bytes_total == plan->moved_bytes);
    // One at a time, for a plan as well.
    BalancePlan other;
    CHECK(fs.committer.balance.plan(options, other, why).err() == Err::kBusy);
    CHECK(finish(fs).state == BalanceStatus::State::kFinished);
    require_contents(fs, contents);
    const auto again = planned(converted_to(ProfileId::kRaid5, ProfileId::kRaid1, true), why = "");
    REQUIRE(again.ok());
    CHECK(again->rate == 0);  // too small a balance tells none
    CHECK(again->tolerance_before == 2);
    CHECK(again->tolerance_meanwhile == 1);
    CHECK(again->tolerance_after == 1);
    // What would not fit says by how much.
    write_file(fs, "full", random_content(prng, fs.statistics().available_blocks * kBlockBytes / 10 * 9));
    REQUIRE(fs.step(true).ok());
    CHECK(planned(converted_to(ProfileId::kRaid1c4, ProfileId::kRaid1c4), why = "").err() == Err::kNoSpace);
    CHECK_MESSAGE(why.find("remove files of ") != std::string::npos, why);
    require_same(converted_to(ProfileId::kRaid1c4, ProfileId::kRaid1c4), Err::kNoSpace);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

TEST_CASE("balance: its rate is of what this mount moved, while it ran")
{
    SimVolume volume({3, kChoiceMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
    make_and_mount(volume);
    Prng prng(seed());
    const Contents contents = fill(volume.fs(), prng, 66 * kMiB);
    const BalanceOptions options{.profiles = volume.fs().volume->profiles(), .content = kGroupData};
    std::string why;
    REQUIRE(start_balance(volume.fs(), options).ok());
    const uint64_t begun_ms = monotonic_ms();
    continue_balance(volume.fs(), 3, true);
    usleep(3'000'000);  // less would tell no rate
    REQUIRE(volume.fs().committer.balance.pause(why).ok());
    usleep(400'000);
    REQUIRE(volume.fs().committer.balance.resume(why).ok());
    CHECK(finish(volume.fs()).state == BalanceStatus::State::kFinished);
    const uint64_t moved_bytes = volume.fs().info().moved_blocks * kBlockBytes;
    const BalanceStatus ended = volume.fs().committer.balance.status();
    CHECK(ended.moved_bytes == moved_bytes);
    CHECK(ended.run_ms <= monotonic_ms() - begun_ms - 200);
    CHECK(ended.started > 0);
    CHECK(ended.rate == moved_bytes * 1000 / ended.run_ms);
    CHECK(ended.rate > moved_bytes * 1000 / (monotonic_ms() - begun_ms - 200));
    // One that is mounted when all has moved.
    REQUIRE(start_balance(volume.fs(), options).ok());
    for (int step = 0; step < 1000 && volume.fs().committer.balance.status().bytes_left > 0; ++step)
        continue_balance(volume.fs(), 1, true);
    REQUIRE(volume.fs().committer.balance.status().state == BalanceStatus::State::kRunning);
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    // When it began is not known any more.
    CHECK(volume.fs().committer.balance.status().started == 0);
    CHECK(finish(volume.fs()).state == BalanceStatus::State::kFinished);
    CHECK(volume.fs().committer.balance.status().moved_bytes == 0);
    CHECK(volume.fs().committer.balance.status().bytes_total > 50 * kMiB);
    CHECK(volume.fs().committer.balance.status().rate == 0);
    require_contents(volume.fs(), contents);
}

namespace {

std::set<VolumeAddress> data_groups(Filesystem& fs)
{
    std::set<VolumeAddress> groups;
    for (const GroupNumbers& numbers : fs.store.allocator.group_numbers(kGroupData))
        groups.insert(numbers.address);
    return groups;
}

// How many data groups a filter lets through.
uint64_t let_through(Filesystem& fs, const BalanceFilter& filter)
{
    BalanceOptions options{.profiles = fs.volume->profiles(), .content = kGroupData};
    options.data = filter;
    BalancePlan plan;
    std::string why;
    REQUIRE_MESSAGE(fs.committer.balance.plan(options, plan, why).ok(), why);
    return plan.group_count;
}

}  // namespace

TEST_CASE("balance: filters choose block groups when it begins, and mounts go on with these")
{
    SimVolume volume({3, kChoiceMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
    make_and_mount(volume);
    Prng prng(seed());
    const Contents contents = fill(volume.fs(), prng, 120 * kMiB);
    const std::set<VolumeAddress> before = data_groups(volume.fs());
    const auto counts = [&](auto matches) {
        uint64_t count = 0;
        for (const VolumeAddress address : before)
            count += matches(*volume.fs().volume->array().group_at(address));
        return count;
    };
    Filesystem& fs = volume.fs();
    REQUIRE(before.size() > 3);
    CHECK(let_through(fs, {.limit = {0, 2}}) == 2);
    CHECK(let_through(fs, {.usage = {101, 200}}) == 0);
    CHECK(let_through(fs, {.stripes = {3, 3}}) ==
          counts([](const ArrayGroup& group) { return group.record.columns.size() == 3; }));
    CHECK(let_through(fs, {.stripes = {4, 9}}) == 0);
    CHECK(let_through(fs, {.profiles = 1U << static_cast<uint32_t>(ProfileId::kRaid6)}) == 0);
    CHECK(let_through(fs, {.profiles = 1U << static_cast<uint32_t>(ProfileId::kRaid5)}) == before.size());
    CHECK(let_through(fs, {.addresses = {before.begin()->value, before.begin()->value}}) == 1);
    CHECK(let_through(fs, {.member = MemberId{2}}) == counts([](const ArrayGroup& group) {
              return std::any_of(group.record.columns.begin(), group.record.columns.end(),
                                 [](const GroupColumn& column) { return column.member.value == 2; });
          }));
    CHECK(let_through(fs, {.places = {0, 4095}, .member = MemberId{2}}) == 0);  // no group is there
    BalanceOptions options{.profiles = fs.volume->profiles(), .content = kGroupData};
    options.data.limit = {1000, 2000};
    std::string why;
    CHECK(fs.committer.balance.start(options, why).err() == Err::kInvalid);
    CHECK_MESSAGE(why.find("limit=") != std::string::npos, why);
    // Two of them, over kills: the others stay.
    options.data = {.limit = {0, 2}};
    REQUIRE(start_balance(fs, options).ok());
    const auto has_feature = [&] {
        return (volume.fs().volume->superblock().incompat_features & feature_bit("chosen")) != 0;
    };
    uint64_t moved_blocks = 0;
    for (int mounts = 0;
         mounts < 60 && volume.fs().committer.balance.status().state == BalanceStatus::State::kRunning;
         ++mounts) {
        CHECK(volume.fs().committer.balance.status().chosen);
        CHECK(has_feature());
        for (int step = 0; step < 1 + mounts; ++step)
            if (volume.fs().balance_step() == CleanProgress::kNeedsCommit)
                REQUIRE(volume.fs().step(true).ok());
        moved_blocks += volume.fs().info().moved_blocks;
        volume.kill();
        mount(volume, manual_options());
    }
    CHECK(volume.fs().committer.balance.status().state == BalanceStatus::State::kNone);
    CHECK_FALSE(has_feature());
    CHECK(moved_blocks > 0);  // groups that hold nothing do not use the limit up
    for (const GroupRecord& group : volume.fs().volume->map().groups)
        CHECK((group.flags & kGroupChosen) == 0);
    uint64_t gone = 0;
    const std::set<VolumeAddress> after = data_groups(volume.fs());
    for (const VolumeAddress address : before)
        gone += after.count(address) == 0;
    CHECK(gone == 2);
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

TEST_CASE("balance: one that was cancelled and begins again ends, or is refused for lack of room")
{
    for (const uint64_t free_mib : {400, 160, 90, 40, 20}) {
        CAPTURE(free_mib);
        SimVolume volume({0, 0, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
        for (const uint64_t mib : {160, 160, 160, 80})
            volume.add_device(mib * kMiB);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        Prng prng(seed());
        const BalanceOptions options{
            .profiles = {ProfileId::kRaid5, ProfileId::kRaid1c4}, .content = kAllContent, .convert = true};
        REQUIRE(start_balance(fs, options).ok());
        std::string why;
        REQUIRE(fs.committer.balance.cancel(why).ok());
        Contents contents = fill(fs, prng, kMiB);
        for (int files = 0; files < 400 && fs.statistics().available_blocks * kBlockBytes > free_mib * kMiB;
             ++files) {
            const std::string name = "file" + std::to_string(files);
            contents[name] = random_content(prng, kMiB);
            write_file(fs, name, contents[name]);
            if (files % 8 == 0)
                REQUIRE(fs.step(true).ok());
        }
        REQUIRE(fs.step(true).ok());
        const Status again = fs.committer.balance.start(options, why);
        MESSAGE(free_mib, " MiB free: ", why.empty() ? "begins" : why);
        if (again.ok())
            CHECK(finish(fs).state == BalanceStatus::State::kFinished);
        else
            CHECK(again.err() == Err::kNoSpace);
        CHECK((free_mib < 400 || again.ok()));
        CHECK((free_mib > 20 || !again.ok()));
        require_contents(fs, contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

namespace {

struct Level {
    uint64_t data_mib, attribute_mib;
};

// So many MiB of files and of extended attributes. False: there is no room for more.
bool fill_to(Filesystem& fs, Prng& prng, Contents& contents, const Level& level)
{
    for (uint64_t mib = 0; mib < std::max(level.data_mib, level.attribute_mib * 17); ++mib) {
        const std::string name = "file" + std::to_string(mib);
        const Result<Attributes> made = fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        if (!made.ok())
            return false;
        std::vector<std::byte>& content = contents[name];
        if (mib < level.attribute_mib * 17 &&
            !fs.names.set_xattr(made->inode, "user.a", random_content(prng, 60000), 0).ok())
            return false;
        if (mib < level.data_mib)
            content = random_content(prng, kMiB);
        if (mib < level.data_mib && !fs.files.write(made->inode, 0, content, {}, {}).ok())
            return false;
        fs.names.forget(made->inode, 1);
        if (mib % 8 == 0 && !fs.step(true).ok())
            return false;
    }
    return fs.step(true).ok();
}

// Begins what `options_of` says on volumes that are filled more and more, and goes on to its end. How many it
// was refused on.
template <typename OptionsOf> size_t refused_on(const std::vector<Level>& levels, OptionsOf options_of)
{
    size_t refused = 0;
    for (const Level& level : levels) {
        CAPTURE(level.data_mib);
        CAPTURE(level.attribute_mib);
        SimVolume volume({4, kChoiceMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
        make_and_mount(volume);
        Prng prng(seed());
        Contents contents;
        REQUIRE(fill_to(volume.fs(), prng, contents, level));
        std::string why;
        const Status started = volume.fs().committer.balance.start(options_of(volume.fs()), why);
        MESSAGE(level.data_mib, " MiB of data, ", level.attribute_mib,
                " of attributes: ", why.empty() ? "begins" : why);
        if (started.ok())
            CHECK(finish(volume.fs()).state == BalanceStatus::State::kFinished);
        else
            CHECK(started.err() == Err::kNoSpace);
        refused += started.ok() ? 0 : 1;
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
    }
    return refused;
}

}  // namespace

TEST_CASE("balance: a removal ends, or is refused for lack of room, of nodes as well")
{
    std::vector<Level> levels;
    for (const uint64_t attribute_mib : {4, 40, 70})
        for (uint64_t data_mib = 120; data_mib <= 280 - 2 * attribute_mib; data_mib += 20)
            levels.push_back({data_mib, attribute_mib});
    const size_t refused = refused_on(levels, [](Filesystem& fs) {
        return BalanceOptions{
            .profiles = fs.volume->profiles(), .content = kAllContent, .member = MemberId{4}};
    });
    CHECK(refused > 0);
    CHECK(refused < levels.size());
}

TEST_CASE("balance: metadata that filters let through moves to the end, or is refused for lack of room")
{
    std::vector<Level> levels;
    for (uint64_t data_mib = 30; data_mib <= 230; data_mib += 40)
        levels.push_back({data_mib, 30});
    const size_t refused = refused_on(levels, [](Filesystem& fs) {
        BalanceOptions options{.profiles = fs.volume->profiles(), .content = kGroupMetadata | kGroupSystem};
        options.metadata.usage.most = options.system.usage.most = 100;
        return options;
    });
    CHECK(refused < levels.size());
}

namespace {

struct UnderParity {
    std::vector<uint64_t> member_mib;
    ProfileId data, from, to;
    uint64_t reserved_percent;  // of what is available in the end
};

// Files of a MiB, to what is left. False: it does not fit.
bool fill_until(Filesystem& fs, Prng& prng, Contents& contents, uint64_t available_mib)
{
    for (int number = 0; fs.statistics().available_blocks * kBlockBytes > available_mib * kMiB; ++number) {
        const std::string name = "file" + std::to_string(number);
        contents[name] = random_content(prng, kMiB);
        write_file(fs, name, contents[name]);
        if (number % 8 == 0 && !fs.step(true).ok())
            return false;
    }
    return fs.step(true).ok();
}

void reserve_percent(Filesystem& fs, uint64_t percent)
{
    const Result<Attributes> made = fs.names.make_node(kRoot, "reserved", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    if (const uint64_t bytes = fs.statistics().available_blocks * kBlockBytes / 100 * percent; bytes > 0)
        REQUIRE(fs.files.allocate_range(made->inode, 0, 0, bytes).ok());
    fs.names.forget(made->inode, 1);
    REQUIRE(fs.step(true).ok());
}

}  // namespace

// Groups of files' nodes are as wide as there are members, those of other trees are mirrors beside them.
TEST_CASE("balance: metadata goes under parity to its end on volumes of any fill, or is refused")
{
    const std::vector<UnderParity> cases = {
        {{128, 128, 128, 128}, ProfileId::kRaid5, ProfileId::kRaid1, ProfileId::kRaid5, 0},
        {{128, 128, 128, 128}, ProfileId::kRaid5, ProfileId::kRaid1, ProfileId::kRaid5, 30},
        {{160, 160, 160, 80}, ProfileId::kRaid5, ProfileId::kRaid1, ProfileId::kRaid5, 0},
        {{240, 128, 96, 96}, ProfileId::kRaid5, ProfileId::kRaid1, ProfileId::kRaid5, 0},
        {{160, 128, 128}, ProfileId::kRaid1, ProfileId::kRaid1, ProfileId::kRaid5, 0},
        {{128, 128, 128, 128, 96}, ProfileId::kRaid6, ProfileId::kRaid1c3, ProfileId::kRaid6, 0},
    };
    for (const UnderParity& one : cases) {
        size_t begun = 0;
        for (uint64_t available_mib = 50; available_mib <= 120; available_mib += 10) {
            CAPTURE(one.member_mib.size());
            CAPTURE(one.member_mib[0]);
            CAPTURE(one.reserved_percent);
            CAPTURE(available_mib);
            SimVolume volume({0, 0, one.data, one.from, 16 * kKiB});
            for (const uint64_t mib : one.member_mib)
                volume.add_device(mib * kMiB);
            make_and_mount(volume);
            Filesystem& fs = volume.fs();
            Prng prng(seed());
            Contents contents;
            REQUIRE(fill_until(fs, prng, contents, available_mib));
            reserve_percent(fs, one.reserved_percent);
            const BalanceOptions options = converted_to(one.data, one.to);
            std::string why;
            Status started = fs.committer.balance.start(options, why);
            // Some once more after one that was cancelled, which leaves groups of both kinds.
            if (started.ok() && available_mib % 20 == 0) {
                continue_balance(fs, static_cast<int>(available_mib / 20), true);
                if (fs.committer.balance.cancel(why).ok())
                    started = fs.committer.balance.start(options, why = "");
            }
            MESSAGE(one.member_mib.size(), " members, ", available_mib,
                    " MiB available: ", started.ok() ? "begins" : why);
            if (started.ok())
                CHECK(finish(fs).state == BalanceStatus::State::kFinished);
            else
                CHECK(started.err() == Err::kNoSpace);
            begun += started.ok() ? 1 : 0;
            require_contents(fs, contents);
            REQUIRE(volume.unmount().ok());
            require_clean(volume);
        }
        CHECK(begun > 0);
    }
}

TEST_CASE("balance: where packing data makes room for metadata, the refusal says so, and it does")
{
    SimVolume volume({4, 128 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    Contents contents;
    REQUIRE(fill_until(fs, prng, contents, 8));
    const BalanceOptions options = converted_to(ProfileId::kRaid5, ProfileId::kRaid1c3);
    std::string why;
    REQUIRE(fs.committer.balance.start(options, why).err() == Err::kNoSpace);
    CHECK_MESSAGE(why.find("; remove files and pack the others") != std::string::npos, why);
    // Out of all groups, so that none is empty.
    for (auto file = contents.begin(); file != contents.end();) {
        const bool goes = prng.chance(3, 5);
        if (goes)
            REQUIRE(fs.names.unlink(kRoot, file->first).ok());
        file = goes ? contents.erase(file) : std::next(file);
    }
    REQUIRE(fs.step(true).ok());
    REQUIRE(fs.step(true).ok());
    REQUIRE(fs.committer.balance.start(options, why = "").err() == Err::kNoSpace);
    const std::string command = "; cowraid balance start -dusage=";
    const size_t at = why.find(command);
    REQUIRE_MESSAGE(at != std::string::npos, why);
    MESSAGE(why);
    BalanceOptions packing{.profiles = fs.volume->profiles(), .content = kGroupData};
    packing.data.usage.most = std::stoul(why.substr(at + command.size()));
    REQUIRE(start_balance(fs, packing).ok());
    CHECK(finish(fs).state == BalanceStatus::State::kFinished);
    REQUIRE(start_balance(fs, options).ok());
    CHECK(finish(fs).state == BalanceStatus::State::kFinished);
    require_contents(fs, contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

namespace {

size_t groups_of(Filesystem& fs, ProfileId profile)
{
    size_t count = 0;
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups())
        count += group->record.profile == profile ? 1 : 0;
    return count;
}

std::string refusal_of(Filesystem& fs, const BalanceOptions& options)
{
    std::string why;
    CHECK(fs.committer.balance.start(options, why).err() == Err::kInvalid);
    CHECK(fs.committer.balance.status().state != BalanceStatus::State::kRunning);
    return why;
}

}  // namespace

namespace {

// New groups are of its profiles from then on, and nothing has moved.
void begin_and_cancel(Filesystem& fs, const BalanceOptions& options)
{
    std::string why;
    REQUIRE(start_balance(fs, options).ok());
    REQUIRE(fs.committer.balance.cancel(why).ok());
}

}  // namespace

TEST_CASE("balance: what lowers the tolerance says how far, of the whole volume")
{
    SimVolume volume({5, kChoiceMemberBytes, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const Contents contents = fill(fs, prng, 9 * kMiB);
    CHECK(
        refusal_of(fs, converted_to(ProfileId::kRaid5, ProfileId::kRaid0)) ==
        "data as raid5 instead of raid6, metadata as raid0 instead of raid1c3: the volume survives the loss "
        "of 0 devices instead of 2; --force does it all the same");
    CHECK(
        refusal_of(fs, converted_to(ProfileId::kRaid5, ProfileId::kRaid1c3)) ==
        "data as raid5 instead of raid6: the volume survives the loss of 1 device instead of 2; --force does "
        "it all the same");
    // Metadata is weaker already.
    REQUIRE(start_balance(fs, converted_to(ProfileId::kRaid6, ProfileId::kRaid1, true)).ok());
    CHECK(finish(fs).state == BalanceStatus::State::kFinished);
    CHECK(refusal_of(fs, converted_to(ProfileId::kRaid5, ProfileId::kRaid1)) ==
          "data as raid5 instead of raid6: the volume survives the loss of 1 device, but what is moved or "
          "written survives that of fewer than now; --force does it all the same");
    require_contents(fs, contents);
}

TEST_CASE("balance: after a conversion that was cancelled nothing moves into what tolerates less by itself")
{
    SimVolume volume({5, kChoiceMemberBytes, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    Contents contents = fill(fs, prng, 30 * kMiB);
    std::string why;
    begin_and_cancel(fs, converted_to(ProfileId::kRaid1, ProfileId::kRaid1c3, true));
    REQUIRE(fs.step(true).ok());
    const size_t before = groups_of(fs, ProfileId::kRaid6);
    REQUIRE(before > 0);
    const BalanceOptions all{.profiles = fs.volume->profiles(), .content = kAllContent};
    CHECK(refusal_of(fs, all).find("data as raid1 instead of raid6: ") == 0);
    BalanceOptions removal = all;
    removal.member = {5};
    why = refusal_of(fs, removal);
    CHECK_MESSAGE(why.find("; cowraid balance start -dconvert=raid6 first keeps it") != std::string::npos,
                  why);
    // Nor does the cleaner.
    REQUIRE(fs.names.unlink(kRoot, "large").ok());
    contents.erase("large");
    contents["more"] = random_content(prng, kMiB);
    write_file(fs, "more", contents["more"]);
    REQUIRE(fs.step(true).ok());
    for (int step = 0; step < 50; ++step)
        if (fs.clean_step(CleanWhen::kAny) == CleanProgress::kNeedsCommit)
            REQUIRE(fs.step(true).ok());
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups())
        CHECK((group->record.profile != ProfileId::kRaid6 ||
               !fs.store.remap.is_emptying(group->record.address)));
    CHECK(fs.info().moved_blocks == 0);
    require_contents(fs, contents);
    // What it is to be is said: it stays so.
    REQUIRE(start_balance(fs, converted_to(ProfileId::kRaid6, ProfileId::kRaid1c3)).ok());
    CHECK(finish(fs).state == BalanceStatus::State::kFinished);
    CHECK(groups_of(fs, ProfileId::kRaid1) == 0);
    removal.profiles = fs.volume->profiles();
    REQUIRE(start_balance(fs, removal).ok());
    CHECK(finish(fs).state == BalanceStatus::State::kFinished);
    require_contents(fs, contents);
}

TEST_CASE("balance: a member that is out of service is removed, whatever takes what it had")
{
    SimVolume volume({6, kChoiceMemberBytes, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const Contents contents = fill(fs, prng, 30 * kMiB);
    std::string why;
    begin_and_cancel(fs, converted_to(ProfileId::kRaid1, ProfileId::kRaid1c3, true));
    BalanceOptions removal{.profiles = fs.volume->profiles(), .content = kAllContent};
    removal.member = {6};
    CHECK(refusal_of(fs, removal).find("-dconvert=raid6 first keeps it") != std::string::npos);
    REQUIRE_MESSAGE(fs.committer.offline_member(removal.member, why).ok(), why);
    REQUIRE(start_balance(fs, removal).ok());
    CHECK(finish(fs).state == BalanceStatus::State::kFinished);
    CHECK(fs.volume->member_table().size() == 5);
    require_contents(fs, contents);
}

TEST_CASE("balance: filters do not let groups move into others that stay and tolerate less")
{
    SimVolume volume({5, kChoiceMemberBytes, ProfileId::kRaid1, ProfileId::kRaid1c3, 16 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    Contents contents = fill(fs, prng, 20 * kMiB);
    const BalanceOptions wider = converted_to(ProfileId::kRaid6, ProfileId::kRaid1c3);
    begin_and_cancel(fs, wider);
    contents["more"] = random_content(prng, 60 * kMiB);
    write_file(fs, "more", contents["more"]);
    REQUIRE(fs.step(true).ok());
    REQUIRE(groups_of(fs, ProfileId::kRaid6) > 0);
    REQUIRE(groups_of(fs, ProfileId::kRaid1) > 0);
    BalanceOptions packing{.profiles = fs.volume->profiles(), .content = kGroupData};
    packing.data.profiles = 1U << static_cast<uint32_t>(ProfileId::kRaid6);
    const std::string why = refusal_of(fs, packing);
    CHECK_MESSAGE(why.find("data as raid1 instead of raid6: ") == 0, why);
    // The conversion may go on.
    REQUIRE(start_balance(fs, wider).ok());
    CHECK(finish(fs).state == BalanceStatus::State::kFinished);
    require_contents(fs, contents);
}

TEST_CASE("balance: groups of nodes that hold nothing are no reason to refuse it")
{
    for (const std::vector<uint64_t>& member_mib :
         {std::vector<uint64_t>{100, 90, 90, 200}, {200, 180, 180, 400}, {160, 160, 160, 160}}) {
        CAPTURE(member_mib[0]);
        SimVolume volume({0, 0, ProfileId::kRaid6, ProfileId::kRaid5, 16 * kKiB});
        for (const uint64_t mib : member_mib)
            volume.add_device(mib * kMiB);
        make_and_mount(volume);
        const BalanceOptions options = converted_to(ProfileId::kRaid1c3, ProfileId::kRaid1c3);
        REQUIRE(start_balance(volume.fs(), options).ok());
        CHECK(finish(volume.fs()).state == BalanceStatus::State::kFinished);
        CHECK(groups_of(volume.fs(), ProfileId::kRaid5) == 0);
        Prng prng(seed());
        require_contents(volume.fs(), fill(volume.fs(), prng, 4 * kMiB));
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

TEST_CASE("balance: an empty volume that is too small is not told to remove files")
{
    SimVolume volume({3, 64 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
    make_and_mount(volume);
    std::string why;
    if (volume.fs().committer.balance.start(converted_to(ProfileId::kRaid1c3, ProfileId::kRaid1c3), why).ok())
        CHECK(finish(volume.fs()).state == BalanceStatus::State::kFinished);
    else
        CHECK_MESSAGE(why.find("remove files") == std::string::npos, why);
}

TEST_CASE("balance: who starts another while one is paused learns how it goes on")
{
    SimVolume volume({4, kChoiceMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    const BalanceOptions removal{
        .profiles = fs.volume->profiles(), .content = kAllContent, .member = MemberId{4}};
    std::string why;
    REQUIRE(start_balance(fs, removal).ok());
    CHECK(fs.committer.balance.start(removal, why).err() == Err::kBusy);
    CHECK(why == "a member is being removed; see cowraid balance status");
    REQUIRE(fs.committer.balance.pause(why = "").ok());
    CHECK(fs.committer.balance.start(removal, why).err() == Err::kBusy);
    CHECK(why ==
          "a member is being removed, and paused; cowraid balance resume lets it go on, cowraid balance "
          "cancel ends it");
}
