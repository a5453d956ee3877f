// SPDX-License-Identifier: MIT
// Ranges of files with many extents: reserved, punched, cut off; with room for little, and with members that
// cannot be read.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "fs/txn/no_wait.h"
#include "sim/fault_device.h"
#include "tests/filesystem/check_content.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

// A file that has only some of its blocks; each says which it is and what was written last.
class HoleyFile {
public:
    explicit HoleyFile(Filesystem& fs) : fs_(fs)
    {
        const Result<Attributes> made = fs.names.make_node(kRoot, "holey", S_IFREG | 0644, 0, {});
        REQUIRE_MESSAGE(made.ok(), err_text(made.err()));
        inode_ = made->inode;
    }
    // Found again after another mount.
    HoleyFile(Filesystem& fs, const HoleyFile& before) : fs_(fs), expected_(before.expected_)
    {
        const Result<Attributes> found = fs.names.lookup(kRoot, "holey");
        REQUIRE_MESSAGE(found.ok(), err_text(found.err()));
        inode_ = found->inode;
    }

    [[nodiscard]] InodeNumber inode() const { return inode_; }

    void write(uint64_t block, uint8_t mark)
    {
        const std::vector<std::byte> content = content_of(block, mark);
        const Result<size_t> written = fs_.files.write(inode_, block * kBlockBytes, content, {}, {});
        REQUIRE_MESSAGE(written.ok(), err_text(written.err()));
        REQUIRE(*written == content.size());
        if (expected_.size() <= block)
            expected_.resize(block + 1);
        expected_[block] = mark;
    }

    // Every `step`-th block of `blocks`.
    void write_apart(uint64_t blocks, uint64_t step, uint8_t mark)
    {
        for (uint64_t block = 0; block < blocks; block += step)
            write(block, mark);
    }

    Status punch(uint64_t first, uint64_t count)
    {
        const Status status =
            fs_.files.allocate_range(inode_, kPunch, first * kBlockBytes, count * kBlockBytes);
        if (status.ok())
            std::fill_n(expected_.begin() + static_cast<ptrdiff_t>(first), count, uint8_t{0});
        return status;
    }

    Status truncate(uint64_t blocks)
    {
        SetAttributes change;
        change.size_bytes = blocks * kBlockBytes;
        const Status status = fs_.names.set_attributes(inode_, change, {}).status();
        if (status.ok())
            expected_.resize(blocks);
        return status;
    }

    // In steps, each of which is followed by behind(step). How many nodes each of them looked at.
    template <typename Behind> std::vector<uint64_t> truncate_slowly(uint64_t blocks, Behind&& behind)
    {
        SetAttributes change;
        change.size_bytes = blocks * kBlockBytes;
        const auto begun = fs_.names.begin_set_attributes(inode_, change, {});
        REQUIRE(begun.ok());
        std::vector<uint64_t> looks;
        for (Progress progress = Progress::kMore; progress == Progress::kMore; behind(looks.size())) {
            const uint64_t before = fs_.store.cache.statistics().hits;
            const Result<Progress> made = (*begun)->step();
            REQUIRE_MESSAGE(made.ok(), err_text(made.err()));
            progress = *made;
            looks.push_back(fs_.store.cache.statistics().hits - before);
        }
        expected_.resize(blocks);
        return looks;
    }

    uint64_t stored_blocks()
    {
        const Result<Attributes> attributes = fs_.names.get_attributes(inode_);
        REQUIRE(attributes.ok());
        return attributes->block_count_512 * 512 / kBlockBytes;
    }

    void require_content()
    {
        const Result<Attributes> attributes = fs_.names.get_attributes(inode_);
        REQUIRE(attributes.ok());
        REQUIRE(attributes->size_bytes == expected_.size() * kBlockBytes);
        std::vector<std::byte> got(kBlockBytes);
        for (uint64_t block = 0; block < expected_.size(); ++block) {
            CAPTURE(block);
            const Result<size_t> read = fs_.files.read(inode_, block * kBlockBytes, got);
            REQUIRE_MESSAGE(read.ok(), err_text(read.err()));
            REQUIRE(same(got, content_of(block, expected_[block])));
        }
    }

private:
    static std::vector<std::byte> content_of(uint64_t block, uint8_t mark)
    {
        std::vector<std::byte> content(kBlockBytes, std::byte{mark});
        if (mark != 0)
            for (size_t i = 0; i < sizeof block; ++i)
                content[i] = static_cast<std::byte>(block >> (8 * i));
        return content;
    }

    Filesystem& fs_;
    InodeNumber inode_;
    std::vector<uint8_t> expected_;  // 0: a hole
};

void require_ok(const Status& status)
{
    REQUIRE_MESSAGE(status.ok(), err_text(status.err()));
}

}  // namespace

