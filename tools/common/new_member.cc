// SPDX-License-Identifier: MIT
#include "tools/common/new_member.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "device/open_member.h"
#include "device/signature.h"
#include "format/superblock.h"
#include "tools/common/member_search.h"
#include "tools/common/report_error.h"

namespace cowraid {

namespace {

Result<uint64_t> size_of(int fd, const struct stat& info)
{
    if (!S_ISBLK(info.st_mode))
        return static_cast<uint64_t>(info.st_size);
    uint64_t bytes = 0;
    if (ioctl(fd, BLKGETSIZE64, &bytes) != 0)
        return Err::kIo;
    return bytes;
}

}  // namespace

Status check_named_once(const std::vector<std::string>& paths, std::string& why)
{
    std::map<MemberIdentity, std::string> seen;
    for (const std::string& path : paths) {
        const auto identity = identify_member(path);
        if (!identity.ok())
            continue;  // opening it says more
        if (const auto [twin, first] = seen.emplace(*identity, path); !first) {
            why = path + " and " + twin->second + " are the same device; name each once";
            return Err::kInvalid;
        }
    }
    return {};
}

Result<NewMember> open_new_member(const std::string& path, bool force, std::string& why)
{
    NewMember device{.path = absolute_path(path)};
    CW_ASSIGN(device.fd, open_exclusively(path, {}, why));
    struct stat info { };
    const auto size =
        fstat(device.fd.get(), &info) == 0 ? size_of(device.fd.get(), info) : Result<uint64_t>(Err::kIo);
    auto signature = probe_signature(device.fd.get());
    if (!size.ok() || !signature.ok()) {
        why = path + " cannot be read; check the device";
        return Err::kIo;
    }
    device.size_bytes = *size;
    device.others_read = S_ISREG(info.st_mode) && (info.st_mode & (S_IRGRP | S_IROTH)) != 0;
    device.others_write = S_ISREG(info.st_mode) && (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (device.size_bytes < kMinMemberBytes || device.size_bytes > kMaxMemberBytes)
        return invalid(why, path + " has " + size_text(device.size_bytes) + ", a member needs at least " +
                                size_text(kMinMemberBytes) + " and at most " + size_text(kMaxMemberBytes) +
                                "; use another one");
    device.signature = signature.take();
    if (!device.signature.empty() && !force) {
        why = path + " holds " + device.signature + "; to overwrite it use -f";
        return Err::kExists;
    }
    return device;
}

void discard_all(BlockDevice& device)
{
    constexpr uint64_t kPartBytes = kGiB;
    for (uint64_t offset = 0; offset < device.size_bytes() && device.discards(); offset += kPartBytes) {
        IoRequest request{.kind = IoKind::kDiscard,
                          .device = &device,
                          .offset = {offset},
                          .vectors = {},
                          .discard_bytes = std::min(kPartBytes, device.size_bytes() - offset)};
        run_io({&request, 1});
        if (!request.result.ok())
            break;
    }
}

void discard_all(const NewMember& device)
{
    std::string ignored;
    UniqueFd same(fcntl(device.fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!same.valid())
        return;
    if (const auto opened = make_device_from_fd(std::move(same), device.path, {}, ignored); opened.ok())
        discard_all(**opened);
}

Status wipe_old_signatures(const NewMember& device, std::string& why)
{
    if (device.signature.empty() || wipe_signatures(device.fd.get()).ok())
        return {};
    why = device.path + ": the old signature (" + device.signature + ") cannot be wiped; check the device";
    return Err::kIo;
}

std::string warning_of_readers(std::span<const NewMember> devices)
{
    std::string images;
    bool written = false;
    for (const NewMember& device : devices) {
        images += device.others_read || device.others_write ? " " + device.path : "";
        written = written || device.others_write;
    }
    const std::string can = written ? "read and change every file of the volume"
                                    : "read every file of the volume and lock it against mounting";
    return images.empty() ? images : "other users can " + can + "; to keep them out: chmod 600" + images;
}

}  // namespace cowraid
