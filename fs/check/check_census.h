// SPDX-License-Identifier: MIT
// What a check saw of every block of the volume: one bit for "referenced", one for "has a checksum". Memory
// is two bits per block, less where nothing lies.
#pragma once

#include <cstdint>
#include <vector>

#include "alloc/bitmap.h"
#include "base/ref.h"
#include "base/units.h"
#include "raid56/array.h"

namespace cowraid {

class BlockCensus {
public:
    struct Group {
        Ref<const ArrayGroup> array_group;
        Bitmap used;  // data blocks, by address
        Bitmap checksums;  // data blocks, then parity blocks, by address
        Bitmap lost;  // data blocks in use that redundancy does not bring back; no bits while there are none

        [[nodiscard]] const Geometry& geometry() const { return array_group->geometry; }
        [[nodiscard]] VolumeAddress address() const { return array_group->record.address; }
        [[nodiscard]] uint32_t content() const { return array_group->record.content; }
        // The first stripe at or after `from` with a data block in use; the count of stripes when there is
        // none.
        [[nodiscard]] uint64_t next_used_stripe(uint64_t from) const;
        // Whether blocks of it are known by checksums of their address: data, and all that parity covers.
        [[nodiscard]] bool keeps_checksums() const;
    };

    explicit BlockCensus(const Array& array);

    enum class Claim : uint8_t {
        kTaken,
        kUnaligned,
        kOutside,  // no data addresses of a group
        kCrossesGroup,  // in several groups
        kWrongContent,  // the group is for something else
        kTwice,  // some of the blocks are referenced already
    };
    struct Claimed {
        Claim claim = Claim::kTaken;
        VolumeAddress first_twice;  // kTwice: the first such block
    };
    // Something refers to the blocks. Marks those that are data blocks of a group for this content.
    Claimed claim(VolumeAddress address, uint64_t block_count, uint32_t content);

    // Blocks of a checksum window by its mask. Returns how many of them lie outside every group.
    uint32_t note_checksums(VolumeAddress window_address, uint64_t mask);

    // By rising address.
    [[nodiscard]] std::vector<Group>& groups() { return groups_; }
    // The group whose span (parity addresses included) holds the address, or null.
    [[nodiscard]] Group* find(VolumeAddress address);

private:
    uint64_t claim_in_group(VolumeAddress address, uint64_t block_count, uint32_t content, Claimed& claimed);

    std::vector<Group> groups_;
};

// For messages.
const char* claim_text(BlockCensus::Claim claim);

}  // namespace cowraid
