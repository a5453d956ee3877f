// SPDX-License-Identifier: MIT
// Attributes, access times and extended attributes.
#include <doctest/doctest.h>
#include <sys/xattr.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "format/node.h"
#include "tests/support/names_volume.h"

using namespace cowraid;

namespace {

uint32_t mode_after_chown(Filesystem& fs, InodeNumber inode, uint32_t mode, const Caller& caller)
{
    SetAttributes set_mode;
    set_mode.mode = mode;
    REQUIRE(fs.names.set_attributes(inode, set_mode, kRootCaller)->mode % 010000 == mode);
    SetAttributes set_owner;
    set_owner.uid = 5;
    set_owner.gid = 6;
    const Result<Attributes> changed = fs.names.set_attributes(inode, set_owner, caller);
    REQUIRE(changed.ok());
    CHECK(changed->uid == 5);
    CHECK(changed->gid == 6);
    return changed->mode % 010000;
}

bool same_time(const timespec& a, const timespec& b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

timespec now()
{
    timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time;
}

// Accessed long ago, changed long before that, as only set_attributes() can say.
void set_times(Filesystem& fs, InodeNumber inode, time_t accessed, time_t modified, time_t changed)
{
    SetAttributes times;
    times.accessed = timespec{accessed, 1};
    times.modified = timespec{modified, 2};
    times.changed = timespec{changed, 3};
    REQUIRE(fs.names.set_attributes(inode, times, kRootCaller).ok());
}

std::vector<std::string> listed_xattrs(Filesystem& fs, InodeNumber inode)
{
    const Result<std::string> list = fs.names.list_xattrs(inode);
    REQUIRE(list.ok());
    std::vector<std::string> names;
    for (size_t at = 0; at < list->size(); at += names.back().size() + 1)
        names.emplace_back(list->c_str() + at);
    return names;
}

}  // namespace

TEST_CASE("set_attributes: mode, owner and times, kept over a remount")
{
    TestVolume volume(manual_options());
    const InodeNumber file = make_file(volume.fs(), kRoot, "file");
    SetAttributes change;
    change.mode = S_IFDIR | 07421;  // the type is not the caller's to change
    change.uid = 12;
    change.gid = UINT32_MAX - 1;
    change.accessed = timespec{-5, 999999999};
    change.modified = timespec{int64_t{1} << 40, 0};
    const Result<Attributes> set = volume.fs().names.set_attributes(file, change, kUser);
    REQUIRE(set.ok());
    for (int round = 0; round < 2; ++round) {
        const Attributes found = attributes(volume.fs(), file);
        CHECK(found.mode == (S_IFREG | 07421));
        CHECK(found.uid == 12);
        CHECK(found.gid == UINT32_MAX - 1);
        CHECK(same_time(found.accessed, {-5, 999999999}));
        CHECK(same_time(found.modified, {int64_t{1} << 40, 0}));
        CHECK(found.changed.tv_sec > now().tv_sec - 600);
        volume.reopen();
    }
    SetAttributes to_now;
    to_now.accessed_now = to_now.modified_now = true;
    const Result<Attributes> touched = volume.fs().names.set_attributes(file, to_now, kUser);
    REQUIRE(touched.ok());
    CHECK(touched->accessed.tv_sec > now().tv_sec - 600);
    CHECK(touched->accessed.tv_sec <= now().tv_sec);
    CHECK(same_time(touched->accessed, touched->modified));
    CHECK(touched->mode == (S_IFREG | 07421));
}

TEST_CASE("set_attributes: errors")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    const Result<Attributes> fifo = fs.names.make_node(kRoot, "fifo", S_IFIFO | 0600, 0, kUser);
    REQUIRE(fifo.ok());
    SetAttributes bad_time;
    bad_time.modified = timespec{0, 1000000000};
    CHECK(fs.names.set_attributes(file, bad_time, kUser).err() == Err::kInvalid);
    bad_time.modified = timespec{0, -1};
    CHECK(fs.names.set_attributes(file, bad_time, kUser).err() == Err::kInvalid);
    SetAttributes size;
    size.size_bytes = 0;
    CHECK(fs.names.set_attributes(kRoot, size, kUser).err() == Err::kIsDirectory);
    CHECK(fs.names.set_attributes(fifo->inode, size, kUser).err() == Err::kInvalid);
    CHECK(fs.names.set_attributes({98765}, SetAttributes{}, kUser).err() == Err::kStale);
    CHECK(fs.names.get_attributes({98765}).err() == Err::kStale);
}

