// SPDX-License-Identifier: MIT
// Handles, open files without names, descriptors that are passed on, inode flags, temporary files.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
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
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

struct Handle {
    union {
        file_handle handle;
        char room[sizeof(file_handle) + MAX_HANDLE_SZ];
    };
    int mount_id;
};

int handle_of(const char* path, Handle& out)
{
    memset(static_cast<void*>(&out), 0, sizeof out);
    out.handle.handle_bytes = MAX_HANDLE_SZ;
    return name_to_handle_at(AT_FDCWD, path, &out.handle, &out.mount_id, 0);
}

bool same_handle(const Handle& a, const Handle& b)
{
    return a.handle.handle_bytes == b.handle.handle_bytes && a.handle.handle_type == b.handle.handle_type &&
           memcmp(a.room + sizeof(file_handle), b.room + sizeof(file_handle), a.handle.handle_bytes) == 0;
}

UniqueFd open_handle(int mount, Handle& handle, int flags)
{
    return UniqueFd(open_by_handle_at(mount, &handle.handle, flags | O_CLOEXEC));
}

void drop_inodes()
{
    const UniqueFd fd = open_file("/proc/sys/vm/drop_caches", O_WRONLY);
    require(write(fd.get(), "2\n", 2) == 2, "drop_caches");
}

void check_handle_of_kind(Kind kind, int mount)
{
    make(kind, "it");
    const uint64_t inode = stat_of("it").st_ino;
    Handle handle;
    expect_result(0, handle_of("it", handle), "name_to_handle_at of %s", kind_name(kind));
    const auto check = [&](const char* when) {
        const UniqueFd fd = open_handle(mount, handle, O_PATH);
        struct stat found { };
        expect_result(0, fd.get(), "open_by_handle_at of %s %s", kind_name(kind), when);
        expect_result(0, fstat(fd.get(), &found), "fstat of %s opened by handle %s", kind_name(kind), when);
        expect_equal(static_cast<int64_t>(inode), static_cast<int64_t>(found.st_ino),
                     "inode of %s opened by handle %s", kind_name(kind), when);
    };
    check("at once");
    require(rename("it", "moved") == 0, "rename");
    check("after rename");
    drop_inodes();
    check("after the kernel forgot it");
    Handle again;
    expect_result(0, handle_of("moved", again), "name_to_handle_at of %s again", kind_name(kind));
    expect(same_handle(handle, again), "the handle of %s stays the same", kind_name(kind));
    remove_tree("moved");
    drop_inodes();
    expect_result(ESTALE, open_handle(mount, handle, O_PATH).get(), "open_by_handle_at of %s that is gone",
                  kind_name(kind));
    make(kind, "it");
    expect_result(ESTALE, open_handle(mount, handle, O_PATH).get(), "the handle of %s is of no later one",
                  kind_name(kind));
    remove_tree("it");
    remove_tree("moved");
}

// That the suite sets. Others are the filesystem's business.
constexpr int kKnownFlags = FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NODUMP_FL | FS_NOATIME_FL;

int flags_of(const std::string& path, int& flags)
{
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    return ioctl(fd.get(), FS_IOC_GETFLAGS, &flags);
}

int set_flags(const std::string& path, int flags)
{
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    int all = 0;
    if (ioctl(fd.get(), FS_IOC_GETFLAGS, &all) != 0)
        return -1;
    flags |= all & ~kKnownFlags;
    return ioctl(fd.get(), FS_IOC_SETFLAGS, &flags);
}

int known_flags(const std::string& path)
{
    int flags = 0;
    if (flags_of(path, flags) != 0)
        return -1;
    return flags & kKnownFlags;
}

struct FlaggedCall {
    const char* name;
    int (*perform)();
    int immutable, append;  // errors
};

int opened(const char* path, int flags)
{
    const UniqueFd fd(open(path, flags | O_CLOEXEC, 0600));
    return fd.valid() ? 0 : -1;
}

