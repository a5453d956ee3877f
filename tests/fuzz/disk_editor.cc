// SPDX-License-Identifier: MIT
#include "tests/fuzz/disk_editor.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "base/assert.h"
#include "base/checksum.h"
#include "btree/node_image.h"
#include "format/items.h"
#include "raid56/parity.h"

namespace cowraid::test {

namespace {

template <typename T> T get(const std::vector<std::byte>& image, size_t offset)
{
    T value;
    CW_ASSERT(offset + sizeof value <= image.size());
    std::memcpy(&value, image.data() + offset, sizeof value);
    return value;
}

template <typename T> void set(std::vector<std::byte>& image, size_t offset, const T& value)
{
    CW_ASSERT(offset + sizeof value <= image.size());
    std::memcpy(image.data() + offset, &value, sizeof value);
}

uint64_t slot_offset(uint32_t ring, uint64_t generation)
{
    return kSuperblockRingOffset[ring] + generation % kSuperblockSlotCount * kSuperblockSlotBytes;
}

const char* payload_structure(uint8_t type)
{
    switch (static_cast<ItemType>(type)) {
    case ItemType::kTreeRoot:
        return "DiskTreeRoot";
    case ItemType::kVolume:
        return "DiskVolume";
    case ItemType::kInode:
        return "DiskInode";
    case ItemType::kLink:
        return "DiskLink";
    case ItemType::kDirent:
        return "DiskDirent";
    case ItemType::kXattr:
        return "DiskXattr";
    case ItemType::kExtent:
        return "DiskExtent";
    case ItemType::kDamaged:
        return "DiskDamage";
    case ItemType::kChecksums:
        return "DiskChecksumWindow";
    case ItemType::kGroupSummary:
        return "DiskGroupSummary";
    case ItemType::kSpaceWindow:
        return "DiskSpaceWindow";
    case ItemType::kMovedTo:
    case ItemType::kMovedFrom:
        return "DiskRemapWindow";
    case ItemType::kSymlink:
    case ItemType::kOrphan:
        return "";
    }
    return "";
}

}  // namespace

DiskEditor::DiskEditor(Members& members) : members_(members)
{
    read_superblock();
    read_map();
    const auto root = get<DiskBlockRef>(superblock_, offsetof(DiskSuperblock, root));
    read_tree(root, kRootTree, SIZE_MAX, offsetof(DiskSuperblock, root));
    read_trees_below(0);
    logs_ = read_logs(members_, decoded_);
    node_changed_.resize(nodes_.size());
    log_changed_.resize(logs_.size());
}

DiskEditor::DiskEditor(const DiskEditor& other, Members& members)
    : members_(members),
      superblock_(other.superblock_),
      decoded_(other.decoded_),
      map_(other.map_),
      groups_(other.groups_),
      nodes_(other.nodes_),
      logs_(other.logs_),
      map_changed_(other.map_changed_),
      node_changed_(other.node_changed_),
      log_changed_(other.log_changed_)
{
}

void DiskEditor::read_superblock()
{
    Bytes slot(kSuperblockSlotBytes);
    for (uint32_t index = 0; index < kSuperblockSlotCount; ++index) {
        members_[0]->peek(slot_offset(0, index), slot);
        Result<Superblock> decoded = decode_superblock(slot);
        if (!decoded.ok() || decoded->generation <= decoded_.generation)
            continue;
        decoded_ = decoded.take();
        superblock_.assign(slot.begin(), slot.begin() + get<DiskSuperblock>(slot, 0).bytes);
    }
    CW_ASSERT(!superblock_.empty());
}

void DiskEditor::read_map()
{
    map_.resize(decoded_.map.bytes);
    members_[0]->peek(decoded_.members[0].map_offset[decoded_.map.place], map_);
    groups_ = decode_group_map(map_, decoded_.map, decoded_).take();
}

void DiskEditor::read_tree(const DiskBlockRef& ref, uint64_t tree_id, size_t parent, size_t pointer)
{
    if (ref.address == 0)
        return;
    const size_t index = nodes_.size();
    nodes_.push_back({decode(ref), tree_id, parent, pointer, Bytes(kNodeBytes)});
    for (size_t block = 0; block < kNodeBlocks; ++block)
        read_block(nodes_[index].ref.address + block * kBlockBytes,
                   nodes_[index].image.data() + block * kBlockBytes);
    const DiskNodeHeader header = node_header(nodes_[index].image.data());
    CW_ASSERT(checksums_of_node(nodes_[index].image) == nodes_[index].ref.checksums &&
              header.tree_id == tree_id);
    for (uint32_t i = 0; header.level > 0 && i < header.item_count; ++i) {
        const size_t at = sizeof header + i * sizeof(DiskChildItem) + offsetof(DiskChildItem, child);
        read_tree(get<DiskBlockRef>(nodes_[index].image, at), tree_id, index, at);
    }
}

void DiskEditor::read_trees_below(size_t root_node)
{
    const Bytes image = nodes_[root_node].image;
    CW_ASSERT(node_header(image.data()).level == 0);
    for (uint32_t i = 0; i < node_header(image.data()).item_count; ++i) {
        const DiskLeafItem item = leaf_items(image.data())[i];
        if (item.type == static_cast<uint8_t>(ItemType::kTreeRoot))
            read_tree(get<DiskBlockRef>(image, item.data_offset), item.object, root_node, item.data_offset);
    }
}

void DiskEditor::forget_history()
{
    const Bytes zeros(kSuperblockSlotBytes);
    for (const std::unique_ptr<SimDevice>& member : members_)
        for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring)
            for (uint32_t index = 0; index < kSuperblockSlotCount; ++index)
                if (index != decoded_.generation.value % kSuperblockSlotCount)
                    member->poke(slot_offset(ring, index), zeros);
}

