// SPDX-License-Identifier: MIT
// Recipes for both logs: counts with records, entries with what follows them, rings that are full.
#include <algorithm>
#include <cstddef>

#include "base/checksum.h"
#include "format/fsync_codec.h"
#include "format/intent_codec.h"
#include "raid56/geometry.h"
#include "tests/fuzz/multi_field.h"

namespace cowraid::test {

namespace {

void call_live(MultiEdit& edit, uint32_t log)
{
    DiskSuperblock head = edit.head();
    head.live_logs = head.live_logs | log;
    edit.set_head(head);
}

// Mostly a row of a group under parity.
uint64_t any_row(MultiEdit& edit, const GroupRecord& group)
{
    const uint64_t offset = edit.prng.below(std::max<uint64_t>(group.column_bytes / kBlockBytes, 1));
    return edit.near(group.address.value + offset * kBlockBytes);
}

const GroupRecord& any_group(MultiEdit& edit)
{
    const std::vector<GroupRecord>& groups = edit.editor.groups().groups;
    for (int tries = 0; tries < 10; ++tries)
        if (const GroupRecord& group = edit.any_of(groups); geometry_of(group).parity != 0)
            return group;
    return edit.any_of(groups);
}

// One descriptor block whose entries and counts agree.
Bytes intent_block(MultiEdit& edit, size_t member, uint32_t block, uint64_t& sequence)
{
    const Superblock& superblock = edit.editor.superblock();
    DiskIntentHeader head{};
    head.magic = kIntentMagic;
    std::memcpy(head.volume_uuid, superblock.volume_uuid.bytes.data(), sizeof head.volume_uuid);
    head.epoch = superblock.log_epoch;
    head.generation = edit.near(superblock.root.generation.value + 1);
    head.floor = edit.near(0);
    head.member_id = superblock.members[member].id.value;
    head.block = block;
    Bytes content;
    uint32_t count = 0;
    const uint64_t wanted = edit.prng.between(1, 80);
    const GroupRecord& group = any_group(edit);
    const uint32_t columns = edit.chance(1, 6)
                                 ? static_cast<uint32_t>(edit.prng.between(1, kMaxIntentColumns))
                                 : group.data_columns;
    while (count < wanted && content.size() + intent_entry_bytes(columns) <= kIntentRoomBytes) {
        DiskIntentEntry entry{};
        entry.sequence = edit.near(sequence++);
        entry.row = any_row(edit, group);
        entry.partial_checksum = edit.prng.next();
        entry.partial_block = static_cast<uint32_t>(edit.near(block + 1));
        entry.mapping_version = static_cast<uint32_t>(edit.near(group.mapping_version));
        entry.data_columns = static_cast<uint16_t>(edit.near(columns));
        entry.parity_column = static_cast<uint8_t>(edit.near(edit.prng.below(2)));
        append_structure(content, entry);
        const size_t from = content.size();
        content.resize(from + intent_entry_bytes(columns) - sizeof entry);
        edit.prng.fill(content.data() + from, content.size() - from);
        ++count;
    }
    head.entry_count = static_cast<uint32_t>(edit.near(count));
    head.entry_bytes = static_cast<uint32_t>(edit.near(content.size()));
    Bytes image;
    append_structure(image, head);
    image.insert(image.end(), content.begin(), content.end());
    image.resize(kBlockBytes);
    return image;
}

// Descriptors in some of the blocks of every member's log, or in all of them.
void intent_blocks(MultiEdit& edit)
{
    const Superblock& superblock = edit.editor.superblock();
    call_live(edit, kLiveIntentLog);
    const uint64_t blocks = superblock.members[0].intent_log_bytes / kBlockBytes;
    const uint64_t step = edit.chance(1, 4) ? 1 : edit.prng.between(1, blocks);
    uint64_t sequence = edit.chance(1, 8) ? edit.wild() : 1;
    const bool same = edit.chance(1, 2);  // on all members, as copies of each other
    for (uint64_t block = 0; block < blocks; block += step) {
        const uint64_t prng_seed = edit.prng.next();
        const uint64_t first = sequence;
        for (size_t member = 0; member < superblock.members.size(); ++member) {
            if (same) {
                edit.prng = Prng(prng_seed);
                sequence = first;
            }
            const RawLog log{RawLog::Kind::kIntent,
                             {{member, superblock.members[member].intent_log_offset + block * kBlockBytes}},
                             intent_block(edit, member, static_cast<uint32_t>(block), sequence)};
            store_log(edit.editor.members(), log, "");
        }
    }
}

void append_entry(Bytes& record, uint32_t& count, const DiskFsyncEntry& entry,
                  std::span<const std::byte> tail)
{
    append_structure(record, entry);
    record.insert(record.end(), tail.begin(), tail.end());
    ++count;
}

DiskFsyncEntry fsync_entry(FsyncEntryKind kind, uint64_t inode, uint64_t offset, uint64_t count)
{
    DiskFsyncEntry entry{};
    entry.kind = static_cast<uint8_t>(kind);
    entry.object = inode;
    entry.offset = offset;
    entry.count = count;
    return entry;
}

// An inode with any size and the reserved extents that go with it.
void put_file(MultiEdit& edit, uint64_t inode, Bytes& record, uint32_t& count, uint64_t& reserved)
{
    DiskInode disk{};
    disk.size_bytes = edit.chance(1, 2) ? edit.size_between(12, 62) : edit.wild();
    disk.mode = 0100644;
    disk.link_count = static_cast<uint32_t>(edit.near(1));
    disk.next_link_sequence = 2;
    Bytes extents;
    uint32_t extent_count = 0;
    uint64_t at = 0;
    for (uint64_t left = edit.prng.below(40); left > 0; --left) {
        DiskExtent extent{};
        // A longer one spoils the record.
        extent.block_count =
            static_cast<uint32_t>(edit.near(uint64_t{1} << edit.prng.below(edit.chance(1, 400) ? 32 : 15)));
        extent.kind = static_cast<uint8_t>(ExtentKind::kReserved);
        Bytes payload;
        append_structure(payload, extent);
        DiskFsyncEntry entry = fsync_entry(FsyncEntryKind::kPut, inode, at * kBlockBytes, payload.size());
        entry.type = static_cast<uint8_t>(ItemType::kExtent);
        append_entry(extents, extent_count, entry, payload);
        at += extent.block_count;
        reserved += extent.block_count;
    }
    disk.data_blocks = edit.near(at);
    Bytes payload;
    append_structure(payload, disk);
    DiskFsyncEntry entry = fsync_entry(FsyncEntryKind::kPut, inode, 0, payload.size());
    entry.type = static_cast<uint8_t>(ItemType::kInode);
    append_entry(record, count, entry, payload);
    record.insert(record.end(), extents.begin(), extents.end());
    count += extent_count;
}

Bytes fsync_record(MultiEdit& edit, uint64_t next_inode)
{
    Bytes entries;
    uint32_t count = 0;
    DiskFsyncState state{};
    uint64_t reserved = 0;
    const uint64_t wanted = edit.prng.between(1, 60);
    while (count < wanted) {
        const uint64_t inode =
            edit.near(edit.prng.between(kRootInode, std::max<uint64_t>(next_inode, 258) - 1));
        const uint64_t first = edit.chance(1, 2) ? edit.prng.below(100) : edit.wild() / kBlockBytes;
        if (edit.chance(1, 3)) {
            put_file(edit, inode, entries, count, reserved);
        } else if (edit.chance(1, 2)) {
            const uint64_t blocks = edit.chance(1, 2) ? edit.prng.below(1000) + 1 : edit.wild();
            append_entry(entries, count, fsync_entry(FsyncEntryKind::kDropped, inode, first, blocks), {});
        } else {
            const uint64_t blocks = edit.prng.between(1, 3);
            append_entry(entries, count, fsync_entry(FsyncEntryKind::kBlocks, inode, first, blocks),
                         Bytes(blocks * kBlockBytes));
        }
    }
    state.next_inode = edit.near(next_inode);
    state.inode_count = edit.near(10);
    state.reserved_blocks = edit.near(reserved);
    state.entry_count = static_cast<uint32_t>(edit.near(count));
    Bytes record;
    append_structure(record, state);
    record.insert(record.end(), entries.begin(), entries.end());
    return record;
}

// Batches one behind the other on every member, until the ring or the number of them is over.
void fsync_batches(MultiEdit& edit)
{
    const Superblock& superblock = edit.editor.superblock();
    call_live(edit, kLiveFsyncLog);
    DiskFsyncBlock head{};
    head.magic = kFsyncMagic;
    std::memcpy(head.volume_uuid, superblock.volume_uuid.bytes.data(), sizeof head.volume_uuid);
    head.epoch = superblock.log_epoch;
    head.generation = superblock.tree_commits + 1;
    head.generation_before = superblock.tree_commits;
    uint64_t sequence = edit.chance(1, 8) ? std::max<uint64_t>(edit.wild() >> 2, 1) : 1;
    head.generation_first = sequence;
    const uint64_t next_inode = edit.chance(1, 4) ? edit.wild() & kMaxInode : 400;
    uint64_t at = 0;
    for (uint64_t left = edit.chance(1, 4) ? UINT64_MAX : edit.prng.between(1, 8); left > 0; --left) {
        Bytes content;
        const uint64_t records = edit.prng.between(1, 3);
        for (uint64_t i = 0; i < records; ++i) {
            const Bytes record = fsync_record(edit, next_inode);
            DiskFsyncRecord line{};
            line.bytes = static_cast<uint32_t>(edit.near(record.size()));
            append_structure(content, line);
            content.insert(content.end(), record.begin(), record.end());
        }
        const uint64_t blocks = divide_up(content.size(), kFsyncRoomBytes);
        if (at + blocks * kBlockBytes > superblock.members[0].fsync_log_bytes)
            return;
        head.sequence = edit.near(sequence);
        head.record_count = static_cast<uint32_t>(edit.near(records));
        head.content_bytes = static_cast<uint32_t>(edit.near(content.size()));
        head.block_count = static_cast<uint32_t>(edit.near(blocks));
        RawLog log{RawLog::Kind::kFsync, {}, {}};
        append_structure(log.image, head);
        log.image.insert(log.image.end(), content.begin(), content.end());
        for (size_t i = 0; i < superblock.members.size(); ++i)
            log.copies.push_back({i, superblock.members[i].fsync_log_offset + at});
        store_log(edit.editor.members(), log, "");
        at += blocks * kBlockBytes;
        sequence += records;
    }
}

// Several integers of entries that were there, at once.
void live_entries(MultiEdit& edit)
{
    if (edit.editor.logs().empty())
        return edit.chance(1, 2) ? intent_blocks(edit) : fsync_batches(edit);
    for (uint64_t left = edit.prng.between(1, 3); left > 0; --left) {
        RawLog& log = edit.editor.change_log(edit.prng.below(edit.editor.logs().size()));
        const std::vector<LogPart> parts = parts_of(log);
        for (uint64_t changes = edit.prng.between(1, 4); changes > 0 && !parts.empty(); --changes) {
            const LogPart& part = edit.any_of(parts);
            const std::vector<Leaf> leaves = leaves_of(part.structure);
            const Leaf& leaf = edit.any_of(leaves);
            if (leaf.field == "magic" || leaf.field == "volume_uuid" || leaf.field == "epoch")
                continue;
            uint64_t value = 0;
            std::byte* at = log.image.data() + part.offset + leaf.offset;
            std::memcpy(&value, at, leaf.bytes);
            value = edit.chance(1, 2) ? edit.wild() : value + edit.prng.between(0, 4) - 2;
            std::memcpy(at, &value, leaf.bytes);
        }
    }
}

constexpr Recipe kLogRecipes[] = {
    {"intent-blocks", intent_blocks, false, true},
    {"fsync-batches", fsync_batches, false, true},
    {"live-entries", live_entries, false, true},
};

}  // namespace

std::span<const Recipe> log_recipes()
{
    return kLogRecipes;
}

}  // namespace cowraid::test
