// SPDX-License-Identifier: MIT
#include "tools/mount/mount_request.h"

#include <doctest/doctest.h>
#include <sys/mount.h>

#include "base/out_of_memory.h"
#include "base/units.h"
#include "control/mount_table.h"
#include "tools/mount/effective_options.h"
#include "tools/mount/handshake.h"

namespace cowraid {

namespace {

MountRequest parse(std::string_view list)
{
    MountRequest request;
    std::string why;
    const Status status = parse_mount_options(list, request, why);
    CHECK_MESSAGE(status.ok(), list << ": " << why);
    return request;
}

std::string refusal(std::string_view list)
{
    MountRequest request;
    std::string why;
    CHECK_MESSAGE(parse_mount_options(list, request, why).err() == Err::kInvalid, list);
    return why;
}

std::vector<std::string> paths_of(const std::vector<std::string>& operands)
{
    std::string why;
    const auto spec = parse_volume_spec(operands, why);
    CHECK(spec.ok());
    return spec.ok() ? spec->paths : std::vector<std::string>{};
}

std::string name_of(const std::string& operand)
{
    std::string why;
    const auto spec = parse_volume_spec({operand}, why);
    REQUIRE(spec.ok());
    CHECK(spec->paths.empty());
    return spec->name;
}

}  // namespace

TEST_CASE("options: what mount(8) and fstab pass")
{
    const MountRequest plain = parse("rw");
    CHECK_FALSE(plain.options.read_only);
    CHECK(plain.kernel_flags == 0);
    const MountRequest request =
        parse("ro,noatime,nodev,nosuid,noexec,sync,nofail,_netdev,user,x-systemd.automount");
    CHECK(request.options.read_only);
    CHECK(request.kernel_flags ==
          (MS_RDONLY | MS_NOATIME | MS_NODEV | MS_NOSUID | MS_NOEXEC | MS_SYNCHRONOUS));
    CHECK(request.options.access_time == AccessTime::kNever);
    CHECK(request.warnings.empty());
}

TEST_CASE("options: what protects from a medium of unknown origin")
{
    CHECK(parse("ro,untrusted").kernel_flags == (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC));
}

TEST_CASE("options: later ones win")
{
    const MountRequest request = parse("ro,nosuid,noatime,rw,suid,strictatime,degraded,degraded=no");
    CHECK_FALSE(request.options.read_only);
    CHECK(request.kernel_flags == MS_STRICTATIME);
    CHECK(request.options.access_time == AccessTime::kStrict);
    CHECK_FALSE(request.options.degraded);
}

TEST_CASE("options: those that a mount goes by are told so that they can be given again")
{
    CHECK(mount_options_text({}) ==
          "rw,relatime,commit=5,compress=no,mem=1G,dirty_max=256M,cache=128M,join_above=auto,clean=on,"
          "discard=auto,background_share=11,error_budget=20,"
          "read_deadline=2,slow_io=10,spare_delay=60,stripe_cache_size=1024,stripe_cache_bytes=256M,rmw_"
          "level=1,stripe_io_size=4K,plug="
          "on");
    for (const char* given :
         {"ro,degraded=force,rescue,strictatime,commit=300,compress=zstd:-15,mem=129M,dirty_max=65M,"
          "cache=1073741825,join_above=57,"
          "clean=off,discard=auto,background_share=100,"
          "error_budget=600,read_deadline=0,slow_io=600,spare_delay=0,stripe_cache_size=17,stripe_cache_"
          "bytes=1G,rmw_level=2,stripe_io_"
          "size=1M,plug="
          "off",
          "rw,noatime,commit=1,compress-force=zstd:15,mem=900M,dirty_max=3T,cache=128M,join_above=0,clean=on,"
          "discard=auto,background_share=1,"
          "error_budget=0,"
          "read_deadline=600,slow_io=0,spare_delay=3600,stripe_cache_size=32768,stripe_cache_bytes=1025K,rmw_"
          "level=0,stripe_io_size=64K,"
          "plug=on"})
        CHECK(mount_options_text(parse(given).options) == given);
}

TEST_CASE("options: values")
{
    const MountRequest request =
        parse("commit=30,dirty_max=64M,cache=1G,device=/dev/a,device=/dev/b,degraded=yes,remount");
    CHECK(request.options.commit_seconds == 30);
    CHECK(request.options.dirty_bytes_max == uint64_t{64} << 20);
    CHECK(request.options.node_cache_bytes == uint64_t{1} << 30);
    CHECK(request.device_options == std::vector<std::string>{"/dev/a", "/dev/b"});
    CHECK(request.options.degraded);
    CHECK(request.remount);
    const MountRequest rows =
        parse("stripe_cache_size=17,stripe_cache_bytes=64M,rmw_level=2,stripe_io_size=64K,"
              "plug=off,join_above=90,clean=off");
    CHECK(rows.options.partial_writes.stripe_cache_size == 17);
    CHECK(rows.options.partial_writes.stripe_cache_bytes == uint64_t{64} << 20);
    CHECK(rows.options.partial_writes.rmw_level == RmwLevel::kPrefer);
    CHECK(rows.options.partial_writes.stripe_io_bytes == 65536);
    CHECK_FALSE(rows.options.partial_writes.plug);
    CHECK(rows.options.join_above == 0.9);
    CHECK_FALSE(rows.options.clean);
    CHECK(parse("clean=on").options.clean);
    CHECK(parse("").options.discard == DiscardMode::kAuto);
    CHECK(parse("discard").options.discard == DiscardMode::kAsync);
    CHECK(parse("discard=async").options.discard == DiscardMode::kAsync);
    CHECK(parse("discard=async,nodiscard").options.discard == DiscardMode::kOff);
    CHECK(parse("discard=off,discard=auto").options.discard == DiscardMode::kAuto);
    CHECK(!refusal("discard=sync").empty());
    CHECK(parse("join_above=auto").options.join_above < 0);
    for (const char* list :
         {"stripe_cache_size=16", "stripe_cache_size=32769", "rmw_level=3", "stripe_io_size=2K",
          "stripe_io_size=12K", "plug=yes", "join_above=101", "clean=yes", "clean"})
        CHECK_MESSAGE(!refusal(list).empty(), list);
    CHECK(!parse("ro").missing_seconds.has_value());
    CHECK(parse("missing_dev_timeout=0").missing_seconds == 0);
    CHECK(parse("missing_dev_timeout=90").missing_seconds == 90);
    CHECK(!refusal("error_budget=601").empty());
    CHECK(!refusal("spare_delay=3601").empty());
    for (const char* list : {"background_share=0", "background_share=101", "background_share=1/2"})
        CHECK_MESSAGE(!refusal(list).empty(), list);
    CHECK(refusal("background_share=0").find("give 1 to 100 percent") != std::string::npos);
    for (const char* list :
         {"read_deadline=601", "read_deadline=-1", "read_deadline", "slow_io=601", "slow_io=x"})
        CHECK_MESSAGE(!refusal(list).empty(), list);
    CHECK(!refusal("error_budget=-1").empty());
    CHECK(!refusal("missing_dev_timeout=x").empty());
    CHECK(!refusal("missing_dev_timeout=3601").empty());
    for (const char* list : {"commit=0", "commit=301", "commit=x", "commit", "commit=", "dirty_max=1K",
                             "cache=-1", "device=", "degraded=ask", "ro=1", "dirsync=1", "subvol=x"})
        CHECK_MESSAGE(!refusal(list).empty(), list);
}

TEST_CASE("options: what is not named is a share of the memory")
{
    const MountRequest request = parse("mem=512M");
    CHECK(request.options.memory_bytes == 512 * kMiB);
    CHECK(request.options.dirty_bytes_max == 128 * kMiB);
    CHECK(request.options.node_cache_bytes == 64 * kMiB);
    CHECK(request.options.partial_writes.stripe_cache_bytes == 128 * kMiB);
    CHECK(request.options.idle_inodes_max == 32 * 1024);
    const MountRequest given = parse("dirty_max=300M,mem=512M,cache=7M,stripe_cache_bytes=9M");
    CHECK(given.options.dirty_bytes_max == 300 * kMiB);
    CHECK(given.options.node_cache_bytes == 7 * kMiB);
    CHECK(given.options.partial_writes.stripe_cache_bytes == 9 * kMiB);
    CHECK(refusal("mem=127M").find("at least 128") != std::string::npos);

    const MountRequest large = parse("mem=1000T");
    CHECK(large.options.memory_bytes == round_down(usual_memory_bytes(), kMiB));
    CHECK(large.options.dirty_bytes_max == large.options.memory_bytes / 4);
    REQUIRE(large.warnings.size() == 1);
    CHECK(large.warnings[0].starts_with("mem=1000T is more than three quarters of the memory"));
}

TEST_CASE("options: compression")
{
    const auto choice = [](const char* list) {
        return parse(list).options.compression;
    };
    CHECK(choice("rw") == CompressionChoice{});
    CHECK(choice("compress") == CompressionChoice{.on = true, .level = 3});
    CHECK(choice("compress=zstd") == CompressionChoice{.on = true, .level = 3});
    CHECK(choice("compress=zstd:1") == CompressionChoice{.on = true, .level = 1});
    CHECK(choice("compress-force=zstd:-7") == CompressionChoice{.on = true, .force = true, .level = -7});
    for (const char* list : {"compress=zstd:5,compress=no", "compress=none", "compress-force,compress=off"})
        CHECK_MESSAGE(choice(list) == CompressionChoice{}, list);
    for (const char* list : {"compress=lzo", "compress=zstd:16", "compress=zstd:-16",
                             "compress=zstd:", "compress=zstd:3x", "compress=:3", "compress-force=zlib"})
        CHECK_MESSAGE(refusal(list).find("give zstd") != std::string::npos, list);
}

TEST_CASE("options: sync and dirsync are flags of the kernel and of the filesystem")
{
    const MountRequest both = parse("sync,dirsync");
    CHECK(both.kernel_flags == (MS_SYNCHRONOUS | MS_DIRSYNC));
    CHECK(both.options.sync);
    CHECK(both.options.dirsync);
    const MountRequest one = parse("sync,dirsync,async");
    CHECK(one.kernel_flags == MS_DIRSYNC);
    CHECK(!one.options.sync);
    CHECK(one.options.dirsync);
    CHECK(one.options.directory_times);
    CHECK(!parse("nodiratime").options.directory_times);
    CHECK(parse("nodiratime,diratime").options.directory_times);
}

TEST_CASE("options: quotes protect commas")
{
    const MountRequest request = parse("rw,context=\"a:b:c0,c1\",noexec");
    REQUIRE(request.kernel_options.size() == 1);
    CHECK(request.kernel_options[0].first == "context");
    CHECK(request.kernel_options[0].second == "\"a:b:c0,c1\"");
    CHECK(request.kernel_flags == MS_NOEXEC);
    CHECK(parse(",,rw,,").warnings.empty());
    CHECK(refusal("rw,context=\"a,b,ro").find("no closing quote in 'context=\"a,b,ro'") != std::string::npos);
}

TEST_CASE("options: those of others are named and ignored, unknown ones refused unless sloppy")
{
    const MountRequest request = parse("space_cache=v2,ssd,autodefrag");
    REQUIRE(request.warnings.size() == 3);
    CHECK(request.warnings[0] == "option 'space_cache' has no effect here");
    CHECK(parse("acl,user_xattr,inode64").warnings.empty());
    REQUIRE(parse("errors=remount-ro").warnings.size() == 1);
    CHECK(parse("errors=remount-ro").warnings[0] == "option 'errors' has no effect here");
    CHECK(refusal("frobnicate").find("'frobnicate'") != std::string::npos);
    CHECK(refusal("frobnicate=1").find("-s") != std::string::npos);
    MountRequest sloppy;
    sloppy.sloppy = true;
    std::string why;
    CHECK(parse_mount_options("frobnicate,ro", sloppy, why).ok());
    CHECK(sloppy.warnings.size() == 1);
    CHECK(sloppy.options.read_only);
    // Sloppy is about names, not about values.
    CHECK(parse_mount_options("commit=x", sloppy, why).err() == Err::kInvalid);
}

TEST_CASE("options: rescue needs ro")
{
    MountRequest request = parse("rescue");
    request.directory = "/mnt";
    std::string why;
    CHECK(check_mount_request(request, why).err() == Err::kInvalid);
    CHECK(why.find("ro,rescue") != std::string::npos);
    request = parse("ro,rescue=all");
    request.directory = "/mnt";
    CHECK(check_mount_request(request, why).ok());
}

TEST_CASE("spec: paths")
{
    CHECK(paths_of({"/dev/a", "/dev/b"}) == std::vector<std::string>{"/dev/a", "/dev/b"});
    CHECK(paths_of({"/dev/a:/dev/b:/dev/c"}) == std::vector<std::string>{"/dev/a", "/dev/b", "/dev/c"});
    // Colons inside of names as under /dev/disk/by-path.
    CHECK(paths_of({"/dev/disk/by-path/pci-0000:00:1f.2-ata-1:/dev/b"}) ==
          std::vector<std::string>{"/dev/disk/by-path/pci-0000:00:1f.2-ata-1", "/dev/b"});
    CHECK(paths_of({"img/a:img/b"}) == std::vector<std::string>{"img/a", "img/b"});
    CHECK(paths_of({"./pool"}) == std::vector<std::string>{"./pool"});
    CHECK(paths_of({"pool", "tank"}) == std::vector<std::string>{"pool", "tank"});
    std::string why;
    CHECK(parse_volume_spec({"a::b"}, why).err() == Err::kInvalid);
    CHECK(parse_volume_spec({}, why).err() == Err::kInvalid);
    CHECK(parse_volume_spec({"/dev/a", ""}, why).err() == Err::kInvalid);
}

TEST_CASE("spec: names")
{
    const std::string uuid = "01234567-89ab-cdef-0123-456789abcdef";
    CHECK(name_of("cowraid:tank") == "LABEL=tank");
    CHECK(name_of("cowraid:" + uuid) == "UUID=" + uuid);
    CHECK(name_of("cowraid:LABEL=" + uuid) == "LABEL=" + uuid);
    CHECK(name_of("tank") == "LABEL=tank");
    CHECK(name_of(uuid) == "UUID=" + uuid);
    CHECK(name_of("UUID=" + uuid) == "UUID=" + uuid);
    CHECK(name_of("LABEL=a/b") == "LABEL=a/b");
}

TEST_CASE("mount table: fields, escapes, optional fields, the topmost mount")
{
    constexpr std::string_view kText =
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "40 22 0:39 / /mnt/my\\040dir rw,nosuid - fuse.cowraid cowraid:my\\134pool rw,user_id=0,group_id=7\n"
        "41 40 0:41 / /mnt/my\\040dir ro shared:7 master:2 - tmpfs none rw\n"
        "42 22 0:42 / /mnt/all ro - tmpfs none size=4k,ro\n"
        "garbage line\n";
    FILE* const file = fmemopen(const_cast<char*>(kText.data()), kText.size(), "r");
    REQUIRE(file != nullptr);
    const auto table = parse_mount_table(file);
    fclose(file);
    REQUIRE(table.size() == 4);
    CHECK(table[0].device == "254:0");
    CHECK(table[0].type == "ext4");
    CHECK(table[1].directory == "/mnt/my dir");
    CHECK(table[1].source == "cowraid:my\\pool");
    CHECK(table[1].flags == "rw,nosuid");
    CHECK(table[1].owner == "0");
    CHECK(table[1].group == "7");
    CHECK(table[2].owner.empty());
    CHECK(table[2].flags == "ro");
    CHECK_FALSE(table[2].read_only);
    CHECK(table[3].read_only);
    const MountEntry* const top = mount_at(table, "/mnt/my dir");
    REQUIRE(top != nullptr);
    CHECK(top->type == "tmpfs");
    CHECK(mount_at(table, "/mnt") == nullptr);
    CHECK(device_is_mounted(table, "0:39"));
    CHECK_FALSE(device_is_mounted(table, "0:3"));
}

TEST_CASE("mount table: the real one has the root, and paths are resolved")
{
    const auto table = read_mount_table();
    REQUIRE(table.ok());
    CHECK(mount_at(*table, "/") != nullptr);
    CHECK(mount_point_path("/proc/../proc/") == "/proc");
    CHECK(mount_point_path("/no-such-directory/x/") == "/no-such-directory/x");
}

TEST_CASE("handshake: what was said before the end is heard, though something was not read")
{
    auto ends = make_handshake_pair();
    REQUIRE(ends.ok());
    REQUIRE(send_handshake(ends->first.get(), HandshakeKind::kMember, "unread", -1).ok());
    REQUIRE(send_handshake(ends->second.get(), HandshakeKind::kFailed, "why", -1).ok());
    ends->second = UniqueFd();
    const auto heard = receive_handshake(ends->first.get());
    REQUIRE(heard.ok());
    CHECK(heard->kind == HandshakeKind::kFailed);
    CHECK(heard->text == "why");
    CHECK(receive_handshake(ends->first.get()).err() == Err::kNotFound);
}

}  // namespace cowraid
