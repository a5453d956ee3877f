// SPDX-License-Identifier: MIT
#include "tests/filesystem/check_content.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <string_view>

namespace cowraid::test {

std::string text_of(const CheckReport& report)
{
    std::string text;
    for (const CheckFinding& finding : report.findings)
        text += finding.kind + ": " + finding.text + " (address " + std::to_string(finding.address) +
                ", member " + std::to_string(finding.member) +
                (finding.repairable ? ", repairable)\n" : ")\n");
    return text;
}

InodeNumber Filler::make(InodeNumber parent, const std::string& name, uint32_t mode, bool remembered)
{
    const Result<Attributes> made = fs().names.make_node(parent, name, mode, 0, {});
    REQUIRE_MESSAGE(made.ok(), err_text(made.err()));
    ++inodes;
    directories += S_ISDIR(mode);
    files += S_ISREG(mode);
    if (!remembered)
        fs().names.forget(made->inode, 1);
    return made->inode;
}

void Filler::write(InodeNumber inode, uint64_t offset, size_t bytes)
{
    std::vector<std::byte> content(bytes);
    prng_.fill(content.data(), bytes);
    const Result<size_t> written = fs().files.write(inode, offset, content, {}, {});
    REQUIRE_MESSAGE(written.ok(), err_text(written.err()));
    REQUIRE(*written == bytes);
}

void Filler::make_names()
{
    directory_ = make(kRoot, "directory", S_IFDIR | 0755);
    other_directory_ = make(directory_, "other", S_IFDIR | 0755);
    make(kRoot, "gone", S_IFDIR | 0755);
    REQUIRE(fs().names.rmdir(kRoot, "gone").ok());
    --inodes, --directories;
    for (int i = 0; i < 200; ++i) {
        const InodeNumber file = make(other_directory_, "file" + std::to_string(i), S_IFREG | 0644);
        if (i % 3 == 0)
            write(file, 0, 100 + static_cast<size_t>(i) * 70);
        if (i % 7 == 0) {
            REQUIRE(fs().names.link(file, directory_, "link" + std::to_string(i)).ok());
            fs().names.forget(file, 1);
        }
        if (i % 11 == 0)
            REQUIRE(fs().names.set_xattr(file, "user.number", std::as_bytes(std::span("value")), 0).ok());
    }
    const Result<Attributes> symlink = fs().names.make_symlink(kRoot, "symlink", "directory/other", {});
    REQUIRE(symlink.ok());
    fs().names.forget(symlink->inode, 1);
    ++inodes;
    make(kRoot, "fifo", S_IFIFO | 0600);
}

void Filler::make_data()
{
    const InodeNumber big = make(kRoot, "big", S_IFREG | 0644);
    for (int piece = 0; piece < 3; ++piece)
        write(big, static_cast<uint64_t>(piece) * kMiB, kMiB);
    const InodeNumber sparse = make(kRoot, "sparse", S_IFREG | 0644);
    for (int i = 0; i < 30; ++i)
        write(sparse, prng_.below(40 * kMiB), 1 + prng_.below(20000));
    const InodeNumber promised = make(kRoot, "promised", S_IFREG | 0644);
    REQUIRE(fs().files.allocate_range(promised, 0, 0, 2 * kMiB).ok());
    REQUIRE(fs().files.allocate_range(promised, FALLOC_FL_KEEP_SIZE, 3 * kMiB, 100000).ok());
    write(promised, 500000, 300000);
}

void Filler::change_things()
{
    REQUIRE(fs().names.rename(other_directory_, "file1", kRoot, "moved", 0).ok());
    REQUIRE(fs().names.rename(other_directory_, "file2", other_directory_, "file4", 0).ok());
    --inodes, --files;
    REQUIRE(fs().names.rename(directory_, "other", kRoot, "sparse", 2).ok());  // RENAME_EXCHANGE
    for (int i = 10; i < 60; i += 4) {
        REQUIRE(fs().names.unlink(other_directory_, "file" + std::to_string(i)).ok());
        if (i % 7 != 0)
            --inodes, --files;
    }
    const Result<Attributes> big = fs().names.lookup(kRoot, "big");
    REQUIRE(big.ok());
    write(big->inode, 700001, 100000);
    REQUIRE(fs().files.allocate_range(big->inode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100000, 300000)
                .ok());
    SetAttributes change;
    change.size_bytes = 2 * kMiB + 12345;
    REQUIRE(fs().names.set_attributes(big->inode, change, {}).ok());
    fs().names.forget(big->inode, 1);
}

void Filler::leave_orphans()
{
    const InodeNumber orphan = make(kRoot, "orphan", S_IFREG | 0644, true);
    write(orphan, 0, 70000);
    REQUIRE(fs().files.allocate_range(orphan, 0, kMiB, 40000).ok());
    make(kRoot, "removed", S_IFDIR | 0755, true);
    REQUIRE(fs().step(true).ok());
    REQUIRE(fs().names.unlink(kRoot, "orphan").ok());
    REQUIRE(fs().names.rmdir(kRoot, "removed").ok());
}

void Filler::run()
{
    make_names();
    REQUIRE(fs().step(true).ok());
    make_data();
    REQUIRE(fs().step(false).ok());
    REQUIRE(fs().step(true).ok());
    change_things();
    REQUIRE(fs().step(true).ok());
    leave_orphans();
}

Image filled_image(const VolumeShape& shape)
{
    SimVolume volume(shape);
    make_and_mount(volume);
    Filler(volume).run();
    REQUIRE(volume.unmount().ok());
    return Image::copy_of(volume);
}

Image raid6_image()
{
    static const Image image = filled_image(kCheckedRaid6);
    return image.clone();
}

std::vector<FileExtent> stored_extents(Image& image)
{
    std::vector<FileExtent> extents;
    for (const StoredItem& item : file_tree_items(image)) {
        if (item.key.type != static_cast<uint8_t>(ItemType::kExtent))
            continue;
        const Result<FileExtent> extent = decode_extent(item.key.offset / kBlockBytes, item.payload);
        REQUIRE(extent.ok());
        if (extent->kind == ExtentKind::kData)
            extents.push_back(*extent);
    }
    REQUIRE(!extents.empty());
    return extents;
}

void require_findings(CheckReport report, const std::vector<Expected>& expected)
{
    INFO(text_of(report));
    const auto files = static_cast<size_t>(
        std::erase_if(report.findings, [](const CheckFinding& finding) { return finding.kind == "file"; }));
    const bool lost = std::any_of(expected.begin(), expected.end(), [](const Expected& want) {
        return std::string_view(want.kind) == "checksum" && !want.repairable;
    });
    CHECK((files > 0) == lost);
    REQUIRE(report.findings.size() == expected.size());
    for (const Expected& want : expected) {
        bool there = false;
        for (const CheckFinding& have : report.findings)
            there = there || (have.kind == want.kind && have.address == want.address &&
                              have.member == want.member && have.repairable == want.repairable);
        CAPTURE(want.kind);
        CAPTURE(want.address);
        CHECK(there);
    }
}

}  // namespace cowraid::test
