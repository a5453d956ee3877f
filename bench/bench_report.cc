// SPDX-License-Identifier: MIT
#include "bench/bench_report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/assert.h"
#include "control/volume_json.h"
#include "format/profile.h"

namespace cowraid {

namespace {

double per(uint64_t amount, uint64_t count)
{
    return count == 0 ? 0 : static_cast<double>(amount) / static_cast<double>(count);
}

double milliseconds(uint64_t nanoseconds)
{
    return static_cast<double>(nanoseconds) / 1e6;
}

size_t member_count(const BenchOptions& options)
{
    return options.common.operands.empty() ? options.member_count : options.common.operands.size();
}

// "64K"
std::string short_size(uint64_t bytes)
{
    if (bytes % kMiB == 0)
        return std::to_string(bytes / kMiB) + "M";
    return std::to_string(bytes / kKiB) + "K";
}

std::string title_of(const BenchOptions& options)
{
    return std::string(profile_name(options.profile)) + ", " + std::to_string(member_count(options)) +
           " members, chunk " + short_size(options.chunk_bytes) + ", " + pattern_name(options.pattern) + " " +
           short_size(options.block_bytes) + ", " + std::to_string(options.writers) +
           (pattern_writes(options.pattern) ? " writers, depth " : " readers, depth ") +
           std::to_string(options.depth);
}

void print_spindles(const BenchOptions& options, const BenchResult& result)
{
    const SpindleStatistics& all = result.spindles;
    const uint64_t requests = all.reads.requests + all.writes.requests + all.flushes.requests;
    const uint64_t busy = all.reads.busy + all.writes.busy + all.flushes.busy;
    printf("  drives         busy %.0f %% of the time, %.2f ms per read, %.2f ms per write\n",
           100 * per(busy, result.elapsed_ns * result.spindle_count),
           milliseconds(static_cast<uint64_t>(per(all.reads.busy, all.reads.requests))),
           milliseconds(static_cast<uint64_t>(per(all.writes.busy, all.writes.requests))));
    printf("  clock          time scale %g; answers %.3f ms late on average, %.1f ms at most\n",
           options.time_scale, milliseconds(static_cast<uint64_t>(per(all.late_sum, requests))),
           milliseconds(all.late_max));
}

void print_counts(const BenchResult& result)
{
    const uint64_t count = result.operations;
    const MemberCounts& members = result.members;
    printf("  per operation     reads    writes  log writes   flushes\n");
    printf("    requests   %10.2f%10.2f%12.2f%10.2f\n", per(members.reads, count), per(members.writes, count),
           per(members.log_writes, count), per(members.flushes, count));
    printf("    bytes      %10.0f%10.0f%12.0f\n", per(members.read_bytes, count),
           per(members.write_bytes, count), per(members.log_bytes, count));
}

Json encode_counts(const MemberCounts& members)
{
    Json out = json_make_object();
    json_put_integer(out.get(), "reads", members.reads);
    json_put_integer(out.get(), "read_bytes", members.read_bytes);
    json_put_integer(out.get(), "writes", members.writes);
    json_put_integer(out.get(), "write_bytes", members.write_bytes);
    json_put_integer(out.get(), "log_writes", members.log_writes);
    json_put_integer(out.get(), "log_bytes", members.log_bytes);
    json_put_integer(out.get(), "flushes", members.flushes);
    return out;
}

Json encode_partial(const PartialWriteStatistics& partial)
{
    Json out = json_make_object();
    json_put_integer(out.get(), "rows", partial.rows);
    json_put_integer(out.get(), "rmw_rows", partial.rmw_rows);
    json_put_integer(out.get(), "rcw_rows", partial.rcw_rows);
    json_put_integer(out.get(), "full_rows", partial.full_rows);
    json_put_integer(out.get(), "blocks_read", partial.blocks_read);
    json_put_integer(out.get(), "cache_hits", partial.cache_hits);
    json_put_integer(out.get(), "cache_misses", partial.cache_misses);
    json_put_integer(out.get(), "log_batches", partial.log_batches);
    json_put_integer(out.get(), "log_bytes", partial.log_bytes);
    json_put_integer(out.get(), "flushes", partial.flushes);
    json_put_integer(out.get(), "repaired_rows", partial.repaired_rows);
    json_put_integer(out.get(), "requests", partial.requests);
    json_put_integer(out.get(), "batches", partial.batches);
    return out;
}

Json encode_spindles(const BenchResult& result)
{
    const SpindleStatistics& all = result.spindles;
    Json out = json_make_object();
    json_put_integer(out.get(), "drives", result.spindle_count);
    json_put_integer(out.get(), "requests", all.reads.requests + all.writes.requests + all.flushes.requests);
    json_put_integer(out.get(), "read_busy_ns", all.reads.busy);
    json_put_integer(out.get(), "write_busy_ns", all.writes.busy);
    json_put_integer(out.get(), "late_sum_ns", all.late_sum);
    json_put_integer(out.get(), "late_max_ns", all.late_max);
    json_put_integer(out.get(), "aged", all.aged);
    json_put_integer(out.get(), "queue_max", all.queue_max);
    return out;
}

Json encode_result(const BenchResult& result)
{
    Json out = json_make_object();
    json_put_integer(out.get(), "operations", result.operations);
    json_put_integer(out.get(), "bytes", result.bytes);
    json_put_integer(out.get(), "elapsed_ns", result.elapsed_ns);
    json_put_integer(out.get(), "bytes_per_second", static_cast<uint64_t>(result.bytes_per_second()));
    json_put_integer(out.get(), "latency_p50_ns", result.p50_ns);
    json_put_integer(out.get(), "latency_p99_ns", result.p99_ns);
    json_put(out.get(), "members", encode_counts(result.members));
    json_put(out.get(), "partial_writes", encode_partial(result.partial));
    if (result.spindle_count > 0)
        json_put(out.get(), "spindles", encode_spindles(result));
    json_put_integer(out.get(), "tick_ns", BenchResult::kTickNs);
    Json ticks = json_make_array();
    for (const uint64_t bytes : result.bytes_per_tick)
        json_array_append_new(ticks.get(), json_integer(static_cast<json_int_t>(bytes)));
    json_put(out.get(), "bytes_per_tick", std::move(ticks));
    json_put_flag(out.get(), "verified", result.verified);
    json_put_integer(out.get(), "bad_blocks", result.bad_blocks);
    return out;
}

Json encode_options(const BenchOptions& options)
{
    Json out = json_make_object();
    json_put_text(out.get(), "profile", profile_name(options.profile));
    json_put_integer(out.get(), "members", member_count(options));
    json_put_integer(out.get(), "chunk_bytes", options.chunk_bytes);
    json_put_text(out.get(), "pattern", pattern_name(options.pattern));
    json_put_integer(out.get(), "block_bytes", options.block_bytes);
    json_put_integer(out.get(), "writers", options.writers);
    json_put_integer(out.get(), "iodepth", options.depth);
    json_put_integer(out.get(), "rmw_level", static_cast<uint64_t>(options.partial.rmw_level));
    json_put_flag(out.get(), "plug", options.partial.plug);
    json_put_integer(out.get(), "stripe_cache", options.partial.stripe_cache_size);
    json_put_integer(out.get(), "stripe_cache_bytes", options.partial.stripe_cache_bytes);
    json_put_integer(out.get(), "stripe_io_bytes", options.partial.stripe_io_bytes);
    json_put_integer(out.get(), "workers", options.partial.worker_count);
    json_put_flag(out.get(), "spindle", options.spindle);
    json_put(out.get(), "time_scale", Json(json_real(options.time_scale)));
    json_put(out.get(), "stroke", Json(json_real(options.stroke_share)));
    json_put_integer(out.get(), "seed", options.seed);
    return out;
}

Json encode_ratio(const BenchRatio& ratio)
{
    Json out = json_make_object();
    json_put(out.get(), "median", Json(json_real(ratio.median)));
    Json rounds = json_make_array();
    for (const double one : ratio.rounds)
        json_array_append_new(rounds.get(), json_real(one));
    json_put(out.get(), "rounds", std::move(rounds));
    return out;
}

}  // namespace

const BenchResult& BenchSeries::median() const
{
    CW_ASSERT(!rounds.empty());
    std::vector<const BenchResult*> order;
    for (const BenchResult& round : rounds)
        order.push_back(&round);
    std::sort(order.begin(), order.end(), [](const BenchResult* a, const BenchResult* b) {
        return a->bytes_per_second() < b->bytes_per_second();
    });
    return *order[(order.size() - 1) / 2];
}

BenchRatio ratio_of(const BenchSeries& first, const BenchSeries& second)
{
    BenchRatio ratio;
    for (size_t round = 0; round < first.rounds.size() && round < second.rounds.size(); ++round) {
        const double below = second.rounds[round].bytes_per_second();
        ratio.rounds.push_back(below == 0 ? 0 : first.rounds[round].bytes_per_second() / below);
    }
    std::vector<double> order = ratio.rounds;
    std::sort(order.begin(), order.end());
    const size_t count = order.size();
    if (count > 0)
        ratio.median = (order[(count - 1) / 2] + order[count / 2]) / 2;
    return ratio;
}

void print_series(const BenchSeries& series)
{
    const BenchResult& result = series.median();
    printf("%s%s%s\n", series.name.c_str(), series.name.empty() ? "" : ": ",
           title_of(series.options).c_str());
    printf("  throughput     %.3f MB/s, %.1f operations/s (%" PRIu64 " in %.2f s)\n",
           result.bytes_per_second() / 1e6,
           result.bytes_per_second() / static_cast<double>(series.options.block_bytes), result.operations,
           static_cast<double>(result.elapsed_ns) / 1e9);
    printf("  latency        p50 %.3f ms, p99 %.3f ms\n", milliseconds(result.p50_ns),
           milliseconds(result.p99_ns));
    print_counts(result);
    const PartialWriteStatistics& partial = result.partial;
    if (pattern_writes(series.options.pattern)) {
        printf("  rows           %" PRIu64 " read-modify-write, %" PRIu64 " reconstruct-write, %" PRIu64
               " whole\n",
               partial.rmw_rows, partial.rcw_rows, partial.full_rows);
        printf("  cache          %.1f %% of the blocks needed were there\n",
               100 * per(partial.cache_hits, partial.cache_hits + partial.cache_misses));
        printf("  merging        %.2f requests per batch\n", per(partial.requests, partial.batches));
    }
    if (result.spindle_count > 0)
        print_spindles(series.options, result);
    if (result.verified)
        printf("  verified       %" PRIu64 " bad blocks\n", result.bad_blocks);
    else
        printf("  verified       no\n");
}

void print_ratio(const BenchSeries& first, const BenchSeries& second)
{
    const BenchRatio ratio = ratio_of(first, second);
    printf("%s by %s: %.2f (", first.name.c_str(), second.name.c_str(), ratio.median);
    for (size_t round = 0; round < ratio.rounds.size(); ++round)
        printf("%s%.2f", round == 0 ? "" : ", ", ratio.rounds[round]);
    printf(")\n");
}

Json encode_bench(std::span<const BenchSeries> series)
{
    Json out = json_with_schema("bench-raid56");
    Json list = json_make_array();
    for (const BenchSeries& one : series) {
        Json object = json_make_object();
        json_put_text(object.get(), "name", one.name);
        json_put(object.get(), "options", encode_options(one.options));
        Json rounds = json_make_array();
        for (const BenchResult& result : one.rounds)
            json_array_append_new(rounds.get(), encode_result(result).release());
        json_put(object.get(), "rounds", std::move(rounds));
        json_array_append_new(list.get(), object.release());
    }
    json_put(out.get(), "series", std::move(list));
    if (series.size() == 2)
        json_put(out.get(), "ratio", encode_ratio(ratio_of(series[0], series[1])));
    return out;
}

}  // namespace cowraid
