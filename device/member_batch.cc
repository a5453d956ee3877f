// SPDX-License-Identifier: MIT
#include "device/member_batch.h"

#include "base/log.h"

namespace cowraid {

bool MemberBatch::add(MemberId id, IoRequest request)
{
    request.device = members_.device(id);
    if (request.device == nullptr)
        return false;
    ids_.push_back(id);
    requests_.push_back(request);
    return true;
}

bool MemberBatch::add_write(MemberId id, DeviceOffset offset, std::span<const std::byte> bytes)
{
    vectors_.push_back({const_cast<std::byte*>(bytes.data()), bytes.size()});
    return add(id, {.kind = IoKind::kWrite, .offset = offset, .vectors = {&vectors_.back(), 1}});
}

Status MemberBatch::run(const char* what)
{
    run_io(requests_);
    std::vector<MemberId> failed;
    for (size_t index = 0; index < requests_.size(); ++index) {
        if (ok(index))
            continue;
        // Another device may have come in its place meanwhile.
        if (requests_[index].device == members_.device(ids_[index])) {
            failed.push_back(ids_[index]);
            members_.count(ids_[index], counter_);
        }
        CW_LOG_ERROR("member %u (%s): %s: %s", ids_[index].value, requests_[index].device->name(), what,
                     err_text(requests_[index].result.err()));
    }
    return members_.fail(failed) ? Err::kOk : Err::kTooManyFaults;
}

}  // namespace cowraid
