// SPDX-License-Identifier: MIT
// The offline check: silent about sound volumes, exact about damage on members.
#include <sys/stat.h>

#include <cstring>
#include <set>

#include "btree/check.h"
#include "sim/fault_device.h"
#include "tests/filesystem/check_content.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

// Reads only: anything else is counted and fails.
class ReadOnlyDevice final : public BlockDevice {
public:
    ReadOnlyDevice(BlockDevice& device, uint64_t& refused) : device_(device), refused_(refused) { }
    [[nodiscard]] uint64_t size_bytes() const override { return device_.size_bytes(); }
    [[nodiscard]] const char* name() const override { return device_.name(); }
    void perform(IoRequest& request) override
    {
        if (request.kind != IoKind::kRead) {
            ++refused_;
            request.result = Err::kIo;
            return;
        }
        request.device = &device_;
        device_.perform(request);
        request.device = this;
    }

private:
    BlockDevice& device_;
    uint64_t& refused_;
};

}  // namespace

TEST_CASE("a sound volume is clean, for every profile")
{
    for (const VolumeShape& shape : kCheckedShapes) {
        CAPTURE(shape.member_count);
        CAPTURE(shape.chunk_bytes);
        SimVolume volume(shape);
        make_and_mount(volume);
        Filler filler(volume);
        filler.run();
        const uint64_t inode_count = volume.fs().statistics().inode_count;
        REQUIRE(volume.unmount().ok());
        Image image = Image::copy_of(volume);
        const CheckReport report = image.check();
        REQUIRE_CLEAN(report);
        CHECK(report.inodes == inode_count);
        CHECK(report.inodes == filler.inodes);
        CHECK(report.directories == filler.directories);
        CHECK(report.files == filler.files);
        CHECK(report.nodes >= 5);
        CHECK(report.data_blocks > 2 * kMiB / kBlockBytes);
        CHECK(report.checksums_verified >= report.data_blocks);
        CHECK((report.parity_rows_verified > 0) == (shape.data_profile >= ProfileId::kRaid5));
        CheckOptions trees;
        trees.verify_data = false;
        const CheckReport quick = image.check(trees);
        REQUIRE_CLEAN(quick);
        CHECK(quick.nodes == report.nodes);
        CHECK(quick.checksums_verified == 0);
    }
}

TEST_CASE("new and crashed volumes are clean after a mount")
{
    SimVolume volume(kCheckedRaid6);
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    REQUIRE_CLEAN(Image::copy_of(volume).check());
    Prng prng(seed());
    for (int round = 0; round < 4; ++round) {
        REQUIRE_MESSAGE(volume.mount(manual_options(), why).ok(), why);
        const std::string name = "round" + std::to_string(round);
        const Result<Attributes> file = volume.fs().names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        REQUIRE(file.ok());
        for (int step = 0; step < 6; ++step) {
            const std::vector<std::byte> content(1 + prng.below(400000), std::byte{7});
            REQUIRE(volume.fs().files.write(file->inode, prng.below(kMiB), content, {}, {}).ok());
            REQUIRE(volume.fs().step(step % 3 == 0).ok());
        }
        volume.power_cut(prng);
        REQUIRE_MESSAGE(volume.mount(manual_options(), why).ok(), why);
        REQUIRE(volume.unmount().ok());
        REQUIRE_CLEAN(Image::copy_of(volume).check());
    }
}

