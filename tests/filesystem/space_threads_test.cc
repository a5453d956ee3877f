// SPDX-License-Identifier: MIT
// Threads beside the commit thread: who asks for statistics while block groups come and go, who writes while
// a flush takes the rows that fallocate reserved, devices that come back while superblocks are written, and
// who looks for blocks of a group that leaves.
#include <fcntl.h>
#include <pthread.h>

#include <atomic>

#include "fs/txn/no_wait.h"
#include "tests/filesystem/volume_contents.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

struct StatisticsReader {
    Filesystem& fs;
    std::atomic<bool> done{false};
    std::atomic<uint64_t> reads{0}, wrong{0}, kept{0};

    static void* run(void* self)
    {
        auto& reader = *static_cast<StatisticsReader*>(self);
        while (!reader.done) {
            // What nothing is known of from before looks at every group.
            const VolumeProfiles others{ProfileId::kRaid5, ProfileId::kRaid1};
            for (int times = 0; times < 100; ++times)
                reader.kept += reader.fs.volume->keeps_slots_for(kGroupMetadata, others) ? 1 : 0;
            reader.wrong += reader.fs.statistics().block_bytes == kBlockBytes ? 0 : 1;
            ++reader.reads;
        }
        return nullptr;
    }
};

// Writes all of a file once more, from another thread, at the first write to a member.
struct Rewriter {
    SimVolume& volume;
    InodeNumber file;
    const std::vector<std::byte> content;
    std::atomic<int> calls{0};
    Err err = Err::kOk;

    static void* run(void* self)
    {
        auto& rewriter = *static_cast<Rewriter*>(self);
        const NoWait no_wait;
        rewriter.err = rewriter.volume.fs().files.write(rewriter.file, 0, rewriter.content, {}, {}).err();
        return nullptr;
    }
    static void at_write(void* self, uint64_t)
    {
        if (static_cast<Rewriter*>(self)->calls.fetch_add(1) != 0)
            return;
        pthread_t thread;
        CHECK(pthread_create(&thread, nullptr, run, self) == 0);
        pthread_join(thread, nullptr);
    }
};

uint64_t room_for_data(Filesystem& fs)
{
    const SpaceNumbers data = fs.store.allocator.numbers(kGroupData);
    return data.free_row_blocks + data.partial_row_blocks + fs.volume->potential_blocks(kGroupData);
}

// Reserves what there is for one file; how many blocks.
uint64_t reserve_all(Filesystem& fs, InodeNumber file)
{
    uint64_t bytes = 0;
    for (uint64_t piece = 4 * kMiB; piece >= kBlockBytes; piece /= 2)
        while (fs.files.allocate_range(file, 0, bytes, piece).ok())
            bytes += piece;
    return bytes / kBlockBytes;
}

struct CommitLoop {
    Filesystem& fs;
    std::atomic<bool> done{false};

    static void* run(void* self)
    {
        auto& loop = *static_cast<CommitLoop*>(self);
        while (!loop.done) {
            CHECK(loop.fs.names.make_node(kRoot, "more", S_IFREG | 0644, 0, {}).ok());
            CHECK(loop.fs.committer.sync().ok());
            CHECK(loop.fs.names.unlink(kRoot, "more").ok());
        }
        return nullptr;
    }
};

struct MovedReader {
    const RemapLookup& lookup;
    std::atomic<uint64_t> group{0};  // moves are under way there, or it has left
    std::atomic<bool> done{false};
    std::atomic<uint64_t> asked{0}, wrong{0};

    static void* run(void* self)
    {
        auto& reader = *static_cast<MovedReader*>(self);
        while (!reader.done) {
            reader.wrong += reader.lookup.may_have_moved({reader.group}) ? 0 : 1;
            ++reader.asked;
        }
        return nullptr;
    }
};

}  // namespace

