# SPDX-License-Identifier: MIT
"""Members that come back while the volume is mounted."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import TOOLS, random_content, run, tool, wait_for
from member_file import DetachableFile, MemberFile
from test_balance import Writer
from test_catch_up import without
from test_redundancy import fill, verify

SECONDS = float(os.environ.get("COWRAID_ONLINE_SECONDS", "3"))


def transferred(device):
    """Bytes read and written since the device was attached."""
    numbers = Path(f"/sys/block/{Path(device).name}/stat").read_text(encoding="ascii").split()
    return int(numbers[2]) * 512, int(numbers[6]) * 512


def online(volume, what, *options, check=True):
    return tool("cowraid", "device", "online", *options, what, volume.mount_point, check=check)


def states(volume):
    shown = tool("cowraid", "filesystem", "show", "--json", volume.mount_point).stdout
    return [member["state"] for member in json.loads(shown)["volumes"][0]["members"]]


def in_status(volume):
    return tool("cowraid", "status", volume.mount_point).stdout


@pytest.mark.parametrize("data,metadata,count,fault", [("raid5", "raid1", 4, MemberFile),
                                                       ("raid6", "raid1c3", 5, DetachableFile)])
def test_a_member_that_failed_under_load_is_caught_up(make_volume, data, metadata, count, fault):
    """Show 4. It fails writes or is detached, is back under another name, and gets what was written
    meanwhile. The volume is so full that this goes into block groups that the member has a part of."""
    volume = make_volume(data=data, metadata=metadata, member_count=count, member_mib=256, may_fail=[1],
                         member_file=fault)
    volume.make()
    volume.mount()
    old = fill(volume.mount_point, 1, file_count=60)
    space = os.statvfs(volume.mount_point)
    big = random_content(space.f_bavail * space.f_frsize // 100 * 88)
    (volume.mount_point / "big").write_bytes(big)
    run("sync", "-f", volume.mount_point)
    writer = Writer(volume.mount_point)
    volume.fail_writes()
    others = without(volume, [1])
    before = [transferred(device)[1] for device in others]
    writer.start()
    time.sleep(SECONDS)
    writer.finish()
    (volume.mount_point / "meanwhile").write_bytes(big[:24 << 20])
    run("sync", "-f", volume.mount_point)
    missed = max(transferred(device)[1] - start for device, start in zip(others, before))
    assert states(volume)[1] == "failed"
    assert "cowraid device online DEVICE" in in_status(volume)
    lost = volume.loops[1]
    volume.mend_writes()
    assert volume.loops[1] != lost
    writer = Writer(volume.mount_point) if data == "raid5" else None
    start = [transferred(device) for device in volume.devices]
    said = online(volume, volume.loops[1], "-B")
    assert said.stdout.startswith(f"{volume.loops[1]} is member 2 again")
    end = [transferred(device) for device in volume.devices]
    read = sum(after[0] - first[0] for after, first in zip(end, start))
    written = end[1][1] - start[1][1]
    print(f"{data}: missed {missed >> 20} MiB, written to it {written >> 20} MiB, read {read >> 20} MiB")
    logs = 8 << 20  # erased
    assert 0 < written - logs < 2 * missed
    # Of all members together. What was there before is not read.
    assert read < 2 * missed * count
    assert read < max(len(big) // 2, missed * count)
    assert states(volume) == ["present"] * count
    assert not any(line["stale_groups"] for line in volume.counters()["device-stats"])
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    verify(old)
    if writer:
        writer.verify()
    volume.unmount()
    volume.check()
    volume.hide([0])
    volume.mount(without(volume, [0]), "degraded,ro")
    verify(old)
    assert (volume.mount_point / "big").read_bytes() == big
    assert (volume.mount_point / "meanwhile").read_bytes() == big[:24 << 20]


def test_offline_and_online_beside_a_writer(make_volume):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=5, member_mib=256)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=60)
    writer = Writer(volume.mount_point)
    writer.start()
    try:
        for round_number in range(4):
            names = [volume.devices[round_number], str(round_number + 2)]
            for name, index in zip(names, (round_number, round_number + 1)):
                said = tool("cowraid", "device", "offline", name, volume.mount_point).stdout
                assert said.startswith(f"member {index + 1} ({volume.devices[index]}) is out of service")
            assert states(volume).count("missing") == 2
            last = tool("cowraid", "device", "offline", volume.devices[4 if round_number < 3 else 0],
                        volume.mount_point, check=False)
            assert last.returncode == 1 and "cannot do without member" in last.stderr
            time.sleep(0.3)
            # On the device that the daemon still has, by its id and by its name.
            online(volume, str(round_number + 1))
            online(volume, volume.devices[round_number + 1], "-B")
            volume.wait_caught_up()
            assert states(volume) == ["present"] * 5
    finally:
        writer.finish()
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    verify(sums)
    writer.verify()
    volume.unmount()
    volume.check()
    volume.hide([1, 3])
    volume.mount(without(volume, [1, 3]), "degraded,ro")
    verify(sums)
    writer.verify()


def test_a_member_that_was_absent_is_found_by_its_id(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1)
    volume.unmount()
    volume.hide([2])
    volume.mount(without(volume, [2]), "degraded")
    sums.update(fill(volume.mount_point / "dir0", 2))
    none = online(volume, "missing", check=False)
    assert none.returncode == 1 and "attach it and name its device" in none.stderr
    volume.unhide([2])
    said = json.loads(online(volume, "missing", "--json").stdout)
    assert (said["schema"], said["member"]) == ("cowraid.device-online", 3)
    assert said["path"] == volume.devices[2]
    volume.wait_caught_up()
    volume.kill()
    volume.mount()
    assert states(volume) == ["present"] * 4
    verify(sums)
    volume.unmount()
    volume.check()


def test_what_may_not_come_back_is_refused(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    fill(volume.mount_point, 1)
    volume.unmount()
    volume.hide([2])
    volume.mount(without(volume, [2]), "degraded")
    other = volume.another(128)

    def refused(what, reason, code=1):
        result = online(volume, what, check=False)
        assert result.returncode == code and len(result.stderr.splitlines()) == 1, result
        assert reason in result.stderr, result.stderr

    refused(volume.devices[0], f"member 1 ({volume.devices[0]}) is in service")
    refused("1", "is in service")
    refused("9", "is no member")
    refused(other, "carries no superblock")
    run("mkfs.ext4", "-q", other)
    refused(other, "holds ext4")
    refused(volume.folder / "nothing", "is no member")
    named = tool("cowraid", "device", "online", check=False)
    assert named.returncode == 2 and "name one member" in named.stderr
    foreign = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    foreign.make()
    refused(foreign.devices[0], "belongs to volume")
    assert states(volume)[2] == "missing"
    foreign.mount()
    refused(foreign.devices[0], "in use")


def test_udev_brings_back_only_what_is_away(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    volume.make()

    def appears(device, *more):
        return tool("cowraid", "device", "online", "--if-away", device, *more, check=False)

    def nothing_happens(device):
        said = appears(device)
        assert (said.returncode, said.stdout, said.stderr) == (0, "", "")

    nothing_happens(volume.devices[1])  # not mounted
    volume.mount()
    nothing_happens(volume.devices[1])  # in service
    nothing_happens("/dev/null")
    assert appears(volume.devices[1], volume.mount_point).returncode == 2
    sums = fill(volume.mount_point, 1, file_count=20)
    tool("cowraid", "device", "offline", "2", volume.mount_point)
    sums.update(fill(volume.mount_point, 2, file_count=20))
    nothing_happens(volume.devices[0])
    os.chown(volume.images[1], 1000, -1)
    said = appears(volume.devices[1])
    assert said.returncode == 1 and "another user's" in said.stderr
    assert states(volume)[1] != "present"
    os.chown(volume.images[1], 0, -1)
    said = appears(volume.devices[1])
    assert (said.returncode, said.stdout.split(" is ")[0]) == (0, volume.devices[1])
    volume.wait_caught_up()
    assert states(volume) == ["present"] * 3
    verify(sums)


def test_a_member_that_has_shrunk_does_not_come_back(make_volume):
    """The device that the daemon holds is asked for its size as it is now."""
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    old = fill(volume.mount_point, 1, file_count=20)
    tool("cowraid", "device", "offline", "3", volume.mount_point)
    os.truncate(volume.images[2], 60 << 20)
    run("losetup", "-c", volume.loops[2])
    refused = online(volume, "3", check=False)
    assert refused.returncode == 1
    assert "is shrunken: it has 60" in refused.stderr
    assert states(volume)[2] == "missing"
    os.truncate(volume.images[2], 128 << 20)
    run("losetup", "-c", volume.loops[2])
    online(volume, "3", "-B")
    assert states(volume) == ["present"] * 4
    verify(old)


def test_a_member_under_a_dead_mount_comes_back(make_volume):
    """A program has a file of it open, so that the kernel keeps the mount whose daemon was killed on the
    first member, out of everybody's sight."""
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=10)
    run("sync", "-f", volume.mount_point)
    first = volume.loops[0]
    with open(next(iter(sums)), "rb"):
        volume.kill()
        run("umount", "-i", "-l", volume.mount_point)
        run("truncate", "-s", "64M", volume.images[0])
        run("losetup", "-c", first)
        volume.mount(options="degraded")
        run("truncate", "-s", "128M", volume.images[0])
        run("losetup", "-c", first)
        online(volume, "1")
        volume.wait_caught_up()
        assert states(volume) == ["present"] * 4
        verify(sums)
    volume.unmount()
    volume.check()


