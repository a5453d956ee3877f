// SPDX-License-Identifier: MIT
// Every pair of operations on a volume at once, beside writers, with power cuts: whatever comes first,
// nothing is lost. COWRAID_PAIR_ROUNDS: how often each pair (1). From round to round the order in which the
// two begin and the shape of the volume change; four rounds have all.
#include <cstdlib>
#include <utility>

#include "tests/filesystem/scrub_steps.h"
#include "tests/support/recorded.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kPairMemberBytes = 160 * kMiB;
constexpr uint32_t kPairMembers = 5;
constexpr VolumeProfiles kOneMayFail{ProfileId::kRaid5, ProfileId::kRaid1};
constexpr VolumeProfiles kTwoMayFail{ProfileId::kRaid6, ProfileId::kRaid1c3};
constexpr MemberId kNoMember{0};

MountOptions pair_options()
{
    MountOptions options = degraded_options();
    options.spare_seconds = 0;
    return options;
}

// A volume, and what it must hold.
class World {
public:
    World(const VolumeProfiles& profiles, Prng& random)
        : volume({kPairMembers, kPairMemberBytes, profiles.data, profiles.metadata, 16 * kKiB}), prng(random)
    {
        std::string why;
        REQUIRE_MESSAGE(volume.make(why).ok(), why);
        mount(volume, pair_options());
        contents = fill(volume.fs(), prng, 2 * kMiB);
        note_commit();
    }

    [[nodiscard]] Filesystem& fs() { return volume.fs(); }
    void commit()
    {
        REQUIRE(fs().step(true).ok());
        note_commit();
    }
    // Everything so far is durable.
    void note_commit()
    {
        durable = contents;
        commits = fs().info().commits;
    }
    // What operations did may have been a commit; of a write that was one, only another tells how far it
    // went.
    void settle(bool wrote)
    {
        if (fs().info().commits == commits)
            return;
        if (wrote)
            REQUIRE(fs().step(true).ok());
        note_commit();
    }
    void cut_power()
    {
        const std::vector<uint32_t> absent = useless();
        volume.power_cut(prng);
        mount(volume, pair_options(), absent);
        contents = durable;
        require_contents(fs(), contents);
        note_commit();
    }
    // A member in service that is to stay, and the device that it has.
    MemberId any_member()
    {
        const MemberSet& members = fs().volume->members();
        const std::vector<MemberId> ids = members.ids();
        while (true)
            if (const MemberId id = ids[prng.below(ids.size())];
                members.device(id) != nullptr && !members.leaving(id))
                return id;
    }
    uint32_t device_of(MemberId member)
    {
        const std::string path = fs().volume->members().path(member);
        return static_cast<uint32_t>(std::stoul(path.substr(std::string("member").size()))) - 1;
    }

    // One that no order names that is under way.
    MemberId idle_member()
    {
        MemberId member = any_member();
        while (member == fs().volume->superblock().balance.member || fs().volume->replacing().names(member))
            member = any_member();
        return member;
    }
    // Members that are away or behind.
    size_t lacking()
    {
        const std::vector<MemberInfo> members = fs().info().members;
        return static_cast<size_t>(std::count_if(members.begin(), members.end(), [](const MemberInfo& one) {
            return !one.successor && (!one.in_service() || one.stale_groups > 0);
        }));
    }
    bool may_lose_one()
    {
        return fs().info().may_fail_writing > 0 && lacking() < tolerance_of(read_recorded(volume.members()));
    }
    // Devices that are neither members nor spares, by index.
    std::vector<uint32_t> useless()
    {
        const VolumeInfo info = fs().info();
        std::vector<uint32_t> devices;
        for (uint32_t device = 0; device < volume.member_count(); ++device) {
            const auto is_on = [&](const auto& one) {
                return one.path == volume.member(device).name();
            };
            if (std::none_of(info.members.begin(), info.members.end(), is_on) &&
                std::none_of(info.spares.begin(), info.spares.end(), is_on))
                devices.push_back(device);
        }
        return devices;
    }
    // It fails what is written to it, and is used meanwhile; the rule.
    size_t fail(MemberId member)
    {
        const size_t rule = volume.cable(device_of(member)).add_rule({.kinds = kFaultWrites | kFaultFlushes});
        change_one(fs(), prng, contents);
        commit();
        return rule;
    }
    void bring_online()
    {
        const MemberId member = std::exchange(offline, kNoMember);
        // A mount finds it by itself, and its successor may have taken its place.
        if (member == kNoMember || fs().volume->superblock().member(member) == nullptr ||
            fs().volume->members().device(member) != nullptr)
            return;
        std::string why;
        CHECK_MESSAGE(fs().committer.online_member(member, nullptr, why).ok(), why);
    }

