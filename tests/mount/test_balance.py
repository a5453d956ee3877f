# SPDX-License-Identifier: MIT
"""Balances on real mounts: beside writers, over kill -9, and how they are asked for."""

import itertools
import json
import os
import threading

import pytest

from conftest import PATIENCE, a_reader, random_content, run, tool, wait_for
from test_catch_up import without
from test_redundancy import fill, verify


def balance(volume, *arguments, check=True):
    return tool("cowraid", "balance", *arguments, volume.mount_point, check=check)


def state(volume):
    return json.loads(tool("cowraid", "balance", "status", "--json", volume.mount_point).stdout)


def profiles(volume):
    usage = json.loads(tool("cowraid", "filesystem", "usage", "--json", volume.mount_point).stdout)
    return {space["profile"] for space in usage["spaces"] if space["total_bytes"] > 0}


def wait_until_it_ends(volume):
    wait_for(lambda: state(volume)["state"] != "running", 5 * PATIENCE)


class Writer(threading.Thread):
    """Overwrites pieces of files of its own until it is told to end; knows what they must hold."""

    def __init__(self, folder):
        super().__init__()
        self.paths = [folder / f"written{number}" for number in range(4)]
        self.contents = [bytearray(random_content(4 << 20)) for _ in self.paths]
        for path, content in zip(self.paths, self.contents):
            path.write_bytes(content)
        self.ending = threading.Event()
        self.failure = None

    def run(self):
        try:
            for round_number in itertools.count():
                if self.ending.is_set():
                    return
                number = round_number % len(self.paths)
                offset = int.from_bytes(os.urandom(4), "little") % (4 << 20)
                piece = os.urandom(min(100000, (4 << 20) - offset))
                with open(self.paths[number], "r+b") as file:
                    file.seek(offset)
                    file.write(piece)
                    if round_number % 7 == 0:
                        os.fsync(file.fileno())
                self.contents[number][offset:offset + len(piece)] = piece
        except OSError as error:
            self.failure = error

    def finish(self):
        self.ending.set()
        self.join()
        assert self.failure is None

    def verify(self):
        for path, content in zip(self.paths, self.contents):
            assert path.read_bytes() == content


def test_raid5_becomes_raid6_beside_a_writer(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=512)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=80)
    big = random_content(150 << 20)
    (volume.mount_point / "big").write_bytes(big)
    writer = Writer(volume.mount_point)
    run("sync", "-f", volume.mount_point)
    writer.start()
    try:
        done = balance(volume, "--convert", "raid6")
    finally:
        writer.finish()
    assert "100%" in done.stdout and "done" in done.stdout
    assert profiles(volume) == {"raid6", "raid1c3"}
    verify(sums)
    writer.verify()
    assert (volume.mount_point / "big").read_bytes() == big
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    volume.unmount()
    volume.check()
    for pair in ([0, 1], [1, 3]):
        volume.hide(pair)
        volume.mount(without(volume, pair), "degraded,ro")
        verify(sums)
        writer.verify()
        assert (volume.mount_point / "big").read_bytes() == big
        volume.unmount()
        volume.unhide(pair)


@pytest.mark.parametrize("cancelled", [True, False])
def test_no_metadata_stays_weaker_than_data(make_volume, cancelled):
    """After a balance that was cancelled, and as mkfs made it."""
    volume = make_volume(data="raid5" if cancelled else "raid6", metadata="raid1", member_count=4,
                         member_mib=512)
    volume.make()
    volume.mount(options="background_share=1" if cancelled else None)
    sums = fill(volume.mount_point, 1, file_count=20)
    (volume.mount_point / "big").write_bytes(random_content((100 if cancelled else 5) << 20))
    run("sync", "-f", volume.mount_point)
    if cancelled:
        with a_reader(volume.mount_point / "big"):
            balance(volume, "--convert", "raid6", "--background")
            balance(volume, "cancel")
    assert "raid1" in profiles(volume)
    assert "2 afterwards" in balance(volume, "--convert", "raid6", "--plan").stdout
    assert "done" in balance(volume, "--convert", "raid6").stdout
    assert profiles(volume) == {"raid6", "raid1c3"}
    assert "nothing" in balance(volume, "--convert", "raid6", "--plan").stdout
    if not cancelled:  # told to be weaker it is
        balance(volume, "--convert", "raid6", "--metadata", "raid1", "--force")
        assert profiles(volume) == {"raid6", "raid1"}
        balance(volume, "--convert", "raid6")
    verify(sums)
    volume.unmount()
    volume.check()
    volume.hide([0, 2])
    volume.mount(without(volume, [0, 2]), "degraded,ro")
    verify(sums)
    volume.unmount()
    volume.unhide([0, 2])


