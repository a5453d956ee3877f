// SPDX-License-Identifier: MIT
// Discards: what is free goes, what is in use stays, and nobody writes where a discard is under way.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "fs/file_extents.h"
#include "tests/filesystem/replace_steps.h"
#include "tests/filesystem/scrub_steps.h"
#include "tests/filesystem/volume_contents.h"
#include "tests/filesystem/volume_shapes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

MountOptions discarding(DiscardMode mode = DiscardMode::kAsync)
{
    MountOptions options = manual_options();
    options.discard = mode;
    return options;
}

void make_discarding(SimVolume& volume, DiscardMode mode = DiscardMode::kAsync)
{
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    mount(volume, discarding(mode));
}

// Bytes of members that are not zero, in units of what they discard.
uint64_t stored_bytes(SimVolume& volume)
{
    uint64_t bytes = 0;
    std::vector<std::byte> unit(16 * kKiB);
    const std::vector<std::byte> zeros(unit.size());
    for (uint32_t member = 0; member < volume.member_count(); ++member)
        for (uint64_t offset = 0; offset < volume.shape().member_bytes; offset += unit.size()) {
            volume.member(member).peek(offset, unit);
            bytes += unit == zeros ? 0 : unit.size();
        }
    return bytes;
}

void commit_and_discard(Filesystem& fs, int rounds)
{
    for (int round = 0; round < rounds; ++round) {
        REQUIRE(fs.step(true).ok());
        while (fs.discard_step())
            continue;
    }
}

struct TrimResult final : TrimCompletion {
    void done(Status status, uint64_t bytes) override
    {
        outcome = status;
        trimmed = bytes;
        answered = true;
    }
    Status outcome;
    uint64_t trimmed = 0;
    bool answered = false;
};

uint64_t trim(Filesystem& fs, const TrimRange& range = {})
{
    TrimResult result;
    fs.committer.discards.trim(range, &result);
    for (int round = 0; round < 200 && !result.answered; ++round)
        commit_and_discard(fs, 1);
    REQUIRE(result.answered);
    REQUIRE(result.outcome.ok());
    return result.trimmed;
}

// Files of which every other one goes, each several hundred KiB of each member.
Contents every_other_file(Filesystem& fs, Prng& prng, uint64_t count, uint64_t bytes)
{
    Contents contents;
    for (uint64_t index = 0; index < count; ++index) {
        const std::string name = "file" + std::to_string(index);
        contents[name] = random_content(prng, bytes);
        write_file(fs, name, contents[name]);
        REQUIRE(fs.step(true).ok());
    }
    for (uint64_t index = 0; index < count; index += 2) {
        REQUIRE(fs.names.unlink(kRoot, "file" + std::to_string(index)).ok());
        contents.erase("file" + std::to_string(index));
    }
    return contents;
}

VolumeAddress address_of(Filesystem& fs, const std::string& name, uint64_t offset)
{
    const Result<FileExtents> found = list_file_extents(fs, find_file(fs, name), offset / kBlockBytes, 1);
    REQUIRE((found.ok() && !found->extents.empty()));
    const ListedExtent& extent = found->extents.front();
    return extent.physical + (offset - extent.offset);
}

void require_scrubbed(SimVolume& volume, const Contents& contents)
{
    require_contents(volume.fs(), contents);
    ScrubStatus status = volume.fs().scrub_step();
    while (status.state == ScrubState::kRunning)
        status = volume.fs().scrub_step();
    CHECK(status.all_well());
    CHECK(status.repaired == 0);
}

void require_all_well(SimVolume& volume, const Contents& contents)
{
    require_scrubbed(volume, contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
    mount(volume, discarding(DiscardMode::kOff));
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
}

}  // namespace

TEST_CASE("discard: slots of groups that left, and what files kept of others stays")
{
    for (const VolumeShape& shape : {kRaid5, kRaid6, kMirrors, kPairs, kSingle}) {
        CAPTURE(find_profile(shape.data_profile)->name);
        Prng prng(seed());
        SimVolume volume(shape);
        make_discarding(volume);
        Filesystem& fs = volume.fs();
        Contents contents;
        contents["kept"] = random_content(prng, 3 * kMiB);
        write_file(fs, "kept", contents["kept"]);
        write_file(fs, "gone", random_content(prng, 60 * kMiB));
        REQUIRE(fs.step(true).ok());
        const uint64_t full = stored_bytes(volume);
        CHECK(full > 60 * kMiB);
        REQUIRE(fs.names.unlink(kRoot, "gone").ok());
        commit_and_discard(fs, 8);
        CHECK(fs.info().discarded_bytes > 0);
        CHECK(stored_bytes(volume) < full / 2);
        require_all_well(volume, contents);
    }
}

