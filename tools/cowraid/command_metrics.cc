// SPDX-License-Identifier: MIT
// cowraid metrics
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "tools/cowraid/metrics_text.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

int command_metrics(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(argc, argv, "[VOLUME...]",
                      "Print mounted volumes in numbers, in the text format of Prometheus.\v"
                      "For the textfile collector of node_exporter: write to a file beside it, and rename. "
                      "Of a volume whose "
                      "daemon does not say how it is there is cowraid_up alone, which is 0.",
                      options))
        return kExitUsage;
    std::string why;
    std::vector<int> silent;
    const auto chosen = chosen_volumes(options, why, &silent);
    if (!chosen.ok())
        return command_failed(options, chosen.err(), why);
    std::vector<VolumeStatus> volumes;
    std::vector<UnansweredVolume> unanswered;
    Json list = json_make_array(), others = json_make_array();
    for (const int pid : std::set<int>(silent.begin(), silent.end()))  // several may not be known
        unanswered.push_back({"", pid});
    for (const Uuid& uuid : *chosen) {
        Json answer;
        const auto status = ask_volume_status(uuid, answer, why);
        if (!status.ok() && !options.operands.empty())
            return command_failed(options, status.err(), "volume " + uuid_text(uuid) + ": " + why);
        // One that is being unmounted is no longer there.
        if (status.err() == Err::kShutdown || status.err() == Err::kNotFound)
            continue;
        if (!status.ok()) {
            unanswered.push_back({uuid_text(uuid)});
            continue;
        }
        volumes.push_back(*status);
        json_array_append_new(list.get(), answer.release());
    }
    if (options.format == OutputFormat::kJson) {
        for (const UnansweredVolume& volume : unanswered) {
            Json other = json_make_object();
            json_put_text(other.get(), "uuid", volume.uuid);
            json_put_integer(other.get(), "pid", static_cast<uint64_t>(volume.pid));
            json_array_append_new(others.get(), other.release());
        }
        Json out = json_with_schema("metrics");
        json_put(out.get(), "volumes", std::move(list));
        json_put(out.get(), "unanswered", std::move(others));
        print_json(out.get());
        return kExitOk;
    }
    if (!write_all(STDOUT_FILENO, metrics_text(volumes, unanswered)))
        return command_failed(options, Err::kIo, std::string("standard output: ") + strerror(errno));
    return kExitOk;
}

}  // namespace cowraid
