// SPDX-License-Identifier: MIT
// The offline check: silent about sound volumes, exact about damaged ones.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <set>

#include "device/fault_device.h"
#include "fs/commit.h"
#include "fs/dirent.h"
#include "fs/extents.h"
#include "tests/filesystem/check_image.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr InodeNumber kRoot{kRootInode};

uint64_t seed()
{
    const char* text = getenv("COWRAID_SEED");
    return text != nullptr ? strtoull(text, nullptr, 0) : 1;
}

std::string text_of(const CheckReport& report)
{
    std::string text;
    for (const CheckFinding& finding : report.findings)
        text += finding.kind + ": " + finding.text + " (address " + std::to_string(finding.address) +
                ", member " + std::to_string(finding.member) +
                (finding.repairable ? ", repairable)\n" : ")\n");
    return text;
}

#define REQUIRE_CLEAN(report) REQUIRE_MESSAGE((report).clean(), text_of(report))

const VolumeShape kRaid6{4, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * 1024};
const VolumeShape kShapes[] = {
    kRaid6,
    {1, 96 * kMiB, ProfileId::kSingle, ProfileId::kSingle, 64 * 1024},
    {2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024},
    {3, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024},
    {4, 160 * kMiB, ProfileId::kRaid5, ProfileId::kRaid5, 4 * 1024},
    {5, 160 * kMiB, ProfileId::kRaid6, ProfileId::kRaid6, 16 * 1024},
    {6, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 1024 * 1024},
};

// Puts varied content into a volume over several commits.
class Filler {
public:
    explicit Filler(SimVolume& volume) : volume_(volume), prng_(seed()) { }

    void run();

    // What the volume holds afterwards; removed files that are still open count as inodes only.
    uint64_t inodes = 1, directories = 1, files = 0;

private:
    Filesystem& fs() { return volume_.fs(); }
    InodeNumber make(InodeNumber parent, const std::string& name, uint32_t mode, bool remembered = false);
    void write(InodeNumber inode, uint64_t offset, size_t bytes);
    void make_names();
    void make_data();
    void change_things();
    void leave_orphans();

    SimVolume& volume_;
    Prng prng_;
    InodeNumber directory_, other_directory_;
};

InodeNumber Filler::make(InodeNumber parent, const std::string& name, uint32_t mode, bool remembered)
{
    const Result<Attributes> made = fs().make_node(parent, name, mode, 0, {});
    REQUIRE_MESSAGE(made.ok(), err_text(made.err()));
    ++inodes;
    directories += S_ISDIR(mode);
    files += S_ISREG(mode);
    if (!remembered)
        fs().forget(made->inode, 1);
    return made->inode;
}

void Filler::write(InodeNumber inode, uint64_t offset, size_t bytes)
{
    std::vector<std::byte> content(bytes);
    prng_.fill(content.data(), bytes);
    const Result<size_t> written = fs().write(inode, offset, content, {}, {});
    REQUIRE_MESSAGE(written.ok(), err_text(written.err()));
    REQUIRE(*written == bytes);
}

void Filler::make_names()
{
    directory_ = make(kRoot, "directory", S_IFDIR | 0755);
    other_directory_ = make(directory_, "other", S_IFDIR | 0755);
    make(kRoot, "gone", S_IFDIR | 0755);
    REQUIRE(fs().rmdir(kRoot, "gone").ok());
    --inodes, --directories;
    for (int i = 0; i < 200; ++i) {
        const InodeNumber file = make(other_directory_, "file" + std::to_string(i), S_IFREG | 0644);
        if (i % 3 == 0)
            write(file, 0, 100 + static_cast<size_t>(i) * 70);
        if (i % 7 == 0) {
            REQUIRE(fs().link(file, directory_, "link" + std::to_string(i)).ok());
            fs().forget(file, 1);
        }
        if (i % 11 == 0)
            REQUIRE(fs().set_xattr(file, "user.number", std::as_bytes(std::span("value")), 0).ok());
    }
    const Result<Attributes> symlink = fs().make_symlink(kRoot, "symlink", "directory/other", {});
    REQUIRE(symlink.ok());
    fs().forget(symlink->inode, 1);
    ++inodes;
    make(kRoot, "fifo", S_IFIFO | 0600);
}

