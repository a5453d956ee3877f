# SPDX-License-Identifier: MIT
"""The control socket answers although no member does. The members are images on another volume, whose daemon
is stopped meanwhile: every read and write of them waits."""

import json
import os
import signal
import subprocess
import threading
import time

import pytest
from conftest import TOOLS, Volume, run, tool

SECONDS_MAX = 5
MIB = 1 << 20


class HangingMembers:
    """A volume whose members hang between stop() and go_on(), for 60 s: a test is to fail, not to hang."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {**os.environ, "COWRAID_RUN_DIR": str(folder)}
        self.below = Volume(member_count=2, member_mib=1024, data="single", metadata="raid1")
        self.below.make()
        tool("mount.cowraid", *self.below.devices, self.below.mount_point, env=self.environment)
        self.daemon = self.below.daemon()
        self.volume = Volume(member_count=3, member_mib=256, data="raid5", metadata="raid1", loops=False,
                             scratch=self.below.mount_point)
        self.limit = None

    def stop(self):
        os.kill(self.daemon, signal.SIGSTOP)
        self.limit = threading.Timer(60, self.go_on)
        self.limit.start()

    def go_on(self):
        os.kill(self.daemon, signal.SIGCONT)
        if self.limit is not None:
            self.limit.cancel()

    def destroy(self):
        self.go_on()
        self.volume.destroy()
        self.below.destroy()


@pytest.fixture
def hanging(tmp_path):
    members = HangingMembers(tmp_path)
    try:
        yield members
    finally:
        members.destroy()


def test_everything_that_only_asks_is_answered(hanging):
    volume = hanging.volume
    volume.make("-L", "hangs")
    volume.mount()
    uuid = json.loads(tool("cowraid", "status", "--json", volume.mount_point).stdout)["volumes"][0]["uuid"]
    files = [volume.mount_point / f"file{number}" for number in range(8)]
    for file in files:
        file.write_bytes(os.urandom(4 * MIB))
    run("sync", "-f", volume.mount_point)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    volume.drop_caches()
    hanging.stop()
    started = []

    def start(*command):
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    for number, file in enumerate(files):
        start("dd", f"if={file}", "of=/dev/null", "bs=1M", "iflag=direct")
        start("dd", "if=/dev/zero", f"of={volume.mount_point}/new{number}", "bs=1M", "count=4", "conv=fsync")
    for _ in range(20):  # more than the socket has room for clients
        start(TOOLS / "cowraid", "filesystem", "sync", uuid)
    start(TOOLS / "cowraid", "scrub", "start", uuid)
    start(TOOLS / "cowraid", "map", uuid)
    time.sleep(2)
    commands = [("status", "--json"), ("status", "-x"), ("filesystem", "usage"), ("filesystem", "df"),
                ("filesystem", "usage", "--layout"), ("filesystem", "usage", "-T"), ("device", "stats"),
                ("scrub", "status"), ("balance", "status"), ("replace", "status"), ("metrics",), ("events",),
                ("filesystem", "show")]
    slow = {}
    for command in commands:
        for name in (uuid, "hangs", str(volume.mount_point)):
            begin = time.monotonic()
            result = tool("cowraid", *command, name, check=False, timeout=30)
            seconds = time.monotonic() - begin
            if result.returncode != 0 or seconds > SECONDS_MAX:
                slow[command, name] = (result.returncode, seconds, result.stderr)
    assert not slow, slow
    assert any(process.poll() is None for process in started), "nothing waited: the members did not hang"
    hanging.go_on()
    codes = [process.wait(timeout=120) for process in started]
    assert codes[:16] == [0] * 16, codes
    # 12 commands may wait at a time, and the scrub and the map may be two of them.
    assert set(codes[16:36]) <= {0, 1} and codes[16:36].count(0) >= 10, codes
    for number in range(8):
        assert (volume.mount_point / f"new{number}").read_bytes() == bytes(4 * MIB)
    status = json.loads(tool("cowraid", "status", "--json", uuid).stdout)["volumes"][0]
    assert all(sum(member["errors"].values()) == 0 for member in status["members"]), status["members"]
    assert tool("cowraid", "scrub", uuid, check=False).returncode in (0, 1)  # one may be under way
    volume.unmount()
