// SPDX-License-Identifier: MIT
#include "fuse/page_cache_map.h"

#include <doctest/doctest.h>

#include <set>

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
    map.end_drop(kFile);
    CHECK_FALSE(map.begin_drop(kFile, 2 * kPage, 2 * kPage));
    map.note_read(kFile, 3 * kPage, 1);
    CHECK(map.begin_drop(kFile, 2 * kPage, 2 * kPage));
    map.end_drop(kFile);
}

TEST_CASE("page cache: a page that is written in part stays")
{
    PageCacheMap map;
    map.note_read(kFile, 0, 8 * kPage);
    CHECK(map.begin_drop(kFile, 2 * kPage + 4000, 2 * kPage));
    CHECK(map.ranges(kFile) == Ranges{{0, 3 * kPage}, {4 * kPage, 8 * kPage}});
    // One that was not there is when the drop is over: its bytes may have been stored.
    CHECK(map.begin_drop(kFile, 9 * kPage + 1, 10));
    CHECK(map.ranges(kFile) == Ranges{{0, 3 * kPage}, {4 * kPage, 8 * kPage}, {9 * kPage, 10 * kPage}});
    map.end_drop(kFile);
    map.end_drop(kFile);
    CHECK(map.begin_drop(kFile, 2 * kPage + 4000, 10));
    map.end_drop(kFile);
}

TEST_CASE("page cache: another change drops what is not known as well")
{
    PageCacheMap map;
    map.begin_any_drop(kFile, 1, 4 * kPage - 1);
    CHECK(map.ranges(kFile) == Ranges{{0, kPage}});
    CHECK(map.begin_drop(kFile, 9 * kPage, kPage));
    map.end_drop(kFile);
    map.end_drop(kFile);
    CHECK_FALSE(map.begin_drop(kFile, 9 * kPage, kPage));
}

TEST_CASE("page cache: who comes while pages are being dropped waits too")
{
    PageCacheMap map;
    map.note_read(kFile, 0, kPage);
    CHECK(map.begin_drop(kFile, 0, kPage));
    CHECK(map.begin_drop(kFile, 0, kPage));
    CHECK(map.begin_drop(kFile, 100 * kPage, kPage));
    CHECK_FALSE(map.begin_drop({301}, 0, kPage));
    map.end_drop(kFile);
    map.end_drop(kFile);
    CHECK(map.begin_drop(kFile, 0, kPage));
    map.end_drop(kFile);
    map.end_drop(kFile);
    CHECK_FALSE(map.begin_drop(kFile, 0, kPage));
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
                map.end_drop(kFile);
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
    map.end_drop(kFile);
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
    map.end_drop(kFile);
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
            map.end_drop(kFile);
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
    for (; chunk == 0 || map.memory() != 0; ++chunk) {
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
        map.end_drop(kFile);
    }
    map.note_read(kFile, 0, 1);
    CHECK(map.memory() == 0);
    // Another inode is not concerned.
    CHECK_FALSE(map.begin_drop({kFile.value + 1}, 0, kPage));
    map.forget(kFile, map.version(kFile));
    CHECK(map.inode_count() == 0);
    CHECK_FALSE(map.begin_drop(kFile, 0, kPage));
    map.note_read(kFile, 0, 1);
    CHECK(map.begin_drop(kFile, 0, kPage));
    map.end_drop(kFile);
    CHECK_FALSE(map.begin_drop(kFile, kPage, kPage));
}

}  // namespace cowraid
