// SPDX-License-Identifier: MIT
#include "control/volume_json.h"
#include "control/volume_status.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/mkfs/mkfs_plan.h"
#include "tools/mount/handshake.h"

namespace cowraid {

namespace {

VolumeReport make_report()
{
    VolumeReport report;
    report.mounted = true;
    report.has_usage = true;
    report.mount_point = "/mnt";
    VolumeInfo& info = report.info;
    info.uuid = uuid_random();
    info.label = "tank";
    info.generation = {12};
    info.chunk_bytes = 65536;
    info.data_profile = ProfileId::kRaid6;
    info.metadata_profile = ProfileId::kRaid1c3;
    info.degraded = true;
    info.read_only_reason = "too few members";
    info.read_only_step = "mount it with more";
    info.beyond_tolerance = true;
    MemberInfo present{.id = {1}, .path = "/dev/a", .size_bytes = 1000, .used_bytes = 500};
    for (size_t i = 0; i < present.counters.size(); ++i)
        present.counters[i] = 10 + i;
    const MemberInfo missing{
        .id = {2}, .path = {}, .reason = "is absent", .size_bytes = 2000, .state = MemberState::kMissing};
    info.members = {present, missing};
    info.members[0].doubtful = true;
    info.members[0].slow_ms = 14000;
    info.members[0].slow_ios = 3;
    info.spares = {{.id = {7}, .path = "/dev/s", .size_bytes = 4000}, {.id = {9}, .useless = true}};
    info.spaces = {{ProfileId::kRaid6, kGroupData, 400, 100, 800},
                   {ProfileId::kRaid1c3, kGroupMetadata | kGroupSystem, 40, 10, 120}};
    info.unallocated_raw_bytes = 1;
    info.available_bytes = 2;
    info.reserve_bytes = 3;
    info.compression_counted = true;
    info.compressed_file_bytes = uint64_t{1} << 41;
    info.compressed_bytes = uint64_t{1} << 39;
    info.full_stripes = 4;
    info.dirty_bytes = uint64_t{1} << 40;
    info.node_cache_bytes = 5;
    return report;
}

std::vector<std::string> plan_warnings(MkfsArguments arguments)
{
    std::vector<std::string> warnings;
    std::string why;
    const auto options = plan_volume(arguments, warnings, why);
    CHECK_MESSAGE(options.ok(), why);
    return warnings;
}

std::string plan_refusal(MkfsArguments arguments)
{
    std::vector<std::string> warnings;
    std::string why;
    CHECK(plan_volume(arguments, warnings, why).err() == Err::kInvalid);
    CHECK_FALSE(why.empty());
    return why;
}

}  // namespace

TEST_CASE("report: JSON round trip")
{
    const VolumeReport report = make_report();
    const Json json = encode_report(report);
    const auto parsed = json_parse_object(json_print(json.get()));
    REQUIRE(parsed.ok());
    const auto decoded = decode_report(parsed->get());
    REQUIRE(decoded.ok());
    // Encoding again shows every field that a decoder forgot.
    CHECK(json_print(encode_report(*decoded).get()) == json_print(json.get()));
    CHECK(decoded->info.uuid == report.info.uuid);
    CHECK(decoded->info.members[0].counters == report.info.members[0].counters);
    CHECK(decoded->info.members[1].path.empty());
    CHECK(decoded->info.members[1].state == MemberState::kMissing);
    CHECK(decoded->info.spaces[1].content == (kGroupMetadata | kGroupSystem));
    CHECK(decoded->info.read_only_step == "mount it with more");
    CHECK(decoded->info.beyond_tolerance);
    CHECK(decoded->info.members[0].doubtful);
    CHECK(decoded->info.members[0].slow_ms == 14000);
    CHECK(decoded->info.members[0].slow_ios == 3);
    REQUIRE(decoded->info.spares.size() == 2);
    CHECK(decoded->info.spares[0].path == "/dev/s");
    CHECK(std::string(state_of(decoded->info.spares[0])) == "spare");
    CHECK(std::string(state_of(decoded->info.spares[1])) == "faulted");
    CHECK(decoded->info.dirty_bytes == uint64_t{1} << 40);
    CHECK(decoded->info.compression_counted);
    CHECK(decoded->info.compressed_file_bytes == uint64_t{1} << 41);
    CHECK(decoded->info.compressed_bytes == uint64_t{1} << 39);
}

TEST_CASE("report: what is compressed is left out where nobody counted it")
{
    VolumeReport report = make_report();
    report.info.compression_counted = false;
    const Json json = encode_report(report);
    CHECK(json_get(json.get(), "compressed_file_bytes") == nullptr);
    CHECK(json_get(json.get(), "compressed_bytes") == nullptr);
    const auto decoded = decode_report(json.get());
    REQUIRE(decoded.ok());
    CHECK_FALSE(decoded->info.compression_counted);
}

TEST_CASE("report: the shape that programs rely on")
{
    const Json json = encode_report(make_report());
    CHECK(json_get_text(json.get(), "schema") == "cowraid.volume");
    CHECK(json_get_integer(json.get(), "version") == 1);
    CHECK(json_get_text(json.get(), "data_profile") == "raid6");
    const json_t* const members = json_get(json.get(), "members");
    REQUIRE(json_array_size(members) == 2);
    const json_t* const first = json_array_get(members, 0);
    CHECK(json_is_integer(json_get(first, "size_bytes")));
    CHECK(json_get_integer(json_get(first, "errors"), "write_io_errs") == 10);
    CHECK(json_get_integer(json_get(first, "errors"), "generation_errs") == 14);
    CHECK(json_is_null(json_get(json_array_get(members, 1), "path")));
    const json_t* const spaces = json_get(json.get(), "spaces");
    CHECK(json_array_size(json_get(json_array_get(spaces, 1), "content")) == 2);
}

TEST_CASE("report: what is not a report is refused")
{
    for (const char* text :
         {"{}", R"({"schema": "cowraid.mkfs"})", R"({"schema": "cowraid.volume", "uuid": "x"})"}) {
        const auto parsed = json_parse_object(text);
        REQUIRE(parsed.ok());
        CHECK_FALSE(decode_report(parsed->get()).ok());
    }
}

TEST_CASE("handshake: text and descriptors arrive, the end is seen")
{
    auto pair = make_handshake_pair();
    REQUIRE(pair.ok());
    int pipe_ends[2];
    REQUIRE(pipe(pipe_ends) == 0);
    const UniqueFd reader(pipe_ends[0]);
    UniqueFd writer(pipe_ends[1]);
    REQUIRE(send_handshake(pair->first.get(), HandshakeKind::kMember, "/dev/a", writer.get()).ok());
    REQUIRE(send_handshake(pair->first.get(), HandshakeKind::kOpen, "", -1).ok());
    auto member = receive_handshake(pair->second.get());
    REQUIRE(member.ok());
    CHECK(member->kind == HandshakeKind::kMember);
    CHECK(member->text == "/dev/a");
    REQUIRE(member->fd.valid());
    CHECK(member->fd.get() != writer.get());
    CHECK(write(member->fd.get(), "x", 1) == 1);
    char byte = 0;
    CHECK(read(reader.get(), &byte, 1) == 1);
    CHECK(byte == 'x');
    auto open = receive_handshake(pair->second.get());
    REQUIRE(open.ok());
    CHECK(open->kind == HandshakeKind::kOpen);
    CHECK_FALSE(open->fd.valid());
    // Too short to be a message.
    REQUIRE(::send(pair->first.get(), "x", 1, 0) == 1);
    CHECK(receive_handshake(pair->second.get()).err() == Err::kIo);
    pair->first = UniqueFd();
    CHECK(receive_handshake(pair->second.get()).err() == Err::kNotFound);
    CHECK(send_handshake(pair->second.get(), HandshakeKind::kFailed, "x", -1).err() == Err::kIo);
}

TEST_CASE("mkfs: defaults by the number of devices")
{
    const ProfileId expected[] = {ProfileId::kSingle, ProfileId::kRaid1, ProfileId::kRaid5, ProfileId::kRaid6,
                                  ProfileId::kRaid6};
    MkfsArguments arguments;
    for (const ProfileId profile : expected) {
        arguments.devices.push_back("/dev/" + std::to_string(arguments.devices.size()));
        std::vector<std::string> warnings;
        std::string why;
        const auto options = plan_volume(arguments, warnings, why);
        REQUIRE(options.ok());
        CHECK(options->data_profile == profile);
        CHECK(warnings.empty());
        CHECK(options->chunk_bytes == 65536);
    }
}

TEST_CASE("mkfs: refusals and warnings")
{
    const std::vector<std::string> four = {"a", "b", "c", "d"};
    CHECK(plan_refusal({.devices = {}}).find("at least one device") != std::string::npos);
    CHECK(plan_refusal({.devices = {"a", "b"}, .data_profile = "raid6"}).find("at least 3") !=
          std::string::npos);
    CHECK(plan_refusal({.devices = four, .data_profile = "raid7"}).find("raid1c3") != std::string::npos);
    CHECK(plan_refusal({.devices = {"a", "b", "c"}, .metadata_profile = "raid1c4"}).find("at least 4") !=
          std::string::npos);
    CHECK(plan_refusal({.devices = {"a"}, .data_profile = "raid10"}).find("at least 2") != std::string::npos);
    for (const char* size : {"3K", "2M", "65K", "0", "x"})
        CHECK(plan_refusal({.devices = four, .chunk_size = size}).find("64K") != std::string::npos);
    plan_refusal({.devices = four, .label = std::string(256, 'x')});
    plan_refusal({.devices = four, .label = "a/b"});
    plan_refusal({.devices = four, .uuid = "nonsense"});
    plan_refusal({.devices = four, .uuid = "00000000-0000-0000-0000-000000000000"});
    CHECK(plan_warnings({.devices = four, .data_profile = "raid6", .metadata_profile = "raid1c3"}).empty());
    const auto warnings =
        plan_warnings({.devices = four, .data_profile = "raid6", .metadata_profile = "raid1"});
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0].find("raid1") != std::string::npos);
}