void Filler::make_data()
{
    const InodeNumber big = make(kRoot, "big", S_IFREG | 0644);
    for (int piece = 0; piece < 3; ++piece)
        write(big, static_cast<uint64_t>(piece) * kMiB, kMiB);
    const InodeNumber sparse = make(kRoot, "sparse", S_IFREG | 0644);
    for (int i = 0; i < 30; ++i)
        write(sparse, prng_.below(40 * kMiB), 1 + prng_.below(20000));
    const InodeNumber promised = make(kRoot, "promised", S_IFREG | 0644);
    REQUIRE(fs().allocate_range(promised, 0, 0, 2 * kMiB).ok());
    REQUIRE(fs().allocate_range(promised, FALLOC_FL_KEEP_SIZE, 3 * kMiB, 100000).ok());
    write(promised, 500000, 300000);
}

void Filler::change_things()
{
    REQUIRE(fs().rename(other_directory_, "file1", kRoot, "moved", 0).ok());
    REQUIRE(fs().rename(other_directory_, "file2", other_directory_, "file4", 0).ok());
    --inodes, --files;
    REQUIRE(fs().rename(directory_, "other", kRoot, "sparse", 2).ok());  // RENAME_EXCHANGE
    for (int i = 10; i < 60; i += 4) {
        REQUIRE(fs().unlink(other_directory_, "file" + std::to_string(i)).ok());
        if (i % 7 != 0)
            --inodes, --files;
    }
    const Result<Attributes> big = fs().lookup(kRoot, "big");
    REQUIRE(big.ok());
    write(big->inode, 700001, 100000);
    REQUIRE(fs().allocate_range(big->inode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100000, 300000).ok());
    SetAttributes change;
    change.size_bytes = 2 * kMiB + 12345;
    REQUIRE(fs().set_attributes(big->inode, change, {}).ok());
    fs().forget(big->inode, 1);
}

void Filler::leave_orphans()
{
    const InodeNumber orphan = make(kRoot, "orphan", S_IFREG | 0644, true);
    write(orphan, 0, 70000);
    REQUIRE(fs().allocate_range(orphan, 0, kMiB, 40000).ok());
    make(kRoot, "removed", S_IFDIR | 0755, true);
    REQUIRE(fs().step(true).ok());
    REQUIRE(fs().unlink(kRoot, "orphan").ok());
    REQUIRE(fs().rmdir(kRoot, "removed").ok());
}

void Filler::run()
{
    make_names();
    REQUIRE(fs().step(true).ok());
    make_data();
    REQUIRE(fs().step(false).ok());
    REQUIRE(fs().step(true).ok());
    change_things();
    REQUIRE(fs().step(true).ok());
    leave_orphans();
}

void make_and_mount(SimVolume& volume)
{
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    REQUIRE_MESSAGE(volume.mount(manual_options(), why).ok(), why);
}

Image filled_image(const VolumeShape& shape)
{
    SimVolume volume(shape);
    make_and_mount(volume);
    Filler(volume).run();
    REQUIRE(volume.unmount().ok());
    return Image::copy_of(volume);
}

// A copy of one filled raid6 volume, made once.
Image raid6_image()
{
    static const Image image = filled_image(kRaid6);
    return image.clone();
}

std::vector<FileExtent> stored_extents(Image& image)
{
    std::vector<FileExtent> extents;
    for (const StoredItem& item : file_tree_items(image)) {
        if (item.key.type != static_cast<uint8_t>(ItemType::kExtent))
            continue;
        const Result<FileExtent> extent = decode_extent(item.key.offset / kBlockBytes, item.payload);
        REQUIRE(extent.ok());
        if (extent->kind == ExtentKind::kData)
            extents.push_back(*extent);
    }
    REQUIRE(!extents.empty());
    return extents;
}

struct Expected {
    const char* kind;
    uint64_t address;
    uint32_t member;
    bool repairable;
};

