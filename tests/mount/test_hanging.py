# SPDX-License-Identifier: MIT
"""The control socket answers although no member does. The members are images on another volume, whose daemon
is stopped meanwhile: every read and write of them waits."""

import json
import mmap
import os
import signal
import subprocess
import threading
import time

import pytest
from conftest import PATIENCE, TOOLS, Volume, random_content, run, tool

SECONDS_MAX = 9  # after 10 a client gives up
HANGING_SECONDS = 5 * PATIENCE
MIB = 1 << 20


class HangingMembers:
    """A volume of which members hang between stop() and go_on(), or for HANGING_SECONDS: a test is to
    fail, not to hang."""

    def __init__(self, folder, make_volume=None):
        self.folder = folder
        self.environment = {**os.environ, "COWRAID_RUN_DIR": str(folder)}
        self.below = Volume(member_count=2, member_mib=1024, data="single", metadata="raid1")
        self.below.make()
        tool("mount.cowraid", *self.below.devices, self.below.mount_point, env=self.environment)
        self.daemon = self.below.daemon()
        make_volume = make_volume or (lambda below: Volume(member_count=3, member_mib=256, data="raid5",
                                                           metadata="raid1", loops=False,
                                                           scratch=below.mount_point))
        self.volume = make_volume(self.below)
        self.limit = None

    def stop(self):
        os.kill(self.daemon, signal.SIGSTOP)
        self.limit = threading.Timer(HANGING_SECONDS, self.go_on)
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
        file.write_bytes(random_content(4 * MIB))
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
        time.sleep(0.1)  # at once some would meet the limit of connections before so many wait
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
            result = tool("cowraid", *command, name, check=False, timeout=PATIENCE)
            seconds = time.monotonic() - begin
            if result.returncode != 0 or seconds > SECONDS_MAX:
                slow[command, name] = (result.returncode, seconds, result.stderr)
    assert not slow, slow
    assert any(process.poll() is None for process in started), "nothing waited: the members did not hang"
    hanging.go_on()
    codes = [process.wait(timeout=5 * PATIENCE) for process in started]
    assert codes[:16] == [0] * 16, codes
    # 12 commands may wait at a time, and the scrub and the map may be two of them.
    assert set(codes[16:36]) <= {0, 1} and codes[16:36].count(0) >= 10, codes
    for number in range(8):
        assert (volume.mount_point / f"new{number}").read_bytes() == bytes(4 * MIB)
    status = json.loads(tool("cowraid", "status", "--json", uuid).stdout)["volumes"][0]
    assert all(sum(member["errors"].values()) == 0 for member in status["members"]), status["members"]
    assert tool("cowraid", "scrub", uuid, check=False).returncode in (0, 1)  # one may be under way
    volume.unmount()


@pytest.fixture
def one_hanging(tmp_path):
    """Of three members the last one hangs between stop() and go_on()."""
    members = HangingMembers(tmp_path, lambda below: Volume(member_count=3, member_mib=256, data="raid5",
                                                            metadata="raid1", loops=False))
    image = members.below.mount_point / "member3.img"
    with open(image, "wb") as file:
        file.truncate(256 << 20)
    members.volume.images[2] = image
    try:
        yield members
    finally:
        members.destroy()


class Readers:
    """More threads than the daemon has, each reading files past the page cache and comparing them."""

    COUNT = 12  # of files that each reads

    def __init__(self, files, contents):
        self.files, self.contents = files, contents
        self.wrong, self.done = [], []

    def read(self, first):
        memory = mmap.mmap(-1, MIB)
        for number in range(self.COUNT):
            index = (first + number) % len(self.files)
            descriptor = os.open(self.files[index], os.O_RDONLY | os.O_DIRECT)
            try:
                count = os.readv(descriptor, [memory])
            finally:
                os.close(descriptor)
            if memory[:count] != self.contents[index]:
                self.wrong.append((index, count))
            self.done.append(index)

    def run(self, thread_count=100):
        threads = [threading.Thread(target=self.read, args=(first,), daemon=True)
                   for first in range(thread_count)]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=max(0, begin + HANGING_SECONDS - 10 - time.monotonic()))
        waiting = sum(thread.is_alive() for thread in threads)
        assert not waiting, f"{len(self.done)} reads are done, {waiting} threads wait"
        assert not self.wrong, self.wrong[:10]
        return time.monotonic() - begin


