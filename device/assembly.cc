// SPDX-License-Identifier: MIT
#include "device/assembly.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "device/lineage.h"

namespace cowraid {

namespace {

// A device whose rings have a valid superblock of this volume.
struct Candidate {
    std::unique_ptr<BlockDevice> device;
    RingReading reading;

    [[nodiscard]] const Superblock& newest() const { return reading.valid.front(); }
};

// A device that says nothing about its identity.
struct Unidentified {
    bool unreadable;
    std::string text;  // its name and what it is
};

// A member that somebody made something else of, who left superblocks of it: what is written to it destroys
// that.
struct Overwritten {
    Uuid volume;
    MemberId member;
    std::string text;
};

// `err`: of reading its superblocks.
Unidentified look_at(const BlockDevice& device, Err err)
{
    const std::string name = device.name();
    if (device.size_bytes() == 0)
        return {true, name + " has a size of 0"};
    if (err != Err::kNotFound)
        return {true, name + " cannot be read"};
    const auto content = device.foreign_content(ContentArea::kAll);
    const bool known = content.ok() && !content->empty();
    return {false, name + (known ? " holds " + *content : " carries no cowraid superblock")};
}

std::string mebibytes_text(uint64_t bytes)
{
    return bytes % kMiB == 0 ? std::to_string(bytes / kMiB) + " MiB" : std::to_string(bytes) + " bytes";
}

std::string name_of(const BlockDevice& device)
{
    return device.name();
}

std::string logical_of(const std::vector<const Candidate*>& candidates)
{
    std::string names;
    for (const Candidate* candidate : candidates)
        names += (names.empty() ? "" : " ") + shell_word(name_of(*candidate->device));
    return names;
}

constexpr const char* kRemoved = "has been removed";

bool contains(const std::vector<const Candidate*>& candidates, const Candidate* candidate)
{
    return std::find(candidates.begin(), candidates.end(), candidate) != candidates.end();
}

// Assembles one set of devices; a step per member function, in the order of assemble().
class Assembler {
public:
    Assembler(const AssemblyOptions& options, std::string& why) : options_(options), why_(why) { }

    Status read(std::vector<std::unique_ptr<BlockDevice>> devices);
    Status check_one_volume();
    Status leave_out_former();
    Status check_identities();
    Status choose_head();
    Status check_table();
    Assembly build();

private:
    // Those whose commits are part of the past of `head`.
    struct Side {
        const Candidate* head;
        std::vector<const Candidate*> members;
    };
    [[nodiscard]] std::string keep_text(const Side& side) const;
    Status refuse_split();
    Status refuse_head(const Candidate& unknown);
    [[nodiscard]] bool was_named(const Candidate& candidate) const;
    [[nodiscard]] bool is_stranger(const Candidate& candidate) const;
    [[nodiscard]] const char* lost_place(const Candidate& candidate) const;
    [[nodiscard]] std::vector<const Candidate*> side_of(const Candidate& head) const;
    [[nodiscard]] size_t complete_under(const Candidate& head) const;
    [[nodiscard]] bool better_head(const Candidate& a, const Candidate& b) const;
    void place(Assembly& assembly, Candidate& candidate);
    void place_spare(Assembly& assembly, Candidate& candidate) const;
    void find_take_over(Assembly& assembly);
    [[nodiscard]] bool ring_damaged(const Candidate& candidate) const;
    [[nodiscard]] const Overwritten* find_overwritten(MemberId id) const;
    void explain_absent(Assembly& assembly) const;

