#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Partial rows, measured: four tables as markdown from `cowraid bench raid56`, published figures beside.

    scripts/bench_raid56.py [--build build-release] [--rounds 3] [--quick] [--output FILE] [a b c d]

a  RAID6 read-modify-write     b  plug against none, and cache sizes
c  stripe I/O size             d  request merging

Members are simulated: in memory where requests are counted, disk drives (docs/BENCHMARKS.md, "Spindle
model") where throughput is measured. Every table names its command; options are fixed here and not tuned to
a result.
"""

import argparse
import json
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_FOUND = "not found"
KIB = 1024

# Linux commit 584acdd49cd2, "md/raid5: activate raid6 rmw feature", 2014: KB/s by block size; rmw_level 1 and
# 0, both with skip_copy=0, md's default, and with skip_copy=1. 10 disks of 7,200 rpm, 64K chunk, 8 threads.
MD_RMW = {
    "4K": ((165, 140), (115, 141)),
    "8K": ((324, 274), (225, 275)),
    "16K": ((640, 534), (434, 536)),
    "32K": ((1234, 1045), (751, 1051)),
    "64K": ((2282, 1962), (1339, 1958)),
    "128K": ((4113, 3898), (2673, 3862)),
    "256K": ((7557, 7638), (7685, 7539)),
    "512K": ((19652, 19688), (19556, 19558)),
}
# md's member requests per write (reads, writes), counted: Linux 6.1, 10 members, 64K chunk, random, depth 1.
MD_COUNTS = {
    "4K": {1: (2.98, 3.05), 0: (6.83, 3.05)},
    "8K": {1: (2.96, 3.06), 0: (6.86, 3.06)},
    "16K": {1: (2.94, 3.05), 0: (6.81, 3.05)},
    "32K": {1: (2.95, 3.05), 0: (6.83, 3.05)},
    "64K": {1: (2.94, 3.05), 0: (6.81, 3.05)},
    "128K": {1: (3.95, 4.10), 0: (5.85, 4.10)},
    "256K": {1: (3.90, 6.10), 0: (3.90, 6.10)},
    "512K": {1: (0, 10.1), 0: (0, 10.1)},
}
# Linux commit e236858243d7, "md/raid5: set default stripe_size as 4096", 2020: MB/s with 4K and 64K; 4 SSDs.
MD_STRIPE_SIZE = {("randwrite", "4K"): (100, 15), ("seqwrite", "1M"): (700, 1000)}
# Linux commit 8b3e6cdc53b7, "md: introduce get_priority_stripe()", 2008: 4 disks, RAID5. The figures of the
# stripe queue patches of 2007 themselves were searched for and not found.
MD_PRIORITY_STRIPE = (
    f"Published: the figures of the stripe queue patches (2007): {NOT_FOUND}. A later patch by the same "
    "author (Linux 8b3e6cdc53b7, 2008, four disks): dd 1.33 and 1.25 times (stripe_cache_size 256, 512), "
    "tiobench writes 1.13 times, 1.37 with preread_bypass_threshold 0.")
# Linux commit fc05e06, "md/raid5: Improve performance for sequential IO": RAID5 on three disks, iozone writes
# in KB/s with requests that are merged worse, and better.
MD_MERGING = (
    f"Published: requests by record size: {NOT_FOUND}. What worse merging cost md (Linux fc05e06, three "
    "disks, iozone, KB/s): records of 4 KB 421,785 against 497,682, of 8 KB 459,283 against 514,048.")


class Bench:
    """Runs the program with the options that all runs share."""

    def __init__(self, arguments):
        self.program = ROOT / arguments.build / "tools" / "cowraid"
        self.rounds = 1 if arguments.quick else arguments.rounds
        self.seconds = 10 if arguments.quick else 60
        self.scale = arguments.time_scale
        self.commands = 0
        self.late_ms = 0.0  # worst mean of a run on drives since late_line()

    def spindle(self):
        return ["--spindle", f"--time-scale={self.scale}", f"--runtime={self.seconds}"]

    def run(self, *options):
        command = [str(self.program), "bench", "raid56", "--json", *[str(option) for option in options]]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            sys.exit(f"{' '.join(command)} returned {result.returncode}\n{result.stdout}{result.stderr}")
        self.commands += 1
        answer = json.loads(result.stdout)
        for series in answer["series"]:
            for one in series["rounds"]:
                if not one["verified"] or one["bad_blocks"] != 0:
                    sys.exit(f"{' '.join(command)}: blocks were bad or not verified")
                drives = one.get("spindles", {"requests": 0})
                if drives["requests"] > 0:
                    self.late_ms = max(self.late_ms, drives["late_sum_ns"] / drives["requests"] / 1e6)
        return answer

    def late_line(self):
        """How far the machine missed the drives' clock in the table that ends here."""
        late, self.late_ms = self.late_ms, 0.0
        return (f"Time scale {self.scale}: answers of drives came {late:.2f} ms late on average in the run "
                "where they were latest.")

    def compare(self, option, values, *options):
        """The median throughputs in bytes per second, the ratio, and the series."""
        answer = self.run(f"--compare={option}={','.join(values)}", f"--rounds={self.rounds}", *options)
        series = answer["series"]
        return [throughput(one) for one in series], answer["ratio"]["median"], series


def throughput(series):
    values = sorted(one["bytes_per_second"] for one in series["rounds"])
    return values[(len(values) - 1) // 2]


def per_operation(series, key):
    operations = sum(one["operations"] for one in series["rounds"])
    return sum(one["members"][key] for one in series["rounds"]) / operations


def hit_rate(series):
    hits = sum(one["partial_writes"]["cache_hits"] for one in series["rounds"])
    misses = sum(one["partial_writes"]["cache_misses"] for one in series["rounds"])
    return 100 * hits / (hits + misses) if hits + misses > 0 else 0.0


def size_of(text):
    return int(text[:-1]) * {"K": KIB, "M": KIB * KIB}[text[-1]]


def number(value, digits=2):
    return f"{value:.{digits}f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def code(*options):
    return "`cowraid bench raid56 " + " ".join(str(option) for option in options) + "`"


def wrap(line):
    """Tables and headings as they are, prose in lines that an editor shows."""
    if line.startswith(("|", "#")) or not line:
        return line
    return textwrap.fill(line, 120, break_long_words=False, break_on_hyphens=False)


def verdict(good):
    return "yes" if good else "**no**"


def table_a(bench):
    shape = ["--profile=raid6", "--members=10", "--chunk=64K", "--pattern=randwrite"]
    counted = [*shape, f"--ops={2000 if bench.rounds == 1 else 10000}", "--plug=on"]
    timed = [*shape, "--size=256M", "--writers=8", *bench.spindle()]
    counts, rates = [], []
    for size, ((rmw, rcw), (rmw_skip, rcw_skip)) in MD_RMW.items():
        for level in (1, 0):
            series = bench.run(*counted, f"--block-size={size}", f"--rmw-level={level}")["series"][0]
            reads, writes = per_operation(series, "reads"), per_operation(series, "writes")
            md_reads, md_writes = MD_COUNTS[size][level]
            counts.append([size, str(level), f"{reads:.2f} / {writes:.2f}",
                           f"{md_reads:.2f} / {md_writes:.2f}",
                           verdict(reads + writes <= md_reads + md_writes),
                           number(per_operation(series, "log_writes")),
                           number(per_operation(series, "flushes")), f"{hit_rate(series):.1f} %"])
        speeds, ratio, _ = bench.compare("rmw-level", ["1", "0"], *timed, f"--block-size={size}")
        rates.append([size, *[number(speed / 1000, 0) for speed in speeds], number(ratio), number(rmw / rcw),
                      f"{rmw}, {rcw}", number(rmw_skip / rcw_skip)])
    yield "## a. RAID6 read-modify-write"
    yield ""
    yield (f"Member requests per write: {code(*counted, '--block-size=SIZE', '--rmw-level=N')}. "
           "md's: Linux 6.1, counted.")
    yield ""
    yield from table(["size", "rmw-level", "reads / writes", "md", "not more", "log writes", "flushes",
                      "cache hits"], counts)
    yield ""
    yield (f"Throughput on simulated drives, log writes included: {code(*timed, '--block-size=SIZE')} "
           f"`--compare=rmw-level=1,0 --rounds={bench.rounds}`. Published: Linux 584acdd49cd2 (2014), ten "
           "disks, skip_copy=0, without any log; in the last column with skip_copy=1.")
    yield ""
    yield from table(["size", "level 1, KB/s", "level 0, KB/s", "ratio", "published ratio", "published KB/s",
                      "with skip_copy=1"], rates)
    yield ""
    yield bench.late_line()


def table_b(bench):
    shape = ["--profile=raid5", "--members=4", "--chunk=64K", "--size=256M", *bench.spindle()]
    rows, reads, caches = [], [], []
    for pattern, out, least in (("seqwrite", rows, 1.65), ("seqread", reads, 0.95)):
        for size, depth in (("4K", 256), ("128K", 16)):
            for writers in (1, 2, 4, 8):
                speeds, ratio, series = bench.compare("plug", ["on", "off"], *shape, f"--pattern={pattern}",
                                                      f"--block-size={size}", f"--iodepth={depth}",
                                                      f"--writers={writers}")
                out.append([size, str(writers), *[number(speed / 1e6) for speed in speeds], number(ratio),
                            verdict(ratio >= least),
                            " / ".join(number(per_operation(one, "reads")) for one in series),
                            " / ".join(number(per_operation(one, "writes")) for one in series)])
    for size, depth in (("4K", 256), ("128K", 16)):
        for small, large in ((64, 1024), (1024, 4096)):
            speeds, ratio, _ = bench.compare("stripe-cache", [str(large), str(small)], *shape,
                                             "--pattern=seqwrite", "--writers=4", f"--block-size={size}",
                                             f"--iodepth={depth}")
            caches.append([size, f"{large} by {small}", *[number(speed / 1e6) for speed in speeds],
                           number(ratio), verdict(ratio >= 0.95)])
    command = code(*shape, "--pattern=PATTERN", "--block-size=SIZE", "--iodepth=DEPTH", "--writers=N")
    yield "## b. Stripe queue"
    yield ""
    yield (f"{command} `--compare=plug=on,off --rounds={bench.rounds}`; depth 256 for 4K, 16 for 128K: what "
           "a page cache would hand over.")
    yield MD_PRIORITY_STRIPE
    yield ""
    head = ["size", "threads", "plug on, MB/s", "off, MB/s", "ratio"]
    counts = ["member reads per operation, on / off", "writes, on / off"]
    yield "Sequential writers:"
    yield ""
    yield from table([*head, "at least 1.65", *counts], rows)
    yield ""
    yield "Sequential readers:"
    yield ""
    yield from table([*head, "at least 0.95", *counts], reads)
    yield ""
    yield f"Stripe cache, four sequential writers: {command} `--compare=stripe-cache=LARGE,SMALL`."
    yield ""
    yield from table(["size", "stripes", "larger, MB/s", "smaller, MB/s", "ratio", "at least 0.95"], caches)
    yield ""
    yield bench.late_line()


def table_c(bench):
    shape = ["--profile=raid5", "--members=4", "--chunk=64K", "--writers=2"]
    rows = []
    memory = ["--size=512M", f"--runtime={3 if bench.rounds == 1 else 10}"]
    for members, where in (("memory", memory), ("drives", ["--size=256M", *bench.spindle()])):
        for (pattern, size), (md_small, md_large) in MD_STRIPE_SIZE.items():
            depth = 64 if size == "4K" else 4
            speeds, ratio, series = bench.compare("stripe-io-size", ["4K", "64K"], *shape, *where,
                                                  f"--pattern={pattern}", f"--block-size={size}",
                                                  f"--iodepth={depth}")
            read = [number(per_operation(one, "read_bytes") / KIB, 1) for one in series]
            rows.append([f"{size} {pattern}", members, *[number(speed / 1e6) for speed in speeds],
                         number(ratio), verdict(ratio >= 0.95), f"{md_small}, {md_large}",
                         number(md_small / md_large), " / ".join(read)])
    yield "## c. Stripe I/O size"
    yield ""
    yield (f"{code(*shape, '--pattern=PATTERN', '--block-size=SIZE')} `--iodepth=64` (4K) or `4` (1M) "
           f"`--compare=stripe-io-size=4K,64K --rounds={bench.rounds}`; in memory `{' '.join(memory)}`, on "
           f"drives `{' '.join(['--size=256M', *bench.spindle()])}`. Published: Linux e236858243d7 (2020), "
           "four SSDs, pages of 64 KiB.")
    yield ""
    yield from table(["case", "members", "4K, MB/s", "64K, MB/s", "ratio", "at least 0.95", "published MB/s",
                      "published ratio", "KiB read per operation, 4K / 64K"], rows)
    yield ""
    yield bench.late_line()


def table_d(bench):
    chunk = 64 * KIB
    shape = ["--profile=raid5", "--members=4", "--chunk=64K", "--size=256M", "--writers=1",
             f"--ops={4096 if bench.rounds == 1 else 16384}"]
    rows = []
    for pattern in ("seqwrite", "randwrite"):
        for size in ("4K", "8K", "16K", "32K", "64K", "128K", "256K"):
            depth = max(2 * KIB * KIB // size_of(size), 8)
            series = bench.run("--compare=plug=on,off", "--rounds=1", *shape, f"--pattern={pattern}",
                               f"--block-size={size}", f"--iodepth={depth}")["series"]
            writes = [one["rounds"][0]["members"]["writes"] for one in series]
            limit = series[0]["rounds"][0]["members"]["write_bytes"] / chunk
            partial = series[0]["rounds"][0]["partial_writes"]
            rows.append([pattern, size, str(depth), str(writes[0]), str(writes[1]), number(limit, 0),
                         verdict(writes[0] <= limit) if pattern == "seqwrite" else "",
                         " / ".join(str(one["rounds"][0]["members"]["reads"]) for one in series),
                         " / ".join(str(one["rounds"][0]["members"]["log_writes"]) for one in series),
                         number(partial["requests"] / max(partial["batches"], 1), 1)])
    yield "## d. Request merging"
    yield ""
    yield (f"{code(*shape, '--pattern=PATTERN', '--block-size=SIZE', '--iodepth=DEPTH')} "
           "`--compare=plug=on,off --rounds=1`; requests seen by members.")
    yield MD_MERGING
    yield ""
    yield from table(["pattern", "size", "depth", "member writes, merged", "not merged",
                      "written bytes / chunk", "not more", "reads, merged / not", "log writes, merged / not",
                      "operations per batch"], rows)


TABLES = {"a": table_a, "b": table_b, "c": table_c, "d": table_d}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-release")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--time-scale", type=float, default=0.2, help="of the simulated drives")
    parser.add_argument("--quick", action="store_true", help="one short round each: to see that it works")
    parser.add_argument("--output", type=Path, help="write there instead of to standard output")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="a, b, c, d (default: all)")
    arguments = parser.parse_args()
    for name in arguments.tables:
        if name not in TABLES:
            parser.error(f"there is no table '{name}'")
    bench = Bench(arguments)
    if not bench.program.exists():
        sys.exit(f"{bench.program} is not there; build it first: ninja -C {arguments.build} tools/cowraid")
    lines = []
    for name in arguments.tables or TABLES:
        lines += [*map(wrap, TABLES[name](bench)), ""]
        print(f"table {name} is done, {bench.commands} runs so far", file=sys.stderr)
    text = "\n".join(lines).rstrip() + "\n"
    if arguments.output is not None:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
