#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A file of 95 % of the free space under random 4 KiB writes: what an ever full volume is like.

fio writes; beside it one writer asks statfs whenever a write meets ENOSPC, which must not happen while
space is reported. Once a second throughput, write amplification and free space are noted; the plot goes to
--out.
At the end the volume is unmounted and checked. Members are files below --scratch. Run as root.

    scripts/full_volume.py [--build build-release] [--profile raid5] [--seconds 600] [--out plot.svg]
"""

import argparse
import errno
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
METADATA = {"raid5": "raid1", "raid6": "raid1c3"}
BLOCK = 4096


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{command} returned {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


class Volume:
    """Members as loop devices over files with all their blocks in place."""

    def __init__(self, arguments):
        self.tools = Path(arguments.build) / "tools"
        self.folder = Path(tempfile.mkdtemp(prefix="cowraid-full-", dir=arguments.scratch))
        self.mount_point = self.folder / "mnt"
        self.mount_point.mkdir()
        self.devices = []
        for index in range(arguments.members):
            image = self.folder / f"member{index}"
            with open(image, "wb") as file:
                for _ in range(arguments.member_mib):
                    file.write(bytes(1 << 20))
            self.devices.append(run("losetup", "-f", "--show", "--direct-io=on", image).strip())
        run(self.tools / "mkfs.cowraid", "-q", "-d", arguments.profile, "-m", METADATA[arguments.profile],
            *self.devices)
        run(self.tools / "mount.cowraid", *self.devices, self.mount_point)

    def usage(self):
        return json.loads(run(self.tools / "cowraid", "filesystem", "usage", "--json", self.mount_point))

    def unmount(self):
        run(self.tools / "umount.fuse.cowraid", self.mount_point)

    def check(self):
        return subprocess.run([self.tools / "cowraid", "check", self.devices[0]], capture_output=True,
                              text=True, check=False)

    def close(self):
        subprocess.run(["umount", str(self.mount_point)], capture_output=True, check=False)
        for device in self.devices:
            subprocess.run(["losetup", "-d", device], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", str(self.folder)], check=False)


def find(tree, key):
    """The first value of the key, at any depth."""
    if isinstance(tree, dict):
        if key in tree:
            return tree[key]
        tree = list(tree.values())
    if isinstance(tree, list):
        for branch in tree:
            found = find(branch, key)
            if found is not None:
                return found
    return None


class Prober(threading.Thread):
    """Overwrites blocks of a file of its own; compares every refusal with statfs of that moment."""

    def __init__(self, path, blocks):
        super().__init__()
        self.path, self.blocks = path, blocks
        self.writes, self.refusals, self.wrong = 0, 0, []
        self.over = threading.Event()

    def run(self):
        generator = random.Random(1)
        fd = os.open(self.path, os.O_WRONLY)
        content = os.urandom(BLOCK)
        while not self.over.wait(0.005):
            try:
                os.pwrite(fd, content, generator.randrange(self.blocks) * BLOCK)
                self.writes += 1
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                free = os.statvfs(self.path).f_bavail
                self.refusals += 1
                if free > 0:
                    self.wrong.append(free)
        os.close(fd)


def sample(volume, seconds, rows):
    """One row a second: time, MiB/s of data, bytes to members per byte of data, free MiB, joined blocks."""
    last, started = None, time.monotonic()
    while time.monotonic() - started < seconds:
        now, usage = time.monotonic() - started, volume.usage()
        data, members = find(usage, "data_bytes_written"), find(usage, "member_bytes_written")
        log, joined = find(usage, "intent_log_bytes"), find(usage, "joined_blocks")
        space = os.statvfs(volume.mount_point)
        if last is not None and data > last[1]:
            rows.append((now, (data - last[1]) / (now - last[0]) / (1 << 20),
                         (members + log - last[2]) / (data - last[1]),
                         space.f_bavail * space.f_frsize >> 20, joined))
        last = (now, data, members + log)
        time.sleep(1)


def curve(rows, column, top, colour):
    end = rows[-1][0]
    points = " ".join(f"{40 + 720 * row[0] / end:.1f},{270 - 240 * min(1, row[column] / top):.1f}"
                      for row in rows)
    return f'<polyline points="{points}" fill="none" stroke="{colour}"/>'


def plot(rows, path, title):
    rate, amplification = max(row[1] for row in rows), max(row[2] for row in rows)
    Path(path).write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="800" height="300" font-family="sans-serif" '
        'font-size="12"><rect width="800" height="300" fill="white"/>'
        f'<text x="40" y="18">{title}: throughput (blue, full scale {rate:.0f} MiB/s), write '
        f'amplification (red, full scale {amplification:.1f}), over {rows[-1][0]:.0f} s</text>'
        '<path d="M40 30V270H760" fill="none" stroke="black"/>'
        + curve(rows, 1, rate, "blue") + curve(rows, 2, amplification, "red") + "</svg>\n", encoding="ascii")


def load(volume, arguments):
    """Fills the file, overwrites it for the time given; the rows of samples and the prober."""
    space = os.statvfs(volume.mount_point)
    probe_blocks = 64
    blocks = space.f_bavail * 95 // 100 - probe_blocks
    target, probe = volume.mount_point / "target", volume.mount_point / "probe"
    probe.write_bytes(os.urandom(probe_blocks * BLOCK))
    run("fio", "--name=fill", f"--filename={target}", "--rw=write", "--bs=1M", f"--size={blocks * BLOCK}",
        "--end_fsync=1", "--fallocate=none")
    prober, rows = Prober(probe, probe_blocks), []
    prober.start()
    sampler = threading.Thread(target=sample, args=(volume, arguments.seconds, rows))
    sampler.start()
    report = json.loads(run("fio", "--output-format=json", "--name=overwrite", f"--filename={target}",
                            "--rw=randwrite", "--bs=4k", f"--size={blocks * BLOCK}", "--direct=1",
                            "--ioengine=libaio", "--iodepth=16", "--time_based",
                            f"--runtime={arguments.seconds}", "--continue_on_error=write", "--end_fsync=1"))
    sampler.join()
    prober.over.set()
    prober.join()
    return report["jobs"][0], rows, prober


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build-release")
    parser.add_argument("--profile", default="raid5", choices=METADATA)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--member-mib", type=int, default=256)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--scratch", default="/dev/shm")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    volume = Volume(arguments)
    try:
        job, rows, prober = load(volume, arguments)
        volume.unmount()
        check = volume.check()
    finally:
        volume.close()
    if arguments.out and rows:
        plot(rows, arguments.out, f"{arguments.profile}, {arguments.members} members, 95 % full")
    print(f"{job['write']['total_ios']} writes of 4 KiB by fio, {job['total_err']} refused; "
          f"{job['write']['bw'] / 1024:.1f} MiB/s")
    for row in rows[:: max(1, len(rows) // 12)]:
        print(f"  {row[0]:5.0f} s: {row[1]:6.1f} MiB/s, amplification {row[2]:5.2f}, {row[3]} MiB free, "
              f"{row[4]} blocks joined")
    print(f"prober: {prober.writes} writes, {prober.refusals} refused, of these while statfs reported space: "
          f"{len(prober.wrong)}")
    print(f"check: {'clean' if check.returncode == 0 else check.stdout + check.stderr}")
    return 0 if check.returncode == 0 and not prober.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
