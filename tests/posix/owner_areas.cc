// SPDX-License-Identifier: MIT
// chmod, chown, set-id bits, utimensat.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string>

#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

constexpr Kind kRealKinds[]{Kind::kFile,   Kind::kDirectory,       Kind::kFifo,
                            Kind::kSocket, Kind::kCharacterDevice, Kind::kBlockDevice};

enum class Relation { kByOwner, kByMember, kByStranger };

const char* relation_name(Relation relation)
{
    return relation == Relation::kByOwner    ? "the owner"
           : relation == Relation::kByMember ? "one in the group"
                                             : "one who is neither";
}

void own_for(const std::string& path, Relation relation)
{
    set_owner(path, relation == Relation::kByOwner ? users.alice.uid : users.bob.uid,
              relation == Relation::kByMember ? users.shared_gid : users.bob.gid);
}

void check_chmod_by_user(Kind kind, Relation relation)
{
    for (const mode_t mode : {0600, 0777, 04755, 02755, 01777}) {
        make(kind, "it");
        own_for("it", relation);
        set_mode("it", 0640);
        const bool may = relation == Relation::kByOwner;
        as(users.alice, [&] {
            expect_result(may ? 0 : EPERM, chmod("it", mode), "chmod of %s to %04o by %s", kind_name(kind),
                          mode, relation_name(relation));
        });
        // The owner is not in the group: no set-group bit.
        const mode_t wanted = !may ? 0640 : mode & ~02000;
        expect_equal(wanted, mode_of("it"), "mode of %s after chmod to %04o by %s", kind_name(kind), mode,
                     relation_name(relation));
        remove_tree("it");
    }
}

struct Ownership {
    const char* name;
    int64_t uid, gid;  // -1: not changed
};

// May alice, the owner, who is in her own group and the shared one?
bool may_chown(const Ownership& wanted, bool owns)
{
    if (!owns)
        return false;
    const bool uid_ok = wanted.uid == -1 || wanted.uid == users.alice.uid;
    const bool gid_ok = wanted.gid == -1 || wanted.gid == users.alice.gid || wanted.gid == users.shared_gid;
    return uid_ok && gid_ok;
}

void check_chown_by_user(const Ownership& wanted, bool owns, Kind kind)
{
    // Set-id bits are cleared even then, which others may not.
    const bool nothing = wanted.uid == -1 && wanted.gid == -1;
    if (nothing && !owns)
        return;
    make(kind, "it");
    const uid_t before_uid = owns ? users.alice.uid : users.bob.uid;
    const gid_t before_gid = owns ? users.alice.gid : users.shared_gid;
    set_owner("it", before_uid, before_gid);
    if (!is_link(kind))
        set_mode("it", 06777);
    const bool may = nothing || may_chown(wanted, owns);
    const char* who = owns ? "its owner" : "another user";
    as(users.alice, [&] {
        expect_result(may ? 0 : EPERM,
                      lchown("it", static_cast<uid_t>(wanted.uid), static_cast<gid_t>(wanted.gid)),
                      "chown of %s to %s by %s", kind_name(kind), wanted.name, who);
    });
    const struct stat found = stat_of("it");
    expect_equal(may && wanted.uid != -1 ? wanted.uid : before_uid, found.st_uid,
                 "owner of %s after chown to %s by %s", kind_name(kind), wanted.name, who);
    expect_equal(may && wanted.gid != -1 ? wanted.gid : before_gid, found.st_gid,
                 "group of %s after chown to %s by %s", kind_name(kind), wanted.name, who);
    if (!is_link(kind) && !nothing)
        expect_equal(may && !is_directory(kind) ? 0777 : 06777, found.st_mode & 07777,
                     "mode of %s after chown to %s by %s", kind_name(kind), wanted.name, who);
    remove_tree("it");
}

struct Change {
    const char* name;
    int (*perform)(const char* path);
};

int change_by_write(const char* path)
{
    const UniqueFd fd(open(path, O_WRONLY | O_CLOEXEC));
    return pwrite(fd.get(), "x", 1, 0) == 1 ? 0 : -1;
}

