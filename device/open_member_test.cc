// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>

#include "base/clock.h"
#include "device/loop_backing.h"
#include "device/open_member.h"
#include "device/signature.h"
#include "format/superblock.h"
#include "tests/support/device_files.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

Err open_error(const std::string& path, const OpenOptions& options, std::string& why)
{
    why.clear();
    const auto device = open_member(path, options, why);
    CHECK(why.empty() == device.ok());
    if (!device.ok()) {
        CHECK(why.find(path) != std::string::npos);
        CHECK(why.find('\n') == std::string::npos);
    }
    return device.err();
}

// Runs a program without a shell; false when it is missing or fails.
bool run_program(std::vector<std::string> words)
{
    const pid_t child = fork();
    if (child == 0) {
        std::vector<char*> arguments;
        for (auto& word : words)
            arguments.push_back(word.data());
        arguments.push_back(nullptr);
        const int sink = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(sink, 1);
        dup2(sink, 2);
        setenv("PATH", "/usr/sbin:/sbin:/usr/bin:/bin", 1);
        execvp(arguments[0], arguments.data());
        _exit(127);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string signature_of(const std::string& path)
{
    const UniqueFd fd(open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
    REQUIRE(fd.valid());
    auto found = probe_signature(fd.get());
    REQUIRE(found.ok());
    return found.take();
}

}  // namespace

TEST_CASE("what cannot be a member is refused with a reason")
{
    const TempDir dir;
    std::string why;
    CHECK(open_error(dir.path("nothing"), {}, why) == Err::kNotFound);
    CHECK(open_error("/dev/shm", {}, why) == Err::kInvalid);
    CHECK(why.find("neither a block device nor a regular file") != std::string::npos);
    CHECK(open_error("/dev/null", {}, why) == Err::kInvalid);
    REQUIRE(mkfifo(dir.path("pipe").c_str(), 0600) == 0);
    CHECK(open_error(dir.path("pipe"), {}, why) == Err::kInvalid);
    CHECK(open_error(dir.file("good", kMiB), {}, why) == Err::kOk);
}

TEST_CASE("an image is used by one program at a time, looked at by any")
{
    const TempDir dir;
    const std::string path = dir.file("image", kMiB);
    std::string why;
    auto holder = open_member(path, {}, why);
    REQUIRE(holder.ok());
    CHECK(open_error(path, {}, why) == Err::kBusy);
    CHECK(why.find("in use") != std::string::npos);
    CHECK(open_error(path, {.read_only = true}, why) == Err::kBusy);
    CHECK(open_error(path, {.read_only = true, .exclusive = false}, why) == Err::kOk);
    holder = Result<std::unique_ptr<FileDevice>>(Err::kIo);
    CHECK(open_error(path, {}, why) == Err::kOk);
}

TEST_CASE("who may only read an image cannot keep it from being used, or says who it is")
{
    const TempDir dir;
    const std::string path = dir.file("image", kMiB);
    std::string why;
    const UniqueFd reader(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(flock(reader.get(), LOCK_EX | LOCK_NB) == 0);
    CHECK(open_error(path, {}, why) == Err::kOk);
    REQUIRE(flock(reader.get(), LOCK_UN) == 0);
    struct flock lock { };
    lock.l_type = F_RDLCK;
    REQUIRE(fcntl(reader.get(), F_OFD_SETLK, &lock) == 0);
    CHECK(open_error(path, {}, why) == Err::kBusy);
    CHECK(why.find("locked by another program that reads it") != std::string::npos);
    CHECK(open_error(path, {.read_only = true}, why) == Err::kOk);
}

TEST_CASE("a lease or a pipe at the name of an image does not hold up who opens it")
{
    const TempDir dir;
    const std::string path = dir.file("image", kMiB);
    std::string why;
    signal(SIGIO, SIG_IGN);  // how the kernel asks for the lease
    UniqueFd holder(open(path.c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(fcntl(holder.get(), F_SETLEASE, F_WRLCK) == 0);
    const uint64_t begin_ns = monotonic_ns();
    CHECK(open_error(path, {}, why) == Err::kBusy);
    CHECK(open_error(path, {.read_only = true, .exclusive = false}, why) == Err::kBusy);
    CHECK(monotonic_ns() - begin_ns < 10'000'000'000);
    holder = UniqueFd();
    CHECK(open_error(path, {}, why) == Err::kOk);

    // As if it had been put there after the look: a file that nobody named is opened without following
    // links, must be a file, and of the user it had.
    REQUIRE(symlink(path.c_str(), dir.path("link").c_str()) == 0);
    const OpenOptions found{.read_only = true, .exclusive = false, .owner = geteuid()};
    CHECK(open_error(path, found, why) == Err::kOk);
    CHECK(open_error(dir.path("link"), found, why) != Err::kOk);
    const OpenOptions of_others{.read_only = true, .exclusive = false, .owner = geteuid() + 1};
    CHECK(open_error(path, of_others, why) == Err::kInvalid);
}

TEST_CASE("a read-only open cannot write")
{
    const TempDir dir;
    std::string why;
    auto device = open_member(dir.file("image", kMiB), {.read_only = true}, why);
    REQUIRE(device.ok());
    AlignedBuffer block = AlignedBuffer::zeroed(kBlockBytes);
    CHECK(read(**device, 0, block).ok());
    CHECK(write(**device, 0, block).err() == Err::kIo);
    CHECK((*device)->size_bytes() == kMiB);
}

TEST_CASE("descriptors of others are checked before they are used")
{
    const TempDir dir;
    const std::string path = dir.file("image", kMiB + 1000);
    std::string why;
    auto fd = open_member_fd(path, {}, why);
    REQUIRE(fd.ok());
    const UniqueFd received(dup(fd->get()));  // the lock belongs to both
    auto device = make_device_from_fd(fd.take(), path, {}, why);
    REQUIRE(device.ok());
    CHECK((*device)->size_bytes() == kMiB);  // whole blocks only
    CHECK(std::string((*device)->name()) == path);
    device = Result<std::unique_ptr<FileDevice>>(Err::kIo);
    CHECK(open_error(path, {}, why) == Err::kBusy);

    const auto refused = [&](int flags, const OpenOptions& options) {
        return make_device_from_fd(UniqueFd(open(path.c_str(), flags | O_CLOEXEC)), path, options, why).err();
    };
    CHECK(refused(O_RDWR, {}) == Err::kInvalid);  // neither direct nor synchronous
    CHECK(refused(O_RDONLY | O_DIRECT, {}) == Err::kInvalid);
    CHECK(refused(O_RDONLY | O_DIRECT, {.read_only = true}) == Err::kOk);
    CHECK(refused(O_RDWR | O_DSYNC, {}) == Err::kOk);
    CHECK(refused(O_RDWR | O_DIRECT | O_APPEND, {}) == Err::kInvalid);
    CHECK(refused(O_RDWR | O_DIRECT | O_NONBLOCK, {}) == Err::kInvalid);
    CHECK(refused(O_PATH, {.read_only = true}) == Err::kInvalid);
    CHECK(make_device_from_fd(UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)), "x", {}, why).err() ==
          Err::kInvalid);
    CHECK(make_device_from_fd(UniqueFd(), "x", {}, why).err() == Err::kInvalid);
}

TEST_CASE("loop devices: exclusive, write-protected, and their backing files")
{
    const TempDir dir;
    const std::string path = dir.file("backing", 64 * kMiB);
    std::string why;
    {
        const LoopDevice loop(path);
        if (loop.name().empty()) {
            MESSAGE("no loop devices here: skipped");
            return;
        }
        struct stat info;
        REQUIRE(stat(path.c_str(), &info) == 0);
        CHECK(loop_device_over(info) == loop.name());
        struct stat loop_info;
        REQUIRE(stat(loop.name().c_str(), &loop_info) == 0);
        CHECK(backing_file_of(loop_info.st_rdev) == path);
        CHECK(backing_file_of(info.st_dev).empty());
        CHECK_FALSE(is_loop_of_another(loop.name()));
        CHECK_FALSE(is_loop_of_another(path));
        REQUIRE(chown(path.c_str(), 4711, static_cast<gid_t>(-1)) == 0);
        CHECK(is_loop_of_another(loop.name()));
        REQUIRE(chown(path.c_str(), 0, static_cast<gid_t>(-1)) == 0);
        REQUIRE(rename(path.c_str(), (path + "x").c_str()) == 0);
        CHECK(is_loop_of_another(loop.name()) == (backing_file_of(loop_info.st_rdev) != path + "x"));
        REQUIRE(rename((path + "x").c_str(), path.c_str()) == 0);
        CHECK(open_error(path, {}, why) == Err::kBusy);
        CHECK(why.find(loop.name()) != std::string::npos);
        CHECK(open_error(path, {.read_only = true, .exclusive = false}, why) == Err::kOk);
        {
            auto holder = open_member(loop.name(), {}, why);
            REQUIRE(holder.ok());
            AlignedBuffer block = AlignedBuffer::zeroed(kBlockBytes);
            CHECK(write(**holder, 0, block).ok());
            CHECK(open_error(loop.name(), {}, why) == Err::kBusy);
            CHECK(open_error(loop.name(), {.read_only = true, .exclusive = false}, why) == Err::kOk);
        }
        CHECK(open_error(loop.name(), {}, why) == Err::kOk);
        {
            // Under a mount the lock alone keeps other writers out, those that open exclusively too.
            const OpenOptions writer{.under_mount = true};
            auto holder = open_member_fd(loop.name(), writer, why);
            REQUIRE(holder.ok());
            CHECK(open_error(loop.name(), writer, why) == Err::kBusy);
            CHECK(open_error(loop.name(), {}, why) == Err::kBusy);
            CHECK(open_error(loop.name(), {.read_only = true, .exclusive = false}, why) == Err::kOk);
            const UniqueFd copy(dup(holder->get()));
            holder = UniqueFd();
            CHECK(open_error(loop.name(), {.read_only = true}, why) == Err::kBusy);
        }
        {
            const OpenOptions reader{.read_only = true, .under_mount = true};
            auto holder = open_member_fd(loop.name(), reader, why);
            CHECK(open_error(loop.name(), reader, why) == Err::kOk);
        }
        const UniqueFd fd(open(loop.name().c_str(), O_RDWR | O_CLOEXEC));
        int read_only = 1;
        REQUIRE(ioctl(fd.get(), BLKROSET, &read_only) == 0);
        CHECK(open_error(loop.name(), {}, why) == Err::kReadOnly);
        CHECK(open_error(loop.name(), {.read_only = true}, why) == Err::kOk);
        read_only = 0;
        REQUIRE(ioctl(fd.get(), BLKROSET, &read_only) == 0);
    }
    CHECK(open_error(path, {}, why) == Err::kOk);
}

TEST_CASE("two ways to the same bytes are not used at the same time")
{
    const TempDir dir;
    const std::string path = dir.file("backing", 64 * kMiB);
    std::string why;
    const LoopDevice whole(path), again(path), later(path, kMiB), part(path, 0, 16 * kMiB),
        next(path, 16 * kMiB, 16 * kMiB), above(whole.name()), above_next(next.name(), 0, kMiB);
    if (above_next.name().empty()) {
        MESSAGE("no loop devices here: skipped");
        return;
    }
    const auto is_refused = [&](const LoopDevice& loop, const std::string& for_the_sake_of) {
        CHECK(open_error(loop.name(), {}, why) == Err::kBusy);
        CHECK(why == loop.name() + " leads to the same bytes as " + for_the_sake_of +
                         ", which is in use; unmount that first");
    };
    {
        const auto holder = open_member(whole.name(), {}, why);
        REQUIRE(holder.ok());
        for (const LoopDevice* other : {&again, &later, &part, &next, &above, &above_next})
            is_refused(*other, whole.name());
        CHECK(open_error(again.name(), {.read_only = true}, why) == Err::kBusy);
        CHECK(open_error(again.name(), {.read_only = true, .exclusive = false}, why) == Err::kOk);
        // The file's name says nothing any more.
        REQUIRE(rename(path.c_str(), (path + "x").c_str()) == 0);
        is_refused(again, whole.name());
        REQUIRE(rename((path + "x").c_str(), path.c_str()) == 0);
        struct stat info;
        REQUIRE(stat(path.c_str(), &info) == 0);
        CHECK_FALSE(loop_device_over(info).empty());
    }
    {
        const auto holder = open_member(above_next.name(), {}, why);
        REQUIRE(holder.ok());
        CHECK(open_error(part.name(), {}, why) == Err::kOk);
        for (const LoopDevice* other : {&whole, &later, &next, &above})
            is_refused(*other, above_next.name());
    }
    {
        const auto holder = open_member(part.name(), {}, why);
        REQUIRE(holder.ok());
        CHECK(open_error(next.name(), {}, why) == Err::kOk);
        is_refused(later, part.name());
    }
    {
        const auto reader = open_member(whole.name(), {.read_only = true}, why);
        REQUIRE(reader.ok());
        CHECK(open_error(again.name(), {.read_only = true}, why) == Err::kOk);
        CHECK(open_error(again.name(), {}, why) == Err::kBusy);
    }
    CHECK(open_error(later.name(), {}, why) == Err::kOk);
}

TEST_CASE("foreign signatures are named and wiped")
{
    const TempDir dir;
    const std::string path = dir.file("image", 64 * kMiB);
    CHECK(signature_of(path).empty());
    CHECK(signature_of(dir.file("empty", 0)).empty());
    struct {
        std::vector<std::string> words;
        std::string expected;
    } makers[] = {{{"mkfs.ext4", "-q", "-F", path}, "ext4"},
                  {{"mkfs.btrfs", "-q", "-f", "-m", "single", path}, "btrfs"},
                  {{"mkswap", path}, "swap"}};
    int made = 0;
    for (const auto& maker : makers) {
        if (!run_program(maker.words)) {
            MESSAGE("not available here: " << maker.words[0]);
            continue;
        }
        ++made;
        CHECK(signature_of(path).find(maker.expected) != std::string::npos);
        const UniqueFd fd(open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
        CHECK(wipe_signatures(fd.get()).ok());
        CHECK(signature_of(path).empty());
    }
    CHECK(made >= 1);
}

TEST_CASE("a partition table and a member of ours are named and wiped, beside each other")
{
    const TempDir dir;
    const std::string path = dir.file("image", 64 * kMiB);
    const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    const le64 magic = kSuperblockMagic;
    const auto at = static_cast<off_t>(kSuperblockRingOffset[1] + 3 * kSuperblockSlotBytes);
    REQUIRE(pwrite(fd.get(), &magic, sizeof magic, at + 8) == sizeof magic);
    CHECK(signature_of(path) == "cowraid");
    // A table with one partition of type 0x83, from sector 2048.
    std::byte table[512]{};
    const unsigned char entry[] = {0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 64, 0, 0};
    std::memcpy(table + 446, entry, sizeof entry);
    table[510] = std::byte{0x55};
    table[511] = std::byte{0xaa};
    REQUIRE(pwrite(fd.get(), table, sizeof table, 0) == sizeof table);
    CHECK(signature_of(path) == "cowraid, dos partition table");
    CHECK(wipe_signatures(fd.get()).ok());
    CHECK(signature_of(path).empty());
    const UniqueFd read_only(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    CHECK(probe_signature(read_only.get()).ok());
}
