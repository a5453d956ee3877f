// SPDX-License-Identifier: MIT
// The filesystem without a front end, and the owners of its parts: fuse/, tools/ and the simulator call
// these.
#pragma once

#include <memory>
#include <string>

#include "device/assembly.h"
#include "fs/commit/committer.h"
#include "fs/info.h"

namespace cowraid {

class Filesystem {
public:
    // Opens an assembled volume. Applies the degraded policy, rewrites superblock and map on all present
    // members before any other write, starts the commit thread (unless options.manual_commit). With
    // options.drop_fsync_log it begins anew where the fsync log keeps it from starting, then without it. On
    // failure `why` holds one line for the user. kReadOnly is never returned: a volume that may only be read
    // is opened read-only and says so in info().
    static Result<std::unique_ptr<Filesystem>> open(Assembly assembly, const MountOptions& options,
                                                    std::string& why);
    // Over an opened volume; starts nothing and writes nothing.
    Filesystem(const MountOptions& options, std::unique_ptr<Volume> opened_volume, const RootContent& root);
    // Commits what is dirty and flushes; members are clean afterwards. Without close() the destructor
    // drops everything since the last commit, as a crash would.
    Status close();
    ~Filesystem();
    Filesystem(const Filesystem&) = delete;
    Filesystem& operator=(const Filesystem&) = delete;

    // Volume-wide numbers. Thread-safe, as what follows.
    VolumeStatistics statistics();
    VolumeInfo info();
    // Of one member, or of all (0).
    Status reset_counters(MemberId member);

    // Simulator, only with options.manual_commit: one round of what the threads would do, a flush and with
    // `commit` a commit; one bounded step of the cleaner; one of a scrub, which begins again after its end;
    // what a mount does soon after a commit.
    Status step(bool commit);
    CleanProgress clean_step(CleanWhen when);
    CleanProgress balance_step();
    ScrubStatus scrub_step();
    // One step of catching up what stale columns lack. kNotFound: there are none.
    Result<ScrubStatus> catch_up_step();
    // One step of a replacement. False: nothing is to be done.
    bool replace_step();
    Status confirm();
    // One step of discarding what is free: false: nothing is left until the next commit.
    bool discard_step();

    const std::unique_ptr<Volume> volume;
    Store store;
    Files files;
    Names names;
    Committer committer;
};

}  // namespace cowraid
