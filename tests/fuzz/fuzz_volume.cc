// SPDX-License-Identifier: MIT
#include "tests/fuzz/fuzz_volume.h"

#include <linux/falloc.h>
#include <sys/stat.h>

#include <cstdio>

#include "base/assert.h"
#include "format/items.h"
#include "tests/support/bytes.h"

namespace cowraid::test {

namespace {

constexpr FuzzShape kShapes[] = {
    {"raid1", {2, 64 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 16 * 1024}, false, true, false},
    {"raid6-raid1c3", {4, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * 1024}, true, false, false},
    {"raid5", {3, 192 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024}, false, false, true},
    {"raid6",
     {4, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid6, 4 * 1024},
     false,
     false,
     false,
     false,
     true},
    {"raid6-live",
     {4, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * 1024},
     false,
     false,
     false,
     true},
};

void expect(Status status, const char* what)
{
    if (!status.ok())
        fprintf(stderr, "%s: %s\n", what, err_text(status.err()));
    CW_ASSERT(status.ok());
}

class Furnisher {
public:
    explicit Furnisher(Filesystem& fs) : fs_(fs) { }

    void furnish(InodeNumber parent, const char* name);
    void leave_orphans(InodeNumber parent);

private:
    InodeNumber make(InodeNumber parent, const std::string& name, uint32_t mode, uint64_t rdev = 0);
    void write(InodeNumber inode, uint64_t offset, size_t bytes);
    void write_text(InodeNumber inode, size_t bytes);
    void symlink(InodeNumber parent, const char* name, size_t bytes);
    void make_compressed(InodeNumber directory);
    void make_data(InodeNumber directory);
    void make_names(InodeNumber directory);
    void make_attributes(InodeNumber directory);
    void commit() { expect(fs_.step(true), "commit"); }

