// SPDX-License-Identifier: MIT
// Extended attributes: user, trusted, security.
#include <fcntl.h>
#include <linux/xattr.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

int set_attribute(const std::string& path, const std::string& name, const std::string& value, int flags = 0)
{
    return lsetxattr(path.c_str(), name.c_str(), value.data(), value.size(), flags);
}

// A text that says so when there is none.
std::string attribute(const std::string& path, const std::string& name)
{
    std::string value(70000, '\0');
    const ssize_t bytes = lgetxattr(path.c_str(), name.c_str(), value.data(), value.size());
    if (bytes < 0)
        return std::string("(") + strerrorname_np(errno) + ")";
    value.resize(static_cast<size_t>(bytes));
    return value;
}

std::set<std::string> names_of(const std::string& path)
{
    std::string list(1 << 16, '\0');
    const ssize_t bytes = llistxattr(path.c_str(), list.data(), list.size());
    std::set<std::string> names;
    for (const char* at = list.data(); at < list.data() + bytes; at += strlen(at) + 1)
        if (strncmp(at, "security.", 9) != 0)  // of a security module
            names.insert(at);
    return names;
}

std::string joined(const std::set<std::string>& names)
{
    std::string text;
    for (const std::string& name : names)
        text += name + " ";
    return text;
}

bool may_have_user_attributes(Kind kind)
{
    return kind == Kind::kFile || is_directory(kind);
}

void check_kind(Kind kind)
{
    make(kind, "it");
    const bool may = may_have_user_attributes(kind);
    expect_result(may ? 0 : EPERM, set_attribute("it", "user.name", "value"), "setting user.name of %s",
                  kind_name(kind));
    expect_text(may ? "value" : "(ENODATA)", attribute("it", "user.name"), "user.name of %s",
                kind_name(kind));
    expect_result(0, set_attribute("it", "trusted.name", "trusted"), "setting trusted.name of %s",
                  kind_name(kind));
    expect_text("trusted", attribute("it", "trusted.name"), "trusted.name of %s", kind_name(kind));
    expect_text(may ? "trusted.name user.name " : "trusted.name ", joined(names_of("it")), "names of %s",
                kind_name(kind));
    as(users.alice, [&] {
        expect_result(EPERM, set_attribute("it", "trusted.name", "x"), "setting trusted.name of %s by a user",
                      kind_name(kind));
        expect_text("(ENODATA)", attribute("it", "trusted.name"), "trusted.name of %s for a user",
                    kind_name(kind));
        expect_text(may ? "user.name " : "", joined(names_of("it")), "names of %s for a user",
                    kind_name(kind));
        expect_result(EPERM, lremovexattr("it", "trusted.name"), "removing trusted.name of %s by a user",
                      kind_name(kind));
    });
    expect_result(0, lremovexattr("it", "trusted.name"), "removing trusted.name of %s", kind_name(kind));
    expect_text(may ? "user.name " : "", joined(names_of("it")), "names of %s after that", kind_name(kind));
    remove_tree("it");
}

void check_rights(mode_t bits)
{
    for (const Kind kind : {Kind::kFile, Kind::kDirectory}) {
        make(kind, "it");
        require(set_attribute("it", "user.old", "old") == 0, "setxattr");
        set_owner("it", users.bob.uid, users.bob.gid);
        set_mode("it", 0770 | bits);
        const bool reads = (bits & 4) != 0, writes = (bits & 2) != 0;
        as(users.alice, [&] {
            expect_text(reads ? "old" : "(EACCES)", attribute("it", "user.old"),
                        "user.old of %s with rights %o", kind_name(kind), bits);
            expect_result(writes ? 0 : EACCES, set_attribute("it", "user.new", "new"),
                          "setting user.new of %s with rights %o", kind_name(kind), bits);
            expect_result(writes ? 0 : EACCES, lremovexattr("it", "user.old"),
                          "removing user.old of %s with rights %o", kind_name(kind), bits);
            expect_text(writes ? "user.new " : "user.old ", joined(names_of("it")),
                        "names of %s with rights %o", kind_name(kind), bits);
        });
        remove_tree("it");
    }
}

