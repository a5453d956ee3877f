// SPDX-License-Identifier: MIT
// Random operations on names against a plain model in memory, with commits and remounts in between.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

#include <array>
#include <cstdlib>
#include <map>
#include <set>

#include "tests/support/names_volume.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

struct ModelInode {
    uint32_t type = 0;
    uint32_t links = 0;
    size_t parent = 0;  // of directories
    std::map<std::string, size_t> children;
    std::string target;
    std::map<std::string, std::string> xattrs;
    InodeNumber number;
    uint64_t references = 0;
    bool deleted = false;

    [[nodiscard]] bool is_directory() const { return type == S_IFDIR; }
};

// What POSIX says, without any of the machinery. Inodes are indices; the root is 0.
class NameModel {
public:
    NameModel() { inodes.push_back({.type = S_IFDIR, .links = 2, .number = kRoot}); }

    Err make(size_t parent, const std::string& name, uint32_t type, const std::string& target)
    {
        if (inodes[parent].children.count(name) > 0)
            return Err::kExists;
        inodes[parent].children[name] = inodes.size();
        inodes[parent].links += type == S_IFDIR;
        inodes.push_back({.type = type,
                          .links = type == S_IFDIR ? 2u : 1u,
                          .parent = parent,
                          .target = target,
                          .references = 1});
        return Err::kOk;
    }
    Err link(size_t inode, size_t parent, const std::string& name)
    {
        if (inodes[inode].is_directory())
            return Err::kNotPermitted;
        if (inodes[parent].children.count(name) > 0)
            return Err::kExists;
        if (inodes[inode].links == 0)
            return Err::kNotFound;
        ++inodes[inode].links;
        ++inodes[inode].references;
        inodes[parent].children[name] = inode;
        return Err::kOk;
    }
    Err remove(size_t parent, const std::string& name, bool directory)
    {
        const auto at = inodes[parent].children.find(name);
        if (at == inodes[parent].children.end())
            return Err::kNotFound;
        const size_t inode = at->second;
        if (inodes[inode].is_directory() != directory)
            return directory ? Err::kNotDirectory : Err::kIsDirectory;
        if (!inodes[inode].children.empty())
            return Err::kNotEmpty;
        inodes[parent].children.erase(at);
        drop_name(parent, inode);
        return Err::kOk;
    }
    Err rename(size_t from, const std::string& name, size_t to, const std::string& new_name, uint32_t flags)
    {
        const size_t source = child(from, name);
        const size_t target = child(to, new_name);
        if (source == kNone || (flags == RENAME_EXCHANGE && target == kNone))
            return Err::kNotFound;
        if (flags == RENAME_NOREPLACE && target != kNone)
            return Err::kExists;
        if (source == target)
            return Err::kOk;
        if (flags != RENAME_EXCHANGE && target != kNone) {
            if (inodes[source].is_directory() != inodes[target].is_directory())
                return inodes[source].is_directory() ? Err::kNotDirectory : Err::kIsDirectory;
            if (!inodes[target].children.empty())
                return Err::kNotEmpty;
        }
        if (is_within(to, source) || (flags == RENAME_EXCHANGE && is_within(from, target)))
            return Err::kInvalid;
        inodes[from].children.erase(name);
        inodes[to].children[new_name] = source;
        settle(source, from, to);
        if (flags == RENAME_EXCHANGE) {
            inodes[from].children[name] = target;
            settle(target, to, from);
        } else if (target != kNone) {
            drop_name(to, target);
        }
        return Err::kOk;
    }
    // Unlinked inodes nobody refers to are gone; after a remount nobody refers to anything.
    void delete_forgotten()
    {
        for (ModelInode& inode : inodes)
            inode.deleted = inode.deleted || (inode.links == 0 && inode.references == 0);
    }
    [[nodiscard]] uint64_t live_count() const
    {
        uint64_t count = 0;
        for (const ModelInode& inode : inodes)
            count += !inode.deleted;
        return count;
    }

