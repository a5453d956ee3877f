// SPDX-License-Identifier: MIT
// What the tests of this folder share: temporary files, loop devices, patterns.
#pragma once

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/random.h"
#include "base/unique_fd.h"
#include "device/block_device.h"
#include "tests/support/bytes.h"

namespace cowraid::test {

// A directory in memory that goes away with everything in it.
class TempDir {
public:
    TempDir()
    {
        char path[] = "/dev/shm/cw-device-XXXXXX";
        CW_ASSERT(mkdtemp(path) != nullptr);
        path_ = path;
    }
    ~TempDir()
    {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;

    [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }
    // A sparse file of zeros.
    std::string file(const std::string& name, uint64_t bytes) const
    {
        const UniqueFd fd(open(path(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        CW_ASSERT(fd.valid() && ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
        return path(name);
    }

private:
    std::string path_;
};

// A loop device over a file, detached at the end; name() is empty where the machine allows none.
class LoopDevice {
public:
    // `bytes` from `offset` on; 0: to the end.
    explicit LoopDevice(const std::string& file, uint64_t offset = 0, uint64_t bytes = 0)
    {
        const UniqueFd control(open("/dev/loop-control", O_RDWR | O_CLOEXEC));
        const UniqueFd backing(open(file.c_str(), O_RDWR | O_CLOEXEC));
        for (int attempt = 0; control.valid() && backing.valid() && attempt < 10; ++attempt) {
            const int number = ioctl(control.get(), LOOP_CTL_GET_FREE);
            const std::string name = "/dev/loop" + std::to_string(number);
            UniqueFd fd(open(name.c_str(), O_RDWR | O_CLOEXEC));
            loop_config config{};
            config.fd = static_cast<uint32_t>(backing.get());
            config.info.lo_flags = LO_FLAGS_DIRECT_IO;
            config.info.lo_offset = offset;
            config.info.lo_sizelimit = bytes;
            // Another process may have taken it meanwhile: then the next one.
            if (number < 0 || !fd.valid() || ioctl(fd.get(), LOOP_CONFIGURE, &config) != 0)
                continue;
            name_ = name;
            break;
        }
    }
    ~LoopDevice()
    {
        if (name_.empty())
            return;
        const UniqueFd fd(open(name_.c_str(), O_RDWR | O_CLOEXEC));
        ioctl(fd.get(), LOOP_CLR_FD);
    }
    LoopDevice(const LoopDevice&) = delete;
    LoopDevice& operator=(const LoopDevice&) = delete;

    [[nodiscard]] const std::string& name() const { return name_; }

private:
    std::string name_;
};

inline AlignedBuffer random_buffer(Prng& prng, size_t bytes)
{
    AlignedBuffer buffer(bytes);
    prng.fill(buffer.data(), bytes);
    return buffer;
}

// One request through run_io().
inline Status transfer(BlockDevice& device, IoKind kind, uint64_t offset, std::span<std::byte> memory,
                       bool durable = false)
{
    const iovec vector{memory.data(), memory.size()};
    IoRequest request{
        .kind = kind, .device = &device, .offset = {offset}, .vectors = {&vector, 1}, .durable = durable};
    run_io({&request, 1});
    return request.result;
}

inline Status write(BlockDevice& device, uint64_t offset, AlignedBuffer& buffer)
{
    return transfer(device, IoKind::kWrite, offset, buffer.span());
}

inline Status write_durable(BlockDevice& device, uint64_t offset, AlignedBuffer& buffer)
{
    return transfer(device, IoKind::kWrite, offset, buffer.span(), true);
}

inline Status read(BlockDevice& device, uint64_t offset, AlignedBuffer& buffer)
{
    return transfer(device, IoKind::kRead, offset, buffer.span());
}

inline Status flush(BlockDevice& device)
{
    IoRequest request{.kind = IoKind::kFlush, .device = &device};
    run_io({&request, 1});
    return request.result;
}

}  // namespace cowraid::test
