// SPDX-License-Identifier: MIT
// cowraid metrics
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/cowraid/metrics_text.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

int command_metrics(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(argc, argv, "[VOLUME...]",
                      "Print mounted volumes in numbers, in the text format of Prometheus.\v"
                      "For the textfile collector of node_exporter: write to a file beside it, and rename.",
                      options))
        return kExitUsage;
    std::string why;
    const auto chosen = chosen_volumes(options, why);
    if (!chosen.ok())
        return command_failed(options, chosen.err(), why);
    std::vector<VolumeStatus> volumes;
    Json list = json_make_array();
    for (const Uuid& uuid : *chosen) {
        Json answer;
        const auto status = ask_volume_status(uuid, answer, why);
        // Numbers of some volumes would look like those of all.
        if (!status.ok())
            return command_failed(options, status.err(), "volume " + uuid_text(uuid) + ": " + why);
        volumes.push_back(*status);
        json_array_append_new(list.get(), answer.release());
    }
    if (options.format == OutputFormat::kJson) {
        Json out = json_with_schema("metrics");
        json_put(out.get(), "volumes", std::move(list));
        print_json(out.get());
        return kExitOk;
    }
    if (!write_all(STDOUT_FILENO, metrics_text(volumes)))
        return command_failed(options, Err::kIo, std::string("standard output: ") + strerror(errno));
    return kExitOk;
}

}  // namespace cowraid
