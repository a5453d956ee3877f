// SPDX-License-Identifier: MIT
// Content: truncation, reads and writes, limits of size.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

constexpr int64_t kSizes[]{0, 1, 100, 4095, 4096, 4097, 8192, 65536, 65537, 131072, 1000001};

// Not two bytes in a row are alike, and no block is like another one.
std::string patterned(size_t bytes, size_t from = 0)
{
    std::string text(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i)
        text[i] = static_cast<char>('a' + ((i + from) + (i + from) / 4096 * 7) % 26);
    return text;
}

std::string read_at(int fd, int64_t offset, size_t bytes)
{
    std::string text(bytes, '?');
    const ssize_t got = pread(fd, text.data(), bytes, offset);
    text.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return text;
}

void check_resize(int64_t before, int64_t after)
{
    const std::string content = patterned(static_cast<size_t>(before));
    std::string wanted = content;
    wanted.resize(static_cast<size_t>(after), '\0');
    for (const bool by_path : {true, false}) {
        make_file("file", content);
        const UniqueFd fd = open_file("file", O_RDWR);
        expect_result(0, by_path ? truncate("file", after) : ftruncate(fd.get(), after),
                      "%s from %ld to %ld bytes", by_path ? "truncate" : "ftruncate", before, after);
        expect_equal(after, stat_of("file").st_size, "size after truncation from %ld to %ld", before, after);
        expect_text(wanted, content_of("file"), "content after truncation from %ld to %ld", before, after);
        // What was cut off does not come back.
        if (after < before) {
            expect_result(0, ftruncate(fd.get(), before), "growing again to %ld", before);
            std::string zeros = wanted;
            zeros.resize(static_cast<size_t>(before), '\0');
            expect_text(zeros, content_of("file"), "content after truncation from %ld to %ld and back",
                        before, after);
        }
        remove_tree("file");
    }
}

void check_truncation_errors()
{
    make_file("file", "content");
    make_directory("directory");
    make(Kind::kFifo, "fifo");
    const UniqueFd reader = open_file("file", O_RDONLY);
    const UniqueFd writer = open_file("file", O_WRONLY);
    expect_result(EINVAL, truncate("file", -1), "truncate to -1");
    expect_result(EINVAL, ftruncate(writer.get(), -1), "ftruncate to -1");
    expect_result(EINVAL, ftruncate(reader.get(), 1), "ftruncate of a descriptor for reading");
    expect_result(EISDIR, truncate("directory", 0), "truncate of a directory");
    expect_result(EINVAL, truncate("fifo", 0), "truncate of a fifo");
    expect_result(EBADF, ftruncate(-1, 0), "ftruncate of no descriptor");
    expect_text("content", content_of("file"), "content after refused truncations");
    set_owner("file", users.bob.uid, users.bob.gid);
    set_mode("file", 0444);
    as(users.alice, [&] {
        expect_result(EACCES, truncate("file", 0), "truncate by one who may not write");
        expect_result(0, ftruncate(writer.get(), 3),
                      "ftruncate through a descriptor that somebody else opened");
    });
    expect_text("con", content_of("file"), "content after it");
}

void check_write_at(int64_t offset, size_t bytes)
{
    const std::string base = patterned(10000);
    const std::string data(bytes, '#');
    make_file("file", base);
    const UniqueFd fd = open_file("file", O_RDWR);
    expect_equal(static_cast<int64_t>(bytes), pwrite(fd.get(), data.data(), bytes, offset),
                 "pwrite of %zu bytes at %ld", bytes, offset);
    std::string wanted = base;
    if (bytes != 0 && static_cast<int64_t>(wanted.size()) < offset + static_cast<int64_t>(bytes))
        wanted.resize(static_cast<size_t>(offset) + bytes, '\0');
    if (bytes != 0)
        wanted.replace(static_cast<size_t>(offset), bytes, data);
    expect_text(wanted, content_of("file"), "content after pwrite of %zu bytes at %ld", bytes, offset);
    expect_equal(static_cast<int64_t>(wanted.size()), stat_of("file").st_size,
                 "size after pwrite of %zu bytes at %ld", bytes, offset);
    expect_equal(0, lseek(fd.get(), 0, SEEK_CUR), "position after pwrite");
    remove_tree("file");
}