void require_findings(const CheckReport& report, const std::vector<Expected>& expected)
{
    INFO(text_of(report));
    REQUIRE(report.findings.size() == expected.size());
    for (const Expected& want : expected) {
        bool there = false;
        for (const CheckFinding& have : report.findings)
            there = there || (have.kind == want.kind && have.address == want.address &&
                              have.member == want.member && have.repairable == want.repairable);
        CAPTURE(want.kind);
        CAPTURE(want.address);
        CHECK(there);
    }
}

InodeNumber find_inode(FilesystemCore& core, InodeNumber directory, std::string_view name)
{
    const Result<DirentSlot> slot =
        find_dirent(core.store, core.volume->superblock().name_hash_seed, directory, name);
    REQUIRE(slot.ok());
    REQUIRE(slot->found);
    return slot->entry.inode;
}

InodeAttributes attributes_of(FilesystemCore& core, InodeNumber inode)
{
    ItemBytes payload;
    REQUIRE(core.store.get(inode_key(inode), payload).ok());
    const Result<InodeAttributes> attributes = decode_inode(payload);
    REQUIRE(attributes.ok());
    return *attributes;
}

void put(FilesystemCore& core, const Key& key, std::span<const std::byte> payload)
{
    const Ref<Transaction> open = core.timeline.open();
    open->items.put(key, payload);
    open->dirty = true;
}

// Changes something harmless, so that the commit has an item.
void touch(FilesystemCore& core)
{
    InodeAttributes attributes = attributes_of(core, kRoot);
    attributes.accessed.tv_sec += 1;
    put(core, inode_key(kRoot), encode_inode(attributes));
}

