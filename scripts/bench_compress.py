#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Measures compression beside kernel btrfs with the same level, on the same loop devices.

Every round writes each kind of data to a fresh filesystem of each side: a source tree file by file, the same
tree as one archive, logs, and random bytes. The clock stops when all is durable. Ratios are bytes of files
by bytes of data blocks, and by these with nodes, which hold small files on both sides; parity and copies are
not counted. Random bytes are also written without compression, to see what looking at them costs. Run as root
on an otherwise idle machine.

    scripts/bench_compress.py [--build build-release] [--profile raid5] [--levels 1 3] [--rounds 3] [KIND...]
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import bench

MEMBER_MIB = 768
MEMBERS = 6
TREE_SOURCES = ("/usr/include", "/usr/lib/python3", "/usr/share/perl", "/usr/lib/python3.11")
TREE_MIB = 400
LOG_MIB = 600
RANDOM_MIB = 600
BLOCK = 4096


def make_tree(folder):
    """Copies of source files of this system, up to TREE_MIB; returns their bytes."""
    total, copy = 0, 0
    while total < TREE_MIB << 20:
        copy += 1
        before = total
        for source in TREE_SOURCES:
            for path in sorted(Path(source).rglob("*")):
                if path.is_symlink() or not path.is_file() or path.suffix in (".pyc", ".so", ".a"):
                    continue
                if total >= TREE_MIB << 20:
                    return total
                target = folder / f"copy{copy}" / path.relative_to("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                total += target.stat().st_size
        if total == before:
            sys.exit("no source files on this system")
    return total


def make_logs(path):
    """Lines as of a web server: times, addresses, paths, numbers."""
    draw = random.Random(1)
    kinds = ("user", "item", "img", "api", "static")
    words = [f"{draw.choice(kinds)}/{draw.randrange(4000)}" for _ in range(900)]
    with open(path, "w", encoding="ascii") as file:
        seconds = 0
        while file.tell() < LOG_MIB << 20:
            seconds += 1
            file.writelines(
                f"10.{draw.randrange(8)}.{draw.randrange(256)}.{draw.randrange(256)} - - "
                f"[29/Nov/2026:{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02} +0000] "
                f"\"GET /{words[draw.randrange(900)]} HTTP/1.1\" {draw.choice((200, 200, 200, 304, 404))} "
                f"{draw.randrange(90000)} \"-\" \"Mozilla/5.0 (X11; Linux x86_64)\"\n" for _ in range(400))


def make_random(path):
    with open(path, "wb") as file:
        for _ in range(RANDOM_MIB):
            file.write(os.urandom(1 << 20))


class Sources:
    """What is written, in memory."""

    def __init__(self, scratch):
        self.folder = Path(tempfile.mkdtemp(prefix="cowraid-sources-", dir=scratch))
        (self.folder / "tree").mkdir()
        make_tree(self.folder / "tree")
        with tarfile.open(self.folder / "archive", "w") as archive:
            archive.add(self.folder / "tree", "tree")
        make_logs(self.folder / "logs")
        make_random(self.folder / "random")

    def close(self):
        shutil.rmtree(self.folder)


class Cowraid(bench.Cowraid):
    def mount(self):
        options = [] if self.level is None else ["-o", f"compress=zstd:{self.level}"]
        bench.run(self.tools / "mount.cowraid", *options, *self.members.devices, self.members.mount_point)

    def used_bytes(self):
        report = json.loads(bench.run(self.tools / "cowraid", "filesystem", "usage", "--json",
                                      self.members.mount_point))
        data = sum(space["used_bytes"] for space in report["spaces"] if "data" in space["content"])
        return data, sum(space["used_bytes"] for space in report["spaces"])


class Btrfs(bench.Btrfs):
    def mount(self):
        options = "noatime" if self.level is None else f"noatime,compress=zstd:{self.level}"
        bench.run("mount", "-t", "btrfs", "-o", options, self.members.devices[0], self.members.mount_point)

    def used_bytes(self):
        data = nodes = 0
        for line in bench.run("btrfs", "filesystem", "df", "-b", self.members.mount_point).splitlines():
            used = int(line.rsplit("used=", 1)[1])
            data += used if line.startswith("Data") else 0
            nodes += used if line.startswith(("Metadata", "System")) else 0
        return data, data + nodes


def file_bytes(folder):
    total = 0
    for where, _, names in os.walk(folder):
        total += sum(os.lstat(f"{where}/{name}").st_size for name in names)
    return total


def measure(filesystem, members, source):
    """MiB/s until durable, and file bytes by data bytes, without and with nodes."""
    bench.drop_caches()
    filesystem.make()
    started = time.monotonic()
    subprocess.run(["cp", "-r", "--sparse=never", source, members.mount_point], check=True)
    os.sync()
    seconds = time.monotonic() - started
    size = file_bytes(members.mount_point)
    filesystem.unmount()
    filesystem.mount()  # with all of it in the trees
    ratios = [size / max(used, BLOCK) for used in filesystem.used_bytes()]
    filesystem.unmount()
    return size / seconds / (1 << 20), ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=bench.ROOT / "build-release")
    parser.add_argument("--profile", default="raid5", choices=bench.METADATA)
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", default="/dev/shm")
    parser.add_argument("kind", nargs="*", default=["tree", "archive", "logs", "random"])
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or devices would stay behind
    sources = Sources(arguments.scratch)
    members = bench.Members(arguments.scratch, MEMBER_MIB, MEMBERS)
    try:
        sides = [Cowraid(members, arguments.build, arguments.profile), Btrfs(members, arguments.profile)]
        print("| kind | level | cowraid MiB/s | btrfs MiB/s | write (each round) "
              "| ratio (with nodes) | btrfs' |")
        print("|---|---|---|---|---|---|---|")
        for kind in arguments.kind:
            for level in [None, *arguments.levels]:
                rows = {side.name: [] for side in sides}
                for number in range(arguments.rounds):
                    for side in sides if number % 2 else reversed(sides):
                        side.level = level
                        rows[side.name].append(measure(side, members, sources.folder / kind))
                ours, theirs = ([rate for rate, _ in rows[side.name]] for side in sides)
                each = [a / b for a, b in zip(ours, theirs)]
                print(f"| {kind} | {level} | {statistics.median(ours):.0f} | {statistics.median(theirs):.0f} "
                      f"| **{statistics.median(each):.2f}** ({', '.join(f'{x:.2f}' for x in each)}) "
                      + "".join("| {:.2f} ({:.2f}) ".format(*rows[side.name][-1][1]) for side in sides) + "|",
                      flush=True)
    finally:
        members.close()
        sources.close()


if __name__ == "__main__":
    main()