    const AssemblyOptions& options_;
    std::string& why_;
    std::vector<Candidate> candidates_;
    std::vector<Candidate> spares_;
    std::vector<Candidate> former_;  // in whose place others have come, or nobody
    std::vector<Unidentified> unidentified_;
    std::vector<Overwritten> overwritten_;
    std::vector<std::string> notes_;
    const Candidate* head_ = nullptr;
    Superblock superblock_;  // head's
};

Status Assembler::read(std::vector<std::unique_ptr<BlockDevice>> devices)
{
    std::string names;
    for (auto& device : devices) {
        const std::string name = name_of(*device);
        names += (names.empty() ? "" : " ") + name;
        Result<RingReading> reading = read_rings(*device);
        const auto content =
            reading.ok() ? device->foreign_content(ContentArea::kHead) : Result<std::string>(std::string());
        if (content.err() == Err::kAccess) {
            // Nobody writes to what may be another's.
            unidentified_.push_back({true, name + " cannot be read through the page cache"});
        } else if (content.ok() && !content->empty()) {
            const Superblock& was = reading->valid.front();
            overwritten_.push_back(
                {was.volume_uuid, was.member_id,
                 name + " holds " + *content + " (if that is a mistake: wipefs -a " + name + ")"});
        } else if (reading.ok()) {
            // A sector of its head that cannot be read holds no other filesystem that could be used.
            if (!content.ok())
                CW_LOG_WARNING("%s cannot be read in full within its first MiB", name.c_str());
            std::vector<Candidate>& found = reading->valid.front().on_spare() ? spares_ : candidates_;
            found.push_back({std::move(device), reading.take()});
        } else if (reading.err() == Err::kUnsupported) {
            why_ = name + " needs " + unsupported_reason(*device);
            return Err::kUnsupported;
        } else {
            unidentified_.push_back(look_at(*device, reading.err()));
        }
    }
    if (!candidates_.empty())
        return {};
    if (!overwritten_.empty()) {
        why_ = overwritten_.front().text + ", and no other member is there: name the others";
        return Err::kNotFound;
    }
    if (!spares_.empty()) {
        why_ = names + ": only spares of a volume: name at least one of its members";
        return Err::kNotFound;
    }
    why_ = names.empty() ? "no devices were given: name at least one member of the volume"
                         : "no superblock of a cowraid volume on " + names +
                               ": check the names, or make a volume with mkfs.cowraid";
    return Err::kNotFound;
}

Status Assembler::check_one_volume()
{
    // The volume most devices belong to, so that one stranger among many is the one that gets named.
    const Candidate* reference = nullptr;
    size_t most = 0;
    for (const Candidate& candidate : candidates_) {
        const auto votes = static_cast<size_t>(
            std::count_if(candidates_.begin(), candidates_.end(), [&](const Candidate& other) {
                return other.newest().volume_uuid == candidate.newest().volume_uuid;
            }));
        if (votes > most) {
            most = votes;
            reference = &candidate;
        }
    }
    for (const Candidate& candidate : candidates_) {
        if (candidate.newest().volume_uuid == reference->newest().volume_uuid)
            continue;
        why_ = name_of(*candidate.device) + " belongs to volume " +
               uuid_text(candidate.newest().volume_uuid) + ", but " + name_of(*reference->device) + " to " +
               uuid_text(reference->newest().volume_uuid) + ": give members of one volume only";
        return Err::kInvalid;
    }
    return {};
}

const Uuid& own_uuid(const Superblock& superblock)
{
    return superblock.member(superblock.member_id)->uuid;
}

// Whether `other` has a later commit in which the target has the place that is the source's for `own`, by
// what a superblock says of `meanwhile`.
bool knows_successor(const Superblock& other, const Superblock& own, const Superblock& meanwhile)
{
    const ReplaceRecord& replace = meanwhile.replace;
    const MemberRecord* const line = other.member(own.member_id);
    return replace.active() && replace.source == own.member_id && newer_commit(other, own) &&
           newer_commit(other, meanwhile) && line != nullptr &&
           line->uuid == meanwhile.member(replace.target)->uuid &&
           meanwhile.member(replace.source)->uuid == own_uuid(own);
}

// Of what was being erased when power failed older superblocks may be left: others have what came then.
bool knows_successor(const Superblock& other, const Superblock& own,
                     const std::vector<const RingReading*>& all)
{
    const auto says = [&](const Superblock& meanwhile) {
        return knows_successor(other, own, meanwhile) && shares_epoch(other, meanwhile);
    };
    return std::any_of(all.begin(), all.end(), [&](const RingReading* reading) {
        return std::any_of(reading->valid.begin(), reading->valid.end(), says) ||
               std::any_of(reading->before.begin(), reading->before.end(), says);
    });
}

// How a device lost its place, if it did: most of the devices have a later commit that knows another device,
// or none, as this member; or any has one that ends its replacement, or that its own end of one came to
// nothing with, and nothing older is left of it. Devices with which it shares no epoch have no say: anybody
// can make some with its volume's uuid. Null: it has its place.
const char* Assembler::lost_place(const Candidate& candidate) const
{
    constexpr const char* kReplaced = "has been replaced";
    const Superblock& own = candidate.newest();
    std::vector<const Superblock*> kin;
    std::vector<const RingReading*> rings;
    for (const Candidate& other : candidates_)
        if (shares_epoch(other.newest(), own)) {
            kin.push_back(&other.newest());
            rings.push_back(&other.reading);
        }
    const auto any = [&](auto&& holds) {
        return std::any_of(kin.begin(), kin.end(), [&](const Superblock* other) { return holds(*other); });
    };
    const auto in_vain = [&](const Superblock& one) {
        return any([&](const Superblock& other) { return took_over_in_vain(other, one); });
    };
    if (in_vain(own) ||
        any([&](const Superblock& other) { return knows_successor(other, own, rings) && !in_vain(other); }))
        return kReplaced;
    // Who says to be that member, too, has nothing to say of what came later.
    std::erase_if(kin, [&](const Superblock* other) {
        return other != &own && other->member_id == own.member_id && !newer_commit(*other, own);
    });
    size_t know_another = 0, know_none = 0;
    for (const Superblock* const other : kin) {
        const MemberRecord* const line = other->member(own.member_id);
        if (!newer_commit(*other, own))
            continue;
        know_none += line == nullptr ? 1 : 0;
        know_another += line != nullptr && line->uuid != own_uuid(own) ? 1 : 0;
    }
    if ((know_another + know_none) * 2 <= kin.size())
        return nullptr;
    return know_another > 0 ? kReplaced : kRemoved;
}

Status Assembler::leave_out_former()
{
    for (Candidate& candidate : candidates_)
        for (const Candidate& other : candidates_)
            forget_take_over(candidate.reading, other.newest());
    std::vector<const char*> lost;
    for (const Candidate& candidate : candidates_)
        lost.push_back(lost_place(candidate));
    std::vector<Candidate> kept;
    for (size_t index = 0; index < candidates_.size(); ++index) {
        Candidate& candidate = candidates_[index];
        if (lost[index] == nullptr) {
            kept.push_back(std::move(candidate));
            continue;
        }
        const std::string text = name_of(*candidate.device) + " was member " +
                                 std::to_string(candidate.newest().member_id.value) + " and " + lost[index];
        if (was_named(candidate)) {
            why_ = text + ": leave it out";
            return Err::kInvalid;
        }
        notes_.push_back(text + ": left out");
        former_.push_back(std::move(candidate));
    }
    candidates_ = std::move(kept);
    return {};
}

Status Assembler::check_identities()
{
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
        return a.newest().member_id < b.newest().member_id;
    });
    for (size_t index = 1; index < candidates_.size(); ++index) {
        const Candidate& a = candidates_[index - 1];
        const Candidate& b = candidates_[index];
        if (a.newest().member_id != b.newest().member_id)
            continue;
        why_ = name_of(*a.device) + " and " + name_of(*b.device) + " both are member " +
               std::to_string(a.newest().member_id.value) + " of volume " +
               uuid_text(a.newest().volume_uuid) + ": one is a copy, name all members but that";
        return Err::kInvalid;
    }
    return {};
}

