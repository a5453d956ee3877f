// SPDX-License-Identifier: MIT
// The offline check after a crash, before the first mount: what a mount recovers is no finding, damage is.
#include <sys/stat.h>

#include <set>

#include "journal/intent_scan.h"
#include "raid56/array_state.h"
#include "tests/filesystem/check_content.h"
#include "tests/filesystem/volume_contents.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr VolumeShape kSmallLog{4,         160 * kMiB,     ProfileId::kRaid5, ProfileId::kRaid1,
                                16 * kKiB, 8 * kBlockBytes};
constexpr VolumeShape kCrashedShapes[] = {
    kSmallLog,
    {5, 160 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * kKiB},
    {5, 160 * kMiB, ProfileId::kRaid6, ProfileId::kRaid6, 16 * kKiB},
};

// Rows that live entries of the write-intent log name.
std::set<uint64_t> logged_rows(Image& image)
{
    const std::unique_ptr<Volume> volume = image.open_volume();
    IntentScan scan(volume->members(), volume->superblock());
    std::set<uint64_t> rows;
    if (volume->intent_log_live())
        for (const LoggedRow& row : scan.rows())
            rows.insert(row.row.value);
    return rows;
}

// A volume with room in rows that hold other blocks. It is written to until power fails, again and again.
class CrashedVolume {
public:
    explicit CrashedVolume(const VolumeShape& shape) : volume(shape), prng(seed() * 7919)
    {
        make_and_mount(volume);
        contents_ = fill(volume.fs(), prng, 3000000);
        REQUIRE(volume.unmount().ok());
    }
    // Mounts, and lets power fail after up to `events` writes and flushes, perhaps while the mount recovers.
    void crash(uint64_t events)
    {
        MountOptions options = degraded_options();
        options.join_above = 0;  // every write goes into such rows
        std::string why;
        volume.power().arm(1 + prng.below(events));
        if (volume.mount(options, why).ok())
            write_until_power_fails(30);
        volume.power_cut(prng);
        volume.power().turn_on();
    }
    // A member is away for a commit or two.
    void miss_writes(uint32_t member)
    {
        mount(volume, degraded_options());
        const size_t rule = volume.cable(member).add_rule({.kinds = kFaultWrites});
        write_until_power_fails(6);
        volume.unmount().ignore();
        volume.cable(member).remove_rule(rule);
    }
    void write_until_power_fails(int steps)
    {
        for (int step = 0; step < steps && volume.power().on(); ++step) {
            const auto at =
                std::next(contents_.begin(), static_cast<ptrdiff_t>(prng.below(contents_.size())));
            Filesystem& fs = volume.fs();
            const Result<Attributes> found = fs.names.lookup(kRoot, at->first);
            if (!found.ok())
                return;
            const std::vector<std::byte> bytes = random_content(prng, 1 + prng.below(30000));
            fs.files.write(found->inode, prng.below(at->second.size()), bytes, {}, {}).status().ignore();
            if (prng.chance(1, 3))
                fs.committer.fsync(found->inode, Committer::SyncWhat::kAll).ignore();
            fs.names.forget(found->inode, 1);
            if (prng.chance(1, 2))
                fs.step(prng.chance(1, 4)).ignore();
        }
    }

    SimVolume volume;
    Prng prng;

private:
    Contents contents_;
};

// A block in use whose row is among `rows`, or is not.
VolumeAddress used_block(Image& image, const std::vector<FileExtent>& extents, const std::set<uint64_t>& rows,
                         bool among)
{
    const std::unique_ptr<Volume> volume = image.open_volume();
    for (const FileExtent& extent : extents)
        for (uint32_t index = 0; index < extent.block_count; ++index) {
            const VolumeAddress block = extent.address + uint64_t{index} * kBlockBytes;
            const Ref<const ArrayGroup> group = volume->array().group_at(block);
            const BlockPlace place = place_of(group->geometry, block - group->record.address);
            if (rows.contains(address_of(*group, {place.stripe, 0, place.row}).value) == among)
                return block;
        }
    FAIL("no such block");
    return {};
}

}  // namespace

