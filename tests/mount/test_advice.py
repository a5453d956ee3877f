# SPDX-License-Identifier: MIT
"""What messages give as a reason, and what they advise: that it is true, and that it works."""

import json
import signal

import pytest

from conftest import PATIENCE, a_reader, random_content, run, tool, wait_for
from test_catch_up import without
from test_events import wait_for_event
from test_scrub import rot, scrub


def made(make_volume, data, metadata, count, **options):
    volume = make_volume(data=data, metadata=metadata, member_count=count, **options)
    volume.make()
    volume.mount()
    return volume


def report(volume):
    shown = tool("cowraid", "status", "--json", volume.mount_point, check=False).stdout
    return json.loads(shown)["volumes"][0]


def line(text, name):
    return [words.split(maxsplit=1)[1] for words in text.splitlines() if words.startswith(name)][0]


def refused(*arguments, code=1):
    result = tool("cowraid", *arguments, check=False)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stderr


def test_more_is_missing_than_the_profile_tolerates(make_volume):
    """Two of three are there: not their number forbids to write."""
    volume = made(make_volume, "raid0", "raid1c3", 3)
    (volume.mount_point / "data").write_bytes(random_content(8 << 20))
    volume.unmount()
    volume.hide([1])
    forced = volume.mount(without(volume, [1]), "degraded=force", check=False)
    assert "more than raid0 tolerates" in forced.stderr
    volume.mount(without(volume, [1]), "ro,rescue")
    reason = "more is missing than raid0 tolerates"
    assert report(volume)["read_only_reason"] == reason
    text = tool("cowraid", "status", volume.mount_point, check=False).stdout
    assert reason in line(text, "State:") + line(text, "Status:")
    assert "degraded=force" not in text and "mount it with the members that are missing" in text
    assert wait_for_event(volume, "ReadOnly")["text"] == reason
    degraded = wait_for_event(volume, "DegradedArray")["text"]
    assert degraded == "1 member out of service; that is more than the volume tolerates: some files may be " \
        "lost"


def test_commands_on_a_volume_without_a_majority(make_volume):
    """They say why it is only read, and the step that makes it writable is one that does."""
    volume = made(make_volume, "raid1", "raid1", 2)
    volume.unmount()
    volume.hide([1])
    target, place = volume.another(256), volume.mount_point
    said = refused("replace", "start", "missing", target, volume.devices[0])
    assert "present for safe writing; mount it with more members, or with -o degraded=force" in said, said
    volume.mount(without(volume, [1, 2]), "degraded")
    for arguments in (["replace", "start", "missing", target, place], ["device", "remove", "missing", place],
                      ["scrub", "start", place], ["filesystem", "resize", "max", place],
                      ["device", "add", target, place], ["balance", place]):
        said = refused(*arguments)
        assert "too few members are present for safe writing" in said, (arguments, said)
        assert "-o degraded=force" in said and "remount" not in said, (arguments, said)
    assert "-o degraded=force" in line(tool("cowraid", "status", place, check=False).stdout, "Action:")
    volume.unmount()
    volume.mount(without(volume, [1, 2]), "degraded=force")
    tool("cowraid", "replace", "start", "-B", "missing", target, place)
    volume.unmount()
    # Where only the mount says so, that is what is said.
    volume.mount(without(volume, [1]), "ro")
    assert "mounted read-only; remount it for writing, or unmount it" in refused("scrub", "start", place)
    assert refused("balance", "start", place).endswith("mounted read-only; remount it for writing\n")


def spoil(volume, index, content):
    """One block of this content on that member."""
    image = volume.images[index].read_bytes()
    for offset in range(0, len(content), 4096):
        at = image.find(content[offset:offset + 4096])
        if at >= 0:
            with open(volume.images[index], "r+b") as file:
                file.seek(at)
                file.write(random_content(4096))
            volume.drop_caches()
            return
    raise AssertionError("the member has no block of it")


