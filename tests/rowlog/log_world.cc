// SPDX-License-Identifier: MIT
#include "tests/rowlog/log_world.h"

#include <cstring>

#include "base/assert.h"
#include "base/checksum.h"
#include "raid56/parity.h"
#include "sim/borrowed_device.h"

namespace cowraid::test {

namespace {

// May forget to write floors.
class FloorDevice final : public BlockDevice {
public:
    FloorDevice(std::unique_ptr<BlockDevice> inner, bool drop_floors)
        : inner_(std::move(inner)), drop_floors_(drop_floors)
    {
    }
    [[nodiscard]] uint64_t size_bytes() const override { return inner_->size_bytes(); }
    [[nodiscard]] const char* name() const override { return inner_->name(); }
    void perform(IoRequest& request) override
    {
        if (drop_floors_ && request.kind == IoKind::kWrite && request.bytes() == kBlockBytes &&
            is_floor(static_cast<const std::byte*>(request.vectors[0].iov_base)))
            request.result = Err::kOk;
        else
            pass_on(request);
    }

private:
    void pass_on(IoRequest& request)
    {
        BlockDevice* const asked = request.device;
        request.device = inner_.get();
        inner_->perform(request);
        request.device = asked;
    }
    static bool is_floor(const std::byte* block)
    {
        DiskIntentHeader header;
        std::memcpy(&header, block, sizeof header);
        return header.magic == kIntentMagic && header.entry_count == 0;
    }

