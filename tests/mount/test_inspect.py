# SPDX-License-Identifier: MIT
"""cowraid inspect: what it prints is what is there."""

import json
import os
import re
import signal
import subprocess

from conftest import TOOLS, random_content, run, tool

MIB = 1 << 20


def filled(make_volume, data="raid5", metadata="raid1", members=4):
    volume = make_volume(member_count=members, member_mib=128, data=data, metadata=metadata, loops=False)
    volume.make("-L", "inspected")
    volume.mount()
    (volume.mount_point / "named file").write_bytes(random_content(3 * MIB))
    return volume


def test_extents_lead_to_the_data(make_volume):
    """What is read from the image at the place of an extent's first block is what the file has there."""
    for data, metadata in (("raid5", "raid1"), ("raid1", "raid1"), ("raid0", "raid1")):
        volume = filled(make_volume, data, metadata)
        path = volume.mount_point / "named file"
        tool("cowraid", "filesystem", "sync", volume.mount_point)
        with open(path, "r+b") as file:
            os.pwrite(file.fileno(), b"x" * 4096, 20 * 4096)
            os.pwrite(file.fileno(), b"y" * 10000, 5 * MIB)
        run_fallocate = os.open(path, os.O_RDWR)
        os.posix_fallocate(run_fallocate, 8 * MIB, MIB)
        os.close(run_fallocate)
        content = path.read_bytes()
        listed = json.loads(tool("cowraid", "inspect", "extents", "--json", path).stdout)
        assert listed["schema"] == "cowraid.extents" and listed["size_bytes"] == len(content) == 9 * MIB
        stored = [extent for extent in listed["extents"] if not extent["reserved"]]
        assert sum(extent["bytes"] for extent in stored) == 3 * MIB + 3 * 4096
        reserved = [extent for extent in listed["extents"] if extent["reserved"]]
        assert sum(extent["bytes"] for extent in reserved) == MIB
        offsets = [extent["offset"] for extent in listed["extents"]]
        assert offsets == sorted(offsets) and len(stored) >= 3
        for extent in stored:
            assert extent["address"] == extent["logical_address"] != 0
            places = extent["first_block"]
            assert len(places) == (2 if data == "raid1" else 1)
            wanted = content[extent["offset"]:extent["offset"] + 4096]
            for place in places:
                with open(volume.images[place["member"] - 1], "rb") as image:
                    assert os.pread(image.fileno(), 4096, place["device_offset"])[:len(wanted)] == wanted
        text = tool("cowraid", "inspect", "extents", path).stdout
        assert f"{len(listed['extents'])} extents" in text and "reserved" in text
        volume.unmount()


def test_extents_say_why_not(make_volume, tmp_path):
    volume = filled(make_volume)
    for path, word in ((volume.mount_point, "regular"), (volume.mount_point / "none", "No such"),
                       (tmp_path / "elsewhere", "is not in a mounted cowraid volume\n")):
        if path.name == "elsewhere":
            path.write_text("")
        result = tool("cowraid", "inspect", "extents", path, check=False)
        assert result.returncode == 1 and word in result.stderr, result.stderr
    os.chmod(volume.mount_point, 0o755)
    other = run("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", TOOLS / "cowraid", "inspect",
                "extents", volume.mount_point / "named file", check=False)
    assert other.returncode == 1 and "that root mounted; only root may ask its daemon" in other.stderr


def test_superblocks(make_volume):
    volume = filled(make_volume)
    one = tool("cowraid", "inspect", "dump-super", *volume.devices).stdout
    assert one.count("device /") == 4 and one.count("inspected") == 4 and one.count(": valid") == 4
    every = json.loads(tool("cowraid", "inspect", "dump-super", "--all", "--json", volume.devices[0]).stdout)
    slots = every["devices"][0]["slots"]
    assert len(slots) == 16 and {slot["ring"] for slot in slots} == {0, 1}
    assert all(slot["member"] == 1 for slot in slots if slot["state"] == "valid")
    volume.unmount()
    newest = max(slot["generation"] for slot in slots if slot["state"] == "valid")
    now = json.loads(tool("cowraid", "inspect", "dump-super", "--json", volume.devices[1]).stdout)
    assert now["devices"][0]["slots"][0]["generation"] > newest
    # A slot that rots is named, and another ring has the same.
    slot = now["devices"][0]["slots"][0]
    with open(volume.images[1], "r+b") as image:
        os.pwrite(image.fileno(), b"rot", slot["device_offset"] + 100)
    again = json.loads(tool("cowraid", "inspect", "dump-super", "--all", "--json", volume.devices[1]).stdout)
    states = {(line["ring"], line["slot"]): line["state"] for line in again["devices"][0]["slots"]}
    assert states[(slot["ring"], slot["slot"])] == "damaged"
    assert states[(1 - slot["ring"], slot["slot"])] == "valid"
    with open(volume.images[2], "r+b") as image:
        image.write(b"\0" * (16 * MIB))
    assert tool("cowraid", "inspect", "dump-super", volume.devices[2], check=False).returncode == 1