TEST_CASE("discard: free stripes between others, by a trim and by the option")
{
    for (const VolumeShape& shape : {kRaid5, kRaid6, kNodesUnderParity, kMirrors, kPairs, kStriped, kSingle})
        for (const DiscardMode mode : {DiscardMode::kOff, DiscardMode::kAsync}) {
            CAPTURE(find_profile(shape.data_profile)->name);
            CAPTURE(static_cast<int>(mode));
            Prng prng(seed());
            SimVolume volume(shape);
            make_discarding(volume, mode);
            Filesystem& fs = volume.fs();
            const Contents contents = every_other_file(fs, prng, 16, 4 * kMiB);
            commit_and_discard(fs, 8);
            const uint64_t before = stored_bytes(volume);
            if (mode == DiscardMode::kOff) {
                CHECK(fs.info().discarded_bytes == 0);
                const uint64_t bytes = trim(fs);
                CHECK(bytes > 0);
                CHECK(fs.info().discarded_bytes == bytes);
                CHECK(stored_bytes(volume) < before * 7 / 10);
            } else {
                CHECK(fs.info().discarded_bytes > 30 * kMiB);
            }
            // What was discarded is used again.
            Contents all = contents;
            all["again"] = random_content(prng, 20 * kMiB);
            write_file(fs, "again", all["again"]);
            commit_and_discard(fs, 2);
            require_all_well(volume, all);
        }
}

TEST_CASE("discard: a trim of a range leaves the rest, and short runs where it says so")
{
    Prng prng(seed());
    SimVolume volume(kRaid5);
    make_discarding(volume, DiscardMode::kOff);
    Filesystem& fs = volume.fs();
    const Contents contents = every_other_file(fs, prng, 12, 4 * kMiB);
    commit_and_discard(fs, 4);
    CHECK(trim(fs, {.first = 0, .end = kBlockBytes}) == 0);
    CHECK(trim(fs, {.first = 0,
                    .end = fs.volume->array().groups().begin()->get()->record.address.value + kBlockBytes,
                    .bytes_min = kGiB}) == 0);
    CHECK(trim(fs, {.bytes_min = kGiB}) == 0);
    TrimResult beyond;
    fs.committer.discards.trim({.first = uint64_t{1000} * kGiB}, &beyond);
    CHECK(beyond.answered);
    CHECK(beyond.outcome.err() == Err::kInvalid);
    const GroupRecord last = (*(fs.volume->array().groups().end() - 1))->record;
    const uint64_t slots = trim(fs, {.first = last.address.value + last.span_bytes()});
    CHECK(slots > 0);
    CHECK(trim(fs) > slots);
    require_all_well(volume, contents);
}

TEST_CASE("discard: a trim of a part of a group leaves the rest of it")
{
    for (const VolumeShape& shape : {kRaid5, kMirrors, kPairs}) {
        CAPTURE(find_profile(shape.data_profile)->name);
        Prng prng(seed());
        SimVolume volume(shape);
        make_discarding(volume, DiscardMode::kOff);
        Filesystem& fs = volume.fs();
        Contents contents;
        for (const char* const name : {"kept", "gone", "between", "other", "behind"}) {
            contents[name] = random_content(prng, 2 * kMiB);
            write_file(fs, name, contents[name]);
            REQUIRE(fs.step(true).ok());
        }
        const VolumeAddress middle = address_of(fs, "gone", kMiB), other = address_of(fs, "other", kMiB);
        for (const char* const name : {"gone", "other"}) {
            REQUIRE(fs.names.unlink(kRoot, name).ok());
            contents.erase(name);
        }
        commit_and_discard(fs, 4);
        const Ref<const ArrayGroup> group = fs.volume->array().group_at(middle);
        REQUIRE((group && group->has_data(other, 1)));
        const Geometry& geometry = group->geometry;
        const uint64_t bytes = geometry.stripe_data_bytes();
        const uint64_t of_members =
            uint64_t{geometry.copies} * bytes + uint64_t{geometry.parity} * geometry.chunk_bytes;
        const uint64_t start = group->record.address.value;
        const uint64_t stripe = start + (middle.value - start) / bytes * bytes;
        CHECK(trim(fs, {.first = stripe, .end = stripe + bytes}) == of_members);
        // Stripes that the range has in part are left.
        CHECK(trim(fs, {.first = stripe + kBlockBytes, .end = stripe + 2 * bytes - 1}) == 0);
        CHECK(trim(fs, {.first = stripe - 1, .end = stripe + 2 * bytes + 1}) == 2 * of_members);
        CHECK(trim(fs, {.first = stripe, .end = stripe + 4 * bytes, .bytes_min = 5 * bytes}) == 0);
        CHECK(trim(fs, {.first = start, .end = start + group->record.data_bytes()}) >
              2 * of_members * (kMiB / bytes));
        require_all_well(volume, contents);
    }
}

