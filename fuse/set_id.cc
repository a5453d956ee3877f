// SPDX-License-Identifier: MIT
#include "fuse/set_id.h"

#include <linux/fuse.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fuse/caller_status.h"

namespace cowraid {

namespace {

constexpr uint32_t kWriteClears = 1 << 2;  // in write_flags
constexpr uint32_t kSetattrClears = 1 << 11;  // in valid
constexpr unsigned kCapFsetid = 4;

// Offsets in the bodies of requests; older <linux/fuse.h> has other names for some of these fields.
constexpr size_t kWriteFlagsAt = 20;
constexpr size_t kSetattrValidAt = 0;

thread_local bool clears_set_id = false;

bool has_flag(std::span<const std::byte> body, size_t offset, uint32_t flag)
{
    uint32_t flags = 0;
    if (body.size() < offset + sizeof flags)
        return false;
    memcpy(&flags, body.data() + offset, sizeof flags);
    return (flags & flag) != 0;
}

std::vector<uint32_t> numbers(const std::string& text)
{
    std::vector<uint32_t> out;
    const char* at = text.c_str();
    for (char* end = nullptr;; at = end) {
        const unsigned long number = strtoul(at, &end, 10);
        if (end == at)
            return out;
        out.push_back(static_cast<uint32_t>(number));
    }
}

CallerRights rights_of(const fuse_ctx& caller)
{
    const std::string status = caller_status(caller.pid);
    CallerRights rights = parse_caller_rights(status);
    if (status.empty())
        rights.has_fsetid = caller.uid == 0;
    else if (rights.has_fsetid)
        rights.has_fsetid = shares_user_namespace(caller.pid);
    rights.groups.push_back(caller.gid);
    return rights;
}

bool may_set_group_id(const CallerRights& rights, uint32_t gid)
{
    return rights.has_fsetid ||
           std::find(rights.groups.begin(), rights.groups.end(), gid) != rights.groups.end();
}

}  // namespace

void note_set_id_request(std::span<const std::byte> request)
{
    fuse_in_header header;
    clears_set_id = false;
    if (request.size() < sizeof header)
        return;
    memcpy(&header, request.data(), sizeof header);
    const auto body = request.subspan(sizeof header);
    if (header.opcode == FUSE_WRITE)
        clears_set_id = has_flag(body, kWriteFlagsAt, kWriteClears);
    else if (header.opcode == FUSE_SETATTR)
        clears_set_id = has_flag(body, kSetattrValidAt, kSetattrClears);
}

bool request_clears_set_id()
{
    return clears_set_id;
}

CallerRights parse_caller_rights(std::string_view status)
{
    CallerRights rights;
    rights.has_fsetid = has_capability(status, kCapFsetid);
    rights.groups = numbers(status_field(status, "Groups:"));
    return rights;
}

uint32_t set_id_bits_cleared(uint32_t mode, uint32_t gid, const CallerRights& rights)
{
    if (!S_ISREG(mode))
        return 0;
    const bool group_goes = (mode & S_IXGRP) != 0 || !may_set_group_id(rights, gid);
    return mode & (S_ISUID | (group_goes ? uint32_t{S_ISGID} : 0));
}

Caller changing_caller(fuse_req_t request, InodeNumber inode, SetIdRule rule)
{
    Caller caller = caller_of(request);
    const Frontend& frontend = frontend_of(request);
    const bool asked = rule == SetIdRule::kUnlessCapable
                           ? frontend.clears_set_id.load(std::memory_order_relaxed)
                           : request_clears_set_id();
    if (!asked)
        return caller;
    const auto now = frontend.filesystem->names.get_attributes(inode);
    if (!now.ok() || !S_ISREG(now->mode) || (now->mode & (S_ISUID | S_ISGID)) == 0)
        return caller;
    const fuse_ctx& context = *fuse_req_ctx(request);
    CallerRights rights{.has_fsetid = false, .groups = {context.gid}};
    if (rule == SetIdRule::kAsRequestedAsyncInGroup)
        rights.groups.push_back(now->gid);
    else if (rule != SetIdRule::kAsRequestedAsync)
        rights = rights_of(context);
    if (rule != SetIdRule::kUnlessCapable || !rights.has_fsetid)
        caller.cleared_mode_bits = set_id_bits_cleared(now->mode, now->gid, rights);
    return caller;
}

bool keeps_set_gid(fuse_req_t request, InodeNumber inode)
{
    const auto now = frontend_of(request).filesystem->names.get_attributes(inode);
    return now.ok() && (now->mode & (S_ISGID | S_IXGRP)) == S_ISGID &&
           may_set_group_id(rights_of(*fuse_req_ctx(request)), now->gid);
}

Caller acl_caller(fuse_req_t request, InodeNumber inode)
{
    Caller caller = caller_of(request);
    const auto now = frontend_of(request).filesystem->names.get_attributes(inode);
    if (now.ok() && (now->mode & S_ISGID) != 0 &&
        !may_set_group_id(rights_of(*fuse_req_ctx(request)), now->gid))
        caller.cleared_mode_bits = S_ISGID;
    return caller;
}

}  // namespace cowraid
