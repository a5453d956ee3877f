// SPDX-License-Identifier: MIT
#include "control/events.h"

#include <doctest/doctest.h>

namespace cowraid {

namespace {

constexpr uint64_t kNow = 1'700'000'000;

// Three members, half full.
VolumeStatus healthy()
{
    VolumeStatus status;
    status.report.mount_point = "/mnt";
    VolumeInfo& info = status.report.info;
    for (uint32_t id = 1; id <= 3; ++id) {
        MemberInfo member;
        member.id = {id};
        member.path = "/dev/m" + std::to_string(id);
        info.members.push_back(std::move(member));
    }
    info.may_fail = 1;
    info.spaces = {{ProfileId::kRaid5, kGroupData, 1000, 500, 1500}};
    info.available_bytes = 500;
    return status;
}

std::string names_of(const std::vector<VolumeEvent>& events)
{
    std::string out;
    for (const VolumeEvent& event : events)
        out += (out.empty() ? "" : " ") + event.name;
    return out;
}

std::string look(EventFinder& finder, const VolumeStatus& status, uint64_t second = 0)
{
    return names_of(finder.look(status, kNow + second));
}

}  // namespace

TEST_CASE("a member fails, is replaced, and filled")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    CHECK(look(finder, status) == "NewArray");
    CHECK(look(finder, status) == "");
    MemberInfo& second = status.report.info.members[1];
    second.state = MemberState::kFailed;
    second.reason = "failed since commit 7";
    status.report.info.may_fail = 0;
    const std::vector<VolumeEvent> failed = finder.look(status, kNow + 1);
    CHECK(names_of(failed) == "Fail DegradedArray");
    REQUIRE(failed.size() == 2);
    CHECK(failed[0].member == MemberId{2});
    CHECK(failed[0].device == "/dev/m2");
    CHECK(failed[0].text == "member 2 (/dev/m2): failed since commit 7");
    CHECK(failed[0].time == kNow + 1);
    CHECK(failed[1].member == MemberId{0});
    CHECK(failed[1].text == "1 member out of service; no other member may fail");
    second.state = MemberState::kPresent;
    second.stale_groups = 4;
    status.catch_up = {.state = ScrubState::kRunning, .started = 5, .bytes_total = 100};
    CHECK(look(finder, status) == "MemberBack RebuildStarted");
    status.catch_up.bytes_done = 45;
    CHECK(look(finder, status) == "Rebuild40");
    status.catch_up.bytes_done = 59;
    CHECK(look(finder, status) == "");
    status.catch_up.bytes_done = 99;
    CHECK(look(finder, status) == "Rebuild80");
    status.catch_up.state = ScrubState::kFinished;
    second.stale_groups = 0;
    const std::vector<VolumeEvent> filled = finder.look(status, kNow);
    REQUIRE(names_of(filled) == "SpareActive Redundant RebuildFinished");
    CHECK(filled[0].text == "member 2 (/dev/m2) has everything");
    CHECK(filled[1].text == "all members are in service and have everything");
}

TEST_CASE("a member that was filled beside losses does not have everything")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    MemberInfo& second = status.report.info.members[1];
    second.stale_groups = 4;
    CHECK(look(finder, status) == "NewArray DegradedArray");
    second.stale_groups = 0;
    status.report.info.damaged_blocks = 5;
    const std::vector<VolumeEvent> filled = finder.look(status, kNow);
    REQUIRE(names_of(filled) == "SpareActive Redundant DataLost");
    CHECK(filled[0].text == "member 2 (/dev/m2) has everything but what is lost; cowraid status -v names the "
                            "files");
    CHECK(filled[1].text == "all members are in service and have everything but what is lost; cowraid "
                            "status -v names the files");
    status.replace = {.state = ReplaceStatus::State::kFinished, .source = {2}, .started = 5};
    CHECK(finder.look(status, kNow).back().text == filled[0].text);
}