def test_a_member_that_appears_while_the_volume_is_read_only_is_taken_when_it_is_writable(make_volume):
    """udev asks once, when the device appears."""
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=20)
    volume.unmount()
    volume.hide([2])
    volume.mount(without(volume, [2]), "degraded")
    sums.update(fill(volume.mount_point, 2, file_count=20))
    volume.unmount()
    volume.mount(without(volume, [2]), "ro,degraded")
    volume.unhide([2])
    asked = tool("cowraid", "device", "online", "--if-away", volume.devices[2], check=False)
    assert asked.returncode == 1 and states(volume)[2] == "missing"
    said = volume.mount(options="remount,rw").stderr
    assert f"{volume.devices[2]} is back in service" in said
    volume.wait_caught_up()
    assert states(volume) == ["present"] * 4
    verify(sums)
    assert volume.mount(options="remount,ro").stderr == ""
    assert volume.mount(options="remount,rw").stderr == ""
    # What a user took out of service stays out.
    tool("cowraid", "device", "offline", "2", volume.mount_point)
    volume.mount(options="remount,ro")
    assert volume.mount(options="remount,rw").stderr == ""
    assert states(volume) == ["present", "missing", "present", "present"]
    online(volume, "2", "-B")
    volume.unmount()
    volume.check()
    volume.hide([0])
    volume.mount(without(volume, [0]), "degraded,ro")
    verify(sums)


def test_a_member_that_appears_while_a_mount_opens_the_volume_is_taken(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=20)
    volume.unmount()

    def mount(*sources):
        """The daemon stands still from before the search ends until the member is there."""
        volume.hide([2])
        command = [TOOLS / "mount.cowraid", *sources, volume.mount_point, "-o",
                   "degraded,missing_dev_timeout=5"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as mounting:
            daemons = wait_for(lambda: [pid for pid in volume.serving() if pid != mounting.pid], pause=0.01)
            os.kill(daemons[0], signal.SIGSTOP)
            time.sleep(10)
            volume.unhide([2])
            os.kill(daemons[0], signal.SIGCONT)
            said = mounting.communicate(timeout=60)[1]
            assert mounting.returncode == 0, said
        return said

    said = mount(volume.devices[0])
    assert f"{volume.devices[2]} is back in service" in said
    volume.wait_caught_up()
    assert states(volume) == ["present"] * 4
    verify(sums)
    volume.unmount()
    # Who names several has named those that are to be used.
    assert "is back in service" not in mount(*without(volume, [2]))
    assert states(volume)[2] == "missing"
    online(volume, "3", "-B")
    verify(sums)
    volume.unmount()
    volume.check()