TEST_CASE("mkfs: devices are refused before anything is written")
{
    char name[] = "/tmp/cowraid-mkfs-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    const std::string directory = name;
    const auto make_file = [&](const char* file, off_t bytes) {
        const std::string path = directory + "/" + file;
        const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600));
        REQUIRE(ftruncate(fd.get(), bytes) == 0);
        return path;
    };
    const auto refusal = [&](std::vector<std::string> devices, Err expected, bool force) {
        std::string why;
        const auto opened = open_mkfs_devices({.devices = std::move(devices), .force = force}, why);
        CHECK(opened.err() == expected);
        return why;
    };
    const std::string large = make_file("large", 64 << 20);
    const std::string small = make_file("small", (64 << 20) - 4096);
    const std::string link = directory + "/link";
    REQUIRE(symlink(large.c_str(), link.c_str()) == 0);
    CHECK(refusal({large, link}, Err::kInvalid, false).find("same device") != std::string::npos);
    CHECK(refusal({small}, Err::kInvalid, true).find("64.00MiB") != std::string::npos);
    CHECK(refusal({directory + "/none"}, Err::kNotFound, false).find("none") != std::string::npos);
    refusal({directory}, Err::kInvalid, false);

    // A swap signature at its place in the first page.
    const UniqueFd fd(open(large.c_str(), O_RDWR));
    REQUIRE(pwrite(fd.get(), "SWAPSPACE2", 10, 4086) == 10);
    const uint32_t version_and_pages[] = {1, 100};
    REQUIRE(pwrite(fd.get(), version_and_pages, sizeof version_and_pages, 1024) == sizeof version_and_pages);
    CHECK(refusal({large}, Err::kExists, false).find("-f") != std::string::npos);
    std::string why;
    auto opened = open_mkfs_devices({.devices = {large}, .force = true}, why);
    REQUIRE(opened.ok());
    CHECK(opened->front().signature.find("swap") != std::string::npos);
    CHECK(opened->front().size_bytes == 64 << 20);
    opened->clear();
    for (const std::string& path : {large, small, link})
        unlink(path.c_str());
    rmdir(directory.c_str());
}