TEST_CASE("a member is replaced, another one is not, and the successor is no news of its own")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    CHECK(look(finder, status) == "NewArray");
    status.replace = {.state = ReplaceStatus::State::kRunning, .source = {2}, .target = {9}, .started = 5};
    status.report.info.members.push_back({.id = {9}, .successor = true});
    CHECK(look(finder, status) == "ReplaceStarted RebuildStarted");
    CHECK(look(finder, status) == "");
    status.replace.groups_total = 10;
    status.replace.groups_copied = 5;
    CHECK(look(finder, status) == "Rebuild40");
    status.replace.groups_copied = 6;
    CHECK(look(finder, status) == "Rebuild60");
    status.replace.groups_copied = 7;
    CHECK(look(finder, status) == "");
    status.replace.copy.bytes_total = 1000;
    status.replace.copy.bytes_done = 850;
    CHECK(look(finder, status) == "Rebuild80");
    status.report.info.members.pop_back();
    status.report.info.members[1].path = "/dev/m9";
    status.replace.groups_copied = 10;
    status.replace.state = ReplaceStatus::State::kFinished;
    status.replace.copy.lost = 3;
    const std::vector<VolumeEvent> ended = finder.look(status, kNow);
    REQUIRE(names_of(ended) == "ReplaceFinished RebuildFinished SpareActive");
    CHECK(ended[0].text == "member 2 is replaced, 0 blocks from other members, 3 lost");
    CHECK(ended[0].device == "/dev/m9");
    CHECK(ended[1].text == "member 2 is replaced");
    CHECK(ended[2].text == "member 2 (/dev/m9) has everything");
    CHECK(ended[2].device == "/dev/m9");
    status.replace = {.state = ReplaceStatus::State::kFailed, .source = {2}, .started = 8, .text = "why"};
    CHECK(look(finder, status) == "ReplaceStarted RebuildStarted ReplaceFailed RebuildFinished");
}

TEST_CASE("a member that is taken out by order did not fail")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    CHECK(look(finder, status) == "NewArray");
    status.report.info.members[1].state = MemberState::kMissing;
    CHECK(look(finder, status) == "MemberOffline DegradedArray");
    status.report.info.members[1].state = MemberState::kPresent;
    CHECK(look(finder, status) == "MemberBack Redundant");
}

TEST_CASE("a volume that may lose fewer members than before is told again")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    VolumeInfo& info = status.report.info;
    CHECK(look(finder, status) == "NewArray");
    info.members[1].state = MemberState::kMissing;
    info.may_fail = 1;
    CHECK(look(finder, status) == "MemberOffline DegradedArray");
    info.members[2].state = MemberState::kMissing;
    info.may_fail = 0;
    const std::vector<VolumeEvent> again = finder.look(status, kNow);
    REQUIRE(names_of(again) == "MemberOffline DegradedArray");
    CHECK(again[1].text == "2 members out of service; no other member may fail");
    CHECK(look(finder, status) == "");
    info.beyond_tolerance = true;
    CHECK(look(finder, status) == "DegradedArray");
    info.beyond_tolerance = false;
    info.may_fail = 1;
    CHECK(look(finder, status) == "");
    info.may_fail = 0;
    CHECK(look(finder, status) == "DegradedArray");
}

TEST_CASE("to do without a member is advised only where the others suffice")
{
    VolumeStatus status = healthy();
    VolumeInfo& info = status.report.info;
    info.data_profile = ProfileId::kRaid6;
    info.members[1].state = MemberState::kMissing;
    const std::string remove = "cowraid device remove ID does without it";
    CHECK(health_of(status).action.find(remove) == std::string::npos);
    info.members.push_back({.id = {4}});
    CHECK(health_of(status).action.find(remove) != std::string::npos);
    info.spaces.push_back({ProfileId::kRaid1c4, kGroupSystem, 1000, 500, 4000});
    CHECK(health_of(status).action.find(remove) == std::string::npos);
}

