// SPDX-License-Identifier: MIT
// Between reading and writing while mounted.
#include "device/open_member.h"
#include "fs/commit/committer.h"
#include "fs/commit/memory_pace.h"

namespace cowraid {

namespace {

Status check_not_failed(const Committer& committer, std::string& why)
{
    const ServiceState& service = committer.store.service;
    if (!service.failed())
        return {};
    why = std::string("it has stopped writing: ") + service.stop_reason() + "; " +
          (committer.held_up_by_log ? committer.step_to_write() : "unmount and mount again");
    return Err::kReadOnly;
}

}  // namespace

Status Committer::stop_writing()
{
    {
        WriteLock gate(store.gate);
        store.service.become(ServiceState::Kind::kReading);
    }
    background.stop();
    const Status last = commit();
    store.commits.suspend(Err::kReadOnly);
    store.ledger.answer_all();
    const Status clean = last.ok() ? commit_clean() : last;
    store.volume.end_writing();
    release_unused_memory();
    return clean;
}

Status Committer::remount(bool read_only, std::string& why)
{
    MutexLock remount(remount_mutex);
    if (read_only && store.service.read_only())
        return {};
    CW_TRY(check_not_failed(*this, why));  // what was acknowledged may not be stored
    if (!read_only && !store.service.read_only())
        return {};
    if (read_only) {
        CW_TRY(sync());
        return stop_writing();
    }
    if (store.volume.read_only_advised()) {
        why = store.volume.read_only_reason().text + "; " + store.volume.read_only_reason().step;
        return Err::kReadOnly;
    }
    if (store.options.rescue) {
        why = "mounted with rescue, which may have left out what a log holds";
        return Err::kReadOnly;
    }
    MemberSet& members = store.volume.members();
    for (const MemberId id : members.ids()) {
        const BlockDevice* const device = members.device(id);
        if (device != nullptr && device->ring_fd() >= 0)
            CW_TRY(check_writable(device->ring_fd(), device->name(), why));
    }
    for (const MemberRecord& spare : store.volume.spare_table()) {
        const BlockDevice* const device = store.volume.spares().device(spare.id);
        std::string ignored;
        if (device != nullptr && device->ring_fd() >= 0 &&
            !check_writable(device->ring_fd(), device->name(), ignored).ok())
            store.volume.spares().remove(spare.id);  // of no use: it counts as missing
    }
    store.volume.array().set_read_only(false);
    const Status status = start_writing(why);
    if (status.ok())
        return check_not_failed(*this, why);  // its first commits may have stopped it
    store.volume.end_writing();
    return status;
}

}  // namespace cowraid
