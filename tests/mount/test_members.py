# SPDX-License-Identifier: MIT
"""Which devices a mount uses: named, found or skipped, and what is said of a member that is away."""

import json
import os
import re
import shutil
import time

import pytest

from conftest import TOOLS, Volume, random_content, run, tool, wait_for

MOUNT_FAILED = 32
LABEL = f"members-test-{os.getpid()}"


@pytest.fixture
def made(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=128)
    volume.make("-L", LABEL)
    return volume


def wipe(path):
    """What a new disk in the old one's place looks like."""
    with open(path, "r+b") as file:
        for place in range(0, os.path.getsize(path) if os.path.isfile(path) else 128 << 20, 1 << 20):
            os.pwrite(file.fileno(), bytes(1 << 20), place)
        os.fsync(file.fileno())


def refused(volume, devices=None, options=None):
    result = volume.mount(devices, options, check=False)
    assert result.returncode == MOUNT_FAILED, result.stderr
    assert not volume.is_mounted()
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr


def used_members(volume):
    """Path by member id; None for those that are away."""
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", volume.mount_point).stdout)
    return {member["id"]: member["path"] for member in shown["volumes"][0]["members"]}


@pytest.fixture
def clone(made):
    """A copy of member 2, attached as a device of its own that any scan finds."""
    image = made.folder / "clone.img"
    shutil.copyfile(made.images[1], image)
    device = Volume.attach(image)
    yield device
    run("losetup", "-d", device)


def test_a_blank_device_is_skipped_when_degraded(made):
    wipe(made.devices[1])
    line = refused(made)
    assert made.devices[1] in line and "degraded" in line and "member 2" in line
    result = made.mount(options="degraded")
    assert f"member 2 is overwritten: {made.devices[1]} carries no cowraid superblock" in result.stderr
    assert used_members(made) == {1: made.devices[0], 2: None, 3: made.devices[2], 4: made.devices[3]}


def test_a_blank_device_too_many_is_skipped_when_degraded(made):
    image = made.folder / "blank.img"
    image.write_bytes(b"")
    os.truncate(image, 128 << 20)
    devices = [str(image), *made.devices]
    line = refused(made, devices)
    assert str(image) in line and "leave it out" in line
    result = made.mount(devices, "degraded")
    assert str(image) in result.stderr and "left out" in result.stderr
    assert list(used_members(made).values()) == made.devices


def test_a_device_that_is_gone_is_skipped_when_degraded(made):
    devices = [*made.devices[:3], "/dev/no-such-disk"]
    assert "/dev/no-such-disk does not exist" in refused(made, devices)
    made.hide([3])
    result = made.mount(devices, "degraded")
    assert "/dev/no-such-disk does not exist" in result.stderr and "left out" in result.stderr
    assert used_members(made)[4] is None
    made.unmount()
    made.unhide([3])


def test_only_blank_devices_are_no_volume(made):
    for device in made.devices:
        wipe(device)
    assert made.devices[0] in refused(made, options="degraded")


def test_named_members_are_the_members_used(made):
    """A flaky disk that is left out of the list stays out."""
    line = refused(made, made.devices[:3])
    assert "member 4" in line and "degraded" in line
    made.mount(made.devices[:3], "degraded")
    assert used_members(made)[4] is None
    before = open(f"/sys/block/{os.path.basename(made.loops[3])}/stat", encoding="ascii").read()
    (made.mount_point / "f").write_bytes(random_content(1 << 20))
    made.unmount()
    assert open(f"/sys/block/{os.path.basename(made.loops[3])}/stat", encoding="ascii").read() == before


def test_one_named_member_finds_the_others(made):
    made.mount([made.devices[2]])
    assert list(used_members(made).values()) == made.devices
    made.unmount()
    # Named twice it is the whole list.
    assert "member 1" in refused(made, [made.devices[2], made.devices[2]])


def test_device_options_are_names_too(made):
    made.mount(made.devices[:1], f"degraded,device={made.devices[1]},device={made.devices[2]}")
    assert used_members(made)[4] is None
    made.unmount()
    made.mount([f"LABEL={LABEL}"], f"device={made.devices[0]}")
    assert list(used_members(made).values()) == made.devices


def test_an_unnamed_clone_does_not_disturb(made, clone):
    line = refused(made, [made.devices[0]])
    assert clone in line and made.devices[1] in line and "copy" in line
    made.mount()
    (made.mount_point / "f").write_text("content")
    assert list(used_members(made).values()) == made.devices
    made.unmount()
    assert tool("cowraid", "check", *made.devices).stdout.splitlines()[-1].split()[-1] == "clean"
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", *made.devices).stdout)
    assert [member["path"] for member in shown["volumes"][0]["members"]] == made.devices


