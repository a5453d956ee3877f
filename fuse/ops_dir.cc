// SPDX-License-Identifier: MIT
// Reading directories.
#include <cerrno>
#include <cstring>
#include <vector>

#include "fuse/frontend.h"

namespace cowraid {

namespace {

// Packs entries into the buffer of one READDIR or READDIRPLUS answer.
class PackingSink final : public DirectorySink {
public:
    PackingSink(fuse_req_t request, size_t bytes, bool plus)
        : request_(request), frontend_(frontend_of(request)), plus_(plus), buffer_(bytes)
    {
    }

    bool entry(std::string_view name, InodeNumber inode, uint32_t mode_type, uint64_t next_cursor,
               const Attributes* attributes) override
    {
        name_.assign(name);
        char* const out = buffer_.data() + used_;
        const size_t room = buffer_.size() - used_;
        const auto cursor = static_cast<off_t>(next_cursor);
        const bool dot = name == "." || name == "..";
        fuse_entry_param param{};
        if (attributes != nullptr)
            param = entry_of(frontend_, *attributes);
        param.attr.st_ino = inode.value;
        param.attr.st_mode = attributes != nullptr ? attributes->mode : mode_type;
        if (dot)
            param.ino = 0;  // no lookup reference came with it
        const size_t bytes = plus_
                                 ? fuse_add_direntry_plus(request_, out, room, name_.c_str(), &param, cursor)
                                 : fuse_add_direntry(request_, out, room, name_.c_str(), &param.attr, cursor);
        if (bytes > room)
            return false;
        used_ += bytes;
        if (attributes != nullptr && !dot)
            referenced_.push_back(inode);
        return true;
    }

    [[nodiscard]] bool empty() const { return used_ == 0; }

    void reply()
    {
        if (fuse_reply_buf(request_, buffer_.data(), used_) != -ENOENT)
            return;
        for (const InodeNumber inode : referenced_)
            frontend_.filesystem->names.forget(inode, 1);
    }

private:
    fuse_req_t request_;
    const Frontend& frontend_;
    const bool plus_;  // every record of an answer has the form that was asked for
    std::vector<char> buffer_;
    size_t used_ = 0;
    std::string name_;  // zero-terminated copy
    std::vector<InodeNumber> referenced_;
};

void read_entries(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset,
                  const Names::ReadDirectory& how)
{
    PackingSink sink(request, bytes, how.with_attributes);
    Names& names = filesystem_of(request).names;
    const InodeNumber directory = inode_of(request, node);
    const Status status = names.read_directory(directory, static_cast<uint64_t>(offset), how, sink);
    if (status.ok())
        names.note_access(directory);
    // Entries already taken hold references, so they go out; the error meets the next call.
    if (!status.ok() && sink.empty())
        reply_status(request, status);
    else
        sink.reply();
}

void op_readdir(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset, fuse_file_info*)
{
    read_entries(request, node, bytes, offset, {.with_attributes = false});
}

void op_readdirplus(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset, fuse_file_info*)
{
    read_entries(request, node, bytes, offset, {.with_attributes = true});
}

// There is nothing to keep per open directory. ENOSYS tells the kernel so: it opens directories on its own
// from then on and caches their entries, which is right because only this mount changes them.
void op_opendir(fuse_req_t request, fuse_ino_t, fuse_file_info*)
{
    fuse_reply_err(request, ENOSYS);
}

void op_fsyncdir(fuse_req_t request, fuse_ino_t node, int, fuse_file_info*)
{
    reply_when_durable(request, inode_of(request, node), Committer::SyncWhat::kAll);
}

}  // namespace

void add_directory_ops(fuse_lowlevel_ops& ops)
{
    ops.opendir = op_opendir;
    ops.readdir = op_readdir;
    ops.readdirplus = op_readdirplus;
    ops.fsyncdir = op_fsyncdir;
}

}  // namespace cowraid
