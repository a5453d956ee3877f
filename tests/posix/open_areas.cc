// SPDX-License-Identifier: MIT
// open(2) by flags and kind, rights by mode, execution.
#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

struct Flags {
    const char* name;
    int value;
};

constexpr Flags kOpenFlags[]{
    {"O_RDONLY", O_RDONLY},
    {"O_WRONLY", O_WRONLY},
    {"O_RDWR", O_RDWR},
    {"O_RDONLY|O_CREAT", O_RDONLY | O_CREAT},
    {"O_RDWR|O_CREAT", O_RDWR | O_CREAT},
    {"O_RDWR|O_CREAT|O_EXCL", O_RDWR | O_CREAT | O_EXCL},
    {"O_WRONLY|O_CREAT|O_NOFOLLOW", O_WRONLY | O_CREAT | O_NOFOLLOW},
    {"O_WRONLY|O_TRUNC", O_WRONLY | O_TRUNC},
    {"O_RDWR|O_CREAT|O_TRUNC", O_RDWR | O_CREAT | O_TRUNC},
    {"O_WRONLY|O_APPEND", O_WRONLY | O_APPEND},
    {"O_RDONLY|O_DIRECTORY", O_RDONLY | O_DIRECTORY},
    {"O_RDWR|O_DIRECTORY", O_RDWR | O_DIRECTORY},
    {"O_RDONLY|O_NOFOLLOW", O_RDONLY | O_NOFOLLOW},
    {"O_RDONLY|O_NOFOLLOW|O_DIRECTORY", O_RDONLY | O_NOFOLLOW | O_DIRECTORY},
    {"O_RDWR|O_SYNC", O_RDWR | O_SYNC},
    {"O_RDONLY|O_NOATIME", O_RDONLY | O_NOATIME},
    {"O_PATH", O_PATH},
    {"O_PATH|O_NOFOLLOW", O_PATH | O_NOFOLLOW},
    {"O_PATH|O_DIRECTORY", O_PATH | O_DIRECTORY},
};

// What a name stands for once links are followed.
Kind followed(Kind kind)
{
    switch (kind) {
    case Kind::kLinkToFile:
        return Kind::kFile;
    case Kind::kLinkToDirectory:
        return Kind::kDirectory;
    case Kind::kDanglingLink:
        return Kind::kMissing;
    default:
        return kind;
    }
}

int error_of_kind(Kind kind, int flags)
{
    const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
    if (is_directory(kind))
        return (flags & O_PATH) == 0 && (writes || (flags & O_CREAT) != 0) ? EISDIR : 0;
    if ((flags & O_DIRECTORY) != 0)
        return ENOTDIR;
    if ((flags & O_PATH) != 0)
        return 0;
    if (kind == Kind::kSocket || kind == Kind::kBlockDevice)
        return ENXIO;
    if (kind == Kind::kFifo && (flags & O_ACCMODE) == O_WRONLY)
        return ENXIO;  // nobody reads, and O_NONBLOCK is set
    return 0;
}

int error_of_open(Kind kind, int flags)
{
    if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0 && kind != Kind::kMissing)
        return EEXIST;
    if ((flags & O_NOFOLLOW) != 0 && is_link(kind)) {
        if ((flags & O_DIRECTORY) != 0)
            return ENOTDIR;
        return (flags & O_PATH) != 0 ? 0 : ELOOP;
    }
    if (kind == Kind::kLinkLoop)
        return ELOOP;
    const Kind end = followed(kind);
    if (end == Kind::kMissing)
        return (flags & O_CREAT) != 0 ? 0 : ENOENT;
    return error_of_kind(end, flags);
}

struct Access {
    const char* name;
    int open_flags, access_mode;
    unsigned bits;
};

constexpr Access kAccesses[]{
    {"reading", O_RDONLY, R_OK, 4},
    {"writing", O_WRONLY, W_OK, 2},
    {"reading and writing", O_RDWR, R_OK | W_OK, 6},
};

// Of the nine permission bits those of the class that the user is in.
unsigned bits_for(mode_t mode, unsigned user_class)
{
    return mode >> (3 * (2 - user_class)) & 7;
}

const char* class_name(unsigned user_class)
{
    constexpr const char* kNames[]{"the owner", "the group", "others"};
    return kNames[user_class];
}

