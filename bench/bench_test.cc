// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/buffer.h"
#include "base/random.h"
#include "bench/bench_members.h"
#include "bench/bench_memory.h"
#include "bench/bench_pattern.h"
#include "bench/bench_report.h"
#include "bench/bench_volume.h"
#include "sim/sim_device.h"
#include "tests/support/device_files.h"

namespace cowraid {

namespace {

struct Given {
    const char* name;
    const char* value;
};

BenchOptions small_volume(ProfileId profile, uint32_t member_count)
{
    BenchOptions options;
    options.profile = profile;
    options.member_count = member_count;
    options.member_bytes = kMinMemberBytes;
    return options;
}

UnitStream stream(BenchPattern pattern, uint64_t units, uint64_t align, uint32_t thread, uint32_t threads)
{
    return UnitStream({.pattern = pattern,
                       .unit_count = units,
                       .align_units = align,
                       .thread = thread,
                       .threads = threads,
                       .seed = 7 + thread});
}

}  // namespace

TEST_CASE("bench: no two threads share a unit, and together random ones reach all")
{
    for (const uint32_t threads : {1u, 3u, 8u}) {
        CAPTURE(threads);
        constexpr uint64_t kUnits = 101;
        std::set<uint64_t> seen;
        uint64_t count = 0;
        for (uint32_t thread = 0; thread < threads; ++thread) {
            UnitStream units = stream(BenchPattern::kRandWrite, kUnits, 1, thread, threads);
            std::set<uint64_t> own;
            for (int round = 0; round < 5000; ++round)
                own.insert(units.next());
            CHECK(own.size() == units.unit_count());
            count += own.size();
            seen.insert(own.begin(), own.end());
        }
        CHECK(count == kUnits);
        CHECK(seen.size() == kUnits);
        CHECK(*seen.rbegin() == kUnits - 1);
    }
}

TEST_CASE("bench: sequential threads have regions of their own that begin with a stripe")
{
    UnitStream first = stream(BenchPattern::kSeqWrite, 100, 8, 0, 3);
    UnitStream second = stream(BenchPattern::kSeqWrite, 100, 8, 1, 3);
    CHECK(first.unit_count() == 32);
    for (uint64_t round = 0; round < 2; ++round) {
        for (uint64_t unit = 0; unit < 32; ++unit) {
            CHECK(first.next() == unit);
            CHECK(second.next() == 32 + unit);
        }
    }
    // Too small for it: no alignment.
    CHECK(stream(BenchPattern::kSeqRead, 100, 64, 2, 3).next() == 66);
}

TEST_CASE("bench: quantiles of latencies are right to a few per cent")
{
    LatencyHistogram histogram;
    CHECK(histogram.quantile(0.5) == 0);
    std::vector<uint64_t> values;
    Prng prng(5);
    for (int round = 0; round < 20000; ++round) {
        // From nanoseconds to minutes.
        values.push_back(prng.next() >> prng.between(26, 63));
        histogram.add(values.back());
    }
    std::sort(values.begin(), values.end());
    for (const double part : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999}) {
        CAPTURE(part);
        const auto exact =
            static_cast<double>(values[static_cast<size_t>(part * static_cast<double>(values.size()))]);
        const auto found = static_cast<double>(histogram.quantile(part));
        CHECK(found >= exact);
        CHECK(found <= exact * 1.035 + 1);
    }
    LatencyHistogram twice = histogram;
    twice.add(histogram);
    CHECK(twice.quantile(0.9) == histogram.quantile(0.9));
    LatencyHistogram largest;
    largest.add(UINT64_MAX);
    CHECK(largest.quantile(1) == UINT64_MAX);
}