def test_the_other_half_of_a_split_brain_is_left_out(made):
    """Copies of members 2 and 3 and member 4 go on without member 1, which went on with the originals."""
    copies = []
    for index in (1, 2):
        copy = made.folder / f"copy{index}.img"
        shutil.copyfile(made.images[index], copy)
        copies.append(copy)
    made.hide([3])
    left = made.devices[:3]
    made.mount(left, "degraded")
    (made.mount_point / "f").write_text("left")
    made.unmount()
    made.unhide([3])
    right = [Volume.attach(copy) for copy in copies] + [made.devices[3]]
    try:
        made.mount(right, "degraded")
        (made.mount_point / "f").write_text("right")
        made.unmount()
        both = [left[0], *right]
        line = refused(made, both, "degraded")
        assert "split brain" in line and left[0] in line and right[2] in line
        for devices, content in ((left, "left"), (right, "right")):
            made.mount(devices, "degraded,ro")
            assert (made.mount_point / "f").read_text() == content
            made.unmount()
    finally:
        for device in right[:2]:
            run("losetup", "-d", device)


@pytest.mark.parametrize("member_count,kept", [(2, 0), (4, 1)])
def test_a_split_brain_ends_as_its_message_says(make_volume, member_count, kept):
    """Each half is written alone. Of the two command lines one is carried out."""
    mirrored = member_count == 2
    volume = make_volume(data="raid1" if mirrored else "raid6", metadata="raid1" if mirrored else "raid1c3",
                         member_count=member_count, member_mib=128)
    volume.make()
    volume.mount()
    (volume.mount_point / "both").write_bytes(random_content(9 << 20))
    both = (volume.mount_point / "both").read_bytes()
    volume.unmount()
    half = member_count // 2
    sides = [volume.devices[:half], volume.devices[half:]]
    contents = [random_content(5 << 20), random_content(7 << 20)]
    for side, content in zip(sides, contents):
        volume.mount(side * (2 if mirrored else 1), "degraded=force")
        (volume.mount_point / "f").write_bytes(content)
        volume.unmount()
    line = refused(volume, volume.devices)
    assert f"split brain: {' '.join(sides[1])} and {' '.join(sides[0])} were" in line or \
        f"split brain: {' '.join(sides[0])} and {' '.join(sides[1])} were" in line
    commands = dict(re.findall(r"To keep ([^:]*): (mount.cowraid.*? DIR)(?=\. To keep|$)", line))
    assert set(commands) == {" ".join(side) for side in sides}, line
    command = commands[" ".join(sides[kept])]
    assert command.count("&&") == half
    path = f"{TOOLS}:{os.environ['PATH']}"
    run("sh", "-c", command.replace("DIR", str(volume.mount_point)), env=dict(os.environ, PATH=path))

    def verify():
        assert (volume.mount_point / "both").read_bytes() == both
        assert (volume.mount_point / "f").read_bytes() == contents[kept]

    verify()
    assert "healthy" in tool("cowraid", "status", "-x", volume.mount_point).stdout
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    volume.unmount()
    volume.check()
    # Found by any member, and whole without those that were kept.
    volume.mount(volume.devices[:1])
    verify()
    volume.unmount()
    volume.hide(range(kept * half, kept * half + half))
    given_back = sides[1 - kept]
    volume.mount(given_back * (2 if mirrored else 1), "degraded,ro")
    verify()
    volume.unmount()
    volume.unhide(range(kept * half, kept * half + half))


def test_image_files(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128, loops=False)
    volume.make()
    volume.mount([volume.devices[1]])
    assert list(used_members(volume).values()) == volume.devices
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", volume.mount_point).stdout)
    for name in (volume.mount_point, "UUID=" + shown["volumes"][0]["uuid"]):
        said = tool("cowraid", "check", name, check=False)
        assert said.returncode == 1 and f"mounted at {volume.mount_point}; unmount it" in said.stderr
    volume.unmount()
    assert "member 3" in refused(volume, volume.devices[:2])
    volume.mount(volume.devices[:2], "degraded")
    assert used_members(volume)[3] is None


# What is said of a member that is away: the reason, the device, the volume, and what may still fail.

def test_why_a_member_is_away_absent(made):
    made.hide([2])
    line = refused(made, made.devices[:2] + made.devices[3:])
    assert f"volume '{LABEL}': member 3 is absent;" in line and "no further member may fail" in line
    made.unhide([2])


