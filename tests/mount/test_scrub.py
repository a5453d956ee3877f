# SPDX-License-Identifier: MIT
"""cowraid scrub on mounted volumes."""

import json
import os
import random
import re
import signal
import subprocess
import threading
import time

import pytest

from conftest import PATIENCE, TOOLS, random_content, tool, wait_for
from test_redundancy import fill, verify

SLOTS_BEGIN = 24 << 20  # of a member of 128 MiB, behind what is not in block groups


def scrub(volume, *options, expect=0):
    result = tool("cowraid", "scrub", "start", "-B", "--json", *options, volume.mount_point, check=False)
    assert result.returncode == expect, result.stdout + result.stderr
    return json.loads(result.stdout)


def status_of(volume):
    return json.loads(tool("cowraid", "scrub", "status", "--json", volume.mount_point).stdout)


def wait_until_it_ends(volume):
    wait_for(lambda: status_of(volume)["state"] != "running", 5 * PATIENCE)


def rot(volume, indexes, seed=1, share=1, begin=SLOTS_BEGIN):
    """Spoils every `share`-th block of what the members hold in block groups."""
    generator = random.Random(seed)
    for index in indexes:
        with open(volume.images[index], "r+b") as file:
            for place in range(begin, os.path.getsize(volume.images[index]), 4096):
                if generator.randrange(share) == 0 and os.pread(file.fileno(), 4096, place).strip(b"\0"):
                    os.pwrite(file.fileno(), generator.randbytes(4096), place)
            os.fsync(file.fileno())


def check_clean(report):
    assert report["state"] == "finished"
    for name in ("repaired_blocks", "unrepaired_blocks", "lost_blocks", "unreadable_nodes"):
        assert report[name] == 0, report


@pytest.mark.parametrize("data,metadata,count,tolerance",
                         [("raid5", "raid1", 4, 1), ("raid6", "raid1c3", 5, 2), ("raid1c3", "raid1c3", 4, 2),
                          ("raid6", "raid6", 5, 2), ("raid10", "raid10", 5, 1)])
def test_one_pass_repairs_everything(make_volume, data, metadata, count, tolerance):
    volume = make_volume(data=data, metadata=metadata, member_count=count, member_mib=128)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=60)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    clean = scrub(volume)
    check_clean(clean)
    written = sum(path.stat().st_size for path in sums)
    assert clean["data_blocks"] * 4096 > written
    if data in ("raid5", "raid6"):
        assert clean["parity_blocks"] * 4096 > written // 4
    assert clean["tree_nodes"] > 0
    # All that `tolerance` members hold, nodes included.
    rot(volume, range(tolerance))
    repaired = scrub(volume)
    assert repaired["repaired_blocks"] > 100
    assert repaired["lost_blocks"] == repaired["unrepaired_blocks"] == repaired["unreadable_nodes"] == 0
    guilty = {line["devid"] for line in volume.counters()["device-stats"]
              if line["corruption_errs"] or line["parity_errs"]}
    assert guilty and guilty <= set(range(1, tolerance + 1))
    before = volume.counters()
    check_clean(scrub(volume))
    assert volume.counters() == before
    verify(sums)
    volume.unmount()
    volume.check()
    # What was repaired carries the loss of others.
    volume.hide(range(count - tolerance, count))
    volume.mount(volume.devices[:count - tolerance], "degraded,ro")
    verify(sums)


def test_counters_of_one_member_are_reset_and_those_of_others_stay(make_volume):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=5, member_mib=128)
    volume.make()
    volume.mount()
    fill(volume.mount_point, 1, file_count=60)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    rot(volume, range(2))
    assert scrub(volume)["repaired_blocks"] > 100

    def errors():
        return {line["devid"]: line["corruption_errs"] + line["parity_errs"]
                for line in volume.counters()["device-stats"]}

    before = errors()
    assert before[1] > 0 and before[2] > 0
    # The file behind a loop device is that member, too.
    for named, after in ((volume.images[0], {**before, 1: 0}), (volume.devices[1], {**before, 1: 0, 2: 0})):
        index = 0 if named == volume.images[0] else 1
        shown = tool("cowraid", "device", "stats", "-z", named).stdout
        assert volume.devices[index] in shown and volume.devices[1 - index] not in shown
        assert errors() == after
    tool("cowraid", "device", "stats", "-z", volume.mount_point)
    assert set(errors().values()) == {0}


