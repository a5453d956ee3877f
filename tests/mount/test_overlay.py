# SPDX-License-Identifier: MIT
"""overlayfs with its upper directory on a volume."""

import errno
import os
import random
import stat
import subprocess
from pathlib import Path

import pytest

from conftest import run

SEED = int(os.environ.get("COWRAID_SEED", "1"))

pytestmark = pytest.mark.skipif("overlay" not in Path("/proc/filesystems").read_text(encoding="ascii"),
                                reason="the kernel has no overlayfs")


def kernel_log():
    return run("dmesg").stdout.splitlines()


class Overlay:
    def __init__(self, volume, options="redirect_dir=on,index=on,metacopy=off"):
        self.volume, self.options = volume, options
        self.lower, self.upper, self.work = (volume.mount_point / name for name in ("lower", "upper", "work"))
        self.merged = volume.folder / "merged"
        self.merged.mkdir(exist_ok=True)
        for folder in (self.lower, self.upper, self.work):
            folder.mkdir(exist_ok=True)

    def mount(self):
        before = len(kernel_log())
        run("mount", "-t", "overlay", "overlay", "-o",
            f"lowerdir={self.lower},upperdir={self.upper},workdir={self.work},{self.options}", self.merged)
        return [line for line in kernel_log()[before:] if "overlayfs" in line]

    def unmount(self):
        run("umount", self.merged)


@pytest.fixture
def overlay(volume):
    made = Overlay(volume)
    yield made
    subprocess.run(["umount", "-l", made.merged], check=False, capture_output=True)


def is_whiteout(path):
    found = os.lstat(path)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def test_the_kernel_has_nothing_to_say(overlay):
    assert overlay.mount() == []
    overlay.unmount()


def test_what_the_upper_directory_holds(overlay):
    lower, upper, merged = overlay.lower, overlay.upper, overlay.merged
    for name in ("d/e/f", "changed", "gone", "renamed", "opaque/x", "linked"):
        (lower / name).parent.mkdir(parents=True, exist_ok=True)
        (lower / name).write_text(name)
    overlay.mount()
    (merged / "changed").write_text("new")
    os.unlink(merged / "gone")
    os.rename(merged / "renamed", merged / "new name")
    os.rename(merged / "d", merged / "moved")
    run("rm", "-r", merged / "opaque")
    (merged / "opaque").mkdir()
    (merged / "opaque" / "y").write_text("y")
    os.link(merged / "linked", merged / "hard")
    with open(merged / "linked", "a", encoding="ascii") as file:
        file.write("!")
    run("setcap", "cap_net_raw+ep", merged / "changed")
    run("setfacl", "-m", "u:1000:r", merged / "changed")

    def check():
        assert is_whiteout(upper / "gone") and is_whiteout(upper / "renamed") and is_whiteout(upper / "d")
        assert os.getxattr(upper / "opaque", "trusted.overlay.opaque") == b"y"
        assert os.getxattr(upper / "moved", "trusted.overlay.redirect") in (b"d", b"/d")
        assert sorted(os.listdir(merged)) == ["changed", "hard", "linked", "moved", "new name", "opaque"]
        assert (merged / "moved" / "e" / "f").read_text() == "d/e/f"
        assert os.listdir(merged / "opaque") == ["y"]
        assert (merged / "changed").read_text() == "new"
        assert (merged / "hard").read_text() == "linked!"
        assert (merged / "hard").stat().st_nlink == (merged / "linked").stat().st_nlink == 2
        assert (merged / "new name").read_text() == "renamed"
        assert "cap_net_raw" in run("getcap", merged / "changed").stdout
        assert "user:1000:r--" in run("getfacl", "-np", merged / "changed").stdout
        assert (lower / "changed").read_text() == "changed" and (lower / "gone").exists()

    check()
    overlay.unmount()
    overlay.volume.unmount()
    overlay.volume.check()
    overlay.volume.mount()
    assert overlay.mount() == []
    check()
    # Before, the name that was copied up has the number of its origin, which others do not find.
    assert (merged / "hard").stat().st_ino == (merged / "linked").stat().st_ino
    overlay.unmount()


