# SPDX-License-Identifier: MIT
"""Who waits for an operation learns that it does not go on; what the new device of a replacement is when it
is away, and who must be told of new devices."""

import json
import subprocess
import time

import pytest

from conftest import PATIENCE, TOOLS, a_reader, random_content, run, tool, wait_for
from test_catch_up import without
from test_redundancy import fill, verify
from test_replace_in_service import replacement, start, wait_for_end

NAME = "cowraid:waiting"


@pytest.fixture
def filled(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=384)
    volume.make("-L", "waiting")
    volume.mount([NAME])
    (volume.mount_point / "big").write_bytes(random_content(500 << 20))
    run("sync", "-f", volume.mount_point)
    return volume


def in_background(*words):
    return subprocess.Popen([TOOLS / "cowraid", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def remount(volume, how):
    tool("mount.cowraid", NAME, volume.mount_point, "-o", f"remount,{how}")


def test_waiting_ends_where_nothing_is_written_any_more(filled):
    target = filled.another(384)
    remount(filled, "background_share=1")
    with a_reader(filled.mount_point / "big"):
        for words, state in ((("balance", "start", filled.mount_point), "paused"),
                             (("replace", "start", "-B", "2", target, filled.mount_point), "paused")):
            waiting = in_background(*words)
            key = words[0]

            def running():
                status = json.loads(tool("cowraid", "status", "--json", filled.mount_point).stdout)
                return status["volumes"][0][key]["state"] == "running"

            wait_for(running)
            remount(filled, "ro")
            said, errors = waiting.communicate(timeout=PATIENCE)
            assert waiting.returncode == 1 and state in said + errors, said + errors
            remount(filled, "rw")
            tool("cowraid", "balance", "cancel", filled.mount_point, check=False)
    assert wait_for_end(filled)["state"] == "finished"


def test_a_successor_that_is_away_degrades_nothing(filled):
    sums = fill(filled.mount_point, 1, file_count=40)
    target = filled.another(384)
    remount(filled, "background_share=1")
    with a_reader(filled.mount_point / "big"):
        start(filled, "2", target)
        remount(filled, "ro")  # it does not go on meanwhile
    filled.unmount()
    filled.hide([4])
    said = filled.mount([NAME]).stderr
    assert "degraded" not in said and "not there" not in said, said
    assert replacement(filled)["state"] == "waiting"
    shown = tool("cowraid", "status", filled.mount_point, check=False).stdout
    assert "DEGRADED" not in shown and "the new device of member 2 is not there" in shown
    time.sleep(1.5)  # the daemon looks once a second
    assert "DegradedArray" not in tool("cowraid", "events", filled.mount_point).stdout
    (filled.mount_point / "later").write_bytes(b"later")
    filled.unhide([4])
    tool("cowraid", "device", "online", filled.loops[4], filled.mount_point)
    assert wait_for_end(filled)["state"] == "finished"
    verify(sums)


def test_status_tells_of_what_began_last_and_of_who_went_by_order(filled):
    second, third = filled.another(384), filled.another(384)
    start(filled, "2", second, "-B")
    assert "replacing member 2: finished" in tool("cowraid", "replace", "status", filled.mount_point).stdout
    tool("cowraid", "device", "offline", "3", filled.mount_point)
    wait_for(lambda: "MemberOffline" in tool("cowraid", "events", filled.mount_point).stdout)
    assert " Fail " not in tool("cowraid", "events", filled.mount_point).stdout
    time.sleep(1.1)  # both began in another second
    start(filled, "3", third, "-B")
    assert "filling members" in tool("cowraid", "replace", "status", filled.mount_point).stdout


def test_a_list_of_devices_must_be_told_of_a_new_one(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=128)
    volume.make("-L", "waiting")
    old = list(volume.devices)
    volume.mount(old)
    sums = fill(volume.mount_point, 1, file_count=20)
    target = volume.another(128)
    said = start(volume, "2", target, "-B").stderr
    assert f"the volume was mounted by a list of devices: add {target} to it" in said
    verify(sums)
    volume.unmount()
    refused = volume.mount([old[0], old[2], old[3]], check=False)
    assert refused.returncode != 0
    assert f"member 2 is {target}, which was not named" in refused.stderr
    volume.mount(without(volume, [1]))
    verify(sums)
    volume.unmount()
    volume.mount([NAME])
    spare = volume.another(128)
    assert "list of devices" not in \
        tool("cowraid", "device", "add", "--spare", spare, volume.mount_point).stderr
    verify(sums)