def test_what_is_lost_is_said(make_volume):
    volume = make_volume(data="raid5", metadata="raid1c3", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    fill(volume.mount_point, 2)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    rot(volume, [0, 1])
    report = scrub(volume, expect=3)
    assert report["lost_blocks"] > 0
    assert len(report["lost_addresses"]) == min(report["lost_blocks"], 4096)
    assert report["unreadable_nodes"] == 0
    assert tool("cowraid", "scrub", "status", "--check", volume.mount_point, check=False).returncode == 3
    assert tool("cowraid", "status", "--check", volume.mount_point, check=False).returncode == 2
    text = tool("cowraid", "scrub", "status", "-d", volume.mount_point).stdout
    assert f"  Uncorrectable:  {report['lost_blocks']}\n" in text
    for number, device in enumerate(volume.devices, 1):
        assert f"Scrub device {device} (id {number}), " in text
    assert "are lost" in text and "status -v" in text


def test_each_member_has_its_figures(make_volume):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=5, member_mib=128)
    volume.make()
    volume.mount()
    fill(volume.mount_point, 4)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    rot(volume, [1, 3], share=5)
    report = scrub(volume)
    assert report["repaired_blocks"] > 50
    for way in ("mounted", "unmounted"):
        status = status_of(volume)
        assert status["fsid"] and status["health"].startswith("ONLINE") and status["running"] is False, way
        session, devices = status["scrub_session"], status["devices"]
        assert (session["state"], session["t_start"]) == ("finished", report["started"])
        assert session["corrected_errors"] == session["csum_errors"] == report["repaired_blocks"]
        assert [device["path"] for device in devices] == [str(path) for path in volume.devices]
        for device, line in zip(devices, volume.counters()["device-stats"]):
            found = device["scrub_session"]
            assert found["bytes_scrubbed"] > 0
            assert found["csum_errors"] == line["corruption_errs"] + line["parity_errs"], way
            assert found["corrected_errors"] == line["repaired_blocks"]
            assert (found["csum_errors"] > 10) == (device["devid"] in (2, 4))
            assert found["read_errors"] == found["uncorrectable_errors"] == found["unverified_errors"] == 0
            assert device["scrub_lifetime"]["csum_errors"] == found["csum_errors"]
        text = tool("cowraid", "scrub", "status", "-d", volume.mount_point).stdout
        count = devices[1]["scrub_session"]["csum_errors"]
        assert f"Scrub device {volume.devices[1]} (id 2), " in text
        assert f"read=0 csum={count} super=0\n  Corrected:      {count}\n" in text
        volume.unmount()
        volume.mount()


def damaged_files(volume):
    status = json.loads(tool("cowraid", "status", "-v", "--json", volume.mount_point).stdout)["volumes"][0]
    return status["health"], {path: file for file in status["damage"]["files"] for path in file["paths"]}


