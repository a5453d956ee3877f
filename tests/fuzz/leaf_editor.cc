// SPDX-License-Identifier: MIT
#include "tests/fuzz/leaf_editor.h"

#include <algorithm>
#include <cstring>

#include "btree/node_image.h"

namespace cowraid::test {

std::vector<LeafEntry> read_leaf(std::span<const std::byte> image)
{
    std::vector<LeafEntry> entries;
    for (uint32_t i = 0; i < node_header(image.data()).item_count; ++i) {
        const std::span<const std::byte> payload = leaf_payload(image.data(), i);
        entries.push_back({key_of(leaf_items(image.data())[i]), {payload.begin(), payload.end()}});
    }
    return entries;
}

void write_leaf(std::span<std::byte> image, std::vector<LeafEntry> entries)
{
    std::stable_sort(entries.begin(), entries.end(),
                     [](const LeafEntry& a, const LeafEntry& b) { return a.key < b.key; });
    DiskNodeHeader header = node_header(image.data());
    std::memset(image.data() + sizeof header, 0, image.size() - sizeof header);
    size_t place = sizeof header;
    size_t end = image.size();
    uint32_t count = 0;
    for (const LeafEntry& entry : entries) {
        if (place + sizeof(DiskLeafItem) + entry.payload.size() > end)
            break;
        end -= entry.payload.size();
        DiskLeafItem item{};
        item.object = entry.key.object;
        item.offset = entry.key.offset;
        item.type = entry.key.type;
        item.data_offset = static_cast<uint16_t>(end);
        item.data_bytes = static_cast<uint16_t>(entry.payload.size());
        std::memcpy(image.data() + place, &item, sizeof item);
        if (!entry.payload.empty())
            std::memcpy(image.data() + end, entry.payload.data(), entry.payload.size());
        place += sizeof item;
        ++count;
    }
    header.item_count = count;
    std::memcpy(image.data(), &header, sizeof header);
}

}  // namespace cowraid::test
