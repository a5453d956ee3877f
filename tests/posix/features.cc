// SPDX-License-Identifier: MIT
// Features that the caller says are missing must be: else nobody would notice when they come.
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"

namespace cowraid::posix {

namespace {

struct Probe {
    Feature feature;
    bool (*works)();
};

bool acl_works()
{
    // u::rw-, g::r--, o::---
    const unsigned char list[]{2, 0, 0,    0,    1,    0,    6,  0, 0xff, 0xff, 0xff, 0xff, 4,    0,
                               4, 0, 0xff, 0xff, 0xff, 0xff, 32, 0, 0,    0,    0xff, 0xff, 0xff, 0xff};
    return setxattr("file", "system.posix_acl_access", list, sizeof list, 0) == 0;
}

bool security_works()
{
    return setxattr("file", "security.test", "x", 1, 0) == 0;
}

bool whiteouts_work()
{
    make_file("source");
    return renameat2(AT_FDCWD, "source", AT_FDCWD, "target", RENAME_WHITEOUT) == 0;
}

bool temporary_files_work()
{
    return UniqueFd(open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)).valid();
}

// A directory that the kernel has forgotten.
bool handles_work()
{
    alignas(file_handle) char room[sizeof(file_handle) + MAX_HANDLE_SZ]{};
    auto* handle = reinterpret_cast<file_handle*>(room);
    handle->handle_bytes = MAX_HANDLE_SZ;
    int mount_id = 0;
    make_directory("directory");
    const UniqueFd here = open_file(".", O_RDONLY | O_DIRECTORY);
    if (name_to_handle_at(AT_FDCWD, "directory", handle, &mount_id, 0) != 0)
        return false;
    const UniqueFd drop = open_file("/proc/sys/vm/drop_caches", O_WRONLY);
    require(write(drop.get(), "2\n", 2) == 2, "drop_caches");
    return UniqueFd(open_by_handle_at(here.get(), handle, O_PATH | O_CLOEXEC)).valid();
}

bool birth_times_work()
{
    struct statx found;
    return statx(AT_FDCWD, "file", 0, STATX_BTIME, &found) == 0 && (found.stx_mask & STATX_BTIME) != 0;
}

bool flags_work()
{
    const UniqueFd fd = open_file("file", O_RDONLY);
    int flags = FS_NODUMP_FL;
    return ioctl(fd.get(), FS_IOC_SETFLAGS, &flags) == 0;
}

bool directory_times_work()
{
    make_directory("listed");
    const timespec before = stat_of("listed").st_atim;
    usleep(12'000);
    DIR* directory = opendir("listed");
    require(directory != nullptr, "opendir");
    while (readdir(directory) != nullptr) { }
    closedir(directory);
    const timespec after = stat_of("listed").st_atim;
    return before.tv_sec != after.tv_sec || before.tv_nsec != after.tv_nsec;
}

constexpr Probe kProbes[]{
    {Feature::kAcl, acl_works},           {Feature::kSecurity, security_works},
    {Feature::kWhiteout, whiteouts_work}, {Feature::kTemporary, temporary_files_work},
    {Feature::kHandles, handles_work},    {Feature::kBirthTime, birth_times_work},
    {Feature::kFlags, flags_work},        {Feature::kDirectoryTimes, directory_times_work},
};
static_assert(std::size(kProbes) == kFeatureCount);

}  // namespace

void test_missing_features()
{
    make_file("file");
    for (const Probe& probe : kProbes)
        if (is_missing(probe.feature))
            expect(!probe.works(), "%s, which is said to be missing, is", feature_name(probe.feature));
}

}  // namespace cowraid::posix