const Bytes& DiskEditor::image_of(const Target& target) const
{
    if (target.home == Target::Home::kNode)
        return nodes_[target.node].image;
    if (target.home == Target::Home::kLog)
        return logs_[target.node].image;
    return target.home == Target::Home::kMap ? map_ : superblock_;
}

bool DiskEditor::describes_space(const Target& target) const
{
    return target.home == Target::Home::kNode && nodes_[target.node].tree_id == kFreeSpaceTree;
}

void DiskEditor::node_targets(size_t index, const std::string& structure, std::vector<Target>& out) const
{
    const Bytes& image = nodes_[index].image;
    const DiskNodeHeader header = node_header(image.data());
    Target target{structure, Target::Home::kNode, index, 0, 0};
    if (structure == "DiskNodeHeader")
        out.push_back(target);
    const size_t item_bytes = header.level == 0 ? sizeof(DiskLeafItem) : sizeof(DiskChildItem);
    for (uint32_t i = 0; i < header.item_count; ++i) {
        target.offset = sizeof header + i * item_bytes;
        if (structure == (header.level == 0 ? "DiskLeafItem" : "DiskChildItem"))
            out.push_back(target);
        if (header.level != 0)
            continue;
        const DiskLeafItem item = leaf_items(image.data())[i];
        if (structure == payload_structure(item.type))
            out.push_back({structure, Target::Home::kNode, index, item.data_offset,
                           item.data_bytes - bytes_of_structure(structure)});
    }
}

void DiskEditor::map_targets(const std::string& structure, std::vector<Target>& out) const
{
    Target target{structure, Target::Home::kMap, 0, 0, 0};
    const auto step = [&](const char* name, size_t bytes) {
        if (structure == name)
            out.push_back(target);
        target.offset += bytes;
    };
    step("DiskGroupMap", sizeof(DiskGroupMap));
    for (const GroupRecord& group : groups_.groups) {
        step("DiskGroup", sizeof(DiskGroup));
        for (const GroupColumn& column : group.columns) {
            step("DiskGroupColumn", sizeof(DiskGroupColumn));
            for (size_t run = 0; run < column.runs.size(); ++run)
                step("DiskSlotRun", sizeof(DiskSlotRun));
        }
    }
}

