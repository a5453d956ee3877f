# SPDX-License-Identifier: MIT
"""sync(2), syncfs(2) and umount(2) reach the members; the member that stands for the mount in the kernel is
no more important than others. COWRAID_SYNC_ROUNDS=N makes the loops longer, COWRAID_SEED=N others."""

import contextlib
import ctypes
import json
import mmap
import os
import random
import shutil
from pathlib import Path

import pytest

from conftest import TOOLS, run, tool, wait_for

ROUNDS = int(os.environ.get("COWRAID_SYNC_ROUNDS", "5"))
SEED = int(os.environ.get("COWRAID_SEED", "1"))
# Later than any test: what is durable is so because somebody asked.
LATE_COMMIT = "commit=300"
HAS_SYNCFS = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 18)
needs_syncfs = pytest.mark.skipif(not HAS_SYNCFS, reason="the kernel asks no FUSE filesystem to sync")


def syncfs(volume):
    fd = os.open(volume.mount_point, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.syncfs(fd) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(fd)


SYNCS = {
    "sync": lambda volume: run("sync"),
    "sync -f": lambda volume: run("sync", "-f", volume.mount_point),
    "syncfs": syncfs,
}


def mount_field(volume, field):
    return run("findmnt", "-n", "-o", field, volume.mount_point).stdout.strip()


def source_of(volume):
    """The member that stands for the mount: the mount has its device number."""
    number = os.makedev(*map(int, mount_field(volume, "MAJ:MIN").split(":")))
    return next(device for device in volume.loops if os.stat(device).st_rdev == number)


class Tree:
    """Files and directories as they should be, changed at random."""

    def __init__(self, root, generator):
        self.root, self.generator, self.files = root, generator, {}
        self.made = self.written = 0

    def change(self):
        for _ in range(self.generator.randint(3, 12)):
            what = self.generator.random()
            if what < 0.6 or not self.files:
                self.made += 1
                name = f"d{self.generator.randrange(4)}/f{self.made}"
                (self.root / name).parent.mkdir(exist_ok=True)
                content = self.generator.randbytes(self.generator.choice((0, 11, 4096, 70001, 1500000)))
                (self.root / name).write_bytes(content)
                self.files[name] = content
                self.written += len(content)
                continue
            name = self.generator.choice(sorted(self.files))
            if what < 0.75:
                (self.root / name).unlink()
                del self.files[name]
            elif what < 0.85:
                (self.root / name).rename(self.root / f"{name}r")
                self.files[f"{name}r"] = self.files.pop(name)
            else:
                extra = self.generator.randbytes(5000)
                with open(self.root / name, "ab") as file:
                    file.write(extra)
                self.files[name] += extra

    def verify(self):
        found = {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.glob("d*/*")}
        assert sorted(found) == sorted(self.files)
        for name, content in self.files.items():
            assert found[name] == content, name


@needs_syncfs
@pytest.mark.parametrize("how", SYNCS)
def test_what_was_synced_survives_a_killed_daemon(make_volume, how):
    volume = make_volume()
    volume.make()
    volume.mount(options=LATE_COMMIT)
    tree = Tree(volume.mount_point, random.Random(f"{SEED}-{how}"))
    for number in range(1, ROUNDS + 1):
        tree.change()
        SYNCS[how](volume)
        volume.kill()
        volume.mount(options=LATE_COMMIT)
        try:
            tree.verify()
        except AssertionError as error:
            raise AssertionError(f"seed {SEED}, round {number}: {error}") from error
    assert tree.made >= ROUNDS
    volume.unmount()
    assert volume.check()["clean"]


@needs_syncfs
@pytest.mark.parametrize("how", SYNCS)
def test_a_mapping_is_synced_too(make_volume, how):
    """Pages that a program dirtied through a shared mapping it still holds."""
    volume = make_volume()
    volume.make()
    volume.mount(options=LATE_COMMIT)
    for number in range(ROUNDS):
        content = random.Random(f"{SEED}-{number}").randbytes(600000)
        file = os.open(volume.mount_point / "mapped", os.O_RDWR | os.O_CREAT)
        os.truncate(file, len(content))
        with mmap.mmap(file, len(content)) as pages:
            pages[:] = content
            SYNCS[how](volume)
            volume.kill()
        with contextlib.suppress(OSError):  # the connection is gone
            os.close(file)
        volume.mount(options=LATE_COMMIT)
        assert (volume.mount_point / "mapped").read_bytes() == content
    volume.unmount()


@pytest.mark.parametrize("loops", [True, False])
def test_the_command_syncs_mappings_too(make_volume, loops):
    """Also where the kernel would not ask the daemon to sync."""
    volume = make_volume(loops=loops)
    volume.make()
    volume.mount(options=LATE_COMMIT)
    content = random.Random(f"{SEED}").randbytes(600000)
    file = os.open(volume.mount_point / "mapped", os.O_RDWR | os.O_CREAT)
    os.truncate(file, len(content))
    os.fsync(file)
    with mmap.mmap(file, len(content)) as pages:
        pages[:] = content
        tool("cowraid", "filesystem", "sync", volume.mount_point)
        volume.kill()
    with contextlib.suppress(OSError):  # the connection is gone
        os.close(file)
    volume.mount(options=LATE_COMMIT)
    assert (volume.mount_point / "mapped").read_bytes() == content
    volume.unmount()


@needs_syncfs
def test_a_sync_that_cannot_be_kept_fails(make_volume):
    volume = make_volume(member_count=2, data="raid1", metadata="raid1", may_fail=[0, 1])
    volume.make()
    volume.mount(options=LATE_COMMIT)
    (volume.mount_point / "f").write_bytes(os.urandom(300000))
    volume.fail_writes()
    fd = os.open(volume.mount_point, os.O_RDONLY)
    assert ctypes.CDLL(None).syncfs(fd) == -1
    os.close(fd)


@needs_syncfs
def test_umount_returns_when_members_are_written(make_volume):
    """By the system call alone, without the helper that waits."""
    volume = make_volume()
    volume.make()
    for number in range(ROUNDS):
        volume.mount(options=LATE_COMMIT)
        content = random.Random(f"{SEED}-{number}").randbytes(3000000)
        (volume.mount_point / "f").write_bytes(content)
        run("umount", "-i", volume.mount_point)
        # Free at once: nobody holds them, and what is read is final.
        for device in volume.devices:
            os.close(os.open(device, os.O_RDWR | os.O_EXCL))
        assert volume.check()["clean"]
        volume.mount(options=LATE_COMMIT)
        assert (volume.mount_point / "f").read_bytes() == content
        run("umount", volume.mount_point)


@needs_syncfs
def test_the_mount_is_seen_as_a_mount_of_its_member(volume):
    assert mount_field(volume, "FSTYPE") == "fuseblk.cowraid"
    source = source_of(volume)
    assert str(volume.mount_point) in run("lsblk", "-n", "-o", "MOUNTPOINTS", source).stdout.split()
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", source).stdout)
    assert shown["volumes"][0]["mount_point"] == str(volume.mount_point)


def test_other_programs_are_kept_off_every_member(volume):
    (volume.mount_point / "f").write_text("content")
    for device in volume.devices:
        with pytest.raises(OSError, match="busy"):
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
        result = tool("mkfs.cowraid", "-f", device, check=False)
        assert result.returncode == 1 and "is in use" in result.stderr
        if shutil.which("mkfs.ext4"):
            assert run("mkfs.ext4", "-q", device, check=False, input="y\n").returncode != 0
        if shutil.which("wipefs"):
            assert run("wipefs", "-a", device, check=False).returncode != 0
    assert (volume.mount_point / "f").read_text() == "content"
    volume.unmount()
    assert volume.check()["clean"]


def test_image_files_have_no_device_to_stand_for_them(make_volume):
    volume = make_volume(loops=False)
    volume.make()
    volume.mount()
    assert mount_field(volume, "FSTYPE") == "fuse.cowraid"
    (volume.mount_point / "f").write_text("content")
    volume.unmount()
    volume.mount()
    assert (volume.mount_point / "f").read_text() == "content"


def test_read_only_and_back(make_volume):
    volume = make_volume()
    volume.make()
    volume.mount()
    (volume.mount_point / "f").write_text("first")
    volume.unmount()
    volume.mount(options="ro")
    assert "ro" in mount_field(volume, "OPTIONS").split(",")
    with pytest.raises(OSError, match="Read-only"):
        (volume.mount_point / "f").write_text("second")
    volume.mount(options="remount,rw")
    (volume.mount_point / "f").write_text("second")
    volume.unmount()
    volume.mount()
    assert (volume.mount_point / "f").read_text() == "second"


def change_beyond_the_failure(volume, tree):
    """Much, synced in between; every sync is kept without the member that failed."""
    while tree.written < 80 << 20:
        for _ in range(8):
            tree.change()
        run("sync", "-f", volume.mount_point)


@needs_syncfs
@pytest.mark.parametrize("failure", ["every access", "writes"])
def test_the_member_that_stands_for_the_mount_may_fail(make_volume, failure):
    volume = make_volume(may_fail=[0])
    tree = Tree(volume.mount_point, random.Random(f"{SEED}-{failure}"))
    volume.make()
    volume.mount()
    assert source_of(volume) == volume.loops[0]
    tree.change()
    volume.fail_writes()
    if failure == "every access":
        os.truncate(volume.images[0], 0)
    change_beyond_the_failure(volume, tree)
    volume.drop_caches()
    tree.verify()
    assert volume.counters()["device-stats"][0]["state"] == "failed"
    run("umount", "-i", volume.mount_point)
    assert not volume.is_mounted()
    run("losetup", "-d", volume.loops[0])
    volume.mount(volume.loops[1:], "degraded")
    assert source_of(volume) == volume.loops[1]
    tree.verify()
    volume.unmount()


@pytest.mark.parametrize("member_count", [1, 4])
def test_a_dead_mount_that_is_still_in_use_keeps_nobody_out(make_volume, member_count):
    """A program that holds a file of a mount whose daemon was killed keeps the kernel's side of that mount
    alive, and with it the device that stands for it. Three times, beside each other."""
    profiles = {1: {"data": "single", "metadata": "single"}, 4: {}}[member_count]
    volume = make_volume(member_count=member_count, **profiles)
    volume.make()
    volume.mount()
    holders = []
    try:
        for number in range(3):
            (volume.mount_point / f"f{number}").write_text(f"content {number}")
            fd = os.open(volume.mount_point / f"f{number}", os.O_RDONLY)
            holders.append(fd)
            os.fsync(fd)
            volume.kill()
            assert volume.check()["clean"]
            volume.mount()
            for earlier in range(number + 1):
                assert (volume.mount_point / f"f{earlier}").read_text() == f"content {earlier}"
            line = tool("mkfs.cowraid", "-f", *volume.devices, check=False)
            assert line.returncode == 1 and "is in use" in line.stderr
    finally:
        for fd in holders:
            os.close(fd)
    volume.unmount()
    assert volume.check()["clean"]


def test_a_daemon_told_to_end_leaves_a_busy_mount(volume):
    (volume.mount_point / "f").write_text("content")
    with open(volume.mount_point / "f", encoding="ascii") as file:
        daemon = volume.daemon()
        os.kill(daemon, 15)
        wait_for(lambda: not os.path.exists(f"/proc/{daemon}"), pause=0.02)
        assert not volume.is_mounted()
        with pytest.raises(OSError, match="not connected"):
            os.statvfs(file.fileno())
        volume.mount()
        assert (volume.mount_point / "f").read_text() == "content"
    volume.unmount()
    assert volume.check()["clean"]


def test_an_older_kernel_gets_an_ordinary_mount(make_volume):
    """One before 6.18, as the program sees it."""
    volume = make_volume()
    volume.make()
    mount = ["setarch", os.uname().machine, "--uname-2.6", TOOLS / "mount.cowraid"]
    run(*mount, *volume.devices, volume.mount_point)
    assert mount_field(volume, "FSTYPE") == "fuse.cowraid"
    (volume.mount_point / "f").write_text("content")
    for device in volume.devices:
        with pytest.raises(OSError, match="busy"):
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    volume.unmount()
    assert volume.check()["clean"]


@pytest.mark.parametrize("source", ["label", "device", "list"])
def test_what_the_mount_table_calls_it(make_volume, source):
    volume = make_volume()
    label = f"sync-test-{os.getpid()}"
    volume.make("-L", label)
    devices = ":".join(volume.devices)
    named = {"label": f"cowraid:{label}", "device": volume.devices[2], "list": devices}[source]
    shown = {"list": volume.devices[0]}.get(source, named) if HAS_SYNCFS else named
    tool("mount.cowraid", named, volume.mount_point)
    assert mount_field(volume, "SOURCE") == shown
    again = tool("mount.cowraid", named, volume.mount_point)
    assert f"already mounted at {volume.mount_point}" in again.stderr
    assert volume.mount_count() == 1
    (volume.mount_point / "f").write_text("content")
    assert "content" == (volume.mount_point / "f").read_text()
    volume.unmount()
    assert list(Path("/run").glob("cowraid-mount.*")) == []


def test_a_lazy_unmount_ends_when_the_last_file_is_closed(volume):
    with open(volume.mount_point / "f", "wb") as file:
        file.write(b"before")
        file.flush()
        daemon = volume.daemon()
        run("umount", "-i", "-l", volume.mount_point)
        assert not volume.is_mounted()
        file.write(b" after")
        file.flush()
        assert os.path.exists(f"/proc/{daemon}")
        line = tool("mkfs.cowraid", "-f", *volume.devices, check=False)
        assert line.returncode == 1 and "is in use" in line.stderr
    # The close was the unmount and has waited for the last commit.
    for device in volume.devices:
        os.close(os.open(device, os.O_RDWR | os.O_EXCL))
    assert volume.check()["clean"]
    volume.mount()
    assert (volume.mount_point / "f").read_bytes() == b"before after"


@needs_syncfs
def test_flushing_the_device_is_a_sync_of_the_mount(make_volume):
    """BLKFLSBUF asks whoever is mounted on a device to write first."""
    volume = make_volume()
    volume.make()
    volume.mount(options=LATE_COMMIT)
    (volume.mount_point / "f").write_text("content")
    run("blockdev", "--flushbufs", source_of(volume))
    volume.kill()
    volume.mount()
    assert (volume.mount_point / "f").read_text() == "content"