    SimVolume volume;
    Prng& prng;
    Contents contents, durable;
    uint64_t commits = 0;
    uint32_t added = 0, removals = 0, grown = 0;
    MemberId offline = kNoMember;  // by order
};

// `begin`: false when it is refused because another one is under way. `step`: false when there is no more.
struct VolumeOperation {
    const char* name;
    bool (*begin)(World& world);
    bool (*step)(World& world);
    bool lasts = true;  // mounts go on with it
};

bool refused(const Status& status, const std::string& why = "")
{
    CHECK_MESSAGE((status.ok() || status.err() == Err::kBusy), why);
    return !status.ok();
}

bool balance_step(World& world)
{
    continue_balance(world.fs(), 1, true);
    return world.fs().committer.balance.status().state == BalanceStatus::State::kRunning;
}

bool catch_up_step(World& world)
{
    return world.fs().catch_up_step().ok();
}

bool replace_step(World& world)
{
    return world.fs().replace_step();
}

// Between profiles that tolerate one member and two.
bool begin_conversion(World& world)
{
    const bool lowers = find_profile(world.fs().volume->profiles().data)->tolerance == 2;
    if (lowers && world.lacking() > 1)
        return false;
    std::string why;
    return !refused(world.fs().committer.balance.start({.profiles = lowers ? kOneMayFail : kTwoMayFail,
                                                        .content = kAllContent,
                                                        .convert = true,
                                                        .force = lowers},
                                                       why),
                    why);
}

// Members that are smaller than their devices become larger.
bool grow_step(World& world)
{
    if (!world.prng.chance(1, 6))
        return true;
    const Superblock superblock = world.fs().volume->superblock();
    for (const MemberRecord& member : superblock.members) {
        if (member.size_bytes == kPairMemberBytes || superblock.balance.member == member.id ||
            superblock.replace.names(member.id) || world.fs().volume->members().device(member.id) == nullptr)
            continue;
        std::string why;
        const Result<uint64_t> grown = world.fs().committer.grow_member(member.id, why);
        CHECK_MESSAGE(grown.ok(), why);
        world.grown += grown.ok() ? 1 : 0;
    }
    return false;
}

// So that one can grow.
void shrink_one(World& world)
{
    REQUIRE(start_balance(world.fs(), {.profiles = world.fs().volume->profiles(),
                                       .content = kAllContent,
                                       .member = world.any_member(),
                                       .shrink_bytes = kPairMemberBytes - 2 * kMinSlotBytes})
                .ok());
    CHECK(finish(world.fs()).state == BalanceStatus::State::kFinished);
    world.note_commit();
}

// A balance, whoever began it, is paused, resumed, and cancelled at last, unless it ends before.
bool interrupt_step(World& world)
{
    Balance& balance = world.fs().committer.balance;
    const BalanceStatus now = balance.status();
    std::string why;
    if (!now.active())
        return false;
    if (now.state == BalanceStatus::State::kRunning && !world.prng.chance(1, 4))
        return balance_step(world);
    Status done;
    if (now.state == BalanceStatus::State::kRunning) {
        done = balance.pause(why);
        CHECK((!done.ok() || world.fs().balance_step() == CleanProgress::kNothing));
    } else if (world.prng.chance(2, 3)) {
        done = balance.resume(why);
    } else {
        done = balance.cancel(why);
        world.removals -= done.ok() && now.member != kNoMember && now.shrink_bytes == 0 ? 1 : 0;
    }
    CHECK_MESSAGE((done.ok() || done.err() == Err::kInvalid), why);  // it may have ended
    return true;
}

bool offline_step(World& world)
{
    if (world.offline == kNoMember)
        return catch_up_step(world);
    if (world.prng.chance(1, 6))
        world.bring_online();
    return true;
}

bool spare_step(World& world)
{
    world.fs().committer.use_spares();
    return !world.fs().volume->spare_table().empty() || catch_up_step(world);
}

