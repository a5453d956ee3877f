// SPDX-License-Identifier: MIT
// What a damaged or hostile tree may say about names: an error or a repairable entry, never a crash, never
// an endless loop. Items are planted behind the back of the operations.
#include <doctest/doctest.h>

#include "fs/commit/mount.h"
#include "fs/filesystem.h"
#include "fs/make_volume.h"
#include "fs/names/dirent.h"
#include "fs/names/removal.h"
#include "fs/txn/operation.h"
#include "tests/support/names_volume.h"

using namespace cowraid;

namespace {

// A filesystem without its facade.
class BareVolume {
public:
    BareVolume()
    {
        std::vector<std::unique_ptr<BlockDevice>> devices;
        devices.push_back(view_of(member_));
        std::string why;
        CW_ASSERT(make_volume(devices, {}, why).ok());
        devices.clear();
        devices.push_back(view_of(member_));
        Result<Assembly> assembly = assemble(std::move(devices), why);
        CW_ASSERT(assembly.ok());
        Result<std::unique_ptr<Volume>> volume = Volume::open(assembly.take(), manual_options(), why);
        CW_ASSERT(volume.ok());
        const Result<RootContent> root = read_root(**volume, why);
        CW_ASSERT(root.ok());
        core_ = std::make_unique<Filesystem>(manual_options(), volume.take(), *root);
        CW_ASSERT(core_->committer.start_writing(why).ok());
    }

    Filesystem& core() { return *core_; }

    // Of an inode that is not in memory.
    InodeNumber make(InodeNumber parent, std::string_view name, uint32_t mode, std::string_view target = "")
    {
        const Result<Attributes> made = S_ISLNK(mode) ? core_->names.make_symlink(parent, name, target, {})
                                                      : core_->names.make_node(parent, name, mode, 0, {});
        CW_ASSERT(made.ok());
        core_->names.forget(made->inode, 1);
        return made->inode;
    }
    void plant(const Key& key, const ItemBytes& value)
    {
        Operation op(core_->store);
        CW_ASSERT(op.begin(Operation::Kind::kGrow, 1).ok());
        op.put(key, value);
    }
    void uproot(const Key& key)
    {
        Operation op(core_->store);
        CW_ASSERT(op.begin(Operation::Kind::kGrow, 1).ok());
        op.erase(key);
    }
    // Lets `change` work on an inode's stored attributes.
    template <typename Change> void change_inode(InodeNumber inode, Change&& change)
    {
        ItemBytes payload;
        CW_ASSERT(core_->store.items.get(inode_key(inode), payload).ok());
        Result<InodeAttributes> attributes = decode_inode(payload);
        CW_ASSERT(attributes.ok());
        change(*attributes);
        plant(inode_key(inode), encode_inode(*attributes));
    }
    uint64_t bucket(std::string_view name)
    {
        return name_bucket(core_->volume->identity().name_hash_seed, name);
    }
    // A second name for an inode that knows nothing of it.
    void plant_entry(InodeNumber directory, const std::string& name, InodeNumber inode, uint32_t type)
    {
        const uint64_t cursor = bucket(name);
        plant(dirent_key(directory, cursor), encode_dirent({cursor, inode, 0, type, name}));
    }

    Err lookup(InodeNumber parent, std::string_view name)
    {
        const Result<Attributes> found = core_->names.lookup(parent, name);
        if (found.ok())
            core_->names.forget(found->inode, 1);
        return found.err();
    }
    // Names behind the dots.
    std::vector<ListedEntry> list(InodeNumber directory, const Names::ReadDirectory& how)
    {
        ListSink sink;
        CW_ASSERT(core_->names.read_directory(directory, 2, how, sink).ok());
        for (const ListedEntry& entry : sink.entries)
            if (entry.has_attributes)
                core_->names.forget(entry.inode, 1);
        return sink.entries;
    }

private:
    SimDevice member_{"member", 256 * kMiB};
    std::unique_ptr<Filesystem> core_;
};

}  // namespace

TEST_CASE("damage: an entry without an inode")
{
    BareVolume volume;
    volume.plant_entry(kRoot, "lost", {5000}, S_IFREG);
    volume.make(kRoot, "file", S_IFREG | 0644);
    CHECK(volume.lookup(kRoot, "lost") == Err::kCorrupt);
    CHECK(volume.core().names.unlink(kRoot, "lost").err() == Err::kCorrupt);
    CHECK(volume.core().names.rename(kRoot, "lost", kRoot, "x", 0).err() == Err::kCorrupt);
    CHECK(volume.list(kRoot, {}).size() == 2);
    size_t with_attributes = 0;
    for (const ListedEntry& entry : volume.list(kRoot, {.with_attributes = true}))
        with_attributes += entry.has_attributes;
    CHECK(with_attributes == 1);
    CHECK(volume.list(kRoot, {.with_attributes = true}).size() == 2);
    CHECK(volume.lookup(kRoot, "file") == Err::kOk);
}

