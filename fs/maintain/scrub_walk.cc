// SPDX-License-Identifier: MIT
#include "fs/maintain/scrub_walk.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <optional>

#include "alloc/row_mask.h"
#include "base/clock.h"
#include "btree/key_range.h"
#include "format/items.h"
#include "format/window_codec.h"
#include "fs/maintain/scrub_heads.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

constexpr Generation kNoCommit{UINT64_MAX};
// How long a stripe that needs repair waits for a commit to end, and how often it looks.
constexpr uint64_t kCommitWaitNs = 10'000'000'000;
constexpr useconds_t kCommitLookUs = 2000;

// What is not older may be missing on a column of the group that is stale and in service. No commit's: there
// is no such column.
Generation in_doubt_since(Store& store, const ArrayGroup& group)
{
    Generation since = kNoCommit;
    for (const GroupColumn& column : group.record.columns)
        if (column.stale() && store.volume.members().device(column.member) != nullptr)
            since = std::min(since, column.stale_since);
    return since;
}

MemberCopy copy_of(Store& store)
{
    const ReplaceRecord replace = store.volume.replacing();
    return {replace.source, replace.target};
}

bool to_be_copied(Store& store, const ArrayGroup& group)
{
    const MemberId source = store.volume.replacing().source;
    return (group.record.flags & kGroupCopied) == 0 &&
           std::any_of(group.record.columns.begin(), group.record.columns.end(),
                       [=](const GroupColumn& column) { return column.member == source; });
}

// What is read in one turn, of all members.
constexpr WorkTurns::Room kRoomForRows{.held_back = kHeldBackBytes, .quiet = 8 * kMiB};
constexpr WorkTurns::Room kRoomForNodes{.held_back = kHeldBackBytes / 2, .quiet = 8 * kMiB};
// Rows of one run, at least: 64 KiB of each member.
constexpr uint64_t kRunRowsMin = 16;

// Blocks of a group that a piece may span, used or not: its bitmap.
constexpr uint64_t kSpanBlocksMax = 16 * kMiB;

// While a member does not answer others have their turns. False: asked to stop.
bool await_without_turn(Store& store, MemberId member, WorkTurns& turns)
{
    const MemberSet& members = store.volume.members();
    if (members.slow_ms(member) == 0)
        return true;
    turns.pause();
    if (!members.await(member))
        return false;
    turns.go_on();
    return true;
}

// Nodes of one tree. Pointers verify their children, so that leaves are not looked into: those of one node
// are read together.
class NodeScrub {
public:
    // `since`: older nodes are left out.
    NodeScrub(Store& store, const ScrubOrder& order, Generation since, WorkTurns& turns, ScrubReport& report,
              ScrubWalkCounts& counts)
        : store_(store),
          order_(order),
          since_(since),
          report_(report),
          counts_(counts),
          left_(order.piece_bytes / kNodeBytes / 2),
          turns_(turns)
    {
    }
    // From `from` on. True: to the end; else `next` is where to go on.
    bool run(const TreeRoot& tree, const Key& from, Key& next);

private:
    [[nodiscard]] uint64_t node_bytes(const BlockRef& node) const;
    bool scrub(std::span<const BlockRef> refs);
    [[nodiscard]] bool await();
    bool scrub_leaves(const Node& parent, uint32_t first);
    bool descend(const BlockRef& ref, int level, const KeyRange& range, bool resuming);

    Store& store_;
    const ScrubOrder order_;
    const Generation since_;
    ScrubReport& report_;
    ScrubWalkCounts& counts_;
    uint64_t tree_id_ = 0;
    Key from_{}, next_{};
    uint64_t left_;  // nodes of this piece
    WorkTurns& turns_;
};

// With its copies.
uint64_t NodeScrub::node_bytes(const BlockRef& node) const
{
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(node.address);
    return kNodeBytes * (group ? group->geometry.copies : 1);
}