int change_by_direct_append(const char* path)
{
    const UniqueFd fd(open(path, O_WRONLY | O_APPEND | O_CLOEXEC));
    return write(fd.get(), "x", 1) == 1 ? 0 : -1;
}

int change_by_truncate(const char* path)
{
    return truncate(path, 2);
}

int change_by_open(const char* path)
{
    const UniqueFd fd(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC));
    return fd.valid() ? 0 : -1;
}

int change_by_fallocate(const char* path)
{
    const UniqueFd fd(open(path, O_WRONLY | O_CLOEXEC));
    return fallocate(fd.get(), 0, 0, 8192);
}

int change_by_copy(const char* path)
{
    const UniqueFd from(open("source", O_RDONLY | O_CLOEXEC)), to(open(path, O_WRONLY | O_CLOEXEC));
    return copy_file_range(from.get(), nullptr, to.get(), nullptr, 4, 0) == 4 ? 0 : -1;
}

constexpr Change kContentChanges[]{{"write", change_by_write},         {"append", change_by_direct_append},
                                   {"truncate", change_by_truncate},   {"open with O_TRUNC", change_by_open},
                                   {"fallocate", change_by_fallocate}, {"copy_file_range", change_by_copy}};

// Set-group without execution for the group once meant mandatory locking; it stays, when the group is one's
// own.
mode_t mode_after_write(mode_t mode)
{
    mode &= ~04000;
    return (mode & 010) != 0 ? mode & ~02000 : mode;
}

struct Time {
    const char* name;
    timespec value;
};

constexpr Time kTimes[]{
    {"now", {.tv_sec = 0, .tv_nsec = UTIME_NOW}},
    {"omitted", {.tv_sec = 0, .tv_nsec = UTIME_OMIT}},
    {"1234567890.123456789", {.tv_sec = 1234567890, .tv_nsec = 123456789}},
};

struct Case {
    const char* who;
    bool owns;
    mode_t mode;
};

int error_of_utimens(const Time& atime, const Time& mtime, const Case& who)
{
    const bool both_omitted = atime.value.tv_nsec == UTIME_OMIT && mtime.value.tv_nsec == UTIME_OMIT;
    if (who.owns || both_omitted)
        return 0;
    const bool both_now = atime.value.tv_nsec == UTIME_NOW && mtime.value.tv_nsec == UTIME_NOW;
    if (both_now)
        return (who.mode & 2) != 0 ? 0 : EACCES;
    return EPERM;
}

void expect_time(const Time& wanted, timespec before, timespec is, timespec called, const char* what)
{
    if (wanted.value.tv_nsec == UTIME_OMIT)
        expect(is.tv_sec == before.tv_sec && is.tv_nsec == before.tv_nsec, "%s stays when omitted", what);
    else if (wanted.value.tv_nsec == UTIME_NOW)
        expect(is.tv_sec >= called.tv_sec - 1 && is.tv_sec <= called.tv_sec + 5, "%s becomes now", what);
    else
        expect(is.tv_sec == wanted.value.tv_sec && is.tv_nsec == wanted.value.tv_nsec,
               "%s becomes %s, not %ld.%09ld", what, wanted.name, is.tv_sec, is.tv_nsec);
}

void check_utimens(const Time& atime, const Time& mtime, const Case& who)
{
    make_file("file");
    const timespec first[]{{.tv_sec = 1000, .tv_nsec = 1}, {.tv_sec = 2000, .tv_nsec = 2}};
    require(utimensat(AT_FDCWD, "file", first, 0) == 0, "utimensat");
    set_owner("file", who.owns ? users.alice.uid : users.bob.uid, users.bob.gid);
    set_mode("file", who.mode);
    const int error = error_of_utimens(atime, mtime, who);
    timespec called;
    clock_gettime(CLOCK_REALTIME, &called);
    as(users.alice, [&] {
        const timespec times[]{atime.value, mtime.value};
        expect_result(error, utimensat(AT_FDCWD, "file", times, 0), "utimensat of atime %s, mtime %s by %s",
                      atime.name, mtime.name, who.who);
    });
    const struct stat found = stat_of("file");
    expect_time(error == 0 ? atime : kTimes[1], first[0], found.st_atim, called, "atime");
    expect_time(error == 0 ? mtime : kTimes[1], first[1], found.st_mtim, called, "mtime");
    remove_tree("file");
}

}  // namespace

