// SPDX-License-Identifier: MIT
// Operations of a Runner that read and compare.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/fileops/runner.h"

namespace cowraid::test {

namespace {

const char* name_of(const OpenFile& file)
{
    return file.path.empty() ? "a nameless file" : file.path.c_str();
}

uint64_t block_begin(uint64_t offset)
{
    return offset / kModelBlockBytes * kModelBlockBytes;
}

}  // namespace

void Runner::compare(const OpenFile& file, const char* how, uint64_t offset, std::span<const std::byte> got)
{
    const std::span<const std::byte> expected = file.model.bytes(offset, got.size());
    if (memcmp(expected.data(), got.data(), got.size()) == 0)
        return;
    const auto different = std::mismatch(expected.begin(), expected.end(), got.begin()).first;
    const auto at = static_cast<size_t>(different - expected.begin());
    size_t wrong = 0;
    for (size_t i = at; i < got.size(); ++i)
        wrong += got[i] != expected[i];
    history_.mismatch("%s: %s of 0x%lx+0x%zx differs at 0x%lx: expected 0x%02x, is 0x%02x; "
                      "%zu bytes are wrong (size 0x%lx)\n",
                      name_of(file), how, offset, got.size(), offset + at,
                      std::to_integer<unsigned>(expected[at]), std::to_integer<unsigned>(got[at]), wrong,
                      file.model.size());
}

void Runner::read_buffered()
{
    OpenFile& file = any_file();
    const Range range = pick_inside(file, 256 << 10);
    note(file, "", range.offset, range.count);
    const ssize_t done = pread(file.descriptor(Way::kBuffered, random_), buffer_.data(), range.count,
                               static_cast<off_t>(range.offset));
    if (done != static_cast<ssize_t>(range.count))
        history_.refused("pread", done);
    compare(file, "pread", range.offset, buffer_.span().first(range.count));
}

void Runner::read_direct()
{
    OpenFile& file = any_file();
    const Range range = pick_range(file, 256 << 10, kModelBlockBytes);
    note(file, "", range.offset, range.count);
    const uint64_t size = file.model.size();
    const uint64_t expected = range.offset < size ? std::min(range.count, size - range.offset) : 0;
    const ssize_t done = pread(file.descriptor(Way::kDirect, random_), buffer_.data(), range.count,
                               static_cast<off_t>(range.offset));
    if (done != static_cast<ssize_t>(expected))
        history_.refused("direct pread", done);
    if (expected != 0)
        compare(file, "direct pread", range.offset, buffer_.span().first(expected));
}

void Runner::compare_mapped(OpenFile& file, uint64_t offset, uint64_t count)
{
    const std::span<std::byte> mapping = file.mapping(random_);
    compare(file, "reading through a mapping", offset, mapping.subspan(offset - file.model.base(), count));
}

void Runner::read_mapped()
{
    OpenFile& file = any_file();
    const Range range = pick_inside(file, 256 << 10);
    note(file, "", range.offset, range.count);
    if (range.count != 0)
        compare_mapped(file, range.offset, range.count);
}

void Runner::check_size()
{
    OpenFile& file = any_file();
    struct stat found;
    if (file.path.empty() ? fstat(file.descriptor(Way::kBuffered, random_), &found) != 0
                          : stat(file.path.c_str(), &found) != 0)
        history_.refused("stat", -1);
    if (static_cast<uint64_t>(found.st_size) != file.model.size())
        history_.mismatch("%s: size 0x%lx, expected 0x%lx\n", name_of(file),
                          static_cast<uint64_t>(found.st_size), file.model.size());
    if (found.st_nlink != (file.path.empty() ? 0 : 1))
        history_.mismatch("%s: %lu links\n", name_of(file), static_cast<uint64_t>(found.st_nlink));
}

// SEEK_HOLE and SEEK_DATA say that [begin, end) is a hole.
void Runner::compare_hole(const OpenFile& file, uint64_t begin, uint64_t end)
{
    for (uint64_t at = std::max(begin, file.model.base()); at < end;
         at = block_begin(at) + kModelBlockBytes) {
        if (file.model.has_content_at(at))
            history_.mismatch("%s: data at 0x%lx is said to be in the hole 0x%lx..0x%lx\n", name_of(file), at,
                              begin, end);
    }
}

// They say that it is data.
void Runner::compare_data(const OpenFile& file, uint64_t begin, uint64_t end)
{
    if (!options_.exact_holes)
        return;
    if (begin < file.model.base())
        history_.mismatch("%s: the hole at 0x%lx is said to be data\n", name_of(file), begin);
    for (uint64_t at = begin; at < end; at = block_begin(at) + kModelBlockBytes)
        if (file.model.kind_at(at) == BlockKind::kHole)
            history_.mismatch("%s: the hole at 0x%lx is said to be in the data 0x%lx..0x%lx\n", name_of(file),
                              at, begin, end);
}

// Whether it may be data for one call and a hole for the next one: a flush that compresses makes holes of
// zeros.
bool Runner::became_hole(const OpenFile& file, uint64_t offset)
{
    return !file.model.has_content_at(offset);
}

void Runner::compare_holes(OpenFile& file)
{
    const int fd = file.descriptor(Way::kBuffered, random_);
    const uint64_t size = file.model.size();
    for (uint64_t at = 0; at < size;) {
        const off_t data = lseek(fd, static_cast<off_t>(at), SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            history_.refused("lseek with SEEK_DATA", data);
        const uint64_t begin = data < 0 ? size : static_cast<uint64_t>(data);
        if (begin < at || begin > size)
            history_.mismatch("%s: data after 0x%lx is said to be at 0x%lx (size 0x%lx)\n", name_of(file), at,
                              begin, size);
        compare_hole(file, at, begin);
        if (begin == size)
            return;
        const off_t hole = lseek(fd, data, SEEK_HOLE);
        const auto end = static_cast<uint64_t>(hole);
        if (hole == data && became_hole(file, begin)) {
            at = begin;
            continue;
        }
        if (hole <= data || end > size)
            history_.mismatch("%s: the hole after 0x%lx is said to be at 0x%lx (size 0x%lx)\n", name_of(file),
                              begin, end, size);
        compare_data(file, begin, end);
        at = end;
    }
}

// From one place on.
void Runner::check_holes()
{
    OpenFile& file = any_file();
    const Range range = pick_inside(file, 1);
    note(file, "", range.offset, 0);
    if (range.count == 0 || random_.chance(1, 10))
        return compare_holes(file);
    const int fd = file.descriptor(Way::kBuffered, random_);
    const off_t from = static_cast<off_t>(range.offset);
    const uint64_t size = file.model.size();
    const off_t data = lseek(fd, from, SEEK_DATA);
    if (data < 0 && errno != ENXIO)
        history_.refused("lseek with SEEK_DATA", data);
    const off_t hole = lseek(fd, from, SEEK_HOLE);
    if (hole < from || static_cast<uint64_t>(hole) > size)
        history_.refused("lseek with SEEK_HOLE", hole);
    if ((data == from) == (hole == from) && !became_hole(file, range.offset))
        history_.mismatch("%s: at 0x%lx are both data and a hole, or neither\n", name_of(file), range.offset);
    compare_hole(file, range.offset, data < 0 ? size : static_cast<uint64_t>(data));
    compare_data(file, range.offset, static_cast<uint64_t>(hole));
}

void Runner::compare_through(OpenFile& file, Way way)
{
    const uint64_t base = file.model.base();
    const uint64_t size = file.model.bytes().size();
    // One byte more would be one too many.
    const ssize_t done =
        pread(file.descriptor(way, random_), buffer_.data(), buffer_.size(), static_cast<off_t>(base));
    if (done != static_cast<ssize_t>(size))
        history_.refused(way == Way::kDirect ? "direct pread of all" : "pread of all", done);
    compare(file, way == Way::kDirect ? "direct pread" : "pread", base, buffer_.span().first(size));
}

void Runner::compare_file()
{
    OpenFile& file = any_file();
    const uint64_t way = random_.below(3);
    note(file, way == 0 ? "buffered" : way == 1 ? "direct" : "mapped", 0, file.model.size());
    if (way < 2)
        return compare_through(file, static_cast<Way>(way));
    if (!file.model.bytes().empty())
        compare_mapped(file, file.model.base(), file.model.bytes().size());
}

void Runner::compare_all()
{
    for (const std::unique_ptr<OpenFile>& file : files_) {
        compare_holes(*file);
        compare_through(*file, Way::kBuffered);
        compare_through(*file, Way::kDirect);
        if (!file->model.bytes().empty())
            compare_mapped(*file, file->model.base(), file->model.bytes().size());
    }
}

}  // namespace cowraid::test
