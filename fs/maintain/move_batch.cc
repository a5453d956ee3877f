// SPDX-License-Identifier: MIT
// Reading blocks that are to be moved. They are found by the allocation state of their group, not by walking
// files.
#include "fs/maintain/move_batch.h"

#include <algorithm>

#include "format/window_codec.h"

namespace cowraid {

namespace {

class BatchRead {
public:
    BatchRead(Store& store, const View& view, MoveBatch& batch)
        : store_(store), view_(view), batch_(batch) { }

    Status run()
    {
        uint64_t count = 0;
        for (const BlockRun& run : batch_.runs)
            count += run.block_count;
        if (batch_.memory.size() < count * kBlockBytes)
            batch_.memory = AlignedBuffer(count * kBlockBytes);
        batch_.checksums.resize(count);
        logicals_.resize(count);
        movable_.assign(count, true);
        CW_TRY(look_up());
        read();
        CW_TRY(follow_names());
        join();
        return {};
    }

private:
    Status look_up();
    void read();
    void read_singly();
    Status follow_names();
    void join();

    Store& store_;
    const View& view_;
    MoveBatch& batch_;
    std::vector<VolumeAddress> logicals_;
    std::vector<bool> movable_;
    bool all_known_ = true;
};

// Their checksums and their names.
Status BatchRead::look_up()
{
    std::vector<BlockExpectation> expected;
    size_t index = 0;
    for (const BlockRun& run : batch_.runs) {
        expected.resize(run.block_count);
        CW_TRY(store_.checksums.lookup(view_, run.address, expected));
        CW_TRY(store_.remap.logical_of(view_, run.address,
                                       std::span(logicals_).subspan(index, run.block_count)));
        for (const BlockExpectation& expectation : expected) {
            all_known_ = all_known_ && expectation.known;
            movable_[index] = expectation.known;
            batch_.checksums[index++] = expectation.checksum;
        }
    }
    return {};
}

void BatchRead::read()
{
    std::vector<ReadPiece> pieces(batch_.runs.size());
    size_t index = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
        pieces[i].address = batch_.runs[i].address;
        pieces[i].block_count = batch_.runs[i].block_count;
        pieces[i].memory = batch_.memory.data() + index * kBlockBytes;
        pieces[i].checksums = batch_.checksums.data() + index;
        index += batch_.runs[i].block_count;
    }
    if (!all_known_ || !store_.volume.array().read(pieces).ok())
        read_singly();
}

// Tells which of the blocks can be had, one by one.
void BatchRead::read_singly()
{
    size_t index = 0;
    for (const BlockRun& run : batch_.runs)
        for (uint32_t i = 0; i < run.block_count; ++i, ++index) {
            ReadPiece piece;
            piece.address = run.address + uint64_t{i} * kBlockBytes;
            piece.block_count = 1;
            piece.memory = batch_.memory.data() + index * kBlockBytes;
            piece.checksums = &batch_.checksums[index];
            if (movable_[index] && !store_.volume.array().read({&piece, 1}).ok())
                movable_[index] = false;
        }
}

// Whether the logical address of a block leads to it. Moving one that a damaged tree gives to another would
// lose it for its own file, and give it to another (I-28).
Status BatchRead::follow_names()
{
    std::vector<RemappedRun> places;
    size_t index = 0;
    for (const BlockRun& run : batch_.runs)
        for (uint32_t i = 0; i < run.block_count;) {
            const VolumeAddress name = logicals_[index];
            // Names of one window are of one group.
            const uint64_t window_end = round_down(name.value, kChecksumWindowBytes) + kChecksumWindowBytes;
            uint32_t count = 1;
            while (i + count < run.block_count && logicals_[index + count] == name + count * kBlockBytes &&
                   (name + count * kBlockBytes).value < window_end)
                ++count;
            places.clear();
            CW_TRY(store_.remap.resolve(view_, name, count, places));
            uint32_t done = 0;
            for (const RemappedRun& place : places)
                for (uint64_t block = 0; block < place.block_count && done < count; ++block, ++done)
                    if (place.physical + block * kBlockBytes !=
                        run.address + uint64_t{i + done} * kBlockBytes)
                        movable_[index + done] = false;
            i += count;
            index += count;
        }
    return {};
}

void BatchRead::join()
{
    size_t index = 0;
    for (const BlockRun& run : batch_.runs)
        for (uint32_t i = 0; i < run.block_count; ++i, ++index) {
            const VolumeAddress from = run.address + uint64_t{i} * kBlockBytes;
            if (!movable_[index]) {
                ++batch_.unmovable;
                continue;
            }
            ++batch_.move_count;
            if (!batch_.moves.empty()) {
                MovedRun& last = batch_.moves.back();
                const uint64_t bytes = uint64_t{last.block_count} * kBlockBytes;
                if (last.from + bytes == from && last.logical + bytes == logicals_[index]) {
                    ++last.block_count;
                    continue;
                }
            }
            batch_.moves.push_back({from, logicals_[index], {}, 1, index});
        }
}

}  // namespace

Status read_move_batch(Store& store, const View& view, VolumeAddress from, uint64_t block_count,
                       MoveBatch& out)
{
    out.from = {};
    out.runs.clear();
    out.moves.clear();
    out.move_count = out.unmovable = 0;
    CW_TRY(store.allocator.live_blocks(from, block_count, out.runs));
    CW_TRY(BatchRead(store, view, out).run());
    out.from = from;
    return {};
}

}  // namespace cowraid