TEST_CASE("blocks of a group may have moved, also in the moment in which it leaves")
{
    SimVolume volume({4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Array array(fs.volume->members(), {.read_only = true});
    RemapLookup lookup(fs.store.cache, array, true);
    GroupRecord record = fs.volume->map().groups.front();
    record.address = {uint64_t{1} << 40};
    MovedReader reader{lookup, record.address.value};
    pthread_t threads[2];
    for (pthread_t& thread : threads)
        REQUIRE(pthread_create(&thread, nullptr, MovedReader::run, &reader) == 0);
    for (int round = 0; round < 500'000 && reader.wrong == 0; ++round) {
        record.address = record.address + record.span_bytes();
        REQUIRE(array.add_group(record, fs.volume->superblock()).ok());
        lookup.add_emptying(record.address);
        reader.group = record.address.value;
        array.remove_groups({&record.address, 1});
        lookup.remove_emptying(record.address);
    }
    reader.done = true;
    for (const pthread_t thread : threads)
        pthread_join(thread, nullptr);
    CHECK(reader.asked > 1000);
    CHECK(reader.wrong == 0);
}

TEST_CASE("statistics of a degraded volume beside block groups that are filled and emptied")
{
    Prng prng(seed());
    SimVolume volume({5, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * 1024});
    make_and_mount(volume);
    for (int file = 0; file < 24; ++file)
        write_file(volume.fs(), "file" + std::to_string(file), random_content(prng, 4 * kMiB));
    REQUIRE(volume.unmount().ok());
    MountOptions options;
    options.degraded = true;
    options.commit_seconds = 1;
    mount(volume, options, {4});
    Filesystem& fs = volume.fs();
    StatisticsReader reader{fs};
    pthread_t threads[2];
    for (pthread_t& thread : threads)
        REQUIRE(pthread_create(&thread, nullptr, StatisticsReader::run, &reader) == 0);
    const size_t groups_before = fs.volume->array().groups().size();
    size_t groups_least = groups_before;
    for (int round = 0; round < 3; ++round) {
        for (int file = 0; file < 24; ++file)
            REQUIRE(fs.names.unlink(kRoot, "file" + std::to_string(file)).ok());
        for (int commit = 0; commit < 6; ++commit) {
            REQUIRE(fs.committer.sync().ok());
            groups_least = std::min(groups_least, fs.volume->array().groups().size());
            usleep(300'000);
        }
        for (int file = 0; file < 24; ++file)
            write_file(fs, "file" + std::to_string(file), random_content(prng, 4 * kMiB));
    }
    reader.done = true;
    for (const pthread_t thread : threads)
        pthread_join(thread, nullptr);
    CHECK(groups_least < groups_before);
    CHECK(reader.reads > 100);
    CHECK(reader.wrong == 0);
    REQUIRE(volume.unmount().ok());
}

TEST_CASE("a write into a reserved range while a flush takes its rows reserves rows of its own")
{
    SimVolume volume({3, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024});
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    MountOptions options = test::manual_options();
    options.dirty_bytes_max = 2048 * kMiB;
    mount(volume, options);
    Filesystem& fs = volume.fs();
    const Result<Attributes> made = fs.names.make_node(kRoot, "file", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    const uint64_t blocks = reserve_all(fs, made->inode);
    REQUIRE(fs.step(true).ok());
    const std::vector<std::byte> first(blocks * kBlockBytes, std::byte{1});
    REQUIRE(fs.files.write(made->inode, 0, first, {}, {}).ok());
    CHECK(fs.store.ledger.reserved_data() == 2 * blocks);

    Rewriter rewriter{volume, made->inode, std::vector<std::byte>(first.size(), std::byte{2})};
    volume.set_slow_hook({Rewriter::at_write, &rewriter});
    for (uint32_t member = 0; member < volume.member_count(); ++member)
        volume.cable(member).add_rule(
            {.action = FaultAction::kSlow, .kinds = kFaultWrites, .delay_microseconds = 1});
    REQUIRE(fs.step(false).ok());
    REQUIRE(rewriter.calls > 0);
    CHECK(rewriter.err == Err::kWouldWait);
    CHECK(fs.store.ledger.reserved_data() <= room_for_data(fs));
    REQUIRE(fs.step(true).ok());
    REQUIRE(fs.step(true).ok());
    CHECK(fs.store.ledger.reserved_data() <= room_for_data(fs));
    std::vector<std::byte> got(first.size());
    REQUIRE(fs.files.read(made->inode, 0, got).ok());
    CHECK((got == first));
    REQUIRE(volume.unmount().ok());
}

TEST_CASE("a spare that comes back beside commits is compared with a superblock that rests")
{
    SimVolume volume({4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    const uint32_t device = volume.add_device(96 * kMiB);
    std::string why;
    const Result<MemberId> spare = volume.fs().committer.add_spare(volume.borrow_one(device), why);
    REQUIRE_MESSAGE(spare.ok(), why);
    REQUIRE(volume.unmount().ok());
    MountOptions options;
    options.commit_seconds = 300;
    mount(volume, options, {device});
    Filesystem& fs = volume.fs();
    CommitLoop loop{fs};
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, CommitLoop::run, &loop) == 0);
    for (int round = 0; round < 20; ++round) {
        why.clear();
        const Result<MemberId> back = fs.committer.online_member({}, volume.borrow_one(device), why);
        if (round == 0)
            CHECK_MESSAGE(back.ok(), why);
        else
            CHECK(why.find("is there") != std::string::npos);
    }
    loop.done = true;
    pthread_join(thread, nullptr);
    CHECK(fs.volume->spares().path(*spare) == volume.member(device).name());
    REQUIRE(volume.unmount().ok());
}
