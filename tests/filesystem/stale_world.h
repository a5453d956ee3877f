// SPDX-License-Identifier: MIT
// Volumes whose members go, fail, and come back. Included where tests are.
#pragma once

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstring>
#include <map>
#include <string>

#include "sim/fault_device.h"
#include "tests/filesystem/check_image.h"
#include "tests/filesystem/volume_steps.h"

namespace cowraid::test {

using ManyFiles = std::map<std::string, std::vector<std::byte>>;
using Members = std::vector<uint32_t>;

// A volume whose members can be made to fail, and what it must contain.
class StaleWorld {
public:
    explicit StaleWorld(const VolumeShape& shape) : volume(shape), prng(seed())
    {
        std::string why;
        REQUIRE_MESSAGE(volume.make(why).ok(), why);
    }

    Status try_mount(const MountOptions& options, const Members& absent, std::string& why)
    {
        fs.reset();
        faults.clear();
        std::vector<std::unique_ptr<BlockDevice>> devices;
        for (std::unique_ptr<BlockDevice>& device : volume.borrow(absent)) {
            devices.push_back(std::make_unique<FaultDevice>(std::move(device), seed()));
            faults.push_back(static_cast<FaultDevice*>(devices.back().get()));
        }
        CW_ASSIGN(Assembly assembly, assemble(std::move(devices), why));
        CW_ASSIGN(fs, Filesystem::open(std::move(assembly), options, why));
        return {};
    }
    void mount(const MountOptions& options = manual_options(), const Members& absent = {})
    {
        std::string why;
        REQUIRE_MESSAGE(try_mount(options, absent, why).ok(), why);
    }
    void unmount()
    {
        REQUIRE(fs->close().ok());
        fs.reset();
    }
    Status try_write(const std::string& name, size_t bytes)
    {
        std::vector<std::byte> content(bytes);
        prng.fill(content.data(), bytes);
        Result<Attributes> made = fs->names.lookup({kRootInode}, name);
        if (!made.ok())
            made = fs->names.make_node({kRootInode}, name, S_IFREG | 0644, 0, {});
        CW_TRY(made.status());
        for (size_t done = 0; done < bytes;) {
            CW_ASSIGN(const size_t part,
                      fs->files.write(made->inode, done,
                                      std::span(content).subspan(done, std::min(bytes - done, size_t{kMiB})),
                                      {}, {}));
            done += part;
        }
        CW_TRY(fs->step(true));
        files[name] = std::move(content);
        return {};
    }
    void write(const std::string& name, size_t bytes) { REQUIRE(try_write(name, bytes).ok()); }

    // Whether all files are there; what is not right must be an error. Returns how many could not be read.
    size_t read_back()
    {
        size_t lost = 0;
        for (const auto& file : files) {
            const std::string& name = file.first;
            const std::vector<std::byte>& content = file.second;
            CAPTURE(name);
            const Result<Attributes> found = fs->names.lookup({kRootInode}, name);
            if (!found.ok()) {
                ++lost;
                continue;
            }
            std::vector<std::byte> have(content.size());
            bool failed = false;
            for (size_t at = 0; at < have.size(); at += kBlockBytes) {
                const size_t bytes = std::min<size_t>(kBlockBytes, have.size() - at);
                const Result<size_t> got =
                    fs->files.read(found->inode, at, std::span(have).subspan(at, bytes));
                if (!got.ok())
                    failed = true;
                else
                    REQUIRE(std::memcmp(have.data() + at, content.data() + at, bytes) == 0);
            }
            lost += failed ? 1 : 0;
        }
        return lost;
    }
    // Kinds but repaired blocks and failed requests.
    uint64_t wrong_blocks(uint32_t member)
    {
        const MemberInfo info = fs->info().members[member];
        return info.counters[static_cast<size_t>(MemberCounter::kCorruption)] +
               info.counters[static_cast<size_t>(MemberCounter::kGeneration)] +
               info.counters[static_cast<size_t>(MemberCounter::kParity)];
    }
    // Of all members.
    uint64_t stale_groups()
    {
        uint64_t groups = 0;
        for (const MemberInfo& member : fs->info().members)
            groups += member.stale_groups;
        return groups;
    }
    MemberInfo info_of(uint32_t member) { return fs->info().members[member]; }
    void fail_writes(uint32_t member)
    {
        faults[member]->add_rule({.action = FaultAction::kError, .kinds = kFaultWrites});
    }
    CheckReport check()
    {
        CheckReport report;
        std::string why;
        REQUIRE_MESSAGE(volume.check(report, why).ok(), why);
        if (!report.clean())
            MESSAGE(report.findings.front().kind << ": " << report.findings.front().text);
        return report;
    }

    SimVolume volume;
    Prng prng;
    std::unique_ptr<Filesystem> fs;
    std::vector<FaultDevice*> faults;
    ManyFiles files;
};

inline void write_before(StaleWorld& world)
{
    world.mount();
    world.write("before", 3 * kMiB);
    world.unmount();
}

// ManyFiles from before a member fails, and from after.
inline void fail_while_writing(StaleWorld& world, const Members& failing)
{
    world.mount();
    world.write("before", 3 * kMiB + 100);
    for (const uint32_t member : failing)
        world.fail_writes(member);
    world.write("after", 2 * kMiB);
    world.write("before", kMiB);
    for (const uint32_t member : failing)
        CHECK(world.info_of(member).state == MemberState::kFailed);
    world.unmount();
}

inline constexpr VolumeShape kStaleRaid5{4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024};
inline constexpr VolumeShape kStaleRaid6{5, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * 1024};
inline constexpr VolumeShape kStaleNodesUnderParity{5, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid6,
                                                    64 * 1024};
inline constexpr VolumeShape kStaleMirrors{3, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024};

struct LossCase {
    VolumeShape shape;
    Members away;  // and then as many others
};

}  // namespace cowraid::test
