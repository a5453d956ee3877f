// SPDX-License-Identifier: MIT
#include "bench/bench_run.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <set>
#include <thread>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "bench/bench_volume.h"

namespace cowraid {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr double kDefaultSeconds = 10;
// Commits for one write: more do not help where a member failed.
constexpr int kTriesMax = 100;

// What the threads of a run share.
struct Course {
    const BenchOptions& options;
    BenchVolume& volume;
    uint64_t start = 0;  // real time
    uint64_t deadline = UINT64_MAX;
    std::atomic<uint64_t> started{0};  // operations
    std::atomic<Err> failure{Err::kOk};

    // Whether another operation may begin; counts it.
    bool begin()
    {
        if (monotonic_ns() >= deadline || failure.load(std::memory_order_relaxed) != Err::kOk)
            return false;
        const uint64_t limit = options.operations == 0 ? UINT64_MAX : options.operations;
        return started.fetch_add(1, std::memory_order_relaxed) < limit;
    }
    void fail(Status status)
    {
        Err none = Err::kOk;
        failure.compare_exchange_strong(none, status.err());
    }
    // Nanoseconds of the members' time.
    [[nodiscard]] uint64_t scaled(uint64_t real) const
    {
        return static_cast<uint64_t>(static_cast<double>(real) / options.time_scale);
    }
};

// One thread: `depth` operations on its own units at a time.
class Runner {
public:
    Runner(Course& course, uint32_t thread);
    void run();

    uint64_t operations = 0;
    LatencyHistogram latencies;
    std::vector<uint64_t> bytes_per_tick;

private:
    struct Operation {
        uint64_t unit = 0;
        uint64_t began = 0;
        uint64_t commits_seen = 0;
        BlockWrite write;
        WriteRequest request;
        std::byte* memory = nullptr;
    };
    void write_all();
    void read_all();
    void begin_write(Operation& operation);
    void submit(Operation& operation);
    void wait_for(std::vector<Operation*> waiting);
    void end_write(Operation& operation, Status status);
    void finished(uint64_t began);
    void stamp(std::byte* memory);
    [[nodiscard]] uint64_t next_unit();
    [[nodiscard]] bool recorded(const Operation& operation) const;
    [[nodiscard]] VolumeAddress address_of(uint64_t unit) const
    {
        return BenchVolume::kGroup + unit * course_.options.block_bytes;
    }

