// SPDX-License-Identifier: MIT
// What happens to a mounted volume, found by comparing how it was with how it is; and the last of it,
// numbered, for who asks.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "control/volume_status.h"

namespace cowraid {

struct VolumeEvent {
    uint64_t sequence = 0;  // from 1 in each mount
    uint64_t time = 0;  // seconds since 1970
    // A stable word (docs/EVENTS.md): those of mdadm --monitor where there is one.
    std::string name;
    MemberId member;  // 0: of the volume as a whole
    std::string device;  // of the member; empty when it has none
    std::string text;  // one line
};

Json encode_event(const VolumeEvent& event);
VolumeEvent decode_event(const json_t* object);

// One thread.
class EventFinder {
public:
    // Errors that go on are told once in so many seconds, with their sum.
    static constexpr uint64_t kRepeatSeconds = 60;

    // What happened since the last call; with the first one, that the volume is there and what is wrong.
    // `now`: seconds since 1970. Events have no sequence yet.
    std::vector<VolumeEvent> look(const VolumeStatus& status, uint64_t now);

private:
    // A number that only matters when it grows.
    struct Reported {
        uint64_t value = 0;
        uint64_t time = 0;  // 0: never
    };
    void add(const char* name, std::string text, const MemberInfo* member = nullptr);
    void begin(const VolumeStatus& status);
    void compare_members(const VolumeStatus& status);
    void compare_spares(const VolumeInfo& info);
    void compare_errors(const MemberInfo& member);
    void compare_slowness(const MemberInfo* was, const MemberInfo& member);
    void compare_volume(const VolumeStatus& status);
    void compare_scrubs(const VolumeStatus& status);
    void compare_scrub(const ScrubStatus& before, const ScrubStatus& status);
    void compare_rebuild(const ScrubStatus& before, const ScrubStatus& status);
    void compare_balance(const BalanceStatus& before, const BalanceStatus& status);
    void compare_replace(const VolumeStatus& volume);
    void tell_missing_spares(const VolumeInfo& info, uint64_t before);
    void tell_progress(unsigned percent, unsigned& told);
    bool grew(Reported& reported, uint64_t value) const;

    uint64_t now_ = 0;
    bool begun_ = false, nearly_full_ = false;
    std::optional<int64_t> left_;  // members that may still fail, as it was seen last; none: not degraded
    VolumeStatus before_;
    std::map<MemberId, Reported> errors_;
    Reported lost_;
    unsigned rebuilt_percent_ = 0, copied_percent_ = 0;  // told last
    std::vector<VolumeEvent> found_;
};

// The last events. Thread-safe.
class EventLog {
public:
    static constexpr size_t kEventsMax = 1000;
    static constexpr size_t kEventsAtOnce = 200;

    void add(std::vector<VolumeEvent> events);

    struct Answer {
        std::vector<VolumeEvent> events;  // behind `since`, the oldest first, at most kEventsAtOnce
        uint64_t dropped = 0;  // that were behind it and are gone
        uint64_t last = 0;  // sequence of the newest of all
    };
    [[nodiscard]] Answer since(uint64_t sequence) const;
    [[nodiscard]] Answer newest() const;

private:
    mutable Mutex mutex_{LockRank::kLeaf};
    std::deque<VolumeEvent> events_ CW_GUARDED_BY(mutex_);
    uint64_t last_ CW_GUARDED_BY(mutex_) = 0;
};

}  // namespace cowraid
