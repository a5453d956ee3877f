# SPDX-License-Identifier: MIT
"""What a mount takes of memory: mem= holds, and where there is little it is slower, not dead."""

import contextlib
import hashlib
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import PATIENCE, TOOLS, Volume, random_content, run, tool

MIB = 1 << 20
GROUP_MIB = 512
STORM_SECONDS = float(os.environ.get("COWRAID_STORM_SECONDS", "6"))
WRITERS = 64


def peak_mib(process):
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmHWM")


def write_stream(path, mebibytes, seed):
    """Writes and returns the sum of what was written."""
    digest = hashlib.sha256()
    piece = random_content(MIB)
    with open(path, "wb", buffering=0) as file:
        for number in range(mebibytes):
            content = piece[number + seed:] + piece[:number + seed]
            file.write(content)
            digest.update(content)
    return digest.hexdigest()


def sum_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while content := file.read(MIB):
            digest.update(content)
    return digest.hexdigest()


def read_directly(path):
    """The first block of a file, past the page cache."""
    memory = mmap.mmap(-1, 4096)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        return memory[:os.readv(fd, [memory])]
    finally:
        os.close(fd)


def together(calls):
    """Runs the functions at the same time; their results in order."""
    results = [None] * len(calls)

    def work(index):
        results[index] = calls[index]()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def make_files(folder, count):
    folder.mkdir()
    for index in range(count):
        (folder / f"{index:06}").write_bytes(b"%06d" % index)


@pytest.mark.parametrize("options", ["mem=192M", "mem=192M,compress=zstd:1"])
def test_a_mount_stays_within_its_memory(make_volume, options):
    volume = make_volume(member_count=4, member_mib=768, data="raid5", metadata="raid1")
    volume.make()
    volume.mount(options=options)
    root = volume.mount_point
    streams = [lambda i=i: write_stream(root / f"stream{i}", 200, i) for i in range(4)]
    sums = together([*streams, lambda: make_files(root / "files", 12000)])[:4]
    # Overwriting in place, reading, verifying, listing.
    with open(root / "stream0", "r+b", buffering=0) as file:
        for number in range(3000):
            file.seek(number * 7919 % (200 * 256) * 4096)
            content = file.read(4096)
            file.seek(-4096, os.SEEK_CUR)
            file.write(content)
    tool("cowraid", "scrub", "start", "-B", root)
    volume.drop_caches()
    assert [sum_of(root / f"stream{index}") for index in range(4)] == sums
    assert sum(1 for entry in os.scandir(root / "files") if entry.stat().st_size == 6) == 12000
    assert peak_mib(volume.daemon()) <= 192
    volume.unmount()
    volume.check()


def test_many_writers_stay_within_it(make_volume):
    """Requests that wait, and what serving threads read them into, are counted."""
    volume = make_volume(member_count=4, member_mib=768, data="raid5", metadata="raid1")
    volume.make()
    volume.mount(options="mem=192M")
    root = volume.mount_point
    sums = together([lambda i=i: write_stream(root / f"stream{i}", 16, i) for i in range(WRITERS)])
    assert peak_mib(volume.daemon()) <= 192
    volume.drop_caches()
    assert together([lambda i=i: sum_of(root / f"stream{i}") for i in range(WRITERS)]) == sums
    assert peak_mib(volume.daemon()) <= 192


def test_large_attributes_stay_within_it(make_volume):
    """Changes are in memory until their commit; who makes them faster than commits come waits for one."""
    volume = make_volume(member_count=4, member_mib=65536, data="raid5", metadata="raid1")
    volume.make()
    volume.mount(options="mem=192M,commit=300")
    files = [volume.mount_point / f"file{number}" for number in range(4)]
    values = [os.urandom(60000) for _ in files]

    def set_all(index):
        files[index].touch()
        for number in range(1000):
            os.setxattr(files[index], f"user.{number}", number.to_bytes(4, "little") + values[index])

    together([lambda i=i: set_all(i) for i in range(len(files))])
    assert peak_mib(volume.daemon()) <= 192
    volume.drop_caches()
    for file, value in zip(files, values):
        for number in range(1000):
            assert os.getxattr(file, f"user.{number}") == number.to_bytes(4, "little") + value
    assert peak_mib(volume.daemon()) <= 192
    volume.unmount()
    volume.check()


RANDOM_WRITER = """
import os, random, sys, time
path, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
chosen, source = random.Random(seed), os.urandom(1 << 20)
file, content, end = os.open(path, os.O_RDWR | os.O_CREAT), bytearray(8 << 20), time.monotonic() + seconds
while time.monotonic() < end:
    size = chosen.randrange(4096, 200000)
    at, begin = chosen.randrange(len(content) - size), chosen.randrange(len(source) - size)
    if chosen.random() < 0.3:
        read = os.pread(file, size, at)
        assert read == content[at:at + size][:len(read)]
    else:
        os.pwrite(file, source[begin:begin + size], at)
        content[at:at + size] = source[begin:begin + size]
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
assert os.pread(file, len(content), 0) == content[:os.fstat(file).st_size]
"""