void test_modes()
{
    for (const Kind kind : kRealKinds) {
        for (const mode_t mode : {0, 0001, 0777, 01000, 02000, 04000, 07777, 0644}) {
            make(kind, "it");
            expect_result(0, chmod("it", mode), "chmod of %s to %04o by root", kind_name(kind), mode);
            expect_equal(mode, mode_of("it"), "mode of %s after chmod to %04o by root", kind_name(kind),
                         mode);
            expect(kind_at("it") == kind, "chmod leaves the kind of %s", kind_name(kind));
            remove_tree("it");
        }
        for (const Relation relation : {Relation::kByOwner, Relation::kByMember, Relation::kByStranger})
            check_chmod_by_user(kind, relation);
    }
    make(Kind::kLinkToFile, "link");
    expect_result(0, chmod("link", 0123), "chmod through a link");
    expect_equal(0123, mode_of("link.named"), "mode of what the link names");
    expect_equal(0777, mode_of("link"), "mode of the link");
    expect_result(EOPNOTSUPP, fchmodat(AT_FDCWD, "link", 0600, AT_SYMLINK_NOFOLLOW),
                  "chmod of a link itself");
    const UniqueFd fd = open_file("link", O_RDONLY);
    expect_result(0, fchmod(fd.get(), 0321), "fchmod");
    expect_equal(0321, mode_of("link.named"), "mode after fchmod");
    const UniqueFd path = open_file("link", O_PATH);
    expect_result(EBADF, fchmod(path.get(), 0600), "fchmod of a descriptor with O_PATH");
    // A group that one is in, and a file in it.
    make_file("grouped");
    set_owner("grouped", users.alice.uid, users.shared_gid);
    as(users.alice,
       [] { expect_result(0, chmod("grouped", 02770), "chmod with the set-group bit by a member"); });
    expect_equal(02770, mode_of("grouped"), "mode after it");
}

void test_owners()
{
    const Ownership all[]{
        {"nothing else", -1, -1},
        {"the same owner", users.alice.uid, -1},
        {"another owner", users.bob.uid, -1},
        {"root", 0, -1},
        {"one's own group", -1, users.alice.gid},
        {"a group one is in", -1, users.shared_gid},
        {"a group one is not in", -1, users.bob.gid},
        {"the same owner and a group one is in", users.alice.uid, users.shared_gid},
        {"another owner and a group one is in", users.bob.uid, users.shared_gid},
    };
    for (const Ownership& wanted : all)
        for (const bool owns : {true, false})
            for (const Kind kind : {Kind::kFile, Kind::kDirectory, Kind::kFifo, Kind::kDanglingLink})
                check_chown_by_user(wanted, owns, kind);
    for (const uint32_t id : {0U, 1U, 65534U, 65536U, 0x7fffffffU, 0xfffffffeU}) {
        make_file("file");
        expect_result(0, chown("file", id, id), "chown to %u by root", id);
        expect_equal(id, stat_of("file").st_uid, "owner after chown to %u", id);
        expect_equal(id, stat_of("file").st_gid, "group after chown to %u", id);
        remove_tree("file");
    }
    make(Kind::kLinkToFile, "link");
    expect_result(0, chown("link", 7, 8), "chown through a link");
    expect_equal(7, stat_of("link.named").st_uid, "owner of what the link names");
    expect_equal(0, stat_of("link").st_uid, "owner of the link");
    expect_result(0, lchown("link", 9, 10), "lchown");
    expect_equal(9, stat_of("link").st_uid, "owner of the link after lchown");
    expect_equal(7, stat_of("link.named").st_uid, "owner of what it names after lchown");
}

