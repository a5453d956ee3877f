# SPDX-License-Identifier: MIT
"""What is refused, and how it is said: an exit code, and one line that tells what to do."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from conftest import TOOLS, random_content, run, tool, wait_for

MOUNT_USAGE, MOUNT_SYSTEM, MOUNT_FAILED = 1, 2, 32
EXIT_FAILED, EXIT_USAGE = 1, 2
FSCK_FAILED = 8


def refused(program, *arguments, code):
    """The line on standard error, which begins with the program's name."""
    result = tool(program, *arguments, check=False)
    assert result.returncode == code, result.stdout + result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"{program}: "), result.stderr
    return lines[0].removeprefix(f"{program}: ")


@pytest.fixture
def made(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    volume.make()
    return volume


def test_mkfs_on_a_mounted_volume(made):
    made.mount()
    (made.mount_point / "f").write_text("content")
    for options in ([], ["-f"]):
        line = refused("mkfs.cowraid", *options, *made.devices, code=EXIT_FAILED)
        assert made.devices[0] in line and "is in use" in line
    assert (made.mount_point / "f").read_text() == "content"
    made.unmount()
    assert made.check()["clean"]


def test_mkfs_on_a_device_that_is_mounted_elsewhere(make_volume):
    volume = make_volume(member_count=1, member_mib=128)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    run("mkfs.ext4", "-q", volume.devices[0])
    run("mount", volume.devices[0], volume.mount_point)
    try:
        line = refused("mkfs.cowraid", "-f", volume.devices[0], code=EXIT_FAILED)
        assert volume.devices[0] in line and "is in use" in line
    finally:
        run("umount", volume.mount_point)
    run("fsck.ext4", "-fn", volume.devices[0])


def test_mkfs_on_a_foreign_signature(make_volume):
    volume = make_volume(member_count=3, member_mib=128, data="raid5", metadata="raid1")
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    run("mkfs.ext4", "-q", "-L", "precious", volume.devices[1])
    line = refused("mkfs.cowraid", *volume.devices, code=EXIT_FAILED)
    assert volume.devices[1] in line and "ext4" in line and "-f" in line
    # Nothing was written to any of them.
    run("fsck.ext4", "-fn", volume.devices[1])
    assert run("blkid", "-p", volume.devices[0], check=False).stdout == ""
    volume.make("-f")
    assert "ext4" not in run("blkid", "-p", volume.devices[1], check=False).stdout
    volume.mount()
    line = refused("mkfs.cowraid", "-f", *volume.devices, code=EXIT_FAILED)
    assert "is in use" in line


def test_mkfs_over_an_older_volume(made):
    assert "-f" in refused("mkfs.cowraid", *made.devices, code=EXIT_FAILED)
    made.make("-f")
    made.mount()


def test_mkfs_members(make_volume, tmp_path):
    volume = make_volume(member_count=3, member_mib=128)
    small = volume.folder / "small.img"
    with open(small, "wb") as file:
        file.truncate(63 << 20)
    line = refused("mkfs.cowraid", *volume.devices, small, code=EXIT_FAILED)
    assert str(small) in line and "63.00MiB" in line and "64.00MiB" in line
    line = refused("mkfs.cowraid", volume.devices[0], volume.devices[0], code=EXIT_FAILED)
    assert "same device" in line
    line = refused("mkfs.cowraid", *volume.devices, tmp_path, code=EXIT_FAILED)
    assert "neither a block device nor a regular file" in line
    line = refused("mkfs.cowraid", *volume.devices, "/nonexistent", code=EXIT_FAILED)
    assert "/nonexistent does not exist" in line


def test_mkfs_of_members_that_do_not_go_together_erases_nothing(tmp_path):
    members = [tmp_path / "small.img", tmp_path / "large.img"]
    for member, size_gib in zip(members, (8, 4096)):
        with open(member, "wb") as file:
            os.chmod(member, 0o600)
            file.truncate(size_gib << 30)
            for at in (0, 64 << 10, 1 << 20, 5 << 30):
                file.seek(at)
                file.write(b"precious" * 512)
    line = refused("mkfs.cowraid", "-f", "-d", "raid1", "-m", "raid1", *members, code=EXIT_FAILED)
    assert f"{members[0]} (8192 MiB) beside {members[1]} (4194304 MiB)" in line
    line = refused("mkfs.cowraid", "-f", "-d", "single", "-m", "single", members[1], "--spare", members[0],
                   code=EXIT_FAILED)
    assert f"{members[0]} has 8.00GiB" in line
    for member in members:
        with open(member, "rb") as file:
            for at in (0, 64 << 10, 1 << 20, 5 << 30):
                file.seek(at)
                assert file.read(4096) == b"precious" * 512, (member, at)


@pytest.mark.parametrize("options,word", [
    (["-d", "raid7"], "raid7"), (["-d", "raid6", "-m", "raid1c9"], "raid1c9"), (["-c", "5K"], "5K"),
    (["-c", "2M"], "2M"), (["-U", "no-uuid"], "no-uuid"), (["-L", "a/b"], "label"),
    (["--compress", "zstd:3"], "compress=zstd:LEVEL"), (["--compress", "lzo"], "'lzo': give zstd or none"),
    (["--compress", ""], "give zstd or none"),
    (["-L", "a\x1b[2J"], "label")])
def test_mkfs_options(make_volume, options, word):
    volume = make_volume(member_count=4, member_mib=128)
    assert word in refused("mkfs.cowraid", *options, *volume.devices, code=EXIT_USAGE)
    assert "at least 3" in refused("mkfs.cowraid", "-d", "raid6", *volume.devices[:2], code=EXIT_USAGE)


def test_mount_without_a_member(made):
    made.hide([1])
    left = [made.devices[0], made.devices[2]]
    line = refused("mount.cowraid", *left, made.mount_point, code=MOUNT_FAILED)
    assert "member 2" in line or "devid 2" in line
    assert "degraded" in line
    assert not made.is_mounted()
    made.mount(left, "degraded")
    made.unmount()
    made.unhide([1])
    made.mount()


def test_mount_with_more_missing_than_tolerated(made):
    made.hide([1, 2])
    for options in ("rw", "degraded", "degraded,ro"):
        line = refused("mount.cowraid", made.devices[0], made.mount_point, "-o",
                       options + ",missing_dev_timeout=0", code=MOUNT_FAILED)
        assert "2" in line and "3" in line
    made.unhide([1, 2])
    made.mount()


@pytest.mark.parametrize("option,word", [
    ("no_such_option", "no_such_option"), ("commit=0", "commit=0"), ("commit=x", "commit=x"),
    ("commit", "commit"), ("cache=5", "cache=5"), ("dirty_max=1", "dirty_max=1"), ("rescue", "ro,rescue"),
    ("nobarrier", "nobarrier"), ("degraded=perhaps", "degraded=perhaps")])
def test_mount_options(made, option, word):
    line = refused("mount.cowraid", made.devices[0], made.mount_point, "-o", option, code=MOUNT_USAGE)
    assert word in line
    assert not made.is_mounted()


def test_mount_targets(made):
    file = made.folder / "file"
    file.touch()
    for target, word in ((made.folder / "absent", "mkdir"), (file, "not a directory")):
        line = refused("mount.cowraid", made.devices[0], target, code=MOUNT_FAILED)
        assert str(target) in line and word in line
    for source in (file, "/nonexistent", "/dev/null", "cowraid:nobody", "LABEL=nobody"):
        line = refused("mount.cowraid", source, made.mount_point, "-o", "missing_dev_timeout=0",
                       code=MOUNT_FAILED)
        assert str(source).removeprefix("cowraid:").removeprefix("LABEL=") in line
    refused("mount.cowraid", made.devices[0], code=MOUNT_USAGE)
    assert not made.is_mounted()


def test_already_mounted(made):
    made.mount()
    elsewhere = made.folder / "elsewhere"
    elsewhere.mkdir()
    line = refused("mount.cowraid", made.devices[1], elsewhere, code=MOUNT_FAILED)
    assert f"already mounted at {made.mount_point}" in line
    # There it is what was asked for; said, and mounted once.
    again = tool("mount.cowraid", made.devices[1], made.mount_point)
    assert f"already mounted at {made.mount_point}" in again.stderr
    assert made.mount_count() == 1
    line = refused("cowraid", "check", made.devices[0], code=EXIT_FAILED)
    assert f"mounted at {made.mount_point}" in line


@pytest.mark.parametrize("asked,lacking", [
    ("ro", "ro"), ("untrusted", "nosuid,nodev,noexec"), ("ro,noexec", "ro,noexec"), ("nosuid", "nosuid")])
def test_already_mounted_without_what_is_asked_for(made, asked, lacking):
    made.mount()
    line = refused("mount.cowraid", made.devices[1], made.mount_point, "-o", asked, code=MOUNT_FAILED)
    assert f"is mounted there without {lacking}; use -o remount,{lacking}" in line
    tool("mount.cowraid", made.devices[1], made.mount_point, "-o", f"remount,{lacking}")
    again = tool("mount.cowraid", made.devices[1], made.mount_point, "-o", asked)
    assert f"already mounted at {made.mount_point}" in again.stderr
    # A mount that is stricter than asked is one.
    tool("mount.cowraid", made.devices[1], made.mount_point)


def test_unmounting_what_is_not_mounted_or_busy(made):
    line = refused("umount.fuse.cowraid", made.mount_point, code=MOUNT_FAILED)
    assert str(made.mount_point) in line
    made.mount()
    with open(made.mount_point / "f", "w"):
        assert "busy" in refused("umount.fuse.cowraid", made.mount_point, code=MOUNT_FAILED)
        assert made.is_mounted()
    made.unmount()
    assert made.check()["clean"]


def test_mount_over_the_mount_point_of_a_killed_daemon(made):
    made.mount()
    (made.mount_point / "f").write_text("content")
    fd = os.open(made.mount_point / "f", os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    made.kill()
    line = refused("cowraid", "filesystem", "usage", made.mount_point, code=EXIT_FAILED)
    assert "dead" in line and str(made.mount_point) in line
    made.mount()
    assert made.mount_count() == 1
    assert (made.mount_point / "f").read_text() == "content"


def test_remount(made):
    line = refused("mount.cowraid", made.devices[0], made.mount_point, "-o", "remount,ro", code=MOUNT_FAILED)
    assert "no cowraid volume is mounted at" in line
    made.mount()
    path = made.mount_point / "f"
    with open(path, "w") as file:
        file.write("first")
        file.flush()
        assert "busy" in refused("mount.cowraid", made.devices[0], made.mount_point, "-o", "remount,ro",
                                 code=MOUNT_FAILED)
        file.write(" second")
    made.mount(options="remount,ro")
    with pytest.raises(OSError, match="Read-only"):
        path.write_text("third")
    # Read-only means that nothing is written to the members either.
    before = written_sectors(made)
    assert path.read_text() == "first second"
    time.sleep(0.3)
    assert written_sectors(made) == before
    made.mount(options="remount,rw")
    path.write_text("third")
    made.unmount()
    made.mount()
    assert path.read_text() == "third"
    assert "unknown option" in refused("mount.cowraid", made.devices[0], made.mount_point, "-o",
                                       "remount,no_such_option", code=MOUNT_USAGE)


def test_a_remount_leaves_a_mount_point_read_only_and_the_volume_writable(made):
    def shown():
        volume = json.loads(tool("cowraid", "status", "--json", made.mount_point).stdout)["volumes"][0]
        return volume["mount_options"].split(",")

    made.mount()
    other = made.folder / "other"
    other.mkdir()
    run("mount", "--bind", made.mount_point, other)
    try:
        run("mount", "-i", "-o", "remount,bind,ro", made.mount_point)
        for options in ("commit=7", "noexec"):
            made.mount(options=f"remount,{options}")
            with pytest.raises(OSError, match="Read-only"):
                (made.mount_point / "f").write_text("content")
            (other / "f").write_text(options)
        assert "commit=7" in shown() and "ro" not in shown()
        flags = run("findmnt", "-n", "-o", "VFS-OPTIONS", made.mount_point).stdout.strip().split(",")
        assert {"ro", "noexec"} <= set(flags)
        made.mount(options="remount,rw")
        (made.mount_point / "f").write_text("again")
        made.mount(options="remount,ro")
        with pytest.raises(OSError, match="Read-only"):
            (other / "f").write_text("content")
        assert "ro" in shown()
        run("mount", "-i", "-o", "remount,bind,rw", other)  # the mount point alone
        for options in ("commit=8", "commit=9"):
            tool("mount.cowraid", "x", other, "-o", f"remount,{options}")
            assert "ro" in shown() and options in shown()
            with pytest.raises(OSError, match="Read-only"):
                (other / "f").write_text("content")
    finally:
        run("umount", other)


def test_remount_changes_options_or_says_that_it_does_not(made):
    def options():
        return volume_now()["mount_options"].split(",")

    def volume_now():
        return json.loads(tool("cowraid", "status", "--json", made.mount_point).stdout)["volumes"][0]

    made.mount(options="commit=300")
    said = tool("mount.cowraid", made.devices[0], made.mount_point, "-o",
                "remount,commit=1,clean=off,background_share=40,error_budget=7,read_deadline=3,slow_io=0,"
                "noatime,plug=off,stripe_cache_size=99")
    assert said.stderr == ""
    for option in ("commit=1", "clean=off", "background_share=40", "error_budget=7", "read_deadline=3",
                   "slow_io=0", "noatime", "plug=off", "stripe_cache_size=99"):
        assert option in options()
    # The first time it may be what confirms the commit of the mount. That comes once.
    for content in ("content", "other content"):
        (made.mount_point / "f").write_text(content)
        before = volume_now()["generation"]
        wait_for(lambda: volume_now()["generation"] > before)
    said = tool("mount.cowraid", made.devices[0], made.mount_point, "-o", "remount,commit=2,dirty_max=64M")
    assert "a remount does not change dirty_max=64M; unmount and mount" in said.stderr
    assert "commit=2" in options() and "dirty_max=256M" in options()
    said = tool("mount.cowraid", made.devices[0], made.mount_point, "-o", "remount,ro,commit=3")
    assert said.stderr == "" and {"ro", "commit=3"} <= set(options())
    assert "give" in refused("mount.cowraid", made.devices[0], made.mount_point, "-o", "remount,commit=0",
                             code=MOUNT_USAGE)


def written_sectors(volume):
    names = [os.path.basename(loop) for loop in volume.loops]
    return [open(f"/sys/block/{name}/stat", encoding="ascii").read().split()[6] for name in names]


@pytest.fixture
def protect(made):
    """The flag outlives what is attached to a loop device."""
    yield lambda device: run("blockdev", "--setro", device)
    for device in made.devices:
        run("blockdev", "--setrw", device)


@pytest.mark.parametrize("when", ["before the mount", "after the mount"])
@pytest.mark.parametrize("loops", [[0], [1], [0, 1, 2]], ids=["first", "second", "all"])
def test_remount_with_write_protected_members(made, protect, loops, when):
    made.mount()
    (made.mount_point / "f").write_text("content")
    made.unmount()
    protected = [made.devices[index] for index in loops]
    if when == "after the mount":
        made.mount(options="ro")
    for device in protected:
        protect(device)
    if when == "before the mount":
        made.mount(options="ro")
    before = written_sectors(made)
    arguments = ("mount.cowraid", made.devices[0], made.mount_point, "-o", "remount,rw")
    line = refused(*arguments, code=MOUNT_FAILED)
    assert line == f"{protected[0]} is write-protected; allow writing first"
    for device in protected:
        run("blockdev", "--setrw", device)
    if when == "before the mount":
        # The daemon cannot write with what it has open.
        line = refused(*arguments, code=MOUNT_FAILED)
        assert line == (f"{protected[0]} was write-protected when the volume was mounted; "
                        "unmount and mount again")
        assert written_sectors(made) == before
        made.unmount()
        made.mount()
    else:
        assert written_sectors(made) == before
        made.mount(options="remount,rw")
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", made.mount_point).stdout)
    assert {member["state"] for member in shown["volumes"][0]["members"]} == {"present"}
    assert (made.mount_point / "f").read_text() == "content"
    (made.mount_point / "f").write_text("more")
    made.unmount()
    assert made.check()["clean"]


@pytest.fixture
def images(make_volume):
    """Of image files; the last is larger than the limit that tests set."""
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=96, loops=False)
    os.truncate(volume.images[3], 300 << 20)
    volume.make()
    return volume


# Root without what lets root raise any limit.
WITHOUT_PRIVILEGE = ["setpriv", "--bounding-set=-sys_resource"]


LIMIT = 100 << 20
CAP_SYS_RESOURCE = 24


def may_raise_limits():
    """Root of a container may not."""
    with open("/proc/self/status", encoding="ascii") as file:
        capabilities = next(line.split()[1] for line in file if line.startswith("CapEff:"))
    return int(capabilities, 16) >> CAP_SYS_RESOURCE & 1 == 1


@pytest.mark.parametrize("hard, prefix", [("unlimited", WITHOUT_PRIVILEGE), (LIMIT, [])],
                         ids=["soft", "hard"])
def test_a_limit_of_file_sizes_is_raised(images, hard, prefix):
    if hard == LIMIT and not may_raise_limits():
        pytest.skip("without CAP_SYS_RESOURCE")
    run(*prefix, "prlimit", f"--fsize={LIMIT}:{hard}", TOOLS / "mount.cowraid", *images.devices,
        images.mount_point)
    content = [random_content(40 << 20) for _ in range(4)]
    for index, data in enumerate(content):
        with open(images.mount_point / f"f{index}", "wb") as file:
            file.write(data)
            os.fsync(file.fileno())
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", images.mount_point).stdout)
    assert {member["state"] for member in shown["volumes"][0]["members"]} == {"present"}
    tool("cowraid", "device", "stats", "-c", images.mount_point)
    images.unmount()
    assert images.check()["clean"]
    images.mount()
    assert [(images.mount_point / f"f{index}").read_bytes() for index in range(4)] == content


def test_a_limit_of_file_sizes_below_a_member(images):
    before = [image.read_bytes() for image in images.images]
    limited = [*WITHOUT_PRIVILEGE, "prlimit", f"--fsize={LIMIT}:{LIMIT}"]
    for program in (["mount.cowraid", *images.devices, images.mount_point],
                    ["mount.cowraid", images.devices[0], images.mount_point, "-o", "degraded"],
                    ["mkfs.cowraid", "-f", *images.devices]):
        result = run(*limited, TOOLS / program[0], *program[1:], check=False)
        assert result.returncode in (EXIT_FAILED, MOUNT_FAILED)
        assert result.stderr == (f"{program[0]}: {images.devices[3]} is larger than the {LIMIT} bytes that "
                                 "this process may write to a file; raise the limit: ulimit -H -f\n")
        assert not images.is_mounted()
    assert [image.read_bytes() for image in images.images] == before
    run(*limited, TOOLS / "mount.cowraid", *images.devices, images.mount_point, "-o", "ro")
    assert list(images.mount_point.iterdir()) == []


def test_root_without_the_fuse_device(images):
    script = 'mount --bind /dev/fuse /dev/fuse; mount -o remount,bind,nodev /dev/fuse; exec "$@"'
    said = run("unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh",
               TOOLS / "mount.cowraid", *images.devices, images.mount_point, check=False)
    assert said.stderr == \
        "mount.cowraid: /dev/fuse: Permission denied; load the fuse module: modprobe fuse\n"
    assert said.returncode == MOUNT_SYSTEM
    images.mount()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors(images, closed):
    def run_closed(name, *arguments):
        run("sh", "-c", f'exec "$@" {closed}', "sh", TOOLS / name, *arguments)

    run_closed("mkfs.cowraid", "-f", "-d", "raid5", "-m", "raid1", *images.devices)
    for image in images.images:
        with open(image, "rb") as file:
            assert file.read(4096) == bytes(4096), image
    run_closed("mount.cowraid", *images.devices, images.mount_point)
    (images.mount_point / "f").write_text("content")
    run_closed("cowraid", "filesystem", "show", images.mount_point)
    run_closed("umount.fuse.cowraid", images.mount_point)
    assert not images.is_mounted()
    run_closed("cowraid", "check", images.devices[0])
    images.mount()
    assert (images.mount_point / "f").read_text() == "content"
    images.unmount()
    assert images.check()["clean"]


def test_programs_without_arguments():
    assert refused("mkfs.cowraid", code=EXIT_USAGE) == "name at least one device"
    assert "mount point" in refused("mount.cowraid", code=MOUNT_USAGE)
    assert "mount point" in refused("umount.fuse.cowraid", code=MOUNT_USAGE)
    for name in ("mkfs.cowraid", "mount.cowraid", "umount.fuse.cowraid", "cowraid"):
        assert run(TOOLS / name, "--help").stdout != ""


LOCKER = """
import fcntl, sys, threading, time
files = [open(path, "r+b") for path in sys.argv[1:]]
for file in files:
    threading.Thread(target=fcntl.lockf, args=(file, fcntl.LOCK_EX), daemon=True).start()
print("waiting", flush=True)
time.sleep(60)
"""


def test_unmounting_waits_not_long_for_images_that_another_locks(make_volume):
    volume = make_volume(loops=False)
    volume.make()
    volume.mount()
    locker = subprocess.Popen([sys.executable, "-c", LOCKER, *volume.images], stdout=subprocess.PIPE)
    try:
        locker.stdout.readline()
        time.sleep(0.5)
        started = time.monotonic()
        volume.unmount()
        assert time.monotonic() - started < 30  # not as long as they are locked
    finally:
        locker.kill()
        locker.wait()


@pytest.mark.parametrize("command", [
    ["cowraid", "--version"], ["cowraid", "scrub", "start", "--help"],
    ["cowraid", "filesystem", "usage", "MEMBER"], ["cowraid", "filesystem", "usage", "--json", "MEMBER"],
    ["cowraid", "inspect", "dump-super", "MEMBER"], ["cowraid", "inspect", "dump-tree", "MEMBER"],
    ["mkfs.cowraid", "--help"], ["mkfs.cowraid", "-f", "MEMBER"], ["fsck.cowraid", "--help"]],
    ids=lambda command: " ".join(command))
def test_output_that_cannot_be_written_is_a_failure(images, command):
    images.images[0].chmod(0o600)
    program, *arguments = [word.replace("MEMBER", images.devices[0]) for word in command]
    with open("/dev/full", "wb") as full:
        result = subprocess.run([TOOLS / program, *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                                check=False)
    said = f"{program}: the output cannot be written"
    assert result.stderr in (f"{said}: No space left on device\n", f"{said}\n")
    assert result.returncode == (FSCK_FAILED if program == "fsck.cowraid" else EXIT_FAILED)
    closed = subprocess.run(f"exec {TOOLS / program} {' '.join(arguments)} >&-", shell=True, text=True,
                            stderr=subprocess.PIPE, check=False)
    assert (closed.returncode, closed.stderr) == (0, "")
