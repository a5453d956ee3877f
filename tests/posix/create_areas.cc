// SPDX-License-Identifier: MIT
// Making and removing names, set-group and sticky directories.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
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

struct Creator {
    const char* name;
    int (*make)(const char* path, mode_t mode);
    mode_t type;
    bool masked;  // its mode is that of the call without the umask's bits
};

int create_open(const char* path, mode_t mode)
{
    const UniqueFd fd(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    return fd.valid() ? 0 : -1;
}

int create_fifo(const char* path, mode_t mode)
{
    return mkfifo(path, mode);
}

int create_regular(const char* path, mode_t mode)
{
    return mknod(path, S_IFREG | mode, 0);
}

int create_socket(const char* path, mode_t mode)
{
    return mknod(path, S_IFSOCK | mode, 0);
}

int create_character(const char* path, mode_t mode)
{
    return mknod(path, S_IFCHR | mode, makedev(1, 3));
}

int create_block(const char* path, mode_t mode)
{
    return mknod(path, S_IFBLK | mode, makedev(245, 77));
}

int create_symlink(const char* path, mode_t /*mode*/)
{
    return symlink("somewhere", path);
}

int create_link(const char* path, mode_t /*mode*/)
{
    return link("linked", path);
}

constexpr Creator kCreators[]{
    {"open", create_open, S_IFREG, true},
    {"mkdir", mkdir, S_IFDIR, true},
    {"mknod of a file", create_regular, S_IFREG, true},
    {"mkfifo", create_fifo, S_IFIFO, true},
    {"mknod of a socket", create_socket, S_IFSOCK, true},
    {"mknod of a character device", create_character, S_IFCHR, true},
    {"mknod of a block device", create_block, S_IFBLK, true},
    {"symlink", create_symlink, S_IFLNK, false},
    {"link", create_link, S_IFREG, false},
};

bool is_device(const Creator& creator)
{
    return creator.type == S_IFCHR || creator.type == S_IFBLK;
}

// Set-id bits are in no mode of mkdir; of others Linux takes them.
mode_t mode_made(const Creator& creator, mode_t mode, mode_t mask)
{
    const mode_t taken = creator.type == S_IFDIR ? mode & 01777 : mode & 07777;
    return taken & ~mask;
}

void check_modes_made(const Creator& creator)
{
    for (const mode_t mask : {0, 022, 077, 0777, 0123}) {
        for (const mode_t mode : {0, 0600, 0644, 0777, 01755, 04711, 02750}) {
            umask(mask);
            expect_result(0, creator.make("it", mode), "%s with mode %04o and umask %04o", creator.name, mode,
                          mask);
            umask(0);
            const struct stat found = stat_of("it");
            expect_equal(creator.type, found.st_mode & S_IFMT, "type of what %s made", creator.name);
            expect_equal(mode_made(creator, mode, mask), found.st_mode & 07777,
                         "mode of what %s made with mode %04o and umask %04o", creator.name, mode, mask);
            remove_tree("it");
        }
    }
}

void check_names_taken(const Creator& creator)
{
    for (const Kind kind : kKinds) {
        if (kind == Kind::kMissing)
            continue;
        make(kind, "it");
        expect_result(EEXIST, creator.make("it", 0600), "%s where %s is", creator.name, kind_name(kind));
        expect(kind_at("it") == kind, "%s stays after %s", kind_name(kind), creator.name);
        remove_tree("it");
    }
    expect_result(ENOENT, creator.make("no/it", 0600), "%s below what is not there", creator.name);
    expect_result(ENOTDIR, creator.make("linked/it", 0600), "%s below a file", creator.name);
    expect_result(EEXIST, creator.make("/", 0600), "%s of the root", creator.name);
    expect_result(EEXIST, creator.make(".", 0600), "%s of \".\"", creator.name);
    expect_result(ENOENT, creator.make("", 0600), "%s of an empty path", creator.name);
}

void check_made_by_user(const Creator& creator)
{
    const bool may = !is_device(creator);
    as(users.alice, [&] {
        expect_result(EACCES, creator.make("closed/it", 0600), "%s by a user below what it may not write",
                      creator.name);
        expect_result(may ? 0 : EPERM, creator.make("opened/it", 0600), "%s by a user", creator.name);
    });
    if (!may || creator.make == create_link)
        return remove_tree("opened/it");
    const struct stat found = stat_of("opened/it");
    expect_equal(users.alice.uid, found.st_uid, "owner of what %s by a user made", creator.name);
    expect_equal(users.alice.gid, found.st_gid, "group of what %s by a user made", creator.name);
    remove_tree("opened/it");
}

struct Remover {
    const char* name;
    int (*remove)(const char* path);
    bool of_directories;
};

int remove_by_unlinkat(const char* path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

constexpr Remover kRemovers[]{{"unlink", unlink, false},
                              {"rmdir", rmdir, true},
                              {"unlinkat with AT_REMOVEDIR", remove_by_unlinkat, true}};

int error_of_removal(Kind kind, const Remover& remover)
{
    if (kind == Kind::kMissing)
        return ENOENT;
    if (!remover.of_directories)
        return is_directory(kind) ? EISDIR : 0;
    if (!is_directory(kind))
        return ENOTDIR;
    return kind == Kind::kFullDirectory ? ENOTEMPTY : 0;
}

int rename_to_other(const char* path)
{
    return rename(path, (std::string(path) + ".other").c_str());
}

int rename_over_it(const char* path)
{
    return rename("source/own", path);
}

int remove_either(const char* path)
{
    return unlink(path) == 0 ? 0 : errno == EISDIR ? rmdir(path) : -1;
}

constexpr Remover kStickyChanges[]{{"removal", remove_either, false},
                                   {"rename", rename_to_other, false},
                                   {"replacement", rename_over_it, false}};

// alice changes what the owner has in a directory of the other one.
void check_sticky(const User& directory_owner, const User& owner, mode_t mode, Kind kind)
{
    for (const Remover& change : kStickyChanges) {
        if (change.remove == rename_over_it && kind != Kind::kFile)
            continue;
        make_directory("sticky");
        make(kind, "sticky/it");
        make_file("source/own");
        set_owner("source/own", users.alice.uid, users.alice.gid);
        set_owner("sticky/it", owner.uid, owner.gid);
        set_owner("sticky", directory_owner.uid, directory_owner.gid);
        set_mode("sticky", mode);
        const bool may =
            (mode & S_ISVTX) == 0 || directory_owner.uid == users.alice.uid || owner.uid == users.alice.uid;
        as(users.alice, [&] {
            expect_result(may ? 0 : EPERM, change.remove("sticky/it"),
                          "%s by alice of %s of %s in a directory of %s with mode %04o", change.name,
                          kind_name(kind), owner.name.c_str(), directory_owner.name.c_str(), mode);
        });
        remove_tree("sticky");
        remove_tree("source/own");
    }
}

}  // namespace

void test_creation()
{
    make_file("linked");
    make_directory("closed", 0755);
    make_directory("opened");
    set_owner("linked", users.alice.uid, users.alice.gid);
    for (const Creator& creator : kCreators) {
        if (creator.masked)
            check_modes_made(creator);
        check_names_taken(creator);
        check_made_by_user(creator);
    }
    for (const unsigned major_number : {0U, 1U, 255U, 4095U}) {
        for (const unsigned minor_number : {0U, 3U, 256U, 0xfffffU}) {
            const dev_t device = makedev(major_number, minor_number);
            expect_result(0, mknod("device", S_IFBLK | 0600, device), "mknod of device %u:%u", major_number,
                          minor_number);
            expect_equal(static_cast<int64_t>(device), static_cast<int64_t>(stat_of("device").st_rdev),
                         "number of device %u:%u", major_number, minor_number);
            remove_tree("device");
        }
    }
    expect_result(EPERM, mknod("directory", S_IFDIR | 0700, 0), "mknod of a directory");
    expect_result(EINVAL, mknod("strange", 0170000 | 0700, 0), "mknod of an unknown type");
    const int bound = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = "bound"};
    const auto* general = reinterpret_cast<const sockaddr*>(&address);
    expect_result(0, bind(bound, general, sizeof address), "bind of a socket to a path");
    expect_result(0, listen(bound, 1), "listen on it");
    const int caller = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    expect_result(0, connect(caller, general, sizeof address), "connect to it");
    expect_result(EADDRINUSE, bind(caller, general, sizeof address), "bind where a socket is");
    const char* const targets[]{"a", "/", "..", "a/b//c/", "does not exist", "\xff\x01"};
    for (const char* target : targets) {
        char text[100] = "";
        expect_result(0, symlink(target, "link"), "symlink to \"%s\"", target);
        expect_equal(static_cast<int64_t>(strlen(target)), readlink("link", text, sizeof text),
                     "length of the link to \"%s\"", target);
        expect_text(target, text, "target of the link to \"%s\"", target);
        expect_equal(static_cast<int64_t>(strlen(target)), stat_of("link").st_size,
                     "size of the link to \"%s\"", target);
        expect_equal(1, readlink("link", text, 1), "readlink into one byte of \"%s\"", target);
        remove_tree("link");
    }
    expect_result(ENOENT, symlink("", "link"), "symlink to an empty path");
    char text[10];
    expect_result(EINVAL, readlink("linked", text, 0), "readlink into no room");
    expect_result(EINVAL, readlink("linked", text, sizeof text), "readlink of a file");
}

