// SPDX-License-Identifier: MIT
// Volumes that stay full while files in them are overwritten: whoever is told that there is space gets it,
// whoever is refused was told that there is none, and no commit fails.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "tests/filesystem/check_content.h"
#include "tests/filesystem/volume_contents.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

// A file whose blocks say which they are and how often they were written.
class CountedFile {
public:
    CountedFile(SimVolume& volume, const char* name, uint64_t blocks) : volume_(volume), writes_(blocks)
    {
        const Result<Attributes> made = volume.fs().names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        REQUIRE_MESSAGE(made.ok(), err_text(made.err()));
        inode_ = made->inode;
    }

    [[nodiscard]] uint64_t blocks() const { return writes_.size(); }
    [[nodiscard]] InodeNumber inode() const { return inode_; }

    // As far as there is room.
    void fill()
    {
        uint64_t block = 0;
        while (block + 64 <= blocks() && write(block, 64) == Err::kOk)
            block += 64;
        while (block < blocks() && write(block) == Err::kOk)
            ++block;
    }

    // Writes `count` blocks once more; counts them when they were taken.
    Err write(uint64_t first, uint64_t count = 1)
    {
        std::vector<std::byte> content;
        for (uint64_t block = first; block < first + count; ++block)
            append_block(block, writes_[block] + 1, content);
        const Result<size_t> written = volume_.fs().files.write(inode_, first * kBlockBytes, content, {}, {});
        if (!written.ok())
            return written.err();
        REQUIRE(*written == content.size());
        for (uint64_t block = first; block < first + count; ++block)
            ++writes_[block];
        return Err::kOk;
    }

    void require_content()
    {
        std::vector<std::byte> wanted;
        std::vector<std::byte> got(kBlockBytes);
        for (uint64_t block = 0; block < writes_.size(); ++block) {
            CAPTURE(block);
            wanted.clear();
            append_block(block, writes_[block], wanted);
            const Result<size_t> read = volume_.fs().files.read(inode_, block * kBlockBytes, got);
            REQUIRE_MESSAGE(read.ok(), err_text(read.err()));
            REQUIRE(same(got, wanted));
        }
    }

private:
    static void append_block(uint64_t block, uint64_t writes, std::vector<std::byte>& out)
    {
        const uint64_t words[2] = {block, writes};
        out.resize(out.size() + kBlockBytes);
        for (size_t at = out.size() - kBlockBytes; at < out.size(); at += sizeof words)
            std::memcpy(out.data() + at, words, sizeof words);
    }

    SimVolume& volume_;
    InodeNumber inode_;
    std::vector<uint64_t> writes_;
};

void commit(SimVolume& volume)
{
    const Status status = volume.fs().step(true);
    REQUIRE_MESSAGE(status.ok(), err_text(status.err()));
}

// The caller's lookup reference is kept until the mount ends.
InodeNumber make_file(Filesystem& fs, const std::string& name, std::span<const std::byte> content)
{
    const Result<Attributes> made = fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    REQUIRE(fs.files.write(made->inode, 0, content, {}, {}).ok());
    return made->inode;
}

// Share of the metadata groups that is used.
double metadata_use(SimVolume& volume)
{
    for (const SpaceInfo& space : volume.fs().info().spaces)
        if ((space.content & kGroupMetadata) != 0)
            return static_cast<double>(space.used_bytes) / static_cast<double>(space.total_bytes);
    return 0;
}

// Files of nothing but extended attributes, until metadata groups are `share` full or take no more.
void fill_metadata(SimVolume& volume, double share)
{
    const std::vector<std::byte> value(3000, std::byte{1});
    for (uint64_t number = 0; metadata_use(volume) < share; ++number) {
        if (number % 128 == 0)
            commit(volume);
        const Result<Attributes> made =
            volume.fs().names.make_node(kRoot, "x" + std::to_string(number), S_IFREG | 0644, 0, {});
        const Status put =
            made.ok() ? volume.fs().names.set_xattr(made->inode, "user.x", value, 0) : made.status();
        if (put.err() == Err::kNoSpace)
            return;
        REQUIRE_MESSAGE(put.ok(), err_text(put.err()));
    }
}

