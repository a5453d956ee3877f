// SPDX-License-Identifier: MIT
#include "fs/check/check_names.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/random.h"
#include "format/items.h"
#include "fs/files/inode.h"

namespace cowraid {

namespace {

// Walks a tree again, of which everything structural was reported the first time.
class NameSearch final : public TreeVisitor {
public:
    NameSearch(CheckContext& context, const TreeRoot& tree) : context_(context), tree_(tree) { }

    void node(const Node&) override { }
    void problem(const std::string&) override { }
    void item(const Key& key, std::span<const std::byte> payload) override;

private:
    void entry_item(InodeNumber directory, const Dirent& entry);
    void link_item(InodeNumber inode, uint64_t sequence, const InodeLink& link);
    void check_type(InodeNumber directory, const Dirent& entry);
    [[gnu::format(printf, 4, 5)]] void report(InodeNumber directory, std::string_view name,
                                              const char* format, ...);

    CheckContext& context_;
    const TreeRoot tree_;
};

void NameSearch::report(InodeNumber directory, std::string_view name, const char* format, ...)
{
    char what[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    context_.findings.add("directory", {}, "directory %llu, name \"%s\": %s", as_ull(directory.value),
                          std::string(name).c_str(), what);
}

void NameSearch::check_type(InodeNumber directory, const Dirent& entry)
{
    ItemBytes payload;
    const Status found = tree_lookup(context_.cache, tree_, inode_key(entry.inode), payload);
    if (found.err() == Err::kNotFound)
        report(directory, entry.name, "inode %llu is not there", as_ull(entry.inode.value));
    if (!found.ok())
        return;
    const Result<InodeAttributes> attributes = decode_inode(payload);
    if (attributes.ok() && (attributes->mode & S_IFMT) != entry.mode_type)
        report(directory, entry.name, "inode %llu is of another type than the entry says",
               as_ull(entry.inode.value));
}

void NameSearch::entry_item(InodeNumber directory, const Dirent& entry)
{
    check_type(directory, entry);
    ItemBytes payload;
    const Status found =
        tree_lookup(context_.cache, tree_, link_key(entry.inode, entry.link_sequence), payload);
    if (found.err() == Err::kNotFound)
        report(directory, entry.name, "inode %llu does not know of this name", as_ull(entry.inode.value));
    if (!found.ok())
        return;
    const Result<InodeLink> link = decode_link(payload);
    if (link.ok() && (link->parent != directory || link->cursor != entry.cursor || link->name != entry.name))
        report(directory, entry.name, "inode %llu knows the name as \"%s\" in directory %llu",
               as_ull(entry.inode.value), link->name.substr(0, 64).c_str(), as_ull(link->parent.value));
}

void NameSearch::link_item(InodeNumber inode, uint64_t sequence, const InodeLink& link)
{
    ItemBytes payload;
    const Status found = tree_lookup(context_.cache, tree_, dirent_key(link.parent, link.cursor), payload);
    if (found.err() == Err::kNotFound)
        report(link.parent, link.name, "inode %llu has it, the directory has not", as_ull(inode.value));
    if (!found.ok())
        return;
    const Result<Dirent> entry = decode_dirent(link.cursor, payload);
    if (entry.ok() && (entry->inode != inode || entry->link_sequence != sequence))
        report(link.parent, link.name, "inode %llu has it, but the directory's entry means inode %llu",
               as_ull(inode.value), as_ull(entry->inode.value));
}

void NameSearch::item(const Key& key, std::span<const std::byte> payload)
{
    if (key.type == static_cast<uint8_t>(ItemType::kDirent)) {
        if (const Result<Dirent> entry = decode_dirent(key.offset, payload); entry.ok())
            entry_item({key.object}, *entry);
    } else if (key.type == static_cast<uint8_t>(ItemType::kLink)) {
        if (const Result<InodeLink> link = decode_link(payload); link.ok())
            link_item({key.object}, key.offset, *link);
    }
}

}  // namespace

NameLedger::NameLedger() : seed_(random_u64()) { }

uint64_t NameLedger::hash(uint64_t directory, const Dirent& entry) const
{
    std::byte bytes[5 * sizeof(uint64_t) + kMaxNameBytes];
    const uint64_t fixed[] = {directory, entry.cursor, entry.inode.value, entry.link_sequence,
                              entry.mode_type};
    std::memcpy(bytes, fixed, sizeof fixed);
    std::memcpy(bytes + sizeof fixed, entry.name.data(), entry.name.size());
    return seeded_hash(bytes, sizeof fixed + entry.name.size(), seed_);
}

void NameLedger::add_entry(uint64_t directory, const Dirent& entry)
{
    ++entry_count_;
    sum_ += hash(directory, entry);
}

void NameLedger::add_link(uint64_t inode, uint64_t sequence, const InodeLink& link, uint32_t mode_type)
{
    ++link_count_;
    sum_ -= hash(link.parent.value, {link.cursor, {inode}, sequence, mode_type, link.name});
}

void find_name_damage(CheckContext& context, const TreeRoot& tree)
{
    NameSearch search(context, tree);
    check_tree(context.cache, tree, search).ignore();  // problems were reported by the first walk
}

void DirectoryGraph::add(uint64_t directory, uint64_t parent)
{
    // A tree whose keys do not rise was reported; searching needs them to.
    if (!numbers_.empty() && numbers_.back() >= directory)
        return;
    numbers_.push_back(directory);
    parents_.push_back(parent);
}

size_t DirectoryGraph::find(uint64_t directory) const
{
    const auto at = std::lower_bound(numbers_.begin(), numbers_.end(), directory);
    return at != numbers_.end() && *at == directory ? static_cast<size_t>(at - numbers_.begin())
                                                    : numbers_.size();
}

// Goes up until something is known, and marks the way.
DirectoryGraph::Mark DirectoryGraph::follow(size_t index)
{
    path_.clear();
    Mark end = Mark::kUnknown;
    while (end == Mark::kUnknown) {
        marks_[index] = Mark::kOnPath;
        path_.push_back(index);
        if (parents_[index] == kRootInode) {
            end = Mark::kReachesRoot;
            break;
        }
        index = find(parents_[index]);
        end = index == numbers_.size() || marks_[index] == Mark::kOnPath ? Mark::kLost : marks_[index];
    }
    for (const size_t step : path_)
        marks_[step] = end;
    return end;
}

void DirectoryGraph::check(CheckContext& context)
{
    marks_.assign(numbers_.size(), Mark::kUnknown);
    for (size_t index = 0; index < numbers_.size(); ++index) {
        const Mark mark = marks_[index] == Mark::kUnknown ? follow(index) : marks_[index];
        if (mark == Mark::kLost)
            context.findings.add("directory", {}, "directory %llu is not below the root directory",
                                 as_ull(numbers_[index]));
    }
}

void BucketCheck::end_bucket()
{
    incomplete_ |= std::any_of(names_.begin(), names_.end(), [](const Name& name) { return name.more; });
    names_.clear();
}

bool BucketCheck::take_incomplete()
{
    end_bucket();
    return std::exchange(incomplete_, false);
}

bool BucketCheck::accept(uint64_t object, uint64_t seed, uint64_t cursor, std::string_view name)
{
    return accept_part(object, seed, {.cursor = cursor, .name = std::string(name), .value = {}});
}

bool BucketCheck::accept_part(uint64_t object, uint64_t seed, const XattrPart& part)
{
    const uint64_t bucket = round_down(part.cursor, kBucketSlots);
    if (object != object_ || bucket != bucket_) {
        end_bucket();
        object_ = object;
        bucket_ = bucket;
    }
    auto at =
        std::find_if(names_.begin(), names_.end(), [&](const Name& name) { return name.text == part.name; });
    if (at == names_.end())
        at = names_.insert(at, {part.name, 0, false});
    const bool twice = part.number < at->part_count;
    incomplete_ |= part.number > at->part_count || (part.number > 0 && !at->more);
    at->part_count = part.number + 1;
    at->more = part.more;
    return !twice && name_bucket(seed, part.name) == bucket;
}

}  // namespace cowraid