    std::unique_ptr<BlockDevice> inner_;
    const bool drop_floors_;
};

void perform_all(std::vector<IoRequest>& requests)
{
    run_io(requests);
    for (const IoRequest& request : requests)
        CW_ASSERT(request.result.ok());
}

}  // namespace

LogWorld::LogWorld(const LogRun& log_run) : run(log_run), prng_(log_run.seed)
{
    set_up();
    IntentLog log(members_, superblock, 1);
    for (const LogStep& step : run.steps) {
        for (uint32_t row = 0; row < step.written.size(); ++row)
            forget(row, step.written[row]);
        append(log, step);
        if (stuck)
            return;
        for (uint32_t row = 0; row < step.written.size(); ++row)
            write_in_place(row, step.written[row]);
        for (const uint64_t sequence : sequences_)
            log.written(sequence);
        for (uint32_t row = 0; row < run.rows; ++row)
            if ((step.whole >> row & 1) != 0)
                write_whole(row);
        if (step.after != LogStep::After::kNothing)
            flush_all(log, step.after == LogStep::After::kCommit);
    }
}

uint32_t LogWorld::add_content()
{
    contents_.emplace_back(kBlockBytes);
    prng_.fill(contents_.back().data(), kBlockBytes);
    return static_cast<uint32_t>(contents_.size() - 1);
}

void LogWorld::set_up()
{
    superblock.volume_uuid.bytes.fill(3);
    superblock.generation = superblock.root.generation = {5};
    superblock.epochs = {{kEpoch, {1}}};
    superblock.log_epoch = kEpoch;
    now_.generation = superblock.generation;
    for (uint32_t row = 0; row < run.rows; ++row) {
        Row& state = rows_.emplace_back();
        for (uint32_t column = 0; column < run.data_columns; ++column)
            state.now.push_back(add_content());
        now_.blocks.push_back(state.now);
    }
    for (uint32_t member = 0; member < members(); ++member) {
        MemberRecord record;
        record.id = {member + 1};
        record.intent_log_offset = 0;
        record.intent_log_bytes = uint64_t{run.log_blocks} * kBlockBytes;
        superblock.members.push_back(record);
        const uint64_t bytes = uint64_t{blocks()} * kBlockBytes;
        disks_.push_back(std::make_unique<SimDevice>("m" + std::to_string(member + 1), bytes));
    }
    for (uint32_t row = 0; row < run.rows; ++row) {
        AlignedBuffer parity(run.parity * kBlockBytes);
        make_parity(rows_[row], 0, parity);
        for (uint32_t column = 0; column < members(); ++column) {
            const std::byte* block = column < run.data_columns
                                         ? content(rows_[row].now[column])
                                         : parity.data() + (column - run.data_columns) * kBlockBytes;
            disks_[member_of(row, column)]->poke(uint64_t{run.log_blocks + row} * kBlockBytes,
                                                 {block, kBlockBytes});
        }
    }
    for (uint32_t member = 0; member < members(); ++member) {
        auto recording =
            std::make_unique<RecordingDevice>(recorder, std::make_unique<BorrowedDevice>(*disks_[member]));
        recorder.set_start(recording->number(), *disks_[member]);
        auto device =
            std::make_unique<FloorDevice>(std::move(recording), run.mutant == RowMutant::kReusedEarly);
        members_.add({member + 1}, away(member) ? nullptr : std::unique_ptr<BlockDevice>(std::move(device)),
                     {});
    }
    record_sums();
    promises.push_back(now_);
}

void LogWorld::record_sums()
{
    now_.recorded.clear();
    for (const Row& row : rows_) {
        std::vector<Checksum>& sums = now_.recorded.emplace_back();
        AlignedBuffer parity(run.parity * kBlockBytes);
        make_parity(row, 0, parity);
        for (uint32_t column = 0; column < run.data_columns; ++column)
            sums.push_back(checksum_of(content(row.now[column]), kBlockBytes));
        for (uint32_t p = 0; p < run.parity; ++p)
            sums.push_back(checksum_of(parity.data() + p * kBlockBytes, kBlockBytes));
    }
}

// From here on, what now_ says.
void LogWorld::promise()
{
    recorder.mark(promises.size(), "");
    promises.push_back(now_);
}

// These blocks are free, and about to be written.
void LogWorld::forget(uint32_t row, Mask columns)
{
    bool any = false;
    for (uint32_t column = 0; column < run.data_columns; ++column) {
        if ((columns >> column & 1) == 0 || now_.blocks[row][column] == kFree)
            continue;
        now_.blocks[row][column] = kFree;
        any = true;
    }
    if (any)
        promise();
}

void LogWorld::make_parity(const Row& row, Mask left_out, AlignedBuffer& out) const
{
    static const AlignedBuffer zeros = AlignedBuffer::zeroed(kBlockBytes);
    std::vector<const std::byte*> blocks;
    for (uint32_t column = 0; column < run.data_columns; ++column)
        blocks.push_back((left_out >> column & 1) != 0 ? zeros.data() : content(row.now[column]));
    std::vector<std::byte*> outputs;
    for (uint32_t p = 0; p < run.parity; ++p)
        outputs.push_back(out.data() + p * kBlockBytes);
    parity_generate(blocks, outputs, kBlockBytes);
}

void LogWorld::write_block(uint32_t row, uint32_t column, const std::byte* block)
{
    const uint32_t member = member_of(row, column);
    if (away(member))
        return;
    const iovec vector{const_cast<std::byte*>(block), kBlockBytes};
    std::vector<IoRequest> requests{{.kind = IoKind::kWrite,
                                     .device = members_.device({member + 1}),
                                     .offset = {uint64_t{run.log_blocks + row} * kBlockBytes},
                                     .vectors = {&vector, 1}}};
    perform_all(requests);
}

// False: the log is full.
bool LogWorld::try_append(IntentLog& log, const LogStep& step)
{
    std::vector<RowIntent> intents;
    std::vector<std::vector<Checksum>> sums(run.rows);
    std::vector<AlignedBuffer> partials;
    std::vector<std::vector<RowIntent::Copy>> copies(run.rows);
    for (uint32_t row = 0; row < step.written.size(); ++row) {
        if (step.written[row] == 0)
            continue;
        const Mask modified = rows_[row].modified | step.written[row];
        make_parity(rows_[row], modified, partials.emplace_back(run.parity * kBlockBytes));
        RowIntent& intent = intents.emplace_back();
        intent.row = {(uint64_t{row} + 1) * kBlockBytes};
        for (uint32_t column = 0; column < run.data_columns; ++column) {
            sums[row].push_back(checksum_of(content(rows_[row].now[column]), kBlockBytes));
            intent.modified[column] = (modified >> column & 1) != 0;
        }
        for (uint32_t p = 0; p < run.parity; ++p) {
            const uint32_t member = member_of(row, run.data_columns + p);
            if (!away(member))
                copies[row].push_back({{member + 1}, p, partials.back().data() + p * kBlockBytes});
        }
        if (copies[row].empty()) {
            intents.pop_back();  // no parity is left: nothing to protect
            continue;
        }
        intent.checksums = sums[row];
        intent.copies = copies[row];
    }
    const Status status = log.append(intents, {now_.generation.value + 1}, kEpoch);
    if (status.err() == Err::kNoSpace)
        return false;
    CW_ASSERT(status.ok());
    for (const RowIntent& intent : intents)
        sequences_.push_back(intent.sequence);
    return true;
}

void LogWorld::append(IntentLog& log, const LogStep& step)
{
    sequences_.clear();
    std::vector<Row> before = rows_;
    for (uint32_t row = 0; row < step.written.size(); ++row)
        for (uint32_t column = 0; column < run.data_columns; ++column)
            if ((step.written[row] >> column & 1) != 0)
                rows_[row].now[column] = add_content();
    if (!try_append(log, step)) {
        ++refusals;
        std::swap(before, rows_);
        if (run.mutant == RowMutant::kFloorBeforeCommit)
            flush_members_and_retire(log);
        else
            flush_all(log, false);
        for (uint32_t row = 0; row < run.rows; ++row)
            rows_[row].now = before[row].now;
        stuck = !try_append(log, step);
    }
    for (uint32_t row = 0; row < step.written.size(); ++row) {
        rows_[row].modified |= step.written[row];
        rows_[row].unacknowledged |= step.written[row];
    }
}

void LogWorld::write_in_place(uint32_t row, Mask columns)
{
    if (columns == 0)
        return;
    AlignedBuffer parity(run.parity * kBlockBytes);
    make_parity(rows_[row], 0, parity);
    for (uint32_t column = 0; column < run.data_columns; ++column)
        if ((columns >> column & 1) != 0)
            write_block(row, column, content(rows_[row].now[column]));
    for (uint32_t p = 0; p < run.parity; ++p)
        write_block(row, run.data_columns + p, parity.data() + p * kBlockBytes);
}

void LogWorld::write_whole(uint32_t row)
{
    const Mask all = (1u << run.data_columns) - 1;
    forget(row, all);
    for (uint32_t& block : rows_[row].now)
        block = add_content();
    rows_[row].unacknowledged = all;
    write_in_place(row, all);
}

void LogWorld::flush_members_and_retire(IntentLog& log)
{
    const uint64_t covered = log.flush_covers();
    std::vector<IoRequest> requests;
    for (uint32_t member = 0; member < members(); ++member)
        if (!away(member))
            requests.push_back({.kind = IoKind::kFlush, .device = members_.device({member + 1})});
    perform_all(requests);
    log.retire(covered);
    for (Row& row : rows_)
        row.modified = 0;
}

void LogWorld::flush_all(IntentLog& log, bool commit)
{
    flush_members_and_retire(log);
    for (uint32_t row = 0; row < run.rows; ++row) {
        for (uint32_t column = 0; column < run.data_columns; ++column)
            if ((rows_[row].unacknowledged >> column & 1) != 0)
                now_.blocks[row][column] = rows_[row].now[column];
        rows_[row].unacknowledged = 0;
    }
    // The superblock is not replayed: it changes for all members at one moment, which is the next mark.
    record_sums();
    promise();
    if (!commit)
        return;
    now_.generation = {now_.generation.value + 1};
    promise();
}

}  // namespace cowraid::test
