// SPDX-License-Identifier: MIT
#include "tools/cowraid/metrics_text.h"

#include <doctest/doctest.h>

#include <set>

#include "base/text.h"

namespace cowraid {

namespace {

VolumeStatus counted_status(uint8_t number)
{
    VolumeStatus status;
    VolumeInfo& info = status.report.info;
    info.uuid.bytes[15] = number;
    info.label = "a \"b\"\n\\c";
    status.report.mount_point = "/mnt";
    info.members.resize(2);
    info.members[0] = {.id = {1}, .path = "/dev/a", .size_bytes = 77};
    info.members[1] = {.id = {2}, .state = MemberState::kFailed};
    info.members[0].counters[static_cast<size_t>(MemberCounter::kCorruption)] = 5;
    info.spaces = {{ProfileId::kRaid5, kGroupData, 8, 4, 12}};
    info.commits = 9;
    info.may_fail = 1;
    info.spares = {
        {.id = {5}, .path = "/dev/s", .size_bytes = 88}, {.id = {6}}, {.id = {7}, .useless = true}};
    status.replace = {.state = ReplaceStatus::State::kFinished, .source = {2}, .started = 50, .ended = 60};
    status.replace.groups_copied = status.replace.groups_total = 4;
    status.replace.copy = {.bytes_done = 99, .bytes_total = 100, .repaired = 1, .lost = 2};
    status.scrub = {.state = ScrubState::kFinished, .started = 100, .ended = 200, .repaired = 3};
    return status;
}

bool has(const std::string& text, const std::string& line)
{
    return text.starts_with(line + "\n") || text.find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("metrics of two volumes")
{
    const std::string text = metrics_text({counted_status(1), counted_status(2)});
    const std::string first = "{volume=\"00000000-0000-0000-0000-000000000001\"";
    const std::string second = "{volume=\"00000000-0000-0000-0000-000000000002\"";
    CHECK(has(text, "# TYPE cowraid_commits_total counter"));
    CHECK(has(text, "cowraid_commits_total" + first + "} 9\ncowraid_commits_total" + second + "} 9"));
    CHECK(has(text, "cowraid_volume_info" + first +
                        ",label=\"a \\\"b\\\"\\n\\\\c\",mount_point=\"/mnt\",data_profile=\"single\","
                        "metadata_profile=\"single\"} 1"));
    CHECK(has(text, "cowraid_healthy" + first + "} 0"));
    CHECK(has(text, "cowraid_state" + first + ",state=\"DEGRADED\"} 1"));
    CHECK(has(text, "cowraid_state" + first + ",state=\"ONLINE\"} 0"));
    CHECK(has(text, "cowraid_member_state" + first + ",member=\"2\",state=\"missing\"} 1"));
    CHECK(has(text, "cowraid_member_errors_total" + first + ",member=\"1\",kind=\"corruption_errs\"} 5"));
    CHECK(has(text, "cowraid_space_used_bytes" + first + ",content=\"data\",profile=\"raid5\"} 4"));
    CHECK(has(text, "cowraid_scrub_finished_timestamp_seconds" + first + "} 200"));
    CHECK(has(text, "cowraid_up" + first + "} 1\ncowraid_up" + second + "} 1"));

    const std::string other = metrics_text({counted_status(1)}, {{"", 77}, {"uuid", 0}});
    CHECK(has(other,
              "cowraid_up{volume=\"\",pid=\"77\"} 0\ncowraid_up{volume=\"uuid\",pid=\"0\"} 0\ncowraid_up" +
                  first + "} 1"));
    CHECK(has(text, "cowraid_scrub_repaired_blocks" + second + "} 3"));
    CHECK(has(text, "cowraid_rebuild_state" + second + ",state=\"none\"} 1"));
    CHECK(has(text, "cowraid_spare_info" + first + ",spare=\"5\",device=\"/dev/s\"} 1"));
    CHECK(has(text, "cowraid_spare_size_bytes" + first + ",spare=\"5\"} 88"));
    CHECK(has(text, "cowraid_spare_state" + first + ",spare=\"5\",state=\"spare\"} 1"));
    CHECK(has(text, "cowraid_spare_state" + first + ",spare=\"6\",state=\"missing\"} 1"));
    CHECK(has(text, "cowraid_spare_state" + second + ",spare=\"7\",state=\"faulted\"} 1"));
    CHECK(has(text, "cowraid_spare_state" + second + ",spare=\"7\",state=\"spare\"} 0"));
    CHECK(has(text, "cowraid_replace_state" + first + ",state=\"finished\"} 1"));
    CHECK(has(text, "cowraid_replace_state" + first + ",state=\"running\"} 0"));
    for (const auto& [name, value] : {std::pair("member", 2),
                                      {"copied_groups", 4},
                                      {"total_groups", 4},
                                      {"done_bytes", 99},
                                      {"total_bytes", 100},
                                      {"repaired_blocks", 1},
                                      {"lost_blocks", 2},
                                      {"started_timestamp_seconds", 50},
                                      {"finished_timestamp_seconds", 60}})
        CHECK(has(text, "cowraid_replace_" + std::string(name) + first + "} " + std::to_string(value)));
    CHECK(metrics_text({}).empty());
}

TEST_CASE("each metric has one HELP and one TYPE, in front of all its samples")
{
    const std::string text = metrics_text({counted_status(1), counted_status(2)});
    std::set<std::string> names, samples;
    std::string current;
    size_t lines = 0;
    for (const std::string_view line : split(text, '\n')) {
        if (line.empty())
            continue;
        ++lines;
        const std::vector<std::string_view> words = split(line, ' ');
        if (line.starts_with("# HELP ")) {
            REQUIRE(words.size() > 3);
            current = words[2];
            CHECK_MESSAGE(names.insert(current).second, current);
        } else if (line.starts_with("# TYPE ")) {
            REQUIRE(words.size() == 4);
            CHECK(words[2] == current);
            CHECK_MESSAGE((words[3] == "counter") == current.ends_with("_total"), current);
        } else {
            CHECK_MESSAGE(line.starts_with(current + "{"), std::string(line));
            CHECK_MESSAGE(samples.insert(std::string(line.substr(0, line.rfind(' ')))).second,
                          std::string(line));
        }
    }
    CHECK(names.size() > 40);
    CHECK(lines > 2 * names.size() + 100);
}

}  // namespace cowraid