bool Assembler::was_named(const Candidate& candidate) const
{
    return std::find(options_.named.begin(), options_.named.end(), candidate.device->name()) !=
           options_.named.end();
}

// Who names a device knows it.
bool Assembler::is_stranger(const Candidate& candidate) const
{
    return !was_named(candidate) && !shares_epoch(superblock_, candidate.newest());
}

// Everybody whose commits are part of the head's past.
std::vector<const Candidate*> Assembler::side_of(const Candidate& head) const
{
    std::vector<const RingReading*> all;
    for (const Candidate& candidate : candidates_)
        all.push_back(&candidate.reading);
    std::vector<const Candidate*> side;
    for (const Candidate& candidate : candidates_) {
        if (follows(head.reading, candidate.reading, all))
            side.push_back(&candidate);
    }
    return side;
}

// What to type to keep a side and take the devices of the others into it, as new ones.
std::string Assembler::keep_text(const Side& side) const
{
    const Superblock& table = side.head->newest();
    const size_t voters = table.members.size() - (table.replace.active() ? 1 : 0);
    const std::string names = logical_of(side.members);
    if (side.members.size() * 2 < voters)
        return ". Of " + names + " only " + std::to_string(side.members.size()) + " of " +
               std::to_string(voters) +
               " members are here: attach more of them, or read what they have with "
               "-o ro,rescue";
    // One name alone would lead to the others.
    std::string text = std::string("mount.cowraid -o degraded") +
                       (side.members.size() * 2 <= voters ? "=force " : " ") + names +
                       (side.members.size() == 1 ? " " + names : "") + " DIR";
    for (const Candidate& other : candidates_)
        if (!contains(side.members, &other) && table.member(other.newest().member_id) != nullptr)
            text += " && cowraid replace start -B -f " + std::to_string(other.newest().member_id.value) +
                    " " + shell_word(name_of(*other.device)) + " DIR";
    return ". To keep " + names + ": " + text;
}

