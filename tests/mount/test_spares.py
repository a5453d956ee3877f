# SPDX-License-Identifier: MIT
"""Devices in reserve: they take the place of a member that fails, by themselves."""

import json
import os
import time

from conftest import random_content, run, tool, wait_for

CONTENT = random_content(6 << 20)


def status(volume):
    return json.loads(tool("cowraid", "status", "--json", volume.mount_point).stdout)["volumes"][0]


def events(volume):
    return tool("cowraid", "events", volume.mount_point).stdout


def others(volume, lost):
    return [device for index, device in enumerate(volume.loops) if index not in lost]


def test_a_spare_takes_the_place_of_a_member_that_fails(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_mib=256, may_fail=[1])
    volume.make()
    spare = volume.another(256)
    volume.mount(volume.loops[:4])
    said = tool("cowraid", "device", "add", "--spare", spare, volume.mount_point).stdout
    assert said == f"{spare} is spare 5 now\n"
    (volume.mount_point / "f").write_bytes(CONTENT)
    volume.unmount()
    # Any member leads to it.
    volume.mount(volume.loops[:1], "spare_delay=1")
    assert [(line["id"], line["path"]) for line in status(volume)["spares"]] == [(5, spare)]
    assert f"{spare}  spare, 256.00MiB" in tool("cowraid", "status", volume.mount_point).stdout
    shown = tool("cowraid", "filesystem", "show", volume.mount_point).stdout
    assert f"spare    5 size 256.00MiB path {spare}" in shown
    volume.fail_writes()
    (volume.mount_point / "g").write_bytes(CONTENT)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    wait_for(lambda: status(volume)["members"][1]["path"] == spare)
    volume.wait_caught_up()
    wait_for(lambda: "Redundant" in events(volume))
    told = events(volume)
    for event in ("Fail", "SpareUsed", "RebuildFinished", "Redundant"):
        assert event in told, told
    assert f"spare 5 ({spare}) takes the place of member 2" in told
    now = status(volume)
    assert now["spares"] == [] and [line["condition"] for line in now["members"]] == ["online"] * 4
    volume.unmount()
    for lost in (0, 2, 3):
        volume.mount(others(volume, [1, lost]), "degraded,ro")
        assert (volume.mount_point / "f").read_bytes() == CONTENT
        assert (volume.mount_point / "g").read_bytes() == CONTENT
        volume.unmount()


def test_spares_come_and_go(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    small, spare = volume.another(128), volume.another(256)
    volume.loops, away = volume.loops[:3], volume.loops[3:]
    try:
        refused = volume_make(volume, "--spare", small)
        assert refused.returncode == 1 and "a spare is not smaller" in refused.stderr
        made = volume_make(volume, "--spare", spare)
        assert made.returncode == 0 and spare in made.stdout, made
        volume.mount()
        assert status(volume)["spares"][0]["path"] is None, "the named devices are the ones used"
        assert "1 spare is missing" in tool("cowraid", "status", volume.mount_point).stdout
        wait_for(lambda: "SparesMissing" in events(volume), otherwise=lambda: events(volume))
        # One that comes late waits again, as udev has it.
        tool("cowraid", "device", "online", "--if-away", spare)
        assert status(volume)["spares"][0]["path"] == spare
        assert "spare is missing" not in tool("cowraid", "status", volume.mount_point).stdout
        wait_for(lambda: f"spare 4 ({spare}) waits" in events(volume), otherwise=lambda: events(volume))
        said = tool("cowraid", "device", "online", spare, volume.mount_point, check=False)
        assert said.returncode == 1 and "is there" in said.stderr, said
        volume.unmount()
        volume.mount(volume.loops[:1], "spare_delay=1")
        assert status(volume)["spares"][0]["path"] == spare
        # Taken out by order a member keeps its place.
        tool("cowraid", "device", "offline", "2", volume.mount_point)
        time.sleep(3)
        assert status(volume)["members"][1]["condition"] == "missing"
        assert status(volume)["spares"][0]["path"] == spare
        tool("cowraid", "device", "online", "2", volume.mount_point)
        volume.wait_caught_up()
        # By device and by number; a number is used once.
        number = status(volume)["spares"][0]["id"]
        for name, then in ((spare, number + 1), (str(number + 1), number + 2)):
            assert "is removed" in tool("cowraid", "device", "remove", name, volume.mount_point).stdout
            assert status(volume)["spares"] == []
            tool("cowraid", "device", "add", "--spare", spare, volume.mount_point)
            assert status(volume)["spares"][0]["id"] == then
        # One is put in a place by hand.
        planned = tool("cowraid", "replace", "start", "--plan", "2", spare, cwd=volume.mount_point).stdout
        assert "needs 256.00MiB, has 256.00MiB" in planned and len(status(volume)["spares"]) == 1
        tool("cowraid", "replace", "start", "-B", "2", spare, volume.mount_point)
        assert status(volume)["members"][1]["path"] == spare and status(volume)["spares"] == []
        # The member was caught up before, which has events of its own.
        filled = f"member 2 ({spare}) has everything"
        wait_for(lambda: filled in events(volume), otherwise=lambda: events(volume))
        assert "RebuildStarted" in events(volume)
        volume.loops[1], away[1] = spare, volume.loops[1]
        said = tool("cowraid", "device", "add", "--spare", small, volume.mount_point, check=False)
        assert said.returncode == 1 and "a spare is not smaller" in said.stderr
        volume.unmount()
        volume.check()
    finally:
        for device in away:
            run("losetup", "-d", device, check=False)


def test_a_spare_alone_or_in_use(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    spare = volume.another(128)
    label = f"spared-{os.getpid()}"
    tool("mkfs.cowraid", "-d", "raid5", "-m", "raid1", "-L", label, "--spare", spare, *volume.loops[:3])
    # Found alone, its members are waited for.
    volume.hide([0, 1, 2])
    refused = tool("mount.cowraid", f"cowraid:{label}", volume.mount_point, "-o", "missing_dev_timeout=2",
                   check=False)
    assert refused.returncode == 32 and "members 1, 2, 3 are not there" in refused.stderr, refused
    volume.unhide([0, 1, 2])
    # In use elsewhere, it is missed by nobody.
    held = os.open(spare, os.O_RDONLY | os.O_EXCL)
    try:
        tool("mount.cowraid", f"cowraid:{label}", volume.mount_point)
        assert status(volume)["spares"][0]["path"] is None
        volume.unmount()
    finally:
        os.close(held)


def volume_make(volume, *options):
    return tool("mkfs.cowraid", "-d", volume.data, "-m", volume.metadata, *options, *volume.devices,
                check=False)