TEST_CASE("check after a power cut: a sound volume is clean before the first mount")
{
    for (const VolumeShape& shape : kCrashedShapes) {
        CAPTURE(shape.member_count);
        CrashedVolume crashed(shape);
        uint64_t logged = 0;
        for (int round = 0; round < (kSanitized ? 8 : 30); ++round) {
            CAPTURE(round);
            crashed.crash(600);
            Image image = Image::copy_of(crashed.volume);
            const CheckReport report = image.check();
            CHECK_MESSAGE(report.clean(), text_of(report));
            const size_t rows = logged_rows(image).size();
            logged += rows;
        }
        CHECK(logged > 0);
    }
}

TEST_CASE("check after a power cut: nobody is charged for what a member missed")
{
    for (const VolumeShape& shape : kCrashedShapes) {
        CAPTURE(shape.member_count);
        CrashedVolume crashed(shape);
        for (int round = 0; round < (kSanitized ? 6 : 20); ++round) {
            CAPTURE(round);
            crashed.miss_writes(round % 2);
            crashed.crash(600);
            CheckReport report = Image::copy_of(crashed.volume).check();
            // Power may have failed before a superblock calls it present.
            std::erase_if(report.findings, [](const CheckFinding& found) { return found.kind == "member"; });
            CHECK_MESSAGE(report.clean(), text_of(report));
        }
    }
}

TEST_CASE("check after a power cut: damage is found in rows that the write-intent log names, and in others")
{
    for (const VolumeShape& shape : kCrashedShapes) {
        CAPTURE(shape.member_count);
        CrashedVolume crashed(shape);
        std::set<uint64_t> rows;
        while (rows.empty()) {
            crashed.crash(200);
            Image image = Image::copy_of(crashed.volume);
            rows = logged_rows(image);
        }
        Image sound = Image::copy_of(crashed.volume);
        const std::vector<FileExtent> extents = stored_extents(sound);
        const CheckReport report = sound.check();
        CHECK(report.recovered_rows == rows.size());
        REQUIRE_CLEAN(report);
        for (const bool logged : {true, false}) {
            CAPTURE(logged);
            Image image = sound.clone();
            const VolumeAddress block = used_block(image, extents, rows, logged);
            const StoredAt at = image.rot(block);
            require_findings(image.check(), {{"checksum", block.value, at.id.value, true}});
        }
        Image image = sound.clone();
        const VolumeAddress parity = image.parity_of(used_block(image, extents, rows, false), 0);
        const StoredAt at = image.rot(parity);
        require_findings(image.check(), {{"parity", parity.value, at.id.value, true}});
    }
}

TEST_CASE("check after a crash: a superblock copy is a finding where the commit before is bad, too")
{
    CrashedVolume crashed(kSmallLog);
    mount(crashed.volume, manual_options());
    write_file(crashed.volume.fs(), "new", random_content(crashed.prng, kMiB));
    REQUIRE(crashed.volume.fs().step(true).ok());
    crashed.volume.kill();
    Image image = Image::copy_of(crashed.volume);
    const Superblock found = image.open_volume()->superblock();
    REQUIRE(!found.unmounted);
    const std::byte rot[] = {std::byte{0xff}, std::byte{0x11}};
    const auto rot_copy = [&](uint64_t generation) {
        const uint64_t slot = generation % kSuperblockSlotCount * kSuperblockSlotBytes;
        image.member(1).poke(kSuperblockRingOffset[1] + slot + 600, rot);
    };
    rot_copy(found.generation.value);  // as a power cut leaves it
    REQUIRE_CLEAN(image.check());
    rot_copy(found.generation.value - 1);
    require_findings(image.check(), {{"superblock", 0, 2, true}});
}