Status Assembler::refuse_split()
{
    std::vector<const Candidate*> left;
    for (const Candidate& candidate : candidates_)
        left.push_back(&candidate);
    std::vector<std::string> names;
    std::string commands;
    while (!left.empty()) {
        const Candidate* const head =
            *std::max_element(left.begin(), left.end(), [](const Candidate* a, const Candidate* b) {
                return newer_commit(b->newest(), a->newest());
            });
        const Side side{head, side_of(*head)};
        names.push_back(logical_of(side.members));
        commands += keep_text(side);
        std::erase_if(left, [&](const Candidate* one) { return one == head || contains(side.members, one); });
    }
    why_ = "split brain: " + join_words(names) + " were each written without the other" + commands;
    return Err::kInvalid;
}

// Members that have everything under this head.
size_t Assembler::complete_under(const Candidate& head) const
{
    return static_cast<size_t>(
        std::count_if(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
            return head.newest().member(candidate.newest().member_id) != nullptr &&
                   !missed_from(head.reading, candidate.newest()).has_value();
        }));
}

// Of two heads that follow each other: in one epoch the newer commit; else both only recorded member states,
// and the one counts that more members went along with.
bool Assembler::better_head(const Candidate& a, const Candidate& b) const
{
    if (a.newest().epochs.front().epoch == b.newest().epochs.front().epoch)
        return newer_commit(a.newest(), b.newest());
    const size_t complete_a = complete_under(a);
    const size_t complete_b = complete_under(b);
    return complete_a != complete_b ? complete_a > complete_b : newer_commit(a.newest(), b.newest());
}

// The commit that all others follow.
Status Assembler::choose_head()
{
    for (const Candidate& candidate : candidates_) {
        if (side_of(candidate).size() == candidates_.size() &&
            (head_ == nullptr || better_head(candidate, *head_)))
            head_ = &candidate;
    }
    if (head_ == nullptr)
        return refuse_split();
    superblock_ = head_->newest();
    return {};
}

Status Assembler::refuse_head(const Candidate& unknown)
{
    why_ = name_of(*head_->device) + " has the newest commit of volume " +
           uuid_text(superblock_.volume_uuid) + " and does not know member " +
           std::to_string(unknown.newest().member_id.value) + ", " + name_of(*unknown.device) +
           ": leave out the one that does not belong to it";
    return Err::kInvalid;
}

// What the head's table says about each device, and whether unidentified ones can be its absent members.
Status Assembler::check_table()
{
    size_t known = 0;
    const Candidate* unknown = nullptr;
    for (const Candidate& candidate : candidates_) {
        const Superblock& newest = candidate.newest();
        const MemberRecord* line = superblock_.member(newest.member_id);
        if (line == nullptr) {
            unknown = &candidate;
            if (was_named(candidate))
                return refuse_head(candidate);
            continue;
        }
        if (line->uuid != newest.member(newest.member_id)->uuid && !was_named(candidate)) {
            unknown = &candidate;
            continue;
        }
        ++known;
        if (line->uuid == newest.member(newest.member_id)->uuid)
            continue;
        why_ = name_of(*candidate.device) + " says it is member " + std::to_string(newest.member_id.value) +
               " of volume " + uuid_text(superblock_.volume_uuid) +
               ", but that member is another device: leave it out";
        return Err::kInvalid;
    }
    if (unknown != nullptr && known * 2 <= candidates_.size())
        return refuse_head(*unknown);
    for (const Unidentified& device : unidentified_) {
        if (device.unreadable || known < superblock_.members.size() || options_.strangers == Strangers::kSkip)
            continue;
        why_ = device.text + ", and all members of volume " + uuid_text(superblock_.volume_uuid) +
               " are present without it: leave it out";
        return Err::kInvalid;
    }
    return {};
}