bool NodeScrub::await()
{
    const std::vector<MemberId> ids = store_.volume.members().ids();
    return std::all_of(ids.begin(), ids.end(),
                       [&](MemberId id) { return await_without_turn(store_, id, turns_); });
}

// False: a block of them is lost.
bool NodeScrub::scrub(std::span<const BlockRef> refs)
{
    counts_.nodes += refs.size();
    left_ -= std::min<uint64_t>(left_, refs.size());
    turns_.take(refs.size() * node_bytes(refs[0]));
    std::vector<CopiedBlocks> nodes;
    for (const BlockRef& ref : refs)
        nodes.push_back({ref.address, ref.checksums, {}});
    ScrubReport copies;
    Array& array = store_.volume.array();
    const auto on_time = [&](uint32_t times) {
        return (order_.scope == ScrubScope::kReplaced
                    ? array.copy_copies(nodes, copy_of(store_), times, copies)
                    : array.scrub_copies(nodes, order_.mode, times, copies))
            .ok();
    };
    if (!read_until_on_time(on_time, [&] { return await(); })) {
        report_.given_up = true;
        left_ = 0;
        return true;
    }
    const size_t before = counts_.lost_nodes.size();
    for (size_t index = 0; index < nodes.size(); ++index)
        if (!nodes[index].result.ok())
            counts_.lost_nodes.push_back(refs[index]);
    const size_t lost = counts_.lost_nodes.size() - before;
    counts_.unreadable_nodes += lost;
    copies.lost.clear();
    report_ += copies;
    return lost == 0;
}

// Those from `first` on, as many at a time as the turn and the piece have room for.
bool NodeScrub::scrub_leaves(const Node& parent, uint32_t first)
{
    for (uint32_t index = first; index < parent.item_count();) {
        if (left_ == 0) {
            next_ = parent.key(index);
            return false;
        }
        const uint64_t of_turn = divide_up(turns_.left(kRoomForNodes), node_bytes(parent.child(index)));
        std::vector<BlockRef> leaves;
        for (; index < parent.item_count() && leaves.size() < std::min(left_, of_turn); ++index)
            if (const BlockRef leaf = parent.child(index); leaf.generation >= since_)
                leaves.push_back(leaf);
        if (!leaves.empty())
            scrub(leaves);
    }
    return true;
}

// `resuming`: the node itself was scrubbed before, and children before the position. Nothing below a node is
// newer than it is.
bool NodeScrub::descend(const BlockRef& ref, int level, const KeyRange& range, bool resuming)
{
    if (ref.generation < since_)
        return true;
    turns_.left(kRoomForNodes);
    const bool readable = resuming || scrub(std::span(&ref, 1));
    const Result<Ref<const Node>> found = read_inside(store_.cache, ref, tree_id_, level, range);
    if (!found.ok()) {
        counts_.unreadable_nodes += readable ? 1 : 0;
        counts_.unreached = true;
        return true;
    }
    const Node& node = **found;
    if (node.is_leaf())
        return true;
    const uint32_t first = resuming ? node.child_for(from_) : 0;
    if (node.level() == 1)
        return scrub_leaves(node, first + (resuming && node.key(first) < from_ ? 1 : 0));
    for (uint32_t index = first; index < node.item_count(); ++index) {
        const bool inside = resuming && index == first && node.key(index) < from_;
        if (left_ == 0 && !inside) {
            next_ = node.key(index);
            return false;
        }
        if (!descend(node.child(index), static_cast<int>(node.level()) - 1, child_range(node, index, range),
                     inside))
            return false;
    }
    return true;
}

bool NodeScrub::run(const TreeRoot& tree, const Key& from, Key& next)
{
    if (!tree.root.address.valid())
        return true;
    tree_id_ = tree.tree_id;
    from_ = from;
    const bool done = descend(tree.root, -1, KeyRange(), from != Key{});
    next = next_;
    return done;
}