TEST_CASE("discard: a trim takes long runs where little may be out of use at a time")
{
    Prng prng(seed());
    SimVolume volume(kRaid5);
    make_discarding(volume, DiscardMode::kOff);
    Filesystem& fs = volume.fs();
    Contents contents;
    for (const char* const name : {"kept", "gone", "behind"}) {
        contents[name] = random_content(prng, name == std::string("gone") ? 20 * kMiB : kMiB);
        write_file(fs, name, contents[name]);
        REQUIRE(fs.step(true).ok());
    }
    const VolumeAddress middle = address_of(fs, "gone", 10 * kMiB);
    REQUIRE(fs.names.unlink(kRoot, "gone").ok());
    contents.erase("gone");
    commit_and_discard(fs, 4);
    const Ref<const ArrayGroup> group = fs.volume->array().group_at(middle);
    const uint64_t start = group->record.address.value;
    const uint64_t all = trim(fs, {.first = start, .end = start + group->record.data_bytes()});
    CHECK(all > 20 * kMiB);
    const Result<Attributes> made = fs.names.make_node(kRoot, "fill", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    const uint64_t room = fs.store.ledger.data_available() * kBlockBytes;
    REQUIRE(room > 13 * kMiB);
    REQUIRE(fs.files.allocate_range(made->inode, 0, 0, room - 13 * kMiB).ok());
    fs.names.forget(made->inode, 1);
    REQUIRE(fs.step(true).ok());
    // The first is a part of a batch, the others are longer than one.
    for (const uint64_t shortest : {2 * kMiB, 7 * kMiB, 12 * kMiB}) {
        CAPTURE(shortest);
        CHECK(trim(fs, {.first = start, .end = start + group->record.data_bytes(), .bytes_min = shortest}) >
              all * 9 / 10);
    }
    require_all_well(volume, contents);
}

TEST_CASE("discard: degraded, and by a member that refuses")
{
    Prng prng(seed());
    SimVolume volume(kRaid6);
    make_discarding(volume, DiscardMode::kOff);
    Contents contents = every_other_file(volume.fs(), prng, 12, 4 * kMiB);
    REQUIRE(volume.unmount().ok());
    MountOptions options = discarding(DiscardMode::kOff);
    options.degraded = true;
    mount(volume, options, {1});
    volume.cable(2).add_rule({.action = FaultAction::kError, .kinds = kFaultDiscards});
    CHECK(trim(volume.fs()) > 0);
    CHECK(volume.fs().volume->missing_members().size() == 1);
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    volume.cable(2).remove_all_rules();
    mount(volume, discarding(DiscardMode::kOff));
    while (volume.fs().catch_up_step().ok())
        continue;
    REQUIRE(volume.fs().step(true).ok());
    require_all_well(volume, contents);
}

TEST_CASE("discard: a group that is planned where a discard is under way takes no blocks before its end")
{
    Prng prng(seed());
    SimVolume volume(kRaid5);
    make_discarding(volume);
    Filesystem& fs = volume.fs();
    write_file(fs, "gone", random_content(prng, 60 * kMiB));
    REQUIRE(fs.step(true).ok());
    REQUIRE(fs.names.unlink(kRoot, "gone").ok());
    for (int commit = 0; commit < 8; ++commit)
        REQUIRE(fs.step(true).ok());
    const auto part = fs.volume->begin_discard(kGiB);
    REQUIRE(part);
    // All slots are taken by groups, also those of the part.
    std::atomic<bool> committed{false};
    std::thread writer([&] {
        while (fs.volume->plan_group(kGroupData, SlotMembers::kPresent, Slots::kAny, fs.store.allocator).ok())
            continue;
        fs.store.timeline.open()->dirty = true;
        CHECK(fs.step(true).ok());
        committed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(!committed);  // I-39
    fs.volume->end_discard();
    writer.join();
    CHECK(committed);
    // None of them is discarded now.
    CHECK(!fs.volume->begin_discard(kGiB));
}

TEST_CASE("discard: a member that is made smaller is so only when no discard is under way behind its end")
{
    SimVolume volume(kRaid5);
    make_discarding(volume);
    Filesystem& fs = volume.fs();
    REQUIRE(fs.step(true).ok());
    constexpr uint64_t kSmaller = 96 * kMiB;
    fs.volume->discard_free_slots(0);
    auto part = fs.volume->begin_discard(kGiB);
    while (part && (part->member != MemberId{1} || part->offset.value + part->bytes <= kSmaller)) {
        fs.volume->end_discard();
        part = fs.volume->begin_discard(kGiB);
    }
    REQUIRE(part);
    std::atomic<bool> ended{false};
    std::thread shrinking([&] {
        std::string why;
        CHECK(fs.committer.balance
                  .start({.profiles = fs.volume->profiles(),
                          .content = kAllContent,
                          .member = {1},
                          .shrink_bytes = kSmaller},
                         why)
                  .ok());
        finish(fs);
        ended = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(!ended);  // I-39
    fs.volume->end_discard();
    shrinking.join();
    CHECK(fs.committer.balance.status().state == BalanceStatus::State::kFinished);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

TEST_CASE("discard: stripes that are out of use go back when somebody needs the room")
{
    Prng prng(seed());
    SimVolume volume(kRaid5);
    make_discarding(volume, DiscardMode::kOff);
    Filesystem& fs = volume.fs();
    Contents contents = every_other_file(fs, prng, 20, 4 * kMiB);
    for (int commit = 0; commit < 6; ++commit)
        REQUIRE(fs.step(true).ok());
    const uint64_t room = fs.store.ledger.data_available();
    const uint64_t rows = fs.store.allocator.numbers(kGroupData).free_row_blocks;
    TrimResult result;
    fs.committer.discards.trim({}, &result);
    for (int round = 0; round < 100 && fs.store.ledger.data_available() == room; ++round)
        fs.discard_step();  // groups of nodes come first
    CHECK(fs.store.allocator.numbers(kGroupData).free_row_blocks < rows);
    CHECK(fs.store.ledger.data_available() < room);
    // Somebody needs more than there is beside them.
    const Result<Attributes> made = fs.names.make_node(kRoot, "all", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    const uint64_t bytes = (fs.store.ledger.data_available() + 1) * kBlockBytes;
    CHECK(bytes <= room * kBlockBytes);
    CHECK(fs.files.allocate_range(made->inode, 0, 0, bytes).ok());
    fs.names.forget(made->inode, 1);
    for (int round = 0; round < 200 && !result.answered; ++round)
        commit_and_discard(fs, 1);
    CHECK(result.answered);
    require_all_well(volume, contents);
}

TEST_CASE("discard: a trim while a member is replaced leaves what its successor has")
{
    for (const VolumeShape& shape : {kRaid5, kRaid6, kMirrors, kPairs, kStriped, kSingle})
        for (const bool is_mounted_anew : {false, true}) {
            CAPTURE(find_profile(shape.data_profile)->name);
            CAPTURE(is_mounted_anew);
            Prng prng(seed());
            SimVolume volume(shape);
            make_discarding(volume, DiscardMode::kOff);
            Contents contents = every_other_file(volume.fs(), prng, 12, 3 * kMiB);
            const uint32_t device = up_to_taking_over(volume);
            if (is_mounted_anew) {
                REQUIRE(volume.unmount().ok());
                mount(volume, discarding(DiscardMode::kOff));
            }
            CHECK(trim(volume.fs()) > 0);
            contents["later"] = random_content(prng, 3 * kMiB);
            write_file(volume.fs(), "later", contents["later"]);
            CHECK(run(volume).state == ReplaceStatus::State::kFinished);
            CHECK(is_member(volume, device));
            REQUIRE(volume.fs().step(true).ok());
            require_scrubbed(volume, contents);
            require_redundant(volume, contents, kSourceDevice);
        }
}
