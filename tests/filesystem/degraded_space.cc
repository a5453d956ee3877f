// SPDX-License-Identifier: MIT
#include "tests/filesystem/degraded_space.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "format/items.h"
#include "format/profile.h"
#include "format/superblock.h"
#include "tests/filesystem/volume_steps.h"
#include "tests/support/bytes.h"

namespace cowraid::test {

namespace {

constexpr uint64_t kFileBlocks = 512;
constexpr uint64_t kPieceBlocks = 64;

MachineShape shape_of(uint32_t member_count, uint64_t member_bytes, ProfileId data, ProfileId metadata)
{
    MachineShape shape;
    shape.member_bytes.assign(member_count, member_bytes);
    shape.data_profile = data;
    shape.metadata_profile = metadata;
    return shape;
}

// Says which file and block it is.
void append_block(const std::string& name, uint64_t block, std::vector<std::byte>& out)
{
    uint64_t words[2] = {0, block};
    for (const char letter : name)
        words[0] = words[0] * 131 + static_cast<unsigned char>(letter);
    out.resize(out.size() + kBlockBytes);
    for (size_t at = out.size() - kBlockBytes; at < out.size(); at += sizeof words)
        std::memcpy(out.data() + at, words, sizeof words);
}

}  // namespace

SpaceWorld::SpaceWorld(uint32_t member_count, uint64_t member_bytes, ProfileId data, ProfileId metadata)
    : machine_(shape_of(member_count, member_bytes, data, metadata), 1)
{
}

void SpaceWorld::start()
{
    std::string why;
    REQUIRE_MESSAGE(machine_.make(why).ok(), why);
    mount();
}

void SpaceWorld::mount(const std::vector<uint32_t>& absent)
{
    MountOptions options = manual_options();
    options.degraded = !absent.empty();
    std::string why;
    const Status status = machine_.mount(options, why, absent);
    REQUIRE_MESSAGE(status.ok(), why);
    inode_ = {};
}

void SpaceWorld::unmount()
{
    const Status status = machine_.unmount();
    REQUIRE_MESSAGE(status.ok(), err_text(status.err()));
}

void SpaceWorld::commit()
{
    const Status status = fs().step(true);
    REQUIRE_MESSAGE(status.ok(), err_text(status.err()));
}

void SpaceWorld::settle()
{
    for (int i = 0; i < 6; ++i)
        commit();
}

void SpaceWorld::fail_writes(uint32_t member)
{
    FaultRule rule;
    rule.kinds = kFaultWrites;
    rules_.emplace_back(member, machine_.cable(member).add_rule(rule));
}

void SpaceWorld::end_faults()
{
    for (const auto& [member, number] : rules_)
        machine_.cable(member).remove_rule(number);
    rules_.clear();
}

Err SpaceWorld::append(uint64_t blocks)
{
    if (!inode_.value || files_.back().blocks + blocks > kFileBlocks) {
        const std::string name = "f" + std::to_string(next_file_);
        const Result<Attributes> made = fs().names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        if (!made.ok())
            return made.err();
        if (inode_.value)
            fs().names.forget(inode_, 1);
        ++next_file_;
        files_.push_back({name, 0});
        inode_ = made->inode;
    }
    File& file = files_.back();
    std::vector<std::byte> content;
    for (uint64_t i = 0; i < blocks; ++i)
        append_block(file.name, file.blocks + i, content);
    const Result<size_t> written = fs().files.write(inode_, file.blocks * kBlockBytes, content, {}, {});
    if (!written.ok())
        return written.err();
    REQUIRE(*written == content.size());
    file.blocks += blocks;
    return Err::kOk;
}

uint64_t SpaceWorld::write(uint64_t blocks_max)
{
    uint64_t taken = 0;
    uint64_t piece = kPieceBlocks;
    while (taken < blocks_max) {
        piece = std::min(piece, blocks_max - taken);
        const Err err = append(piece);
        if (err == Err::kOk) {
            taken += piece;
            continue;
        }
        REQUIRE_MESSAGE(err == Err::kNoSpace, err_text(err));
        REQUIRE(available() < piece);
        if (piece == 1)
            break;
        piece = divide_up(piece, 4);
    }
    return taken;
}

uint64_t SpaceWorld::write_synced(uint64_t count, uint64_t blocks)
{
    uint64_t refused = 0;
    for (; count > 0; --count) {
        const Err err = append(blocks);
        refused += err != Err::kOk;
        if (err == Err::kOk)
            refused += !fs().committer.fsync(inode_, Committer::SyncWhat::kAll).ok();
    }
    return refused;
}

void SpaceWorld::remove_all()
{
    if (inode_.value)
        fs().names.forget(inode_, 1);
    inode_ = {};
    for (const File& file : files_) {
        const Result<Attributes> found = fs().names.lookup(kRoot, file.name);
        REQUIRE(found.ok());
        const Status removed = fs().names.unlink(kRoot, file.name);
        REQUIRE_MESSAGE(removed.ok(), err_text(removed.err()));
        fs().names.forget(found->inode, 1);
    }
    files_.clear();
    REQUIRE(fs().step(false).ok());  // what the thread that removes files does
}

void SpaceWorld::require_content()
{
    for (const File& file : files_) {
        CAPTURE(file.name);
        const Result<Attributes> found = fs().names.lookup(kRoot, file.name);
        REQUIRE_MESSAGE(found.ok(), err_text(found.err()));
        REQUIRE(found->size_bytes == file.blocks * kBlockBytes);
        std::vector<std::byte> wanted;
        for (uint64_t block = 0; block < file.blocks; ++block)
            append_block(file.name, block, wanted);
        std::vector<std::byte> got(wanted.size());
        const Result<size_t> read = fs().files.read(found->inode, 0, got);
        REQUIRE_MESSAGE(read.ok(), err_text(read.err()));
        REQUIRE(*read == got.size());
        REQUIRE(same(got, wanted));
        fs().names.forget(found->inode, 1);
    }
}

uint64_t SpaceWorld::group_blocks() const
{
    const MachineShape& shape = machine_.shape();
    const Profile& profile = *find_profile(shape.data_profile);
    const uint64_t column = std::max(kMinSlotBytes, std::bit_floor(shape.member_bytes[0] / 64));
    const uint64_t width = profile.max_columns == 0 ? shape.member_count() : profile.max_columns;
    return (width - profile.parity) / profile.copies * column / kBlockBytes;
}

}  // namespace cowraid::test
