// SPDX-License-Identifier: MIT
// Mappings, and calls that make content durable.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

constexpr size_t kPage = 4096;

class Mapping {
public:
    Mapping(int fd, size_t bytes, int rights, int flags, off_t offset = 0)
        : bytes_(bytes), memory_(mmap(nullptr, bytes, rights, flags, fd, offset))
    {
        require(memory_ != MAP_FAILED, "mmap");
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() { munmap(memory_, bytes_); }

    [[nodiscard]] char* at(size_t offset = 0) const { return static_cast<char*>(memory_) + offset; }
    [[nodiscard]] std::string text(size_t offset, size_t bytes) const { return {at(offset), bytes}; }

private:
    size_t bytes_;
    void* memory_;
};

// The signal that ends a child that does it; 0 when it ends by itself.
template <typename Body> int signal_of(Body&& body)
{
    const pid_t child = begin_child();
    if (child == 0) {
        body();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void touch(const volatile char* at)
{
    static_cast<void>(*at);
}

void check_mmap_rights()
{
    struct Right {
        const char* name;
        int open_flags, rights, flags, error;
    };
    constexpr int kRead = PROT_READ, kWrite = PROT_READ | PROT_WRITE;
    const Right rights[]{
        {"shared, read, of O_RDONLY", O_RDONLY, kRead, MAP_SHARED, 0},
        {"shared, write, of O_RDONLY", O_RDONLY, kWrite, MAP_SHARED, EACCES},
        {"private, write, of O_RDONLY", O_RDONLY, kWrite, MAP_PRIVATE, 0},
        {"shared, read, of O_WRONLY", O_WRONLY, kRead, MAP_SHARED, EACCES},
        {"shared, write, of O_WRONLY", O_WRONLY, kWrite, MAP_SHARED, EACCES},
        {"private, read, of O_WRONLY", O_WRONLY, kRead, MAP_PRIVATE, EACCES},
        {"shared, read, of O_RDWR", O_RDWR, kRead, MAP_SHARED, 0},
        {"shared, write, of O_RDWR", O_RDWR, kWrite, MAP_SHARED, 0},
        {"private, write, of O_RDWR", O_RDWR, kWrite, MAP_PRIVATE, 0},
        {"private, execution, of O_RDONLY", O_RDONLY, kRead | PROT_EXEC, MAP_PRIVATE, 0},
        {"of O_PATH", O_PATH, kRead, MAP_SHARED, EBADF},
    };
    for (const Right& right : rights) {
        const UniqueFd fd = open_file("file", right.open_flags);
        void* memory = mmap(nullptr, kPage, right.rights, right.flags, fd.get(), 0);
        expect_result(right.error, memory == MAP_FAILED ? -1 : 0, "mmap, %s", right.name);
        if (memory != MAP_FAILED)
            munmap(memory, kPage);
    }
    const UniqueFd fd = open_file("file", O_RDONLY), directory = open_file(".", O_RDONLY);
    const Mapping mapping(fd.get(), kPage, PROT_READ, MAP_SHARED);
    expect_result(EACCES, mprotect(mapping.at(), kPage, PROT_READ | PROT_WRITE),
                  "mprotect to write of what was opened for reading");
    expect_equal(SIGSEGV, signal_of([&] { *mapping.at() = 'x'; }),
                 "signal of writing to a mapping for reading");
    const auto error_of = [](void* memory) {
        return memory == MAP_FAILED ? -1L : 0L;
    };
    expect_result(ENODEV, error_of(mmap(nullptr, kPage, PROT_READ, MAP_SHARED, directory.get(), 0)),
                  "mmap of a directory");
    expect_result(EINVAL, error_of(mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd.get(), 100)),
                  "mmap at 100");
    expect_result(EINVAL, error_of(mmap(nullptr, 0, PROT_READ, MAP_SHARED, fd.get(), 0)), "mmap of nothing");
    expect_result(EINVAL, msync(mapping.at(1), 10, MS_SYNC), "msync at an odd address");
    expect_result(EINVAL, msync(mapping.at(), kPage, MS_SYNC | MS_ASYNC), "msync with both flags");
}

void check_shared_content()
{
    make_file("shared", std::string(3 * kPage, 'o'));
    const UniqueFd fd = open_file("shared", O_RDWR);
    const Mapping first(fd.get(), 3 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
    const Mapping second(fd.get(), 3 * kPage, PROT_READ, MAP_SHARED);
    const Mapping own(fd.get(), 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    for (const size_t offset : {size_t{0}, size_t{4000}, kPage, 2 * kPage + 1, 3 * kPage - 3}) {
        const auto place = static_cast<off_t>(offset);
        memcpy(first.at(offset), "ABC", 3);
        char text[4] = "";
        expect_equal(3, pread(fd.get(), text, 3, place), "pread at %zu", offset);
        expect_text("ABC", text, "pread sees what a mapping wrote at %zu", offset);
        expect_text("ABC", second.text(offset, 3), "another mapping sees it at %zu", offset);
        expect_equal(3, pwrite(fd.get(), "xyz", 3, place), "pwrite at %zu", offset);
        expect_text("xyz", first.text(offset, 3), "a mapping sees what pwrite wrote at %zu", offset);
        await_child(beside([&] { memcpy(first.at(offset), "fgh", 3); }), "a mapping");
        expect_text("fgh", second.text(offset, 3), "a mapping sees what a child wrote at %zu", offset);
        memcpy(own.at(offset), "own", 3);
        expect_text("fgh", second.text(offset, 3), "a shared mapping does not see a private one at %zu",
                    offset);
        expect_text("own", own.text(offset, 3), "the private mapping has its own at %zu", offset);
    }
    expect_result(0, msync(first.at(), 3 * kPage, MS_SYNC), "msync");
    expect_result(0, msync(first.at(), 3 * kPage, MS_ASYNC), "msync with MS_ASYNC");
    expect_result(0, msync(first.at(), 3 * kPage, MS_INVALIDATE), "msync with MS_INVALIDATE");
    expect_text(std::string(second.at(), 3 * kPage), content_of("shared"), "content of the file");
}

void check_beyond_end()
{
    make_file("short", std::string(kPage + 100, 's'));
    const UniqueFd fd = open_file("short", O_RDWR);
    const Mapping mapping(fd.get(), 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
    expect_text(std::string(kPage - 100, '\0'), mapping.text(kPage + 100, kPage - 100),
                "zeros between the end and the end of its page");
    expect_equal(0, signal_of([&] { touch(mapping.at(2 * kPage - 1)); }), "signal on the last page");
    expect_equal(SIGBUS, signal_of([&] { touch(mapping.at(2 * kPage)); }), "signal of reading behind it");
    expect_equal(SIGBUS, signal_of([&] { *mapping.at(2 * kPage) = 'x'; }), "signal of writing behind it");
    *mapping.at(kPage + 200) = 'x';
    expect_equal(static_cast<int64_t>(kPage + 100), stat_of("short").st_size,
                 "size after a store between the end and the end of its page");
    require(ftruncate(fd.get(), 3 * kPage) == 0, "ftruncate");
    expect_equal(0, signal_of([&] { touch(mapping.at(2 * kPage)); }), "signal once the file has grown");
    expect_text(std::string(kPage, '\0'), mapping.text(2 * kPage, kPage), "what has grown is zeros");
    expect_text(std::string(50, '\0'), content_of("short").substr(kPage + 150, 50),
                "a store behind the end is not in the file when it grows");
    require(ftruncate(fd.get(), 10) == 0, "ftruncate");
    expect_equal(SIGBUS, signal_of([&] { touch(mapping.at(kPage)); }), "signal once the file is cut");
    expect_text("ssssssssss", mapping.text(0, 10), "what is left");
    expect_text(std::string(90, '\0'), mapping.text(10, 90), "what was cut is zeros");
    require(ftruncate(fd.get(), 4 * kPage) == 0, "ftruncate");
    memcpy(mapping.at(3 * kPage), "end", 3);
    expect_result(0, fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3 * kPage, kPage),
                  "punch");
    expect_text(std::string(3, '\0'), mapping.text(3 * kPage, 3), "a mapping sees what was punched");
}

void check_lifetime()
{
    make_file("gone", std::string(kPage, 'g'));
    UniqueFd fd = open_file("gone", O_RDWR);
    const Mapping mapping(fd.get(), kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
    fd = UniqueFd();
    expect_result(0, unlink("gone"), "unlink of a mapped file");
    expect_text("gggg", mapping.text(0, 4), "a mapping of an unlinked, closed file");
    memcpy(mapping.at(), "still", 5);
    expect_result(0, msync(mapping.at(), kPage, MS_SYNC), "msync of it");
    expect_text("stillggg", mapping.text(0, 8), "what it holds");
    make_file("sparse");
    const UniqueFd sparse = open_file("sparse", O_RDWR);
    require(ftruncate(sparse.get(), 1LL << 40) == 0, "ftruncate");
    const Mapping far(sparse.get(), 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, 1LL << 39);
    expect_text(std::string(2 * kPage, '\0'), far.text(0, 2 * kPage), "a mapping of a hole");
    memcpy(far.at(kPage), "far", 3);
    char text[4] = "";
    expect_equal(3, pread(sparse.get(), text, 3, (1LL << 39) + kPage), "pread of it");
    expect_text("far", text, "what a mapping wrote far away");
}

}  // namespace

void test_mappings()
{
    make_file("file", std::string(2 * kPage, 'f'));
    check_mmap_rights();
    check_shared_content();
    check_beyond_end();
    check_lifetime();
}

void test_sync_calls()
{
    struct Call {
        const char* name;
        int (*perform)(int fd);
        int on_fifo;
    };
    constexpr Call kSyncCalls[]{
        {"fsync", fsync, EINVAL},
        {"fdatasync", fdatasync, EINVAL},
        {"syncfs", syncfs, 0},
        {"sync_file_range", [](int fd) { return sync_file_range(fd, 0, 0, 7); }, ESPIPE}};
    make_file("file", "content");
    make_directory("directory");
    make(Kind::kFifo, "fifo");
    for (const Call& call : kSyncCalls) {
        for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_DIRECT, O_WRONLY | O_APPEND}) {
            const UniqueFd fd = open_file("file", flags);
            expect_result(0, call.perform(fd.get()), "%s of a file with flags 0%o", call.name, flags);
        }
        const UniqueFd directory = open_file("directory", O_RDONLY), path = open_file("file", O_PATH);
        const UniqueFd fifo = open_file("fifo", O_RDWR);
        expect_result(0, call.perform(directory.get()), "%s of a directory", call.name);
        expect_result(EBADF, call.perform(path.get()), "%s through O_PATH", call.name);
        expect_result(EBADF, call.perform(-1), "%s of no descriptor", call.name);
        expect_result(call.on_fifo, call.perform(fifo.get()), "%s of a fifo", call.name);
        // What was written last is there afterwards, whatever it is made durable with.
        const UniqueFd fd = open_file("file", O_RDWR);
        expect_equal(5, pwrite(fd.get(), call.name, 5, 0), "pwrite before %s", call.name);
        expect_result(0, call.perform(fd.get()), "%s after pwrite", call.name);
        expect_text(std::string(call.name).substr(0, 5), content_of("file").substr(0, 5), "content after %s",
                    call.name);
        require(unlink("file") == 0, "unlink");
        expect_result(0, call.perform(fd.get()), "%s of an unlinked file", call.name);
        make_file("file", "content");
    }
    as(users.alice, [] {
        const UniqueFd fd = open_file("file", O_RDONLY);
        expect_result(0, fsync(fd.get()), "fsync by a user");
        expect_result(0, syncfs(fd.get()), "syncfs by a user");
    });
    for (const int flags : {O_SYNC, O_DSYNC}) {
        const UniqueFd fd = open_file("file", O_RDWR | flags);
        expect_equal(3, write(fd.get(), "abc", 3), "write with flags 0%o", flags);
        expect_text("abctent", content_of("file"), "content after it");
    }
}

}  // namespace cowraid::posix