TEST_CASE("what members that are away may bring back is not to be deleted")
{
    constexpr const char* kBack = "attach what is out of service, run cowraid device online DEVICE, or ID "
                                  "after a passing failure, then "
                                  "cowraid scrub; ";
    const auto begins = [](const VolumeStatus& status, const std::string& text) {
        CHECK(std::string(health_of(status).state) == "DAMAGED");
        return health_of(status).action.rfind(text, 0) == 0;
    };
    VolumeStatus status = healthy();
    VolumeInfo& info = status.report.info;
    for (const uint64_t nodes : {0, 4}) {
        info.damaged_blocks = 1 + nodes;
        info.damaged_node_blocks = nodes;
        info.members[1].state = MemberState::kPresent;
        CHECK_FALSE(begins(status, kBack));
        CHECK(health_of(status).action.find("device online") == std::string::npos);
        info.members[1].state = MemberState::kMissing;
        CHECK(begins(status, kBack));
        CHECK(health_of(status).action.find("delete") == std::string::npos);
        CHECK(health_of(status).action.find("what is damaged then") != std::string::npos);
        // One that is being removed is not taken back.
        VolumeStatus removed = status;
        removed.balance.state = BalanceStatus::State::kRunning;
        removed.balance.member = {2};
        CHECK(begins(removed, std::string("cowraid balance cancel, then ") + kBack));
        removed.balance.member = {3};
        CHECK(begins(removed, kBack));
        // The target of a replacement has nothing that others do not have.
        info.members[1].successor = true;
        CHECK_FALSE(begins(status, kBack));
        info.members[1].successor = false;
    }
}

TEST_CASE("the newest events are the last ones")
{
    EventLog log;
    CHECK(log.newest().events.empty());
    log.add(std::vector<VolumeEvent>(EventLog::kEventsAtOnce + 5));
    const EventLog::Answer newest = log.newest();
    CHECK(newest.events.size() == EventLog::kEventsAtOnce);
    CHECK(newest.events.front().sequence == 6);
    CHECK(newest.last == EventLog::kEventsAtOnce + 5);
}

TEST_CASE("a successor that is not there makes nothing degraded, and is said to be missing")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    status.replace = {.state = ReplaceStatus::State::kWaiting, .source = {2}, .target = {9}, .started = 5};
    status.report.info.members[1].replaced = true;
    status.report.info.members.push_back({.id = {9}, .successor = true, .state = MemberState::kMissing});
    CHECK(look(finder, status) == "NewArray ReplaceStarted RebuildStarted");
    CHECK(missing_members(status.report.info) == 0);
    CHECK(std::string(health_of(status).state) == "ONLINE");
    CHECK(health_of(status).what == "the new device of member 2 is not there");
}

TEST_CASE("a spare that is faulted is there: another takes its place")
{
    VolumeStatus status = healthy();
    VolumeInfo& info = status.report.info;
    const std::string online = "attach what is missing and run cowraid device online DEVICE";
    const std::string another = "cowraid device add --spare DEVICE brings another";
    info.spares = {{.id = {4}, .path = "/dev/s4", .size_bytes = 1, .useless = true}};
    CHECK(health_of(status).what == "1 spare is faulted");
    CHECK(health_of(status).action.find(online) == std::string::npos);
    CHECK(health_of(status).action.find(another) != std::string::npos);
    info.spares.push_back({.id = {5}});
    CHECK(health_of(status).what == "2 spares are missing or faulted");
    CHECK(health_of(status).action.find(online) != std::string::npos);
    CHECK(health_of(status).action.find(another) != std::string::npos);
    info.spares.erase(info.spares.begin());
    CHECK(health_of(status).what == "1 spare is missing");
    CHECK(health_of(status).action.find(online) != std::string::npos);
    CHECK(health_of(status).action.find(another) == std::string::npos);
}

