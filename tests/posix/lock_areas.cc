// SPDX-License-Identifier: MIT
// Locks of records and of whole files, between processes and between descriptors.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "base/unique_fd.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

namespace cowraid::posix {

namespace {

int lock_range(int fd, int command, short type, off_t start, off_t length)
{
    struct flock lock { };
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = start;
    lock.l_len = length;
    return fcntl(fd, command, &lock);
}

const char* type_name(int type)
{
    return type == F_RDLCK ? "read lock" : type == F_WRLCK ? "write lock" : "unlock";
}

struct LockRange {
    off_t start, length;  // 0: to the end
};

constexpr LockRange kHeldRanges[]{{0, 100}, {50, 1}, {100, 0}, {0, 0}};
constexpr LockRange kAskedRanges[]{{0, 50}, {50, 1}, {99, 2}, {100, 1}, {0, 0}, {1000000, 10}};

bool overlap(LockRange a, LockRange b)
{
    const off_t a_end = a.length == 0 ? INT64_MAX : a.start + a.length;
    const off_t b_end = b.length == 0 ? INT64_MAX : b.start + b.length;
    return a.start < b_end && b.start < a_end;
}

void check_record(short held, LockRange held_range, short asked, LockRange asked_range)
{
    const UniqueFd fd = open_file("file", O_RDWR);
    require(lock_range(fd.get(), F_SETLK, held, held_range.start, held_range.length) == 0, "F_SETLK");
    const bool conflicts = overlap(held_range, asked_range) && (held == F_WRLCK || asked == F_WRLCK);
    const pid_t holder = getpid();
    await_child(beside([&] {
                    const UniqueFd other = open_file("file", O_RDWR);
                    expect_result(
                        conflicts ? EAGAIN : 0,
                        lock_range(other.get(), F_SETLK, asked, asked_range.start, asked_range.length),
                        "%s of %ld+%ld beside a %s of %ld+%ld of another process", type_name(asked),
                        asked_range.start, asked_range.length, type_name(held), held_range.start,
                        held_range.length);
                    struct flock lock { };
                    lock.l_type = asked;
                    lock.l_start = asked_range.start;
                    lock.l_len = asked_range.length;
                    expect_result(0, fcntl(other.get(), F_GETLK, &lock), "F_GETLK");
                    expect_equal(conflicts ? held : F_UNLCK, lock.l_type, "type that F_GETLK finds");
                    if (conflicts)
                        expect_equal(holder, lock.l_pid, "process that F_GETLK finds");
                }),
                "a lock");
    expect_result(0, lock_range(fd.get(), F_SETLK, asked, asked_range.start, asked_range.length),
                  "%s of the process that holds a %s", type_name(asked), type_name(held));
}

void check_open_descriptions(short held, short asked)
{
    const UniqueFd fd = open_file("file", O_RDWR), other = open_file("file", O_RDWR);
    require(lock_range(fd.get(), F_OFD_SETLK, held, 0, 10) == 0, "F_OFD_SETLK");
    const bool conflicts = held == F_WRLCK || asked == F_WRLCK;
    expect_result(conflicts ? EAGAIN : 0, lock_range(other.get(), F_OFD_SETLK, asked, 5, 10),
                  "%s beside a %s of another open description", type_name(asked), type_name(held));
    const UniqueFd copy(dup(fd.get()));
    expect_result(0, lock_range(copy.get(), F_OFD_SETLK, asked == F_RDLCK ? F_RDLCK : held, 0, 10),
                  "a lock through a duplicate");
}

constexpr short kLockTypes[]{F_RDLCK, F_WRLCK};
constexpr int kFlocks[]{LOCK_SH, LOCK_EX};

const char* flock_name(int kind)
{
    return kind == LOCK_SH ? "shared" : "exclusive";
}

void check_flock(int held, int asked, bool other_process)
{
    const UniqueFd fd = open_file("file", O_RDONLY);
    require(flock(fd.get(), held) == 0, "flock");
    const bool conflicts = held == LOCK_EX || asked == LOCK_EX;
    const auto ask = [&] {
        const UniqueFd other = open_file("file", O_RDONLY);
        expect_result(conflicts ? EWOULDBLOCK : 0, flock(other.get(), asked | LOCK_NB),
                      "%s flock beside a %s one of another %s", flock_name(asked), flock_name(held),
                      other_process ? "process" : "description");
    };
    if (other_process)
        await_child(beside(ask), "a flock");
    else
        ask();
    expect_result(0, flock(fd.get(), LOCK_UN), "unlocking a %s flock", flock_name(held));
    const UniqueFd after = open_file("file", O_RDONLY);
    expect_result(0, flock(after.get(), asked | LOCK_NB), "%s flock after it", flock_name(asked));
}

void check_split()
{
    const UniqueFd fd = open_file("file", O_RDWR);
    require(lock_range(fd.get(), F_SETLK, F_WRLCK, 0, 100) == 0, "lock");
    require(lock_range(fd.get(), F_SETLK, F_UNLCK, 40, 20) == 0, "unlock the middle");
    await_child(
        beside([] {
            const UniqueFd other = open_file("file", O_RDWR);
            expect_result(0, lock_range(other.get(), F_SETLK, F_WRLCK, 40, 20), "the unlocked middle");
            expect_result(EAGAIN, lock_range(other.get(), F_SETLK, F_WRLCK, 39, 1), "what is before it");
            expect_result(EAGAIN, lock_range(other.get(), F_SETLK, F_WRLCK, 60, 1), "what is behind it");
        }),
        "a split lock");
    require(lock_range(fd.get(), F_SETLK, F_RDLCK, 0, 20) == 0, "downgrade");
    await_child(beside([] {
                    const UniqueFd other = open_file("file", O_RDWR);
                    expect_result(0, lock_range(other.get(), F_SETLK, F_RDLCK, 0, 20), "a downgraded part");
                    expect_result(EAGAIN, lock_range(other.get(), F_SETLK, F_RDLCK, 20, 1),
                                  "one that is not");
                }),
                "a downgraded lock");
    // Any descriptor that is closed takes all locks of the process along.
    {
        const UniqueFd another = open_file("file", O_RDWR);
    }
    await_child(beside([] {
                    const UniqueFd other = open_file("file", O_RDWR);
                    expect_result(0, lock_range(other.get(), F_SETLK, F_WRLCK, 0, 0), "all, after a close");
                }),
                "a lock after close");
}

void check_waiting()
{
    int pipe_ends[2];
    require(pipe(pipe_ends) == 0, "pipe");
    const UniqueFd fd = open_file("file", O_RDWR);
    require(lock_range(fd.get(), F_SETLK, F_WRLCK, 0, 10) == 0, "lock");
    const pid_t waiter = beside([&] {
        const UniqueFd other = open_file("file", O_RDWR);
        expect_result(0, lock_range(other.get(), F_SETLKW, F_WRLCK, 0, 10), "waiting for a lock");
        char byte = 0;
        expect_equal(1, read(pipe_ends[0], &byte, 1), "it came after the lock was given up");
    });
    usleep(100'000);
    require(write(pipe_ends[1], "x", 1) == 1, "write");
    require(lock_range(fd.get(), F_SETLK, F_UNLCK, 0, 10) == 0, "unlock");
    await_child(waiter, "one who waits");
    // Two who wait for each other.
    require(lock_range(fd.get(), F_SETLK, F_WRLCK, 0, 1) == 0, "lock");
    const pid_t second = beside([] {
        const UniqueFd other = open_file("file", O_RDWR);
        expect_result(0, lock_range(other.get(), F_SETLKW, F_WRLCK, 1, 1), "the second lock");
        expect_result(0, lock_range(other.get(), F_SETLKW, F_WRLCK, 0, 1), "waiting for the first");
    });
    usleep(200'000);
    expect_result(EDEADLK, lock_range(fd.get(), F_SETLKW, F_WRLCK, 1, 1),
                  "two that would wait for each other");
    require(lock_range(fd.get(), F_SETLK, F_UNLCK, 0, 0) == 0, "unlock");
    await_child(second, "the second");
    // A killed process gives its locks up.
    const pid_t killed = beside([] {
        const UniqueFd other = open_file("file", O_RDWR);
        require(lock_range(other.get(), F_SETLK, F_WRLCK, 0, 0) == 0, "lock");
        pause();
    });
    usleep(100'000);
    expect_result(EAGAIN, lock_range(fd.get(), F_SETLK, F_WRLCK, 0, 0), "what another process has locked");
    kill(killed, SIGKILL);
    waitpid(killed, nullptr, 0);
    expect_result(0, lock_range(fd.get(), F_SETLK, F_WRLCK, 0, 0), "it, after that process was killed");
}

}  // namespace

void test_record_locks()
{
    make_file("file", "content");
    for (const short held : kLockTypes)
        for (const LockRange held_range : kHeldRanges)
            for (const short asked : kLockTypes)
                for (const LockRange asked_range : kAskedRanges)
                    check_record(held, held_range, asked, asked_range);
    check_split();
    check_waiting();
    for (const short held : kLockTypes)
        for (const short asked : kLockTypes)
            check_open_descriptions(held, asked);
    const UniqueFd reader = open_file("file", O_RDONLY), writer = open_file("file", O_WRONLY);
    expect_result(EBADF, lock_range(reader.get(), F_SETLK, F_WRLCK, 0, 1),
                  "write lock through one for reading");
    expect_result(EBADF, lock_range(writer.get(), F_SETLK, F_RDLCK, 0, 1),
                  "read lock through one for writing");
    expect_result(EINVAL, lock_range(writer.get(), F_SETLK, F_WRLCK, -1, 1), "a lock at -1");
    expect_result(EINVAL, lock_range(writer.get(), F_SETLK, 77, 0, 1), "a lock of an unknown type");
}

void test_whole_file_locks()
{
    make_file("file");
    for (const int held : kFlocks)
        for (const int asked : kFlocks)
            for (const bool other_process : {false, true})
                check_flock(held, asked, other_process);
    const UniqueFd fd = open_file("file", O_RDWR), other = open_file("file", O_RDWR);
    expect_result(0, flock(fd.get(), LOCK_SH), "shared flock");
    expect_result(0, flock(other.get(), LOCK_SH), "another one");
    expect_result(EWOULDBLOCK, flock(fd.get(), LOCK_EX | LOCK_NB), "raising it while another one is there");
    expect_result(0, flock(other.get(), LOCK_UN), "unlocking the other one");
    expect_result(0, flock(fd.get(), LOCK_EX | LOCK_NB), "raising it then");
    const UniqueFd copy(dup(fd.get()));
    expect_result(0, flock(copy.get(), LOCK_SH | LOCK_NB), "lowering it through a duplicate");
    expect_result(0, flock(other.get(), LOCK_SH | LOCK_NB), "shared flock beside the lowered one");
    expect_result(0, lock_range(fd.get(), F_SETLK, F_WRLCK, 0, 0), "a record lock beside a flock");
    expect_result(EINVAL, flock(fd.get(), 0), "flock of no kind");
    make_directory("directory");
    const UniqueFd directory = open_file("directory", O_RDONLY);
    expect_result(0, flock(directory.get(), LOCK_EX | LOCK_NB), "flock of a directory");
    as(users.alice, [&] {
        const UniqueFd own = open_file("directory", O_RDONLY);
        expect_result(EWOULDBLOCK, flock(own.get(), LOCK_SH | LOCK_NB), "flock of it by another user");
        expect_result(0, flock(directory.get(), LOCK_UN), "unlocking through an inherited descriptor");
        expect_result(0, flock(own.get(), LOCK_SH | LOCK_NB), "flock of it after that");
    });
}

}  // namespace cowraid::posix
