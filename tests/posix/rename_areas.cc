// SPDX-License-Identifier: MIT
// rename(2) and renameat2(2), link(2), whiteouts.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

int rename_with(const std::string& from, const std::string& to, unsigned flags)
{
    return renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags);
}

struct RenameFlags {
    const char* name;
    unsigned value;
};

constexpr RenameFlags kRenameFlags[]{
    {"rename", 0}, {"rename with NOREPLACE", RENAME_NOREPLACE}, {"exchange", RENAME_EXCHANGE}};

int error_of_rename(Kind source, Kind target, unsigned flags)
{
    if (source == Kind::kMissing)
        return ENOENT;
    if ((flags & RENAME_EXCHANGE) != 0)
        return target == Kind::kMissing ? ENOENT : 0;
    if (target == Kind::kMissing)
        return 0;
    if ((flags & RENAME_NOREPLACE) != 0)
        return EEXIST;
    if (is_directory(source) && !is_directory(target))
        return ENOTDIR;
    if (!is_directory(source) && is_directory(target))
        return EISDIR;
    return target == Kind::kFullDirectory ? ENOTEMPTY : 0;
}

// What links name has the name of its link with a suffix, and stays: a link that was moved names nothing, or
// what the one in its place named.
bool same_kind(Kind wanted, Kind is)
{
    return wanted == is || (is_link(wanted) && is_link(is));
}

void check_rename(Kind source, Kind target, const RenameFlags& how, bool other_directory)
{
    make_directory("from");
    make_directory("to");
    const std::string from = "from/source", to = other_directory ? "to/target" : "from/target";
    make(source, from);
    make(target, to);
    const uint64_t moved = source == Kind::kMissing ? 0 : stat_of(from).st_ino;
    const int error = error_of_rename(source, target, how.value);
    const bool exchanges = (how.value & RENAME_EXCHANGE) != 0;
    const char* where = other_directory ? " in another directory" : "";
    expect_result(error, rename_with(from, to, how.value), "%s of %s to %s%s", how.name, kind_name(source),
                  kind_name(target), where);
    const Kind left = error != 0 ? source : exchanges ? target : Kind::kMissing;
    const Kind there = error != 0 ? target : source;
    expect(same_kind(left, kind_at(from)), "%s is at the source after %s of %s to %s%s", kind_name(left),
           how.name, kind_name(source), kind_name(target), where);
    expect(same_kind(there, kind_at(to)), "%s is at the target after %s of %s to %s%s", kind_name(there),
           how.name, kind_name(source), kind_name(target), where);
    if (error == 0)
        expect_equal(static_cast<int64_t>(moved), static_cast<int64_t>(stat_of(to).st_ino),
                     "inode number after %s of %s to %s", how.name, kind_name(source), kind_name(target));
    const auto directories_in = [&](const char* parent) {
        return static_cast<int64_t>(is_directory(kind_at(std::string(parent) + "/source"))) +
               static_cast<int64_t>(is_directory(kind_at(std::string(parent) + "/target")));
    };
    if (is_directory(source) || is_directory(target)) {
        const int64_t named = (source == Kind::kLinkToDirectory ? 1 : 0) +
                              (target == Kind::kLinkToDirectory && !other_directory ? 1 : 0);
        expect_equal(2 + directories_in("from") + named, static_cast<int64_t>(stat_of("from").st_nlink),
                     "links of the source's parent after %s of %s to %s%s", how.name, kind_name(source),
                     kind_name(target), where);
    }
    remove_tree("from");
    remove_tree("to");
}