TEST_CASE("damage: an entry that contradicts its inode")
{
    BareVolume volume;
    const InodeNumber file = volume.make(kRoot, "file", S_IFREG | 0644);
    const InodeNumber directory = volume.make(kRoot, "directory", S_IFDIR | 0755);
    volume.plant_entry(kRoot, "liar", file, S_IFDIR);
    volume.plant_entry(directory, "self", directory, S_IFDIR);
    CHECK(volume.lookup(kRoot, "liar") == Err::kCorrupt);
    CHECK(volume.core().names.rmdir(kRoot, "liar").err() == Err::kCorrupt);
    CHECK(volume.lookup(directory, "self") == Err::kCorrupt);
    CHECK(volume.core().names.rmdir(directory, "self").err() == Err::kCorrupt);
    CHECK(volume.core().names.rename(directory, "self", kRoot, "x", 0).err() == Err::kCorrupt);
    CHECK(volume.list(directory, {.with_attributes = true}).size() == 1);
}

TEST_CASE("damage: a name of an inode that counts none")
{
    BareVolume volume;
    const InodeNumber file = volume.make(kRoot, "file", S_IFREG | 0644);
    volume.change_inode(file, [](InodeAttributes& attributes) { attributes.link_count = 0; });
    CHECK(volume.lookup(kRoot, "file") == Err::kCorrupt);
    CHECK(volume.core().names.link(file, kRoot, "second").err() == Err::kNotFound);
    CHECK(volume.core().names.unlink(kRoot, "file").ok());
    CHECK(volume.lookup(kRoot, "file") == Err::kNotFound);
}

TEST_CASE("damage: an inode that cannot be decoded")
{
    BareVolume volume;
    const InodeNumber file = volume.make(kRoot, "file", S_IFREG | 0644);
    volume.plant(inode_key(file), ItemBytes(159));
    CHECK(volume.lookup(kRoot, "file") == Err::kCorrupt);
    CHECK(volume.core().names.get_attributes(file).err() == Err::kCorrupt);
    CHECK(volume.list(kRoot, {}).size() == 1);
    const std::vector<ListedEntry> entries = volume.list(kRoot, {.with_attributes = true});
    REQUIRE(entries.size() == 1);
    CHECK_FALSE(entries[0].has_attributes);
}

TEST_CASE("damage: directories above each other")
{
    BareVolume volume;
    const InodeNumber a = volume.make(kRoot, "a", S_IFDIR | 0755);
    const InodeNumber b = volume.make(a, "b", S_IFDIR | 0755);
    const InodeNumber c = volume.make(b, "c", S_IFDIR | 0755);
    volume.make(kRoot, "moving", S_IFDIR | 0755);
    for (const InodeNumber parent : {a, b, c, InodeNumber{kMaxInode}, InodeNumber{77777}}) {
        volume.change_inode(a, [&](InodeAttributes& attributes) { attributes.parent = parent.value; });
        const Err err = volume.core().names.rename(kRoot, "moving", c, "x", 0).err();
        CHECK(err == (parent.value == kMaxInode || parent.value == 77777 ? Err::kNotFound : Err::kCorrupt));
        CHECK(volume.lookup(kRoot, "moving") == Err::kOk);
    }
    volume.change_inode(a, [](InodeAttributes& attributes) { attributes.parent = kRootInode; });
    CHECK(volume.core().names.rename(kRoot, "moving", c, "x", 0).ok());
}

TEST_CASE("damage: counts that are too small do not wrap")
{
    BareVolume volume;
    const InodeNumber directory = volume.make(kRoot, "directory", S_IFDIR | 0755);
    volume.make(directory, "inner", S_IFDIR | 0755);
    volume.make(directory, "file", S_IFREG | 0644);
    volume.change_inode(directory, [](InodeAttributes& attributes) {
        attributes.link_count = 1;
        attributes.size_bytes = 3;
    });
    CHECK(volume.core().names.rmdir(directory, "inner").ok());
    CHECK(volume.core().names.unlink(directory, "file").ok());
    CHECK(volume.core().names.get_attributes(directory)->size_bytes == 0);
    CHECK(volume.core().names.get_attributes(directory)->link_count == 1);
    CHECK(volume.core().names.rmdir(kRoot, "directory").ok());
    volume.core().names.inode_count = 1;
    for (const char* name : {"one", "two"}) {
        const InodeNumber file = volume.make(kRoot, name, S_IFREG | 0644);
        volume.core().names.inode_count = 1;
        CHECK(volume.core().names.unlink(kRoot, name).ok());
        remove_inode(volume.core().names, file).ignore();  // done already, unless somebody remembers it
        CHECK(volume.core().names.inode_count == 1);
    }
}

