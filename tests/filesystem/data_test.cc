// SPDX-License-Identifier: MIT
// File data through the whole stack on simulated members.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "format/items.h"
#include "format/node.h"
#include "fs/layout.h"
#include "tests/filesystem/check_content.h"
#include "tests/filesystem/volume_contents.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

void write_all(Filesystem& fs, InodeNumber inode, uint64_t offset, const std::vector<std::byte>& content)
{
    size_t done = 0;
    while (done < content.size()) {
        const size_t part = std::min<size_t>(content.size() - done, kMiB);
        const Result<size_t> written =
            fs.files.write(inode, offset + done, std::span(content).subspan(done, part), {}, {});
        REQUIRE_MESSAGE(written.ok(), err_text(written.err()));
        done += *written;
    }
}

std::vector<std::byte> read_all(Filesystem& fs, InodeNumber inode, uint64_t size)
{
    std::vector<std::byte> content(size);
    size_t done = 0;
    while (done < size) {
        const size_t part = std::min<size_t>(size - done, kMiB);
        const Result<size_t> got = fs.files.read(inode, done, std::span(content).subspan(done, part));
        REQUIRE_MESSAGE(got.ok(), err_text(got.err()));
        REQUIRE(*got > 0);
        done += *got;
    }
    return content;
}

InodeNumber make_file(Filesystem& fs, const char* name)
{
    const Result<Attributes> made = fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
    REQUIRE_MESSAGE(made.ok(), err_text(made.err()));
    return made->inode;
}

const VolumeShape kDataShapes[] = {
    {1, 96 * kMiB, ProfileId::kSingle, ProfileId::kSingle, 64 * 1024},
    {2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024},
    {3, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024},
    {4, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * 1024},
    {4, 160 * kMiB, ProfileId::kRaid5, ProfileId::kRaid5, 4 * 1024},
    {5, 160 * kMiB, ProfileId::kRaid6, ProfileId::kRaid6, 16 * 1024},
    {6, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 1024 * 1024},
    {5, 96 * kMiB, ProfileId::kRaid0, ProfileId::kRaid0, 16 * 1024},
    {5, 96 * kMiB, ProfileId::kRaid10, ProfileId::kRaid10, 4 * 1024},
    {5, 96 * kMiB, ProfileId::kRaid1c4, ProfileId::kRaid1c4, 64 * 1024},
};

}  // namespace

TEST_CASE("data survives unmount, for every profile")
{
    for (const VolumeShape& shape : kDataShapes) {
        CAPTURE(shape.member_count);
        CAPTURE(shape.chunk_bytes);
        CAPTURE(static_cast<uint32_t>(shape.data_profile));
        Prng prng(seed());
        SimVolume volume(shape);
        make_and_mount(volume);
        const auto big = random_content(prng, 9 * kMiB + 12345);
        const auto small = random_content(prng, 700);
        write_all(volume.fs(), make_file(volume.fs(), "big"), 0, big);
        write_all(volume.fs(), make_file(volume.fs(), "small"), 0, small);
        CHECK(same(read_all(volume.fs(), find_file(volume.fs(), "big"), big.size()), big));
        REQUIRE(volume.unmount().ok());
        mount(volume, manual_options());
        CHECK(same(read_all(volume.fs(), find_file(volume.fs(), "big"), big.size()), big));
        CHECK(same(read_all(volume.fs(), find_file(volume.fs(), "small"), small.size()), small));
        for (const MemberInfo& member : volume.fs().info().members)
            for (const uint64_t counter : member.counters)
                CHECK(counter == 0);
    }
}

