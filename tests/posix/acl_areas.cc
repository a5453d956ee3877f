// SPDX-License-Identifier: MIT
// Access lists, set and read as the attributes that setfacl uses.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/print.h"
#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

constexpr const char* kAccessName = "system.posix_acl_access";
constexpr const char* kDefaultName = "system.posix_acl_default";

enum Tag : uint16_t { kUserObject = 1, kUser = 2, kGroupObject = 4, kGroup = 8, kMask = 16, kOther = 32 };

struct Entry {
    uint16_t tag;
    uint16_t bits;
    uint32_t id = 0xffffffff;
};
using Acl = std::vector<Entry>;

std::string encode(const Acl& acl)
{
    const uint32_t version = 2;
    std::string out(reinterpret_cast<const char*>(&version), sizeof version);
    for (const Entry& entry : acl)
        out.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    return out;
}

// As getfacl: "u::rwx u:1:r-x m::r--".
std::string text_of(const Acl& acl)
{
    std::string text;
    for (const Entry& entry : acl) {
        const char* tag = entry.tag == kUserObject || entry.tag == kUser     ? "u"
                          : entry.tag == kGroupObject || entry.tag == kGroup ? "g"
                          : entry.tag == kMask                               ? "m"
                                                                             : "o";
        const bool named = entry.tag == kUser || entry.tag == kGroup;
        text += text_format("%s:%s:%o ", tag, named ? std::to_string(entry.id).c_str() : "", entry.bits);
    }
    return text;
}

// What is stored; a text that says so when there is none.
std::string acl_text(const std::string& path, const char* name)
{
    std::string value(4096, '\0');
    const ssize_t bytes = lgetxattr(path.c_str(), name, value.data(), value.size());
    if (bytes < 4)
        return std::string("(") + (bytes < 0 ? strerrorname_np(errno) : "short") + ")";
    Acl acl((static_cast<size_t>(bytes) - 4) / sizeof(Entry));
    memcpy(acl.data(), value.data() + 4, acl.size() * sizeof(Entry));
    return text_of(acl);
}

int set_acl(const std::string& path, const char* name, const Acl& acl)
{
    const std::string value = encode(acl);
    return lsetxattr(path.c_str(), name, value.data(), value.size(), 0);
}

const Entry* find(const Acl& acl, uint16_t tag)
{
    const auto at =
        std::find_if(acl.begin(), acl.end(), [&](const Entry& entry) { return entry.tag == tag; });
    return at == acl.end() ? nullptr : &*at;
}

bool in_group(const User& user, gid_t gid)
{
    return user.gid == gid || std::find(user.groups.begin(), user.groups.end(), gid) != user.groups.end();
}

// The algorithm of acl(5).
bool grants(const Acl& acl, const User& user, uid_t owner, gid_t group, unsigned wanted)
{
    const Entry* mask = find(acl, kMask);
    const unsigned limit = mask == nullptr ? 7 : mask->bits;
    if (user.uid == owner)
        return (find(acl, kUserObject)->bits & wanted) == wanted;
    bool matched = false;
    for (const Entry& entry : acl) {
        if (entry.tag == kUser && entry.id == user.uid)
            return (entry.bits & limit & wanted) == wanted;
        const bool mine = (entry.tag == kGroupObject && in_group(user, group)) ||
                          (entry.tag == kGroup && in_group(user, entry.id));
        if (mine && (entry.bits & limit & wanted) == wanted)
            return true;
        matched = matched || mine;
    }
    return !matched && (find(acl, kOther)->bits & wanted) == wanted;
}

mode_t mode_from(const Acl& acl)
{
    const Entry* mask = find(acl, kMask);
    const unsigned middle = mask != nullptr ? mask->bits : find(acl, kGroupObject)->bits;
    return find(acl, kUserObject)->bits << 6 | middle << 3 | find(acl, kOther)->bits;
}

bool is_minimal(const Acl& acl)
{
    return acl.size() == 3;
}

constexpr uint16_t kNone = 0xffff;

