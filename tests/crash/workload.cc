// SPDX-License-Identifier: MIT
#include "tests/crash/workload.h"

#include <sys/stat.h>

#include <cstring>

#include "base/checksum.h"
#include "format/items.h"
#include "tests/support/bytes.h"
#include "tests/support/name_sink.h"

namespace cowraid::test {

namespace {

constexpr InodeNumber kRoot{kRootInode};
constexpr uint64_t kNames = 12;
constexpr uint64_t kMaxFileBytes = 200 * kKiB;

// Files are summed up piece by piece: fresh memory for a large one would cost more than reading it.
constexpr size_t kPieceBytes = 1 * kMiB;

Checksum next_sum(Checksum sum, std::span<const std::byte> piece)
{
    const Checksum both[] = {sum, checksum_of(piece)};
    return checksum_of(both, sizeof both);
}

}  // namespace

void Workload::use(Filesystem& fs)
{
    fs_ = &fs;
    commits_ = fs.info().commits;
}

void Workload::note_commit()
{
    const uint64_t commits = fs_->info().commits;
    if (commits != commits_)
        watcher_.committed_by_operation(state());
    commits_ = commits;
}

std::string Workload::random_name()
{
    return "file" + std::to_string(prng_.below(kNames));
}

Status Workload::write()
{
    const std::string name = random_name();
    Result<Attributes> found = fs_->names.lookup(kRoot, name);
    if (found.err() == Err::kNotFound)
        found = fs_->names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
    CW_TRY(found.status());
    note_commit();
    std::vector<std::byte>& content = files_[name];
    const uint64_t offset = prng_.below(content.size() + 1);
    std::vector<std::byte> data(1 + prng_.below(prng_.chance(1, 5) ? 90000 : 6000));
    if (text_ && prng_.chance(3, 4))
        fill_text(prng_, data);
    else
        prng_.fill(data.data(), data.size());
    if (offset + data.size() <= kMaxFileBytes) {
        CW_TRY(fs_->files.write(found->inode, offset, data, {}, {}));
        note_commit();
        content.resize(std::max<size_t>(content.size(), offset + data.size()));
        std::memcpy(content.data() + offset, data.data(), data.size());
    } else {
        SetAttributes change;
        change.size_bytes = prng_.below(content.size() + 1);
        CW_TRY(fs_->names.set_attributes(found->inode, change, {}));
        note_commit();
        content.resize(*change.size_bytes);
    }
    fs_->names.forget(found->inode, 1);
    return {};
}

Status Workload::remove()
{
    const std::string name = random_name();
    const Status status = fs_->names.unlink(kRoot, name);
    note_commit();
    const bool was_there = files_.erase(name) == 1;
    if (status.ok() == was_there)
        return {};
    return status.ok() ? Status(Err::kExists) : status;
}

Status Workload::rename()
{
    const std::string from = random_name();
    const std::string to = random_name();
    if (from == to || files_.find(from) == files_.end())
        return {};
    CW_TRY(fs_->names.rename(kRoot, from, kRoot, to, 0));
    note_commit();
    files_[to] = std::move(files_[from]);
    files_.erase(from);
    return {};
}

Status Workload::change()
{
    for (uint64_t count = 1 + prng_.below(6); count > 0; --count) {
        const uint64_t kind = prng_.below(10);
        if (kind < 7)
            CW_TRY(write());
        else if (kind < 9)
            CW_TRY(remove());
        else
            CW_TRY(rename());
    }
    return {};
}

Status Workload::grow(size_t bytes)
{
    CW_ASSIGN(const Attributes made, fs_->names.make_node(kRoot, "big", S_IFREG | 0644, 0, {}));
    note_commit();
    std::vector<std::byte>& content = files_["big"];
    for (size_t done = 0; done < bytes; done += kMiB) {
        const std::vector<std::byte> part(std::min<size_t>(kMiB, bytes - done),
                                          static_cast<std::byte>(done / kMiB + 1));
        CW_TRY(fs_->files.write(made.inode, done, part, {}, {}));
        note_commit();
        content.insert(content.end(), part.begin(), part.end());
    }
    fs_->names.forget(made.inode, 1);
    return {};
}

Status Workload::shrink()
{
    CW_TRY(fs_->names.unlink(kRoot, "big"));
    note_commit();
    files_.erase("big");
    return {};
}

DirectoryState Workload::state() const
{
    DirectoryState state;
    for (const auto& [name, content] : files_) {
        Checksum sum = 0;
        for (size_t at = 0; at < content.size(); at += kPieceBytes)
            sum = next_sum(sum, std::span(content).subspan(at, std::min(kPieceBytes, content.size() - at)));
        state[name] = {content.size(), sum};
    }
    return state;
}

namespace {

// False: it cannot be read, or ends early.
bool sum_file(Filesystem& fs, InodeNumber inode, uint64_t size, Checksum& sum)
{
    static std::vector<std::byte> piece(kPieceBytes);
    for (uint64_t at = 0; at < size; at += kPieceBytes) {
        const std::span<std::byte> part = std::span(piece).first(std::min<uint64_t>(kPieceBytes, size - at));
        const Result<size_t> got = fs.files.read(inode, at, part);
        if (!got.ok() || *got != part.size())
            return false;
        sum = next_sum(sum, part);
    }
    return true;
}

}  // namespace

bool read_state(Filesystem& fs, DirectoryState& out, std::string& why)
{
    NameSink sink;
    if (!fs.names.read_directory(kRoot, 0, {}, sink).ok()) {
        why = "the root directory cannot be read";
        return false;
    }
    for (const auto& [name, inode] : sink.names) {
        const Result<Attributes> attributes = fs.names.get_attributes(inode);
        if (!attributes.ok()) {
            why = name + ": no attributes: " + err_text(attributes.err());
            return false;
        }
        Checksum sum = 0;
        if (!sum_file(fs, inode, attributes->size_bytes, sum)) {
            why = name + ": cannot be read";
            return false;
        }
        out[name] = {attributes->size_bytes, sum};
    }
    return true;
}

}  // namespace cowraid::test
