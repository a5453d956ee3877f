// SPDX-License-Identifier: MIT
#include "fs/filesystem.h"

#include "base/assert.h"
#include "base/log.h"
#include "fs/commit/mount.h"
#include "fs/names/removal.h"

namespace cowraid {

Filesystem::Filesystem(const MountOptions& options, std::unique_ptr<Volume> opened_volume,
                       const RootContent& root)
    : volume(std::move(opened_volume)),
      store(options, *volume, make_ref<Transaction>(TransactionId{1}), root.committed),
      files(store),
      names(files),
      committer(names)
{
    committer.load(root);
}

Filesystem::~Filesystem() = default;

namespace {

Result<std::unique_ptr<Filesystem>> load(Assembly assembly, const MountOptions& options, std::string& why)
{
    CW_ASSIGN(std::unique_ptr<Volume> opened, Volume::open(std::move(assembly), options, why));
    CW_ASSIGN(const RootContent root, read_root(*opened, why));
    return std::make_unique<Filesystem>(options, std::move(opened), root);
}

}  // namespace

Result<std::unique_ptr<Filesystem>> Filesystem::open(Assembly assembly, const MountOptions& options,
                                                     std::string& why)
{
    MountOptions tried = options;
    for (int attempt = 0;; ++attempt) {
        CW_ASSIGN(std::unique_ptr<Filesystem> filesystem, load(std::move(assembly), tried, why));
        const Status status = filesystem->committer.start(why);
        if (status.ok())
            return filesystem;
        if (!options.drop_fsync_log || !filesystem->committer.held_up_by_log || tried.without_fsync_log)
            return status;
        // Errors may pass: once more with the log, then without. Nothing of an attempt is durable but what
        // any mount writes first, so that the next one begins as after a crash.
        tried.without_fsync_log = attempt > 0;
        CW_LOG_WARNING("%s: %s", why.c_str(),
                       tried.without_fsync_log
                           ? "mounting without the fsync log; what fsync acknowledged since the last commit "
                             "is left out"
                           : "trying again with the fsync log");
        why.clear();
        std::vector<std::unique_ptr<BlockDevice>> devices = filesystem->volume->give_devices();
        filesystem.reset();
        AssemblyOptions same{.strangers = Strangers::kSkip, .named = {}};
        for (const std::unique_ptr<BlockDevice>& device : devices)
            same.named.emplace_back(device->name());  // they were taken before
        CW_ASSIGN(assembly, assemble(std::move(devices), why, same));
    }
}

Status Filesystem::close()
{
    committer.background.stop();
    Status status;
    if (!store.service.read_only())
        status = committer.commit();
    store.ledger.stop();  // nobody answers who still waits
    return status.ok() && !store.service.read_only() ? committer.commit_clean() : status;
}

Status Filesystem::step(bool commit)
{
    const Status removed = committer.finish_removals();
    CW_TRY(commit ? committer.commit() : committer.flush());
    committer.scrub.mend_freed();
    return removed;
}

Status Filesystem::confirm()
{
    CW_ASSERT(store.options.manual_commit);
    return committer.confirm();
}

CleanProgress Filesystem::clean_step(CleanWhen when)
{
    CW_ASSERT(store.options.manual_commit);
    return committer.cleaner.step({.when = when});
}

CleanProgress Filesystem::balance_step()
{
    CW_ASSERT(store.options.manual_commit);
    return committer.balance.step(CleanPolicy::kStepBytes);
}

ScrubStatus Filesystem::scrub_step()
{
    CW_ASSERT(store.options.manual_commit);
    if (!committer.scrub.step() && committer.scrub.start({}).ok())
        committer.scrub.step();
    return committer.scrub.status();
}

Result<ScrubStatus> Filesystem::catch_up_step()
{
    CW_ASSERT(store.options.manual_commit);
    if (!committer.catch_up.step()) {
        CW_TRY(committer.catch_up.start({}));
        committer.catch_up.step();
    }
    return committer.catch_up.status();
}

bool Filesystem::discard_step()
{
    CW_ASSERT(store.options.manual_commit);
    if (committer.discards.step())
        return true;
    committer.discards.choose();
    return committer.discards.step();
}

bool Filesystem::replace_step()
{
    CW_ASSERT(store.options.manual_commit);
    return committer.replace.step();
}

Status Filesystem::reset_counters(MemberId member)
{
    for (const MemberId id : volume->members().ids())
        if (member.value == 0 || id == member)
            volume->members().reset_counters(id);
    return store.service.read_only() ? Status() : force_commit(store);
}

}  // namespace cowraid
