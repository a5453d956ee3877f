// SPDX-License-Identifier: MIT
// Random lives of a volume, mounted, crashed, degraded and healed as the filesystem would do it, against a
// model that knows which commit each member really has in full.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "device/assembly.h"
#include "tests/support/format_sample.h"
#include "tests/support/sample_volume.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint32_t kMembers = 5;
constexpr uint32_t kMajority = 3;
constexpr uint64_t kLives = 60;

class Life {
public:
    explicit Life(uint64_t seed) : volume_(seed, kMembers), prng_(seed)
    {
        for (const uint32_t id : volume_.all())
            complete_[id] = 0;
    }

    // One mount with a random set of members: some commits, maybe a member lost on the way, maybe a crash.
    void mount_once()
    {
        std::string why;
        const Ids given = random_ids();
        INFO(describe(given));
        const Result<Assembly> assembly = assemble(volume_.devices(given), why);
        CAPTURE(why);
        REQUIRE(assembly.ok());
        const uint64_t head = commit_of(assembly->superblock);
        Ids usable;
        for (const AssembledMember& member : assembly->members) {
            if (member.device == nullptr || member.stale)
                continue;
            // The heart of it: what counts as usable has all of the commit.
            REQUIRE(descends(complete_[member.id.value], head));
            usable.push_back(member.id.value);
        }
        MemberSet members;
        volume_.fill(members, usable);
        REQUIRE((usable.empty() || read_group_map(members, assembly->superblock).ok()));
        if (assembly->usable_count() < kMajority) {
            ++read_only;
            return;
        }
        REQUIRE(descends(head, acknowledged_));
        parent_ = head;
        write_as(*assembly);
    }

    // Both sides of a random split go on by themselves; true when the two are then refused together.
    bool split()
    {
        std::vector<Ids> sides(2);
        for (const uint32_t id : volume_.all())
            sides[prng_.below(2)].push_back(id);
        if (sides[0].empty() || sides[1].empty())
            return true;
        for (const Ids& side : sides) {
            std::string why;
            const Result<Assembly> assembly = assemble(volume_.devices(side), why);
            REQUIRE(assembly.ok());
            Superblock state = assembly->superblock;
            volume_.mount_degraded(state, side);
            volume_.commit_states(state, side, side);
            for (uint64_t count = prng_.between(1, 4); count > 0; --count)
                volume_.commit(state, side);
        }
        std::string why;
        const Result<Assembly> both = assemble(volume_.devices(volume_.all()), why);
        return both.err() == Err::kInvalid && why.starts_with("split brain: ");
    }

    uint64_t crashes = 0, degraded = 0, failures = 0, heals = 0, read_only = 0, acknowledgements = 0;

private:
    Ids random_ids()
    {
        Ids ids = volume_.all();
        for (uint64_t away = prng_.below(4); away > 0; --away) {
            if (prng_.chance(2, 3))
                ids.erase(ids.begin() + static_cast<ptrdiff_t>(prng_.below(ids.size())));
        }
        return ids;
    }

    // What every member's newest superblock says, for a failed check.
    std::string describe(const Ids& given)
    {
        std::string text = "acknowledged " + std::to_string(acknowledged_) + ", given";
        for (const uint32_t id : given)
            text += " " + std::to_string(id);
        for (const uint32_t id : volume_.all()) {
            const Result<RingReading> reading = read_rings(volume_.disk(id));
            if (!reading.ok())
                continue;
            const Superblock& newest = reading->valid.front();
            text += "\n  " + std::to_string(id) + ": generation " + std::to_string(newest.generation.value) +
                    " commit " + newest.label + " complete to " + std::to_string(complete_[id]) + ", missing";
            for (const MemberRecord& record : newest.members)
                text += " " + std::to_string(record.missing_since.value);
            for (const EpochRecord& epoch : newest.epochs)
                text += ", epoch " + std::to_string(epoch.epoch % 1000) + " from " +
                        std::to_string(epoch.generation.value);
        }
        return text;
    }

    Ids some_of(const Ids& ids)
    {
        Ids some;
        for (const uint32_t id : ids) {
            if (prng_.chance(1, 2))
                some.push_back(id);
        }
        return some;
    }

