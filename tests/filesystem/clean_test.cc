// SPDX-License-Identifier: MIT
// The cleaner on simulated members: files stay as they are while their blocks move, through crashes and
// remounts.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string>
#include <thread>

#include "fs/commit/committer.h"
#include "fs/file_extents.h"
#include "fs/files/extents.h"
#include "fs/names/inode_use.h"
#include "fs/names/names.h"
#include "tests/filesystem/check_image.h"
#include "tests/filesystem/tree_text.h"
#include "tests/filesystem/volume_steps.h"
#include "tests/support/mutant_scope.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using What = Committer::SyncWhat;

const VolumeShape kRaid5{4, 192 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024};
const VolumeShape kRaid6{5, 192 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * 1024};
const VolumeShape kMirror{3, 192 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024};
const VolumeShape kPairs{4, 192 * kMiB, ProfileId::kRaid10, ProfileId::kRaid10, 64 * 1024};
constexpr uint64_t kFileBytes = 1 * kMiB;

std::string check_text_of(SimVolume& volume)
{
    CheckReport report;
    std::string why;
    if (!volume.check(report, why).ok())
        return why;
    return report.clean() ? "" : report.findings.front().kind + ": " + report.findings.front().text;
}

InodeNumber make(Filesystem& fs, const std::string& name)
{
    const Result<Attributes> made = fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
    REQUIRE_MESSAGE(made.ok(), err_text(made.err()));
    fs.names.forget(made->inode, 1);  // what is unlinked goes
    return made->inode;
}

InodeNumber find(Filesystem& fs, const std::string& name)
{
    const Result<Attributes> found = fs.names.lookup(kRoot, name);
    REQUIRE_MESSAGE(found.ok(), err_text(found.err()));
    fs.names.forget(found->inode, 1);
    return found->inode;
}

Status try_write(Filesystem& fs, Prng& prng, InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    std::vector<std::byte> content(bytes);
    prng.fill(content.data(), bytes);
    return fs.files.write(inode, offset, content, {}, {}).status();
}

void write(Filesystem& fs, Prng& prng, InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    const Status status = try_write(fs, prng, inode, offset, bytes);
    REQUIRE_MESSAGE(status.ok(), err_text(status.err()));
}

void resize(Filesystem& fs, InodeNumber inode, uint64_t bytes)
{
    SetAttributes change;
    change.size_bytes = bytes;
    REQUIRE(fs.names.set_attributes(inode, change, {}).ok());
}

std::string name_of(uint64_t number)
{
    return "f" + std::to_string(number);
}

void punch(Filesystem& fs, InodeNumber inode, uint64_t first_block, uint64_t blocks)
{
    REQUIRE(fs.files
                .allocate_range(inode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first_block * kBlockBytes,
                                blocks * kBlockBytes)
                .ok());
}

// `count` files, of which every fourth is then left, with holes: nearly empty groups.
void populate(Filesystem& fs, Prng& prng, uint64_t count = 100)
{
    for (uint64_t i = 0; i < count; ++i)
        write(fs, prng, make(fs, name_of(i)), 0, kFileBytes);
    REQUIRE(fs.step(true).ok());
    for (uint64_t i = 0; i < count; ++i) {
        if (i % 4 != 0) {
            REQUIRE(fs.names.unlink(kRoot, name_of(i)).ok());
            continue;
        }
        const InodeNumber inode = find(fs, name_of(i));
        for (uint64_t hole = 0; hole < 20; ++hole)
            punch(fs, inode, prng.below(kFileBytes / kBlockBytes - 2), 2);
    }
    REQUIRE(fs.step(true).ok());
}

// Until `groups` more have been emptied. False when the cleaner stops before.
bool clean(Filesystem& fs, uint64_t groups)
{
    const uint64_t wanted = fs.info().emptied_groups + groups;
    for (int step = 0; step < 4000 && fs.info().emptied_groups < wanted; ++step) {
        const CleanProgress progress = fs.clean_step(CleanWhen::kAny);
        if (progress == CleanProgress::kNothing)
            return false;
        if (progress == CleanProgress::kNeedsCommit)
            REQUIRE(fs.step(true).ok());
    }
    return fs.info().emptied_groups >= wanted;
}

void start(SimVolume& volume, Prng& prng, const MountOptions& options = manual_options())
{
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    mount(volume, options);
    populate(volume.fs(), prng);
}