namespace {

bool in_epoch_of(const Superblock& head, const Superblock& other)
{
    return other.epochs.front().epoch == head.epochs.front().epoch;
}

}  // namespace

// Damage that a power cut during the head's commit or the next one cannot explain. After an unmount there was
// none during the head's, unless it cut into that unmount's last write.
bool Assembler::ring_damaged(const Candidate& candidate) const
{
    const auto slot_bit = [](Generation generation) {
        return 1u << generation.value % kSuperblockSlotCount;
    };
    const uint32_t explained = slot_bit(superblock_.generation.next()) |
                               (superblock_.unmounted ? 0 : slot_bit(superblock_.generation));
    for (const uint32_t mask : candidate.reading.damaged_mask) {
        if ((mask & ~explained) != 0)
            return true;
    }
    // Further behind in the same epoch without having been away: its newest copies vanished.
    const uint64_t behind = superblock_.unmounted ? 0 : 1;
    const Superblock& newest = candidate.newest();
    const MemberRecord* line = superblock_.member(newest.member_id);
    return candidate.reading.read_error ||
           (line->state == MemberState::kPresent && in_epoch_of(superblock_, newest) &&
            newest.generation.value + behind < superblock_.generation.value);
}

void Assembler::place(Assembly& assembly, Candidate& candidate)
{
    const Superblock& newest = candidate.newest();
    const std::string name = name_of(*candidate.device);
    const std::string member = "member " + std::to_string(newest.member_id.value);
    const MemberRecord* line = superblock_.member(newest.member_id);
    if (line == nullptr) {
        assembly.notes.push_back(name + " was " + member + " and " + kRemoved + ": left out");
        return;
    }
    if (line->uuid != newest.member(newest.member_id)->uuid) {
        assembly.notes.push_back(name + " was " + member + " and is being replaced: left out");
        return;
    }
    const auto slot = std::find_if(assembly.members.begin(), assembly.members.end(),
                                   [&](const AssembledMember& have) { return have.id == newest.member_id; });
    if (is_stranger(candidate)) {
        slot->reason = {.text = kForgotten + (" (" + name) + "): to use it all the same, name all members",
                        .unusable = true};
        return;
    }
    if (candidate.device->size_bytes() < line->size_bytes) {
        slot->reason = {.text = "is shrunken: " + name + " needs " + mebibytes_text(line->size_bytes) +
                                ", has " + mebibytes_text(candidate.device->size_bytes()),
                        .unusable = true};
        return;
    }
    const std::optional<Generation> missed = missed_from(head_->reading, newest);
    if (ring_damaged(candidate))
        assembly.damaged_rings.push_back(newest.member_id);
    if (missed.has_value()) {
        const bool behind = line->state == MemberState::kPresent && in_epoch_of(superblock_, newest);
        slot->reason.text = behind ? "stopped at commit " + std::to_string(newest.generation.value)
                                   : (line->state == MemberState::kFailed ? "failed since commit "
                                                                          : "was away since commit ") +
                                         std::to_string(missed->value);
        slot->reason.text += " (" + name + ")";
    }
    slot->stale = missed.has_value();
    slot->damaged = {newest.member_id, candidate.reading.damaged_mask};
    slot->missed_from = missed.value_or(Generation{});
    slot->device = std::move(candidate.device);
}

void Assembler::place_spare(Assembly& assembly, Candidate& candidate) const
{
    const Superblock& own = candidate.newest();
    const MemberRecord* const line =
        own.volume_uuid == superblock_.volume_uuid ? superblock_.spare(own.member_id) : nullptr;
    const std::string text = name_of(*candidate.device) + " was spare " + std::to_string(own.member_id.value);
    const bool twice = std::any_of(assembly.spares.begin(), assembly.spares.end(),
                                   [&](const AssembledSpare& have) { return have.id == own.member_id; });
    if (line == nullptr || line->uuid != own.spare(own.member_id)->uuid)
        assembly.notes.push_back(text + " and is none of this volume: left out");
    else if (const bool later = newer_commit(own, superblock_); later || is_stranger(candidate))
        assembly.notes.push_back(
            text + " and " + (later ? kOfLaterCommit : kForgotten) +
            ": left out; cowraid device remove and cowraid device add -f --spare make it "
            "a spare again");
    else if (twice || candidate.device->size_bytes() < line->size_bytes)
        assembly.notes.push_back(text + (twice ? ", as another device is" : " and is shrunken") +
                                 ": left out");
    else
        assembly.spares.push_back({line->id, std::move(candidate.device)});
}