TEST_CASE("set_attributes: size together with the rest")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    SetAttributes change;
    change.size_bytes = 123456;
    CHECK(fs.names.set_attributes(file, change, kRootCaller)->size_bytes == 123456);
    change.size_bytes = 100;
    change.mode = 0600;
    change.modified = timespec{77, 7};
    const Result<Attributes> set = fs.names.set_attributes(file, change, kRootCaller);
    REQUIRE(set.ok());
    CHECK(set->size_bytes == 100);
    CHECK(set->mode == (S_IFREG | 0600));
    CHECK(same_time(set->modified, {77, 7}));
}

TEST_CASE("a new owner clears set-id bits of files, as Linux does")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    const InodeNumber directory = make_directory(fs, kRoot, "directory");
    for (const Caller& caller : {kUser, kRootCaller}) {
        CHECK(mode_after_chown(fs, file, 06755, caller) == 0755);
        CHECK(mode_after_chown(fs, file, 06745, caller) == 02745);
        CHECK(mode_after_chown(fs, file, 0644, caller) == 0644);
        CHECK(mode_after_chown(fs, directory, 06755, caller) == 06755);
    }
    SetAttributes both;
    both.uid = 9;
    both.mode = 04711;
    CHECK(fs.names.set_attributes(file, both, kRootCaller)->mode == (S_IFREG | 04711));
}

TEST_CASE("relatime: the first access after a change, and once a day")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    const time_t today = now().tv_sec;
    struct Case {
        time_t accessed, modified, changed;
        bool updates;
    };
    const Case cases[] = {
        {today - 1000, today - 2000, today - 2000, false},
        {today - 1000, today - 900, today - 2000, true},
        {today - 1000, today - 2000, today - 900, true},
        {today - 1000, today - 1000, today - 1000, true},
        {today - 86300, today - 90000, today - 90000, false},
        {today - 86401, today - 90000, today - 90000, true},
        {today + 1000, today - 90000, today - 90000, false},
        {INT64_MIN, INT64_MIN, INT64_MIN, true},
    };
    size_t case_count = 0;
    for (const Case& c : cases) {
        set_times(fs, file, c.accessed, c.modified, c.changed);
        const Attributes before = attributes(fs, file);
        fs.names.note_access(file);
        const Attributes after = attributes(fs, file);
        CHECK(after.accessed.tv_sec == (c.updates ? after.accessed.tv_sec : c.accessed));
        CHECK((after.accessed.tv_sec >= today - 5 && after.accessed.tv_sec < today + 600) == c.updates);
        CHECK(same_time(after.modified, before.modified));
        CHECK(same_time(after.changed, before.changed));
        ++case_count;
    }
    CHECK(case_count == 8);
    fs.names.note_access({4711});
}

TEST_CASE("noatime never, strictatime always")
{
    for (const AccessTime rule : {AccessTime::kNever, AccessTime::kStrict}) {
        MountOptions options = manual_options();
        options.access_time = rule;
        TestVolume volume(options);
        Filesystem& fs = volume.fs();
        const InodeNumber file = make_file(fs, kRoot, "file");
        const time_t today = now().tv_sec;
        set_times(fs, file, rule == AccessTime::kStrict ? today - 100 : today - 200000, today - 200, today);
        fs.names.note_access(file);
        CHECK((attributes(fs, file).accessed.tv_sec >= today - 5) == (rule == AccessTime::kStrict));
        // One that lies ahead of the clock.
        set_times(fs, file, today + 10000, today - 200, today);
        fs.names.note_access(file);
        CHECK((attributes(fs, file).accessed.tv_sec < today + 5000) == (rule == AccessTime::kStrict));
    }
}

