// SPDX-License-Identifier: MIT
// From a handful of devices to one volume: who belongs, whose superblock counts, who is stale, and whether
// two halves went their own ways.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/block_device.h"
#include "device/superblock_store.h"
#include "format/superblock_codec.h"

namespace cowraid {

// Why a member is absent or stale.
struct MemberReason {
    std::string text;  // the rest of a sentence that begins with "member 4"
    bool unusable = false;  // its device is there: shrunken, overwritten or unreadable
};

struct AssembledMember {
    MemberId id;
    std::unique_ptr<BlockDevice> device;  // null: absent, or present but not usable
    // A usable device that missed commits (the chosen member table calls it missing or failed, or its
    // newest superblock is of an older epoch). Its rings and map must be rewritten and what was written
    // from commit `missed_from` on caught up before it counts as present.
    bool stale = false;
    // The first commit that may be missing on a stale member. The member table says the same, unless it
    // still calls the member present: then the next commit must record it as missing since here.
    Generation missed_from;
    DamagedSlots damaged;  // to be erased before the first commit of a mount
    MemberReason reason;  // of a member that is absent or stale
};

// A device in reserve that the superblock knows.
struct AssembledSpare {
    MemberId id;
    std::unique_ptr<BlockDevice> device;
};

struct Assembly {
    // The newest commit, exactly as its members recorded it. Before anything else is written it must be
    // made durable on every usable member, unchanged and with its map: until then a crash may have left it
    // on a single one, while the others name the map place that the next commit will overwrite.
    Superblock superblock;
    std::vector<AssembledMember> members;  // one per line of the member table, by rising id
    std::vector<AssembledSpare> spares;  // those that are there
    // The member whose successor takes its line with this very commit; 0: none. Members that are absent may
    // not know of that, and the device that was the member says that it still is (I-35).
    MemberId taken_over;
    // That device, if it is there: to be erased before anything else is written.
    std::unique_ptr<BlockDevice> replaced;
    // Copies that were damaged while others were fine: to be counted once the volume is writable. Torn slots
    // of the newest commit and of the one after it do not count: a power cut leaves them.
    std::vector<MemberId> damaged_rings;
    // One line each about devices that were left out and are not named by the reason of an absent member, for
    // the log and the terminal.
    std::vector<std::string> notes;

    [[nodiscard]] size_t usable_count() const;
    [[nodiscard]] std::vector<MemberId> missing() const;  // absent or stale
};

// Devices without a superblock when no member is absent.
enum class Strangers : uint8_t { kRefuse, kSkip };

struct AssemblyOptions {
    Strangers strangers = Strangers::kRefuse;
    std::vector<std::string> named;  // names of the devices that the user chose
};

// Groups the devices into one volume and chooses the superblock to go by:
//  - all devices must carry the same volume uuid (kInvalid, naming the foreign one);
//  - a device in whose place another one has come, or that was removed, by the word of later commits on more
//    than half of the devices, is left out, or refused (kInvalid) when the user named it;
//  - two devices with the same member id are refused (kInvalid: duplicate or clone, both named);
//  - the head is the superblock whose epoch history contains every other member's newest epoch, or knows that
//    what the other wrote was never acknowledged; within one epoch the highest generation wins; when no
//    superblock contains the others, split brain (kInvalid);
//  - a member is stale by the head's member table, by an older epoch, or when it is two commits or more
//    behind inside one epoch (a crash between superblock writes leaves neighbours one commit apart).
//  - a device that begins with something else, such as a filesystem made on it, is not used, whatever
//    superblocks are left on it;
//  - a device without a superblock, or one that cannot be read, is left out when it can be one of the absent
//    members, and refused (kInvalid) when none is absent, unless the options say to skip it.
//  - a device whose member id is not in the head's table, or is another device's there, is left out, as a
//    member that was removed or is being replaced; it is refused (kInvalid) when the user named it, or when
//    the head knows no more than half of the devices: whoever writes a superblock with a higher generation
//    must not turn the other members out.
//  - a device that says it is a spare has no say in any of this. It is one when the head says so, too; else
//  it
//    is left out.
// kUnsupported: another format. kNotFound: no device carries a superblock. On failure `why` holds one line
// for the user, with the next step.
Result<Assembly> assemble(std::vector<std::unique_ptr<BlockDevice>> devices, std::string& why,
                          const AssemblyOptions& options = {});

}  // namespace cowraid
