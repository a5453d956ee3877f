// SPDX-License-Identifier: MIT
#include "tools/user_mount_table.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>

#include "base/unique_fd.h"
#include "tools/text.h"

namespace cowraid {

namespace {

constexpr const char* kDirectory = "/run/mount";
constexpr const char* kTable = "/run/mount/utab";
constexpr const char* kLock = "/run/mount/utab.lock";
constexpr const char* kEntryTail = " ROOT=/ OPTS=uhelper=fuse.cowraid\n";

// Blanks and backslashes as \ooo, as the kernel writes them.
std::string escape(const std::string& text)
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
    std::string path = std::string(kTable) + ".XXXXXX";
    const UniqueFd file(mkostemp(path.data(), O_CLOEXEC));
    if (!file.valid())
        return;
    const bool written = write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                         fchmod(file.get(), 0644) == 0;
    if (!written || rename(path.c_str(), kTable) != 0)
        unlink(path.c_str());
}

void change_table(const std::string& source, const std::string& directory)
{
    if (geteuid() != 0)
        return;
    mkdir(kDirectory, 0755);
    const UniqueFd lock(open(kLock, O_RDONLY | O_CREAT | O_CLOEXEC, 0644));
    if (!lock.valid() || flock(lock.get(), LOCK_EX) != 0)
        return;
    const std::string before = read_all(kTable);
    const std::string after = change_user_table(before, source, directory);
    if (after != before)
        replace_table(after);
}

}  // namespace

std::string change_user_table(std::string_view table, const std::string& source, const std::string& directory)
{
    const std::string target = "TARGET=" + escape(directory);
    std::string out;
    for (const std::string_view line : split(table, '\n')) {
        bool same = line.empty();
        for (const std::string_view field : split(line, ' '))
            same = same || field == target;
        if (!same)
            out.append(line).append("\n");
    }
    if (!source.empty())
        out += "SRC=" + escape(source) + " " + target + kEntryTail;
    return out;
}

void add_umount_helper(const std::string& source, const std::string& directory)
{
    change_table(source, directory);
}

void remove_umount_helper(const std::string& directory)
{
    change_table({}, directory);
}

}  // namespace cowraid
