// SPDX-License-Identifier: MIT
// Operations on the content of files.
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>

#include "base/buffer.h"
#include "tests/sim/actor.h"
#include "tests/sim/compare.h"
#include "tests/support/bytes.h"

namespace cowraid::test {

namespace {

constexpr uint64_t kFileBytesMax = kMiB;
constexpr uint64_t kTotalBytesMax = 6 * kMiB;

Caller some_caller(Prng& prng)
{
    Caller caller;
    if (prng.chance(1, 4))
        caller.cleared_mode_bits = prng.chance(1, 2) ? S_ISUID : S_ISUID | S_ISGID;
    return caller;
}

uint64_t total_bytes(const Model& model)
{
    uint64_t total = 0;
    for (const auto& [number, shared] : model.inodes())
        total += shared->inode.content.size_bytes();
    return total;
}

}  // namespace

// Mostly within the file, often on a block's edge.
uint64_t Actor::some_offset(const ModelInode& inode)
{
    const uint64_t size = inode.content.size_bytes();
    uint64_t offset = prng().below(size + 1);
    if (prng().chance(1, 12))
        offset = size + prng().below(prng().chance(1, 4) ? 200000 : 10000);
    if (prng().chance(1, 2))
        offset = round_down(offset, kBlockBytes);
    return std::min(offset, kFileBytesMax - 1);
}

std::vector<std::byte> Actor::some_bytes()
{
    const uint64_t size_class = prng().below(100);
    uint64_t size = prng().between(1, size_class < 60 ? 9000 : size_class < 96 ? 60000 : 400000);
    if (prng().chance(1, 3))
        size = std::max<uint64_t>(round_down(size, kBlockBytes), kBlockBytes);
    std::vector<std::byte> bytes(size);
    if (prng().chance(1, 10))
        std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(prng().below(256)));
    else if (world_.compresses && prng().chance(2, 3))
        fill_text(prng(), bytes);
    else
        prng().fill(bytes.data(), bytes.size());
    return bytes;
}

// Learns the time a change left behind.
void Actor::note_modified(InodeNumber inode)
{
    const Result<Attributes> attributes = fs().names.get_attributes(inode);
    if (attributes.ok())
        model().change(inode).modified = attributes->modified;
    else
        world_.violation("stat of %llu: %s", ull(inode), err_text(attributes.err()));
}

void Actor::write_bytes(InodeNumber inode, uint64_t offset, const std::vector<std::byte>& bytes, bool append)
{
    const Caller caller = some_caller(prng());
    world_.note("%s %llu: %zu bytes at %llu", append ? "append" : "write", ull(inode), bytes.size(),
                ull(offset));
    const Result<size_t> written = serve(
        [&] { return fs().files.write(inode, append ? 0 : offset, bytes, {.append = append}, caller); });
    if (!world_.settle("write", written.err(), Err::kOk, Growth::kSome))
        return;
    if (*written != bytes.size()) {
        world_.violation("write: %zu of %zu bytes", *written, bytes.size());
        return;
    }
    world_.events.add(append ? Event::kAppend : Event::kWrite);
    ModelInode& expected = model().change(inode);
    expected.content.write(offset, bytes);
    expected.mode &= ~caller.cleared_mode_bits;
    note_modified(inode);
}

void Actor::write()
{
    const InodeNumber inode = some_file();
    if (inode.value == 0)
        return;
    const uint64_t offset = some_offset(model().at(inode));
    std::vector<std::byte> bytes = some_bytes();
    bytes.resize(std::min<uint64_t>(bytes.size(), kFileBytesMax - offset));
    write_bytes(inode, offset, bytes, false);
}

void Actor::append()
{
    const InodeNumber inode = some_file();
    if (inode.value == 0)
        return;
    const uint64_t size = model().at(inode).content.size_bytes();
    std::vector<std::byte> bytes = some_bytes();
    if (size + bytes.size() <= kFileBytesMax)
        write_bytes(inode, size, bytes, true);
}

void Actor::resize()
{
    const InodeNumber inode = some_file();
    if (inode.value == 0)
        return;
    const uint64_t size = model().at(inode).content.size_bytes();
    SetAttributes change;
    change.size_bytes = prng().chance(1, 5) ? prng().below(kFileBytesMax / 2) : prng().below(size + 1);
    if (prng().chance(1, 3))
        change.size_bytes = round_down(*change.size_bytes, kBlockBytes);
    const Caller caller = some_caller(prng());
    world_.note("truncate %llu: %llu to %llu", ull(inode), ull(size), ull(*change.size_bytes));
    FileContent after = model().at(inode).content;
    after.resize(*change.size_bytes);
    const Err got = finish(fs().names.begin_set_attributes(inode, change, caller));
    // The rest of the frame that the new end is in may stay.
    const bool cuts_frame =
        world_.compresses && *change.size_bytes < size && *change.size_bytes % kBlockBytes != 0;
    finish_steps("truncate", {inode, std::move(after), caller.cleared_mode_bits}, got,
                 cuts_frame ? Growth::kSome : Growth::kNone);
    if (world_.failed() || world_.power_lost())
        return;
    world_.events.add(Event::kTruncate);
}

