// SPDX-License-Identifier: MIT
// Access control lists and file capabilities: kept with the mode, inherited, dropped.
#include <doctest/doctest.h>

#include <algorithm>

#include "fs/names/xattr.h"
#include "fs/txn/operation.h"
#include "tests/support/names_volume.h"

using namespace cowraid;

namespace {

constexpr uint16_t kR = 4, kW = 2, kX = 1;

// user::rw-, user:7:rwx, group::r--, mask::<mask>, other::---
Acl sample_acl(uint16_t mask = kR | kW)
{
    return {{AclTag::kOwner, kR | kW},
            {AclTag::kUser, kR | kW | kX, 7},
            {AclTag::kGroup, kR},
            {AclTag::kMask, mask},
            {AclTag::kOther, 0}};
}

const Acl kPlain = {{AclTag::kOwner, kR | kW | kX}, {AclTag::kGroup, kR | kX}, {AclTag::kOther, kX}};

Err set_acl(Filesystem& fs, InodeNumber inode, std::string_view name, const Acl& acl,
            const Caller& caller = {})
{
    return fs.names.set_xattr(inode, name, encode_acl(acl), 0, caller).err();
}

std::string acl_text(Filesystem& fs, InodeNumber inode, std::string_view name)
{
    const auto value = fs.names.get_xattr(inode, name);
    if (!value.ok())
        return err_text(value.err());
    const Result<Acl> acl = decode_acl(*value);
    REQUIRE(acl.ok());
    std::string text;
    for (const AclEntry& entry : *acl) {
        for (size_t bit = 0; bit < 6; ++bit)
            if (static_cast<uint32_t>(entry.tag) == uint32_t{1} << bit)
                text += "ougGm-"[bit];
        text += std::to_string(entry.permissions) + " ";
    }
    return text;
}

uint32_t mode_of(Filesystem& fs, InodeNumber inode)
{
    return attributes(fs, inode).mode & 07777;
}

void change_mode(Filesystem& fs, InodeNumber inode, uint32_t mode)
{
    SetAttributes change;
    change.mode = mode;
    REQUIRE(fs.names.set_attributes(inode, change, {}).ok());
}

const std::string kNone = err_text(Err::kNoData);

}  // namespace

TEST_CASE("an access list sets the mode, and chmod changes the list")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file", 04711);
    REQUIRE(set_acl(fs, file, kAccessAclName, sample_acl()) == Err::kOk);
    CHECK(mode_of(fs, file) == 04660);
    CHECK(acl_text(fs, file, kAccessAclName) == "o6 u7 g4 m6 -0 ");
    change_mode(fs, file, 0741);
    CHECK(acl_text(fs, file, kAccessAclName) == "o7 u7 g4 m4 -1 ");  // I-38
    CHECK(mode_of(fs, file) == 0741);
    SUBCASE("and stays when it is stored and read again")
    {
        volume.reopen();
    }
    SUBCASE("and stays in memory") { }
    CHECK(acl_text(volume.fs(), file, kAccessAclName) == "o7 u7 g4 m4 -1 ");
    CHECK(mode_of(volume.fs(), file) == 0741);
    REQUIRE(volume.fs().names.remove_xattr(file, kAccessAclName).ok());
    CHECK(acl_text(volume.fs(), file, kAccessAclName) == kNone);
    CHECK(mode_of(volume.fs(), file) == 0741);
    // Nothing is there to remove, and nothing to complain of.
    CHECK(volume.fs().names.remove_xattr(file, kAccessAclName).ok());
    CHECK(volume.fs().names.remove_xattr(file, kDefaultAclName).ok());
    CHECK(volume.fs().names.remove_xattr(file, "user.a").err() == Err::kNoData);
}

TEST_CASE("a list that says what the mode says is not stored")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    REQUIRE(set_acl(fs, file, kAccessAclName, sample_acl()) == Err::kOk);
    CHECK(fs.names.list_xattrs(file)->size() == kAccessAclName.size() + 1);
    REQUIRE(set_acl(fs, file, kAccessAclName, kPlain) == Err::kOk);
    CHECK(mode_of(fs, file) == 0751);
    CHECK(acl_text(fs, file, kAccessAclName) == kNone);
    CHECK(fs.names.list_xattrs(file)->empty());
    // A default list is one in any case.
    REQUIRE(set_acl(fs, kRoot, kDefaultAclName, kPlain) == Err::kOk);
    CHECK(acl_text(fs, kRoot, kDefaultAclName) == "o7 g5 -1 ");
}

