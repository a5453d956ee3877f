// SPDX-License-Identifier: MIT
#include "bench/bench_members.h"

#include "base/random.h"
#include "bench/bench_memory.h"
#include "device/open_member.h"
#include "device/signature.h"
#include "tools/mkfs/mkfs_plan.h"

namespace cowraid {

namespace {

void add(std::atomic<uint64_t>& counter, uint64_t amount)
{
    counter.fetch_add(amount, std::memory_order_relaxed);
}

uint64_t get(const std::atomic<uint64_t>& counter)
{
    return counter.load(std::memory_order_relaxed);
}

// Every member's device, by rising id.
using Devices = std::vector<std::unique_ptr<BlockDevice>>;

Result<Devices> simulate(const BenchOptions& options, BenchMembers& members, std::string& why)
{
    Devices devices;
    Prng prng(options.seed);
    for (uint32_t number = 1; number <= options.member_count; ++number) {
        std::unique_ptr<BlockDevice> device =
            MemoryDevice::make("simulated" + std::to_string(number), options.member_bytes);
        if (device == nullptr) {
            why = "there is no memory for " + std::to_string(options.member_count) + " members of " +
                  size_text(options.member_bytes) + "; use fewer or smaller ones";
            return Err::kNoMemory;
        }
        if (options.spindle) {
            SpindleOptions drive;
            drive.constants.stroke_share = options.stroke_share;
            drive.time_scale = options.time_scale;
            drive.phase = prng.below(drive.constants.turn);
            auto spindle = std::make_unique<SpindleDevice>(std::move(device), drive);
            members.spindles.push_back(spindle.get());
            device = std::move(spindle);
        }
        devices.push_back(std::move(device));
    }
    return devices;
}

// As mkfs.cowraid does: everything is checked before anything is written.
Result<Devices> open_real(const BenchOptions& options, std::string& why)
{
    MkfsArguments arguments;
    arguments.devices = options.common.operands;
    arguments.force = options.force;
    CW_ASSIGN(std::vector<NewMember> opened, open_mkfs_devices(arguments, why));
    Devices devices;
    for (NewMember& device : opened) {
        if (!device.signature.empty() && !wipe_signatures(device.fd.get()).ok()) {
            why = device.path + ": the old signature (" + device.signature +
                  ") cannot be wiped; check the device";
            return Err::kIo;
        }
        CW_ASSIGN(auto member, make_device_from_fd(std::move(device.fd), device.path, {}, why));
        devices.push_back(std::move(member));
    }
    return devices;
}

Result<Devices> make_devices(const BenchOptions& options, BenchMembers& members, std::string& why)
{
    if (options.common.operands.empty())
        return simulate(options, members, why);
    return open_real(options, why);
}

}  // namespace

MemberCounts sum_of(const MemberCounts& a, const MemberCounts& b)
{
    return {a.reads + b.reads,           a.read_bytes + b.read_bytes,
            a.writes + b.writes,         a.write_bytes + b.write_bytes,
            a.log_writes + b.log_writes, a.log_bytes + b.log_bytes,
            a.flushes + b.flushes};
}

MemberCounts difference(const MemberCounts& now, const MemberCounts& before)
{
    return {now.reads - before.reads,           now.read_bytes - before.read_bytes,
            now.writes - before.writes,         now.write_bytes - before.write_bytes,
            now.log_writes - before.log_writes, now.log_bytes - before.log_bytes,
            now.flushes - before.flushes};
}

CountingMember::CountingMember(std::unique_ptr<BlockDevice> inner, uint64_t log_offset, uint64_t log_bytes)
    : inner_(std::move(inner)), log_offset_(log_offset), log_bytes_(log_bytes)
{
}

void CountingMember::note(const IoRequest& request)
{
    const bool is_log =
        request.offset.value >= log_offset_ && request.offset.value - log_offset_ < log_bytes_;
    switch (request.kind) {
    case IoKind::kRead:
        add(reads_, 1);
        add(read_bytes_, request.bytes());
        break;
    case IoKind::kWrite:
        add(is_log ? log_writes_ : writes_, 1);
        add(is_log ? log_write_bytes_ : write_bytes_, request.bytes());
        break;
    case IoKind::kFlush:
        add(flushes_, 1);
        break;
    case IoKind::kDiscard:
        break;
    }
}

MemberCounts CountingMember::counts() const
{
    return {get(reads_),      get(read_bytes_),      get(writes_), get(write_bytes_),
            get(log_writes_), get(log_write_bytes_), get(flushes_)};
}

MemberCounts BenchMembers::counts() const
{
    MemberCounts sum;
    for (const CountingMember* member : counting)
        sum = sum_of(sum, member->counts());
    return sum;
}

Status BenchMembers::flush()
{
    std::vector<IoRequest> requests;
    for (CountingMember* member : counting)
        requests.push_back({.kind = IoKind::kFlush, .device = member});
    run_io(requests);
    for (const IoRequest& request : requests)
        CW_TRY(request.result);
    return {};
}

Result<std::unique_ptr<BenchMembers>> make_bench_members(const BenchOptions& options, std::string& why)
{
    auto members = std::make_unique<BenchMembers>();
    CW_ASSIGN(Devices devices, make_devices(options, *members, why));
    Superblock& superblock = members->superblock;
    random_bytes(&superblock.volume_uuid, sizeof superblock.volume_uuid);
    superblock.generation = {1};
    superblock.epochs = {{random_u64(), {1}}};
    superblock.log_epoch = superblock.epochs.front().epoch;
    superblock.chunk_bytes = options.chunk_bytes;
    for (auto& device : devices) {
        CW_ASSIGN(MemberRecord record, plan_member_layout(device->size_bytes()));
        record.id = {superblock.next_member_id++};
        random_bytes(&record.uuid, sizeof record.uuid);
        auto counting = std::make_unique<CountingMember>(std::move(device), record.intent_log_offset,
                                                         record.intent_log_bytes);
        members->counting.push_back(counting.get());
        members->set.add(record.id, std::move(counting), {});
        superblock.members.push_back(record);
    }
    return members;
}

}  // namespace cowraid
