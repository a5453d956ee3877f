// SPDX-License-Identifier: MIT
#include "fs/check/check.h"

#include "alloc/recorded_space.h"
#include "format/member_layout.h"
#include "fs/check/check_passes.h"
#include "fs/txn/block_state.h"

namespace cowraid {

namespace {

constexpr uint64_t kNodeCacheBytes = 64 * kMiB;

// Lets the array ask for checksums while it is alive.
class VerifierInstalled {
public:
    VerifierInstalled(Array& array, BlockVerifier& verifier) : array_(array)
    {
        array_.set_verifier(&verifier);
    }
    ~VerifierInstalled() { array_.set_verifier(nullptr); }
    VerifierInstalled(const VerifierInstalled&) = delete;
    VerifierInstalled& operator=(const VerifierInstalled&) = delete;

private:
    Array& array_;
};

// Knows what the last commit has in use, as a mount does. Rows come by rising address.
class CheckedRowsSink final : public TransactionChecksumSink {
public:
    CheckedRowsSink(CheckContext& context, Timeline& timeline, bool has_tree)
        : TransactionChecksumSink(*timeline.open()),
          array_(context.volume.array()),
          source_(context.cache, timeline),
          has_tree_(has_tree)
    {
    }
    bool in_use(VolumeAddress address) override
    {
        if (!group_ || !group_->has_data(address, 1))
            load(address);
        return !known_ || space_->is_used((address - group_->record.address) / kBlockBytes);
    }

private:
    // What cannot be read counts as in use.
    void load(VolumeAddress address)
    {
        group_ = array_.group_at(address);
        space_.emplace(group_->record.address, group_->geometry);
        std::vector<SpaceWindow> windows;
        known_ = has_tree_ && source_.load_windows(group_->record.address, windows).ok();
        for (const SpaceWindow& window : windows)
            known_ = known_ && space_->load(window).ok();
    }

    Array& array_;
    TreeSpaceSource source_;
    const bool has_tree_;  // its root could be read
    Ref<const ArrayGroup> group_;  // the one asked about last
    std::optional<RecordedSpace> space_;
    bool known_ = false;
};

// Rows that were being written in place when the volume was left are as the next mount will make them: what
// is on the members now is not held against them.
void recover_in_memory(CheckContext& context, Timeline& timeline, bool has_space_tree)
{
    CheckedRowsSink sink(context, timeline, has_space_tree);
    RecoveryCounts counts;
    context.volume.recover_rows({}, sink, counts).ignore();  // what cannot be recovered will be found
    context.report().recovered_rows = counts.rows;
}

void run_passes(CheckContext& context)
{
    check_members(context);
    const CheckedRoots roots = check_root_tree(context);
    auto committed = make_ref<Committed>();
    committed->generation = context.generation();
    if (roots.checksum_tree)
        committed->checksum_tree = *roots.checksum_tree;
    if (roots.remap_tree)
        committed->remap_tree = *roots.remap_tree;
    if (roots.space_tree)
        committed->free_space_tree = *roots.space_tree;
    Timeline timeline(make_ref<Transaction>(TransactionId{1}), Ref<const Committed>(committed.get()));
    ChecksumLookup checksums(context.cache, timeline);
    const VerifierInstalled installed(context.volume.array(), checksums);
    recover_in_memory(context, timeline, roots.space_tree.has_value());

    const RemapLookup remap(context.cache, context.volume.array(), roots.remap_tree.has_value());
    context.remap = &remap;
    context.view = timeline.view();
    if (roots.remap_tree)
        check_remap_tree(context, *roots.remap_tree);
    check_file_tree(context, roots);
    if (roots.remap_tree)
        check_remap_use(context, *roots.remap_tree);
    if (roots.checksum_tree)
        check_checksum_tree(context, *roots.checksum_tree);
    if (roots.space_tree) {
        check_space_nodes(context, *roots.space_tree);
        check_space_windows(context, *roots.space_tree);
    }
    check_checksum_cover(context);
    if (context.options.verify_data)
        check_stored_blocks(context);
    if (roots.file_tree)
        check_lost_files(context, *roots.file_tree);
    context.view = {};
}

}  // namespace

Status check_volume(Assembly assembly, const CheckOptions& options, CheckReport& report, std::string& why)
{
    report = {};
    MountOptions mount;
    mount.read_only = true;
    mount.degraded = true;
    Result<std::unique_ptr<Volume>> volume = Volume::open(std::move(assembly), mount, why);
    if (!volume.ok()) {
        if (why.empty())
            why = std::string("the volume cannot be opened: ") + err_text(volume.err());
        return Err::kIo;
    }
    Findings findings(report);
    ArrayNodeReader reader((*volume)->array());
    NodeCache cache(reader, (*volume)->identity().uuid, kNodeCacheBytes);
    BlockCensus census((*volume)->array());
    CheckContext context{.volume = **volume,
                         .cache = cache,
                         .findings = findings,
                         .census = census,
                         .options = options,
                         .raw_blocks = raw_blocks((*volume)->superblock().members)};
    run_passes(context);
    findings.close();
    return {};
}

}  // namespace cowraid
