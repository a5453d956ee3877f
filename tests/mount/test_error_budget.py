# SPDX-License-Identifier: MIT
"""A member with many unreadable blocks. It is an image on another volume without redundancy: where a block of
that is damaged, a read of the image fails."""

import json
import mmap
import os
import time

import pytest

from conftest import Volume, tool

BLOCK = 4096
MIB = 1 << 20


class UnreadableMember:
    """A volume of three loop devices and an image, member 4, of which blocks can be made unreadable."""

    def __init__(self, folder):
        self.environment = {**os.environ, "COWRAID_RUN_DIR": str(folder)}
        self.below = Volume(member_count=1, member_mib=1024, data="single", metadata="single")
        self.below.make()
        tool("mount.cowraid", *self.below.devices, self.below.mount_point, env=self.environment)
        self.volume = Volume(member_count=3, member_mib=256, data="raid5", metadata="raid1")
        image = self.below.mount_point / "member4.img"
        with open(image, "wb") as file:
            file.truncate(256 * MIB)
        self.volume.images.append(image)
        self.devices = [*self.volume.loops, str(image)]
        tool("mkfs.cowraid", "-q", "-d", "raid5", "-m", "raid1", *self.devices)

    def damage(self, content):
        """Blocks of `content` that lie on member 4 cannot be read any more; how many that are."""
        tool("cowraid", "filesystem", "sync", self.volume.mount_point)
        tool("cowraid", "filesystem", "sync", self.below.mount_point, env=self.environment)
        wanted = {content[at:at + BLOCK] for at in range(0, len(content), BLOCK)}
        found = 0
        with open(self.below.images[0], "r+b") as file, mmap.mmap(file.fileno(), 0) as image:
            for at in range(16 * MIB, len(image), BLOCK):
                if image[at:at + BLOCK] in wanted:
                    image[at] ^= 1
                    found += 1
        return found

    def status(self):
        return json.loads(tool("cowraid", "status", "--json", self.volume.mount_point).stdout)["volumes"][0]

    def destroy(self):
        self.volume.destroy()
        self.below.destroy()


@pytest.fixture
def unreadable(tmp_path):
    member = UnreadableMember(tmp_path)
    try:
        yield member
    finally:
        member.destroy()


def read_slowly(unreadable, options, rounds):
    """Files with unreadable blocks, one a second; the status at the end."""
    volume = unreadable.volume
    volume.mount(unreadable.devices, options)
    contents = [os.urandom(MIB) for _ in range(rounds)]
    for number, content in enumerate(contents):
        (volume.mount_point / f"f{number}").write_bytes(content)
    assert unreadable.damage(b"".join(contents)) > 20 * rounds
    volume.drop_caches()
    for number, content in enumerate(contents):
        assert (volume.mount_point / f"f{number}").read_bytes() == content
        time.sleep(1.1)
    time.sleep(2.5)
    for number, content in enumerate(contents):
        assert (volume.mount_point / f"f{number}").read_bytes() == content
    return unreadable.status()


def test_too_many_seconds_with_errors_that_are_mended(unreadable):
    status = read_slowly(unreadable, "error_budget=3", 6)
    member = status["members"][3]
    assert member["condition"] == "degraded" and status["may_fail"] == 1, member
    volume = unreadable.volume
    assert "ManyErrors" in tool("cowraid", "events", volume.mount_point).stdout
    assert "many errors" in tool("cowraid", "status", volume.mount_point).stdout
    # A spare gets all that it has, without redundancy lost meanwhile.
    spare = volume.another(256)
    tool("cowraid", "device", "add", "--spare", spare, volume.mount_point)
    deadline = time.monotonic() + 60
    while (status := unreadable.status())["members"][3]["path"] != spare:
        assert status["may_fail"] == 1 and time.monotonic() < deadline, status
        time.sleep(0.2)
    while "ReplaceFinished" not in (told := tool("cowraid", "events", volume.mount_point).stdout):
        assert time.monotonic() < deadline, told
        time.sleep(0.2)
    assert "SpareUsed" in told and "ReplaceFinished" in told and "DegradedArray" not in told, told
    assert [line["condition"] for line in status["members"]] == ["online"] * 4
    assert status["spares"] == []


def test_repairs_that_do_not_hold(unreadable):
    volume = unreadable.volume
    volume.mount(unreadable.devices)
    content = os.urandom(MIB // 2)
    (volume.mount_point / "f").write_bytes(content)
    for _ in range(7):
        unreadable.damage(content)
        volume.drop_caches()
        assert (volume.mount_point / "f").read_bytes() == content
        time.sleep(1.1)
    time.sleep(2.5)
    status = unreadable.status()
    member = status["members"][3]
    assert member["condition"] == "faulted" and "repairs of it do not hold" in member["reason"], member
    assert status["may_fail"] == 0
    assert [line["condition"] for line in status["members"][:3]] == ["online"] * 3
    told = tool("cowraid", "events", volume.mount_point).stdout
    assert "Fail" in told and "repairs of it do not hold" in told
    # It is there again when somebody says so, and gets what it missed.
    tool("cowraid", "device", "online", "4", volume.mount_point)
    volume.wait_caught_up()
    assert unreadable.status()["members"][3]["condition"] == "online"
    assert (volume.mount_point / "f").read_bytes() == content


@pytest.mark.parametrize("options", ["error_budget=0", "error_budget=20"])
def test_some_bad_blocks_are_mended(unreadable, options):
    status = read_slowly(unreadable, options, 6)
    member = status["members"][3]
    assert member["condition"] == "online" and member["errors"]["read_io_errs"] > 100, member
    scrubbed = tool("cowraid", "scrub", unreadable.volume.mount_point, check=False)
    assert scrubbed.returncode == 0, scrubbed
    assert unreadable.status()["members"][3]["condition"] == "online"