def test_a_member_that_is_away_is_brought_back_before_files_are_deleted(make_volume):
    """What cannot be read without it can be read with it."""
    volume = made(make_volume, "raid5", "raid1c3", 4)
    content = random_content(8 << 20)
    (volume.mount_point / "data").write_bytes(content)
    volume.unmount()
    volume.hide([2])
    spoil(volume, 0, content)
    checked = tool("cowraid", "check", *without(volume, [2]), check=False)
    assert checked.returncode == 3
    result = line(checked.stdout, "Result:")
    assert "bring the member back, mount the volume, run cowraid scrub, and check again" in result, result
    volume.mount(without(volume, [2]), "degraded")
    with pytest.raises(OSError):
        (volume.mount_point / "data").read_bytes()
    assert report(volume)["health"] == "DAMAGED"
    action = line(tool("cowraid", "status", volume.mount_point, check=False).stdout, "Action:")
    assert action.startswith("attach what is out of service, run cowraid device online DEVICE"), action
    assert "delete" not in action
    volume.unhide([2])
    tool("cowraid", "device", "online", "-B", volume.loops[2], volume.mount_point)
    scrub(volume)
    assert report(volume)["health"] == "ONLINE" and report_files(volume) == []
    assert (volume.mount_point / "data").read_bytes() == content


def test_a_member_with_a_foreign_signature_need_not_give_up_what_it_holds(make_volume):
    volume = made(make_volume, "raid5", "raid1c3", 4)
    content = random_content(8 << 20)
    (volume.mount_point / "data").write_bytes(content)
    volume.unmount()
    device, other = volume.devices[3], volume.another(256)
    for path in (device, other):
        run("mkfs.ext4", "-q", "-F", "-E", "nodiscard", path)
    volume.mount(without(volume, [3, 4]), "degraded")
    said = refused("device", "online", device, volume.mount_point)
    assert f"if that is a mistake: wipefs -a {device}, and run this again" in said, said
    assert "replace start -f" in said, said
    # What is no member is not made one by that.
    said = refused("device", "online", other, volume.mount_point)
    assert "wipefs" not in said, said
    run("wipefs", "-q", "-a", device)
    tool("cowraid", "device", "online", "-B", device, volume.mount_point)
    scrub(volume)
    assert (volume.mount_point / "data").read_bytes() == content


def fill_and_unmount(volume):
    for number in range(20):
        (volume.mount_point / f"file{number}").write_bytes(random_content(5 << 20))
    volume.unmount()


def test_groups_that_cannot_be_emptied(make_volume):
    """What scrubs found is named by status -v; what is not there any more does not stay in the way."""
    volume = made(make_volume, "raid5", "raid1c3", 5, member_mib=128)
    fill_and_unmount(volume)
    rot(volume, [1], seed=1, share=20)
    rot(volume, [3], seed=2, share=20)
    volume.mount()
    place = volume.mount_point
    scrub(volume, expect=3)
    planned = tool("cowraid", "device", "remove", "--plan", "2", place).stdout
    damaged = sum(file["blocks"] for file in {file["inode"]: file for file in report_files(volume)}.values())
    assert damaged > 10
    assert line(planned, "Damaged:").startswith(f"{damaged} blocks in these"), planned
    stuck = tool("cowraid", "device", "remove", "2", place, check=False)
    assert stuck.returncode == 3
    result = line(stuck.stdout, "Result:")
    assert "cannot be emptied: something in them cannot be read; cowraid status -v names the files" in result
    assert "restore or delete them, then repeat it" in result and "scrub" not in result
    for name in {path for file in report_files(volume) for path in file["paths"]}:
        (place / name[1:]).unlink()
    tool("cowraid", "filesystem", "sync", place)
    assert line(tool("cowraid", "device", "remove", "2", place).stdout, "Done:").startswith("100%")


def report_files(volume):
    shown = json.loads(tool("cowraid", "status", "-v", "--json", volume.mount_point, check=False).stdout)
    return shown["volumes"][0]["damage"]["files"]


