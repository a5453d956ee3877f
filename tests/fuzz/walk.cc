// SPDX-License-Identifier: MIT
#include "tests/fuzz/walk.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/checksum.h"
#include "format/items.h"

namespace cowraid::test {

namespace {

constexpr size_t kEntriesMax = 5000;
constexpr size_t kSeenMax = 20000;
// A file that claims more is read at its start and at its end.
constexpr uint64_t kReadBytesMax = 16 * kMiB;
constexpr size_t kPieceBytes = kMiB;

struct Entry {
    std::string name;
    InodeNumber inode;
    uint32_t mode_type;
};

class Entries final : public DirectorySink {
public:
    bool entry(std::string_view name, InodeNumber inode, uint32_t mode_type, uint64_t next_cursor,
               const Attributes* attributes) override
    {
        if (list.size() >= kEntriesMax)
            return false;
        if (attributes != nullptr && name != "." && name != "..")
            references.push_back(inode);
        backwards = backwards || next_cursor <= cursor;
        cursor = next_cursor;
        list.push_back({std::string(name), inode, mode_type});
        return true;
    }

    std::vector<Entry> list;
    std::vector<InodeNumber> references;
    uint64_t cursor = 0;
    bool backwards = false;
};

class Walker {
public:
    explicit Walker(Filesystem& fs) : fs_(fs) { }

    void directory(InodeNumber inode, const std::string& path);
    WalkResult result;

private:
    void look_at(const Entry& entry, const std::string& path, InodeNumber parent);
    void attributes(const Attributes& attributes, Seen& seen);
    void read_range(InodeNumber inode, uint64_t from, uint64_t to, Seen& seen);
    void content(const Attributes& attributes, Seen& seen);
    void extended(InodeNumber inode, Seen& seen);
    void fail(Seen& seen, Err err)
    {
        if (seen.err == Err::kOk)
            ++result.errors;
        seen.err = seen.err == Err::kOk ? err : seen.err;
    }
    static void mix(uint64_t& hash, const void* data, size_t bytes) { hash = seeded_hash(data, bytes, hash); }
    template <typename T> static void mix_value(uint64_t& hash, const T& value)
    {
        mix(hash, &value, sizeof value);
    }

    Filesystem& fs_;
    std::set<uint64_t> entered_;
    std::vector<std::byte> buffer_{kPieceBytes};
};

void Walker::attributes(const Attributes& attributes, Seen& seen)
{
    seen.regular = S_ISREG(attributes.mode);
    mix_value(seen.content, attributes.mode & S_IFMT);
    mix_value(seen.content, attributes.size_bytes);
    mix_value(seen.attributes, attributes.mode);
    mix_value(seen.attributes, attributes.uid);
    mix_value(seen.attributes, attributes.gid);
    mix_value(seen.attributes, attributes.link_count);
    mix_value(seen.attributes, attributes.rdev);
    mix_value(seen.attributes, attributes.block_count_512);
    for (const timespec& time : {attributes.modified, attributes.changed, attributes.created}) {
        mix_value(seen.attributes, time.tv_sec);
        mix_value(seen.attributes, time.tv_nsec);
    }
}

void Walker::read_range(InodeNumber inode, uint64_t from, uint64_t to, Seen& seen)
{
    for (uint64_t offset = from; offset < to; offset += kPieceBytes) {
        const size_t bytes = std::min<uint64_t>(kPieceBytes, to - offset);
        const Result<size_t> read = fs_.files.read(inode, offset, std::span(buffer_).first(bytes));
        if (!read.ok())
            return fail(seen, read.err());
        mix(seen.content, buffer_.data(), *read);
        if (*read != bytes)
            return fail(seen, Err::kRange);
    }
}

void Walker::content(const Attributes& attributes, Seen& seen)
{
    if (S_ISREG(attributes.mode)) {
        const uint64_t size = attributes.size_bytes;
        read_range(attributes.inode, 0, std::min(size, kReadBytesMax), seen);
        if (size > kReadBytesMax)
            read_range(attributes.inode, std::max(size - kPieceBytes, kReadBytesMax), size, seen);
    } else if (S_ISLNK(attributes.mode)) {
        const Result<std::string> target = fs_.names.read_symlink(attributes.inode);
        if (!target.ok())
            return fail(seen, target.err());
        mix(seen.content, target->data(), target->size());
    }
}

void Walker::extended(InodeNumber inode, Seen& seen)
{
    const Result<std::string> names = fs_.names.list_xattrs(inode);
    if (!names.ok())
        return fail(seen, names.err());
    mix(seen.content, names->data(), names->size());
    for (size_t at = 0; at < names->size();) {
        const std::string name = names->c_str() + at;
        at += name.size() + 1;
        const Result<std::vector<std::byte>> value = fs_.names.get_xattr(inode, name);
        if (!value.ok())
            fail(seen, value.err());
        else
            mix(seen.content, value->data(), value->size());
    }
}

void Walker::look_at(const Entry& entry, const std::string& path, InodeNumber parent)
{
    Seen& seen = result.seen[path];
    const Result<Attributes> found = fs_.names.lookup(parent, entry.name);
    if (!found.ok())
        return fail(seen, found.err());
    mix_value(seen.content, entry.mode_type);
    attributes(*found, seen);
    content(*found, seen);
    extended(found->inode, seen);
    if (S_ISDIR(found->mode))
        directory(found->inode, path);
    fs_.names.forget(found->inode, 1);
}

void Walker::directory(InodeNumber inode, const std::string& path)
{
    Seen& seen = result.seen[path + "/"];
    if (!entered_.insert(inode.value).second)
        return fail(seen, Err::kExists);
    Entries entries;
    size_t before = SIZE_MAX;
    while (before != entries.list.size() && entries.list.size() < kEntriesMax) {
        before = entries.list.size();
        const Status status =
            fs_.names.read_directory(inode, entries.cursor, {.with_attributes = true}, entries);
        if (!status.ok()) {
            fail(seen, status.err());
            break;
        }
    }
    for (const InodeNumber reference : entries.references)
        fs_.names.forget(reference, 1);
    result.endless = result.endless || entries.backwards || entries.list.size() >= kEntriesMax ||
                     result.seen.size() >= kSeenMax;
    for (const Entry& entry : entries.list) {
        mix(seen.content, entry.name.data(), entry.name.size());
        if (entry.name != "." && entry.name != ".." && !result.endless)
            look_at(entry, path + "/" + entry.name, inode);
    }
}

}  // namespace

WalkResult walk(Filesystem& fs)
{
    Walker walker(fs);
    walker.directory({kRootInode}, "");
    Seen& root = walker.result.seen[""];
    const Result<Attributes> attributes = fs.names.get_attributes({kRootInode});
    root.err = attributes.status().err();
    walker.result.errors += attributes.ok() ? 0 : 1;
    const VolumeStatistics statistics = fs.statistics();
    root.attributes = statistics.block_bytes;
    walker.result.endless = walker.result.endless || statistics.free_blocks > statistics.total_blocks ||
                            statistics.available_blocks > statistics.free_blocks;
    fs.info();
    return walker.result;
}

}  // namespace cowraid::test