// Commits damage into a copy of the filled volume and checks it. Every finding must be of one of the kinds
// (separated by spaces), and each kind must be found.
void expect_kinds(const char* what, void (*damage)(FilesystemCore&), const std::set<std::string>& kinds)
{
    CAPTURE(what);
    Image image = raid6_image();
    {
        const std::unique_ptr<FilesystemCore> core = image.open_core();
        damage(*core);
        REQUIRE(commit_now(*core).ok());
    }
    const CheckReport report = image.check();
    INFO(text_of(report));
    std::set<std::string> found;
    for (const CheckFinding& finding : report.findings) {
        found.insert(finding.kind);
        CHECK(!finding.repairable);
    }
    CHECK(found == kinds);
}

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
    for (const VolumeShape& shape : kShapes) {
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
    SimVolume volume(kRaid6);
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    REQUIRE_CLEAN(Image::copy_of(volume).check());
    Prng prng(seed());
    for (int round = 0; round < 4; ++round) {
        REQUIRE_MESSAGE(volume.mount(manual_options(), why).ok(), why);
        const std::string name = "round" + std::to_string(round);
        const Result<Attributes> file = volume.fs().make_node(kRoot, name, S_IFREG | 0644, 0, {});
        REQUIRE(file.ok());
        for (int step = 0; step < 6; ++step) {
            const std::vector<std::byte> content(1 + prng.below(400000), std::byte{7});
            REQUIRE(volume.fs().write(file->inode, prng.below(kMiB), content, {}, {}).ok());
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
    SimVolume volume(kRaid6);
    make_and_mount(volume);
    const Result<Attributes> file = volume.fs().make_node(kRoot, "f", S_IFREG | 0644, 0, {});
    REQUIRE(file.ok());
    REQUIRE(volume.fs().allocate_range(file->inode, 0, 0, kMiB).ok());
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE(volume.fs().unlink(kRoot, "f").ok());
    volume.fs().forget(file->inode, 1);
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("a full volume is clean")
{
    for (const VolumeShape& shape : kShapes) {
        CAPTURE(shape.member_count);
        SimVolume volume(shape);
        make_and_mount(volume);
        const Result<Attributes> file = volume.fs().make_node(kRoot, "f", S_IFREG | 0644, 0, {});
        REQUIRE(file.ok());
        const std::vector<std::byte> piece(kMiB, std::byte{9});
        uint64_t offset = 0;
        while (true) {
            const Result<size_t> written = volume.fs().write(file->inode, offset, piece, {}, {});
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
    for (const VolumeShape& shape : kShapes) {
        CAPTURE(shape.member_count);
        CAPTURE(shape.chunk_bytes);
        Image image = filled_image(shape);
        const VolumeAddress data = stored_extents(image).front().address;
        const bool redundant = shape.data_profile != ProfileId::kSingle;
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

TEST_CASE("rot over a whole chunk is one finding")
{
    Image image = raid6_image();
    FileExtent longest = stored_extents(image).front();
    for (const FileExtent& extent : stored_extents(image))
        if (extent.block_count > longest.block_count)
            longest = extent;
    REQUIRE(longest.block_count >= 64);
    const VolumeAddress chunk{round_up(longest.address.value, kRaid6.chunk_bytes)};
    uint32_t member = 0;
    for (uint32_t block = 0; block < kRaid6.chunk_bytes / kBlockBytes; ++block)
        member = image.rot(chunk + uint64_t{block} * kBlockBytes).id.value;
    require_findings(image.check(), {{"checksum", chunk.value, member, true}});
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
    const uint64_t chunk = kRaid6.chunk_bytes;
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
    const std::unique_ptr<FilesystemCore> core = image.clone().open_core();
    const Ref<const Committed> committed = core->timeline.view().committed;
    NodeList list;
    const TreeRoot& root = tree_id == kFirstFileTree  ? committed->file_tree
                           : tree_id == kChecksumTree ? committed->checksum_tree
                                                      : committed->free_space_tree;
    REQUIRE(check_tree(core->cache, root, list).ok());
    REQUIRE(!list.refs.empty());
    return list;
}

}  // namespace

TEST_CASE("a lost node is one finding, without those that only follow from it")
{
    Image sound = raid6_image();
    size_t leaves = 0;
    for (const uint64_t tree : {kFirstFileTree, kChecksumTree, kFreeSpaceTree})
        for (const auto& [ref, level] : nodes_of(sound, tree).refs) {
            CAPTURE(tree);
            CAPTURE(level);
            CAPTURE(ref.address.value);
            leaves += level == 0;
            Image image = raid6_image();
            for (uint32_t copy = 0; copy < 3; ++copy)
                image.rot(ref.address, copy);
            const CheckReport report = image.check();
            INFO(text_of(report));
            REQUIRE(report.findings.size() == 1);
            CHECK(report.findings[0].kind == "tree");
            CHECK(!report.findings[0].repairable);
        }
    CHECK(leaves >= 5);
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

TEST_CASE("wrong inodes")
{
    expect_kinds("link count of a file",
                 [](FilesystemCore& core) {
                     const InodeNumber inode = find_inode(core, kRoot, "big");
                     InodeAttributes attributes = attributes_of(core, inode);
                     attributes.link_count = 2;
                     put(core, inode_key(inode), encode_inode(attributes));
                 },
                 {"inode"});
    expect_kinds("link count of a directory",
                 [](FilesystemCore& core) {
                     InodeAttributes attributes = attributes_of(core, kRoot);
                     ++attributes.link_count;
                     put(core, inode_key(kRoot), encode_inode(attributes));
                 },
                 {"inode"});
    expect_kinds("size of a directory",
                 [](FilesystemCore& core) {
                     InodeAttributes attributes = attributes_of(core, kRoot);
                     attributes.size_bytes += 2;
                     put(core, inode_key(kRoot), encode_inode(attributes));
                 },
                 {"inode"});
    expect_kinds("block count",
                 [](FilesystemCore& core) {
                     const InodeNumber inode = find_inode(core, kRoot, "big");
                     InodeAttributes attributes = attributes_of(core, inode);
                     --attributes.data_blocks;
                     put(core, inode_key(inode), encode_inode(attributes));
                 },
                 {"inode"});
    expect_kinds("no links and no orphan mark",
                 [](FilesystemCore& core) {
                     core.timeline.open()->items.erase(orphan_key({find_inode(core, kRoot, "big")}));
                     InodeAttributes attributes = attributes_of(core, find_inode(core, kRoot, "big"));
                     attributes.link_count = 0;
                     put(core, inode_key(find_inode(core, kRoot, "big")), encode_inode(attributes));
                 },
                 {"inode"});
    expect_kinds("orphan marks",
                 [](FilesystemCore& core) {
                     put(core, orphan_key(find_inode(core, kRoot, "big")), {});
                     put(core, orphan_key({kMaxInode}), {});
                 },
                 {"inode"});
    expect_kinds("target of a symbolic link",
                 [](FilesystemCore& core) {
                     put(core, symlink_key(find_inode(core, kRoot, "symlink")),
                         std::as_bytes(std::span("abc", 3)));
                 },
                 {"inode"});
    expect_kinds("not an inode",
                 [](FilesystemCore& core) {
                     put(core, inode_key(find_inode(core, kRoot, "fifo")),
                         std::as_bytes(std::span("abc", 3)));
                 },
                 {"inode"});
    expect_kinds("extended attribute in the wrong place",
                 [](FilesystemCore& core) {
                     put(core, xattr_key(find_inode(core, kRoot, "big"), kMinCursor),
                         encode_xattr("user.x", std::as_bytes(std::span("abc", 3))));
                 },
                 {"inode"});
    expect_kinds("items of an unknown type",
                 [](FilesystemCore& core) {
                     put(core, {kRootInode, 99, 7}, std::as_bytes(std::span("abc", 3)));
                 },
                 {"tree"});
}

TEST_CASE("wrong names")
{
    expect_kinds("entry of nothing",
                 [](FilesystemCore& core) {
                     const uint64_t cursor =
                         name_bucket(core.volume->superblock().name_hash_seed, "dangling");
                     put(core, dirent_key(kRoot, cursor),
                         encode_dirent({cursor, {kMaxInode}, 0, S_IFREG, "dangling"}));
                     InodeAttributes attributes = attributes_of(core, kRoot);
                     attributes.size_bytes += 2 * 8;
                     put(core, inode_key(kRoot), encode_inode(attributes));
                 },
                 {"directory"});
    expect_kinds("entry missing",
                 [](FilesystemCore& core) {
                     const uint64_t cursor = name_bucket(core.volume->superblock().name_hash_seed, "fifo");
                     core.timeline.open()->items.erase(dirent_key(kRoot, cursor));
                     InodeAttributes attributes = attributes_of(core, kRoot);
                     attributes.size_bytes -= 2 * 4;
                     put(core, inode_key(kRoot), encode_inode(attributes));
                 },
                 {"directory"});
    expect_kinds("entry of another type",
                 [](FilesystemCore& core) {
                     const Result<DirentSlot> slot =
                         find_dirent(core.store, core.volume->superblock().name_hash_seed, kRoot, "fifo");
                     Dirent entry = slot->entry;
                     entry.mode_type = S_IFSOCK;
                     put(core, dirent_key(kRoot, entry.cursor), encode_dirent(entry));
                 },
                 {"directory"});
    expect_kinds("entry where lookup does not find it",
                 [](FilesystemCore& core) {
                     const Result<DirentSlot> slot =
                         find_dirent(core.store, core.volume->superblock().name_hash_seed, kRoot, "fifo");
                     Dirent entry = slot->entry;
                     core.timeline.open()->items.erase(dirent_key(kRoot, entry.cursor));
                     entry.cursor += 1024;
                     put(core, dirent_key(kRoot, entry.cursor), encode_dirent(entry));
                     put(core, link_key(entry.inode, entry.link_sequence),
                         encode_link({kRoot, entry.cursor, entry.name}));
                 },
                 {"directory"});
    expect_kinds(
        "two directories below each other",
        [](FilesystemCore& core) {
            // "directory" moves into a directory that is below it: both are cut off from the root.
            const InodeNumber outer = find_inode(core, kRoot, "directory");
            const Result<DirentSlot> slot =
                find_dirent(core.store, core.volume->superblock().name_hash_seed, kRoot, "directory");
            const InodeNumber inner = find_inode(core, kRoot, "sparse");
            const Result<DirentSlot> inner_slot =
                find_dirent(core.store, core.volume->superblock().name_hash_seed, kRoot, "sparse");
            for (const auto& [inode, entry, parent] :
                 {std::tuple{outer, slot->entry, inner}, std::tuple{inner, inner_slot->entry, outer}}) {
                core.timeline.open()->items.erase(dirent_key(kRoot, entry.cursor));
                put(core, dirent_key(parent, entry.cursor), encode_dirent(entry));
                put(core, link_key(inode, entry.link_sequence),
                    encode_link({parent, entry.cursor, entry.name}));
                InodeAttributes attributes = attributes_of(core, inode);
                attributes.parent = parent.value;
                attributes.link_count += 1;
                attributes.size_bytes += 2 * (inode == outer ? 6 : 9);
                put(core, inode_key(inode), encode_inode(attributes));
            }
            InodeAttributes attributes = attributes_of(core, kRoot);
            attributes.link_count -= 2;
            attributes.size_bytes -= 2 * (6 + 9);
            put(core, inode_key(kRoot), encode_inode(attributes));
        },
        {"directory"});
}

TEST_CASE("wrong extents, space and checksums")
{
    expect_kinds("one block in two files",
                 [](FilesystemCore& core) {
                     std::vector<FileExtent> extents;
                     const InodeNumber big = find_inode(core, kRoot, "big");
                     REQUIRE(find_extents(core.store, core.store.view(), big, 0, 1, extents).ok());
                     const InodeNumber fifo = find_inode(core, kRoot, "moved");
                     FileExtent extent = extents.front();
                     extent.file_block = 100;
                     put(core, extent_key(fifo, 100), encode_extent(extent));
                     InodeAttributes attributes = attributes_of(core, fifo);
                     attributes.data_blocks += extent.block_count;
                     attributes.size_bytes = kMiB * 10;
                     put(core, inode_key(fifo), encode_inode(attributes));
                 },
                 {"extent"});
    expect_kinds("extents of a file overlap",
                 [](FilesystemCore& core) {
                     std::vector<FileExtent> extents;
                     const InodeNumber inode = find_inode(core, kRoot, "promised");
                     REQUIRE(find_extents(core.store, core.store.view(), inode, 0, 1, extents).ok());
                     REQUIRE(extents.front().kind == ExtentKind::kReserved);
                     put(core, extent_key(inode, 1), encode_extent({1, 1, ExtentKind::kReserved, {}, {}}));
                     InodeAttributes attributes = attributes_of(core, inode);
                     attributes.data_blocks += 1;
                     core.reserved_blocks += 1;
                     put(core, inode_key(inode), encode_inode(attributes));
                 },
                 {"extent"});
    expect_kinds(
        "an extent outside every group, and one in a group for metadata",
        [](FilesystemCore& core) {
            const InodeNumber inode = find_inode(core, kRoot, "moved");
            put(core, extent_key(inode, 100), encode_extent({100, 3, ExtentKind::kData, {kBlockBytes}, {1}}));
            const VolumeAddress node = core.volume->superblock().root.address;
            put(core, extent_key(inode, 200), encode_extent({200, 1, ExtentKind::kData, node, {1}}));
            InodeAttributes attributes = attributes_of(core, inode);
            attributes.data_blocks += 4;
            attributes.size_bytes = kMiB * 10;
            put(core, inode_key(inode), encode_inode(attributes));
        },
        {"extent"});
    expect_kinds("data behind the end",
                 [](FilesystemCore& core) {
                     const InodeNumber inode = find_inode(core, kRoot, "big");
                     InodeAttributes attributes = attributes_of(core, inode);
                     attributes.size_bytes = 5;
                     put(core, inode_key(inode), encode_inode(attributes));
                 },
                 {"extent"});
    expect_kinds("blocks recorded as used by nothing",
                 [](FilesystemCore& core) {
                     std::vector<RowRegion> regions;
                     const Ref<Transaction> open = core.timeline.open();
                     REQUIRE(core.allocator.allocate(Stream::kData, 1, 5, open->id, regions).ok());
                     touch(core);
                 },
                 {"space"});
    expect_kinds("blocks in use recorded as free",
                 [](FilesystemCore& core) {
                     std::vector<FileExtent> extents;
                     const InodeNumber big = find_inode(core, kRoot, "big");
                     REQUIRE(find_extents(core.store, core.store.view(), big, 0, 1, extents).ok());
                     const Ref<Transaction> open = core.timeline.open();
                     REQUIRE(core.allocator.free_blocks(extents.front().address, 1, open->id).ok());
                     touch(core);
                 },
                 {"space"});
    expect_kinds(
        "data without checksums",
        [](FilesystemCore& core) {
            std::vector<RowRegion> regions;
            const Ref<Transaction> open = core.timeline.open();
            // Beyond what was ever written.
            REQUIRE(core.allocator.allocate(Stream::kData, 1, 2000, open->id, regions).ok());
            const InodeNumber inode = find_inode(core, kRoot, "moved");
            InodeAttributes attributes = attributes_of(core, inode);
            uint64_t file_block = 0;
            for (const RowRegion& region : regions)
                for (uint64_t i = 0; i < region.used_blocks; ++i, ++file_block)
                    put(core, extent_key(inode, file_block),
                        encode_extent({file_block, 1, ExtentKind::kData, region.block_address(i), {1}}));
            attributes.data_blocks += file_block;
            attributes.size_bytes = file_block * kBlockBytes;
            put(core, inode_key(inode), encode_inode(attributes));
        },
        {"checksum"});
    expect_kinds("counter of inodes",
                 [](FilesystemCore& core) {
                     core.inode_count += 5;
                     core.timeline.open()->dirty = true;
                 },
                 {"inode"});
    expect_kinds("next inode",
                 [](FilesystemCore& core) {
                     core.next_inode = kRootInode + 1;
                     core.timeline.open()->dirty = true;
                 },
                 {"inode"});
    expect_kinds("counter of promised blocks",
                 [](FilesystemCore& core) {
                     core.reserved_blocks += 7;
                     core.timeline.open()->dirty = true;
                 },
                 {"space"});
}

TEST_CASE("hostile items and nodes end in findings")
{
    Prng prng(seed());
    CAPTURE(seed());
    Image sound = raid6_image();
    const std::vector<StoredItem> items = file_tree_items(sound);
    for (int round = 0; round < 60; ++round) {
        CAPTURE(round);
        Image image = raid6_image();
        {
            const std::unique_ptr<FilesystemCore> core = image.open_core();
            for (int change = 0; change < 5; ++change) {
                StoredItem item = items[prng.below(items.size())];
                const uint64_t extremes[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, prng.next(), prng.below(1000)};
                const uint64_t value = extremes[prng.below(6)];
                const uint64_t kind = prng.below(5);
                if (kind == 0)
                    item.key.offset = value;
                else if (kind == 1)
                    item.key.object = value;
                else if (kind == 2 || item.payload.size() < 8)
                    item.payload.resize(prng.below(300), std::byte{0xee});
                else
                    std::memcpy(item.payload.data() + prng.below(item.payload.size() / 8) * 8, &value, 8);
                put(*core, item.key, item.payload);
            }
            put(*core, {300 + prng.below(100), static_cast<uint8_t>(prng.below(60)), prng.next()},
                std::as_bytes(std::span("0123456789", 10)));
            REQUIRE(commit_now(*core).ok());
        }
        CHECK(!image.check().clean());
    }
    for (const uint64_t tree : {kRootTree, kChecksumTree, kFreeSpaceTree, kFirstFileTree})
        for (int round = 0; round < 40; ++round) {
            CAPTURE(tree);
            CAPTURE(round);
            Image image = raid6_image();
            image.edit_root_node(
                tree,
                [](void* context, std::span<std::byte> node) {
                    auto& random = *static_cast<Prng*>(context);
                    const size_t used = 64 + random.below(node.size() - 72);
                    const uint64_t extremes[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, random.next()};
                    const uint64_t value = extremes[random.below(5)];
                    std::memcpy(node.data() + (random.chance(1, 2) ? used : 8 + random.below(200)), &value,
                                8);
                },
                &prng);
            image.check();
        }
}
