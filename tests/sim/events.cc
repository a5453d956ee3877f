// SPDX-License-Identifier: MIT
#include "tests/sim/events.h"

#include <cstdio>

namespace cowraid::test {

namespace {

struct EventKind {
    const char* text;
    uint64_t minimum;  // per thousand seeds
};

constexpr EventKind kKinds[] = {
#define COWRAID_SIM_EVENT_KIND(name, text, minimum) {text, minimum},
    COWRAID_SIM_EVENTS(COWRAID_SIM_EVENT_KIND)
#undef COWRAID_SIM_EVENT_KIND
};

}  // namespace

void EventCounts::add_all(const EventCounts& other)
{
    for (size_t i = 0; i < counts_.size(); ++i)
        counts_[i] += other.counts_[i];
}

size_t EventCounts::print(uint64_t seed_count) const
{
    size_t short_count = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
        const uint64_t minimum = kKinds[i].minimum * seed_count / 1000;
        const bool falls_short = counts_[i] < minimum;
        short_count += falls_short;
        printf("  %-46s %12llu (at least %llu)%s\n", kKinds[i].text,
               static_cast<unsigned long long>(counts_[i]), static_cast<unsigned long long>(minimum),
               falls_short ? " TOO FEW" : "");
    }
    return short_count;
}

}  // namespace cowraid::test