void check_flags()
{
    make_file("file");
    expect_result(ENODATA, set_attribute("file", "user.a", "1", XATTR_REPLACE),
                  "REPLACE of what is not there");
    expect_result(0, set_attribute("file", "user.a", "1", XATTR_CREATE), "CREATE of what is not there");
    expect_result(EEXIST, set_attribute("file", "user.a", "2", XATTR_CREATE), "CREATE of what is there");
    expect_text("1", attribute("file", "user.a"), "value after it");
    expect_result(0, set_attribute("file", "user.a", "3", XATTR_REPLACE), "REPLACE of what is there");
    expect_text("3", attribute("file", "user.a"), "value after REPLACE");
    expect_result(EINVAL, set_attribute("file", "user.a", "4", 4), "unknown flags");
    expect_result(0, set_attribute("file", "user.a", ""), "an empty value");
    expect_text("", attribute("file", "user.a"), "it is empty, and there");
    expect_result(0, lremovexattr("file", "user.a"), "removal");
    expect_result(ENODATA, lremovexattr("file", "user.a"), "removal of what is not there");
    expect_result(EOPNOTSUPP, set_attribute("file", "other.a", "1"), "setting in an unknown namespace");
    expect_text("(EOPNOTSUPP)", attribute("file", "other.a"), "asking in an unknown namespace");
    expect_result(EOPNOTSUPP, set_attribute("file", "noname", "1"), "setting without a namespace");
    expect_result(EINVAL, set_attribute("file", "user.", "1"), "setting of \"user.\"");
    expect_result(ERANGE, set_attribute("file", "", "1"), "setting of an empty name");
    const UniqueFd path = open_file("file", O_PATH), reader = open_file("file", O_RDONLY);
    expect_result(EBADF, fsetxattr(path.get(), "user.a", "1", 1, 0), "fsetxattr through O_PATH");
    expect_result(0, fsetxattr(reader.get(), "user.a", "1", 1, 0),
                  "fsetxattr through a descriptor for reading");
    make(Kind::kLinkToFile, "link");
    expect_result(0, setxattr("link", "user.a", "through", 7, 0), "setxattr through a link");
    expect_text("through", attribute("link.named", "user.a"), "value of what it names");
    expect_result(ENOENT, setxattr("missing", "user.a", "1", 1, 0), "setxattr of what is not there");
    make_directory("sticky", 01777);
    as(users.alice, [] {
        expect_result(EPERM, set_attribute("sticky", "user.a", "1"),
                      "setting of a sticky directory of another");
    });
}

bool has_capability(const std::string& path)
{
    return attribute(path, "security.capability").size() == 20;
}

// cap_dac_read_search, effective.
std::string capability()
{
    const unsigned char bytes[20]{1, 0, 0, 2, 4};
    return {reinterpret_cast<const char*>(bytes), sizeof bytes};
}

struct Step {
    const char* name;
    int (*perform)(const char* path);
    bool kills;
};

int step_write(const char* path)
{
    const UniqueFd fd(open(path, O_WRONLY | O_APPEND | O_CLOEXEC));
    return write(fd.get(), "x", 1) == 1 ? 0 : -1;
}

int step_truncate(const char* path)
{
    return truncate(path, 1);
}

int step_open_truncate(const char* path)
{
    const UniqueFd fd(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC));
    return fd.valid() ? 0 : -1;
}

int step_fallocate(const char* path)
{
    const UniqueFd fd(open(path, O_WRONLY | O_CLOEXEC));
    return fallocate(fd.get(), 0, 0, 5000);
}

int step_chown(const char* path)
{
    return chown(path, users.bob.uid, users.bob.gid);
}

int step_chmod(const char* path)
{
    return chmod(path, 0755);
}

int step_rename(const char* path)
{
    const std::string other = std::string(path) + ".other";
    return rename(path, other.c_str()) == 0 && rename(other.c_str(), path) == 0 ? 0 : -1;
}

int step_link(const char* path)
{
    return link(path, (std::string(path) + ".linked").c_str());
}

int step_read(const char* path)
{
    return content_of(path).empty() ? -1 : 0;
}

int step_times(const char* path)
{
    return utimensat(AT_FDCWD, path, nullptr, 0);
}

constexpr Step kSteps[]{{"write", step_write, true},
                        {"truncate", step_truncate, true},
                        {"O_TRUNC", step_open_truncate, true},
                        {"fallocate", step_fallocate, true},
                        {"chown", step_chown, true},
                        {"chmod", step_chmod, false},
                        {"rename", step_rename, false},
                        {"link", step_link, false},
                        {"read", step_read, false},
                        {"utimensat", step_times, false}};

void check_file_capabilities()
{
    for (const Step& step : kSteps) {
        make_file("file", "content", 0777);
        expect_result(0, set_attribute("file", "security.capability", capability()),
                      "setting capabilities before %s", step.name);
        expect(has_capability("file"), "capabilities are there before %s", step.name);
        expect_result(0, step.perform("file"), "%s of a file with capabilities", step.name);
        expect_equal(step.kills ? 0 : 1, static_cast<int64_t>(has_capability("file")), "capabilities %s %s",
                     step.kills ? "go with" : "stay after", step.name);
        remove_tree("file");
        remove_tree("file.linked");
    }
    make_file("secret", "secret", 0600);
    make_file("cat", content_of("/bin/cat"), 0755);
    const auto runs = [] {
        const pid_t child = fork();
        if (child == 0) {
            const int null = open("/dev/null", O_WRONLY);
            dup2(null, 1);
            dup2(null, 2);
            execl("./cat", "cat", "secret", static_cast<char*>(nullptr));
            _exit(99);
        }
        int status = 0;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    };
    as(users.alice, [&] { expect_equal(1, runs(), "cat of a file of root by a user"); });
    expect_result(0, set_attribute("cat", "security.capability", capability()),
                  "setting capabilities of cat");
    as(users.alice, [&] { expect_equal(0, runs(), "cat of a file of root by a user, with capabilities"); });
}

}  // namespace

