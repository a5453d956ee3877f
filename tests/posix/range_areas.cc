// SPDX-License-Identifier: MIT
// Holes, fallocate, copy_file_range.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

constexpr int64_t kBlock = 4096;
constexpr int kPatternBlocks = 7;

// "##..#": what SEEK_DATA and SEEK_HOLE say of each block. "!" where they contradict each other.
std::string map_of(int fd, int64_t size)
{
    std::string map;
    for (int64_t at = 0; at < size; at += kBlock) {
        const off_t data = lseek(fd, at, SEEK_DATA), hole = lseek(fd, at, SEEK_HOLE);
        map += data == at && hole > at ? '#' : hole == at && data != at ? '.' : '!';
    }
    return map;
}

std::string wanted_map(unsigned pattern)
{
    std::string map;
    for (int i = 0; i < kPatternBlocks; ++i)
        map += (pattern >> i & 1) != 0 ? '#' : '.';
    return map;
}

enum class Writing { kBuffered, kMapped, kPunched, kDirect };

// Leaves a file of that pattern.
UniqueFd make_pattern(unsigned pattern, Writing writing)
{
    remove_tree("pattern");
    make_file("pattern");
    UniqueFd fd = open_file("pattern", O_RDWR | (writing == Writing::kDirect ? O_DIRECT : 0));
    const int64_t size = kPatternBlocks * kBlock;
    require(ftruncate(fd.get(), size) == 0, "ftruncate");
    alignas(4096) static char block[kBlock];
    std::fill(std::begin(block), std::end(block), 'x');
    void* memory = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    require(memory != MAP_FAILED, "mmap");
    for (int i = 0; i < kPatternBlocks; ++i) {
        const bool is_data = (pattern >> i & 1) != 0;
        if (writing == Writing::kMapped && is_data)
            static_cast<char*>(memory)[i * kBlock + 99] = 'x';
        else if (writing != Writing::kMapped && (is_data || writing == Writing::kPunched))
            require(pwrite(fd.get(), block, kBlock, i * kBlock) == kBlock, "pwrite");
    }
    for (int i = 0; i < kPatternBlocks && writing == Writing::kPunched; ++i)
        if ((pattern >> i & 1) == 0)
            require(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * kBlock, kBlock) == 0,
                    "punch");
    munmap(memory, static_cast<size_t>(size));
    return fd;
}

const char* writing_name(Writing writing)
{
    constexpr const char* kNames[]{"written", "written through a mapping", "punched", "written directly"};
    return kNames[static_cast<int>(writing)];
}

struct AllocationMode {
    const char* name;
    int value;
};

constexpr AllocationMode kModes[]{{"fallocate", 0},
                                  {"fallocate with KEEP_SIZE", FALLOC_FL_KEEP_SIZE},
                                  {"punch", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE},
                                  {"zero range", FALLOC_FL_ZERO_RANGE},
                                  {"zero range with KEEP_SIZE", FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE}};

struct ByteRange {
    int64_t offset, count;
};

constexpr ByteRange kRanges[]{{0, 1},        {0, 4096},     {1, 1},        {100, 4000},   {4095, 2},
                              {4096, 8192},  {5000, 10000}, {0, 20000},    {19999, 1},    {19000, 1000},
                              {19000, 5000}, {20000, 1},    {20000, 4096}, {24576, 8192}, {100000, 5}};

