// SPDX-License-Identifier: MIT
// What each operation on names promises, and every error it may answer.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdio.h>

#include <algorithm>

#include "tests/support/names_volume.h"

using namespace cowraid;

namespace {

Err make(Filesystem& fs, InodeNumber parent, std::string_view name, uint32_t mode = S_IFREG | 0644)
{
    return fs.names.make_node(parent, name, mode, 0, kRootCaller).err();
}

bool later(const timespec& a, const timespec& b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

// Puts all times of an inode far into the past, so that the next change shows.
void age(Filesystem& fs, InodeNumber inode)
{
    SetAttributes old;
    old.accessed = old.modified = old.changed = timespec{1000, 5};
    REQUIRE(fs.names.set_attributes(inode, old, kRootCaller).ok());
}

bool aged(const timespec& time)
{
    return time.tv_sec == 1000 && time.tv_nsec == 5;
}

std::vector<std::string> logical_of(const std::vector<ListedEntry>& entries)
{
    std::vector<std::string> names;
    for (const ListedEntry& entry : entries)
        names.push_back(entry.name);
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace

TEST_CASE("make_node: attributes of what was made, and of its directory")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    age(fs, kRoot);
    const Result<Attributes> file = fs.names.make_node(kRoot, "file", S_IFREG | 04751, 99, kUser);
    REQUIRE(file.ok());
    CHECK(file->mode == (S_IFREG | 04751));
    CHECK(file->uid == 1000);
    CHECK(file->gid == 100);
    CHECK(file->link_count == 1);
    CHECK(file->size_bytes == 0);
    CHECK(file->rdev == 0);
    CHECK(file->created.tv_sec > 1500000000);
    CHECK(file->inode.value > kRootInode);
    const Attributes root = attributes(fs, kRoot);
    CHECK(root.size_bytes == 8);
    CHECK(root.link_count == 2);
    CHECK_FALSE(aged(root.modified));
    CHECK_FALSE(aged(root.changed));
    CHECK(aged(root.accessed));

    const Result<Attributes> device = fs.names.make_node(kRoot, "null", S_IFCHR | 0666, 0x103, kRootCaller);
    REQUIRE(device.ok());
    CHECK(device->rdev == 0x103);
    const Result<Attributes> directory = fs.names.make_node(kRoot, "directory", S_IFDIR | 01777, 0, kUser);
    REQUIRE(directory.ok());
    CHECK(directory->mode == (S_IFDIR | 01755));  // with the umask of kUser
    CHECK(directory->link_count == 2);
    CHECK(directory->inode.value > device->inode.value);
    CHECK(attributes(fs, kRoot).link_count == 3);
    CHECK(fs.statistics().inode_count == 4);
    for (const uint32_t type : {S_IFIFO, S_IFSOCK, S_IFBLK})
        CHECK(make(fs, kRoot, "type" + std::to_string(type), type | 0600) == Err::kOk);
}

TEST_CASE("make_node: errors")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    CHECK(make(fs, kRoot, "file") == Err::kExists);
    CHECK(make(fs, kRoot, "file", S_IFDIR | 0755) == Err::kExists);
    CHECK(make(fs, kRoot, ".") == Err::kExists);
    CHECK(make(fs, kRoot, "..") == Err::kExists);
    CHECK(make(fs, kRoot, "") == Err::kInvalid);
    CHECK(make(fs, kRoot, "a/b") == Err::kInvalid);
    CHECK(make(fs, kRoot, std::string(256, 'n')) == Err::kNameTooLong);
    CHECK(make(fs, kRoot, std::string(255, 'n')) == Err::kOk);
    CHECK(make(fs, kRoot, "none", 0644) == Err::kInvalid);
    CHECK(make(fs, kRoot, "link", S_IFLNK | 0777) == Err::kInvalid);
    CHECK(make(fs, file, "child") == Err::kNotDirectory);
    CHECK(make(fs, {999999}, "child") == Err::kStale);
    CHECK(fs.names.make_symlink(kRoot, "link", "", kRootCaller).err() == Err::kInvalid);
    CHECK(fs.names.make_symlink(kRoot, "link", std::string(4096, 't'), kRootCaller).err() ==
          Err::kNameTooLong);
    // What failed left nothing behind.
    CHECK(fs.statistics().inode_count == 3);
    CHECK(list_all(fs, kRoot, 100).size() == 4);
    CHECK(attributes(fs, kRoot).size_bytes == 8 + 510);
}

TEST_CASE("set-gid directories hand down their group")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber shared = make_directory(fs, kRoot, "shared", 02775);
    SetAttributes group;
    group.gid = 77;
    REQUIRE(fs.names.set_attributes(shared, group, kRootCaller).ok());
    CHECK(attributes(fs, shared).mode == (S_IFDIR | 02775));
    const Result<Attributes> file = fs.names.make_node(shared, "file", S_IFREG | 0644, 0, kUser);
    const Result<Attributes> directory = fs.names.make_node(shared, "directory", S_IFDIR | 0755, 0, kUser);
    REQUIRE((file.ok() && directory.ok()));
    CHECK(file->gid == 77);
    CHECK(file->uid == 1000);
    CHECK(file->mode == (S_IFREG | 0644));
    CHECK(directory->gid == 77);
    CHECK(directory->mode == (S_IFDIR | 02755));
}