    std::vector<ModelInode> inodes;

private:
    static constexpr size_t kNone = SIZE_MAX;

    size_t child(size_t parent, const std::string& name)
    {
        const auto at = inodes[parent].children.find(name);
        return at == inodes[parent].children.end() ? kNone : at->second;
    }
    void drop_name(size_t parent, size_t inode)
    {
        inodes[parent].links -= inodes[inode].is_directory();
        inodes[inode].links -= inodes[inode].is_directory() ? 2 : 1;
    }
    void settle(size_t inode, size_t from, size_t to)
    {
        if (!inodes[inode].is_directory())
            return;
        --inodes[from].links;
        ++inodes[to].links;
        inodes[inode].parent = to;
    }
    [[nodiscard]] bool is_within(size_t directory, size_t ancestor) const
    {
        while (directory != ancestor && directory != 0)
            directory = inodes[directory].parent;
        return directory == ancestor;
    }
};

enum Event : size_t {
    kMake,
    kLink,
    kUnlink,
    kRmdir,
    kRename,
    kExchange,
    kLookup,
    kForget,
    kXattr,
    kCommit,
    kReopen,
    kRefused,
    kEventCount
};

class Run {
public:
    explicit Run(uint64_t seed) : random_(seed), volume_(manual_options()) { }

    void step();
    void compare();
    std::array<uint64_t, kEventCount> events{};

private:
    Filesystem& fs() { return volume_.fs(); }
    InodeNumber number(size_t index) { return model_.inodes[index].number; }
    std::string some_name();
    std::string some_name_in(size_t directory);
    size_t some_directory();
    size_t some_inode();
    void expect(Event event, Err got, Err expected);

    void make();
    void link();
    void remove();
    void rename();
    void lookup();
    void forget();
    void change_xattr();
    void settle();

    void compare_directory(size_t index);
    void compare_inode(size_t index, const Attributes& found);

    Prng random_;
    TestVolume volume_;
    NameModel model_;
};

std::string Run::some_name()
{
    // Few, so that they meet; of all lengths.
    const uint64_t i = random_.below(9);
    return i < 7 ? "name" + std::to_string(i) : std::string(i == 7 ? 255 : 120, 'n');
}

// As often as not one that exists.
std::string Run::some_name_in(size_t directory)
{
    const std::map<std::string, size_t>& children = model_.inodes[directory].children;
    if (children.empty() || random_.chance(1, 2))
        return some_name();
    return std::next(children.begin(), static_cast<ptrdiff_t>(random_.below(children.size())))->first;
}

size_t Run::some_directory()
{
    std::vector<size_t> directories;
    for (size_t i = 0; i < model_.inodes.size(); ++i)
        if (model_.inodes[i].is_directory() && model_.inodes[i].links > 0)
            directories.push_back(i);
    return directories[random_.below(directories.size())];
}

// One that exists, with or without a name.
size_t Run::some_inode()
{
    model_.delete_forgotten();
    while (true) {
        const size_t i = random_.below(model_.inodes.size());
        if (!model_.inodes[i].deleted)
            return i;
    }
}

void Run::expect(Event event, Err got, Err expected)
{
    REQUIRE(got == expected);
    ++events[got == Err::kOk ? event : kRefused];
}

void Run::make()
{
    const uint32_t types[] = {S_IFREG, S_IFDIR, S_IFDIR, S_IFLNK, S_IFIFO};
    const uint32_t type = types[random_.below(5)];
    const std::string target = type == S_IFLNK ? std::string(random_.between(1, 300), 't') : "";
    const size_t parent = some_directory();
    const std::string name = some_name();
    const Result<Attributes> made = type == S_IFLNK
                                        ? fs().names.make_symlink(number(parent), name, target, {})
                                        : fs().names.make_node(number(parent), name, type | 0700, 0, {});
    expect(kMake, made.err(), model_.make(parent, name, type, target));
    if (made.ok())
        model_.inodes.back().number = made->inode;
}