TEST_CASE("extended attributes: set, replace, list, remove, over a remount")
{
    TestVolume volume(manual_options());
    const InodeNumber file = make_file(volume.fs(), kRoot, "file");
    std::string big(7000, 'b');
    REQUIRE(volume.fs().names.set_xattr(file, "user.one", bytes_of("1"), 0).ok());
    REQUIRE(volume.fs().names.set_xattr(file, "trusted.two", bytes_of(big), XATTR_CREATE).ok());
    REQUIRE(volume.fs().names.set_xattr(file, "user.empty", {}, 0).ok());
    REQUIRE(volume.fs().names.set_xattr(file, "user.one", bytes_of("eins"), XATTR_REPLACE).ok());
    REQUIRE(volume.fs().names.set_xattr(kRoot, "user.one", bytes_of("root"), 0).ok());
    for (int round = 0; round < 2; ++round) {
        Filesystem& fs = volume.fs();
        CHECK(text_of(*fs.names.get_xattr(file, "user.one")) == "eins");
        CHECK(text_of(*fs.names.get_xattr(file, "trusted.two")) == big);
        CHECK(fs.names.get_xattr(file, "user.empty")->empty());
        CHECK(text_of(*fs.names.get_xattr(kRoot, "user.one")) == "root");
        std::vector<std::string> names = listed_xattrs(fs, file);
        std::sort(names.begin(), names.end());
        CHECK(names == std::vector<std::string>{"trusted.two", "user.empty", "user.one"});
        volume.reopen();
    }
    Filesystem& fs = volume.fs();
    set_times(fs, file, 1, 1, 1);
    REQUIRE(fs.names.remove_xattr(file, "user.one").ok());
    CHECK(attributes(fs, file).changed.tv_sec > 1);
    CHECK(attributes(fs, file).modified.tv_sec == 1);
    CHECK(fs.names.get_xattr(file, "user.one").err() == Err::kNoData);
    CHECK(listed_xattrs(fs, file).size() == 2);
    set_times(fs, file, 1, 1, 1);
    REQUIRE(fs.names.set_xattr(file, "user.one", bytes_of("again"), XATTR_CREATE).ok());
    CHECK(attributes(fs, file).changed.tv_sec > 1);
}

TEST_CASE("extended attributes: errors and sizes")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    REQUIRE(fs.names.set_xattr(file, "user.a", bytes_of("1"), 0).ok());
    const std::string long_name = "user." + std::string(250, 'n');
    CHECK(fs.names.set_xattr(file, "user.a", bytes_of("2"), XATTR_CREATE).err() == Err::kExists);
    CHECK(fs.names.set_xattr(file, "user.b", bytes_of("2"), XATTR_REPLACE).err() == Err::kNoData);
    CHECK(fs.names.set_xattr(file, "user.b", bytes_of("2"), XATTR_CREATE | XATTR_REPLACE).err() ==
          Err::kInvalid);
    CHECK(fs.names.set_xattr(file, "", bytes_of("2"), 0).err() == Err::kRange);
    CHECK(fs.names.set_xattr(file, long_name + "n", bytes_of("2"), 0).err() == Err::kRange);
    CHECK(fs.names.set_xattr(file, long_name, bytes_of("2"), 0).ok());
    CHECK(fs.names.set_xattr({98765}, "user.a", bytes_of("2"), 0).err() == Err::kStale);
    CHECK(fs.names.get_xattr(file, "user.missing").err() == Err::kNoData);
    CHECK(fs.names.get_xattr(file, "").err() == Err::kRange);
    CHECK(fs.names.remove_xattr(file, "user.missing").err() == Err::kNoData);
    CHECK(fs.names.list_xattrs({98765}).err() == Err::kStale);

    CHECK(fs.names.set_xattr(file, "user.a", bytes_of(std::string(65537, 'x')), 0).err() == Err::kTooBig);
    CHECK(text_of(*fs.names.get_xattr(file, "user.a")) == "1");
}

TEST_CASE("extended attributes of any size up to 64 KiB, whatever they were before")
{
    TestVolume volume(manual_options());
    const InodeNumber file = make_file(volume.fs(), kRoot, "file");
    const std::string long_name = "user." + std::string(250, 'n');
    const size_t most = kMaxItemBytes - sizeof(DiskXattr) - 6;
    const size_t sizes[] = {most, most + 1, 65536, 0, 2 * most, 65536, 3 * most + 7, 1, 40000};
    char fill = 'a';
    for (const size_t bytes : sizes) {
        std::string expected(bytes, fill++);
        for (size_t i = 0; i < bytes; i += 97)
            expected[i] = static_cast<char>('A' + i % 26);
        for (const std::string& name : {std::string("user.a"), long_name}) {
            REQUIRE(volume.fs().names.set_xattr(file, name, bytes_of(expected), 0).ok());
            CHECK(text_of(*volume.fs().names.get_xattr(file, name)) == expected);
        }
        CHECK(listed_xattrs(volume.fs(), file).size() == 2);
        volume.reopen();
        for (const std::string& name : {std::string("user.a"), long_name})
            CHECK(text_of(*volume.fs().names.get_xattr(file, name)) == expected);
    }
    REQUIRE(volume.fs().names.remove_xattr(file, long_name).ok());
    CHECK(volume.fs().names.get_xattr(file, long_name).err() == Err::kNoData);
    CHECK(listed_xattrs(volume.fs(), file) == std::vector<std::string>{"user.a"});
    volume.reopen();
    CHECK(volume.fs().names.get_xattr(file, "user.a")->size() == 40000);
}