@pytest.mark.parametrize("options", ["", "index=on", "metacopy=on", "redirect_dir=on,index=on", "xino=on"])
def test_what_was_copied_up_outlives_the_caches(overlay, options):
    """Its origin in the lower layer is on a FUSE filesystem: Linux would take that for outdated."""
    overlay.options = options or "index=off"
    kinds = ("mode", "content", "more", "renamed", "lower")
    names = [f"{kind}{number}" for kind in kinds for number in range(3)]
    for name in names:
        (overlay.lower / name).write_text(name)
    overlay.mount()
    merged = overlay.merged
    expected = {name: name for name in names if not name.startswith("renamed")}
    for number in range(3):
        os.chmod(merged / f"mode{number}", 0o600)
        (merged / f"content{number}").write_text("new")
        with open(merged / f"more{number}", "a", encoding="ascii") as file:
            file.write(" and more")
        os.rename(merged / f"renamed{number}", merged / f"now{number}")
        expected |= {f"content{number}": "new", f"more{number}": f"more{number} and more",
                     f"now{number}": f"renamed{number}"}
    for _ in range(2):
        overlay.volume.drop_caches()
        # A listing would tell the kernel of the names in the lower layer.
        assert {name: (merged / name).read_text() for name in expected} == expected
        assert (merged / "mode1").stat().st_mode & 0o777 == 0o600
    assert os.getxattr(overlay.upper / "content0", "trusted.overlay.origin") == b""
    overlay.unmount()
    overlay.mount()
    assert {path.name: path.read_text() for path in merged.iterdir()} == expected
    overlay.unmount()


def test_the_origin_on_another_filesystem_is_known(overlay):
    """So that numbers of files stay when they are copied up."""
    lower = overlay.volume.folder / "elsewhere"
    lower.mkdir()
    run("mount", "-t", "tmpfs", "tmpfs", lower)
    try:
        overlay.lower = lower
        (lower / "file").write_text("content")
        overlay.mount()
        os.chmod(overlay.merged / "file", 0o600)
        assert len(os.getxattr(overlay.upper / "file", "trusted.overlay.origin")) > 20
        overlay.volume.drop_caches()
        assert (overlay.merged / "file").read_text() == "content"
        overlay.unmount()
    finally:
        run("umount", lower)


def tree_of(root):
    """What programs see below `root`."""
    found = {}
    for folder, directories, files in os.walk(root):
        for name in directories + files:
            path = Path(folder) / name
            content = None if name in directories else path.read_bytes()
            found[str(path.relative_to(root))] = (stat.S_IMODE(path.stat().st_mode), content)
    return found


def change(root, generator):
    """One random change of the tree; whether it succeeded."""
    every = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    directories = [""] + [name for name in every if (root / name).is_dir()]
    target = root / generator.choice(directories) / f"n{generator.randrange(30)}"
    source = root / generator.choice(every or ["none"])
    kind = generator.randrange(6)
    try:
        if kind == 0:
            target.mkdir()
        elif kind == 1:
            target.write_bytes(generator.randbytes(generator.randrange(20000)))
        elif kind == 2:
            os.rename(source, target)
        elif kind == 3:
            os.unlink(source)
        elif kind == 4:
            run("rm", "-rf", source) if source.is_dir() else os.chmod(source, generator.randrange(0o1000))
        else:
            with open(source, "ab") as file:
                file.write(b"more")
    except OSError as error:
        return error.errno
    return 0


def test_names_of_one_file(overlay):
    """Linux (6.18) goes on asking for the name by which overlayfs made a file, also when that is gone."""
    overlay.mount()
    first, second = overlay.merged / "first", overlay.merged / "second"
    first.write_text("content")
    os.link(first, second)
    with open(second, "a", encoding="ascii") as file:
        file.write("!")
    os.unlink(first)
    try:
        assert second.read_text() == "content!"
    except OSError as error:
        assert error.errno == errno.ESTALE
    overlay.volume.drop_caches()
    assert second.read_text() == "content!"
    assert second.stat().st_nlink == 1
    overlay.unmount()


@pytest.mark.parametrize("options",
                         ["redirect_dir=on,index=on", "redirect_dir=off,index=off", "metacopy=on"])
def test_random_changes(overlay, options):
    """As on a tree of the volume itself, whatever overlayfs makes of them. Without redirect_dir it renames no
    directory of the lower layer."""
    overlay.options = options
    generator = random.Random(SEED)
    plain = overlay.volume.mount_point / "plain"
    plain.mkdir()
    for _ in range(60):
        change(plain, generator)
    run("cp", "-a", f"{plain}/.", overlay.lower)
    assert tree_of(plain) == tree_of(overlay.lower) != {}
    overlay.mount()
    done = 0
    for number in range(250):
        state = generator.getstate()
        theirs = change(plain, generator)
        after = generator.getstate()
        generator.setstate(state)
        ours = change(overlay.merged, generator)
        if ours == errno.EXDEV and theirs == 0 and "redirect_dir=off" in options:
            run("rm", "-rf", plain)
            run("cp", "-a", overlay.merged, plain)
            ours = theirs
        assert ours == theirs, (SEED, number)
        generator.setstate(after)
        done += theirs == 0
    assert done > 100
    assert tree_of(overlay.merged) == tree_of(plain)
    overlay.unmount()
    overlay.volume.unmount()
    overlay.volume.check()
    overlay.volume.mount()
    overlay.mount()
    assert tree_of(overlay.merged) == tree_of(plain)
    overlay.unmount()
