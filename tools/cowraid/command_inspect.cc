// SPDX-License-Identifier: MIT
// cowraid inspect: what is on members, and where files lie
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <optional>

#include "base/out_of_memory.h"
#include "base/print.h"
#include "control/extents_json.h"
#include "control/volume_json.h"
#include "device/open_member.h"
#include "device/superblock_store.h"
#include "format/to_text.h"
#include "tools/cowraid/command.h"
#include "tools/cowraid/load_report.h"
#include "tools/cowraid/mounted_command.h"
#include "tools/cowraid/tree_dump.h"

namespace cowraid {

namespace {

struct InspectArguments {
    CommandOptions common;
    bool all = false;
    bool headers = false;
    std::string tree;
};

error_t parse_inspect_option(int key, char* text, argp_state* state)
{
    auto& arguments = *static_cast<InspectArguments*>(state->input);
    if (key == 't') {
        const std::vector<std::string> names = tree_names();
        if (std::find(names.begin(), names.end(), text) == names.end())
            argp_error(state, "there is no tree '%s'; there are: %s", text, join_words(names).c_str());
        arguments.tree = text;
        return 0;
    }
    return parse_flags(key, state, arguments.common, {{'a', &arguments.all}, {'n', &arguments.headers}});
}

// --- dump-super ---

constexpr argp_option kSuperOptions[] = {
    {"all", 'a', nullptr, 0, "every slot of both rings, not the newest superblock alone", 0},
    {},
};

struct SuperblockSlot {
    uint32_t ring = 0, slot = 0;
    DeviceOffset offset;
    Err err = Err::kOk;
    std::optional<Superblock> superblock;  // with kOk
};

std::vector<SuperblockSlot> read_slots(BlockDevice& device)
{
    std::vector<SuperblockSlot> slots;
    AlignedBuffer buffer(kSuperblockSlotBytes);
    for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring)
        for (uint32_t slot = 0; slot < kSuperblockSlotCount; ++slot) {
            const DeviceOffset offset{kSuperblockRingOffset[ring] + uint64_t{slot} * kSuperblockSlotBytes};
            SuperblockSlot& here = slots.emplace_back();
            here = {.ring = ring, .slot = slot, .offset = offset, .superblock = {}};
            // A daemon may be writing it just now.
            for (int reads = 0; reads < 2 && !here.superblock; ++reads) {
                here.err = read_device(device, offset, buffer.span()).err();
                if (here.err != Err::kOk)
                    continue;
                Result<Superblock> superblock = decode_superblock(buffer.span());
                here.err = superblock.err();
                if (superblock.ok())
                    here.superblock = superblock.take();
            }
        }
    return slots;
}

// The newest one alone, and what cannot be read or decoded, unless all are wanted.
std::vector<SuperblockSlot> chosen_slots(std::vector<SuperblockSlot> slots, bool all)
{
    if (all)
        return slots;
    const SuperblockSlot* newest = nullptr;
    for (const SuperblockSlot& slot : slots)
        if (slot.superblock &&
            (newest == nullptr || newest->superblock->generation < slot.superblock->generation))
            newest = &slot;
    return newest == nullptr ? std::vector<SuperblockSlot>() : std::vector<SuperblockSlot>(1, *newest);
}

const char* state_of(const SuperblockSlot& slot)
{
    switch (slot.err) {
    case Err::kOk:
        return "valid";
    case Err::kNotFound:
        return "no superblock";
    case Err::kCorrupt:
        return "damaged";
    case Err::kUnsupported:
        return "of another format";
    default:
        return "cannot be read";
    }
}

void print_slots(const std::string& path, const std::vector<SuperblockSlot>& slots)
{
    print_line(stdout, "device %s", path.c_str());
    for (const SuperblockSlot& slot : slots) {
        print_line(stdout, "ring %u slot %u offset %" PRIu64 ": %s", slot.ring, slot.slot, slot.offset.value,
                   state_of(slot));
        if (slot.superblock)
            print_lines(to_text(*slot.superblock));
    }
}

Json encode_slots(const std::string& path, const std::vector<SuperblockSlot>& slots)
{
    Json out = json_make_object();
    json_put_text(out.get(), "path", path);
    Json list = json_make_array();
    for (const SuperblockSlot& slot : slots) {
        Json line = json_make_object();
        json_put_integer(line.get(), "ring", slot.ring);
        json_put_integer(line.get(), "slot", slot.slot);
        json_put_integer(line.get(), "device_offset", slot.offset.value);
        json_put_text(line.get(), "state", state_of(slot));
        if (slot.superblock) {
            json_put_integer(line.get(), "generation", slot.superblock->generation.value);
            json_put_integer(line.get(), "member", slot.superblock->member_id.value);
            json_put_text(line.get(), "uuid", uuid_text(slot.superblock->volume_uuid));
            json_put_text(line.get(), "text", to_text(*slot.superblock));
        }
        json_array_append_new(list.get(), line.release());
    }
    json_put(out.get(), "slots", std::move(list));
    return out;
}

// --- dump-tree ---

constexpr argp_option kTreeOptions[] = {
    {"tree", 't', "NAME", 0, "this tree only: root, checksum, free-space, remap or file", 0},
    {"nodes", 'n', nullptr, 0, "a line for each node, without items", 0},
    {},
};

Result<Assembly> assemble_to_look(const VolumeMembers& members, std::string& why)
{
    std::vector<std::string> warnings;
    CW_ASSIGN(auto devices, open_member_devices(members, MemberAccess::kLook, warnings, why));
    CW_ASSIGN(Assembly assembly, assemble(std::move(devices), why, lenient_assembly(members)));
    assembly.notes.insert(assembly.notes.begin(), warnings.begin(), warnings.end());
    return assembly;
}

Result<uint64_t> dump_assembled(Assembly assembly, const TreeDumpOptions& dump, FILE* out, std::string& why)
{
    MountOptions options;
    options.read_only = options.degraded = options.rescue = true;
    CW_ASSIGN(const std::unique_ptr<Volume> volume, Volume::open(std::move(assembly), options, why));
    Result<uint64_t> dumped = dump_trees(*volume, dump, out);
    if (!dumped.ok())
        why = "there is no tree " + quoted(std::string(dump.tree));
    return dumped;
}

Status copy_to_output(FILE* file, std::string& why)
{
    bool copied = fflush(file) == 0 && ferror(file) == 0;
    rewind(file);
    char part[65536];
    while (const size_t bytes = copied ? fread(part, 1, sizeof part, file) : 0)
        fwrite(part, 1, bytes, stdout);
    if (copied && ferror(file) == 0)
        return {};
    why = std::string("what was read cannot be written: ") + strerror(errno);
    return Err::kIo;
}

// Beside the daemon: nodes of a commit may be overwritten once the next one is durable, which their checksums
// show. So what cannot be read is damage only if there is no newer commit afterwards.
Status dump_mounted(const VolumeMembers& members, const TreeDumpOptions& options, std::string& why)
{
    constexpr int kTries = 10;
    for (int left = kTries; left > 0; --left) {
        const std::unique_ptr<FILE, int (*)(FILE*)> file(tmpfile(), fclose);
        if (file == nullptr) {
            why = std::string("a file in /tmp cannot be made: ") + strerror(errno);
            return Err::kIo;
        }
        CW_ASSIGN(Assembly assembly, assemble_to_look(members, why));
        const Generation commit = assembly.superblock.generation;
        const Result<uint64_t> dumped = dump_assembled(std::move(assembly), options, file.get(), why);
        bool still = dumped.ok() && *dumped == 0;
        if (!still) {
            std::string ignored;
            const Result<Assembly> now = assemble_to_look(members, ignored);
            still = now.ok() && now->superblock.generation == commit;
        }
        if (still)
            return dumped.ok() ? copy_to_output(file.get(), why) : dumped.status();
    }
    why = "the volume commits faster than its trees can be read; try again, or unmount it";
    return Err::kBusy;
}

Status dump_volume(const InspectArguments& arguments, std::string& why)
{
    CW_ASSIGN(const VolumeMembers members,
              find_unmounted(arguments.common.operands, Mounted::kAllowed, "", why));
    TreeDumpOptions options{.tree = arguments.tree,
                            .headers_only = arguments.headers,
                            .mounted = find_mounted_volume(members.uuid).has_value(),
                            .format = arguments.common.format};
    if (options.mounted)
        return dump_mounted(members, options, why);
    CW_ASSIGN(Assembly assembly, assemble_to_look(members, why));
    for (const std::string& note : assembly.notes)
        print_warning(kProgram, note);
    return dump_assembled(std::move(assembly), options, stdout, why).status();
}

// --- extents ---

Result<ControlClient> daemon_of_file(const std::string& path, struct stat& info, std::string& why)
{
    if (stat(path.c_str(), &info) != 0) {
        why = path + ": " + strerror(errno);
        return Err::kNotFound;
    }
    if (!S_ISREG(info.st_mode)) {
        why = path + " is no regular file";
        return Err::kInvalid;
    }
    CW_ASSIGN(const VolumeTarget target, target_of_device(path, device_text(info), "", why));
    return connect_target(target, why);
}

// What is in memory is committed first.
Result<FileExtents> ask_extents(const std::string& path, std::string& why)
{
    struct stat info { };
    CW_ASSIGN(ControlClient client, daemon_of_file(path, info, why));
    FileExtents all;
    do {
        const Json request = json_make_object();
        json_put_integer(request.get(), "inode", info.st_ino);
        json_put_integer(request.get(), "from_block", all.next_block);
        CW_ASSIGN(const Json answer, client.call("extents", request.get(), why));
        Result<FileExtents> part = decode_file_extents(answer.get());
        if (!part.ok()) {
            why = "the daemon answers in another format; is it of another version?";
            return part.err();
        }
        all.size_bytes = part->size_bytes;
        all.next_block = part->next_block;
        std::move(part->extents.begin(), part->extents.end(), std::back_inserter(all.extents));
    } while (all.next_block != 0);
    return all;
}

std::string places_text(const ListedExtent& extent)
{
    std::string text;
    for (const MemberPart& place : extent.places)
        text += (text.empty() ? "" : ", ") + std::string("member ") + std::to_string(place.member.value) +
                " at " + std::to_string(place.offset.value);
    return text;
}

void print_extents(const FileExtents& extents)
{
    print_line(stdout, "%14s %14s %14s %20s  %s", "offset", "bytes", "stored", "address", "first block");
    for (const ListedExtent& extent : extents.extents) {
        const std::string moved = extent.logical == extent.physical
                                      ? ""
                                      : " (moved from " + std::to_string(extent.logical.value) + ")";
        if (extent.reserved || extent.inline_frame)
            print_line(stdout, "%14" PRIu64 " %14" PRIu64 " %14" PRIu64 " %20s  %s", extent.offset,
                       extent.bytes, extent.stored_bytes, "-",
                       extent.reserved ? "reserved" : "in a node (compressed)");
        else
            print_line(stdout, "%14" PRIu64 " %14" PRIu64 " %14" PRIu64 " %20" PRIu64 "  %s%s%s",
                       extent.offset, extent.bytes, extent.stored_bytes, extent.physical.value,
                       places_text(extent).c_str(), extent.compressed ? " (compressed)" : "", moved.c_str());
    }
    print_line(stdout, "%s", count_text(extents.extents.size(), "extent").c_str());
}

}  // namespace