TEST_CASE("what a scrub found on each member goes both ways, and has the words that scripts for btrfs know")
{
    ScrubStatus status{.state = ScrubState::kFinished, .started = 1700000000, .ended = 1700000100};
    status.run_ms = 90500;
    status.data_blocks = 10;
    status.repaired = 9;
    status.lost = 2;
    status.unreadable_nodes = 1;
    status.members[{1}].numbers = {10, 0, 3, 5, 1, 9, 0};
    status.members[{2}].numbers = {8, 2, 0, 4, 0, 0, 4};
    Json out = encode_scrub(status);
    const auto decoded = decode_scrub(out.get());
    REQUIRE(decoded.ok());
    CHECK(decoded->members == status.members);
    VolumeReport report = make_report();
    Json volume = encode_report(report);
    json_put_text(volume.get(), "health", "DAMAGED");
    add_scrub_sessions(status, volume.get(), out.get());
    CHECK(json_get_text(out.get(), "fsid") == uuid_text(report.info.uuid));
    CHECK(json_get_text(out.get(), "health") == "DAMAGED");
    CHECK_FALSE(json_get_flag(out.get(), "running"));
    const json_t* const session = json_get(out.get(), "scrub_session");
    const std::pair<const char*, uint64_t> numbers[] = {
        {"t_start", 1700000000},     {"t_end", 1700000100},
        {"duration_seconds", 90},    {"data_bytes_scrubbed", 40960},
        {"read_errors", 3},          {"csum_errors", 9},
        {"super_errors", 1},         {"corrected_errors", 9},
        {"uncorrectable_errors", 3}, {"unverified_errors", 2}};
    for (const std::pair<const char*, uint64_t>& number : numbers)
        CHECK_MESSAGE(json_get_integer(session, number.first) == number.second, number.first);
    CHECK(json_get_text(session, "state") == "finished");
    CHECK(json_get_text(session, "t_start_rfc3339") == "2023-11-14T22:13:20Z");
    const json_t* const devices = json_get(out.get(), "devices");
    REQUIRE(json_array_size(devices) == 2);
    const json_t* const one = json_array_get(devices, 0);
    CHECK(json_get_integer(one, "devid") == 1);
    CHECK(json_get_text(one, "path") == "/dev/a");
    CHECK(json_get_integer(json_get(one, "scrub_session"), "bytes_scrubbed") == 40960);
    CHECK(json_get_integer(json_get(one, "scrub_session"), "csum_errors") == 5);
    // The counters that make_report() gives it: 10 and so on.
    CHECK(json_get_integer(json_get(one, "scrub_lifetime"), "read_errors") == 11);
    CHECK(json_get_integer(json_get(one, "scrub_lifetime"), "csum_errors") == 13 + 14 + 15);
    const json_t* const other = json_get(json_array_get(devices, 1), "scrub_session");
    CHECK(json_get_integer(other, "uncorrectable_errors") == 4);
    CHECK(json_is_null(json_get(json_array_get(devices, 1), "path")));
}

