// SPDX-License-Identifier: MIT
// The filesystem without a front end: fuse/, tools/ and the simulator call this.
//
// Every call is thread-safe unless it says otherwise. Inode numbers come from lookup-like calls, which take
// one lookup reference each; forget() gives references back, and an unlinked inode lives until then.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "base/uuid.h"
#include "device/assembly.h"
#include "fs/txn/long_change.h"
#include "fs/volume/mount_options.h"

namespace cowraid {

// Who asks, for ownership of new files and for clearing set-id bits. Permissions are checked by the kernel
// (default_permissions); nothing here does.
struct Caller {
    uint32_t uid = 0;
    uint32_t gid = 0;
    uint32_t umask = 0;
    // Set-id bits that a file loses when the caller writes to it or changes its size: who has CAP_FSETID,
    // and which groups somebody is in, the front end knows.
    uint32_t cleared_mode_bits = 0;
};

struct Attributes {
    InodeNumber inode;
    uint64_t size_bytes = 0;
    uint64_t block_count_512 = 0;
    uint64_t rdev = 0;
    uint64_t generation = 0;
    uint32_t mode = 0;
    uint32_t uid = 0;
    uint32_t gid = 0;
    uint32_t link_count = 0;
    timespec accessed{}, modified{}, changed{}, created{};
    // block_count_512 is a bound until the next flush: data in memory may be new, or overwrite.
    bool block_count_estimated = false;
};

// A change of attributes, the size among them.
struct AttributeChange : public LongChange {
    Attributes attributes;  // afterwards, once it is done
};

struct SetAttributes {
    std::optional<uint32_t> mode, uid, gid;
    std::optional<uint64_t> size_bytes;
    std::optional<timespec> accessed, modified, changed;
    bool modified_now = false;
    bool accessed_now = false;
};

struct VolumeStatistics {
    uint64_t block_bytes, total_blocks, free_blocks, available_blocks;
    uint64_t inode_count;
};

// Receives directory entries in cursor order.
class DirectorySink {
public:
    virtual ~DirectorySink() = default;
    // `next_cursor` continues behind this entry. `attributes` is set when they were asked for and the inode
    // could be read; the entry then carries a lookup reference unless its name is "." or "..". False: full,
    // this entry not taken.
    virtual bool entry(std::string_view name, InodeNumber inode, uint32_t mode_type, uint64_t next_cursor,
                       const Attributes* attributes) = 0;
};

// Answers later, from any thread: fsync and sync wait for a commit without holding a thread.
class Completion {
public:
    virtual ~Completion() = default;
    // Called exactly once; the object is the caller's and may delete itself.
    virtual void done(Status status) = 0;
};

// What a mounted volume tells about itself; for the control socket, messages and tests.
struct MemberInfo {
    MemberId id;
    std::string path;  // empty when absent; of one that failed while mounted it stays
    std::string reason;  // why it is not in service or behind: "member 4 " and this; empty when it is not
    bool unusable = false;  // absent, because its device cannot be used
    uint64_t size_bytes = 0;
    uint64_t used_bytes = 0;  // in slots of block groups
    uint64_t stale_groups = 0, stale_bytes = 0;  // of them, columns that missed writes
    MemberState state = MemberState::kPresent;
    std::array<uint64_t, kMemberCounterCount> counters{};
};

struct SpaceInfo {
    ProfileId profile;
    uint32_t content;  // kGroupData | kGroupMetadata | kGroupSystem
    uint64_t total_bytes;  // user addresses of the groups
    uint64_t used_bytes;
    uint64_t raw_bytes;  // on members
};

struct VolumeInfo {
    Uuid uuid;
    std::string label;
    Generation generation;
    uint32_t chunk_bytes = 0;
    ProfileId data_profile = ProfileId::kSingle;
    ProfileId metadata_profile = ProfileId::kSingle;
    bool read_only = false;
    bool degraded = false;
    std::string read_only_reason;
    std::string degraded_reason;  // of a volume that was opened so
    std::vector<MemberInfo> members;
    std::vector<SpaceInfo> spaces;
    uint64_t unallocated_raw_bytes = 0;
    uint64_t available_bytes = 0;
    uint64_t reserve_bytes = 0;  // kept for deleting on a full volume
    uint64_t full_stripes = 0, full_rows = 0, pad_blocks = 0;
    uint64_t data_bytes_written = 0, member_bytes_written = 0;
    // Blocks put into rows that hold others; rows written in place by difference and anew; for that, blocks
    // that the stripe cache had and had not; bytes of log entries; rows that the last mount recovered.
    uint64_t joined_blocks = 0, rmw_rows = 0, rcw_rows = 0;
    uint64_t stripe_cache_hits = 0, stripe_cache_misses = 0, intent_log_bytes = 0, recovered_rows = 0;
    uint64_t checksum_commits = 0;  // that made room in the write-intent log
    uint64_t commits = 0, dirty_bytes = 0;
    // Records of the fsync log and their bytes; calls of fsync that became commits; records that the last
    // mount replayed.
    uint64_t fsync_records = 0, fsync_record_bytes = 0, fsync_commits = 0, replayed_records = 0;
    // Block groups that the cleaner emptied, blocks it moved, blocks it could not read: by this mount.
    uint64_t emptied_groups = 0, moved_blocks = 0, unmovable_blocks = 0;
    uint64_t blocks_reconstructed = 0, blocks_repaired = 0, blocks_unrecoverable = 0;
    uint64_t node_cache_hits = 0, node_cache_misses = 0, node_cache_bytes = 0;
};

// What the cleaner chooses by: how scarce free stripes are, or whatever gives any back.
enum class CleanUrge : uint8_t { kPolicy, kAny };
enum class CleanProgress : uint8_t {
    kNothing,  // nothing to do, or no room to do it
    kWorked,  // there may be more
    kNeedsCommit,  // goes on after a commit, when no reader needs the one before
};

struct FilesystemCore;

class Filesystem {
public:
    // Opens an assembled volume. Applies the degraded policy, rewrites superblock and map on all present
    // members before any other write, starts the commit thread (unless options.manual_commit). On failure
    // `why` holds one line for the user. kReadOnly is never returned: a volume that may only be read is
    // opened read-only and says so in info(), unless options.require_writable.
    static Result<std::unique_ptr<Filesystem>> open(Assembly assembly, const MountOptions& options,
                                                    std::string& why);
    // Commits what is dirty and flushes; members are clean afterwards. Without close() the destructor
    // drops everything since the last commit, as a crash would.
    Status close();
    ~Filesystem();
    Filesystem(const Filesystem&) = delete;
    Filesystem& operator=(const Filesystem&) = delete;