void overwrite_randomly(SimVolume& volume, CountedFile& file, Prng& prng, uint64_t writes)
{
    for (; writes > 0; --writes) {
        const Err err = file.write(prng.below(file.blocks()));
        if (err == Err::kOk)
            continue;
        REQUIRE(err == Err::kNoSpace);
        REQUIRE(volume.fs().statistics().available_blocks == 0);
    }
}

void close_and_check(SimVolume& volume, CountedFile& file)
{
    file.require_content();
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

}  // namespace

TEST_CASE("full: a fragmented file is overwritten at random, and every commit has room for its nodes")
{
    Prng prng(seed());
    SimVolume volume({8, 112 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes});
    make_and_mount(volume);
    CountedFile file(volume, "file", volume.fs().statistics().available_blocks * 98 / 100);
    // Neighbours in the file are nowhere neighbours on the volume: an item for every block.
    for (const uint64_t parity : {0, 1})
        for (uint64_t block = parity; block < file.blocks(); block += 2)
            REQUIRE(file.write(block) == Err::kOk);
    commit(volume);
    fill_metadata(volume, 0.72);
    overwrite_randomly(volume, file, prng, 20000);
    commit(volume);
    close_and_check(volume, file);
}

TEST_CASE("full: random overwrites in more groups than may have their bitmaps in memory stop nothing")
{
    for (const bool cleans : {false, true}) {
        CAPTURE(cleans);
        Prng prng(seed());
        SimVolume volume({4, 224 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes});
        MountOptions options = manual_options();
        options.memory_bytes = 8 * kKiB;  // an eighth: none beside one with changes
        make_and_mount(volume, options);
        Filesystem& fs = volume.fs();
        CountedFile file(volume, "file", fs.statistics().available_blocks * 7 / 10);
        file.fill();
        commit(volume);
        CHECK(fs.store.allocator.group_numbers(kGroupData).size() >= 8);
        for (int flush = 1; flush <= 240; ++flush) {
            for (int count = 0; count < 150; ++count)
                REQUIRE(file.write(prng.below(file.blocks())) == Err::kOk);
            const Status flushed = fs.step(false);
            REQUIRE_MESSAGE(flushed.ok(), err_text(flushed.err()));
            if (cleans)
                fs.clean_step(CleanWhen::kAny);
            if (flush % 6 != 0)
                continue;
            commit(volume);
            for (int step = 0; cleans && step < 20; ++step)
                fs.clean_step(CleanWhen::kAny);
        }
        CHECK((fs.committer.cleaner.counts().moved_blocks > 0) == cleans);
        CHECK_FALSE(fs.committer.cleaner.failed());
        for (const GroupNumbers& group : fs.store.allocator.group_numbers(kAllContent)) {
            CHECK_FALSE(group.broken);
            CHECK_FALSE(fs.committer.cleaner.is_set_aside(group.address));
        }
        close_and_check(volume, file);
    }
}

TEST_CASE("full: a balance ends that has no memory for the bitmaps of two groups")
{
    Prng prng(seed());
    SimVolume volume({4, 224 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes});
    MountOptions options = manual_options();
    options.memory_bytes = 8 * kKiB;
    make_and_mount(volume, options);
    Filesystem& fs = volume.fs();
    CountedFile file(volume, "file", fs.statistics().available_blocks * 4 / 10);
    file.fill();
    commit(volume);
    std::string why;
    const BalanceOptions everything{.profiles = fs.volume->profiles(), .content = kGroupData};
    REQUIRE_MESSAGE(fs.committer.balance.start(everything, why).ok(), why);
    continue_balance(fs, 3000, true);
    CHECK(fs.committer.balance.status().state == BalanceStatus::State::kFinished);
    CHECK(fs.committer.cleaner.counts().moved_blocks >= file.blocks());
    close_and_check(volume, file);
}