def test_killed_it_goes_on_by_itself(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=512)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=80)
    big = random_content(250 << 20)
    (volume.mount_point / "big").write_bytes(big)
    run("sync", "-f", volume.mount_point)
    balance(volume, "--convert", "raid6", "--background")
    for _ in range(3):
        begun = state(volume)["bytes_left"]
        wait_for(lambda: state(volume)["state"] != "running" or state(volume)["bytes_left"] < begun)
        volume.kill()
        volume.mount()
        assert state(volume)["started"] == 0  # by an earlier mount, which is not known when
        assert (volume.mount_point / "big").read_bytes() == big
    wait_until_it_ends(volume)
    assert profiles(volume) == {"raid6", "raid1c3"}
    verify(sums)
    assert (volume.mount_point / "big").read_bytes() == big
    volume.unmount()
    volume.check()


def test_through_the_profiles(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=5, member_mib=256)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=60)
    for data, metadata, expected in (
            ("raid10", "raid10", {"raid10"}), ("raid0", "raid1", {"raid0", "raid1"}),
            ("raid1c4", "raid1c4", {"raid1c4"}), ("raid6", "raid5", {"raid6", "raid5", "raid1"}),
            ("raid10", "raid1c3", {"raid10", "raid1c3"})):
        balance(volume, "--convert", data, "--metadata", metadata, "--force")
        assert profiles(volume) == expected
        verify(sums)
    volume.unmount()
    volume.check()
    volume.hide([2])
    volume.mount(without(volume, [2]), "degraded")
    verify(sums)
    volume.unmount()
    volume.unhide([2])