def test_a_removal_that_is_cancelled_was_no_conversion(make_volume):
    volume = made(make_volume, "raid1", "raid1", 3)
    (volume.mount_point / "data").write_bytes(random_content(150 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    volume.mount(options="remount,background_share=1")
    with a_reader(volume.mount_point / "data"):
        tool("cowraid", "device", "remove", "--background", "1", volume.mount_point)
        said = tool("cowraid", "balance", "cancel", volume.mount_point).stdout
    assert said.startswith("removal cancelled: what was moved stays where it is, and member 1 stays\n"), said


def test_of_a_member_without_a_device_none_stays_in_use(make_volume):
    volume = made(make_volume, "raid1", "raid1", 4)
    (volume.mount_point / "data").write_bytes(random_content(8 << 20))
    volume.unmount()
    volume.hide([1])
    volume.mount(without(volume, [1]), "degraded")
    gone = tool("cowraid", "device", "remove", "missing", volume.mount_point).stdout
    assert line(gone, "Result:") == "done"
    there = tool("cowraid", "device", "remove", "1", volume.mount_point).stdout
    assert line(there, "Result:") == "done; the device stays in use until the volume is unmounted"


def test_who_waits_for_a_replacement_is_told_its_end(make_volume):
    volume = made(make_volume, "raid1", "raid1", 3)
    (volume.mount_point / "data").write_bytes(random_content(30 << 20))
    volume.unmount()
    volume.hide([2])
    volume.mount(without(volume, [2]), "degraded")
    target = volume.another(256)
    said = tool("cowraid", "replace", "start", "-B", "missing", target, volume.mount_point).stdout
    assert said.splitlines() == [f"{target} is member 3 now, and is being filled",
                                 "member 3 is filled: it has everything"]


def test_a_new_device_takes_part_not_again(make_volume):
    volume = made(make_volume, "raid1", "raid1", 3)
    volume.unmount()
    volume.hide([2])
    target = volume.another(256)
    result = tool("cowraid", "replace", "start", "missing", target, *volume.devices[:2])
    assert f"{target} is member 3 now; it is filled while the volume is mounted" in result.stdout
    assert "again" not in result.stderr, result.stderr


def test_where_none_is_missing_none_is_to_be_removed(make_volume):
    volume = made(make_volume, "raid1", "raid1", 2)
    said = refused("device", "remove", "1", volume.mount_point)
    assert "without member 1 too few devices are in service; add one first" in said


def test_a_balance_that_was_paused_is_counted_by_the_next_mount(make_volume):
    volume = made(make_volume, "raid1", "raid1", 3)
    (volume.mount_point / "data").write_bytes(random_content(150 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    place = volume.mount_point
    volume.mount(options="remount,background_share=1")
    with a_reader(place / "data"):
        tool("cowraid", "balance", "start", "--background", "--full-balance", place)
        tool("cowraid", "balance", "pause", place)
    for options in (None, "ro"):
        volume.unmount()
        volume.mount(options=options)
        paused = json.loads(tool("cowraid", "balance", "status", "--json", place).stdout)
        assert paused["state"] == "paused" and paused["groups_left"] > 0
        assert paused["groups_total"] >= paused["groups_left"]
        assert 0 < paused["bytes_left"] <= paused["bytes_total"]
        text = tool("cowraid", "balance", "status", place).stdout
        assert f"out of about {paused['groups_total']} chunks" in text
    volume.unmount()
    volume.mount()
    tool("cowraid", "balance", "resume", place)
    wait_for(lambda: json.loads(tool("cowraid", "balance", "status", "--json", place).stdout)["state"]
             == "finished", 5 * PATIENCE)


def test_what_is_lost_of_a_member_is_its_own(make_volume):
    """Rows lose blocks of others, too: they are not counted where its copy ends."""
    volume = made(make_volume, "raid5", "raid1c3", 4, member_mib=128)
    fill_and_unmount(volume)
    rot(volume, [1], seed=1, share=30)
    rot(volume, [3], seed=2, share=30)
    rot(volume, [2], seed=3, share=30)
    target = volume.another(128)
    volume.mount(volume.devices[:4])
    tool("cowraid", "scrub", "start", "-B", volume.mount_point, check=False)
    members = json.loads(tool("cowraid", "scrub", "status", "--json", volume.mount_point).stdout)["members"]
    own = [one["uncorrectable_errors"] for one in members if one["id"] == 2][0]
    assert own > 0
    said = tool("cowraid", "replace", "start", "-B", "2", target, volume.mount_point, check=False)
    assert said.returncode == 3
    assert f", {own} uncorr. read errs\n" in said.stdout, said.stdout
    assert f", {own} of its blocks lost" in said.stdout, said.stdout
    copied = report(volume)["replace"]
    assert copied["source_lost_blocks"] == own < copied["copy"]["lost_blocks"]
    assert f", {copied['copy']['lost_blocks']} of data in its rows" in said.stdout, said.stdout


def test_what_did_not_run_did_not_end(make_volume):
    volume = made(make_volume, "raid1", "raid1", 2)
    none = json.loads(tool("cowraid", "balance", "status", "--json", volume.mount_point).stdout)
    assert (none["state"], none["started"], none["ended"]) == ("none", 0, 0)
    tool("cowraid", "scrub", "start", "-B", "--older-than", "30d", volume.mount_point)
    said = tool("cowraid", "scrub", "status", volume.mount_point).stdout
    assert line(said, "Mode:") == "what was not verified for 30d"


def test_a_spare_that_is_removed_moves_nothing(make_volume):
    volume = made(make_volume, "raid1", "raid1", 2)
    tool("cowraid", "device", "add", "--spare", volume.another(256), volume.mount_point)
    planned = tool("cowraid", "device", "remove", "--plan", "3", volume.mount_point).stdout
    assert line(planned, "Moves:") == "nothing"


def test_what_was_not_verified_asks_for_a_scrub(make_volume):
    volume = made(make_volume, "raid5", "raid1", 4)
    (volume.mount_point / "data").write_bytes(random_content(30 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    tool("cowraid", "device", "offline", "3", volume.mount_point)
    tool("cowraid", "scrub", "start", "-B", volume.mount_point, check=False)
    tool("cowraid", "device", "online", "-B", "3", volume.mount_point)
    said = line(tool("cowraid", "status", volume.mount_point).stdout, "Scrub:")
    assert "not verified (on members out of service); run cowraid scrub when all are in service" in said


def fill_up(volume):
    try:
        with open(volume.mount_point / "all", "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
    except OSError:
        pass
    run("sync", "-f", volume.mount_point)


def test_one_more_device_may_bring_nothing(make_volume):
    """A group of raid5 needs slots on two members: on a full volume one that has some is not enough."""
    volume = made(make_volume, "raid5", "raid1", 3, member_mib=128)
    place = volume.mount_point
    room = tool("cowraid", "device", "add", "--plan", volume.another(512), place).stdout
    assert "room for data: " in room and "MiB more\n" in room
    fill_up(volume)
    first, second = volume.loops[3], volume.another(512)
    nothing = "room for data: no more; block groups of raid5 need free slots on 2 members: add another " \
        "device, or remove files\n"
    for words in (["--plan"], []):
        said = tool("cowraid", "device", "add", *words, first, place).stdout
        assert nothing in said, said
    before = report(volume)["available_bytes"]
    said = tool("cowraid", "device", "add", second, place).stdout
    assert "room for data: " in said and "MiB more\n" in said, said
    assert report(volume)["available_bytes"] - before > 100 << 20


def test_signals_that_nobody_needs_end_nothing(make_volume):
    volume = made(make_volume, "raid1", "raid1", 2)
    for number in (signal.SIGUSR2, signal.SIGUSR1, signal.SIGHUP):
        run("kill", f"-{int(number)}", str(volume.daemon()))
        (volume.mount_point / f"file{int(number)}").write_bytes(b"written")
        tool("cowraid", "filesystem", "sync", volume.mount_point)