// Rows of the stripe that are used, or have pinned blocks.
void add_rows(UsedBlocks& out, const Bitmap& pinned, const Geometry& geometry, uint64_t stripe)
{
    Bits256 mask = used_rows(out.used, geometry, stripe - out.first_stripe);
    if (pinned.bit_count() > 0)
        mask |= used_rows(pinned, geometry, stripe - out.first_stripe);
    for (uint32_t row = mask.next_set(0, geometry.rows()); row < geometry.rows();) {
        const uint32_t end = mask.next_clear(row, geometry.rows());
        out.rows.push_back({stripe, row, end - row});
        row = mask.next_set(end, geometry.rows());
    }
}

// A window that is passed over costs its reading and decoding.
constexpr uint64_t kPassedOverBytes = 64 * kBlockBytes;

bool left_out(const SpaceWindow& window, Generation since)
{
    return is_mutant(CommitMutant::kFirstMissedLeftOut) ? window.last_write <= since
                                                        : window.last_write < since;
}

// Rows whose blocks are all freed may be written in place while a reader keeps them from being free: what
// else is in them is not written anew then, and must be where it belongs.
Bitmap pinned_blocks(Store& store, const ArrayGroup& group, const UsedBlocks& blocks)
{
    const uint64_t first = blocks.first_stripe * group.geometry.stripe_data_blocks();
    const VolumeAddress address = group.record.address + first * kBlockBytes;
    std::vector<BlockRun> runs;
    // Not in memory: there are none.
    store.allocator.pinned_in({address, static_cast<uint32_t>(blocks.used.bit_count())}, runs).ignore();
    if (runs.empty())
        return {};
    Bitmap pinned(blocks.used.bit_count());
    for (const BlockRun& run : runs)
        pinned.set((run.address - address) / kBlockBytes, run.block_count);
    return pinned;
}

// Windows of the group from the position on, until they have enough rows in use; rows of windows that were
// last written before the commit `since` are left out. False: there are none.
Result<bool> load_used(Store& store, const View& view, const ArrayGroup& group, uint64_t from,
                       Generation since, uint64_t piece_bytes, UsedBlocks& out)
{
    const auto type = static_cast<uint8_t>(ItemType::kSpaceWindow);
    const VolumeAddress address = group.record.address;
    const Geometry& geometry = group.geometry;
    const uint64_t stripe_blocks = geometry.stripe_data_blocks();
    std::vector<SpaceWindow> windows;
    TreeCursor cursor(store.cache, view.committed->free_space_tree);
    CW_TRY(cursor.seek({address.value, type, from}));
    uint64_t bytes = 0, behind = 0;  // stripes before it were seen
    while (cursor.valid() && cursor.key().object == address.value && cursor.key().type == type &&
           bytes < piece_bytes) {
        CW_ASSIGN(SpaceWindow window, decode_space_window(address, cursor.key().offset, cursor.payload()));
        const uint64_t end = window.first_stripe + divide_up(window.block_count, stripe_blocks);
        const bool inside = window.first_stripe < geometry.stripe_count() && end <= geometry.stripe_count();
        if (!inside || window.block_count == 0 || window.block_count % stripe_blocks != 0 ||
            window.block_count > kSpanBlocksMax || window.first_stripe < behind)
            return Err::kCorrupt;
        behind = end;
        if (!windows.empty() && (end - windows.front().first_stripe) * stripe_blocks > kSpanBlocksMax)
            break;
        CW_TRY(cursor.next());
        const uint64_t used =
            uint64_t{window.used_count} * kBlockBytes * geometry.columns() / geometry.data_columns;
        bytes += left_out(window, since) ? kPassedOverBytes : used;
        out.left_out_bytes += left_out(window, since) ? used : 0;
        windows.push_back(std::move(window));
    }
    if (windows.empty())
        return false;
    const SpaceWindow& last = windows.back();
    out.first_stripe = windows.front().first_stripe;
    out.stripe_count = last.first_stripe + last.block_count / stripe_blocks - out.first_stripe;
    out.used = Bitmap(out.stripe_count * stripe_blocks);
    for (const SpaceWindow& window : windows) {
        const uint64_t first = (window.first_stripe - out.first_stripe) * stripe_blocks;
        if (window.used_count == window.block_count)
            out.used.set(first, window.block_count);
        else if (window.used_count > 0)
            out.used.load(first, window.block_count, window.bitmap);
    }
    const Bitmap pinned = pinned_blocks(store, group, out);
    for (const SpaceWindow& window : windows)
        for (uint64_t stripe = 0; !left_out(window, since) && stripe < window.block_count / stripe_blocks;
             ++stripe)
            add_rows(out, pinned, geometry, window.first_stripe + stripe);
    return true;
}

