# SPDX-License-Identifier: MIT
"""Members that come after the mount began, or not at all."""

import json
import os
import subprocess
import time

import pytest

from conftest import PATIENCE, TOOLS, tool

LABEL = f"late-{os.getpid()}"
MOUNT_FAILED = 32
WAITED_MAX = 25  # seconds: not the 30 that a mount waits unless it is told otherwise
CONTENT = os.urandom(300000)


@pytest.fixture
def late(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    volume.make("-L", LABEL)
    volume.mount()
    (volume.mount_point / "f").write_bytes(CONTENT)
    volume.unmount()
    return volume


def begin(volume, source=f"cowraid:{LABEL}", options="rw"):
    """A mount under way, and when it began."""
    mount = subprocess.Popen([TOOLS / "mount.cowraid", source, volume.mount_point, "-o", options],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return mount, time.monotonic()


def end(mount, began):
    said = "".join(mount.communicate(timeout=2 * PATIENCE))
    return mount.returncode, said, time.monotonic() - began


@pytest.mark.parametrize("hidden,word", [([1], "member 2 is not there"),
                                         ([0, 2], "members 1, 3 are not there"),
                                         ([0, 1, 2], f"no volume labelled '{LABEL}'")])
def test_a_member_that_comes_ends_the_wait(late, hidden, word):
    late.hide(hidden)
    mount, began = begin(late)
    line = mount.stderr.readline()  # at once, not at the end
    assert word in line and "waiting up to 30 seconds" in line and "missing_dev_timeout=0" in line, line
    assert time.monotonic() - began < 20
    time.sleep(3)
    assert mount.poll() is None and not late.is_mounted()
    late.unhide(hidden)
    code, said, seconds = end(mount, began)
    assert code == 0 and said == "" and 3 <= seconds < WAITED_MAX, (code, said, seconds)
    assert (late.mount_point / "f").read_bytes() == CONTENT
    status = json.loads(tool("cowraid", "status", "--json", late.mount_point).stdout)["volumes"][0]
    assert all(member["condition"] == "online" for member in status["members"]), status["members"]


def test_a_folder_above_the_mount_point_is_exchanged_while_the_mount_waits(late):
    """Who owns it must not choose where root mounts."""
    late.hide([1])
    owned = late.folder / "owned"
    (owned / "place").mkdir(parents=True)
    chosen = late.folder / "chosen"
    (chosen / "place").mkdir(parents=True)
    mount = subprocess.Popen([TOOLS / "mount.cowraid", f"cowraid:{LABEL}", owned / "place"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    began = time.monotonic()
    assert "waiting up to" in mount.stderr.readline()
    owned.rename(late.folder / "moved")
    owned.symlink_to(chosen)
    late.unhide([1])
    code, said, _ = end(mount, began)
    assert code == MOUNT_FAILED and "a symbolic link has taken the place of a folder" in said, (code, said)
    assert not os.path.ismount(chosen / "place")
    assert not os.path.ismount(late.folder / "moved" / "place")


def test_nobody_comes(late):
    late.hide([1])
    code, said, seconds = end(*begin(late, options="missing_dev_timeout=2"))
    waiting, refusal = said.splitlines()
    assert code == MOUNT_FAILED and 2 <= seconds < WAITED_MAX, (said, seconds)
    assert "waiting up to 2 seconds" in waiting
    assert "member 2 is absent" in refusal and "-o degraded" in refusal
    assert not late.is_mounted()
    code, said, seconds = end(*begin(late, options="degraded,nofail,missing_dev_timeout=2"))
    assert code == 0 and "degraded: member 2 is absent" in said, (code, said)
    assert 2 <= seconds < WAITED_MAX
    assert (late.mount_point / "f").read_bytes() == CONTENT
    (late.mount_point / "g").write_bytes(CONTENT)
    events = tool("cowraid", "events", late.mount_point).stdout
    assert "DegradedArray" in events
    late.unmount()
    # Nobody waits for it again.
    code, said, seconds = end(*begin(late, options="degraded"))
    assert code == 0 and "waiting" not in said and seconds < WAITED_MAX, (code, said, seconds)
    assert (late.mount_point / "g").read_bytes() == CONTENT
    late.unmount()
    late.unhide([1])


def test_who_waits(late):
    late.hide([1])
    named = [late.devices[0], late.devices[2]]
    # All that were named are there.
    assert late.mount(named, check=False).returncode == MOUNT_FAILED
    code, said, seconds = end(*begin(late, "/dev/no-such-disk"))
    assert code == MOUNT_FAILED and "waiting" not in said, (code, said)
    assert seconds < WAITED_MAX
    code, said, _ = end(*begin(late, "/dev/no-such-disk", "nofail,missing_dev_timeout=1"))
    assert code == 0 and "/dev/no-such-disk does not exist" in said, (code, said)
    assert "waiting up to 1 second " in said, said
    code, said, seconds = end(*begin(late, ":".join(named), "degraded,missing_dev_timeout=1"))
    assert code == 0 and "member 2 is not there; waiting" in said and seconds >= 1, (code, said, seconds)
    late.unmount()
    late.unhide([1])
