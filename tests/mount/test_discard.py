# SPDX-License-Identifier: MIT
"""fstrim, the discard option and mkfs: what is free goes back to where image files lie."""

import fcntl
import json
import os
import pwd
import random
import re
import shutil
import struct
import subprocess

import pytest

from conftest import PATIENCE, TOOLS, random_content, run, tool, wait_for

MIB = 1 << 20
FITRIM = 0xC0185879
SETUPS = {"raid5": (4, "raid1", 4 / 3), "raid6": (5, "raid1c3", 5 / 3)}


def taken(volume):
    """Bytes of the images on their filesystem."""
    return sum(os.stat(image).st_blocks * 512 for image in volume.images)


def fill(volume, count, size):
    """Random files; what they hold by name."""
    content = {f"file{index}": random_content(size + random.randrange(-size // 4, size // 4))
               for index in range(count)}
    for name, data in content.items():
        (volume.mount_point / name).write_bytes(data)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    return content


def delete_half(volume, content):
    """Every other file; the bytes that they had."""
    names = sorted(content)[::2]
    gone = sum(len(content.pop(name)) for name in names)
    for name in names:
        os.unlink(volume.mount_point / name)
    return gone


def verify(volume, content):
    """Read from members, not from caches."""
    assert len(content) > 10
    assert {entry.name for entry in os.scandir(volume.mount_point)} == set(content)
    for name, data in content.items():
        assert (volume.mount_point / name).read_bytes() == data, name


def scrub_clean(volume):
    status = json.loads(tool("cowraid", "scrub", "start", "-B", "--json", volume.mount_point).stdout)
    text = json.dumps(status)
    for word in ("repaired", "unrepaired", "lost", "adopted"):
        found = [int(number) for number in re.findall(rf'"{word}[a-z_]*": (\d+)', text)]
        assert not any(found), text
    return status


def discarded(volume):
    status = json.loads(tool("cowraid", "status", "--json", volume.mount_point).stdout)
    return int(re.search(r'"discarded_bytes": (\d+)', json.dumps(status)).group(1))


def settle(volume):
    """Until what was deleted is free."""
    for _ in range(3):
        tool("cowraid", "filesystem", "sync", volume.mount_point)


@pytest.mark.parametrize("loops", [False, True], ids=["images", "loops"])
@pytest.mark.parametrize("profile", SETUPS)
def test_fstrim_returns_what_was_deleted(make_volume, profile, loops):
    members, metadata, factor = SETUPS[profile]
    volume = make_volume(member_count=members, member_mib=256, data=profile, metadata=metadata, loops=loops)
    volume.make()
    volume.mount(options="discard=off")
    content = fill(volume, 40, 8 * MIB)
    full = taken(volume)
    gone = delete_half(volume, content)
    settle(volume)
    assert taken(volume) > full - gone * factor / 4  # nobody was told yet
    told = run("fstrim", "-v", volume.mount_point).stdout
    assert re.search(r"\d+ bytes\) trimmed", told), told
    back = full - taken(volume)
    print(f"{profile}: {full >> 20} MiB, {gone * factor / MIB:.0f} of them deleted, {back / MIB:.0f} back")
    assert back > 0.95 * gone * factor
    verify(volume, content)
    scrub_clean(volume)
    volume.unmount()
    volume.check()
    volume.drop_caches()
    volume.mount(options="discard=off")
    verify(volume, content)
    # What was discarded is written again.
    content.update({f"more{name}": data for name, data in list(content.items())})
    for name, data in content.items():
        (volume.mount_point / name).write_bytes(data)
    settle(volume)
    verify(volume, content)
    scrub_clean(volume)
    volume.unmount()
    volume.check()


def test_option_discards_without_being_asked(make_volume):
    volume = make_volume(member_count=4, member_mib=256, data="raid5", metadata="raid1", loops=False)
    volume.make()
    volume.mount(options="discard=async,commit=1")
    content = fill(volume, 24, 8 * MIB)
    full = taken(volume)
    gone = delete_half(volume, content)
    wait_for(lambda: full - taken(volume) > gone, otherwise=lambda: f"{full - taken(volume)} of {gone}")
    wait_for(lambda: discarded(volume) > gone)  # it is counted when it is done
    verify(volume, content)
    scrub_clean(volume)
    # A remount changes it.
    tool("mount.cowraid", volume.devices[0], volume.mount_point, "-o", "remount,nodiscard")
    assert "discard=off" in tool("cowraid", "status", "--json", volume.mount_point).stdout


def trim(descriptor, start=0, length=(1 << 64) - 1, least=0):
    """The number of bytes, as FITRIM gives it."""
    answer = fcntl.ioctl(descriptor, FITRIM, struct.pack("QQQ", start, length, least))
    return struct.unpack("QQQ", answer)[1]


def error_of(call, *arguments):
    with pytest.raises(OSError) as caught:
        call(*arguments)
    return caught.value.errno


def test_a_removal_does_not_wait_for_stripes_to_discard(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=5, member_mib=256)
    volume.make()
    volume.mount(options=f"discard=async,commit={5 * int(PATIENCE)}")
    content = fill(volume, 24, 16 * MIB)
    delete_half(volume, content)  # free with the removal's first commit
    tool("cowraid", "device", "remove", "2", volume.mount_point, timeout=2 * PATIENCE)
    verify(volume, content)
    scrub_clean(volume)


def test_who_may_trim_what(make_volume):
    volume = make_volume(member_count=3, member_mib=128, data="raid5", metadata="raid1", loops=False)
    volume.make()
    volume.mount(options="discard=off")
    os.chmod(volume.mount_point, 0o755)
    file = volume.mount_point / "file"
    file.write_bytes(random_content(4 * MIB))
    os.chmod(file, 0o644)
    root = os.open(volume.mount_point, os.O_RDONLY | os.O_DIRECTORY)
    assert trim(root) > 100 * MIB
    assert trim(root, least=1 << 20) > 10 * MIB  # slots of no group, side by side
    # A group that was opened beside a trim and went again leaves slots, which are discarded by the next one.
    wait_for(lambda: trim(root, least=1 << 40) == 0)
    assert error_of(trim, root, 1 << 40) == 22
    wait_for(lambda: trim(root, 0, 4096) == 0)  # no group is there
    assert error_of(trim, root, 0, 100) == 22
    with open(file, "rb") as opened:
        assert trim(opened.fileno()) > 0
        assert error_of(fcntl.ioctl, opened.fileno(), 0x12345, 0) == 25
    nobody = pwd.getpwnam("nobody").pw_uid
    code = (f"import fcntl, os, struct; os.setuid({nobody}); fd = os.open('{file}', os.O_RDONLY)\n"
            f"try: fcntl.ioctl(fd, {FITRIM}, struct.pack('QQQ', 0, 1 << 62, 0))\n"
            "except OSError as error: print(error.errno)")
    assert run("python3", "-c", code).stdout.strip() == "1"
    # Root without the right to.
    without = run("setpriv", "--bounding-set", "-sys_admin", "fstrim", volume.mount_point, check=False)
    assert without.returncode != 0 and "not permitted" in without.stderr
    os.close(root)
    tool("mount.cowraid", volume.devices[0], volume.mount_point, "-o", "remount,ro")
    with open(file, "rb") as opened:
        assert error_of(trim, opened.fileno()) == 30


def test_trim_goes_on_beside_writers(make_volume):
    volume = make_volume(member_count=4, member_mib=256, data="raid5", metadata="raid1", loops=False)
    volume.make()
    volume.mount(options="discard=async,commit=1")
    content = fill(volume, 30, 4 * MIB)
    loop = f"for i in 1 2 3 4 5 6; do fstrim {volume.mount_point} || exit 1; done"
    trims = subprocess.Popen(["sh", "-c", loop])
    for round_ in range(6):
        for name in sorted(content)[round_::3]:
            content[name] = random_content(random.randrange(1, 6 * MIB))
            (volume.mount_point / name).write_bytes(content[name])
    assert trims.wait(timeout=300) == 0
    verify(volume, content)
    settle(volume)
    run("fstrim", volume.mount_point)
    scrub_clean(volume)
    volume.unmount()
    volume.check()
    volume.drop_caches()
    volume.mount()
    verify(volume, content)


def test_full_volume_has_all_its_room_beside_a_trim(make_volume):
    volume = make_volume(member_count=4, member_mib=128, data="raid5", metadata="raid1", loops=False)
    volume.make()
    volume.mount(options="discard=async,commit=1")

    def fill_up():
        written = 0
        with open(volume.mount_point / "all", "wb") as file:
            try:
                while True:
                    written += file.write(random_content(MIB))
                    file.flush()
            except OSError as error:
                assert error.errno == 28
        os.unlink(volume.mount_point / "all")
        settle(volume)
        return written

    alone = fill_up()
    trims = subprocess.Popen(["sh", "-c", f"while :; do fstrim {volume.mount_point} || exit 1; done"])
    try:
        beside = fill_up()
    finally:
        trims.kill()
        trims.wait()
    print(f"{alone >> 20} MiB alone, {beside >> 20} MiB beside trims")
    assert beside >= alone - 4 * MIB


def test_mkfs_discards_unless_told_not_to(make_volume):
    volume = make_volume(member_count=3, member_mib=64, data="raid5", metadata="raid1", loops=False)
    for keeps in (True, False):
        for image in volume.images:
            with open(image, "r+b") as file:
                for _ in range(64):
                    file.write(random_content(MIB))
                os.fsync(file.fileno())
        assert taken(volume) >= 3 * 64 * MIB
        volume.make("-f", *(["-K"] if keeps else []))
        assert (taken(volume) >= 3 * 63 * MIB) == keeps
        assert all(os.path.getsize(image) == 64 * MIB for image in volume.images)
    volume.mount()
    volume.unmount()
    volume.check()


def another_filled(volume, mebibytes):
    """A device that is no member, and its image, all of which was written."""
    loop = volume.another(mebibytes)
    content = random_content(MIB)
    with open(volume.images[-1], "r+b") as file:
        for _ in range(mebibytes):
            file.write(content)
        os.fsync(file.fileno())
    return loop, volume.images[-1]


def taken_of(image):
    return os.stat(image).st_blocks * 512


def holds_random(image):
    with open(image, "rb") as file:
        return sum(file.read(MIB).count(0) < MIB // 100 for _ in range(os.path.getsize(image) // MIB))


@pytest.mark.parametrize("spare", [False, True], ids=["member", "spare"])
def test_added_devices_are_discarded_when_all_agree(make_volume, spare):
    volume = make_volume(member_count=3, member_mib=128, data="raid5", metadata="raid1")
    volume.make()
    volume.mount()
    content = fill(volume, 16, 4 * MIB)
    words = ["--spare"] if spare else []
    first, first_image = another_filled(volume, 128)
    small, small_image = another_filled(volume, 60)
    add = ["device", "add", *words]
    refused = tool("cowraid", *add, first, small, volume.mount_point, check=False)
    assert refused.returncode == 1 and "60.00MiB" in refused.stderr
    if not spare:
        tool("cowraid", *add, "--plan", first, volume.mount_point)
    assert holds_random(first_image) == 128 and holds_random(small_image) == 60
    # It holds something.
    run("mkswap", first)
    kept = taken_of(first_image)
    assert "-f" in tool("cowraid", *add, first, volume.mount_point, check=False).stderr
    assert taken_of(first_image) == kept >= 128 * MIB
    tool("cowraid", *add, "-f", "-K", first, volume.mount_point)
    assert taken_of(first_image) >= 128 * MIB
    second, second_image = another_filled(volume, 128)
    tool("cowraid", *add, second, volume.mount_point)
    assert taken_of(second_image) < 32 * MIB
    verify(volume, content)
    scrub_clean(volume)
    volume.unmount()
    volume.check()


def test_a_successor_is_discarded(make_volume):
    volume = make_volume(member_count=4, member_mib=128, data="raid5", metadata="raid1")
    volume.make()
    volume.mount()
    content = fill(volume, 16, 2 * MIB)
    small, small_image = another_filled(volume, 100)
    refused = tool("cowraid", "replace", "start", volume.devices[1], small, volume.mount_point, check=False)
    assert refused.returncode == 1 and holds_random(small_image) == 100
    first, first_image = another_filled(volume, 128)
    tool("cowraid", "replace", "start", "--plan", volume.devices[1], first, volume.mount_point)
    assert holds_random(first_image) == 128
    tool("cowraid", "replace", "start", "-B", volume.devices[1], first, volume.mount_point)
    assert taken_of(first_image) < 64 * MIB
    verify(volume, content)
    # Of a volume that is not mounted, and kept.
    volume.unmount()
    members = [volume.devices[0], volume.devices[2], first]
    second, second_image = another_filled(volume, 128)
    tool("cowraid", "replace", "start", "-K", "4", second, *members)
    assert taken_of(second_image) >= 128 * MIB
    third, third_image = another_filled(volume, 128)
    tool("cowraid", "replace", "start", "4", third, *members)
    assert taken_of(third_image) < 32 * MIB
    volume.mount(devices=[*members, third])
    verify(volume, content)
    tool("cowraid", "scrub", "start", "-B", volume.mount_point)
    verify(volume, content)
    volume.unmount()
    assert json.loads(tool("cowraid", "check", "--json", *members, third).stdout)["clean"]


def test_a_discard_that_takes_long(make_volume):
    """The daemon closes connections on which nothing is asked for five seconds."""
    if shutil.which("strace") is None:
        pytest.skip("no strace")
    volume = make_volume(member_count=3, member_mib=128, data="raid5", metadata="raid1")
    volume.make()
    volume.mount()
    image = volume.folder / "image.img"
    image.write_bytes(random_content(128 * MIB))
    os.chmod(image, 0o600)
    log = volume.folder / "calls"
    run("strace", "-f", "-o", log, "-e", "trace=fallocate", "-e", "inject=fallocate:delay_enter=7000000",
        TOOLS / "cowraid", "device", "add", image, volume.mount_point)
    assert log.read_text().count("FALLOC_FL_PUNCH_HOLE") == 1
    assert taken_of(image) < 32 * MIB
    shown = json.loads(tool("cowraid", "filesystem", "usage", "--json", volume.mount_point).stdout)
    assert [member["path"] for member in shown["members"]][3:] == [str(image)]
    volume.unmount()
    check = tool("cowraid", "check", "--json", *volume.devices, image)
    assert json.loads(check.stdout)["clean"]
