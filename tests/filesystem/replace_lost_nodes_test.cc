// SPDX-License-Identifier: MIT
// A member in service is replaced while tree nodes are lost in all their copies, so that nobody knows what is
// in use below them: it ends, and the successor has all that the member has.
#include "tests/filesystem/fill_steps.h"
#include "tests/filesystem/lost_nodes_steps.h"
#include "tests/filesystem/replace_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using ReplaceState = ReplaceStatus::State;

Contents make_contents(Filesystem& fs, Prng& prng)
{
    Contents contents = fill(fs, prng, 3 * kMiB);
    make_three_levels(fs, prng);
    return contents;
}

// Blocks of rows in use, by where they are on the member.
std::vector<uint64_t> used_offsets(Filesystem& fs, MemberId member)
{
    std::vector<uint64_t> offsets;
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups()) {
        const Geometry& geometry = group->geometry;
        for (uint64_t stripe = 0; stripe < geometry.stripe_count(); ++stripe)
            for (uint32_t row = 0; row < geometry.rows(); ++row) {
                bool used = false;
                for (uint32_t column = 0; column < geometry.data_columns; ++column)
                    used = used ||
                           *fs.store.allocator.is_used(address_of(*group, BlockPlace{stripe, column, row}));
                for (uint32_t cell = 0; used && cell < geometry.columns(); ++cell) {
                    const BlockPlace place{stripe, cell / geometry.copies, row};
                    const uint32_t column =
                        group_column(geometry, stripe, place.column, cell % geometry.copies);
                    if (group->record.columns[column].member == member)
                        offsets.push_back(group->locate(column, column_offset(geometry, place)).offset.value);
                }
            }
    }
    return offsets;
}

// How many blocks the device has that the other one does not.
size_t lacking(SimVolume& volume, const std::vector<uint64_t>& offsets, uint32_t device, uint32_t other)
{
    std::vector<std::byte> wanted(kBlockBytes), have(kBlockBytes);
    size_t count = 0;
    for (const uint64_t offset : offsets) {
        volume.member(device).peek(offset, wanted);
        volume.member(other).peek(offset, have);
        count += have == wanted ? 0 : 1;
    }
    return count;
}

// All cells of the row of a node's first block: copies, or what else parity covers, and parity.
std::vector<NodeCopy> row_of(Filesystem& fs, SimVolume& volume, const BlockRef& node)
{
    const Ref<const ArrayGroup> group = fs.volume->array().group_at(node.address);
    if (group->geometry.parity == 0)
        return copies_of(fs, volume, node);
    std::vector<NodeCopy> cells;
    BlockPlace place = place_of(group->geometry, node.address - group->record.address);
    for (place.column = 0; place.column < group->geometry.columns(); ++place.column) {
        const uint32_t column = group_column(group->geometry, place.stripe, place.column, 0);
        cells.push_back({group->record.columns[column].member.value - 1,
                         group->locate(column, column_offset(group->geometry, place)).offset.value,
                         std::vector<std::byte>(kBlockBytes)});
        volume.member(cells.back().member).peek(cells.back().offset, cells.back().content);
    }
    return cells;
}

// A volume of which one node is lost.
struct LostNode {
    LostNode(TreeIndex index, Level level, const VolumeShape& shape = kTwoCopies)
        : prng(seed()), volume(shape)
    {
        make_and_mount(volume);
        contents = make_contents(volume.fs(), prng);
        used = used_offsets(volume.fs(), kSource);
        const std::vector<BlockRef> nodes = nodes_of(volume.fs(), index, level);
        const auto on_source = [](const NodeCopy& copy) {
            return copy.member == kSourceDevice;
        };
        for (size_t at = 0; at < nodes.size(); ++at) {
            victim = nodes[(at + nodes.size() / 2) % nodes.size()];
            copies = row_of(volume.fs(), volume, victim);
            if (std::any_of(copies.begin(), copies.end(), on_source))
                return;
        }
        FAIL("no such node");
    }
    void lose()
    {
        for (const NodeCopy& copy : copies)
            rot(volume, prng, copy.member, copy.offset);
        volume.fs().store.cache.clear();
    }
    // But not on the successor.
    void give_back()
    {
        for (const NodeCopy& copy : copies)
            if (copy.member != kSourceDevice)
                volume.member(copy.member).poke(copy.offset, copy.content);
        volume.fs().store.cache.clear();
    }

    Prng prng;
    SimVolume volume;
    Contents contents;
    std::vector<uint64_t> used;
    BlockRef victim;
    std::vector<NodeCopy> copies;
};

