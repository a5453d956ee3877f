# SPDX-License-Identifier: MIT
"""Operations cross each other beside a writer, and the daemon is killed amid them, again and again:
conversions, members that are added, removed, made smaller and larger, the replacement of a member, a scrub,
members that go and come back. COWRAID_CROSSING_SECONDS: how long (8)."""

import errno
import os
import random
import struct
import threading
import time

from conftest import PATIENCE, random_content, run, tool
from test_balance import state
from test_replace_in_service import replacement

SECONDS = float(os.environ.get("COWRAID_CROSSING_SECONDS", "8"))
ROUND_SECONDS = 4
BLOCK = 4096
BLOCKS = 1024
MEMBERS, MEMBER_MIB = 5, 256


def block_content(file, block, version):
    head = struct.pack("<QQQ", file, block, version)
    return head + random.Random(head).randbytes(BLOCK - len(head))


class VersionWriter(threading.Thread):
    """Overwrites blocks of a file. Each holds a version not older than that of the last fsync."""

    def __init__(self, folder, file):
        super().__init__()
        self.path, self.file = folder / f"versions{file}", file
        self.latest = [0] * BLOCKS
        self.safe = [0] * BLOCKS
        self.version = 0
        self.ending, self.failure = threading.Event(), None

    def create(self):
        with open(self.path, "wb") as file:
            for block in range(BLOCKS):
                file.write(block_content(self.file, block, 0))
            os.fsync(file.fileno())

    def again(self):
        """The same file for another thread."""
        other = VersionWriter(self.path.parent, self.file)
        other.latest, other.safe, other.version = self.latest, self.safe, self.version
        return other

    def run(self):
        try:
            with open(self.path, "r+b", buffering=0) as file:
                while not self.ending.is_set():
                    self.step(file)
        except OSError as error:
            self.failure = error

    def step(self, file):
        count = random.randint(1, 32)
        first = random.randrange(BLOCKS - count)
        self.version += 1
        for block in range(first, first + count):
            self.latest[block] = self.version
        file.seek(first * BLOCK)
        content = b"".join(block_content(self.file, block, self.version)
                           for block in range(first, first + count))
        self.write(file, content)
        if random.random() < 0.2:
            os.fsync(file.fileno())
            self.safe = list(self.latest)

    def write(self, file, content):
        """There is room for hundreds of MiB. While operations cross, a write may find none for a moment
        (STATUS); that it finds it within ten seconds is asserted."""
        deadline = time.monotonic() + 10
        while True:
            try:
                assert file.write(content) == len(content)
                return
            except OSError as error:
                if error.errno != errno.ENOSPC or time.monotonic() > deadline:
                    raise
                room = os.statvfs(self.path)
                print("no room for a moment, of", room.f_bavail * room.f_frsize, flush=True)
                time.sleep(0.1)

    def verify(self):
        """After a crash. What is there from now on is what counts: it is durable, and what the crash cut off
        never was."""
        content = self.path.read_bytes()
        assert len(content) == BLOCKS * BLOCK
        for block in range(BLOCKS):
            piece = content[block * BLOCK:(block + 1) * BLOCK]
            version = struct.unpack_from("<QQQ", piece)[2]
            assert piece == block_content(self.file, block, version), (self.file, block)
            assert self.safe[block] <= version <= self.latest[block], (self.file, block, version)
            self.safe[block] = self.latest[block] = version


