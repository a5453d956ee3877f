// SPDX-License-Identifier: MIT
// Operations on attributes.
#include <sys/xattr.h>

#include "tests/sim/actor.h"
#include "tests/sim/compare.h"

namespace cowraid::test {

namespace {

bool any(const ModelInode&)
{
    return true;
}

// Chown takes set-id bits away; set-gid without group execution is another thing.
void change_owner(ModelInode& inode, uint32_t uid, uint32_t gid)
{
    inode.uid = uid;
    inode.gid = gid;
    if (inode.is_directory())
        return;
    inode.mode &= ~uint32_t{S_ISUID};
    if ((inode.mode & S_IXGRP) != 0)
        inode.mode &= ~uint32_t{S_ISGID};
}

}  // namespace

void Actor::set_attributes()
{
    const InodeNumber inode = some_inode(any);
    SetAttributes change;
    if (prng().chance(1, 2))
        change.mode = static_cast<uint32_t>(prng().below(010000));
    if (prng().chance(1, 4)) {
        change.uid = static_cast<uint32_t>(prng().below(5));
        change.gid = static_cast<uint32_t>(prng().below(5));
    }
    if (prng().chance(1, 3))
        change.modified = timespec{static_cast<time_t>(prng().below(2'000'000'000)),
                                   static_cast<long>(prng().below(1'000'000'000))};
    world_.note("setattr %llu", ull(inode));
    const Result<Attributes> changed = serve([&] { return fs().names.set_attributes(inode, change, {}); });
    if (!world_.settle("setattr", changed.err(), Err::kOk, Growth::kSome))
        return;
    world_.events.add(Event::kSetAttributes);
    ModelInode& expected = model().change(inode);
    if (change.uid)
        change_owner(expected, *change.uid, *change.gid);
    if (change.mode)
        expected.mode = (expected.mode & S_IFMT) | *change.mode;
    if (change.modified)
        expected.modified = *change.modified;
}

void Actor::set_xattr()
{
    const InodeNumber inode = some_inode(any);
    const std::string name = "user.a" + std::to_string(prng().below(5));
    const int choices[] = {0, 0, XATTR_CREATE, XATTR_REPLACE};
    const int flags = choices[prng().below(4)];
    const std::string value(prng().below(prng().chance(1, 10) ? 4000 : 60),
                            static_cast<char>('a' + prng().below(26)));
    const bool exists = model().at(inode).xattrs.contains(name);
    const Err expected = exists && flags == XATTR_CREATE     ? Err::kExists
                         : !exists && flags == XATTR_REPLACE ? Err::kNoData
                                                             : Err::kOk;
    world_.note("setxattr %llu %s, %zu bytes, flags %d", ull(inode), name.c_str(), value.size(), flags);
    const Status status =
        serve([&] { return fs().names.set_xattr(inode, name, std::as_bytes(std::span(value)), flags); });
    if (!world_.settle("setxattr", status.err(), expected, Growth::kSome))
        return;
    world_.events.add(Event::kSetXattr);
    model().change(inode).xattrs[name] = value;
}

void Actor::remove_xattr()
{
    const InodeNumber inode =
        some_inode([](const ModelInode& candidate) { return !candidate.xattrs.empty(); });
    if (inode.value == 0)
        return;
    const std::string name = prng().chance(1, 8) ? "user.none" : model().at(inode).xattrs.begin()->first;
    world_.note("removexattr %llu %s", ull(inode), name.c_str());
    const Status status = serve([&] { return fs().names.remove_xattr(inode, name); });
    const Err expected = model().at(inode).xattrs.contains(name) ? Err::kOk : Err::kNoData;
    if (!world_.settle("removexattr", status.err(), expected))
        return;
    world_.events.add(Event::kRemoveXattr);
    model().change(inode).xattrs.erase(name);
}

// Everything about one inode, content included.
void Actor::look_at_inode()
{
    const InodeNumber inode = some_inode(any);
    world_.note("look at %llu", ull(inode));
    const std::string why = compare_inode(fs(), prng(), inode, model().at(inode));
    if (!world_.returned())
        return;
    world_.events.add(Event::kRead);
    if (!why.empty())
        world_.violation("%s", why.c_str());
}

void Actor::step_attributes()
{
    const uint64_t choice = prng().below(100);
    if (choice < 25)
        set_attributes();
    else if (choice < 60)
        set_xattr();
    else if (choice < 70)
        remove_xattr();
    else
        look_at_inode();
}

}  // namespace cowraid::test
