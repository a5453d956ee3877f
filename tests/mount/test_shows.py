# SPDX-License-Identifier: MIT
"""Whole volumes of 100,000 files and 2 GiB. Only with COWRAID_LONG=1; TMPDIR chooses where (about 15 GiB)."""

import json
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from conftest import Volume, run, tool

FILE_COUNT, FILES_PER_FOLDER = 100000, 500
SMALL_BYTES_MAX = 6000
BIG_COUNT, BIG_BYTES = 16, 128 << 20
MEMBER_MIB = 768
LOST_PAIRS = [(1, 2), (1, 8), (4, 5)]  # member ids
ROTTEN_MEMBER = 3
ROT_SHARE = 0.1
ROT_BYTES = 64 * 1024

pytestmark = pytest.mark.skipif(os.environ.get("COWRAID_LONG") != "1", reason="long: COWRAID_LONG=1 runs it")


class Tree:
    """A tree outside the volume, and the list of its checksums in the form that sha256sum -c reads."""

    def __init__(self, folder):
        self.folder, self.sums = folder / "tree", folder / "sums"
        generator = random.Random(1)
        for index in range(FILE_COUNT):
            path = self.folder / f"d{index // FILES_PER_FOLDER}" / f"f{index}"
            if index % FILES_PER_FOLDER == 0:
                path.parent.mkdir(parents=True)
            path.write_bytes(generator.randbytes(generator.randrange(SMALL_BYTES_MAX)))
        for index in range(BIG_COUNT):
            (self.folder / f"big{index}").write_bytes(generator.randbytes(BIG_BYTES))
        with open(self.sums, "wb") as file:
            file.write(run("sh", "-c", "find . -type f -print0 | sort -z | xargs -0 sha256sum",
                           cwd=self.folder, timeout=900).stdout.encode())
        assert len(self.sums.read_text().splitlines()) == FILE_COUNT + BIG_COUNT

    def copy_to(self, mount_point):
        run("cp", "-a", f"{self.folder}/.", mount_point, timeout=1800)

    def verify(self, mount_point):
        """sha256sum prints a line for each file; every one has to be fine, and all have to be there."""
        lines = run("sha256sum", "-c", self.sums, cwd=mount_point, timeout=1800).stdout.splitlines()
        assert len(lines) == FILE_COUNT + BIG_COUNT
        assert all(line.endswith(": OK") for line in lines)
        return f"sha256sum -c: {len(lines)} files OK"


@pytest.fixture(scope="module")
def tree():
    folder = Path(tempfile.mkdtemp(prefix="cowraid-tree-"))
    try:
        yield Tree(folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def make_large(tree):
    made = []

    def make(**options):
        volume = Volume(scratch=tempfile.gettempdir(), member_mib=MEMBER_MIB, **options)
        made.append(volume)
        volume.make()
        volume.mount()
        tree.copy_to(volume.mount_point)
        volume.unmount()
        return volume

    yield make
    for volume in made:
        volume.destroy()


def error_counters(volume):
    """By member id: the counters that are not zero."""
    stats = volume.counters()["device-stats"]
    not_zero = {}
    for line in stats:
        devid = line.pop("devid")
        counters = {name: value for name, value in line.items() if isinstance(value, int) and value != 0}
        if counters:
            not_zero[devid] = counters
    return not_zero


class FreshCopy:
    """The images of a volume put aside, so that every run begins with what the first unmount left."""

    def __init__(self, volume):
        self.volume, self.aside = volume, volume.folder / "aside"
        self.aside.mkdir()
        volume.hide(range(len(volume.images)))
        for image in volume.images:
            os.rename(image, self.aside / image.name)

    def take(self, wiped):
        """Copies everything; the members at these indexes are wiped with zeros from end to end."""
        for index, image in enumerate(self.volume.images):
            run("cp", "--sparse=always", self.aside / image.name, image, timeout=600)
            if index in wiped:
                os.truncate(image, 0)
                os.truncate(image, MEMBER_MIB << 20)
        self.volume.unhide(range(len(self.volume.images)))

    def drop(self):
        self.volume.hide(range(len(self.volume.images)))


def test_two_wiped_members(make_large, tree):
    volume = make_large(member_count=8, data="raid6", metadata="raid1c3")
    fresh = FreshCopy(volume)
    for pair in LOST_PAIRS:
        fresh.take([member - 1 for member in pair])
        volume.drop_caches()
        survivor = volume.devices[next(index for index in range(8) if index + 1 not in pair)]
        refused = volume.mount([survivor], check=False)
        assert refused.returncode == 32 and "degraded" in refused.stderr
        volume.mount([survivor], "degraded")
        verified = tree.verify(volume.mount_point)
        shown = tool("cowraid", "filesystem", "show", volume.mount_point).stdout
        named = next(line.strip() for line in shown.splitlines() if "missing" in line)
        assert named == f"*** Some devices missing: devid {pair[0]} and devid {pair[1]}", shown
        assert shown.count("path MISSING") == 2
        assert set(error_counters(volume)) <= set(pair), error_counters(volume)
        volume.unmount()
        print(f"members {pair} wiped: {verified}; show: {named}; other members' counters: all zero")
        fresh.drop()


class Rot:
    """Random bytes over a share of one member, in pieces all over it, superblocks included."""

    def __init__(self, image, seed):
        self.image = image
        generator = random.Random(seed)
        places = range(0, (MEMBER_MIB << 20) - ROT_BYTES + 1, ROT_BYTES)
        with open(image, "r+b") as file:
            self.bytes = 0
            for place in generator.sample(places, int(len(places) * ROT_SHARE)):
                self.bytes += os.pwrite(file.fileno(), generator.randbytes(ROT_BYTES), place)
            os.fsync(file.fileno())


def summary_of(findings):
    kinds = sorted({finding["kind"] for finding in findings})
    return ", ".join(f"{sum(f['kind'] == kind for f in findings)} {kind}" for kind in kinds) or "nothing"


def test_a_tenth_of_a_member_is_rotten(make_large, tree):
    volume = make_large(member_count=8, data="raid5", metadata="raid1")
    volume.mount(options="cache=1M")
    rot = Rot(volume.images[ROTTEN_MEMBER - 1], 2)
    volume.drop_caches()
    tree.verify(volume.mount_point)
    first = error_counters(volume)
    assert set(first) == {ROTTEN_MEMBER}, first
    volume.drop_caches()
    verified = tree.verify(volume.mount_point)
    assert error_counters(volume) == first
    volume.unmount()
    checked = tool("cowraid", "check", "--json", volume.devices[0], check=False, timeout=900)
    findings = json.loads(checked.stdout)["findings"]
    print(f"{rot.bytes >> 20} MiB of member {ROTTEN_MEMBER} random: twice {verified}; counted {first}; "
          f"check then: {summary_of(findings)}")
    assert findings
    for finding in findings:
        assert finding["member"] == ROTTEN_MEMBER and finding["repairable"], finding
        # What no reader meets: parity, pads, the other copies of trees, maps and superblocks.
        assert finding["kind"] in ("parity", "pad", "tree", "member", "map", "superblock"), finding