TEST_CASE("a removed file gives its promised blocks back")
{
    SimVolume volume(kCheckedRaid6);
    make_and_mount(volume);
    const Result<Attributes> file = volume.fs().names.make_node(kRoot, "f", S_IFREG | 0644, 0, {});
    REQUIRE(file.ok());
    REQUIRE(volume.fs().files.allocate_range(file->inode, 0, 0, kMiB).ok());
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE(volume.fs().names.unlink(kRoot, "f").ok());
    volume.fs().names.forget(file->inode, 1);
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("a full volume is clean")
{
    for (const VolumeShape& shape : kCheckedShapes) {
        CAPTURE(shape.member_count);
        SimVolume volume(shape);
        make_and_mount(volume);
        const Result<Attributes> file = volume.fs().names.make_node(kRoot, "f", S_IFREG | 0644, 0, {});
        REQUIRE(file.ok());
        const std::vector<std::byte> piece(kMiB, std::byte{9});
        uint64_t offset = 0;
        while (true) {
            const Result<size_t> written = volume.fs().files.write(file->inode, offset, piece, {}, {});
            if (!written.ok()) {
                CHECK(written.err() == Err::kNoSpace);
                break;
            }
            offset += *written;
        }
        CHECK(offset > 8 * kMiB);
        REQUIRE(volume.unmount().ok());
        REQUIRE_CLEAN(Image::copy_of(volume).check());
    }
}

TEST_CASE("nothing is written")
{
    Image image = raid6_image();
    image.rot(stored_extents(image).front().address);
    uint64_t refused = 0;
    std::vector<std::unique_ptr<BlockDevice>> devices;
    for (uint32_t i = 0; i < image.member_count(); ++i)
        devices.push_back(std::make_unique<ReadOnlyDevice>(image.member(i), refused));
    const CheckReport report = image.check_devices(std::move(devices));
    CHECK(report.findings.size() == 1);
    CHECK(refused == 0);
    CHECK(image.check().findings.size() == 1);
}

TEST_CASE("rot in a data block and in parity blocks")
{
    for (const VolumeShape& shape : kCheckedShapes) {
        CAPTURE(shape.member_count);
        CAPTURE(shape.chunk_bytes);
        Image image = filled_image(shape);
        const VolumeAddress data = stored_extents(image).front().address;
        const bool redundant = find_profile(shape.data_profile)->tolerance > 0;
        const StoredAt at = image.rot(data);
        std::vector<Expected> expected{{"checksum", data.value, at.id.value, redundant}};
        require_findings(image.check(), expected);
        if (shape.data_profile != ProfileId::kRaid6)
            continue;
        const VolumeAddress p = image.parity_of(data, 0);
        expected.push_back({"parity", p.value, image.rot(p).id.value, true});
        require_findings(image.check(), expected);
        // The third fault of a row is one too many.
        const VolumeAddress q = image.parity_of(data, 1);
        expected.push_back({"parity", q.value, image.rot(q).id.value, false});
        expected[0].repairable = expected[1].repairable = false;
        require_findings(image.check(), expected);
    }
}

TEST_CASE("a missing member is one finding and counts against every row")
{
    Image image = raid6_image();
    require_findings(image.check({}, {2}), {{"member", 0, 3, true}});
    require_findings(image.check({}, {0, 2}), {{"member", 0, 1, true}, {"member", 0, 3, true}});
    std::string why;
    CheckReport report;
    CHECK(image.try_check(report, why, {0, 1, 2}).err() == Err::kIo);
    CHECK(!why.empty());
    // A block on a member that stays.
    const FileExtent extent = stored_extents(image).front();
    const StoredAt at = image.rot(extent.address);
    const uint32_t a = (at.member + 1) % 4;
    const uint32_t b = (at.member + 2) % 4;
    require_findings(image.check({}, {a}),
                     {{"member", 0, a + 1, true}, {"checksum", extent.address.value, at.id.value, true}});
    require_findings(image.check({}, {a, b}), {{"member", 0, a + 1, true},
                                               {"member", 0, b + 1, true},
                                               {"checksum", extent.address.value, at.id.value, false}});
}

TEST_CASE("a member that was away is one finding until a mount takes it back")
{
    SimVolume volume(kCheckedRaid6);
    make_and_mount(volume);
    REQUIRE(volume.unmount().ok());
    MountOptions degraded = manual_options();
    degraded.degraded = true;
    std::string why;
    REQUIRE_MESSAGE(volume.mount(degraded, why, {2}).ok(), why);
    Filler(volume).run();
    REQUIRE(volume.unmount().ok());
    require_findings(Image::copy_of(volume).check(), {{"member", 0, 3, true}});
    require_findings(Image::copy_of(volume).check({}, {2}), {{"member", 0, 3, true}});
    REQUIRE_MESSAGE(volume.mount(degraded, why).ok(), why);
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("rot over a whole chunk is one finding")
{
    Image image = raid6_image();
    FileExtent longest = stored_extents(image).front();
    for (const FileExtent& extent : stored_extents(image))
        if (extent.block_count > longest.block_count)
            longest = extent;
    REQUIRE(longest.block_count >= 64);
    const VolumeAddress chunk{round_up(longest.address.value, kCheckedRaid6.chunk_bytes)};
    uint32_t member = 0;
    for (uint32_t block = 0; block < kCheckedRaid6.chunk_bytes / kBlockBytes; ++block)
        member = image.rot(chunk + uint64_t{block} * kBlockBytes).id.value;
    require_findings(image.check(), {{"checksum", chunk.value, member, true}});
}

TEST_CASE("rot in a block that no file owns, in a row that others use")
{
    Image image = raid6_image();
    std::set<uint64_t> used;
    for (const FileExtent& extent : stored_extents(image))
        for (uint32_t i = 0; i < extent.block_count; ++i)
            used.insert(extent.address.value + uint64_t{i} * kBlockBytes);
    // Two data columns: the other block of the row is a chunk away.
    const VolumeAddress group = image.open_volume()->array().group_at({*used.begin()})->record.address;
    VolumeAddress pad{};
    for (const uint64_t address : used) {
        const bool first_column = (address - group.value) / kCheckedRaid6.chunk_bytes % 2 == 0;
        const uint64_t other =
            first_column ? address + kCheckedRaid6.chunk_bytes : address - kCheckedRaid6.chunk_bytes;
        if (!used.contains(other) && !pad.valid())
            pad = {other};
    }
    REQUIRE(pad.valid());
    std::vector<Expected> expected{{"pad", pad.value, image.rot(pad).id.value, true}};
    require_findings(image.check(), expected);
    // More than the row tolerates; but what is in use is all there, and parity can be computed from it.
    for (uint32_t parity = 0; parity < 2; ++parity) {
        const VolumeAddress address = image.parity_of(pad, parity);
        expected.push_back({"parity", address.value, image.rot(address).id.value, true});
    }
    require_findings(image.check(), expected);
}

TEST_CASE("blocks that cannot be read")
{
    Image image = raid6_image();
    const VolumeAddress data = stored_extents(image).front().address;
    const StoredAt at = image.locate(*image.open_volume(), data);
    std::vector<std::unique_ptr<BlockDevice>> devices = image.borrow();
    auto faulty = std::make_unique<FaultDevice>(std::move(devices[at.member]), seed());
    faulty->add_rule({.action = FaultAction::kError,
                      .kinds = kFaultReads,
                      .begin = at.offset,
                      .end = at.offset + kBlockBytes});
    devices[at.member] = std::move(faulty);
    require_findings(image.check_devices(std::move(devices)), {{"checksum", data.value, at.id.value, true}});
}

TEST_CASE("what no commit refers to is not looked at")
{
    Image image = raid6_image();
    std::set<uint64_t> used;
    for (const FileExtent& extent : stored_extents(image))
        for (uint32_t i = 0; i < extent.block_count; ++i)
            used.insert(extent.address.value + uint64_t{i} * kBlockBytes);
    // A row whose data blocks are all free, but were written before: the hole punched into "big".
    const VolumeAddress group = image.open_volume()->array().group_at({*used.begin()})->record.address;
    const uint64_t chunk = kCheckedRaid6.chunk_bytes;
    uint64_t row = 0;
    for (uint64_t stripe = 0; stripe < 8 && row == 0; ++stripe)
        for (uint64_t r = 0; r < chunk / kBlockBytes && row == 0; ++r) {
            const uint64_t first = group.value + stripe * 2 * chunk + r * kBlockBytes;
            if (!used.contains(first) && !used.contains(first + chunk))
                row = first;
        }
    REQUIRE(row != 0);
    image.rot({row});
    REQUIRE_CLEAN(image.check());
}

TEST_CASE("rot in copies of nodes")
{
    Image image = raid6_image();
    const BlockRef root = image.open_volume()->superblock().root;
    const StoredAt first = image.rot(root.address, 0);
    require_findings(image.check(), {{"tree", root.address.value, first.id.value, true}});
    const VolumeAddress second_block = root.address + kBlockBytes;
    const StoredAt second = image.rot(second_block, 1);
    require_findings(image.check(), {{"tree", root.address.value, first.id.value, true},
                                     {"tree", second_block.value, second.id.value, true}});
    image.rot(root.address, 1);
    image.rot(root.address, 2);
    const CheckReport lost = image.check();
    INFO(text_of(lost));
    REQUIRE(lost.findings.size() == 1);  // and nothing that only follows from it
    CHECK(lost.findings[0].kind == "tree");
    CHECK(!lost.findings[0].repairable);
}

namespace {

// Every node of a tree, and its level.
class NodeList final : public TreeVisitor {
public:
    void node(const Node& node) override { refs.emplace_back(node.block_ref(), node.level()); }
    void item(const Key&, std::span<const std::byte>) override { }
    void problem(const std::string&) override { }
    std::vector<std::pair<BlockRef, uint32_t>> refs;
};

NodeList nodes_of(Image& image, uint64_t tree_id)
{
    Image copy = image.clone();
    const std::unique_ptr<Filesystem> core = copy.open_core();
    const Ref<const Committed> committed = core->store.timeline.view().committed;
    NodeList list;
    const TreeRoot& root = tree_id == kFirstFileTree  ? committed->file_tree
                           : tree_id == kChecksumTree ? committed->checksum_tree
                                                      : committed->free_space_tree;
    REQUIRE(check_tree(core->store.cache, root, list).ok());
    REQUIRE(!list.refs.empty());
    return list;
}

}  // namespace

TEST_CASE("a lost node is one finding, without those that only follow from it")
{
    Image sound = raid6_image();
    size_t leaf_count = 0;
    for (const uint64_t tree : {kFirstFileTree, kChecksumTree, kFreeSpaceTree})
        for (const auto& node : nodes_of(sound, tree).refs) {
            const VolumeAddress address = node.first.address;
            CAPTURE(tree);
            CAPTURE(address.value);
            leaf_count += node.second == 0;
            Image image = raid6_image();
            for (uint32_t copy = 0; copy < 3; ++copy)
                image.rot(address, copy);
            const CheckReport report = image.check();
            INFO(text_of(report));
            REQUIRE(report.findings.size() == 1);
            CHECK(report.findings[0].kind == "tree");
            CHECK(!report.findings[0].repairable);
        }
    CHECK(leaf_count >= 5);
}

TEST_CASE("rot in metadata under parity")
{
    Image image = filled_image({5, 160 * kMiB, ProfileId::kRaid6, ProfileId::kRaid6, 16 * 1024});
    const VolumeAddress node = nodes_of(image, kFirstFileTree).refs.back().first.address;
    const StoredAt at = image.rot(node);
    require_findings(image.check(), {{"tree", node.value, at.id.value, true}});
    CheckOptions trees;
    trees.verify_data = false;
    require_findings(image.check(trees), {{"tree", node.value, at.id.value, true}});
    const VolumeAddress p = image.parity_of(node, 0);
    const StoredAt parity = image.rot(p);
    require_findings(image.check(),
                     {{"tree", node.value, at.id.value, true}, {"parity", p.value, parity.id.value, true}});
}

TEST_CASE("rot in copies of the superblock and of the map")
{
    Image image = raid6_image();
    const std::unique_ptr<Volume> volume = image.open_volume();
    const Superblock& superblock = volume->superblock();
    const uint64_t slot = superblock.generation.value % kSuperblockSlotCount * kSuperblockSlotBytes;
    const std::byte rot[] = {std::byte{0xff}, std::byte{0x11}};
    image.member(1).poke(kSuperblockRingOffset[1] + slot + 600, rot);
    require_findings(image.check(), {{"superblock", 0, 2, true}});
    image.member(3).poke(superblock.members[3].map_offset[superblock.map.place] + 100, rot);
    require_findings(image.check(), {{"superblock", 0, 2, true}, {"map", 0, 4, true}});
    // The place of an older map is history.
    image.member(2).poke(superblock.members[2].map_offset[superblock.map.place ^ 1] + 100, rot);
    require_findings(image.check(), {{"superblock", 0, 2, true}, {"map", 0, 4, true}});
}
