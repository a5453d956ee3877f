// SPDX-License-Identifier: MIT
#include "fs/txn/ledger.h"

#include <doctest/doctest.h>

#include <vector>

#include "fs/txn/room_turns.h"

using namespace cowraid;

namespace {

MetadataRoom room_of(uint64_t free_blocks)
{
    MetadataRoom room;
    room.free_blocks = room.system_free_blocks = room.all_free_blocks = free_blocks;
    room.reserve_blocks = 256;
    room.used_nodes = 100000;
    room.address_blocks = room.node_address_blocks = 1 << 20;
    room.group_count = 10;
    room.blocks_per_stripe = 64;
    return room;
}

// Writes into partial rows.
MetadataRoom full_room_of(uint64_t free_blocks, uint64_t log_rows)
{
    MetadataRoom room = room_of(free_blocks);
    room.reserve_blocks = 16384;
    room.partial_row_blocks = 100000;
    room.parity = 1;
    room.log_rows = log_rows;
    return room;
}

constexpr uint64_t kMiBBlocks = kMiB / kBlockBytes;

void add_dirty(Ledger& ledger, uint64_t blocks, int64_t runs)
{
    ledger.apply({.dirty_blocks = blocks, .dirty_runs = {runs}, .released_data = 0, .released_changes = {}});
}

// Appends its number to a list when it is answered.
class HeldWriter final : public Completion {
public:
    void wait(Ledger& ledger, int number, std::vector<int>& answered)
    {
        number_ = number;
        answered_ = &answered;
        ledger.answer_when_room(this);
    }
    void done(Status status) override
    {
        CHECK(status.ok());
        answered_->push_back(number_);
    }

private:
    int number_ = 0;
    std::vector<int>* answered_ = nullptr;
};

}  // namespace

TEST_CASE("ledger: one commit of checksums counts, however often a flush fills the log")
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

TEST_CASE("ledger: commits of checksums may use the reserve")
{
    const PendingChanges own = {.data_blocks = 200, .data_runs = 200};
    const MetadataRoom any = full_room_of(0, 10);
    const NodeBound bound = node_bound(any, own);
    REQUIRE(bound.early_blocks > 0);
    REQUIRE(bound.early_blocks < any.reserve_blocks);
    const uint64_t least = bound.file_blocks + bound.system_blocks + any.reserve_blocks;
    Ledger ledger(256 * kMiB);
    ledger.set_metadata_room(full_room_of(least - 1, 10));
    CHECK(!ledger.try_reserve_changes(own, Leave::kReserve));
    ledger.set_metadata_room(full_room_of(least, 10));
    CHECK(ledger.try_reserve_changes(own, Leave::kReserve));
    // What may use the reserve leaves room for them all the same.
    Ledger shrinking(256 * kMiB);
    shrinking.set_metadata_room(full_room_of(least - any.reserve_blocks + bound.early_blocks - 1, 10));
    CHECK(!shrinking.try_reserve_changes(own, Leave::kNothing));
    shrinking.set_metadata_room(full_room_of(least - any.reserve_blocks + bound.early_blocks, 10));
    CHECK(shrinking.try_reserve_changes(own, Leave::kNothing));
}

TEST_CASE("ledger: the need of a change is the least room that it fits in")
{
    for (const uint64_t system_reserve_blocks : {0, 1024}) {
        const PendingChanges own = {.data_blocks = 200, .data_runs = 200};
        MetadataRoom room = full_room_of(0, 10);
        room.system_reserve_blocks = system_reserve_blocks;
        const NodeBound bound = node_bound(room, own);
        REQUIRE(bound.early_blocks > 0);
        const NodeNeed need = node_need(room, bound, Leave::kReserve);
        // Commits of checksums may use a reserve in the same groups: both are not added up.
        CHECK(need.all_blocks ==
              bound.file_blocks + bound.system_blocks +
                  std::max(room.reserve_blocks + system_reserve_blocks, bound.early_blocks));
        const auto fits = [&](uint64_t file_blocks, uint64_t system_blocks, uint64_t all_blocks) {
            room.free_blocks = file_blocks;
            room.system_free_blocks = system_blocks;
            room.all_free_blocks = all_blocks;
            Ledger ledger(256 * kMiB);
            ledger.set_metadata_room(room);
            return ledger.fits_alone(own, 0);
        };
        CHECK(fits(need.file_blocks, need.system_blocks, need.all_blocks));
        CHECK_FALSE(fits(need.file_blocks - 1, need.system_blocks, need.all_blocks));
        CHECK_FALSE(fits(need.file_blocks, need.system_blocks - 1, need.all_blocks));
        CHECK_FALSE(fits(need.file_blocks, need.system_blocks, need.all_blocks - 1));
    }
}