TEST_CASE("lookup: names, dots and errors")
{
    TestVolume volume(manual_options());
    const InodeNumber directory = make_directory(volume.fs(), kRoot, "directory");
    const InodeNumber inner = make_directory(volume.fs(), directory, "inner");
    const InodeNumber file = make_file(volume.fs(), inner, "file");
    for (int round = 0; round < 2; ++round) {
        Filesystem& fs = volume.fs();
        CHECK(fs.names.lookup(kRoot, "directory")->inode == directory);
        CHECK(fs.names.lookup(inner, "file")->inode == file);
        CHECK(fs.names.lookup(inner, ".")->inode == inner);
        CHECK(fs.names.lookup(inner, "..")->inode == directory);
        CHECK(fs.names.lookup(directory, "..")->inode == kRoot);
        CHECK(fs.names.lookup(kRoot, "..")->inode == kRoot);
        CHECK(lookup_error(fs, kRoot, "missing") == Err::kNotFound);
        CHECK(lookup_error(fs, kRoot, "") == Err::kInvalid);
        CHECK(lookup_error(fs, kRoot, std::string(256, 'n')) == Err::kNameTooLong);
        CHECK(lookup_error(fs, file, "x") == Err::kNotDirectory);
        CHECK(lookup_error(fs, file, "..") == Err::kNotDirectory);
        CHECK(lookup_error(fs, {kMaxInode}, "x") == Err::kStale);
        CHECK(lookup_error(fs, {0}, "x") == Err::kStale);
        volume.reopen();
    }
}

TEST_CASE("symbolic links keep their target")
{
    TestVolume volume(manual_options());
    const std::string targets[] = {"t", "../somewhere/else", std::string(4095, 'x'), "\xc3\xa4 b"};
    std::vector<InodeNumber> links;
    for (const std::string& target : targets) {
        const auto made = volume.fs().names.make_symlink(kRoot, std::to_string(links.size()), target, kUser);
        REQUIRE(made.ok());
        CHECK(made->mode == (S_IFLNK | 0777));
        CHECK(made->size_bytes == target.size());
        CHECK(made->uid == 1000);
        links.push_back(made->inode);
    }
    for (int round = 0; round < 2; ++round) {
        for (size_t i = 0; i < links.size(); ++i)
            CHECK(*volume.fs().names.read_symlink(links[i]) == targets[i]);
        CHECK(volume.fs().names.read_symlink(kRoot).err() == Err::kInvalid);
        volume.reopen();
    }
}

