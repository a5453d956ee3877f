// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "base/random.h"
#include "control/control.h"
#include "control/control_path.h"
#include "tests/support/capture.h"
#include "tools/cowraid/command.h"

namespace cowraid {

namespace {

// A volume that is unmounted between two questions: it says where it is, and then no more.
class VanishingVolume final : public ControlHandler {
public:
    explicit VanishingVolume(const Uuid& uuid) : uuid_(uuid) { }

    Status handle(ControlRequest& request, ControlAnswer& answer, std::string& why) override
    {
        if (request.command != "mount") {
            why = "the volume is being unmounted";
            return Err::kShutdown;
        }
        answer.result = json_make_object();
        json_put_text(answer.result.get(), "uuid", uuid_text(uuid_));
        json_put_text(answer.result.get(), "mount_point", "/mnt");
        return {};
    }

private:
    const Uuid uuid_;
};

}  // namespace

TEST_CASE("a volume that vanishes before it is asked is one that does not answer, in the same JSON object")
{
    char directory[] = "/tmp/cowraid-status-XXXXXX";
    REQUIRE(mkdtemp(directory) != nullptr);
    REQUIRE(setenv("COWRAID_RUN_DIR", directory, 1) == 0);
    const Uuid volume = uuid_random();
    VanishingVolume handler(volume);
    const auto path = make_control_socket_path(directory, volume);
    REQUIRE(path.ok());
    {
        const auto server = ControlServer::start({.path = *path, .owner = geteuid()}, handler);
        REQUIRE(server.ok());
        std::string name = "cowraid status", json = "--json", uuid = uuid_text(volume);
        char* arguments[] = {name.data(), json.data(), uuid.data(), nullptr};
        int code = kExitOk;
        std::string printed;
        {
            Captured captured(stdout);
            code = command_status(3, arguments, {});
            printed = captured.text();
        }
        CHECK(code == kExitFailed);
        const auto shown = json_parse_object(printed);
        REQUIRE(shown.ok());
        CHECK(json_get_text(shown->get(), "schema") == "cowraid.status");
        CHECK(json_array_size(json_get(shown->get(), "volumes")) == 0);
        const json_t* const silent = json_get(shown->get(), "not_answering");
        REQUIRE(json_array_size(silent) == 1);
        CHECK(json_get_text(json_array_get(silent, 0), "uuid") == uuid);
        CHECK(json_get_text(json_array_get(silent, 0), "problem") == "the volume is being unmounted");
    }
    unsetenv("COWRAID_RUN_DIR");
    std::filesystem::remove_all(directory);
}

}  // namespace cowraid