std::vector<Target> DiskEditor::targets(const std::string& structure) const
{
    std::vector<Target> out;
    if (structure == "DiskSuperblock")
        out.push_back({structure, Target::Home::kSuperblock, 0, 0, 0});
    const size_t lines = (superblock_.size() - sizeof(DiskSuperblock)) / sizeof(DiskMember);
    for (size_t i = 0; structure == "DiskMember" && i < lines; ++i)
        out.push_back(
            {structure, Target::Home::kSuperblock, 0, sizeof(DiskSuperblock) + i * sizeof(DiskMember), 0});
    map_targets(structure, out);
    for (size_t i = 0; i < nodes_.size(); ++i)
        node_targets(i, structure, out);
    for (size_t i = 0; i < logs_.size(); ++i)
        for (const LogPart& part : parts_of(logs_[i]))
            if (structure == part.structure)
                out.push_back({structure, Target::Home::kLog, i, part.offset, part.tail_bytes});
    return out;
}

uint64_t DiskEditor::value(const Target& target, const Leaf& leaf) const
{
    uint64_t value = 0;
    std::memcpy(&value, image_of(target).data() + target.offset + leaf.offset, leaf.bytes);
    return value;
}

bool DiskEditor::is_repeated(const Leaf& leaf)
{
    return (leaf.structure == "DiskNodeHeader" && leaf.name == "generation") ||
           (leaf.structure == "DiskGroupMap" && (leaf.name == "generation" || leaf.name == "bytes")) ||
           (leaf.structure == "DiskSuperblock" && leaf.name == "epoch");
}

void DiskEditor::agree_above(const Target& target, const Leaf& leaf, uint64_t value)
{
    if (leaf.structure == "DiskNodeHeader") {
        const RawNode& node = nodes_[target.node];
        Bytes& above = node.parent == SIZE_MAX ? superblock_ : nodes_[node.parent].image;
        set(above, node.pointer + offsetof(DiskBlockRef, generation), le64{value});
    } else if (leaf.structure == "DiskSuperblock") {
        set(superblock_, offsetof(DiskSuperblock, epochs), le64{value});
    } else if (leaf.name == "generation") {
        set(superblock_, offsetof(DiskSuperblock, map_generation), le64{value});
    } else {
        set(superblock_, offsetof(DiskSuperblock, map_bytes), le32{static_cast<uint32_t>(value)});
    }
}

void DiskEditor::overwrite(const Target& target, const Leaf& leaf, uint64_t value, const How& how)
{
    auto& image = const_cast<Bytes&>(image_of(target));
    std::memcpy(image.data() + target.offset + leaf.offset, &value, leaf.bytes);
    if (how.agree)
        agree_above(target, leaf, value);
    const Stamp stamp = leaf.name == "checksum" ? Stamp::kKeep : Stamp::kFit;
    switch (target.home) {
    case Target::Home::kNode:
        return store_node(target.node);
    case Target::Home::kMap:
        return store_map(stamp);
    case Target::Home::kSuperblock:
        return store_superblock(stamp);
    case Target::Home::kLog:
        return store_log(members_, logs_[target.node], leaf.name);
    }
}

Bytes& DiskEditor::change_map()
{
    map_changed_ = true;
    return map_;
}

Bytes& DiskEditor::change_node(size_t index)
{
    node_changed_[index] = true;
    return nodes_[index].image;
}

RawLog& DiskEditor::change_log(size_t index)
{
    log_changed_[index] = true;
    return logs_[index];
}

std::vector<size_t> DiskEditor::nodes_of(uint64_t tree_id) const
{
    std::vector<size_t> found;
    for (size_t index = 0; index < nodes_.size(); ++index)
        if (nodes_[index].tree_id == tree_id)
            found.push_back(index);
    return found;
}

// Nodes first: what they change in the checksum tree is stored with them. The superblock comes last.
void DiskEditor::seal()
{
    for (size_t index = nodes_.size(); index-- > 0;)
        if (node_changed_[index])
            store_node(index);
    for (size_t index = 0; index < logs_.size(); ++index)
        if (log_changed_[index])
            store_log(members_, logs_[index], "");
    if (map_changed_)
        set(map_, 0, le64{checksum_of(std::span(map_).subspan(sizeof(le64)))});
    set(superblock_, offsetof(DiskSuperblock, map_checksum), get<le64>(map_, 0));
    store_map_where_told();
    store_superblock(Stamp::kFit);
}