Acl build(uint16_t owner, uint16_t alice, uint16_t group, uint16_t shared, uint16_t mask, uint16_t other)
{
    Acl acl{{kUserObject, owner}};
    if (alice != kNone)
        acl.push_back({kUser, alice, users.alice.uid});
    acl.push_back({kGroupObject, group});
    if (shared != kNone)
        acl.push_back({kGroup, shared, users.shared_gid});
    if (mask != kNone)
        acl.push_back({kMask, mask});
    acl.push_back({kOther, other});
    return acl;
}

void check_grants(const Acl& acl, const User& user, uid_t owner, gid_t group)
{
    const std::string text = text_of(acl);
    as(user, [&] {
        for (const unsigned wanted : {4U, 2U, 1U, 6U}) {
            const int error = grants(acl, user, owner, group, wanted) ? 0 : EACCES;
            expect_result(error, access("file", static_cast<int>(wanted)),
                          "access %o by %s to a file of %u:%u with %s", wanted, user.name.c_str(), owner,
                          group, text.c_str());
        }
        const int error = grants(acl, user, owner, group, 6) ? 0 : EACCES;
        const UniqueFd fd(open("file", O_RDWR | O_CLOEXEC));
        expect_result(error, fd.get(), "open by %s of a file of %u:%u with %s", user.name.c_str(), owner,
                      group, text.c_str());
    });
}

std::vector<Acl> many_lists()
{
    std::vector<Acl> lists;
    for (const uint16_t alice : {uint16_t{kNone}, uint16_t{0}, uint16_t{4}, uint16_t{7}})
        for (const uint16_t group : {uint16_t{0}, uint16_t{6}})
            for (const uint16_t shared : {uint16_t{kNone}, uint16_t{0}, uint16_t{5}})
                for (const uint16_t mask : {uint16_t{7}, uint16_t{4}})
                    for (const uint16_t other : {uint16_t{0}, uint16_t{7}}) {
                        const bool named = alice != kNone || shared != kNone;
                        if (named || mask == 7)
                            lists.push_back(build(6, alice, group, shared, named ? mask : kNone, other));
                    }
    return lists;
}

// What a mode leaves of an inherited list.
Acl masked(const Acl& acl, mode_t mode)
{
    Acl out = acl;
    const bool has_mask = find(acl, kMask) != nullptr;
    for (Entry& entry : out) {
        if (entry.tag == kUserObject)
            entry.bits &= mode >> 6 & 7;
        else if (entry.tag == (has_mask ? kMask : kGroupObject))
            entry.bits &= mode >> 3 & 7;
        else if (entry.tag == kOther)
            entry.bits &= mode & 7;
    }
    return out;
}

