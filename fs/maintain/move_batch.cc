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
        if (batch_.runs.size() > kPiecesMax)
            batch_.runs.resize(kPiecesMax);
        CW_TRY(look_up());
        keep(few_blocks());
        if (batch_.memory.size() < logicals_.size() * kBlockBytes)
            batch_.memory = AlignedBuffer(logicals_.size() * kBlockBytes);
        read();
        CW_TRY(follow_names());
        join();
        return {};
    }

private:
    // Requests, and runs that are switched while no operation runs.
    static constexpr size_t kPiecesMax = 512;

    Status look_up();
    [[nodiscard]] size_t few_blocks() const;
    void keep(size_t block_count);
    void read();
    Status follow_names();
    void join();

    Store& store_;
    const View& view_;
    MoveBatch& batch_;
    std::vector<VolumeAddress> logicals_;
    std::vector<bool> movable_;
};

// Their checksums and their names.
Status BatchRead::look_up()
{
    std::vector<BlockExpectation> expected;
    batch_.checksums.clear();
    for (const BlockRun& run : batch_.runs) {
        expected.resize(run.block_count);
        CW_TRY(store_.checksums.lookup(view_, run.address, expected));
        const size_t index = logicals_.size();
        logicals_.resize(index + run.block_count);
        CW_TRY(store_.remap.logical_of(view_, run.address, std::span(logicals_).subspan(index)));
        for (const BlockExpectation& expectation : expected) {
            movable_.push_back(expectation.known);
            batch_.checksums.push_back(expectation.checksum);
        }
    }
    return {};
}

// How many of them are kPiecesMax pieces by either address, whole stripes if there is one.
size_t BatchRead::few_blocks() const
{
    size_t index = 0;
    size_t pieces = 0;
    for (const BlockRun& run : batch_.runs)
        for (uint32_t i = 0; i < run.block_count; ++i, ++index) {
            if (i > 0 && logicals_[index] == logicals_[index - 1] + kBlockBytes)
                continue;
            if (++pieces <= kPiecesMax)
                continue;
            const Ref<const ArrayGroup> group = store_.volume.array().group_at(run.address);
            const size_t stripe = group->geometry.stripe_data_blocks();
            return index < stripe ? index : index / stripe * stripe;
        }
    return index;
}

// The first ones of the batch.
void BatchRead::keep(size_t block_count)
{
    logicals_.resize(block_count);
    movable_.resize(block_count);
    batch_.checksums.resize(block_count);
    size_t runs = 0;
    for (; block_count > 0; ++runs) {
        BlockRun& run = batch_.runs[runs];
        run.block_count = static_cast<uint32_t>(std::min<size_t>(run.block_count, block_count));
        block_count -= run.block_count;
    }
    batch_.runs.resize(runs);
}

void BatchRead::read()
{
    std::vector<ReadPiece> pieces;
    size_t index = 0;
    for (const BlockRun& run : batch_.runs)
        for (uint32_t i = 0; i < run.block_count; ++i, ++index) {
            if (!movable_[index])
                continue;
            if (i == 0 || !movable_[index - 1]) {
                pieces.emplace_back();
                pieces.back().address = run.address + uint64_t{i} * kBlockBytes;
                pieces.back().memory = batch_.memory.data() + index * kBlockBytes;
                pieces.back().checksums = &batch_.checksums[index];
            }
            ++pieces.back().block_count;
        }
    if (store_.volume.array().read(pieces).ok())
        return;
    for (const ReadPiece& piece : pieces) {
        note_lost(store_, piece);
        const size_t first = static_cast<size_t>(piece.memory - batch_.memory.data()) / kBlockBytes;
        for (uint32_t i = 0; i < piece.block_count && !piece.result.ok(); ++i)
            movable_[first + i] = holds_expected(piece, i);
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
    out.runs.clear();
    out.moves.clear();
    out.move_count = out.unmovable = 0;
    CW_TRY(store.allocator.live_blocks(from, block_count, out.runs));
    return BatchRead(store, view, out).run();
}

}  // namespace cowraid
