# SPDX-License-Identifier: MIT
"""cowraid device add and remove on real mounts: beside a writer, over kill -9, refused."""

import json
import os

import pytest
from conftest import random_content, run, tool, wait_for
from test_balance import Writer, state, wait_until_it_ends
from test_catch_up import without
from test_redundancy import fill, verify


def device(*arguments, check=True):
    return tool("cowraid", "device", *arguments, check=check)


def ids(volume):
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", volume.mount_point).stdout)
    return [member["id"] for member in shown["volumes"][0]["members"]]


def big_file(volume, mebibytes):
    content = random_content(mebibytes << 20)
    (volume.mount_point / "big").write_bytes(content)
    run("sync", "-f", volume.mount_point)
    return content


def available(volume):
    space = os.statvfs(volume.mount_point)
    return space.f_bavail * space.f_frsize


def test_one_is_added_and_one_removed_beside_a_writer(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=512)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=80)
    big = big_file(volume, 150)
    before = available(volume)
    writer = Writer(volume.mount_point)
    writer.start()
    try:
        added = volume.another(512)
        said = device("add", added, volume.mount_point)
        assert said.stdout.startswith(f"{added} is member 5 now\nroom for data: ")
        assert available(volume) > before
        done = device("remove", volume.devices[1], volume.mount_point)
    finally:
        writer.finish()
    assert "removes it" in done.stdout and "done" in done.stdout
    assert "member 2 is being emptied" in done.stderr
    assert ids(volume) == [1, 3, 4, 5]
    verify(sums)
    writer.verify()
    assert (volume.mount_point / "big").read_bytes() == big
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    volume.unmount()
    # It is free for something else.
    assert run("blkid", "-p", volume.devices[1], check=False).stdout == ""
    run("mkfs.ext4", "-q", volume.devices[1])
    members = without(volume, [1])
    assert json.loads(tool("cowraid", "check", "--json", members[0]).stdout)
    for lost in (0, 4):
        volume.hide([lost])
        volume.mount(without(volume, [1, lost]), "degraded,ro")
        verify(sums)
        writer.verify()
        assert (volume.mount_point / "big").read_bytes() == big
        volume.unmount()
        volume.unhide([lost])


def test_a_removal_goes_on_when_killed(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=512)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=80)
    big = big_file(volume, 250)
    said = device("remove", "--background", "2", volume.mount_point)
    assert "is being emptied" in said.stdout
    for _ in range(3):
        begun = state(volume)["bytes_left"]
        wait_for(lambda: state(volume)["state"] != "running" or state(volume)["bytes_left"] < begun)
        assert state(volume)["member"] in (0, 2)
        gone = 2 not in ids(volume)
        volume.kill()
        mounted = volume.mount(without(volume, [1]) if gone else None, check=False)
        if mounted.returncode != 0 and not gone:  # it went between the question and the kill
            volume.mount(without(volume, [1]))
        assert (volume.mount_point / "big").read_bytes() == big
    wait_until_it_ends(volume)
    assert ids(volume) == [1, 3, 4]
    verify(sums)
    assert (volume.mount_point / "big").read_bytes() == big
    volume.unmount()
    volume.check()


def test_a_missing_member_is_removed(make_volume):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=5, member_mib=256)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=80)
    volume.unmount()
    volume.hide([2])
    volume.mount(without(volume, [2]), "degraded")
    assert "no member is missing" not in device("remove", "missing", volume.mount_point).stdout
    shown = tool("cowraid", "filesystem", "show", volume.mount_point).stdout
    assert "missing" not in shown and ids(volume) == [1, 2, 4, 5]
    verify(sums)
    volume.unmount()
    volume.unhide([2])
    # By label or scan, what was removed is not taken along; nor is a degraded mount asked for.
    volume.mount(without(volume, [2]))
    verify(sums)


