// SPDX-License-Identifier: MIT
// Many threads on the same few directories: afterwards every count fits what can be seen.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

#include <map>

#include "base/random.h"
#include "tests/support/names_volume.h"

using namespace cowraid;

namespace {

constexpr size_t kThreadCount = 4;
constexpr size_t kDirectoryCount = 4;

struct Worker {
    TestVolume* volume = nullptr;
    const std::vector<InodeNumber>* directories = nullptr;
    uint64_t seed = 0;
    uint64_t done = 0;
    uint64_t unexpected = 0;
    pthread_t thread{};
};

// What concurrency may answer; damage or a stopped filesystem it may not.
bool expected(Err err)
{
    switch (err) {
    case Err::kOk:
    case Err::kNotFound:
    case Err::kExists:
    case Err::kIsDirectory:
    case Err::kNotDirectory:
    case Err::kNotEmpty:
    case Err::kInvalid:
    case Err::kNotPermitted:
    case Err::kStale:
        return true;
    default:
        return false;
    }
}

// One operation; what it made or found is forgotten at once, as the kernel does under memory pressure.
Err operate(Filesystem& fs, Prng& random, const std::vector<InodeNumber>& directories)
{
    const InodeNumber a = directories[random.below(directories.size())];
    const InodeNumber b = directories[random.below(directories.size())];
    const std::string name(1, static_cast<char>('a' + random.below(6)));
    const std::string other(1, static_cast<char>('a' + random.below(6)));
    const uint32_t flags[] = {0, RENAME_NOREPLACE, RENAME_EXCHANGE};
    Result<Attributes> made = Err::kNotFound;
    switch (random.below(8)) {
    case 0:
        made = fs.names.make_node(a, name, S_IFREG | 0644, 0, {});
        break;
    case 1:
        made = fs.names.make_node(a, name, S_IFDIR | 0755, 0, {});
        break;
    case 2:
        return fs.names.unlink(a, name).err();
    case 3:
        return fs.names.rmdir(a, name).err();
    case 4:
    case 5:
        return fs.names.rename(a, name, b, other, flags[random.below(3)]).err();
    case 6:
        made = fs.names.lookup(a, name);
        break;
    default: {
        const Result<Attributes> found = fs.names.lookup(a, name);
        if (!found.ok())
            return found.err();
        made = fs.names.link(found->inode, b, other);
        fs.names.forget(found->inode, 1);
        break;
    }
    }
    if (made.ok())
        fs.names.forget(made->inode, 1);
    return made.err();
}

void* work(void* argument)
{
    Worker& worker = *static_cast<Worker*>(argument);
    Prng random(worker.seed);
    for (int i = 0; i < 1500; ++i) {
        const Err err = operate(worker.volume->fs(), random, *worker.directories);
        worker.done += err == Err::kOk;
        worker.unexpected += !expected(err);
        if (i % 300 == 0)
            worker.unexpected += !worker.volume->fs().committer.sync().ok();
    }
    return nullptr;
}

// Names of each inode, directories visited once.
void walk(Filesystem& fs, InodeNumber directory, std::map<uint64_t, uint32_t>& names)
{
    uint32_t subdirectories = 0;
    uint64_t size = 0;
    for (const ListedEntry& entry : list_all(fs, directory, 50)) {
        if (entry.name == "." || entry.name == "..")
            continue;
        size += 2 * entry.name.size();
        ++names[entry.inode.value];
        if (entry.mode_type != S_IFDIR)
            continue;
        ++subdirectories;
        CHECK(fs.names.lookup(entry.inode, "..")->inode == directory);
        fs.names.forget(directory, 1);
        walk(fs, entry.inode, names);
    }
    CHECK(fs.names.get_attributes(directory)->link_count == 2 + subdirectories);
    CHECK(fs.names.get_attributes(directory)->size_bytes == size);
}

void check_counts(Filesystem& fs)
{
    std::map<uint64_t, uint32_t> names;
    walk(fs, kRoot, names);
    for (const auto& [inode, count] : names) {
        const Result<Attributes> found = fs.names.get_attributes({inode});
        REQUIRE(found.ok());
        if (S_ISDIR(found->mode))
            CHECK(count == 1);
        else
            CHECK(found->link_count == count);
    }
    CHECK(fs.statistics().inode_count == names.size() + 1);
}

}  // namespace

TEST_CASE("threads on the same names leave a consistent tree")
{
    TestVolume volume(MountOptions{});
    // Each inside the previous one, and all on the move.
    std::vector<InodeNumber> directories{kRoot};
    for (size_t i = 1; i < kDirectoryCount; ++i)
        directories.push_back(make_directory(volume.fs(), directories.back(), "directory"));
    std::vector<Worker> workers(kThreadCount);
    for (size_t i = 0; i < workers.size(); ++i) {
        workers[i].volume = &volume;
        workers[i].directories = &directories;
        workers[i].seed = i;
        REQUIRE(pthread_create(&workers[i].thread, nullptr, work, &workers[i]) == 0);
    }
    for (Worker& worker : workers) {
        pthread_join(worker.thread, nullptr);
        CHECK(worker.unexpected == 0);
        CHECK(worker.done > 50);
    }
    // Unmounting lets go of every reference and mounting deletes what has no name.
    volume.reopen(manual_options());
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE(volume.fs().step(true).ok());
    check_counts(volume.fs());
    volume.reopen();
    check_counts(volume.fs());
}