    // Names.
    Result<Attributes> lookup(InodeNumber parent, std::string_view name);
    // True: no reference is left.
    bool forget(InodeNumber inode, uint64_t count);
    // Makes a file of the type in `mode` (S_IFREG, S_IFDIR, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK).
    Result<Attributes> make_node(InodeNumber parent, std::string_view name, uint32_t mode, uint64_t rdev,
                                 const Caller& caller);
    Result<Attributes> make_symlink(InodeNumber parent, std::string_view name, std::string_view target,
                                    const Caller& caller);
    Result<Attributes> link(InodeNumber inode, InodeNumber new_parent, std::string_view new_name);
    Status unlink(InodeNumber parent, std::string_view name);
    Status rmdir(InodeNumber parent, std::string_view name);
    // `flags`: 0, RENAME_NOREPLACE or RENAME_EXCHANGE; anything else is kInvalid.
    Status rename(InodeNumber parent, std::string_view name, InodeNumber new_parent,
                  std::string_view new_name, uint32_t flags);
    Result<std::string> read_symlink(InodeNumber inode);
    // Entries behind `cursor` (0: from the start, "." and ".." first) until the sink is full. A cursor
    // stays valid whatever happens to other entries.
    struct ReadDirectory {
        bool with_attributes = false;
    };
    Status read_directory(InodeNumber directory, uint64_t cursor, const ReadDirectory& how,
                          DirectorySink& sink);