def test_damaged_files_are_named_until_they_are_whole_or_gone(make_volume):
    volume = make_volume(data="raid5", metadata="raid1c3", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 2)
    (volume.mount_point / "folder").mkdir()
    for path in list(sums)[:5]:
        os.link(path, volume.mount_point / "folder" / path.name)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    assert "errors: No known data errors\n" in tool("cowraid", "status", "-v", volume.mount_point).stdout
    rot(volume, [0, 1], share=3)
    lost = scrub(volume, expect=3)["lost_blocks"]
    unreadable = set()
    for path in list(sums) + list((volume.mount_point / "folder").iterdir()):
        try:
            path.read_bytes()
        except OSError:
            unreadable.add("/" + str(path.relative_to(volume.mount_point)))
    assert unreadable
    for way in ("mounted", "unmounted", "killed"):
        health, named = damaged_files(volume)
        assert health == "DAMAGED" and set(named) == unreadable, way
        text = tool("cowraid", "status", "-v", volume.mount_point).stdout
        assert all(path in text for path in unreadable)
        assert "errors: Permanent errors have been detected in the following files:\n" in text
        text = tool("cowraid", "status", volume.mount_point).stdout
        assert f"errors: {lost} data errors, cowraid status -v names the files\n" in text
        inodes = {file["inode"]: file["blocks"] for file in named.values()}
        assert sum(inodes.values()) == lost
        if way == "mounted":
            volume.unmount()
            volume.mount()
        elif way == "unmounted":
            volume.kill()
            volume.mount()
    for number, path in enumerate(sorted(unreadable)):
        file = volume.mount_point / path[1:]
        if number % 2 == 0:
            file.write_bytes(os.urandom(10000))
        elif file.exists():
            file.unlink()
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    _, named = damaged_files(volume)
    assert not any((volume.mount_point / path[1:]).read_bytes() for path in named
                   if (volume.mount_point / path[1:]).exists()), named
    scrub(volume)
    health, named = damaged_files(volume)
    assert health.startswith("ONLINE") and not named


