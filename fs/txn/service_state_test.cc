// SPDX-License-Identifier: MIT
#include "fs/txn/service_state.h"

#include <doctest/doctest.h>

using namespace cowraid;
using Kind = ServiceState::Kind;

TEST_CASE("service state: a failure stops what wrote, also when it was just told to be read-only")
{
    for (const Kind kind : {Kind::kWriting, Kind::kReading}) {
        ServiceState state;
        state.become(kind);
        CHECK(state.stop("a commit failed"));
        CHECK(state.stopped());
        CHECK(state.check_writable().err() == Err::kShutdown);
        CHECK(state.failed());
        CHECK_FALSE(state.stop("another"));
        state.become(Kind::kReading);
        CHECK(state.stopped());
    }
}

TEST_CASE("service state: a mount that cannot begin to write keeps its log")
{
    for (const Kind kind : {Kind::kStarting, Kind::kCommittingRows}) {
        ServiceState state;
        state.become(kind);
        CHECK(state.stop("planning failed"));
        CHECK(state.keeps_log());
        CHECK(state.read_only());
        CHECK(state.check_writable().err() == Err::kReadOnly);
    }
}
