// SPDX-License-Identifier: MIT
// Input: blocks of the members' write-intent logs.
#include <array>

#include "journal/intent_log.h"
#include "journal/intent_scan.h"
#include "tests/fuzz_targets/log_members.h"

using namespace cowraid;

namespace {

using namespace log_input;

void fit_block(FuzzBlock& block, const Superblock& superblock)
{
    auto disk = load_front<DiskIntentHeader>(block.content);
    if ((block.fit & kFitIdentity) != 0) {
        disk.magic = kIntentMagic;
        std::memcpy(disk.volume_uuid, superblock.volume_uuid.bytes.data(), sizeof disk.volume_uuid);
        disk.member_id = superblock.members[block.member].id.value;
        disk.block = block.block;
        store_front(std::span(block.content), disk);
    }
    if ((block.fit & kFitChecksum) != 0)
        seal(block.content);
}

// Of a block that decodes: what it encodes to decodes to the same.
void check_block(const FuzzBlock& block, const Superblock& superblock)
{
    IntentHeader expected;
    expected.volume_uuid = superblock.volume_uuid;
    expected.member = superblock.members[block.member].id;
    expected.block = block.block;
    const Result<IntentBlock> decoded = decode_intent_block(block.content, expected);
    if (!decoded.ok())
        return;
    std::vector<std::byte> encoded(kBlockBytes);
    encode_intent_block(decoded->header, decoded->entries, encoded);
    const Result<IntentBlock> again = decode_intent_block(encoded, expected);
    CW_ASSERT(again.ok() && again->entries == decoded->entries);
    CW_ASSERT(again->header.floor == decoded->header.floor && again->header.epoch == decoded->header.epoch);
}

void check_row(IntentScan& scan, const LoggedRow& row)
{
    CW_ASSERT(row.row.valid() && row.row.value % kBlockBytes == 0 && row.sequence < scan.next_sequence());
    CW_ASSERT(!row.checksums.empty() && row.checksums.size() <= kMaxIntentColumns && !row.copies.empty());
    std::vector<std::byte> partial(kBlockBytes);
    for (const LoggedRow::Copy& copy : row.copies) {
        CW_ASSERT(copy.partial.value >= kLogOffset);
        CW_ASSERT(copy.partial.value < kLogOffset + uint64_t{kLogBlocks} * kBlockBytes);
        scan.read_partial(copy, partial).ignore();  // the input need not hold one
    }
}

// A mount that goes on with these logs: what it logs is found by the next one, unless it was refused.
void append_row(LogMembers& log, uint64_t first_sequence)
{
    const AlignedBuffer partial = AlignedBuffer::zeroed(kBlockBytes);
    const std::array<Checksum, 2> checksums{1, 2};
    const RowIntent::Copy copy{log.superblock.members[0].id, 0, partial.data()};
    RowIntent row{.row = {kMiB}, .checksums = checksums, .copies = {&copy, 1}};
    row.modified[1] = true;
    IntentLog intent_log(log.members, log.superblock, first_sequence);
    if (!intent_log.append({&row, 1}, kCommitted.next(), kEpoch).ok())
        return;
    IntentScan scan(log.members, log.superblock);
    CW_ASSERT(scan.rows().size() == 1 && scan.rows()[0].sequence == row.sequence);
    std::vector<std::byte> found(kBlockBytes);
    CW_ASSERT(scan.read_partial(scan.rows()[0].copies[0], found).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    LogMembers log;
    FuzzInput input(data, size);
    while (!input.empty()) {
        FuzzBlock block(input);
        fit_block(block, log.superblock);
        check_block(block, log.superblock);
        log.put(block);
    }
    IntentScan scan(log.members, log.superblock);
    for (const LoggedRow& row : scan.rows())
        check_row(scan, row);
    CW_ASSERT(scan.erase().ok());
    const IntentScan after(log.members, log.superblock);
    CW_ASSERT(after.rows().empty() && after.next_sequence() >= scan.next_sequence());
    append_row(log, scan.next_sequence());
    return 0;
}
