# SPDX-License-Identifier: MIT
"""Random operations on files, compared with a model (tests/fileops/); many more with COWRAID_LONG=1, or as
many as COWRAID_OPERATIONS says."""

import hashlib
import itertools
import os
import threading
import time

import pytest

from conftest import PATIENCE, TOOLS, random_content, run, tool
from test_catch_up import without

PROGRAM = TOOLS.parent / "tests" / "file_ops"
LONG = os.environ.get("COWRAID_LONG") == "1"
SEED = int(os.environ.get("COWRAID_SEED", "1"))
# Name and mount options of a column of runs.
OPTIONS = {"plain": "", "zstd": "compress=zstd:1"} | ({"forced": "compress-force=zstd:3"} if LONG else {})
# Profiles and members; the last of these are the ones that are away when some are.
PROFILES = {"raid5": ("raid1", 4, 1), "raid6": ("raid1c3", 5, 2)}
OPERATIONS = {"healthy": 25_000, "missing": 5_000, "busy": 5_000}
FORGETTABLE = ["write", "direct write", "mapped write", "vector write", "append", "punch", "zero range",
               "fallocate", "truncate", "copy_file_range"]
MIB = 1 << 20


def file_ops(volume, operations, *more, check=True, seed=SEED):
    return run(PROGRAM, volume.mount_point, f"--seed={seed}", f"--operations={operations}", "--exact-holes",
               "--drop-caches", *more, check=check, timeout=PATIENCE + operations / 100)


def sums(volume):
    folder = volume.mount_point / f"file_ops.{SEED}"
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()
             if path.stat().st_size < 100 * MIB}
    assert len(found) >= 2
    return found


def fill_in_part(volume):
    """So full, and with so many holes, that the cleaner empties block groups."""
    number = 0
    while os.statvfs(volume.mount_point).f_bavail * 4096 > 120 * MIB:
        with open(volume.mount_point / f"fill{number}", "wb") as file:
            for _ in range(32):
                file.write(random_content(MIB))
        number += 1
    os.sync()
    for path in volume.mount_point.glob("fill*"):
        for at in range(0, 32 * MIB, 8 * MIB):
            run("fallocate", "-p", "-o", at, "-l", 2 * MIB, path)
    os.sync()


def cleaned_blocks(volume):
    lines = tool("cowraid", "metrics", volume.mount_point).stdout.splitlines()
    value, = (line.split()[-1] for line in lines if line.startswith("cowraid_cleaner_moved_blocks_total"))
    return float(value)


class Commands(threading.Thread):
    """One scrub and one balance after the other, until it is told to end."""

    def __init__(self, volume):
        super().__init__()
        self.volume, self.over, self.ended, self.failures = volume, threading.Event(), [], []

    def run(self):
        while not self.over.is_set():
            for words in (("scrub",), ("balance", "start", "-dusage=60")):
                result = tool("cowraid", *words, self.volume.mount_point, check=False)
                self.ended.append(words[0])
                if result.returncode != 0 or (words[0] == "scrub" and "no errors found" not in result.stdout):
                    self.failures.append(result.stdout + result.stderr)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for name in ("scrub", "balance"):
            tool("cowraid", name, "cancel", self.volume.mount_point, check=False)
        self.join()


def perform(volume, operations, seed):
    result = file_ops(volume, operations, "--keep", check=False, seed=seed)
    print(result.stdout[-8000:])
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr
    assert f"{operations} operations, seed {seed}: all as expected" in result.stdout


def perform_beside_work(volume, operations):
    """Until a scrub and a balance have ended meanwhile, and the cleaner has moved something."""
    fill_in_part(volume)
    deadline = time.monotonic() + 5 * PATIENCE
    with Commands(volume) as commands:
        for seed in itertools.count(SEED):
            perform(volume, operations, seed)
            if {"scrub", "balance"} <= set(commands.ended) and cleaned_blocks(volume) > 0:
                break
            assert time.monotonic() < deadline, (commands.ended, cleaned_blocks(volume))
            if seed > SEED:
                run("rm", "-r", volume.mount_point / f"file_ops.{seed}")
        failures = list(commands.failures)
    assert failures == []


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("data", PROFILES)
@pytest.mark.parametrize("condition", OPERATIONS)
def test_files_hold_what_the_model_holds(make_volume, condition, data, options):
    metadata, count, may_be_away = PROFILES[data]
    away = list(range(may_be_away)) if condition == "missing" else []
    volume = make_volume(data=data, metadata=metadata, member_count=count, member_mib=256)
    volume.make()
    volume.hide(away)
    volume.mount(without(volume, away), ",".join(filter(None, [OPTIONS[options], away and "degraded"])))
    operations = int(os.environ.get("COWRAID_OPERATIONS", OPERATIONS[condition] * (40 if LONG else 1)))
    if condition == "busy":
        perform_beside_work(volume, operations)
    else:
        perform(volume, operations, SEED)
    before = sums(volume)
    volume.unmount()
    volume.unhide(away)
    volume.mount(None, OPTIONS[options] or None)
    volume.wait_caught_up()
    assert sums(volume) == before
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    volume.unmount()
    assert volume.check()["clean"]


def test_what_the_model_forgets_is_found(make_volume):
    """The comparison sees every kind of change: the same run fails when its model leaves some of them out."""
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    file_ops(volume, 3000)
    for operation in FORGETTABLE:
        result = file_ops(volume, 3000, f"--forget={operation}", check=False)
        assert result.returncode == 1, (operation, result.stdout, result.stderr)
        assert "MISMATCH" in result.stdout and f"--seed={SEED}" in result.stdout
        run("rm", "-r", volume.mount_point / f"file_ops.{SEED}")
    assert file_ops(volume, 10, "--forget=read", check=False).returncode == 2