def test_why_a_member_is_away_without_a_size(made):
    os.truncate(made.images[2], 0)
    run("losetup", "-c", made.devices[2])
    said = made.mount(options="degraded").stderr
    assert f"member 3 is unreadable: {made.devices[2]} has a size of 0" in said and "overwritten" not in said


def test_reading_needs_fewer_members_than_writing(make_volume):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=4)
    volume.make()
    volume.mount()
    (volume.mount_point / "f").write_bytes(random_content(4 << 20))
    volume.unmount()
    said = volume.mount(volume.devices[:3], "degraded").stderr
    assert "1 more member may fail, but writing needs 3 members" in said
    volume.unmount()
    said = volume.mount(volume.devices[:2], "degraded,ro").stderr
    assert "no further member may fail" in said


def test_why_a_member_is_away_overwritten(made):
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    wipe(made.devices[2])
    run("mkfs.ext4", "-q", "-F", made.devices[2])
    for options in (None, "degraded"):
        said = made.mount(options=options, check=False).stderr
        assert f"member 3 is overwritten: {made.devices[2]} holds ext4" in said
        assert "no further member may fail" in said
    assert made.is_mounted()


def test_why_a_member_is_away_shrunken(made):
    made.hide([1])
    os.truncate(made.images[1], 100 << 20)
    made.unhide([1])
    for options in (None, "degraded"):
        said = made.mount(options=options, check=False).stderr
        assert f"member 2 is shrunken: {made.devices[1]} needs 128 MiB, has 100 MiB" in said
    assert made.is_mounted()


def test_why_too_many_members_are_away(made):
    line = refused(made, made.devices[:2], "degraded")
    assert "member 3 is absent, member 4 is absent: more than raid" in line and "ro,rescue" in line


# What `show` and `check` say of the same members, and of devices that make no volume.

def shown_text(*operands):
    return tool("cowraid", "filesystem", "show", *operands).stdout


def test_show_and_check_of_a_shrunken_member(made):
    made.hide([1])
    os.truncate(made.images[1], 100 << 20)
    made.unhide([1])
    reason = f"is shrunken: {made.devices[1]} needs 128 MiB, has 100 MiB"
    shown = shown_text(LABEL)
    assert f"path UNUSABLE ({reason})" in shown and "missing" not in shown
    assert reason in tool("cowraid", "check", LABEL, check=False).stdout
    made.mount(options="degraded")
    shown = shown_text(made.mount_point)
    assert f"path UNUSABLE ({reason})" in shown and "missing" not in shown


def test_show_and_check_of_a_stale_member(made):
    made.mount()
    (made.mount_point / "f").write_bytes(random_content(220 << 20))
    made.unmount()
    made.hide([1])
    made.mount([made.devices[0], made.devices[2], made.devices[3]], "degraded")
    with open(made.mount_point / "f", "r+b", buffering=0) as file:
        file.write(random_content(60 << 20))
        os.fsync(file.fileno())
    made.unmount()
    made.unhide([1])
    shown = shown_text(LABEL)
    said = made.mount(options="ro").stderr
    made.unmount()
    reason = said[said.index("was away since commit"):said.index(";")]
    assert f"path {made.devices[1]} STALE ({reason})" in shown and "missing" not in shown
    assert f"{reason}; a mount lets it take part again" in tool("cowraid", "check", LABEL, check=False).stdout
    made.mount()
    made.wait_caught_up()
    made.unmount()
    assert "member 2" not in made.mount(options="ro").stderr