TEST_CASE("bench: options, one by one and together")
{
    BenchOptions options;
    std::string why;
    constexpr Given kGood[] = {
        {"profile", "raid5"},   {"chunk", "128K"},           {"members", "10"}, {"pattern", "seqread"},
        {"block-size", "512K"}, {"rmw-level", "2"},          {"plug", "off"},   {"stripe-io-size", "64K"},
        {"runtime", "2.5"},     {"compare", "rmw-level=0,1"}};
    for (const Given& given : kGood) {
        CAPTURE(given.name);
        CHECK(set_bench_option(options, given.name, given.value, why).ok());
    }
    CHECK(options.profile == ProfileId::kRaid5);
    CHECK(options.chunk_bytes == 128 * kKiB);
    CHECK(options.member_count == 10);
    CHECK(options.pattern == BenchPattern::kSeqRead);
    CHECK(options.block_bytes == 512 * kKiB);
    CHECK(options.partial.rmw_level == RmwLevel::kPrefer);
    CHECK_FALSE(options.partial.plug);
    CHECK(options.partial.stripe_io_bytes == 64 * kKiB);
    CHECK(options.seconds == 2.5);
    CHECK(options.compare_name == "rmw-level");
    CHECK(options.compare_values == std::vector<std::string>{"0", "1"});
    CHECK(why.empty());
    constexpr Given kBad[] = {{"profile", "raid1"},
                              {"chunk", "96K"},
                              {"chunk", "2M"},
                              {"block-size", "6000"},
                              {"block-size", "2M"},
                              {"writers", "0"},
                              {"rmw-level", "3"},
                              {"plug", "maybe"},
                              {"time-scale", "0"},
                              {"time-scale", "nan"},
                              {"time-scale", "0.1x"},
                              {"stripe-cache", "16"},
                              {"compare", "plug=on"},
                              {"compare", "plug=on,off,on"},
                              {"compare", "nothing=1,2"},
                              {"compare", "spindle=1,2"},
                              {"compare", "compare=1,2"}};
    for (const Given& given : kBad) {
        CAPTURE(given.name);
        CAPTURE(given.value);
        why.clear();
        CHECK(set_bench_option(options, given.name, given.value, why).err() == Err::kInvalid);
        CHECK(why.find(given.name) != std::string::npos);
        CHECK(why.find("give") != std::string::npos);
    }
}

TEST_CASE("bench: what no option alone can tell")
{
    std::string why;
    BenchOptions options;
    CHECK(check_bench_options(options, why).ok());
    BenchOptions few = options;
    few.member_count = 2;
    CHECK(check_bench_options(few, why).err() == Err::kInvalid);
    CHECK(why.find("at least") != std::string::npos);
    BenchOptions scaled = options;
    scaled.time_scale = 0.1;
    CHECK(check_bench_options(scaled, why).err() == Err::kInvalid);
    scaled.spindle = true;
    CHECK(check_bench_options(scaled, why).ok());
    // Real members are never touched without a word.
    BenchOptions real = options;
    real.common.operands = {"/nonexistent/a", "/nonexistent/b", "/nonexistent/c", "/nonexistent/d"};
    CHECK(check_bench_options(real, why).err() == Err::kInvalid);
    CHECK(why.find("--force") != std::string::npos);
    real.force = true;
    CHECK(check_bench_options(real, why).ok());
    real.spindle = true;
    CHECK(check_bench_options(real, why).err() == Err::kInvalid);
}