// May alice rename what is in `from_mode` to a directory of `to_mode`, both of bob?
void check_rename_rights(mode_t from_mode, mode_t to_mode, Kind kind, mode_t own_mode)
{
    make_directory("from");
    make_directory("to");
    make(kind, "from/it");
    set_mode("from/it", own_mode);
    for (const char* name : {"from", "to", "from/it"})
        set_owner(name, users.bob.uid, users.bob.gid);
    set_mode("from", from_mode);
    set_mode("to", to_mode);
    const auto changes = [](mode_t mode) {
        return (mode & 3) == 3;
    };
    const bool searches = (from_mode & 1) != 0 && (to_mode & 1) != 0;
    // A directory's own ".." changes, too.
    const bool own = kind != Kind::kDirectory || (own_mode & 2) != 0;
    const bool may = searches && changes(from_mode) && changes(to_mode) && own;
    as(users.alice, [&] {
        expect_result(may ? 0 : EACCES, rename("from/it", "to/it"),
                      "rename of %s of mode %04o from a directory of mode %04o to one of mode %04o",
                      kind_name(kind), own_mode, from_mode, to_mode);
    });
    remove_tree("from");
    remove_tree("to");
}

void check_into_itself()
{
    make_directory("a");
    make_directory("a/b");
    make_directory("a/b/c");
    make_directory("other");
    make_file("file", "x");
    expect_result(EINVAL, rename("a", "a/b"), "rename of a directory into itself");
    expect_result(EINVAL, rename("a", "a/b/c/d"), "rename of a directory into one below it");
    expect_result(EINVAL, rename("a", "a/new"), "rename of a directory to a new name in itself");
    expect_result(ENOTEMPTY, rename("a/b/c", "a"), "rename of a directory over one above it");
    expect_result(EINVAL, rename_with("a", "a/b/c", RENAME_EXCHANGE), "exchange with one below it");
    expect_result(EINVAL, rename_with("a/b/c", "a", RENAME_EXCHANGE), "exchange with one above it");
    expect_result(0, rename("a", "a"), "rename of a directory to itself");
    expect_result(0, rename("file", "file"), "rename of a file to itself");
    expect_result(EBUSY, rename("a/.", "other"), "rename of \".\"");
    expect_result(EBUSY, rename("a/b/..", "other"), "rename of \"..\"");
    expect_result(EBUSY, rename("other", "a/."), "rename to \".\"");
    expect_result(EBUSY, rename("other", "a/.."), "rename to \"..\"");
    expect_result(ENOTDIR, rename("file", "new/"), "rename of a file to \"new/\"");
    expect_result(ENOTDIR, rename("file/", "new"), "rename of \"file/\"");
    expect_result(0, rename("other/", "renamed/"), "rename of a directory to \"renamed/\"");
    expect_result(0, rename("a/b", "moved"), "rename of a directory to another parent");
    struct stat up, here;
    expect_result(0, stat("moved/..", &up), "stat of its \"..\"");
    expect_result(0, stat(".", &here), "stat of the parent");
    expect_equal(static_cast<int64_t>(here.st_ino), static_cast<int64_t>(up.st_ino),
                 "\"..\" of a moved directory is its new parent");
    expect(kind_at("moved/c") == Kind::kDirectory, "what is below moves along");
}

void check_refused_flags()
{
    make_file("first", "1");
    make_file("second", "2");
    expect_result(EINVAL, rename_with("first", "third", RENAME_NOREPLACE | RENAME_EXCHANGE),
                  "rename with NOREPLACE and EXCHANGE");
    expect_result(EINVAL, rename_with("first", "third", RENAME_WHITEOUT | RENAME_EXCHANGE),
                  "rename with WHITEOUT and EXCHANGE");
    expect_result(EINVAL, rename_with("first", "third", 1U << 10), "rename with unknown flags");
    expect_result(0, rename_with("first", "second", RENAME_EXCHANGE), "exchange of two files");
    expect_text("2", content_of("first"), "content of the first after it");
    expect_text("1", content_of("second"), "content of the second after it");
    expect_result(0, rename_with("first", "first", RENAME_EXCHANGE), "exchange with itself");
    expect_result(EEXIST, rename_with("first", "first", RENAME_NOREPLACE), "NOREPLACE of a name to itself");
    expect_result(EXDEV, rename("first", "/proc/moved"), "rename to another filesystem");
}

}  // namespace