TEST_CASE("link: counts, times and errors")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    const InodeNumber directory = make_directory(fs, kRoot, "directory");
    age(fs, file);
    age(fs, directory);
    const Result<Attributes> linked = fs.names.link(file, directory, "second");
    REQUIRE(linked.ok());
    CHECK(linked->inode == file);
    CHECK(linked->link_count == 2);
    CHECK_FALSE(aged(linked->changed));
    CHECK(aged(linked->modified));
    CHECK_FALSE(aged(attributes(fs, directory).modified));
    CHECK(fs.names.lookup(directory, "second")->inode == file);

    CHECK(fs.names.link(file, directory, "second").err() == Err::kExists);
    CHECK(fs.names.link(file, directory, ".").err() == Err::kExists);
    CHECK(fs.names.link(directory, kRoot, "hard").err() == Err::kNotPermitted);
    CHECK(fs.names.link(file, file, "name").err() == Err::kNotDirectory);
    CHECK(fs.names.link({123456}, directory, "name").err() == Err::kStale);
    CHECK(fs.names.link(file, {123456}, "name").err() == Err::kStale);
    CHECK(fs.names.link(file, directory, std::string(256, 'n')).err() == Err::kNameTooLong);
    CHECK(attributes(fs, file).link_count == 2);

    REQUIRE(fs.names.unlink(kRoot, "file").ok());
    REQUIRE(fs.names.unlink(directory, "second").ok());
    CHECK(attributes(fs, file).link_count == 0);
    CHECK(fs.names.link(file, directory, "again").err() == Err::kNotFound);
}

TEST_CASE("link: not more than kMaxLinks names")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "0");
    for (uint32_t i = 1; i < kMaxLinks; ++i)
        REQUIRE(fs.names.link(file, kRoot, std::to_string(i)).ok());
    CHECK(fs.names.link(file, kRoot, "one more").err() == Err::kTooManyLinks);
    CHECK(attributes(fs, file).link_count == kMaxLinks);
    REQUIRE(fs.names.unlink(kRoot, "17").ok());
    CHECK(fs.names.link(file, kRoot, "one more").ok());
    volume.reopen();
    CHECK(list_all(volume.fs(), kRoot, 1000).size() == kMaxLinks + 2);
}

TEST_CASE("unlink and rmdir: effects and errors")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    const InodeNumber directory = make_directory(fs, kRoot, "directory");
    make_file(fs, directory, "child");
    REQUIRE(fs.names.link(file, directory, "other").ok());

    CHECK(fs.names.unlink(kRoot, "missing").err() == Err::kNotFound);
    CHECK(fs.names.unlink(kRoot, "directory").err() == Err::kIsDirectory);
    CHECK(fs.names.unlink(kRoot, ".").err() == Err::kIsDirectory);
    CHECK(fs.names.unlink(file, "x").err() == Err::kNotDirectory);
    CHECK(fs.names.unlink(kRoot, std::string(256, 'n')).err() == Err::kNameTooLong);
    CHECK(fs.names.rmdir(kRoot, "file").err() == Err::kNotDirectory);
    CHECK(fs.names.rmdir(kRoot, "missing").err() == Err::kNotFound);
    CHECK(fs.names.rmdir(kRoot, "directory").err() == Err::kNotEmpty);
    CHECK(fs.names.rmdir(kRoot, ".").err() == Err::kInvalid);
    CHECK(fs.names.rmdir(directory, "..").err() == Err::kNotEmpty);

    age(fs, kRoot);
    age(fs, file);
    REQUIRE(fs.names.unlink(kRoot, "file").ok());
    CHECK(attributes(fs, file).link_count == 1);
    CHECK_FALSE(aged(attributes(fs, file).changed));
    CHECK_FALSE(aged(attributes(fs, kRoot).modified));
    CHECK(lookup_error(fs, kRoot, "file") == Err::kNotFound);
    REQUIRE(fs.names.unlink(directory, "child").ok());
    REQUIRE(fs.names.unlink(directory, "other").ok());
    CHECK(attributes(fs, directory).size_bytes == 0);
    REQUIRE(fs.names.rmdir(kRoot, "directory").ok());
    CHECK(attributes(fs, kRoot).link_count == 2);
    CHECK(attributes(fs, kRoot).size_bytes == 0);
    CHECK(list_all(fs, kRoot, 10).size() == 2);
}