// Stripes of which no window can be read, to the end of a window: the next ones are looked for from there on.
// What is in memory of them says what is in use.
bool load_unknown(Store& store, const ArrayGroup& group, uint64_t from, uint64_t piece_bytes, UsedBlocks& out)
{
    const Geometry& geometry = group.geometry;
    if (from >= geometry.stripe_count())
        return false;
    const uint64_t stripe_blocks = geometry.stripe_data_blocks();
    const uint64_t window = window_stripes(geometry);
    const uint64_t wanted = from + piece_bytes / (stripe_blocks * kBlockBytes);
    const uint64_t end = std::max(wanted / window, from / window + 1) * window;
    out = {.first_stripe = from, .stripe_count = std::min(end, geometry.stripe_count()) - from};
    out.used = Bitmap(out.stripe_count * stripe_blocks);
    const VolumeAddress address = group.record.address + from * stripe_blocks * kBlockBytes;
    for (uint64_t block = 0; block < out.used.bit_count() && !out.unknown; ++block) {
        const Result<bool> used = store.allocator.is_used(address + block * kBlockBytes);
        out.unknown = !used.ok();
        if (used.ok() && *used)
            out.used.set(block, 1);
    }
    // Where that is known no more is looked at: nothing keeps the slots of a group that is empty.
    const Bitmap pinned = out.unknown ? Bitmap() : pinned_blocks(store, group, out);
    for (uint64_t stripe = from; stripe < from + out.stripe_count; ++stripe)
        if (out.unknown)
            out.rows.push_back({stripe, 0, geometry.rows()});
        else
            add_rows(out, pinned, geometry, stripe);
    return true;
}

// In use is what the last commit refers to; what is recorded anew belongs to the open transaction.
class CommittedSink final : public ScrubSink {
public:
    // Who copies records nothing, and holds nobody up.
    CommittedSink(Store& store, const ScrubPiece& piece, const ScrubOrder& order, WorkTurns& turns,
                  ScrubReport& report)
        : store_(store),
          group_(*piece.group),
          blocks_(piece.blocks),
          records_(order.scope != ScrubScope::kReplaced),
          mends_(order.mode == ScrubMode::kRepair),
          turns_(turns),
          report_(report)
    {
    }

