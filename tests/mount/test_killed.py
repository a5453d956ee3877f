# SPDX-License-Identifier: MIT
"""Daemons killed at any moment. COWRAID_KILL_ROUNDS=N makes the loop longer, COWRAID_SEED=N another one."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import PATIENCE, TOOLS, random_content, run, runs, tool, wait_for
from test_coherence import droppers
from tracked_load import Load

ROUNDS = int(os.environ.get("COWRAID_KILL_ROUNDS", "5"))
SEED = int(os.environ.get("COWRAID_SEED", "1"))
REMOUNT_SECONDS_MAX = float(os.environ.get("COWRAID_REMOUNT_SECONDS", PATIENCE))
ACKNOWLEDGED_MIN = 4  # changes a round, on the average
CHECK_EVERY = 10  # rounds


def remount_seconds(volume):
    started = time.monotonic()
    volume.mount()
    return time.monotonic() - started


def check_before_the_mount(volume):
    """What the crash left on the members is consistent by itself, before any mount touches it."""
    tool("cowraid", "check", volume.devices[0])


@pytest.mark.parametrize("data,metadata", [("raid5", "raid1"), ("raid6", "raid1c3")])
def test_killed_under_load_loses_nothing_acknowledged(make_volume, data, metadata):
    volume = make_volume(data=data, metadata=metadata)
    volume.make()
    volume.mount()
    generator = random.Random(f"{SEED}-{data}")
    load = Load(volume.mount_point, f"{SEED}-{data}")
    load.prepare()
    slowest, started = 0.0, time.monotonic()
    for number in range(1, ROUNDS + 1):
        load.start()
        time.sleep(generator.uniform(0.02, 0.8))
        if number == ROUNDS:
            wait_for(lambda: load.acknowledged() >= ROUNDS * ACKNOWLEDGED_MIN)
        volume.kill()
        load.join()
        if number % CHECK_EVERY == 0:
            check_before_the_mount(volume)
        seconds = remount_seconds(volume)
        slowest = max(slowest, seconds)
        place = f"seed {SEED}, round {number}"
        assert seconds < REMOUNT_SECONDS_MAX, f"{place}: the remount took {seconds:.1f} s"
        assert volume.mount_count() == 1
        try:
            load.verify()
        except AssertionError as error:
            raise AssertionError(f"{place}: {error}") from error
    volume.unmount()
    assert volume.check()["clean"]
    assert load.acknowledged() >= ROUNDS * ACKNOWLEDGED_MIN
    print(f"kill {data}: seed {SEED}, {ROUNDS} rounds, {load.acknowledged()} acknowledged changes, "
          f"none lost, slowest remount {slowest:.2f} s, "
          f"{(time.monotonic() - started) / ROUNDS:.2f} s a round")


def test_a_mount_replaces_a_dead_one_that_still_has_attributes(volume):
    """The kernel answers stat() for a while after the daemon is gone, so that the dead mount looks alive."""
    (volume.mount_point / "f").write_text("content")
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    daemon = volume.daemon()
    os.stat(volume.mount_point)
    os.kill(daemon, 9)
    wait_for(lambda: not os.path.exists(f"/proc/{daemon}"), pause=0.01)
    assert volume.mount_count() == 1
    volume.mount()
    assert volume.mount_count() == 1
    assert (volume.mount_point / "f").read_text() == "content"
    volume.unmount()
    assert volume.mount_count() == 0
    volume.check()


def test_terminated_daemon_unmounts_cleanly(volume):
    (volume.mount_point / "f").write_text("content")
    os.kill(volume.daemon(), 15)
    wait_for(lambda: not volume.is_mounted())
    volume.check()
    volume.mount()
    assert (volume.mount_point / "f").read_text() == "content"


SEEK_PROGRAM = """
import errno, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(fd, b"x" * 4096)
print("begins", flush=True)
while True:
    try:
        os.lseek(fd, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
"""


def direct_writes(folder):
    """Always 32 under way, of pages that somebody reads through the page cache meanwhile."""
    job = ["--thread", f"--filename={folder}/busy", "--size=1M", "--bs=4k", "--time_based",
           f"--runtime={10 * PATIENCE:.0f}", "--continue_on_error=io"]
    writing = ["--rw=randwrite", "--ioengine=libaio", "--direct=1", "--iodepth=32"]
    reading = ["--rw=randread", "--invalidate=0"]
    programs = []
    for how in (reading, writing):
        programs.append(subprocess.Popen(["fio", "--name=job", *job, *how], stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL))
        # Who opens it after the writer reads past the page cache.
        wait_for(lambda: f"{folder}/busy" in opened_by(programs[-1].pid))
    return programs


def opened_by(process):
    """Paths, as far as they are open this moment."""
    found = set()
    for entry in Path(f"/proc/{process}/fd").glob("*"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(entry))
    return found


def seeks(folder):
    """Each drops pages of a file that may be mapped."""
    seeking = [subprocess.Popen([sys.executable, "-c", SEEK_PROGRAM, folder / f"busy{number}"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
               for number in range(4)]
    assert [process.stdout.readline() for process in seeking] == ["begins\n"] * 4
    return seeking


@pytest.mark.parametrize("begin_load", [direct_writes, seeks])
def test_a_terminated_daemon_ends_while_programs_keep_it_dropping_pages(volume, begin_load):
    content = random_content(1 << 20)
    with open(volume.mount_point / "kept", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    (volume.mount_point / "busy").write_bytes(bytes(1 << 20))
    daemon = volume.daemon()
    load = begin_load(volume.mount_point)
    try:
        dropper, = wait_for(lambda: droppers(daemon))
        # Slow, so that some always wait for it.
        load.append(subprocess.Popen(["strace", "-f", "-o", "/dev/null", "-p", str(dropper),
                                      "-e", "trace=writev", "-e", "inject=writev:delay_exit=5000"],
                                     stderr=subprocess.DEVNULL))
        time.sleep(1)
        assert [process.poll() for process in load] == [None] * len(load)
        os.kill(daemon, signal.SIGTERM)
        wait_for(lambda: not runs(daemon), otherwise=lambda: "the daemon is still there")
    finally:
        for process in load:
            process.kill()
            process.wait()
    volume.mount()
    assert (volume.mount_point / "kept").read_bytes() == content
    assert (volume.mount_point / "busy").stat().st_size == 1 << 20
    volume.unmount()
    assert volume.check()["clean"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("loops", [True, False], ids=["block devices", "image files"])
def test_an_interrupt_leaves_no_mount_that_nobody_serves(make_volume, loops, number):
    volume = make_volume(loops=loops)
    volume.make()
    # With -D the program is a child of this one, and stays one until it is waited for.
    slow = ["strace", "-D", "-o", "/dev/null", "-e", "trace=mount,move_mount",
            "-e", "inject=mount,move_mount:delay_exit=2000000"]
    with subprocess.Popen([*slow, TOOLS / "mount.cowraid", *volume.devices, volume.mount_point]) as mounting:
        wait_for(volume.is_mounted)
        os.kill(mounting.pid, number)
        assert mounting.wait(timeout=PATIENCE) == 0
    assert volume.answers()
    (volume.mount_point / "f").write_text("content")
    volume.unmount()
    volume.check()


@pytest.mark.parametrize("loops", [True, False], ids=["block devices", "image files"])
def test_umount_says_that_the_daemon_died_in_its_last_commit(make_volume, loops):
    volume = make_volume(loops=loops)
    volume.make()
    # On a busy machine the commit may be done before the kill. Then all is there, and it is tried again.
    for attempt in range(20):
        volume.mount(options="commit=300")
        content = random_content(150 + 5 * attempt << 20)
        (volume.mount_point / "f").write_bytes(content)
        daemon = volume.daemon()
        unmounting = subprocess.Popen([TOOLS / "umount.fuse.cowraid", volume.mount_point],
                                      stderr=subprocess.PIPE, text=True)
        while volume.is_mounted() and unmounting.poll() is None:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGKILL)
        _, said = unmounting.communicate(timeout=PATIENCE)
        if unmounting.returncode != 0:
            break
        volume.mount()
        assert (volume.mount_point / "f").read_bytes() == content
        volume.unmount()
    assert unmounting.returncode == 32, said
    assert said == ("umount.fuse.cowraid: the daemon ended before it said that the last commit is stored; "
                    "see the system log\n")
    volume.mount()
    volume.unmount()
    volume.check()


class CachedMember:
    """An image file on a FUSE filesystem. What is not flushed is lost when its server is killed."""

    def __init__(self, folder, number, mebibytes):
        self.image = folder / f"image{number}"
        with open(self.image, "wb") as file:
            file.truncate(mebibytes << 20)
        mount_point = folder / f"fuse{number}"
        mount_point.mkdir()
        self.path, socket = mount_point / "member", folder / f"socket{number}"
        self.log = folder / f"log{number}"
        self.server = subprocess.Popen(["nbdkit", "-f", "-U", socket, "--filter=log", "--filter=cache",
                                        "file", self.image, "cache=writeback", "cache-min-block-size=4K",
                                        f"logfile={self.log}"])
        wait_for(socket.exists)
        self.fuse = subprocess.Popen(["nbdfuse", self.path, "--unix", socket])
        wait_for(self.path.exists)

    def flush_count(self):
        return self.log.read_text().count(" Flush ")

    def cut_power(self):
        for process in (self.server, self.fuse):
            process.kill()
            process.wait()
        run("umount", "-l", self.path.parent, check=False)


def test_members_on_a_fuse_filesystem_hold_what_was_acknowledged(make_volume):
    """The kernel does not tell them of every durable write that it is one."""
    volume = make_volume(member_count=0, data="raid5", metadata="raid1", loops=False)
    members = [CachedMember(volume.folder, number, 128) for number in range(3)]
    try:
        volume.images = [member.path for member in members]
        volume.make()
        volume.mount(options="commit=300")
        contents = {f"f{number}": random.Random(number).randbytes(20000) for number in range(21)}
        flush_counts = []
        for name, content in contents.items():
            with open(volume.mount_point / name, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            flush_counts.append(sum(member.flush_count() for member in members))
        # The first fsync says in the superblocks that the log is in use. Each other writes a record on two.
        assert flush_counts[-1] - flush_counts[0] == 2 * 20
        for member in members:
            member.server.send_signal(signal.SIGSTOP)
        volume.kill()
    finally:
        for member in members:
            member.cut_power()
    volume.images = [member.image for member in members]
    volume.mount()
    found = {entry.name: entry.read_bytes() for entry in volume.mount_point.iterdir()}
    assert found.keys() == contents.keys()
    assert all(found[name] == content for name, content in contents.items())
    volume.unmount()
    assert volume.check()["clean"]