const VolumeOperation kOperations[] = {
    {"scrub", [](World& world) { return !refused(world.fs().committer.scrub.start({})); },
     [](World& world) { return world.fs().committer.scrub.step(); }, false},
    {"clean", [](World&) { return true; },
     [](World& world) { return world.fs().clean_step(CleanWhen::kAny) != CleanProgress::kNothing; }, false},
    {"balance", [](World& world) { return !refused(begin_balance(world.fs(), world.prng, world.lacking())); },
     balance_step},
    {"convert", begin_conversion, balance_step},
    {"interrupt",
     [](World& world) {
         return world.fs().committer.balance.status().active() ||
                !refused(begin_balance(world.fs(), world.prng, world.lacking()));
     },
     interrupt_step},
    {"add",
     [](World& world) {
         std::string why;
         const uint32_t device = world.volume.add_device(kPairMemberBytes);
         const auto added = world.fs().committer.add_member(world.volume.borrow_one(device), why);
         world.added += added.ok() ? 1 : 0;
         return !refused(added.status(), why);
     },
     [](World&) { return false; }, false},
    {"remove",
     [](World& world) {
         std::string why;
         const Status started = world.fs().committer.balance.start({.profiles = world.fs().volume->profiles(),
                                                                    .content = kAllContent,
                                                                    .member = world.any_member()},
                                                                   why);
         world.removals += started.ok() ? 1 : 0;
         return !refused(started, why);
     },
     balance_step},
    {"shrink",
     [](World& world) {
         std::string why;
         const MemberId member = world.any_member();
         const uint64_t now = world.fs().volume->superblock().member(member)->size_bytes;
         if (now <= kPairMemberBytes / 2) {
             refused(world.fs().committer.grow_member(member, why).status(), why);
             return false;
         }
         return !refused(world.fs().committer.balance.start({.profiles = world.fs().volume->profiles(),
                                                             .content = kAllContent,
                                                             .member = member,
                                                             .shrink_bytes = now - 2 * kMinSlotBytes},
                                                            why),
                         why);
     },
     balance_step},
    {"grow", [](World&) { return true; }, grow_step},
    {"replace",
     [](World& world) {
         if (!world.may_lose_one())
             return false;
         const MemberId member = world.idle_member();
         world.fail(member);
         std::string why;
         const uint32_t device = world.volume.add_device(kPairMemberBytes);
         return !refused(world.fs().committer.replace_member(member, world.volume.borrow_one(device), why),
                         why);
     },
     catch_up_step},
    {"replace in service",
     [](World& world) {
         std::string why;
         const uint32_t device = world.volume.add_device(kPairMemberBytes);
         return !refused(
             world.fs().committer.replace_member(world.any_member(), world.volume.borrow_one(device), why),
             why);
     },
     replace_step},
    {"return",
     [](World& world) {
         if (!world.may_lose_one())
             return false;
         const MemberId member = world.any_member();
         FaultDevice& cable = world.volume.cable(world.device_of(member));
         cable.remove_rule(world.fail(member));
         std::string why;
         return !refused(world.fs().committer.online_member(member, nullptr, why).status(), why);
     },
     catch_up_step},
    {"offline",
     [](World& world) {
         if (world.offline != kNoMember || !world.may_lose_one())
             return false;
         const MemberId member = world.any_member();
         std::string why;
         const Status taken = world.fs().committer.offline_member(member, why);
         CHECK_MESSAGE(taken.ok(), why);
         world.offline = taken.ok() ? member : kNoMember;
         return taken.ok();
     },
     offline_step},
    {"spare",
     [](World& world) {
         if (!world.may_lose_one())
             return false;
         std::string why;
         const uint32_t device = world.volume.add_device(kPairMemberBytes);
         if (refused(world.fs().committer.add_spare(world.volume.borrow_one(device), why).status(), why))
             return false;
         world.fail(world.idle_member());
         return true;
     },
     spare_step},
};

// Whether power failed while one of them was under way.
bool run_pair(World& world, const VolumeOperation& one, const VolumeOperation& other)
{
    if (one.step == grow_step || other.step == grow_step)
        shrink_one(world);
    bool was_cut = false;
    const int first_cut = static_cast<int>(world.prng.below(10));
    bool one_runs = one.begin(world);
    bool other_runs = other.begin(world);
    world.settle(true);
    CHECK((one_runs || other_runs));
    for (int round = 0; round < 400 && (one_runs || other_runs || round < 20); ++round) {
        one_runs = one_runs && one.step(world);
        other_runs = other_runs && other.step(world);
        world.settle(false);
        if (round < 40)
            change_one(world.fs(), world.prng, world.contents);
        world.settle(true);
        if (world.prng.chance(1, 6))
            world.commit();
        if (round != first_cut && !world.prng.chance(1, 30))
            continue;
        was_cut = was_cut || one_runs || other_runs;
        world.cut_power();
        one_runs = one_runs && (one.lasts || one.begin(world));
        other_runs = other_runs && (other.lasts || other.begin(world));
        world.settle(true);
    }
    return was_cut;
}