// Once the node is there again nothing is lost, also where the only copies are on the successor.
void require_nothing_lost(LostNode& lost)
{
    Filesystem& fs = lost.volume.fs();
    lost.give_back();
    let_a_second_pass();
    const ScrubStatus healed = scrub(fs);
    CHECK(healed.repaired <= 1);  // a reader of a node under parity mends it first
    CHECK_FALSE(healed.damaged());
    REQUIRE(fs.step(true).ok());
    CHECK(fs.info().damaged_blocks == 0);
    require_contents(fs, lost.contents);
    REQUIRE(lost.volume.unmount().ok());
    require_clean(lost.volume, {kSourceDevice});
    const uint32_t other = lost.copies[lost.copies[0].member == kSourceDevice ? 1 : 0].member;
    mount(lost.volume, degraded_options(), {kSourceDevice, other});
    require_contents(lost.volume.fs(), lost.contents);
    CHECK_FALSE(scrub(lost.volume.fs()).damaged());
}

}  // namespace

TEST_CASE("replace: with any node lost whose tree no commit needs it ends, and the successor has everything")
{
    struct Case {
        TreeIndex index;
        Level level;
        const VolumeShape& shape = kTwoCopies;
    };
    constexpr Case kCases[] = {
        {TreeIndex::kFiles, Level::kLeaf},         {TreeIndex::kFiles, Level::kInner},
        {TreeIndex::kFiles, Level::kRoot},         {TreeIndex::kChecksums, Level::kLeaf},
        {TreeIndex::kChecksums, Level::kRoot},     {TreeIndex::kFiles, Level::kInner, kPairs},
        {TreeIndex::kFiles, Level::kRoot, kRaid6}, {TreeIndex::kFiles, Level::kInner, kNodesUnderParity}};
    for (const Case& one : kCases) {
        CAPTURE(tree_name(one.index));
        CAPTURE(static_cast<int>(one.level));
        CAPTURE(static_cast<int>(one.shape.metadata_profile));
        LostNode lost(one.index, one.level, one.shape);
        const bool under_parity = find_profile(one.shape.metadata_profile)->parity > 0;
        Filesystem& fs = lost.volume.fs();
        const uint32_t device = start(lost.volume);
        lost.lose();
        const ReplaceStatus status = run(lost.volume);
        REQUIRE_MESSAGE(status.state == ReplaceState::kFinished, status.text);
        CHECK(is_member(lost.volume, device));
        CHECK(status.copy.unreadable_nodes == 1);
        // With a row under parity other blocks of it are lost, too.
        CHECK((status.copy.lost > 0) == under_parity);
        CHECK(fs.info().damaged_blocks >= kNodeBlocks);
        CHECK(lacking(lost.volume, lost.used, kSourceDevice, device) == 0);
        require_nothing_lost(lost);
    }
}

TEST_CASE("replace: a node below a lost one whose only good copy is on the member goes to its successor")
{
    for (const bool on_source : {true, false}) {
        CAPTURE(on_source);
        LostNode lost(TreeIndex::kFiles, Level::kRoot);
        Filesystem& fs = lost.volume.fs();
        const std::vector<BlockRef> leaves = file_leaves(fs);
        int spoiled = 0;
        for (size_t leaf = 3; leaf < leaves.size(); leaf += 3)
            for (const NodeCopy& copy : copies_of(fs, lost.volume, leaves[leaf]))
                if ((copy.member == kSourceDevice) != on_source) {
                    rot(lost.volume, lost.prng, copy.member, copy.offset);
                    ++spoiled;
                }
        REQUIRE(spoiled > 50);
        const uint32_t device = start(lost.volume);
        lost.lose();
        REQUIRE(run(lost.volume).state == ReplaceState::kFinished);
        // As it is: what is wrong on the member is not right on its successor.
        CHECK(lacking(lost.volume, lost.used, kSourceDevice, device) == 0);
        lost.give_back();
        let_a_second_pass();
        const ScrubStatus healed = scrub(fs);
        CHECK(healed.repaired == static_cast<uint64_t>(spoiled) + 1);
        CHECK_FALSE(healed.damaged());
        require_contents(fs, lost.contents);
    }
}