// Where it was as far as there is room, and where the member lines say now.
void DiskEditor::store_map_where_told()
{
    const uint32_t place = get<DiskSuperblock>(superblock_, 0).map_place % 2;
    for (size_t i = 0; i < members_.size(); ++i) {
        const auto line = get<DiskMember>(superblock_, sizeof(DiskSuperblock) + i * sizeof(DiskMember));
        const uint64_t told = line.map_offset[place];
        const MemberRecord& record = decoded_.members[std::min(i, decoded_.members.size() - 1)];
        const std::span<const std::byte> map(map_);
        members_[i]->poke(record.map_offset[decoded_.map.place],
                          map.first(std::min<size_t>(map.size(), record.map_bytes)));
        if (told <= members_[i]->size_bytes() && map.size() <= members_[i]->size_bytes() - told)
            members_[i]->poke(told, map);
    }
}

// Writes a node and all above it.
void DiskEditor::store_node(size_t index)
{
    const RawNode& node = nodes_[index];
    for (size_t block = 0; block < kNodeBlocks; ++block)
        write_block(node.ref.address + block * kBlockBytes,
                    std::span(node.image).subspan(block * kBlockBytes, kBlockBytes));
    Bytes& above = node.parent == SIZE_MAX ? superblock_ : nodes_[node.parent].image;
    BlockRef pointer = decode(get<DiskBlockRef>(above, node.pointer));
    pointer.checksums = checksums_of_node(node.image);
    set(above, node.pointer, encode(pointer));
    if (node.parent == SIZE_MAX)
        store_superblock(Stamp::kFit);
    else
        store_node(node.parent);
}

void DiskEditor::store_map(Stamp stamp)
{
    const Checksum checksum = checksum_of(std::span(map_).subspan(sizeof(le64)));
    if (stamp == Stamp::kFit)
        set(map_, 0, le64{checksum});
    for (size_t i = 0; i < members_.size(); ++i)
        members_[i]->poke(decoded_.members[i].map_offset[decoded_.map.place], map_);
    set(superblock_, offsetof(DiskSuperblock, map_checksum), le64{checksum});
    store_superblock(Stamp::kFit);
}

// On every member: all copies say the same but for the id of their member. A changed generation brings the
// copies to the slots it belongs to.
void DiskEditor::store_superblock(Stamp stamp)
{
    const auto head = get<DiskSuperblock>(superblock_, 0);
    const bool own_id = head.member_id == decoded_.member_id.value;
    const size_t stated = head.bytes;
    const size_t covered =
        stated > sizeof(le64) && stated <= kSuperblockSlotBytes ? stated : superblock_.size();
    const Bytes zeros(kSuperblockSlotBytes);
    for (size_t i = 0; i < members_.size(); ++i) {
        Bytes copy = superblock_;
        copy.resize(kSuperblockSlotBytes);
        if (own_id)
            set(copy, offsetof(DiskSuperblock, member_id),
                get<DiskMember>(superblock_, sizeof head + i * sizeof(DiskMember)).member_id);
        if (stamp == Stamp::kFit)
            set(copy, 0, le64{checksum_of(std::span(copy).subspan(sizeof(le64), covered - sizeof(le64)))});
        for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring) {
            members_[i]->poke(slot_offset(ring, decoded_.generation.value), zeros);
            members_[i]->poke(slot_offset(ring, head.generation), copy);
        }
    }
}

const GroupRecord& DiskEditor::group_of(VolumeAddress address) const
{
    for (const GroupRecord& group : groups_.groups)
        if (address >= group.address && address - group.address < group.span_bytes())
            return group;
    assertion_failed("an address of a group", __FILE__, __LINE__);
}