// What was converted is so.
void require_converted(Filesystem& fs)
{
    const BalanceStatus balance = fs.committer.balance.status();
    if (balance.state != BalanceStatus::State::kFinished || !balance.convert ||
        balance.content != kAllContent)
        return;
    for (const GroupRecord& group : fs.volume->map().groups)
        CHECK(find_profile(group.profile)->tolerance ==
              find_profile(group.content == kGroupData ? balance.profiles.data : balance.profiles.metadata)
                  ->tolerance);
}

void finish_all(World& world)
{
    world.bring_online();
    world.fs().committer.use_spares();
    world.commit();
    for (int step = 0; step < 3000 && balance_step(world); ++step)
        world.settle(false);
    for (int step = 0; step < 3000 && replace_step(world); ++step)
        world.settle(false);
    CHECK_FALSE(world.fs().volume->replacing().active());
    for (int step = 0; step < 3000 && catch_up_step(world); ++step)
        if (step % 8 == 7)
            world.commit();
    world.commit();
    world.commit();
    // One that rests because another member failed goes on when that is whole again.
    std::string why;
    if (world.fs().committer.balance.status().state == BalanceStatus::State::kPaused)
        CHECK_MESSAGE(world.fs().committer.balance.resume(why).ok(), why);
    for (int step = 0; step < 3000 && balance_step(world); ++step)
        world.settle(false);
    world.commit();
    CHECK_FALSE(world.fs().committer.balance.status().active());
    CHECK(world.fs().volume->member_table().size() == kPairMembers + world.added - world.removals);
    CHECK_FALSE(world.fs().volume->degraded());
    for (const MemberInfo& member : world.fs().info().members)
        CHECK(member.stale_groups == 0);
    require_converted(world.fs());
    require_contents(world.fs(), world.contents);
    world.fs().committer.scrub.cancel().ignore();
    REQUIRE(world.fs().committer.scrub.start({}).ok());
    require_quiet(scrub(world.fs()));
}

// As many members go as may.
void lose_members(World& world)
{
    const std::vector<uint32_t> useless = world.useless();
    const uint64_t tolerance = world.fs().info().may_fail_writing;
    CHECK(tolerance >= 1);
    std::vector<uint32_t> lost = useless;
    while (lost.size() < useless.size() + tolerance) {
        const uint32_t device = world.device_of(world.any_member());
        if (std::find(lost.begin(), lost.end(), device) == lost.end())
            lost.push_back(device);
    }
    REQUIRE(world.volume.unmount().ok());
    require_clean(world.volume, useless);
    mount(world.volume, degraded_options(), lost);
    require_contents(world.fs(), world.contents);
}

}  // namespace

TEST_CASE("pairs: any two operations at once, beside writers and power cuts")
{
    Prng prng(seed());
    const char* const text = getenv("COWRAID_PAIR_ROUNDS");
    const int rounds = text == nullptr ? 1 : atoi(text);
    uint32_t pairs = 0, cut = 0, grown = 0;
    for (int round = 0; round < rounds; ++round)
        for (size_t first = 0; first < std::size(kOperations); ++first)
            for (size_t second = first; second < std::size(kOperations); ++second) {
                const bool swapped = round % 2 == 1;
                const VolumeOperation& one = kOperations[swapped ? second : first];
                const VolumeOperation& other = kOperations[swapped ? first : second];
                CAPTURE(std::string(one.name));
                CAPTURE(std::string(other.name));
                CAPTURE(round);
                const size_t shape = static_cast<size_t>(round) / 2 + first + second;
                World world(shape % 2 == 0 ? kTwoMayFail : kOneMayFail, prng);
                cut += run_pair(world, one, other) ? 1 : 0;
                ++pairs;
                finish_all(world);
                lose_members(world);
                grown += world.grown;
            }
    INFO(cut, " of ", pairs, " pairs were cut");
    CHECK(cut * 4 > pairs * 3);
    CHECK(grown * 15 > pairs);
}
