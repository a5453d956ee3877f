# SPDX-License-Identifier: MIT
"""A member in service is replaced by copying it: beside writers, over kill -9, with bad blocks on it."""

import json
import mmap
import os
import struct

import pytest

from conftest import PATIENCE, random_content, run, tool, wait_for
from test_balance import Writer
from test_catch_up import without
from test_redundancy import fill, verify
from test_scrub import rot
from unreadable_members import UnreadableMembers


def replacement(volume):
    return json.loads(tool("cowraid", "status", "--json", volume.mount_point).stdout)["volumes"][0]["replace"]


def start(volume, source, target, *options, expect=0):
    result = tool("cowraid", "replace", "start", *options, source, target, volume.mount_point, check=False)
    assert result.returncode == expect, result.stdout + result.stderr
    return result


def wait_for_end(volume):
    wait_for(lambda: replacement(volume)["state"] not in ("running", "waiting"), 5 * PATIENCE)
    return replacement(volume)


def reads_as(path, wanted):
    """False: reading fails. It never gives something else."""
    try:
        found = path.read_bytes()
    except OSError:
        return False
    assert found == wanted
    return True


@pytest.mark.parametrize("killed", [False, True])
def test_a_member_in_service_is_replaced_beside_a_writer(make_volume, killed):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=5, member_mib=512)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=80)
    big = random_content(300 << 20)
    (volume.mount_point / "big").write_bytes(big)
    run("sync", "-f", volume.mount_point)
    old = volume.devices[1]
    target = volume.another(512)
    writer = Writer(volume.mount_point)
    writer.start()
    try:
        if killed:
            start(volume, "2", target)
            wait_for(lambda: replacement(volume)["groups_copied"] > 0 or
                     replacement(volume)["state"] != "running", 5 * PATIENCE)
        else:
            said = start(volume, old, target, "-B").stdout
            assert f"{target} takes the place of member 2 when all is copied" in said
            assert "replacing member 2: finished" in said and " 0 of its blocks lost" in said
    finally:
        writer.finish()
    if killed:
        before = replacement(volume)
        tool("cowraid", "filesystem", "sync", volume.mount_point)
        volume.kill()
        finished = before["state"] == "finished"
        mounted = volume.mount(without(volume, [1]) if finished else None, check=False)
        if mounted.returncode != 0:  # finished between the question and the kill
            assert not finished and old in mounted.stderr and "leave it out" in mounted.stderr, mounted
            finished = True
            volume.mount(without(volume, [1]))
        after = replacement(volume)
        finished = finished or after["state"] == "none"
        assert finished or after["groups_copied"] >= before["groups_copied"], (before, after)
    assert finished if killed and finished else wait_for_end(volume)["state"] == "finished"
    shown = tool("cowraid", "filesystem", "show", volume.mount_point).stdout
    assert target in shown and f"{old} " not in shown
    verify(sums)
    writer.verify()
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    volume.unmount()
    volume.hide([0, 1, 3])
    volume.mount(without(volume, [0, 1, 3]), "degraded,ro")
    verify(sums)
    writer.verify()
    assert (volume.mount_point / "big").read_bytes() == big


@pytest.mark.parametrize("data,metadata,count", [("raid5", "raid1", 4), ("raid6", "raid1c3", 5)])
def test_bad_blocks_on_it_and_on_another_one(make_volume, data, metadata, count):
    volume = make_volume(data=data, metadata=metadata, member_count=count, member_mib=128)
    volume.make()
    volume.mount()
    content = {}
    for number in range(20):
        content[f"file{number}"] = random_content(5 << 20)
        (volume.mount_point / f"file{number}").write_bytes(content[f"file{number}"])
    volume.unmount()
    rot(volume, [1], seed=1, share=60)
    rot(volume, [3], seed=2, share=60)
    target = volume.another(128)
    volume.mount(without(volume, [count]))
    said = start(volume, "2", target, "-B", expect=3 if data == "raid5" else 0).stdout
    ended = replacement(volume)
    assert ended["state"] == "finished" and ended["copy"]["repaired_blocks"] > 10, said
    lost = ended["copy"]["lost_blocks"]
    assert (lost > 0) == (data == "raid5")
    named = tool("cowraid", "status", "-v", volume.mount_point, check=False).stdout
    for name, wanted in content.items():
        assert reads_as(volume.mount_point / name, wanted) == (f"/{name}'" not in named), named
    assert ("cowraid status -v names the files" in said) == (lost > 0)