void test_set_id_bits()
{
    make_file("source", "source");
    for (const mode_t mode : {06777, 06666, 06766, 06676, 04777, 02777, 02767, 00777}) {
        for (const Change& change : kContentChanges) {
            for (const bool by_root : {false, true}) {
                make_file("file", "content");
                set_owner("file", users.alice.uid, users.shared_gid);
                set_mode("file", mode);
                as(by_root ? users.root : users.alice, [&] {
                    expect_result(0, change.perform("file"), "%s of a file of mode %04o", change.name, mode);
                });
                expect_equal(by_root ? mode : mode_after_write(mode), mode_of("file"),
                             "mode after %s by %s of a file of mode %04o", change.name,
                             by_root ? "root" : "its owner", mode);
                remove_tree("file");
            }
        }
        // Whoever changes the owner, root too.
        for (const Kind kind : {Kind::kFile, Kind::kDirectory}) {
            make(kind, "it");
            set_mode("it", mode);
            expect_result(0, chown("it", users.bob.uid, users.bob.gid), "chown by root");
            const bool stays = kind == Kind::kDirectory;
            const mode_t cleared = (mode & 010) != 0 ? mode & ~06000 : mode & ~04000;
            expect_equal(stays ? mode : cleared, mode_of("it"), "mode after chown by root of %s of mode %04o",
                         kind_name(kind), mode);
            remove_tree("it");
        }
    }
}

void test_set_times()
{
    const Case cases[]{{"the owner", true, 0},
                       {"the owner of a file of mode 0777", true, 0777},
                       {"another who may write", false, 0777},
                       {"another who may not write", false, 0755}};
    for (const Case& who : cases)
        for (const Time& atime : kTimes)
            for (const Time& mtime : kTimes)
                check_utimens(atime, mtime, who);
    for (const Kind kind : kKinds) {
        if (kind == Kind::kMissing)
            continue;
        make(kind, "it");
        const timespec times[]{{.tv_sec = 111, .tv_nsec = 222}, {.tv_sec = 333, .tv_nsec = 444}};
        expect_result(0, utimensat(AT_FDCWD, "it", times, AT_SYMLINK_NOFOLLOW), "utimensat of %s",
                      kind_name(kind));
        expect_equal(111, stat_of("it").st_atim.tv_sec, "atime of %s", kind_name(kind));
        expect_equal(444, stat_of("it").st_mtim.tv_nsec, "nanoseconds of mtime of %s", kind_name(kind));
        remove_tree("it");
    }
    make_file("file");
    for (const int64_t seconds : {int64_t{-1}, int64_t{-2147483647}, int64_t{0}, int64_t{2147483648},
                                  int64_t{4294967296}, int64_t{15032385534}}) {
        const timespec times[]{{.tv_sec = seconds, .tv_nsec = 999999999}, {.tv_sec = seconds, .tv_nsec = 0}};
        expect_result(0, utimensat(AT_FDCWD, "file", times, 0), "utimensat to %ld", seconds);
        expect_equal(seconds, stat_of("file").st_atim.tv_sec, "atime set to %ld", seconds);
        expect_equal(999999999, stat_of("file").st_atim.tv_nsec, "nanoseconds of atime set to %ld", seconds);
        expect_equal(seconds, stat_of("file").st_mtim.tv_sec, "mtime set to %ld", seconds);
    }
    for (const int64_t nanoseconds : {int64_t{-1}, int64_t{1000000000}}) {
        const timespec times[]{{.tv_sec = 0, .tv_nsec = nanoseconds}, {.tv_sec = 0, .tv_nsec = 0}};
        expect_result(EINVAL, utimensat(AT_FDCWD, "file", times, 0), "utimensat with %ld nanoseconds",
                      nanoseconds);
    }
    expect_result(ENOENT, utimensat(AT_FDCWD, "missing", nullptr, 0), "utimensat of what is not there");
    const UniqueFd fd = open_file("file", O_RDONLY);
    expect_result(0, futimens(fd.get(), nullptr), "futimens of a descriptor for reading");
    expect(stat_of("file").st_mtim.tv_sec > 1600000000, "futimens without times means now");
}

}  // namespace cowraid::posix