    bool in_use(VolumeAddress address) override
    {
        if (blocks_.unknown)
            return true;
        const uint64_t block = (address - group_.record.address) / kBlockBytes;
        const uint64_t first = blocks_.first_stripe * group_.geometry.stripe_data_blocks();
        return block >= first && block - first < blocks_.used.bit_count() && blocks_.used.test(block - first);
    }
    bool may_be_used(VolumeAddress address) override
    {
        if (blocks_.unknown)
            return true;
        const Result<bool> used = store_.allocator.is_used(address);
        return !used.ok() || *used;
    }
    bool may_record() override { return may_record_; }
    // No transaction is closed meanwhile, and none is being committed: it would record what it writes below
    // what is recorded here, where nobody finds it any more.
    void begin_stripe(VolumeAddress first) override
    {
        if (!records_)
            return;
        stripe_ = first;
        rewritten_ = false;
        const uint64_t deadline = monotonic_ns() + kCommitWaitNs;
        do {
            end_stripe();
            await_commit(deadline);
            may_record_ = reserve();
            gate_.emplace(store_.gate);
        } while (committing() && monotonic_ns() < deadline);
        // Also when it became read-only meanwhile: its last commit is to come.
        may_record_ = may_record_ && !store_.timeline.view().committing;
        // It becomes read-only or stops: who goes on when it can be written again begins with this piece.
        if (!may_record_ && mends_ && !store_.service.writing())
            report_.given_up = true;
    }
    void end_stripe() override
    {
        gate_.reset();
        reserved_.reset();
    }
    bool await(MemberId member) override { return await_without_turn(store_, member, turns_); }
    void record(VolumeAddress address, std::span<const Checksum> checksums) override
    {
        Transaction& open = store_.timeline.open_in_gate();
        open.checksums.put(address, checksums);
        open.dirty = true;
        if (std::exchange(rewritten_, true))
            return;
        ++open.rewritten_stripes;
        store_.allocator.note_rewritten(stripe_, open.id);
    }

private:
    // Waits for nothing where no commit ends any more: what was being committed when it stopped stays so.
    [[nodiscard]] bool committing() const
    {
        return store_.service.writing() && static_cast<bool>(store_.timeline.view().committing);
    }
    // Others have turns meanwhile.
    void await_commit(uint64_t deadline_ns)
    {
        if (!committing())
            return;
        const bool had_turn = turns_.pause();
        while (committing() && monotonic_ns() < deadline_ns)
            usleep(kCommitLookUs);
        if (had_turn)
            turns_.go_on();
    }
    // Room for what a stripe's repair records.
    [[nodiscard]] bool reserve()
    {
        const Geometry& geometry = group_.geometry;
        const uint64_t windows = uint64_t{geometry.columns()} * (geometry.rows() / kChecksumWindowBlocks + 2);
        reserved_.emplace(store_.ledger);
        return store_.service.check_writable().ok() &&
               reserved_->take({.freed_runs = 1, .checksum_windows = windows}, Leave::kReserve);
    }

    Store& store_;
    const ArrayGroup& group_;
    const UsedBlocks& blocks_;
    const bool records_, mends_;
    WorkTurns& turns_;
    ScrubReport& report_;
    std::optional<ChangeReservation> reserved_;
    std::optional<ReadLock> gate_;
    VolumeAddress stripe_;  // its first data block
    bool may_record_ = false;
    bool rewritten_ = false;
};

// A time to come is of a clock that was wrong: it says nothing.
bool verified_since(const GroupRecord& group, uint64_t seconds)
{
    return group.verified_seconds >= seconds &&
           group.verified_seconds <= static_cast<uint64_t>(std::time(nullptr));
}

bool selected(Store& store, const ScrubSelection& selection, const GroupRecord& group)
{
    return (selection.verified_before == 0 || !verified_since(group, selection.verified_before)) &&
           (!selection.new_only || group.verified_seconds == 0) &&
           (!selection.damaged_only ||
            store.damage.touches(group.address, group.address + group.span_bytes()));
}

void leave_group(ScrubPosition& position, VolumeAddress next)
{
    position.group = next;
    position.stripe = 0;
}

// Of those that come before the others: the one at the position, or behind it.
Ref<const ArrayGroup> next_of_first(Store& store, const ScrubOrder& order, ScrubPosition& position)
{
    const GroupOrder* const first = order.selection.first.get();
    for (; first != nullptr && position.of_first < first->groups.size(); ++position.of_first) {
        const VolumeAddress address = first->groups[position.of_first];
        Ref<const ArrayGroup> group = store.volume.array().group_at(address);
        if (group && group->record.address == address && in_scope(store, order.scope, *group))
            return group;
        leave_group(position, {});
    }
    return {};
}

