// SPDX-License-Identifier: MIT
// stat, statx, statfs, and lists of directories.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

constexpr int kEntryCount = 400;

struct ListedEntry {
    uint64_t inode;
    unsigned char type;
    int count;
};
using Listing = std::map<std::string, ListedEntry>;

void add(Listing& listing, const dirent& entry)
{
    ListedEntry& found =
        listing.try_emplace(entry.d_name, ListedEntry{entry.d_ino, entry.d_type, 0}).first->second;
    ++found.count;
}

Listing list(const char* path)
{
    Listing listing;
    DIR* directory = opendir(path);
    require(directory != nullptr, "opendir %s", path);
    while (const dirent* entry = readdir(directory))
        add(listing, *entry);
    closedir(directory);
    return listing;
}

std::string entry_name(int number)
{
    return "d/entry" + std::to_string(number);
}

void make_entries()
{
    make_directory("d");
    for (int i = 0; i < kEntryCount; ++i)
        make_file(entry_name(i));
}

void check_kinds()
{
    std::set<uint64_t> inodes;
    for (const Kind kind : kKinds) {
        if (kind == Kind::kMissing)
            continue;
        make_directory("d");
        make(kind, "d/it");
        const struct stat found = stat_of("d/it");
        const Listing listing = list("d");
        const ListedEntry& entry = listing.at("it");
        expect_equal(IFTODT(found.st_mode), entry.type, "d_type of %s", kind_name(kind));
        expect_equal(static_cast<int64_t>(found.st_ino), static_cast<int64_t>(entry.inode), "d_ino of %s",
                     kind_name(kind));
        expect_equal(1, entry.count, "%s is listed once", kind_name(kind));
        expect_equal(is_directory(kind) ? 2 : 1, static_cast<int64_t>(found.st_nlink), "links of %s",
                     kind_name(kind));
        expect_equal(static_cast<int64_t>(stat_of("d").st_dev), static_cast<int64_t>(found.st_dev),
                     "device of %s is that of its directory", kind_name(kind));
        expect(found.st_blksize >= 512, "block size of %s", kind_name(kind));
        expect(found.st_ino != 0 && inodes.insert(found.st_ino).second, "inode number of %s is its own",
               kind_name(kind));
        const UniqueFd fd = open_file("d/it", O_PATH | O_NOFOLLOW);
        struct stat through;
        expect_result(0, fstat(fd.get(), &through), "fstat of %s through O_PATH", kind_name(kind));
        expect_equal(found.st_mode, through.st_mode, "mode of %s through O_PATH", kind_name(kind));
        expect_result(0, fstatat(fd.get(), "", &through, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW),
                      "fstatat of %s with AT_EMPTY_PATH", kind_name(kind));
        require(rename("d", ("kept" + std::to_string(static_cast<int>(kind))).c_str()) == 0, "rename");
    }
}