void test_set_group_directories()
{
    for (const mode_t mode : {0777, 02777}) {
        for (const Creator& creator : kCreators) {
            if (is_device(creator) || creator.make == create_link)
                continue;
            make_directory("directory");
            set_owner("directory", users.bob.uid, users.shared_gid);
            set_mode("directory", mode);
            as(users.alice, [&] {
                expect_result(0, creator.make("directory/it", 02770), "%s below mode %04o", creator.name,
                              mode);
            });
            const struct stat found = stat_of("directory/it");
            const bool inherits = (mode & S_ISGID) != 0;
            expect_equal(inherits ? users.shared_gid : users.alice.gid, found.st_gid,
                         "group of what %s made below mode %04o", creator.name, mode);
            expect_equal(users.alice.uid, found.st_uid, "owner of what %s made below mode %04o", creator.name,
                         mode);
            if (creator.type == S_IFDIR)
                expect_equal(inherits ? 02770 : 0770, found.st_mode & 07777,
                             "mode of the directory made below mode %04o", mode);
            else if (creator.masked)
                expect_equal(02770, found.st_mode & 07777, "mode of what %s made below mode %04o",
                             creator.name, mode);
            remove_tree("directory");
        }
    }
    // In a group that the creator is not in, a file loses the bit.
    make_directory("foreign");
    set_owner("foreign", users.bob.uid, users.bob.gid);
    set_mode("foreign", 02777);
    as(users.alice, [] {
        expect_result(0, create_open("foreign/file", 02770), "creating below a directory of a foreign group");
        expect_result(0, create_open("foreign/plain", 02760), "creating what is not executable there");
        expect_result(0, mkdir("foreign/directory", 0770), "mkdir there");
    });
    expect_equal(0770, mode_of("foreign/file"), "mode of a set-group file in a foreign group");
    expect_equal(02770, mode_of("foreign/directory"), "mode of a directory in a foreign group");
    expect_equal(users.bob.gid, stat_of("foreign/plain").st_gid, "group of a file in a foreign group");
}