def test_many_damaged_files_are_all_named(make_volume):
    """More than the daemon names at a time."""
    volume = make_volume(data="raid5", metadata="raid1c3", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    content = random_content(4096)
    for number in range(12000):
        (volume.mount_point / f"file{number}").write_bytes(content)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    rot(volume, [0, 1], share=1)
    lost = scrub(volume, expect=3)["lost_blocks"]
    _, named = damaged_files(volume)
    assert len(named) == lost > 5000
    with pytest.raises(OSError):
        (volume.mount_point / list(named)[-1][1:]).read_bytes()
    shown = tool("cowraid", "status", "-v", volume.mount_point).stdout
    assert shown.count("'/file") == lost and "  and " not in shown


def test_a_scrub_goes_on_after_an_unmount_and_after_a_kill(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount()
    for number in range(8):
        (volume.mount_point / f"file{number}").write_bytes(random_content(8 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    whole = scrub(volume)
    tool("cowraid", "scrub", "start", "--limit", "4m", volume.mount_point)
    started = status_of(volume)["started"]
    done = 0
    for step in ("unmount", "kill"):
        wait_for(lambda: status_of(volume)["bytes_done"] > done)
        if step == "kill":
            # A commit has it.
            (volume.mount_point / "mark").write_bytes(b"x")
            tool("cowraid", "filesystem", "sync", volume.mount_point)
        before = status_of(volume)["bytes_done"]
        volume.unmount() if step == "unmount" else volume.kill()
        volume.mount()
        after = status_of(volume)
        assert (after["state"], after["started"]) == ("running", started)
        assert after["bytes_done"] >= (before if step == "unmount" else done) > 0
        done = after["bytes_done"]
    wait_until_it_ends(volume)
    ended = status_of(volume)
    check_clean(ended)
    assert ended["started"] == started
    assert ended["data_blocks"] >= whole["data_blocks"]
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    assert scrub(volume, "--plan", "new")["parity_blocks"] == 0
    assert scrub(volume, "--older-than", "1h")["parity_blocks"] == 0
    assert 0 < scrub(volume, "--plan", "10%")["parity_blocks"] < whole["parity_blocks"]
    for options in (["--plan", "some"], ["--plan", "0%"], ["--plan", "percent"], ["--older-than", "0"],
                    ["--older-than", "1y"]):
        refused = tool("cowraid", "scrub", "start", *options, volume.mount_point, check=False)
        assert refused.returncode == 2, options


def test_looking_repairs_nothing(make_volume):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    fill(volume.mount_point, 3)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    rot(volume, [2], share=7)
    looked = scrub(volume, "-r", expect=3)
    assert looked["unrepaired_blocks"] > 10 and looked["repaired_blocks"] == 0
    again = scrub(volume, "-r", expect=3)
    assert again["unrepaired_blocks"] == looked["unrepaired_blocks"]
    # A pass over a part of it says nothing of the rest.
    wrong = f"{looked['unrepaired_blocks']} blocks are not as they should be"
    assert scrub(volume, "--plan", "bad")["unrepaired_blocks"] == 0
    assert wrong in tool("cowraid", "status", volume.mount_point).stdout
    volume.unmount()
    volume.mount()
    assert scrub(volume, "--plan", "bad")["unrepaired_blocks"] == 0
    assert wrong in tool("cowraid", "status", volume.mount_point).stdout
    assert scrub(volume)["repaired_blocks"] == looked["unrepaired_blocks"]
    assert wrong not in tool("cowraid", "status", volume.mount_point).stdout
    check_clean(scrub(volume))


def test_beside_writers_nothing_is_wrong(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount(options="join_above=0")
    ended = threading.Event()

    def write(number):
        generator = random.Random(number)
        path = volume.mount_point / f"file{number}"
        path.write_bytes(generator.randbytes(8 << 20))
        with open(path, "r+b", buffering=0) as file:
            while not ended.is_set():
                os.pwrite(file.fileno(), generator.randbytes(4096 * generator.randrange(1, 9)),
                          4096 * generator.randrange(2000))
                if generator.randrange(20) == 0:
                    os.fsync(file.fileno())

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        end = time.monotonic() + 12
        passes = 0
        while passes < 3 or time.monotonic() < end:
            check_clean(scrub(volume))
            passes += 1
    finally:
        ended.set()
        for writer in writers:
            writer.join()
    assert not any(line[name] for line in volume.counters()["device-stats"]
                   for name in ("corruption_errs", "parity_errs", "repaired_blocks", "read_io_errs"))
    volume.unmount()
    volume.check()


def test_start_pause_resume_cancel(volume):
    none = tool("cowraid", "scrub", "status", volume.mount_point).stdout
    assert "no scrub was made" in none
    for command in ("pause", "resume", "cancel"):
        refused = tool("cowraid", "scrub", command, volume.mount_point, check=False)
        assert refused.returncode == 2 and "no scrub is" in refused.stderr
    (volume.mount_point / "file").write_bytes(random_content(64 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    started = tool("cowraid", "scrub", "start", "--limit", "16m", volume.mount_point)
    assert "scrub started" in started.stdout
    refused = tool("cowraid", "scrub", "start", volume.mount_point, check=False)
    assert refused.returncode == 1 and "a scrub is under way" in refused.stderr
    tool("cowraid", "scrub", "pause", volume.mount_point)

    def stands_still():
        before = status_of(volume)["bytes_done"]
        time.sleep(0.5)
        return status_of(volume)["bytes_done"] == before

    time.sleep(2)
    wait_for(stands_still)  # what is under way comes to its end
    paused = status_of(volume)
    assert paused["state"] == "paused" and paused["limit_bytes_per_second"] == 16 << 20
    time.sleep(1)
    assert status_of(volume)["bytes_done"] == paused["bytes_done"]
    tool("cowraid", "scrub", "resume", volume.mount_point)
    # 128 MiB on members at 16 MiB a second.
    wait_until_it_ends(volume)
    ended = status_of(volume)
    check_clean(ended)
    assert ended["bytes_done"] > 120 << 20
    assert ended["bytes_done"] * 1000 / ended["run_ms"] < 1.6 * (16 << 20)
    tool("cowraid", "scrub", "start", "--limit", "1m", volume.mount_point)
    again = tool("cowraid", "scrub", "-r", volume.mount_point, check=False)
    assert again.returncode == 1 and "a scrub is under way" in again.stderr
    tool("cowraid", "scrub", "pause", volume.mount_point)
    for words in (["scrub"], ["scrub", "start", "-B"]):
        paused = tool("cowraid", *words, volume.mount_point, check=False)
        assert paused.returncode == 1 and "a scrub is paused" in paused.stderr
    tool("cowraid", "scrub", "cancel", volume.mount_point)
    assert status_of(volume)["state"] == "cancelled"


def test_each_member_is_told_of_at_the_end(volume):
    (volume.mount_point / "file").write_bytes(random_content(64 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    for words in (["start", "-Bd"], ["-d"]):
        told = tool("cowraid", "scrub", *words, volume.mount_point).stdout
        parts = told.split("\nScrub device ")
        assert "Result:           no errors found" in parts[0]
        assert [part.split()[0] for part in parts[1:]] == list(map(str, volume.devices))
        for part in parts[1:]:
            assert re.search(r"^Bytes scrubbed:   [1-9]", part, re.MULTILINE), part
            assert "Error summary:    no errors found" in part
    assert "Scrub device" not in tool("cowraid", "scrub", "start", "-B", volume.mount_point).stdout


def start_and_wait(volume, *options):
    words = [TOOLS / "cowraid", "scrub", "start", "-B", *options, volume.mount_point]
    command = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: command.poll() is not None or status_of(volume)["state"] == "running")
    return command


def test_who_waits_for_a_scrub_that_does_not_end_is_told(volume):
    (volume.mount_point / "file").write_bytes(random_content(64 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    command = start_and_wait(volume, "--limit", "8m")
    tool("cowraid", "scrub", "cancel", volume.mount_point)
    _, said = command.communicate(timeout=PATIENCE)
    assert command.returncode == 1 and "was cancelled" in said
    command = start_and_wait(volume, "--limit", "8m")
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=PATIENCE)
    assert command.returncode == 1 and "goes on" in said
    assert status_of(volume)["state"] == "running"
    tool("cowraid", "scrub", "pause", volume.mount_point)
    volume.mount(options="remount,ro")
    refused = tool("cowraid", "scrub", "resume", volume.mount_point, check=False)
    assert refused.returncode == 1 and "read-only" in refused.stderr
    refused = tool("cowraid", "scrub", "cancel", volume.mount_point, check=False)
    assert refused.returncode == 1 and "read-only" in refused.stderr
    volume.mount(options="remount,rw")
    assert status_of(volume)["state"] == "paused"
    tool("cowraid", "scrub", "cancel", volume.mount_point)
    command = start_and_wait(volume, "--limit", "8m")
    volume.unmount()
    _, said = command.communicate(timeout=PATIENCE)
    assert command.returncode == 1 and "goes on when it is mounted again" in said


def test_members_out_of_service_are_not_passed_over(make_volume):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=5, member_mib=128)
    volume.make()
    volume.mount()
    fill(volume.mount_point, 7)
    volume.unmount()
    volume.hide([2])
    volume.mount([device for index, device in enumerate(volume.devices) if index != 2], "degraded")
    report = scrub(volume, expect=3)
    assert report["unverified_blocks"] > 0
    assert report["unrepaired_blocks"] == report["lost_blocks"] == 0
    assert "blocks not verified (on members out of service)" in tool(
        "cowraid", "scrub", volume.mount_point, check=False).stdout


def test_lost_nodes_are_called_nodes(make_volume):
    volume = make_volume(data="single", metadata="single", member_count=1, member_mib=128)
    volume.make()
    volume.mount()
    for number in range(2000):
        (volume.mount_point / f"a file with a long name {number:05d}").touch()
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    rot(volume, [0], begin=16 << 20)
    report = scrub(volume, expect=3)
    assert report["unreadable_nodes"] > 0
    assert report["lost_blocks"] == 0
    assert report["lost_addresses"] == []
    status = json.loads(tool("cowraid", "status", "-v", "--json", volume.mount_point).stdout)["volumes"][0]
    assert status["health"] == "DAMAGED"
    assert status["damage"]["node_count"] > 0
    text = tool("cowraid", "status", "-v", volume.mount_point).stdout
    assert "tree nodes cannot be read" in text or "tree node cannot be read" in text
    assert "  a node of the " in text


def test_a_volume_is_named_like_anywhere(make_volume):
    volume = make_volume(member_mib=128)
    volume.make("-L", "scrubbed")
    volume.mount()
    (volume.mount_point / "file").write_bytes(random_content(1 << 20))
    for name in ("scrubbed", volume.mount_point.name, "."):
        folder = volume.mount_point if name == "." else volume.mount_point.parent
        result = tool("cowraid", "scrub", name, cwd=folder, check=False)
        assert (result.returncode, "no errors found" in result.stdout) == (0, True), name + result.stderr


def test_the_word_alone_scrubs_and_waits(volume):
    (volume.mount_point / "file").write_bytes(random_content(4 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    result = tool("cowraid", "scrub", cwd=volume.mount_point)
    assert "no errors found" in result.stdout and "finished" in result.stdout
    result = tool("cowraid", "scrub", volume.mount_point)
    assert "no errors found" in result.stdout
    assert "scrub pause" in tool("cowraid", "scrub", "--help").stdout
    assert "-B" in tool("cowraid", "scrub", "start", "--help").stdout
    volume.unmount()
    refused = tool("cowraid", "scrub", volume.devices[0], check=False)
    assert refused.returncode == 1
    volume.mount(options="ro")
    refused = tool("cowraid", "scrub", volume.mount_point, check=False)
    assert refused.returncode == 1 and "read-only" in refused.stderr
    for options in (["--limit", "0"], ["--limit", "fast"], ["-Q"]):
        refused = tool("cowraid", "scrub", "start", *options, volume.mount_point, check=False)
        assert refused.returncode == 2, refused


def test_what_nobody_misses_is_told(make_volume):
    """Two free blocks of a row with one parity: it says nothing of the block in use any more."""
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    content = random_content(4096)
    (volume.mount_point / "file").write_bytes(content)
    volume.unmount()
    # With zeros in the free blocks parity is what the block in use is.
    places = [image.read_bytes().find(content, SLOTS_BEGIN) for image in volume.images]
    (place,) = set(places) - {-1}
    used = [index for index, at in enumerate(places) if at == place]
    assert len(used) == 2 and place % 4096 == 0
    for index in set(range(4)) - set(used):
        with open(volume.images[index], "r+b") as file:
            assert os.pread(file.fileno(), 4096, place) == bytes(4096)
            os.pwrite(file.fileno(), random_content(4096), place)
            os.fsync(file.fileno())
    volume.mount()
    for _ in range(2):
        told = tool("cowraid", "scrub", "start", "-B", "-r", volume.mount_point, check=False)
        assert told.returncode == 3, told.stdout + told.stderr
        assert "Error summary:    blocks=1 nodes=0\n" in told.stdout
        assert "  Not corrected:  1\n" in told.stdout
        assert "Result:           1 block can be repaired; run it without -r\n" in told.stdout
        assert tool("cowraid", "scrub", "status", "--check", volume.mount_point, check=False).returncode == 3
        looked = status_of(volume)
        assert (looked["unrepaired_blocks"], looked["repaired_blocks"], looked["lost_blocks"]) == (1, 0, 0)
    told = tool("cowraid", "scrub", "start", "-B", volume.mount_point)
    assert "1 block repaired, nothing is lost" in told.stdout
    repaired = status_of(volume)
    assert (repaired["repaired_blocks"], repaired["adopted_blocks"]) == (1, 3)
    assert "no errors found" in tool("cowraid", "scrub", "start", "-B", "-r", volume.mount_point).stdout
    check_clean(status_of(volume))
    volume.unmount()
    volume.check()
    for index in used:
        volume.hide([index])
        volume.mount([device for at, device in enumerate(volume.devices) if at != index], "degraded,ro")
        assert (volume.mount_point / "file").read_bytes() == content
        volume.unmount()
        volume.unhide([index])


def test_killed_in_the_middle(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 5, file_count=80)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    rot(volume, [3])
    tool("cowraid", "scrub", "start", "--limit", "4m", volume.mount_point)
    started = status_of(volume)["started"]
    wait_for(lambda: status_of(volume)["bytes_done"] > 0)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    volume.kill()
    subprocess.run(["umount", "-i", "-l", volume.mount_point], check=True)
    volume.mount()
    # It goes on.
    assert status_of(volume)["started"] == started
    wait_until_it_ends(volume)
    ended = status_of(volume)
    assert (ended["state"], ended["started"], ended["lost_blocks"]) == ("finished", started, 0)
    check_clean(scrub(volume))
    verify(sums)
    volume.unmount()
    volume.check()
