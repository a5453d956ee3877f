// SPDX-License-Identifier: MIT
// coherence DIRECTORY SECONDS [READERS WRITERS [page]]: readers and writers of one file, every way to read
// beside every way to write, first pair by pair, then all at once, or the ways that two lists with commas
// name at once. Beside several readers somebody opens and closes the file in every way. At last buffered and
// asynchronous writers share one page. A reader that knows a write to be acknowledged must see it. Exit 1
// when one did not, or when a pair was never seen.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tests/coherence/channel.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr int kMoreMax = 600;
constexpr useconds_t kMoreMicroseconds = 50'000;
constexpr useconds_t kOpenMicroseconds = 500;

constexpr Run kWholeFile{0, kCellCount};
constexpr Run kOnePage{kCellCount / 2, kPageCells};

struct Scene {
    std::string path;
    Run part;  // of the file, where all is read and written
    Cells& cells;
    std::atomic<bool>& stop;
    uint64_t seed;
};

Run pick_run(const Scene& scene, Way way, Prng& random)
{
    const Run part = scene.part;
    while (true) {
        const auto first = part.first + static_cast<uint32_t>(random.below(part.count));
        const auto count = static_cast<uint32_t>(1 + random.below(random.below(4) == 0 ? kRunCellsMax : 16));
        const Run run = scene.cells.run_of(way, first, std::min(count, part.first + part.count - first));
        if (run.count != 0)
            return run;
    }
}

void write_one_by_one(const Scene& scene, Way way)
{
    Channel channel(scene.path, way, Channel::Use::kWrite);
    Prng random(scene.seed);
    AlignedBuffer buffer(kRunCellsMax * kCellBytes);
    while (!scene.stop.load(std::memory_order_relaxed)) {
        const Run run = pick_run(scene, way, random);
        const std::span<std::byte> data = buffer.span().first(run.bytes());
        scene.cells.begin_write(run, data);
        channel.write(run, data);
        scene.cells.end_write(run);
    }
}

bool overlap(Run a, Run b)
{
    return a.first < b.first + b.count && b.first < a.first + a.count;
}

void write_asynchronously(const Scene& scene)
{
    Channel channel(scene.path, Way::kAio, Channel::Use::kWrite);
    Prng random(scene.seed);
    std::vector<Run> runs(kAioDepth);
    std::vector<AlignedBuffer> buffers;
    for (uint64_t tag = 0; tag < kAioDepth; ++tag)
        buffers.emplace_back(kRunCellsMax * kCellBytes);
    uint64_t busy = 0;
    const auto taken = [&](Run run) {
        for (const Run& other : runs)
            if (overlap(run, other))
                return true;
        return false;
    };
    while (!scene.stop.load(std::memory_order_relaxed) || busy != 0) {
        for (uint64_t tag = 0; tag < kAioDepth && !scene.stop.load(std::memory_order_relaxed); ++tag) {
            const Run run = pick_run(scene, Way::kAio, random);
            if (runs[tag].count != 0 || taken(run))
                continue;
            runs[tag] = run;
            const std::span<std::byte> data = buffers[tag].span().first(run.bytes());
            scene.cells.begin_write(run, data);
            channel.submit(run, data, tag);
            ++busy;
        }
        if (busy == 0)
            continue;
        for (const uint64_t tag : channel.reap()) {
            scene.cells.end_write(runs[tag]);
            runs[tag] = {};
            --busy;
        }
    }
}

void read_and_check(const Scene& scene, Way way, std::atomic<uint64_t>& wrong)
{
    Channel channel(scene.path, way, Channel::Use::kRead);
    Prng random(scene.seed);
    AlignedBuffer buffer(kRunCellsMax * kCellBytes);
    std::vector<uint64_t> oldest(kRunCellsMax);
    while (!scene.stop.load(std::memory_order_relaxed)) {
        const auto first = static_cast<uint32_t>(random.below(scene.part.count));
        const auto count = static_cast<uint32_t>(1 + random.below(kRunCellsMax));
        const Run run{scene.part.first + first, std::min(scene.part.count - first, count)};
        const std::span<std::byte> data = buffer.span().first(run.bytes());
        scene.cells.begin_read(run, oldest);
        channel.read(run, data);
        wrong.fetch_add(scene.cells.check_read(run, data, oldest, way));
    }
}

void open_and_close(const Scene& scene)
{
    constexpr std::array kFlags{O_RDONLY,         O_WRONLY, O_RDWR, O_RDONLY | O_DIRECT, O_WRONLY | O_DIRECT,
                                O_RDWR | O_DIRECT};
    for (size_t i = 0; !scene.stop.load(std::memory_order_relaxed); ++i) {
        const UniqueFd file(open(scene.path.c_str(), kFlags[i % kFlags.size()] | O_CLOEXEC));
        if (!file.valid()) {
            perror(scene.path.c_str());
            exit(2);
        }
        usleep(kOpenMicroseconds);
    }
}

