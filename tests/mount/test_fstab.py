# SPDX-License-Identifier: MIT
"""mount(8) and umount(8) with the programs where an installation puts them."""

import json
import os
import shutil
from pathlib import Path

import pytest

from conftest import TOOLS, run, tool

HELPERS = ("mount.cowraid", "mount.fuse.cowraid", "mount.fuseblk.cowraid", "umount.fuse.cowraid",
           "umount.fuseblk.cowraid")
HELPER_FOLDER = Path("/sbin")
LABEL = f"fstab-test-{os.getpid()}"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An installation below a temporary folder; links lead to it from the one place mount(8) looks in."""
    if shutil.which("meson") is None or not (TOOLS.parent / "build.ninja").exists():
        pytest.skip("no Meson build folder to install from")
    if any(os.path.lexists(HELPER_FOLDER / name) for name in HELPERS):
        pytest.skip(f"{HELPER_FOLDER} has helpers of another installation")
    root = tmp_path_factory.mktemp("installed")
    run("meson", "install", "-C", TOOLS.parent, "--no-rebuild", "--quiet", "--destdir", root)
    made = []
    try:
        for name in HELPERS:
            target = root / HELPER_FOLDER.relative_to("/") / name
            assert os.access(target, os.X_OK), f"meson install does not put {name} into {HELPER_FOLDER}"
            os.symlink(target, HELPER_FOLDER / name)
            made.append(HELPER_FOLDER / name)
        yield root
    finally:
        for link in made:
            os.unlink(link)


@pytest.fixture
def labelled(make_volume, installed):
    volume = make_volume(data="raid6", metadata="raid1c3")
    volume.make("-L", LABEL)
    return volume


def write_fstab(volume, source, options="defaults,nofail"):
    path = volume.folder / "fstab"
    path.write_text(f"# a comment\n{source} {volume.mount_point} cowraid {options} 0 0\n", encoding="ascii")
    return path


def uuid_of(volume):
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", volume.devices[0]).stdout)
    return shown["volumes"][0]["uuid"]


def mount_write_unmount_check(volume, fstab):
    """Twice, so that what the first mount wrote is read by the second."""
    expected = os.urandom(300000)
    for content in (expected, None):
        result = run("mount", "-a", "-T", fstab)
        assert result.stdout + result.stderr == ""
        assert volume.mount_count() == 1
        run("mount", "-a", "-T", fstab)
        assert volume.mount_count() == 1, "mount -a mounted a second time"
        if content is not None:
            (volume.mount_point / "f").write_bytes(content)
        assert (volume.mount_point / "f").read_bytes() == expected
        run("umount", volume.mount_point)
        checked = tool("cowraid", "check", volume.devices[0]).stdout
        assert volume.mount_count() == 0
        assert checked.splitlines()[-1].split() == ["Result:", "clean"]


def test_by_label(labelled):
    mount_write_unmount_check(labelled, write_fstab(labelled, f"cowraid:{LABEL}"))


def test_by_uuid(labelled):
    mount_write_unmount_check(labelled, write_fstab(labelled, f"cowraid:{uuid_of(labelled)}"))


def test_by_members(labelled):
    options = "rw,noatime,commit=30,x-systemd.automount"
    mount_write_unmount_check(labelled, write_fstab(labelled, ":".join(labelled.devices), options))
    mount_write_unmount_check(labelled, write_fstab(labelled, labelled.devices[2]))


def test_options_of_the_line_count(labelled):
    fstab = write_fstab(labelled, f"cowraid:{LABEL}", "ro,untrusted")
    run("mount", "-a", "-T", fstab)
    flags = run("findmnt", "-n", "-o", "OPTIONS", labelled.mount_point).stdout
    assert {"ro", "nosuid", "nodev", "noexec"} <= set(flags.strip().split(","))
    run("umount", labelled.mount_point)


def test_remount_through_mount(labelled):
    fstab = write_fstab(labelled, f"cowraid:{LABEL}")
    run("mount", "-T", fstab, labelled.mount_point)
    (labelled.mount_point / "f").write_text("content")
    run("mount", "-o", "remount,ro", labelled.mount_point)
    with pytest.raises(OSError, match="Read-only"):
        (labelled.mount_point / "g").touch()
    run("mount", "-o", "remount,rw", labelled.mount_point)
    (labelled.mount_point / "g").touch()
    run("umount", labelled.mount_point)
    labelled.check()


@pytest.mark.parametrize("loops", [True, False], ids=["block devices", "image files"])
def test_umount_says_that_the_last_commit_failed(make_volume, installed, loops):
    volume = make_volume(data="raid6", metadata="raid1c3", loops=loops, may_fail=[0, 1, 2])
    volume.make()
    run("mount", "-t", "cowraid", ":".join(volume.devices), volume.mount_point, "-o", "commit=300")
    (volume.mount_point / "f").write_bytes(os.urandom(300000))
    volume.fail_writes()
    result = run("umount", volume.mount_point, check=False)
    assert result.returncode == 32 and "the last commit failed: " in result.stderr, result
    assert not volume.is_mounted()


def test_a_volume_that_is_not_there(labelled):
    fstab = write_fstab(labelled, "cowraid:no-such-label", "missing_dev_timeout=0")
    result = run("mount", "-a", "-T", fstab, check=False)
    assert result.returncode & 32
    assert "no volume labelled 'no-such-label' was found" in result.stderr
    assert not labelled.is_mounted()


@pytest.mark.parametrize("loops", [True, False], ids=["block devices", "image files"])
def test_a_remount_keeps_what_it_does_not_name(make_volume, loops):
    volume = make_volume(loops=loops)
    volume.make()
    volume.mount(options="sync,noexec")

    def kernels():
        return set(run("findmnt", "-n", "-o", "OPTIONS", volume.mount_point).stdout.strip().split(","))

    before = kernels()
    assert {"sync", "noexec", "rw"} <= before
    volume.mount(options="remount,commit=10")
    assert kernels() == before
    volume.mount(options="remount,async")
    assert kernels() == before - {"sync"}