void test_attributes()
{
    for (const Kind kind : kKinds)
        if (kind != Kind::kMissing && kind != Kind::kFullDirectory)
            check_kind(kind);
    for (mode_t bits = 0; bits < 8; ++bits)
        check_rights(bits);
    apart(check_flags);
}

void test_attribute_limits()
{
    make_file("file");
    for (const size_t bytes : {1, 100, 4000, 16384, 65535, 65536}) {
        std::string value(bytes, '\0');
        for (size_t i = 0; i < bytes; ++i)
            value[i] = static_cast<char>(i * 7 + i / 256);
        expect_result(0, set_attribute("file", "user.value", value), "setting a value of %zu bytes", bytes);
        expect_text(value, attribute("file", "user.value"), "a value of %zu bytes", bytes);
        expect_equal(static_cast<int64_t>(bytes), getxattr("file", "user.value", nullptr, 0),
                     "size of a value of %zu bytes", bytes);
        char small[1];
        if (bytes > 1)
            expect_result(ERANGE, getxattr("file", "user.value", small, 1), "%zu bytes into one", bytes);
    }
    expect_result(E2BIG, set_attribute("file", "user.value", std::string(65537, 'x')),
                  "a value of 65537 bytes");
    for (const size_t length : {6, 100, 254, 255}) {
        const std::string name = "user." + std::string(length - 5, 'n');
        expect_result(0, set_attribute("file", name, "long"), "setting a name of %zu bytes", length);
        expect_text("long", attribute("file", name), "a name of %zu bytes", length);
        expect_equal(1, static_cast<int64_t>(names_of("file").count(name)), "a name of %zu bytes is listed",
                     length);
    }
    expect_result(ERANGE, set_attribute("file", "user." + std::string(251, 'n'), "long"),
                  "a name of 256 bytes");
    remove_tree("file");
    make_file("file");
    std::set<std::string> wanted;
    for (int i = 0; i < 120; ++i) {
        const std::string name = "user.number" + std::to_string(i);
        expect_result(0, set_attribute("file", name, std::to_string(i * i)), "setting %s", name.c_str());
        wanted.insert(name);
    }
    expect_text(joined(wanted), joined(names_of("file")), "120 names");
    const ssize_t room = listxattr("file", nullptr, 0);
    expect(room >= 120 * 13, "room for 120 names: %zd", room);
    std::string list(static_cast<size_t>(room), '\0');
    expect_result(ERANGE, listxattr("file", list.data(), list.size() - 1), "names into one byte too few");
    expect_equal(room, listxattr("file", list.data(), list.size()), "names into as many bytes as they have");
    for (int i = 0; i < 120; i += 2)
        expect_result(0, removexattr("file", ("user.number" + std::to_string(i)).c_str()),
                      "removing number %d", i);
    for (int i = 0; i < 120; ++i)
        expect_text(i % 2 == 0 ? "(ENODATA)" : std::to_string(i * i),
                    attribute("file", "user.number" + std::to_string(i)), "value of number %d", i);
}

void test_security_attributes()
{
    if (!has(Feature::kSecurity, "security attributes"))
        return;
    for (const Kind kind : kKinds) {
        if (kind == Kind::kMissing || kind == Kind::kFullDirectory)
            continue;
        make(kind, "it");
        expect_result(0, set_attribute("it", "security.test", "label"), "setting security.test of %s",
                      kind_name(kind));
        expect_text("label", attribute("it", "security.test"), "security.test of %s", kind_name(kind));
        as(users.alice, [&] {
            expect_text("label", attribute("it", "security.test"), "security.test of %s for a user",
                        kind_name(kind));
            expect_result(EPERM, set_attribute("it", "security.test", "x"),
                          "setting security.test of %s by a user", kind_name(kind));
            expect_result(EPERM, lremovexattr("it", "security.test"), "removing it of %s by a user",
                          kind_name(kind));
        });
        expect_result(0, lremovexattr("it", "security.test"), "removing security.test of %s",
                      kind_name(kind));
        expect_text("(ENODATA)", attribute("it", "security.test"), "security.test of %s after that",
                    kind_name(kind));
        remove_tree("it");
    }
    make_file("file", "content", 0777);
    expect_result(EINVAL, set_attribute("file", "security.capability", "short"),
                  "capabilities that are none");
    as(users.alice, [] {
        expect_result(EPERM, set_attribute("file", "security.capability", capability()),
                      "setting capabilities by a user");
    });
    apart(check_file_capabilities);
}

}  // namespace cowraid::posix
