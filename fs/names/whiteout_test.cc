// SPDX-License-Identifier: MIT
// Whiteouts of renames, files without a name, and inodes that are looked up by their number.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdio.h>

#include "fs/names/removal.h"
#include "tests/support/names_volume.h"

using namespace cowraid;

namespace {

// Of what a lookup finds, whose reference is given back.
Attributes found(Filesystem& fs, InodeNumber directory, std::string_view name)
{
    const Result<Attributes> attributes = fs.names.lookup(directory, name);
    REQUIRE(attributes.ok());
    fs.names.forget(attributes->inode, 1);
    return *attributes;
}

void expect_whiteout(Filesystem& fs, InodeNumber directory, std::string_view name)
{
    const Attributes whiteout = found(fs, directory, name);
    CHECK(whiteout.mode == S_IFCHR);
    CHECK(whiteout.rdev == 0);
    CHECK(whiteout.link_count == 1);
    CHECK(whiteout.uid == kUser.uid);
    CHECK(whiteout.generation != 0);
}

uint64_t inode_count(Filesystem& fs)
{
    return fs.statistics().inode_count;
}

void fsync(Filesystem& fs)
{
    REQUIRE(fs.committer.fsync(kRoot, Committer::SyncWhat::kAll).ok());
}

}  // namespace

TEST_CASE("a rename leaves a whiteout, over nothing and over another file")
{
    TestVolume volume(manual_options());
    const InodeNumber other = make_directory(volume.fs(), kRoot, "other");
    for (const InodeNumber target : {kRoot, other}) {
        Filesystem& fs = volume.fs();
        const InodeNumber first = make_file(fs, kRoot, "first");
        const InodeNumber second = make_file(fs, kRoot, "second");
        const uint64_t count = inode_count(fs);
        const uint64_t root_bytes = attributes(fs, kRoot).size_bytes;
        REQUIRE(
            fs.names.rename(kRoot, "first", target, "new", RENAME_WHITEOUT | RENAME_NOREPLACE, kUser).ok());
        CHECK(found(fs, target, "new").inode == first);
        expect_whiteout(fs, kRoot, "first");
        CHECK(inode_count(fs) == count + 1);
        CHECK(attributes(fs, kRoot).size_bytes == root_bytes + (target == kRoot ? 6 : 0));
        CHECK(fs.names.rename(kRoot, "second", target, "new", RENAME_WHITEOUT | RENAME_NOREPLACE, kUser)
                  .err() == Err::kExists);
        CHECK(found(fs, kRoot, "second").inode == second);
        CHECK(inode_count(fs) == count + 1);
        REQUIRE(fs.names.rename(kRoot, "second", target, "new", RENAME_WHITEOUT, kUser).ok());
        CHECK(found(fs, target, "new").inode == second);
        expect_whiteout(fs, kRoot, "second");
        CHECK(attributes(fs, first).link_count == 0);
        volume.reopen();
        expect_whiteout(volume.fs(), kRoot, "first");
        expect_whiteout(volume.fs(), kRoot, "second");
        CHECK(found(volume.fs(), target, "new").inode == second);
        for (const char* name : {"first", "second"})
            REQUIRE(volume.fs().names.unlink(kRoot, name).ok());
        REQUIRE(volume.fs().names.unlink(target, "new").ok());
    }
}

TEST_CASE("a rename of a directory leaves a whiteout, too")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber other = make_directory(fs, kRoot, "other");
    const InodeNumber moved = make_directory(fs, kRoot, "moved");
    REQUIRE(attributes(fs, kRoot).link_count == 4);
    REQUIRE(fs.names.rename(kRoot, "moved", other, "moved", RENAME_WHITEOUT, kUser).ok());
    expect_whiteout(fs, kRoot, "moved");
    CHECK(attributes(fs, kRoot).link_count == 3);
    CHECK(attributes(fs, other).link_count == 3);
    CHECK(found(fs, moved, "..").inode == other);
}

TEST_CASE("renames: flags that do not go together, and nothing to rename")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    make_file(fs, kRoot, "a");
    make_file(fs, kRoot, "b");
    const uint64_t count = inode_count(fs);
    for (const uint32_t flags : {RENAME_WHITEOUT | RENAME_EXCHANGE, RENAME_NOREPLACE | RENAME_EXCHANGE, 8})
        CHECK(fs.names.rename(kRoot, "a", kRoot, "b", flags).err() == Err::kInvalid);
    CHECK(fs.names.rename(kRoot, "none", kRoot, "b", RENAME_WHITEOUT).err() == Err::kNotFound);
    const InodeNumber a = found(fs, kRoot, "a").inode;
    REQUIRE(fs.names.link(a, kRoot, "hard").ok());
    CHECK(fs.names.rename(kRoot, "a", kRoot, "hard", RENAME_WHITEOUT).ok());
    CHECK(found(fs, kRoot, "a").inode == a);
    CHECK(inode_count(fs) == count);
}

