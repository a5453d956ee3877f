# SPDX-License-Identifier: MIT
"""Devices that lead to what is in use already: other loop devices over the file of a member, copies."""

import json
import os
import shutil
import stat
import time
from pathlib import Path

import pytest

from conftest import Volume, random_content, run, tool, wait_for


def loop_over(*words):
    return run("losetup", "-f", "--show", *words).stdout.strip()


def refused(*words, environment=None):
    said = tool(*words, check=False, env=environment)
    assert said.returncode != 0, said.stdout
    return said.stderr


def generation(volume):
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", volume.mount_point).stdout)
    return shown["volumes"][0]["generation"]


def is_quiet(volume):
    before = generation(volume)
    time.sleep(8)
    return generation(volume) == before


def test_another_loop_over_the_file_of_a_member_is_no_new_device(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    volume.make()
    volume.mount()
    content = random_content(60 << 20)
    (volume.mount_point / "data").write_bytes(content)
    others = [loop_over("-o", "1048576", volume.images[1]), *(loop_over(image) for image in volume.images)]
    place = volume.mount_point
    elsewhere = {**os.environ, "COWRAID_RUN_DIR": str(volume.folder / "elsewhere")}
    second = volume.folder / "second"
    second.mkdir()
    try:
        for loop, member in zip(others, (volume.loops[1], *volume.loops)):
            for words in (["cowraid", "device", "add", loop, place],
                          ["cowraid", "device", "add", "-f", loop, place],
                          ["cowraid", "replace", "start", "-B", "-f", "1", loop, place],
                          ["mkfs.cowraid", "-f", loop]):
                assert f"{loop} leads to the same bytes as {member}, which is in use" in refused(*words)
        said = refused("mount.cowraid", *others[1:], second, environment=elsewhere)
        assert "leads to the same bytes as" in said
        assert "leads to the same bytes as" in refused("cowraid", "check", *others[1:], environment=elsewhere)
        volume.unmount()
        tool("cowraid", "check", *volume.loops)
        volume.mount(others[1:])
        assert (place / "data").read_bytes() == content
        assert "leads to the same bytes as" in refused("mount.cowraid", *volume.loops, second,
                                                       environment=elsewhere)
        volume.unmount()
    finally:
        for loop in others:
            run("losetup", "-d", loop)


def test_parts_of_one_file_are_members_where_they_do_not_overlap(make_volume):
    volume = make_volume(member_count=1, member_mib=384, loops=False)
    image, part = volume.images[0], str(128 << 20)
    parts = [loop_over("-o", str(index * (128 << 20)), "--sizelimit", part, image) for index in range(3)]
    over = loop_over("-o", str(64 << 20), "--sizelimit", part, image)
    try:
        said = refused("mkfs.cowraid", "-d", "raid1", "-m", "raid1", parts[0], over)
        assert f"{over} leads to the same bytes as {parts[0]}" in said
        tool("mkfs.cowraid", "-q", "-d", "raid5", "-m", "raid1", *parts)
        volume.mount(parts)
        assert f"{over} leads to the same bytes as" in refused("mkfs.cowraid", "-f", over)
        volume.unmount()
    finally:
        for loop in (*parts, over):
            run("losetup", "-d", loop)


def test_a_copy_of_a_member_in_service_is_known(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    volume.make()
    volume.mount()
    (volume.mount_point / "data").write_bytes(random_content(20 << 20))
    run("sync", "-f", volume.mount_point)
    # The commit is confirmed by one more superblock, some seconds later.
    wait_for(lambda: is_quiet(volume))
    copy = volume.folder / "copy.img"
    shutil.copyfile(volume.loops[2], copy)
    loop = Volume.attach(copy)
    try:
        for words in (["device", "add"], ["device", "add", "-f"], ["replace", "start", "-f", "1"],
                      ["replace", "start", "3"]):
            said = refused("cowraid", *words, loop, volume.mount_point)
            assert f"{loop} is member 3 of this volume, by another path, or a copy" in said
        (volume.mount_point / "more").write_bytes(random_content(1 << 20))
        run("sync", "-f", volume.mount_point)
        assert "to overwrite it use -f" in refused("cowraid", "device", "add", loop, volume.mount_point)
        assert "are the same device; name each once" in refused("cowraid", "device", "add", "-f", loop, loop,
                                                                volume.mount_point)
        tool("cowraid", "device", "add", "-f", loop, volume.mount_point)
        volume.unmount()
    finally:
        run("losetup", "-d", loop)


def other_nodes(volume):
    """Of the same devices, as a container or a chroot has them that makes its own."""
    folder = volume.folder / "dev"
    folder.mkdir()
    nodes = []
    for loop in volume.loops:
        number = os.stat(loop).st_rdev
        nodes.append(str(folder / Path(loop).name))
        os.mknod(nodes[-1], 0o600 | stat.S_IFBLK, number)
    return nodes


@pytest.mark.parametrize("member_count", [1, 3])
def test_another_node_of_a_device_in_use_is_refused(make_volume, member_count):
    """Also where the mount that the kernel holds the device for is dead, beside the one that uses it."""
    profiles = {1: {"data": "single", "metadata": "single"}, 3: {"data": "raid5", "metadata": "raid1"}}
    volume = make_volume(member_count=member_count, member_mib=128, **profiles[member_count])
    volume.make()
    nodes = other_nodes(volume)
    content = random_content(10 << 20)
    elsewhere = {**os.environ, "COWRAID_RUN_DIR": str(volume.folder / "elsewhere")}
    second = volume.folder / "second"
    second.mkdir()
    in_use = "is in use: mounted, held by another program"

    def both_are_refused(devices):
        assert f"{devices[0]} {in_use}" in refused("mkfs.cowraid", "-f", devices[0])
        said = refused("mount.cowraid", *devices, second, environment=elsewhere)
        assert said.count("\n") == 1 and f" {in_use}" in said
        assert not os.path.ismount(second)

    volume.mount()
    (volume.mount_point / "data").write_bytes(content)
    both_are_refused(nodes)
    assert in_use in refused("cowraid", "check", *nodes, environment=elsewhere)
    for node in nodes[1:]:
        assert f"{node} {in_use}" in refused("mkfs.cowraid", "-f", node)
    volume.unmount()
    volume.mount(nodes)
    assert (volume.mount_point / "data").read_bytes() == content
    both_are_refused(volume.loops)
    with open(volume.mount_point / "data", "rb"):
        volume.kill()
        volume.mount(nodes)
        assert (volume.mount_point / "data").read_bytes() == content
        both_are_refused(volume.loops)
        volume.unmount()
    volume.mount()
    assert (volume.mount_point / "data").read_bytes() == content
    volume.unmount()
    volume.check()
    tool("mkfs.cowraid", "-q", "-f", *nodes)