// Reads a file of 64 KiB again and again until it is over.
class Reader {
public:
    explicit Reader(SimVolume& volume) : fs_(volume.fs()), content_(64 * kKiB, std::byte{9})
    {
        const Result<Attributes> made = fs_.names.make_node(kRoot, "read", S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        inode_ = made->inode;
        REQUIRE(fs_.files.write(inode_, 0, content_, {}, {}).ok());
    }
    void start()
    {
        thread_ = std::thread([this] { run(); });
    }
    // How often it read the right bytes; fails the test if it ever read others.
    uint64_t end()
    {
        over_ = true;
        thread_.join();
        CHECK(wrong_ == 0);
        return right_;
    }

private:
    void run()
    {
        std::vector<std::byte> got(content_.size());
        while (!over_) {
            const Result<size_t> read = fs_.files.read(inode_, 0, got);
            ++(read.ok() && got == content_ ? right_ : wrong_);
        }
    }

    Filesystem& fs_;
    const std::vector<std::byte> content_;
    InodeNumber inode_;
    std::thread thread_;
    std::atomic<bool> over_{false};
    uint64_t right_ = 0, wrong_ = 0;
};

TEST_CASE("full: a small write-intent log does not make commits of few writes")
{
    constexpr uint64_t kWrites = 6000;
    Prng prng(seed());
    SimVolume volume({8, 112 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes, 512 * kKiB});
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    MountOptions options = manual_options();
    options.node_cache_bytes = 0;  // readers ask for nodes that commits replace
    options.join_above = 0;
    mount(volume, options);
    Reader reader(volume);
    CountedFile file(volume, "file", volume.fs().statistics().available_blocks * 95 / 100);
    for (const uint64_t parity : {0, 1})
        for (uint64_t block = parity; block < file.blocks(); block += 2)
            REQUIRE(file.write(block) == Err::kOk);
    commit(volume);
    overwrite_randomly(volume, file, prng, kWrites);
    commit(volume);
    const VolumeInfo before = volume.fs().info();
    reader.start();
    overwrite_randomly(volume, file, prng, kWrites);
    commit(volume);
    const uint64_t reads = reader.end();
    const VolumeInfo after = volume.fs().info();
    const uint64_t commits = after.commits - before.commits;
    const uint64_t early = after.checksum_commits - before.checksum_commits;
    MESSAGE(commits, " commits, ", early, " of checksums, ", reads, " reads");
    CHECK(reads > 0);
    CHECK(early > commits);
    CHECK(commits < kWrites / 1000);
    close_and_check(volume, file);
}

TEST_CASE("full: where space is reported, writers who meet get it, all of them")
{
    constexpr uint64_t kThreads = 6;
    constexpr int kWrites = 4000;
    SimVolume volume({5, 80 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, kDefaultChunkBytes});
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    REQUIRE_MESSAGE(volume.mount(MountOptions(), why).ok(), why);
    const uint64_t blocks = volume.fs().statistics().available_blocks * 95 / 100 / kThreads;
    std::vector<CountedFile> files;
    for (uint64_t i = 0; i < kThreads; ++i)
        files.emplace_back(volume, ("file" + std::to_string(i)).c_str(), blocks);
    for (CountedFile& file : files)
        for (uint64_t block = 0; block < blocks; ++block)
            REQUIRE(file.write(block) == Err::kOk);
    REQUIRE(volume.fs().committer.sync().ok());
    REQUIRE(volume.fs().statistics().available_blocks > 0);
    std::atomic<int> refused = 0;
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
            Prng prng(seed() * kThreads + i);
            for (int write = 0; write < kWrites; ++write)
                refused += files[i].write(prng.below(blocks)) != Err::kOk;
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(refused == 0);
    for (CountedFile& file : files)
        file.require_content();
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("full: threads that use metadata up are all refused in the end, and what was made can be removed")
{
    constexpr uint64_t kThreads = 8;
    SimVolume volume({4, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, kDefaultChunkBytes});
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    REQUIRE_MESSAGE(volume.mount(MountOptions(), why).ok(), why);
    Filesystem& fs = volume.fs();
    const std::vector<std::byte> value(3000, std::byte{1});
    const InodeNumber fixed = make_file(fs, "fixed", value);
    REQUIRE(fs.names.set_flags(fixed, kInodeImmutable, kInodeImmutable, {}).ok());
    std::array<uint64_t, kThreads> made{};
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
            const std::string prefix = "t" + std::to_string(i) + "-";
            for (Err err = Err::kOk; err == Err::kOk;) {
                const Result<Attributes> node =
                    fs.names.make_node(kRoot, prefix + std::to_string(made[i]), S_IFREG | 0644, 0, {});
                err = node.err();
                if (!node.ok()) {
                    wrong += err != Err::kNoSpace;
                    break;
                }
                ++made[i];
                err = fs.names.set_xattr(node->inode, "user.x", value, 0).err();
                fs.names.forget(node->inode, 1);
                wrong += err != Err::kOk && err != Err::kNoSpace;
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(wrong == 0);
    CHECK(fs.statistics().available_blocks == 0);
    uint64_t small = 0;
    while (fs.names.make_node(kRoot, "s" + std::to_string(small), S_IFREG | 0644, 0, {}).ok())
        ++small;
    REQUIRE(fs.names.set_flags(fixed, kInodeImmutable, 0, {}).ok());
    REQUIRE(fs.names.unlink(kRoot, "fixed").ok());
    for (uint64_t number = 0; number < small; ++number)
        REQUIRE(fs.names.unlink(kRoot, "s" + std::to_string(number)).ok());
    for (uint64_t i = 0; i < kThreads; ++i)
        for (uint64_t number = 0; number < made[i]; ++number)
            REQUIRE(fs.names.unlink(kRoot, "t" + std::to_string(i) + "-" + std::to_string(number)).ok());
    for (int attempt = 0; attempt < 200 && fs.statistics().available_blocks == 0; ++attempt) {
        REQUIRE(fs.committer.sync().ok());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    CHECK(fs.statistics().available_blocks > 0);
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("full: tails that are cut off anew have a place where no space is left")
{
    constexpr uint64_t kFiles = 400;
    SimVolume volume({5, 112 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    const std::vector<std::byte> content(2 * kBlockBytes, std::byte{7});
    std::vector<InodeNumber> files;
    for (uint64_t i = 0; i < kFiles; ++i)
        files.push_back(make_file(fs, "f" + std::to_string(i), content));
    commit(volume);
    CountedFile big(volume, "big", volume.fs().statistics().available_blocks);
    big.fill();
    CHECK(volume.fs().statistics().available_blocks == 0);
    for (const InodeNumber file : files) {
        SetAttributes change;
        change.size_bytes = content.size() - 1;
        REQUIRE(fs.names.set_attributes(file, change, {}).ok());
    }
    commit(volume);
    std::vector<std::byte> got(content.size());
    for (const InodeNumber file : files) {
        const Result<size_t> read = fs.files.read(file, 0, got);
        REQUIRE(read.ok());
        REQUIRE(*read == content.size() - 1);
        REQUIRE(std::equal(got.begin(), got.end() - 1, content.begin()));
    }
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("full: tails cut off compressed files find a place or are refused, and the volume goes on")
{
    constexpr uint64_t kFiles = 1200;
    SimVolume volume({5, 112 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes});
    MountOptions options = manual_options();
    options.compression = {.on = true, .level = 1};
    make_and_mount(volume, options);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    // Half of them in nodes, half in a frame that stays when its end is cut off.
    std::vector<std::byte> content(8 * kBlockBytes);
    std::vector<InodeNumber> files;
    for (uint64_t i = 0; i < kFiles; ++i) {
        fill_text(prng, content);
        const size_t bytes = i % 2 == 0 ? 2 * kBlockBytes : content.size();
        files.push_back(make_file(fs, "f" + std::to_string(i), std::span(content).first(bytes)));
    }
    commit(volume);
    CountedFile big(volume, "big", volume.fs().statistics().available_blocks);
    REQUIRE(fs.names.set_flags(big.inode(), kInodeNoCompress, kInodeNoCompress, {}).ok());
    big.fill();
    CHECK(volume.fs().statistics().available_blocks == 0);
    const auto cut_all = [&](uint64_t less) {
        uint64_t refused = 0;
        for (size_t i = 0; i < files.size(); ++i) {
            SetAttributes change;
            change.size_bytes = (i % 2 == 0 ? 2 * kBlockBytes : content.size()) - less;
            const Result<Attributes> cut = fs.names.set_attributes(files[i], change, {});
            REQUIRE((cut.ok() || cut.err() == Err::kNoSpace));
            refused += cut.ok() ? 0 : 1;
        }
        return refused;
    };
    CHECK(cut_all(1) > kFiles / 2);
    commit(volume);
    REQUIRE(fs.store.service.writing());
    SetAttributes empty;
    empty.size_bytes = 0;
    REQUIRE(fs.names.set_attributes(big.inode(), empty, {}).ok());
    commit(volume);
    commit(volume);
    CHECK(cut_all(2) == 0);
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("full: holes in the middle of extents are refused where there is no room for nodes")
{
    constexpr uint64_t kFiles = 40, kBlocks = 512;
    SimVolume volume({4, 112 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    std::vector<std::byte> content(kBlocks * kBlockBytes);
    prng.fill(content.data(), content.size());
    std::vector<InodeNumber> files;
    for (uint64_t i = 0; i < kFiles; ++i)
        files.push_back(make_file(fs, "f" + std::to_string(i), content));
    commit(volume);
    CountedFile big(volume, "big", volume.fs().statistics().available_blocks);
    for (uint64_t block = 0; block + 64 <= big.blocks() && big.write(block, 64) == Err::kOk;)
        block += 64;
    fill_metadata(volume, 2);
    uint64_t refused = 0;
    for (uint64_t block = 1; block < kBlocks; block += 2)
        for (const InodeNumber file : files) {
            const Status punched = fs.files.allocate_range(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                                           block * kBlockBytes, kBlockBytes);
            REQUIRE((punched.ok() || punched.err() == Err::kNoSpace));
            refused += punched.ok() ? 0 : 1;
        }
    CHECK(refused > 0);
    commit(volume);
    REQUIRE(fs.store.service.writing());
    for (uint64_t i = 0; i < kFiles; ++i)
        REQUIRE(fs.names.unlink(kRoot, "f" + std::to_string(i)).ok());
    for (uint64_t number = 0; fs.names.unlink(kRoot, "x" + std::to_string(number)).ok(); ++number)
        if (number % 64 == 0)
            commit(volume);
    REQUIRE(volume.unmount().ok());  // which forgets them
    mount(volume, manual_options());
    for (int commits = 0; commits < 8; ++commits)
        commit(volume);
    write_file(volume.fs(), "again", content);
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("full: a volume mounted read-only first recovers, and writes in place, as one mounted for writing")
{
    uint64_t stale_groups[2] = {};
    for (const bool look_first : {false, true}) {
        CAPTURE(look_first);
        Prng prng(seed());
        SimVolume volume({4, 112 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes});
        make_and_mount(volume);
        CountedFile file(volume, "file", volume.fs().statistics().available_blocks * 95 / 100);
        for (const uint64_t parity : {0, 1})
            for (uint64_t block = parity; block < file.blocks(); block += 2)
                REQUIRE(file.write(block) == Err::kOk);
        commit(volume);
        overwrite_randomly(volume, file, prng, 2000);
        commit(volume);
        REQUIRE(volume.fs().volume->array().partial_write_statistics().rows > 0);
        volume.power_cut(prng);

        // The log may have had entries on the member that is away only: its columns are stale as a whole.
        std::string why;
        MountOptions options = manual_options();
        options.degraded = true;
        options.read_only = look_first;
        REQUIRE_MESSAGE(volume.mount(options, why, {1}).ok(), why);
        if (look_first)
            REQUIRE_MESSAGE(volume.fs().committer.remount(false, why).ok(), why);
        REQUIRE(volume.unmount().ok());
        options.degraded = false;
        mount(volume, options);
        if (look_first)
            REQUIRE_MESSAGE(volume.fs().committer.remount(false, why).ok(), why);
        stale_groups[look_first] = volume.fs().info().members[1].stale_groups;
        overwrite_randomly(volume, file, prng, 2000);
        commit(volume);
        CHECK(volume.fs().volume->array().partial_write_statistics().rows > 0);
        file.require_content();
        REQUIRE(volume.unmount().ok());
    }
    CHECK(stale_groups[false] > 0);
    CHECK(stale_groups[true] == stale_groups[false]);
}