void test_removal()
{
    for (const Kind kind : kKinds) {
        for (const Remover& remover : kRemovers) {
            make(kind, "it");
            const int error = error_of_removal(kind, remover);
            expect_result(error, remover.remove("it"), "%s of %s", remover.name, kind_name(kind));
            expect(kind_at("it") == (error == 0 ? Kind::kMissing : kind), "%s %s after %s", kind_name(kind),
                   error == 0 ? "is gone" : "stays", remover.name);
            if (is_link(kind) && kind != Kind::kDanglingLink && kind != Kind::kLinkLoop)
                expect(kind_at("it.named") != Kind::kMissing, "what a link named stays after %s",
                       remover.name);
            remove_tree("it");
        }
    }
    make_directory("directory");
    make_directory("directory/inner");
    expect_result(EINVAL, rmdir("directory/inner/."), "rmdir of \".\"");
    expect_result(ENOTEMPTY, rmdir("directory/inner/.."), "rmdir of \"..\"");
    expect_result(EISDIR, unlink("directory/inner"), "unlink of a directory");
    expect_result(EBUSY, rmdir("/"), "rmdir of the root");
    expect_equal(3, static_cast<int64_t>(stat_of("directory").st_nlink),
                 "links of a directory with one below");
    const UniqueFd inner = open_file("directory/inner", O_RDONLY | O_DIRECTORY);
    expect_result(0, rmdir("directory/inner"), "rmdir of a directory that is open");
    expect_equal(2, static_cast<int64_t>(stat_of("directory").st_nlink),
                 "links of a directory with none below");
    struct stat found;
    expect_result(0, fstat(inner.get(), &found), "fstat of a removed directory");
    expect_equal(0, static_cast<int64_t>(found.st_nlink), "links of a removed directory");
    expect_result(ENOENT, openat(inner.get(), "new", O_WRONLY | O_CREAT, 0600),
                  "creating in a removed directory");
    expect_result(ENOENT, mkdirat(inner.get(), "new", 0700), "mkdir in a removed directory");
    make_file("first", "linked");
    expect_result(0, link("first", "second"), "link");
    expect_equal(2, static_cast<int64_t>(stat_of("first").st_nlink), "links of a file with two names");
    expect_result(0, unlink("first"), "unlink of one of two names");
    expect_equal(1, static_cast<int64_t>(stat_of("second").st_nlink), "links when one of two names is gone");
    expect_text("linked", content_of("second"), "content through the other name");
}

void test_sticky_directories()
{
    make_directory("source");
    for (const mode_t mode : {0777, 01777})
        for (const User* directory_owner : {&users.root, &users.alice, &users.bob})
            for (const User* owner : {&users.root, &users.alice, &users.bob})
                for (const Kind kind : {Kind::kFile, Kind::kDirectory, Kind::kFifo, Kind::kDanglingLink})
                    check_sticky(*directory_owner, *owner, mode, kind);
}

}  // namespace cowraid::posix