TEST_CASE("bench: member requests are counted, the log's apart")
{
    constexpr uint64_t kLog = 2 * kMiB;
    CountingMember member(std::make_unique<SimDevice>("sim", 8 * kMiB), kLog, kMiB);
    AlignedBuffer memory(8 * kBlockBytes);
    const iovec one{memory.data(), kBlockBytes};
    const iovec all{memory.data(), memory.size()};
    const auto request = [&](IoKind kind, uint64_t offset, const iovec& vector) {
        IoRequest out{.kind = kind, .device = &member, .offset = {offset}};
        if (kind != IoKind::kFlush)
            out.vectors = {&vector, 1};
        return out;
    };
    IoRequest batch[] = {
        request(IoKind::kWrite, 0, all),
        request(IoKind::kWrite, kLog, one),
        request(IoKind::kWrite, kLog + kMiB - kBlockBytes, one),
        request(IoKind::kWrite, kLog - kBlockBytes, one),
        request(IoKind::kWrite, kLog + kMiB, one),
        request(IoKind::kRead, kLog, all),
        request(IoKind::kFlush, 0, one),
    };
    run_io(batch);
    // A single small read takes a way of its own through run_io().
    IoRequest single = request(IoKind::kRead, 0, one);
    run_io({&single, 1});
    for (const IoRequest& done : batch)
        CHECK(done.result.ok());
    const MemberCounts counts = member.counts();
    CHECK(counts.writes == 3);
    CHECK(counts.write_bytes == 10 * kBlockBytes);
    CHECK(counts.log_writes == 2);
    CHECK(counts.log_bytes == 2 * kBlockBytes);
    CHECK(counts.reads == 2);
    CHECK(counts.read_bytes == 9 * kBlockBytes);
    CHECK(counts.flushes == 1);
    const MemberCounts none = difference(counts, counts);
    CHECK(none.writes + none.write_bytes + none.log_writes + none.log_bytes + none.reads + none.read_bytes +
              none.flushes ==
          0);
    CHECK(sum_of(counts, counts).log_bytes == 4 * kBlockBytes);
}

TEST_CASE("bench: a member in memory keeps what is written, and no more")
{
    const auto device = MemoryDevice::make("memory", 4 * kMiB);
    REQUIRE(device != nullptr);
    Prng prng(9);
    AlignedBuffer out = test::random_buffer(prng, 64 * kKiB);
    AlignedBuffer in = test::random_buffer(prng, 64 * kKiB);
    REQUIRE(test::read(*device, kMiB, in).ok());
    CHECK(std::all_of(in.data(), in.data() + in.size(), [](std::byte byte) { return byte == std::byte{0}; }));
    REQUIRE(test::write(*device, kMiB, out).ok());
    REQUIRE(test::flush(*device).ok());
    REQUIRE(test::read(*device, kMiB, in).ok());
    CHECK(test::same(in.span(), out.span()));
    REQUIRE(test::write(*device, 4 * kMiB - out.size(), out).ok());
    CHECK(test::write(*device, 4 * kMiB - kBlockBytes, out).err() == Err::kIo);
    CHECK(test::read(*device, UINT64_MAX - kBlockBytes + 1, in).err() == Err::kIo);
    // More than any address space.
    CHECK(MemoryDevice::make("huge", uint64_t{1} << 60) == nullptr);
}

TEST_CASE("bench: a run does what it was asked to, and counts it")
{
    BenchOptions options = small_volume(ProfileId::kRaid5, 3);
    options.block_bytes = 8 * kKiB;
    options.writers = 2;
    options.depth = 4;
    options.operations = 300;
    std::string why;
    const auto run = run_bench(options, why);
    REQUIRE_MESSAGE(run.ok(), why);
    CHECK(run->operations == 300);
    CHECK(run->bytes == 300 * 8 * kKiB);
    CHECK(run->elapsed_ns > 0);
    CHECK(run->p50_ns > 0);
    CHECK(run->p99_ns >= run->p50_ns);
    uint64_t in_ticks = 0;
    for (const uint64_t bytes : run->bytes_per_tick)
        in_ticks += bytes;
    CHECK(in_ticks == run->bytes);
    CHECK(run->verified);
    CHECK(run->bad_blocks == 0);
    // Every block goes to its member, and parity with it.
    CHECK(run->members.write_bytes >= run->bytes);
    CHECK(run->members.log_writes > 0);
    CHECK(run->members.flushes == 0);  // log entries are durable writes
    CHECK(run->partial.requests == 300);
    options.pattern = BenchPattern::kSeqRead;
    const auto reading = run_bench(options, why);
    REQUIRE_MESSAGE(reading.ok(), why);
    CHECK(reading->operations == 300);
    CHECK(reading->members.read_bytes >= reading->bytes);
    CHECK(reading->members.writes + reading->members.log_writes == 0);
    CHECK(reading->bad_blocks == 0);

    const BenchSeries series[] = {{"a", options, {*run, *reading, *run}},
                                  {"b", options, {*reading, *run, *run}}};
    const double ratio = run->bytes_per_second() / reading->bytes_per_second();
    const BenchRatio ratios = ratio_of(series[0], series[1]);
    CHECK(ratios.median == doctest::Approx(1));
    CHECK(ratios.rounds.front() == doctest::Approx(ratio));
    // The middle one of two equal rounds and another.
    CHECK(&series[0].median() != &series[0].rounds[1]);
    const Json json = encode_bench(series);
    CHECK(json_get_text(json.get(), "schema") == "cowraid.bench-raid56");
    const json_t* const round =
        json_array_get(json_get(json_array_get(json_get(json.get(), "series"), 0), "rounds"), 0);
    CHECK(json_get_integer(round, "operations") == 300);
    CHECK(json_get_integer(json_get(round, "members"), "log_writes") == run->members.log_writes);
    CHECK(json_array_size(json_get(round, "bytes_per_tick")) == run->bytes_per_tick.size());
}