TEST_CASE("thousands of extended attributes on one inode")
{
    TestVolume volume(manual_options());
    const InodeNumber file = make_file(volume.fs(), kRoot, "file");
    constexpr int kCount = 3000;
    for (int i = 0; i < kCount; ++i)
        REQUIRE(volume.fs()
                    .names.set_xattr(file, "user." + std::to_string(i), bytes_of(std::to_string(i * i)), 0)
                    .ok());
    volume.reopen();
    CHECK(listed_xattrs(volume.fs(), file).size() == kCount);
    for (int i = 0; i < kCount; ++i)
        REQUIRE(text_of(*volume.fs().names.get_xattr(file, "user." + std::to_string(i))) ==
                std::to_string(i * i));
}

// Whoever lists many large ones does not hold up others: a step ends after some hundred items.
TEST_CASE("attributes: extended attributes are listed in steps, each name once, beside changes")
{
    TestVolume volume(manual_options());
    Names& names = volume.fs().names;
    const InodeNumber file = make_file(volume.fs(), kRoot, "file");
    constexpr int kCount = 200;
    const std::vector<std::byte> large(20000, std::byte{7}), small(1, std::byte{8});
    for (int i = 0; i < kCount; ++i)
        REQUIRE(names.set_xattr(file, "user." + std::to_string(i), large, 0).ok());
    auto list = names.begin_list_xattrs(file);
    REQUIRE(list.ok());
    int step_count = 0;
    for (Progress progress = Progress::kMore; progress == Progress::kMore; ++step_count) {
        const size_t before = (*list)->names().size();
        const auto stepped = (*list)->step();
        REQUIRE(stepped.ok());
        progress = *stepped;
        CHECK((*list)->names().size() - before < kCount / 2 * strlen("user.123"));
        for (int i = step_count; i < kCount; i += 7)
            REQUIRE(names.set_xattr(file, "user." + std::to_string(i), i % 2 == 0 ? small : large, 0).ok());
    }
    CHECK(step_count > 2);
    std::vector<std::string> found, expected;
    for (const char* at = (*list)->names().c_str(); *at != '\0'; at += strlen(at) + 1)
        found.emplace_back(at);
    for (int i = 0; i < kCount; ++i)
        expected.push_back("user." + std::to_string(i));
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    CHECK(found == expected);
}

// The kernel takes no longer list either, and to gather one would take memory without limit.
TEST_CASE("attributes: a list of names that is too long is refused, the attributes are there")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    const std::string tail(240, 'n');
    const std::vector<std::byte> value(1, std::byte{7});
    size_t bytes = 0;
    for (int index = 0; index < 300; ++index) {
        const std::string name = "user." + std::to_string(1000 + index) + tail;
        bytes += name.size() + 1;
        REQUIRE(fs.names.set_xattr(file, name, value, 0).ok());
        if (bytes <= Names::kMaxXattrListBytes)
            CHECK(fs.names.list_xattrs(file)->size() == bytes);
        else
            CHECK(fs.names.list_xattrs(file).err() == Err::kTooBig);
    }
    REQUIRE(bytes > Names::kMaxXattrListBytes);
    for (int index = 0; index < 300; ++index)
        CHECK(*fs.names.get_xattr(file, "user." + std::to_string(1000 + index) + tail) == value);
    for (int index = 0; index < 100; ++index)
        REQUIRE(fs.names.remove_xattr(file, "user." + std::to_string(1000 + index) + tail).ok());
    CHECK(listed_xattrs(fs, file).size() == 200);
}
