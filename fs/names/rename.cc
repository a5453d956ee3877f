// SPDX-License-Identifier: MIT
// Renaming: one name to another place, over what stands there, or two names exchanged.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <optional>

#include "format/items.h"
#include "fs/names/inode_use.h"
#include "fs/names/names.h"

namespace cowraid {

namespace {

// A place: a name in a directory, and what it means (nothing, at the end of a plain rename).
struct Place {
    InodeUse directory;
    std::string_view name;
    DirentSlot slot;
    InodeUse inode;  // set when slot.found

    [[nodiscard]] bool is_directory() const { return slot.found && S_ISDIR(slot.entry.mode_type); }
};

struct Rename {
    Place from, to;
    bool exchange = false;
    bool no_replace = false;
    InodeUse whiteout;  // for the old name; or none

    [[nodiscard]] bool changes_parent() const { return from.directory.get() != to.directory.get(); }
    // A directory gets another parent: only then can a loop arise.
    [[nodiscard]] bool moves_directory() const
    {
        return changes_parent() && (from.is_directory() || (exchange && to.is_directory()));
    }
    // Two names of one file: POSIX asks for nothing to happen.
    [[nodiscard]] bool same_inode() const { return to.slot.found && from.inode.get() == to.inode.get(); }
};

enum class RenameOutcome : uint8_t { kDone, kReplacedLast, kChanged };

Status resolve_place(Names& names, Place& place)
{
    place.inode = InodeUse();
    Result<NamedInode> named = resolve_name(names, place.directory->number, place.name);
    place.slot = {};
    if (named.err() == Err::kNotFound)
        return {};
    CW_TRY(named.status());
    place.slot.found = true;
    place.slot.entry = std::move(named->entry);
    place.inode = std::move(named->inode);
    return {};
}

// The rules that need only the two entries.
Status check_entries(Store& store, const Rename& rename)
{
    if (!rename.from.slot.found || (rename.exchange && !rename.to.slot.found))
        return Err::kNotFound;
    if (rename.exchange || !rename.to.slot.found)
        return {};
    if (rename.no_replace)
        return Err::kExists;
    if (rename.same_inode())
        return {};
    if (rename.from.is_directory() && !rename.to.is_directory())
        return Err::kNotDirectory;
    if (!rename.from.is_directory() && rename.to.is_directory())
        return Err::kIsDirectory;
    return rename.to.is_directory() ? expect_empty(store, rename.to.inode->number) : Status();
}

Result<InodeNumber> stored_parent(Store& store, InodeNumber directory)
{
    ItemBytes payload;
    CW_TRY(store.items.get(inode_key(directory), payload));
    CW_ASSIGN(const InodeAttributes attributes, decode_inode(payload));
    if (!attributes.is_directory())
        return Err::kCorrupt;
    return InodeNumber{attributes.parent};
}

// kInvalid when `directory` is `ancestor` or below it. Reads items, not inodes: their locks come later. A
// damaged chain may be a loop, which a second walker at half the speed would meet.
Status expect_outside(Store& store, InodeNumber directory, InodeNumber ancestor)
{
    InodeNumber slow = directory;
    for (uint64_t step = 1; directory.value != kRootInode; ++step) {
        if (directory == ancestor)
            return Err::kInvalid;
        CW_ASSIGN(directory, stored_parent(store, directory));
        if (step % 2 == 0) {
            CW_ASSIGN(slow, stored_parent(store, slow));
            if (slow == directory && directory.value != kRootInode)
                return Err::kCorrupt;
        }
    }
    return {};
}

// No directory may come to lie below itself. Final only under the rename mutex.
Status check_ancestors(Store& store, const Rename& rename)
{
    if (!rename.moves_directory())
        return {};
    if (rename.from.is_directory())
        CW_TRY(expect_outside(store, rename.to.directory->number, rename.from.inode->number));
    if (rename.exchange && rename.to.is_directory())
        CW_TRY(expect_outside(store, rename.from.directory->number, rename.to.inode->number));
    return {};
}

// Whether the place still means what was resolved; takes the entry as it is now. Requires the locks.
Result<bool> still_means(Store& store, Place& place)
{
    place.directory->mutex.assert_held();
    if (place.directory->removed || place.directory->attributes.link_count == 0)
        return Err::kNotFound;
    CW_ASSIGN(place.slot, find_name(store, place.directory->number, place.name));
    if (!place.slot.found || !place.inode)
        return !place.slot.found && !place.inode;
    place.inode->mutex.assert_held();
    return !place.inode->removed && place.slot.entry.inode == place.inode->number;
}

// By the flags of the inodes. Requires the locks.
Status check_flags(const Place& place)
{
    place.directory->mutex.assert_held();
    if (place.directory->attributes.immutable())
        return Err::kNotPermitted;
    if (!place.slot.found)
        return {};
    place.inode->mutex.assert_held();
    const bool goes = !place.directory->attributes.fixed() && !place.inode->attributes.fixed();
    return goes ? Err::kOk : Err::kNotPermitted;
}

// Lets the name at `place` mean `inode`, which had the name `old`.
void point(Operation& op, const Place& place, uint64_t cursor, const Inode& inode, const Dirent& old)
{
    const std::string name(place.name);
    op.put(dirent_key(place.directory->number, cursor),
           encode_dirent({cursor, inode.number, old.link_sequence, old.mode_type, name}));
    op.put(link_key(inode.number, old.link_sequence), encode_link({place.directory->number, cursor, name}));
}

// A directory leaves `from` for `to`.
void move_parent(Inode& directory, Inode& from, Inode& to)
{
    directory.mutex.assert_held();
    from.mutex.assert_held();
    to.mutex.assert_held();
    drop_subdirectory(from);
    ++to.attributes.link_count;
    directory.attributes.parent = to.number.value;
}

// In the entry of what has left.
void put_whiteout(Operation& op, const Place& from, Inode& whiteout)
{
    from.directory->mutex.assert_held();
    whiteout.mutex.assert_held();
    inherit_group(from.directory->attributes, whiteout.attributes);
    put_name(op, *from.directory, from.slot.entry.cursor, from.name, whiteout);
    store_inode(op, whiteout);
}

// Requires the locks. The new name stands before the old one goes, so that a lookup finds one of them.
Result<RenameOutcome> move_name(Operation& op, Rename& rename)
{
    Place& from = rename.from;
    Place& to = rename.to;
    from.directory->mutex.assert_held();
    from.inode->mutex.assert_held();
    to.directory->mutex.assert_held();
    const uint64_t cursor = to.slot.found ? to.slot.entry.cursor : to.slot.free_cursor;
    if (cursor == 0)
        return Err::kNoSpace;
    if (from.is_directory() && to.directory->attributes.link_count == UINT32_MAX)
        return Err::kTooManyLinks;
    const timespec now = current_time();
    point(op, to, cursor, *from.inode, from.slot.entry);
    if (rename.whiteout) {
        put_whiteout(op, from, *rename.whiteout);
    } else {
        op.erase(dirent_key(from.directory->number, from.slot.entry.cursor));
        remove_name_weight(*from.directory, from.name);
    }
    if (from.is_directory() && rename.changes_parent())
        move_parent(*from.inode, *from.directory, *to.directory);
    bool last = false;
    if (to.slot.found) {
        to.inode->mutex.assert_held();
        if (to.is_directory())
            drop_subdirectory(*to.directory);
        last = drop_link(op, *to.inode, to.slot.entry.link_sequence, now);
    } else {
        add_name_weight(*to.directory, to.name);
    }
    from.inode->attributes.changed = now;
    store_inode(op, *from.inode);
    for (Inode* directory : {from.directory.get(), to.directory.get()}) {
        directory->mutex.assert_held();
        touch_directory(*directory, now);
        store_inode(op, *directory);
    }
    return last ? RenameOutcome::kReplacedLast : RenameOutcome::kDone;
}

// Requires the locks.
Result<RenameOutcome> exchange_names(Operation& op, Rename& rename)
{
    Place& from = rename.from;
    Place& to = rename.to;
    const timespec now = current_time();
    point(op, to, to.slot.entry.cursor, *from.inode, from.slot.entry);
    point(op, from, from.slot.entry.cursor, *to.inode, to.slot.entry);
    if (rename.changes_parent()) {
        if (from.is_directory())
            move_parent(*from.inode, *from.directory, *to.directory);
        if (to.is_directory())
            move_parent(*to.inode, *to.directory, *from.directory);
    }
    for (Place* place : {&from, &to}) {
        place->inode->mutex.assert_held();
        place->directory->mutex.assert_held();
        place->inode->attributes.changed = now;
        touch_directory(*place->directory, now);
    }
    for (Place* place : {&from, &to}) {
        store_inode(op, *place->inode);
        store_inode(op, *place->directory);
    }
    return RenameOutcome::kDone;
}

// One attempt with the places as resolved, inside the gate. Who their ancestors are was looked up before: a
// walk as long as the tree is deep does not belong into the gate. It counts if no directory moved since.
Result<RenameOutcome> carry_out(Names& names, Operation& op, Rename& rename, uint64_t moves)
{
    std::optional<MutexLock> one_at_a_time;
    if (rename.moves_directory()) {
        one_at_a_time.emplace(names.rename_mutex);
        if (names.directory_moves != moves)
            return RenameOutcome::kChanged;
    }
    const InodeLocks locks({rename.from.directory.get(), rename.to.directory.get(), rename.from.inode.get(),
                            rename.to.inode.get(), rename.whiteout.get()});
    CW_ASSIGN(const bool from_same, still_means(names.store, rename.from));
    CW_ASSIGN(const bool to_same, still_means(names.store, rename.to));
    if (!from_same || !to_same)
        return RenameOutcome::kChanged;
    CW_TRY(check_entries(names.store, rename));
    CW_TRY(check_flags(rename.from));
    CW_TRY(check_flags(rename.to));
    Result<RenameOutcome> outcome = rename.exchange ? exchange_names(op, rename) : move_name(op, rename);
    if (rename.moves_directory())
        ++names.directory_moves;
    return outcome;
}

Status check_request(std::string_view name, std::string_view new_name, uint32_t flags)
{
    if ((flags & ~uint32_t{RENAME_NOREPLACE | RENAME_WHITEOUT}) != 0 && flags != RENAME_EXCHANGE)
        return Err::kInvalid;
    CW_TRY(check_name(name));
    CW_TRY(check_name(new_name));
    return is_dot_name(name) || is_dot_name(new_name) ? Err::kBusy : Err::kOk;
}

// One attempt, with an operation of its own.
Result<RenameOutcome> try_rename(Names& names, Rename& rename, uint64_t moves, bool leaves_whiteout,
                                 const Caller& caller)
{
    Operation op(names.store);
    CW_TRY(op.begin(Operation::Kind::kGrow, leaves_whiteout ? 13 : 10));
    if (leaves_whiteout) {
        CW_ASSIGN(rename.whiteout, begin_inode(names, S_IFCHR, 0, caller));
    }
    Result<RenameOutcome> outcome = carry_out(names, op, rename, moves);
    if (leaves_whiteout && outcome.ok() && *outcome != RenameOutcome::kChanged) {
        names.inode_count.fetch_add(1, std::memory_order_relaxed);
    } else if (leaves_whiteout) {
        MutexLock lock(rename.whiteout->mutex);
        rename.whiteout->removed = true;
    }
    op.end();
    rename.whiteout = InodeUse();
    return outcome;
}

}  // namespace

Status Names::rename(InodeNumber parent, std::string_view name, InodeNumber new_parent,
                     std::string_view new_name, uint32_t flags, const Caller& caller)
{
    CW_TRY(check_request(name, new_name, flags));
    Rename rename;
    rename.from.name = name;
    rename.to.name = new_name;
    rename.exchange = flags == RENAME_EXCHANGE;
    rename.no_replace = (flags & RENAME_NOREPLACE) != 0;
    const bool leaves_whiteout = (flags & RENAME_WHITEOUT) != 0;
    CW_ASSIGN(rename.from.directory, use_directory(*this, parent));
    CW_ASSIGN(rename.to.directory, use_directory(*this, new_parent));
    while (true) {
        // First without locks, so that the nodes which the change will need are in memory.
        CW_TRY(resolve_place(*this, rename.from));
        CW_TRY(resolve_place(*this, rename.to));
        CW_TRY(check_entries(store, rename));
        const uint64_t moves = directory_moves;
        // Other renames may twist what this sees.
        const Status outside = check_ancestors(store, rename);
        if (!outside.ok() && directory_moves != moves)
            continue;
        CW_TRY(outside);
        if (rename.same_inode())
            return {};
        CW_ASSIGN(const RenameOutcome outcome, try_rename(*this, rename, moves, leaves_whiteout, caller));
        if (outcome == RenameOutcome::kReplacedLast)
            remove_if_forgotten(*this, rename.to.inode->number);
        if (outcome != RenameOutcome::kChanged)
            return {};
    }
}

}  // namespace cowraid