TEST_CASE("ledger: moves of file nodes leave half of the reserve to system trees where both share groups")
{
    const PendingChanges moves = {.moved_nodes = 64};
    MetadataRoom room = room_of(100000);
    room.nodes_have_parity = true;
    room.system_reserve_blocks = 1024;
    const uint64_t system_blocks = node_bound(room, moves).system_blocks;
    const auto taken = [&](uint64_t system_free_blocks, bool shared) {
        room.system_free_blocks = system_free_blocks;
        room.all_free_blocks = room.free_blocks + (shared ? 0 : system_free_blocks);
        Ledger ledger(256 * kMiB);
        ledger.set_metadata_room(room);
        return ledger.try_reserve_changes(moves, Leave::kNothing);
    };
    CHECK(taken(system_blocks, false));
    CHECK_FALSE(taken(system_blocks - 1, false));
    CHECK(taken(system_blocks + 512, true));
    CHECK_FALSE(taken(system_blocks + 511, true));
}

TEST_CASE("ledger: reservations, dirty data and both transactions count until they are let go")
{
    Ledger ledger(256 * kMiB);
    const PendingChanges own = {.entries = 4, .bytes = 1024};
    PendingChanges three = own;
    three += own;
    three += own;
    const MetadataRoom any = room_of(0);
    ledger.set_metadata_room(room_of(node_blocks_bound(any, three) + any.reserve_blocks));
    REQUIRE(ledger.try_reserve_changes(own, Leave::kReserve));
    REQUIRE(ledger.try_reserve_changes(own, Leave::kReserve));
    {
        ChangeReservation third(ledger);
        REQUIRE(third.take(own, Leave::kReserve));
        CHECK(!ledger.try_reserve_changes(own, Leave::kReserve));
        CHECK(ledger.try_reserve_changes(own, Leave::kMoves));  // the reserve
        ledger.apply({.released_changes = own});
    }
    // The third one's became items.
    const Ref<Transaction> open = make_ref<Transaction>(TransactionId{7});
    const std::vector<std::byte> value(256);
    for (uint64_t i = 0; i < 4; ++i)
        open->items.put({i << 32, 1, 0}, value);
    CHECK(changes_in(*open).entries == 4);
    const Ref<Transaction> empty = make_ref<Transaction>(TransactionId{8});
    for (const View& view : {View{open, {}, {}}, View{empty, open, {}}}) {
        ledger.set_transactions(view);
        CHECK(!ledger.try_reserve_changes(own, Leave::kReserve));
    }
    ledger.set_transactions({empty, {}, {}});
    REQUIRE(ledger.try_reserve_changes(own, Leave::kReserve));
    ledger.apply({.released_changes = own});
    add_dirty(ledger, 2000, 2000);
    CHECK(!ledger.try_reserve_changes(own, Leave::kReserve));
    ledger.remove_dirty(2000, {-2000});
    CHECK(ledger.try_reserve_changes(own, Leave::kReserve));
}

TEST_CASE("ledger: a write has its rows and its nodes, or neither")
{
    Ledger ledger(256 * kMiB);
    const PendingChanges own = {.entries = 1, .bytes = 256, .data_blocks = 10, .data_runs = 1};
    const MetadataRoom any = room_of(0);
    ledger.data_taken(0, 25);
    CHECK(!ledger.reserve_write(own, 10));  // no nodes
    CHECK(ledger.data_available() == 25);
    PendingChanges two = own;
    two += own;
    ledger.set_metadata_room(room_of(node_blocks_bound(any, two) + any.reserve_blocks));
    REQUIRE(ledger.reserve_write(own, 10));
    CHECK(ledger.data_available() == 15);
    CHECK(!ledger.reserve_write(own, 16));  // no rows
    REQUIRE(ledger.reserve_write(own, 15));
    CHECK(ledger.data_available() == 0);
    CHECK(!ledger.reserve_data(1));
    ledger.apply({.dirty_blocks = 10, .dirty_runs = {1}, .released_data = 5, .released_changes = own});
    CHECK(ledger.dirty_blocks() == 10);
    CHECK(ledger.data_available() == 5);
    ledger.remove_dirty(10, {-1}, 10);
    CHECK(ledger.dirty_blocks() == 0);
    CHECK(ledger.data_available() == 15);
}