def test_a_member_without_the_last_commit_is_stale(make_volume):
    """A drive that kept nothing of it, or a copy from just before: the crash does not explain it."""
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    volume.make()
    volume.mount(options="commit=300")

    def generation():
        return json.loads(tool("cowraid", "status", "--json", volume.mount_point).stdout)[
            "volumes"][0]["generation"]

    (volume.mount_point / "before").write_bytes(random_content(3 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    time.sleep(3)
    old = volume.folder / "old.img"
    shutil.copyfile(volume.images[1], old)
    content = random_content(3 << 20)
    before = generation()
    (volume.mount_point / "after").write_bytes(content)
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    wait_for(lambda: generation() >= before + 2)  # the commit, and superblocks that confirm it
    volume.kill()
    run("umount", "-l", volume.mount_point)
    volume.hide([1])
    shutil.copyfile(old, volume.images[1])
    volume.unhide([1])
    assert "member 2 stopped at commit" in refused(volume, volume.devices[:2], "degraded")
    volume.mount()
    volume.drop_caches()
    assert (volume.mount_point / "after").read_bytes() == content
    stats = volume.counters()["device-stats"][1]
    assert stats["corruption_errs"] == 0, stats
    volume.wait_caught_up()
    volume.unmount()
    volume.check()
    volume.mount(volume.devices[:2], "degraded")
    assert (volume.mount_point / "after").read_bytes() == content


def test_show_lists_both_devices_of_a_member(made, clone):
    for operands in ([LABEL], []):
        shown = shown_text(*operands)
        assert f"path {clone}\n" in shown and shown.count("devid    2 ") >= 2
        for device in made.devices:
            assert f"path {device}\n" in shown
        assert "Cannot be opened" in shown and "both are member 2" in shown
        assert "used unknown" in shown


def test_rescue_beyond_tolerance_says_so(made):
    made.hide([2, 3])
    said = made.mount(made.devices[:2], "ro,rescue").stderr
    assert "more than raid" in said and "some files may be lost" in said
    assert "no further member may fail" not in said
    made.unmount()
    shown = shown_text(*made.devices[:2])
    assert "used unknown" in shown and "used 0.00B" not in shown
    made.unhide([2, 3])


OWNER, NEIGHBOUR = 1234, 4321


@pytest.fixture
def images(make_volume):
    """Image files of a user, in a folder of his."""
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=64, loops=False)
    os.chown(volume.folder, OWNER, OWNER)
    for image in volume.images:
        os.chown(image, OWNER, OWNER)
    volume.make("-L", LABEL)
    return volume


def forge_a_later_volume(images, path):
    """What a neighbour puts beside the images: the same volume, later, and with one member only."""
    other = Volume(data="single", metadata="single", member_count=1, member_mib=64, loops=False)
    try:
        uuid = json.loads(tool("cowraid", "filesystem", "show", "--json", images.images[0]).stdout)
        other.make("-U", uuid["volumes"][0]["uuid"])
        other.mount()
        for round in range(8):
            (other.mount_point / f"evil{round}").touch()
            tool("cowraid", "filesystem", "sync", other.mount_point)
        other.unmount()
        shutil.copyfile(other.images[0], path)
    finally:
        other.destroy()
    os.chown(path, NEIGHBOUR, NEIGHBOUR)


def test_a_neighbours_file_beside_an_image_is_no_member(images):
    evil = images.folder / "member9.img"
    forge_a_later_volume(images, evil)
    said = images.mount([images.images[0]]).stderr
    assert f"{evil} belongs to user {NEIGHBOUR}: left out" in said
    assert list(used_members(images).values()) == [str(image) for image in images.images]
    assert not list(images.mount_point.glob("evil*"))
    images.unmount()
    # Named it is refused: it is not of this volume, or turns the others out.
    refused(images, [*images.images, evil])


def test_a_folder_that_others_write_is_not_searched(images):
    images.folder.chmod(0o1777)
    evil = images.folder / "member9.img"
    forge_a_later_volume(images, evil)
    result = images.mount([images.images[0]], check=False)
    assert result.returncode == MOUNT_FAILED
    assert "it is not searched; name all members" in result.stderr
    assert "member 2 is absent, member 3 is absent" in result.stderr
    images.mount()
    assert list(used_members(images).values()) == [str(image) for image in images.images]


def test_mkfs_warns_of_images_that_others_read(make_volume):
    volume = make_volume(data="raid1", metadata="raid1", member_count=2, member_mib=64, loops=False)
    volume.images[0].chmod(0o640)
    volume.images[1].chmod(0o600)
    made = json.loads(tool("mkfs.cowraid", "--json", "-d", "raid1", *volume.images).stdout)
    assert [warning for warning in made["warnings"] if f"chmod 600 {volume.images[0]}" in warning]
    assert not [warning for warning in made["warnings"] if str(volume.images[1]) in warning]
    assert not [warning for warning in made["warnings"] if "change every file" in warning]
    volume.images[1].chmod(0o666)
    made = json.loads(tool("mkfs.cowraid", "--json", "-f", "-d", "raid1", *volume.images).stdout)
    assert [warning for warning in made["warnings"] if "change every file" in warning]


def test_a_member_that_became_another_filesystem_is_left_alone(made):
    """mkfs.ext4 on a disk without discard leaves the second superblock ring of the member."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    device = made.devices[3]
    run("mkfs.ext4", "-q", "-F", "-E", "nodiscard", device)
    with open(made.images[3], "rb") as file:
        before = file.read()
    for devices in (None, [f"cowraid:{LABEL}"]):
        assert f"member 4 is overwritten: {device} holds ext4" in refused(made, devices)
        said = made.mount(devices, "degraded").stderr
        assert f"member 4 is overwritten: {device} holds ext4" in said
        (made.mount_point / "file").write_bytes(b"x" * 100000)
        made.unmount()
    with open(made.images[3], "rb") as file:
        assert file.read() == before
    # While it is mounted as what it is now.
    place = made.folder / "ext4"
    place.mkdir()
    run("mount", "-t", "ext4", device, place)
    try:
        said = made.mount([f"cowraid:{LABEL}"], "degraded").stderr
        assert f"{device} holds ext4: left out" in said
        made.unmount()
    finally:
        run("umount", place)
    run("wipefs", "-q", "-a", device)
    made.mount()
    assert used_members(made)[4] == device


def test_an_image_of_somebody_else_that_became_another_filesystem_is_left_alone(make_volume):
    """Root's daemon has given up its capabilities when it looks what else is on a member."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    volume = make_volume(data="raid6", metadata="raid1c3", member_mib=128, loops=False)
    volume.make()
    for image in volume.images:
        os.chown(image, 1000, 1000)
        os.chmod(image, 0o600)
    run("mkfs.ext4", "-q", "-F", "-E", "nodiscard", volume.images[3])
    before = volume.images[3].read_bytes()
    said = volume.mount(options="degraded").stderr
    assert f"member 4 is overwritten: {volume.images[3]} holds ext4" in said
    (volume.mount_point / "file").write_bytes(b"x" * 100000)
    volume.unmount()
    assert volume.images[3].read_bytes() == before


def test_a_member_of_another_volume_is_skipped_when_degraded(made):
    device = made.devices[3]
    tool("mkfs.cowraid", "-q", "-f", "-d", "single", "-m", "single", device)
    assert "name members of one volume" in refused(made)
    assert f"{device} belongs to volume" in made.mount(options="degraded").stderr
    assert used_members(made)[4] is None


def test_remounting_a_stopped_volume_fails(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, may_fail=(0, 1))
    volume.make()
    volume.mount()
    volume.fail_writes()
    with pytest.raises(OSError):
        for number in range(1000):
            with open(volume.mount_point / f"f{number}", "wb") as file:
                file.write(random_content(1 << 20))
                os.fsync(file.fileno())
    result = tool("mount.cowraid", volume.devices[0], volume.mount_point, "-o", "remount,rw", check=False)
    assert result.returncode == MOUNT_FAILED
    assert "it has stopped writing" in result.stderr and "unmount and mount again" in result.stderr


def copies_of(volume, name):
    folder = volume.folder / name
    folder.mkdir()
    for image in volume.images:
        run("cp", "--sparse=always", image, folder)
    return folder


def fsync_and_kill(volume, word, count):
    volume.mount(options="commit=300")
    for number in range(count):
        with open(volume.mount_point / f"f{number}", "wb", buffering=0) as file:
            file.write(word * 1000)
            os.fsync(file.fileno())
    volume.kill()
    run("umount", "-i", "-l", volume.mount_point)


@pytest.mark.parametrize("data, metadata, members", [("raid5", "raid1", [0]), ("raid6", "raid1c3", [0, 1])])
@pytest.mark.parametrize("unmounted", [False, True])
def test_a_member_of_a_copy_that_was_written_apart(make_volume, data, metadata, members, unmounted):
    """No program tells the copies apart, only those of the mounts: synced data must not be lost."""
    volume = make_volume(data=data, metadata=metadata, member_count=5, member_mib=96, loops=False)
    volume.make()
    fsync_and_kill(volume, b"base", 8)
    if unmounted:
        volume.mount()
        volume.unmount()
    start = copies_of(volume, "start")
    fsync_and_kill(volume, b"one ", 3)
    one = copies_of(volume, "one")
    for image in volume.images:
        run("cp", "--sparse=always", start / image.name, image)
    fsync_and_kill(volume, b"two ", 3)
    for member in members:
        run("cp", "--sparse=always", one / volume.images[member].name, volume.images[member])
    line = refused(volume)
    assert "split brain" in line and str(volume.images[members[0]]) in line
    rest = [image for index, image in enumerate(volume.images) if index not in members]
    volume.mount(rest, "degraded")
    for number in range(8):
        word = b"two " if number < 3 else b"base"
        assert (volume.mount_point / f"f{number}").read_bytes() == word * 1000
    volume.unmount()