void check_positions()
{
    make_file("file", "0123456789");
    const UniqueFd fd = open_file("file", O_RDWR);
    struct Seek {
        int64_t offset;
        int whence;
        int64_t wanted;  // -EINVAL
    };
    constexpr Seek kSeeks[]{{5, SEEK_SET, 5},   {-1, SEEK_SET, -EINVAL},  {2, SEEK_CUR, 7},
                            {-7, SEEK_CUR, 0},  {-1, SEEK_CUR, -EINVAL},  {0, SEEK_END, 10},
                            {-10, SEEK_END, 0}, {-11, SEEK_END, -EINVAL}, {100, SEEK_END, 110},
                            {0, 99, -EINVAL}};
    for (const Seek& seek : kSeeks) {
        const off_t is = lseek(fd.get(), seek.offset, seek.whence);
        expect_equal(seek.wanted, is < 0 ? -errno : is, "lseek by %ld from %d", seek.offset, seek.whence);
    }
    char text[20] = "";
    expect_equal(0, read(fd.get(), text, 10), "read behind the end");
    expect_equal(2, lseek(fd.get(), 2, SEEK_SET), "lseek");
    expect_equal(3, read(fd.get(), text, 3), "read of three bytes");
    expect_text("234", text, "what was read");
    expect_equal(5, lseek(fd.get(), 0, SEEK_CUR), "position after read");
    expect_equal(2, write(fd.get(), "ab", 2), "write of two bytes");
    expect_equal(7, lseek(fd.get(), 0, SEEK_CUR), "position after write");
    expect_text("01234ab789", content_of("file"), "content after write");
    const UniqueFd appender = open_file("file", O_RDWR | O_APPEND);
    expect_equal(0, lseek(appender.get(), 0, SEEK_SET), "lseek of a descriptor with O_APPEND");
    expect_equal(2, write(appender.get(), "xy", 2), "write through it");
    expect_equal(12, lseek(appender.get(), 0, SEEK_CUR), "position after it");
    expect_equal(1, pwrite(appender.get(), "z", 1, 0), "pwrite through it at 0");
    expect_text("01234ab789xyz", content_of("file"), "pwrite with O_APPEND appends");
    const UniqueFd copy(dup(fd.get()));
    expect_equal(1, lseek(copy.get(), 1, SEEK_SET), "lseek of a duplicate");
    expect_equal(1, lseek(fd.get(), 0, SEEK_CUR), "position of the original");
}

void check_refused_io()
{
    make_file("file", "content");
    make_directory("directory");
    const UniqueFd reader = open_file("file", O_RDONLY), writer = open_file("file", O_WRONLY);
    const UniqueFd directory = open_file("directory", O_RDONLY), path = open_file("file", O_PATH);
    char text[10];
    expect_result(EBADF, read(writer.get(), text, 1), "read of a descriptor for writing");
    expect_result(EBADF, write(reader.get(), text, 1), "write to a descriptor for reading");
    expect_result(EBADF, pread(path.get(), text, 1, 0), "pread of a descriptor with O_PATH");
    expect_result(EISDIR, read(directory.get(), text, 1), "read of a directory");
    expect_result(EINVAL, pread(reader.get(), text, 1, -1), "pread at -1");
    expect_result(EINVAL, pwrite(writer.get(), text, 1, -1), "pwrite at -1");
    expect_result(EFAULT, read(reader.get(), bad_address(), 5), "read to a bad address");
    expect_result(EFAULT, write(writer.get(), bad_address(), 5), "write from a bad address");
    expect_equal(0, read(reader.get(), text, 0), "read of nothing");
    expect_equal(0, write(writer.get(), text, 0), "write of nothing");
    expect_text("content", content_of("file"), "content after refused calls");
}

