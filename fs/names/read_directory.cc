// SPDX-License-Identifier: MIT
// Listing a directory. An entry's cursor is its key, so that a position survives whatever happens to other
// entries. Entries are gathered in batches; no lock and no view is held while the sink works.
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "format/items.h"
#include "fs/names/inode_use.h"
#include "fs/names/names.h"

namespace cowraid {

namespace {

// Small at first, because a listing with attributes reads an inode per entry and a reply may hold few.
constexpr size_t kFirstBatch = 32;
constexpr size_t kLastBatch = 512;

// Entries with a cursor >= `from`. An error ends the batch; what was gathered before it stands.
Status gather(Store& store, InodeNumber directory, uint64_t from, size_t entry_count_max,
              std::vector<Dirent>& entries)
{
    entries.clear();
    ItemScan scan(store.items, store.items.view(), dirent_key(directory, from),
                  dirent_key(directory, kMaxCursor));
    while (entries.size() < entry_count_max) {
        const Status status = scan.next();
        if (status.err() == Err::kNotFound)
            return {};
        CW_TRY(status);
        CW_ASSIGN(Dirent entry, decode_dirent(scan.key().offset, scan.value()));
        entries.push_back(std::move(entry));
    }
    return {};
}

class Listing {
public:
    Listing(Names& names, InodeNumber directory, const Names::ReadDirectory& how, DirectorySink& sink)
        : names_(names), directory_(directory), how_(how), sink_(sink)
    {
    }

    [[nodiscard]] bool full() const { return full_; }
    [[nodiscard]] bool delivered() const { return delivered_; }

    // "." and "..": without a lookup reference, as the contract says.
    void deliver_dots(const InodeUse& directory, uint64_t cursor);
    void deliver(const Dirent& entry);

private:
    void give(std::string_view name, InodeNumber inode, uint32_t mode_type, uint64_t next_cursor,
              const Attributes* attributes)
    {
        full_ = !sink_.entry(name, inode, mode_type, next_cursor, attributes);
        delivered_ = delivered_ || !full_;
    }
    void give_dot(std::string_view name, InodeNumber inode, uint64_t next_cursor);
    // An entry without its inode is damage; one that went since its batch was gathered is nothing.
    bool still_there(const Dirent& entry)
    {
        const Result<DirentSlot> slot = find_name(names_.store, directory_, entry.name);
        return !slot.ok() || (slot->found && slot->entry.inode == entry.inode);
    }

    Names& names_;
    const InodeNumber directory_;
    const Names::ReadDirectory& how_;
    DirectorySink& sink_;
    bool full_ = false;
    bool delivered_ = false;
};

void Listing::give_dot(std::string_view name, InodeNumber inode, uint64_t next_cursor)
{
    Result<Attributes> attributes = Err::kNotFound;
    if (how_.with_attributes)
        attributes = names_.get_attributes(inode);
    give(name, inode, S_IFDIR, next_cursor, attributes.ok() ? &*attributes : nullptr);
}

void Listing::deliver_dots(const InodeUse& directory, uint64_t cursor)
{
    if (cursor == 0)
        give_dot(".", directory_, 1);
    if (cursor > 1 || full_)
        return;
    InodeNumber parent = directory_;
    if (directory_.value != kRootInode) {
        MutexLock lock(directory->mutex);
        parent.value = directory->attributes.parent;
    }
    give_dot("..", parent, 2);
}

void Listing::deliver(const Dirent& entry)
{
    const uint64_t next_cursor = entry.cursor + 1;
    if (!how_.with_attributes) {
        give(entry.name, entry.inode, entry.mode_type, next_cursor, nullptr);
        return;
    }
    Result<InodeUse> inode = use_entry(names_, directory_, entry);
    if (inode.err() == Err::kNotFound && !still_there(entry))
        return;
    if (!inode.ok()) {
        // One inode that cannot be read does not hide the rest of the directory.
        give(entry.name, entry.inode, entry.mode_type, next_cursor, nullptr);
        return;
    }
    LookupReference reference(names_, *inode);
    Attributes attributes;
    {
        MutexLock lock((*inode)->mutex);
        if ((*inode)->removed || (*inode)->attributes.link_count == 0)
            return;
        attributes = attributes_of(**inode);
    }
    give(entry.name, entry.inode, entry.mode_type, next_cursor, &attributes);
    if (!full_)
        reference.keep();
}

}  // namespace

Status Names::read_directory(InodeNumber directory, uint64_t cursor, const Names::ReadDirectory& how,
                             DirectorySink& sink)
{
    CW_ASSIGN(const InodeUse use, use_directory(*this, directory));
    Listing listing(*this, directory, how, sink);
    listing.deliver_dots(use, cursor);
    uint64_t from = std::max(cursor, kMinCursor);
    std::vector<Dirent> entries;
    for (size_t batch = kFirstBatch; !listing.full() && from <= kMaxCursor;
         batch = std::min(batch * 2, kLastBatch)) {
        const Status status = gather(store, directory, from, batch, entries);
        for (const Dirent& entry : entries) {
            listing.deliver(entry);
            if (listing.full())
                return {};
            from = entry.cursor + 1;
        }
        // What was delivered counts; the next call starts at the entry that failed.
        if (!status.ok())
            return listing.delivered() ? Status() : status;
        if (entries.size() < batch)
            return {};
    }
    return {};
}

}  // namespace cowraid
