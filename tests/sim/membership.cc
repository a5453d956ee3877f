// SPDX-License-Identifier: MIT
#include "tests/sim/membership.h"

#include <algorithm>
#include <set>

#include "format/superblock.h"

namespace cowraid::test {

namespace {

constexpr uint32_t kMembersMax = 11;

MemberId id_of(uint32_t index)
{
    return {index + 1};
}

}  // namespace

bool Membership::in_table(uint32_t index)
{
    const std::vector<MemberRecord> table = world_.fs().volume->member_table();
    return std::any_of(table.begin(), table.end(),
                       [=](const MemberRecord& record) { return record.id == id_of(index); });
}

std::vector<uint32_t> Membership::out_of_service()
{
    std::vector<uint32_t> indexes;
    for (const MemberInfo& member : world_.fs().info().members)
        if (!member.in_service())
            indexes.push_back(member.id.value - 1);
    return indexes;
}

std::optional<uint32_t> Membership::some_out_of_service()
{
    const std::vector<uint32_t> out = out_of_service();
    if (out.empty())
        return std::nullopt;
    return out[prng().below(out.size())];
}

bool Membership::replacing(uint32_t index)
{
    return world_.fs().volume->replacing().names(id_of(index));
}

bool Membership::unsettled() const
{
    for (uint32_t i = 0; i < world_.machine.disk_count(); ++i)
        if (world_.machine.place(i) == Place::kJoining || world_.machine.exchanged(i))
            return true;
    return cut_;
}

void Membership::note_order_cut()
{
    if (!world_.power_lost())
        return;
    cut_ = true;
    world_.events.add(Event::kOrderCut);
}

bool Membership::carried_out(const Status& status, const std::string& why, bool excused)
{
    note_order_cut();
    if (!world_.returned(Event::kCommit))
        return false;
    if (status.ok()) {
        world_.committed();
        return true;
    }
    world_.note("  refused: %s", why.c_str());
    if (!excused)
        world_.violation("order about members: %s: %s", err_text(status.err()), why.c_str());
    return false;
}

void Membership::add()
{
    // A tight volume stays tight.
    const MachineShape& shape = machine().shape();
    if (machine().member_count() >= (shape.tight ? shape.member_count() : kMembersMax))
        return;
    const uint32_t index = world_.fs().volume->superblock().next_member_id - 1;
    machine().add_disk(index, machine().shape().tight ? 96 * kMiB : prng().between(384, 1024) * kMiB);
    world_.note("add member %u", index + 1);
    machine().set_place(index, Place::kJoining);
    std::string why;
    const Status added = committer().add_member(machine().borrow(index), why).status();
    if (carried_out(added, why, injector_.may_be_degraded()))
        world_.events.add(Event::kMemberAdded);
    if (!world_.power_lost())
        take_stock();
}

// It goes on with steps of the balance, after mounts, too.
void Membership::remove()
{
    const std::vector<uint32_t> members = machine().members();
    const uint32_t index = members[prng().below(members.size())];
    if (committer().balance.status().active() || machine().removing || replacing(index))
        return;
    machine().removing = true;  // not one more may be lost beside it
    if (!injector_.may_lose_more()) {
        machine().removing = false;
        return;
    }
    world_.note("remove member %u", index + 1);
    std::string why;
    const Status begun = committer().balance.start(
        {.profiles = world_.fs().volume->profiles(), .content = kAllContent, .member = id_of(index)}, why);
    const bool excused = begun.err() == Err::kNoSpace || begun.err() == Err::kInvalid;
    if (carried_out(begun, why, excused))
        world_.events.add(Event::kRemovalBegun);
    else if (!world_.power_lost())
        machine().removing = false;
}

void Membership::replace()
{
    const std::optional<uint32_t> index = some_out_of_service();
    const BalanceStatus balance = committer().balance.status();
    if (!index || replacing(*index) || (balance.active() && balance.member == id_of(*index)))
        return;
    world_.note("replace member %u", *index + 1);
    injector_.end_faults_of(*index);
    machine().exchange_disk(*index, machine().disk(*index).size_bytes());
    std::string why;
    if (carried_out(committer().replace_member(id_of(*index), machine().borrow(*index), why), why, false))
        world_.events.add(Event::kMemberReplaced);
    if (!world_.power_lost())
        take_stock();
}

// To a new disk, perhaps a larger one, or to a spare. Steps of it follow, after mounts, too.
void Membership::begin_copy()
{
    const std::vector<uint32_t> members = machine().members();
    const uint32_t source = members[prng().below(members.size())];
    Volume& volume = *world_.fs().volume;
    if (volume.members().device(id_of(source)) == nullptr ||
        (committer().balance.status().active() && committer().balance.status().member == id_of(source)))
        return;
    const uint64_t bytes = machine().disk(source).size_bytes() + prng().below(3) * 64 * kMiB;
    const std::optional<uint32_t> spare = machine().find(Place::kSpare);
    const bool by_spare = spare && prng().chance(1, 2) && machine().disk(*spare).size_bytes() >= bytes;
    const uint32_t target = volume.superblock().next_member_id - 1;
    machine().add_disk(target, by_spare ? 0 : bytes);
    machine().set_place(target, Place::kJoining);
    world_.note("copy member %u to %s", source + 1, by_spare ? "a spare" : "another disk");
    std::string why;
    const Status begun = by_spare ? committer().replace_member(id_of(source), nullptr, why, id_of(*spare))
                                  : committer().replace_member(id_of(source), machine().borrow(target), why);
    if (carried_out(begun, why, injector_.may_be_degraded()))
        world_.events.add(Event::kCopyBegun);
    if (!world_.power_lost())
        take_stock();
}

void Membership::cancel_copy()
{
    world_.note("cancel copying");
    std::string why;
    if (carried_out(committer().replace.cancel(why), why, injector_.may_be_degraded()))
        world_.events.add(Event::kCopyCancelled);
    if (!world_.power_lost())
        take_stock();
}

void Membership::copy()
{
    const uint32_t target = *machine().find(Place::kTarget);
    for (uint64_t count = prng().between(1, 6); count > 0; --count) {
        world_.note("copy");
        world_.fs().replace_step();
        note_order_cut();
        if (!world_.returned(Event::kCommit))
            return;
        world_.events.add(Event::kCopyStep);
        if (world_.fs().volume->replacing().active())
            continue;
        const ReplaceStatus status = committer().replace.status();
        const bool finished = status.state == ReplaceStatus::State::kFinished;
        if (!finished && !injector_.hurt().contains(target))
            world_.violation("copying to member %u failed: %s", target + 1, status.text.c_str());
        world_.events.add(finished ? Event::kCopied : Event::kCopyFailed);
        return take_stock();
    }
}

// One waits, or does no more.
void Membership::change_spares()
{
    std::string why;
    if (const std::optional<uint32_t> spare = machine().find(Place::kSpare)) {
        if (!prng().chance(1, 4))
            return;
        world_.note("remove spare %u", *spare + 1);
        carried_out(committer().remove_spare(id_of(*spare), why), why, injector_.may_be_degraded());
    } else {
        const uint32_t index = world_.fs().volume->superblock().next_member_id - 1;
        uint64_t bytes = UINT64_MAX;  // of the smallest member: a spare is not smaller
        for (const uint32_t member : machine().members())
            bytes = std::min(bytes, machine().disk(member).size_bytes());
        machine().add_disk(index, std::max(bytes, machine().shape().tight ? 96 * kMiB : kGiB));
        machine().set_place(index, Place::kJoining);
        world_.note("add spare %u", index + 1);
        const Status added = committer().add_spare(machine().borrow(index), why).status();
        if (carried_out(added, why, injector_.may_be_degraded()))
            world_.events.add(Event::kSpareAdded);
    }
    if (!world_.power_lost())
        take_stock();
}

// Of members that are out of service, if the mount waits for none.
void Membership::use_spares()
{
    world_.note("use spares");
    const size_t before = world_.fs().volume->spare_table().size();
    committer().use_spares();
    note_order_cut();
    if (!world_.returned(Event::kCommit))
        return;
    world_.events.add(Event::kSpareUsed, before - world_.fs().volume->spare_table().size());
    take_stock();
}

void Membership::grow(uint32_t index, uint64_t now_bytes)
{
    const uint64_t wanted =
        prng().chance(1, 2) ? UINT64_MAX : prng().between(now_bytes + 1, machine().disk(index).size_bytes());
    world_.note("make member %u larger", index + 1);
    std::string why;
    // By less than a slot it is no larger.
    if (carried_out(committer().grow_member(id_of(index), why, wanted).status(), why, true))
        world_.events.add(Event::kGrown);
}

// Not so small that files would have no room. It goes on with steps of the balance, after mounts, too.
void Membership::shrink(uint32_t index, uint64_t now_bytes)
{
    const uint64_t least = machine().shape().tight ? kMinMemberBytes : 256 * kMiB;
    if (now_bytes <= least || committer().balance.status().active())
        return;
    const uint64_t bytes = prng().between(least, now_bytes - 1);
    world_.note("make member %u smaller: %llu bytes", index + 1, static_cast<unsigned long long>(bytes));
    std::string why;
    shrinks_ = true;
    const Status begun = committer().balance.start({.profiles = world_.fs().volume->profiles(),
                                                    .content = kAllContent,
                                                    .member = id_of(index),
                                                    .shrink_bytes = bytes},
                                                   why);
    const bool excused = begun.err() == Err::kNoSpace || begun.err() == Err::kInvalid;
    if (carried_out(begun, why, excused))
        world_.events.add(Event::kShrinkBegun);
}

void Membership::resize()
{
    const std::vector<uint32_t> members = machine().members();
    const uint32_t index = members[prng().below(members.size())];
    const MemberRecord* const member = world_.fs().volume->superblock().member(id_of(index));
    if (replacing(index) || member == nullptr)
        return;  // it may have been removed just now
    const uint64_t now_bytes = member->size_bytes;
    if (now_bytes < machine().disk(index).size_bytes() && prng().chance(1, 2))
        grow(index, now_bytes);
    else
        shrink(index, now_bytes);
}

void Membership::spoil_ends()
{
    for (const uint32_t index : machine().members()) {
        const MemberRecord* const member = world_.fs().volume->superblock().member(id_of(index));
        if (member == nullptr)
            continue;
        std::vector<std::byte> noise(PluggedDisk::kUnitBytes);
        prng().fill(noise.data(), noise.size());
        SimDevice& disk = machine().disk(index);
        for (const uint64_t offset : machine().written(index))
            if (offset >= member->size_bytes && offset + noise.size() <= disk.size_bytes())
                disk.poke(offset, noise);
    }
}

void Membership::take_offline()
{
    const std::optional<uint32_t> index = injector_.choose_victim_to_lose();
    if (!index || world_.fs().volume->members().device(id_of(*index)) == nullptr)
        return;
    world_.note("take member %u offline", *index + 1);
    std::string why;
    const Status status = committer().offline_member(id_of(*index), why);
    // The commit before may have found out that it fails, or have ended its removal.
    const bool gone = world_.fs().volume->members().failed(id_of(*index)) || !in_table(*index);
    if (carried_out(status, why, gone))
        world_.events.add(Event::kMemberOffline);
}

// Its superblocks may have been overwritten.
void Membership::bring_online()
{
    const std::optional<uint32_t> index = some_out_of_service();
    if (!index || machine().exchanged(*index))
        return;
    world_.note("bring member %u online", *index + 1);
    injector_.end_faults_of(*index);
    std::string why;
    const Status status = committer().online_member(id_of(*index), machine().borrow(*index), why).status();
    if (carried_out(status, why, true))
        world_.events.add(Event::kMemberOnline);
}

void Membership::step()
{
    world_.in_commit = true;
    const uint64_t choice = prng().below(17);
    if (choice < 3)
        add();
    else if (choice < 5)
        remove();
    else if (choice < 7)
        replace();
    else if (choice < 8)
        take_offline();
    else if (choice < 10)
        bring_online();
    else if (choice < 12)
        change_spares();
    else if (choice < 14)
        resize();
    else if (!machine().find(Place::kTarget))
        begin_copy();
    else if (prng().chance(1, 4))
        cancel_copy();
}

bool Membership::go_on()
{
    const bool copies = machine().find(Place::kTarget).has_value();
    const bool waits = machine().find(Place::kSpare) && world_.fs().volume->degraded();
    if ((!copies && !waits) || !prng().chance(1, 15))
        return false;
    world_.in_commit = true;
    if (waits && (!copies || prng().chance(1, 2)))
        use_spares();
    else
        copy();
    return true;
}

void Membership::take_stock()
{
    const VolumeInfo info = world_.fs().info();
    std::set<uint32_t> known;
    const auto settle_one = [&](MemberId id, const std::string& path, Place place) {
        const uint32_t index = id.value - 1;
        known.insert(index);
        if (const auto before = machine().holder_of(path); before && *before != index)
            injector_.moved(*before, index);
        machine().settle(index, path, place);
    };
    for (const MemberInfo& member : info.members)
        settle_one(member.id, member.path, member.successor ? Place::kTarget : Place::kMember);
    for (const SpareInfo& spare : info.spares)
        settle_one(spare.id, spare.path, Place::kSpare);
    for (uint32_t i = 0; i < machine().disk_count(); ++i) {
        if (machine().place(i) == Place::kNone || known.contains(i))
            continue;
        if (machine().place(i) == Place::kMember && machine().removing)
            continue;  // settle() finds out
        if (machine().place(i) == Place::kMember)
            world_.violation("member %u is in the table no more", i + 1);
        injector_.removed(i);
        machine().forget(i);
    }
}

void Membership::settle()
{
    if (world_.power_lost() || world_.failed() || (!machine().removing && !shrinks_) ||
        committer().balance.status().active())
        return;
    if (std::exchange(shrinks_, false)) {
        spoil_ends();
        world_.events.add(Event::kShrunk);
    }
    if (!std::exchange(machine().removing, false))
        return;
    for (const uint32_t index : machine().members())
        if (!in_table(index)) {
            world_.note("member %u is removed", index + 1);
            injector_.removed(index);
            machine().forget(index);
            world_.events.add(Event::kMemberRemoved);
        }
}

void Membership::mounted()
{
    settle();
    take_stock();
    spoil_ends();
    cut_ = false;
}

}  // namespace cowraid::test
