// SPDX-License-Identifier: MIT
#include "tools/cowraid/mounted_command.h"

#include <signal.h>

#include <cstdio>
#include <ctime>

#include "base/print.h"
#include "tools/cowraid/load_report.h"

namespace cowraid {

namespace {

volatile sig_atomic_t was_interrupted = 0;

void on_interrupt(int)
{
    was_interrupted = 1;
}

Result<VolumeTarget> target_of(const CommandOptions& options, std::string& why)
{
    if (options.operands.size() == 1)
        return find_target(options.operands, why);
    const std::vector<MountedVolume> mounted = list_mounted_volumes();
    if (mounted.size() == 1)
        return VolumeTarget{.uuid = mounted.front().uuid, .mounted = true, .members = {}, .named_device = {}};
    if (auto here = find_target({"./"}, why); here.ok())
        return here;
    why = mounted.empty() ? "no volume is mounted"
                          : std::to_string(mounted.size()) + " volumes are mounted; name one";
    return Err::kNotFound;
}

}  // namespace

bool one_volume(const CommandOptions& options)
{
    if (options.operands.size() <= 1)
        return true;
    print_error(kProgram, options.format, Err::kInvalid, "one volume at a time");
    return false;
}

Result<ControlClient> connect_mounted(const CommandOptions& options, std::string& why)
{
    CW_ASSIGN(const VolumeTarget target, target_of(options, why));
    return connect_target(target, why);
}

void notice_interrupts()
{
    struct sigaction action = {};
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

bool interrupted()
{
    return was_interrupted != 0;
}

std::string time_text(uint64_t seconds)
{
    const auto time = static_cast<time_t>(seconds);
    struct tm local { };
    char out[64] = "";
    if (localtime_r(&time, &local) != nullptr)
        strftime(out, sizeof out, "%Y-%m-%d %H:%M:%S", &local);
    return out;
}

std::string duration_text(uint64_t ms)
{
    const uint64_t seconds = ms / 1000;
    return text_format("%llu:%02llu:%02llu", static_cast<unsigned long long>(seconds / 3600),
                       static_cast<unsigned long long>(seconds / 60 % 60),
                       static_cast<unsigned long long>(seconds % 60));
}

std::string progress_text(unsigned percent, uint64_t bytes_per_second, uint64_t left_ms, SizeStyle sizes)
{
    constexpr unsigned kCells = 30;
    std::string bar(size_t{percent} * kCells / 100, '=');
    bar.resize(kCells, ' ');
    return text_format("[%s] %3u%%  %s/s  %s left", bar.c_str(), percent,
                       size_text(bytes_per_second, sizes).c_str(), duration_text(left_ms).c_str());
}

void print_field(const char* name, const std::string& value)
{
    print_line(stdout, "%-18s%s", name, value.c_str());
}

}  // namespace cowraid
