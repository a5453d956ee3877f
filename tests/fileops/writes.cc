// SPDX-License-Identifier: MIT
// Operations of a Runner that change content.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/fileops/runner.h"

namespace cowraid::test {

namespace {

off_t file_offset(uint64_t offset)
{
    return static_cast<off_t>(offset);
}

}  // namespace

void Runner::write_buffered()
{
    OpenFile& file = any_file();
    const Range range = pick_range(file, 256 << 10);
    const std::span<const std::byte> data = pick_content(range.count);
    note(file, "", range.offset, range.count);
    const int fd = file.descriptor(Way::kBuffered, random_);
    const ssize_t done = pwrite(fd, data.data(), data.size(), file_offset(range.offset));
    if (done != static_cast<ssize_t>(data.size()))
        history_.refused("pwrite", done);
    if (!forgets())
        file.model.write(range.offset, data);
}

void Runner::write_direct()
{
    OpenFile& file = any_file();
    const Range range = pick_range(file, 512 << 10, kModelBlockBytes);
    const std::span<const std::byte> data = pick_content(range.count);
    memcpy(buffer_.data(), data.data(), data.size());
    note(file, "", range.offset, range.count);
    const int fd = file.descriptor(Way::kDirect, random_);
    const ssize_t done = pwrite(fd, buffer_.data(), data.size(), file_offset(range.offset));
    if (done != static_cast<ssize_t>(data.size()))
        history_.refused("direct pwrite", done);
    if (!forgets())
        file.model.write(range.offset, data);
}

void Runner::write_mapped()
{
    OpenFile& file = any_file();
    const Range range = pick_inside(file, 64 << 10);
    if (range.count == 0)
        return;
    const std::span<const std::byte> data = pick_content(range.count);
    note(file, "", range.offset, range.count);
    const std::span<std::byte> mapping = file.mapping(random_);
    memcpy(&mapping[range.offset - file.model.base()], data.data(), data.size());
    if (random_.chance(1, 100) && msync(mapping.data(), mapping.size(), MS_SYNC) != 0)
        history_.refused("msync", -1);
    if (!forgets())
        file.model.write(range.offset, data);
}

// Of several pieces; durable when it returns, once in a while.
void Runner::write_vector()
{
    OpenFile& file = any_file();
    const Range range = pick_range(file, 64 << 10);
    std::array<std::span<const std::byte>, 4> pieces;
    std::array<iovec, 4> vectors;
    uint64_t left = range.count;
    for (size_t i = 0; i < pieces.size(); ++i) {
        const uint64_t count = i + 1 == pieces.size() ? left : random_.below(left + 1);
        pieces[i] = pick_content(count);
        vectors[i] = {const_cast<std::byte*>(pieces[i].data()), count};
        left -= count;
    }
    const int flags = random_.chance(1, 40) ? RWF_DSYNC : 0;
    note(file, flags != 0 ? "dsync" : "", range.offset, range.count);
    const ssize_t done = pwritev2(file.descriptor(Way::kBuffered, random_), vectors.data(), vectors.size(),
                                  file_offset(range.offset), flags);
    if (done != static_cast<ssize_t>(range.count))
        history_.refused("pwritev2", done);
    if (forgets())
        return;
    uint64_t offset = range.offset;
    for (const std::span<const std::byte> piece : pieces) {
        file.model.write(offset, piece);
        offset += piece.size();
    }
}

void Runner::append()
{
    OpenFile& file = any_file();
    const uint64_t size = file.model.size();
    const uint64_t count = std::min(file.model.limit() - size, pick_range(file, 64 << 10).count);
    const std::span<const std::byte> data = pick_content(count);
    note(file, "", size, count);
    const ssize_t done = ::write(file.descriptor(Way::kAppend, random_), data.data(), data.size());
    if (done != static_cast<ssize_t>(data.size()))
        history_.refused("append", done);
    if (!forgets())
        file.model.write(size, data);
}

void Runner::punch()
{
    OpenFile& file = any_file();
    const Range range = pick_range(file, kModelBytesMax);
    note(file, "", range.offset, range.count);
    if (fallocate(file.descriptor(Way::kBuffered, random_), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  file_offset(range.offset), file_offset(range.count)) != 0)
        history_.refused("fallocate to punch", -1);
    if (!forgets())
        file.model.punch(range.offset, range.count);
}

void Runner::zero_range()
{
    OpenFile& file = any_file();
    const Range range = pick_range(file, kModelBytesMax);
    const bool keeps_size = random_.chance(1, 2);
    note(file, keeps_size ? "keep size" : "", range.offset, range.count);
    if (fallocate(file.descriptor(Way::kBuffered, random_),
                  FALLOC_FL_ZERO_RANGE | (keeps_size ? FALLOC_FL_KEEP_SIZE : 0), file_offset(range.offset),
                  file_offset(range.count)) != 0)
        history_.refused("fallocate to zero", -1);
    if (forgets())
        return;
    file.model.punch(range.offset, range.count);
    if (!keeps_size && range.offset + range.count > file.model.size())
        file.model.resize(range.offset + range.count);
}

void Runner::allocate()
{
    OpenFile& file = any_file();
    const Range range = pick_range(file, kModelBytesMax);
    const bool keeps_size = random_.chance(1, 2);
    note(file, keeps_size ? "keep size" : "", range.offset, range.count);
    if (fallocate(file.descriptor(Way::kBuffered, random_), keeps_size ? FALLOC_FL_KEEP_SIZE : 0,
                  file_offset(range.offset), file_offset(range.count)) != 0)
        history_.refused("fallocate", -1);
    // Those that change nothing cannot be forgotten.
    if (!keeps_size && range.offset + range.count > file.model.size() && !forgets())
        file.model.resize(range.offset + range.count);
}

void Runner::truncate()
{
    OpenFile& file = any_file();
    uint64_t size = pick_range(file, 1).offset + random_.below(2);
    if (random_.chance(1, 30))
        size = file.model.base();
    note(file, "", size, 0);
    const bool by_path = !file.path.empty() && random_.chance(1, 3);
    if (by_path && size == 0) {
        const UniqueFd fd(open(file.path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
        if (!fd.valid())
            history_.refused("open with O_TRUNC", -1);
    } else if (by_path ? ::truncate(file.path.c_str(), file_offset(size)) != 0
                       : ftruncate(file.descriptor(Way::kBuffered, random_), file_offset(size)) != 0) {
        history_.refused("truncate", -1);
    }
    if (!forgets())
        file.model.resize(std::min(size, file.model.limit()));
}

void Runner::copy_range()
{
    OpenFile& source = any_file();
    OpenFile& target = any_file();
    const Range from = pick_inside(source, 512 << 10);
    const uint64_t unit = random_.chance(1, 2) ? kModelBlockBytes : 1;
    const uint64_t to = pick_range(target, 1, unit).offset;
    const uint64_t count = std::min(from.count, target.model.limit() - to);
    if (&source == &target && from.offset < to + count && to < from.offset + count)
        return;
    note(source, "from", from.offset, count);
    note(target, "to", to, count);
    const int in = source.descriptor(Way::kBuffered, random_);
    for (uint64_t done = 0; done < count;) {
        off64_t in_offset = file_offset(from.offset + done);
        off64_t out_offset = file_offset(to + done);
        const ssize_t copied = copy_file_range(in, &in_offset, target.descriptor(Way::kBuffered, random_),
                                               &out_offset, count - done, 0);
        if (copied <= 0)
            history_.refused("copy_file_range", copied);
        done += static_cast<uint64_t>(copied);
    }
    if (count != 0 && !forgets())
        target.model.copy_in(to, source.model.bytes(from.offset, count));
}

}  // namespace cowraid::test