TEST_CASE("bench: a full write-intent log is emptied, and no write is refused")
{
    BenchOptions options = small_volume(ProfileId::kRaid6, 5);
    options.block_bytes = 4 * kKiB;
    options.writers = 3;
    options.depth = 4;
    options.operations = 6000;
    std::string why;
    const auto run = run_bench(options, why);
    REQUIRE_MESSAGE(run.ok(), why);
    CHECK(run->operations == 6000);
    CHECK(run->members.flushes >= 5);  // the log was full
    CHECK(run->verified);
    CHECK(run->bad_blocks == 0);
}

TEST_CASE("bench: drives in front of the members take their time")
{
    BenchOptions options = small_volume(ProfileId::kRaid5, 3);
    options.spindle = true;
    options.time_scale = 0.05;
    options.operations = 20;
    std::string why;
    const auto run = run_bench(options, why);
    REQUIRE_MESSAGE(run.ok(), why);
    CHECK(run->spindle_count == 3);
    CHECK(run->bad_blocks == 0);
    // Only what was measured reached the drives' clocks; each of 20 writes waits for a log entry and a write.
    CHECK(run->spindles.writes.requests == run->members.writes + run->members.log_writes);
    CHECK(run->spindles.reads.requests == run->members.reads);
    CHECK(run->elapsed_ns > 20 * 4'000'000ull);
}

TEST_CASE("bench: damage on a member is found at the end")
{
    const test::TempDir dir;
    BenchOptions options;
    options.profile = ProfileId::kRaid5;
    options.force = true;
    for (const char* name : {"m1", "m2", "m3"})
        options.common.operands.push_back(dir.file(name, kMinMemberBytes));
    std::string why;
    auto volume = BenchVolume::make(options, why);
    REQUIRE_MESSAGE(volume.ok(), why);
    BenchVolume& bench = **volume;
    REQUIRE(bench.fill(1).ok());
    CHECK(*bench.count_bad_blocks() == 0);
    const UniqueFd fd(open(options.common.operands[1].c_str(), O_RDWR | O_CLOEXEC));
    const char wrong = 0x55;
    const uint64_t place = bench.members().superblock.members[1].slots_offset + 5 * kBlockBytes + 77;
    char was = 0;
    REQUIRE(pread(fd.get(), &was, 1, static_cast<off_t>(place)) == 1);
    const char other = was == wrong ? static_cast<char>(~wrong) : wrong;
    REQUIRE(pwrite(fd.get(), &other, 1, static_cast<off_t>(place)) == 1);
    CHECK(*bench.count_bad_blocks() > 0);
    // Reading it back has repaired it.
    CHECK(*bench.count_bad_blocks() == 0);
    char now = 0;
    REQUIRE(pread(fd.get(), &now, 1, static_cast<off_t>(place)) == 1);
    CHECK(now == was);
    volume->reset();

    // Files that hold something are left alone without --force.
    options.force = false;
    CHECK(check_bench_options(options, why).err() == Err::kInvalid);
}

}  // namespace cowraid