// The first of those by address in [begin, end).
Ref<const ArrayGroup> next_by_address(Store& store, const ScrubOrder& order, const ScrubPosition& position,
                                      VolumeAddress begin, VolumeAddress end)
{
    const bool of_nodes = position.in_trees();
    const GroupOrder* const first = order.selection.first.get();
    const uint64_t bytes_max = order.selection.bytes_max;
    for (const Ref<const ArrayGroup>& group : store.volume.array().groups()) {
        const VolumeAddress address = group->record.address;
        if (address < begin || address >= end || has_mirrored_nodes(*group) != of_nodes ||
            !in_scope(store, order.scope, *group) ||
            (first != nullptr && std::binary_search(first->rising.begin(), first->rising.end(), address)))
            continue;
        if (address == position.group && position.stripe > 0)
            return group;
        if (bytes_max > 0 && order.bytes_begun >= bytes_max)
            return {};
        if (of_nodes || selected(store, order.selection, group->record))
            return group;
    }
    return {};
}

// The next group that has rows to be scrubbed; before the walk over nodes one with mirrored nodes. One that
// was begun is read to its end.
Ref<const ArrayGroup> next_group(Store& store, const ScrubOrder& order, ScrubPosition& position)
{
    const bool of_nodes = position.in_trees();
    if (!of_nodes && order.selection.as_it_is && order.scope == ScrubScope::kStale)
        return {};
    if (Ref<const ArrayGroup> group; !of_nodes && (group = next_of_first(store, order, position)))
        return group;
    constexpr VolumeAddress kEnd{UINT64_MAX};
    if (order.selection.bytes_max == 0)
        return next_by_address(store, order, position, position.group, kEnd);
    const bool second_half = position.group < position.round;
    // That of a superblock may be any: behind the last group of the second half is no first half.
    const VolumeAddress end{position.round.value - std::min<uint64_t>(position.round.value, kBlockBytes)};
    Ref<const ArrayGroup> group =
        next_by_address(store, order, position, position.group, second_half ? end : kEnd);
    return group || second_half ? group : next_by_address(store, order, position, {}, end);
}

// Nodes that are in scope are not older: those that a column of any group with mirrored nodes may lack.
Generation nodes_since(Store& store, ScrubScope scope)
{
    if (scope == ScrubScope::kAll)
        return {};
    if (scope == ScrubScope::kReplaced) {
        const Groups groups = store.volume.array().groups();
        return !is_mutant(CommitMutant::kCopiedNoNodes) &&
                       std::any_of(groups.begin(), groups.end(),
                                   [&](const Ref<const ArrayGroup>& group) {
                                       return has_mirrored_nodes(*group) && to_be_copied(store, *group);
                                   })
                   ? Generation{}
                   : kNoCommit;
    }
    Generation since = kNoCommit;
    for (const Ref<const ArrayGroup>& group : store.volume.array().groups())
        if (has_mirrored_nodes(*group))
            since = std::min(since, in_doubt_since(store, *group));
    return is_mutant(CommitMutant::kCaughtUpNoNodes) ? kNoCommit : since;
}

// Runs of rows, as many at a time as are asked for. One that is longer is cut.
class RowsInTurns {
public:
    explicit RowsInTurns(std::span<const StripeRows> runs) : runs_(runs) { }

    [[nodiscard]] bool done() const { return runs_.empty(); }
    std::vector<StripeRows> next(uint64_t rows_max)
    {
        std::vector<StripeRows> runs;
        for (uint64_t left = std::max(rows_max, kRunRowsMin); !runs_.empty() && left > 0;) {
            const StripeRows& run = runs_.front();
            const uint64_t whole = run.row_count - cut_;
            if (!runs.empty() && whole > left)
                break;
            const auto count = static_cast<uint32_t>(std::min(whole, left));
            runs.push_back({run.stripe, run.first_row + cut_, count});
            left -= count;
            cut_ = count == whole ? 0 : cut_ + count;
            if (cut_ == 0)
                runs_ = runs_.subspan(1);
        }
        return runs;
    }

private:
    std::span<const StripeRows> runs_;
    uint32_t cut_ = 0;  // rows of the first run that were given before
};

// Behind the last group of its kind.
void end_rows(Store& store, const ScrubOrder& order, ScrubPosition& position)
{
    if (order.selection.bytes_max > 0)
        position.round = begin_of_round(store, position.group);
    leave_group(position, {});
    if (position.in_trees()) {
        position.mirrors_done = true;
        return;
    }
    position.rows_done = true;
    position.done = order.scope != ScrubScope::kAll;
}

