#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A file of 95 % of the free space under random 4 KiB writes: what an ever full volume is like.

fio writes until its first error; beside it one writer asks statfs whenever a write meets ENOSPC, which must
not happen while space is reported. Once a second throughput, write amplification and free space are noted;
the plot goes to --out.
At the end the volume is unmounted and checked. Members are files below --scratch. Run as root.

    scripts/full_volume.py [--build build-release] [--profile raid5] [--seconds 600] [--out plot.svg]

What the cleaner costs a program: latencies with --options clean=on and clean=off, and --rate-iops for a
program that leaves members time.
"""

import argparse
import errno
import json
import os
import random
import signal
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
        run(self.tools / "mount.cowraid", "-o", arguments.options, *self.devices, self.mount_point)

    def usage(self):
        return json.loads(run(self.tools / "cowraid", "filesystem", "usage", "--json", self.mount_point))

    def unmount(self):
        result = subprocess.run([self.tools / "umount.fuse.cowraid", self.mount_point], capture_output=True,
                                text=True, check=False)
        if result.returncode != 0:
            print(f"unmount: {result.stderr}", end="")

    def check(self):
        return subprocess.run([self.tools / "cowraid", "check", self.devices[0]], capture_output=True,
                              text=True, check=False)

    def close(self):
        subprocess.run(["umount", "--lazy", str(self.mount_point)], capture_output=True, check=False)
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
        super().__init__(daemon=True)
        self.path, self.blocks = path, blocks
        self.writes, self.refusals, self.wrong, self.stopped = 0, 0, [], None
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
                    self.stopped = error
                    break
                free = os.statvfs(self.path).f_bavail
                self.refusals += 1
                if free > 0:
                    self.wrong.append(free)
        os.close(fd)


def written_by_fio(log):
    """MiB/s of each second, by fio's own log."""
    rates = {}
    for line in log.read_text(encoding="ascii").splitlines():
        milliseconds, kib = line.split(",")[:2]
        rates[int(milliseconds) // 1000] = int(kib) / 1024
    return rates


class Sampler(threading.Thread):
    """What members took and what is free, once a second from now."""

    def __init__(self, volume, seconds):
        super().__init__(daemon=True)
        self.volume, self.seconds, self.samples = volume, seconds, []

    def run(self):
        started = time.monotonic()
        while time.monotonic() - started < self.seconds:
            usage = self.volume.usage()
            space = os.statvfs(self.volume.mount_point)
            self.samples.append((time.monotonic() - started,
                                 find(usage, "member_bytes_written") + find(usage, "intent_log_bytes"),
                                 space.f_bavail * space.f_frsize >> 20, find(usage, "joined_blocks")))
            time.sleep(1)

    def rows(self, rates):
        """Time, MiB/s written by fio, bytes to members (trees and logs included) per byte written, free MiB,
        blocks put into rows that held others."""
        rows = []
        for last, now in zip(self.samples, self.samples[1:]):
            seconds = [second for second in rates if last[0] <= second + 1 < now[0]]
            rate = sum(rates[second] for second in seconds) / max(1, len(seconds))
            if rate > 0:
                members = (now[1] - last[1]) / (now[0] - last[0]) / (1 << 20)
                rows.append((now[0], rate, members / rate, now[2], now[3]))
        return rows


def curve(rows, column, top, colour):
    end = rows[-1][0]
    points = " ".join(f"{40 + 720 * row[0] / end:.1f},{270 - 240 * min(1, row[column] / top):.1f}"
                      for row in rows)
    return f'<polyline points="{points}" fill="none" stroke="{colour}"/>'


def plot(rows, path, title):
    rate, amplification = max(row[1] for row in rows), max(row[2] for row in rows)
    Path(path).write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="800" height="300" font-family="sans-serif" '
        'font-size="12"><!-- SPDX-License-Identifier: MIT --><rect width="800" height="300" fill="white"/>'
        f'<text x="40" y="18">{title}: throughput (blue, full scale {rate:.0f} MiB/s), write '
        f'amplification (red, full scale {amplification:.1f}), over {rows[-1][0]:.0f} s</text>'
        '<path d="M40 30V270H760" fill="none" stroke="black"/>'
        + curve(rows, 1, rate, "blue") + curve(rows, 2, amplification, "red") + "</svg>\n", encoding="ascii")


