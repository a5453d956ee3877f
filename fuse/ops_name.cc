// SPDX-License-Identifier: MIT
// lookup, forget and everything that changes names.
#include <string>

#include "fuse/frontend.h"

namespace cowraid {

namespace {

void op_lookup(fuse_req_t request, fuse_ino_t parent, const char* name)
{
    auto found = filesystem_of(request).names.lookup(inode_of(request, parent), name);
    if (found.ok() || found.err() != Err::kNotFound) {
        reply_entry(request, found);
        return;
    }
    // Node 0 with a timeout: the kernel remembers that the name does not exist.
    fuse_entry_param absent{};
    absent.entry_timeout = kNegativeCacheSeconds;
    fuse_reply_entry(request, &absent);
}

// What the kernel holds of an inode goes with its last reference.
void forget_lookups(Frontend& frontend, fuse_ino_t node, uint64_t count)
{
    const InodeNumber inode = inode_of(frontend, node);
    const uint64_t version = frontend.page_cache.version(inode);
    if (frontend.filesystem->names.forget(inode, count))
        frontend.page_cache.forget(inode, version);
}

void op_forget(fuse_req_t request, fuse_ino_t node, uint64_t count)
{
    forget_lookups(frontend_of(request), node, count);
    fuse_reply_none(request);
}

void op_forget_multi(fuse_req_t request, size_t count, fuse_forget_data* forgets)
{
    for (size_t i = 0; i < count; ++i)
        forget_lookups(frontend_of(request), forgets[i].ino, forgets[i].nlookup);
    fuse_reply_none(request);
}

void op_mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device)
{
    serve_name_change(request, [=, name = std::string(name)] {
        return reply_new_entry(request,
                               filesystem_of(request).names.make_node(inode_of(request, parent), name, mode,
                                                                      device, caller_of(request)));
    });
}

void op_mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode)
{
    op_mknod(request, parent, name, (mode & 07777) | S_IFDIR, 0);
}

void op_symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name)
{
    serve_name_change(request, [=, target = std::string(target), name = std::string(name)] {
        return reply_new_entry(request, filesystem_of(request).names.make_symlink(
                                            inode_of(request, parent), name, target, caller_of(request)));
    });
}

void op_link(fuse_req_t request, fuse_ino_t node, fuse_ino_t new_parent, const char* new_name)
{
    serve_name_change(request, [=, new_name = std::string(new_name)] {
        return reply_new_entry(request,
                               filesystem_of(request).names.link(inode_of(request, node),
                                                                 inode_of(request, new_parent), new_name));
    });
}

void op_unlink(fuse_req_t request, fuse_ino_t parent, const char* name)
{
    serve_name_change(request, [=, name = std::string(name)] {
        return reply_name_change(request,
                                 filesystem_of(request).names.unlink(inode_of(request, parent), name));
    });
}

void op_rmdir(fuse_req_t request, fuse_ino_t parent, const char* name)
{
    serve_name_change(request, [=, name = std::string(name)] {
        return reply_name_change(request,
                                 filesystem_of(request).names.rmdir(inode_of(request, parent), name));
    });
}

void op_rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
               const char* new_name, unsigned flags)
{
    serve_name_change(request, [=, name = std::string(name), new_name = std::string(new_name)] {
        return reply_name_change(request, filesystem_of(request).names.rename(
                                              inode_of(request, parent), name, inode_of(request, new_parent),
                                              new_name, flags, caller_of(request)));
    });
}

void op_readlink(fuse_req_t request, fuse_ino_t node)
{
    Names& names = filesystem_of(request).names;
    const InodeNumber link = inode_of(request, node);
    const auto target = names.read_symlink(link);
    if (!target.ok()) {
        reply_status(request, target.status());
        return;
    }
    names.note_access(link);
    fuse_reply_readlink(request, target->c_str());
}

}  // namespace

void add_name_ops(fuse_lowlevel_ops& ops)
{
    ops.lookup = op_lookup;
    ops.forget = op_forget;
    ops.forget_multi = op_forget_multi;
    ops.mknod = op_mknod;
    ops.mkdir = op_mkdir;
    ops.symlink = op_symlink;
    ops.link = op_link;
    ops.unlink = op_unlink;
    ops.rmdir = op_rmdir;
    ops.rename = op_rename;
    ops.readlink = op_readlink;
}

}  // namespace cowraid