int make_by_open(const char* path, mode_t mode)
{
    const UniqueFd fd(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    return fd.valid() ? 0 : -1;
}

struct Maker {
    const char* name;
    int (*make)(const char* path, mode_t mode);
};

void check_inherited(const Acl& acl, const Maker& maker, mode_t mode, mode_t mask)
{
    const std::string text = text_of(acl);
    make_directory("directory");
    expect_result(0, set_acl("directory", kDefaultName, acl), "setting the default list %s", text.c_str());
    umask(mask);
    expect_result(0, maker.make("directory/it", mode), "%s below the default list %s", maker.name,
                  text.c_str());
    umask(0);
    const Acl wanted = masked(acl, mode);
    expect_equal(mode_from(wanted), mode_of("directory/it"),
                 "mode of what %s with mode %04o made below the default list %s", maker.name, mode,
                 text.c_str());
    expect_text(is_minimal(acl) ? "(ENODATA)" : text_of(wanted), acl_text("directory/it", kAccessName),
                "list of what %s with mode %04o made below the default list %s", maker.name, mode,
                text.c_str());
    expect_text(maker.make == mkdir ? text : "(ENODATA)", acl_text("directory/it", kDefaultName),
                "default list of what %s made below the default list %s", maker.name, text.c_str());
    remove_tree("directory");
}

void check_chmod(const Acl& acl, mode_t mode)
{
    make_file("file");
    const std::string text = text_of(acl);
    expect_result(0, set_acl("file", kAccessName, acl), "setting %s", text.c_str());
    expect_equal(mode_from(acl), mode_of("file"), "mode with %s", text.c_str());
    expect_result(0, chmod("file", mode), "chmod to %04o with %s", mode, text.c_str());
    Acl wanted = acl;
    const bool has_mask = find(acl, kMask) != nullptr;
    for (Entry& entry : wanted) {
        if (entry.tag == kUserObject)
            entry.bits = mode >> 6 & 7;
        else if (entry.tag == (has_mask ? kMask : kGroupObject))
            entry.bits = mode >> 3 & 7;
        else if (entry.tag == kOther)
            entry.bits = mode & 7;
    }
    expect_text(is_minimal(acl) ? "(ENODATA)" : text_of(wanted), acl_text("file", kAccessName),
                "list after chmod to %04o of %s", mode, text.c_str());
    expect_equal(mode, mode_of("file"), "mode after chmod to %04o with %s", mode, text.c_str());
    remove_tree("file");
}

void check_malformed()
{
    struct Malformed {
        const char* name;
        Acl acl;
    };
    const uint32_t id = users.alice.uid;
    const Malformed lists[]{
        {"no owner", {{kGroupObject, 6}, {kOther, 4}}},
        {"no group", {{kUserObject, 6}, {kOther, 4}}},
        {"no others", {{kUserObject, 6}, {kGroupObject, 4}}},
        {"a user and no mask", {{kUserObject, 6}, {kUser, 4, id}, {kGroupObject, 4}, {kOther, 4}}},
        {"a wrong order", {{kGroupObject, 6}, {kUserObject, 6}, {kOther, 4}}},
        {"two owners", {{kUserObject, 6}, {kUserObject, 6}, {kGroupObject, 4}, {kOther, 4}}},
        {"unknown rights", {{kUserObject, 8}, {kGroupObject, 4}, {kOther, 4}}},
        {"an unknown tag", {{kUserObject, 6}, {kGroupObject, 4}, {kOther, 4}, {64, 4}}},
        {"two masks", {{kUserObject, 6}, {kGroupObject, 4}, {kMask, 7}, {kMask, 7}, {kOther, 4}}},
    };
    make_file("file", "", 0640);
    make_directory("directory", 0750);
    for (const Malformed& list : lists) {
        expect_result(EINVAL, set_acl("file", kAccessName, list.acl), "a list with %s", list.name);
        expect_result(EINVAL, set_acl("directory", kDefaultName, list.acl), "a default list with %s",
                      list.name);
    }
    std::string value = encode(build(6, kNone, 4, kNone, kNone, 4));
    for (const size_t bytes : {3, 5, 11, 13}) {
        expect_result(EINVAL, setxattr("file", kAccessName, value.data(), bytes, 0), "a list of %zu bytes",
                      bytes);
    }
    value[0] = 1;
    expect_result(EOPNOTSUPP, setxattr("file", kAccessName, value.data(), value.size(), 0),
                  "a list of another version");
    expect_equal(0640, mode_of("file"), "mode after refused lists");
    expect_text("(ENODATA)", acl_text("file", kAccessName), "list after refused lists");
}

void check_who_may_set()
{
    const Acl list = build(7, 6, 4, kNone, 6, 0);
    make_file("file");
    set_owner("file", users.bob.uid, users.bob.gid);
    as(users.alice, [&] {
        expect_result(EPERM, set_acl("file", kAccessName, list), "setting a list by another user");
        expect_result(EPERM, removexattr("file", kAccessName), "removing a list by another user");
    });
    as(users.bob,
       [&] { expect_result(0, set_acl("file", kAccessName, list), "setting a list by the owner"); });
    as(users.alice,
       [&] { expect_text(text_of(list), acl_text("file", kAccessName), "a list as another user reads it"); });
    as(users.bob, [&] { expect_result(0, removexattr("file", kAccessName), "removing it by the owner"); });
    expect_text("(ENODATA)", acl_text("file", kAccessName), "the list after that");
    expect_equal(0760, mode_of("file"), "mode after that");
    expect_result(EACCES, set_acl("file", kDefaultName, list), "a default list of a file");
    make(Kind::kLinkToFile, "link");
    expect_result(EOPNOTSUPP, set_acl("link", kAccessName, list), "a list of a link itself");
    for (const Kind kind : {Kind::kFifo, Kind::kSocket, Kind::kDirectory}) {
        make(kind, "it");
        expect_result(0, set_acl("it", kAccessName, list), "a list of %s", kind_name(kind));
        expect_text(text_of(list), acl_text("it", kAccessName), "what %s has then", kind_name(kind));
        remove_tree("it");
    }
}

}  // namespace

