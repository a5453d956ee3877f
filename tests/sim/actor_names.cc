// SPDX-License-Identifier: MIT
// Operations on names.
#include <fcntl.h>
#include <stdio.h>

#include "tests/sim/actor.h"
#include "tests/sim/compare.h"

namespace cowraid::test {

namespace {

class NameCount final : public DirectorySink {
public:
    bool entry(std::string_view, InodeNumber, uint32_t, uint64_t, const Attributes*) override
    {
        ++count;
        return true;
    }
    size_t count = 0;
};

}  // namespace

void Actor::add_made(const Result<Attributes>& made, InodeNumber parent, const std::string& name,
                     ModelInode inode)
{
    if (model().find(made->inode) != nullptr) {
        world_.violation("inode number %llu was given out twice", ull(made->inode));
        return;
    }
    inode.modified = made->modified;
    model().make(parent, name, made->inode, std::move(inode));
    receive_reference(made->inode);
}

void Actor::make(uint32_t type)
{
    const InodeNumber parent = some_directory();
    const std::string name = some_name();
    const Caller caller{static_cast<uint32_t>(prng().below(3)), static_cast<uint32_t>(prng().below(3)), 0};
    ModelInode inode;
    inode.mode = type | static_cast<uint32_t>(prng().below(01000));
    inode.uid = caller.uid;
    inode.gid = caller.gid;
    inode.rdev = type == S_IFCHR ? prng().between(1, 1000) : 0;
    world_.note("make %o in %llu: %.20s", inode.mode, ull(parent), name.c_str());
    const Result<Attributes> made =
        serve([&] { return fs().names.make_node(parent, name, inode.mode, inode.rdev, caller); });
    if (!world_.settle("make", made.err(), model().may_make(parent, name), Growth::kSome))
        return;
    world_.events.add(type == S_IFREG   ? Event::kCreate
                      : type == S_IFDIR ? Event::kMakeDirectory
                                        : Event::kMakeSpecial);
    add_made(made, parent, name, std::move(inode));
}

void Actor::make_symlink()
{
    const InodeNumber parent = some_directory();
    const std::string name = some_name();
    ModelInode inode;
    inode.mode = S_IFLNK | 0777;
    inode.target = std::string(prng().between(1, prng().chance(1, 8) ? 4000 : 60),
                               static_cast<char>('a' + prng().below(26)));
    world_.note("symlink in %llu: %.20s", ull(parent), name.c_str());
    const Result<Attributes> made =
        serve([&] { return fs().names.make_symlink(parent, name, inode.target, {}); });
    if (!world_.settle("symlink", made.err(), model().may_make(parent, name), Growth::kSome))
        return;
    world_.events.add(Event::kSymlink);
    add_made(made, parent, name, std::move(inode));
}

void Actor::link()
{
    const InodeNumber inode = some_inode([](const ModelInode&) { return true; });
    const InodeNumber parent = some_directory();
    const std::string name = some_name();
    world_.note("link %llu in %llu: %.20s", ull(inode), ull(parent), name.c_str());
    const Result<Attributes> linked = serve([&] { return fs().names.link(inode, parent, name); });
    if (!world_.settle("link", linked.err(), model().may_link(inode, parent, name), Growth::kSome))
        return;
    world_.events.add(Event::kLink);
    model().link(inode, parent, name);
    receive_reference(inode);
}

void Actor::remove()
{
    const InodeNumber parent = some_directory();
    const std::string name = some_name_in(parent);
    const InodeNumber inode = model().child(parent, name);
    if (inode == filler_ && inode.value != 0)
        return;
    const bool is_directory = inode.value != 0 && model().at(inode).is_directory();
    // Seldom the wrong call.
    const bool rmdir = prng().chance(1, 20) ? !is_directory : is_directory;
    const Model::Removal how = rmdir ? Model::Removal::kRmdir : Model::Removal::kUnlink;
    world_.note("%s in %llu: %.20s (%llu)", rmdir ? "rmdir" : "unlink", ull(parent), name.c_str(),
                ull(inode));
    const Status status =
        serve([&] { return rmdir ? fs().names.rmdir(parent, name) : fs().names.unlink(parent, name); });
    Err expected = model().may_remove(parent, name, how);
    if (name.size() > 255 && model().at(parent).links > 0)
        expected = Err::kNameTooLong;
    if (!world_.settle("remove", status.err(), expected))
        return;
    world_.events.add(rmdir ? Event::kRmdir : Event::kUnlink);
    if (world_.machine.shape().tight && fs().statistics().available_blocks < 64)
        world_.events.add(Event::kFullDelete);
    model().remove(parent, name);
    world_.drop_if_unused(inode);
}

void Actor::count_rename(const Model::Rename& rename)
{
    const bool replaces = model().child(rename.to, rename.new_name).value != 0;
    world_.events.add(rename.flags == RENAME_EXCHANGE   ? Event::kExchange
                      : rename.flags == RENAME_WHITEOUT ? Event::kWhiteout
                      : replaces                        ? Event::kReplace
                                                        : Event::kRename);
}

void Actor::rename()
{
    const uint32_t choices[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT};
    Model::Rename rename;
    rename.flags = choices[prng().below(6)];
    rename.from = some_directory();
    rename.to = prng().chance(1, 4) ? rename.from : some_directory();
    rename.name = some_name_in(rename.from);
    const bool to_existing = rename.flags == RENAME_EXCHANGE || prng().chance(1, 4);
    rename.new_name = to_existing ? some_name_in(rename.to) : some_name();
    const InodeNumber replaced = model().child(rename.to, rename.new_name);
    if (replaced == filler_ && replaced.value != 0)
        return;
    world_.note("rename %llu: %.20s to %llu: %.20s, flags %u", ull(rename.from), rename.name.c_str(),
                ull(rename.to), rename.new_name.c_str(), rename.flags);
    const uint64_t first_new = fs().names.next_inode;
    const Status status = serve([&] {
        return fs().names.rename(rename.from, rename.name, rename.to, rename.new_name, rename.flags);
    });
    if (!world_.settle("rename", status.err(), model().may_rename(rename), Growth::kSome))
        return;
    count_rename(rename);
    model().rename(rename);
    const uint64_t whiteout = fs().names.next_inode - 1;
    if (rename.flags == RENAME_WHITEOUT && whiteout >= first_new) {
        ModelInode inode;
        inode.mode = S_IFCHR;
        model().make(rename.from, rename.name, {whiteout}, std::move(inode));
    }
    if (replaced.value != 0)
        world_.drop_if_unused(replaced);
}

void Actor::lookup()
{
    const InodeNumber parent = some_directory();
    const std::string name = some_name_in(parent);
    world_.note("lookup in %llu: %.20s", ull(parent), name.c_str());
    const Result<Attributes> found = fs().names.lookup(parent, name);
    const InodeNumber expected = model().child(parent, name);
    Err wanted = expected.value == 0 ? Err::kNotFound : Err::kOk;
    if (name.size() > 255)
        wanted = Err::kNameTooLong;
    if (!world_.settle("lookup", found.err(), wanted))
        return;
    world_.events.add(Event::kLookup);
    if (found->inode != expected)
        world_.violation("lookup: inode %llu, expected %llu", ull(found->inode), ull(expected));
    else
        receive_reference(expected);
}

void Actor::forget()
{
    if (world_.references.empty())
        return;
    auto at = world_.references.begin();
    std::advance(at, static_cast<ptrdiff_t>(prng().below(world_.references.size())));
    const InodeNumber inode{at->first};
    const uint64_t count = prng().chance(1, 2) ? at->second : 1;
    world_.note("forget %llu, %llu times", ull(inode), static_cast<unsigned long long>(count));
    world_.let_go(inode, count);
    world_.events.add(Event::kForget);
}

void Actor::list_names()
{
    const InodeNumber directory =
        some_inode([](const ModelInode& inode) { return inode.is_directory() && inode.links > 0; });
    world_.note("readdir %llu", ull(directory));
    NameCount names;
    const Status status = fs().names.read_directory(directory, 0, {}, names);
    if (!world_.settle("readdir", status.err(), Err::kOk))
        return;
    world_.events.add(Event::kReadDirectory);
    if (names.count != model().at(directory).children.size() + 2)
        world_.violation("readdir of %llu: %zu names, expected %zu", ull(directory), names.count,
                         model().at(directory).children.size() + 2);
}

void Actor::step_names()
{
    const uint64_t choice = prng().below(100);
    if (crowded() && choice < 40)
        remove();
    else if (choice < 20)
        make(S_IFREG);
    else if (choice < 28)
        make(S_IFDIR);
    else if (choice < 32)
        make(prng().chance(1, 2) ? S_IFIFO : S_IFCHR);
    else if (choice < 37)
        make_symlink();
    else if (choice < 43)
        link();
    else if (choice < 60)
        remove();
    else if (choice < 80)
        rename();
    else if (choice < 90)
        lookup();
    else if (choice < 96)
        forget();
    else
        list_names();
}

}  // namespace cowraid::test