Result<bool> load_piece(Store& store, const ScrubOrder& order, const ArrayGroup& group, uint64_t from,
                        ScrubPiece& piece)
{
    Result<bool> loaded =
        load_used(store, piece.view, group, from, piece.since, order.piece_bytes, piece.blocks);
    const bool may_be_unknown =
        order.selection.as_it_is && (order.scope == ScrubScope::kReplaced || has_mirrored_nodes(group));
    if (loaded.ok() || !may_be_unknown)
        return loaded;
    return load_unknown(store, group, from, order.piece_bytes, piece.blocks);
}

// The turn begins before the piece holds a view: while a reader waits, nothing that is freed comes free.
Status next_rows(Store& store, const ScrubOrder& order, ScrubPosition& position, ScrubPiece& piece,
                 WorkTurns& turns)
{
    Ref<const ArrayGroup> group = next_group(store, order, position);
    if (!group) {
        end_rows(store, order, position);
        return {};
    }
    if (group->record.address != position.group)
        position.stripe = 0;
    piece.first = position.stripe == 0;
    turns.left(kRoomForRows);
    piece.view = store.timeline.view();
    const bool by_writes = order.scope == ScrubScope::kStale && !has_mirrored_nodes(*group);
    piece.since = by_writes ? in_doubt_since(store, *group) : Generation{};
    const Result<bool> loaded = load_piece(store, order, *group, position.stripe, piece);
    piece.last = !loaded.ok() || !*loaded;
    piece.group = group;
    if (piece.last) {
        const GroupOrder* const first = order.selection.first.get();
        const bool of_first =
            !position.in_trees() && first != nullptr && position.of_first < first->groups.size();
        position.of_first += of_first ? 1 : 0;
        leave_group(position, of_first ? VolumeAddress() : group->record.address + kBlockBytes);
        return loaded.ok() ? Status() : Status(loaded.err());
    }
    position.group = group->record.address;
    position.stripe = piece.blocks.first_stripe + piece.blocks.stripe_count;
    for (const StripeRows& rows : piece.blocks.rows)
        piece.bytes += uint64_t{rows.row_count} * group->geometry.columns() * kBlockBytes;
    return {};
}

}  // namespace

bool has_mirrored_nodes(const ArrayGroup& group)
{
    return group.geometry.parity == 0 && group.record.content != kGroupData;
}

Ref<const GroupOrder> order_by_margin(Store& store, ScrubScope scope)
{
    if (scope == ScrubScope::kAll)
        return {};
    std::vector<std::pair<uint32_t, VolumeAddress>> margins;
    for (const Ref<const ArrayGroup>& group : store.volume.array().groups())
        if (!has_mirrored_nodes(*group) && in_scope(store, scope, *group)) {
            const uint32_t missing = store.volume.array().missing_columns(*group);
            margins.emplace_back(group->tolerance - std::min(group->tolerance, missing),
                                 group->record.address);
        }
    const Ref<GroupOrder> order = make_ref<GroupOrder>();
    for (const auto& [margin, address] : margins)
        order->rising.push_back(address);
    std::sort(margins.begin(), margins.end());
    for (const auto& [margin, address] : margins)
        order->groups.push_back(address);
    return Ref<const GroupOrder>(order.get());
}

bool in_scope(Store& store, ScrubScope scope, const ArrayGroup& group)
{
    if (scope == ScrubScope::kReplaced)
        return to_be_copied(store, group);
    return scope == ScrubScope::kAll || in_doubt_since(store, group) != kNoCommit;
}

