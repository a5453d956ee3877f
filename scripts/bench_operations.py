#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Measures what an administrator starts: scrub, replace, balance --convert; and what others notice of it.

Rates: cowraid and kernel btrfs in turn on the same eight loop devices, each round a fresh filesystem with
the same files; MiB of data per second of the command, caches dropped before each. Latencies: fio at half of
the rate that the volume gives, quiet and beside each kind of background work; the 99th percentile. Prints
Markdown for docs/BENCHMARKS.md. Run as root on an otherwise idle machine. What a filesystem refuses is left
out, with a word.

    scripts/bench_operations.py [--rounds 3] [--profile raid5] [ROW...]
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

import bench

MEMBERS = 8
SMALL_FILES, SMALL_BYTES = 4000, 12 << 10
PATTERN_BYTES = 64 << 20
LIMIT_MIB = 300
LATENCY_SECONDS = 6
CHURN_MIB = 1024


class Refused(Exception):
    """The filesystem cannot do it, and says why."""


def command(*words):
    """Seconds that it takes."""
    started = time.monotonic()
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        said = (result.stderr.strip() or result.stdout.strip()).splitlines()
        raise Refused(said[-1] if said else f"exit code {result.returncode}")
    return time.monotonic() - started


class Devices(bench.Members):
    """Eight members, and one more device to replace one with."""

    def __init__(self, scratch, member_mib):
        super().__init__(scratch, member_mib, MEMBERS + 1)
        self.spare = self.devices.pop()

    def device_counts(self):
        """Of all nine: they change places."""
        self.devices.append(self.spare)
        counts = super().device_counts()
        self.devices.pop()
        return counts

    def swap(self, index):
        self.devices[index], self.spare = self.spare, self.devices[index]

    def close(self):
        self.devices.append(self.spare)
        super().close()