void test_acl_access()
{
    if (!has(Feature::kAcl, "access by lists"))
        return;
    make_file("file", "content");
    const std::pair<uid_t, gid_t> owners[]{{users.bob.uid, users.shared_gid}, {0, 0}};
    for (const Acl& acl : many_lists()) {
        for (const auto& [owner, group] : owners) {
            set_owner("file", owner, group);
            expect_result(0, set_acl("file", kAccessName, acl), "setting %s", text_of(acl).c_str());
            expect_text(is_minimal(acl) ? "(ENODATA)" : text_of(acl), acl_text("file", kAccessName),
                        "the list that was set to %s", text_of(acl).c_str());
            expect_equal(mode_from(acl), mode_of("file"), "mode with %s", text_of(acl).c_str());
            check_grants(acl, users.alice, owner, group);
            check_grants(acl, users.bob, owner, group);
        }
    }
}

void test_acl_inheritance()
{
    if (!has(Feature::kAcl, "inherited lists"))
        return;
    constexpr Maker kMakers[]{{"open", make_by_open}, {"mkdir", mkdir}, {"mkfifo", mkfifo}};
    for (const Acl& acl : {build(7, kNone, 5, kNone, kNone, 0), build(7, 6, 5, kNone, 7, 5),
                           build(6, kNone, 0, 7, 4, 0), build(7, 7, 7, 7, 7, 7)})
        for (const Maker& maker : kMakers)
            for (const mode_t mode : {0666, 0777, 0600, 0})
                for (const mode_t mask : {022, 077})
                    check_inherited(acl, maker, mode, mask);
    make_directory("directory");
    require(set_acl("directory", kDefaultName, build(7, 6, 5, kNone, 7, 5)) == 0, "set the default list");
    expect_result(0, symlink("x", "directory/link"), "symlink below a default list");
    expect_text("(EOPNOTSUPP)", acl_text("directory/link", kAccessName), "list of a link");
    make_directory("directory/inner");
    expect_result(0, removexattr("directory", kDefaultName), "removing a default list");
    expect_text("(ENODATA)", acl_text("directory", kDefaultName), "the default list after that");
    expect_text(text_of(build(7, 6, 5, kNone, 7, 5)), acl_text("directory/inner", kDefaultName),
                "the one that was inherited stays");
    expect_result(0, set_acl("directory/inner", kDefaultName, {}), "setting an empty default list");
    expect_text("(ENODATA)", acl_text("directory/inner", kDefaultName), "the default list after that");
}

void test_acl_rules()
{
    if (!has(Feature::kAcl, "rules of lists"))
        return;
    for (const Acl& acl : {build(6, kNone, 4, kNone, kNone, 4), build(6, 7, 4, kNone, 5, 0),
                           build(7, kNone, 0, 7, 7, 1), build(0, 0, 0, 0, 0, 0)})
        for (const mode_t mode : {0777, 0640, 0070, 0000, 0123})
            check_chmod(acl, mode);
    apart(check_malformed);
    apart(check_who_may_set);
}

}  // namespace cowraid::posix