def test_a_replay_reads_one_record_after_the_other(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=65 << 10)
    volume.make()
    volume.mount(options="commit=300")
    piece = random_content(256 << 10)
    fd = os.open(volume.mount_point / "log", os.O_RDWR | os.O_CREAT | os.O_SYNC)
    for number in range(800):
        os.pwrite(fd, piece[number:] + piece[:number], 0)
    os.close(fd)
    volume.kill()
    volume.mount(options="mem=128M")
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", volume.mount_point).stdout)
    assert shown["volumes"][0]["statistics"]["replayed_records"] >= 700
    assert peak_mib(volume.daemon()) < 128
    assert (volume.mount_point / "log").read_bytes() == piece[799:] + piece[:799]


def test_random_writers_stay_within_it(make_volume):
    """Buffers of all sizes come and go: what is free between them must not grow without limit."""
    volume = make_volume(member_count=5, member_mib=400, loops=False)
    volume.make()
    volume.mount(options="mem=128M")
    command = [sys.executable, "-c", RANDOM_WRITER]
    writers = [subprocess.Popen([*command, volume.mount_point / f"file{i}", str(i), str(STORM_SECONDS)])
               for i in range(24)]
    assert [writer.wait(10 * PATIENCE) for writer in writers] == [0] * len(writers)
    assert peak_mib(volume.daemon()) <= 128
    volume.unmount()
    volume.check()


class MemoryGroup:
    """A memory cgroup, of either version."""

    def __init__(self, mebibytes):
        old = Path("/sys/fs/cgroup/memory")
        self.old = old.is_dir()
        self.folder = (old if self.old else Path("/sys/fs/cgroup")) / f"cowraid-test-{os.getpid()}"
        if not self.old and "memory" not in Path("/sys/fs/cgroup/cgroup.controllers").read_text("ascii"):
            pytest.skip("this system has no memory cgroups")
        self.folder.mkdir()
        if self.old:
            self.write("memory.limit_in_bytes", mebibytes * MIB)
            with contextlib.suppress(OSError):  # a kernel without accounting of swap
                self.write("memory.memsw.limit_in_bytes", mebibytes * MIB)
        else:
            self.write("memory.max", mebibytes * MIB)

    def write(self, name, value):
        (self.folder / name).write_text(str(value), encoding="ascii")

    def enter(self):
        self.write("cgroup.procs", os.getpid())

    def killed(self):
        name = "memory.oom_control" if self.old else "memory.events"
        lines = (self.folder / name).read_text(encoding="ascii").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.split()[0] == "oom_kill")

    def close(self):
        for _ in range(100):
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.1)


@pytest.fixture
def group():
    group = MemoryGroup(GROUP_MIB)
    yield group
    group.close()


def storm(path, seconds):
    """Rewrites a file of 16 MiB for so long; the sum of what it has in the end."""
    end, rounds, total = time.monotonic() + seconds, 0, None
    while rounds == 0 or time.monotonic() < end:
        total = write_stream(path, 16, rounds)
        rounds += 1
    return total


def test_a_storm_of_writes_in_a_small_cgroup_keeps_nobody_else_waiting(group):
    volume = Volume(member_count=4, member_mib=640, data="raid5", metadata="raid1", loops=False)
    try:
        for image in volume.images:  # pages of a tmpfs belong to the group that touches them first
            run("dd", "if=/dev/zero", f"of={image}", "bs=1M", "count=640", "conv=notrunc", "status=none")
        volume.loops = [volume.attach(image) for image in volume.images]
        volume.make()
        subprocess.run([TOOLS / "mount.cowraid", *volume.devices, volume.mount_point],
                       check=True, preexec_fn=group.enter)
        daemon = volume.daemon()
        assert f"{group.folder.name}" in Path(f"/proc/{daemon}/cgroup").read_text(encoding="ascii")
        (volume.mount_point / "small").write_bytes(b"small")
        waits, done = [], threading.Event()

        def look():
            count = 0
            while not done.is_set():
                begin = time.monotonic()
                assert not (volume.mount_point / f"missing{count}").exists()
                assert read_directly(volume.mount_point / "small") == b"small"
                if count % 10 == 0:
                    tool("cowraid", "status", volume.mount_point)
                waits.append(time.monotonic() - begin)
                count += 1
                time.sleep(0.02)

        looker = threading.Thread(target=look)
        looker.start()
        files = [volume.mount_point / f"storm{index}" for index in range(WRITERS)]
        sums = together([lambda file=file: storm(file, STORM_SECONDS) for file in files])
        done.set()
        looker.join()
        assert len(waits) > 20
        assert max(waits) < 5, f"{max(waits):.1f} s"
        assert group.killed() == 0
        assert peak_mib(daemon) < GROUP_MIB
        volume.drop_caches()
        assert [sum_of(file) for file in files] == sums
        volume.unmount()
        volume.check()
    finally:
        volume.destroy()
