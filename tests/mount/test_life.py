# SPDX-License-Identifier: MIT
"""The life of a volume of 2 GiB under a load that verifies itself. Only with COWRAID_LONG=1; needs fio, and
about 9 GiB where the members are (/dev/shm)."""

import os
import signal
import subprocess
import time
from itertools import combinations

import pytest

from conftest import PATIENCE, random_content, run, tool, wait_for
from test_balance import balance, profiles, state
from test_catch_up import without

pytestmark = pytest.mark.skipif(os.environ.get("COWRAID_LONG") != "1", reason="long: COWRAID_LONG=1 runs it")

FILE_COUNT, FILE_MIB = 16, 128


class Fio:
    """Writes at random places and reads back what it wrote, with checksums, until it is told to end."""

    def __init__(self, folder, name):
        self.process = subprocess.Popen(
            ["fio", f"--name={name}", f"--directory={folder}", "--size=64M", "--bs=4k-64k", "--rw=randrw",
             "--numjobs=2", "--verify=xxhash", "--verify_backlog=128", "--verify_fatal=1", "--time_based",
             "--runtime=600", "--ioengine=psync", "--group_reporting", "--fsync=64"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self):
        assert self.process.poll() is None, self.process.stdout.read()
        self.process.send_signal(signal.SIGINT)
        text = self.process.communicate(timeout=5 * PATIENCE)[0]
        assert "err= 0" in text and "verify:" not in text, text


def wait_long(condition):
    wait_for(condition, 15 * PATIENCE)


def make_files(volume):
    folder = volume.mount_point / "files"
    folder.mkdir()
    for number in range(FILE_COUNT):
        (folder / f"file{number}").write_bytes(random_content(FILE_MIB << 20))
    run("sync", "-f", volume.mount_point)
    return run("sh", "-c", "sha256sum *", cwd=folder).stdout


def verify(volume, sums):
    assert run("sh", "-c", "sha256sum *", cwd=volume.mount_point / "files").stdout == sums


def test_it_grows_and_converts_under_a_verifying_load(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=1536)
    volume.make()
    volume.mount()
    sums = make_files(volume)
    load = Fio(volume.mount_point, "first")
    time.sleep(2)
    tool("cowraid", "device", "add", volume.another(1536), volume.mount_point)
    balance(volume, "--convert", "raid6", "--background")
    wait_long(lambda: state(volume)["bytes_left"] * 2 < state(volume)["bytes_total"])
    load.finish()
    assert state(volume)["state"] == "running"
    volume.kill()
    volume.mount()
    load = Fio(volume.mount_point, "second")
    wait_long(lambda: state(volume)["state"] != "running")
    load.finish()
    assert profiles(volume) == {"raid6", "raid1c3"}
    verify(volume, sums)
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    volume.unmount()
    for pair in combinations(range(5), 2):
        volume.hide(pair)
        volume.mount(without(volume, pair), "degraded,ro")
        verify(volume, sums)
        volume.unmount()
        volume.unhide(pair)
    volume.mount()
    for data, metadata in (("raid1", "raid1"), ("raid5", "raid1")):
        load = Fio(volume.mount_point, data)
        balance(volume, "--convert", data, "--metadata", metadata, "--force")
        load.finish()
        assert profiles(volume) == {data, metadata}
        verify(volume, sums)
    volume.unmount()
    volume.check()
