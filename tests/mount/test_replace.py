# SPDX-License-Identifier: MIT
"""A new device in the place of a lost member."""

import json
import os

import pytest

from conftest import a_reader, random_content, run, tool
from test_balance import Writer
from test_catch_up import without
from test_redundancy import fill, verify
from test_scrub import damaged_files, rot, scrub


def new_image(volume, name, mebibytes):
    image = volume.folder / name
    with open(image, "wb") as file:
        file.truncate(mebibytes << 20)
    return image


@pytest.mark.parametrize("data,metadata,count,lost",
                         [("raid5", "raid1", 4, [1]), ("raid6", "raid1c3", 5, [0, 2])])
def test_a_lost_member_is_replaced(make_volume, data, metadata, count, lost):
    volume = make_volume(data=data, metadata=metadata, member_count=count, member_mib=256)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=80)
    (volume.mount_point / "big").write_bytes(random_content(64 << 20))
    run("sync", "-f", volume.mount_point)
    big = (volume.mount_point / "big").read_bytes()
    last = volume.devices[-1]
    volume.unmount()
    volume.hide(lost)
    for index in lost:
        image = new_image(volume, f"new{index}", 300)
        target = volume.attach(image)
        said = tool("cowraid", "replace", "start", "--json", str(index + 1), target, last)
        assert json.loads(said.stdout)["member"] == index + 1
        volume.images[index], volume.loops[index] = image, target
        volume.hidden.discard(index)
    volume.mount()
    shown = tool("cowraid", "filesystem", "show", volume.mount_point).stdout
    assert "missing" not in shown
    volume.wait_caught_up()
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    stats = volume.counters()["device-stats"]
    assert not any(line["corruption_errs"] or line["parity_errs"] for line in stats)
    volume.unmount()
    volume.check()
    others = [index for index in range(count) if index not in lost][:len(lost)]
    volume.hide(others)
    volume.mount(without(volume, others), "degraded,ro")
    verify(sums)
    assert (volume.mount_point / "big").read_bytes() == big


def test_the_old_device_comes_back(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=128)
    volume.make("-L", "replaced")
    volume.mount()
    sums = fill(volume.mount_point, 2)
    volume.unmount()
    volume.hide([0])
    old = volume.images[0]
    volume.images[0] = new_image(volume, "new", 128)
    volume.unhide([0])
    tool("cowraid", "replace", "start", "missing", volume.loops[0], "replaced")
    back = volume.attach(old)
    try:
        refused = volume.mount([*volume.devices, back], check=False)
        assert refused.returncode != 0 and "has been replaced: leave it out" in refused.stderr
        said = volume.mount(["LABEL=replaced"])
        assert "was member 1 and has been replaced: left out" in said.stderr
        verify(sums)
        volume.wait_caught_up()
        volume.unmount()
    finally:
        run("losetup", "-d", back)
    volume.check()


def test_what_cannot_be_replaced_is_refused(make_volume):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=4, member_mib=128)
    volume.make()
    small = new_image(volume, "small", 100)
    other = new_image(volume, "other", 128)
    run("mkfs.ext4", "-q", other)

    def refused(member, *operands, code=1, **options):
        result = tool("cowraid", "replace", "start", member, *operands, check=False, **options)
        assert result.returncode == code and len(result.stderr.splitlines()) == 1, result
        return result.stderr

    everything, three = volume.devices, volume.devices[1:]
    assert "no member is missing" in refused("missing", other, everything[0])
    assert "member 2 is there" in refused("2", other, everything[0])
    assert "is no member" in refused("9", other, everything[0])
    assert "is no member" in refused("first", other, everything[0])
    assert "name the member" in refused("1", code=2)
    nothing_mounted = {**os.environ, "COWRAID_RUN_DIR": str(volume.folder / "none")}
    assert "no volume is mounted" in refused("1", other, env=nothing_mounted)
    assert "not smaller" in refused("1", small, *three)
    assert "ext4" in refused("1", other, *three) and "-f" in refused("missing", other, *three)
    assert "in use" in refused("1", three[0], *three)
    assert "does not exist" in refused("1", volume.folder / "nothing", *three)
    two = refused("missing", other, *volume.devices[2:])
    assert two == "cowraid: 2 members are missing: 1 and 2; name one: cowraid replace start 1 DEVICE VOLUME\n"
    assert "cannot be written" in refused("1", other, "-f", *volume.devices[2:])
    volume.check()
    assert "ext4" in run("blkid", "-p", other).stdout
    planned = tool("cowraid", "replace", "start", "--plan", "-f", "missing", other, *three).stdout
    assert "needs 128.00MiB, has 128.00MiB" in planned
    assert "not smaller" in refused("1", small, "--plan", *three)
    assert "cannot be written" in refused("1", other, "-f", "--plan", *volume.devices[2:])
    assert "ext4" in run("blkid", "-p", other).stdout
    volume.check()
    volume.mount(three, "degraded")