    static uint64_t commit_of(const Superblock& superblock)
    {
        return superblock.label.empty() ? 0 : std::stoull(superblock.label);
    }

    // Whether commit `of` is `ancestor` or was made on top of it; copy-on-write keeps what is below.
    [[nodiscard]] bool descends(uint64_t of, uint64_t ancestor) const
    {
        while (of > ancestor)
            of = parents_.at(of);
        return of == ancestor;
    }

    void write_as(const Assembly& assembly)
    {
        Superblock state = assembly.superblock;
        Ids in_service;
        for (const AssembledMember& member : assembly.members) {
            if (member.device != nullptr && !member.stale)
                in_service.push_back(member.id.value);
        }
        if (prng_.chance(1, 10)) {
            volume_.rewrite(state, some_of(in_service));
            ++crashes;
            return;
        }
        volume_.rewrite(state, in_service);
        for (const AssembledMember& member : assembly.members) {
            if (!member.stale)
                continue;
            state.member(member.id)->state = MemberState::kMissing;
            state.member(member.id)->missing_since = member.missed_from;
        }
        if (in_service.size() < kMembers) {
            volume_.mount_degraded(state, in_service);
            ++degraded;
        }
        // Member states and epoch are durable before the first write of data.
        if (prng_.chance(1, 6)) {
            const Ids reached = some_of(in_service);
            volume_.commit_states(state, in_service, reached);
            tear(state.generation, in_service, reached);
            return;
        }
        volume_.commit_states(state, in_service, in_service);
        for (const AssembledMember& member : assembly.members) {
            if (member.stale && prng_.chance(1, 2)) {  // caught up before the first commit
                volume_.rewrite(state, {member.id.value});
                volume_.restore(state, member.id.value);
                in_service.push_back(member.id.value);
                complete_[member.id.value] = parent_;
                ++heals;
            }
        }
        for (uint64_t count = prng_.between(1, 10); count > 0; --count) {
            if (in_service.size() > kMajority && prng_.chance(1, 8)) {
                const size_t index = prng_.below(in_service.size());
                volume_.fail(state, in_service[index]);
                in_service.erase(in_service.begin() + static_cast<ptrdiff_t>(index));
                ++failures;
            }
            if (!commit(state, in_service))
                return;
        }
    }

    // A crash while the superblocks of `generation` were written: some that it did not reach are torn.
    void tear(Generation generation, const Ids& in_service, const Ids& reached)
    {
        for (const uint32_t id : in_service) {
            const bool missed = std::find(reached.begin(), reached.end(), id) == reached.end();
            for (const uint32_t ring : {0u, 1u}) {
                if (missed && prng_.chance(1, 3))
                    volume_.rot_slot(id, ring, generation.value);
            }
        }
        ++crashes;
    }

    // False after a crash: data is flushed everywhere, superblocks reached some members only.
    bool commit(Superblock& state, const Ids& in_service)
    {
        const uint64_t number = ++last_commit_;
        parents_[number] = parent_;
        state.label = std::to_string(number);
        for (const uint32_t id : in_service)
            complete_[id] = number;
        if (prng_.chance(1, 5)) {
            const Ids reached = some_of(in_service);
            volume_.commit(state, in_service, reached);
            tear(state.generation, in_service, reached);
            return false;
        }
        volume_.commit(state, in_service);
        parent_ = number;
        acknowledged_ = number;
        ++acknowledgements;
        return true;
    }

    SampleVolume volume_;
    Prng prng_;
    std::map<uint64_t, uint64_t> parents_;  // of each commit the one it was made on
    std::map<uint32_t, uint64_t> complete_;  // the newest commit each member has in full
    uint64_t last_commit_ = 0;
    uint64_t acknowledged_ = 0;
    uint64_t parent_ = 0;
};

}  // namespace

