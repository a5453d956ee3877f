// SPDX-License-Identifier: MIT
#include "tests/fuzz/multi_field.h"

#include <cstddef>

#include "btree/node_image.h"

namespace cowraid::test {

uint64_t MultiEdit::near(uint64_t value)
{
    if (exact_ || !prng.chance(1, 30))
        return value;
    const uint64_t beside[] = {value + 1, value - 1, value * 2, value / 2, 0, UINT64_MAX, wild()};
    return beside[prng.below(std::size(beside))];
}

uint64_t MultiEdit::wild()
{
    const uint64_t power = uint64_t{1} << prng.below(64);
    const uint64_t choice[] = {0,          1,         power,      power - 1,   power + 1,
                               UINT64_MAX, INT64_MAX, UINT32_MAX, prng.next(), prng.below(70000)};
    return choice[prng.below(std::size(choice))];
}

uint64_t MultiEdit::size_between(uint32_t low_shift, uint32_t high_shift)
{
    const uint64_t power = uint64_t{1} << prng.between(low_shift, high_shift);
    return prng.chance(1, 4) ? power : round_down(power + prng.below(power), kBlockBytes);
}

DiskSuperblock MultiEdit::head()
{
    return structure_at<DiskSuperblock>(editor.change_superblock());
}

void MultiEdit::set_head(const DiskSuperblock& changed)
{
    put_structure(editor.change_superblock(), 0, changed);
}

size_t MultiEdit::line_count()
{
    return (editor.change_superblock().size() - sizeof(DiskSuperblock)) / sizeof(DiskMember) -
           head().spare_count;
}

DiskMember MultiEdit::line(size_t index)
{
    return structure_at<DiskMember>(editor.change_superblock(),
                                    sizeof(DiskSuperblock) + index * sizeof(DiskMember));
}

void MultiEdit::set_line(size_t index, const DiskMember& changed)
{
    Bytes& bytes = editor.change_superblock();
    const size_t at = sizeof(DiskSuperblock) + index * sizeof changed;
    if (index == line_count())
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), sizeof changed, std::byte{0});
    put_structure(bytes, at, changed);
    DiskSuperblock start = head();
    start.member_count = static_cast<uint32_t>(line_count());
    start.bytes = static_cast<uint32_t>(bytes.size());
    set_head(start);
}

void MultiEdit::set_map(const GroupMap& map)
{
    MapRef ref;
    editor.change_map() = encode_group_map(map, editor.superblock().volume_uuid, ref);
    DiskSuperblock changed = head();
    changed.map_generation = map.generation.value;
    changed.map_bytes = ref.bytes;
    set_head(changed);
}

std::vector<size_t> MultiEdit::leaves(uint64_t tree_id) const
{
    std::vector<size_t> found;
    for (const size_t index : editor.nodes_of(tree_id))
        if (node_header(editor.node(index).data()).level == 0)
            found.push_back(index);
    return found;
}

}  // namespace cowraid::test