def fill(members, mebibytes):
    """Incompressible: big files, and some thousand small ones. Returns the bytes."""
    pattern = os.urandom(PATTERN_BYTES)
    total = mebibytes << 20
    small = min(SMALL_FILES, total // 8 // SMALL_BYTES)
    for index in range(small):
        folder = members.mount_point / f"small{index // 500}"
        folder.mkdir(exist_ok=True)
        at = index * 4099 % (PATTERN_BYTES - SMALL_BYTES)
        (folder / str(index)).write_bytes(pattern[at:at + SMALL_BYTES])
    left = total - small * SMALL_BYTES
    for number in range(8):
        with open(members.mount_point / f"big{number}", "wb") as file:
            end = left // 8
            for at in range(0, end, 1 << 20):
                skew = (number * 1021 + (at >> 20) * 4099) % (PATTERN_BYTES - (1 << 20))
                file.write(memoryview(pattern)[skew:skew + min(1 << 20, end - at)])
    os.sync()
    return total


class Cowraid(bench.Cowraid):
    def tool(self, *words):
        return command(self.tools / "cowraid", *words)

    def scrub(self, *options):
        return self.tool("scrub", "start", "-B", *options, self.members.mount_point)

    def replace(self, index):
        return self.tool("replace", "start", "-B", "-f", index + 1, self.members.spare,
                         self.members.mount_point)

    def replace_missing(self, index):
        self.tool("device", "offline", index + 1, self.members.mount_point)
        return self.replace(index)

    def convert(self):
        return self.tool("balance", "start", "--convert", "raid6", self.members.mount_point)


class Btrfs(bench.Btrfs):
    def scrub(self):
        return command("btrfs", "scrub", "start", "-B", self.members.mount_point)

    def replace(self, index):
        return command("btrfs", "replace", "start", "-B", "-f", index + 1, self.members.spare,
                       self.members.mount_point)

    def replace_missing(self, index):
        members = self.members
        self.unmount()
        bench.run("wipefs", "-q", "-a", members.devices[index])
        bench.run("btrfs", "device", "scan", "--forget")
        others = [device for at, device in enumerate(members.devices) if at != index]
        bench.run("btrfs", "device", "scan", *others)
        bench.run("mount", "-t", "btrfs", "-o", "noatime,degraded", others[0], members.mount_point)
        return self.replace(index)

    def convert(self):
        # Data alone: on members of this size its conversion of metadata ends with "no space left".
        return command("btrfs", "balance", "start", "-dconvert=raid6", self.members.mount_point)


def measure_rates(filesystem, members, mebibytes, rows, results):
    """One fresh filesystem through all operations, the one that changes the profile last."""
    bench.drop_caches()
    bench.warm_memory()
    filesystem.make()
    mib = fill(members, mebibytes) / (1 << 20)
    operations = {
        "scrub": filesystem.scrub,
        "replace": lambda: filesystem.replace(2),
        "replace-missing": lambda: filesystem.replace_missing(4),
        "convert": filesystem.convert,
    }
    for name, carry_out in operations.items():
        if name not in rows or (name == "convert" and filesystem.profile != "raid5"):
            continue
        bench.make_cold(members, filesystem)
        key = (f"{name} to raid6" if name == "convert" else name, filesystem.profile)
        try:
            rate = mib / carry_out()
        except Refused as refusal:
            print(f"{key[0]} {key[1]} {filesystem.name}: left out: {refusal}", file=sys.stderr)
            continue
        if name.startswith("replace"):
            members.swap(2 if name == "replace" else 4)
        counts = [b - a for a, b in zip(members.mark, members.device_counts())]
        results.setdefault(key, {}).setdefault(filesystem.name, []).append(rate)
        print(f"{key[0]} {key[1]} {filesystem.name}: {rate:.0f} MiB/s; members read {counts[1] >> 20} MiB "
              f"in {counts[0]} requests, wrote {counts[3] >> 20} MiB in {counts[2]}",
              file=sys.stderr, flush=True)
    filesystem.unmount()


def print_rates(results):
    print("| operation | profile | cowraid, MiB/s of data | btrfs | ratio (each round) |")
    print("|---|---|---|---|---|")
    for (name, profile), rates in results.items():
        ours, theirs = rates.get("cowraid", []), rates.get("btrfs", [])
        if not ours or len(ours) != len(theirs):
            print(f"| {name} | {profile} | {'refused' if not ours else f'{statistics.median(ours):.0f}'} "
                  f"| {'refused' if not theirs else f'{statistics.median(theirs):.0f}'} | |")
            continue
        ratios = [a / b for a, b in zip(ours, theirs)]
        print(f"| {name} | {profile} | {statistics.median(ours):.0f} | {statistics.median(theirs):.0f} "
              f"| **{statistics.median(ratios):.2f}** ({', '.join(f'{ratio:.2f}' for ratio in ratios)}) |")


class Load:
    """A reader and a writer of 4 KiB at random, an fsync after each write. Rates None: as fast as they go."""

    def __init__(self, members, rates=None, seconds=LATENCY_SECONDS):
        common = ["--ioengine=psync", "--direct=1", "--bs=4k", "--size=256M", "--time_based",
                  f"--runtime={seconds}", "--fallocate=none", "--percentile_list=50:99:99.9"]
        words = ["fio", "--output-format=json", f"--directory={members.mount_point}", "--randrepeat=0"]
        for number, (name, options) in enumerate((("reader", ["--rw=randread"]),
                                                  ("writer", ["--rw=randwrite", "--fsync=1"]))):
            words += [f"--name={name}", *options, *common]
            words += [f"--rate_iops={max(1, int(rates[number]))}"] if rates else []
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def result(self):
        """Operations per second and 99th percentiles in microseconds, of reader and writer."""
        jobs = json.loads(self.process.communicate()[0])["jobs"]
        reads, writes = jobs[0]["read"], jobs[1]["write"]
        sync = jobs[1]["sync"]["lat_ns"]["percentile"]["99.000000"]
        return {"rates": (reads["iops"], writes["iops"]),
                "read": reads["clat_ns"]["percentile"]["99.000000"] / 1000,
                "write": (writes["clat_ns"]["percentile"]["99.000000"] + sync) / 1000}


def replacement_of(filesystem):
    return status_of(filesystem, "status")["volumes"][0]["replace"]["state"]


def status_of(filesystem, *words):
    result = subprocess.run([str(word) for word in (filesystem.tools / "cowraid", *words, "--json",
                                                    filesystem.members.mount_point)],
                            capture_output=True, text=True, check=False)
    return json.loads(result.stdout) if result.stdout else {}


def beside(filesystem, rates, start, running):
    """Percentiles of the load while the work runs, and whether it ran to the end of the load. Nobody asks
    meanwhile: a command that begins every now and then is a load of its own."""
    start()
    return Load(filesystem.members, rates).result(), running()


def prepare_catch_up(filesystem):
    members = filesystem.members
    filesystem.tool("device", "offline", 3, members.mount_point)
    with open(members.mount_point / "meanwhile", "wb") as file:
        for _ in range(CHURN_MIB):
            file.write(os.urandom(1 << 20))
    os.sync()


def prepare_cleaner(filesystem):
    """So full, and so scattered, that block groups must be emptied."""
    mount_point = filesystem.members.mount_point
    number = 0
    while True:
        space = os.statvfs(mount_point)
        if space.f_bavail * space.f_frsize < 256 << 20:
            break
        with open(mount_point / f"scatter{number}", "wb") as file:
            for _ in range(64):
                file.write(os.urandom(1 << 20))
        number += 1
    for file in mount_point.glob("scatter*"):
        for at in range(0, 64 << 20, 16 << 20):
            with open(file, "r+b") as handle:
                bench.run("fallocate", "-p", "-o", at, "-l", 4 << 20, file)
    os.sync()


def moved_blocks(filesystem):
    text = subprocess.run([filesystem.tools / "cowraid", "metrics", filesystem.members.mount_point],
                          capture_output=True, text=True, check=True).stdout
    return sum(float(line.split()[-1]) for line in text.splitlines()
               if line.startswith("cowraid_cleaner_moved_blocks_total"))


class Cleaning:
    """The cleaner starts by itself: it ran if it moved something."""

    def __init__(self, filesystem):
        self.filesystem, self.before = filesystem, 0

    def start(self):
        self.before = moved_blocks(self.filesystem)

    def ran(self):
        moved = moved_blocks(self.filesystem) - self.before
        print(f"the cleaner moved {moved / 256:.0f} MiB", file=sys.stderr)
        return moved > 0


def measure_latencies(filesystem, mebibytes, rows):
    """The 99th percentiles, quiet and beside each kind of work: {name: (read, write, still running)}."""
    members = filesystem.members
    filesystem.make()
    fill(members, mebibytes)
    Load(members, seconds=2).result()  # lays its files out
    full = Load(members, seconds=4).result()["rates"]
    rates = [rate / 2 for rate in full]
    print(f"full load: {full[0]:.0f} reads, {full[1]:.0f} writes with fsync a second", file=sys.stderr)
    found = {}

    def note(name, result, running=True):
        found.setdefault(name, []).append((result["read"], result["write"], running))
        print(f"{name}: read {result['read']:.0f} us, write and fsync {result['write']:.0f} us, "
              f"rates {result['rates'][0]:.0f} {result['rates'][1]:.0f}"
              f"{'' if running else '; the work ended before the load'}", file=sys.stderr, flush=True)

    note("quiet", Load(members, rates).result())
    where = members.mount_point
    cleaning = Cleaning(filesystem)
    works = {
        "scrub": (None, lambda: filesystem.tool("scrub", "start", where),
                  lambda: status_of(filesystem, "scrub", "status").get("state") == "running"),
        "catch-up": (prepare_catch_up, lambda: filesystem.tool("device", "online", members.devices[2], where),
                     lambda: any(line["stale_groups"] for line in
                                 status_of(filesystem, "device", "stats")["device-stats"])),
        "replace": (None, lambda: filesystem.tool("replace", "start", "-f", 1, members.spare, where),
                    lambda: replacement_of(filesystem) == "running"),
        "balance": (None, lambda: filesystem.tool("balance", "start", "--bg", "--convert", "raid6", where),
                    lambda: status_of(filesystem, "balance", "status").get("state") == "running"),
        "cleaner": (prepare_cleaner, cleaning.start, cleaning.ran),
    }
    for name, (prepare, start, running) in works.items():
        if name not in rows:
            continue
        if prepare:
            prepare(filesystem)
        note("quiet", Load(members, rates, 3).result())
        note(name, *beside(filesystem, rates, start, running))
        deadline = time.monotonic() + 120
        while name != "cleaner" and running() and time.monotonic() < deadline:
            time.sleep(0.2)
        if name == "replace":
            members.swap(0)
    filesystem.unmount()
    return found


def print_latencies(found):
    quiet = [statistics.median(row[slot] for row in found["quiet"]) for slot in (0, 1)]
    print("| beside | read, 99th percentile in us | of quiet | write and fsync | of quiet |")
    print("|---|---|---|---|---|")
    for name, rows in found.items():
        read, write = (statistics.median(row[slot] for row in rows) for slot in (0, 1))
        ended = "" if all(row[2] for row in rows) else " (ended before the load)"
        print(f"| {name}{ended} | {read:.0f} | {read / quiet[0]:.2f} "
              f"| {write:.0f} | {write / quiet[1]:.2f} |")


def measure_limit(filesystem, mebibytes):
    """What `scrub --limit` keeps to, of what it says."""
    filesystem.make()
    fill(filesystem.members, mebibytes)
    filesystem.scrub("--limit", f"{LIMIT_MIB}m")
    status = status_of(filesystem, "scrub", "status")
    filesystem.unmount()
    rate = status["bytes_done"] / (1 << 20) / (status["run_ms"] / 1000)
    print(f"scrub --limit {LIMIT_MIB}m: {rate:.0f} MiB/s of members, {rate / LIMIT_MIB:.2f} of the limit")


RATES = ["scrub", "replace", "replace-missing", "convert"]
LATENCIES = ["scrub", "catch-up", "replace", "balance", "cleaner"]
ROWS = RATES + ["limit"] + [f"latency-{name}" for name in LATENCIES]


def measure(arguments, members):
    rows = arguments.row or ROWS
    rates, latencies = {}, {}
    for _ in range(arguments.rounds if set(rows) & set(RATES) else 0):
        for profile in [arguments.profile] if arguments.profile else ["raid5", "raid6"]:
            for filesystem in (Cowraid(members, arguments.build, profile), Btrfs(members, profile)):
                if arguments.only in (None, filesystem.name):
                    measure_rates(filesystem, members, arguments.mebibytes, rows, rates)
    beside_rows = [name for name in LATENCIES if f"latency-{name}" in rows]
    volume = Cowraid(members, arguments.build, "raid5")
    for _ in range(arguments.rounds if beside_rows else 0):
        for name, found in measure_latencies(volume, arguments.mebibytes, beside_rows).items():
            latencies.setdefault(name, []).extend(found)
    if rates:
        print_rates(rates)
    if latencies:
        print_latencies(latencies)
    if "limit" in rows:
        measure_limit(volume, arguments.mebibytes // 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=bench.ROOT / "build-release")
    parser.add_argument("--profile", choices=["raid5", "raid6"], help="this one only")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", default="/dev/shm")
    parser.add_argument("--member-mib", type=int, default=1024)
    parser.add_argument("--mebibytes", type=int, default=3072, help="of data")
    parser.add_argument("--only", choices=["cowraid", "btrfs"], help="one filesystem, no ratios")
    parser.add_argument("row", nargs="*", help=", ".join(ROWS))
    arguments = parser.parse_args()
    for row in arguments.row:
        if row not in ROWS:
            parser.error(f"no row {row}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or devices would stay behind
    members = Devices(arguments.scratch, arguments.member_mib)
    try:
        measure(arguments, members)
    finally:
        members.close()


if __name__ == "__main__":
    main()
