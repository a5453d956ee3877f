// SPDX-License-Identifier: MIT
// Operations of a Runner that change names and descriptors, and those that must change nothing.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <string_view>
#include <utility>

#include "tests/fileops/runner.h"

namespace cowraid::test {

void Runner::rename_over()
{
    OpenFile* from = any_named();
    OpenFile* to = any_named();
    if (from == nullptr || to == nullptr || from == to)
        return;
    history_.note(" %s over %s", from->path.c_str(), to->path.c_str());
    if (rename(from->path.c_str(), to->path.c_str()) != 0)
        history_.refused("rename", -1);
    from->path = std::exchange(to->path, "");
}

void Runner::exchange()
{
    OpenFile* from = any_named();
    OpenFile* to = any_named();
    if (from == nullptr || to == nullptr || from == to)
        return;
    history_.note(" %s and %s", from->path.c_str(), to->path.c_str());
    if (renameat2(AT_FDCWD, from->path.c_str(), AT_FDCWD, to->path.c_str(), RENAME_EXCHANGE) != 0)
        history_.refused("renameat2", -1);
    std::swap(from->path, to->path);
}

void Runner::unlink_open()
{
    OpenFile* file = any_named();
    if (file == nullptr)
        return;
    history_.note(" %s", file->path.c_str());
    if (unlink(file->path.c_str()) != 0)
        history_.refused("unlink", -1);
    file->path.clear();
}

void Runner::close_nameless()
{
    const auto file =
        std::find_if(files_.begin(), files_.end(), [](const auto& open) { return open->path.empty(); });
    if (file == files_.end())
        return;
    compare_through(**file, Way::kBuffered);
    files_.erase(file);
}

void Runner::reopen()
{
    OpenFile& file = any_file();
    note(file, "", 0, 0);
    file.reopen(random_);
}

void Runner::unmap()
{
    OpenFile& file = any_file();
    note(file, "", 0, 0);
    file.unmap();
}

// How the file is stored from now on. An empty value takes the property away. Other filesystems have none.
void Runner::set_compression()
{
    constexpr const char* kName = "btrfs.compression";
    constexpr std::string_view kValues[]{"zstd", "zstd", "none", ""};
    OpenFile& file = any_file();
    const std::string_view value = kValues[random_.below(std::size(kValues))];
    note(file, value.data(), 0, 0);
    const int fd = file.descriptor(Way::kBuffered, random_);
    const bool removes = value.empty() && random_.chance(1, 2);
    const int result =
        removes ? fremovexattr(fd, kName) : fsetxattr(fd, kName, value.data(), value.size(), 0);
    if (result != 0 && !(removes && errno == ENODATA) && errno != EOPNOTSUPP)
        history_.refused("set btrfs.compression", result);
}

void Runner::sync_file()
{
    OpenFile& file = any_file();
    const int fd = file.descriptor(static_cast<Way>(random_.below(kWayCount)), random_);
    const uint64_t how = random_.below(5);
    constexpr const char* kCalls[]{"fsync", "fdatasync", "sync_file_range", "syncfs", "msync"};
    history_.note(" %s", kCalls[how]);
    note(file, "", 0, 0);
    int result = 0;
    if (how == 0) {
        result = fsync(fd);
    } else if (how == 1) {
        result = fdatasync(fd);
    } else if (how == 2) {
        constexpr unsigned kAll =
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
        result = sync_file_range(fd, 0, 0, kAll);
    } else if (how == 3) {
        result = random_.chance(1, 4) ? syncfs(fd) : 0;
    } else {
        const std::span<std::byte> mapping = file.mapping(random_);
        result = msync(mapping.data(), mapping.size(), MS_SYNC);
    }
    if (result != 0)
        history_.refused(kCalls[how], result);
}

void Runner::drop_pages()
{
    OpenFile& file = any_file();
    note(file, "", 0, 0);
    const int fd = file.descriptor(Way::kBuffered, random_);
    if (posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        history_.refused("posix_fadvise", -1);
    const std::span<std::byte> mapping = file.mapping(random_);
    if (random_.chance(1, 2) && madvise(mapping.data(), mapping.size(), MADV_DONTNEED) != 0)
        history_.refused("madvise", -1);
}

void Runner::drop_caches()
{
    if (!options_.drops_caches || !random_.chance(1, 4))
        return;
    const char* kind = random_.chance(1, 2) ? "1\n" : "3\n";
    history_.note(" %c", kind[0]);
    const UniqueFd fd(open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC));
    if (!fd.valid() || ::write(fd.get(), kind, 2) != 2)
        history_.refused("write to drop_caches", -1);
}

}  // namespace cowraid::test
