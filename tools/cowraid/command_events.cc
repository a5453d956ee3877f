// SPDX-License-Identifier: MIT
// cowraid events
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "base/print.h"
#include "control/events.h"
#include "tools/cowraid/hook.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

namespace {

constexpr int kKeyProgram = 256;
constexpr int kKeyTest = 257;
constexpr unsigned kHookSeconds = 60;
constexpr uint32_t kEndMilliseconds = 2000;  // until a daemon whose socket is gone says the last of it

struct EventArguments {
    CommandOptions common;
    bool follow = false;
    bool follow_named = false;  // not by --program alone
    bool test = false;
    std::string program;  // empty: none
};

constexpr argp_option kEventOptions[] = {
    {"follow", 'f', nullptr, 0,
     "go on with what happens, of volumes that are mounted later, too: JSON lines, without --format text", 0},
    {"program", kKeyProgram, "PATH", 0,
     "call this program with each event from now on: event, mount point and, if it is about one, the "
     "member's "
     "device; implies --follow",
     0},
    {"test", kKeyTest, nullptr, 0, "begin with a TestMessage for each mounted volume", 0},
    {},
};

error_t parse_event_option(int key, char* text, argp_state* state)
{
    auto& arguments = *static_cast<EventArguments*>(state->input);
    switch (key) {
    case 'f':
        arguments.follow = arguments.follow_named = true;
        return 0;
    case kKeyProgram:
        arguments.program = text;
        arguments.follow = true;
        return 0;
    default:
        return parse_flags(key, state, arguments.common, {{kKeyTest, &arguments.test}});
    }
}

bool parse_events(int argc, char** argv, EventArguments& arguments)
{
    return parse_command(argc, argv,
                         {kEventOptions, parse_event_option, "[VOLUME...]",
                          "Show what happened to mounted volumes, one line for each event.\v"
                          "With --json, and with -f, each line is one JSON object."},
                         &arguments);
}

// One mount of a volume, and how far it was told.
struct Followed {
    MountedVolume volume;
    uint64_t last = 0;
    bool begun = false;
    std::optional<ControlClient> end;  // gets the last events when it is unmounted
};

class EventReader {
public:
    EventReader(const EventArguments& arguments, std::vector<Uuid> chosen)
        : arguments_(arguments), chosen_(std::move(chosen))
    {
    }

    // What is new of every volume.
    void look();

private:
    [[nodiscard]] bool wants(const Uuid& volume) const
    {
        return chosen_.empty() || std::find(chosen_.begin(), chosen_.end(), volume) != chosen_.end();
    }
    void read(Followed& followed);
    void tell_new(Followed& followed, const json_t* answer, uint64_t dropped);
    void await_end(Followed& followed) const;
    void read_end(Followed& followed);
    void begin(Followed& followed, uint64_t last, bool degraded);
    void tell(const Followed& followed, const VolumeEvent& event);
    void tell_here(const Followed& followed, const char* name, std::string text);