// alice owns, or is in the group, or neither.
void own_for_class(const std::string& path, unsigned user_class)
{
    if (user_class == 0)
        set_owner(path, users.alice.uid, users.bob.gid);
    else if (user_class == 1)
        set_owner(path, users.bob.uid, users.shared_gid);
    else
        set_owner(path, users.bob.uid, users.bob.gid);
}

void check_file_access(const std::string& path, mode_t mode, unsigned user_class)
{
    const unsigned bits = bits_for(mode, user_class);
    const char* who = class_name(user_class);
    for (const Access& access : kAccesses) {
        const int error = (bits & access.bits) == access.bits ? 0 : EACCES;
        const UniqueFd fd(open(path.c_str(), access.open_flags));
        expect_result(error, fd.get(), "open for %s by %s of a file of mode %04o", access.name, who, mode);
        expect_result(error, ::access(path.c_str(), access.access_mode),
                      "access for %s by %s of a file of mode %04o", access.name, who, mode);
    }
    expect_result((bits & 1) != 0 ? 0 : EACCES, access(path.c_str(), X_OK),
                  "access for executing by %s of a file of mode %04o", who, mode);
    expect_result((bits & 2) != 0 ? 0 : EACCES, truncate(path.c_str(), 0),
                  "truncate by %s of a file of mode %04o", who, mode);
}

void check_directory_access(const std::string& path, mode_t mode, unsigned user_class)
{
    const unsigned bits = bits_for(mode, user_class);
    const char* who = class_name(user_class);
    const bool lists = (bits & 4) != 0, searches = (bits & 1) != 0, changes = (bits & 3) == 3;
    DIR* directory = opendir(path.c_str());
    expect_result(lists ? 0 : EACCES, directory == nullptr ? -1 : 0, "opendir by %s of mode %04o", who, mode);
    if (directory != nullptr)
        closedir(directory);
    struct stat found;
    const std::string inside = path + "/inside", made = path + "/made";
    const int change_error = changes ? 0 : EACCES;
    expect_result(searches ? 0 : EACCES, stat(inside.c_str(), &found), "stat by %s below mode %04o", who,
                  mode);
    const UniqueFd fd(open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600));
    expect_result(change_error, fd.get(), "creating by %s below mode %04o", who, mode);
    expect_result(change_error, rename(inside.c_str(), (inside + "2").c_str()),
                  "rename by %s below mode %04o", who, mode);
    expect_result(change_error, symlink("x", (path + "/link").c_str()), "symlink by %s below mode %04o", who,
                  mode);
    expect_result(change_error, mkdir((path + "/directory").c_str(), 0700), "mkdir by %s below mode %04o",
                  who, mode);
    expect_result(!searches ? EACCES
                  : changes ? 0
                            : ENOENT,
                  unlink(made.c_str()), "unlink by %s of what it made below mode %04o", who, mode);
    expect_result(searches ? 0 : EACCES, chdir(path.c_str()), "chdir by %s to mode %04o", who, mode);
}

