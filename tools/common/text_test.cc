// SPDX-License-Identifier: MIT
#include "base/text.h"

#include <doctest/doctest.h>

#include "tools/cowraid/prefix_match.h"
#include "tools/mount/user_mount_table.h"

namespace cowraid {

TEST_CASE("a mistyped word means the nearest one, if one is near")
{
    const std::vector<std::string_view> words = {"status", "stats", "scrub", "balance"};
    CHECK(nearest_word(words, "statsu") == 0);
    CHECK(nearest_word(words, "stat") == 1);
    CHECK(nearest_word(words, "crub") == 2);
    CHECK(nearest_word(words, "sbrub") == 2);
    CHECK(nearest_word(words, "blanace") == 3);
    CHECK(nearest_word(words, "rebuild") == std::nullopt);
    CHECK(nearest_word(words, "") == std::nullopt);
    CHECK(nearest_word(words, std::string(100000, 's')) == std::nullopt);
}

TEST_CASE("sizes as people read them")
{
    CHECK(size_text(0) == "0.00B");
    CHECK(size_text(1023) == "1023.00B");
    CHECK(size_text(1536) == "1.50KiB");
    CHECK(size_text(uint64_t{512} << 20) == "512.00MiB");
    CHECK(size_text(UINT64_MAX) == "16.00EiB");
    CHECK(size_text(1500, SizeStyle::kSi) == "1.50kB");
    CHECK(size_text(1536, SizeStyle::kRaw) == "1536");
}

TEST_CASE("sizes as people type them")
{
    CHECK(*parse_size("0") == 0);
    CHECK(*parse_size("4096") == 4096);
    for (const char* text : {"64k", "64K", "64KiB", "64kb", "64KB"})
        CHECK_MESSAGE(*parse_size(text) == 65536, text);
    CHECK(*parse_size("15E") == uint64_t{15} << 60);
    for (const char* text : {"", "k", "-1", "1.5G", "64 K", "64KK", "iB", "0x10", "64Q"})
        CHECK_MESSAGE(parse_size(text).err() == Err::kInvalid, text);
    CHECK(parse_size("16E").err() == Err::kRange);
    CHECK(parse_size("18446744073709551616").err() == Err::kRange);
    CHECK(*parse_number("18446744073709551615") == UINT64_MAX);
    CHECK(parse_number("+1").err() == Err::kInvalid);
}

TEST_CASE("words and paths")
{
    CHECK(split("a,,b", ',') == std::vector<std::string_view>{"a", "", "b"});
    CHECK(split("", ',') == std::vector<std::string_view>{""});
    CHECK(join_words({}) == "nothing");
    CHECK(join_words({"a"}) == "a");
    CHECK(join_words({"a", "b", "c"}) == "a, b and c");
    CHECK(absolute_path("/dev/x") == "/dev/x");
    CHECK(absolute_path("x").ends_with("/x"));
    CHECK(absolute_path("x").starts_with("/"));
}

TEST_CASE("prefixes: one meaning, several, none")
{
    constexpr std::string_view words[] = {"show", "sync", "stats", "show-all"};
    CHECK(match_prefix(words, "sy").candidates == std::vector<size_t>{1});
    CHECK(match_prefix(words, "s").candidates == std::vector<size_t>{0, 1, 2, 3});
    CHECK(match_prefix(words, "sh").candidates == std::vector<size_t>{0, 3});
    // A whole word wins over longer ones.
    CHECK(match_prefix(words, "show").candidates == std::vector<size_t>{0});
    CHECK(match_prefix(words, "shows").candidates.empty());
    CHECK(match_prefix(words, "").candidates.empty());
    CHECK(match_prefix(words, "Show").candidates.empty());
}

TEST_CASE("a quoted text ends where its quotes do")
{
    CHECK(quoted("pool") == "'pool'");
    CHECK(quoted("x'  uuid: 1\\") == "'x\\'  uuid: 1\\\\'");
}

TEST_CASE("utab: one entry per mounted directory, those of others untouched")
{
    const std::vector<std::string> mounted = {"/other", "/mnt/my dir"};
    const std::string other = "SRC=/dev/a TARGET=/elsewhere ROOT=/ OPTS=_netdev\n";
    const std::string ours =
        "SRC=cowraid:my\\040pool TARGET=/mnt/my\\040dir ROOT=/ OPTS=uhelper=fuse.cowraid,degraded\n";
    const std::string one =
        change_user_table(other, {"cowraid:my pool", "/mnt/my dir", "degraded"}, mounted, {});
    CHECK(one == other + ours);
    CHECK(change_user_table(one, {"cowraid:my pool", "/mnt/my dir", "degraded"}, mounted, {}) == one);
    CHECK(change_user_table(one, {"", "/mnt/my dir", ""}, mounted, {}) == other);
    CHECK(change_user_table(one, {"", "/mnt/my", ""}, mounted, {}) == one);
    // Mounted again while the daemon before it ended.
    CHECK(change_user_table(one, {"", "/mnt/my dir", ""}, mounted, {"/mnt/my dir"}) == one);
    CHECK(change_user_table(one, {"cowraid:b", "/mnt/my dir", ""}, mounted, {"/mnt/my dir"}) ==
          other + "SRC=cowraid:b TARGET=/mnt/my\\040dir ROOT=/ OPTS=uhelper=fuse.cowraid\n");
    // What a killed daemon left.
    CHECK(change_user_table(one, {"", "/x", ""}, {"/other"}, {}) == other);
    CHECK(change_user_table(one, {"", "/x", ""}, {"/other"}, {}, false) == one);
    CHECK(change_user_table(one, {"", "/mnt/my dir", ""}, {"/other"}, {}, false) == other);
    CHECK(change_user_table("", {"", "/mnt", ""}, mounted, {}).empty());
}

}  // namespace cowraid
