// SPDX-License-Identifier: MIT
// Names, paths, and what every call says of bad ones; many links.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <set>
#include <string>

#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

struct Call {
    const char* name;
    int (*perform)(const char* path);
    bool makes;  // what is not there
    bool follows;  // a link at the end
};

struct stat ignored_stat;
char ignored_text[16];

int call_open(const char* path)
{
    const UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
    return fd.valid() ? 0 : -1;
}

int call_create(const char* path)
{
    const UniqueFd fd(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    return fd.valid() ? 0 : -1;
}

int call_stat(const char* path)
{
    return stat(path, &ignored_stat);
}

int call_lstat(const char* path)
{
    return lstat(path, &ignored_stat);
}

int call_readlink(const char* path)
{
    return static_cast<int>(readlink(path, ignored_text, sizeof ignored_text));
}

int call_access(const char* path)
{
    return access(path, R_OK);
}

int call_chmod(const char* path)
{
    return chmod(path, 0777);
}

int call_chown(const char* path)
{
    return chown(path, static_cast<uid_t>(-1), static_cast<gid_t>(-1));
}

int call_lchown(const char* path)
{
    return lchown(path, static_cast<uid_t>(-1), static_cast<gid_t>(-1));
}

int call_utimens(const char* path)
{
    return utimensat(AT_FDCWD, path, nullptr, 0);
}

int call_truncate(const char* path)
{
    return truncate(path, 0);
}

int call_mkdir(const char* path)
{
    return mkdir(path, 0777);
}

int call_mkfifo(const char* path)
{
    return mkfifo(path, 0666);
}

int call_symlink(const char* path)
{
    return symlink("x", path);
}

int call_link_to(const char* path)
{
    return link("plain", path);
}

int call_link_from(const char* path)
{
    return link(path, "made");
}

int call_rename_to(const char* path)
{
    return rename("plain", path);
}

int call_rename_from(const char* path)
{
    return rename(path, "made");
}

int call_chdir(const char* path)
{
    return chdir(path);
}

int call_opendir(const char* path)
{
    const UniqueFd fd(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return fd.valid() ? 0 : -1;
}

int call_setxattr(const char* path)
{
    return setxattr(path, "user.a", "1", 1, 0);
}

int call_getxattr(const char* path)
{
    return static_cast<int>(getxattr(path, "user.a", ignored_text, sizeof ignored_text));
}

int call_listxattr(const char* path)
{
    return static_cast<int>(listxattr(path, nullptr, 0));
}

int call_statfs(const char* path)
{
    struct statfs ignored;
    return statfs(path, &ignored);
}

constexpr Call kCalls[]{
    {"open", call_open, false, true},           {"creating open", call_create, true, true},
    {"stat", call_stat, false, true},           {"lstat", call_lstat, false, false},
    {"readlink", call_readlink, false, false},  {"access", call_access, false, true},
    {"chmod", call_chmod, false, true},         {"chown", call_chown, false, true},
    {"lchown", call_lchown, false, false},      {"utimensat", call_utimens, false, true},
    {"truncate", call_truncate, false, true},   {"mkdir", call_mkdir, true, false},
    {"mkfifo", call_mkfifo, true, false},       {"symlink", call_symlink, true, false},
    {"link to", call_link_to, true, false},     {"link from", call_link_from, false, false},
    {"rename to", call_rename_to, true, false}, {"rename from", call_rename_from, false, false},
    {"unlink", unlink, false, false},           {"rmdir", rmdir, false, false},
    {"chdir", call_chdir, false, true},         {"opendir", call_opendir, false, true},
    {"setxattr", call_setxattr, false, true},   {"getxattr", call_getxattr, false, true},
    {"listxattr", call_listxattr, false, true}, {"statfs", call_statfs, false, true},
};

std::set<std::string> listed(const char* path)
{
    std::set<std::string> names;
    DIR* directory = opendir(path);
    require(directory != nullptr, "opendir %s", path);
    while (const dirent* entry = readdir(directory))
        names.insert(entry->d_name);
    closedir(directory);
    names.erase(".");
    names.erase("..");
    return names;
}

// A path of exactly that many bytes, which names "." or, with a name, what is beside.
std::string long_path(size_t bytes, const std::string& name)
{
    std::string path;
    while (path.size() + 2 + name.size() <= bytes)
        path += "./";
    path += name;
    while (path.size() < bytes)
        path.insert(path.find('/') + 1, "/");
    return path;
}

void check_bytes()
{
    make_directory("bytes");
    std::set<std::string> wanted;
    for (int byte = 1; byte < 256; ++byte) {
        if (byte == '/')
            continue;
        const std::string name = std::string("n") + static_cast<char>(byte);
        expect_result(0, call_create(("bytes/" + name).c_str()), "making a name with byte 0x%02x", byte);
        wanted.insert(name);
    }
    const std::set<std::string> found = listed("bytes");
    for (const std::string& name : wanted) {
        expect(found.count(name) == 1, "a name with byte 0x%02x is listed", static_cast<uint8_t>(name[1]));
        expect_result(0, unlink(("bytes/" + name).c_str()), "removing a name with byte 0x%02x",
                      static_cast<uint8_t>(name[1]));
    }
    expect_equal(static_cast<int64_t>(wanted.size()), static_cast<int64_t>(found.size()), "names listed");
    expect(listed("bytes").empty(), "no name is left");
}

void check_lengths()
{
    for (const size_t length : {1, 2, 100, 127, 128, 200, 253, 254, 255}) {
        const std::string name(length, 'l'), other = std::string(length - 1, 'l') + "m";
        expect_result(0, call_create(name.c_str()), "making a name of %zu bytes", length);
        expect_result(0, call_stat(name.c_str()), "stat of a name of %zu bytes", length);
        expect(listed(".").count(name) == 1, "a name of %zu bytes is listed", length);
        expect_result(0, rename(name.c_str(), other.c_str()), "rename to a name of %zu bytes", length);
        expect_result(ENOENT, call_stat(name.c_str()), "stat of the old name of %zu bytes", length);
        expect_result(0, symlink(other.c_str(), name.c_str()), "symlink with a name of %zu bytes", length);
        expect_result(0, call_stat(name.c_str()), "stat through it");
        expect_result(0, unlink(other.c_str()), "unlink of a name of %zu bytes", length);
        expect_result(0, unlink(name.c_str()), "unlink of the link");
    }
    // Names that differ in case or in composition of letters are different ones.
    for (const char* name :
         {"name", "NAME", "Name", "\xc3\xa4", "a\xcc\x88", " ", "  ", "...", "-rf", "a\nb"})
        expect_result(0, mkdir(name, 0700), "mkdir of \"%s\"", name);
    for (const size_t length : {1, 100, 4094, 4095}) {
        const std::string target(length, 't');
        std::string text(5000, '\0');
        expect_result(0, symlink(target.c_str(), "link"), "symlink to %zu bytes", length);
        expect_equal(static_cast<int64_t>(length), readlink("link", text.data(), text.size()),
                     "readlink of %zu bytes", length);
        expect_text(target, text.substr(0, length), "target of %zu bytes", length);
        remove_tree("link");
    }
    expect_result(ENAMETOOLONG, symlink(std::string(4096, 't').c_str(), "link"), "symlink to 4096 bytes");
}

}  // namespace

void test_names()
{
    check_bytes();
    check_lengths();
}

void test_paths()
{
    make_file("plain");
    make_file("file");
    make(Kind::kLinkLoop, "loop");
    make_directory("closed", 0700);
    make_file("closed/inside");
    const std::string too_long(256, 'n');
    for (const Call& call : kCalls) {
        expect_result(ENAMETOOLONG, call.perform(too_long.c_str()), "%s of a name of 256 bytes", call.name);
        expect_result(ENAMETOOLONG, call.perform((too_long + "/x").c_str()), "%s below a name of 256 bytes",
                      call.name);
        expect_result(ENAMETOOLONG, call.perform(long_path(PATH_MAX, "x").c_str()),
                      "%s of a path of %d bytes", call.name, PATH_MAX);
        expect_result(ENOTDIR, call.perform("file/x"), "%s below a file", call.name);
        expect_result(ELOOP, call.perform("loop/x"), "%s below a loop of links", call.name);
        expect_result(ENOENT, call.perform("missing/x"), "%s below what is not there", call.name);
        expect_result(ENOENT, call.perform(""), "%s of an empty path", call.name);
        expect_result(EFAULT, call.perform(static_cast<const char*>(bad_address())), "%s of a bad address",
                      call.name);
        if (!call.makes)
            expect_result(ENOENT, call.perform("missing"), "%s of what is not there", call.name);
        if (call.follows)
            expect_result(ELOOP, call.perform("loop"), "%s of a loop of links", call.name);
        as(users.alice, [&] {
            expect_result(EACCES, call.perform("closed/inside"), "%s below what one may not search",
                          call.name);
        });
    }
    expect_result(0, call_stat(long_path(PATH_MAX - 1, "plain").c_str()), "stat of a path of %d bytes",
                  PATH_MAX - 1);
    // Forty links are followed, one more is not.
    make_file("end", "end");
    require(symlink("end", "chain1") == 0, "symlink");
    for (int i = 2; i <= 42; ++i)
        require(symlink(("chain" + std::to_string(i - 1)).c_str(), ("chain" + std::to_string(i)).c_str()) ==
                    0,
                "symlink");
    for (const int count : {1, 20, 39, 40, 41, 42})
        expect_result(count <= 40 ? 0 : ELOOP, call_open(("chain" + std::to_string(count)).c_str()),
                      "open through %d links", count);
    // Deep directories, beyond PATH_MAX.
    const UniqueFd here = open_file(".", O_RDONLY | O_DIRECTORY);
    make_directory("deep");
    require(chdir("deep") == 0, "chdir");
    const std::string step(200, 'd');
    int depth = 0;
    while (depth < 60 && mkdir(step.c_str(), 0777) == 0 && chdir(step.c_str()) == 0)
        ++depth;
    expect_equal(60, depth, "directories below each other, with names of 200 bytes");
    for (int i = 0; i < depth; ++i)
        require(chdir("..") == 0 && rmdir(step.c_str()) == 0, "rmdir of the deepest");
    expect_equal(0, fchdir(here.get()), "fchdir back");
    expect_result(ENOENT, call_stat("deep/d"), "nothing is left below");
}

void test_many_links()
{
    constexpr int64_t kLinksMax = 65000;
    make_file("file", "content");
    make_directory("links");
    int64_t count = 1;
    int error = 0;
    while (count <= kLinksMax) {
        if (link("file", ("links/" + std::to_string(count)).c_str()) != 0) {
            error = errno;
            break;
        }
        ++count;
    }
    expect_equal(kLinksMax, count, "links that a file can have");
    expect_equal(EMLINK, error, "error of the next one");
    expect_equal(kLinksMax, static_cast<int64_t>(stat_of("file").st_nlink), "links of the file");
    expect_result(0, unlink("links/1"), "unlink of one");
    expect_result(0, link("file", "links/again"), "another one then");
    expect_result(EMLINK, link("file", "links/more"), "and one more");
    expect_result(0, rename("links/2", "links/3"), "rename over another link does nothing");
    expect_equal(kLinksMax, static_cast<int64_t>(stat_of("links/3").st_nlink), "links after it");
}

}  // namespace cowraid::posix