TEST_CASE("a removed directory that is still open takes nothing new")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber directory = make_directory(fs, kRoot, "directory");
    const InodeNumber file = make_file(fs, kRoot, "file");
    REQUIRE(fs.names.rmdir(kRoot, "directory").ok());
    CHECK(attributes(fs, directory).link_count == 0);
    CHECK(make(fs, directory, "x") == Err::kNotFound);
    CHECK(fs.names.link(file, directory, "x").err() == Err::kNotFound);
    CHECK(fs.names.rename(kRoot, "file", directory, "x", 0).err() == Err::kNotFound);
    CHECK(lookup_error(fs, directory, "x") == Err::kNotFound);
    ListSink sink;
    CHECK(fs.names.read_directory(directory, 0, {}, sink).err() == Err::kNotFound);
    fs.names.forget(directory, 1);
    REQUIRE(fs.step(true).ok());
    CHECK(fs.names.get_attributes(directory).err() == Err::kStale);
}

TEST_CASE("an unlinked inode lives until the last reference goes")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    REQUIRE(fs.names.set_xattr(file, "user.a", bytes_of("value"), 0).ok());
    REQUIRE(fs.names.lookup(kRoot, "file").ok());
    REQUIRE(fs.names.unlink(kRoot, "file").ok());
    fs.names.forget(file, 1);
    REQUIRE(fs.step(true).ok());
    REQUIRE(fs.step(true).ok());
    CHECK(attributes(fs, file).link_count == 0);
    CHECK(text_of(*fs.names.get_xattr(file, "user.a")) == "value");
    CHECK(fs.statistics().inode_count == 2);
    fs.names.forget(file, 1);
    REQUIRE(fs.step(true).ok());
    CHECK(fs.names.get_attributes(file).err() == Err::kStale);
    CHECK(fs.statistics().inode_count == 1);
    // Numbers are never used again.
    CHECK(make_file(fs, kRoot, "file").value > file.value);
}

TEST_CASE("rename: over nothing, over files, over directories")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber a = make_directory(fs, kRoot, "a");
    const InodeNumber b = make_directory(fs, kRoot, "b");
    const InodeNumber moved = make_directory(fs, a, "moved");
    const InodeNumber file = make_file(fs, a, "file");
    const InodeNumber victim = make_file(fs, b, "victim");
    const InodeNumber empty = make_directory(fs, b, "empty");

    for (const InodeNumber inode : {a, b, file, victim, moved})
        age(fs, inode);
    REQUIRE(fs.names.rename(a, "file", b, "victim", 0).ok());
    CHECK(lookup_error(fs, a, "file") == Err::kNotFound);
    CHECK(fs.names.lookup(b, "victim")->inode == file);
    CHECK(attributes(fs, victim).link_count == 0);
    CHECK_FALSE(aged(attributes(fs, victim).changed));
    CHECK_FALSE(aged(attributes(fs, file).changed));
    CHECK(aged(attributes(fs, file).modified));
    CHECK_FALSE(aged(attributes(fs, a).modified));
    CHECK_FALSE(aged(attributes(fs, b).modified));

    REQUIRE(fs.names.rename(a, "moved", b, "empty", 0).ok());
    CHECK(fs.names.lookup(moved, "..")->inode == b);
    CHECK(attributes(fs, a).link_count == 2);
    CHECK(attributes(fs, b).link_count == 3);
    CHECK(attributes(fs, empty).link_count == 0);
    CHECK(attributes(fs, a).size_bytes == 0);
    CHECK(attributes(fs, b).size_bytes == 2 * (6 + 5));

    REQUIRE(fs.names.rename(b, "empty", kRoot, "longer name", 0).ok());
    CHECK(fs.names.lookup(moved, "..")->inode == kRoot);
    CHECK(attributes(fs, kRoot).link_count == 5);
    REQUIRE(fs.names.rename(kRoot, "longer name", kRoot, "short", 0).ok());
    CHECK(attributes(fs, kRoot).size_bytes == 2 * (1 + 1 + 5));
    volume.reopen();
    CHECK(volume.fs().names.lookup(kRoot, "short")->inode == moved);
    CHECK(volume.fs().names.lookup(moved, "..")->inode == kRoot);
}

