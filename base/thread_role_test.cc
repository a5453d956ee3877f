// SPDX-License-Identifier: MIT
#include "base/thread_role.h"

#include <doctest/doctest.h>

#include <thread>

namespace cowraid {

namespace {

bool elsewhere_for_another(const ThreadRole& role)
{
    bool elsewhere = false;
    std::thread([&] { elsewhere = role.elsewhere(); }).join();
    return elsewhere;
}

}  // namespace

TEST_CASE("a role is everybody's until a thread begins it, then that thread's, and everybody's again")
{
#ifdef COWRAID_DEBUG
    constexpr bool kChecked = true;
#else
    constexpr bool kChecked = false;
#endif
    ThreadRole role, other;
    CHECK(!role.elsewhere());
    CHECK(!elsewhere_for_another(role));
    role.begin();
    CHECK(!role.elsewhere());
    CHECK(elsewhere_for_another(role) == kChecked);
    CHECK(!elsewhere_for_another(other));  // of another volume
    role.end();
    CHECK(!elsewhere_for_another(role));
    std::thread([&] { role.begin(); }).join();
    CHECK(role.elsewhere() == kChecked);
    role.end();  // as who has joined that thread does
    CHECK(!role.elsewhere());
}

}  // namespace cowraid