def test_trees(make_volume):
    volume = filled(make_volume)
    os.setxattr(volume.mount_point / "named file", "user.color", b"green")
    volume.unmount()
    every = tool("cowraid", "inspect", "dump-tree", volume.devices[0]).stdout
    for words in ("root tree:", "checksum tree:", "free-space tree:", "file tree:", "name 'named file'"):
        assert words in every, words
    files = tool("cowraid", "inspect", "dump-tree", "-t", "file", volume.devices[0]).stdout
    assert "name 'named file'" in files and "checksum tree:" not in files
    leaves = re.findall(r"^leaf (\d+) level 0 items (\d+)", files, re.MULTILINE)
    assert leaves and sum(int(count) for _, count in leaves) == files.count("\n  item ")
    short = tool("cowraid", "inspect", "dump-tree", "-n", *volume.devices).stdout
    assert "leaf" in short and "item " not in short.replace("items ", "")
    refused = tool("cowraid", "inspect", "dump-tree", "-t", "none", volume.devices[0], check=False)
    assert refused.returncode == 2 and refused.stdout == ""
    assert "there is no tree 'none'; there are: root, checksum, free-space, remap and file" in refused.stderr
    dumped = json.loads(tool("cowraid", "inspect", "dump-tree", "--json", volume.devices[0]).stdout)
    assert dumped["schema"] == "cowraid.inspect-tree" and not dumped["mounted"]
    assert every.splitlines()[0] == f"commit {dumped['generation']}"
    of_files = [tree for tree in dumped["trees"] if tree["name"] == "file"]
    items = [item for node in of_files[0]["nodes"] if node["level"] == 0 for item in node["items"]]
    assert len(items) == files.count("\n  item ") > 0
    assert any("name 'named file'" in item["text"] for item in items)
    # Three of four members have every node; without any copy of it a node is named.
    assert tool("cowraid", "inspect", "dump-tree", *volume.devices[1:]).stdout == every
    found = 0
    for image in volume.images:
        data = open(image, "rb").read()
        at = data.find(b"named file")
        while at >= 0:
            found += 1
            with open(image, "r+b") as file:
                os.pwrite(file.fileno(), b"rot", at)
            at = data.find(b"named file", at + 1)
    assert found >= 2
    rotten = tool("cowraid", "inspect", "dump-tree", "-t", "file", volume.devices[0]).stdout
    assert re.search(r"^node \d+ of tree 256: ", rotten, re.MULTILINE) and "name 'named file'" not in rotten
    nodes = json.loads(tool("cowraid", "inspect", "dump-tree", "-t", "file", "--json",
                            volume.devices[0]).stdout)["trees"][0]["nodes"]
    assert [node["address"] for node in nodes if "error" in node]


def test_trees_of_a_mounted_volume(make_volume):
    """What is printed beside the daemon is one commit, whole, or one line says why not."""
    volume = filled(make_volume)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    text = tool("cowraid", "inspect", "dump-tree", "-t", "file", *volume.devices).stdout
    first = re.match(r"commit (\d+) of a mounted volume", text)
    assert first and "name 'named file'" in text
    loop = (f"i=0; while :; do i=$((i + 1)); touch {volume.mount_point}/name$i; "
            f"[ $i -le 30 ] || rm {volume.mount_point}/name$((i - 30)); "
            f"{TOOLS}/cowraid filesystem sync {volume.mount_point}; done")
    writer = subprocess.Popen(["sh", "-c", loop], start_new_session=True)
    try:
        dumps = [tool("cowraid", "inspect", "dump-tree", "--json", *volume.devices, check=False)
                 for _ in range(20)]
    finally:
        os.killpg(writer.pid, signal.SIGKILL)
        writer.wait()
    commits = []
    for result in dumps:
        if result.returncode != 0:
            assert "commits faster" in result.stderr, result.stderr
            continue
        dumped = json.loads(result.stdout)
        assert dumped["mounted"]
        commits.append(dumped["generation"])
        names = set()
        for tree in dumped["trees"]:
            assert tree["generation"] <= dumped["generation"]
            for node in tree["nodes"]:
                assert "error" not in node
                if tree["name"] == "file" and node["level"] == 0:
                    names |= {name for item in node["items"]
                              for name in re.findall(r"name '(name\d+)'", item["text"])}
        # Made one after the other, and removed in that order, each with a commit.
        numbers = sorted(int(name.removeprefix("name")) for name in names)
        assert numbers == [] or numbers == list(range(numbers[0], numbers[-1] + 1))
    print(f"{len(commits)} of 20 dumps, of commits {commits}")
    assert commits and commits == sorted(commits) and commits[-1] > int(first[1])
    volume.unmount()
    volume.check()


def test_verify(make_volume):
    volume = filled(make_volume)
    volume.unmount()
    clean = json.loads(tool("cowraid", "inspect", "verify", "--json", volume.devices[0]).stdout)
    assert clean["clean"] and clean["nodes"] >= 4 and clean["checksums_verified"] == 0
    not_read = "the trees are clean; file data and parity were not read"
    assert clean["result"] == not_read
    assert not_read in tool("cowraid", "check", "--trees-only", volume.devices[0]).stdout
    assert not_read not in tool("cowraid", "check", volume.devices[0]).stdout
    said = tool("cowraid", "inspect", "verify", "--help").stdout
    assert "Read the trees" in said and "trees-only" not in said
    with open(volume.images[0], "r+b") as image:
        image.seek(12 * MIB)
        image.write(b"\xff" * MIB)
    damaged = tool("cowraid", "inspect", "verify", volume.devices[0], check=False)
    assert damaged.returncode == 3 and "superblock" in damaged.stdout