void test_rename_matrix()
{
    for (const bool other_directory : {false, true})
        for (const Kind source : kKinds)
            for (const Kind target : kKinds)
                for (const RenameFlags& how : kRenameFlags)
                    check_rename(source, target, how, other_directory);
}

void test_rename_rights()
{
    for (const mode_t from_mode : {0777, 0775, 0776, 0771, 0773})
        for (const mode_t to_mode : {0777, 0775, 0776, 0771, 0773})
            for (const Kind kind : {Kind::kFile, Kind::kDirectory})
                for (const mode_t own_mode : {0777, 0700})
                    check_rename_rights(from_mode, to_mode, kind, own_mode);
    // Sticky directories: what is replaced and what is exchanged counts as well.
    for (const bool owns_source : {false, true}) {
        for (const bool owns_target : {false, true}) {
            for (const RenameFlags& how : kRenameFlags) {
                if (how.value == RENAME_NOREPLACE)
                    continue;
                make_directory("sticky", 01777);
                make_file("sticky/a");
                make_file("sticky/b");
                set_owner("sticky/a", owns_source ? users.alice.uid : users.bob.uid, 0);
                set_owner("sticky/b", owns_target ? users.alice.uid : users.bob.uid, 0);
                as(users.alice, [&] {
                    expect_result(owns_source && owns_target ? 0 : EPERM,
                                  rename_with("sticky/a", "sticky/b", how.value),
                                  "%s in a sticky directory, source %s, target %s", how.name,
                                  owns_source ? "owned" : "of another", owns_target ? "owned" : "of another");
                });
                remove_tree("sticky");
            }
        }
    }
}

void test_rename_corners()
{
    apart(check_into_itself);
    apart(check_refused_flags);
    // Two names of one file: nothing happens.
    make_file("one", "content");
    expect_result(0, link("one", "two"), "link");
    expect_result(0, rename("one", "two"), "rename over another name of the same file");
    expect(kind_at("one") == Kind::kFile && kind_at("two") == Kind::kFile, "both names stay");
    expect_equal(2, static_cast<int64_t>(stat_of("one").st_nlink), "links after that");
    // What is replaced lives on while it is open.
    make_file("old", "old content");
    make_file("new", "new content");
    const UniqueFd fd = open_file("old", O_RDONLY);
    expect_result(0, rename("new", "old"), "rename over an open file");
    char text[20] = "";
    expect_equal(11, pread(fd.get(), text, sizeof text, 0), "bytes of the replaced file");
    expect_text("old content", text, "content of the replaced file");
    struct stat found;
    expect_result(0, fstat(fd.get(), &found), "fstat of the replaced file");
    expect_equal(0, static_cast<int64_t>(found.st_nlink), "links of the replaced file");
    expect_text("new content", content_of("old"), "content of the name");
    // An open directory that is replaced or moved.
    make_directory("inner");
    make_directory("over");
    const UniqueFd directory = open_file("over", O_RDONLY | O_DIRECTORY);
    expect_result(0, rename("inner", "over"), "rename over an open directory");
    expect_result(ENOENT, openat(directory.get(), "x", O_CREAT | O_WRONLY, 0600),
                  "creating in a replaced directory");
    // Long chain of names, each replaced by the next one.
    for (int i = 0; i < 50; ++i)
        make_file("chain" + std::to_string(i), std::to_string(i));
    for (int i = 49; i > 0; --i) {
        const std::string from = "chain" + std::to_string(i), to = "chain" + std::to_string(i - 1);
        expect_result(0, rename(from.c_str(), to.c_str()), "rename of %s over %s", from.c_str(), to.c_str());
        expect_text("49", content_of(to), "content of %s", to.c_str());
    }
}