    // Attributes.
    Result<Attributes> get_attributes(InodeNumber inode);
    Result<Attributes> set_attributes(InodeNumber inode, const SetAttributes& change, const Caller& caller);
    // The same in steps, for a change of the size: it may have many extents to remove.
    Result<std::unique_ptr<AttributeChange>>
    begin_set_attributes(InodeNumber inode, const SetAttributes& change, const Caller& caller);
    // Reading updates atime by the mount's rule (relatime, noatime); called by the front end after reads.
    void note_access(InodeNumber inode);

    // Extended attributes: names with prefix "user." or "trusted." and others the front end lets through.
    // `flags`: 0, XATTR_CREATE, XATTR_REPLACE.
    Status set_xattr(InodeNumber inode, std::string_view name, std::span<const std::byte> value, int flags);
    Result<std::vector<std::byte>> get_xattr(InodeNumber inode, std::string_view name);
    // Names, each with a terminating zero.
    Result<std::string> list_xattrs(InodeNumber inode);
    Status remove_xattr(InodeNumber inode, std::string_view name);

    // Data. read() returns the bytes read, short at the end of the file; a range that cannot be had fails
    // whole with kTooManyFaults or kIo. `out` should be 4096-aligned to save a copy.
    Result<size_t> read(InodeNumber inode, uint64_t offset, std::span<std::byte> out);
    // Copies `data`, reserves the worst case, returns. kNoSpace is final: nothing was taken. With
    // options.append the offset is the end of file.
    struct WriteHow {
        bool append = false;
    };
    Result<size_t> write(InodeNumber inode, uint64_t offset, std::span<const std::byte> data,
                         const WriteHow& how, const Caller& caller);
    // `mode`: 0 or FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE
    // with or without KEEP_SIZE; others kUnsupported. Space is reserved for good: a later write into it
    // never gets kNoSpace.
    Status allocate_range(InodeNumber inode, int mode, uint64_t offset, uint64_t length,
                          const Caller& caller = {});
    // The same in steps.
    Result<std::unique_ptr<LongChange>> begin_allocate_range(InodeNumber inode, int mode, uint64_t offset,
                                                             uint64_t length, const Caller& caller = {});

    // Durability. Answers when everything that returned before the call is durable: sync() by a commit,
    // fsync() by the fsync log where that will do. With kData only what changed the inode, other than its
    // times, matters; with it everything earlier becomes durable.
    enum class SyncWhat : uint8_t { kAll, kData };
    void sync_async(Completion* completion);
    Status sync();
    void fsync_async(InodeNumber inode, SyncWhat what, Completion* completion);
    Status fsync(InodeNumber inode, SyncWhat what);
    // Volume-wide numbers.
    VolumeStatistics statistics();
    VolumeInfo info();
    Status reset_counters();
    // ro -> rw and back. rw -> ro commits first. `why` as in open().
    Status remount(bool read_only, std::string& why);
    // How rows that hold other blocks are written. kInvalid: out of range, or nothing was written yet.
    [[nodiscard]] PartialWriteOptions partial_write_options() const;
    Status set_partial_write_options(const PartialWriteOptions& options);
    // One bounded step of the cleaner (fs/maintain/cleaner.h). Only with options.manual_commit, which keeps
    // it from working by itself.
    CleanProgress clean_step(CleanUrge urge);
    // Simulator: does one round of what the commit thread would do (flush and commit when `commit`).
    Status step(bool commit);
    // What a mount does soon after a commit (confirm_commit()). Only with options.manual_commit.
    Status confirm();

private:
    explicit Filesystem(std::unique_ptr<FilesystemCore> core);
    std::unique_ptr<FilesystemCore> core_;
};

}  // namespace cowraid