def test_members_that_are_missing_together_are_named_and_replaced_by_id(make_volume):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=5, member_mib=128)
    volume.make()
    volume.hide([1, 3])
    volume.mount(without(volume, [1, 3]), "degraded")
    other = new_image(volume, "other", 128)
    for command, words in (("replace start ID DEVICE VOLUME", ["replace", "start", "missing", other]),
                           ("device remove ID VOLUME", ["device", "remove", "missing"]),
                           ("device online ID VOLUME", ["device", "online", "missing"])):
        refused = tool("cowraid", *words, volume.mount_point, check=False)
        assert refused.returncode == 1
        assert refused.stderr == "cowraid: 2 members are missing: 2 and 4; name one: cowraid " \
            f"{command.replace('ID', '2')}\n"
    tool("cowraid", "replace", "start", "-B", "2", other, volume.mount_point)
    tool("cowraid", "device", "remove", "missing", volume.mount_point)


def test_of_the_devices_of_a_member_that_was_removed_one_is_erased_and_one_left_out(make_volume):
    volume = make_volume(data="raid1", metadata="raid1", member_count=4, member_mib=160)
    volume.make("-L", "former")
    volume.mount()
    sums = fill(volume.mount_point, 2)
    first, second = volume.devices[0], volume.another(160)
    for words in (("device", "offline", "1"), ("replace", "start", "-B", "-f", "1", second),
                  ("device", "offline", "1")):
        tool("cowraid", *words, volume.mount_point)
    # It is known which of the two the member is.
    tool("cowraid", "device", "online", "1", volume.mount_point)
    volume.wait_caught_up()
    tool("cowraid", "device", "offline", "1", volume.mount_point)
    tool("cowraid", "device", "remove", "1", volume.mount_point)
    volume.unmount()
    for named in (["LABEL=former"], [volume.devices[1]]):
        said = volume.mount(named).stderr
        assert f"{first} was member 1 and has been re" in said and ": left out" in said
        assert f"{second} " not in said
        verify(sums)
        volume.unmount()
    assert f"path {first}\n" not in tool("cowraid", "filesystem", "show", "former").stdout
    refused = volume.mount([*volume.devices[1:4], first], check=False)
    assert refused.returncode == 32 and f"{first} was member 1" in refused.stderr
    assert "leave it out" in refused.stderr
    for devices in (volume.images, volume.loops):  # the first one is no member any more
        devices[0], devices[1] = devices[1], devices[0]
    volume.check()


