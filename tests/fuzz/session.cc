// SPDX-License-Identifier: MIT
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "format/items.h"
#include "tests/fuzz/walk.h"

namespace cowraid::test {

namespace {

constexpr InodeNumber kRoot{kRootInode};

class Session {
public:
    explicit Session(Filesystem& fs) : fs_(fs) { }

    void run(const SessionOptions& options);
    SessionResult result;

private:
    bool note(Status status, const char* what)
    {
        ++result.calls;
        if (status.ok())
            return true;
        if (status.err() == Err::kNotPermitted)
            return false;  // by flags of an inode: no fault
        ++result.errors;
        if (result.first_error.empty())
            result.first_error = std::string(what) + ": " + err_text(status.err());
        return false;
    }
    // An inode by its path below the root; number 0 when it cannot be had. Its reference goes at once.
    InodeNumber find(std::initializer_list<const char*> path);
    InodeNumber make(InodeNumber parent, const char* name, uint32_t mode);
    void write(InodeNumber inode, uint64_t offset, size_t bytes);
    void resize(InodeNumber inode, uint64_t size);
    void use_data();
    void use_names(InodeNumber used);
    void make_files(InodeNumber parent);
    void fill();
    void clean();
    void end_replacement();

    Filesystem& fs_;
    Prng prng_{11};
};

InodeNumber Session::find(std::initializer_list<const char*> path)
{
    InodeNumber at = kRoot;
    for (const char* name : path) {
        const Result<Attributes> found = fs_.names.lookup(at, name);
        if (!note(found.status(), name))
            return {0};
        fs_.names.forget(found->inode, 1);
        at = found->inode;
    }
    return at;
}

InodeNumber Session::make(InodeNumber parent, const char* name, uint32_t mode)
{
    const Result<Attributes> made = fs_.names.make_node(parent, name, mode, 0, {});
    if (!note(made.status(), name))
        return {0};
    fs_.names.forget(made->inode, 1);
    return made->inode;
}

void Session::write(InodeNumber inode, uint64_t offset, size_t bytes)
{
    std::vector<std::byte> content(bytes);
    prng_.fill(content.data(), bytes);
    if (inode.value != 0)
        note(fs_.files.write(inode, offset, content, {}, {1, 1, 0}).status(), "write");
}

void Session::resize(InodeNumber inode, uint64_t size)
{
    SetAttributes change;
    change.size_bytes = size;
    if (inode.value != 0)
        note(fs_.names.set_attributes(inode, change, {1, 1, 0}).status(), "truncate");
}

void Session::use_data()
{
    const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    write(find({"used", "pieces"}), 30000, 60001);
    write(find({"used", "promised"}), 200000, 30000);
    write(find({"used", "small"}), 50, 7000);
    write(find({"used", "empty"}), 0, 10);
    resize(find({"used", "sparse"}), 9 * kMiB + 1234);
    note(fs_.step(true), "commit");
    const InodeNumber big = find({"used", "big"});
    note(fs_.files.allocate_range(big, punch, 100001, 500000), "punch");
    note(fs_.files.allocate_range(find({"used", "frames"}), punch, 100'000, 50'000), "punch");
    resize(find({"used", "frame in an item"}), 1000);
    resize(big, kMiB + 1);
    resize(big, 5 * kMiB);
    resize(find({"used", "promised"}), 150000);
    note(fs_.files.allocate_range(find({"used", "pieces"}), 0, 0, 500000), "fallocate");
    SetAttributes change;
    change.mode = 0700;
    for (const char* name : {"symlink", "fifo", "character", "linked", "many"})
        note(fs_.names.set_attributes(find({"used", name}), change, {}).status(), "chmod");
}

void Session::use_names(InodeNumber used)
{
    const InodeNumber deep = find({"used", "deep"});
    const InodeNumber many = find({"used", "many"});
    note(fs_.names.link(find({"used", "linked"}), many, "third").status(), "link");
    note(fs_.names.unlink(deep, "second"), "unlink");
    note(fs_.names.rename(used, "linked", deep, "renamed", 0), "rename");
    note(fs_.names.rename(used, "deep", many, "moved", 0), "rename directory");
    note(fs_.names.rename(used, "fifo", used, "socket", 2), "exchange");
    for (const char* name : {"symlink", "fifo", "character", "block", "small"})
        note(fs_.names.unlink(used, name), "unlink");
    for (int i = 0; i < 10; ++i)
        note(fs_.names.unlink(many, "entry-with-a-name-of-some-length-" + std::to_string(i)), "unlink");
    const InodeNumber attributes = find({"used", "attributes"});
    const std::vector<std::byte> value(200, std::byte{9});
    note(fs_.names.set_xattr(attributes, "user.name1", value, 0), "xattr");
    note(fs_.names.set_xattr(attributes, "user.more", value, 0), "xattr");
    note(fs_.names.remove_xattr(attributes, "user.name2"), "xattr");
    note(fs_.names.set_xattr(used, "user.used", value, 0), "xattr");
}

void Session::make_files(InodeNumber parent)
{
    const InodeNumber made = make(parent, "made", S_IFDIR | 0755);
    if (made.value == 0)
        return;
    write(make(made, "file", S_IFREG | 0644), 0, 2 * kMiB);
    note(fs_.step(true), "commit");
    write(make(made, "other", S_IFREG | 0644), 100, 100000);
    const Result<Attributes> link = fs_.names.make_symlink(made, "symlink", "target", {});
    if (note(link.status(), "symlink"))
        fs_.names.forget(link->inode, 1);
    note(fs_.files.allocate_range(make(made, "reserved", S_IFREG | 0644), 0, 0, 200000), "fallocate");
    for (int i = 0; i < 100; ++i)
        make(made, ("name" + std::to_string(i)).c_str(), S_IFREG | 0644);
}

// No space is what this looks for; a volume that cannot be written any more ends it too.
void Session::fill()
{
    const Result<Attributes> made = fs_.names.make_node(kRoot, "fill", S_IFREG | 0644, 0, {});
    if (!made.ok())
        return;
    std::vector<std::byte> content(kMiB);
    prng_.fill(content.data(), content.size());
    for (uint64_t offset = 0; offset < 256 * kMiB; offset += content.size())
        if (!fs_.files.write(made->inode, offset, content, {}, {}).ok() ||
            !fs_.step(offset % (8 * kMiB) == 0).ok())
            break;
    fs_.names.forget(made->inode, 1);
}

// What cannot be moved stays.
void Session::clean()
{
    for (int step = 0; step < 24; ++step)
        if (fs_.clean_step(CleanWhen::kAny) != CleanProgress::kWorked)
            note(fs_.step(true), "commit");
}

// Its target goes as it came.
void Session::end_replacement()
{
    std::string why;
    for (int step = 0; step < 8 && fs_.replace_step();)
        ++step;
    if (fs_.committer.store.volume.replacing().active())
        fs_.committer.replace.cancel(why).ignore();
}

void Session::run(const SessionOptions& options)
{
    note(fs_.step(true), "commit");
    const InodeNumber used = find({"used"});
    make_files(kRoot);
    use_data();
    note(fs_.step(true), "commit");
    use_names(used);
    note(fs_.step(true), "commit");
    clean();
    end_replacement();
    if (options.fill)
        fill();
    note(fs_.committer.sync(), "sync");
}

class Names final : public DirectorySink {
public:
    bool entry(std::string_view name, InodeNumber inode, uint32_t, uint64_t, const Attributes*) override
    {
        if (name != "." && name != "..")
            list.emplace_back(std::string(name), inode);
        return list.size() < 64;
    }
    std::vector<std::pair<std::string, InodeNumber>> list;
};

void remove_below(Filesystem& fs, InodeNumber directory, int depth)
{
    constexpr int kDepthMax = 12;
    constexpr int kRoundsMax = 20;
    for (int round = 0; round < kRoundsMax; ++round) {
        Names names;
        if (!fs.names.read_directory(directory, 0, {}, names).ok() || names.list.empty())
            return;
        bool progress = false;
        for (const auto& [name, inode] : names.list) {
            if (fs.names.unlink(directory, name).ok()) {
                progress = true;
                continue;
            }
            if (depth < kDepthMax)
                remove_below(fs, inode, depth + 1);
            progress = fs.names.rmdir(directory, name).ok() || progress;
        }
        if (!progress)
            return;
    }
}

}  // namespace

SessionResult use_volume(Filesystem& fs, const SessionOptions& options)
{
    Session session(fs);
    session.run(options);
    return session.result;
}

void remove_everything(Filesystem& fs)
{
    remove_below(fs, kRoot, 0);
    fs.step(true).ignore();  // a damaged volume may refuse; the point is that it answers
    fs.step(true).ignore();
}

}  // namespace cowraid::test
