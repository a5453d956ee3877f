// SPDX-License-Identifier: MIT
#include "fs/space_budget.h"

#include <doctest/doctest.h>

using namespace cowraid;

namespace {

MetadataRoom room_of(uint64_t free_blocks)
{
    MetadataRoom room;
    room.free_blocks = free_blocks;
    room.reserve_blocks = 256;
    room.used_nodes = 100000;
    room.address_blocks = room.node_address_blocks = 1 << 20;
    room.group_count = 10;
    room.blocks_per_stripe = 64;
    return room;
}

}  // namespace

TEST_CASE("room gate: who came before a refusal and wants as much is refused without asking")
{
    RoomGate gate;
    const uint64_t before = gate.closings();
    CHECK(!gate.refused_since(before, 100));
    REQUIRE(gate.close(before, 5));
    CHECK(gate.closed());
    const uint64_t meanwhile = gate.closings();
    gate.open_refused(5);
    CHECK(!gate.closed());
    CHECK(gate.refused_since(before, 5));
    CHECK(gate.refused_since(before, 6));
    CHECK(!gate.refused_since(before, 4));
    CHECK(!gate.close(before, 5));
    CHECK(!gate.closed());
    // What was freed before they came may not have been in those commits.
    CHECK(!gate.refused_since(meanwhile, 6));
    REQUIRE(gate.close(meanwhile, 6));
    gate.open();
    CHECK(!gate.refused_since(meanwhile, 6));
    REQUIRE(gate.close(meanwhile, 7));
    gate.open_refused(7);
    CHECK(gate.refused_since(meanwhile, 7));
    CHECK(!gate.refused_since(gate.closings(), 8));
}

TEST_CASE("space budget: claims count until they are given up, and what became items since is not missed")
{
    SpaceBudget budget;
    const PendingChanges own = {.entries = 4, .bytes = 1024};
    PendingChanges three = own;
    three += own;
    three += own;
    const MetadataRoom any = room_of(0);
    budget.set_metadata_room(room_of(node_blocks_bound(any, three) + any.reserve_blocks));
    const SpaceBudget::ClaimMark mark = budget.claim_mark();
    REQUIRE(budget.try_claim(own, {}, mark, Leave::kReserve));
    REQUIRE(budget.try_claim(own, {}, mark, Leave::kReserve));
    {
        SpaceClaim third(budget);
        REQUIRE(third.take(own, {}, mark, Leave::kReserve));
        CHECK(!budget.try_claim(own, {}, mark, Leave::kReserve));
        CHECK(budget.try_claim(own, {}, mark, Leave::kMoves));  // the reserve
        budget.give_up(own);
    }
    // The third one's may have become items that `mark` did not see: it still counts for who read that mark.
    CHECK(!budget.try_claim(own, {}, mark, Leave::kReserve));
    CHECK(budget.try_claim(own, {}, budget.claim_mark(), Leave::kReserve));
}
