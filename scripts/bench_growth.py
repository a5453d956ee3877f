#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Measures how cost grows with writers, files in a directory, sparse data and the size of a volume.

Each row is a fresh mount with its own daemon, and has the peak of its resident memory (VmHWM), which must be
at most mem=. The script ends with 1 when one is above. Run as root on an otherwise idle machine.

    scripts/bench_growth.py [--build build-release] [--profile raid5] [--mem 1024] [--scale 1] [KIND...]

Kinds: writers, files, sparse, mount. --scale 10 does a tenth of each.
"""

import argparse
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
BLOCK = 4096
MEMBERS = 4
WRITERS = (1, 2, 4, 8)
STREAM_MIB = 4096  # of all writers
FILES = (10**4, 10**5, 10**6)
FILE_BYTES = 100
LOOKUPS = 5000
SPARSE_GIB = (1, 10, 100)
STRIDE = MIB  # of a sparse file, one block in each
VOLUME_TIB = (1, 16)
FALLOCATE_BYTES = 64 * GIB
FILES_OF_A_VOLUME = 20000


class SparseMembers(bench.Members):
    """Loop devices over sparse files, so that a volume may be larger than the memory it lies in."""

    def __init__(self, scratch, member_bytes):
        super().__init__(scratch, 0, 0)
        for index in range(MEMBERS):
            image = self.folder / f"member{index}"
            with open(image, "wb") as file:
                os.truncate(file.fileno(), member_bytes)
            self.attach(image)


class Mounted(bench.Cowraid):
    """A daemon per row; what it took at most is asked before it ends."""

    def __init__(self, members, arguments):
        super().__init__(members, arguments.build, arguments.profile)
        self.options = f"mem={arguments.mem}M"

    def mount(self):
        bench.run(self.tools / "mount.cowraid", "-o", self.options, *self.members.devices,
                  self.members.mount_point)

    def note_peak(self):
        self.peak_kib = max(self.peak_kib, self._peak())
        return self.peak_kib / 1024


class Table:
    def __init__(self, arguments, *columns):
        self.mem, self.above = arguments.mem, False
        print(f"\n| {' | '.join([*columns, 'VmHWM, MiB'])} |\n|{'---|' * (len(columns) + 1)}", flush=True)

    def row(self, filesystem, *cells):
        peak = filesystem.note_peak()
        self.above |= peak > self.mem
        texts = [str(cell) if isinstance(cell, int) else f"{cell:.{2 if cell < 10 else 0}f}"
                 for cell in cells]
        print(f"| {' | '.join([*texts, f'{peak:.0f}'])} |", flush=True)


def timed(call, *arguments):
    started = time.monotonic()
    call(*arguments)
    return time.monotonic() - started


def remounted(filesystem):
    filesystem.unmount()
    bench.drop_caches()
    return timed(filesystem.mount)


def together(count, work):
    """Runs work(index) in processes, because Python's threads take turns."""
    children = []
    for index in range(count):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work(index)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    if any(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children):
        sys.exit("a writer failed")


def stream(path, mebibytes):
    memory = mmap.mmap(-1, MIB)
    memory.write(os.urandom(MIB))
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    for number in range(mebibytes):
        memory[:8] = number.to_bytes(8, "little")
        if os.pwrite(fd, memory, number * MIB) != MIB:
            sys.exit("short write")
    os.fsync(fd)
    os.close(fd)


def overwrite(path, seed, seconds, done):
    """Direct writes of a block each at random places, until the time is over."""
    memory = mmap.mmap(-1, BLOCK)
    memory.write(os.urandom(BLOCK))
    draw = random.Random(seed)
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    blocks, count, end = os.fstat(fd).st_size // BLOCK, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        os.pwrite(fd, memory, draw.randrange(blocks) * BLOCK)
        count += 1
    os.fsync(fd)
    os.close(fd)
    done.write_text(str(count), encoding="ascii")


