// SPDX-License-Identifier: MIT
#include "tools/cowraid/mounted_command.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "base/random.h"
#include "control/control.h"
#include "control/control_path.h"

namespace cowraid {

namespace {

// A volume of two members. The second one lacks something for so many questions.
class FillingVolume final : public ControlHandler {
public:
    FillingVolume(ScrubState state, uint64_t looks, const ScrubStatus& found)
        : state_(state), looks_(looks), found_(found)
    {
    }

    Status handle(ControlRequest& request, ControlAnswer& answer, std::string&) override
    {
        const uint64_t call = calls.fetch_add(1);
        VolumeStatus status;
        status.report.info.members.resize(2);
        status.report.info.members[0].id = {1};
        status.report.info.members[1].id = {2};
        if (request.command == "info" && asked_++ < looks_)
            status.report.info.members[1].stale_groups = 1;
        // Who asks all the time comes to an end, too.
        status.catch_up = found_;
        status.catch_up.state = call > 1000 ? ScrubState::kFinished : state_;
        answer.result = request.command == "info" ? encode_report(status.report) : encode_status(status);
        return {};
    }

    std::atomic<uint64_t> calls{0};

private:
    const ScrubState state_;
    const uint64_t looks_;
    const ScrubStatus found_;
    std::atomic<uint64_t> asked_{0};
};

// The exit code, and how many questions it took.
struct Waited {
    int code = 0;
    uint64_t calls = 0;
};

// From the second 1000 on.
Waited wait_for(ScrubState state, uint64_t looks, const ScrubStatus& found = {})
{
    char directory[] = "/tmp/cowraid-waiting-XXXXXX";
    REQUIRE(mkdtemp(directory) != nullptr);
    REQUIRE(setenv("COWRAID_RUN_DIR", directory, 1) == 0);
    const Uuid volume = uuid_random();
    FillingVolume handler(state, looks, found);
    Waited waited;
    const auto path = make_control_socket_path(directory, volume);
    REQUIRE(path.ok());
    {
        const auto server = ControlServer::start({.path = *path, .owner = geteuid()}, handler);
        REQUIRE(server.ok());
        waited.code = wait_until_filled({}, volume, {2}, 1000);
    }
    waited.calls = handler.calls.load();
    unsetenv("COWRAID_RUN_DIR");
    std::filesystem::remove_all(directory);
    return waited;
}

}  // namespace

TEST_CASE("who waits for a member to be filled asks at its leisure, and sees the end whatever else ended")
{
    for (const ScrubState state : {ScrubState::kCancelled, ScrubState::kFinished, ScrubState::kNone}) {
        CAPTURE(static_cast<int>(state));
        Waited waited = wait_for(state, 0);
        CHECK(waited.code == kExitOk);
        CHECK(waited.calls <= 4);
        waited = wait_for(state, 2);
        CHECK(waited.code == kExitOk);
        CHECK(waited.calls <= 8);
    }
}

TEST_CASE("who waits for a member to be filled is told of what was lost on the way, and of nothing older")
{
    ScrubStatus found;
    found.started = 1000;
    CHECK(wait_for(ScrubState::kFinished, 0, found).code == kExitOk);
    found.lost = 2;
    CHECK(wait_for(ScrubState::kFinished, 0, found).code == kExitFindings);
    CHECK(wait_for(ScrubState::kFinished, 2, found).code == kExitFindings);
    found.started = 999;
    CHECK(wait_for(ScrubState::kFinished, 0, found).code == kExitOk);
}

TEST_CASE("who waits for a member to be filled does not wait where nothing is written")
{
    const Waited waited = wait_for(ScrubState::kPaused, 1000);
    CHECK(waited.code == kExitFailed);
    CHECK(waited.calls <= 4);
}

}  // namespace cowraid