TEST_CASE("rename: errors")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber a = make_directory(fs, kRoot, "a");
    const InodeNumber inner = make_directory(fs, a, "inner");
    make_directory(fs, kRoot, "empty");
    make_file(fs, kRoot, "file");
    make_file(fs, kRoot, "other");
    struct Case {
        InodeNumber from;
        const char* name;
        InodeNumber to;
        const char* new_name;
        uint32_t flags;
        Err expected;
    };
    const Case cases[] = {
        {kRoot, "missing", kRoot, "x", 0, Err::kNotFound},
        {kRoot, "missing", kRoot, "file", RENAME_EXCHANGE, Err::kNotFound},
        {kRoot, "file", kRoot, "missing", RENAME_EXCHANGE, Err::kNotFound},
        {kRoot, "file", kRoot, "other", RENAME_NOREPLACE, Err::kExists},
        {kRoot, "file", kRoot, "file", RENAME_NOREPLACE, Err::kExists},
        {kRoot, "file", kRoot, "file", 0, Err::kOk},
        {kRoot, "file", kRoot, "file", RENAME_EXCHANGE, Err::kOk},
        {kRoot, "file", kRoot, "a", 0, Err::kIsDirectory},
        {kRoot, "a", kRoot, "file", 0, Err::kNotDirectory},
        {kRoot, "empty", kRoot, "a", 0, Err::kNotEmpty},
        {a, "inner", kRoot, "a", 0, Err::kNotEmpty},
        {kRoot, "a", a, "x", 0, Err::kInvalid},
        {kRoot, "a", inner, "x", 0, Err::kInvalid},
        {kRoot, "a", inner, "x", RENAME_NOREPLACE, Err::kInvalid},
        {kRoot, "a", a, "inner", RENAME_EXCHANGE, Err::kInvalid},
        {a, "inner", kRoot, "a", RENAME_EXCHANGE, Err::kInvalid},
        {kRoot, "file", kRoot, "x", 8, Err::kInvalid},
        {kRoot, "file", kRoot, "other", RENAME_WHITEOUT | RENAME_EXCHANGE, Err::kInvalid},
        {kRoot, "file", kRoot, "other", RENAME_NOREPLACE | RENAME_EXCHANGE, Err::kInvalid},
        {kRoot, "a", kRoot, ".", 0, Err::kBusy},
        {a, "..", kRoot, "x", 0, Err::kBusy},
        {kRoot, "file", kRoot, "a/b", 0, Err::kInvalid},
        {kRoot, "file", {555555}, "x", 0, Err::kStale},
    };
    size_t case_count = 0;
    for (const Case& c : cases) {
        INFO(c.name, " to ", c.new_name, " flags ", c.flags);
        CHECK(fs.names.rename(c.from, c.name, c.to, c.new_name, c.flags).err() == c.expected);
        ++case_count;
    }
    CHECK(case_count == std::size(cases));
    CHECK(fs.names.rename(kRoot, "file", kRoot, std::string(256, 'n'), 0).err() == Err::kNameTooLong);
    CHECK(logical_of(list_all(fs, kRoot, 3)) ==
          std::vector<std::string>{".", "..", "a", "empty", "file", "other"});
    CHECK(attributes(fs, kRoot).link_count == 4);
}