def grow_writers(arguments):
    """Streams and random writes of 4 KiB with 1, 2, 4 and 8 processes, each with a file of its own."""
    table = Table(arguments, "writers", "buffered streams, MiB/s", "direct writes of 4 KiB, 1/s")
    members = bench.Members(arguments.scratch, 1920, MEMBERS)
    try:
        for writers in WRITERS:
            filesystem = Mounted(members, arguments)
            filesystem.make()
            root, mebibytes = members.mount_point, STREAM_MIB // arguments.scale // writers
            streaming = timed(together, writers, lambda i: stream(root / f"stream{i}", mebibytes))
            with tempfile.TemporaryDirectory() as counts:
                writing = timed(together, writers, lambda i: overwrite(
                    root / f"stream{i}", i, bench.SECONDS, Path(counts) / str(i)))
                operations = sum(int(path.read_text(encoding="ascii")) for path in Path(counts).iterdir())
            table.row(filesystem, writers, writers * mebibytes / streaming, operations / writing)
            filesystem.unmount()
    finally:
        members.close()
    return table.above


def create_files(folder, count):
    content = os.urandom(FILE_BYTES)
    for index in range(count):
        fd = os.open(f"{folder}/file{index:07}", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
        os.write(fd, content)
        os.close(fd)
    bench.sync_folder(folder)


def look_up(folder, count):
    draw = random.Random(count)
    for _ in range(LOOKUPS):
        if os.stat(f"{folder}/file{draw.randrange(count):07}").st_size != FILE_BYTES:
            sys.exit("wrong size")


def list_folder(folder, count):
    found = sum(1 for _ in os.scandir(folder))
    if found != count:
        sys.exit(f"{found} of {count} files listed")


def remove_files(folder, count):
    for index in range(count):
        os.unlink(f"{folder}/file{index:07}")
    bench.sync_folder(folder)


def grow_files(arguments):
    """One directory: creating, asking cold at random, listing cold, removing."""
    table = Table(arguments, "files", "created, 1/s", "asked cold, 1/s", "listed cold, 1/s", "removed, 1/s")
    members = SparseMembers(arguments.scratch, 8 * GIB)
    try:
        for count in FILES:
            count //= arguments.scale
            filesystem = Mounted(members, arguments)
            filesystem.make()
            folder = members.mount_point / "folder"
            folder.mkdir()
            creating = timed(create_files, folder, count)
            remounted(filesystem)
            asking = timed(look_up, folder, count)
            remounted(filesystem)
            listing = timed(list_folder, folder, count)
            removing = timed(remove_files, folder, count)
            table.row(filesystem, count, count / creating, LOOKUPS / asking, count / listing,
                      count / removing)
            filesystem.unmount()
    finally:
        members.close()
    return table.above


def sparse_order(size):
    places = list(range(0, size, STRIDE))
    random.Random(size).shuffle(places)
    return places


def write_sparse(path, size):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    os.ftruncate(fd, size)
    for offset in sparse_order(size):
        os.pwrite(fd, offset.to_bytes(8, "little") * (BLOCK // 8), offset)
    os.fsync(fd)
    os.close(fd)


def read_sparse(path, size, count):
    fd = os.open(path, os.O_RDONLY)
    for offset in sparse_order(size)[:count]:
        if os.pread(fd, BLOCK, offset) != offset.to_bytes(8, "little") * (BLOCK // 8):
            sys.exit(f"wrong content at {offset}")
    os.close(fd)


def seek_sparse(path, blocks):
    """Walks the file by SEEK_DATA and SEEK_HOLE, as cp and tar do."""
    fd, offset, found = os.open(path, os.O_RDONLY), 0, 0
    while found < blocks:
        offset = os.lseek(fd, os.lseek(fd, offset, os.SEEK_DATA), os.SEEK_HOLE)
        found += 1
    os.close(fd)


def grow_sparse(arguments):
    """One sparse file with a block in each MiB, in random order; then fallocate of as much."""
    table = Table(arguments, "sparse file, GiB", "blocks written, 1/s", "read cold, 1/s", "sought, 1/s",
                  "fallocate of it, s", "removed, s", "mount, s")
    members = SparseMembers(arguments.scratch, 64 * GIB)
    try:
        for gibibytes in SPARSE_GIB:
            size = gibibytes * GIB // arguments.scale
            blocks = size // STRIDE
            filesystem = Mounted(members, arguments)
            filesystem.make()
            path, full = members.mount_point / "sparse", members.mount_point / "full"
            writing = timed(write_sparse, path, size)
            with open(full, "wb") as file:
                allocating = timed(os.posix_fallocate, file.fileno(), 0, size)
                os.fsync(file.fileno())
            mounting = remounted(filesystem)
            reading = timed(read_sparse, path, size, LOOKUPS)
            seeking = timed(seek_sparse, path, blocks)
            removing = timed(lambda: (path.unlink(), full.unlink(), bench.sync_folder(members.mount_point)))
            table.row(filesystem, size // GIB, blocks / writing, min(blocks, LOOKUPS) / reading,
                      blocks / seeking, allocating, removing, mounting)
            filesystem.unmount()
    finally:
        members.close()
    return table.above


def grow_mount(arguments):
    """Mount time of an empty volume, and of one with nine tenths allocated and many files."""
    table = Table(arguments, "volume, TiB", "mkfs, s", "mount when empty, s", "fallocate of 90 %, s",
                  "mount when full, s", "after a crash, s", "first file with fsync, s")
    for tebibytes in VOLUME_TIB:
        members = SparseMembers(arguments.scratch, tebibytes * TIB // MEMBERS)
        try:
            filesystem = Mounted(members, arguments)
            making = timed(filesystem.make)
            empty = remounted(filesystem)
            root = members.mount_point
            create_in = root / "files"
            create_in.mkdir()
            create_files(create_in, FILES_OF_A_VOLUME // arguments.scale)
            space = os.statvfs(root)
            count = int(space.f_bavail * space.f_frsize * 0.9) // FALLOCATE_BYTES // arguments.scale
            started = time.monotonic()
            for index in range(count):
                with open(root / f"large{index}", "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, FALLOCATE_BYTES)
            bench.sync_folder(root)
            allocating = time.monotonic() - started
            full = remounted(filesystem)
            first = timed(stream, root / "first", 1)
            stream(root / "second", 1)
            filesystem.note_peak()
            for process in list(filesystem.processes()):
                os.kill(int(process.name), signal.SIGKILL)
            subprocess.run(["umount", "-l", root], capture_output=True, check=False)
            time.sleep(1)
            crashed = timed(filesystem.mount)
            if (root / "second").stat().st_size != MIB:
                sys.exit("a file that was acknowledged is gone")
            table.row(filesystem, tebibytes, making, empty, allocating, full, crashed, first)
            filesystem.unmount()
        finally:
            members.close()
    return table.above


KINDS = {"writers": grow_writers, "files": grow_files, "sparse": grow_sparse, "mount": grow_mount}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=bench.ROOT / "build-release")
    parser.add_argument("--profile", default="raid5", choices=bench.METADATA)
    parser.add_argument("--mem", type=int, default=1024, help="MiB")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--scratch", default="/dev/shm")
    parser.add_argument("kind", nargs="*", default=list(KINDS))
    arguments = parser.parse_args()
    if not set(arguments.kind) <= set(KINDS):
        parser.error(f"kinds are {', '.join(KINDS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or devices would stay behind
    above = [kind for kind in arguments.kind if KINDS[kind](arguments)]
    if above:
        sys.exit(f"above mem={arguments.mem}M: {', '.join(above)}")


if __name__ == "__main__":
    main()
