// SPDX-License-Identifier: MIT
// Recipes for the trees: items with their payloads, files with their extents, counters with what they count.
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstddef>

#include "btree/node_image.h"
#include "tests/fuzz/multi_field.h"

namespace cowraid::test {

namespace {

bool is(const LeafEntry& entry, ItemType type)
{
    return entry.key.type == static_cast<uint8_t>(type);
}

std::vector<size_t> of_type(const std::vector<LeafEntry>& entries, ItemType type)
{
    std::vector<size_t> found;
    for (size_t i = 0; i < entries.size(); ++i)
        if (is(entries[i], type))
            found.push_back(i);
    return found;
}

// A leaf of the tree that has such items, and its content. False: there is none.
bool leaf_with(MultiEdit& edit, uint64_t tree, ItemType type, size_t& node, std::vector<LeafEntry>& entries)
{
    std::vector<size_t> found;
    for (const size_t index : edit.leaves(tree))
        if (!of_type(edit.entries(index), type).empty())
            found.push_back(index);
    if (found.empty())
        return false;
    node = edit.any_of(found);
    entries = edit.entries(node);
    return true;
}

template <typename T> void change_payload(LeafEntry& entry, const T& structure)
{
    put_structure(entry.payload, 0, structure);
}

// The volume's counters, in the root tree.
template <typename Change> void change_volume(MultiEdit& edit, Change change)
{
    size_t node = 0;
    std::vector<LeafEntry> entries;
    if (!leaf_with(edit, kRootTree, ItemType::kVolume, node, entries))
        return;
    LeafEntry& entry = entries[of_type(entries, ItemType::kVolume).front()];
    auto volume = structure_at<DiskVolume>(entry.payload);
    change(volume);
    change_payload(entry, volume);
    edit.set_entries(node, std::move(entries));
}

LeafEntry extent_entry(uint64_t inode, uint64_t block, const DiskExtent& extent)
{
    LeafEntry entry{{inode, static_cast<uint8_t>(ItemType::kExtent), block * kBlockBytes}, {}};
    append_structure(entry.payload, extent);
    return entry;
}

// A file's size, its extents (promised, or of the same blocks again and again) and the sums over them.
void file_extents(MultiEdit& edit)
{
    size_t node = 0;
    std::vector<LeafEntry> entries;
    if (!leaf_with(edit, kFirstFileTree, ItemType::kInode, node, entries))
        return;
    const size_t at = edit.any_of(of_type(entries, ItemType::kInode));
    const uint64_t inode = entries[at].key.object;
    auto disk = structure_at<DiskInode>(entries[at].payload);
    DiskExtent sample{};
    for (const LeafEntry& entry : entries)
        if (is(entry, ItemType::kExtent))
            sample = structure_at<DiskExtent>(entry.payload);
    uint64_t block = 0;
    uint64_t stored = 0;
    uint64_t reserved = 0;
    std::vector<LeafEntry> extents;
    const bool data = edit.chance(1, 3) && sample.address != 0;
    for (uint64_t left = edit.prng.below(200); left > 0; --left) {
        DiskExtent extent = data ? sample : DiskExtent{};
        extent.kind = static_cast<uint8_t>(data ? ExtentKind::kData : ExtentKind::kReserved);
        const uint64_t length = uint64_t{1} << edit.prng.below(edit.chance(1, 1000) ? 32 : 15);
        extent.block_count = static_cast<uint32_t>(edit.near(length));
        extent.disk_blocks = data ? extent.block_count.get() : 0;
        extents.push_back(extent_entry(inode, block, extent));
        block += extent.block_count;
        stored += extent.block_count;
        reserved += data ? 0 : extent.block_count.get();
        block += edit.chance(1, 4) ? edit.wild() % (uint64_t{1} << 50) : 0;
    }
    disk.size_bytes = edit.near(edit.chance(1, 2) ? block * kBlockBytes : edit.size_between(12, 63));
    disk.data_blocks = edit.near(stored);
    change_payload(entries[at], disk);
    std::erase_if(entries, [=](const LeafEntry& entry) {
        return is(entry, ItemType::kExtent) && entry.key.object == inode;
    });
    entries.insert(entries.end(), extents.begin(), extents.end());
    edit.set_entries(node, std::move(entries));
    change_volume(edit, [&](DiskVolume& volume) {
        volume.reserved_blocks = edit.near(volume.reserved_blocks + reserved);
    });
}

// Numbers of inodes, their count and the roots of the trees.
void volume_counters(MultiEdit& edit)
{
    change_volume(edit, [&](DiskVolume& volume) {
        volume.next_inode = edit.chance(1, 2) ? edit.wild() & kMaxInode : kMaxInode - edit.prng.below(300);
        volume.inode_count = edit.near(volume.next_inode - kRootInode);
        if (edit.chance(1, 3))
            volume.reserved_blocks = edit.wild();
        if (edit.chance(1, 3))
            volume.compressed_file_blocks = edit.wild();
        if (edit.chance(1, 3))
            volume.compressed_blocks = edit.wild();
    });
    size_t node = 0;
    std::vector<LeafEntry> entries;
    if (edit.chance(1, 2) || !leaf_with(edit, kRootTree, ItemType::kTreeRoot, node, entries))
        return;
    const std::vector<size_t> roots = of_type(entries, ItemType::kTreeRoot);
    LeafEntry& entry = entries[edit.any_of(roots)];
    auto root = structure_at<DiskTreeRoot>(entry.payload);
    if (edit.chance(1, 2))
        root = structure_at<DiskTreeRoot>(entries[edit.any_of(roots)].payload);
    else
        root = {};
    change_payload(entry, root);
    const LeafEntry model = entry;
    if (edit.chance(1, 4))  // more trees, of the same nodes
        for (uint64_t tree = edit.prng.between(1, 300); tree > 0; --tree)
            entries.push_back({{kFirstFileTree + tree, model.key.type, 0}, model.payload});
    edit.set_entries(node, std::move(entries));
}

// As many children as fit, all of them one and the same, under keys that rise.
void crowded_node(MultiEdit& edit, Bytes& image)
{
    DiskNodeHeader header = node_header(image.data());
    const auto count = static_cast<uint32_t>(edit.prng.between(1, kMaxChildren));
    const auto first = structure_at<DiskChildItem>(image, sizeof header);
    const auto other =
        structure_at<DiskChildItem>(image, sizeof header + edit.prng.below(header.item_count) * sizeof first);
    const bool same = edit.chance(1, 2);
    for (uint32_t i = 0; i < count; ++i) {
        DiskChildItem item = i == 0 || same ? first : other;
        item.object = first.object + i;
        put_structure(image, sizeof header + i * sizeof item, item);
    }
    header.item_count = static_cast<uint32_t>(edit.near(count));
    put_structure(image, 0, header);
}

// Items that share payloads, or whose places and lengths are of one another.
void overlapping_leaf(MultiEdit& edit, Bytes& image)
{
    DiskNodeHeader header = node_header(image.data());
    const auto sample = structure_at<DiskLeafItem>(image, sizeof header + edit.prng.below(header.item_count) *
                                                                              sizeof(DiskLeafItem));
    const auto count = static_cast<uint32_t>(edit.prng.between(1, kNodeRoomBytes / sizeof sample));
    uint64_t end = image.size();
    for (uint32_t i = 0; i < count; ++i) {
        DiskLeafItem item = sample;
        item.object = sample.object + i;
        const uint64_t bytes = edit.chance(1, 2) ? 0 : edit.prng.below(64);
        if (edit.chance(3, 4))
            end -= std::min(bytes, end);
        item.data_bytes = static_cast<uint16_t>(edit.near(bytes));
        item.data_offset = static_cast<uint16_t>(edit.near(end));
        put_structure(image, sizeof header + i * sizeof item, item);
    }
    header.item_count = static_cast<uint32_t>(edit.near(count));
    put_structure(image, 0, header);
}

void node_items(MultiEdit& edit)
{
    const uint64_t trees[] = {kRootTree, kChecksumTree, kFreeSpaceTree, kFirstFileTree};
    const std::vector<size_t> nodes = edit.editor.nodes_of(trees[edit.prng.below(std::size(trees))]);
    if (nodes.empty())
        return;
    const size_t index = edit.any_of(nodes);
    if (node_header(edit.editor.node(index).data()).item_count == 0)
        return;
    Bytes& image = edit.editor.change_node(index);
    const size_t bytes = image.size();
    if (node_header(image.data()).level > 0)
        crowded_node(edit, image);
    else
        overlapping_leaf(edit, image);
    image.resize(bytes);
}

// A mask and as many numbers as it has bits.
Bytes window(MultiEdit& edit, uint64_t mask, uint64_t value)
{
    Bytes payload;
    append_structure(payload, le64{edit.near(mask)});
    for (int left = std::popcount(mask); left > 0; --left) {
        append_structure(payload, le64{edit.near(value)});
        value += edit.chance(1, 2) ? kBlockBytes : edit.prng.next() % kGiB;
    }
    return payload;
}

// Windows of checksums where there are no blocks, or with other bits than before.
void checksum_windows(MultiEdit& edit)
{
    size_t node = 0;
    std::vector<LeafEntry> entries;
    if (!leaf_with(edit, kChecksumTree, ItemType::kChecksums, node, entries))
        return;
    const bool everywhere = edit.chance(1, 2);
    const uint64_t start = everywhere ? round_down(edit.wild(), kChecksumWindowBytes) : entries[0].key.object;
    if (edit.chance(1, 2))
        entries.clear();
    const uint64_t step = (edit.prng.below(4) + 1) * kChecksumWindowBytes;
    for (uint64_t i = edit.prng.between(1, 300); i > 0; --i) {
        const uint64_t mask = edit.chance(1, 2) ? uint64_t{1} << edit.prng.below(64) : edit.wild();
        entries.push_back({{start + i * step, static_cast<uint8_t>(ItemType::kChecksums), 0},
                           window(edit, mask, edit.prng.next())});
    }
    edit.set_entries(node, std::move(entries));
}

// A window of free space with its bitmap, and the summary of its group.
void space_windows(MultiEdit& edit)
{
    size_t node = 0;
    std::vector<LeafEntry> entries;
    if (!leaf_with(edit, kFreeSpaceTree, ItemType::kSpaceWindow, node, entries))
        return;
    int64_t more = 0;
    uint64_t group = 0;
    for (uint64_t left = edit.prng.between(1, 3); left > 0; --left) {
        LeafEntry& entry = entries[edit.any_of(of_type(entries, ItemType::kSpaceWindow))];
        group = entry.key.object;
        auto head = structure_at<DiskSpaceWindow>(entry.payload);
        const int64_t before = head.used_count;
        if (edit.chance(1, 4))
            head.block_count = static_cast<uint32_t>(edit.wild());
        const uint64_t blocks = std::min<uint64_t>(head.block_count, kMaxItemBytes * 8);
        Bytes bitmap((blocks + 7) / 8);
        if (edit.chance(1, 2))
            edit.prng.fill(bitmap.data(), bitmap.size());
        uint64_t used = 0;
        for (const std::byte byte : bitmap)
            used += static_cast<uint64_t>(std::popcount(static_cast<unsigned>(byte)));
        if (edit.chance(1, 3)) {  // no bitmap: none or all
            bitmap.clear();
            used = edit.chance(1, 2) ? 0 : head.block_count.get();
        }
        head.used_count = static_cast<uint32_t>(edit.near(used));
        more += static_cast<int64_t>(used) - before;
        entry.payload.clear();
        append_structure(entry.payload, head);
        entry.payload.insert(entry.payload.end(), bitmap.begin(), bitmap.end());
    }
    for (LeafEntry& entry : entries)
        if (is(entry, ItemType::kGroupSummary) && entry.key.offset == group) {
            auto summary = structure_at<DiskGroupSummary>(entry.payload);
            summary.used_blocks = edit.near(summary.used_blocks + static_cast<uint64_t>(more));
            if (edit.chance(1, 2))
                summary.free_rows = edit.near(summary.free_rows - static_cast<uint64_t>(more));
            change_payload(entry, summary);
        }
    edit.set_entries(node, std::move(entries));
}

// Blocks that moved, told both ways.
void remap_windows(MultiEdit& edit)
{
    size_t node = 0;
    std::vector<LeafEntry> entries;
    if (!leaf_with(edit, kRemapTree, ItemType::kMovedTo, node, entries))
        return node_items(edit);
    const std::vector<GroupRecord>& groups = edit.editor.groups().groups;
    for (uint64_t i = edit.prng.between(1, 200); i > 0; --i) {
        const uint64_t from = edit.any_of(groups).address.value + i * kChecksumWindowBytes;
        const uint64_t to = edit.any_of(groups).address.value + edit.prng.below(1000) * kBlockBytes;
        const uint64_t mask = edit.chance(1, 2) ? 1 : edit.wild();
        for (const bool forward : {true, false}) {
            const uint64_t address = round_down(forward ? from : to, kChecksumWindowBytes);
            Bytes payload;
            append_structure(payload, le64{edit.near(mask)});
            const Bytes rest =
                window(edit, edit.chance(1, 2) ? mask : mask & (~mask << 1), forward ? to : from);
            payload.insert(payload.end(), rest.begin(), rest.end());
            const ItemType type = forward ? ItemType::kMovedTo : ItemType::kMovedFrom;
            entries.push_back({{address, static_cast<uint8_t>(type), 0}, std::move(payload)});
        }
    }
    edit.set_entries(node, std::move(entries));
}

// A name of a directory inside itself or elsewhere, with link, parent and link count.
void names(MultiEdit& edit)
{
    size_t node = 0;
    std::vector<LeafEntry> entries;
    if (!leaf_with(edit, kFirstFileTree, ItemType::kDirent, node, entries))
        return;
    const std::vector<size_t> dirents = of_type(entries, ItemType::kDirent);
    const std::vector<size_t> inodes = of_type(entries, ItemType::kInode);
    for (uint64_t left = edit.prng.between(1, 8); left > 0 && !inodes.empty(); --left) {
        LeafEntry dirent = entries[edit.any_of(dirents)];
        LeafEntry& inode = entries[edit.any_of(inodes)];
        auto disk = structure_at<DiskInode>(inode.payload);
        auto head = structure_at<DiskDirent>(dirent.payload);
        head.inode = inode.key.object;
        head.mode_type = disk.mode & S_IFMT;
        head.link_sequence = edit.near(disk.next_link_sequence);
        const uint64_t name_bytes = edit.chance(1, 4) ? edit.prng.below(4000) : head.name_bytes.get();
        head.name_bytes = static_cast<uint16_t>(edit.near(name_bytes));
        dirent.payload.resize(sizeof head + name_bytes, std::byte{'n'});
        change_payload(dirent, head);
        dirent.key.offset += edit.prng.below(3);
        LeafEntry link{{inode.key.object, static_cast<uint8_t>(ItemType::kLink), head.link_sequence}, {}};
        DiskLink line{};
        line.parent = dirent.key.object;
        line.cursor = dirent.key.offset;
        line.name_bytes = head.name_bytes;
        append_structure(link.payload, line);
        link.payload.insert(link.payload.end(), dirent.payload.begin() + sizeof head, dirent.payload.end());
        disk.next_link_sequence = disk.next_link_sequence + 1;
        disk.link_count = static_cast<uint32_t>(edit.near(disk.link_count + 1));
        if (S_ISDIR(disk.mode))
            disk.parent = edit.near(dirent.key.object);
        change_payload(inode, disk);
        entries.push_back(std::move(dirent));
        entries.push_back(std::move(link));
    }
    edit.set_entries(node, std::move(entries));
}

// An extended attribute in as many parts as there can be, of any lengths.
void attribute_parts(MultiEdit& edit)
{
    size_t node = 0;
    std::vector<LeafEntry> entries;
    if (!leaf_with(edit, kFirstFileTree, ItemType::kXattr, node, entries))
        return;
    const LeafEntry sample = entries[edit.any_of(of_type(entries, ItemType::kXattr))];
    const auto head = structure_at<DiskXattr>(sample.payload);
    std::erase_if(entries, [&](const LeafEntry& entry) {
        return is(entry, ItemType::kXattr) && entry.key.offset >> 8 == sample.key.offset >> 8;
    });
    const uint64_t parts = edit.prng.between(1, 256);
    const uint64_t bytes = edit.prng.below(edit.chance(1, 2) ? 100 : 4000);
    for (uint64_t part = 0; part < parts; ++part) {
        LeafEntry entry = sample;
        entry.key.offset = (sample.key.offset & ~uint64_t{0xff}) + part;
        DiskXattr line = head;
        const uint64_t more = part + 1 < parts ? kXattrMore : 0;
        line.part = static_cast<uint8_t>(edit.near((part & kXattrPartMask) | more));
        line.value_bytes = static_cast<uint16_t>(edit.near(bytes));
        entry.payload.resize(sizeof line + head.name_bytes + bytes);
        change_payload(entry, line);
        entries.push_back(std::move(entry));
    }
    edit.set_entries(node, std::move(entries));
}

constexpr Recipe kTreeRecipes[] = {
    {"file-extents", file_extents, true},
    {"volume-counters", volume_counters, true},
    {"node-items", node_items, true},
    {"checksum-windows", checksum_windows, false, false, true},
    {"space-windows", space_windows, true, false, true},
    {"remap-windows", remap_windows, true},
    {"names", names},
    {"attribute-parts", attribute_parts},
};

}  // namespace

std::span<const Recipe> tree_recipes()
{
    return kTreeRecipes;
}

}  // namespace cowraid::test