bool zeroes(const AllocationMode& mode)
{
    return (mode.value & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0;
}

void check_allocation(const AllocationMode& mode, ByteRange range, bool synced)
{
    std::string wanted(20000, 'x');
    make_file("file", wanted);
    const UniqueFd fd = open_file("file", O_RDWR);
    if (synced)
        require(fsync(fd.get()) == 0, "fsync");
    if (fallocate(fd.get(), mode.value, range.offset, range.count) != 0) {
        expect_result(0, -1, "%s of %ld bytes at %ld", mode.name, range.count, range.offset);
        return remove_tree("file");
    }
    const int64_t end = range.offset + range.count;
    if ((mode.value & FALLOC_FL_KEEP_SIZE) == 0 && end > 20000)
        wanted.resize(static_cast<size_t>(end), '\0');
    if (zeroes(mode))
        for (int64_t at = range.offset; at < std::min<int64_t>(end, static_cast<int64_t>(wanted.size()));
             ++at)
            wanted[static_cast<size_t>(at)] = '\0';
    expect_text(wanted, content_of("file"), "content after %s of %ld bytes at %ld", mode.name, range.count,
                range.offset);
    expect_equal(static_cast<int64_t>(wanted.size()), stat_of("file").st_size,
                 "size after %s of %ld bytes at %ld", mode.name, range.count, range.offset);
    remove_tree("file");
}

void check_reserved_room()
{
    make_file("file");
    const UniqueFd fd = open_file("file", O_RDWR);
    expect_result(0, fallocate(fd.get(), 0, 0, 1 << 20), "fallocate of 1 MiB");
    const int64_t blocks = stat_of("file").st_blocks;
    expect(blocks >= 2048, "fallocate takes the room at once: %ld blocks", blocks);
    expect_result(0, fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 1 << 20, 1 << 20), "fallocate behind the end");
    expect(stat_of("file").st_blocks >= 4096, "room behind the end is taken, too");
    expect_equal(1 << 20, stat_of("file").st_size, "size stays with KEEP_SIZE");
    expect_result(0, fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20), "punch");
    expect(stat_of("file").st_blocks <= 2048 + 64, "punch gives the room back: %ld blocks left",
           stat_of("file").st_blocks);
    expect_text(std::string(1 << 20, '\0'), content_of("file"), "content after it");
    expect_result(0, ftruncate(fd.get(), 0), "ftruncate");
    expect(stat_of("file").st_blocks <= 64, "truncation gives the room behind the end back: %ld blocks left",
           stat_of("file").st_blocks);
    for (const int64_t size : {0, 5000}) {
        expect_result(0, ftruncate(fd.get(), size), "ftruncate");
        const int64_t used = stat_of("file").st_blocks;
        expect_result(0, fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 1 << 20, 1 << 20),
                      "fallocate behind the end");
        expect(stat_of("file").st_blocks >= used + 2048, "room behind an end at %ld is taken", size);
        expect_result(0, ftruncate(fd.get(), size), "ftruncate to the size that it has");
        expect(stat_of("file").st_blocks <= used + 64,
               "room behind an end at %ld is given back: %ld blocks left", size, stat_of("file").st_blocks);
        expect_equal(size, stat_of("file").st_size, "size after it");
    }
    expect_result(0, fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, 1 << 20), "fallocate");
    expect(UniqueFd(open("file", O_WRONLY | O_TRUNC)).valid(), "open with O_TRUNC");
    expect_equal(0, stat_of("file").st_size, "size after O_TRUNC");
    expect(stat_of("file").st_blocks <= 64, "O_TRUNC gives room back: %ld blocks left",
           stat_of("file").st_blocks);
}

void check_refused_allocation()
{
    make_file("file", "content");
    make_directory("directory");
    make(Kind::kFifo, "fifo");
    const UniqueFd fd = open_file("file", O_RDWR), reader = open_file("file", O_RDONLY);
    const UniqueFd directory = open_file("directory", O_RDONLY), fifo = open_file("fifo", O_RDWR);
    expect_result(EINVAL, fallocate(fd.get(), 0, 0, 0), "fallocate of nothing");
    expect_result(EINVAL, fallocate(fd.get(), 0, -1, 10), "fallocate at -1");
    expect_result(EINVAL, fallocate(fd.get(), 0, 0, -1), "fallocate of -1 bytes");
    expect_result(EBADF, fallocate(reader.get(), 0, 0, 10), "fallocate through a descriptor for reading");
    expect_result(EBADF, fallocate(directory.get(), 0, 0, 10), "fallocate of a directory");
    expect_result(ESPIPE, fallocate(fifo.get(), 0, 0, 10), "fallocate of a fifo");
    expect_result(EOPNOTSUPP, fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE, 0, 10), "punch without KEEP_SIZE");
    expect_result(EOPNOTSUPP, fallocate(fd.get(), 1 << 20, 0, 10), "fallocate with unknown flags");
    expect_text("content", content_of("file"), "content after refused fallocate");
}