TEST_CASE("ranges: a hole or an end that cannot be made for want of a node takes nothing away")
{
    SimVolume volume({1, 96 * kMiB, ProfileId::kSingle, ProfileId::kSingle, 64 * 1024});
    make_and_mount(volume);
    HoleyFile made(volume.fs());
    made.write_apart(6000, 2, 1);
    REQUIRE(volume.unmount().ok());

    auto faulty = std::make_unique<FaultDevice>(std::move(volume.borrow({}).front()), seed());
    FaultDevice& member = *faulty;
    std::vector<std::unique_ptr<BlockDevice>> members;
    members.push_back(std::move(faulty));
    std::string why;
    Result<Assembly> assembly = assemble(std::move(members), why);
    REQUIRE_MESSAGE(assembly.ok(), why);
    MountOptions options = manual_options();
    options.node_cache_bytes = 0;
    Result<std::unique_ptr<Filesystem>> opened = Filesystem::open(assembly.take(), options, why);
    REQUIRE_MESSAGE(opened.ok(), why);
    Filesystem& fs = **opened;

    HoleyFile file(fs, made);
    for (uint64_t block = 1000; block < 1100; ++block)
        file.write(block, 2);  // in memory only
    const size_t rule = member.add_rule({.action = FaultAction::kError, .kinds = kFaultReads});
    CHECK(!file.punch(900, 300).ok());
    CHECK(!file.truncate(950).ok());
    CHECK(member.hits(rule) > 0);
    member.remove_rule(rule);
    file.require_content();
    require_ok(file.punch(900, 300));
    require_ok(file.truncate(5000));
    file.require_content();
    REQUIRE(fs.close().ok());
    opened->reset();
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("ranges: reserving needs room for what is missing, not for what is there")
{
    constexpr uint64_t kBlocks = 8000;
    SimVolume volume({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    HoleyFile file(fs);
    for (uint64_t block = 0; block < kBlocks; ++block)
        if (block % 100 != 50)
            file.write(block, 1);
    require_ok(fs.step(true));
    const Result<Attributes> rest = fs.names.make_node(kRoot, "rest", S_IFREG | 0644, 0, {});
    REQUIRE(rest.ok());
    const std::vector<std::byte> content(64 * kBlockBytes, std::byte{9});
    for (uint64_t at = 0; fs.statistics().available_blocks > 500; at += content.size())
        REQUIRE(fs.files.write(rest->inode, at, content, {}, {}).ok());
    require_ok(fs.step(true));
    REQUIRE(fs.statistics().available_blocks < 600);
    require_ok(fs.files.allocate_range(file.inode(), 0, 0, kBlocks * kBlockBytes));
    CHECK(file.stored_blocks() == kBlocks);
    for (uint64_t block = 50; block < kBlocks; block += 100)
        file.write(block, 3);
    require_ok(fs.step(true));
    CHECK(file.stored_blocks() == kBlocks);
    file.require_content();
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("ranges: thousands of holes and extents are reserved and punched piece by piece")
{
    constexpr uint64_t kBlocks = 4000;
    for (const VolumeShape& shape : {kCheckedShapes[2], kCheckedShapes[4]}) {
        SimVolume volume(shape);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        HoleyFile file(fs);
        file.write_apart(kBlocks, 2, 1);
        file.write(kBlocks - 1, 1);
        require_ok(fs.step(true));
        require_ok(fs.files.allocate_range(file.inode(), 0, 0, kBlocks * kBlockBytes));
        CHECK(file.stored_blocks() == kBlocks);
        for (uint64_t block = 1; block < kBlocks; block += 6)
            file.write(block, 4);
        file.require_content();
        require_ok(fs.step(true));
        CHECK(file.stored_blocks() == kBlocks);
        require_ok(file.punch(1, kBlocks - 2));
        CHECK(file.stored_blocks() == 2);
        file.require_content();
        require_ok(fs.step(true));
        file.require_content();
        REQUIRE(volume.unmount().ok());
        REQUIRE_CLEAN(Image::copy_of(volume).check());
    }
}

TEST_CASE("ranges: a hole to the end of all files is punched at once")
{
    SimVolume volume({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    HoleyFile file(volume.fs());
    file.write_apart(3000, 3, 1);
    require_ok(volume.fs().step(true));
    file.write(3500, 2);  // in memory
    require_ok(file.punch(1000, 2501));
    file.write(10, 5);
    require_ok(volume.fs().files.allocate_range(file.inode(), kPunch, 500 * kBlockBytes,
                                                INT64_MAX - 500 * kBlockBytes));
    require_ok(file.punch(500, 3001));
    file.require_content();
    require_ok(volume.fs().step(true));
    CHECK(file.stored_blocks() == 168);
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("ranges: a piece of what is cut off costs no more because others were cut off before")
{
    SimVolume volume({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    HoleyFile file(volume.fs());
    file.write_apart(8192, 2, 1);
    require_ok(volume.fs().step(true));
    const std::vector<uint64_t> looks = file.truncate_slowly(3, [](size_t) {});
    REQUIRE(looks.size() >= 16);
    CHECK(*std::max_element(looks.begin(), looks.end()) < 2 * looks.front());
    CHECK(file.stored_blocks() == 2);
    file.require_content();
    require_ok(volume.fs().step(true));
    file.require_content();
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE(
    "ranges: a file that is cut where it ends keeps what it has, and nothing that was reserved behind it")
{
    SimVolume volume({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    HoleyFile file(fs);
    file.write_apart(20, 2, 1);
    require_ok(fs.step(true));
    // More than the whole volume has.
    for (const bool stored : {false, true}) {
        CAPTURE(stored);
        const uint64_t room = fs.statistics().available_blocks;
        Status reserved;
        for (uint64_t block = 19; reserved.ok(); block += 100)
            reserved = fs.files.allocate_range(file.inode(), FALLOC_FL_KEEP_SIZE, block * kBlockBytes,
                                               100 * kBlockBytes);
        CHECK(reserved == Err::kNoSpace);
        CHECK(fs.statistics().available_blocks < 200);
        if (stored)
            require_ok(fs.step(true));
        require_ok(file.truncate(19));
        CHECK(file.stored_blocks() == 10);
        CHECK(fs.statistics().available_blocks + 100 > room);
        file.write(8, 2);
        file.require_content();
        require_ok(fs.step(true));
    }
    // In many pieces.
    for (uint64_t block = 30; block < 3000; block += 2)
        require_ok(fs.files.allocate_range(file.inode(), FALLOC_FL_KEEP_SIZE, block * kBlockBytes, 1));
    CHECK(file.stored_blocks() == 10 + 1485);
    CHECK(file.truncate_slowly(19, [](size_t) {}).size() > 3);
    CHECK(file.stored_blocks() == 10);
    file.require_content();
    require_ok(fs.step(true));
    file.require_content();
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("ranges: a piece of a hole costs no more because others were punched before")
{
    constexpr uint64_t kApart = 1001, kExtents = 4000;
    SimVolume volume({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    const Result<Attributes> made = fs.names.make_node(kRoot, "sparse", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    for (uint64_t extent = 0; extent < kExtents; ++extent)
        require_ok(fs.files.allocate_range(made->inode, 0, extent * kApart * kBlockBytes, kBlockBytes));
    require_ok(fs.step(true));
    const auto begun =
        fs.files.begin_allocate_range(made->inode, kPunch, 0, kExtents * kApart * kBlockBytes, {});
    REQUIRE(begun.ok());
    std::vector<uint64_t> looks;
    for (Progress progress = Progress::kMore; progress == Progress::kMore;) {
        const uint64_t before = fs.store.cache.statistics().hits;
        const Result<Progress> step = (*begun)->step();
        REQUIRE_MESSAGE(step.ok(), err_text(step.err()));
        progress = *step;
        looks.push_back(fs.store.cache.statistics().hits - before);
    }
    REQUIRE(looks.size() >= 16);
    CHECK(*std::max_element(looks.begin(), looks.end()) < 2 * looks[looks.size() / 8]);
    CHECK(fs.names.get_attributes(made->inode)->block_count_512 == 0);
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("ranges: what one piece cuts off is cut off at once, also behind a hole")
{
    SimVolume volume({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    HoleyFile file(volume.fs());
    file.write(3, 1);
    for (uint64_t extent = 0; extent < 256; ++extent)
        file.write(1000 + 2 * extent, 1);
    require_ok(volume.fs().step(true));
    CHECK(file.truncate_slowly(5, [](size_t) {}).size() == 1);
    CHECK(file.stored_blocks() == 1);
    file.require_content();
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("ranges: what comes behind an end that is being cut off goes with the rest")
{
    SimVolume volume({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    HoleyFile file(fs);
    file.write_apart(4096, 2, 1);
    require_ok(fs.step(true));
    const auto disturb = [&](size_t step) {
        if (step == 1)
            require_ok(fs.step(true));
        if (step == 3)
            require_ok(fs.files.allocate_range(file.inode(), kPunch, 500 * kBlockBytes, 100 * kBlockBytes));
        // Both end the truncation that was begun first, before they take anything there.
        if (step == 5)
            require_ok(fs.files.allocate_range(file.inode(), FALLOC_FL_KEEP_SIZE, 7000 * kBlockBytes,
                                               10 * kBlockBytes));
        if (step == 5)
            file.write(6000, 3);
    };
    CHECK(file.truncate_slowly(100, disturb).size() >= 6);
    CHECK(file.stored_blocks() == 50);
    file.require_content();
    require_ok(fs.step(true));
    require_ok(file.truncate(8000));
    file.require_content();
    CHECK(file.stored_blocks() == 50);
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("ranges: the length of a hole costs nothing, however far the next block is")
{
    constexpr uint64_t kFar = uint64_t{1} << 62;
    SimVolume volume({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    const std::vector<std::byte> content(100, std::byte{7});
    enum class Far : uint8_t { kInMemory, kStored, kPromised };
    for (const Far far : {Far::kInMemory, Far::kStored, Far::kPromised}) {
        CAPTURE(static_cast<int>(far));
        const Result<Attributes> made =
            fs.names.make_node(kRoot, "far" + std::to_string(static_cast<int>(far)), S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        REQUIRE(fs.files.write(made->inode, 0, content, {}, {}).ok());
        if (far == Far::kPromised)
            require_ok(fs.files.allocate_range(made->inode, 0, kFar, content.size()));
        else
            REQUIRE(fs.files.write(made->inode, kFar, content, {}, {}).ok());
        if (far == Far::kStored)
            require_ok(fs.step(true));
        require_ok(
            fs.files.allocate_range(made->inode, kPunch, 50, kFar));  // up to the middle of what is there
        std::vector<std::byte> got(content.size());
        REQUIRE(fs.files.read(made->inode, kFar, got).ok());
        for (size_t at = 0; at < got.size(); ++at)
            CHECK(got[at] == (at < 50 || far == Far::kPromised ? std::byte{0} : content[at]));
        REQUIRE(fs.files.read(made->inode, 0, got).ok());
        for (size_t at = 0; at < got.size(); ++at)
            CHECK(got[at] == (at < 50 ? content[at] : std::byte{0}));
    }
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("ranges: reserving what was just written needs no room once it is stored")
{
    constexpr uint64_t kBlocks = 4000;
    SimVolume volume({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    const Result<Attributes> rest = fs.names.make_node(kRoot, "rest", S_IFREG | 0644, 0, {});
    REQUIRE(rest.ok());
    const std::vector<std::byte> content(64 * kBlockBytes, std::byte{9});
    for (uint64_t at = 0; fs.statistics().available_blocks > kBlocks + 500; at += content.size())
        REQUIRE(fs.files.write(rest->inode, at, content, {}, {}).ok());
    require_ok(fs.step(true));
    HoleyFile file(fs);
    file.write_apart(kBlocks, 1, 1);
    REQUIRE(fs.statistics().available_blocks < kBlocks / 2);
    require_ok(fs.files.allocate_range(file.inode(), 0, 0, (kBlocks + 50) * kBlockBytes));
    require_ok(file.truncate(kBlocks + 50));
    file.require_content();
    CHECK(file.stored_blocks() >= kBlocks);
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("ranges: a step that would have to wait is done by a thread that may, edges included")
{
    SimVolume volume({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    HoleyFile file(fs);
    file.write_apart(3, 1, 1);
    require_ok(fs.step(true));
    const Result<Attributes> rest = fs.names.make_node(kRoot, "rest", S_IFREG | 0644, 0, {});
    REQUIRE(rest.ok());
    for (uint64_t blocks = fs.statistics().available_blocks, at = 0; blocks > 0;) {
        const Status status =
            fs.files.allocate_range(rest->inode, FALLOC_FL_KEEP_SIZE, at * kBlockBytes, blocks * kBlockBytes);
        at += status.ok() ? blocks : 0;
        blocks = status.ok() ? blocks : blocks / 2;
    }

    // From the middle of the first block to the middle of the last.
    constexpr uint64_t kFrom = 100;
    constexpr uint64_t kEnd = 2 * kBlockBytes + 100;
    auto begun = fs.files.begin_allocate_range(file.inode(), FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                                               kFrom, kEnd - kFrom, {});
    REQUIRE(begun.ok());
    {
        const NoWait scope;
        const uint64_t commits = fs.info().commits;
        CHECK((*begun)->step().err() == Err::kWouldWait);
        CHECK((*begun)->step().err() == Err::kWouldWait);
        CHECK(fs.names.make_node(kRoot, "new", S_IFREG | 0644, 0, {}).ok());
        CHECK(fs.info().commits == commits);
    }
    std::vector<std::byte> before(3 * kBlockBytes);
    REQUIRE(fs.files.read(file.inode(), 0, before).ok());
    file.require_content();
    REQUIRE(fs.names.unlink(kRoot, "rest").ok());
    fs.names.forget(rest->inode, 1);
    require_ok(finish_change(**begun));
    std::vector<std::byte> got(before.size());
    REQUIRE(fs.files.read(file.inode(), 0, got).ok());
    for (uint64_t at = 0; at < got.size(); ++at)
        REQUIRE(got[at] == (at >= kFrom && at < kEnd ? std::byte{0} : before[at]));
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}