class Operator:
    """Gives orders by chance; what is refused is refused in one line."""

    def __init__(self, volume, seed):
        self.volume, self.random = volume, random.Random(seed)
        self.begun = {}
        self.orders = [self.balance, self.add, self.remove, self.resize, self.replace, self.scrub,
                       self.offline, self.online]
        self.names = ["balance", "add", "remove", "smaller", "larger", "replace", "scrub", "offline",
                      "online"]

    def order(self, name, *words):
        result = tool("cowraid", *words, self.volume.mount_point, check=False, timeout=60)
        nothing_runs = result.returncode == 2 and words[-1] in ("pause", "resume", "cancel")
        assert result.returncode in (0, 1, 3) or nothing_runs, (words, result)
        if result.returncode == 1 or nothing_runs:
            errors = [line for line in result.stderr.splitlines() if "warning" not in line]
            assert len(errors) == 1, (words, result)
        else:
            self.begun[name] = self.begun.get(name, 0) + 1
        return result.returncode == 0

    def members(self):
        return self.volume.counters()["device-stats"]

    def balance(self):
        data, metadata = self.random.choice([("raid5", "raid1"), ("raid6", "raid1c3"), ("raid6", "raid6")])
        return self.order("balance", "balance", "start", "--convert", data, "--metadata", metadata, "--force",
                          "--background")

    def free_device(self):
        used = {member["device"] for member in self.members()}
        return self.random.choice([device for device in self.volume.devices if device not in used])

    def some_member(self):
        return str(self.random.choice(self.members())["devid"])

    def add(self):
        return len(self.members()) <= MEMBERS and self.order("add", "device", "add", "-f", self.free_device())

    def remove(self):
        return len(self.members()) > MEMBERS and \
            self.order("remove", "device", "remove", "--background", self.some_member())

    def resize(self):
        """One that was made smaller gets its room back."""
        member = self.some_member()
        return self.order("larger", "filesystem", "resize", f"{member}:max") or \
            self.order("smaller", "filesystem", "resize", "--background", f"{member}:-64M")

    def replace(self):
        return self.order("replace", "replace", "start", "-f", self.some_member(), self.free_device())

    def scrub(self):
        return self.order("scrub", "scrub", "start")

    def offline(self):
        return self.order("offline", "device", "offline", self.some_member())

    def online(self):
        away = [member for member in self.members() if member["state"] != "present"]
        return all([self.order("online", "device", "online", str(member["devid"])) for member in away])

    def lacks(self):
        return [name for name in self.names if not self.begun.get(name)]

    def cancel(self):
        what = self.random.choice([["replace", "cancel"], ["scrub", "cancel"], ["balance", "pause"],
                                   ["balance", "resume"], ["balance", "cancel"]])
        return self.order(" ".join(what), *what)

    def run(self, seconds):
        """First all of them, close together. There is one balance at a time: each kind of it comes first once
        in a while."""
        self.random.shuffle(self.orders)
        for order in self.orders:
            order()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.random.choice(self.orders + [self.online, self.cancel])()
            time.sleep(self.random.random() * 0.3)


def settle(volume, operator, seconds=120):
    """Until nothing is under way, and nobody lacks anything."""
    deadline = time.monotonic() + seconds
    while True:
        operator.online()
        if state(volume)["state"] == "paused":
            operator.order("balance resume", "balance", "resume")
        lacking = [member for member in operator.members()
                   if member["state"] != "present" or member["stale_groups"]]
        under_way = [state(volume)["state"] == "running",
                     replacement(volume)["state"] in ("running", "waiting", "paused")]
        if not lacking and not any(under_way):
            return
        assert time.monotonic() < deadline, (lacking, state(volume), replacement(volume))
        time.sleep(0.1)


def cross(volume, label, operator, seconds):
    """Rounds of orders beside writers, each ended by a kill, until each kind of order was taken once."""
    still = random_content(32 << 20)
    (volume.mount_point / "still").write_bytes(still)
    writers = [VersionWriter(volume.mount_point, number) for number in range(2)]
    for writer in writers:
        writer.create()
    run("sync", "-f", volume.mount_point)
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end or operator.lacks():
        assert time.monotonic() < end + 5 * PATIENCE, operator.begun
        print("round", rounds, operator.begun, flush=True)
        writers = [writer.again() for writer in writers]
        for thread in writers:
            thread.start()
        try:
            operator.run(min(ROUND_SECONDS, seconds))
            assert not any(thread.failure for thread in writers), [thread.failure for thread in writers]
            volume.kill()
        finally:
            for thread in writers:
                thread.ending.set()
            for thread in writers:
                thread.join()
        volume.mount([f"cowraid:{label}"])
        for writer in writers:
            writer.verify()
        assert (volume.mount_point / "still").read_bytes() == still
        rounds += 1
    settle(volume, operator)
    tool("cowraid", "scrub", "cancel", volume.mount_point, check=False)
    for writer in writers:
        writer.verify()
    assert (volume.mount_point / "still").read_bytes() == still
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    volume.unmount()
    tool("cowraid", "check", f"cowraid:{label}")


def crossing_volume(make_volume, label, member_mib, more):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=MEMBERS, member_mib=member_mib)
    volume.make("-L", label)
    for _ in range(more):
        volume.another(member_mib)
    volume.mount([f"cowraid:{label}"])
    return volume


def crossing_seed():
    seed = int(os.environ.get("COWRAID_SEED", time.time()))
    print("seed", seed)
    return seed


def test_operations_cross_and_the_daemon_is_killed(make_volume):
    volume = crossing_volume(make_volume, "crossings", MEMBER_MIB, 4)
    cross(volume, "crossings", Operator(volume, crossing_seed()), SECONDS)
