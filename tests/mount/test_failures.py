# SPDX-License-Identifier: MIT
"""Members whose writes fail while the volume is mounted: image files on a small filesystem that fills up."""

import errno
import json
import os
import random
import re
import shutil

import pytest

from conftest import run, tool

MEMBER_MIB = 256


class SmallHost:
    """A small tmpfs that holds the images of some members, sparse, and can be filled up and emptied again."""

    def __init__(self, volume, indexes, size_mib=40):
        self.folder = volume.folder / "small"
        self.folder.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={size_mib}M", "tmpfs", self.folder)
        self.filler = self.folder / "filler"
        for index in indexes:
            run("losetup", "-d", volume.loops[index])
            volume.images[index].unlink()
            volume.images[index] = self.folder / f"member{index + 1}.img"
            with open(volume.images[index], "wb") as file:
                file.truncate(MEMBER_MIB << 20)
            volume.loops[index] = volume.attach(volume.images[index])

    def fill(self):
        with pytest.raises(OSError) as caught, open(self.filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        assert caught.value.errno == errno.ENOSPC

    def make_room(self):
        self.filler.unlink()


@pytest.fixture
def small_host(make_volume):
    made = []

    def make(indexes, member_count=4):
        volume = make_volume(member_count=member_count, member_mib=MEMBER_MIB, data="raid5", metadata="raid1")
        host = SmallHost(volume, indexes)
        made.append((volume, host))
        volume.make()
        volume.mount()
        return volume, host

    yield make
    for volume, host in made:
        volume.destroy()
        run("umount", "-l", host.folder, check=False)
        shutil.rmtree(volume.folder, ignore_errors=True)


def show(volume):
    shown = tool("cowraid", "filesystem", "show", "--json", volume.mount_point).stdout
    return json.loads(shown)["volumes"][0]


def write_synced(path, content):
    with open(path, "wb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())


@pytest.mark.parametrize("size", [20_000, 6 << 20], ids=["record", "commit"])
@pytest.mark.parametrize("first", range(4))
def test_two_members_fail_at_once(small_host, first, size):
    volume, host = small_host([first, (first + 1) % 4])
    generator = random.Random(first)
    kept = generator.randbytes(3 << 20)
    write_synced(volume.mount_point / "kept", kept)
    host.fill()
    refused = 0
    for index in range(400):
        try:
            write_synced(volume.mount_point / f"more{index}", generator.randbytes(size))
        except OSError as error:
            assert error.errno == errno.EIO
            refused = index + 1
            break
    assert refused > 0
    # It says why, takes nothing more, and reads what it has.
    shown = show(volume)
    assert shown["read_only"] and "more members failed" in shown["read_only_reason"], shown
    with pytest.raises(OSError) as caught:
        (volume.mount_point / "later").touch()
    assert caught.value.errno == errno.EIO
    assert (volume.mount_point / "kept").read_bytes() == kept
    acknowledged = {f"more{index}": (volume.mount_point / f"more{index}").read_bytes()
                    for index in range(refused - 1)}
    # Unmounting says again that not all is on the members.
    ended = tool("umount.fuse.cowraid", volume.mount_point, check=False)
    assert ended.returncode == 32 and "stopped" in ended.stderr
    assert not volume.is_mounted()
    host.make_room()
    # An ordinary mount.
    volume.mount()
    states = {member["state"] for member in show(volume)["members"]}
    assert states == {"present"}
    assert (volume.mount_point / "kept").read_bytes() == kept
    for name, content in acknowledged.items():
        assert (volume.mount_point / name).read_bytes() == content, name
    write_synced(volume.mount_point / "again", kept)
    volume.unmount()
    volume.check()
    volume.mount()
    assert (volume.mount_point / "again").read_bytes() == kept


@pytest.mark.parametrize("position", range(4))
def test_one_member_fails(small_host, position):
    volume, host = small_host([position])
    generator = random.Random(position)
    contents = {"kept": generator.randbytes(3 << 20)}
    write_synced(volume.mount_point / "kept", contents["kept"])
    host.fill()
    for index in range(20):
        contents[f"more{index}"] = generator.randbytes(600_000)
        write_synced(volume.mount_point / f"more{index}", contents[f"more{index}"])
    assert show(volume)["members"][position]["state"] == "failed"
    volume.unmount()
    host.make_room()
    # It takes part again, with what it has.
    volume.mount()
    assert show(volume)["members"][position]["state"] == "present"
    for name, content in contents.items():
        assert (volume.mount_point / name).read_bytes() == content, name


def test_a_failed_member_is_named_with_its_commit(small_host):
    """Away or there: what is said of a member that failed while the volume was mounted."""
    volume, host = small_host([1])
    content = random.Random(1).randbytes(6 << 20)
    write_synced(volume.mount_point / "before", content)
    before = show(volume)["generation"]
    host.fill()
    write_synced(volume.mount_point / "after", content)
    after = show(volume)["generation"]
    member = show(volume)["members"][1]
    assert member["state"] == "failed" and member["path"] == volume.devices[1]
    assert re.fullmatch(r"failed since commit \d+", member["reason"])
    shown = tool("cowraid", "filesystem", "show", volume.mount_point).stdout
    assert f"path {volume.devices[1]} FAILED ({member['reason']})" in shown and "missing" not in shown
    volume.unmount()

    def failed_since(said, device):
        commit = re.search(rf"member 2 failed since commit (\d+){device}[;,]", said)
        assert commit and before < int(commit[1]) <= after, said
        assert "no further member may fail" in said
        return commit[1]

    volume.hide([1])
    others = [volume.devices[index] for index in (0, 2, 3)]
    refused = volume.mount(others, check=False)
    assert refused.returncode == 32 and not volume.is_mounted()
    said = volume.mount(others, "ro,degraded").stderr
    commit = failed_since(said, "")
    assert failed_since(refused.stderr, "") == commit
    assert (volume.mount_point / "after").read_bytes() == content
    volume.unmount()
    host.make_room()
    volume.unhide([1])
    said = volume.mount(options="ro").stderr
    assert failed_since(said, re.escape(f" ({volume.devices[1]})")) == commit
    assert (volume.mount_point / "after").read_bytes() == content
    volume.unmount()
    # A mount that writes takes it in, and is the last to say so.
    assert failed_since(volume.mount().stderr, re.escape(f" ({volume.devices[1]})")) == commit
    volume.unmount()
    assert "failed since" not in volume.mount().stderr


def test_one_of_two_members_fails(small_host):
    """One member alone is no majority: the volume stops for writing, names that reason and the member."""
    volume, host = small_host([1], member_count=2)
    kept = random.Random(1).randbytes(3 << 20)
    write_synced(volume.mount_point / "kept", kept)
    host.fill()
    with pytest.raises(OSError) as caught:
        for index in range(400):
            write_synced(volume.mount_point / f"more{index}", kept)
    assert caught.value.errno == errno.EIO
    shown = show(volume)
    assert shown["read_only_reason"] == "too few members are left for safe writing"
    assert [member["reason"] for member in shown["members"]] == ["", "failed, and the volume stopped"]
    assert (volume.mount_point / "kept").read_bytes() == kept