void make_file(const std::string& path)
{
    const UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    const std::vector<char> zeros(kFileBytes);
    if (!file.valid() ||
        pwrite(file.get(), zeros.data(), zeros.size(), 0) != static_cast<ssize_t>(kFileBytes)) {
        perror(path.c_str());
        exit(2);
    }
}

bool all_checked(const Cells& cells, std::span<const Way> writers)
{
    return std::all_of(writers.begin(), writers.end(),
                       [&](Way way) { return cells.checked_count(way) != 0; });
}

// Runs the readers beside the writers, on a busy machine until each was seen once. Returns how many cells
// were wrong.
uint64_t run_scene(const std::string& path, Run part, std::span<const Way> readers,
                   std::span<const Way> writers, double seconds)
{
    make_file(path);
    auto cells = std::make_unique<Cells>(writers);
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> wrong{0};
    std::vector<std::thread> threads;
    uint64_t seed = 1;
    const auto start_writers = [&] {
        for (const Way way : writers)
            threads.emplace_back([&, way, seed = seed++] {
                const Scene scene{path, part, *cells, stop, seed};
                way == Way::kAio ? write_asynchronously(scene) : write_one_by_one(scene, way);
            });
    };
    // Who opens the file first reads through the page cache, or writes past it: both orders are tried.
    const bool readers_first = readers.size() == 1;
    if (!readers_first)
        start_writers();
    for (const Way way : readers)
        threads.emplace_back([&, way, seed = seed++] {
            read_and_check({path, part, *cells, stop, seed}, way, wrong);
        });
    if (readers_first) {
        usleep(kOpenMicroseconds * 10);
        start_writers();
    }
    if (readers.size() > 1)
        threads.emplace_back([&] { open_and_close({path, part, *cells, stop, seed}); });
    usleep(static_cast<useconds_t>(seconds * 1e6));
    for (int more = 0; more < kMoreMax && !all_checked(*cells, writers); ++more)
        usleep(kMoreMicroseconds);
    stop.store(true);
    for (std::thread& thread : threads)
        thread.join();
    unlink(path.c_str());
    for (const Way way : writers) {
        const uint64_t checked = cells->checked_count(way);
        printf("%s beside %s: %lu cells checked\n",
               readers.size() == 1 ? way_name(readers[0]) : "several readers", way_name(way), checked);
        if (checked == 0) {
            printf("%s: never checked\n", way_name(way));
            wrong.fetch_add(1);
        }
    }
    printf("  %lu wrong\n", wrong.load());
    fflush(stdout);
    return wrong.load();
}

// The ways of a list with commas; none when it names another.
std::vector<Way> parse_ways(std::span<const Way> ways, const std::string& list)
{
    std::vector<Way> found;
    for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
        end = list.find(',', begin);
        const std::string name = list.substr(begin, end - begin);
        const auto at =
            std::find_if(ways.begin(), ways.end(), [&](Way way) { return name == way_name(way); });
        if (at == ways.end())
            return {};
        found.push_back(*at);
    }
    return found;
}

}  // namespace

int main(int argc, char** argv)
{
    const bool chosen = argc == 5 || (argc == 6 && strcmp(argv[5], "page") == 0);
    const std::vector<Way> readers = chosen ? parse_ways(kReaderWays, argv[3]) : std::vector<Way>();
    const std::vector<Way> writers = chosen ? parse_ways(kWriterWays, argv[4]) : std::vector<Way>();
    if (argc != 3 && (readers.empty() || writers.empty())) {
        fprintf(stderr, "usage: coherence DIRECTORY SECONDS [READERS WRITERS [page]]\n");
        return 2;
    }
    const std::string path = std::string(argv[1]) + "/coherence";
    if (chosen)
        return run_scene(path, argc == 6 ? kOnePage : kWholeFile, readers, writers, atof(argv[2])) == 0 ? 0
                                                                                                        : 1;
    const double seconds = atof(argv[2]);
    const double pair_seconds = seconds / 2 / (kReaderWays.size() * kWriterWays.size());
    uint64_t wrong = 0;
    for (const Way& one_reader : kReaderWays)
        for (const Way& one_writer : kWriterWays)
            wrong += run_scene(path, kWholeFile, {&one_reader, 1}, {&one_writer, 1}, pair_seconds);
    wrong += run_scene(path, kWholeFile, kReaderWays, kWriterWays, seconds / 4);
    constexpr std::array kSharedReaders{Way::kBuffered, Way::kMapped};
    constexpr std::array kSharedWriters{Way::kBuffered, Way::kAio};
    wrong += run_scene(path, kOnePage, kSharedReaders, kSharedWriters, seconds / 4);
    printf("%lu wrong cells\n", wrong);
    return wrong == 0 ? 0 : 1;
}