TEST_CASE("the action names no command that is refused while a member is replaced or removed")
{
    const auto action = [](const VolumeStatus& status) {
        CHECK(health_of(status).what == "1 member out of service");
        return health_of(status).action;
    };
    const auto names = [](const std::string& text, const char* command) {
        return text.find(command) != std::string::npos;
    };
    VolumeStatus status = healthy();
    status.report.info.members[1].state = MemberState::kMissing;
    CHECK(names(action(status), "cowraid replace start"));
    CHECK(names(action(status), "cowraid device remove"));
    VolumeStatus waits = status;
    waits.replace = {.state = ReplaceStatus::State::kWaiting, .source = {2}, .target = {9}, .started = 5};
    waits.report.info.members[1].replaced = true;
    waits.report.info.members.push_back({.id = {9}, .path = "/dev/m9", .successor = true});
    CHECK(names(action(waits), "cowraid device online DEVICE"));
    CHECK(names(action(waits), "cowraid replace cancel"));
    CHECK_FALSE(names(action(waits), "replace start"));
    CHECK_FALSE(names(action(waits), "device remove"));
    waits.replace.source = {3};  // then member 2 may be given another device
    CHECK(names(action(waits), "cowraid replace start"));
    VolumeStatus removed = status;
    removed.balance.state = BalanceStatus::State::kPaused;
    removed.balance.member = {2};
    CHECK(names(action(removed), "cowraid balance resume"));
    removed.balance.state = BalanceStatus::State::kRunning;
    CHECK(action(removed) == "it is being removed: wait, see cowraid balance status; cowraid balance cancel "
                             "ends that");
    removed.balance.shrink_bytes = kGiB;  // it stays
    CHECK(names(action(removed), "cowraid replace start"));
}

TEST_CASE("what was wrong before is told with the first look")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    status.report.info.members[2].state = MemberState::kMissing;
    status.report.info.members[0].counters[0] = 9;
    status.report.info.read_only = true;
    status.report.info.read_only_reason = "half of the members are missing";
    status.report.info.members[1].stale_groups = 1;
    const std::vector<VolumeEvent> first = finder.look(status, kNow);
    REQUIRE(names_of(first) == "NewArray DegradedArray ReadOnly");
    CHECK(first[1].text == "1 member out of service and 1 member without writes that it missed; 1 other "
                           "member may still fail");
    CHECK(look(finder, status) == "");
    // One of them is out, and lacks writes, too.
    status.report.info.members[2].stale_groups = 2;
    EventFinder other;
    const std::vector<VolumeEvent> again = other.look(status, kNow);
    REQUIRE(again.size() == 3);
    CHECK(again[1].text == first[1].text);
}

TEST_CASE("a volume that cannot be written is called so beside what else is known of it")
{
    VolumeStatus status = healthy();
    status.report.info.read_only = true;
    CHECK(std::string(health_of(status).state) == "ONLINE, read-only");
    status.report.info.members[0].counters[0] = 9;
    CHECK(std::string(health_of(status).state) == "ONLINE, read-only");
    CHECK(health_of(status).what == "errors were met; nothing is known to be wrong any more");
    status.report.info.members[0].doubtful = true;
    CHECK(std::string(health_of(status).state) == "ONLINE, read-only");
    CHECK(health_of(status).what == "1 member with many errors");
}

TEST_CASE("a scrub that goes on after a mount, and one that ended before it")
{
    EventFinder goes_on, ended;
    VolumeStatus status = healthy();
    status.scrub = {.state = ScrubState::kRunning, .started = 10};
    CHECK(look(goes_on, status) == "NewArray ScrubResumed");
    status.scrub.state = ScrubState::kFinished;
    CHECK(look(ended, status) == "NewArray");
    CHECK(look(goes_on, status) == "ScrubFinished");
    status.report.info.damaged_blocks = 1;
    EventFinder damaged;
    CHECK(look(damaged, status) == "NewArray DataLost");
}

TEST_CASE("errors that go on are told once a minute with their sum")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    CHECK(look(finder, status) == "NewArray");
    uint64_t& wrong = status.report.info.members[0].counters[static_cast<size_t>(MemberCounter::kCorruption)];
    wrong = 3;
    CHECK(look(finder, status, 1) == "ErrorsFound");
    for (uint64_t second = 2; second <= 60; ++second) {
        wrong = 3 + second;
        CHECK(look(finder, status, second) == "");
    }
    const std::vector<VolumeEvent> more = finder.look(status, kNow + 61);
    REQUIRE(names_of(more) == "ErrorsFound");
    CHECK(more[0].text.starts_with("member 1 (/dev/m1): 60 errors"));
    wrong = 0;  // reset
    CHECK(look(finder, status, 200) == "");
    wrong = 1;
    CHECK(look(finder, status, 201) == "ErrorsFound");
}

