// SPDX-License-Identifier: MIT
// Which calls change which times of what.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string>

#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

// kAnyAtime: it may change or not.
enum Changed : unsigned { kAtime = 1, kMtime = 2, kCtime = 4, kAnyAtime = 8 };
constexpr unsigned kContent = kMtime | kCtime;

bool differs(timespec a, timespec b)
{
    return a.tv_sec != b.tv_sec || a.tv_nsec != b.tv_nsec;
}

struct TimedCall {
    const char* name;
    bool (*perform)();
    unsigned file, parent, other_parent;  // what changes
};

bool with_fd(int flags, bool (*use)(int fd))
{
    const UniqueFd fd(open("p/file", flags | O_CLOEXEC, 0600));
    return fd.valid() && use(fd.get());
}

bool write_mapped()
{
    return with_fd(O_RDWR, [](int fd) {
        void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (memory == MAP_FAILED)
            return false;
        *static_cast<char*>(memory) = '!';
        const bool synced = msync(memory, 4096, MS_SYNC) == 0;
        return munmap(memory, 4096) == 0 && synced;
    });
}

bool write_direct()
{
    alignas(4096) static char block[4096];
    return with_fd(O_RDWR | O_DIRECT, [](int fd) { return pwrite(fd, block, 4096, 0) == 4096; });
}

bool copy_into()
{
    const UniqueFd from(open("p/other", O_RDONLY | O_CLOEXEC));
    off64_t in = 0, out = 0;
    const UniqueFd to(open("p/file", O_RDWR | O_CLOEXEC));
    return copy_file_range(from.get(), &in, to.get(), &out, 3, 0) == 3;
}

bool exchange_names()
{
    return renameat2(AT_FDCWD, "p/file", AT_FDCWD, "q/other", RENAME_EXCHANGE) == 0 &&
           renameat2(AT_FDCWD, "p/file", AT_FDCWD, "q/other", RENAME_EXCHANGE) == 0;
}

bool set_both_times()
{
    return utimensat(AT_FDCWD, "p/file", nullptr, 0) == 0;
}