int exit_of_program(const char* path)
{
    const pid_t child = fork();
    if (child == 0) {
        execl(path, path, static_cast<char*>(nullptr));
        _exit(errno);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string bytes_of_program(const char* path)
{
    const std::string content = content_of(path);
    require(!content.empty(), "read %s", path);
    return content;
}

}  // namespace

void test_open_flags()
{
    for (const Kind kind : kKinds) {
        for (const Flags& flags : kOpenFlags) {
            make(kind, "it");
            const int error = error_of_open(kind, flags.value);
            const UniqueFd fd(open("it", flags.value | O_NONBLOCK | O_CLOEXEC, 0640));
            expect_result(error, fd.get(), "open of %s with %s", kind_name(kind), flags.name);
            const bool makes = error == 0 && (flags.value & O_CREAT) != 0;
            if (makes && followed(kind) == Kind::kMissing)
                expect_equal(0640, stat_of(is_link(kind) ? "it.named" : "it").st_mode & 07777,
                             "mode of what open with %s made of %s", flags.name, kind_name(kind));
            if (followed(kind) == Kind::kFile && error == 0 && (flags.value & O_PATH) == 0)
                expect_text((flags.value & O_TRUNC) != 0 ? ""
                            : kind == Kind::kFile        ? "content"
                                                         : "named",
                            content_of("it"), "content after open of %s with %s", kind_name(kind),
                            flags.name);
            remove_tree("it");
        }
    }
    make_file("file");
    expect_result(EINVAL, open("file", O_RDONLY | O_CREAT | O_DIRECTORY, 0600),
                  "open with O_CREAT|O_DIRECTORY");
    make_directory("directory");
    expect_result(EISDIR, open("directory/", O_WRONLY | O_CREAT, 0600), "creating open of \"directory/\"");
    expect_result(EISDIR, open("new/", O_WRONLY | O_CREAT, 0600), "creating open of \"new/\"");
    expect_result(ENOTDIR, open("file/", O_RDONLY), "open of \"file/\"");
    expect_result(ENOENT, open("", O_RDONLY), "open of an empty path");
    as(users.alice, [] {
        expect_result(EPERM, open("file", O_RDONLY | O_NOATIME),
                      "open with O_NOATIME by one who does not own");
    });
}

void test_access_by_mode()
{
    for (unsigned user_class = 0; user_class < 3; ++user_class) {
        for (unsigned bits = 0; bits < 8; ++bits) {
            // Others have what the class has not.
            const mode_t mode = 0777 ^ ((bits ^ 7) << (3 * (2 - user_class)));
            make_file("file", "content");
            own_for_class("file", user_class);
            set_mode("file", mode);
            as(users.alice, [&] { check_file_access("file", mode, user_class); });
            remove_tree("file");
            make_directory("directory");
            make_file("directory/inside");
            own_for_class("directory", user_class);
            set_mode("directory", mode);
            as(users.alice, [&] { check_directory_access("directory", mode, user_class); });
            remove_tree("directory");
        }
    }
    // The first class that fits decides, even if others may more.
    for (const mode_t mode : {0077, 0707, 0007, 0070, 0700, 0000}) {
        make_file("file", "content");
        own_for_class("file", 0);
        set_mode("file", mode);
        as(users.alice, [&] { check_file_access("file", mode, 0); });
        own_for_class("file", 1);
        set_mode("file", mode);
        as(users.alice, [&] { check_file_access("file", mode, 1); });
        expect_result(0, open("file", O_RDWR | O_CLOEXEC), "open by root of a file of mode %04o", mode);
        expect_result((mode & 0111) != 0 ? 0 : EACCES, access("file", X_OK),
                      "access for executing by root of a file of mode %04o", mode);
        remove_tree("file");
    }
}

void test_execution()
{
    const std::string program = bytes_of_program("/bin/true");
    for (const mode_t mode : {0755, 0644, 0711, 0100, 0010, 0001, 0000}) {
        make_file("program", program, mode);
        for (unsigned user_class = 0; user_class < 3; ++user_class) {
            own_for_class("program", user_class);
            set_mode("program", mode);
            as(users.alice, [&] {
                expect_equal((bits_for(mode, user_class) & 1) != 0 ? 0 : EACCES, exit_of_program("./program"),
                             "execution by %s of mode %04o", class_name(user_class), mode);
            });
        }
        expect_equal((mode & 0111) != 0 ? 0 : EACCES, exit_of_program("./program"),
                     "execution by root of mode %04o", mode);
        remove_tree("program");
    }
    make_file("script", "#!/bin/sh\nexit 7\n", 0755);
    expect_equal(7, exit_of_program("./script"), "exit status of a script");
    make_file("id", bytes_of_program("/usr/bin/id"), 0755);
    set_owner("id", users.bob.uid, users.bob.gid);
    set_mode("id", 06755);
    as(users.alice, [] {
        FILE* out = popen("./id -u; ./id -g", "r");
        require(out != nullptr, "popen");
        char text[200] = "";
        const size_t bytes = fread(text, 1, sizeof text - 1, out);
        pclose(out);
        const std::string said(text, bytes);
        expect(said.find(std::to_string(users.bob.uid) + "\n" + std::to_string(users.bob.gid)) !=
                   std::string::npos,
               "a set-id program runs as its owner and group, not as %s", said.c_str());
    });
    make_file("busy", bytes_of_program("/bin/sleep"), 0755);
    const pid_t child = fork();
    if (child == 0) {
        execl("./busy", "busy", "60", static_cast<char*>(nullptr));
        _exit(1);
    }
    usleep(200'000);
    expect_result(ETXTBSY, open("busy", O_WRONLY), "open for writing of a program that runs");
    expect_result(ETXTBSY, truncate("busy", 0), "truncate of a program that runs");
    expect_result(0, unlink("busy"), "unlink of a program that runs");
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    make_file("written", program, 0755);
    const UniqueFd fd = open_file("written", O_WRONLY);
    expect_equal(ETXTBSY, exit_of_program("./written"), "execution of what is open for writing");
}

}  // namespace cowraid::posix