TEST_CASE("errors and lost data are told when the clock was set back")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    CHECK(look(finder, status) == "NewArray");
    uint64_t& wrong = status.report.info.members[0].counters[static_cast<size_t>(MemberCounter::kCorruption)];
    wrong = status.report.info.damaged_blocks = 1;
    CHECK(look(finder, status, 36000) == "ErrorsFound DataLost");
    wrong = status.report.info.damaged_blocks = 2;
    CHECK(look(finder, status, 1) == "ErrorsFound DataLost");
    wrong = status.report.info.damaged_blocks = 3;
    CHECK(look(finder, status, 2) == "");
    CHECK(look(finder, status, 61) == "ErrorsFound DataLost");
}

TEST_CASE("a scrub, and what it finds")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    CHECK(look(finder, status) == "NewArray");
    status.scrub = {.state = ScrubState::kRunning, .started = 10};
    CHECK(look(finder, status) == "ScrubStarted");
    status.scrub.state = ScrubState::kPaused;
    CHECK(look(finder, status) == "ScrubPaused");
    status.scrub.state = ScrubState::kRunning;
    CHECK(look(finder, status) == "ScrubResumed");
    status.scrub.lost = 2;
    status.report.info.damaged_blocks = 2;
    status.scrub.state = ScrubState::kFinished;
    CHECK(look(finder, status) == "DataLost ScrubFinished");
    // Begun and ended between two looks.
    status.scrub = {.state = ScrubState::kFinished, .started = 20};
    const std::vector<VolumeEvent> quick = finder.look(status, kNow);
    CHECK(names_of(quick) == "ScrubStarted ScrubFinished");
    CHECK(quick.back().text == "no errors found");
}

TEST_CASE(
    "scrubs in a row: each one that was seen begin is told to end, with what it found where that is known")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    CHECK(look(finder, status) == "NewArray");
    status.scrub = {.state = ScrubState::kRunning, .number = 1, .started = 10};
    CHECK(look(finder, status) == "ScrubStarted");
    // In the same second, too.
    for (uint64_t number = 2; number <= 4; ++number) {
        status.scrub_before = status.scrub;
        status.scrub_before.state = number == 3 ? ScrubState::kCancelled : ScrubState::kFinished;
        status.scrub_before.repaired = number;
        status.scrub = {.state = ScrubState::kRunning, .number = number, .started = 10};
        const std::vector<VolumeEvent> events = finder.look(status, kNow);
        REQUIRE(names_of(events) ==
                (number == 3 ? "ScrubCancelled ScrubStarted" : "ScrubFinished ScrubStarted"));
        CHECK(events[0].text == findings_text(status.scrub_before));
    }
    // Two between two looks.
    status.scrub_before = {.state = ScrubState::kFinished, .number = 5, .started = 11, .lost = 7};
    status.scrub = {.state = ScrubState::kFinished, .number = 6, .started = 11};
    const std::vector<VolumeEvent> two = finder.look(status, kNow);
    REQUIRE(names_of(two) == "ScrubFinished ScrubStarted ScrubFinished ScrubStarted ScrubFinished");
    CHECK(two[0].text == "another one was started; what it found was not seen");
    CHECK(two[2].text == findings_text(status.scrub_before));
    CHECK(two[4].text == "no errors found");
    CHECK(look(finder, status) == "");
}

