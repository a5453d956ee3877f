// SPDX-License-Identifier: MIT
// How fast the array turns memory into requests and back, per core: write_rows() and read() on members that
// swallow writes and answer reads with nothing, so that checksums and parity are what is measured; then
// degraded reads from members that copy, for which content is needed.
// Usage: bench_write [data columns] [parity] [chunk KiB]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/buffer.h"
#include "base/checksum.h"
#include "raid56/array.h"
#include "raid56/parity.h"

using namespace cowraid;

namespace {

// Takes every write and answers every read with nothing done: the reader's memory stays as it was.
class NullDevice final : public BlockDevice {
public:
    [[nodiscard]] uint64_t size_bytes() const override { return 1 * kTiB; }
    [[nodiscard]] const char* name() const override { return "null"; }
    void perform(IoRequest& request) override { request.result = Err::kOk; }
};

// Keeps what is written, as one flat piece of memory from `base` on.
class FlatDevice final : public BlockDevice {
public:
    explicit FlatDevice(size_t bytes) : memory_(bytes) { }
    [[nodiscard]] uint64_t size_bytes() const override { return 1 * kTiB; }
    [[nodiscard]] const char* name() const override { return "flat"; }
    void perform(IoRequest& request) override
    {
        size_t at = request.offset.value - kBase;
        for (const iovec& vector : request.vectors) {
            if (request.kind == IoKind::kWrite)
                std::memcpy(memory_.data() + at, vector.iov_base, vector.iov_len);
            else
                std::memcpy(vector.iov_base, memory_.data() + at, vector.iov_len);
            at += vector.iov_len;
        }
        request.result = Err::kOk;
    }
    static constexpr uint64_t kBase = 16 * kMiB;

private:
    AlignedBuffer memory_;
};

// Processor time: figures are per core, and other work on the machine disturbs them less.
double now()
{
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Bench {
    Bench(uint32_t k, uint32_t m, uint32_t chunk_bytes, bool flat);
    RowWrite write_of(uint64_t first_stripe, uint64_t stripe_count);
    void run_write();
    void run_read(const char* what);
    void run_parity_alone() const;

    uint32_t k;
    uint32_t m;
    uint32_t chunk_bytes;
    uint64_t stripes;
    MemberSet members;
    std::unique_ptr<Array> array;
    AlignedBuffer data;
    std::vector<const std::byte*> blocks;
    static constexpr VolumeAddress kGroup{kGiB};
    static constexpr double kSeconds = 1.0;
};

Bench::Bench(uint32_t data_columns, uint32_t parity, uint32_t chunk, bool flat)
    : k(data_columns),
      m(parity),
      chunk_bytes(chunk),
      stripes(256 * kMiB / (uint64_t{k} * chunk)),
      data(stripes * k * chunk)
{
    Superblock superblock;
    GroupRecord record;
    record.address = kGroup;
    record.profile = m == 0 ? ProfileId::kRaid0 : m == 1 ? ProfileId::kRaid5 : ProfileId::kRaid6;
    record.column_bytes = 4 * kGiB;
    record.chunk_bytes = chunk_bytes;
    record.data_columns = k;
    for (uint32_t i = 1; i <= k + m; ++i) {
        std::unique_ptr<BlockDevice> device = std::make_unique<NullDevice>();
        if (flat)
            device = std::make_unique<FlatDevice>(stripes * chunk_bytes);
        members.add({i}, std::move(device), {});
        MemberRecord line;
        line.id = {i};
        line.slots_offset = FlatDevice::kBase;
        line.slot_bytes = kGiB;
        line.slot_count = 4;
        superblock.members.push_back(line);
        record.columns.push_back({.member = {i}, .runs = {{0, 4}}});
    }
    array = std::make_unique<Array>(members, Array::Options{});
    CW_ASSERT(array->add_group(record, superblock).ok());
    for (size_t at = 0; at < data.size(); at += sizeof at)
        std::memcpy(data.data() + at, &at, sizeof at);
    for (size_t at = 0; at < data.size(); at += kBlockBytes)
        blocks.push_back(data.data() + at);
}

RowWrite Bench::write_of(uint64_t first_stripe, uint64_t stripe_count)
{
    const uint32_t rows = chunk_bytes / kBlockBytes;
    return {
        .group_address = kGroup,
        .first_stripe = first_stripe,
        .stripe_count = stripe_count,
        .row_count = rows,
        .blocks = std::span(blocks).subspan(first_stripe * k * rows, stripe_count * k * rows),
    };
}

void Bench::run_write()
{
    const uint64_t at_once = std::max<uint64_t>(16 * kMiB / (uint64_t{k} * chunk_bytes), 1);
    uint64_t bytes = 0;
    const double start = now();
    while (now() - start < kSeconds) {
        for (uint64_t stripe = 0; stripe + at_once <= stripes; stripe += at_once) {
            RowWrite write = write_of(stripe, at_once);
            CW_ASSERT(array->write_rows(std::span(&write, 1)).ok());
            bytes += at_once * k * chunk_bytes;
        }
    }
    fprintf(stderr, "write_rows  %6.2f GB/s of data\n", static_cast<double>(bytes) / (now() - start) / 1e9);
}

void Bench::run_read(const char* what)
{
    const size_t piece_blocks = 2048;
    std::vector<Checksum> wanted;
    for (const std::byte* block : blocks)
        wanted.push_back(checksum_of(block, kBlockBytes));
    uint64_t bytes = 0;
    const double start = now();
    while (now() - start < kSeconds) {
        for (size_t block = 0; block + piece_blocks <= blocks.size(); block += piece_blocks) {
            ReadPiece piece{
                .address = kGroup + block * kBlockBytes,
                .block_count = piece_blocks,
                .memory = data.data() + block * kBlockBytes,
                .checksums = wanted.data() + block,
            };
            CW_ASSERT(array->read(std::span(&piece, 1)).ok());
            bytes += piece_blocks * kBlockBytes;
        }
    }
    fprintf(stderr, "%-11s %6.2f GB/s\n", what, static_cast<double>(bytes) / (now() - start) / 1e9);
}

void Bench::run_parity_alone() const
{
    if (m == 0)
        return;
    AlignedBuffer parity(size_t{m} * kBlockBytes);
    std::byte* outputs[] = {parity.data(), parity.data() + (m - 1) * size_t{kBlockBytes}};
    uint64_t bytes = 0;
    const double start = now();
    while (now() - start < kSeconds) {
        for (size_t block = 0; block + k <= blocks.size(); block += k) {
            parity_generate(std::span(blocks).subspan(block, k), std::span(outputs, m), kBlockBytes);
            bytes += uint64_t{k} * kBlockBytes;
        }
    }
    fprintf(stderr, "parity only %6.2f GB/s of data\n", static_cast<double>(bytes) / (now() - start) / 1e9);
}

uint32_t argument(int count, char** arguments, int index, uint32_t fallback)
{
    return index < count ? static_cast<uint32_t>(strtoul(arguments[index], nullptr, 0)) : fallback;
}

}  // namespace

int main(int count, char** arguments)
{
    const uint32_t k = argument(count, arguments, 1, 6);
    const uint32_t m = argument(count, arguments, 2, 2);
    const uint32_t chunk_bytes = argument(count, arguments, 3, 64) * 1024;
    fprintf(stderr, "%u+%u, chunk %u KiB\n", k, m, chunk_bytes / 1024);
    {
        Bench bench(k, m, chunk_bytes, false);
        bench.run_write();
        bench.run_read("read");
        bench.run_parity_alone();
    }
    Bench bench(k, m, chunk_bytes, true);
    RowWrite all = bench.write_of(0, bench.stripes);
    CW_ASSERT(bench.array->write_rows(std::span(&all, 1)).ok());
    bench.run_read("read + copy");
    for (uint32_t lost = 1; lost <= m; ++lost) {
        bench.members.leave_out({lost});
        bench.run_read(lost == 1 ? "one lost" : "two lost");
    }
}