TEST_CASE("replace: below a lost node what the member cannot give comes from another copy")
{
    LostNode lost(TreeIndex::kFiles, Level::kRoot);
    Filesystem& fs = lost.volume.fs();
    const std::vector<BlockRef> leaves = file_leaves(fs);
    for (size_t leaf = 3; leaf < leaves.size(); leaf += 3)
        for (const NodeCopy& copy : copies_of(fs, lost.volume, leaves[leaf]))
            if (copy.member == kSourceDevice)
                lost.volume.cable(kSourceDevice)
                    .add_rule({.action = FaultAction::kLatent,
                               .kinds = kFaultReads,
                               .begin = copy.offset,
                               .end = copy.offset + kBlockBytes});
    const uint32_t device = start(lost.volume);
    lost.lose();
    REQUIRE(run(lost.volume).state == ReplaceState::kFinished);
    CHECK(lacking(lost.volume, lost.used, kSourceDevice, device) == 0);
    require_nothing_lost(lost);
}

TEST_CASE("replace: writers go on while blocks are copied as they are, and what they write is on both")
{
    LostNode lost(TreeIndex::kFiles, Level::kInner);
    Filesystem& fs = lost.volume.fs();
    // Their inodes and extents are beside the lost node.
    std::vector<std::pair<std::string, InodeNumber>> open;
    for (const auto& [name, content] : lost.contents) {
        const Result<Attributes> found = fs.names.lookup(kRoot, name);
        REQUIRE(found.ok());
        open.emplace_back(name, found->inode);
    }
    const uint32_t device = start(lost.volume);
    lost.lose();
    ReplaceStatus status;
    for (int step = 0; step < 2000 && fs.replace_step(); ++step) {
        const auto& [name, inode] = open[lost.prng.below(open.size())];
        std::vector<std::byte>& content = lost.contents[name];
        const std::vector<std::byte> piece = random_content(lost.prng, 1 + lost.prng.below(content.size()));
        REQUIRE(fs.files.write(inode, 0, piece, {}, {}).ok());
        std::copy(piece.begin(), piece.end(), content.begin());
        if (step % 3 == 0)
            REQUIRE(fs.step(true).ok());
    }
    REQUIRE(fs.step(true).ok());
    status = fs.committer.replace.status();
    REQUIRE_MESSAGE(status.state == ReplaceState::kFinished, status.text);
    CHECK(is_member(lost.volume, device));
    require_nothing_lost(lost);
}

namespace {

// Piece by piece, without the commit behind it.
void copy_as_it_is(Store& store)
{
    ScrubOrder order{.scope = ScrubScope::kReplaced, .selection = {.as_it_is = true, .first = {}}};
    order.selection.first = order_by_margin(store, order.scope);
    WorkTurns turns(store.budget, work_of(order.scope), false);
    ScrubReport report;
    ScrubWalkCounts counts;
    uint64_t stripes = 0;
    for (ScrubPosition position; !position.done;) {
        ScrubPiece piece;
        REQUIRE(next_piece(store, order, position, piece, turns, report, counts).ok());
        if (!piece.group)
            continue;
        scrub_rows(store, order, piece, turns, report);
        // Where the next window may be readable again, and is looked for from there on.
        const uint64_t end = piece.blocks.first_stripe + piece.blocks.stripe_count;
        const Geometry& geometry = piece.group->geometry;
        CHECK((end % window_stripes(geometry) == 0 || end == geometry.stripe_count()));
        stripes += piece.blocks.stripe_count;
    }
    uint64_t all_stripes = 0;
    for (const Ref<const ArrayGroup>& group : store.volume.array().groups())
        all_stripes += in_scope(store, order.scope, *group) ? group->geometry.stripe_count() : 0;
    CHECK(stripes == all_stripes);
    CHECK(counts.unreadable_nodes == 1);
    CHECK(report.unsettled == 0);
    CHECK(report.lost.empty());
}

}  // namespace

TEST_CASE("replace: of groups whose windows cannot be read all rows are copied")
{
    for (const bool in_memory : {true, false}) {
        CAPTURE(in_memory);
        LostNode lost(TreeIndex::kFreeSpace, Level::kRoot);
        if (!in_memory) {
            REQUIRE(lost.volume.unmount().ok());
            mount(lost.volume, manual_options());
            const TreeRoot tree =
                lost.volume.fs().store.timeline.view().committed->tree(TreeIndex::kFreeSpace);
            lost.copies = copies_of(lost.volume.fs(), lost.volume, tree.root);
        }
        const uint32_t device = start(lost.volume);
        lost.lose();
        copy_as_it_is(lost.volume.fs().store);
        CHECK(lacking(lost.volume, lost.used, kSourceDevice, device) == 0);
        lost.volume.kill();
    }
}
