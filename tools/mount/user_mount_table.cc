// SPDX-License-Identifier: MIT
#include "tools/mount/user_mount_table.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "base/unique_fd.h"
#include "control/control_client.h"
#include "control/mount_table.h"

namespace cowraid {

namespace {

constexpr const char* kDirectory = "/run/mount";
constexpr const char* kTable = "/run/mount/utab";
constexpr const char* kLock = "/run/mount/utab.lock";
constexpr const char* kOurOption = "uhelper=fuse.cowraid";
constexpr uint32_t kSoonMilliseconds = 500;

// Blanks and backslashes as \ooo, as the kernel writes them.
std::string escape_blanks(const std::string& text)
{
    std::string out;
    for (const char c : text) {
        if (c != ' ' && c != '\t' && c != '\n' && c != '\\') {
            out += c;
            continue;
        }
        char octal[5];
        snprintf(octal, sizeof octal, "\\%03o", static_cast<unsigned char>(c));
        out += octal;
    }
    return out;
}

std::string read_all(const char* path)
{
    std::string text;
    const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
    char piece[4096];
    ssize_t count;
    while (file.valid() && (count = read(file.get(), piece, sizeof piece)) > 0)
        text.append(piece, static_cast<size_t>(count));
    return text;
}

// Beside the table and renamed over it, as libmount does.
void replace_table(const std::string& text)
{
    std::string path = kTable;
    path += ".XXXXXX";
    const UniqueFd file(mkostemp(path.data(), O_CLOEXEC));
    if (!file.valid())
        return;
    const bool written = write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                         fchmod(file.get(), 0644) == 0;
    if (!written || rename(path.c_str(), kTable) != 0)
        unlink(path.c_str());
}

// Everybody may read the file, and so lock it for ever. The table is not worth waiting for.
bool lock_soon(int fd)
{
    constexpr int kRounds = 100;
    constexpr int kRoundMilliseconds = 20;
    for (int round = 0; round < kRounds; ++round) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        poll(nullptr, 0, kRoundMilliseconds);
    }
    return false;
}

void change_table(const UserMount& entry)
{
    if (geteuid() != 0)
        return;
    mkdir(kDirectory, 0755);
    const UniqueFd lock(open(kLock, O_RDONLY | O_CREAT | O_CLOEXEC, 0644));
    if (!lock.valid() || !lock_soon(lock.get()))
        return;
    const std::string before = read_all(kTable);
    std::vector<std::string> here;
    const auto kernel_table = read_mount_table();
    if (!kernel_table.ok())
        return;
    for (const MountEntry& mount : *kernel_table)
        if (mount.is_cowraid())
            here.push_back(mount.directory);
    std::vector<std::string> mounted = here;
    // The table is shared by mount namespaces. Whoever mounts anything waits for the lock.
    std::vector<int> silent;
    for (const MountedVolume& volume : list_mounted_volumes(&silent, kSoonMilliseconds))
        mounted.push_back(volume.mount_point);
    const std::string after = change_user_table(before, entry, mounted, here, silent.empty());
    if (after != before)
        replace_table(after);
}

}  // namespace

std::string change_user_table(std::string_view table, const UserMount& entry,
                              const std::vector<std::string>& mounted, const std::vector<std::string>& here,
                              bool all_known)
{
    const bool gone = std::find(here.begin(), here.end(), entry.directory) == here.end();
    const bool replaced = gone || !entry.source.empty();
    const std::string target = "TARGET=" + escape_blanks(entry.directory);
    std::vector<std::string> mounted_targets;
    for (const std::string& path : mounted)
        mounted_targets.push_back("TARGET=" + escape_blanks(path));
    std::string out;
    for (const std::string_view line : split(table, '\n')) {
        const auto fields = split(line, ' ');
        const auto has = [&](const std::string& field) {
            return std::find(fields.begin(), fields.end(), field) != fields.end();
        };
        const bool ours = line.find(kOurOption) != std::string_view::npos;
        const bool alive =
            !ours || !all_known || std::any_of(mounted_targets.begin(), mounted_targets.end(), has);
        if (!line.empty() && alive && !(replaced && has(target)))
            out.append(line).append("\n");
    }
    if (entry.source.empty())
        return out;
    const std::string options = entry.options.empty() ? "" : "," + entry.options;
    return out + "SRC=" + escape_blanks(entry.source) + " " + target + " ROOT=/ OPTS=" + kOurOption +
           options + "\n";
}

void add_user_mount(const std::string& source, const std::string& directory, const std::string& options)
{
    change_table({.source = source, .directory = directory, .options = options});
}

void remove_user_mount(const std::string& directory)
{
    change_table({.source = {}, .directory = directory, .options = {}});
}

}  // namespace cowraid
