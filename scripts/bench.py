#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Measures cowraid beside kernel btrfs with the same data profile, on loop devices of the same kind.

Every round runs every workload on both, one after the other, each on a fresh filesystem; the table has the
medians and their ratio. Members are files below --scratch. Run as root on an otherwise idle machine: absolute
figures are noise of the machine, the ratio and its spread are not.

    scripts/bench.py [--build build-release] [--profile raid5] [--rounds 3] [WORKLOAD...]

With --earlier BUILD an older build takes its turn as well, first in every other round, and a second table
has later beside earlier, round by round.
"""

import argparse
import json
import mmap
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
METADATA = {"raid5": "raid1", "raid6": "raid1c3", "raid1": "raid1"}
MEMBERS = 8
MEMBER_MIB = 1024
STREAM_MIB = 2048
RANDOM_MIB = 512
WARM_MIB = 5120
SECONDS = 8
FILES, FOLDERS = 20000, 20
PIECE = 32 << 10


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{command} returned {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def drop_caches():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")


def warm_memory():
    """Touches as much memory as a workload needs. Pages that a virtual machine gave back to its host cost
    several times as much at the first touch, which would hit whatever happens to run first."""
    mmap.mmap(-1, WARM_MIB << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


class Members:
    """Loop devices over files with all their blocks in place, given back whatever happens."""

    def __init__(self, scratch, member_mib, count=MEMBERS):
        self.folder = Path(tempfile.mkdtemp(prefix="cowraid-bench-", dir=scratch))
        self.mount_point = self.folder / "mnt"
        self.mount_point.mkdir()
        self.devices = []
        self.mark, self.operations = [0, 0, 0, 0], 0  # for counts per operation
        for index in range(count):
            image = self.folder / f"member{index}"
            with open(image, "wb") as file:
                for _ in range(member_mib):
                    file.write(bytes(1 << 20))
            self.attach(image)

    def attach(self, image):
        self.devices.append(run("losetup", "-f", "--show", "--direct-io=on", image).strip())

    def device_counts(self):
        """Requests and bytes written and read by all members since they were attached."""
        totals = [0, 0, 0, 0]
        for device in self.devices:
            fields = Path(f"/sys/block/{Path(device).name}/stat").read_text(encoding="ascii").split()
            for slot, field, unit in ((0, 0, 1), (1, 2, 512), (2, 4, 1), (3, 6, 512)):
                totals[slot] += int(fields[field]) * unit
        return totals

    def close(self):
        subprocess.run(["umount", str(self.mount_point)], capture_output=True, check=False)
        for device in self.devices:
            subprocess.run(["losetup", "-d", device], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", str(self.folder)], check=False)


class Cowraid:
    def __init__(self, members, build, profile, name="cowraid"):
        self.members, self.tools, self.profile, self.name = members, Path(build) / "tools", profile, name
        self.peak_kib = 0

    def make(self):
        run(self.tools / "mkfs.cowraid", "-q", "-f", "-d", self.profile, "-m", METADATA[self.profile],
            *self.members.devices)
        self.mount()

    def mount(self):
        run(self.tools / "mount.cowraid", *self.members.devices, self.members.mount_point)

    def unmount(self):
        self.peak_kib = max(self.peak_kib, self._peak())
        run(self.tools / "umount.fuse.cowraid", self.members.mount_point)

    def processes(self):
        """Folders in /proc of the daemon and its monitor."""
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if str(self.members.mount_point).encode() in words and b"mount.cowraid" in words[0]:
                    yield entry
            except OSError:
                continue

    def _peak(self):
        peaks = [0]
        for entry in self.processes():
            try:
                lines = (entry / "status").read_text(encoding="ascii", errors="replace").splitlines()
                peaks += [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
            except OSError:
                continue
        return max(peaks)


class Btrfs:
    name = "btrfs"
    peak_kib = 0

    def __init__(self, members, profile):
        self.members, self.profile = members, profile

    def make(self):
        run("mkfs.btrfs", "-q", "-f", "-d", self.profile, "-m", METADATA[self.profile], *self.members.devices)
        self.mount()

    def mount(self):
        run("mount", "-t", "btrfs", "-o", "noatime", self.members.devices[0], self.members.mount_point)

    def unmount(self):
        run("umount", self.members.mount_point)


def fio(members, name, *options):
    report = json.loads(run("fio", "--output-format=json", f"--directory={members.mount_point}",
                            f"--name={name}", "--randrepeat=1", "--group_reporting", *options))
    return report["jobs"][0]


def make_cold(members, filesystem):
    """A new mount with nothing in any cache; counts of member requests begin here."""
    filesystem.unmount()
    filesystem.mount()
    drop_caches()
    members.mark = members.device_counts()


def stream_write(members, _):
    """MiB/s of one buffered writer, 1 MiB at a time, fsync at the end included; fio opens O_RDWR."""
    started = time.monotonic()
    fio(members, "stream", "--rw=write", "--bs=1M", f"--size={STREAM_MIB}M", "--end_fsync=1",
        "--fallocate=none")
    return STREAM_MIB / (time.monotonic() - started)


def cold_stream(members, filesystem):
    if not (members.mount_point / "stream.0.0").exists():
        stream_write(members, filesystem)
    make_cold(members, filesystem)


def stream_read(members, filesystem):
    """MiB/s of one buffered reader over a file that no cache holds."""
    cold_stream(members, filesystem)
    return fio(members, "stream", "--rw=read", "--bs=1M", f"--size={STREAM_MIB}M")["read"]["bw"] / 1024


def stream_through(members, flags):
    """MiB/s through one descriptor opened so, 1 MiB at a time: O_CREAT writes, fsync at the end included."""
    memory = mmap.mmap(-1, 1 << 20)
    memory.write(os.urandom(1 << 20))
    started = time.monotonic()
    fd = os.open(members.mount_point / "stream.0.0", flags, 0o644)
    for offset in range(0, STREAM_MIB << 20, 1 << 20):
        moved = os.pwrite(fd, memory, offset) if flags & os.O_CREAT else os.preadv(fd, [memory], offset)
        if moved != 1 << 20:
            sys.exit(f"{moved} bytes at {offset}")
    if flags & os.O_CREAT:
        os.fsync(fd)
    os.close(fd)
    return STREAM_MIB / (time.monotonic() - started)


def stream_writer(flags):
    return lambda members, _: stream_through(members, flags | os.O_CREAT)


def stream_reader(flags):
    def read(members, filesystem):
        cold_stream(members, filesystem)
        return stream_through(members, flags)
    return read


def random_file(members):
    if not (members.mount_point / "random.0.0").exists():
        fio(members, "random", "--rw=write", "--bs=1M", f"--size={RANDOM_MIB}M", "--end_fsync=1",
            "--fallocate=none")


def random_write(members, _):
    """Operations/s of O_DIRECT 4 KiB writes in a file that exists, 16 under way; fsync at the end."""
    random_file(members)
    job = fio(members, "random", "--rw=randwrite", "--bs=4k", f"--size={RANDOM_MIB}M", "--direct=1",
              "--ioengine=libaio", "--iodepth=16", "--time_based", f"--runtime={SECONDS}", "--end_fsync=1")
    return job["write"]["total_ios"] / (job["write"]["runtime"] / 1000)


def random_read(members, filesystem, processes=1):
    """Operations/s of O_DIRECT 4 KiB reads of one file, 16 under way per process, after a new mount."""
    random_file(members)
    make_cold(members, filesystem)
    job = fio(members, "random", "--filename=random.0.0", "--rw=randread", "--bs=4k", "--direct=1",
              f"--size={RANDOM_MIB}M", f"--numjobs={processes}", "--ioengine=libaio", "--iodepth=16",
              "--time_based", f"--runtime={SECONDS}")
    return job["read"]["iops"]


def sync_folder(folder):
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def create(members, _):
    """Files/s: 4 KiB files, one process, sync at the end included."""
    content = os.urandom(4096)
    started = time.monotonic()
    for folder in range(FOLDERS):
        base = members.mount_point / f"folder{folder}"
        base.mkdir()
        for index in range(FILES // FOLDERS):
            fd = os.open(f"{base}/file{index}", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
            os.write(fd, content)
            os.close(fd)
    sync_folder(members.mount_point)
    return FILES / (time.monotonic() - started)


def unlink(members, filesystem):
    """Files/s: what create-4k makes is removed after a new mount, one process, sync at the end included."""
    create(members, filesystem)
    make_cold(members, filesystem)
    started = time.monotonic()
    for folder in range(FOLDERS):
        shutil.rmtree(members.mount_point / f"folder{folder}")
    sync_folder(members.mount_point)
    return FILES / (time.monotonic() - started)


def walk(members, filesystem):
    """Files/s: find asks every file that create-4k makes for its size, after a new mount."""
    create(members, filesystem)
    make_cold(members, filesystem)
    started = time.monotonic()
    found = run("find", members.mount_point, "-type", "f", "-size", "8b", "-printf", ".")
    elapsed = time.monotonic() - started
    if len(found) != FILES:
        sys.exit(f"{len(found)} of {FILES} files found")
    return FILES / elapsed


def dbench(members, _):
    """MB/s of the load of a file server with four clients, as the program dbench replays it."""
    text = run("dbench", "-c", "/usr/share/dbench/client.txt", "-D", members.mount_point, "-t", SECONDS, 4)
    return float(text.split("Throughput ")[1].split()[0])


def fragmented(members, filesystem):
    """MiB/s of O_DIRECT writes of 32 KiB in random order into four new files of a volume.

    Eight files were written side by side in pieces of 32 KiB until 93 % was used; one of them is gone, and
    the new files take four fifths of its place. fsync of each at the end is inside the time."""
    folder = members.mount_point
    space = os.statvfs(folder)
    pieces = int(space.f_bavail * space.f_frsize * 0.93) // PIECE // 8
    memory = mmap.mmap(-1, PIECE)
    memory.write(os.urandom(PIECE))
    flags = os.O_CREAT | os.O_WRONLY | os.O_DIRECT
    files = [os.open(folder / f"old{index}", flags, 0o644) for index in range(8)]
    for piece in range(pieces):
        for fd in files:
            os.pwrite(fd, memory, piece * PIECE)
    for fd in files:
        os.fsync(fd)
        os.close(fd)
    os.unlink(folder / "old3")
    make_cold(members, filesystem)
    size = pieces * PIECE * 4 // 5 // 4 // PIECE * PIECE
    started = time.monotonic()
    fio(members, "new", "--rw=randwrite", "--bs=32k", f"--size={size}", "--numjobs=4", "--direct=1",
        "--ioengine=libaio", "--iodepth=8", "--end_fsync=1", "--fallocate=none")
    members.operations = 4 * size // PIECE
    return 4 * size / (1 << 20) / (time.monotonic() - started)


def append_fsync(members, _):
    """Appends/s: two writers, 4 KiB each time, fsync after every one."""
    job = fio(members, "append", "--rw=write", "--bs=4k", "--size=1G", "--numjobs=2", "--fsync=1",
              "--fallocate=none", "--time_based", f"--runtime={SECONDS}")
    return job["write"]["total_ios"] / (job["write"]["runtime"] / 1000)


def create_fsync(members, _):
    """Files/s: 4 KiB files, one process, each with an fsync."""
    content = os.urandom(4096)
    started, count = time.monotonic(), 0
    while time.monotonic() - started < SECONDS:
        fd = os.open(f"{members.mount_point}/file{count}", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
        os.write(fd, content)
        os.fsync(fd)
        os.close(fd)
        count += 1
    return count / (time.monotonic() - started)


WORKLOADS = {
    "stream-write": (stream_write, "MiB/s"),
    "stream-write-wronly": (stream_writer(os.O_WRONLY), "MiB/s"),
    "stream-write-rdwr": (stream_writer(os.O_RDWR), "MiB/s"),
    "stream-read": (stream_read, "MiB/s"),
    "stream-read-rdwr": (stream_reader(os.O_RDWR), "MiB/s"),
    "stream-read-direct": (stream_reader(os.O_RDONLY | os.O_DIRECT), "MiB/s"),
    "random-write-4k": (random_write, "IOPS"),
    "random-read-4k": (random_read, "IOPS"),
    "random-read-4k-2": (lambda members, filesystem: random_read(members, filesystem, 2), "IOPS"),
    "create-4k": (create, "files/s"),
    "unlink-4k": (unlink, "files/s"),
    "walk-stat": (walk, "files/s"),
    "fragmented-32k": (fragmented, "MiB/s"),
    "append-fsync-4k": (append_fsync, "appends/s"),
    "create-fsync-4k": (create_fsync, "files/s"),
    "dbench-4": (dbench, "MB/s"),
}


def measure(filesystem, members, workload):
    drop_caches()
    warm_memory()
    filesystem.make()
    members.mark, members.operations = members.device_counts(), 0
    rate = WORKLOADS[workload][0](members, filesystem)
    counts = [b - a for a, b in zip(members.mark, members.device_counts())]
    if members.operations:
        print(f"{workload} {filesystem.name}: per operation {counts[0] / members.operations:.2f} reads, "
              f"{counts[2] / members.operations:.2f} writes of members", file=sys.stderr)
    filesystem.unmount()
    return rate, counts


def print_table(results, filesystems):
    print("| workload | unit | cowraid | btrfs | ratio (each round) | member writes: requests, MiB "
          "(cowraid / btrfs) | member reads |")
    print("|---|---|---|---|---|---|---|")
    for workload, rows in results.items():
        ours, theirs = ([rate for rate, _ in rows[f.name]] for f in filesystems)
        ratios = ", ".join(f"{a / b:.2f}" for a, b in zip(ours, theirs))
        counts = {f.name: rows[f.name][-1][1] for f in filesystems}
        writes, reads = (" / ".join(f"{counts[f.name][slot]}, {counts[f.name][slot + 1] >> 20}"
                                    for f in filesystems) for slot in (2, 0))
        median, other = statistics.median(ours), statistics.median(theirs)
        print(f"| {workload} | {WORKLOADS[workload][1]} | {median:.0f} | {other:.0f} "
              f"| **{median / other:.2f}** ({ratios}) | {writes} | {reads} |")


def print_comparison(results):
    """Both builds beside each other and beside btrfs, by the medians of the ratios of each round."""
    print("| workload | later / earlier (each round) | of btrfs: later | earlier |")
    print("|---|---|---|---|")
    for workload, rows in results.items():
        later, earlier, btrfs = ([rate for rate, _ in rows[name]] for name in ("cowraid", "earlier", "btrfs"))
        ratios = [a / b for a, b in zip(later, earlier)]
        beside = (statistics.median(a / b for a, b in zip(rates, btrfs)) for rates in (later, earlier))
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"| {workload} | **{statistics.median(ratios):.2f}** ({each}) | "
              + " | ".join(f"{ratio:.2f}" for ratio in beside) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build-release")
    parser.add_argument("--profile", default="raid5", choices=METADATA)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", default="/dev/shm")
    parser.add_argument("--member-mib", type=int, default=MEMBER_MIB)
    parser.add_argument("--only", choices=["cowraid", "btrfs"], help="one filesystem, no table")
    parser.add_argument("--earlier", help="another build, in turn with the rest")
    parser.add_argument("workload", nargs="*", help=", ".join(WORKLOADS))
    arguments = parser.parse_args()
    for workload in arguments.workload:
        if workload not in WORKLOADS:
            parser.error(f"no workload {workload}")
    if arguments.only and arguments.earlier:
        parser.error("--earlier has its place beside both")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or devices would stay behind
    members = Members(arguments.scratch, arguments.member_mib)
    try:
        filesystems = [Cowraid(members, arguments.build, arguments.profile),
                       Btrfs(members, arguments.profile)]
        chosen = [f for f in filesystems if arguments.only in (None, f.name)]
        if arguments.earlier:
            chosen.insert(1, Cowraid(members, arguments.earlier, arguments.profile, "earlier"))
        results = {}
        for round_number in range(arguments.rounds):
            if arguments.earlier and round_number:
                chosen[:2] = reversed(chosen[:2])
            for workload in arguments.workload or WORKLOADS:
                for filesystem in chosen:
                    rate, counts = measure(filesystem, members, workload)
                    results.setdefault(workload, {}).setdefault(filesystem.name, []).append((rate, counts))
                    reads, writes = (f"{counts[slot]}, {counts[slot + 1] >> 20} MiB" for slot in (0, 2))
                    print(f"round {round_number + 1} {workload} {filesystem.name}: {rate:.0f}; "
                          f"reads {reads}; writes {writes}", file=sys.stderr)
        if not arguments.only:
            print_table(results, filesystems)
        if arguments.earlier:
            print_comparison(results)
        print(f"peak resident memory of the daemon: {filesystems[0].peak_kib >> 10} MiB")
    finally:
        members.close()


if __name__ == "__main__":
    main()