Status next_piece(Store& store, const ScrubOrder& order, ScrubPosition& position, ScrubPiece& piece,
                  WorkTurns& turns, ScrubReport& report, ScrubWalkCounts& counts)
{
    if (position.rows_done) {
        piece.head = position.head++;
        position.done = position.head >= head_piece_count(store);
        return {};
    }
    if (!position.in_trees() || (order.selection.as_it_is && !position.mirrors_done))
        return next_rows(store, order, position, piece, turns);
    const Generation since = nodes_since(store, order.scope);
    if (since == kNoCommit) {
        position.tree = kTreeCount;
        position.key = {};
        return {};
    }
    piece.view = store.timeline.view();
    NodeScrub nodes(store, order, since, turns, report, counts);
    if (nodes.run(piece.view.committed->tree(static_cast<TreeIndex>(position.tree)), position.key,
                  position.key)) {
        ++position.tree;
        position.key = {};
    }
    return {};
}

void scrub_rows(Store& store, const ScrubOrder& order, const ScrubPiece& piece, WorkTurns& turns,
                ScrubReport& report)
{
    if (is_mutant(CommitMutant::kCaughtUpUnread))
        return;
    CommittedSink sink(store, piece, order, turns, report);
    Array& array = store.volume.array();
    const VolumeAddress group = piece.group->record.address;
    const uint64_t row_bytes = uint64_t{piece.group->geometry.columns()} * kBlockBytes;
    for (RowsInTurns rows(piece.blocks.rows); !rows.done() && !report.given_up;) {
        const uint64_t room = turns.left(kRoomForRows);
        const std::vector<StripeRows> of_turn = rows.next(divide_up(room, row_bytes));
        turns.take(room);
        // A group that went meanwhile held nothing any more.
        if (order.scope == ScrubScope::kReplaced)
            array.copy_rows(group, of_turn, copy_of(store), sink, report).ignore();
        else if (has_mirrored_nodes(*piece.group))
            array.fill_copies(group, of_turn, sink, report).ignore();
        else
            array.scrub_rows(group, of_turn, order.mode, sink, report).ignore();
    }
}

namespace {

// What a scrub reads of a group, roughly.
struct GroupBytes {
    Ref<const ArrayGroup> group;
    uint64_t bytes = 0;
};

std::vector<GroupBytes> group_bytes(Store& store, ScrubScope scope)
{
    std::vector<GroupBytes> all;
    for (const GroupNumbers& numbers : store.allocator.group_numbers(kAllContent))
        if (Ref<const ArrayGroup> group = store.volume.array().group_at(numbers.address);
            group && in_scope(store, scope, *group)) {
            const Geometry& geometry = group->geometry;
            const uint64_t live = numbers.live_blocks * kBlockBytes;
            const uint32_t columns = scope == ScrubScope::kReplaced ? 1 : geometry.columns();
            const uint32_t parts = scope == ScrubScope::kReplaced ? geometry.sets : 1;
            all.push_back({std::move(group), live * columns / geometry.data_columns / parts});
        }
    return all;
}

}  // namespace

uint64_t scrub_bytes(Store& store, ScrubScope scope, const ScrubSelection& selection)
{
    uint64_t nodes = 0, rows = 0;
    for (const GroupBytes& one : group_bytes(store, scope)) {
        if (has_mirrored_nodes(*one.group))
            nodes += one.bytes;
        else if (selected(store, selection, one.group->record))
            rows += one.bytes;
    }
    if (selection.bytes_max > 0)
        rows = std::min(rows, selection.bytes_max);
    return nodes + rows + (scope == ScrubScope::kAll ? head_bytes(store) : 0);
}

uint64_t bytes_of_percent(Store& store, uint64_t percent)
{
    uint64_t total = 0;
    for (const GroupBytes& one : group_bytes(store, ScrubScope::kAll))
        total += has_mirrored_nodes(*one.group) ? 0 : one.bytes;
    return std::max<uint64_t>(1, total * percent / 100);
}

VolumeAddress begin_of_round(Store& store, VolumeAddress address)
{
    for (const Ref<const ArrayGroup>& group : store.volume.array().groups())
        if (group->record.address >= address)
            return group->record.address;
    return {};
}

}  // namespace cowraid
