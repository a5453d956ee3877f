// SPDX-License-Identifier: MIT
#include "control/damage_json.h"

#include "base/file_name.h"
#include "control/volume_json.h"

namespace cowraid {

Json encode_damage(const DamagedFiles& damage)
{
    Json files = json_make_array();
    for (const DamagedFile& file : damage.files) {
        Json paths = json_make_array();
        for (const std::string& path : file.paths)
            json_append_text(paths.get(), escape_file_name(path));
        Json one = json_make_object();
        json_put_integer(one.get(), "inode", file.inode.value);
        json_put(one.get(), "paths", std::move(paths));
        json_put_integer(one.get(), "blocks", file.blocks);
        json_put_integer(one.get(), "first_byte", file.range.first);
        json_put_integer(one.get(), "last_byte", file.range.last);
        json_array_append_new(files.get(), one.release());
    }
    Json out = json_with_schema("damage");
    json_put_integer(out.get(), "file_count", damage.file_count);
    json_put(out.get(), "files", std::move(files));
    json_put_integer(out.get(), "node_count", damage.node_count);
    Json nodes = json_make_array();
    for (const DamagedNode& node : damage.nodes) {
        Json one = json_make_object();
        json_put_text(one.get(), "tree", tree_name(node.tree));
        json_put_integer(one.get(), "first_inode", node.first_inode.value);
        json_put_integer(one.get(), "last_inode", node.last_inode.value);
        json_array_append_new(nodes.get(), one.release());
    }
    json_put(out.get(), "nodes", std::move(nodes));
    return out;
}

Result<DamagedFiles> decode_damage(const json_t* object)
{
    if (json_get_text(object, "schema") != "cowraid.damage")
        return Err::kInvalid;
    DamagedFiles damage;
    damage.file_count = json_get_integer(object, "file_count");
    size_t index;
    const json_t* value;
    json_array_foreach(json_get(object, "files"), index, value)
    {
        DamagedFile file{.inode = {json_get_integer(value, "inode")}, .paths = {}, .range = {}};
        const json_t* const paths = json_get(value, "paths");
        for (size_t path = 0; path < json_array_size(paths); ++path)
            file.paths.push_back(unescape_file_name(json_text(json_array_get(paths, path))));
        file.blocks = json_get_integer(value, "blocks");
        file.range = {json_get_integer(value, "first_byte"), json_get_integer(value, "last_byte")};
        damage.files.push_back(std::move(file));
    }
    damage.node_count = json_get_integer(object, "node_count");
    json_array_foreach(json_get(object, "nodes"), index, value)
    {
        DamagedNode node{.first_inode = {json_get_integer(value, "first_inode")},
                         .last_inode = {json_get_integer(value, "last_inode")}};
        const std::string name = json_get_text(value, "tree");
        for (uint8_t tree = 0; tree < kTreeCount; ++tree)
            if (name == tree_name(static_cast<TreeIndex>(tree)))
                node.tree = static_cast<TreeIndex>(tree);
        damage.nodes.push_back(node);
    }
    return damage;
}

}  // namespace cowraid