void Run::link()
{
    const size_t inode = some_inode();
    const size_t parent = some_directory();
    const std::string name = some_name();
    const Err got = fs().names.link(number(inode), number(parent), name).err();
    expect(kLink, got, model_.link(inode, parent, name));
}

void Run::remove()
{
    const size_t parent = some_directory();
    const std::string name = some_name_in(parent);
    const bool directory = random_.chance(1, 2);
    const Status got =
        directory ? fs().names.rmdir(number(parent), name) : fs().names.unlink(number(parent), name);
    expect(directory ? kRmdir : kUnlink, got.err(), model_.remove(parent, name, directory));
}

void Run::rename()
{
    const uint32_t choices[] = {0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
    const uint32_t flags = choices[random_.below(4)];
    const size_t from = some_directory();
    const size_t to = random_.chance(1, 4) ? from : some_directory();
    const std::string name = some_name_in(from);
    const std::string new_name = some_name_in(to);
    INFO("rename ", name, " to ", new_name, " flags ", flags);
    const Err got = fs().names.rename(number(from), name, number(to), new_name, flags).err();
    const Err expected = model_.rename(from, name, to, new_name, flags);
    expect(flags == RENAME_EXCHANGE ? kExchange : kRename, got, expected);
}

void Run::lookup()
{
    const size_t parent = some_directory();
    const std::string name = some_name_in(parent);
    const Result<Attributes> found = fs().names.lookup(number(parent), name);
    const auto at = model_.inodes[parent].children.find(name);
    const bool exists = at != model_.inodes[parent].children.end();
    expect(kLookup, found.err(), exists ? Err::kOk : Err::kNotFound);
    if (!exists)
        return;
    ++model_.inodes[at->second].references;
    compare_inode(at->second, *found);
}

void Run::forget()
{
    const size_t i = some_inode();
    ModelInode& inode = model_.inodes[i];
    if (inode.references == 0)
        return;
    const uint64_t count = random_.between(1, inode.references);
    fs().names.forget(inode.number, count);
    inode.references -= count;
    ++events[kForget];
}

void Run::change_xattr()
{
    const size_t i = some_inode();
    ModelInode& inode = model_.inodes[i];
    const std::string name = "user." + std::to_string(random_.below(4));
    const bool exists = inode.xattrs.count(name) > 0;
    if (random_.chance(1, 3)) {
        expect(kXattr, fs().names.remove_xattr(inode.number, name).err(), exists ? Err::kOk : Err::kNoData);
        inode.xattrs.erase(name);
        return;
    }
    const int choices[] = {0, XATTR_CREATE, XATTR_REPLACE};
    const int flags = choices[random_.below(3)];
    const std::string value(random_.below(random_.chance(1, 10) ? 4000 : 40),
                            static_cast<char>('a' + i % 26));
    const Err expected = exists && flags == XATTR_CREATE     ? Err::kExists
                         : !exists && flags == XATTR_REPLACE ? Err::kNoData
                                                             : Err::kOk;
    expect(kXattr, fs().names.set_xattr(inode.number, name, bytes_of(value), flags).err(), expected);
    if (expected == Err::kOk)
        inode.xattrs[name] = value;
}

void Run::settle()
{
    if (random_.chance(1, 4)) {
        volume_.reopen();
        for (ModelInode& inode : model_.inodes)
            inode.references = 0;
        ++events[kReopen];
    } else {
        REQUIRE(fs().step(true).ok());
        ++events[kCommit];
    }
    model_.delete_forgotten();
}

void Run::step()
{
    const uint64_t choice = random_.below(100);
    if (choice < 30)
        make();
    else if (choice < 40)
        link();
    else if (choice < 55)
        remove();
    else if (choice < 75)
        rename();
    else if (choice < 85)
        lookup();
    else if (choice < 90)
        forget();
    else if (choice < 99)
        change_xattr();
    else
        settle();
}

void Run::compare_inode(size_t index, const Attributes& found)
{
    const ModelInode& inode = model_.inodes[index];
    REQUIRE(found.inode == inode.number);
    REQUIRE((found.mode & S_IFMT) == inode.type);
    REQUIRE(found.link_count == inode.links);
    uint64_t size = inode.target.size();
    for (const auto& [name, child] : inode.children)
        size += 2 * name.size();
    REQUIRE(found.size_bytes == size);
    if (inode.type == S_IFLNK)
        REQUIRE(*fs().names.read_symlink(inode.number) == inode.target);
    std::string names;
    for (const auto& [name, value] : inode.xattrs) {
        REQUIRE(text_of(*fs().names.get_xattr(inode.number, name)) == value);
        names += name;
    }
    REQUIRE(fs().names.list_xattrs(inode.number)->size() == names.size() + inode.xattrs.size());
}

void Run::compare_directory(size_t index)
{
    const ModelInode& directory = model_.inodes[index];
    const Result<Attributes> parent = fs().names.lookup(directory.number, "..");
    REQUIRE(parent.ok());
    REQUIRE(parent->inode == number(directory.parent));
    fs().names.forget(parent->inode, 1);
    const std::vector<ListedEntry> entries =
        list_all(fs(), directory.number, random_.between(1, 20), {.with_attributes = random_.chance(1, 2)});
    std::set<std::string> names;
    for (const ListedEntry& entry : entries) {
        REQUIRE(names.insert(entry.name).second);
        if (entry.name == "." || entry.name == "..")
            continue;
        const auto at = directory.children.find(entry.name);
        REQUIRE(at != directory.children.end());
        REQUIRE(entry.inode == number(at->second));
        REQUIRE(entry.mode_type == model_.inodes[at->second].type);
        const Result<Attributes> found = fs().names.lookup(directory.number, entry.name);
        REQUIRE(found.ok());
        compare_inode(at->second, *found);
        fs().names.forget(found->inode, 1);
        if (model_.inodes[at->second].is_directory())
            compare_directory(at->second);
    }
    REQUIRE(names.size() == directory.children.size() + 2);
}

void Run::compare()
{
    REQUIRE(fs().step(false).ok());
    model_.delete_forgotten();
    compare_directory(0);
    for (size_t i = 0; i < model_.inodes.size(); ++i) {
        const Result<Attributes> found = fs().names.get_attributes(number(i));
        REQUIRE(found.err() == (model_.inodes[i].deleted ? Err::kStale : Err::kOk));
        if (found.ok())
            compare_inode(i, *found);
    }
    REQUIRE(fs().statistics().inode_count == model_.live_count());
}

}  // namespace

TEST_CASE("random operations on names agree with the model")
{
    const uint64_t first_seed = test_seed(1);
    const uint64_t run_count = std::getenv("COWRAID_SEED") != nullptr ? 1 : 5;
    std::array<uint64_t, kEventCount> events{};
    for (uint64_t seed = first_seed; seed < first_seed + run_count; ++seed) {
        INFO("COWRAID_SEED=", seed);
        Run run(seed);
        for (int i = 1; i <= 1500; ++i) {
            CAPTURE(i);
            run.step();
            if (i % 250 == 0)
                run.compare();
        }
        for (size_t event = 0; event < kEventCount; ++event)
            events[event] += run.events[event];
    }
    // One seed that somebody repeats need not have everything.
    for (size_t event = 0; event < kEventCount && run_count > 1; ++event) {
        CAPTURE(event);
        CHECK(events[event] >= 2 * run_count);
    }
    CHECK(events[kMake] >= 50 * run_count);
    CHECK(events[kRename] >= 20 * run_count);
}