// The text of a member that holds something else now; null when it is none.
const Overwritten* Assembler::find_overwritten(MemberId id) const
{
    for (const Overwritten& device : overwritten_)
        if (device.volume == superblock_.volume_uuid && device.member == id)
            return &device;
    return nullptr;
}

// Which of the absent members a device without a superblock was can be told only when there is one of each.
void Assembler::explain_absent(Assembly& assembly) const
{
    std::vector<AssembledMember*> absent;
    for (AssembledMember& member : assembly.members) {
        if (member.device != nullptr || !member.reason.text.empty())
            continue;
        if (const Overwritten* const device = find_overwritten(member.id); device != nullptr)
            member.reason = {.text = "is overwritten: " + device->text, .unusable = true};
        else
            absent.push_back(&member);
    }
    const bool known = absent.size() == 1 && unidentified_.size() == 1;
    for (AssembledMember* const member : absent) {
        const MemberRecord& record = *superblock_.member(member->id);
        if (known)
            member->reason = {.text = (unidentified_[0].unreadable ? "is unreadable: " : "is overwritten: ") +
                                      unidentified_[0].text,
                              .unusable = true};
        else if (record.state == MemberState::kFailed)
            member->reason.text = "failed since commit " + std::to_string(record.missing_since.value);
        else
            member->reason.text = "is absent";
    }
    for (const Unidentified& device : unidentified_)
        if (!known)
            assembly.notes.push_back(device.text + ": left out");
}

// Every device has the commit before the one that a power cut may have kept from some.
void Assembler::find_take_over(Assembly& assembly)
{
    const auto ended = [&](const Superblock& before) {
        const ReplaceRecord& replace = before.replace;
        const MemberRecord* const line = superblock_.member(replace.source);
        return before.generation.next() == superblock_.generation && replace.active() && line != nullptr &&
               line->uuid == before.member(replace.target)->uuid && shares_epoch(superblock_, before);
    };
    std::vector<const RingReading*> all;
    for (const Candidate& candidate : candidates_)
        all.push_back(&candidate.reading);
    for (const RingReading* const reading : all)
        for (const std::vector<Superblock>* const list : {&reading->valid, &reading->before})
            for (const Superblock& before : *list)
                if (ended(before))
                    assembly.taken_over = before.replace.source;
    if (assembly.taken_over.value == 0)
        return;
    for (Candidate& candidate : former_) {
        all.push_back(&candidate.reading);
        if (knows_successor(superblock_, candidate.newest(), all) &&
            follows(head_->reading, candidate.reading, all))
            assembly.replaced = std::move(candidate.device);
        all.pop_back();
    }
}

Assembly Assembler::build()
{
    Assembly assembly;
    assembly.superblock = superblock_;
    assembly.notes = notes_;
    for (const MemberRecord& record : superblock_.members)
        assembly.members.push_back({.id = record.id});
    for (Candidate& candidate : candidates_)
        place(assembly, candidate);
    for (Candidate& candidate : spares_)
        place_spare(assembly, candidate);
    explain_absent(assembly);
    find_take_over(assembly);
    return assembly;
}

}  // namespace

size_t Assembly::usable_count() const
{
    return members.size() - missing().size();
}

std::vector<MemberId> Assembly::missing() const
{
    std::vector<MemberId> ids;
    for (const AssembledMember& member : members) {
        if (member.device == nullptr || member.stale)
            ids.push_back(member.id);
    }
    return ids;
}

Result<Assembly> assemble(std::vector<std::unique_ptr<BlockDevice>> devices, std::string& why,
                          const AssemblyOptions& options)
{
    Assembler assembler(options, why);
    CW_TRY(assembler.read(std::move(devices)));
    CW_TRY(assembler.check_one_volume());
    CW_TRY(assembler.leave_out_former());
    CW_TRY(assembler.check_identities());
    CW_TRY(assembler.choose_head());
    CW_TRY(assembler.check_table());
    return assembler.build();
}

}  // namespace cowraid