TEST_CASE("random writes, truncates and holes equal a byte array")
{
    Prng prng(seed());
    SimVolume volume({4, 128 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 16 * 1024});
    make_and_mount(volume);
    InodeNumber inode = make_file(volume.fs(), "f");
    std::vector<std::byte> model;
    for (int step = 0; step < 600; ++step) {
        CAPTURE(step);
        const uint64_t kind = prng.below(12);
        if (kind < 7) {
            const uint64_t offset = prng.below(2 * kMiB);
            const auto data = random_content(prng, 1 + prng.below(prng.chance(1, 4) ? 300000 : 9000));
            write_all(volume.fs(), inode, offset, data);
            model.resize(std::max<size_t>(model.size(), offset + data.size()));
            std::memcpy(model.data() + offset, data.data(), data.size());
        } else if (kind == 7) {
            SetAttributes change;
            change.size_bytes = prng.below(2 * kMiB);
            REQUIRE(volume.fs().names.set_attributes(inode, change, {}).ok());
            model.resize(*change.size_bytes);
        } else if (kind == 8) {
            const uint64_t offset = prng.below(2 * kMiB);
            const uint64_t length = 1 + prng.below(100000);
            REQUIRE(
                volume.fs()
                    .files.allocate_range(inode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length)
                    .ok());
            if (offset < model.size())
                std::memset(model.data() + offset, 0, std::min<size_t>(length, model.size() - offset));
        } else if (kind == 9) {
            const uint64_t offset = prng.below(2 * kMiB);
            const uint64_t length = 1 + prng.below(100000);
            REQUIRE(volume.fs().files.allocate_range(inode, 0, offset, length).ok());
            model.resize(std::max<size_t>(model.size(), offset + length));
        } else if (kind == 10) {
            REQUIRE(volume.fs().step(prng.chance(1, 2)).ok());
        } else {
            REQUIRE(volume.unmount().ok());
            mount(volume, manual_options());
            inode = find_file(volume.fs(), "f");
        }
        REQUIRE(volume.fs().names.get_attributes(inode)->size_bytes == model.size());
        if (step % 20 == 0)
            REQUIRE(same(read_all(volume.fs(), inode, model.size()), model));
    }
    REQUIRE(same(read_all(volume.fs(), inode, model.size()), model));
}

TEST_CASE("degraded: every loss within tolerance reads everything back")
{
    for (const VolumeShape& shape : kDataShapes) {
        if (shape.member_count < 3)
            continue;
        CAPTURE(shape.member_count);
        CAPTURE(static_cast<uint32_t>(shape.data_profile));
        Prng prng(seed());
        SimVolume volume(shape);
        make_and_mount(volume);
        const auto big = random_content(prng, 5 * kMiB + 777);
        write_all(volume.fs(), make_file(volume.fs(), "big"), 0, big);
        REQUIRE(volume.unmount().ok());
        MountOptions options = manual_options();
        options.read_only = true;
        options.degraded = true;
        const uint32_t tolerance = find_profile(shape.data_profile)->tolerance;
        for (uint32_t a = 0; tolerance > 0 && a < shape.member_count; ++a)
            for (uint32_t b = a; b < (tolerance > 1 ? shape.member_count : a + 1); ++b) {
                CAPTURE(a);
                CAPTURE(b);
                mount(volume, options, {a, b});
                CHECK(same(read_all(volume.fs(), find_file(volume.fs(), "big"), big.size()), big));
                volume.kill();
            }
    }
}

TEST_CASE("raid10: a second lost member stops it; one member of every pair has everything")
{
    Prng prng(seed());
    SimVolume volume({6, 96 * kMiB, ProfileId::kRaid10, ProfileId::kRaid10, 16 * 1024});
    make_and_mount(volume);
    const auto big = random_content(prng, 70 * kMiB);
    write_all(volume.fs(), make_file(volume.fs(), "big"), 0, big);
    REQUIRE(volume.fs().step(true).ok());
    const VolumeLayout layout = volume_layout(volume.fs(), {}, Occupancy::kStripes, UINT64_MAX);
    CHECK(layout.groups.size() > 2);
    for (const LayoutGroup& group : layout.groups)
        CHECK(std::accumulate(group.used_by_part.begin(), group.used_by_part.end(), uint64_t{0}) ==
              group.used_bytes);
    REQUIRE(volume.unmount().ok());
    MountOptions options = manual_options();
    options.read_only = options.degraded = true;
    std::string why;
    CHECK_FALSE(volume.mount(options, why, {0, 3}).ok());
    CHECK(why.find("more than raid10 tolerates") != std::string::npos);
    options.rescue = true;
    for (uint32_t choice = 0; choice < 8; ++choice) {
        CAPTURE(choice);
        mount(volume, options, {choice & 1, 2 + (choice >> 1 & 1), 4 + (choice >> 2 & 1)});
        CHECK(same(read_all(volume.fs(), find_file(volume.fs(), "big"), big.size()), big));
        volume.kill();
    }
}