    const EventArguments& arguments_;
    const std::vector<Uuid> chosen_;
    std::map<std::pair<Uuid, int>, Followed> followed_;  // by volume and daemon
    bool first_round_ = true;
    std::vector<int> silent_at_first_;  // daemons
};

void EventReader::tell(const Followed& followed, const VolumeEvent& event)
{
    const MountedVolume& volume = followed.volume;
    if (arguments_.common.format == OutputFormat::kJson) {
        const Json line = encode_event(event);
        json_put_text(line.get(), "uuid", uuid_text(volume.uuid));
        json_put_text(line.get(), "label", volume.label);
        json_put_text(line.get(), "mount_point", volume.mount_point);
        print_line(stdout, "%s", json_print(line.get()).c_str());
    } else {
        print_line(stdout, "%s  %s  %-16s %s", time_text(event.time).c_str(), volume.mount_point.c_str(),
                   event.name.c_str(), event.text.c_str());
    }
    fflush(stdout);
    if (arguments_.program.empty())
        return;
    std::vector<std::string> words{event.name, volume.mount_point};
    if (!event.device.empty())
        words.push_back(event.device);
    std::string why;
    if (!validate_hook(arguments_.program, why).ok() ||
        !run_hook(arguments_.program, words, kHookSeconds, why).ok())
        print_line(stderr, "cowraid: %s of %s: %s", event.name.c_str(), volume.mount_point.c_str(),
                   why.c_str());
}

// What no daemon says.
void EventReader::tell_here(const Followed& followed, const char* name, std::string text)
{
    tell(followed, {.time = static_cast<uint64_t>(time(nullptr)), .name = name, .text = std::move(text)});
}

// A program is not called again for what happened before it was there, but for what is wrong now.
void EventReader::begin(Followed& followed, uint64_t last, bool degraded)
{
    if (arguments_.test)
        tell_here(followed, "TestMessage", "a test");
    if (arguments_.program.empty())
        return;
    followed.last = last;
    if (degraded)
        tell_here(followed, "DegradedArray", "when cowraid events began; see cowraid status");
}

void EventReader::read(Followed& followed)
{
    std::string why;
    auto client = ControlClient::connect(followed.volume.uuid);
    if (!client.ok())
        return;
    while (true) {
        const Json request = json_make_object();
        json_put_integer(request.get(), "since", followed.last);
        const auto answer = client->ask("events", why, request.get());
        if (!answer.ok())
            return;
        const bool was_there = first_round_ || std::count(silent_at_first_.begin(), silent_at_first_.end(),
                                                          followed.volume.pid) > 0;
        if (was_there && followed.last == 0 && !std::exchange(followed.begun, true)) {
            begin(followed, json_get_integer(answer->get(), "last"),
                  json_get_flag(answer->get(), "degraded"));
            if (!arguments_.program.empty())
                return;
        }
        tell_new(followed, answer->get(), json_get_integer(answer->get(), "dropped"));
        if (json_array_size(json_get(answer->get(), "events")) == 0)
            return;
    }
}

void EventReader::tell_new(Followed& followed, const json_t* answer, uint64_t dropped)
{
    if (dropped > 0)
        tell_here(followed, "EventsDropped",
                  count_text(dropped, "event") + " before the next one are lost: there were too many");
    const json_t* const events = json_get(answer, "events");
    for (size_t i = 0; i < json_array_size(events); ++i) {
        const VolumeEvent event = decode_event(json_array_get(events, i));
        if (event.sequence <= followed.last)
            continue;
        followed.last = event.sequence;
        tell(followed, event);
    }
}

// A connection on which the daemon says what happened last, when nobody can ask it any more.
void EventReader::await_end(Followed& followed) const
{
    std::string why;
    auto client = arguments_.follow && !followed.end ? ControlClient::connect(followed.volume.uuid)
                                                     : Result<ControlClient>(Err::kInvalid);
    if (client.ok() && client->ask("shutdown-wait", why).ok())
        followed.end = client.take();
}

void EventReader::read_end(Followed& followed)
{
    if (!followed.end)
        return;
    const auto message = followed.end->next(kEndMilliseconds);
    if (!message.ok())
        return;
    const json_t* const events = json_get(message->get(), "events");
    const uint64_t first = json_get_integer(json_array_get(events, 0), "sequence");
    tell_new(followed, message->get(), first > followed.last + 1 ? first - followed.last - 1 : 0);
}

void EventReader::look()
{
    std::vector<int> silent;
    std::vector<MountedVolume> mounted = list_mounted_volumes(&silent);
    // Before a new mount of the same volume is told.
    for (auto at = followed_.begin(); at != followed_.end();) {
        const auto is_it = [&](const MountedVolume& volume) {
            return at->first == std::pair(volume.uuid, volume.pid);
        };
        const auto stands_still = [&](int pid) {
            return pid == 0 || pid == at->first.second;
        };
        if (std::any_of(mounted.begin(), mounted.end(), is_it) ||
            std::any_of(silent.begin(), silent.end(), stands_still)) {
            ++at;
            continue;
        }
        read_end(at->second);
        tell_here(at->second, "DeviceDisappeared", "unmounted, or its daemon ended");
        at = followed_.erase(at);
    }
    for (MountedVolume& volume : mounted) {
        if (!wants(volume.uuid))
            continue;
        Followed& followed = followed_[{volume.uuid, volume.pid}];
        followed.volume = std::move(volume);
        await_end(followed);
        read(followed);
    }
    if (std::exchange(first_round_, false))
        silent_at_first_ = silent;
}

}  // namespace

int command_events(int argc, char** argv, CommandOptions common)
{
    EventArguments arguments{.common = std::move(common)};
    if (!parse_events(argc, argv, arguments))
        return kExitUsage;
    if (arguments.follow_named && !arguments.common.format_named)
        arguments.common.format = OutputFormat::kJson;
    std::string why;
    if (!arguments.program.empty())
        if (const Status hook = validate_hook(arguments.program, why); !hook.ok())
            return command_failed(arguments.common, hook.err(), why);
    std::vector<Uuid> chosen;  // none: all, those that are mounted later, too
    if (!arguments.common.operands.empty()) {
        auto named = chosen_volumes(arguments.common, why);
        if (!named.ok())
            return command_failed(arguments.common, named.err(), why);
        chosen = named.take();
    }
    EventReader reader(arguments, std::move(chosen));
    if (arguments.follow)
        notice_interrupts();
    reader.look();
    while (arguments.follow && !interrupted()) {
        usleep(kLookMicroseconds);
        reader.look();
    }
    return kExitOk;
}

}  // namespace cowraid