TEST_CASE("room turns: who came before a refusal and wants as much is refused without asking")
{
    RoomTurns turns;
    const uint64_t before = turns.count();
    CHECK(!turns.refused_since(before, 100));
    REQUIRE(turns.begin(before, 5));
    CHECK(turns.exclusive());
    const uint64_t meanwhile = turns.count();
    turns.end_refused(5);
    CHECK(!turns.exclusive());
    CHECK(turns.refused_since(before, 5));
    CHECK(turns.refused_since(before, 6));
    CHECK(!turns.refused_since(before, 4));
    CHECK(!turns.begin(before, 5));
    CHECK(!turns.exclusive());
    // What was freed before they came may not have been in those commits.
    CHECK(!turns.refused_since(meanwhile, 6));
    REQUIRE(turns.begin(meanwhile, 6));
    turns.end();
    CHECK(!turns.refused_since(meanwhile, 6));
    REQUIRE(turns.begin(meanwhile, 7));
    turns.end_refused(7);
    CHECK(turns.refused_since(meanwhile, 7));
    CHECK(!turns.refused_since(turns.count(), 8));
}

TEST_CASE("ledger: answers are held from half of a small bound, from 64 MiB below a large one")
{
    Ledger small(32 * kMiB);
    add_dirty(small, 16 * kMiBBlocks - 1, 1);
    CHECK_FALSE(small.holds_answers());
    add_dirty(small, 1, 0);
    CHECK(small.holds_answers());
    CHECK_FALSE(small.dirty_full());

    Ledger large(256 * kMiB);
    add_dirty(large, 192 * kMiBBlocks - 1, 1);
    CHECK_FALSE(large.holds_answers());
    add_dirty(large, 1, 0);
    CHECK(large.holds_answers());
    CHECK_FALSE(large.dirty_full());
    add_dirty(large, 64 * kMiBBlocks, 0);
    CHECK(large.dirty_full());
}

TEST_CASE("ledger: room in memory answers the oldest, as many as one write each finds place")
{
    Ledger ledger(32 * kMiB);
    std::vector<int> answered;
    std::vector<HeldWriter> writers(6);
    writers[0].wait(ledger, 0, answered);
    CHECK(answered == std::vector<int>{0});

    add_dirty(ledger, 16 * kMiBBlocks, 1);
    for (int i = 1; i < 6; ++i)
        writers[static_cast<size_t>(i)].wait(ledger, i, answered);
    CHECK(ledger.answer_waiting());
    CHECK(answered.size() == 1);

    ledger.remove_dirty(1, {});
    CHECK(ledger.answer_waiting());
    CHECK(answered == std::vector<int>{0, 1});
    ledger.remove_dirty(2 * kMiBBlocks, {});
    CHECK(ledger.answer_waiting());
    CHECK(answered == std::vector<int>{0, 1, 2, 3, 4});
    CHECK_FALSE(ledger.answer_waiting());
    CHECK(answered == std::vector<int>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("ledger: whoever waits is answered when nothing will be flushed any more")
{
    Ledger ledger(32 * kMiB);
    std::vector<int> answered;
    std::vector<HeldWriter> writers(3);
    add_dirty(ledger, 32 * kMiBBlocks, 1);
    writers[0].wait(ledger, 0, answered);
    writers[1].wait(ledger, 1, answered);
    CHECK(answered.empty());
    ledger.answer_all();
    CHECK(answered == std::vector<int>{0, 1});
    answered.clear();
    writers[0].wait(ledger, 0, answered);
    writers[1].wait(ledger, 1, answered);
    CHECK(answered.empty());
    ledger.stop();
    CHECK(answered == std::vector<int>{0, 1});
    writers[2].wait(ledger, 2, answered);
    CHECK(answered == std::vector<int>{0, 1, 2});
    CHECK_FALSE(ledger.wait_for_room());
}
