// SPDX-License-Identifier: MIT
// Mirrored tree nodes are read in few requests.
#include "tests/filesystem/replace_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr VolumeShape kManyNodes{4, 160 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * kKiB};
constexpr uint64_t kCopies = 2;

// Names that fill nodes, changed by several commits.
void make_names(Filesystem& fs)
{
    for (int file = 0; file < 10000; ++file) {
        const std::string name = std::string(200, 'x') + std::to_string(file * 7919 % 10000);
        REQUIRE(fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {}).ok());
        if (file % 2500 == 2499)
            REQUIRE(fs.step(true).ok());
    }
}

// Reads of what is in block groups, of all members.
class CountedReads {
public:
    explicit CountedReads(SimVolume& volume) : volume_(volume)
    {
        for (uint32_t index = 0; index < volume.member_count(); ++index)
            rules_.push_back(volume.cable(index).add_rule({.action = FaultAction::kSlow,
                                                           .kinds = kFaultReads,
                                                           .begin = slots_offset(volume.fs()),
                                                           .delay_microseconds = 1}));
    }
    [[nodiscard]] uint64_t count() const
    {
        uint64_t count = 0;
        for (uint32_t index = 0; index < rules_.size(); ++index)
            count += volume_.cable(index).hits(rules_[index]);
        return count;
    }

private:
    SimVolume& volume_;
    std::vector<size_t> rules_;
};

}  // namespace

TEST_CASE("nodes: a scrub, and copying a member, read them by far fewer requests than there are copies")
{
    SimVolume volume(kManyNodes);
    make_and_mount(volume);
    make_names(volume.fs());
    const CountedReads reads(volume);
    const ScrubStatus scrubbed = scrub(volume.fs());
    CHECK_FALSE(scrubbed.damaged());
    REQUIRE(scrubbed.nodes > 300);
    CHECK(scrubbed.data_blocks >= scrubbed.nodes * kCopies * kNodeBlocks);
    CHECK(reads.count() * 4 < scrubbed.nodes * kCopies);
    const uint32_t device = start(volume);
    const uint64_t before = reads.count();
    const ReplaceStatus replaced = run(volume);
    CHECK(replaced.state == ReplaceStatus::State::kFinished);
    CHECK(replaced.copy.nodes >= scrubbed.nodes);
    CHECK((reads.count() - before) * 4 < replaced.copy.nodes * kCopies);
    CHECK(is_member(volume, device));
    const ScrubStatus again = scrub(volume.fs());
    CHECK(again.repaired == 0);
    CHECK_FALSE(again.damaged());
}
