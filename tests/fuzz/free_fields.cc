// SPDX-License-Identifier: MIT
#include "tests/fuzz/fuzz_case.h"

namespace cowraid::test {

namespace {

struct FreeField {
    std::string_view structure, field, why;
    bool visible = false;
};

constexpr FreeField kFreeFields[] = {
    {"DiskSuperblock", "compat_features", "programs ignore and keep what they do not know"},
    {"DiskSuperblock", "readonly_features", "unknown bits make a mount read-only"},
    {"DiskSuperblock", "incompat_features", "of features that are not in use yet"},
    {"DiskSuperblock", "generation", "any number above those of the trees"},
    {"DiskSuperblock", "epoch", "a random number, with the entry that repeats it"},
    {"DiskSuperblock", "epochs.epoch", "a random number"},
    {"DiskSuperblock", "epochs.generation", "any between its neighbours"},
    {"DiskSuperblock", "epoch_count", "a shorter history is one"},
    {"DiskSuperblock", "next_member_id", "any above the ids given"},
    {"DiskSuperblock", "chunk_bytes", "of new groups"},
    {"DiskSuperblock", "data_profile", "of new groups"},
    {"DiskSuperblock", "metadata_profile", "of new groups"},
    {"DiskSuperblock", "next_group_address", "any behind the groups"},
    {"DiskSuperblock", "created_seconds", "a label"},
    {"DiskSuperblock", "label", "a label"},
    {"DiskSuperblock", "live_logs", "a log is read for nothing"},
    {"DiskSuperblock", "tree_commits", "a count"},
    {"DiskSuperblock", "unmounted", "whether a bad copy of the superblock is counted"},
    {"DiskSuperblock", "log_epoch", "a random number that entries of the logs repeat"},
    {"DiskSuperblock", "balance.state", "a balance that rests"},
    {"DiskSuperblock", "balance.content", "which groups a balance empties"},
    {"DiskSuperblock", "balance.usage_max", "which groups a balance empties"},
    {"DiskSuperblock", "balance.member", "which groups a balance empties"},
    {"DiskSuperblock", "balance.before", "which groups a balance empties"},
    {"DiskSuperblock", "balance.total_bytes", "what its progress is told by"},
    {"DiskSuperblock", "scrub.state", "a scrub that rests"},
    {"DiskSuperblock", "scrub.flags", "how a scrub goes on"},
    {"DiskSuperblock", "scrub.limit", "how fast a scrub goes on"},
    {"DiskSuperblock", "scrub.started", "a time"},
    {"DiskSuperblock", "scrub.ended", "a time"},
    {"DiskSuperblock", "scrub.run_ms", "a time"},
    {"DiskSuperblock", "scrub.verified_before", "which groups a scrub leaves out"},
    {"DiskSuperblock", "scrub.bytes_max", "when a scrub ends"},
    {"DiskSuperblock", "scrub.numbers", "what a scrub found"},
    {"DiskSuperblock", "scrub.key_object", "where a scrub goes on"},
    {"DiskSuperblock", "scrub.key_offset", "where a scrub goes on"},
    {"DiskSuperblock", "scrub.key_type", "where a scrub goes on"},
    {"DiskSuperblock", "scrub.reserved", "ignored"},
    {"DiskSuperblock", "scrub.tree", "where a scrub goes on"},
    {"DiskSuperblock", "scrub.group", "where a scrub goes on"},
    {"DiskSuperblock", "scrub.stripe", "where a scrub goes on"},
    {"DiskSuperblock", "reserved2", "ignored"},
    {"DiskMember", "uuid", "identity of the device, the same on all copies"},
    {"DiskMember", "size_bytes", "smaller than the device, as long as everything fits"},
    {"DiskMember", "slot_count", "slots that are not used"},
    {"DiskMember", "map_offset", "the place that is not in use"},
    {"DiskMember", "map_bytes", "room"},
    {"DiskMember", "intent_log_offset", "not used by this version"},
    {"DiskMember", "intent_log_bytes", "not used by this version"},
    {"DiskMember", "fsync_log_offset", "of a log that is not in use"},
    {"DiskMember", "fsync_log_bytes", "of a log that is not in use"},
    {"DiskMember", "counters", "statistics"},
    {"DiskMember", "scrubbed", "what a scrub found"},
    {"DiskMember", "reserved", "ignored"},
    {"DiskGroupMap", "generation", "of the commit that wrote the map, as the superblock repeats it"},
    {"DiskGroupMap", "reserved", "ignored"},
    {"DiskNodeHeader", "item_count", "fewer items, all extended attributes, which nothing counts", true},
    {"DiskNodeHeader", "generation", "any up to its parent's, with the pointer that repeats it"},
    {"DiskChildItem", "object", "the first key below, or a smaller one"},
    {"DiskChildItem", "type", "the first key below, or a smaller one"},
    {"DiskChildItem", "offset", "the first key below, or a smaller one"},
    {"DiskGroup", "content", "of a group that holds nothing"},
    {"DiskGroup", "flags", "closed for allocation"},
    {"DiskGroup", "profile", "another with the same places"},
    {"DiskGroup", "chunk_bytes", "of no consequence in a mirror"},
    {"DiskGroup", "mapping_version", "a count"},
    {"DiskGroup", "created_generation", "a label"},
    {"DiskGroup", "verified_seconds", "a time"},
    {"DiskGroupColumn", "member_id", "of a group that holds nothing: any member that has the slots free"},
    {"DiskGroupColumn", "stale_since", "of a column that has everything all the same"},
    {"DiskSlotRun", "first_slot", "of a group that holds nothing: any free slot"},
    {"DiskChecksumWindow", "tail", "of a row that holds nothing"},
    {"DiskVolume", "next_inode", "any above the numbers given"},
    {"DiskVolume", "compression_counted", "the counts say nothing"},
    {"DiskVolume", "reserved", "ignored"},
    {"DiskTreeRoot", "reserved", "ignored"},
    {"DiskInode", "size_bytes", "a file may end in a hole", true},
    {"DiskInode", "generation", "for file handles"},
    {"DiskInode", "rdev", "a user's number"},
    {"DiskInode", "mode", "permission bits"},
    {"DiskInode", "uid", "a user's number"},
    {"DiskInode", "gid", "a user's number"},
    {"DiskInode", "accessed.seconds", "a time"},
    {"DiskInode", "accessed.nanoseconds", "a time"},
    {"DiskInode", "modified.seconds", "a time"},
    {"DiskInode", "modified.nanoseconds", "a time"},
    {"DiskInode", "changed.seconds", "a time"},
    {"DiskInode", "changed.nanoseconds", "a time"},
    {"DiskInode", "created.seconds", "a time"},
    {"DiskInode", "created.nanoseconds", "a time"},
    {"DiskInode", "next_link_sequence", "any above the numbers given"},
    {"DiskInode", "flags", "what may be done with it"},
    {"DiskInode", "parent", "of a removed directory"},
    {"DiskInode", "reserved", "ignored"},
    {"DiskExtent", "generation", "a label"},
    {"DiskExtent", "offset_blocks", "another part of what a frame holds", true},
    {"DiskDamage", "found_seconds", "a time"},
    {"DiskDamage", "block_count", "which blocks are listed as lost"},
    {"DiskGroupSummary", "reserved", "ignored"},
    {"DiskSpaceWindow", "last_write", "a label"},
};

const FreeField* find(const Leaf& leaf)
{
    for (const FreeField& free : kFreeFields)
        if (free.structure == leaf.structure && free.field == leaf.field)
            return &free;
    return nullptr;
}

}  // namespace

bool is_log_field(const Leaf& leaf)
{
    return leaf.structure.starts_with("DiskIntent") || leaf.structure.starts_with("DiskFsync");
}

bool is_free_field(const Leaf& leaf)
{
    return find(leaf) != nullptr;
}

bool is_visible_field(const Leaf& leaf)
{
    const FreeField* free = find(leaf);
    return free != nullptr && free->visible;
}

}  // namespace cowraid::test