TEST_CASE("the fsync log has a rename with its whiteout, or neither")
{
    for (const bool synced : {false, true}) {
        TestVolume volume(manual_options());
        const InodeNumber file = make_file(volume.fs(), kRoot, "old");
        REQUIRE(volume.fs().committer.sync().ok());
        make_file(volume.fs(), kRoot, "before");
        fsync(volume.fs());
        REQUIRE(volume.fs().names.rename(kRoot, "old", kRoot, "new", RENAME_WHITEOUT, kUser).ok());
        if (synced)
            fsync(volume.fs());
        volume.crash();
        CHECK(found(volume.fs(), kRoot, "before").link_count == 1);
        CHECK(found(volume.fs(), kRoot, synced ? "new" : "old").inode == file);
        if (synced)
            expect_whiteout(volume.fs(), kRoot, "old");
        else
            CHECK(lookup_error(volume.fs(), kRoot, "new") == Err::kNotFound);
    }
}

TEST_CASE("a file without a name goes with its last reference, or gets one name")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const uint64_t count = inode_count(fs);
    const uint64_t root_bytes = attributes(fs, kRoot).size_bytes;
    const Result<Attributes> made = fs.names.make_temporary(kRoot, S_IFREG | 0666, kUser);
    REQUIRE(made.ok());
    CHECK(made->link_count == 0);
    CHECK(made->mode == (S_IFREG | 0644));
    CHECK(inode_count(fs) == count + 1);
    CHECK(attributes(fs, kRoot).size_bytes == root_bytes);
    REQUIRE(fs.files.write(made->inode, 0, bytes_of("content"), {.append = false}, {}).ok());
    SUBCASE("given up")
    {
        fs.names.forget(made->inode, 1);
        REQUIRE(finish_removals(fs.names).ok());
        CHECK(inode_count(fs) == count);
        CHECK(fs.names.get_attributes(made->inode).err() == Err::kStale);
        CHECK(fs.names.link(made->inode, kRoot, "late").err() == Err::kStale);
    }
    SUBCASE("cut off")
    {
        fsync(fs);
        volume.crash();
        REQUIRE(finish_removals(volume.fs().names).ok());
        CHECK(volume.fs().names.get_attributes(made->inode).err() == Err::kStale);
        CHECK(inode_count(volume.fs()) == count);
    }
    SUBCASE("named")
    {
        const Result<Attributes> linked = fs.names.link(made->inode, kRoot, "name");
        REQUIRE(linked.ok());
        CHECK(linked->link_count == 1);
        fsync(fs);
        volume.crash();
        REQUIRE(finish_removals(volume.fs().names).ok());
        CHECK(found(volume.fs(), kRoot, "name").inode == made->inode);
        CHECK(found(volume.fs(), kRoot, "name").size_bytes == 7);
        CHECK(inode_count(volume.fs()) == count + 1);
    }
}

TEST_CASE("a file that lost its last name gets no other")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    REQUIRE(fs.names.unlink(kRoot, "file").ok());
    CHECK(fs.names.link(file, kRoot, "again").err() == Err::kNotFound);
    const Result<Attributes> made = fs.names.make_temporary(kRoot, 0600, kUser);
    REQUIRE(made.ok());
    REQUIRE(fs.names.link(made->inode, kRoot, "name").ok());
    REQUIRE(fs.names.unlink(kRoot, "name").ok());
    CHECK(fs.names.link(made->inode, kRoot, "again").err() == Err::kNotFound);
}

TEST_CASE("an inode is found by its number while it is there")
{
    TestVolume volume(manual_options());
    const InodeNumber directory = make_directory(volume.fs(), kRoot, "d");
    const InodeNumber file = make_file(volume.fs(), directory, "file");
    const uint64_t generation = attributes(volume.fs(), file).generation;
    volume.reopen();
    Filesystem& fs = volume.fs();
    CHECK(found(fs, file, ".").inode == file);
    CHECK(found(fs, file, ".").generation == generation);
    CHECK(found(fs, directory, "..").inode == kRoot);
    CHECK(lookup_error(fs, file, "..") == Err::kNotDirectory);
    CHECK(lookup_error(fs, file, "name") == Err::kNotDirectory);
    REQUIRE(fs.names.lookup(directory, "file").ok());
    REQUIRE(fs.names.unlink(directory, "file").ok());
    CHECK(lookup_error(fs, file, ".") == Err::kNotFound);
    fs.names.forget(file, 1);
    REQUIRE(finish_removals(fs.names).ok());
    for (const InodeNumber gone :
         {file, InodeNumber{0}, InodeNumber{1}, InodeNumber{98765}, InodeNumber{UINT64_MAX}})
        CHECK(lookup_error(fs, gone, ".") == Err::kStale);
}