int command_dump_super(int argc, char** argv, CommandOptions common)
{
    InspectArguments arguments{.common = std::move(common), .tree = {}};
    if (!parse_command(argc, argv,
                       {kSuperOptions, parse_inspect_option, "DEVICE...",
                        "Print the superblock of each DEVICE, which may be in use."},
                       &arguments))
        return kExitUsage;
    if (arguments.common.operands.empty()) {
        print_error(kProgram, arguments.common.format, Err::kInvalid, "name a device");
        return kExitUsage;
    }
    Json out = json_with_schema("inspect-super");
    Json devices = json_make_array();
    for (const std::string& path : arguments.common.operands) {
        std::string why;
        const auto device = open_member(path, {.read_only = true, .exclusive = false}, why);
        if (!device.ok())
            return command_failed(arguments.common, device.err(), why);
        const std::vector<SuperblockSlot> slots = chosen_slots(read_slots(**device), arguments.all);
        if (slots.empty())
            return command_failed(arguments.common, Err::kNotFound,
                                  path + " has no superblock of cowraid; --all tells of each slot");
        if (arguments.common.format == OutputFormat::kJson)
            json_array_append_new(devices.get(), encode_slots(path, slots).release());
        else
            print_slots(path, slots);
    }
    json_put(out.get(), "devices", std::move(devices));
    if (arguments.common.format == OutputFormat::kJson)
        print_json(out.get());
    return kExitOk;
}