DiskEditor::Spot DiskEditor::spot(const GroupRecord& group, const BlockPlace& place, uint32_t copy) const
{
    const Geometry geometry = geometry_of(group);
    const GroupColumn& column = group.columns[group_column(geometry, place.stripe, place.column, copy)];
    const MemberRecord* record = decoded_.member(column.member);
    uint64_t offset = column_offset(geometry, place);
    for (const SlotRun& run : column.runs) {
        const uint64_t bytes = run.slot_count * record->slot_bytes;
        if (offset < bytes) {
            const auto index = static_cast<size_t>(record - decoded_.members.data());
            return {members_[index].get(),
                    record->slots_offset + run.first_slot * record->slot_bytes + offset};
        }
        offset -= bytes;
    }
    assertion_failed("a place inside its column", __FILE__, __LINE__);
}

void DiskEditor::read_block(VolumeAddress address, std::byte* out) const
{
    const GroupRecord& group = group_of(address);
    const Spot at = spot(group, place_of(geometry_of(group), address - group.address), 0);
    at.member->peek(at.offset, {out, kBlockBytes});
}

void DiskEditor::write_block(VolumeAddress address, std::span<const std::byte> content)
{
    const GroupRecord& group = group_of(address);
    const Geometry geometry = geometry_of(group);
    const BlockPlace place = place_of(geometry, address - group.address);
    for (uint32_t copy = 0; copy < geometry.copies; ++copy) {
        const Spot at = spot(group, place, copy);
        at.member->poke(at.offset, content);
    }
    if (geometry.parity == 0)
        return;
    note_checksum(address, content);
    restore_row(group, place);
}

// Parity of a row again, and its checksums.
void DiskEditor::restore_row(const GroupRecord& group, const BlockPlace& place)
{
    const Geometry geometry = geometry_of(group);
    std::vector<Bytes> blocks(geometry.columns(), Bytes(kBlockBytes));
    std::vector<const std::byte*> data;
    std::vector<std::byte*> parity;
    for (uint32_t column = 0; column < geometry.data_columns; ++column) {
        const Spot at = spot(group, {place.stripe, column, place.row}, 0);
        at.member->peek(at.offset, blocks[column]);
        data.push_back(blocks[column].data());
    }
    for (uint32_t column = geometry.data_columns; column < geometry.columns(); ++column)
        parity.push_back(blocks[column].data());
    parity_generate_reference(data, parity, kBlockBytes);
    for (uint32_t column = geometry.data_columns; column < geometry.columns(); ++column) {
        const BlockPlace at_row{place.stripe, column, place.row};
        const Spot at = spot(group, at_row, 0);
        at.member->poke(at.offset, blocks[column]);
        note_checksum(group.address + offset_of(geometry, at_row), blocks[column]);
    }
}

bool DiskEditor::note_checksum_in(size_t index, VolumeAddress address, Checksum checksum)
{
    RawNode& node = nodes_[index];
    const DiskNodeHeader header = node_header(node.image.data());
    const uint64_t window = round_down(address.value, kChecksumWindowBytes);
    const uint64_t bit = (address.value - window) / kBlockBytes;
    for (uint32_t i = 0; header.level == 0 && i < header.item_count; ++i) {
        const DiskLeafItem item = leaf_items(node.image.data())[i];
        if (item.object != window || item.type != static_cast<uint8_t>(ItemType::kChecksums))
            continue;
        const uint64_t mask = get<le64>(node.image, item.data_offset);
        CW_ASSERT((mask >> bit & 1) != 0);
        const auto before = static_cast<size_t>(std::popcount(mask & ((uint64_t{1} << bit) - 1)));
        set(node.image, item.data_offset + sizeof(DiskChecksumWindow) + before * sizeof(le64),
            le64{checksum});
        return true;
    }
    return false;
}

// In the checksum tree, whose own nodes are mirrored.
void DiskEditor::note_checksum(VolumeAddress address, std::span<const std::byte> content)
{
    for (size_t index = 0; index < nodes_.size(); ++index)
        if (nodes_[index].tree_id == kChecksumTree && note_checksum_in(index, address, checksum_of(content)))
            return store_node(index);
    assertion_failed("a block with a checksum", __FILE__, __LINE__);
}

}  // namespace cowraid::test