void test_links()
{
    for (const Kind kind : kKinds) {
        make(kind, "it");
        const int error = kind == Kind::kMissing ? ENOENT : is_directory(kind) ? EPERM : 0;
        expect_result(error, linkat(AT_FDCWD, "it", AT_FDCWD, "other", 0), "link of %s", kind_name(kind));
        if (error == 0) {
            expect_equal(static_cast<int64_t>(stat_of("it").st_ino),
                         static_cast<int64_t>(stat_of("other").st_ino), "inode number of a link of %s",
                         kind_name(kind));
            expect_equal(2, static_cast<int64_t>(stat_of("other").st_nlink), "links of %s", kind_name(kind));
            expect_result(EEXIST, link("it", "other"), "link of %s where it is", kind_name(kind));
        }
        const bool dangling = kind == Kind::kDanglingLink || kind == Kind::kMissing;
        const int followed_error = dangling                                               ? ENOENT
                                   : kind == Kind::kLinkLoop                              ? ELOOP
                                   : is_directory(kind) || kind == Kind::kLinkToDirectory ? EPERM
                                                                                          : 0;
        expect_result(followed_error, linkat(AT_FDCWD, "it", AT_FDCWD, "followed", AT_SYMLINK_FOLLOW),
                      "link of what %s names", kind_name(kind));
        for (const char* name : {"it", "other", "followed"})
            remove_tree(name);
    }
    make_file("file");
    set_owner("file", users.bob.uid, users.bob.gid);
    expect_result(EXDEV, link("/proc/self/status", "linked"), "link to a file of another filesystem");
    expect_result(EXDEV, link("file", "/dev/linked"), "link in another filesystem");
    expect_result(EINVAL, linkat(AT_FDCWD, "file", AT_FDCWD, "linked", 0x40000000),
                  "link with unknown flags");
    const bool guarded = content_of("/proc/sys/fs/protected_hardlinks") == "1\n";
    for (const mode_t mode : {0666, 0644, 0444, 04666, 02676, 0600}) {
        set_mode("file", mode);
        make_directory("opened");
        const bool safe = (mode & 06) == 06 && (mode & 06000) == 0;
        as(users.alice, [&] {
            expect_result(!guarded || safe ? 0 : EPERM, link("file", "opened/it"),
                          "link by another user of a file of mode %04o", mode);
        });
        remove_tree("opened");
    }
}

void test_whiteouts()
{
    if (!has(Feature::kWhiteout, "rename with WHITEOUT"))
        return;
    for (const Kind source : kKinds) {
        for (const Kind target : kKinds) {
            make(source, "it");
            make(target, "target");
            const int error = error_of_rename(source, target, 0);
            expect_result(error, rename_with("it", "target", RENAME_WHITEOUT),
                          "rename of %s to %s with WHITEOUT", kind_name(source), kind_name(target));
            if (error == 0) {
                const struct stat left = stat_of("it");
                expect_equal(S_IFCHR, left.st_mode, "mode of the whiteout of %s", kind_name(source));
                expect_equal(0, static_cast<int64_t>(left.st_rdev), "device of the whiteout of %s",
                             kind_name(source));
                expect_equal(1, static_cast<int64_t>(left.st_nlink), "links of the whiteout of %s",
                             kind_name(source));
            }
            remove_tree("it");
            remove_tree("target");
        }
    }
    make_file("a", "a");
    make_file("b", "b");
    expect_result(EEXIST, rename_with("a", "b", RENAME_WHITEOUT | RENAME_NOREPLACE),
                  "rename with WHITEOUT and NOREPLACE where something is");
    expect_result(0, rename_with("a", "c", RENAME_WHITEOUT | RENAME_NOREPLACE),
                  "rename with WHITEOUT and NOREPLACE");
    expect_text("a", content_of("c"), "content at the target of it");
    // In newer kernels anybody may make a 0:0 character device.
    expect_result(0, mknod("made", S_IFCHR, makedev(0, 0)), "mknod of a whiteout");
}

}  // namespace cowraid::posix