bool set_only_atime()
{
    const timespec times[]{{.tv_sec = 5, .tv_nsec = 5}, {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
    return utimensat(AT_FDCWD, "p/file", times, 0) == 0;
}

bool create_new()
{
    return UniqueFd(open("p/new", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)).valid();
}

const TimedCall kTimedCalls[]{
    {"write", [] { return with_fd(O_RDWR, [](int fd) { return write(fd, "x", 1) == 1; }); }, kContent, 0, 0},
    {"pwrite behind the end",
     [] { return with_fd(O_RDWR, [](int fd) { return pwrite(fd, "x", 1, 9999) == 1; }); }, kContent, 0, 0},
    {"write of nothing", [] { return with_fd(O_RDWR, [](int fd) { return write(fd, "x", 0) == 0; }); }, 0, 0,
     0},
    {"direct write", write_direct, kContent, 0, 0},
    {"write through a mapping", write_mapped, kContent | kAnyAtime, 0, 0},
    {"truncate", [] { return truncate("p/file", 3) == 0; }, kContent, 0, 0},
    {"growing truncate", [] { return truncate("p/file", 30000) == 0; }, kContent, 0, 0},
    {"ftruncate to the same size",
     [] { return with_fd(O_RDWR, [](int fd) { return ftruncate(fd, 7) == 0; }); }, kContent, 0, 0},
    {"open with O_TRUNC", [] { return with_fd(O_RDWR | O_TRUNC, [](int) { return true; }); }, kContent, 0, 0},
    {"fallocate", [] { return with_fd(O_RDWR, [](int fd) { return fallocate(fd, 0, 0, 9000) == 0; }); },
     kContent, 0, 0},
    {"punch", [] { return with_fd(O_RDWR, [](int fd) { return fallocate(fd, 3, 0, 4096) == 0; }); }, kContent,
     0, 0},
    {"copy_file_range", copy_into, kContent, 0, 0},
    {"chmod", [] { return chmod("p/file", 0600) == 0; }, kCtime, 0, 0},
    {"chmod to the same mode", [] { return chmod("p/file", 0666) == 0; }, kCtime, 0, 0},
    {"chown", [] { return chown("p/file", 1, 1) == 0; }, kCtime, 0, 0},
    {"utimensat to now", set_both_times, kAtime | kMtime | kCtime, 0, 0},
    {"utimensat of atime", set_only_atime, kAtime | kCtime, 0, 0},
    {"setxattr", [] { return setxattr("p/file", "user.b", "1", 1, 0) == 0; }, kCtime, 0, 0},
    {"removexattr", [] { return removexattr("p/file", "user.a") == 0; }, kCtime, 0, 0},
    {"link", [] { return link("p/file", "p/linked") == 0; }, kCtime, kContent, 0},
    {"link elsewhere", [] { return link("p/file", "q/linked") == 0; }, kCtime, 0, kContent},
    {"unlink of another name", [] { return unlink("p/second") == 0; }, kCtime, kContent, 0},
    {"rename", [] { return rename("p/file", "p/f") == 0 && rename("p/f", "p/file") == 0; }, kCtime, kContent,
     0},
    {"rename elsewhere", [] { return rename("p/file", "q/f") == 0 && rename("q/f", "p/file") == 0; }, kCtime,
     kContent, kContent},
    {"rename over it", [] { return rename("p/other", "p/second") == 0; }, kCtime, kContent, 0},
    {"exchange", exchange_names, kCtime, kContent, kContent},
    {"creation", create_new, 0, kContent, 0},
    {"mkdir", [] { return mkdir("p/new", 0700) == 0; }, 0, kContent, 0},
    {"mkfifo", [] { return mkfifo("p/new", 0700) == 0; }, 0, kContent, 0},
    {"symlink", [] { return symlink("x", "p/new") == 0; }, 0, kContent, 0},
    {"rmdir", [] { return rmdir("p/directory") == 0; }, 0, kContent, 0},
    {"unlink of another file", [] { return unlink("p/other") == 0; }, 0, kContent, 0},
    {"writing to another file", [] { return truncate("p/other", 1) == 0; }, 0, 0, 0},
    {"a refused creation", [] { return mkdir("p/file", 0700) != 0; }, 0, 0, 0},
    {"a refused unlink", [] { return unlink("p/missing") != 0; }, 0, 0, 0},
    {"a refused rmdir", [] { return rmdir("p/file") != 0; }, 0, 0, 0},
    {"open for writing", [] { return with_fd(O_WRONLY | O_CREAT | O_APPEND, [](int) { return true; }); }, 0,
     0, 0},
    {"stat", [] { return access("p/file", R_OK) == 0; }, 0, 0, 0},
    {"fsync", [] { return with_fd(O_RDWR, [](int fd) { return fsync(fd) == 0; }); }, 0, 0, 0},
    {"getxattr", [] { return getxattr("p/file", "user.a", nullptr, 0) == 1; }, 0, 0, 0},
    {"lseek", [] { return with_fd(O_RDWR, [](int fd) { return lseek(fd, 0, SEEK_DATA) == 0; }); }, 0, 0, 0},
};

void expect_changes(const struct stat& before, const struct stat& after, unsigned wanted, const char* what,
                    const char* call)
{
    const auto say = [&](bool changed, unsigned bit, const char* time) {
        expect(changed == ((wanted & bit) != 0), "%s of %s %s with %s", time, what,
               (wanted & bit) != 0 ? "changes" : "does not change", call);
    };
    if ((wanted & kAnyAtime) == 0)
        say(differs(before.st_atim, after.st_atim), kAtime, "atime");
    say(differs(before.st_mtim, after.st_mtim), kMtime, "mtime");
    say(differs(before.st_ctim, after.st_ctim), kCtime, "ctime");
}

// Longer than the clock that filesystems of the kernel take times from needs for a step.
void let_time_pass()
{
    usleep(12'000);
}

void check_times_of(const TimedCall& call)
{
    make_directory("p");
    make_directory("q");
    make_file("p/file", "content");
    make_file("p/other", "other");
    make_file("q/other");
    make_directory("p/directory");
    require(link("p/file", "p/second") == 0, "link");
    require(setxattr("p/file", "user.a", "1", 1, 0) == 0, "setxattr");
    const UniqueFd keeps = open_file("p/file", O_PATH);
    const struct stat file = stat_of("p/file"), parent = stat_of("p"), other = stat_of("q");
    let_time_pass();
    errno = 0;
    expect(call.perform(), "%s does what it should (errno %d)", call.name, errno);
    struct stat after;
    require(fstat(keeps.get(), &after) == 0, "fstat");
    expect_changes(file, after, call.file, "the file", call.name);
    expect_changes(parent, stat_of("p"), call.parent, "its parent", call.name);
    expect_changes(other, stat_of("q"), call.other_parent, "another directory", call.name);
    remove_tree("p");
    remove_tree("q");
}

void read_directory(const char* path)
{
    DIR* directory = opendir(path);
    require(directory != nullptr, "opendir");
    while (readdir(directory) != nullptr) { }
    closedir(directory);
}

bool atime_changes(const char* path, void (*read_it)(const char* path))
{
    const struct stat before = stat_of(path);
    let_time_pass();
    read_it(path);
    return differs(before.st_atim, stat_of(path).st_atim);
}

// The page cache has none of it: what a filesystem of FUSE does not hear of changes no time.
void read_file(const char* path)
{
    const UniqueFd fd = open_file(path, O_RDONLY);
    require(fsync(fd.get()) == 0 && posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0, "drop pages");
    require(content_of(path) == "content", "read %s", path);
}

void read_link(const char* path)
{
    char text[10];
    require(readlink(path, text, sizeof text) > 0, "readlink %s", path);
}

}  // namespace

void test_changed_times()
{
    for (const TimedCall& call : kTimedCalls)
        check_times_of(call);
    // What is new has the time of its creation, all three of it.
    timespec before, after;
    clock_gettime(CLOCK_REALTIME, &before);
    for (const Kind kind : kKinds) {
        if (kind == Kind::kMissing)
            continue;
        make(kind, "it");
        clock_gettime(CLOCK_REALTIME, &after);
        const struct stat found = stat_of("it");
        for (const timespec& time : {found.st_atim, found.st_mtim, found.st_ctim})
            expect(time.tv_sec >= before.tv_sec - 1 && time.tv_sec <= after.tv_sec + 1,
                   "times of %s that is new are those of its creation", kind_name(kind));
        remove_tree("it");
    }
}

void test_read_times()
{
    struct statvfs flags;
    require(statvfs(".", &flags) == 0, "statvfs");
    if ((flags.f_flag & (ST_NOATIME | ST_RELATIME)) != ST_RELATIME)
        return;
    make_file("file", "content");
    make_directory("directory");
    make_file("directory/inside");
    make(Kind::kDanglingLink, "link");
    let_time_pass();
    expect(atime_changes("file", read_file), "atime of a file changes with the first read after a write");
    expect(!atime_changes("file", read_file), "atime of a file does not change with the next read");
    expect(!atime_changes("directory", [](const char*) { stat_of("directory/inside"); }),
           "atime of a directory does not change with a lookup");
    if (has(Feature::kDirectoryTimes, "atime of directories and links")) {
        expect(atime_changes("directory", read_directory),
               "atime of a directory changes with the first listing");
        expect(!atime_changes("directory", read_directory),
               "atime of a directory stays with the next listing");
        make_file("directory/more");
        expect(atime_changes("directory", read_directory), "atime of a directory changes after a change");
        expect(atime_changes("link", read_link), "atime of a link changes with the first readlink");
        expect(!atime_changes("link", read_link), "atime of a link stays with the next readlink");
    }
    // Older than a day: relatime updates it all the same.
    for (const char* path : {"file", "directory"}) {
        if (path[0] == 'd' && is_missing(Feature::kDirectoryTimes))
            continue;
        const time_t now = time(nullptr);
        const timespec times[]{{.tv_sec = now - 90000, .tv_nsec = 0}, {.tv_sec = now - 200000, .tv_nsec = 0}};
        require(utimensat(AT_FDCWD, path, times, 0) == 0, "utimensat");
        expect(atime_changes(path, path[0] == 'd' ? read_directory : read_file),
               "atime of the %s changes when it is older than a day", path);
    }
    const UniqueFd fd = open_file("file", O_RDONLY | O_NOATIME);
    require(utimensat(AT_FDCWD, "file", nullptr, 0) == 0, "utimensat");
    let_time_pass();
    require(truncate("file", 5) == 0, "truncate");
    const struct stat before = stat_of("file");
    let_time_pass();
    require(posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0, "drop pages");
    char text[10];
    expect_equal(5, read(fd.get(), text, 10), "read through O_NOATIME");
    expect(!differs(before.st_atim, stat_of("file").st_atim), "atime stays with O_NOATIME");
}

}  // namespace cowraid::posix