    Filesystem& fs_;
    Prng prng_{7};
};

// The caller's lookup reference is kept until the mount ends.
InodeNumber Furnisher::make(InodeNumber parent, const std::string& name, uint32_t mode, uint64_t rdev)
{
    const Result<Attributes> made = fs_.names.make_node(parent, name, mode, rdev, {});
    expect(made.status(), name.c_str());
    return made->inode;
}

void Furnisher::write(InodeNumber inode, uint64_t offset, size_t bytes)
{
    std::vector<std::byte> content(bytes);
    prng_.fill(content.data(), bytes);
    expect(fs_.files.write(inode, offset, content, {}, {}).status(), "write");
}

void Furnisher::write_text(InodeNumber inode, size_t bytes)
{
    std::vector<std::byte> content(bytes);
    test::fill_text(prng_, content);
    expect(fs_.files.write(inode, 0, content, {}, {}).status(), "write");
}

void Furnisher::symlink(InodeNumber parent, const char* name, size_t bytes)
{
    expect(fs_.names.make_symlink(parent, name, std::string(bytes, 's'), {}).status(), name);
}

void Furnisher::make_data(InodeNumber directory)
{
    const InodeNumber pieces = make(directory, "pieces", S_IFREG | 0644);
    const InodeNumber big = make(directory, "big", S_IFREG | 0644);
    write(big, 0, 3 * kMiB + 777);
    for (int i = 0; i < 4; ++i) {
        write(pieces, static_cast<uint64_t>(i) * 40000, 20000);
        commit();
    }
    write(make(directory, "small", S_IFREG | 0600), 0, 100);
    make(directory, "empty", S_IFREG | 04755);
    const InodeNumber sparse = make(directory, "sparse", S_IFREG | 0644);
    write(sparse, 0, 5000);
    write(sparse, 9 * kMiB, 5000);
    SetAttributes grow;
    grow.size_bytes = 12 * kMiB + 5;
    expect(fs_.names.set_attributes(sparse, grow, {}).status(), "grow");
    const InodeNumber promised = make(directory, "promised", S_IFREG | 0644);
    expect(fs_.files.allocate_range(promised, FALLOC_FL_KEEP_SIZE, 0, 400000), "fallocate");
    write(promised, 100000, 50000);
}

// Frames, one of them cut, in blocks and in an item.
void Furnisher::make_compressed(InodeNumber directory)
{
    const InodeNumber frames = make(directory, "frames", S_IFREG | 0644);
    const InodeNumber in_item = make(directory, "frame in an item", S_IFREG | 0644);
    for (const InodeNumber inode : {frames, in_item})
        expect(fs_.names.set_flags(inode, kInodeCompress, kInodeCompress, {}), "flags");
    write_text(frames, 200'000);
    write_text(in_item, 3000);
    commit();
    expect(
        fs_.files.allocate_range(frames, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5 * kBlockBytes, 40'000),
        "punch");
}

void Furnisher::make_names(InodeNumber directory)
{
    const InodeNumber many = make(directory, "many", S_IFDIR | 0755);
    for (int i = 0; i < 40; ++i)
        make(many, "entry-with-a-name-of-some-length-" + std::to_string(i), S_IFREG | 0644);
    const InodeNumber deep = make(directory, "deep", S_IFDIR | 02755);
    const InodeNumber deeper = make(deep, "deeper", S_IFDIR | 0755);
    const InodeNumber linked = make(directory, "linked", S_IFREG | 0644);
    write(linked, 0, 9000);
    expect(fs_.names.link(linked, deep, "second").status(), "link");
    expect(fs_.names.link(linked, deeper, std::string(255, 'n')).status(), "link");
    symlink(directory, "symlink", 11);
    symlink(deeper, "long-symlink", 4000);
    make(directory, "fifo", S_IFIFO | 0600);
    make(directory, "socket", S_IFSOCK | 0600);
    make(directory, "character", S_IFCHR | 0600, 0x0103);
    make(directory, "block", S_IFBLK | 0600, 0x0801);
}

void Furnisher::make_attributes(InodeNumber directory)
{
    const InodeNumber inode = make(directory, "attributes", S_IFREG | 0644);
    for (int i = 0; i < 6; ++i) {
        const std::vector<std::byte> value(i == 0 ? 0 : 3500, static_cast<std::byte>(i));
        expect(fs_.names.set_xattr(inode, "user.name" + std::to_string(i), value, 0), "xattr");
    }
    expect(fs_.names.set_xattr(directory, "trusted.directory", std::as_bytes(std::span("value")), 0),
           "xattr");
}

void Furnisher::furnish(InodeNumber parent, const char* name)
{
    const InodeNumber directory = make(parent, name, S_IFDIR | 0755);
    make_data(directory);
    make_compressed(directory);
    const VolumeAddress listed = fs_.volume->map().groups.front().address;
    fs_.store.damage.note(listed, 3, 1, DamageList::kByReader);
    commit();
    make_names(directory);
    make_attributes(directory);
    commit();
}

// Removed and still open when the mount ends without a word.
void Furnisher::leave_orphans(InodeNumber parent)
{
    const InodeNumber orphan = make(parent, "orphan", S_IFREG | 0644);
    write(orphan, 0, 60000);
    expect(fs_.files.allocate_range(orphan, 0, kMiB, 40000), "fallocate");
    expect(fs_.names.set_xattr(orphan, "user.x", std::as_bytes(std::span("value")), 0), "xattr");
    make(parent, "removed", S_IFDIR | 0755);
    commit();
    expect(fs_.names.unlink(parent, "orphan"), "unlink");
    expect(fs_.names.rmdir(parent, "removed"), "rmdir");
    commit();
}

void change_and_fsync(Filesystem& fs, InodeNumber used, int round)
{
    const std::vector<std::byte> content(30000, static_cast<std::byte>(round));
    const std::string name = "logged" + std::to_string(round);
    const Result<Attributes> made = fs.names.make_node(used, name, S_IFREG | 0644, 0, {});
    expect(made.status(), name.c_str());
    expect(fs.files.write(made->inode, 0, content, {}, {}).status(), "write");
    const Result<Attributes> old = fs.names.lookup(used, "pieces");
    expect(old.status(), "pieces");
    expect(fs.files.write(old->inode, static_cast<uint64_t>(round) * 40000, content, {}, {}).status(),
           "write");
    expect(fs.names.set_xattr(made->inode, "user.logged", std::as_bytes(std::span("value")), 0), "xattr");
    expect(fs.files.allocate_range(made->inode, 0, 100000, 50000), "fallocate");
    expect(fs.committer.fsync(made->inode, Committer::SyncWhat::kAll), "fsync");
}

// Rows with a hole each.
void make_rows(Filesystem& fs, const FuzzShape& shape)
{
    constexpr uint64_t kStripes = 64;
    const uint64_t chunk = shape.volume.chunk_bytes;
    const uint64_t stripe = chunk * (shape.volume.member_count - 2);
    const Result<Attributes> rows = fs.names.make_node({kRootInode}, "rows", S_IFREG | 0644, 0, {});
    expect(rows.status(), "rows");
    const std::vector<std::byte> content(kStripes * stripe, std::byte{1});
    expect(fs.files.write(rows->inode, 0, content, {}, {}).status(), "write");
    expect(fs.step(true), "commit");
    for (uint64_t at = 0; at < content.size(); at += stripe)
        expect(fs.files.allocate_range(rows->inode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, chunk),
               "punch");
}

// The first fsync of a mount commits, the others are records. What is flushed without a commit goes into the
// holes.
void leave_live_logs(Filesystem& fs, const FuzzShape& shape)
{
    make_rows(fs, shape);
    const Result<Attributes> used = fs.names.lookup({kRootInode}, "used");
    expect(used.status(), "used");
    for (int round = 0; round < 4; ++round)
        change_and_fsync(fs, used->inode, round);
    const Result<Attributes> lost = fs.names.make_node({kRootInode}, "lost", S_IFREG | 0644, 0, {});
    expect(lost.status(), "lost");
    const std::vector<std::byte> content(200 * kBlockBytes, std::byte{2});
    expect(fs.files.write(lost->inode, 0, content, {}, {}).status(), "write");
    expect(fs.step(false), "flush");
    const VolumeInfo info = fs.info();
    CW_ASSERT(info.joined_blocks > 0 && info.fsync_records > 0);
}

void write_without_last_member(SimVolume& volume)
{
    std::string why;
    MountOptions options = manual_options();
    options.degraded = true;
    expect(volume.mount(options, why, {volume.member_count() - 1}), why.c_str());
    const Result<Attributes> made =
        volume.fs().names.make_node({kRootInode}, "lonely", S_IFREG | 0644, 0, {});
    expect(made.status(), "lonely");
    expect(volume.unmount(), "unmount");
}

void clean_step(Filesystem& fs)
{
    const CleanProgress progress = fs.clean_step(CleanWhen::kAny);
    CW_ASSERT(progress != CleanProgress::kNothing);
    if (progress == CleanProgress::kNeedsCommit)
        expect(fs.step(true), "commit");
}

// Blocks moved out of a group that is gone, and out of one that is still there.
void move_blocks(Filesystem& fs)
{
    while (fs.info().emptied_groups == 0)
        clean_step(fs);
    const Result<Attributes> made = fs.names.make_node({kRootInode}, "late", S_IFREG | 0644, 0, {});
    expect(made.status(), "late");
    const std::vector<std::byte> content(3 * kMiB, std::byte{5});
    expect(fs.files.write(made->inode, 0, content, {}, {}).status(), "write");
    expect(fs.step(true), "commit");
    expect(fs.files.allocate_range(made->inode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 20000, 300000),
           "punch");
    expect(fs.step(true), "commit");
    const uint64_t moved = fs.info().moved_blocks;
    while (fs.info().moved_blocks == moved)
        clean_step(fs);
    expect(fs.step(true), "commit");
}

}  // namespace

std::span<const FuzzShape> fuzz_shapes()
{
    return kShapes;
}

Members make_fuzz_members(const FuzzShape& shape)
{
    SimVolume volume(shape.volume);
    std::string why;
    expect(volume.make(why), why.c_str());
    if (shape.two_epochs)
        write_without_last_member(volume);
    MountOptions options = manual_options();
    if (shape.live_logs)
        options.join_above = 0;
    expect(volume.mount(options, why), why.c_str());
    Furnisher furnisher(volume.fs());
    furnisher.furnish({kRootInode}, "kept");
    furnisher.furnish({kRootInode}, "used");
    if (shape.spare)
        expect(volume.fs().committer.add_spare(std::make_unique<SimDevice>("spare", 96 * kMiB), why).status(),
               why.c_str());
    if (shape.moved)
        move_blocks(volume.fs());
    furnisher.leave_orphans({kRootInode});
    if (shape.live_logs)
        leave_live_logs(volume.fs(), shape);
    volume.kill();
    Members members;
    for (uint32_t i = 0; i < volume.member_count(); ++i)
        members.push_back(volume.member(i).clone("member" + std::to_string(i + 1)));
    return members;
}

}  // namespace cowraid::test
