// SPDX-License-Identifier: MIT
#include "tests/sim/membership.h"

#include <algorithm>

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

bool Membership::unsettled() const
{
    for (uint32_t i = 0; i < world_.machine.disk_count(); ++i)
        if (world_.machine.place(i) == Place::kJoining || world_.machine.exchanged(i))
            return true;
    return false;
}

bool Membership::carried_out(const Status& status, const std::string& why, bool excused)
{
    if (world_.power_lost())
        world_.events.add(Event::kOrderCut);
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
    const uint64_t bytes = machine().shape().tight ? 96 * kMiB : prng().between(384, 1024) * kMiB;
    const uint32_t index = machine().spare(bytes);
    // A device that failed while it was added has used up its number.
    if (world_.fs().volume->superblock().next_member_id != index + 1)
        return;
    world_.note("add member %u", index + 1);
    machine().set_place(index, Place::kJoining);
    std::string why;
    const Status added = committer().add_member(machine().borrow(index), why).status();
    if (!carried_out(added, why, injector_.may_be_degraded())) {
        if (!world_.power_lost())
            machine().set_place(index, Place::kSpare);
        return;
    }
    machine().set_place(index, Place::kMember);
    world_.events.add(Event::kMemberAdded);
}

// It goes on with steps of the balance, after mounts, too.
void Membership::remove()
{
    if (committer().balance.status().active() || machine().removing)
        return;
    machine().removing = true;  // not one more may be lost beside it
    const std::vector<uint32_t> members = machine().members();
    const uint32_t index = members[prng().below(members.size())];
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
    if (!index || machine().exchanged(*index) || (balance.active() && balance.member == id_of(*index)))
        return;
    world_.note("replace member %u", *index + 1);
    injector_.end_faults_of(*index);
    machine().exchange_disk(*index);
    std::string why;
    if (carried_out(committer().replace_member(id_of(*index), machine().borrow(*index), why), why, false))
        world_.events.add(Event::kMemberReplaced);
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
    const uint64_t choice = prng().below(10);
    if (choice < 3)
        add();
    else if (choice < 5)
        remove();
    else if (choice < 7)
        replace();
    else if (choice < 8)
        take_offline();
    else
        bring_online();
}

void Membership::settle()
{
    if (world_.power_lost() || world_.failed() || !machine().removing)
        return;
    if (committer().balance.status().active())
        return;
    machine().removing = false;
    for (const uint32_t index : machine().members())
        if (!in_table(index)) {
            world_.note("member %u is removed", index + 1);
            machine().set_place(index, Place::kRemoved);
            injector_.removed(index);
            world_.events.add(Event::kMemberRemoved);
        }
}

void Membership::mounted()
{
    const VolumeInfo info = world_.fs().info();
    for (uint32_t i = 0; i < machine().disk_count(); ++i) {
        if (machine().place(i) == Place::kJoining)
            machine().set_place(i, in_table(i) ? Place::kMember : Place::kSpare);
        if (!machine().exchanged(i))
            continue;
        const auto member =
            std::find_if(info.members.begin(), info.members.end(),
                         [=](const MemberInfo& candidate) { return candidate.id == id_of(i); });
        machine().settle_exchange(i,
                                  member != info.members.end() && member->path == machine().old_disk_name(i));
    }
    settle();
    for (const uint32_t index : machine().members())
        if (!in_table(index))
            world_.violation("member %u is in the table no more", index + 1);
}

}  // namespace cowraid::test
