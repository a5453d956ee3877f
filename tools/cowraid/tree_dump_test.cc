// SPDX-License-Identifier: MIT
// The trees of a commit as text and JSON, and what is said when newer commits overwrite them.
#include "tools/cowraid/tree_dump.h"

#include <doctest/doctest.h>

#include <sys/stat.h>

#include <cstdlib>

#include "control/json.h"
#include "device/assembly.h"
#include "tests/filesystem/volume_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr InodeNumber kRootDirectory{256};

struct Dumped {
    std::string text;
    Result<uint64_t> unreadable = 0;
};

Dumped dump(Volume& volume, const TreeDumpOptions& options)
{
    char* bytes = nullptr;
    size_t count = 0;
    FILE* const out = open_memstream(&bytes, &count);
    Dumped dumped{.text = {}, .unreadable = dump_trees(volume, options, out)};
    fclose(out);
    dumped.text.assign(bytes, count);
    free(bytes);
    return dumped;
}

std::unique_ptr<Volume> look_at(SimVolume& volume)
{
    std::string why;
    Result<Assembly> assembly = assemble(volume.borrow({}), why);
    REQUIRE_MESSAGE(assembly.ok(), why);
    MountOptions options;
    options.read_only = options.degraded = options.rescue = true;
    Result<std::unique_ptr<Volume>> opened = Volume::open(assembly.take(), options, why);
    REQUIRE_MESSAGE(opened.ok(), why);
    return opened.take();
}

void make_files(SimVolume& volume, int round)
{
    for (int file = 0; file < 40; ++file) {
        const std::string name = "file " + std::to_string(round) + " " + std::to_string(file);
        REQUIRE(volume.fs().names.make_node(kRootDirectory, name, S_IFREG | 0644, 0, {}).ok());
    }
    REQUIRE(volume.fs().step(true).ok());
}

size_t count_of(const std::string& text, std::string_view word)
{
    size_t count = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        ++count;
    return count;
}

}  // namespace

TEST_CASE("trees of a commit that newer ones have overwritten are not taken for those of any")
{
    SimVolume volume({});
    make_and_mount(volume);
    make_files(volume, 0);
    const std::unique_ptr<Volume> old = look_at(volume);
    const Dumped before = dump(*old, {.tree = {}});
    REQUIRE(before.unreadable.ok());
    CHECK(*before.unreadable == 0);
    CHECK(before.text.starts_with("commit " + std::to_string(old->generation().value) + "\n"));
    CHECK(count_of(before.text, "name 'file 0 ") == 80);  // links and entries of the directory
    for (int round = 1; round < 200; ++round) {
        make_files(volume, round);
        for (int file = 0; file < 40; ++file)
            REQUIRE(volume.fs()
                        .names
                        .unlink(kRootDirectory, "file " + std::to_string(round) + " " + std::to_string(file))
                        .ok());
    }
    const Dumped after = dump(*old, {.tree = {}, .mounted = true});
    REQUIRE(after.unreadable.ok());
    CHECK(*after.unreadable > 0);
    // Nothing but what that commit had.
    CHECK(count_of(after.text, "name 'file ") == count_of(after.text, "name 'file 0 "));
    const std::unique_ptr<Volume> now = look_at(volume);
    CHECK(old->generation() < now->generation());
    const Dumped newest = dump(*now, {.tree = {}, .mounted = true});
    CHECK(*newest.unreadable == 0);
    CHECK(newest.text.starts_with("commit " + std::to_string(now->generation().value) + " of a mounted"));
}

TEST_CASE("trees as JSON have the nodes and items that the text has")
{
    SimVolume volume({});
    make_and_mount(volume);
    for (int round = 0; round < 10; ++round)
        make_files(volume, round);
    const std::unique_ptr<Volume> looked_at = look_at(volume);
    const std::string text = dump(*looked_at, {.tree = {}}).text;
    const auto json = json_parse_object(dump(*looked_at, {.tree = {}, .format = OutputFormat::kJson}).text);
    REQUIRE(json.ok());
    CHECK(json_get_text(json->get(), "schema") == "cowraid.inspect-tree");
    CHECK(json_get_integer(json->get(), "generation") == looked_at->generation().value);
    const json_t* const trees = json_get(json->get(), "trees");
    REQUIRE(json_array_size(trees) == 4);
    size_t leaves = 0, inner = 0, items = 0;
    for (size_t tree = 0; tree < json_array_size(trees); ++tree) {
        const json_t* const one = json_array_get(trees, tree);
        CHECK(count_of(text, json_get_text(one, "name") + " tree: ") == 1);
        const json_t* const nodes = json_get(one, "nodes");
        for (size_t node = 0; node < json_array_size(nodes); ++node) {
            const json_t* const here = json_array_get(nodes, node);
            const json_t* const list = json_get(here, "items");
            CHECK(json_array_size(list) == json_get_integer(here, "item_count"));
            const bool leaf = json_get_integer(here, "level") == 0;
            ++(leaf ? leaves : inner);
            items += leaf ? json_array_size(list) : 0;
            const std::string last = json_get_text(json_array_get(list, json_array_size(list) - 1), "text");
            CHECK(leaf == !last.empty());
            CHECK(count_of(text, last) >= 1);
        }
    }
    CHECK(leaves == count_of(text, "\nleaf "));
    CHECK(inner == count_of(text, "\nnode "));
    CHECK(inner > 0);
    CHECK(items == count_of(text, "\n  item "));
    const auto one = dump(*looked_at, {.tree = "file", .headers_only = true, .format = OutputFormat::kJson});
    const auto parsed = json_parse_object(one.text);
    REQUIRE(parsed.ok());
    REQUIRE(json_array_size(json_get(parsed->get(), "trees")) == 1);
    CHECK(one.text.find("items") == std::string::npos);
    const Dumped none = dump(*looked_at, {.tree = "none", .format = OutputFormat::kJson});
    CHECK(none.unreadable.err() == Err::kNotFound);
    CHECK(none.text.empty());
}