void check_birth_times()
{
    if (!has(Feature::kBirthTime, "birth times"))
        return;
    for (const Kind kind : kKinds) {
        if (kind == Kind::kMissing)
            continue;
        timespec before, after;
        clock_gettime(CLOCK_REALTIME, &before);
        make(kind, "born");
        clock_gettime(CLOCK_REALTIME, &after);
        struct statx first, second;
        expect_result(0, statx(AT_FDCWD, "born", AT_SYMLINK_NOFOLLOW, STATX_ALL, &first), "statx of %s",
                      kind_name(kind));
        expect((first.stx_mask & STATX_BTIME) != 0, "%s has a birth time", kind_name(kind));
        expect(first.stx_btime.tv_sec >= before.tv_sec - 1 && first.stx_btime.tv_sec <= after.tv_sec + 1,
               "birth time of %s is that of its creation", kind_name(kind));
        usleep(12'000);
        require(lchown("born", 1, 1) == 0, "lchown");
        require(rename("born", "elsewhere") == 0, "rename");
        expect_result(0, statx(AT_FDCWD, "elsewhere", AT_SYMLINK_NOFOLLOW, STATX_ALL, &second), "statx of %s",
                      kind_name(kind));
        expect(first.stx_btime.tv_sec == second.stx_btime.tv_sec &&
                   first.stx_btime.tv_nsec == second.stx_btime.tv_nsec,
               "birth time of %s never changes", kind_name(kind));
        remove_tree("elsewhere");
        remove_tree("born");
    }
}

void check_statfs()
{
    struct statvfs space;
    expect_result(0, statvfs(".", &space), "statvfs");
    expect_equal(255, static_cast<int64_t>(space.f_namemax), "longest name");
    expect(space.f_bfree <= space.f_blocks && space.f_bavail <= space.f_bfree,
           "free blocks are no more than all");
    expect(space.f_ffree <= space.f_files, "free inodes are no more than all");
    expect_equal(255, pathconf(".", _PC_NAME_MAX), "pathconf of the longest name");
    make_file("file");
    const UniqueFd fd = open_file("file", O_RDONLY);
    struct statvfs through;
    expect_result(0, fstatvfs(fd.get(), &through), "fstatvfs");
    expect_equal(static_cast<int64_t>(space.f_blocks), static_cast<int64_t>(through.f_blocks),
                 "blocks through it");
    expect_equal(static_cast<int64_t>(space.f_fsid), static_cast<int64_t>(through.f_fsid), "id through it");
    // Blocks that a file takes.
    const UniqueFd writer = open_file("file", O_WRONLY);
    const std::string data(65536, 'x');
    require(write(writer.get(), data.data(), data.size()) == 65536 && fsync(writer.get()) == 0, "write");
    expect(stat_of("file").st_blocks >= 128 && stat_of("file").st_blocks <= 512, "blocks of 64 KiB: %ld",
           stat_of("file").st_blocks);
    require(ftruncate(writer.get(), 0) == 0 && fsync(writer.get()) == 0, "ftruncate");
    expect_equal(0, stat_of("file").st_blocks, "blocks of an empty file");
}

void check_whole_list()
{
    make_entries();
    const Listing listing = list("d");
    expect_equal(kEntryCount + 2, static_cast<int64_t>(listing.size()), "entries of a directory");
    for (int i = 0; i < kEntryCount; ++i) {
        const auto at = listing.find(entry_name(i).substr(2));
        expect(at != listing.end() && at->second.count == 1, "entry %d is listed once", i);
    }
    expect_equal(static_cast<int64_t>(stat_of("d").st_ino), static_cast<int64_t>(listing.at(".").inode),
                 "d_ino of \".\"");
    expect_equal(static_cast<int64_t>(stat_of(".").st_ino), static_cast<int64_t>(listing.at("..").inode),
                 "d_ino of \"..\"");
}

// From each position the list goes on as it did the first time.
void check_list_positions()
{
    DIR* directory = opendir("d");
    require(directory != nullptr, "opendir");
    std::vector<std::pair<long, std::string>> seen;
    long position = telldir(directory);
    while (const dirent* entry = readdir(directory)) {
        seen.push_back({position, entry->d_name});
        position = telldir(directory);
    }
    expect_equal(kEntryCount + 2, static_cast<int64_t>(seen.size()), "entries that have positions");
    for (size_t i = 0; i < seen.size(); ++i) {
        const auto& [where, name] = seen[i * 7919 % seen.size()];
        seekdir(directory, where);
        const dirent* entry = readdir(directory);
        expect_text(name, entry == nullptr ? "(end)" : entry->d_name, "entry at the position of %s",
                    name.c_str());
    }
    seekdir(directory, position);
    expect(readdir(directory) == nullptr, "nothing comes at the last position");
    rewinddir(directory);
    const dirent* first = readdir(directory);
    expect_text(seen[0].second, first == nullptr ? "(end)" : first->d_name, "entry after rewinddir");
    closedir(directory);
}

// Half of what was not read yet goes, others come: what was there all the time is read exactly once.
void check_changes_meanwhile()
{
    DIR* directory = opendir("d");
    require(directory != nullptr, "opendir");
    Listing listing;
    for (int i = 0; i < 50; ++i)
        add(listing, *readdir(directory));
    std::set<std::string> stays;
    for (int i = 0; i < kEntryCount; ++i) {
        const std::string path = entry_name(i), name = path.substr(2);
        if (i % 2 == 0)
            require(unlink(path.c_str()) == 0, "unlink");
        else
            stays.insert(name);
        make_file("d/late" + std::to_string(i));
    }
    while (const dirent* entry = readdir(directory))
        add(listing, *entry);
    for (const std::string& name : stays)
        expect(listing.count(name) == 1 && listing[name].count == 1, "%s, which stayed, is listed once",
               name.c_str());
    for (const auto& [name, entry] : listing)
        if (entry.count != 1)
            expect(false, "%s is listed once, not %d times", name.c_str(), entry.count);
    rewinddir(directory);
    int count = 0;
    while (readdir(directory) != nullptr)
        ++count;
    expect_equal(2 + kEntryCount / 2 + kEntryCount, count, "entries after rewinddir");
    closedir(directory);
}

void check_removal_while_listing()
{
    DIR* directory = opendir("d");
    require(directory != nullptr, "opendir");
    while (const dirent* entry = readdir(directory)) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..")
            expect_result(0, unlinkat(dirfd(directory), name.c_str(), 0), "unlink of %s while it is listed",
                          name.c_str());
    }
    closedir(directory);
    expect_equal(2, static_cast<int64_t>(list("d").size()), "entries that are left");
    expect_result(0, rmdir("d"), "rmdir then");
}

}  // namespace