TEST_CASE("assembly: random lives lose no acknowledged commit and trust no incomplete member")
{
    const uint64_t first = test_seed(500);
    uint64_t crashes = 0, degraded = 0, failures = 0, heals = 0, read_only = 0, acknowledgements = 0;
    for (uint64_t seed = first; seed < first + kLives; ++seed) {
        CAPTURE(seed);
        Life life(seed);
        for (int mount = 0; mount < 12; ++mount)
            life.mount_once();
        CHECK(life.split());
        crashes += life.crashes;
        degraded += life.degraded;
        failures += life.failures;
        heals += life.heals;
        read_only += life.read_only;
        acknowledgements += life.acknowledgements;
    }
    MESSAGE("commits ", acknowledgements, ", crashes ", crashes, ", degraded mounts ", degraded,
            ", failures ", failures, ", heals ", heals, ", read-only mounts ", read_only);
    CHECK(acknowledgements > 500);
    CHECK(crashes > 200);
    CHECK(degraded > 200);
    CHECK(failures > 40);
    CHECK(heals > 60);
    CHECK(read_only > 60);
}

namespace {

using Devices = std::vector<std::unique_ptr<BlockDevice>>;

// Member 1 was replaced by another device, which was removed then. /dev/old was the member first, /dev/m1 was
// it last; members 2 to 4 are the volume.
class TwiceFormer {
public:
    TwiceFormer()
    {
        old_ = volume_.disk(1).clone("/dev/old");
        volume_.state.members.front().uuid.bytes[0] ^= 1;
        volume_.commit(volume_.state, volume_.all());
        volume_.fail(volume_.state, 1);
        volume_.commit(volume_.state, {2, 3, 4});
        volume_.state.members.erase(volume_.state.members.begin());
        volume_.commit(volume_.state, {2, 3, 4});
    }

    // What assemble() says of these disks and of /dev/old, in both orders.
    Err assemble_beside_old(const Ids& ids, const AssemblyOptions& options, std::string& said)
    {
        Err err = Err::kOk;
        for (const bool first : {true, false}) {
            Devices devices = volume_.devices(ids);
            devices.insert(first ? devices.begin() : devices.end(), old_->clone("/dev/old"));
            said.clear();
            const Result<Assembly> assembly = assemble(std::move(devices), said, options);
            err = assembly.err();
            if (!assembly.ok())
                continue;
            CHECK(assembly->members.size() == 3);
            CHECK(assembly->missing().empty());
            for (const std::string& note : assembly->notes)
                said += note + "\n";
        }
        return err;
    }

private:
    SampleVolume volume_{901, 4};
    std::unique_ptr<SimDevice> old_;
};

bool says(const std::string& said, const std::string& text)
{
    return said.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("assembly: two devices that were a member that was removed since are left out")
{
    TwiceFormer former;
    std::string said;
    CHECK(former.assemble_beside_old({1, 2, 3, 4}, {}, said) == Err::kOk);
    CHECK(says(said, "/dev/old was member 1 and has been replaced: left out"));
    CHECK(says(said, "/dev/m1 was member 1 and has been removed: left out"));
    for (const char* const named : {"/dev/m1", "/dev/old"}) {
        AssemblyOptions options;
        options.named = {named};
        CHECK(former.assemble_beside_old({1, 2, 3, 4}, options, said) == Err::kInvalid);
        CHECK(says(said, named));
        CHECK(says(said, ": leave it out"));
    }
}

TEST_CASE("assembly: a single device does not turn others out as removed")
{
    TwiceFormer former;
    std::string said;
    CHECK(former.assemble_beside_old({1, 2}, {}, said) == Err::kInvalid);
    CHECK(says(said, "/dev/m2 has the newest commit"));
    CHECK(says(said, "does not know member 1, /dev/m1"));
    // Who writes one superblock of a later commit, which knows nobody else.
    SampleVolume volume(902, 4);
    Superblock forged = volume.state;
    forged.generation = {1000};
    forged.members.erase(forged.members.begin(), forged.members.begin() + 3);
    volume.commit(forged, {4});
    Devices devices = volume.devices({2, 4});
    devices.push_back(volume.disk(2).clone("/dev/copy"));
    CHECK(assemble(std::move(devices), said).err() == Err::kInvalid);
    CHECK(says(said, "both are member 2"));
}