TEST_CASE("names of damaged files differ as the files do, and come back")
{
    DamagedFiles damage;
    damage.files.push_back({.inode = {300}, .paths = {}, .range = {}});
    std::vector<std::string>& paths = damage.files.front().paths;
    paths = {"/rep\xff", "/rep\\xff", "/rep\\\xff", "/a\\", "/a\nb", "/plain"};
    const Json encoded = encode_damage(damage);
    const auto decoded = decode_damage(encoded.get());
    REQUIRE(decoded.ok());
    REQUIRE(decoded->files.size() == 1);
    CHECK(decoded->files.front().paths == paths);
    const json_t* const written = json_get(json_array_get(json_get(encoded.get(), "files"), 0), "paths");
    CHECK(json_text(json_array_get(written, 0)) == R"(/rep\xff)");
    CHECK(json_text(json_array_get(written, 1)) == R"(/rep\\xff)");
    CHECK(json_text(json_array_get(written, 5)) == "/plain");
}

TEST_CASE("damaged tree nodes go both ways")
{
    DamagedFiles damage;
    damage.nodes = {{TreeIndex::kFreeSpace, {0}, {kToTheEnd}}, {TreeIndex::kFiles, {300}, {412}}};
    damage.node_count = 7;
    const auto decoded = decode_damage(encode_damage(damage).get());
    REQUIRE(decoded.ok());
    CHECK(decoded->node_count == 7);
    REQUIRE(decoded->nodes.size() == 2);
    for (size_t index = 0; index < 2; ++index) {
        CHECK(decoded->nodes[index].tree == damage.nodes[index].tree);
        CHECK(decoded->nodes[index].first_inode == damage.nodes[index].first_inode);
        CHECK(decoded->nodes[index].last_inode == damage.nodes[index].last_inode);
    }
}

}  // namespace cowraid
