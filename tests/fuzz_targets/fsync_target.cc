// SPDX-License-Identifier: MIT
// Input: blocks of the members' fsync logs. What the scan would replay is decoded as records.
#include "format/fsync_record.h"
#include "journal/fsync_log.h"
#include "journal/fsync_scan.h"
#include "tests/fuzz_targets/log_members.h"

using namespace cowraid;

namespace {

using namespace log_input;

void fit_block(FuzzBlock& block, const Superblock& superblock)
{
    auto disk = load_front<DiskFsyncBlock>(block.content);
    if ((block.fit & kFitIdentity) != 0) {
        disk.magic = kFsyncMagic;
        std::memcpy(disk.volume_uuid, superblock.volume_uuid.bytes.data(), sizeof disk.volume_uuid);
        disk.block_count = static_cast<uint32_t>(divide_up(disk.content_bytes, kFsyncRoomBytes));
    }
    if ((block.fit & kFitContent) != 0 && disk.content_bytes <= kFsyncRoomBytes)
        disk.content_checksum =
            checksum_of(std::span(block.content).subspan(sizeof disk, disk.content_bytes));
    store_front(std::span(block.content), disk);
    if ((block.fit & kFitChecksum) != 0)
        seal(block.content);
}

// What a record encodes to decodes to the same.
void check_record(std::span<const std::byte> bytes)
{
    const Result<FsyncRecord> record = decode_fsync_record(bytes);
    if (!record.ok())
        return;
    FsyncRecordEncoder encoder;
    for (const FsyncRecord::Item& item : record->items) {
        CW_ASSERT(item.payload.size() <= kMaxItemBytes);
        CW_ASSERT(encoder.add_item({item.key, item.erased, {item.payload.begin(), item.payload.end()}}));
    }
    for (const LoggedBlocks& blocks : record->blocks)
        CW_ASSERT(encoder.add_blocks(blocks));
    const std::vector<std::byte> encoded = encoder.finish(record->counters);
    const Result<FsyncRecord> again = decode_fsync_record(encoded);
    CW_ASSERT(encoded.size() == bytes.size() && again.ok());
    CW_ASSERT(again->items.size() == record->items.size() && again->blocks.size() == record->blocks.size());
}

void check_batch(const FsyncHeader& header, const FsyncContent& content)
{
    CW_ASSERT(content.records.size() == header.record_count);
    for (const std::span<const std::byte> record : content.records)
        check_record(copy_of(record));
    FsyncHeader again = header;
    std::vector<std::byte> blocks(size_t{header.block_count()} * kBlockBytes);
    encode_fsync_batch(again, content.records, blocks);
    const Result<FsyncContent> decoded = decode_fsync_batch(blocks, again);
    CW_ASSERT(decoded.ok() && decoded->records.size() == content.records.size());
}

// Batches in order, each readable or not, and what they hold.
void check_scan(FsyncScan& scan, Generation committed)
{
    uint64_t next = 0;
    for (const FsyncScan::Batch& batch : scan.batches()) {
        CW_ASSERT(next == 0 || batch.header.sequence == next);
        next = batch.header.end_sequence();
        const Result<FsyncContent> content = scan.read(batch);
        if (content.ok())
            check_batch(batch.header, *content);
    }
    CW_ASSERT(next <= scan.next_sequence() && scan.commit_at_least() >= committed);
    for (const FsyncScan::Batch& batch : scan.left_out())
        CW_ASSERT(batch.header.end_sequence() <= scan.next_sequence() && !batch.copies.empty());
}

// A mount that goes on with these logs. Forged blocks of later generations may be live beside its record.
void append_record(LogMembers& log, const FsyncScan& scan)
{
    constexpr uint32_t kTolerance = 1;
    const Generation committed = scan.commit_at_least();
    FsyncLog fsync_log(log.members, log.superblock, kTolerance, scan.next_sequence(), committed);
    const std::vector<std::byte> record(100, std::byte{1});
    for (int times = 0; times < 2; ++times)
        fsync_log.append(record, committed.next(), kEpoch).ignore();  // numbers may have ended
    FsyncScan again(log.members, log.superblock, committed);
    CW_ASSERT(again.next_sequence() >= scan.next_sequence());
    check_scan(again, committed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    LogMembers log;
    FuzzInput input(data, size);
    while (!input.empty()) {
        FuzzBlock block(input);
        fit_block(block, log.superblock);
        log.put(block);
    }
    FsyncScan scan(log.members, log.superblock, kCommitted);
    check_scan(scan, kCommitted);
    append_record(log, scan);
    return 0;
}