def test_what_would_not_do_is_refused(make_volume):
    volume = make_volume(data="raid6", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=40)
    spare, small = volume.another(256), volume.another(32)
    run("mkfs.ext4", "-q", spare)
    inside = volume.mount_point / "inside.img"
    run("truncate", "-s", "128M", inside)
    for arguments, code, text in (
            (["add"], 2, "name the device"),
            (["add", spare, volume.mount_point], 1, "to overwrite it use -f"),
            (["add", small, volume.mount_point], 1, "a member needs at least"),
            (["add", volume.devices[0], volume.mount_point], 1, "in use"),
            (["add", "/dev/null", volume.mount_point], 1, "neither a block device"),
            (["add", "/nonexistent", volume.mount_point], 1, "does not exist"),
            (["add", spare, "/nonexistent"], 1, "/nonexistent"),
            (["add", inside, volume.mount_point], 1, "lies on the volume itself"),
            (["remove", "1", "2", volume.mount_point], 2, "name one member"),
            (["remove", "7", volume.mount_point], 1, "'7' is no member"),
            (["remove", spare, volume.mount_point], 1, "is no member"),
            (["remove", "missing", volume.mount_point], 1, "no member is missing"),
            (["remove", "1", volume.mount_point], 1, "raid6 needs 3 devices")):
        said = device(*arguments, check=False)
        assert (said.returncode, text in said.stderr) == (code, True), (arguments, said.stderr)
        planned = device(arguments[0], "--plan", *arguments[1:], check=False)
        assert (planned.returncode, planned.stderr) == (said.returncode, said.stderr)
    # All or none, and what they hold is left alone.
    said = device("add", "-f", spare, small, volume.mount_point, check=False)
    assert said.returncode == 1 and "a member needs at least" in said.stderr
    assert "ext4" in run("blkid", "-p", spare).stdout
    assert ids(volume) == [1, 2, 3]
    verify(sums)
    said = device("add", "--json", "-f", spare, volume.mount_point)
    assert json.loads(said.stdout)["member"] == 4
    device("remove", "1", volume.mount_point)
    assert ids(volume) == [2, 3, 4]
    volume.unmount()
    read_only = without(volume, [0, 4])
    volume.mount(read_only, "ro")
    run("mkfs.ext4", "-q", volume.devices[0])
    said = device("add", "-f", volume.devices[0], volume.mount_point, check=False)
    assert (said.returncode, "read-only" in said.stderr) == (1, True), said.stderr
    assert "ext4" in run("blkid", "-p", volume.devices[0]).stdout
    verify(sums)


