# SPDX-License-Identifier: MIT
"""Members whose writes fail while the volume is mounted."""

import errno
import json
import os
import random
import re
import time

import pytest

from conftest import PATIENCE, random_content, tool, wait_for
from member_file import DetachableFile
from test_messages import system_log  # noqa: F401 (a fixture)


@pytest.fixture
def failing(make_volume):
    """Makes mounted volumes of which some members can begin to fail writes."""

    def make(indexes, member_count=4):
        volume = make_volume(member_count=member_count, data="raid5", metadata="raid1", may_fail=indexes)
        volume.make()
        volume.mount()
        return volume

    return make


def show(volume):
    shown = tool("cowraid", "filesystem", "show", "--json", volume.mount_point).stdout
    return json.loads(shown)["volumes"][0]


def write_synced(path, content):
    with open(path, "wb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())


@pytest.mark.parametrize("size", [20_000, 6 << 20], ids=["record", "commit"])
@pytest.mark.parametrize("first", range(4))
def test_two_members_fail_at_once(failing, first, size):
    volume = failing([first, (first + 1) % 4])
    generator = random.Random(first)
    kept = generator.randbytes(3 << 20)
    write_synced(volume.mount_point / "kept", kept)
    volume.fail_writes()
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
    volume.mend_writes()
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
def test_one_member_fails(failing, position):
    volume = failing([position])
    generator = random.Random(position)
    contents = {"kept": generator.randbytes(3 << 20)}
    write_synced(volume.mount_point / "kept", contents["kept"])
    volume.fail_writes()
    for index in range(20):
        contents[f"more{index}"] = generator.randbytes(600_000)
        write_synced(volume.mount_point / f"more{index}", contents[f"more{index}"])
    assert show(volume)["members"][position]["state"] == "failed"
    volume.unmount()
    volume.mend_writes()
    # It takes part again, with what it has.
    volume.mount()
    assert show(volume)["members"][position]["state"] == "present"
    for name, content in contents.items():
        assert (volume.mount_point / name).read_bytes() == content, name


def test_a_failed_member_is_named_with_its_commit(failing):
    """Away or there: what is said of a member that failed while the volume was mounted."""
    volume = failing([1])
    content = random.Random(1).randbytes(6 << 20)
    write_synced(volume.mount_point / "before", content)
    before = show(volume)["generation"]
    volume.fail_writes()
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
    volume.unhide([1])
    volume.mend_writes()
    said = volume.mount(options="ro").stderr
    assert failed_since(said, re.escape(f" ({volume.devices[1]})")) == commit
    assert (volume.mount_point / "after").read_bytes() == content
    volume.unmount()
    # A mount that writes takes it in, and is the last to say so.
    assert failed_since(volume.mount().stderr, re.escape(f" ({volume.devices[1]})")) == commit
    volume.unmount()
    assert "failed since" not in volume.mount().stderr


@pytest.mark.parametrize("victims, member_count, said", [
    ([1], 2, "too few members are left for safe writing; unmount it and mount it with the members that "
             "failed, or with -o degraded=force, which writes with those that are there"),
    ([1, 2], 4, "more members failed than the volume can do without; unmount it, bring back the members that "
                "failed, and mount it again (without them -o ro,rescue reads what is left)")],
    ids=["too few", "too many"])
def test_a_volume_that_stopped_says_what_to_do(failing, system_log, victims, member_count, said):
    volume = failing(victims, member_count)
    volume.fail_writes()
    with pytest.raises(OSError):
        write_synced(volume.mount_point / "more", b"x" * (6 << 20))
    assert len(system_log.wait_for(f"stopped for writing: {said}")) == 1
    shown = json.loads(tool("cowraid", "status", "--json", volume.mount_point).stdout)["volumes"][0]
    assert f"{shown['read_only_reason']}; {shown['read_only_step']}" == said
    volume.mend_writes()


def test_one_of_two_members_fails(failing):
    """One member alone is no majority: the volume stops for writing, names that reason and the member."""
    volume = failing([1], member_count=2)
    kept = random.Random(1).randbytes(3 << 20)
    write_synced(volume.mount_point / "kept", kept)
    volume.fail_writes()
    with pytest.raises(OSError) as caught:
        for index in range(400):
            write_synced(volume.mount_point / f"more{index}", kept)
    assert caught.value.errno == errno.EIO
    shown = show(volume)
    assert shown["read_only_reason"] == "too few members are left for safe writing"
    assert [member["reason"] for member in shown["members"]] == ["", "failed, and the volume stopped"]
    assert (volume.mount_point / "kept").read_bytes() == kept


def test_an_unmount_after_the_volume_stopped_does_not_wait_for_its_scrub(make_volume):
    """The scrub was repairing what two members do not answer, and the commit then will never end."""
    volume = make_volume(data="raid5", metadata="raid1", member_mib=192, may_fail=[2, 3],
                         member_file=DetachableFile)
    volume.make()
    volume.mount(options="commit=1")
    content = random_content(150 << 20)
    write_synced(volume.mount_point / "kept", content)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    tool("cowraid", "scrub", "start", "--limit", "20m", volume.mount_point)
    for index in range(8):
        (volume.mount_point / f"more{index}").write_bytes(random_content(1 << 20))
        time.sleep(0.1)
    volume.fail_writes()
    wait_for(lambda: show(volume)["read_only"])
    time.sleep(1)
    scrub = json.loads(tool("cowraid", "scrub", "status", "--json", volume.mount_point).stdout)
    assert scrub["state"] == "paused"
    result = tool("umount.fuse.cowraid", volume.mount_point, check=False, timeout=PATIENCE)
    assert result.returncode == 32 and "the last commit failed" in result.stderr, result.stderr
    volume.mend_writes()
    volume.mount()
    assert (volume.mount_point / "kept").read_bytes() == content