TEST_CASE("what a scrub found is said in the same words by events and by commands")
{
    ScrubStatus scrub{.state = ScrubState::kFinished};
    CHECK(findings_text(scrub) == "no errors found");
    scrub.repaired = 1;
    CHECK(findings_text(scrub) == "1 block repaired, nothing is lost; see cowraid device stats");
    scrub.unverified = 2;
    CHECK(findings_text(scrub) == "2 blocks not verified (on members out of service), 1 block repaired; run "
                                  "cowraid scrub when all are in service");
    scrub.unrepaired = 3;
    CHECK(findings_text(scrub) ==
          "3 blocks could not be repaired just now, 2 blocks not verified (on members "
          "out of service), 1 block repaired; run it again, and see cowraid device "
          "stats");
    scrub = {.state = ScrubState::kCancelled, .unrepaired = 3, .lost = 4};
    scrub.options.mode = ScrubMode::kLook;
    CHECK(findings_text(scrub) == "4 blocks of data and 0 tree nodes are lost, 3 blocks can be repaired so "
                                  "far; cowraid status -v names the files");
    // The list of damage says how it is now.
    scrub = {.state = ScrubState::kFinished, .lost = 4, .listed_now = 1};
    CHECK(findings_text(scrub) ==
          "4 blocks of data and 0 tree nodes are lost; cowraid status -v names the files");
    CHECK(scrub.damaged());
    scrub.listed_now = 0;
    CHECK(findings_text(scrub) == "4 blocks of data lost (deleted, written anew or good again since)");
    CHECK_FALSE(scrub.damaged());
    const Result<ScrubStatus> decoded = decode_scrub(encode_scrub(scrub).get());
    REQUIRE(decoded.ok());
    CHECK_FALSE(decoded->damaged());
    scrub.repaired = 1;
    CHECK(findings_text(scrub) ==
          "4 blocks of data lost (deleted, written anew or good again since), 1 block repaired");
    EventFinder finder;
    VolumeStatus status = healthy();
    CHECK(look(finder, status) == "NewArray");
    status.scrub = {.state = ScrubState::kCancelled, .started = 20, .repaired = 5};
    const std::vector<VolumeEvent> ended = finder.look(status, kNow);
    REQUIRE(names_of(ended) == "ScrubStarted ScrubCancelled");
    CHECK(ended[1].text == findings_text(status.scrub));
    CHECK(ended[1].text == "5 blocks repaired, nothing is lost so far; see cowraid device stats");
}

TEST_CASE("members come and go, groups move, room runs out")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    CHECK(look(finder, status) == "NewArray");
    status.report.info.members.push_back(status.report.info.members.back());
    status.report.info.members.back().id = {4};
    CHECK(look(finder, status) == "MemberAdded");
    status.balance.state = BalanceStatus::State::kRunning;
    status.balance.started = 7;
    CHECK(look(finder, status) == "BalanceStarted");
    // Its end was not seen, only that there is another one.
    status.balance.started = 8;
    CHECK(look(finder, status) == "BalanceFinished BalanceStarted");
    status.balance.state = BalanceStatus::State::kFinished;
    status.report.info.members.pop_back();
    CHECK(look(finder, status) == "MemberRemoved BalanceFinished");
    status.report.info.available_bytes = 10;
    CHECK(look(finder, status) == "NearlyFull");
    status.report.info.available_bytes = 30;
    CHECK(look(finder, status) == "");
    status.report.info.available_bytes = 10;
    CHECK(look(finder, status) == "");
    status.report.info.available_bytes = 100;
    CHECK(look(finder, status) == "");
    status.report.info.available_bytes = 10;
    CHECK(look(finder, status) == "NearlyFull");
    status.report.info.read_only = true;
    status.report.info.read_only_reason = "stopped";
    CHECK(look(finder, status) == "ReadOnly");
}

TEST_CASE("spares come, go, and take the place of a member")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    VolumeInfo& info = status.report.info;
    CHECK(look(finder, status) == "NewArray");
    info.spares = {{.id = {4}, .path = "/dev/s4", .size_bytes = 1},
                   {.id = {5}, .path = "/dev/s5", .size_bytes = 1}};
    CHECK(look(finder, status) == "SpareAdded SpareAdded");
    info.spares[0].useless = true;
    CHECK(look(finder, status) == "FailSpare");
    info.spares.erase(info.spares.begin());
    CHECK(look(finder, status) == "SpareRemoved");
    info.spares.clear();
    info.members[1].path = "/dev/s5";
    const std::vector<VolumeEvent> used = finder.look(status, kNow);
    CHECK(names_of(used) == "SpareUsed");
    REQUIRE(used.size() == 1);
    CHECK(used[0].text == "spare 5 (/dev/s5) takes the place of member 2");
    CHECK(used[0].device == "/dev/s5");
    info.spares = {{.id = {7}, .path = "/dev/s7", .size_bytes = 1}};
    CHECK(look(finder, status) == "SpareAdded");
    info.spares.clear();
    info.members.push_back({.id = {8}, .path = "/dev/s7"});
    info.members.back().successor = true;
    const std::vector<VolumeEvent> follows = finder.look(status, kNow);
    CHECK(names_of(follows) == "SpareUsed");
    REQUIRE(follows.size() == 1);
    CHECK(follows[0].text == "spare 7 (/dev/s7) will take the place of a member: it is member 8");
    info.members.pop_back();
    // One that failed with its first superblock is out of service in that place.
    info.spares = {{.id = {6}, .path = "/dev/s6", .size_bytes = 1}};
    CHECK(look(finder, status) == "SpareAdded");
    info.spares.clear();
    info.members[2].path = "/dev/s6";
    info.members[2].state = MemberState::kFailed;
    CHECK(look(finder, status).find("FailSpare") != std::string::npos);
    info.members[1].doubtful = true;
    CHECK(look(finder, status) == "ManyErrors");
    CHECK(look(finder, status).empty());
    info.members[1].slow_ms = 14999;
    const std::vector<VolumeEvent> slow = finder.look(status, kNow);
    CHECK(names_of(slow) == "MemberSlow");
    REQUIRE(slow.size() == 1);
    CHECK(slow[0].text == "member 2 (/dev/s5) is slow: a request has been waiting for 14 s");
    CHECK(look(finder, status).empty());
    info.members[1].slow_ms = 0;
    CHECK(look(finder, status) == "MemberAnswers");
}