def load(volume, arguments):
    """Fills the file, overwrites it for the time given; the rows of samples and the prober."""
    space = os.statvfs(volume.mount_point)
    probe_blocks = 64
    # Whole MiB, as the first fio writes them: the second finds the file as it wants it, and does not make it
    # anew.
    blocks = (space.f_bavail * 95 // 100 - probe_blocks) // 256 * 256
    target, probe = volume.mount_point / "target", volume.mount_point / "probe"
    probe.write_bytes(os.urandom(probe_blocks * BLOCK))
    run("fio", "--name=fill", f"--filename={target}", "--rw=write", "--bs=1M", f"--size={blocks * BLOCK}",
        "--end_fsync=1", "--fallocate=none")
    prober, sampler = Prober(probe, probe_blocks), Sampler(volume, arguments.seconds)
    prober.start()
    sampler.start()
    log = volume.folder / "rate"
    fio = subprocess.run(["fio", "--output-format=json", "--name=overwrite", f"--filename={target}",
                          "--rw=randwrite", "--bs=4k", f"--size={blocks * BLOCK}", "--direct=1",
                          "--ioengine=libaio", "--iodepth=16", "--time_based",
                          f"--runtime={arguments.seconds}", "--fallocate=none", f"--write_bw_log={log}",
                          "--log_avg_msec=1000",
                          *([f"--rate_iops={arguments.rate_iops}"] if arguments.rate_iops else [])],
                         capture_output=True, text=True, check=False)
    sampler.join()
    prober.over.set()
    prober.join()
    # Errors stand in front of the report, a line each.
    report = json.loads(fio.stdout[fio.stdout.index("{"):])["jobs"][0]
    return report, sampler.rows(written_by_fio(Path(f"{log}_bw.1.log"))), prober


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build-release")
    parser.add_argument("--profile", default="raid5", choices=METADATA)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--member-mib", type=int, default=256)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--scratch", default="/dev/shm")
    parser.add_argument("--options", default="clean=on", help="of the mount")
    parser.add_argument("--rate-iops", type=int, help="writes a second at most, all that can be had without")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or devices would stay behind
    volume = Volume(arguments)
    try:
        job, rows, prober = load(volume, arguments)
        volume.unmount()
        check = volume.check()
    finally:
        volume.close()
    if arguments.out and rows:
        plot(rows, arguments.out, f"{arguments.profile}, {arguments.members} members, 95 % full")
    print(f"{job['write']['total_ios']} writes of 4 KiB by fio, {job['write']['bw'] / 1024:.1f} MiB/s; "
          + (f"ended by: {os.strerror(job['error'])}" if job["error"] else "none refused"))
    latency = job["write"]["clat_ns"]["percentile"]
    print("latency: " + ", ".join(f"{name} {latency[key] / 1e6:.2f} ms" for name, key in
                                  (("half", "50.000000"), ("99 %", "99.000000"), ("99.9 %", "99.900000"),
                                   ("99.99 %", "99.990000"))))
    for row in rows[:: max(1, len(rows) // 12)]:
        print(f"  {row[0]:5.0f} s: {row[1]:6.1f} MiB/s, amplification {row[2]:5.2f}, {row[3]} MiB free, "
              f"{row[4]} blocks joined")
    print(f"prober: {prober.writes} writes, {prober.refusals} refused, of these while statfs reported space: "
          f"{len(prober.wrong)}")
    if prober.stopped:
        print(f"prober: {prober.stopped}")
    print(f"check: {'clean' if check.returncode == 0 else check.stdout + check.stderr}")
    return 1 if check.returncode != 0 or prober.wrong or prober.stopped or job["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
