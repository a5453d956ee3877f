#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Measures two builds of cowraid in short slices, one after the other.

Both are mounted at the same time, each on members of its own, and take slices of two seconds in turn,
so that the machine changes its speed for both alike. A pair is two fresh filesystems; every other pair makes
the earlier one first, because a build beside itself is some percent slower on the members that were made
first. The figures are the medians of the ratios of all slices, later / earlier, of the rates and of the
daemons' processor time per operation. Run as root on an otherwise idle machine.

    scripts/bench_slices.py --earlier EARLIER [--build build-release] [--pairs 2] [--slices 8] [WORKLOAD...]
"""

import argparse
import shutil
import signal
import statistics
import sys
import time

import bench

# Not measured unless they are named: they prepare or warm for as long as they measure, and what that takes is
# in their processor time.
LONG = ("fragmented-32k", "unlink-4k", "walk-stat", "dbench-4")
WORKLOADS = [name for name in bench.WORKLOADS if name not in LONG]


def clear(members):
    """Removes what a slice made, except the file of the random workloads."""
    for entry in members.mount_point.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif not entry.name.startswith("random"):
            entry.unlink()


def processor_ticks(filesystem):
    """Of the daemon that is mounted now: which process, and what it has used."""
    used = {}
    for process in filesystem.processes():
        fields = (process / "stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        used[process.name] = int(fields[11]) + int(fields[12])
    return max(used.items(), key=lambda item: item[1])


def take_slice(workload, members, filesystem):
    """The rate, and processor time per operation, in a unit that both sides share."""
    before, started = processor_ticks(filesystem), time.monotonic()
    rate = bench.WORKLOADS[workload][0](members, filesystem)
    operations = rate * (time.monotonic() - started)
    after = processor_ticks(filesystem)
    used = after[1] - (before[1] if before[0] == after[0] else 0)
    if not workload.startswith("stream-read"):
        clear(members)
    return rate, max(used, 1) / operations


def take_slices(workload, sides, count):
    """Ratios later / earlier of `count` slices of each side; sides: (members, filesystem)."""
    ratios = []
    for index in range(-1, count):  # the first one lays files out and warms
        taken = {}
        for members, filesystem in sides if index % 2 == 0 else reversed(sides):
            taken[filesystem.name] = take_slice(workload, members, filesystem)
        if index >= 0:
            ratios.append([later / earlier for later, earlier in zip(taken["later"], taken["earlier"])])
    return ratios


def run_pair(arguments, results, index):
    sides = []
    builds = [("later", arguments.build), ("earlier", arguments.earlier)]
    try:
        for name, build in builds if index % 2 == 0 else reversed(builds):
            members = bench.Members(arguments.scratch, arguments.member_mib)
            sides.append((members, bench.Cowraid(members, build, arguments.profile, name)))
        for workload in arguments.workload or WORKLOADS:
            bench.drop_caches()
            bench.warm_memory()
            for _, filesystem in sides:
                filesystem.make()
            ratios = take_slices(workload, sides, arguments.slices)
            results.setdefault(workload, []).append(ratios)
            print(f"{workload}: " + " ".join(f"{rate:.2f}/{used:.2f}" for rate, used in ratios),
                  file=sys.stderr, flush=True)
            for _, filesystem in sides:
                filesystem.unmount()
    finally:
        for members, _ in sides:
            members.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=bench.ROOT / "build-release")
    parser.add_argument("--earlier", required=True)
    parser.add_argument("--profile", default="raid5", choices=bench.METADATA)
    parser.add_argument("--pairs", type=int, default=2, help="of fresh filesystems")
    parser.add_argument("--slices", type=int, default=8, help="of each workload in a pair")
    parser.add_argument("--seconds", type=int, default=2, help="of a slice")
    parser.add_argument("--scratch", default="/dev/shm")
    parser.add_argument("--member-mib", type=int, default=512)
    parser.add_argument("workload", nargs="*", help=", ".join(bench.WORKLOADS))
    arguments = parser.parse_args()
    for workload in arguments.workload:
        if workload not in bench.WORKLOADS:
            parser.error(f"no workload {workload}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or devices would stay behind
    bench.SECONDS, bench.STREAM_MIB, bench.FILES = arguments.seconds, 1024, 5000
    results = {}
    for index in range(arguments.pairs):
        run_pair(arguments, results, index)
    print("| workload | pairs, slices | later / earlier | each pair | processor time per operation |")
    print("|---|---|---|---|---|")
    for workload, pairs in results.items():
        rates, used = zip(*(ratios for pair in pairs for ratios in pair))
        each = ", ".join(f"{statistics.median(rate for rate, _ in pair):.2f}" for pair in pairs)
        print(f"| {workload} | {len(pairs)}, {len(rates)} | **{statistics.median(rates):.2f}** | {each} "
              f"| {statistics.median(used):.2f} |")


if __name__ == "__main__":
    main()