def test_how_it_is_asked_for(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    (volume.mount_point / "file").write_bytes(b"x" * (40 << 20))
    run("sync", "-f", volume.mount_point)
    assert balance(volume, "status").stdout == f"No balance found on '{volume.mount_point}'\n"
    for arguments, code, text in (
            (["--convert", "raid7"], 2, "no profile 'raid7'"),
            (["--convert", "single"], 1, "--force"),
            (["start", "-dlimits=2"], 2, "no filter 'limits=2'"),
            (["start", "-dusage=101"], 2, "no filter 'usage=101'"),
            (["--metadata", "raid1c4"], 1, "raid1c4 needs 4 devices"),
            (["pause"], 2, "no balance is running"),
            (["resume"], 2, "no balance is paused"),
            (["cancel"], 2, "no balance is running or paused")):
        said = balance(volume, *arguments, check=False)
        assert (said.returncode, text in said.stderr) == (code, True), said.stderr
    assert state(volume)["state"] == "none"
    # On a busy machine it may come to its end before the command does. Then it is tried again.
    for _ in range(5):
        balance(volume, "start", "-dconvert=raid1,soft", "-mconvert=raid1", "--bg")
        if balance(volume, "pause", check=False).returncode == 0:
            break
        wait_until_it_ends(volume)
        balance(volume, "--convert", "raid5", "--metadata", "raid1")
    assert state(volume)["state"] == "paused"
    assert f"Balance on '{volume.mount_point}' is paused\n" in balance(volume, "status").stdout
    busy = balance(volume, "--convert", "raid1", check=False)
    assert busy.returncode == 1 and "under way" in busy.stderr
    volume.unmount()
    volume.mount()
    assert state(volume)["state"] == "paused"
    balance(volume, "resume")
    wait_until_it_ends(volume)
    assert profiles(volume) == {"raid1"}
    assert (volume.mount_point / "file").read_bytes() == b"x" * (40 << 20)
    done = balance(volume, "start", "--full-balance")
    assert "done" in done.stdout
    assert (volume.mount_point / "file").read_bytes() == b"x" * (40 << 20)
    volume.unmount()
    volume.check()


@pytest.mark.parametrize("fill_percent,fits", [(85, False), (45, True)])
def test_a_conversion_that_does_not_fit_is_refused(make_volume, fill_percent, fits):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount()
    space = os.statvfs(volume.mount_point)
    content = random_content(space.f_bavail * space.f_frsize * fill_percent // 100)
    (volume.mount_point / "file").write_bytes(content)
    run("sync", "-f", volume.mount_point)
    said = balance(volume, "--convert", "raid6", check=False)
    assert (volume.mount_point / "file").read_bytes() == content
    assert profiles(volume) == ({"raid6", "raid1c3"} if fits else {"raid5", "raid1"})
    assert said.returncode == (0 if fits else 1)
    assert fits or "no room" in said.stderr
    if not fits:
        said = balance(volume, "--convert", "raid6", "--json", check=False)
        assert json.loads(said.stdout)["error"]["code"] == "ENOSPC"
    volume.unmount()
    volume.check()


def test_plans_and_filters(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 3, file_count=60)
    run("sync", "-f", volume.mount_point)
    said = balance(volume, "--convert", "raid6", "--plan").stdout
    assert "block group" in said and "needs" in said and "1 device now, 1 on the way, 2 afterwards" in said
    assert state(volume)["state"] == "none"
    plan = json.loads(balance(volume, "--convert", "raid6", "--plan", "--json").stdout)
    assert plan["schema"] == "cowraid.plan" and plan["moved_bytes"] > 0
    assert plan["data_there"] >= plan["data_needed"] > 0
    for refused in (["--convert", "single"], ["start", "-mconvert=single"]):
        planned = balance(volume, *refused, "--plan", check=False)
        done = balance(volume, *refused, check=False)
        assert planned.returncode == done.returncode != 0 and planned.stderr == done.stderr != ""
    removal = ["device", "remove", "1", volume.mount_point]
    assert "afterwards" in tool("cowraid", *removal, "--plan").stdout
    grown = tool("cowraid", "filesystem", "resize", "max", volume.mount_point, "--plan", check=False)
    really = tool("cowraid", "filesystem", "resize", "max", volume.mount_point, check=False)
    assert grown.returncode == really.returncode == 1 and grown.stderr == really.stderr
    for wrong in ("usage=101", "usage=9..3", "profiles=raid7", "devid=0", "limit=..", "drange=0..9",
                  "vrange=x", "stripes=", "size=3"):
        said = balance(volume, "start", "-d" + wrong, check=False)
        assert said.returncode == 2 and ("no filter" in said.stderr or "devid" in said.stderr), wrong
    said = balance(volume, "start", "-sconvert=raid1", check=False)
    assert said.returncode == 2 and "-mconvert" in said.stderr
    said = balance(volume, "start", "-s", check=False)
    assert said.returncode == 2 and "use -f, or -m" in said.stderr
    filters = "usage=..100,profiles=raid5|raid1,devid=2,stripes=4,limit=1"
    assert "1 block group" in balance(volume, "start", "-d" + filters, "--plan").stdout
    said = balance(volume, "start", "-dlimit=1").stdout
    assert "let through" in said and "done" in said
    assert balance(volume, "--convert", "raid6").returncode == 0
    assert profiles(volume) == {"raid6", "raid1c3"}
    verify(sums)
