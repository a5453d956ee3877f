// SPDX-License-Identifier: MIT
#include "fuse/page_cache_map.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "base/random.h"

namespace cowraid {

namespace {

constexpr InodeNumber kFile{300};
constexpr uint64_t kPage = 4096;
using Ranges = std::vector<PageRange>;

}  // namespace

TEST_CASE("page cache: ranges are whole pages and join")
{
    PageCacheMap map;
    map.note_read(kFile, 100, 1);
    CHECK(map.ranges(kFile) == Ranges{{0, kPage}});
    map.note_read(kFile, 3 * kPage, kPage + 1);
    CHECK(map.ranges(kFile) == Ranges{{0, kPage}, {3 * kPage, 5 * kPage}});
    map.note_read(kFile, kPage, 2 * kPage);
    CHECK(map.ranges(kFile) == Ranges{{0, 5 * kPage}});
    CHECK(map.ranges({301}).empty());
}

TEST_CASE("page cache: a direct write hears of older pages once they may be there")
{
    PageCacheMap map;
    CHECK_FALSE(map.begin_drop(kFile, 0, kPage));
    map.note_read(kFile, 0, 8 * kPage);
    CHECK_FALSE(map.begin_drop(kFile, 8 * kPage, 100));
    CHECK(map.begin_drop(kFile, 2 * kPage, 2 * kPage));
    CHECK(map.ranges(kFile) == Ranges{{0, 2 * kPage}, {4 * kPage, 8 * kPage}});
    map.end_drop(kFile, 2 * kPage, 2 * kPage);
    CHECK_FALSE(map.begin_drop(kFile, 2 * kPage, 2 * kPage));
    map.note_read(kFile, 3 * kPage, 1);
    CHECK(map.begin_drop(kFile, 2 * kPage, 2 * kPage));
    map.end_drop(kFile, 2 * kPage, 2 * kPage);
}

TEST_CASE("page cache: a page that is written in part stays")
{
    PageCacheMap map;
    map.note_read(kFile, 0, 8 * kPage);
    CHECK(map.begin_drop(kFile, 2 * kPage + 4000, 2 * kPage));
    CHECK(map.ranges(kFile) == Ranges{{0, 3 * kPage}, {4 * kPage, 8 * kPage}});
    // One that was not there is when the drop is over: its bytes may have been stored.
    map.begin_any_drop(kFile, 9 * kPage + 1, 10);
    CHECK(map.ranges(kFile) == Ranges{{0, 3 * kPage}, {4 * kPage, 8 * kPage}, {9 * kPage, 10 * kPage}});
    map.end_drop(kFile, 2 * kPage + 4000, 2 * kPage);
    map.end_drop(kFile, 9 * kPage + 1, 10);
    CHECK(map.begin_drop(kFile, 2 * kPage + 4000, 10));
    map.end_drop(kFile, 2 * kPage + 4000, 10);
}

TEST_CASE("page cache: another change drops what is not known as well")
{
    PageCacheMap map;
    map.begin_any_drop(kFile, 1, 4 * kPage - 1);
    CHECK(map.ranges(kFile) == Ranges{{0, kPage}});
    CHECK(map.begin_drop(kFile, 3 * kPage, kPage));
    CHECK_FALSE(map.begin_drop(kFile, 4 * kPage, kPage));
    map.end_drop(kFile, 1, 4 * kPage - 1);
    map.end_drop(kFile, 3 * kPage, kPage);
    CHECK_FALSE(map.begin_drop(kFile, 3 * kPage, kPage));
}

TEST_CASE("page cache: who comes while pages are being dropped waits too")
{
    PageCacheMap map;
    map.note_read(kFile, 0, kPage);
    CHECK(map.begin_drop(kFile, 0, kPage));
    CHECK(map.begin_drop(kFile, 0, kPage));
    CHECK(map.begin_drop(kFile, 0, 100 * kPage));
    const InodeNumber other{kFile.value + 64};  // of the same shard
    CHECK_FALSE(map.begin_drop(other, 0, kPage));
    map.begin_direct(other);
    CHECK_FALSE(map.begin_drop(other, 0, kPage));
    map.end_direct(other);
    map.end_drop(kFile, 0, kPage);
    map.end_drop(kFile, 0, 100 * kPage);
    CHECK(map.begin_drop(kFile, 0, kPage));
    map.end_drop(kFile, 0, kPage);
    map.end_drop(kFile, 0, kPage);
    CHECK_FALSE(map.begin_drop(kFile, 0, kPage));
}

TEST_CASE("page cache: a drop does not concern direct writes of other pages, however many follow each other")
{
    PageCacheMap map;
    map.begin_direct(kFile);
    map.note_read(kFile, 0, kPage);
    CHECK(map.begin_drop(kFile, 0, kPage));
    CHECK_FALSE(map.begin_drop(kFile, 256 * kPage, kPage));
    CHECK_FALSE(map.begin_drop(kFile, kPage, kPage));
    // Each begins before the one before it ended.
    CHECK(map.begin_drop(kFile, 0, kPage));
    map.end_drop(kFile, 0, kPage);
    CHECK(map.begin_drop(kFile, 0, 256 * kPage));
    map.end_drop(kFile, 0, kPage);
    CHECK(map.begin_drop(kFile, 200 * kPage, kPage));
    map.end_drop(kFile, 0, 256 * kPage);
    CHECK_FALSE(map.begin_drop(kFile, 100 * kPage, kPage));
    CHECK(map.begin_drop(kFile, 200 * kPage + 1, 1));
    map.end_drop(kFile, 200 * kPage, kPage);
    map.end_drop(kFile, 200 * kPage + 1, 1);
    map.end_direct(kFile);
}

TEST_CASE("page cache: after a drop that was given up every page may be there")
{
    PageCacheMap map;
    map.note_read(kFile, 0, kPage);
    CHECK(map.begin_drop(kFile, 0, kPage));
    map.give_up_drop(kFile, 0, kPage);
    for (const uint64_t page : {0, 0, 7}) {
        CHECK(map.begin_drop(kFile, page * kPage, kPage));
        map.end_drop(kFile, page * kPage, kPage);
    }
    map.begin_any_drop({301}, 0, UINT64_MAX / 2);
    map.give_up_drop({301}, 0, UINT64_MAX / 2);
    CHECK(map.begin_drop({301}, 9 * kPage, kPage));
    map.end_drop({301}, 9 * kPage, kPage);
    CHECK_FALSE(map.begin_drop({302}, 0, kPage));
}

TEST_CASE("page cache: every page that was read is dropped once, however many there are and in any order")
{
    PageCacheMap map;
    constexpr uint64_t kPages = 20000;
    map.note_read(kFile, 0, kPages * kPage);
    for (int round = 0; round < 2; ++round)
        for (uint64_t i = 0; i < kPages; ++i) {
            const bool older = map.begin_drop(kFile, i * 7919 % kPages * kPage, kPage);
            REQUIRE(older == (round == 0));
            if (older)
                map.end_drop(kFile, i * 7919 % kPages * kPage, kPage);
        }
}

TEST_CASE("page cache: what it wrote counts only while somebody may write past it")
{
    PageCacheMap map;
    map.note_written(kFile, 0, kPage);
    CHECK(map.inode_count() == 0);
    map.begin_direct(kFile);
    CHECK_FALSE(map.begin_drop(kFile, 0, kPage));
    map.note_written(kFile, 0, kPage);
    map.forget(kFile, map.version(kFile));
    CHECK(map.begin_drop(kFile, 0, kPage));
    map.end_drop(kFile, 0, kPage);
    map.begin_direct(kFile);
    map.end_direct(kFile);
    map.note_written(kFile, 0, 2 * kPage);
    map.end_direct(kFile);
    CHECK(map.ranges(kFile) == Ranges{{0, 2 * kPage}});
    map.note_written(kFile, 5 * kPage, kPage);
    CHECK(map.ranges(kFile) == Ranges{{0, 2 * kPage}});
    map.begin_direct({301});
    map.end_direct({301});
    CHECK(map.inode_count() == 1);
}

TEST_CASE("page cache: goes with the last reference, unless there is a new one")
{
    PageCacheMap map;
    map.note_read(kFile, 0, kPage);
    const uint64_t version = map.version(kFile);
    map.note_read(kFile, 0, kPage);
    map.forget(kFile, version);
    CHECK(map.inode_count() == 1);
    map.forget(kFile, map.version(kFile));
    CHECK(map.inode_count() == 0);
    map.forget(kFile, map.version(kFile));
    map.note_read(kFile, 0, kPage);
    CHECK(map.begin_drop(kFile, 0, kPage));
    map.forget(kFile, map.version(kFile));
    CHECK(map.inode_count() == 1);
    map.end_drop(kFile, 0, kPage);
    map.forget(kFile, map.version(kFile));
    CHECK(map.inode_count() == 0);
}

TEST_CASE("page cache: agrees with a set of pages")
{
    PageCacheMap map;
    std::set<uint64_t> pages;
    Prng random(7);
    size_t dropped_count = 0;
    for (int step = 0; step < 20000; ++step) {
        const uint64_t first = random.below(400), count = 1 + random.below(12);
        if (random.chance(1, 2)) {
            map.note_read(kFile, first * kPage, count * kPage);
            for (uint64_t page = first; page < first + count; ++page)
                pages.insert(page);
            continue;
        }
        bool there = false;
        for (uint64_t page = first; page < first + count; ++page)
            there = pages.erase(page) > 0 || there;
        REQUIRE(map.begin_drop(kFile, first * kPage, count * kPage) == there);
        dropped_count += there;
        if (there)
            map.end_drop(kFile, first * kPage, count * kPage);
        if (dropped_count % 8 != 0)  // what went wrong stays so for a while
            continue;
        std::set<uint64_t> known;
        for (const PageRange& range : map.ranges(kFile))
            for (uint64_t at = range.begin; at < range.end; at += kPage)
                known.insert(at / kPage);
        REQUIRE(known == pages);
    }
    CHECK(dropped_count > 1000);
}

TEST_CASE("page cache: memory is bounded, and beyond it every page may be there")
{
    PageCacheMap map;
    constexpr uint64_t kChunk = 4096 * kPage;
    uint64_t chunk = 0;
    for (; chunk == 0 || map.memory() > PageCacheMap::kEntryBytes; ++chunk) {
        REQUIRE(chunk < 100000);
        map.note_read(kFile, chunk * kChunk, 1);
        map.note_read(kFile, chunk * kChunk + 2 * kPage, 1);
        REQUIRE(map.memory() <= PageCacheMap::kMemoryMax);
    }
    CHECK(chunk > 1000);
    CHECK(map.ranges(kFile).size() == 1);
    // A page that was never read.
    for (int round = 0; round < 2; ++round) {
        CHECK(map.begin_drop(kFile, 100 * kChunk + 7 * kPage, kPage));
        map.end_drop(kFile, 100 * kChunk + 7 * kPage, kPage);
    }
    map.note_read(kFile, 0, 1);
    CHECK(map.memory() == PageCacheMap::kEntryBytes);
    // Another inode is not concerned.
    CHECK_FALSE(map.begin_drop({kFile.value + 1}, 0, kPage));
    map.forget(kFile, map.version(kFile));
    CHECK(map.inode_count() == 0);
    CHECK_FALSE(map.begin_drop(kFile, 0, kPage));
    map.note_read(kFile, 0, 1);
    CHECK(map.begin_drop(kFile, 0, kPage));
    map.end_drop(kFile, 0, kPage);
    CHECK_FALSE(map.begin_drop(kFile, kPage, kPage));
}

TEST_CASE("page cache: a million files that are read take no more than the bound")
{
    PageCacheMap map;
    constexpr uint64_t kInodes = 1000000;
    for (uint64_t inode = 1; inode <= kInodes; ++inode)
        map.note_read({inode}, inode % 7 * kPage, kPage);
    CHECK(map.inode_count() * PageCacheMap::kEntryBytes <= map.memory());
    CHECK(map.memory() <= PageCacheMap::kMemoryMax);
    CHECK(map.inode_count() > 1000);
    uint64_t forgotten = 0;
    for (uint64_t inode = 1; inode <= kInodes; ++inode) {
        REQUIRE(map.begin_drop({inode}, inode % 7 * kPage, kPage));
        map.end_drop({inode}, inode % 7 * kPage, kPage);
        if (!map.begin_drop({inode}, 9 * kPage, kPage))
            continue;
        ++forgotten;
        map.end_drop({inode}, 9 * kPage, kPage);
    }
    CHECK(forgotten > kInodes / 2);
    CHECK(forgotten < kInodes);
    // Of a file that is newer than all of those nothing was forgotten.
    CHECK_FALSE(map.begin_drop({kInodes + 1}, 0, kPage));
}

TEST_CASE("page cache: files in use are known however little memory there is")
{
    PageCacheMap map(64 * PageCacheMap::kEntryBytes);  // one file of each shard
    const InodeNumber other{kFile.value + 64};  // of the same shard
    map.begin_mapped(kFile);
    map.note_read(kFile, 0, kPage);
    map.begin_direct(other);
    map.note_read(other, 0, kPage);
    CHECK(map.may_be_mapped(kFile));
    CHECK(map.inode_count() == 2);
    map.end_mapped(kFile);
    CHECK(map.inode_count() == 1);
    CHECK_FALSE(map.may_be_mapped(kFile));
    CHECK(map.begin_drop(kFile, 0, kPage));
    map.forget(kFile, map.version(kFile));
    CHECK(map.begin_drop(kFile, 0, 7 * kPage));
    map.end_drop(kFile, 0, kPage);
    map.end_drop(kFile, 0, 7 * kPage);
    map.end_direct(other);
    CHECK(map.memory() <= 64 * PageCacheMap::kEntryBytes);
}

namespace {

// Remembers everything of a few files of two shards.
struct Remembered {
    std::set<uint64_t> pages;
    std::vector<PageRange> drops;  // under way
    int direct = 0, mapped = 0;
};

}  // namespace

TEST_CASE("page cache: with little memory no page that was noted is ever unknown")
{
    constexpr size_t kMost = 64 * 1000;  // some five files of each shard
    constexpr uint64_t kFiles = 40;
    PageCacheMap map(kMost);
    std::array<Remembered, kFiles> model;
    Prng random(11);
    size_t known = 0, unknown = 0, most_used = 0;
    for (int step = 0; step < 100000; ++step) {
        const uint64_t number = random.below(random.chance(step % 1000, 1000) ? kFiles : 6);
        const InodeNumber inode{64 * number + 3 + number % 2};
        Remembered& file = model[number];
        const uint64_t first = random.below(40000), count = 1 + random.below(12);
        const PageRange range{first * kPage, (first + count) * kPage};
        switch (random.below(8)) {
        case 0:
        case 1:
            map.note_read(inode, range.begin, count * kPage);
            for (uint64_t page = first; page < first + count; ++page)
                file.pages.insert(page);
            break;
        case 2:
            map.note_written(inode, range.begin, count * kPage);
            for (uint64_t page = first; file.direct > 0 && page < first + count; ++page)
                file.pages.insert(page);
            break;
        case 3:
            if (random.chance(1, 2) && ++file.direct > 0)
                map.begin_direct(inode);
            else if (++file.mapped > 0)
                map.begin_mapped(inode);
            break;
        case 4:
            for (; file.direct > 0; --file.direct)
                map.end_direct(inode);
            for (; file.mapped > 0; --file.mapped)
                map.end_mapped(inode);
            break;
        case 5:
        case 6: {
            // Half of them where something is.
            const uint64_t from = file.pages.empty() || random.chance(1, 2) ? first : *file.pages.begin();
            const PageRange dropped{from * kPage, (from + count) * kPage};
            bool there = std::any_of(file.drops.begin(), file.drops.end(), [&](const PageRange& other) {
                return other.begin < dropped.end && dropped.begin < other.end;
            });
            for (uint64_t page = from; page < from + count; ++page)
                there = file.pages.erase(page) > 0 || there;
            const bool drops = map.begin_drop(inode, from * kPage, count * kPage);
            REQUIRE((drops || !there));
            (drops == there ? known : unknown) += 1;
            if (drops)
                file.drops.push_back(dropped);
            break;
        }
        case 7:
            for (; !file.drops.empty(); file.drops.pop_back())
                map.end_drop(inode, file.drops.back().begin, file.drops.back().end - file.drops.back().begin);
            if (random.chance(1, 8) && file.direct + file.mapped == 0) {
                map.forget(inode, map.version(inode));
                file.pages.clear();
            }
        }
        REQUIRE(map.may_be_mapped(inode) == (file.direct + file.mapped > 0));
        size_t used = 0;
        for (const Remembered& each : model)
            used += each.direct + each.mapped > 0 || !each.drops.empty() ? 1 : 0;
        most_used = std::max(used, most_used);
        REQUIRE(map.memory() <= 2 * (kMost / 64) + used * PageCacheMap::kEntryBytes);
    }
    CHECK(known > 1000);
    CHECK(unknown > 1000);
    CHECK(most_used > 2);
}

}  // namespace cowraid
