// SPDX-License-Identifier: MIT
#include "tests/support/names_volume.h"

#include "base/assert.h"
#include "fs/make_volume.h"

namespace cowraid {

namespace {

constexpr size_t kMemberCount = 4;
constexpr uint64_t kMemberBytes = 256 * kMiB;

class DeviceView final : public BlockDevice {
public:
    explicit DeviceView(BlockDevice& device) : device_(device) { }

    [[nodiscard]] uint64_t size_bytes() const override { return device_.size_bytes(); }
    [[nodiscard]] const char* name() const override { return device_.name(); }
    void perform(IoRequest& request) override { device_.perform(request); }

private:
    BlockDevice& device_;
};

std::vector<std::unique_ptr<BlockDevice>> views_of(std::vector<std::unique_ptr<SimDevice>>& members)
{
    std::vector<std::unique_ptr<BlockDevice>> views;
    for (const std::unique_ptr<SimDevice>& member : members)
        views.push_back(view_of(*member));
    return views;
}

}  // namespace

TestVolume::TestVolume(const MountOptions& options) : options_(options)
{
    for (size_t i = 0; i < kMemberCount; ++i)
        members_.push_back(std::make_unique<SimDevice>("member" + std::to_string(i + 1), kMemberBytes));
    MakeOptions make;
    make.data_profile = ProfileId::kRaid6;
    make.metadata_profile = ProfileId::kRaid1c3;
    std::string why;
    std::vector<std::unique_ptr<BlockDevice>> views = views_of(members_);
    CW_ASSERT(make_volume(views, make, why).ok());
    open();
}

TestVolume::~TestVolume()
{
    CW_ASSERT(fs_->close().ok());
}

void TestVolume::open()
{
    std::string why;
    Result<Assembly> assembly = assemble(views_of(members_), why);
    CW_ASSERT(assembly.ok());
    Result<std::unique_ptr<Filesystem>> fs = Filesystem::open(assembly.take(), options_, why);
    CW_ASSERT(fs.ok());
    fs_ = fs.take();
}

void TestVolume::reopen()
{
    CW_ASSERT(fs_->close().ok());
    fs_.reset();
    open();
}

void TestVolume::crash()
{
    fs_.reset();
    open();
}

void TestVolume::reopen(const MountOptions& options)
{
    options_ = options;
    reopen();
}

std::unique_ptr<BlockDevice> view_of(BlockDevice& device)
{
    return std::make_unique<DeviceView>(device);
}

MountOptions manual_options()
{
    MountOptions options;
    options.manual_commit = true;
    return options;
}

InodeNumber make_file(Filesystem& fs, InodeNumber parent, std::string_view name, uint32_t mode)
{
    Result<Attributes> made = fs.names.make_node(parent, name, S_IFREG | mode, 0, {});
    CW_ASSERT(made.ok());
    return made->inode;
}

InodeNumber make_directory(Filesystem& fs, InodeNumber parent, std::string_view name, uint32_t mode)
{
    Result<Attributes> made = fs.names.make_node(parent, name, S_IFDIR | mode, 0, {});
    CW_ASSERT(made.ok());
    return made->inode;
}

Attributes attributes(Filesystem& fs, InodeNumber inode)
{
    const Result<Attributes> found = fs.names.get_attributes(inode);
    CW_ASSERT(found.ok());
    return *found;
}

Err lookup_error(Filesystem& fs, InodeNumber parent, std::string_view name)
{
    const Result<Attributes> found = fs.names.lookup(parent, name);
    if (found.ok())
        fs.names.forget(found->inode, 1);
    return found.err();
}

bool ListSink::entry(std::string_view name, InodeNumber inode, uint32_t mode_type, uint64_t next_cursor,
                     const Attributes* attributes)
{
    if (entries.size() >= entry_count_max_)
        return false;
    entries.push_back({std::string(name), inode, mode_type, next_cursor, attributes != nullptr});
    return true;
}

std::vector<ListedEntry> list_all(Filesystem& fs, InodeNumber directory, size_t entry_count,
                                  const Names::ReadDirectory& how)
{
    std::vector<ListedEntry> all;
    uint64_t cursor = 0;
    while (true) {
        ListSink sink(entry_count);
        CW_ASSERT(fs.names.read_directory(directory, cursor, how, sink).ok());
        if (sink.entries.empty())
            return all;
        for (const ListedEntry& entry : sink.entries) {
            CW_ASSERT(entry.next_cursor > cursor);
            cursor = entry.next_cursor;
            if (entry.has_attributes && entry.name != "." && entry.name != "..")
                fs.names.forget(entry.inode, 1);
            all.push_back(entry);
        }
    }
}

}  // namespace cowraid