def test_what_is_refused_writes_nothing(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount(options="spare_delay=600,background_share=1")
    (volume.mount_point / "big").write_bytes(random_content(300 << 20))
    run("sync", "-f", volume.mount_point)
    target, another = volume.another(256), volume.another(256)
    with a_reader(volume.mount_point / "big"):
        tool("cowraid", "replace", "start", "-f", "2", target, volume.mount_point)
        tool("cowraid", "device", "offline", "5", volume.mount_point)
    sums = fill(volume.mount_point, 4)
    run("sync", "-f", volume.mount_point)
    for number in range(20):
        with open(volume.mount_point / f"small{number}", "wb") as file:
            file.write(random_content(3000))
            file.flush()
            os.fsync(file.fileno())
    volume.kill()
    run("umount", "-i", "-l", volume.mount_point)

    def contents():
        return [run("sha256sum", image).stdout for image in volume.images]

    before = contents()
    loops = volume.loops
    refused = tool("cowraid", "replace", "start", "-f", "2", another, loops[0], *loops[2:5], check=False)
    assert refused.returncode == 1 and "is part of a replacement" in refused.stderr
    assert contents() == before
    # Redundancy is as it was: without another member all can be read.
    volume.mount([loops[0], loops[1], loops[3], loops[4]], "degraded")
    verify(sums)
    assert (volume.mount_point / "small19").stat().st_size == 3000


@pytest.mark.parametrize("killed", [False, True])
def test_a_lost_member_is_replaced_beside_a_writer(make_volume, killed):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=5, member_mib=512)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=80)
    big = random_content(200 << 20)
    (volume.mount_point / "big").write_bytes(big)
    volume.unmount()
    volume.hide([1])
    volume.mount(without(volume, [1]), "degraded")
    writer = Writer(volume.mount_point)
    writer.start()
    try:
        target = volume.another(512)
        run("mkfs.ext4", "-q", target)
        refused = tool("cowraid", "replace", "start", "2", target, volume.mount_point, check=False)
        assert (refused.returncode, "to overwrite it use -f" in refused.stderr) == (1, True)
        waits = [] if killed else ["-B"]
        said = tool("cowraid", "replace", "start", "-f", *waits, "missing", target, volume.mount_point)
        assert said.stdout.startswith(f"{target} is member 2 now")
        told = tool("cowraid", "replace", "status", volume.mount_point).stdout
        assert ("filling members: " if killed else "\nfilling members: finished") in told
        assert killed or told.startswith("Started on ")
        assert killed or not any(line["stale_groups"] for line in volume.counters()["device-stats"])
    finally:
        writer.finish()
    if killed:
        run("sync", "-f", volume.mount_point)
        volume.kill()
        volume.mount(without(volume, [1]))
    volume.wait_caught_up()
    verify(sums)
    writer.verify()
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    volume.unmount()
    volume.hide([0, 3])
    volume.mount(without(volume, [0, 1, 3]), "degraded,ro")
    verify(sums)
    writer.verify()
    assert (volume.mount_point / "big").read_bytes() == big


def test_what_a_bad_survivor_costs_is_said_and_the_rest_is_filled(make_volume):
    """Beside the lost member another one has bad blocks: with raid5 that is one too many in their rows."""
    volume = make_volume(data="raid5", metadata="raid1c3", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1, file_count=60)
    volume.unmount()
    volume.hide([1])
    volume.mount(without(volume, [1]), "degraded")
    rot(volume, [0], share=9)
    target = volume.another(128)
    said = tool("cowraid", "replace", "start", "-B", "missing", target, volume.mount_point, check=False)
    assert said.returncode == 3, said.stderr
    assert "filling members: finished" in said.stdout and "cowraid status -v names the files" in said.stdout
    stats = volume.counters()["device-stats"]
    assert not any(line["stale_groups"] for line in stats)
    assert not stats[1]["corruption_errs"] and not stats[1]["parity_errs"]
    told = tool("cowraid", "replace", "status", volume.mount_point, check=False)
    assert told.returncode == 3 and "are lost" in told.stdout
    unreadable = set()
    for path in sums:
        try:
            path.read_bytes()
        except OSError:
            unreadable.add("/" + str(path.relative_to(volume.mount_point)))
    health, named = damaged_files(volume)
    assert unreadable and health == "DAMAGED" and set(named) == unreadable
    lost = sum(file["blocks"] for file in {file["inode"]: file for file in named.values()}.values())
    assert scrub(volume, expect=3)["lost_blocks"] == lost
    for path in unreadable:
        (volume.mount_point / path[1:]).unlink()
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    scrub(volume)
    assert damaged_files(volume)[0].startswith("ONLINE")
    verify({path: digest for path, digest in sums.items() if path.exists()})
    volume.unmount()
    volume.hide([2])
    volume.mount(without(volume, [1, 2]), "degraded,ro")
    verify({path: digest for path, digest in sums.items() if path.exists()})
