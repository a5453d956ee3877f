// SPDX-License-Identifier: MIT
#include "device/file_device.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "device/late_io.h"
#include "device/ring.h"
#include "device/signature.h"

namespace cowraid {

namespace {

constexpr size_t kMaxVectors = 1024;  // IOV_MAX

// Vectors left of a transfer, and how far it got.
struct Cursor {
    std::vector<iovec> vectors;
    size_t first = 0;
    uint64_t offset = 0;

    [[nodiscard]] bool done() const { return first == vectors.size(); }
    void consume(uint64_t bytes)
    {
        offset += bytes;
        while (!done() && bytes >= vectors[first].iov_len)
            bytes -= vectors[first++].iov_len;
        if (bytes > 0) {
            vectors[first].iov_base = static_cast<std::byte*>(vectors[first].iov_base) + bytes;
            vectors[first].iov_len -= bytes;
        }
    }
};

// In whole blocks.
Result<uint64_t> size_of(int fd, bool is_block_device)
{
    uint64_t size = 0;
    struct stat info;
    if (is_block_device ? ioctl(fd, BLKGETSIZE64, &size) != 0 : fstat(fd, &info) != 0)
        return Err::kIo;
    return round_down(is_block_device ? size : static_cast<uint64_t>(info.st_size), kBlockBytes);
}

// Of files it is not known what they lie on.
bool is_rotational(int fd)
{
    unsigned short rotational = 1;
    return ioctl(fd, BLKROTATIONAL, &rotational) != 0 || rotational != 0;
}

// Whether the queue of a block device takes discards. One of which that cannot be read is asked.
bool queue_discards(dev_t number)
{
    const std::string device =
        "/sys/dev/block/" + std::to_string(major(number)) + ":" + std::to_string(minor(number));
    for (const char* queue : {"/queue", "/../queue"}) {  // a partition has that of its disk
        const UniqueFd fd(open((device + queue + "/discard_max_bytes").c_str(), O_RDONLY | O_CLOEXEC));
        char digit = '0';
        if (fd.valid() && read(fd.get(), &digit, 1) == 1)
            return digit != '0';
    }
    return true;
}

}  // namespace

Result<std::unique_ptr<FileDevice>> FileDevice::adopt(UniqueFd fd, std::string name)
{
    struct stat info;
    if (fstat(fd.get(), &info) != 0)
        return Err::kIo;
    if (!S_ISBLK(info.st_mode) && !S_ISREG(info.st_mode))
        return Err::kInvalid;
    std::unique_ptr<FileDevice> device(new FileDevice);
    device->is_block_device_ = S_ISBLK(info.st_mode);
    CW_ASSIGN(const uint64_t size, size_of(fd.get(), device->is_block_device_));
    device->rotational_ = is_rotational(fd.get());
    if (device->is_block_device_)
        device->discards_ = queue_discards(info.st_rdev);
    struct statfs filesystem;
    device->on_fuse_ = fstatfs(fd.get(), &filesystem) == 0 && filesystem.f_type == FUSE_SUPER_MAGIC;
    device->buffered_ = reopen_buffered(fd.get(), O_RDONLY);
    device->fd_ = std::move(fd);
    device->name_ = std::move(name);
    device->size_bytes_ = size;
    return device;
}

FileDevice::~FileDevice()
{
    wait_for_late_io(*this);
    ring_forget_file(fd_.get());
}

uint64_t FileDevice::look_at_size()
{
    const auto size = size_of(fd_.get(), is_block_device_);
    if (!size.ok())
        return size_bytes();
    if (*size > size_bytes())
        size_bytes_.store(*size, std::memory_order_relaxed);
    return *size;
}

Result<std::string> FileDevice::foreign_content(ContentArea area) const
{
    if (!buffered_.valid())
        return Err::kAccess;
    return probe_buffered(buffered_.get(), area);
}

void FileDevice::perform(IoRequest& request)
{
    request.result = Err::kOk;
    const uint64_t bytes = request.kind == IoKind::kDiscard ? request.discard_bytes : request.bytes();
    const bool ranged = request.kind != IoKind::kFlush;
    const uint64_t size = size_bytes();
    if (ranged && (bytes > size || request.offset.value > size - bytes)) {
        request.result = Err::kIo;
        return;
    }
    switch (request.kind) {
    case IoKind::kRead:
    case IoKind::kWrite:
        transfer(request);
        break;
    case IoKind::kFlush:
        flush(request);
        break;
    case IoKind::kDiscard:
        discard(request);
        break;
    }
}

void FileDevice::transfer(IoRequest& request)
{
    Cursor cursor{{request.vectors.begin(), request.vectors.end()}, 0, request.offset.value};
    cursor.consume(0);
    const bool durable = request.durable && durable_in_ring();
    uint32_t retries = 0;
    while (!cursor.done()) {
        const iovec* vectors = cursor.vectors.data() + cursor.first;
        const auto count = static_cast<int>(std::min(cursor.vectors.size() - cursor.first, kMaxVectors));
        const auto offset = static_cast<off_t>(cursor.offset);
        const ssize_t moved = request.kind == IoKind::kRead
                                  ? preadv(fd_.get(), vectors, count, offset)
                                  : pwritev2(fd_.get(), vectors, count, offset, durable ? RWF_DSYNC : 0);
        if (moved < 0 && (errno == EINTR || errno == EAGAIN) && ++retries <= kMaxRetries)
            continue;
        if (moved <= 0) {
            // 0 is the end of a file that was shortened, or a write that does not get ahead.
            request.result = device_error(moved < 0 ? errno : EIO);
            return;
        }
        cursor.consume(static_cast<uint64_t>(moved));
    }
    if (request.durable && !durable)
        flush(request);
}

// Never repeated: the kernel forgets a failure once it has reported it.
void FileDevice::flush(IoRequest& request)
{
    if (fdatasync(fd_.get()) != 0)
        request.result = device_error(errno);
}

// A hint: a device or filesystem that cannot do it has done nothing wrong.
void FileDevice::discard(IoRequest& request)
{
    int result;
    if (is_block_device_) {
        uint64_t range[2] = {request.offset.value, request.discard_bytes};
        result = ioctl(fd_.get(), BLKDISCARD, range);
    } else {
        result =
            fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(request.offset.value), static_cast<off_t>(request.discard_bytes));
    }
    if (result == 0)
        return;
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == ENOTTY || errno == EINVAL)
        discards_.store(false, std::memory_order_relaxed);
    else
        request.result = device_error(errno);
}

}  // namespace cowraid