std::string letters(size_t bytes, char first)
{
    std::string text(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i)
        text[i] = static_cast<char>(first + static_cast<char>((i + i / 4096) % 26));
    return text;
}

// Copies as often as it takes; returns what the last call did.
int64_t copy_all(int from, int64_t from_offset, int to, int64_t to_offset, size_t count)
{
    size_t done = 0;
    ssize_t copied = 1;
    while (done < count && copied > 0) {
        off64_t in = from_offset + static_cast<off64_t>(done), out = to_offset + static_cast<off64_t>(done);
        copied = copy_file_range(from, &in, to, &out, count - done, 0);
        if (copied > 0)
            done += static_cast<size_t>(copied);
    }
    return copied < 0 ? -errno : static_cast<int64_t>(done);
}

void check_copy(int64_t from_offset, int64_t to_offset, size_t count, bool synced)
{
    const std::string source = letters(20000, 'a');
    std::string target = letters(15000, 'A');
    make_file("source", source);
    make_file("target", target);
    const UniqueFd from = open_file("source", O_RDONLY), to = open_file("target", O_RDWR);
    if (synced)
        require(fsync(open_file("source", O_WRONLY).get()) == 0 && fsync(to.get()) == 0, "fsync");
    const std::string part =
        from_offset < 20000 ? source.substr(static_cast<size_t>(from_offset), count) : std::string();
    expect_equal(static_cast<int64_t>(part.size()),
                 copy_all(from.get(), from_offset, to.get(), to_offset, count),
                 "copy_file_range of %zu bytes from %ld to %ld", count, from_offset, to_offset);
    if (!part.empty() && target.size() < static_cast<size_t>(to_offset) + part.size())
        target.resize(static_cast<size_t>(to_offset) + part.size(), '\0');
    if (!part.empty())
        target.replace(static_cast<size_t>(to_offset), part.size(), part);
    expect_text(target, content_of("target"), "content after copy_file_range of %zu bytes from %ld to %ld",
                count, from_offset, to_offset);
    expect_text(source, content_of("source"), "content of the source");
    remove_tree("source");
    remove_tree("target");
}

void check_refused_copies()
{
    make_file("file", letters(10000, 'a'));
    make_directory("directory");
    const UniqueFd fd = open_file("file", O_RDWR), reader = open_file("file", O_RDONLY);
    const UniqueFd writer = open_file("file", O_WRONLY), appender = open_file("file", O_RDWR | O_APPEND);
    const UniqueFd directory = open_file("directory", O_RDONLY);
    off64_t in = 0, out = 5000;
    expect_result(EINVAL, copy_file_range(fd.get(), &in, fd.get(), &out, 6000, 0),
                  "copy that overlaps itself");
    expect_result(EBADF, copy_file_range(fd.get(), &in, reader.get(), &out, 10, 0),
                  "copy to one for reading");
    expect_result(EBADF, copy_file_range(writer.get(), &in, fd.get(), &out, 10, 0),
                  "copy from one for writing");
    expect_result(EBADF, copy_file_range(fd.get(), &in, appender.get(), &out, 10, 0), "copy to O_APPEND");
    expect_result(EISDIR, copy_file_range(directory.get(), &in, fd.get(), &out, 10, 0),
                  "copy from a directory");
    expect_result(EINVAL, copy_file_range(fd.get(), &in, fd.get(), &out, 10, 8), "copy with flags");
    expect_equal(0, copy_file_range(fd.get(), &in, fd.get(), &out, 0, 0), "copy of nothing");
    expect_text(letters(10000, 'a'), content_of("file"), "content after refused copies");
    make_file("other");
    const UniqueFd other = open_file("other", O_RDWR);
    expect_equal(100, lseek(fd.get(), 100, SEEK_SET), "lseek");
    expect_equal(200, copy_file_range(fd.get(), nullptr, other.get(), nullptr, 200, 0), "copy by positions");
    expect_equal(300, lseek(fd.get(), 0, SEEK_CUR), "position of the source after it");
    expect_equal(200, lseek(other.get(), 0, SEEK_CUR), "position of the target after it");
    expect_equal(1000, copy_all(fd.get(), 0, fd.get(), 50000, 1000), "copy within a file behind its end");
    expect_equal(51000, stat_of("file").st_size, "size after it");
}

}  // namespace

