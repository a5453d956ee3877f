# SPDX-License-Identifier: MIT
"""cowraid map: the picture has every member and shows what is in use, stripe by stripe."""

import json
import os
import struct
import xml.etree.ElementTree as ElementTree

from conftest import random_content, run, tool

SVG = "{http://www.w3.org/2000/svg}"
FULL = "#04264f"


def draw(volume, file):
    tool("cowraid", "map", "-o", file, volume.mount_point)
    root = ElementTree.parse(file).getroot()
    width_of_full = sum(int(one.get("width")) for one in root.iter(f"{SVG}rect")
                        if one.get("fill") == FULL and one.get("height") == "22")
    return root, width_of_full


def test_map_of_a_volume(make_volume, tmp_path):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make("-L", "<mapped>")
    volume.mount()
    _, empty = draw(volume, tmp_path / "before.svg")
    (volume.mount_point / "data").write_bytes(random_content(128 << 20))
    run("sync", "-f", volume.mount_point)
    root, full = draw(volume, tmp_path / "after.svg")
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert all(device in texts for device in volume.devices)
    assert any(text.startswith("<mapped>") for text in texts)
    # 64 MiB on each of three rows of 1,000 pixels for about 256 MiB.
    assert empty < 10 and 600 < full < 900, (empty, full)

    layout = json.loads(tool("cowraid", "map", "--json", volume.mount_point).stdout)
    data = [group for group in layout["groups"] if group["content"] == ["data"]]
    assert sum(sum(group["used_bytes_by_part"]) for group in data) == 128 << 20
    for group in data:
        whole = group["part_bytes"] * group["data_columns"]
        assert len(group["used_bytes_by_part"]) == group["column_bytes"] // group["part_bytes"]
        assert all(0 <= used <= whole for used in group["used_bytes_by_part"])

    said = tool("cowraid", "map", "--json", "-o", tmp_path / "map.json", volume.mount_point).stdout
    assert said == "" and json.loads((tmp_path / "map.json").read_text(encoding="utf-8")) == layout
    for words in (["--json", "-o", tmp_path / "map.png"], ["-o", tmp_path / "map.png", "--format=json"]):
        refused = tool("cowraid", "map", *words, volume.mount_point, check=False)
        assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "no picture" in refused.stderr
    assert not (tmp_path / "map.png").exists()

    volume.unmount()
    offline = json.loads(tool("cowraid", "map", "--json", volume.devices[0]).stdout)
    used = [(group["address"], group["used_bytes_by_part"]) for group in offline["groups"]
            if group["content"] == ["data"]]
    assert used == [(group["address"], group["used_bytes_by_part"]) for group in data]


def test_png_is_made_where_the_program_is(volume, tmp_path):
    tool("cowraid", "map", "-o", tmp_path / "map.png", volume.mount_point)
    head = (tmp_path / "map.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    root, _ = draw(volume, tmp_path / "map.svg")
    assert struct.unpack(">II", head[16:]) == (int(root.get("width")), int(root.get("height")))
    nobody = dict(os.environ, PATH="/nonexistent")
    result = tool("cowraid", "map", "-o", tmp_path / "no.png", volume.mount_point, check=False, env=nobody)
    assert result.returncode == 1 and "librsvg2-bin" in result.stderr
    assert not (tmp_path / "no.png").exists()