def test_plans_of_devices_change_nothing_and_answers_are_one_document(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    extra = [volume.another(256) for _ in range(3)]
    run("mkfs.ext4", "-q", extra[0])
    plan = json.loads(device("add", "--plan", "--json", "-f", *extra[:2], volume.mount_point).stdout)
    assert plan["schema"] == "cowraid.growth"
    assert [(line["path"], line["size_bytes"]) for line in plan["devices"]] == [
        (path, 256 << 20) for path in extra[:2]]
    assert "ext4" in run("blkid", "-p", extra[0]).stdout and ids(volume) == [1, 2, 3]
    added = json.loads(device("add", "--json", "-f", *extra[:2], volume.mount_point).stdout)
    assert [line["member"] for line in added["devices"]] == [4, 5]
    device("add", "--spare", extra[2], volume.mount_point)
    assert "nothing" in device("remove", "--plan", extra[2], volume.mount_point).stdout
    shown = tool("cowraid", "filesystem", "show", volume.mount_point).stdout
    assert f"spare    6 size 256.00MiB path {extra[2]}" in shown
    # What drange= and vrange= take.
    usage = ["filesystem", "usage", "--layout", volume.mount_point]
    layout = json.loads(tool("cowraid", *usage, "--json").stdout)["layout"]
    drawn = tool("cowraid", *usage).stdout
    for group in layout["groups"]:
        assert f" {group['address']} " in drawn
    for member in layout["members"]:
        assert f"from offset {member['slots_offset']} on" in drawn and member["slots_offset"] > 0
    group = next(line for line in layout["groups"] if line["content"] == ["data"])
    column = group["columns"][0]
    member = next(line for line in layout["members"] if line["id"] == column["member"])
    offset = member["slots_offset"] + column["slots"][0]["first_slot"] * member["slot_bytes"]
    where = f"-dvrange={group['address']}..{group['address']},devid={member['id']},drange={offset}..{offset}"
    assert "1 block group" in tool("cowraid", "balance", "start", "--plan", where, volume.mount_point).stdout
    # Who waits gets one document as well.
    device("remove", extra[2], volume.mount_point)
    said = tool("cowraid", "replace", "start", "-B", "--json", "4", extra[2], volume.mount_point).stdout
    assert json.loads(said)["state"] == "finished"
    device("offline", "1", volume.mount_point)
    said = device("online", "-B", "--json", "1", volume.mount_point).stdout
    assert json.loads(said)["member"] == 1
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout


def test_devices_that_have_grown_are_used(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=40)
    before = available(volume)

    def resize(*arguments, check=True):
        return tool("cowraid", "filesystem", "resize", *arguments, volume.mount_point, check=check)

    for what, code, text in (("max", 1, "no more than before"), ("1:max", 1, "no more than before"),
                             ("7:max", 1, "'7' is no member"), ("1:-200M", 1, "64.00MiB at least"),
                             ("1:+1G", 1, "which is less than that"), ("1:ten", 2, "MEMBER:[+|-]SIZE"),
                             ("5G", 2, "MEMBER:[+|-]SIZE")):
        said = resize(what, check=False)
        assert (said.returncode, text in said.stderr) == (code, True), (what, said.stderr)
    assert resize("1:256M").stdout == f"member 1 ({volume.devices[0]}) uses 256.00MiB now\n"
    for image, loop in zip(volume.images, volume.loops):
        run("truncate", "-s", "512M", image)
        run("losetup", "-c", loop)
    for planned in ([], ["--plan"]):
        said = resize("1:+4K", *planned, check=False)
        assert said.returncode == 1 and "it grows by steps of " in said.stderr
        next_size = said.stderr.rsplit(", to ", 1)[1].split("MiB")[0]
        assert resize("--plan", f"1:{int(float(next_size))}M").returncode == 0
    assert "can be used with 512.00MiB" in resize("1:max", "--plan").stdout
    plan = json.loads(resize("max", "--plan", "--json").stdout)
    assert plan["schema"] == "cowraid.growth" and len(plan["devices"]) == 3
    assert available(volume) == before
    assert resize("1:max").stdout == f"member 1 ({volume.devices[0]}) uses 512.00MiB now\n"
    assert [line.split()[1] for line in resize("max").stdout.splitlines()] == ["2", "3"]
    assert available(volume) > before * 2
    big = big_file(volume, 500)
    verify(sums)
    assert (volume.mount_point / "big").read_bytes() == big
    volume.unmount()
    volume.check()
    volume.hide([0])
    volume.mount(without(volume, [0]), "degraded,ro")
    verify(sums)
    assert (volume.mount_point / "big").read_bytes() == big


@pytest.mark.parametrize("killed", [False, True])
def test_a_member_is_made_smaller(make_volume, killed):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=512)
    volume.make()
    volume.mount()
    (volume.mount_point / "first").write_bytes(random_content(500 << 20))
    run("sync", "-f", volume.mount_point)
    big = big_file(volume, 400)
    sums = fill(volume.mount_point, 1, file_count=40)
    (volume.mount_point / "first").unlink()
    for _ in range(4):
        run("sync", "-f", volume.mount_point)
    before = available(volume)

    def resize(*arguments, check=True):
        return tool("cowraid", "filesystem", "resize", *arguments, volume.mount_point, check=check)

    def member():
        told = json.loads(tool("cowraid", "status", "--json", volume.mount_point).stdout)["volumes"][0]
        return told["members"][1]["size_bytes"]

    planned = resize("--plan", "2:-212M").stdout
    assert "Moves:" in planned and "Room for data:" in planned and member() == 512 << 20
    refused = resize("--plan", "2:40M", check=False), resize("2:40M", check=False)
    assert refused[0].returncode == refused[1].returncode == 1 and "64.00MiB at least" in refused[1].stderr
    assert refused[0].stderr == refused[1].stderr
    if killed:
        assert "is being made smaller" in resize("--background", "2:300M").stdout
        volume.kill()
        volume.mount()
        wait_for(lambda: member() == 300 << 20)
    else:
        assert "smaller, to 300.00MiB" in resize(f"{volume.devices[1]}:300M").stdout
    assert member() == 300 << 20 and available(volume) < before
    # The end of the device goes.
    run("truncate", "-s", str(300 << 20), volume.images[1])
    run("losetup", "-c", volume.devices[1])
    (volume.mount_point / "later").write_bytes(big)
    run("sync", "-f", volume.mount_point)
    verify(sums)
    assert (volume.mount_point / "big").read_bytes() == big
    volume.unmount()
    volume.check()
    volume.mount()
    run("truncate", "-s", "400M", volume.images[1])
    run("losetup", "-c", volume.devices[1])
    assert "uses 350.00MiB now" in resize("2:+50M").stdout
    assert "uses 400.00MiB now" in resize("2:max").stdout
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    volume.unmount()
    volume.hide([0])
    volume.mount(without(volume, [0]), "degraded,ro")
    verify(sums)
    for name in ("big", "later"):
        assert (volume.mount_point / name).read_bytes() == big