// What a call of several steps leaves: power may fail and commits may happen between its steps.
void Actor::finish_steps(const char* what, HalfChanged change, Err got, Growth growth)
{
    const InodeNumber inode = change.inode;
    const uint64_t commits_before = world_.events.of(Event::kImplicitCommit);
    world_.half_changed = std::move(change);
    const bool done = world_.settle(what, got, Err::kOk, growth);
    if (world_.power_lost() || world_.failed())
        return;
    if (done) {
        ModelInode& expected = model().change(inode);
        expected.content = world_.half_changed->after;
        expected.mode &= ~world_.half_changed->cleared_mode_bits;
        note_modified(inode);
    } else {
        const std::string why = adopt_file(fs(), model(), *world_.half_changed);
        if (!why.empty())
            world_.violation("after %s: %s", what, why.c_str());
    }
    // A state between two steps may be durable now: make it one that is known.
    if (world_.events.of(Event::kImplicitCommit) != commits_before)
        commit();
    if (!world_.power_lost())
        world_.half_changed.reset();
}

void Actor::change_range()
{
    const InodeNumber inode = some_file();
    if (inode.value == 0)
        return;
    const uint64_t offset = some_offset(model().at(inode));
    const uint64_t length =
        std::min(prng().between(1, prng().chance(1, 4) ? 200000 : 20000), kFileBytesMax - offset);
    const int choices[] = {0,
                           FALLOC_FL_KEEP_SIZE,
                           FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           FALLOC_FL_ZERO_RANGE,
                           FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
    const int mode = choices[prng().below(6)];
    FileContent after = model().at(inode).content;
    if ((mode & FALLOC_FL_KEEP_SIZE) == 0)
        after.resize(std::max(after.size_bytes(), offset + length));
    if ((mode & ~FALLOC_FL_KEEP_SIZE) != 0)
        after.clear(offset, length);
    world_.note("fallocate %llu: mode %d, %llu bytes at %llu", ull(inode), mode, ull(length), ull(offset));
    const Err got = finish(fs().files.begin_allocate_range(inode, mode, offset, length, {}));
    finish_steps("fallocate", {inode, std::move(after)}, got, Growth::kSome);
    world_.events.add((mode & FALLOC_FL_PUNCH_HOLE) != 0   ? Event::kPunch
                      : (mode & FALLOC_FL_ZERO_RANGE) != 0 ? Event::kZeroRange
                                                           : Event::kAllocate);
}

// What fallocate reserved can be written, however full the volume is.
void Actor::write_reserved()
{
    if (filler_.value == 0)
        return;
    const uint64_t available = fs().statistics().available_blocks * kBlockBytes;
    const InodeNumber inode = some_inode([](const ModelInode& candidate) {
        return candidate.is_file() && candidate.content.size_bytes() == 0;
    });
    if (inode.value == 0 || available < 2 * kBlockBytes || total_bytes(model()) > kTotalBytesMax)
        return;
    const uint64_t blocks = prng().between(1, std::min<uint64_t>(available / kBlockBytes, 64));
    world_.note("reserve %llu blocks for %llu and write them", ull(blocks), ull(inode));
    const Err got = fs().files.allocate_range(inode, FALLOC_FL_KEEP_SIZE, 0, blocks * kBlockBytes).err();
    finish_steps("fallocate", {inode, {}}, got, Growth::kSome);
    if (world_.failed() || world_.power_lost() || got != Err::kOk)
        return;
    std::vector<std::byte> bytes(blocks * kBlockBytes);
    prng().fill(bytes.data(), bytes.size());
    const Result<size_t> written = serve([&] { return fs().files.write(inode, 0, bytes, {}, {}); });
    if (!world_.settle("write into reserved space", written.err(), Err::kOk))
        return;
    world_.events.add(Event::kReservedWrite);
    model().change(inode).content.write(0, bytes);
    note_modified(inode);
}

void Actor::read()
{
    const InodeNumber inode = some_file();
    if (inode.value == 0)
        return;
    const FileContent& content = model().at(inode).content;
    const uint64_t offset = prng().below(content.size_bytes() + 2);
    AlignedBuffer buffer(prng().chance(1, 4) ? 300 * kKiB : 20 * kKiB);
    const std::span<std::byte> out = buffer.span().first(prng().between(1, buffer.size()));
    const uint64_t wanted =
        offset < content.size_bytes() ? std::min<uint64_t>(out.size(), content.size_bytes() - offset) : 0;
    world_.note("read %llu: %zu bytes at %llu", ull(inode), out.size(), ull(offset));
    const Result<size_t> got = fs().files.read(inode, offset, out);
    fs().names.note_access(inode);
    if (!world_.settle("read", got.err(), Err::kOk))
        return;
    world_.events.add(Event::kRead);
    if (*got != wanted)
        world_.violation("read: %zu bytes, expected %llu", *got, ull(wanted));
    else if (!content.holds(offset, out.first(wanted)))
        world_.violation("read: WRONG BYTES in inode %llu", ull(inode));
}

void Actor::step_data()
{
    const uint64_t choice = prng().below(100);
    const bool full = total_bytes(model()) > kTotalBytesMax;
    if (full && choice < 50)
        resize();
    else if (choice < 40)
        write();
    else if (choice < 48)
        append();
    else if (choice < 58)
        resize();
    else if (choice < 70)
        change_range();
    else if (choice < 75)
        write_reserved();
    else
        read();
}

}  // namespace cowraid::test
