// SPDX-License-Identifier: MIT
#include "fs/txn/space_budget.h"

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

// Writes into holes.
MetadataRoom full_room_of(uint64_t free_blocks, uint64_t log_rows)
{
    MetadataRoom room = room_of(free_blocks);
    room.reserve_blocks = 16384;
    room.hole_blocks = 100000;
    room.parity = 1;
    room.log_rows = log_rows;
    return room;
}

}  // namespace

TEST_CASE("space budget: one commit of checksums counts, however often a flush fills the log")
{
    const PendingChanges few = {.data_blocks = 200, .data_runs = 200};
    const PendingChanges many = {.data_blocks = 20000, .data_runs = 20000};
    CHECK(node_bound(full_room_of(0, 1000), few).early_blocks == 0);
    CHECK(node_bound(full_room_of(0, 100), few).early_blocks > 0);
    for (const PendingChanges& pending : {few, many}) {
        const NodeBound small = node_bound(full_room_of(0, 10), pending);
        CHECK(small.early_blocks == node_bound(full_room_of(0, 200), pending).early_blocks);
        // Two at once fit where one of them and the commit itself do.
        CHECK(small.early_blocks <= small.file_blocks + small.system_blocks);
    }
}

TEST_CASE("space budget: commits of checksums may use the reserve")
{
    const PendingChanges own = {.data_blocks = 200, .data_runs = 200};
    const MetadataRoom any = full_room_of(0, 10);
    const NodeBound bound = node_bound(any, own);
    REQUIRE(bound.early_blocks > 0);
    REQUIRE(bound.early_blocks < any.reserve_blocks);
    const uint64_t least = bound.file_blocks + bound.system_blocks + any.reserve_blocks;
    SpaceBudget budget;
    budget.set_metadata_room(full_room_of(least - 1, 10));
    CHECK(!budget.try_claim(own, {}, budget.claim_mark(), Leave::kReserve));
    budget.set_metadata_room(full_room_of(least, 10));
    CHECK(budget.try_claim(own, {}, budget.claim_mark(), Leave::kReserve));
    // What may use the reserve leaves room for them all the same.
    SpaceBudget shrinking;
    shrinking.set_metadata_room(full_room_of(least - any.reserve_blocks + bound.early_blocks - 1, 10));
    CHECK(!shrinking.try_claim(own, {}, shrinking.claim_mark(), Leave::kNothing));
    shrinking.set_metadata_room(full_room_of(least - any.reserve_blocks + bound.early_blocks, 10));
    CHECK(shrinking.try_claim(own, {}, shrinking.claim_mark(), Leave::kNothing));
}

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