def wait_for_text(text, *command):
    """The daemon looks for events once a second."""
    deadline = time.monotonic() + 30
    while text not in tool("cowraid", *command, timeout=30).stdout:
        assert time.monotonic() < deadline, text
        time.sleep(0.2)


def test_reads_go_on_without_a_member_that_does_not_answer(one_hanging):
    volume = one_hanging.volume
    volume.make()
    volume.mount()
    folder = volume.mount_point / "folder"
    folder.mkdir()
    files = [folder / f"file{number}" for number in range(48)]
    contents = [random_content(MIB // 2 + 4096 * number) for number in range(len(files))]
    for file, content in zip(files, contents):
        file.write_bytes(content)
    volume.unmount()
    volume.mount(options="strictatime")  # no tree node is in memory, and readers make the volume commit
    volume.drop_caches()

    def members():
        result = tool("cowraid", "status", "--json", volume.mount_point, timeout=30)
        return json.loads(result.stdout)["volumes"][0]["members"]

    time.sleep(2)
    one_hanging.stop()
    readers = Readers(files, contents)
    seconds = [readers.run(), readers.run(20)]
    assert len(readers.done) == 120 * readers.COUNT and set(readers.done) == set(range(len(files)))
    text = tool("cowraid", "status", volume.mount_point, timeout=30).stdout
    assert "member 3 is slow: a request has been waiting for " in text, text
    waits = [member["slow_ms"] for member in members()]
    assert waits[2] > 2000 and waits[2] == max(waits), waits  # others may be busy
    wait_for_text("MemberSlow", "events", volume.mount_point)
    one_hanging.go_on()
    wait_for_text("MemberAnswers", "events", volume.mount_point)
    assert "is slow" not in tool("cowraid", "status", volume.mount_point).stdout
    readers.run(10)
    assert all(sum(member["errors"].values()) == 0 for member in members()), (members(), seconds)
    assert volume.counters()["device-stats"][0]["slow_ios"] == 0
    assert tool("cowraid", "scrub", volume.mount_point, check=False, timeout=120).returncode == 0
    volume.unmount()
    tool("cowraid", "check", *volume.devices)


@pytest.fixture
def beside_hanging(tmp_path):
    """A volume that does not hang, beside a block device that does between stop() and go_on()."""
    members = HangingMembers(tmp_path, lambda below: Volume(member_count=3, member_mib=256, data="raid5",
                                                            metadata="raid1"))
    image = members.below.mount_point / "hangs.img"
    with open(image, "wb") as file:
        file.truncate(256 << 20)
    members.device = Volume.attach(image)
    try:
        yield members
    finally:
        members.go_on()
        run("losetup", "-d", members.device)
        members.destroy()


def test_a_device_that_does_not_answer_is_left_out_and_named(beside_hanging):
    volume, device = beside_hanging.volume, beside_hanging.device
    volume.make("-L", "beside")
    volume.mount()
    content = random_content(MIB)
    (volume.mount_point / "f").write_bytes(content)
    volume.unmount()
    first, second, _ = volume.devices
    silent = f"{device} does not answer; dmesg may say why"
    left_out = f"mount.cowraid: warning: {silent}: left out\n"
    beside_hanging.stop()
    for sources, options in ((["cowraid:beside"], None), ([first], None),
                             ([device, first, second], "degraded")):
        begin = time.monotonic()
        said = volume.mount(sources, options).stderr
        assert time.monotonic() - begin < PATIENCE, said
        assert said.count(left_out) == 1, said
        assert (volume.mount_point / "f").read_bytes() == content
        volume.unmount()
    refused = volume.mount([first, second, device], check=False)
    assert refused.returncode != 0 and refused.stderr == f"mount.cowraid: {silent}\n", refused
    refused = volume.mount([device, first], "missing_dev_timeout=12", check=False)
    assert refused.returncode != 0 and f"{silent}; waiting up to 12 seconds" in refused.stderr, refused
    refused = volume.mount(["cowraid:nobody"], check=False)
    assert refused.returncode != 0 and f"; no answer came from {device}; " in refused.stderr, refused
    shown = tool("cowraid", "filesystem", "show", timeout=PATIENCE)
    assert f"{silent}: left out" in shown.stderr and "Label: 'beside'" in shown.stdout, shown
    beside_hanging.go_on()
    said = volume.mount(["cowraid:beside"]).stderr
    assert "answer" not in said, said
    assert (volume.mount_point / "f").read_bytes() == content
    volume.unmount()
    tool("cowraid", "check", *volume.devices)
