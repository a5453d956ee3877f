// SPDX-License-Identifier: MIT
#include "tests/filesystem/tree_text.h"

#include <sys/stat.h>

#include <map>
#include <vector>

#include "base/checksum.h"
#include "tests/filesystem/volume_steps.h"
#include "tests/support/name_sink.h"

namespace cowraid::test {

namespace {

std::string number(uint64_t value)
{
    return " " + std::to_string(value);
}

std::string content_text(Filesystem& fs, const Attributes& attributes)
{
    std::vector<std::byte> content(attributes.size_bytes);
    const Result<size_t> got = fs.files.read(attributes.inode, 0, content);
    if (!got.ok() || *got != content.size())
        return " UNREADABLE";
    return " sum" + number(content.empty() ? 0 : checksum_of(content));
}

std::string xattr_text(Filesystem& fs, InodeNumber inode)
{
    const Result<std::string> listed = fs.names.list_xattrs(inode);
    if (!listed.ok())
        return " UNREADABLE";
    std::map<std::string, std::string> values;
    for (size_t at = 0; at < listed->size(); at = listed->find('\0', at) + 1) {
        const std::string name = listed->c_str() + at;
        const Result<std::vector<std::byte>> value = fs.names.get_xattr(inode, name);
        values[name] = value.ok() ? std::string(reinterpret_cast<const char*>(value->data()), value->size())
                                  : "UNREADABLE";
    }
    std::string text;
    for (const auto& [name, value] : values)
        text += " " + name + "=" + value;
    return text;
}

std::string inode_text(Filesystem& fs, InodeNumber inode)
{
    const Result<Attributes> found = fs.names.get_attributes(inode);
    if (!found.ok())
        return " UNREADABLE";
    std::string text = number(found->inode.value) + number(found->mode) + number(found->uid) +
                       number(found->gid) + number(found->link_count) + number(found->size_bytes);
    for (const timespec& time : {found->modified, found->changed, found->created})
        text += number(static_cast<uint64_t>(time.tv_sec)) + number(static_cast<uint64_t>(time.tv_nsec));
    if (S_ISREG(found->mode))
        text += content_text(fs, *found);
    if (S_ISLNK(found->mode)) {
        const Result<std::string> target = fs.names.read_symlink(inode);
        text += target.ok() ? " -> " + *target : " UNREADABLE";
    }
    return text + xattr_text(fs, inode);
}

void add_directory(Filesystem& fs, InodeNumber directory, const std::string& path, std::string& text)
{
    text += path + "/" + inode_text(fs, directory) + "\n";
    NameSink sink;
    if (!fs.names.read_directory(directory, 0, {}, sink).ok())
        text += "UNREADABLE\n";
    for (const auto& [name, inode] : sink.names) {
        const Result<Attributes> attributes = fs.names.get_attributes(inode);
        if (attributes.ok() && S_ISDIR(attributes->mode))
            add_directory(fs, inode, path + "/" + name, text);
        else
            text += path + "/" + name + inode_text(fs, inode) + "\n";
    }
}

}  // namespace

std::string tree_text(Filesystem& fs)
{
    std::string text;
    add_directory(fs, kRoot, "", text);
    return text;
}

}  // namespace cowraid::test