TEST_CASE("rename: two names of one file stay as they are")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "one");
    REQUIRE(fs.names.link(file, kRoot, "two").ok());
    CHECK(fs.names.rename(kRoot, "one", kRoot, "two", 0).ok());
    CHECK(fs.names.rename(kRoot, "one", kRoot, "two", RENAME_EXCHANGE).ok());
    CHECK(fs.names.lookup(kRoot, "one")->inode == file);
    CHECK(fs.names.lookup(kRoot, "two")->inode == file);
    CHECK(attributes(fs, file).link_count == 2);
    // Each name still has its own link: both can go.
    CHECK(fs.names.unlink(kRoot, "one").ok());
    CHECK(fs.names.unlink(kRoot, "two").ok());
    CHECK(attributes(fs, file).link_count == 0);
}

TEST_CASE("rename: exchange of a file and a directory across parents")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber a = make_directory(fs, kRoot, "a");
    const InodeNumber b = make_directory(fs, kRoot, "b");
    const InodeNumber file = make_file(fs, a, "file");
    const InodeNumber directory = make_directory(fs, b, "directory");
    make_file(fs, directory, "child");
    REQUIRE(fs.names.rename(a, "file", b, "directory", RENAME_EXCHANGE).ok());
    CHECK(fs.names.lookup(a, "file")->inode == directory);
    CHECK(fs.names.lookup(b, "directory")->inode == file);
    CHECK(fs.names.lookup(directory, "..")->inode == a);
    CHECK(attributes(fs, a).link_count == 3);
    CHECK(attributes(fs, b).link_count == 2);
    CHECK(attributes(fs, a).size_bytes == 8);
    CHECK(attributes(fs, b).size_bytes == 18);
    for (const ListedEntry& entry : list_all(fs, a, 10))
        CHECK(entry.mode_type == S_IFDIR);
    // The names were linked to the right inodes.
    CHECK(fs.names.unlink(b, "directory").ok());
    CHECK(attributes(fs, file).link_count == 0);
    CHECK(fs.names.rename(a, "file", kRoot, "moved", 0).ok());
    CHECK(fs.names.lookup(directory, "..")->inode == kRoot);
}

TEST_CASE("a read-only filesystem reads and refuses changes")
{
    TestVolume volume(manual_options());
    const InodeNumber file = make_file(volume.fs(), kRoot, "file");
    REQUIRE(volume.fs().names.set_xattr(file, "user.a", bytes_of("v"), 0).ok());
    MountOptions options = manual_options();
    options.read_only = true;
    volume.reopen(options);
    Filesystem& fs = volume.fs();
    CHECK(fs.names.lookup(kRoot, "file")->inode == file);
    CHECK(text_of(*fs.names.get_xattr(file, "user.a")) == "v");
    CHECK(make(fs, kRoot, "new") == Err::kReadOnly);
    CHECK(make(fs, kRoot, "file") == Err::kExists);
    CHECK(fs.names.unlink(kRoot, "file").err() == Err::kReadOnly);
    CHECK(fs.names.unlink(kRoot, "missing").err() == Err::kNotFound);
    CHECK(fs.names.rename(kRoot, "file", kRoot, "x", 0).err() == Err::kReadOnly);
    CHECK(fs.names.link(file, kRoot, "x").err() == Err::kReadOnly);
    CHECK(fs.names.set_xattr(file, "user.a", bytes_of("w"), 0).err() == Err::kReadOnly);
    CHECK(fs.names.remove_xattr(file, "user.a").err() == Err::kReadOnly);
    SetAttributes change;
    change.mode = 0600;
    CHECK(fs.names.set_attributes(file, change, kRootCaller).err() == Err::kReadOnly);
    fs.names.note_access(file);
    CHECK_FALSE(later(attributes(fs, file).accessed, attributes(fs, file).created));
}