void test_stat()
{
    check_kinds();
    check_birth_times();
    check_statfs();
    struct stat found;
    expect_result(ENOENT, stat("missing", &found), "stat of what is not there");
    expect_result(EBADF, fstat(-1, &found), "fstat of no descriptor");
    expect_result(EFAULT, stat(".", static_cast<struct stat*>(bad_address())), "stat to a bad address");
    expect_result(EINVAL, fstatat(AT_FDCWD, ".", &found, 1 << 30), "fstatat with unknown flags");
    for (const int64_t size : {0, 1, 5000, 1 << 20}) {
        make_file("sized", std::string(static_cast<size_t>(size), 's'));
        expect_equal(size, stat_of("sized").st_size, "size of a file of %ld bytes", size);
        remove_tree("sized");
    }
}

void test_directories()
{
    check_whole_list();
    check_list_positions();
    check_changes_meanwhile();
    check_removal_while_listing();
    make_directory("d");
    const UniqueFd fd = open_file("d", O_RDONLY | O_DIRECTORY);
    char buffer[1000];
    expect_result(EINVAL, syscall(SYS_getdents64, fd.get(), buffer, 10), "getdents into ten bytes");
    expect(syscall(SYS_getdents64, fd.get(), buffer, sizeof buffer) > 0, "getdents of an empty directory");
    expect_equal(0, syscall(SYS_getdents64, fd.get(), buffer, sizeof buffer), "getdents at its end");
    make_file("d/file");
    const UniqueFd file = open_file("d/file", O_RDONLY), path = open_file("d", O_PATH);
    expect_result(ENOTDIR, syscall(SYS_getdents64, file.get(), buffer, sizeof buffer), "getdents of a file");
    expect_result(EBADF, syscall(SYS_getdents64, path.get(), buffer, sizeof buffer),
                  "getdents through O_PATH");
    expect_result(0, unlink("d/file"), "unlink");
    expect_result(0, rmdir("d"), "rmdir");
    expect_equal(0, lseek(fd.get(), 0, SEEK_SET), "lseek of a removed directory");
    const long bytes = syscall(SYS_getdents64, fd.get(), buffer, sizeof buffer);
    expect(bytes == 0 || (bytes < 0 && errno == ENOENT), "a removed directory has no entries");
}

}  // namespace cowraid::posix