TEST_CASE("lists that are refused")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    CHECK(set_acl(fs, file, kDefaultAclName, kPlain) == Err::kAccess);
    CHECK(fs.names.set_xattr(file, kAccessAclName, bytes_of("nonsense"), 0).err() == Err::kInvalid);
    const Result<Attributes> link = fs.names.make_symlink(kRoot, "link", "file", {});
    REQUIRE(link.ok());
    CHECK(set_acl(fs, link->inode, kAccessAclName, sample_acl()) == Err::kUnsupported);
    CHECK(mode_of(fs, file) == 0644);
}

TEST_CASE("set-gid goes with an access list from somebody who is not in the group")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    for (const uint32_t cleared : {uint32_t{0}, uint32_t{S_ISGID}}) {
        const InodeNumber file = make_file(fs, kRoot, "f" + std::to_string(cleared), 02755);
        Caller caller;
        caller.cleared_mode_bits = cleared;
        REQUIRE(set_acl(fs, file, kAccessAclName, sample_acl(), caller) == Err::kOk);
        CHECK(mode_of(fs, file) == (cleared != 0 ? 0660 : 02660));
    }
}

TEST_CASE("the umask counts where there is no default list")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber directory = make_directory(fs, kRoot, "d");
    const Caller careful{0, 0, 077};
    const auto made = [&](std::string_view name, uint32_t mode) {
        const Result<Attributes> node = fs.names.make_node(directory, name, mode, 0, careful);
        REQUIRE(node.ok());
        return node->inode;
    };
    CHECK(mode_of(fs, made("plain", S_IFREG | 0666)) == 0600);
    CHECK(mode_of(fs, made("plain.d", S_IFDIR | 01777)) == 01700);
    REQUIRE(set_acl(fs, directory, kDefaultAclName, sample_acl(kR | kX)) == Err::kOk);
    const InodeNumber file = made("file", S_IFREG | 0646);
    CHECK(mode_of(fs, file) == 0640);
    CHECK(acl_text(fs, file, kAccessAclName) == "o6 u7 g4 m4 -0 ");
    CHECK(acl_text(fs, file, kDefaultAclName) == kNone);
    const InodeNumber child = made("child", S_IFDIR | 0777);
    CHECK(mode_of(fs, child) == 0650);
    CHECK(acl_text(fs, child, kAccessAclName) == "o6 u7 g4 m5 -0 ");
    CHECK(acl_text(fs, child, kDefaultAclName) == "o6 u7 g4 m5 -0 ");
    CHECK(fs.names.list_xattrs(child)->size() == kAccessAclName.size() + kDefaultAclName.size() + 2);
    const Result<Attributes> link = fs.names.make_symlink(directory, "link", "x", careful);
    REQUIRE(link.ok());
    CHECK(link->mode == (S_IFLNK | 0777));
    CHECK(fs.names.list_xattrs(link->inode)->empty());
    // Lists of a directory without names leave nothing but a mode.
    REQUIRE(set_acl(fs, directory, kDefaultAclName, kPlain) == Err::kOk);
    const InodeNumber simple = made("simple", S_IFREG | 0666);
    CHECK(mode_of(fs, simple) == 0640);
    CHECK(fs.names.list_xattrs(simple)->empty());
    REQUIRE(fs.names.remove_xattr(directory, kDefaultAclName).ok());
    CHECK(mode_of(fs, made("after", S_IFREG | 0666)) == 0600);
}

TEST_CASE("a default list is inherited after it was read from the volume")
{
    TestVolume volume(manual_options());
    const InodeNumber directory = make_directory(volume.fs(), kRoot, "d");
    REQUIRE(set_acl(volume.fs(), directory, kDefaultAclName, sample_acl()) == Err::kOk);
    volume.reopen();
    const InodeNumber file = make_file(volume.fs(), directory, "file", 0666);
    CHECK(acl_text(volume.fs(), file, kAccessAclName) == "o6 u7 g4 m6 -0 ");
    volume.reopen();
    CHECK(acl_text(volume.fs(), file, kAccessAclName) == "o6 u7 g4 m6 -0 ");
}

