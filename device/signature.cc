// SPDX-License-Identifier: MIT
#include "device/signature.h"

#include <blkid/blkid.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

#include "base/le.h"
#include "base/unique_fd.h"
#include "format/superblock.h"

namespace cowraid {

namespace {

// More signatures than any device carries; ends the loop if one cannot be made to vanish.
constexpr int kMaxSignatures = 256;
constexpr uint64_t kHeadBytes = kMiB;

uint64_t slot_offset(uint32_t ring, uint32_t slot)
{
    return kSuperblockRingOffset[ring] + uint64_t{slot} * kSuperblockSlotBytes;
}

bool slot_has_magic(int fd, uint32_t ring, uint32_t slot)
{
    DiskSuperblock start;
    const size_t bytes = offsetof(DiskSuperblock, version);
    const auto at = static_cast<off_t>(slot_offset(ring, slot));
    return pread(fd, &start, bytes, at) == static_cast<ssize_t>(bytes) && start.magic == kSuperblockMagic;
}

bool has_cowraid(int fd)
{
    for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring) {
        for (uint32_t slot = 0; slot < kSuperblockSlotCount; ++slot) {
            if (slot_has_magic(fd, ring, slot))
                return true;
        }
    }
    return false;
}

Status wipe_cowraid(int fd)
{
    const std::vector<std::byte> zeros(sizeof(DiskSuperblock));
    for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring) {
        for (uint32_t slot = 0; slot < kSuperblockSlotCount; ++slot) {
            if (!slot_has_magic(fd, ring, slot))
                continue;
            const auto at = static_cast<off_t>(slot_offset(ring, slot));
            if (pwrite(fd, zeros.data(), zeros.size(), at) != static_cast<ssize_t>(zeros.size()))
                return Err::kIo;
        }
    }
    return Err::kOk;
}

// A libblkid probe that looks for superblocks and partition tables and knows where their magic is.
class Probe {
public:
    // Of the first `bytes`; 0: of all.
    Probe(int fd, uint64_t bytes) : probe_(blkid_new_probe())
    {
        ok_ = probe_ != nullptr &&
              blkid_probe_set_device(probe_, fd, 0, static_cast<blkid_loff_t>(bytes)) == 0 &&
              blkid_probe_enable_superblocks(probe_, 1) == 0 &&
              blkid_probe_set_superblocks_flags(probe_, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_MAGIC) == 0 &&
              blkid_probe_enable_partitions(probe_, 1) == 0 &&
              blkid_probe_set_partitions_flags(probe_, BLKID_PARTS_MAGIC) == 0;
    }
    ~Probe()
    {
        if (probe_ != nullptr)
            blkid_free_probe(probe_);
    }
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;

    [[nodiscard]] bool ok() const { return ok_; }
    // 0: found one; 1: no more; negative: failure.
    int next() { return blkid_do_probe(probe_); }
    int wipe() { return blkid_do_wipe(probe_, 0); }
    [[nodiscard]] std::string description() const
    {
        const char* text = nullptr;
        if (blkid_probe_lookup_value(probe_, "TYPE", &text, nullptr) == 0)
            return text;
        if (blkid_probe_lookup_value(probe_, "PTTYPE", &text, nullptr) == 0)
            return std::string(text) + " partition table";
        return "unknown signature";
    }

private:
    blkid_probe probe_;
    bool ok_ = false;
};

void append_name(std::string& list, const std::string& name)
{
    if ((", " + list + ",").find(", " + name + ",") != std::string::npos)
        return;
    list += (list.empty() ? "" : ", ") + name;
}

// Adds what libblkid knows of the first `bytes`; 0: of all.
Status append_foreign(int fd, uint64_t bytes, std::string& found)
{
    Probe probe(fd, bytes);
    if (!probe.ok())
        return Err::kIo;
    for (int count = 0; count < kMaxSignatures; ++count) {
        const int result = probe.next();
        if (result < 0)
            return Err::kIo;
        if (result != 0)
            return {};
        append_name(found, probe.description());
    }
    return {};
}

bool is_empty(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0;
}

}  // namespace

UniqueFd reopen_buffered(int fd, int flags)
{
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    return UniqueFd(open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY));
}

Result<std::string> probe_signature(int fd)
{
    return probe_buffered(reopen_buffered(fd, O_RDONLY).get(), ContentArea::kAll);
}

Result<std::string> probe_buffered(int fd, ContentArea area)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return Err::kIo;
    std::string found;
    const bool all = area == ContentArea::kAll;
    if (S_ISREG(info.st_mode) && static_cast<uint64_t>(info.st_size) < (all ? 1 : kHeadBytes))
        return found;
    if (all && has_cowraid(fd))
        found = kMemberSignature;
    CW_TRY(append_foreign(fd, all ? 0 : kHeadBytes, found));
    return found;
}

Status wipe_signatures(int fd)
{
    if (is_empty(fd))
        return Err::kOk;
    const UniqueFd buffered = reopen_buffered(fd, O_RDWR);
    if (!buffered.valid())
        return Err::kIo;
    CW_TRY(wipe_cowraid(buffered.get()));
    Probe probe(buffered.get(), 0);
    if (!probe.ok())
        return Err::kIo;
    int result = 0;
    for (int count = 0; result == 0 && count < kMaxSignatures; ++count) {
        result = probe.next();
        if (result == 0 && probe.wipe() != 0)
            return Err::kIo;
    }
    if (result != 1 || fsync(buffered.get()) != 0)
        return Err::kIo;
    return Err::kOk;
}

}  // namespace cowraid
