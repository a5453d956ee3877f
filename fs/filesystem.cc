// SPDX-License-Identifier: MIT
#include "fs/filesystem.h"

#include <sys/stat.h>

#include "base/assert.h"
#include "device/open_member.h"
#include "fs/commit/commit.h"
#include "fs/commit/mount.h"
#include "fs/names/namespace.h"
#include "fs/names/removal.h"
#include "fs/txn/blocking_completion.h"

namespace cowraid {

Filesystem::Filesystem(std::unique_ptr<FilesystemCore> core) : core_(std::move(core)) { }

Filesystem::~Filesystem() = default;

Result<std::unique_ptr<Filesystem>> Filesystem::open(Assembly assembly, const MountOptions& options,
                                                     std::string& why)
{
    CW_ASSIGN(std::unique_ptr<Volume> volume, Volume::open(std::move(assembly), options, why));
    CW_ASSIGN(const RootContent root, read_root(*volume, why));
    const char* const read_only_reason = volume->read_only_reason();
    std::unique_ptr<FilesystemCore> core = make_core(options, std::move(volume), root);
    if (read_only_reason != nullptr)
        core->read_only_reason = read_only_reason;
    core->read_only = options.read_only || read_only_reason != nullptr;
    if (core->read_only) {
        CW_TRY(recover_in_memory(*core, why));
    } else if (const Status status = start_writing(*core, why); !status.ok()) {
        // What the logs hold is in memory and can be read.
        if (status.err() != Err::kNoSpace || !core->replay_done)
            return status;
        core->read_only_reason = "no room for what the logs hold";
        core->read_only = true;
        core->volume->array().set_read_only(true);
    }
    return std::unique_ptr<Filesystem>(new Filesystem(std::move(core)));
}

Status Filesystem::close()
{
    core_->background.stop();
    if (core_->read_only)
        return {};
    CW_TRY(commit_now(*core_));
    return commit_clean(*core_);
}

Status Filesystem::step(bool commit)
{
    CW_TRY(finish_removals(*core_));
    return commit ? commit_now(*core_) : flush_now(*core_);
}

Status Filesystem::confirm()
{
    CW_ASSERT(core_->options.manual_commit);
    return confirm_commit(*core_);
}

namespace {

// Read-only, and what came before that is in a commit. What a replay brought back is in the log.
bool all_durable(const FilesystemCore& core)
{
    return core.read_only && core.changes.newest() <= core.syncs.durable();
}

}  // namespace

CleanProgress Filesystem::clean_step(CleanUrge urge)
{
    CW_ASSERT(core_->options.manual_commit);
    return core_->cleaner.step(urge, false);
}

void Filesystem::sync_async(Completion* completion)
{
    if (all_durable(*core_)) {
        completion->done({});
        return;
    }
    if (core_->options.manual_commit) {
        completion->done(commit_now(*core_));
        return;
    }
    const View view = core_->timeline.view();
    if (view.open->dirty)
        core_->commits.wait_async(view.open->id, completion);
    else if (view.committing)
        core_->commits.wait_async(view.committing->id, completion);
    else
        completion->done(core_->stopped ? Status(Err::kShutdown) : Status());
}

Status Filesystem::sync()
{
    if (all_durable(*core_))
        return {};
    if (core_->options.manual_commit)
        return commit_now(*core_);
    const View view = core_->timeline.view();
    if (view.open->dirty)
        return core_->commits.wait(view.open->id);
    if (view.committing)
        return core_->commits.wait(view.committing->id);
    return core_->stopped ? Status(Err::kShutdown) : Status();
}

void Filesystem::fsync_async(InodeNumber number, SyncWhat what, Completion* completion)
{
    uint64_t change = core_->changes.newest();
    if (what == SyncWhat::kData) {
        // One that cannot be had is treated like one that has changed.
        if (const Result<Ref<Inode>> inode = core_->inodes.get(number); inode.ok()) {
            MutexLock lock((*inode)->mutex);
            change = (*inode)->data_change;
        }
    }
    core_->syncs.wait_async(*core_, change, completion);
}

Status Filesystem::fsync(InodeNumber number, SyncWhat what)
{
    BlockingCompletion blocking;
    fsync_async(number, what, &blocking);
    return blocking.wait();
}

Status Filesystem::remount(bool read_only, std::string& why)
{
    MutexLock remount(core_->remount_mutex);
    if (!read_only && core_->stopped) {
        why =
            std::string("it has stopped writing: ") + core_->stop_reason.load() + "; unmount and mount again";
        return Err::kReadOnly;
    }
    if (read_only == core_->read_only)
        return {};
    if (read_only) {
        CW_TRY(sync());
        {
            WriteLock gate(core_->gate);
            core_->read_only = true;
        }
        core_->background.stop();
        const Status last = commit_now(*core_);
        core_->commits.suspend(Err::kReadOnly);
        CW_TRY(last);
        CW_TRY(commit_clean(*core_));
        core_->volume->array().set_read_only(true);
        core_->volume->members().set_recorded(false);
        return {};
    }
    if (core_->volume->read_only_advised()) {
        why = core_->read_only_reason.load();
        return Err::kReadOnly;
    }
    if (core_->options.rescue) {
        why = "mounted with rescue, which may have left out what a log holds";
        return Err::kReadOnly;
    }
    MemberSet& members = core_->volume->members();
    for (const MemberId id : members.ids()) {
        const BlockDevice* const device = members.device(id);
        if (device != nullptr && device->ring_fd() >= 0)
            CW_TRY(check_writable(device->ring_fd(), device->name(), why));
    }
    core_->volume->array().set_read_only(false);
    const Status status = start_writing(*core_, why);
    if (!status.ok())
        core_->volume->array().set_read_only(true);
    return status;
}

PartialWriteOptions Filesystem::partial_write_options() const
{
    return core_->volume->array().partial_write_options();
}

Status Filesystem::set_partial_write_options(const PartialWriteOptions& options)
{
    return core_->volume->array().set_partial_write_options(options);
}

Status Filesystem::reset_counters()
{
    for (const MemberRecord& member : core_->volume->superblock().members)
        core_->volume->members().reset_counters(member.id);
    return core_->read_only ? Status() : force_commit(*core_);
}

Result<Attributes> Filesystem::lookup(InodeNumber parent, std::string_view name)
{
    return lookup_name(*core_, parent, name);
}

bool Filesystem::forget(InodeNumber inode, uint64_t count)
{
    return forget_inode(*core_, inode, count);
}

Result<Attributes> Filesystem::make_node(InodeNumber parent, std::string_view name, uint32_t mode,
                                         uint64_t rdev, const Caller& caller)
{
    return cowraid::make_node(*core_, parent, name, mode, rdev, {}, caller);
}

Result<Attributes> Filesystem::make_symlink(InodeNumber parent, std::string_view name,
                                            std::string_view target, const Caller& caller)
{
    return cowraid::make_node(*core_, parent, name, S_IFLNK | 0777, 0, target, caller);
}

Result<Attributes> Filesystem::link(InodeNumber inode, InodeNumber new_parent, std::string_view new_name)
{
    return link_inode(*core_, inode, new_parent, new_name);
}

Status Filesystem::unlink(InodeNumber parent, std::string_view name)
{
    return unlink_name(*core_, parent, name);
}

Status Filesystem::rmdir(InodeNumber parent, std::string_view name)
{
    return remove_directory(*core_, parent, name);
}

Status Filesystem::rename(InodeNumber parent, std::string_view name, InodeNumber new_parent,
                          std::string_view new_name, uint32_t flags)
{
    return rename_name(*core_, parent, name, new_parent, new_name, flags);
}

Result<std::string> Filesystem::read_symlink(InodeNumber inode)
{
    return cowraid::read_symlink(*core_, inode);
}

Status Filesystem::read_directory(InodeNumber directory, uint64_t cursor, const ReadDirectory& how,
                                  DirectorySink& sink)
{
    return cowraid::read_directory(*core_, directory, cursor, how, sink);
}

Result<Attributes> Filesystem::get_attributes(InodeNumber inode)
{
    return cowraid::get_attributes(*core_, inode);
}

Result<Attributes> Filesystem::set_attributes(InodeNumber inode, const SetAttributes& change,
                                              const Caller& caller)
{
    return cowraid::set_attributes(*core_, inode, change, caller);
}

Result<std::unique_ptr<AttributeChange>>
Filesystem::begin_set_attributes(InodeNumber inode, const SetAttributes& change, const Caller& caller)
{
    return cowraid::begin_set_attributes(*core_, inode, change, caller);
}

void Filesystem::note_access(InodeNumber inode)
{
    cowraid::note_access(*core_, inode);
}

Status Filesystem::set_xattr(InodeNumber inode, std::string_view name, std::span<const std::byte> value,
                             int flags)
{
    return cowraid::set_xattr(*core_, inode, name, value, flags);
}

Result<std::vector<std::byte>> Filesystem::get_xattr(InodeNumber inode, std::string_view name)
{
    return cowraid::get_xattr(*core_, inode, name);
}

Result<std::string> Filesystem::list_xattrs(InodeNumber inode)
{
    return cowraid::list_xattrs(*core_, inode);
}

Status Filesystem::remove_xattr(InodeNumber inode, std::string_view name)
{
    return cowraid::remove_xattr(*core_, inode, name);
}

Result<size_t> Filesystem::read(InodeNumber inode, uint64_t offset, std::span<std::byte> out)
{
    return read_file(*core_, inode, offset, out);
}

Result<size_t> Filesystem::write(InodeNumber inode, uint64_t offset, std::span<const std::byte> data,
                                 const WriteHow& how, const Caller& caller)
{
    return write_file(*core_, inode, offset, data, how, caller);
}

Status Filesystem::allocate_range(InodeNumber inode, int mode, uint64_t offset, uint64_t length,
                                  const Caller& caller)
{
    CW_ASSIGN(const std::unique_ptr<LongChange> change,
              begin_allocate_range(inode, mode, offset, length, caller));
    return finish_change(*change);
}

Result<std::unique_ptr<LongChange>> Filesystem::begin_allocate_range(InodeNumber inode, int mode,
                                                                     uint64_t offset, uint64_t length,
                                                                     const Caller& caller)
{
    if (core_->read_only)
        return Err::kReadOnly;
    return cowraid::begin_allocate_range(*core_, inode, mode, offset, length, caller);
}

}  // namespace cowraid