TEST_CASE("a power cut loses nothing that sync acknowledged")
{
    for (const VolumeShape& shape : kDataShapes) {
        Prng prng(seed() + shape.member_count);
        SimVolume volume(shape);
        make_and_mount(volume);
        InodeNumber inode = make_file(volume.fs(), "f");
        std::vector<std::byte> synced;
        for (int round = 0; round < 12; ++round) {
            CAPTURE(round);
            auto content = random_content(prng, 1 + prng.below(500000));
            write_all(volume.fs(), inode, synced.size(), content);
            synced.insert(synced.end(), content.begin(), content.end());
            REQUIRE(volume.fs().committer.sync().ok());
            write_all(volume.fs(), inode, synced.size(), random_content(prng, 100000));
            if (prng.chance(1, 2))
                REQUIRE(volume.fs().step(false).ok());
            volume.power_cut(prng);
            mount(volume, manual_options());
            inode = find_file(volume.fs(), "f");
            REQUIRE(same(read_all(volume.fs(), inode, synced.size()), synced));
            SetAttributes change;
            change.size_bytes = synced.size();
            REQUIRE(volume.fs().names.set_attributes(inode, change, {}).ok());
        }
    }
}

TEST_CASE("a member that was absent takes part again, and nothing it holds is old")
{
    Prng prng(seed());
    SimVolume volume({4, 160 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    const auto first = random_content(prng, 3 * kMiB);
    write_all(volume.fs(), make_file(volume.fs(), "first"), 0, first);
    REQUIRE(volume.unmount().ok());

    std::string why;
    CHECK_FALSE(volume.mount(manual_options(), why, {1}).ok());
    CHECK(why.find("degraded") != std::string::npos);
    MountOptions degraded = manual_options();
    degraded.degraded = true;
    mount(volume, degraded, {1});
    CHECK_FALSE(volume.fs().info().read_only);
    const auto second = random_content(prng, 2 * kMiB);
    write_all(volume.fs(), make_file(volume.fs(), "second"), 0, second);
    REQUIRE(volume.unmount().ok());

    mount(volume, manual_options());
    CHECK_FALSE(volume.fs().info().degraded);
    CHECK(same(read_all(volume.fs(), find_file(volume.fs(), "first"), first.size()), first));
    const auto third = random_content(prng, 2 * kMiB);
    write_all(volume.fs(), make_file(volume.fs(), "third"), 0, third);
    REQUIRE(volume.unmount().ok());

    // Each other member may now be lost: the returned one must carry its share.
    for (uint32_t lost = 0; lost < 4; ++lost) {
        mount(volume, degraded, {lost});
        CHECK(same(read_all(volume.fs(), find_file(volume.fs(), "first"), first.size()), first));
        CHECK(same(read_all(volume.fs(), find_file(volume.fs(), "second"), second.size()), second));
        CHECK(same(read_all(volume.fs(), find_file(volume.fs(), "third"), third.size()), third));
        for (const MemberInfo& member : volume.fs().info().members)
            for (const uint64_t counter : member.counters)
                CHECK(counter == 0);
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("both halves written on their own are refused together")
{
    SimVolume volume({4, 160 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * 1024});
    make_and_mount(volume);
    REQUIRE(volume.unmount().ok());
    MountOptions degraded = manual_options();
    degraded.degraded = true;
    // Half of the members never write.
    mount(volume, degraded, {0, 1});
    CHECK(volume.fs().info().read_only);
    CHECK(volume.fs().names.make_node(kRoot, "x", S_IFREG | 0644, 0, {}).err() == Err::kReadOnly);
    volume.kill();
}

TEST_CASE("a full volume says so, keeps what it has, and can be emptied")
{
    Prng prng(seed());
    SimVolume volume({4, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * 1024});
    make_and_mount(volume);
    std::vector<std::vector<std::byte>> contents;
    Err err = Err::kOk;
    while (err == Err::kOk) {
        contents.push_back(random_content(prng, 700000));
        const std::string name = "f" + std::to_string(contents.size());
        const Result<Attributes> made = volume.fs().names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        err = volume.fs().files.write(made->inode, 0, contents.back(), {}, {}).err();
        REQUIRE(contents.size() < 1000);
    }
    CHECK(err == Err::kNoSpace);
    CHECK(contents.size() > 30);
    contents.pop_back();
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    for (size_t i = 0; i < contents.size(); ++i) {
        const std::string name = "f" + std::to_string(i + 1);
        REQUIRE(same(read_all(volume.fs(), find_file(volume.fs(), name.c_str()), contents[i].size()),
                     contents[i]));
        const Result<Attributes> found = volume.fs().names.lookup(kRoot, name);
        REQUIRE(volume.fs().names.unlink(kRoot, name).ok());
        volume.fs().names.forget(found->inode, 2);
    }
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE(volume.fs().step(true).ok());
    write_all(volume.fs(), make_file(volume.fs(), "again"), 0, random_content(prng, 20 * kMiB));
    REQUIRE(volume.unmount().ok());
}

namespace {

// Rots block `block` of every node that lies on the member. Returns how many there are.
uint64_t rot_nodes(SimDevice& member, uint32_t block)
{
    uint64_t rotten = 0;
    for (uint64_t at = 0; at < member.size_bytes(); at += kBlockBytes) {
        std::byte head[16];
        member.peek(at, head);
        le64 magic;
        static_assert(offsetof(DiskNodeHeader, magic) == 0);
        std::memcpy(&magic, head, sizeof magic);
        if (magic != kNodeMagic)
            continue;
        const uint64_t rotten_block = at + uint64_t{block} * kBlockBytes;
        member.peek(rotten_block, head);
        head[0] ^= std::byte{1};
        member.poke(rotten_block, std::span(head).first(1));
        ++rotten;
    }
    return rotten;
}

}  // namespace

TEST_CASE("nodes that rotted in another block on every member are read, and what rotted is found by check")
{
    const VolumeShape shapes[] = {
        {},
        {3, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB},
        {4, 160 * kMiB, ProfileId::kRaid5, ProfileId::kRaid5, 16 * kKiB},
        {5, 160 * kMiB, ProfileId::kRaid6, ProfileId::kRaid6, 16 * kKiB},
    };
    for (const VolumeShape& shape : shapes) {
        SimVolume volume(shape);
        std::string why;
        REQUIRE(volume.make(why).ok());
        REQUIRE(volume.mount(manual_options(), why).ok());
        Caller root;
        for (int i = 0; i < 40; ++i)
            REQUIRE(
                volume.fs().names.make_node(kRoot, "file" + std::to_string(i), S_IFREG | 0644, 0, root).ok());
        REQUIRE(volume.unmount().ok());

        // Member i: block i of each node. No copy of a node is whole; under parity no row has two bad blocks.
        uint64_t rotten = 0;
        for (uint32_t i = 0; i < std::min(volume.member_count(), kNodeBlocks); ++i)
            rotten += rot_nodes(volume.member(i), kNodeBlocks - 1 - i);
        REQUIRE(rotten > 0);
        CheckReport report;
        REQUIRE(volume.check(report, why).ok());
        CHECK_FALSE(report.clean());
        for (const CheckFinding& finding : report.findings)
            CHECK(finding.repairable);
        REQUIRE(volume.mount(manual_options(), why).ok());
        for (int i = 0; i < 40; ++i)
            CHECK(volume.fs().names.lookup(kRoot, "file" + std::to_string(i)).ok());
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("rows that lost too much to be joined stop nobody while others are free")
{
    constexpr uint64_t kChunkBlocks = 16;
    constexpr uint64_t kBlocks = 2048;
    SimVolume volume({3, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBlocks * kBlockBytes});
    make_and_mount(volume);
    // Of two data columns one stays, the other is holes.
    const InodeNumber old = make_file(volume.fs(), "old");
    constexpr uint64_t kTag = 0x5ca1ab1e0ddba11;
    std::vector<std::byte> content(kBlocks * kBlockBytes);
    for (uint64_t block = 0; block < kBlocks; ++block)
        std::memcpy(content.data() + block * kBlockBytes, &kTag, sizeof kTag);
    write_all(volume.fs(), old, 0, content);
    REQUIRE(volume.fs().step(true).ok());
    for (uint64_t block = kChunkBlocks; block < kBlocks; block += 2 * kChunkBlocks)
        REQUIRE(volume.fs()
                    .files
                    .allocate_range(old, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block * kBlockBytes,
                                    kChunkBlocks * kBlockBytes)
                    .ok());
    REQUIRE(volume.unmount().ok());
    uint64_t rotten = 0;
    for (uint32_t index = 0; index < volume.member_count(); ++index)
        for (uint64_t at = 0; at < volume.member(index).size_bytes(); at += kBlockBytes) {
            uint64_t tag;
            volume.member(index).peek(at, std::as_writable_bytes(std::span(&tag, 1)));
            if (tag == kTag) {
                tag = 0;
                volume.member(index).poke(at, std::as_bytes(std::span(&tag, 1)));
                ++rotten;
            }
        }
    REQUIRE(rotten >= kBlocks);
    MountOptions options = manual_options();
    options.join_above = 0;
    mount(volume, options);
    Prng prng(1);
    const std::vector<std::byte> fresh = random_content(prng, 17 * kBlockBytes);
    write_all(volume.fs(), make_file(volume.fs(), "first"), 0, fresh);
    REQUIRE(volume.fs().step(true).ok());  // makes the log ready
    const InodeNumber file = make_file(volume.fs(), "new");
    write_all(volume.fs(), file, 0, fresh);
    REQUIRE(volume.fs().step(true).ok());
    CHECK(volume.fs().info().joined_blocks > 0);  // it was tried
    CHECK(same(read_all(volume.fs(), file, fresh.size()), fresh));
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    CHECK(same(read_all(volume.fs(), find_file(volume.fs(), "new"), fresh.size()), fresh));
}

TEST_CASE("data: a stripe wider than the longest extent")
{
    SimVolume volume({134, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, kMaxChunkBytes});
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    MountOptions options = manual_options();
    options.dirty_bytes_max = 512 * kMiB;  // one flush takes it all
    mount(volume, options);
    Prng prng(3);
    const std::vector<std::byte> content = random_content(prng, 133 * kMiB);
    const InodeNumber file = make_file(volume.fs(), "wide");
    write_all(volume.fs(), file, 0, content);
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    CHECK(same(read_all(volume.fs(), find_file(volume.fs(), "wide"), content.size()), content));
    REQUIRE(volume.unmount().ok());
}

namespace {

// Buffers of dirty data, and how many blocks of them were in memory beyond those that count as dirty while
// members were written.
struct HeldBuffers {
    const Ledger& ledger;
    std::vector<Ref<SharedBuffer>> buffers;
    uint64_t beyond = 0;
    uint64_t dirty_min = UINT64_MAX;  // but for 0

    static void look(void* self, uint64_t)
    {
        HeldBuffers& held = *static_cast<HeldBuffers*>(self);
        const uint64_t dirty = held.ledger.dirty_blocks();
        uint64_t blocks = 0;
        for (const Ref<SharedBuffer>& buffer : held.buffers)
            if (buffer->reference_count() > 1)
                blocks += buffer->buffer.size() / kBlockBytes;
        held.beyond = std::max(held.beyond, blocks - std::min(blocks, dirty));
        if (dirty > 0)
            held.dirty_min = std::min(held.dirty_min, dirty);
    }
};

}  // namespace

TEST_CASE("data: a flush lets go of what is recorded before it goes on")
{
    constexpr uint64_t kBytes = 72 * kMiB;
    SimVolume volume({4, 192 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(4);
    const InodeNumber file = make_file(fs, "file");
    const std::vector<std::byte> content = random_content(prng, kBytes);
    write_all(fs, file, 0, content);
    HeldBuffers held{fs.store.ledger, {}};
    {
        const Result<Ref<Inode>> inode = fs.files.inodes.get(file);
        REQUIRE(inode.ok());
        MutexLock lock((*inode)->mutex);
        for (const auto& [first, extent] : (*inode)->dirty.extents())
            held.buffers.push_back(extent.buffer);
    }
    REQUIRE(held.buffers.size() == kBytes / kMiB);
    volume.set_slow_hook({HeldBuffers::look, &held});
    for (uint32_t index = 0; index < volume.member_count(); ++index)
        volume.cable(index).add_rule(
            {.action = FaultAction::kSlow, .kinds = kFaultWrites, .delay_microseconds = 1});
    REQUIRE(fs.step(false).ok());
    volume.set_slow_hook({});
    CHECK(held.dirty_min < kBytes / kBlockBytes / 2);
    CHECK(held.beyond <= kMiB / kBlockBytes);  // of which a part is written
    CHECK(read_all(fs, file, kBytes) == content);
    REQUIRE(volume.unmount().ok());
}

TEST_CASE("inodes that only their dirty data keeps in memory leave it when that is stored")
{
    for (const bool commit : {false, true}) {
        SimVolume volume({4, 128 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 16 * 1024});
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        Prng prng(3);
        REQUIRE(fs.step(true).ok());
        const size_t before = fs.files.inodes.size();
        constexpr size_t kFiles = 20;
        std::vector<InodeNumber> files;
        for (size_t index = 0; index < kFiles; ++index) {
            files.push_back(make_file(fs, ("file" + std::to_string(index)).c_str()));
            write_all(fs, files.back(), 0, random_content(prng, 5000));
            fs.names.forget(files.back(), 1);
        }
        CHECK(fs.files.inodes.size() >= before + kFiles);
        REQUIRE(fs.step(commit).ok());
        CHECK(fs.files.inodes.size() <= before + 1);  // the root
        for (const InodeNumber file : files)
            CHECK(read_all(fs, file, 5000).size() == 5000);
    }
}

TEST_CASE("inodes with lookup references leave memory when there are too many, come back, and are deleted")
{
    SimVolume volume({4, 128 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 16 * 1024});
    std::string why;
    REQUIRE(volume.make(why).ok());
    MountOptions options = manual_options();
    options.idle_inodes_max = 64;
    mount(volume, options);
    Filesystem& fs = volume.fs();
    constexpr size_t kFiles = 2000;
    const Result<Attributes> unnamed = fs.names.make_temporary(kRoot, 0600, {});
    REQUIRE(unnamed.ok());
    std::vector<InodeNumber> files;
    for (size_t index = 0; index < kFiles; ++index) {
        files.push_back(make_file(fs, ("file" + std::to_string(index)).c_str()));
        SetAttributes owner;
        owner.uid = static_cast<uint32_t>(index);
        REQUIRE(fs.names.set_attributes(files.back(), owner, {}).ok());
    }
    REQUIRE(fs.step(true).ok());
    CHECK(fs.files.inodes.size() < 400);
    for (size_t index = 0; index < kFiles; ++index)
        CHECK(fs.names.get_attributes(files[index])->uid == index);
    CHECK(fs.files.inodes.size() < 400);
    // What was made without a name can still get one.
    REQUIRE(fs.names.link(unnamed->inode, kRoot, "named").ok());
    fs.names.forget(unnamed->inode, 2);
    REQUIRE(fs.names.unlink(kRoot, "named").ok());
    // Without names they stay until the last reference is given back, also of those that are not in memory.
    for (size_t index = 0; index < kFiles; ++index)
        REQUIRE(fs.names.unlink(kRoot, "file" + std::to_string(index)).ok());
    REQUIRE(fs.step(true).ok());
    CHECK(fs.names.get_attributes(files[7])->link_count == 0);
    CHECK(fs.statistics().inode_count == kFiles + 1);
    for (const InodeNumber file : files)
        CHECK(fs.names.forget(file, 1));
    REQUIRE(fs.step(true).ok());
    CHECK(fs.statistics().inode_count == 1);
    CHECK(fs.names.get_attributes(files[7]).err() == Err::kStale);
    CHECK(fs.files.inodes.size() <= 1);
}

namespace {

// Which blocks of a file have data, and how long it is.
struct SparseModel {
    std::vector<bool> data;
    uint64_t size = 0;

    [[nodiscard]] uint64_t seek(uint64_t offset, bool wanted) const
    {
        for (uint64_t block = offset / kBlockBytes; block * kBlockBytes < size; ++block)
            if (data[block] == wanted)
                return std::max(offset, block * kBlockBytes);
        return wanted ? UINT64_MAX : size;
    }
};

void check_seeks(Filesystem& fs, InodeNumber file, const SparseModel& model, Prng& prng)
{
    for (uint64_t block = 0; block * kBlockBytes < model.size; ++block) {
        const uint64_t offset = std::min(model.size - 1, block * kBlockBytes + prng.below(3) * 2047);
        const auto data = fs.files.seek(file, offset, Files::Seek::kData);
        const uint64_t expected = model.seek(offset, true);
        if (expected == UINT64_MAX)
            REQUIRE(data.err() == Err::kNotFound);
        else
            REQUIRE((data.ok() && *data == expected));
        const auto hole = fs.files.seek(file, offset, Files::Seek::kHole);
        REQUIRE((hole.ok() && *hole == model.seek(offset, false)));
    }
    for (const uint64_t behind : {model.size, model.size + 1, uint64_t{INT64_MAX}}) {
        CHECK(fs.files.seek(file, behind, Files::Seek::kData).err() == Err::kNotFound);
        CHECK(fs.files.seek(file, behind, Files::Seek::kHole).err() == Err::kNotFound);
    }
}

}  // namespace

TEST_CASE("data: where a file has data and holes, in memory, flushed and committed")
{
    SimVolume volume({4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const InodeNumber file = make_file(fs, "sparse");
    constexpr uint64_t kBlocks = 300;
    SparseModel model{std::vector<bool>(kBlocks), 0};
    for (int step = 0; step < 400; ++step) {
        const uint64_t first = prng.below(kBlocks),
                       count = 1 + prng.below(std::min<uint64_t>(kBlocks - first, 20));
        const uint64_t offset = first * kBlockBytes, bytes = count * kBlockBytes;
        switch (prng.below(5)) {
        case 0:
        case 1:
            write_all(fs, file, offset, random_content(prng, bytes - prng.below(4000)));
            std::fill_n(model.data.begin() + static_cast<ptrdiff_t>(first), count, true);
            break;
        case 2:
            REQUIRE(fs.files.allocate_range(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes)
                        .ok());
            std::fill_n(model.data.begin() + static_cast<ptrdiff_t>(first), count, false);
            break;
        case 3:
            REQUIRE(fs.files.allocate_range(file, 0, offset, bytes).ok());
            break;
        default: {
            SetAttributes change;
            change.size_bytes = offset + prng.below(kBlockBytes);
            REQUIRE(fs.names.set_attributes(file, change, {}).ok());
            std::fill(model.data.begin() + static_cast<ptrdiff_t>(divide_up(*change.size_bytes, kBlockBytes)),
                      model.data.end(), false);
            break;
        }
        }
        if (prng.chance(1, 4))
            REQUIRE(fs.step(prng.chance(1, 2)).ok());
        model.size = fs.names.get_attributes(file)->size_bytes;
        check_seeks(fs, file, model, prng);
    }
}

TEST_CASE("data: a seek over many extents takes steps of a few hundred")
{
    SimVolume volume({4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    constexpr uint64_t kBlocks = 2000;
    // Stored extents of one block each.
    const InodeNumber file = make_file(fs, "pieces");
    write_all(fs, file, 0, random_content(prng, kBlocks * kBlockBytes));
    REQUIRE(fs.step(true).ok());
    for (uint64_t block = 0; block < kBlocks; block += 2)
        write_all(fs, file, block * kBlockBytes, random_content(prng, kBlockBytes));
    const auto steps_to = [&](InodeNumber inode, Files::Seek what, uint64_t expected) {
        const auto seek = fs.files.begin_seek(inode, 1, what);
        REQUIRE(seek.ok());
        uint64_t steps = 1;
        Result<Progress> progress = (*seek)->step();
        for (; progress.ok() && *progress == Progress::kMore; ++steps)
            progress = (*seek)->step();
        if (expected == UINT64_MAX)
            CHECK(progress.err() == Err::kNotFound);
        else
            CHECK((progress.ok() && (*seek)->offset() == expected));
        return steps;
    };
    CHECK(steps_to(file, Files::Seek::kHole, kBlocks * kBlockBytes) <= 2);  // few stored extents have all
    REQUIRE(fs.step(true).ok());
    CHECK(steps_to(file, Files::Seek::kHole, kBlocks * kBlockBytes) == 8);
    CHECK(steps_to(file, Files::Seek::kData, 1) == 1);
    // Reserved extents hold nothing.
    const InodeNumber reserved = make_file(fs, "reserved");
    for (uint64_t block = 0; block < kBlocks; block += 2)
        REQUIRE(fs.files.allocate_range(reserved, 0, block * kBlockBytes, kBlockBytes).ok());
    CHECK(steps_to(reserved, Files::Seek::kData, UINT64_MAX) == 4);
    write_all(fs, reserved, kBlocks * kBlockBytes, random_content(prng, 100));
    CHECK(steps_to(reserved, Files::Seek::kData, kBlocks * kBlockBytes) == 4);
    CHECK(steps_to(reserved, Files::Seek::kHole, 1) == 1);
}

namespace {

constexpr uint64_t kRuns = 700;  // of one block each: three pieces
constexpr uint64_t kOldBytes = (2 * kRuns - 1) * kBlockBytes, kNewBytes = 100;

struct CutFile {
    CutFile() : volume({4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024})
    {
        make_and_mount(volume, manual_options());
        Filesystem& fs = volume.fs();
        file = fs.names.make_node(kRoot, "file", S_IFREG | 0644, 0, {})->inode;
        const std::vector<std::byte> block(kBlockBytes, std::byte{7});
        for (uint64_t run = 0; run < kRuns; ++run)
            REQUIRE(fs.files.write(file, 2 * run * kBlockBytes, block, {}, {}).ok());
        REQUIRE(fs.step(true).ok());
        SetAttributes smaller;
        smaller.size_bytes = kNewBytes;
        auto change = fs.names.begin_set_attributes(file, smaller, {});
        REQUIRE(change.ok());
        // Its size is the old one or the new one.
        for (uint64_t size = kOldBytes; size != kNewBytes;) {
            const Result<Progress> progress = (*change)->step();
            REQUIRE(progress.ok());
            REQUIRE(*progress == Progress::kMore);
            size = fs.names.get_attributes(file)->size_bytes;
            REQUIRE((size == kOldBytes || size == kNewBytes));
        }
        REQUIRE(fs.names.get_attributes(file)->block_count_512 > kRuns);
        REQUIRE(fs.step(true).ok());
    }

    void expect_zeros(Filesystem& fs)
    {
        std::vector<std::byte> got(kOldBytes);
        REQUIRE(*fs.files.read(file, 0, got) == got.size());
        const auto behind = got.begin() + kNewBytes;
        CHECK(std::all_of(got.begin(), behind, [](std::byte b) { return b == std::byte{7}; }));
        CHECK(std::all_of(behind, got.end(), [](std::byte b) { return b == std::byte{0}; }));
    }

    SimVolume volume;
    InodeNumber file;
};

}  // namespace

TEST_CASE("cut: a crash in the middle leaves the new size, and the next mount goes on")
{
    CutFile cut;
    Image image = Image::copy_of(cut.volume);
    REQUIRE_CLEAN(image.check());
    {
        const std::unique_ptr<Filesystem> fs = image.open_core();
        const Result<Attributes> before = fs->names.lookup(kRoot, "file");
        REQUIRE(fs->step(true).ok());
        const Result<Attributes> now = fs->names.get_attributes(cut.file);
        CHECK((before->size_bytes == kNewBytes && now->size_bytes == kNewBytes));
        CHECK(now->block_count_512 <= 8);
        CHECK(now->changed.tv_nsec == before->changed.tv_nsec);
        SetAttributes longer;
        longer.size_bytes = kOldBytes;
        REQUIRE(fs->names.set_attributes(cut.file, longer, {}).ok());
        cut.expect_zeros(*fs);
        REQUIRE(fs->close().ok());
    }
    REQUIRE_CLEAN(image.check());
}

TEST_CASE("cut: who makes the file longer ends it first")
{
    SetAttributes longer;
    longer.size_bytes = kOldBytes;
    const std::byte one{7};
    for (int way = 0; way < 3; ++way) {
        CutFile cut;
        Filesystem& fs = cut.volume.fs();
        if (way == 1)
            REQUIRE(fs.files.write(cut.file, kNewBytes - 1, {&one, 1}, {}, {}).ok());
        if (way == 2)
            REQUIRE(fs.files.allocate_range(cut.file, 0, 0, kOldBytes, {}).ok());
        CHECK((fs.names.get_attributes(cut.file)->block_count_512 == kOldBytes / 512 || way != 2));
        REQUIRE(fs.names.set_attributes(cut.file, longer, {}).ok());
        REQUIRE(fs.step(way == 2).ok());
        cut.expect_zeros(fs);
        REQUIRE(cut.volume.unmount().ok());
        REQUIRE_CLEAN(Image::copy_of(cut.volume).check());
    }
}

TEST_CASE("cut: the file may lose its name, and get another one")
{
    for (const bool removes : {false, true}) {
        CutFile cut;
        Filesystem& fs = cut.volume.fs();
        REQUIRE(fs.names.link(cut.file, kRoot, "other").ok());
        REQUIRE(fs.names.unlink(kRoot, "file").ok());
        if (removes)
            REQUIRE(fs.names.unlink(kRoot, "other").ok());
        REQUIRE(fs.step(true).ok());
        REQUIRE(cut.volume.unmount().ok());
        Image image = Image::copy_of(cut.volume);
        REQUIRE_CLEAN(image.check());
        const std::unique_ptr<Filesystem> again = image.open_core();
        REQUIRE(again->step(true).ok());
        const Result<Attributes> found = again->names.lookup(kRoot, "other");
        CHECK(found.ok() == !removes);
        CHECK((removes || found->block_count_512 <= 8));
        REQUIRE(again->close().ok());
        REQUIRE_CLEAN(image.check());
    }
}
