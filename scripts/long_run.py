#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Runs that are too long for one sitting, cut into shards that can be stopped and taken up again.

    scripts/long_run.py simulator FIRST..LAST          250 seeds a shard
    scripts/long_run.py crash PROFILE STATES           10,000 states a shard; each seed is another workload;
                                                       --join: writes in place, --clean: with the cleaner,
                                                       --balance: balances; --returning: members come back;
                                                       --by-order: one leaves and does while mounted;
                                                       --catch-up: and what they missed is written;
                                                       --log-blocks N: write-intent logs that wrap;
                                                       --change-members: added, replaced, removed;
                                                       --resize: made smaller and larger;
                                                       --scrub: members rot and are scrubbed;
                                                       --spares: spares take the places of those that fail
    scripts/long_run.py pairs ROUNDS                   every pair of operations on a volume at once, 5 rounds
                                                       a shard
    scripts/long_run.py kill PROFILE ROUNDS            20 rounds of kill -9 under load a shard; needs root

Every finished shard appends one line to the results file: when, commit, shard, outcome, seconds, what it
said. Shards that have a line for this commit are not run again, but their outcome counts. A tree with
changes has a commit of its own, named after the changes. Exit status 1 when a shard violated, or when crash
shards saw fewer states than asked for.
"""

import argparse
import concurrent.futures
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEEDS_PER_SHARD, STATES_PER_SHARD, ROUNDS_PER_SHARD, PAIR_ROUNDS_PER_SHARD = 250, 10000, 20, 5
STATES_SPARE = 0.02  # crash-replay shares its states out over instants and stays a little below the number
SHARD_SECONDS_MAX = 7200
LINES_SHOWN = 60  # of a shard that violated
MOUNT_PROGRAMS = ("mkfs.cowraid", "mount.cowraid", "umount.fuse.cowraid", "cowraid")
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
MODES_OF_CRASH = ("join", "clean", "returning", "catch-up", "balance", "by-order", "change-members",
                  "resize", "scrub", "spares")
PROGRAMS_OF_KINDS = {"simulator": "tests/simulator", "crash": "tests/crash-replay",
                     "pairs": "tests/volume_test"}
PROFILES_OF_KILL = ("raid5", "raid6")

# name: how the results file knows it; command, environment: run it; pattern: the line that sums it up.
Shard = namedtuple("Shard", "name command environment pattern")
Result = namedtuple("Result", "time commit shard outcome seconds summary")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-test", metavar="DIR", help="build folder (build-test)")
    parser.add_argument("--results", default="long-run.results", metavar="FILE",
                        help="appended to (long-run.results)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="shards side by side (1)")
    kinds = parser.add_subparsers(dest="kind", required=True)
    simulator = kinds.add_parser("simulator")
    simulator.add_argument("range", type=parse_range, metavar="FIRST..LAST")
    crash = kinds.add_parser("crash")
    crash.add_argument("profile")
    crash.add_argument("states", type=positive)
    crash.add_argument("--members", type=positive, default=4, metavar="N")
    crash.add_argument("--log-blocks", type=positive, metavar="N")
    for mode in MODES_OF_CRASH:
        crash.add_argument(f"--{mode}", action="store_true")
    pairs = kinds.add_parser("pairs")
    pairs.add_argument("rounds", type=positive)
    kill = kinds.add_parser("kill")
    kill.add_argument("profile", choices=PROFILES_OF_KILL)
    kill.add_argument("rounds", type=positive)
    return parser.parse_args()


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a count")
    return int(text)


def parse_range(text):
    match = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if match is None or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"'{text}' is not FIRST..LAST")
    return int(match[1]), int(match[2])


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def commit_name():
    commit = output_of("git", "rev-parse", "--short=12", "HEAD").decode().strip()
    changes = output_of("git", "diff", "--binary", "HEAD")
    return commit + ("+" + hashlib.sha256(changes).hexdigest()[:8] if changes else "")


def simulator_shards(programs, arguments):
    first, last = arguments.range
    for begin in range(first, last + 1, SEEDS_PER_SHARD):
        seeds = f"{begin}..{min(begin + SEEDS_PER_SHARD - 1, last)}"
        yield Shard(f"simulator {seeds}", [programs / "simulator", f"--seeds={seeds}"], {},
                    r"^simulator: seeds .*violations.*$")


def crash_shards(programs, arguments):
    profile, members = arguments.profile, arguments.members
    modes = [f"--{mode}" for mode in MODES_OF_CRASH if vars(arguments)[mode.replace("-", "_")]]
    if arguments.log_blocks is not None:
        modes.append(f"--log-blocks={arguments.log_blocks}")
    for seed, begin in enumerate(range(0, arguments.states, STATES_PER_SHARD), 1):
        states = min(STATES_PER_SHARD, arguments.states - begin)
        command = [programs / "crash-replay", f"--members={members}", f"--profile={profile}",
                   f"--seed={seed}", f"--states={int(states * (1 + STATES_SPARE))}", *modes]
        name = " ".join(["crash", profile, *modes, f"members={members} seed={seed} states={states}"])
        yield Shard(name, command, {},
                    r"^crash-replay .*violations=.*$")


def pair_shards(programs, arguments):
    for seed, begin in enumerate(range(0, arguments.rounds, PAIR_ROUNDS_PER_SHARD), 1):
        rounds = min(PAIR_ROUNDS_PER_SHARD, arguments.rounds - begin)
        yield Shard(f"pairs seed={seed} rounds={rounds}", [programs / "volume_test", "-tc=pairs*"],
                    {"COWRAID_PAIR_ROUNDS": str(rounds), "COWRAID_SEED": str(seed)},
                    r"^\[doctest\] test cases: +1 \| +1 passed.*$")


def kill_shards(programs, arguments):
    for seed, begin in enumerate(range(0, arguments.rounds, ROUNDS_PER_SHARD), 1):
        rounds = min(ROUNDS_PER_SHARD, arguments.rounds - begin)
        command = [python_with_pytest(), "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider",
                   ROOT / "tests/mount/test_killed.py", "-k", f"under_load and {arguments.profile}"]
        environment = {"COWRAID_BUILD_DIR": str(programs), "COWRAID_KILL_ROUNDS": str(rounds),
                       "COWRAID_SEED": str(seed)}
        yield Shard(f"kill {arguments.profile} seed={seed} rounds={rounds}", command, environment,
                    r"kill \w+: seed .*$")


def python_with_pytest():
    """The distribution's pytest belongs to the distribution's Python, which may not be the first in PATH."""
    for python in ("/usr/bin/python3", sys.executable):
        command = [python, "-c", "import pytest"]
        if subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return python
    sys.exit("long_run: no Python with pytest")


def copy_programs(arguments, folder):
    """Builds, then copies, so that what the results name is what ran to the end, whoever builds meanwhile."""
    build = Path(arguments.build)
    build = build if build.is_absolute() else ROOT / build
    if arguments.kind == "kill":
        names = [f"tools/{name}" for name in MOUNT_PROGRAMS]
    else:
        names = [PROGRAMS_OF_KINDS[arguments.kind]]
    built = subprocess.run(["ninja", "-C", build, *names], check=False, text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)
    if built.returncode != 0:
        print("\n".join(built.stdout.splitlines()[-LINES_SHOWN:]))
        sys.exit(f"long_run: {build} does not build")
    for name in names:
        target = folder / (name if arguments.kind == "kill" else Path(name).name)
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(build / name, target)


class ResultsFile:
    """Tab-separated lines, only ever appended to; each is on the disk before the next shard is counted."""

    def __init__(self, path):
        self.path, self.mutex = Path(path), threading.Lock()

    def finished(self, commit):
        if not self.path.exists():
            return {}
        lines = (line.split("\t") for line in self.path.read_text(encoding="utf-8").splitlines())
        results = (Result(*fields) for fields in lines if len(fields) == len(Result._fields))
        return {result.shard: result for result in results if result.commit == commit}

    def append(self, result):
        with self.mutex, open(self.path, "a", encoding="utf-8") as file:
            file.write("\t".join(result) + "\n")
            file.flush()
            os.fsync(file.fileno())


class Runner:
    """Runs shards side by side; when interrupted it ends those under way, which then have no line."""

    def __init__(self, commit, results):
        self.commit, self.results = commit, results
        self.running, self.stopped, self.mutex = set(), False, threading.Lock()

    def start(self, shard):
        with self.mutex:
            if self.stopped:
                return None
            process = subprocess.Popen([str(word) for word in shard.command], cwd=ROOT, text=True,
                                       errors="replace", env={**os.environ, **shard.environment},
                                       start_new_session=True,  # the terminal's ^C is ours alone
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.running.add(process)
            return process

    def run(self, shard):
        started = time.monotonic()
        process = self.start(shard)
        if process is None:
            return None
        try:
            output, outcome = process.communicate(timeout=SHARD_SECONDS_MAX)[0], None
        except subprocess.TimeoutExpired:
            process.terminate()
            output, outcome = process.communicate()[0], "hangs"
        with self.mutex:
            self.running.discard(process)
            if self.stopped:
                return None
        found = re.findall(shard.pattern, output, re.MULTILINE)
        # Success without the line that sums it up is no success: it may have run nothing.
        outcome = outcome or ("ok" if process.returncode == 0 and found else "violated")
        result = Result(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), self.commit, shard.name, outcome,
                        f"{time.monotonic() - started:.0f}", found[-1].replace("\t", " ") if found else "-")
        self.results.append(result)
        if outcome != "ok":
            print("\n".join(output.splitlines()[-LINES_SHOWN:]))
        print("  ".join(result), flush=True)
        return result

    def stop(self):
        with self.mutex:
            self.stopped = True
            for process in self.running:
                process.terminate()


def run_all(runner, shards, jobs):
    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(runner.run, shard) for shard in shards]
        try:
            return [future.result() for future in futures]
        except KeyboardInterrupt:
            # Shards clean up what they mounted; that is waited for, whoever is impatient.
            for number in INTERRUPTS:
                signal.signal(number, signal.SIG_IGN)
            runner.stop()
            raise


def states_seen(results):
    found = (re.search(r" states=(\d+) ", result.summary) for result in results)
    return sum(int(match[1]) for match in found if match is not None)


def summarise(arguments, commit, results, skipped):
    bad = [result.shard for result in results if result.outcome != "ok"]
    enough = True
    seen = ""
    if arguments.kind == "crash":
        seen = f", {states_seen(results)} of {arguments.states} states"
        enough = states_seen(results) >= arguments.states
    print(f"commit {commit}: {len(results)} shards ({skipped} from the results file){seen}, "
          f"{len(bad)} violated{': ' if bad else ''}{', '.join(bad)}")
    return 0 if enough and not bad else 1


def main():
    arguments = parse_arguments()
    for number in INTERRUPTS:
        signal.signal(number, signal.default_int_handler)
    commit = commit_name()
    results = ResultsFile(arguments.results)
    kinds = {"simulator": simulator_shards, "crash": crash_shards, "pairs": pair_shards, "kill": kill_shards}
    with tempfile.TemporaryDirectory(prefix="cowraid-long-run-") as folder:
        copy_programs(arguments, Path(folder))
        shards = list(kinds[arguments.kind](Path(folder), arguments))
        finished = results.finished(commit)
        done = [finished[shard.name] for shard in shards if shard.name in finished]
        left = [shard for shard in shards if shard.name not in finished]
        ran = run_all(Runner(commit, results), left, arguments.jobs)
    return summarise(arguments, commit, done + ran, len(done))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("long_run: interrupted; the same command goes on from here")
