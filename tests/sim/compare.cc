// SPDX-License-Identifier: MIT
#include "tests/sim/compare.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <set>

#include "base/buffer.h"
#include "format/items.h"

namespace cowraid::test {

namespace {

constexpr size_t kReadBytes = 256 * kKiB;

[[gnu::format(printf, 1, 2)]] std::string difference(const char* format, ...)
{
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

struct Listed {
    std::string name;
    InodeNumber inode;
    uint32_t type;
};

// Collects entries, a few per call.
class Collector final : public DirectorySink {
public:
    explicit Collector(Filesystem& fs) : fs_(fs) { }
    void start_call(size_t entry_count_max) { left_ = entry_count_max; }
    bool entry(std::string_view name, InodeNumber inode, uint32_t mode_type, uint64_t next_cursor,
               const Attributes* attributes) override
    {
        if (left_ == 0)
            return false;
        --left_;
        cursor = next_cursor;
        entries.push_back({std::string(name), inode, mode_type});
        if (attributes != nullptr && name != "." && name != "..")
            fs_.names.forget(inode, 1);
        return true;
    }
    uint64_t cursor = 0;
    std::vector<Listed> entries;

private:
    Filesystem& fs_;
    size_t left_ = 0;
};

std::string list(Filesystem& fs, Prng& prng, InodeNumber directory, std::vector<Listed>& entries)
{
    Collector collector(fs);
    const size_t per_call = prng.between(1, 60);
    const Names::ReadDirectory how{.with_attributes = prng.chance(1, 2)};
    for (size_t before = SIZE_MAX; before != collector.entries.size();) {
        before = collector.entries.size();
        collector.start_call(per_call);
        const Status status = fs.names.read_directory(directory, collector.cursor, how, collector);
        if (!status.ok())
            return difference("directory %llu cannot be read: %s", ull(directory.value),
                              err_text(status.err()));
    }
    entries = std::move(collector.entries);
    return {};
}

std::string compare_attributes(const Attributes& got, const ModelInode& expected)
{
    const unsigned long long number = got.inode.value;
    if (got.mode != expected.mode)
        return difference("inode %llu: mode %o, expected %o", number, got.mode, expected.mode);
    if (got.uid != expected.uid || got.gid != expected.gid)
        return difference("inode %llu: owner %u:%u, expected %u:%u", number, got.uid, got.gid, expected.uid,
                          expected.gid);
    if (got.link_count != expected.links)
        return difference("inode %llu: %u links, expected %u", number, got.link_count, expected.links);
    if (got.size_bytes != expected.size_bytes())
        return difference("inode %llu: size %llu, expected %llu", number, ull(got.size_bytes),
                          ull(expected.size_bytes()));
    if (got.rdev != expected.rdev)
        return difference("inode %llu: device number %llu, expected %llu", number, ull(got.rdev),
                          ull(expected.rdev));
    if (expected.is_file() && (got.modified.tv_sec != expected.modified.tv_sec ||
                               got.modified.tv_nsec != expected.modified.tv_nsec))
        return difference("inode %llu: modified at %lld, expected %lld", number,
                          static_cast<long long>(got.modified.tv_sec),
                          static_cast<long long>(expected.modified.tv_sec));
    return {};
}

std::string compare_content(Filesystem& fs, Prng& prng, InodeNumber number, const FileContent& expected)
{
    AlignedBuffer buffer(kReadBytes);
    const size_t piece = prng.chance(1, 3) ? prng.between(1, kReadBytes) : kReadBytes;
    for (uint64_t offset = 0; offset < expected.size_bytes();) {
        const Result<size_t> got = fs.files.read(number, offset, buffer.span().first(piece));
        const size_t wanted = std::min<uint64_t>(piece, expected.size_bytes() - offset);
        if (!got.ok())
            return difference("inode %llu: reading %zu bytes at %llu: %s", ull(number.value), piece,
                              ull(offset), err_text(got.err()));
        if (*got != wanted)
            return difference("inode %llu: %zu bytes read at %llu, expected %zu", ull(number.value), *got,
                              ull(offset), wanted);
        if (!expected.holds(offset, buffer.span().first(wanted)))
            return difference("inode %llu: WRONG BYTES somewhere in %zu bytes at %llu", ull(number.value),
                              wanted, ull(offset));
        offset += wanted;
    }
    return {};
}

std::string compare_xattrs(Filesystem& fs, InodeNumber number, const ModelInode& expected)
{
    const Result<std::string> listed = fs.names.list_xattrs(number);
    if (!listed.ok())
        return difference("inode %llu: listing attributes: %s", ull(number.value), err_text(listed.err()));
    std::multiset<std::string> names;
    for (size_t at = 0; at < listed->size(); at = listed->find('\0', at) + 1)
        names.insert(listed->c_str() + at);
    if (names.size() != expected.xattrs.size())
        return difference("inode %llu: %zu extended attributes, expected %zu", ull(number.value),
                          names.size(), expected.xattrs.size());
    for (const auto& [name, value] : expected.xattrs) {
        const Result<std::vector<std::byte>> got = fs.names.get_xattr(number, name);
        if (!got.ok() || names.count(name) != 1)
            return difference("inode %llu: attribute %s: %s", ull(number.value), name.c_str(),
                              err_text(got.err()));
        if (got->size() != value.size() ||
            (!value.empty() && std::memcmp(got->data(), value.data(), value.size()) != 0))
            return difference("inode %llu: attribute %s has another value", ull(number.value), name.c_str());
    }
    return {};
}

std::string compare_stored(Filesystem& fs, Prng& prng, const Attributes& got, const ModelInode& expected)
{
    std::string why = compare_attributes(got, expected);
    if (why.empty() && expected.is_file())
        why = compare_content(fs, prng, got.inode, expected.content);
    if (why.empty() && expected.is_symlink()) {
        const Result<std::string> target = fs.names.read_symlink(got.inode);
        if (!target.ok() || *target != expected.target)
            why = difference("inode %llu: symbolic link: %s", ull(got.inode.value), err_text(target.err()));
    }
    return why.empty() ? compare_xattrs(fs, got.inode, expected) : why;
}

class TreeComparison {
public:
    TreeComparison(Filesystem& fs, Prng& prng, Model& model, const std::optional<HalfChanged>& half_changed)
        : fs_(fs), prng_(prng), model_(model), half_changed_(half_changed)
    {
    }
    std::string run();

private:
    std::string entry(InodeNumber directory, const Listed& listed);
    std::string directory(InodeNumber number);

    Filesystem& fs_;
    Prng& prng_;
    Model& model_;
    const std::optional<HalfChanged>& half_changed_;
    std::vector<InodeNumber> to_visit_;
    std::set<uint64_t> visited_;
};

std::string TreeComparison::entry(InodeNumber directory, const Listed& listed)
{
    const InodeNumber expected = model_.child(directory, listed.name);
    if (expected.value == 0)
        return difference("directory %llu: unexpected name %.40s", ull(directory.value), listed.name.c_str());
    const Result<Attributes> found = fs_.names.lookup(directory, listed.name);
    if (!found.ok())
        return difference("directory %llu: name %.40s: %s", ull(directory.value), listed.name.c_str(),
                          err_text(found.err()));
    fs_.names.forget(found->inode, 1);
    if (found->inode != expected || listed.inode != expected)
        return difference("directory %llu: name %.40s means %llu (listed %llu), expected %llu",
                          ull(directory.value), listed.name.c_str(), ull(found->inode.value),
                          ull(listed.inode.value), ull(expected.value));
    const ModelInode& inode = model_.at(expected);
    if (listed.type != (inode.mode & S_IFMT))
        return difference("directory %llu: name %.40s has another type", ull(directory.value),
                          listed.name.c_str());
    if (!visited_.insert(expected.value).second)
        return {};
    if (inode.is_directory())
        to_visit_.push_back(expected);
    if (half_changed_ && half_changed_->inode == expected) {
        std::string why = adopt_file(fs_, model_, *half_changed_);
        if (!why.empty())
            return why;
    }
    return compare_stored(fs_, prng_, *found, model_.at(expected));
}

std::string TreeComparison::directory(InodeNumber number)
{
    std::vector<Listed> entries;
    std::string why = list(fs_, prng_, number, entries);
    if (!why.empty())
        return why;
    std::set<std::string> names;
    for (const Listed& listed : entries) {
        if (!names.insert(listed.name).second)
            return difference("directory %llu: name %.40s is listed twice", ull(number.value),
                              listed.name.c_str());
        if (listed.name == ".." && listed.inode != model_.at(number).parent)
            return difference("directory %llu: its parent is %llu", ull(number.value),
                              ull(listed.inode.value));
        if (listed.name == "." || listed.name == "..")
            continue;
        why = entry(number, listed);
        if (!why.empty())
            return why;
    }
    const size_t expected = model_.at(number).children.size() + 2;
    if (names.size() != expected)
        return difference("directory %llu: %zu names, expected %zu", ull(number.value), names.size(),
                          expected);
    return {};
}

std::string TreeComparison::run()
{
    const Result<Attributes> root = fs_.names.get_attributes({kRootInode});
    if (!root.ok())
        return difference("the root directory: %s", err_text(root.err()));
    std::string why = compare_stored(fs_, prng_, *root, model_.at({kRootInode}));
    to_visit_.push_back({kRootInode});
    while (why.empty() && !to_visit_.empty()) {
        const InodeNumber next = to_visit_.back();
        to_visit_.pop_back();
        why = directory(next);
    }
    return why;
}

}  // namespace

std::string compare_tree(Filesystem& fs, Prng& prng, Model& model,
                         const std::optional<HalfChanged>& half_changed)
{
    return TreeComparison(fs, prng, model, half_changed).run();
}

std::string compare_inode(Filesystem& fs, Prng& prng, InodeNumber number, const ModelInode& expected)
{
    const Result<Attributes> got = fs.names.get_attributes(number);
    if (!got.ok())
        return difference("inode %llu: no attributes: %s", ull(number.value), err_text(got.err()));
    return compare_stored(fs, prng, *got, expected);
}

std::string adopt_file(Filesystem& fs, Model& model, const HalfChanged& half_changed)
{
    const InodeNumber number = half_changed.inode;
    const Result<Attributes> attributes = fs.names.get_attributes(number);
    if (!attributes.ok())
        return difference("inode %llu: no attributes: %s", ull(number.value), err_text(attributes.err()));
    const uint64_t size = attributes->size_bytes;
    const FileContent& before = model.at(number).content;
    const auto [least, most] = std::minmax({before.size_bytes(), half_changed.after.size_bytes()});
    if (size < least || size > most)
        return difference("inode %llu: size %llu, expected %llu to %llu", ull(number.value), ull(size),
                          ull(least), ull(most));
    std::vector<std::byte> got(size), old(size), fresh(size);
    const Result<size_t> read = fs.files.read(number, 0, got);
    if (!read.ok() || *read != size)
        return difference("inode %llu: reading: %s", ull(number.value), err_text(read.err()));
    before.read(0, old);
    half_changed.after.read(0, fresh);
    for (size_t i = 0; i < size; ++i)
        if (got[i] != old[i] && got[i] != fresh[i] && got[i] != std::byte{0})
            return difference("inode %llu: WRONG BYTE at %zu", ull(number.value), i);
    ModelInode& inode = model.change(number);
    inode.content.resize(0);
    inode.content.write(0, got);
    inode.modified = attributes->modified;
    if (attributes->mode == (inode.mode & ~half_changed.cleared_mode_bits))
        inode.mode = attributes->mode;
    return {};
}

}  // namespace cowraid::test
