// SPDX-License-Identifier: MIT
// Listings: complete, in pieces of any size, stable while the directory changes, with their references.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/support/names_volume.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

std::string name_of(uint64_t i)
{
    return "entry-" + std::to_string(i);
}

std::set<std::string> name_set_of(const std::vector<ListedEntry>& entries)
{
    std::set<std::string> names;
    for (const ListedEntry& entry : entries)
        names.insert(entry.name);
    return names;
}

Err list_error(Filesystem& fs, InodeNumber directory)
{
    ListSink sink;
    return fs.names.read_directory(directory, 0, {}, sink).err();
}

}  // namespace

TEST_CASE("an empty directory lists its dots")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber outer = make_directory(fs, kRoot, "outer");
    const InodeNumber inner = make_directory(fs, outer, "inner");
    const std::vector<ListedEntry> entries = list_all(fs, inner, 100);
    REQUIRE(entries.size() == 2);
    CHECK(entries[0].name == ".");
    CHECK(entries[0].inode == inner);
    CHECK(entries[0].next_cursor == 1);
    CHECK(entries[0].mode_type == S_IFDIR);
    CHECK(entries[1].name == "..");
    CHECK(entries[1].inode == outer);
    CHECK(entries[1].next_cursor == 2);
    CHECK(list_all(fs, kRoot, 100)[1].inode == kRoot);
    ListSink behind;
    REQUIRE(fs.names.read_directory(inner, UINT64_MAX, {}, behind).ok());
    CHECK(behind.entries.empty());
    CHECK(list_error(fs, make_file(fs, kRoot, "file")) == Err::kNotDirectory);
    CHECK(list_error(fs, {31337}) == Err::kStale);
}

TEST_CASE("a large directory is listed whole in pieces of any size")
{
    TestVolume volume(manual_options());
    constexpr uint64_t kCount = 3000;
    std::set<std::string> expected{".", ".."};
    for (uint64_t i = 0; i < kCount; ++i) {
        make_file(volume.fs(), kRoot, name_of(i));
        expected.insert(name_of(i));
        // Some in the tree, some in memory.
        if (i == 1000)
            REQUIRE(volume.fs().committer.sync().ok());
    }
    for (int round = 0; round < 2; ++round) {
        for (const size_t piece : {size_t{1}, size_t{7}, size_t{31}, size_t{32}, size_t{33}, size_t{5000}}) {
            for (const bool with_attributes : {false, true}) {
                const std::vector<ListedEntry> entries =
                    list_all(volume.fs(), kRoot, piece, {.with_attributes = with_attributes});
                CHECK(entries.size() == kCount + 2);
                CHECK(name_set_of(entries) == expected);
                for (const ListedEntry& entry : entries) {
                    REQUIRE(entry.has_attributes == with_attributes);
                    REQUIRE(static_cast<int64_t>(entry.next_cursor) > 0);
                }
            }
        }
        volume.reopen();
    }
}

TEST_CASE("a listing shows every entry that stays exactly once, whatever comes and goes")
{
    const uint64_t seed = test_seed(11);
    INFO("COWRAID_SEED=", seed);
    Prng random(seed);
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    constexpr uint64_t kCount = 600;
    for (uint64_t i = 0; i < kCount; ++i)
        make_file(fs, kRoot, name_of(i));
    // Even numbers stay. Odd ones go, under way, and new ones come.
    uint64_t next_new = kCount;
    uint64_t changes = 0;
    std::vector<ListedEntry> entries;
    for (uint64_t cursor = 0;;) {
        ListSink sink(random.between(1, 20));
        REQUIRE(fs.names.read_directory(kRoot, cursor, {}, sink).ok());
        if (sink.entries.empty())
            break;
        cursor = sink.entries.back().next_cursor;
        entries.insert(entries.end(), sink.entries.begin(), sink.entries.end());
        for (int i = 0; i < 5; ++i, ++changes) {
            if (random.chance(1, 2))
                make_file(fs, kRoot, name_of(next_new++));
            else
                fs.names.unlink(kRoot, name_of(random.below(kCount / 2) * 2 + 1))
                    .ignore();  // may be gone already
        }
        if (random.chance(1, 10))
            REQUIRE(fs.step(true).ok());
    }
    CHECK(changes > 100);
    const std::set<std::string> names = name_set_of(entries);
    CHECK(names.size() == entries.size());
    uint64_t stayed = 0;
    for (uint64_t i = 0; i < kCount; i += 2)
        stayed += names.count(name_of(i));
    CHECK(stayed == kCount / 2);
}

TEST_CASE("entries with attributes carry a reference, refused ones and dots do not")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber directory = make_directory(fs, kRoot, "directory");
    for (uint64_t i = 0; i < 2; ++i)
        fs.names.forget(make_file(fs, directory, name_of(i)), 1);
    ListSink sink(3);
    REQUIRE(fs.names.read_directory(directory, 0, {.with_attributes = true}, sink).ok());
    REQUIRE(sink.entries.size() == 3);
    const ListedEntry& taken = sink.entries[2];
    ListSink rest;
    REQUIRE(fs.names.read_directory(directory, taken.next_cursor, {}, rest).ok());
    REQUIRE(rest.entries.size() == 1);
    const ListedEntry& refused = rest.entries[0];
    REQUIRE(fs.names.unlink(directory, taken.name).ok());
    REQUIRE(fs.names.unlink(directory, refused.name).ok());
    REQUIRE(fs.step(true).ok());
    CHECK(fs.names.get_attributes(taken.inode).ok());
    CHECK(fs.names.get_attributes(refused.inode).err() == Err::kStale);
    fs.names.forget(taken.inode, 1);
    REQUIRE(fs.names.rmdir(kRoot, "directory").ok());
    fs.names.forget(directory, 1);
    REQUIRE(fs.step(true).ok());
    CHECK(fs.names.get_attributes(taken.inode).err() == Err::kStale);
    CHECK(fs.names.get_attributes(directory).err() == Err::kStale);
    CHECK(fs.statistics().inode_count == 1);
}