TEST_CASE("spares are missed at the mount, and when they go; one that is back is told as one that came")
{
    EventFinder finder;
    VolumeStatus status = healthy();
    VolumeInfo& info = status.report.info;
    info.spares = {{.id = {4}}, {.id = {5}, .path = "/dev/s5"}};
    const std::vector<VolumeEvent> first = finder.look(status, kNow);
    REQUIRE(names_of(first) == "NewArray SparesMissing");
    CHECK(first[1].text == "1 spare is not there");
    CHECK(look(finder, status).empty());
    info.spares[1].path.clear();
    const std::vector<VolumeEvent> gone = finder.look(status, kNow);
    REQUIRE(names_of(gone) == "SparesMissing");
    CHECK(gone[0].text == "2 spares are not there");
    info.spares[0].path = "/dev/s4";
    CHECK(look(finder, status) == "SpareAdded");
}

TEST_CASE("what a member is called")
{
    VolumeStatus status = healthy();
    MemberInfo member = status.report.info.members[0];
    const auto called = [&] {
        return std::string(state_of(member, status));
    };
    CHECK(called() == "online");
    member.doubtful = true;
    CHECK(called() == "degraded");
    member.stale_groups = 1;
    CHECK(called() == "stale");
    status.catch_up.state = ScrubState::kRunning;
    CHECK(called() == "rebuilding");
    member.state = MemberState::kFailed;
    CHECK(called() == "faulted");
    member.state = MemberState::kMissing;
    CHECK(called() == "missing");
    member.path.clear();
    CHECK(called() == "missing");
    member.unusable = true;
    CHECK(called() == "unusable");
}

TEST_CASE("events are numbered, and who comes too late learns how many are gone")
{
    EventLog log;
    CHECK(log.since(0).events.empty());
    CHECK(log.since(0).dropped == 0);
    for (uint64_t number = 1; number <= EventLog::kEventsMax + 7; ++number)
        log.add({{.name = "Event" + std::to_string(number)}});
    EventLog::Answer answer = log.since(0);
    CHECK(answer.dropped == 7);
    CHECK(answer.last == EventLog::kEventsMax + 7);
    REQUIRE(answer.events.size() == EventLog::kEventsAtOnce);
    uint64_t expected = 8;
    uint64_t seen = 0;
    while (!answer.events.empty() && seen < EventLog::kEventsMax) {
        for (const VolumeEvent& event : answer.events) {
            CHECK(event.sequence == expected);
            CHECK(event.name == "Event" + std::to_string(expected));
            ++expected;
            ++seen;
        }
        answer = log.since(expected - 1);
        CHECK(answer.dropped == 0);
    }
    CHECK(seen == EventLog::kEventsMax);
    CHECK(log.since(8).dropped == 0);
    CHECK(log.since(7).dropped == 0);
    CHECK(log.since(6).dropped == 1);
}

}  // namespace cowraid