    Course& course_;
    const uint32_t blocks_;  // of one operation
    const uint32_t thread_;
    UnitStream units_;
    AlignedBuffer memory_;
    std::vector<Operation> operations_;
    std::set<uint64_t> under_way_;  // units
    uint64_t stamps_ = 0;
};

UnitStream::Plan plan_units(const Course& course, uint32_t thread)
{
    const BenchOptions& options = course.options;
    const uint64_t stripe = course.volume.geometry().stripe_data_bytes();
    return {
        .pattern = options.pattern,
        .unit_count = course.volume.data_bytes() / options.block_bytes,
        .align_units = stripe / std::gcd(stripe, uint64_t{options.block_bytes}),
        .thread = thread,
        .threads = options.writers,
        .seed = options.seed * 1000003 + thread,
    };
}

Runner::Runner(Course& course, uint32_t thread)
    : course_(course),
      blocks_(course.options.block_bytes / kBlockBytes),
      thread_(thread),
      units_(plan_units(course, thread)),
      memory_(size_t{course.options.depth} * course.options.block_bytes),
      operations_(course.options.depth)
{
    Prng(course.options.seed + thread).fill(memory_.data(), memory_.size());
    for (size_t index = 0; index < operations_.size(); ++index)
        operations_[index].memory = memory_.data() + index * course.options.block_bytes;
}

void Runner::run()
{
    if (pattern_writes(course_.options.pattern))
        write_all();
    else
        read_all();
}

// A unit that no operation under way has.
uint64_t Runner::next_unit()
{
    for (;;) {
        const uint64_t unit = units_.next();
        if (under_way_.insert(unit).second)
            return unit;
    }
}

// Every block written is unlike every other.
void Runner::stamp(std::byte* memory)
{
    for (uint32_t block = 0; block < blocks_; ++block) {
        const uint64_t mark[] = {course_.options.seed, thread_, ++stamps_};
        std::memcpy(memory + size_t{block} * kBlockBytes, mark, sizeof mark);
    }
}

void Runner::begin_write(Operation& operation)
{
    operation.unit = next_unit();
    stamp(operation.memory);
    operation.write = {
        .address = address_of(operation.unit),
        .block_count = blocks_,
        .memory = operation.memory,
    };
    operation.began = monotonic_ns();
    submit(operation);
}

void Runner::submit(Operation& operation)
{
    operation.commits_seen = course_.volume.commits();
    operation.request = {.writes = std::span(&operation.write, 1), .origin = course_.volume.origin()};
    course_.volume.array().submit(operation.request);
}

// Nobody else writes these blocks: what the array recorded must be what was handed to it.
bool Runner::recorded(const Operation& operation) const
{
    for (uint32_t block = 0; block < blocks_; ++block) {
        const uint64_t offset = uint64_t{block} * kBlockBytes;
        if (course_.volume.checksum_at(operation.write.address + offset) !=
            checksum_of(operation.memory + offset, kBlockBytes))
            return false;
    }
    return true;
}

void Runner::end_write(Operation& operation, Status status)
{
    finished(operation.began);
    if (!status.ok())
        course_.fail(status);
    else if (course_.options.verify && !recorded(operation))
        course_.fail(Err::kCorrupt);
}

// Waits for all. A full log is emptied by a commit, and what found no room in it begins again, together.
void Runner::wait_for(std::vector<Operation*> waiting)
{
    for (int tries = 0; !waiting.empty(); ++tries) {
        std::vector<Operation*> again;
        for (Operation* const operation : waiting) {
            const Status status = course_.volume.array().wait(operation->request);
            if (status.err() == Err::kNoSpace)
                again.push_back(operation);
            else
                end_write(*operation, status);
        }
        if (again.empty())
            return;
        const Status status = course_.volume.commit(again.front()->commits_seen);
        if (!status.ok() || tries >= kTriesMax) {
            course_.fail(status.ok() ? Err::kNoSpace : status.err());
            return;
        }
        for (Operation* const operation : again)
            submit(*operation);
        waiting = std::move(again);
    }
}

// Submits as many as the depth says, then waits for all of them.
void Runner::write_all()
{
    for (bool more = true; more;) {
        std::vector<Operation*> waiting;
        while (waiting.size() < operations_.size() && (more = course_.begin())) {
            waiting.push_back(&operations_[waiting.size()]);
            begin_write(*waiting.back());
        }
        wait_for(std::move(waiting));
        under_way_.clear();
    }
}

// As many pieces at a time as the depth says.
void Runner::read_all()
{
    std::vector<ReadPiece> pieces;
    std::vector<Checksum> checksums(operations_.size() * blocks_);
    for (bool more = true; more;) {
        pieces.clear();
        while (pieces.size() < operations_.size() && (more = course_.begin())) {
            const size_t index = pieces.size();
            Checksum* const wanted = checksums.data() + index * blocks_;
            const VolumeAddress address = address_of(units_.next());
            for (uint32_t block = 0; block < blocks_; ++block)
                wanted[block] = course_.volume.checksum_at(address + uint64_t{block} * kBlockBytes);
            pieces.push_back({.address = address,
                              .block_count = blocks_,
                              .memory = operations_[index].memory,
                              .checksums = wanted});
        }
        const uint64_t began = monotonic_ns();
        const Status status = course_.volume.array().read(pieces);
        if (!status.ok())
            course_.fail(status);
        for (size_t index = 0; index < pieces.size(); ++index)
            finished(began);
    }
}

void Runner::finished(uint64_t began)
{
    const uint64_t now = monotonic_ns();
    ++operations;
    latencies.add(course_.scaled(now - began));
    const uint64_t tick = course_.scaled(now - course_.start) / BenchResult::kTickNs;
    if (tick >= bytes_per_tick.size())
        bytes_per_tick.resize(tick + 1);
    bytes_per_tick[tick] += course_.options.block_bytes;
}

PartialWriteStatistics difference(const PartialWriteStatistics& now, const PartialWriteStatistics& before)
{
    PartialWriteStatistics out = now;
    out.rows -= before.rows;
    out.rmw_rows -= before.rmw_rows;
    out.rcw_rows -= before.rcw_rows;
    out.full_rows -= before.full_rows;
    out.blocks_read -= before.blocks_read;
    out.cache_hits -= before.cache_hits;
    out.cache_misses -= before.cache_misses;
    out.log_batches -= before.log_batches;
    out.log_bytes -= before.log_bytes;
    out.flushes -= before.flushes;
    out.repaired_rows -= before.repaired_rows;
    out.requests -= before.requests;
    out.batches -= before.batches;
    return out;
}

void add(SpindleStatistics::Kind& sum, const SpindleStatistics::Kind& one)
{
    sum.requests += one.requests;
    sum.bytes += one.bytes;
    sum.busy += one.busy;
}

void add_spindles(const BenchMembers& members, BenchResult& result)
{
    for (const SpindleDevice* drive : members.spindles) {
        const SpindleStatistics one = drive->statistics();
        SpindleStatistics& sum = result.spindles;
        add(sum.reads, one.reads);
        add(sum.writes, one.writes);
        add(sum.flushes, one.flushes);
        sum.late_sum += one.late_sum;
        sum.late_max = std::max(sum.late_max, one.late_max);
        sum.aged += one.aged;
        sum.queue_max = std::max(sum.queue_max, one.queue_max);
        ++result.spindle_count;
    }
}

void add_runner(const Runner& runner, BenchResult& result, LatencyHistogram& latencies)
{
    result.operations += runner.operations;
    latencies.add(runner.latencies);
    if (runner.bytes_per_tick.size() > result.bytes_per_tick.size())
        result.bytes_per_tick.resize(runner.bytes_per_tick.size());
    for (size_t tick = 0; tick < runner.bytes_per_tick.size(); ++tick)
        result.bytes_per_tick[tick] += runner.bytes_per_tick[tick];
}

// The time that counts: all threads, and the flush of all members behind them.
Status measure(Course& course, std::deque<Runner>& runners, BenchResult& result)
{
    BenchMembers& members = course.volume.members();
    const PartialWriteStatistics partial = course.volume.array().partial_write_statistics();
    const MemberCounts counts = members.counts();
    for (SpindleDevice* drive : members.spindles)
        drive->engage();
    const BenchOptions& options = course.options;
    double seconds = options.seconds;
    if (seconds == 0 && options.operations == 0)
        seconds = kDefaultSeconds;
    course.start = monotonic_ns();
    if (seconds > 0)
        course.deadline =
            course.start + static_cast<uint64_t>(seconds * options.time_scale * static_cast<double>(kSecond));
    std::vector<std::thread> threads;
    for (Runner& runner : runners)
        threads.emplace_back([&runner] { runner.run(); });
    for (std::thread& thread : threads)
        thread.join();
    result.members = difference(members.counts(), counts);
    const Status flushed = members.flush();
    result.elapsed_ns = course.scaled(monotonic_ns() - course.start);
    result.partial = difference(course.volume.array().partial_write_statistics(), partial);
    for (SpindleDevice* drive : members.spindles)
        drive->bypass();
    add_spindles(members, result);
    return course.failure.load() != Err::kOk ? Status(course.failure.load()) : flushed;
}

Status check_room(const BenchOptions& options, const BenchVolume& volume, std::string& why)
{
    const uint64_t units = volume.data_bytes() / options.block_bytes;
    if (units / options.writers >= 2 * uint64_t{options.depth})
        return {};
    why = "a volume of " + std::to_string(volume.data_bytes()) + " bytes is too small for " +
          std::to_string(options.writers) + " writers with " + std::to_string(options.depth) +
          " operations each; make the members larger";
    return Err::kInvalid;
}

}  // namespace