void expect_after_remount(SimVolume& volume, const std::string& tree)
{
    REQUIRE(volume.unmount().ok());
    CHECK(check_text_of(volume) == "");
    mount(volume, manual_options());
    CHECK(tree_text(volume.fs()) == tree);
}

}  // namespace

TEST_CASE("clean: files stay while group after group leaves, again and again")
{
    for (const VolumeShape& shape : {kRaid5, kRaid6, kMirror, kPairs}) {
        CAPTURE(shape.member_count);
        Prng prng(1);
        SimVolume volume(shape);
        start(volume, prng);
        const std::string tree = tree_text(volume.fs());
        CHECK(clean(volume.fs(), 1));
        CHECK(volume.fs().info().moved_blocks > 100);
        CHECK(tree_text(volume.fs()) == tree);
        expect_after_remount(volume, tree);
        // Blocks that were moved before move again.
        for (uint64_t round = 0; round < 4; ++round) {
            for (uint64_t i = 0; i < 100; i += 4)
                punch(volume.fs(), find(volume.fs(), name_of(i)), 30 * round + i % 20, 10);
            REQUIRE(volume.fs().step(true).ok());
            const std::string punched = tree_text(volume.fs());
            CHECK(clean(volume.fs(), 1));
            CHECK(tree_text(volume.fs()) == punched);
        }
        expect_after_remount(volume, tree_text(volume.fs()));
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("clean: moved blocks are read, overwritten, cut and freed like others")
{
    for (const VolumeShape& shape : {kRaid5, kRaid6, kMirror, kPairs}) {
        CAPTURE(shape.member_count);
        Prng prng(2);
        SimVolume volume(shape);
        start(volume, prng);
        Filesystem& fs = volume.fs();
        for (int round = 0; round < 4; ++round) {
            // Before the commit that makes the last moves durable, and after it.
            for (int step = 0; step < 5; ++step)
                if (fs.clean_step(CleanWhen::kAny) == CleanProgress::kNeedsCommit)
                    REQUIRE(fs.step(true).ok());
            write(fs, prng, find(fs, name_of(0)), 100000, 50000);
            resize(fs, find(fs, name_of(4 + 4 * round)), kFileBytes / 2 + 77);
            REQUIRE(fs.files
                        .allocate_range(find(fs, name_of(20)), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                        prng.below(200) * kBlockBytes, 30 * kBlockBytes)
                        .ok());
            REQUIRE(fs.names.unlink(kRoot, name_of(24 + 4 * round)).ok());
            const std::string tree = tree_text(fs);
            REQUIRE(fs.step(true).ok());
            CHECK(tree_text(fs) == tree);
            CHECK(clean(fs, 1));
            CHECK(tree_text(fs) == tree);
        }
        expect_after_remount(volume, tree_text(fs));
        for (uint64_t i = 0; i < 100; ++i)
            volume.fs().names.unlink(kRoot, name_of(i)).ignore();
        expect_after_remount(volume, tree_text(volume.fs()));
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("clean: a page of extents has no more lines than it may, also of blocks that were moved")
{
    Prng prng(seed());
    SimVolume volume(kRaid5);
    start(volume, prng);
    Filesystem& fs = volume.fs();
    REQUIRE(clean(fs, 2));
    uint64_t moved = 0, extents_in_pieces = 0;
    for (uint64_t number = 0; number < 100; number += 4) {
        const InodeNumber file = find(fs, name_of(number));
        const Result<FileExtents> whole = list_file_extents(fs, file, 0, 100'000);
        REQUIRE(whole.ok());
        CHECK(whole->next_block == 0);
        std::vector<ListedExtent> listed;
        for (uint64_t next = 0; next != 0 || listed.empty();) {
            const Result<FileExtents> page = list_file_extents(fs, file, next, 3);
            REQUIRE(page.ok());
            REQUIRE(page->extents.size() <= 3);
            listed.insert(listed.end(), page->extents.begin(), page->extents.end());
            next = page->next_block;
        }
        REQUIRE(listed.size() == whole->extents.size());
        std::vector<std::byte> read(kBlockBytes), stored(kBlockBytes);
        for (size_t line = 0; line < listed.size(); ++line) {
            const ListedExtent &one = listed[line], &same = whole->extents[line];
            REQUIRE((one.offset == same.offset && one.bytes == same.bytes &&
                     one.stored_bytes == same.stored_bytes && one.logical == same.logical &&
                     one.physical == same.physical));
            moved += one.logical != one.physical ? 1 : 0;
            extents_in_pieces += line > 0 && listed[line - 1].logical + listed[line - 1].bytes == one.logical;
            REQUIRE(one.places.size() == 1);
            REQUIRE(*fs.files.read(file, one.offset, read) == kBlockBytes);
            volume.member(one.places[0].member.value - 1).peek(one.places[0].offset.value, stored);
            REQUIRE(read == stored);
        }
    }
    CHECK(moved > 0);
    CHECK(extents_in_pieces > 0);
}

TEST_CASE("clean: the next mount goes on, after an unmount and after a crash at any step")
{
    for (uint64_t steps = 1; steps < 40; steps += 3) {
        CAPTURE(steps);
        Prng prng(steps);
        SimVolume volume(steps % 2 == 0 ? kRaid5 : kRaid6);
        start(volume, prng);
        const std::string tree = tree_text(volume.fs());
        for (uint64_t step = 0; step < steps; ++step)
            if (volume.fs().clean_step(CleanWhen::kAny) == CleanProgress::kNeedsCommit)
                REQUIRE(volume.fs().step(true).ok());
        if (steps % 3 == 0)
            REQUIRE(volume.unmount().ok());
        else
            volume.power_cut(prng);
        mount(volume, manual_options());
        CHECK(tree_text(volume.fs()) == tree);
        CHECK(clean(volume.fs(), 1));
        CHECK(tree_text(volume.fs()) == tree);
        expect_after_remount(volume, tree);
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("clean: fsync records and moves do not meet")
{
    for (uint64_t round = 0; round < 12; ++round) {
        CAPTURE(round);
        Prng prng(round);
        SimVolume volume(round % 2 == 0 ? kRaid5 : kRaid6);
        start(volume, prng);
        Filesystem& fs = volume.fs();
        REQUIRE(fs.committer.fsync(kRoot, What::kAll).ok());
        // Some rounds with moves of the last commit, some with moves that no commit has.
        for (uint64_t step = 0; step < 3 + round; ++step)
            if (fs.clean_step(CleanWhen::kAny) == CleanProgress::kNeedsCommit)
                REQUIRE(fs.step(true).ok());
        write(fs, prng, find(fs, name_of(0)), 5000, 60000);
        resize(fs, find(fs, name_of(4)), 300000);
        REQUIRE(fs.names.unlink(kRoot, name_of(8)).ok());
        fs.clean_step(CleanWhen::kAny);
        REQUIRE(fs.committer.fsync(kRoot, What::kAll).ok());
        fs.clean_step(CleanWhen::kAny);
        write(fs, prng, find(fs, name_of(12)), 0, 7000);
        resize(fs, find(fs, name_of(16)), 1);
        REQUIRE(fs.committer.fsync(kRoot, What::kAll).ok());
        const std::string tree = tree_text(fs);
        fs.clean_step(CleanWhen::kAny);
        volume.power_cut(prng);
        mount(volume, manual_options());
        CHECK(tree_text(volume.fs()) == tree);
        CHECK(clean(volume.fs(), 1));
        expect_after_remount(volume, tree);
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("clean: with a member missing")
{
    Prng prng(4);
    SimVolume volume(kRaid6);
    start(volume, prng);
    const std::string tree = tree_text(volume.fs());
    REQUIRE(volume.unmount().ok());
    MountOptions options = manual_options();
    options.degraded = true;
    mount(volume, options, {1});
    CHECK(clean(volume.fs(), 2));
    CHECK(volume.fs().info().moved_blocks > 100);
    CHECK(tree_text(volume.fs()) == tree);
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    CHECK(tree_text(volume.fs()) == tree);
    expect_after_remount(volume, tree);
    REQUIRE(volume.unmount().ok());
}

TEST_CASE("clean: it never takes what writers were promised, and gives a full volume its space back")
{
    for (const VolumeShape& shape : {kRaid5, kMirror}) {
        CAPTURE(shape.member_count);
        Prng prng(5);
        SimVolume volume(shape);
        start(volume, prng);
        Filesystem& fs = volume.fs();
        uint64_t count = 0;
        std::set<uint64_t> big;
        for (; try_write(fs, prng, make(fs, "b" + std::to_string(count)), 0, 256 * 1024).ok(); ++count)
            fs.clean_step(CleanWhen::kAny);
        CHECK(count > 100);
        REQUIRE(fs.step(true).ok());
        // Nothing that was accepted may fail at its commit, whatever the cleaner does in between.
        for (uint64_t round = 0; round < 60; ++round) {
            REQUIRE(fs.names.unlink(kRoot, "b" + std::to_string(round * 2)).ok());
            fs.clean_step(CleanWhen::kAny);
            while (try_write(fs, prng, make(fs, "c" + std::to_string(round)), 0, 64 * 1024).ok() &&
                   prng.chance(1, 2))
                REQUIRE(fs.names.unlink(kRoot, "c" + std::to_string(round)).ok());
            if (prng.chance(1, 3))
                REQUIRE(fs.step(true).ok());
            CHECK(!fs.info().read_only);
        }
        REQUIRE(fs.step(true).ok());
        for (uint64_t i = 0; i < count; i += 2)
            fs.names.unlink(kRoot, "b" + std::to_string(i)).ignore();
        REQUIRE(fs.step(true).ok());
        REQUIRE(fs.step(true).ok());
        const std::string tree = tree_text(fs);
        CHECK(clean(fs, 2));
        expect_after_remount(volume, tree);
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("clean: what cannot be read stays where it is, and the rest of the group moves")
{
    Prng prng(6);
    SimVolume volume(kRaid5);
    start(volume, prng);
    REQUIRE(volume.unmount().ok());
    Image image = Image::copy_of(volume);
    std::unique_ptr<Filesystem> core = image.open_core();
    std::vector<FileExtent> extents;
    const Result<DirentSlot> slot =
        find_dirent(core->store.items, core->volume->identity().name_hash_seed, kRoot, name_of(40));
    REQUIRE(slot.ok());
    const InodeNumber inode = slot->entry.inode;
    REQUIRE(find_extents(core->store.items, core->store.items.view(), inode, 0, 256, extents).ok());
    const VolumeAddress address = extents.front().address;
    const VolumeAddress group = core->volume->array().group_at(address)->record.address;
    image.rot(address);
    image.rot(image.parity_of(address, 0));
    const CleanerCounts& counts = core->committer.cleaner.counts();
    for (int step = 0; step < 2000 && counts.unmovable_blocks == 0; ++step)
        if (core->committer.cleaner.step({.when = CleanWhen::kAny}) == CleanProgress::kNeedsCommit)
            REQUIRE(core->committer.commit().ok());
    CHECK(counts.unmovable_blocks == 1);
    CHECK(counts.moved_blocks > 10);
    uint64_t left = 0;
    for (const GroupNumbers& numbers : core->store.allocator.group_numbers(kGroupData))
        left = numbers.address == group ? numbers.live_blocks : left;
    CHECK(left == 1);
    AlignedBuffer memory(kBlockBytes);
    CHECK(!core->files.read(inode, extents.front().file_block * kBlockBytes, {memory.data(), kBlockBytes})
               .ok());
}

namespace {

// Moved blocks of the files, in order.
std::vector<RemappedRun> moved_runs(Filesystem& core)
{
    std::vector<RemappedRun> moved;
    std::vector<FileExtent> extents;
    for (uint64_t i = 0; i < 100; i += 4) {
        const Result<DirentSlot> slot =
            find_dirent(core.store.items, core.volume->identity().name_hash_seed, kRoot, name_of(i));
        REQUIRE(slot.ok());
        extents.clear();
        REQUIRE(
            find_extents(core.store.items, core.store.items.view(), slot->entry.inode, 0, 256, extents).ok());
        for (const FileExtent& extent : extents) {
            std::vector<RemappedRun> runs;
            const View view = core.store.items.view();
            REQUIRE(core.store.remap.resolve(view, extent.address, extent.block_count, runs).ok());
            std::copy_if(runs.begin(), runs.end(), std::back_inserter(moved),
                         [](const RemappedRun& run) { return run.moved() && run.block_count > 1; });
        }
    }
    return moved;
}

// A volume of which groups have been emptied, opened by hand.
struct Moved {
    explicit Moved(uint64_t seed) : image(cleaned(seed)), core(image.open_core()), runs(moved_runs(*core))
    {
        REQUIRE(runs.size() > 1);
    }
    static Image cleaned(uint64_t seed)
    {
        Prng prng(seed);
        SimVolume volume(kRaid5);
        start(volume, prng);
        REQUIRE(clean(volume.fs(), 2));
        REQUIRE(volume.unmount().ok());
        return Image::copy_of(volume);
    }

    Image image;
    std::unique_ptr<Filesystem> core;
    std::vector<RemappedRun> runs;
};

// Lets `craft` change entries of moved blocks behind the files' back, then empties what groups there are.
// How many files read otherwise than before.
uint64_t files_changed_by(void (*craft)(Transaction& open, const RemappedRun& one, const RemappedRun& other))
{
    Moved moved(9);
    Filesystem& core = *moved.core;
    const auto files = [&] {
        std::vector<std::string> texts;
        for (uint64_t i = 0; i < 100; i += 4) {
            const Result<DirentSlot> slot =
                find_dirent(core.store.items, core.volume->identity().name_hash_seed, kRoot, name_of(i));
            std::string text(kFileBytes, 0);
            const Result<size_t> got = core.files.read(
                slot->entry.inode, 0, {reinterpret_cast<std::byte*>(text.data()), text.size()});
            texts.push_back(got.ok() ? text : err_text(got.err()));
        }
        return texts;
    };
    const std::vector<std::string> before = files();
    craft(*core.store.timeline.open(), moved.runs.front(), moved.runs.back());
    core.store.timeline.open()->dirty = true;
    REQUIRE(core.committer.commit().ok());
    CHECK(!moved.image.check().clean());
    // Each group once, and its successors.
    for (int step = 0; step < 1000 && core.committer.empty_groups.emptied_groups() < 8; ++step)
        if (core.committer.cleaner.step({.when = CleanWhen::kAny}) == CleanProgress::kNeedsCommit)
            REQUIRE(core.committer.commit().ok());
    CHECK(core.committer.empty_groups.emptied_groups() == 8);
    const std::vector<std::string> after = files();
    uint64_t changed = 0;
    for (size_t i = 0; i < before.size(); ++i)
        changed += before[i] != after[i];
    return changed;
}

}  // namespace

TEST_CASE("clean: entries that contradict each other cost no block")
{
    // A place is said to be the block of another name.
    CHECK(files_changed_by([](Transaction& open, const RemappedRun& one, const RemappedRun& other) {
              open.moved_from.put(one.physical, {&other.logical.value, 1});
          }) == 0);
    // A place is said to be nobody's.
    CHECK(files_changed_by([](Transaction& open, const RemappedRun& one, const RemappedRun&) {
              const uint64_t none = 0;
              open.moved_from.put(one.physical, {&none, 1});
          }) == 0);
}

TEST_CASE("clean: a file that is given the place of another's block does not free it")
{
    Moved moved(10);
    Filesystem& core = *moved.core;
    core.store.timeline.open()->moved_to.put(moved.runs.front().logical,
                                             {&moved.runs.back().physical.value, 1});
    std::vector<RemappedRun> places;
    const View view = core.store.items.view();
    CHECK(find_physical(core.store, view, moved.runs.front().logical, 1, places).err() == Err::kCorrupt);
    places.clear();
    REQUIRE(find_physical(core.store, view, moved.runs.back().logical, 1, places).ok());
    CHECK(places.front().physical == moved.runs.back().physical);
}

namespace {

// Frees one of the blocks that came into use since it was made, as who deletes a file that a damaged tree had
// given that block while it was free. On the way of the first write.
class FreesOneNewBlock {
public:
    explicit FreesOneNewBlock(SimVolume& volume) : store_(volume.fs().committer.store), before_(live())
    {
        volume.set_slow_hook(
            {[](void* self, uint64_t) { static_cast<FreesOneNewBlock*>(self)->act(); }, this});
        for (uint32_t member = 0; member < volume.member_count(); ++member)
            volume.cable(member).add_rule(
                {.action = FaultAction::kSlow, .kinds = kFaultWrites, .delay_microseconds = 1});
    }
    uint64_t freed = 0;

private:
    std::set<uint64_t> live()
    {
        std::set<uint64_t> blocks;
        std::vector<BlockRun> runs;
        for (const GroupNumbers& group : store_.allocator.group_numbers(kGroupData))
            REQUIRE(store_.allocator.live_blocks(group.address, UINT64_MAX, runs).ok());
        for (const BlockRun& run : runs)
            for (uint64_t i = 0; i < run.block_count; ++i)
                blocks.insert(run.address.value + i * kBlockBytes);
        return blocks;
    }
    void act()
    {
        if (freed > 0)
            return;
        for (const uint64_t block : live())
            if (freed == 0 && !before_.contains(block))
                freed += store_.allocator.free_blocks({block}, 1, store_.timeline.open()->id).ok() ? 1 : 0;
    }

    Store& store_;
    const std::set<uint64_t> before_;
};

}  // namespace

TEST_CASE("clean: a new place that somebody frees meanwhile ends the emptying, and costs no block")
{
    Prng prng(12);
    SimVolume volume(kRaid5);
    start(volume, prng);
    Filesystem& fs = volume.fs();
    const std::string tree = tree_text(fs);
    FreesOneNewBlock other(volume);
    CleanProgress progress = CleanProgress::kWorked;
    for (int step = 0; step < 50 && other.freed == 0; ++step) {
        progress = fs.clean_step(CleanWhen::kAny);
        if (other.freed == 0 && progress == CleanProgress::kNeedsCommit)
            REQUIRE(fs.step(true).ok());
    }
    REQUIRE(other.freed == 1);
    CHECK(progress == CleanProgress::kNothing);
    CHECK(fs.info().moved_blocks == 0);
    CHECK_FALSE(clean(fs, 1));
    CHECK(fs.info().moved_blocks == 0);
    expect_after_remount(volume, tree);
}

namespace {

// Empties the group that a file's first block is in while a reader holds the commit before, and lets others
// have its slots. Whether the reader still finds the block.
bool reader_finds_block(CommitMutant mutant)
{
    Prng prng(7);
    SimVolume volume(kRaid5);
    start(volume, prng);
    REQUIRE(volume.unmount().ok());
    Image image = Image::copy_of(volume);
    std::unique_ptr<Filesystem> core = image.open_core();
    const MutantScope scope(mutant);
    // The first group it turns to is that of some file's block.
    while (core->committer.cleaner.counts().moved_blocks == 0)
        if (core->committer.cleaner.step({.when = CleanWhen::kAny}) == CleanProgress::kNeedsCommit)
            REQUIRE(core->committer.commit().ok());
    const View view = core->store.items.view();
    VolumeAddress place;
    for (uint64_t i = 0; i < 100 && !place.valid(); i += 4) {
        const Result<DirentSlot> slot =
            find_dirent(core->store.items, core->volume->identity().name_hash_seed, kRoot, name_of(i));
        std::vector<FileExtent> extents;
        REQUIRE(find_extents(core->store.items, view, slot->entry.inode, 0, 256, extents).ok());
        for (const FileExtent& extent : extents)
            if (core->store.remap.may_have_moved(extent.address))
                place = extent.address;
    }
    REQUIRE(place.valid());
    std::vector<BlockExpectation> expected(1);
    View old = view;
    old.open = make_ref<Transaction>(TransactionId{0});  // nothing of what comes
    REQUIRE(core->store.checksums.lookup(old, place, expected).ok());
    for (int step = 0; step < 200 && core->committer.empty_groups.emptied_groups() == 0; ++step)
        if (core->committer.cleaner.step({.when = CleanWhen::kAny}) == CleanProgress::kNeedsCommit)
            REQUIRE(core->committer.commit().ok());
    AlignedBuffer memory(kBlockBytes);
    ReadPiece piece;
    piece.address = place;
    piece.block_count = 1;
    piece.memory = memory.data();
    piece.checksums = &expected[0].checksum;
    return core->volume->array().read({&piece, 1}).ok();
}

// Whether anything is wrong after a few groups were emptied under a wrong protocol.
std::string harm_of(CommitMutant mutant)
{
    const MutantScope scope(mutant);
    Prng prng(8);
    SimVolume volume(kRaid5);
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    mount(volume, manual_options());
    populate(volume.fs(), prng);
    const std::string tree = tree_text(volume.fs());
    // In the middle of a group.
    for (int step = 0; step < 50 && volume.fs().info().moved_blocks == 0; ++step)
        if (volume.fs().clean_step(CleanWhen::kAny) == CleanProgress::kNeedsCommit)
            REQUIRE(volume.fs().step(true).ok());
    CHECK(volume.fs().info().moved_blocks > 0);
    REQUIRE(volume.unmount().ok());
    if (const std::string harm = check_text_of(volume); harm != "")
        return harm;
    mount(volume, manual_options());
    for (int step = 0; step < 250 && volume.fs().info().emptied_groups < 5; ++step)
        if (volume.fs().clean_step(CleanWhen::kAny) == CleanProgress::kNeedsCommit &&
            !volume.fs().step(true).ok())
            return "a commit failed";
    if (tree_text(volume.fs()) != tree)
        return "files changed";
    for (uint64_t i = 0; i < 100; i += 8)
        if (!volume.fs().names.unlink(kRoot, name_of(i)).ok() || !volume.fs().step(true).ok())
            return "a file cannot be deleted";
    if (!volume.unmount().ok())
        return "the last commit failed";
    return check_text_of(volume);
}

}  // namespace

TEST_CASE("clean: in the background, while others write, where free stripes are scarce")
{
    Prng prng(9);
    SimVolume volume(kRaid5);
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    mount(volume, manual_options());
    uint64_t count = 0;
    while (try_write(volume.fs(), prng, make(volume.fs(), name_of(count)), 0, kFileBytes).ok())
        REQUIRE(volume.fs().step(++count % 16 == 0).ok());
    REQUIRE(volume.fs().names.unlink(kRoot, name_of(count)).ok());
    for (uint64_t i = 0; i < count; ++i) {
        if (i % 10 == 0)
            REQUIRE(volume.fs().names.unlink(kRoot, name_of(i)).ok());
        for (uint64_t block = 0; i % 10 != 0 && block < 256; block += 16)
            punch(volume.fs(), find(volume.fs(), name_of(i)), block, 9);
    }
    for (const char* name : {"busy1", "busy2"})
        make(volume.fs(), name);
    REQUIRE(volume.unmount().ok());
    MountOptions options;
    options.commit_seconds = 1;
    mount(volume, options);
    const std::string tree = tree_text(volume.fs());
    std::atomic<bool> stop{false};
    const auto write_until_stopped = [&](const char* name, uint64_t seed) {
        Prng own(seed);
        const InodeNumber inode = find(volume.fs(), name);
        for (uint64_t round = 0; !stop; ++round) {
            write(volume.fs(), own, inode, own.below(100) * 10000, 30000);
            if (round % 4 == 0)
                REQUIRE(volume.fs().committer.fsync(inode, What::kAll).ok());
        }
        resize(volume.fs(), inode, 0);
    };
    std::thread first(write_until_stopped, "busy1", 1);
    std::thread second(write_until_stopped, "busy2", 2);
    for (int tenths = 0; tenths < 1200 && volume.fs().info().emptied_groups < 1; ++tenths) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        std::vector<std::byte> content(kFileBytes);
        REQUIRE(volume.fs().files.read(find(volume.fs(), name_of(1 + tenths % 9)), 0, content).ok());
    }
    stop = true;
    first.join();
    second.join();
    CHECK(volume.fs().info().emptied_groups >= 1);
    CHECK(volume.fs().info().moved_blocks > 1000);
    REQUIRE(volume.unmount().ok());
    CHECK(check_text_of(volume) == "");
    mount(volume, manual_options());
    // But for the times of two files.
    const auto without_busy = [](const std::string& text) {
        std::string kept;
        for (size_t at = 0; at < text.size();) {
            const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
            const std::string line = text.substr(at, end - at);
            kept += line.find("busy") == std::string::npos ? line : "";
            at = end;
        }
        return kept;
    };
    CHECK(without_busy(tree_text(volume.fs())) == without_busy(tree));
    REQUIRE(volume.unmount().ok());
}

TEST_CASE("clean: a group stays while a reader of an older commit may look into it")
{
    CHECK(reader_finds_block(CommitMutant::kNone));
#ifdef COWRAID_MUTANTS
    CHECK(!reader_finds_block(CommitMutant::kDroppedPinned));
#endif
}

TEST_CASE("clean: emptying a few groups harms nothing")
{
    CHECK(harm_of(CommitMutant::kNone) == "");
}

#ifdef COWRAID_MUTANTS
TEST_CASE("clean: wrong protocols are found out")
{
    for (const CommitMutant mutant :
         {CommitMutant::kEmptyingUnmarked, CommitMutant::kMovedFromMissing, CommitMutant::kMovedChain,
          CommitMutant::kFreeUnresolved, CommitMutant::kLeftoversStay}) {
        CAPTURE(static_cast<uint32_t>(mutant));
        const std::string harm = harm_of(mutant);
        MESSAGE("mutant ", static_cast<uint32_t>(mutant), ": ", harm);
        CHECK(harm != "");
    }
}
#endif