TEST_CASE("damage: entries, attributes and targets that cannot be decoded")
{
    BareVolume volume;
    const InodeNumber directory = volume.make(kRoot, "directory", S_IFDIR | 0755);
    volume.make(directory, "good", S_IFREG | 0644);
    const uint64_t bucket = volume.bucket("bad");
    volume.plant(dirent_key(directory, bucket), ItemBytes(7));
    CHECK(volume.lookup(directory, "bad") == Err::kCorrupt);
    CHECK(volume.lookup(directory, "good") == Err::kOk);
    // What stands before the damage is listed, then it shows.
    uint64_t cursor = 2;
    size_t entry_count = 0;
    Status status;
    for (int call = 0; call < 3 && status.ok(); ++call) {
        ListSink sink;
        status = volume.core().names.read_directory(directory, cursor, {}, sink);
        entry_count += sink.entries.size();
        cursor = sink.entries.empty() ? cursor : sink.entries.back().next_cursor;
    }
    CHECK(status.err() == Err::kCorrupt);
    CHECK(entry_count == (volume.bucket("good") < bucket ? 1 : 0));

    volume.plant(xattr_key(directory, volume.bucket("user.a")), ItemBytes(3));
    CHECK(volume.core().names.get_xattr(directory, "user.a").err() == Err::kCorrupt);
    CHECK(volume.core().names.list_xattrs(directory).err() == Err::kCorrupt);
    CHECK(volume.core().names.set_xattr(directory, "user.a", bytes_of("v"), 0).err() == Err::kCorrupt);
    CHECK(volume.core().names.set_xattr(directory, "user.b", bytes_of("v"), 0).ok());

    const InodeNumber link = volume.make(kRoot, "link", S_IFLNK | 0777, "target");
    for (const ItemBytes& bad : {ItemBytes(), ItemBytes(4096, std::byte{'x'}), ItemBytes(10)}) {
        volume.plant(symlink_key(link), bad);
        CHECK(volume.core().names.read_symlink(link).err() == Err::kCorrupt);
    }
    volume.uproot(symlink_key(link));
    CHECK(volume.core().names.read_symlink(link).err() == Err::kCorrupt);
}

TEST_CASE("inode numbers end cleanly, and the next one stays within what a mount accepts")
{
    BareVolume volume;
    volume.core().names.next_inode = kMaxInode - 1;
    CHECK(volume.make(kRoot, "last", S_IFREG | 0644).value == kMaxInode - 1);
    for (int i = 0; i < 3; ++i)
        CHECK(volume.core().names.make_node(kRoot, "more", S_IFREG | 0644, 0, {}).err() == Err::kNoSpace);
    CHECK(volume.core().names.next_inode == kMaxInode);
    CHECK(volume.lookup(kRoot, "more") == Err::kNotFound);
}

TEST_CASE("a full bucket of names is full")
{
    BareVolume volume;
    const InodeNumber file = volume.make(kRoot, "file", S_IFREG | 0644);
    const uint64_t bucket = volume.bucket("wanted");
    for (uint64_t i = 0; i < kBucketSlots; ++i) {
        const uint64_t cursor = bucket + i;
        volume.plant(dirent_key(kRoot, cursor),
                     encode_dirent({cursor, file, 100 + i, S_IFREG, "other" + std::to_string(i)}));
    }
    CHECK(volume.core().names.make_node(kRoot, "wanted", S_IFREG | 0644, 0, {}).err() == Err::kNoSpace);
    CHECK(volume.core().names.link(file, kRoot, "wanted").err() == Err::kNoSpace);
    CHECK(volume.core().names.rename(kRoot, "file", kRoot, "wanted", 0).err() == Err::kNoSpace);
    CHECK(volume.lookup(kRoot, "file") == Err::kOk);
    volume.uproot(dirent_key(kRoot, bucket + 200));
    CHECK(volume.core().names.rename(kRoot, "file", kRoot, "wanted", 0).ok());
    CHECK(volume.lookup(kRoot, "wanted") == Err::kOk);
    CHECK(volume.lookup(kRoot, "file") == Err::kNotFound);
    ItemBytes payload;
    REQUIRE(volume.core().store.items.get(dirent_key(kRoot, bucket + 200), payload).ok());
    CHECK(decode_dirent(bucket + 200, payload)->name == "wanted");
}