double BenchResult::bytes_per_second() const
{
    return elapsed_ns == 0 ? 0 : static_cast<double>(bytes) * 1e9 / static_cast<double>(elapsed_ns);
}

Result<BenchResult> run_bench(const BenchOptions& options, std::string& why)
{
    CW_ASSIGN(std::unique_ptr<BenchVolume> volume, BenchVolume::make(options, why));
    CW_TRY(check_room(options, *volume, why));
    for (SpindleDevice* drive : volume->members().spindles)
        drive->bypass();
    if (const Status filled = volume->fill(options.seed); !filled.ok()) {
        why = std::string("the volume could not be filled: ") + err_text(filled.err());
        return filled;
    }
    BenchResult result;
    Course course{.options = options, .volume = *volume};
    std::deque<Runner> runners;
    for (uint32_t thread = 0; thread < options.writers; ++thread)
        runners.emplace_back(course, thread);
    if (const Status status = measure(course, runners, result); !status.ok()) {
        why = status.err() == Err::kCorrupt
                  ? "the array recorded a checksum that is not that of the block written"
                  : std::string("an operation failed: ") + err_text(status.err());
        return status;
    }
    LatencyHistogram latencies;
    for (const Runner& runner : runners)
        add_runner(runner, result, latencies);
    result.bytes = result.operations * options.block_bytes;
    result.p50_ns = latencies.quantile(0.5);
    result.p99_ns = latencies.quantile(0.99);
    if (!options.verify)
        return result;
    const auto bad = volume->count_bad_blocks();
    if (!bad.ok()) {
        why = std::string("the volume could not be verified: ") + err_text(bad.err());
        return bad.err();
    }
    result.verified = true;
    result.bad_blocks = *bad;
    return result;
}

}  // namespace cowraid