int command_dump_tree(int argc, char** argv, CommandOptions common)
{
    InspectArguments arguments{.common = std::move(common), .tree = {}};
    if (!parse_command(
            argc, argv,
            {kTreeOptions, parse_inspect_option, "MEMBER...|LABEL|UUID",
             "Print the trees of a volume's last commit, node by node. Changes nothing. A node that "
             "cannot be read is named, and the others follow. What records of the fsync log hold "
             "is not in the trees. Those of a mounted volume are read beside it, and printed when "
             "all were read before they were overwritten; what was not committed is not in them."},
            &arguments))
        return kExitUsage;
    if (arguments.common.operands.empty()) {
        print_error(kProgram, arguments.common.format, Err::kInvalid, "name a volume");
        return kExitUsage;
    }
    (void)limit_memory(usual_memory_bytes(), "cowraid check says whether the volume is damaged");
    std::string why;
    const Status status = dump_volume(arguments, why);
    return status.ok() ? kExitOk : command_failed(arguments.common, status.err(), why);
}

int command_extents(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(
            argc, argv, "FILE",
            "Print the extents of a file of a mounted volume: offset and length in the file, volume "
            "address, and where the first block lies on members. What is in memory is stored first. "
            "Only who mounted the volume may ask its daemon.",
            options) ||
        !has_one_operand(options, "a file"))
        return kExitUsage;
    std::string why;
    const auto extents = ask_extents(options.operands.front(), why);
    if (!extents.ok())
        return command_failed(options, extents.err(), why);
    if (options.format == OutputFormat::kJson)
        print_json(encode_file_extents(*extents).get());
    else
        print_extents(*extents);
    return kExitOk;
}

}  // namespace cowraid