constexpr FlaggedCall kFlaggedCalls[]{
    {"open for reading", [] { return opened("d/it", O_RDONLY); }, 0, 0},
    {"open for writing", [] { return opened("d/it", O_WRONLY); }, EPERM, EPERM},
    {"open for appending", [] { return opened("d/it", O_WRONLY | O_APPEND); }, EPERM, 0},
    {"open with O_TRUNC", [] { return opened("d/it", O_WRONLY | O_TRUNC); }, EPERM, EPERM},
    {"truncate", [] { return truncate("d/it", 0); }, EPERM, EPERM},
    {"chmod", [] { return chmod("d/it", 0600); }, EPERM, EPERM},
    {"chown", [] { return chown("d/it", 1, 1); }, EPERM, EPERM},
    {"setting of times",
     [] {
         const timespec times[]{{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
         return utimensat(AT_FDCWD, "d/it", times, 0);
     },
     EPERM, EPERM},
    {"times set to now", [] { return utimensat(AT_FDCWD, "d/it", nullptr, 0); }, EPERM, 0},
    {"setxattr", [] { return setxattr("d/it", "user.a", "1", 1, 0); }, EPERM, EPERM},
    {"link", [] { return link("d/it", "d/linked"); }, EPERM, EPERM},
    {"rename", [] { return rename("d/it", "d/renamed"); }, EPERM, EPERM},
    {"rename over it", [] { return rename("d/other", "d/it"); }, EPERM, EPERM},
    {"unlink", [] { return unlink("d/it"); }, EPERM, EPERM},
    {"stat", [] { return access("d/it", R_OK); }, 0, 0},
};

constexpr FlaggedCall kFlaggedDirectoryCalls[]{
    {"creating below", [] { return opened("d/new", O_WRONLY | O_CREAT); }, EPERM, 0},
    {"mkdir below", [] { return mkdir("d/newer", 0700); }, EPERM, 0},
    {"unlink below", [] { return unlink("d/it"); }, EPERM, EPERM},
    {"rename below", [] { return rename("d/it", "d/renamed"); }, EPERM, EPERM},
    {"opening below for writing", [] { return opened("d/it", O_WRONLY); }, 0, 0},
    {"rmdir", [] { return rmdir("d"); }, EPERM, EPERM},
    {"rename of it", [] { return rename("d", "e"); }, EPERM, EPERM},
    {"chmod", [] { return chmod("d", 0700); }, EPERM, EPERM},
    {"listing", [] { return opened("d", O_RDONLY | O_DIRECTORY); }, 0, 0},
};

void check_flagged(const FlaggedCall& call, const char* path, int flag, const char* flag_text, int error)
{
    make_directory("d");
    make_file("d/it", "content");
    make_file("d/other", "other");
    expect_result(0, set_flags(path, flag), "setting the flag %s before %s", flag_text, call.name);
    expect_equal(flag, known_flags(path), "flags after setting %s", flag_text);
    expect_result(error, call.perform(), "%s with the flag %s on %s", call.name, flag_text, path);
    if (error != 0)
        expect_text("content", content_of("d/it"), "content after refused %s", call.name);
    if (kind_at(path) != Kind::kMissing) {
        expect_result(0, set_flags(path, 0), "clearing the flag %s after %s", flag_text, call.name);
        expect_equal(0, known_flags(path), "flags after %s was cleared", flag_text);
    }
    remove_tree("d");
}

void check_unlinked()
{
    make_file("file", "content");
    const UniqueFd fd = open_file("file", O_RDWR);
    require(fsetxattr(fd.get(), "user.a", "kept", 4, 0) == 0, "fsetxattr");
    expect_result(0, unlink("file"), "unlink of an open file");
    struct stat found;
    expect_result(0, fstat(fd.get(), &found), "fstat of it");
    expect_equal(0, static_cast<int64_t>(found.st_nlink), "its links");
    expect_equal(7, found.st_size, "its size");
    char text[20] = "";
    expect_equal(7, pread(fd.get(), text, sizeof text, 0), "pread of it");
    expect_text("content", text, "its content");
    expect_equal(4, pwrite(fd.get(), "more", 4, 7), "pwrite to it");
    expect_result(0, ftruncate(fd.get(), 9), "ftruncate of it");
    expect_result(0, fchmod(fd.get(), 0600), "fchmod of it");
    expect_result(0, fchown(fd.get(), 5, 6), "fchown of it");
    expect_result(0, fsync(fd.get()), "fsync of it");
    expect_result(0, futimens(fd.get(), nullptr), "futimens of it");
    expect_equal(4, fgetxattr(fd.get(), "user.a", text, sizeof text), "fgetxattr of it");
    expect_result(0, fremovexattr(fd.get(), "user.a"), "fremovexattr of it");
    const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
    const UniqueFd again = open_file(path, O_RDONLY);
    memset(text, 0, sizeof text);
    expect_equal(9, read(again.get(), text, sizeof text), "read through another descriptor");
    expect_text("contentmo", text, "what it reads");
    expect_result(ENOENT, linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "back", AT_SYMLINK_FOLLOW),
                  "link of what has no name any more");
    make_file("file", "another");
    expect_text("another", content_of("file"), "content of a new file of that name");
    expect_result(0, fstat(fd.get(), &found), "fstat of the first");
    expect_equal(9, found.st_size, "size of the first");
}

void check_passed_descriptor()
{
    make_file("secret", "secret", 0600);
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    const UniqueFd fd = open_file("secret", O_RDWR);
    char byte = 'x';
    iovec piece{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int sent = fd.get();
    memcpy(CMSG_DATA(header), &sent, sizeof sent);
    require(sendmsg(ends[0], &message, 0) == 1, "sendmsg");
    as(users.alice, [&] {
        require(recvmsg(ends[1], &message, MSG_CMSG_CLOEXEC) == 1, "recvmsg");
        int received = -1;
        memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
        const UniqueFd got(received);
        expect_result(EACCES, opened("secret", O_RDONLY), "open by a user of a file of root");
        char text[10] = "";
        expect_equal(6, pread(got.get(), text, 9, 0), "pread through a descriptor that was passed");
        expect_text("secret", text, "what it reads");
        expect_equal(4, pwrite(got.get(), "told", 4, 0), "pwrite through it");
        expect_result(EPERM, fchmod(got.get(), 0666), "fchmod through it");
        const std::string path = "/proc/self/fd/" + std::to_string(got.get());
        expect_result(EACCES, opened(path.c_str(), O_RDONLY), "opening it anew");
    });
    expect_text("toldet", content_of("secret"), "content after that");
}

UniqueFd temporary(const char* directory, int flags)
{
    return UniqueFd(open(directory, O_TMPFILE | O_CLOEXEC | flags, 0640));
}

}  // namespace

void test_handles()
{
    if (!has(Feature::kHandles, "handles"))
        return;
    const UniqueFd here = open_file(".", O_RDONLY | O_DIRECTORY);
    for (const Kind kind : {Kind::kFile, Kind::kDirectory, Kind::kDanglingLink, Kind::kFifo, Kind::kSocket})
        check_handle_of_kind(kind, here.get());
    make_file("file", "content");
    require(link("file", "linked") == 0, "link");
    Handle first, second;
    expect_result(0, handle_of("file", first), "handle of a file");
    expect_result(0, handle_of("linked", second), "handle of its other name");
    expect(same_handle(first, second), "both names have one handle");
    const UniqueFd fd = open_handle(here.get(), first, O_RDWR);
    expect_result(0, fd.get(), "open_by_handle_at for reading and writing");
    char text[10] = "";
    expect_equal(7, pread(fd.get(), text, 9, 0), "pread through it");
    expect_text("content", text, "what it reads");
    Handle small;
    memset(static_cast<void*>(&small), 0, sizeof small);
    expect_result(EOVERFLOW, name_to_handle_at(AT_FDCWD, "file", &small.handle, &small.mount_id, 0),
                  "name_to_handle_at without room");
    expect_equal(first.handle.handle_bytes, small.handle.handle_bytes, "the room that it asks for");
    as(users.alice, [&] {
        expect_result(EPERM, open_handle(here.get(), first, O_RDONLY).get(), "open_by_handle_at by a user");
        Handle own;
        expect_result(0, handle_of("file", own), "name_to_handle_at by a user");
    });
    first.room[sizeof(file_handle)] = static_cast<char>(first.room[sizeof(file_handle)] ^ 0x55);
    expect_result(ESTALE, open_handle(here.get(), first, O_RDONLY).get(),
                  "open_by_handle_at of a wrong handle");
    expect_result(ENOENT, handle_of("missing", first), "name_to_handle_at of what is not there");
}

void test_open_files()
{
    check_unlinked();
    check_passed_descriptor();
    // Many open files without names keep their content apart.
    constexpr int kCount = 100;
    UniqueFd fds[kCount];
    for (int i = 0; i < kCount; ++i) {
        fds[i] = open_file("same", O_RDWR | O_CREAT | O_EXCL);
        const std::string content = std::to_string(i * 1000003);
        expect_equal(static_cast<int64_t>(content.size()),
                     write(fds[i].get(), content.data(), content.size()), "write to file %d", i);
        expect_result(0, unlink("same"), "unlink of file %d", i);
    }
    for (int i = 0; i < kCount; ++i) {
        char text[20] = "";
        expect(pread(fds[i].get(), text, sizeof text - 1, 0) > 0, "pread of file %d", i);
        expect_text(std::to_string(i * 1000003), text, "content of file %d", i);
    }
}

void test_inode_flags()
{
    if (!has(Feature::kFlags, "inode flags"))
        return;
    for (const FlaggedCall& call : kFlaggedCalls) {
        check_flagged(call, "d/it", FS_IMMUTABLE_FL, "immutable", call.immutable);
        check_flagged(call, "d/it", FS_APPEND_FL, "append", call.append);
        check_flagged(call, "d/it", FS_NODUMP_FL | FS_NOATIME_FL, "nodump and noatime", 0);
    }
    for (const FlaggedCall& call : kFlaggedDirectoryCalls) {
        if (strcmp(call.name, "rename of it") != 0 && strcmp(call.name, "rmdir") != 0)
            check_flagged(call, "d", FS_NODUMP_FL, "nodump", 0);
        check_flagged(call, "d", FS_IMMUTABLE_FL, "immutable", call.immutable);
        check_flagged(call, "d", FS_APPEND_FL, "append", call.append);
    }
    make_file("file", "content");
    make_directory("own");
    as(users.alice, [] {
        expect_result(EPERM, set_flags("file", FS_NODUMP_FL), "flags of a file of another");
        make_file("own/file");
        expect_result(0, set_flags("own/file", FS_NODUMP_FL), "nodump by the owner");
        expect_result(EPERM, set_flags("own/file", FS_IMMUTABLE_FL), "immutable by the owner");
        expect_result(EPERM, set_flags("own/file", FS_APPEND_FL), "append by the owner");
    });
    expect_equal(FS_NODUMP_FL, known_flags("own/file"), "flags that the owner set");
    require(utimensat(AT_FDCWD, "file", nullptr, 0) == 0 && set_flags("file", FS_NOATIME_FL) == 0, "noatime");
    const struct stat before = stat_of("file");
    usleep(20'000);
    expect_text("content", content_of("file"), "content of a file with noatime");
    expect_equal(before.st_atim.tv_nsec, stat_of("file").st_atim.tv_nsec, "atime of a file with noatime");
    // What an open file may stays.
    const UniqueFd fd = open_file("file", O_RDWR);
    require(set_flags("file", FS_APPEND_FL) == 0, "append");
    const UniqueFd appender = open_file("file", O_WRONLY | O_APPEND);
    expect_equal(3, write(appender.get(), "end", 3), "append to a file with the flag append");
    expect_text("contentend", content_of("file"), "content after it");
    expect_result(EPERM, fallocate(appender.get(), 3, 0, 1), "punch in a file with the flag append");
    require(set_flags("file", 0) == 0, "clear");
}

void test_temporary_files()
{
    if (!has(Feature::kTemporary, "O_TMPFILE"))
        return;
    make_directory("directory");
    make_file("file");
    umask(022);
    const UniqueFd fd = temporary("directory", O_RDWR);
    umask(0);
    expect_result(0, fd.get(), "open with O_TMPFILE");
    struct stat found { };
    expect_result(0, fstat(fd.get(), &found), "fstat of it");
    expect_equal(S_IFREG | 0640, found.st_mode, "its mode");
    expect_equal(0, static_cast<int64_t>(found.st_nlink), "its links");
    expect(kind_at("directory") == Kind::kDirectory, "the directory stays empty");
    expect_equal(7, write(fd.get(), "content", 7), "write to it");
    const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
    expect_result(0, linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "directory/named", AT_SYMLINK_FOLLOW),
                  "naming it");
    expect_text("content", content_of("directory/named"), "content by its name");
    expect_equal(1, static_cast<int64_t>(stat_of("directory/named").st_nlink), "links with a name");
    const UniqueFd exclusive = temporary("directory", O_WRONLY | O_EXCL);
    expect_result(0, exclusive.get(), "open with O_TMPFILE|O_EXCL");
    const std::string other = "/proc/self/fd/" + std::to_string(exclusive.get());
    expect_result(ENOENT, linkat(AT_FDCWD, other.c_str(), AT_FDCWD, "directory/more", AT_SYMLINK_FOLLOW),
                  "naming it");
    expect_result(EINVAL, temporary("directory", O_RDONLY).get(), "open with O_TMPFILE|O_RDONLY");
    expect_result(ENOTDIR, temporary("file", O_RDWR).get(), "open of a file with O_TMPFILE");
    expect_result(ENOENT, temporary("missing", O_RDWR).get(), "open of nothing with O_TMPFILE");
    set_mode("directory", 0755);
    as(users.alice, [] {
        expect_result(EACCES, temporary("directory", O_RDWR).get(), "O_TMPFILE where one may not write");
    });
}

}  // namespace cowraid::posix