TEST_CASE("a list that is damaged on the volume is an error, and can be replaced")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    const InodeNumber directory = make_directory(fs, kRoot, "d");
    for (const std::string_view name : {kAccessAclName, kDefaultAclName}) {
        REQUIRE(set_acl(fs, directory, name, sample_acl()) == Err::kOk);
        const Result<XattrSlot> slot = find_xattr_slot(fs.store, directory, name);
        REQUIRE(slot.ok());
        Operation op(fs.store);
        REQUIRE(op.begin(Operation::Kind::kGrow, kAclItems).ok());
        op.put(xattr_key(directory, slot->cursors[0]), encode_xattr(name, bytes_of("abcdefgh"))[0]);
    }
    CHECK(fs.names.get_xattr(directory, kAccessAclName).err() == Err::kCorrupt);
    SetAttributes change;
    change.mode = 0700;
    CHECK(fs.names.set_attributes(directory, change, {}).err() == Err::kCorrupt);
    CHECK(mode_of(fs, directory) == 0660);
    CHECK(fs.names.make_node(directory, "x", S_IFREG | 0600, 0, {}).err() == Err::kCorrupt);
    CHECK(lookup_error(fs, directory, "x") == Err::kNotFound);
    CHECK(set_acl(fs, directory, kAccessAclName, kPlain) == Err::kOk);
    CHECK(fs.names.remove_xattr(directory, kDefaultAclName).ok());
    CHECK(fs.names.make_node(directory, "x", S_IFREG | 0600, 0, {}).ok());
    CHECK(mode_of(fs, directory) == 0751);
}

TEST_CASE("a file capability goes with a change of the content")
{
    TestVolume volume(manual_options());
    const InodeNumber file = make_file(volume.fs(), kRoot, "file");
    const auto capability = [&] {
        return volume.fs().names.get_xattr(file, kCapabilityName).err();
    };
    CHECK(capability() == Err::kNoData);
    CHECK(volume.fs().names.drop_capability(file).ok());
    for (const bool reopened : {false, true}) {
        Filesystem& fs = volume.fs();
        REQUIRE(fs.names.set_xattr(file, "user.other", bytes_of("stays"), 0).ok());
        REQUIRE(fs.names.set_xattr(file, kCapabilityName, bytes_of("all of them"), 0).ok());
        if (reopened)
            volume.reopen();
        CHECK(text_of(*volume.fs().names.get_xattr(file, kCapabilityName)) == "all of them");
        SetAttributes change;
        if (reopened)
            change.size_bytes = 100;
        else
            REQUIRE(volume.fs().names.drop_capability(file).ok());
        REQUIRE(volume.fs().names.set_attributes(file, change, {}).ok());
        CHECK(capability() == Err::kNoData);
        CHECK(text_of(*volume.fs().names.get_xattr(file, "user.other")) == "stays");
    }
}

TEST_CASE("programs that do not know of lists and capabilities may read their volume only")
{
    for (const std::string_view name : {kAccessAclName, kDefaultAclName, kCapabilityName}) {
        TestVolume volume(manual_options());
        REQUIRE(volume.fs().names.set_xattr(kRoot, "user.x", bytes_of("x"), 0).ok());
        volume.reopen();
        REQUIRE(!volume.fs().store.volume.keeps_rights());
        REQUIRE(volume.fs().names.set_xattr(kRoot, name, encode_acl(sample_acl()), 0).ok());
        SUBCASE("closed")
        {
            volume.reopen();
        }
        SUBCASE("cut off after an fsync")
        {
            REQUIRE(volume.fs().committer.fsync(kRoot, Committer::SyncWhat::kAll).ok());
            volume.crash();
        }
        CHECK(volume.fs().store.volume.keeps_rights());  // I-38
        CHECK(volume.fs().names.get_xattr(kRoot, name).ok());
    }
}
