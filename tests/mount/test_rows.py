# SPDX-License-Identifier: MIT
"""Rows that hold committed blocks, written in place: full volumes, small writes, crashes, options."""

import json
import os
import random
import time

import pytest

from conftest import tool

BLOCK = 4096


def statistics(volume):
    usage = json.loads(tool("cowraid", "filesystem", "usage", "--json", volume.mount_point).stdout)
    return find_key(usage, "joined_blocks")


def find_key(tree, key):
    """The first object, at any depth, that has the key."""
    if isinstance(tree, dict):
        if key in tree:
            return tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for branch in tree:
            found = find_key(branch, key)
            if found is not None:
                return found
    return None


class Blocks:
    """A file of blocks with known content, overwritten one by one, each write acknowledged."""

    def __init__(self, volume, share, seed):
        self.volume, self.path = volume, volume.mount_point / "blocks"
        self.generator = random.Random(seed)
        space = os.statvfs(volume.mount_point)
        self.versions = [0] * int(space.f_bavail * share)
        with open(self.path, "wb") as file:
            for number in range(len(self.versions)):
                file.write(self.content(number, 0))
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def content(number, version):
        return (number << 32 | version).to_bytes(8, "little") * (BLOCK // 8)

    def overwrite(self, count):
        fd = os.open(self.path, os.O_WRONLY | os.O_DSYNC)
        for _ in range(count):
            number = self.generator.randrange(len(self.versions))
            self.versions[number] += 1
            os.pwrite(fd, self.content(number, self.versions[number]), number * BLOCK)
        os.close(fd)

    def overwrite_until_rows_are_joined(self, wanted):
        while statistics(self.volume)["joined_blocks"] < wanted:
            assert sum(self.versions) < 30000, "no row was ever joined"
            self.overwrite(200)

    def verify(self):
        with open(self.path, "rb") as file:
            for number, version in enumerate(self.versions):
                assert file.read(BLOCK) == self.content(number, version), f"block {number}, version {version}"


@pytest.mark.parametrize("data,metadata", [("raid5", "raid1"), ("raid6", "raid1c3")])
def test_random_overwrites_of_a_full_volume_join_rows_and_survive_a_crash(make_volume, data, metadata):
    volume = make_volume(data=data, metadata=metadata, member_mib=128)
    volume.make()
    volume.mount()
    blocks = Blocks(volume, 0.92, seed=1)
    blocks.overwrite_until_rows_are_joined(500)
    volume.kill()
    tool("cowraid", "check", volume.devices[0])
    volume.mount()
    blocks.verify()
    blocks.overwrite(100)
    numbers = statistics(volume)
    assert numbers["rmw_rows"] + numbers["rcw_rows"] > 0 and numbers["intent_log_bytes"] > 0, numbers
    volume.unmount()
    assert volume.check()["clean"]
    volume.mount()
    blocks.verify()


def test_joined_rows_without_two_members_after_a_crash(make_volume):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=5, member_mib=128)
    volume.make()
    volume.mount()
    blocks = Blocks(volume, 0.92, seed=2)
    blocks.overwrite_until_rows_are_joined(300)
    volume.kill()
    volume.hide([1, 3])
    volume.mount(devices=[volume.devices[0]], options="degraded")
    blocks.verify()
    volume.unmount()
    volume.unhide([1, 3])


def test_reserved_space_takes_random_synchronous_writes(make_volume):
    """fallocate promised the space; small synchronous writes get all of it."""
    volume = make_volume(member_mib=128)
    volume.make()
    volume.mount()
    space = os.statvfs(volume.mount_point)
    blocks = space.f_bavail * 9 // 10
    path = volume.mount_point / "reserved"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, blocks * BLOCK)
    os.close(fd)
    generator = random.Random(3)
    order = list(range(blocks))
    generator.shuffle(order)
    started = time.monotonic()
    fd = os.open(path, os.O_RDWR | os.O_DSYNC)
    for number in order[:6000]:
        os.pwrite(fd, number.to_bytes(8, "little") * (BLOCK // 8), number * BLOCK)
    os.close(fd)
    print(f"6000 of {blocks} blocks in {time.monotonic() - started:.1f} s")
    # The rest without waiting for each.
    fd = os.open(path, os.O_RDWR)
    for number in order[6000:]:
        os.pwrite(fd, number.to_bytes(8, "little") * (BLOCK // 8), number * BLOCK)
    os.fsync(fd)
    os.close(fd)
    volume.drop_caches()
    with open(path, "rb") as file:
        for number in range(blocks):
            assert file.read(BLOCK) == number.to_bytes(8, "little") * (BLOCK // 8), f"block {number}"
    volume.unmount()
    assert volume.check()["clean"]


def test_options_of_partial_writes_change_while_mounted(volume):
    for option in ("stripe_cache_size=4096", "rmw_level=0", "stripe_io_size=64K", "plug=off"):
        tool("mount.cowraid", volume.devices[0], volume.mount_point, "-o", f"remount,{option}")
    bad = tool("mount.cowraid", volume.devices[0], volume.mount_point, "-o", "remount,stripe_cache_size=5",
               check=False)
    assert bad.returncode != 0 and "17 to 32768" in bad.stderr, bad.stderr
    (volume.mount_point / "f").write_text("content")
    volume.unmount()
    volume.mount(options="stripe_cache_size=17,rmw_level=2,join_above=0")
    assert (volume.mount_point / "f").read_text() == "content"