@pytest.mark.parametrize("data,metadata,loops", [("raid5", "raid1", 3), ("raid6", "raid1c3", 4)])
def test_unreadable_sectors_on_it_and_on_another_one(tmp_path, data, metadata, loops):
    """Show 3. Blocks at random places of two members: of data, parity, nodes and logs."""
    members = UnreadableMembers(tmp_path, loops, 2, data, metadata)
    try:
        volume = members.volume
        volume.mount(members.devices)
        content = {f"file{number}": random_content(5 << 20) for number in range(20)}
        for name, wanted in content.items():
            (volume.mount_point / name).write_bytes(wanted)
        bad = [members.damage_some(index, 25, index) for index in range(2)]
        assert min(bad) > 200, bad
        target = volume.another(256)
        said = start(volume, members.devices[loops], target, "-B", expect=3 if data == "raid5" else 0).stdout
        ended = replacement(volume)
        assert ended["state"] == "finished" and ended["copy"]["repaired_blocks"] > 100, said
        lost = ended["copy"]["lost_blocks"]
        print(f"{data}: unreadable {bad}, {ended['copy']['repaired_blocks']} repaired, {lost} lost")
        assert (lost > 0) == (data == "raid5")
        scrubbed = tool("cowraid", "scrub", volume.mount_point, check=False)
        assert scrubbed.returncode == (3 if lost else 0), scrubbed
        assert members.status()["members"][-1]["errors"]["read_io_errs"] > 100, members.status()
        volume.drop_caches()
        named = tool("cowraid", "status", "-v", volume.mount_point, check=False).stdout
        assert {name for name in content if f"/{name}'" in named} == \
            {name for name, wanted in content.items() if not reads_as(volume.mount_point / name, wanted)}
        again = tool("cowraid", "scrub", volume.mount_point, check=False)
        assert lost or "no errors found" in again.stdout, again
        volume.unmount()
    finally:
        members.destroy()


def test_what_is_refused_and_cancelled(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 3, file_count=80)
    (volume.mount_point / "big").write_bytes(random_content(300 << 20))
    run("sync", "-f", volume.mount_point)
    small = volume.another(200)
    target = volume.another(256)

    def refused(*words, code=1):
        result = tool("cowraid", *words, volume.mount_point, check=False)
        assert (result.returncode, len(result.stderr.splitlines())) == (code, 1), result
        return result.stderr

    assert "use one that is not smaller" in refused("replace", "start", "2", small)
    assert "in use" in refused("replace", "start", "2", volume.devices[0])
    assert "no member is being replaced" in refused("replace", "cancel")
    assert "no member was filled" in tool("cowraid", "replace", "status", volume.mount_point).stdout
    run("mkfs.ext4", "-q", target)
    assert "to overwrite it use -f" in refused("replace", "start", "2", target)
    assert "to overwrite it use -f" in refused("replace", "start", "--plan", "2", target)
    assert "use one that is not smaller" in refused("replace", "start", "--plan", "2", small)
    run("mkfs.ext4", "-q", small)
    assert "use one that is not smaller" in refused("replace", "start", "-f", "2", small)
    for device in (small, target):
        assert "ext4" in run("blkid", "-p", device).stdout
    planned = start(volume, "2", target, "-f", "--plan").stdout
    assert "May be lost:       1 device now, 1 on the way, 1 afterwards" in planned
    plan = json.loads(start(volume, "2", target, "-f", "--plan", "--json").stdout)
    assert plan["device_needed"] == plan["device_there"] == 256 << 20 and plan["moved_bytes"] > 90 << 20
    assert "ext4" in run("blkid", "-p", target).stdout and replacement(volume)["state"] == "none"
    start(volume, "2", target, "-f")
    assert replacement(volume)["member"] == 2
    cancelled = tool("cowraid", "replace", "cancel", volume.mount_point, check=False)
    assert cancelled.returncode == 0 or "no member is being replaced" in cancelled.stderr
    state = wait_for_end(volume)["state"]
    assert state == ("cancelled" if cancelled.returncode == 0 else "finished")
    ended = "ReplaceCancelled" if state == "cancelled" else "ReplaceFinished"
    wait_for(lambda: ended in tool("cowraid", "events", volume.mount_point).stdout)
    verify(sums)
    volume.unmount()
    absent = 5 if state == "cancelled" else 1
    volume.mount(without(volume, [absent, 4]))
    verify(sums)
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout


NODE_BYTES, NODE_MAGIC = 16384, b"CRGWNODE"  # docs/FORMAT.md


def nodes_of(volume):
    """(index, place, address, generation, level, item_count) of all nodes in the images, old ones, too."""
    for index, image in enumerate(volume.images):
        with open(image, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            place = memory.find(NODE_MAGIC)
            while place >= 0:
                if place % 4096 == 0:
                    found = struct.unpack_from("<QQQHHI", memory, place + 24)
                    yield index, place, found[0], found[1], found[3], found[5]
                place = memory.find(NODE_MAGIC, place + 8)


def copies_of_an_inner_node(volume):
    """Of the file tree, half way between its first and its last key: {(index, place): content}."""
    nodes = list(nodes_of(volume))
    root = max((node for node in nodes if node[4] == 2), key=lambda node: node[3])
    with open(volume.images[root[0]], "rb") as file:
        item = os.pread(file.fileno(), 72, root[1] + 64 + root[5] // 2 * 72)
    child = struct.unpack_from("<QQ", item, 24)
    copies = {}
    for index, place, address, generation, level, _ in nodes:
        if (address, generation, level) == (*child, 1):
            with open(volume.images[index], "rb") as file:
                copies[index, place] = os.pread(file.fileno(), NODE_BYTES, place)
    return copies


def write_all(volume, copies):
    for (index, place), content in copies.items():
        with open(volume.images[index], "r+b") as file:
            os.pwrite(file.fileno(), content, place)
            os.fsync(file.fileno())


def test_a_node_that_is_lost_in_all_copies_does_not_keep_a_member(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 5, file_count=40)
    attributes = {}
    for number in range(2500):
        path = volume.mount_point / f"with{number}"
        path.touch()
        attributes[path] = random_content(3000)
        os.setxattr(path, "user.large", attributes[path])
    volume.unmount()
    copies = copies_of_an_inner_node(volume)
    assert len(copies) == 2, copies.keys()
    source = min(index for index, _ in copies)
    write_all(volume, {at: b"x" * NODE_BYTES for at in copies})
    target = volume.another(256)
    volume.mount(without(volume, [4]))
    said = start(volume, str(source + 1), target, "-B", expect=3).stdout
    ended = replacement(volume)
    assert ended["state"] == "finished" and ended["copy"]["unreadable_nodes"] == 1, said
    assert "; 1 tree node cannot be read: what is below is copied unverified; cowraid status -v names" in said
    status = tool("cowraid", "status", "-v", volume.mount_point, check=False).stdout
    assert "tree node" in status, status
    volume.unmount()
    # One copy is found: nothing below it is lost, also where the new member is the only one that has it.
    other = max(index for index, _ in copies)
    write_all(volume, {at: content for at, content in copies.items() if at[0] == other})
    volume.mount(without(volume, [source]))
    report = json.loads(tool("cowraid", "scrub", "start", "-B", "--json", volume.mount_point).stdout)
    assert (report["repaired_blocks"], report["lost_blocks"], report["unreadable_nodes"]) == (4, 0, 0), report
    volume.unmount()
    volume.hide([other])
    volume.mount(without(volume, [source, other]), "degraded,ro")
    verify(sums)
    for path, value in attributes.items():
        assert os.getxattr(path, "user.large") == value