void check_vectors()
{
    make_file("file");
    const UniqueFd fd = open_file("file", O_RDWR);
    std::string pieces[]{patterned(1), patterned(0), patterned(5000, 1), patterned(4096, 5001)};
    iovec vectors[4];
    for (size_t i = 0; i < 4; ++i)
        vectors[i] = {pieces[i].data(), pieces[i].size()};
    expect_equal(9097, writev(fd.get(), vectors, 4), "writev of four pieces");
    expect_text(patterned(9097), content_of("file"), "content after writev");
    for (std::string& piece : pieces)
        piece.assign(piece.size(), '?');
    expect_equal(9097, preadv(fd.get(), vectors, 4, 0), "preadv into four pieces");
    expect_text(patterned(9097), pieces[0] + pieces[1] + pieces[2] + pieces[3], "what preadv got");
    expect_equal(4097, preadv(fd.get(), vectors, 4, 5000), "preadv near the end");
    expect_equal(9097, pwritev2(fd.get(), vectors, 4, 0, RWF_APPEND), "pwritev2 with RWF_APPEND");
    expect_equal(18194, stat_of("file").st_size, "size after it");
    expect_equal(9097, pwritev2(fd.get(), vectors, 4, 100, RWF_SYNC), "pwritev2 with RWF_SYNC");
    const volatile int negative = -1;
    expect_result(EINVAL, writev(fd.get(), vectors, negative), "writev of -1 pieces");
    expect_equal(0, writev(fd.get(), vectors, 0), "writev of no pieces");
}

// Direct reads and writes beside buffered ones.
void check_direct()
{
    make_file("file", patterned(20000));
    const UniqueFd direct(open("file", O_RDWR | O_DIRECT | O_CLOEXEC)), buffered = open_file("file", O_RDWR);
    if (!direct.valid()) {
        expect_result(EINVAL, -1, "open with O_DIRECT is refused with EINVAL where it is unknown");
        return;
    }
    alignas(4096) static char memory[8192];
    for (const int64_t offset : {0, 4096, 8192, 16384}) {
        const int64_t wanted = std::min<int64_t>(8192, 20000 - offset);
        expect_equal(wanted, pread(direct.get(), memory, 8192, offset), "direct pread at %ld", offset);
        expect_text(patterned(static_cast<size_t>(wanted), static_cast<size_t>(offset)),
                    std::string(memory, static_cast<size_t>(wanted)), "what it got at %ld", offset);
    }
    memset(memory, 'D', sizeof memory);
    expect_equal(8192, pwrite(direct.get(), memory, 8192, 4096), "direct pwrite");
    expect_text(std::string(8192, 'D'), read_at(buffered.get(), 4096, 8192), "buffered pread after it");
    expect_equal(3, pwrite(buffered.get(), "BBB", 3, 5000), "buffered pwrite");
    expect_equal(4096, pread(direct.get(), memory, 4096, 4096), "direct pread after it");
    expect_text("BBB", std::string(memory + 904, 3), "what it got");
    expect_equal(8192, pwrite(direct.get(), memory, 8192, 1 << 20), "direct pwrite behind the end");
    expect_equal((1 << 20) + 8192, stat_of("file").st_size, "size after it");
    expect_text(std::string(100, '\0'), read_at(buffered.get(), 500000, 100), "what is between");
}

// At the largest size that the filesystem knows.
void check_largest(int64_t limit)
{
    make_file("large");
    const UniqueFd fd = open_file("large", O_RDWR);
    expect_result(0, ftruncate(fd.get(), limit), "ftruncate to %ld bytes", limit);
    expect_equal(limit, stat_of("large").st_size, "size after it");
    expect_text(std::string(10, '\0'), read_at(fd.get(), limit - 10, 10), "the last bytes");
    expect_equal(4, pwrite(fd.get(), "last", 4, limit - 4), "pwrite of the last four bytes");
    expect_text(std::string(2, '\0') + "last", read_at(fd.get(), limit - 6, 6), "what is there");
    expect_equal(limit, lseek(fd.get(), limit - 1, SEEK_HOLE), "the hole behind it");
    const int64_t middle = limit / 2 / 4096 * 4096;
    expect_equal(6, pwrite(fd.get(), "middle", 6, middle), "pwrite in the middle");
    expect_equal(middle, lseek(fd.get(), 0, SEEK_DATA), "the first data");
    expect_result(0, ftruncate(fd.get(), middle + 3), "ftruncate to the middle");
    expect_text("mid", read_at(fd.get(), middle, 100), "what is left of it");
    expect(stat_of("large").st_blocks <= 256, "a sparse file takes little room: %ld blocks",
           stat_of("large").st_blocks);
}

