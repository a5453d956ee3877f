// SPDX-License-Identifier: MIT
#include "tests/posix/objects.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace cowraid::posix {

namespace {

constexpr const char* kKindNames[kKindCount]{"nothing",
                                             "a file",
                                             "an empty directory",
                                             "a full directory",
                                             "a link to a file",
                                             "a link to a directory",
                                             "a dangling link",
                                             "a loop of links",
                                             "a fifo",
                                             "a socket",
                                             "a character device",
                                             "a block device"};

std::string named_by(const std::string& path)
{
    return path + ".named";
}

void make_link(const std::string& to, const std::string& path)
{
    require(symlink(to.substr(to.rfind('/') + 1).c_str(), path.c_str()) == 0, "symlink %s", path.c_str());
}

void make_node(const std::string& path, mode_t type, dev_t device)
{
    require(mknod(path.c_str(), type | 0777, device) == 0, "mknod %s", path.c_str());
}

}  // namespace

void require(bool condition, const char* format, ...)
{
    if (condition)
        return;
    const int error = errno;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, ": %s\n", strerror(error));
    fflush(stdout);
    _exit(2);
}

void* bad_address()
{
    static volatile uintptr_t address = 8;  // the compiler must not see it
    return reinterpret_cast<void*>(address);
}

const char* kind_name(Kind kind)
{
    return kKindNames[static_cast<size_t>(kind)];
}

bool is_directory(Kind kind)
{
    return kind == Kind::kDirectory || kind == Kind::kFullDirectory;
}

bool is_link(Kind kind)
{
    return kind == Kind::kLinkToFile || kind == Kind::kLinkToDirectory || kind == Kind::kDanglingLink ||
           kind == Kind::kLinkLoop;
}

void make(Kind kind, const std::string& path)
{
    switch (kind) {
    case Kind::kMissing:
        return;
    case Kind::kFile:
        return make_file(path, "content", 0777);
    case Kind::kFullDirectory:
        make_directory(path);
        return make_file(path + "/inside", "", 0777);
    case Kind::kDirectory:
        return make_directory(path);
    case Kind::kLinkToFile:
        make_file(named_by(path), "named", 0777);
        return make_link(named_by(path), path);
    case Kind::kLinkToDirectory:
        make_directory(named_by(path));
        return make_link(named_by(path), path);
    case Kind::kDanglingLink:
        return make_link(named_by(path), path);
    case Kind::kLinkLoop:
        return make_link(path, path);
    case Kind::kFifo:
        return make_node(path, S_IFIFO, 0);
    case Kind::kSocket:
        return make_node(path, S_IFSOCK, 0);
    case Kind::kCharacterDevice:
        return make_node(path, S_IFCHR, makedev(1, 3));
    case Kind::kBlockDevice:
        return make_node(path, S_IFBLK, makedev(245, 77));
    }
}

void remove_tree(const std::string& path)
{
    std::error_code error;
    for (const std::string& name : {path, named_by(path)}) {
        std::filesystem::remove_all(name, error);
        errno = error.value();
        require(!error, "remove %s", name.c_str());
    }
}

Kind kind_at(const std::string& path)
{
    struct stat found, named;
    if (lstat(path.c_str(), &found) != 0)
        return Kind::kMissing;
    switch (found.st_mode & S_IFMT) {
    case S_IFDIR:
        return std::filesystem::is_empty(path) ? Kind::kDirectory : Kind::kFullDirectory;
    case S_IFLNK:
        if (stat(path.c_str(), &named) != 0)
            return errno == ELOOP ? Kind::kLinkLoop : Kind::kDanglingLink;
        return S_ISDIR(named.st_mode) ? Kind::kLinkToDirectory : Kind::kLinkToFile;
    case S_IFIFO:
        return Kind::kFifo;
    case S_IFSOCK:
        return Kind::kSocket;
    case S_IFCHR:
        return Kind::kCharacterDevice;
    case S_IFBLK:
        return Kind::kBlockDevice;
    default:
        return Kind::kFile;
    }
}

void make_directory(const std::string& path, mode_t mode)
{
    require(mkdir(path.c_str(), 0777) == 0, "mkdir %s", path.c_str());
    set_mode(path, mode);
}

void make_file(const std::string& path, const std::string& content, mode_t mode)
{
    const UniqueFd fd = open_file(path, O_WRONLY | O_CREAT | O_EXCL);
    require(write(fd.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()),
            "write %s", path.c_str());
    require(fchmod(fd.get(), mode) == 0, "fchmod %s", path.c_str());
}

void set_owner(const std::string& path, uid_t uid, gid_t gid)
{
    require(lchown(path.c_str(), uid, gid) == 0, "lchown %s", path.c_str());
}

void set_mode(const std::string& path, mode_t mode)
{
    require(chmod(path.c_str(), mode) == 0, "chmod %s", path.c_str());
}

struct stat stat_of(const std::string& path)
{
    struct stat found;
    require(lstat(path.c_str(), &found) == 0, "lstat %s", path.c_str());
    return found;
}

mode_t mode_of(const std::string& path)
{
    return stat_of(path).st_mode & 07777;
}

void apart(void (*body)())
{
    const UniqueFd here = open_file(".", O_RDONLY | O_DIRECTORY);
    make_directory("apart");
    require(chdir("apart") == 0, "chdir");
    body();
    require(fchdir(here.get()) == 0, "fchdir");
    remove_tree("apart");
}

std::string content_of(const std::string& path)
{
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string content;
    char piece[4096];
    ssize_t bytes;
    while (fd.valid() && (bytes = read(fd.get(), piece, sizeof piece)) > 0)
        content.append(piece, static_cast<size_t>(bytes));
    return content;
}

UniqueFd open_file(const std::string& path, int flags, mode_t mode)
{
    UniqueFd fd(open(path.c_str(), flags | O_CLOEXEC, mode));
    require(fd.valid(), "open %s", path.c_str());
    return fd;
}

}  // namespace cowraid::posix