void test_holes()
{
    const int64_t size = kPatternBlocks * kBlock;
    for (const Writing writing :
         {Writing::kBuffered, Writing::kPunched, Writing::kMapped, Writing::kDirect}) {
        for (unsigned pattern = 0; pattern < 1U << kPatternBlocks;
             pattern += writing == Writing::kBuffered ? 1 : 5) {
            const std::string wanted = wanted_map(pattern);
            const UniqueFd fd = make_pattern(pattern, writing);
            expect_text(wanted, map_of(fd.get(), size), "map of a file %s as %s", writing_name(writing),
                        wanted.c_str());
            require(fsync(fd.get()) == 0, "fsync");
            expect_text(wanted, map_of(fd.get(), size), "map of a file %s as %s, after fsync",
                        writing_name(writing), wanted.c_str());
        }
    }
    make_file("file", "content");
    const UniqueFd fd = open_file("file", O_RDONLY);
    expect_equal(3, lseek(fd.get(), 3, SEEK_DATA), "SEEK_DATA inside data");
    expect_equal(7, lseek(fd.get(), 3, SEEK_HOLE), "SEEK_HOLE finds the end");
    for (const int64_t offset : {int64_t{7}, int64_t{1} << 40, int64_t{-1}, int64_t{INT64_MIN}}) {
        expect_result(ENXIO, lseek(fd.get(), offset, SEEK_DATA), "SEEK_DATA at %ld", offset);
        expect_result(ENXIO, lseek(fd.get(), offset, SEEK_HOLE), "SEEK_HOLE at %ld", offset);
    }
    const UniqueFd empty = open_file("empty", O_RDWR | O_CREAT);
    expect_result(ENXIO, lseek(empty.get(), 0, SEEK_DATA), "SEEK_DATA in an empty file");
    expect_result(ENXIO, lseek(empty.get(), 0, SEEK_HOLE), "SEEK_HOLE in an empty file");
    require(ftruncate(empty.get(), 1LL << 40) == 0, "ftruncate");
    expect_result(ENXIO, lseek(empty.get(), 0, SEEK_DATA), "SEEK_DATA in 1 TiB of a hole");
    expect_equal(0, lseek(empty.get(), 0, SEEK_HOLE), "SEEK_HOLE in it");
    expect_equal(1, pwrite(empty.get(), "x", 1, (1LL << 39) + 5), "write into it");
    expect_equal(1LL << 39, lseek(empty.get(), 0, SEEK_DATA), "SEEK_DATA finds its block");
    expect_equal((1LL << 39) + 4096, lseek(empty.get(), 1LL << 39, SEEK_HOLE),
                 "SEEK_HOLE finds the block's end");
}

void test_allocation()
{
    for (const AllocationMode& mode : kModes)
        for (const ByteRange range : kRanges)
            for (const bool synced : {false, true})
                check_allocation(mode, range, synced);
    apart(check_reserved_room);
    apart(check_refused_allocation);
}

void test_copied_ranges()
{
    for (const int64_t from : {0, 1, 4096, 5000, 19999, 20000, 30000})
        for (const int64_t to : {0, 1, 4096, 7777, 15000, 40960})
            for (const size_t count : {1, 4096, 5000, 100000})
                check_copy(from, to, count, (from + to) % 2 == 0);
    apart(check_refused_copies);
}

}  // namespace cowraid::posix