void check_resource_limit()
{
    make_file("file", patterned(1000));
    const pid_t child = beside([] {
        const rlimit limit{5000, 5000};
        require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
        static volatile sig_atomic_t signals;
        signal(SIGXFSZ, [](int) { signals = signals + 1; });
        const UniqueFd fd = open_file("file", O_RDWR);
        const std::string data = patterned(3000);
        expect_equal(3000, pwrite(fd.get(), data.data(), 3000, 2000), "pwrite up to the limit");
        expect_equal(1000, pwrite(fd.get(), data.data(), 3000, 4000), "pwrite across the limit is cut");
        expect_result(EFBIG, pwrite(fd.get(), data.data(), 1, 5000), "pwrite at the limit");
        expect_equal(1, signals, "signals SIGXFSZ after it");
        expect_result(EFBIG, ftruncate(fd.get(), 5001), "ftruncate above the limit");
        expect_equal(2, signals, "signals SIGXFSZ after that");
        expect_result(0, ftruncate(fd.get(), 5000), "ftruncate to the limit");
        expect_result(EFBIG, fallocate(fd.get(), 0, 0, 6000), "fallocate above the limit");
        expect_result(0, fallocate(fd.get(), 0, 0, 5000), "fallocate to the limit");
        expect_equal(5000, stat_of("file").st_size, "size after all that");
    });
    await_child(child, "a limit");
}

}  // namespace

void test_truncation()
{
    for (const int64_t before : kSizes)
        for (const int64_t after : kSizes)
            if (before <= 10000 || after <= 10000)
                check_resize(before, after);
    apart(check_truncation_errors);
}

void test_reads_and_writes()
{
    for (const int64_t offset : {0, 1, 4090, 4096, 8191, 9999, 10000, 10001, 12288, 100000})
        for (const size_t bytes : {0, 1, 6, 4096, 4097, 20000})
            check_write_at(offset, bytes);
    for (void (*check)() : {check_positions, check_refused_io, check_vectors, check_direct})
        apart(check);
    for (const Kind kind : {Kind::kFifo, Kind::kSocket, Kind::kCharacterDevice}) {
        make(kind, "node");
        expect_equal(0, stat_of("node").st_size, "size of %s", kind_name(kind));
        remove_tree("node");
    }
    make(Kind::kFifo, "fifo");
    const UniqueFd fifo = open_file("fifo", O_RDWR);
    expect_equal(5, write(fifo.get(), "hello", 5), "write to a fifo");
    char text[10] = "";
    expect_equal(5, read(fifo.get(), text, 9), "read from it");
    expect_text("hello", text, "what it gave");
    expect_result(ESPIPE, lseek(fifo.get(), 0, SEEK_SET), "lseek of a fifo");
    make(Kind::kCharacterDevice, "null");
    const UniqueFd null(open("null", O_RDWR | O_CLOEXEC));
    expect_equal(5, write(null.get(), "hello", 5), "write to the device null");
    expect_equal(0, read(null.get(), text, 5), "read from it");
}

void test_size_limits()
{
    // The largest size that ftruncate takes; found by halving, as it differs.
    make_file("probe");
    int64_t good = 1LL << 40, bad = INT64_MAX;
    if (truncate("probe", bad) == 0)
        good = bad;
    while (good < bad - 1) {
        const int64_t middle = good + (bad - good) / 2;
        (truncate("probe", middle) == 0 ? good : bad) = middle;
    }
    remove_tree("probe");
    check_largest(good);
    make_file("file", "x");
    const UniqueFd fd = open_file("file", O_RDWR);
    if (good < INT64_MAX)
        expect_result(EFBIG, ftruncate(fd.get(), good + 1), "ftruncate above the largest size");
    if (good < INT64_MAX)
        expect_result(EFBIG, pwrite(fd.get(), "x", 1, good), "pwrite at the largest size");
    expect_result(EINVAL, pwrite(fd.get(), "x", 1, INT64_MAX), "pwrite at INT64_MAX");
    expect_equal(0, pread(fd.get(), &good, 1, INT64_MAX - 1), "pread near INT64_MAX");
    expect_result(EFBIG, fallocate(fd.get(), 0, INT64_MAX, 1), "fallocate at INT64_MAX");
    expect_text("x", content_of("file"), "content after refused calls");
    apart(check_resource_limit);
    // More than there is.
    struct statvfs space;
    require(fstatvfs(fd.get(), &space) == 0, "fstatvfs");
    const auto total = static_cast<int64_t>(space.f_blocks * space.f_frsize);
    if (total > 0 && total < 1LL << 40)
        expect_result(ENOSPC, fallocate(fd.get(), 0, 0, 2 * total), "fallocate of twice the volume");
}

}  // namespace cowraid::posix
