// SPDX-License-Identifier: MIT
// Every pair of operations on a volume at once, beside writers, with power cuts: whatever comes first,
// nothing is lost. COWRAID_PAIR_ROUNDS: how often each pair (1).
#include <cstdlib>

#include "device/superblock_store.h"
#include "tests/filesystem/volume_contents.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kPairMemberBytes = 160 * kMiB;
constexpr VolumeShape kPairShape{5, kPairMemberBytes, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * kKiB};

// A volume, what it must hold, and which devices are of no use to it.
class World {
public:
    explicit World(Prng& random) : volume(kPairShape), prng(random)
    {
        make_and_mount(volume);
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
        ++cuts;
        volume.power_cut(prng);
        mount(volume, degraded_options(), useless);
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

    SimVolume volume;
    Prng& prng;
    Contents contents, durable;
    uint64_t commits = 0;
    uint32_t added = 0, removals = 0, cuts = 0;
    std::vector<uint32_t> useless;  // devices that failed or are no members any more, by index
};

// `begin`: false when it is refused because another one is under way. `step`: false when there is no more.
struct VolumeOperation {
    const char* name;
    bool (*begin)(World& world);
    bool (*step)(World& world);
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

// Whether mounts go on with it.
bool is_durable(const VolumeOperation& operation)
{
    return operation.step == balance_step || operation.step == catch_up_step ||
           operation.step == replace_step;
}

const VolumeOperation kOperations[] = {
    {"scrub", [](World& world) { return !refused(world.fs().committer.scrub.start({})); },
     [](World& world) {
         return world.fs().committer.scrub.step();
     }},
    {"clean", [](World&) { return true; },
     [](World& world) {
         return world.fs().clean_step(CleanWhen::kAny) != CleanProgress::kNothing;
     }},
    {"balance", [](World& world) { return !refused(begin_balance(world.fs(), world.prng, 2)); },
     balance_step},
    {"add",
     [](World& world) {
         std::string why;
         const uint32_t device = world.volume.add_device(kPairMemberBytes);
         const auto added = world.fs().committer.add_member(world.volume.borrow_one(device), why);
         world.added += added.ok() ? 1 : 0;
         return !refused(added.status(), why);
     },
     [](World&) {
         return false;
     }},
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
    {"replace",
     [](World& world) {
         MemberId member = world.any_member();
         // The shrinking of one must be cancelled before it is replaced.
         while (member == world.fs().volume->superblock().balance.member)
             member = world.any_member();
         const uint32_t old = world.device_of(member);
         world.volume.cable(old).add_rule({.kinds = kFaultWrites | kFaultFlushes});
         change_one(world.fs(), world.prng, world.contents);
         world.commit();
         world.useless.push_back(old);
         std::string why;
         const uint32_t device = world.volume.add_device(kPairMemberBytes);
         const Status replaced =
             world.fs().committer.replace_member(member, world.volume.borrow_one(device), why);
         if (refused(replaced, why))
             world.useless.push_back(device);
         return replaced.ok();
     },
     catch_up_step},
    {"replace in service",
     [](World& world) {
         std::string why;
         const uint32_t device = world.volume.add_device(kPairMemberBytes);
         const Status started =
             world.fs().committer.replace_member(world.any_member(), world.volume.borrow_one(device), why);
         if (!refused(started, why))
             return true;
         world.useless.push_back(device);
         return false;
     },
     replace_step},
    {"return",
     [](World& world) {
         const MemberId member = world.any_member();
         FaultDevice& cable = world.volume.cable(world.device_of(member));
         const size_t rule = cable.add_rule({.kinds = kFaultWrites | kFaultFlushes});
         change_one(world.fs(), world.prng, world.contents);
         world.commit();
         cable.remove_rule(rule);
         std::string why;
         return !refused(world.fs().committer.online_member(member, nullptr, why).status(), why);
     },
     catch_up_step},
};

// Devices without a superblock are no members.
void find_useless(World& world)
{
    for (uint32_t device = 0; device < world.volume.member_count(); ++device) {
        const bool known =
            std::find(world.useless.begin(), world.useless.end(), device) != world.useless.end();
        if (!known && !read_rings(*world.volume.borrow_one(device)).ok())
            world.useless.push_back(device);
    }
}

void run_pair(World& world, const VolumeOperation& one, const VolumeOperation& other)
{
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
        if (!world.prng.chance(1, 30))
            continue;
        find_useless(world);
        world.cut_power();
        // Neither survives a mount: both begin anew.
        one_runs = one_runs && (is_durable(one) || one.begin(world));
        other_runs = other_runs && (is_durable(other) || other.begin(world));
        world.settle(true);
    }
}

void finish_all(World& world)
{
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
    CHECK(world.fs().volume->member_table().size() == kPairShape.member_count + world.added - world.removals);
    CHECK_FALSE(world.fs().volume->degraded());
    for (const MemberInfo& member : world.fs().info().members)
        CHECK(member.stale_groups == 0);
    require_contents(world.fs(), world.contents);
}

}  // namespace

TEST_CASE("pairs: any two operations at once, beside writers and power cuts")
{
    Prng prng(seed());
    const char* const text = getenv("COWRAID_PAIR_ROUNDS");
    const int rounds = text == nullptr ? 1 : atoi(text);
    int cuts = 0;
    for (int round = 0; round < rounds; ++round)
        for (const VolumeOperation& one : kOperations)
            for (const VolumeOperation& other : kOperations) {
                CAPTURE(std::string(one.name));
                CAPTURE(std::string(other.name));
                CAPTURE(round);
                World world(prng);
                run_pair(world, one, other);
                finish_all(world);
                cuts += static_cast<int>(world.cuts);
                find_useless(world);
                const uint64_t tolerance = world.fs().info().may_fail_writing;
                CHECK(tolerance >= 1);
                std::vector<uint32_t> lost = world.useless;
                for (uint64_t count = 0; count < tolerance;) {
                    const uint32_t device = world.device_of(world.any_member());
                    if (std::find(lost.begin(), lost.end(), device) != lost.end())
                        continue;
                    lost.push_back(device);
                    ++count;
                }
                REQUIRE(world.volume.unmount().ok());
                require_clean(world.volume, world.useless);
                mount(world.volume, degraded_options(), lost);
                require_contents(world.fs(), world.contents);
            }
    CHECK(cuts > rounds * 30);
}
