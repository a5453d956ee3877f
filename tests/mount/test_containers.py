# SPDX-License-Identifier: MIT
"""Containers of podman with images and upper directories on a volume: unpacked, changed, committed, built."""

import hashlib
import json
import os
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from conftest import run

LONG = os.environ.get("COWRAID_LONG") == "1"
PROGRAMS = ("sh", "cat", "chmod", "chown", "find", "ln", "mkdir", "mkfifo", "mv", "rm", "sha256sum", "sort")
LEVELS = pytest.mark.parametrize("data, metadata", [("raid5", "raid1"), ("raid6", "raid1c3")])
# Of cgroups only what every machine lets be used: none. Limits are lowered, which needs no right.
RUN = ("run", "--cgroups=disabled", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
# crun takes no hierarchy of version 1. It is another one for podman alone.
INSIDE = ["unshare", "--mount", "--propagation", "private", "sh", "-ec",
          "test -e /sys/fs/cgroup/cgroup.controllers || "
          "{ umount -R /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; }\n"
          'exec podman "$@"', "sh"]
CHANGE = """
echo changed >>/data/changed
rm /data/gone
mv /data/lower /data/moved
echo more >/data/moved/deep/more
rm -r /data/opaque; mkdir /data/opaque; echo new >/data/opaque/new
ln /data/linked /data/hard; ln -s hard /data/soft
chmod 4751 /data/mode; chown 1000:1001 /data/owner
mkfifo /data/fifo
rm /data/there; echo again >/data/there
"""

pytestmark = [
    pytest.mark.skipif(shutil.which("podman") is None, reason="no podman"),
    pytest.mark.skipif("overlay" not in Path("/proc/filesystems").read_text(encoding="ascii"),
                       reason="the kernel has no overlayfs")]


class Podman:
    def __init__(self, volume):
        self.volume = volume
        self.temporary = volume.mount_point / "tmp"
        self.temporary.mkdir()
        self.options = ["--root", volume.mount_point / "storage", "--runroot", volume.folder / "run",
                        "--tmpdir", volume.folder / "libpod", "--storage-driver", "overlay",
                        "--cgroup-manager", "cgroupfs", "--events-backend", "none"]

    def __call__(self, *arguments, **options):
        return run(*INSIDE, *self.options, *arguments, env={**os.environ, "TMPDIR": str(self.temporary)},
                   **options).stdout

    def run(self, image, script, *options, timeout=900):
        network = () if "--network=host" in options else ("--network=none",)
        return self(*RUN, *network, *options, image, "/bin/sh", "-ec", script, timeout=timeout)

    def remount(self):
        self.volume.unmount()
        self.volume.check()
        self.volume.mount()


def make_base(root):
    """A small system from programs of this one, and files to change."""
    for name in PROGRAMS:
        program = shutil.which(name)
        needed = re.findall(r"(/\S+)", run("ldd", program).stdout)
        for source, target in [(program, f"/bin/{name}"), *((path, path) for path in needed)]:
            (root / target[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, root / target[1:])
    data = root / "data"
    for name in ("changed", "gone", "lower/deep/file", "opaque/old", "linked", "mode", "owner", "there"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(f"{name} of the image\n")
    os.setxattr(data / "changed", "user.attribute", b"value")
    run("setcap", "cap_net_raw+ep", data / "linked")


def tree_of_tar(path):
    """Of what an archive has below data/: kind, mode, owner, group, content."""
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.startswith("data/"):
                content = archive.extractfile(member).read() if member.isreg() or member.islnk() else None
                kind = tarfile.REGTYPE if member.islnk() else member.type
                found[member.name] = (kind, member.mode & 0o7777, member.uid, member.gid,
                                      member.linkname * member.issym(), content)
    return found


def entry(content, mode=0o644, owner=0, group=0):
    return tarfile.REGTYPE, mode, owner, group, "", content


def folder():
    return tarfile.DIRTYPE, 0o755, 0, 0, "", None


AFTER = {
    "data/changed": entry(b"changed of the image\nchanged\n"),
    "data/moved": folder(),
    "data/moved/deep": folder(),
    "data/moved/deep/file": entry(b"lower/deep/file of the image\n"),
    "data/moved/deep/more": entry(b"more\n"),
    "data/opaque": folder(),
    "data/opaque/new": entry(b"new\n"),
    "data/linked": entry(b"linked of the image\n"),
    "data/hard": entry(b"linked of the image\n"),
    "data/soft": (tarfile.SYMTYPE, 0o777, 0, 0, "hard", None),
    "data/mode": entry(b"mode of the image\n", 0o4751),
    "data/owner": entry(b"owner of the image\n", 0o644, 1000, 1001),
    "data/fifo": (tarfile.FIFOTYPE, 0o644, 0, 0, "", None),
    "data/there": entry(b"again\n"),
}


def exported(podman, container):
    path = podman.temporary / "exported.tar"
    podman("export", "-o", path, container)
    return tree_of_tar(path)


def exported_image(podman, image):
    container = podman("create", *RUN[1:], "--network=none", image, "/bin/sh").strip()
    found = exported(podman, container)
    podman("rm", container)
    return found


@LEVELS
def test_life_of_an_image(make_volume, tmp_path, data, metadata):
    volume = make_volume(data=data, metadata=metadata, member_mib=512)
    volume.make()
    volume.mount()
    podman = Podman(volume)
    base = tmp_path / "base"
    base.mkdir()
    make_base(base)
    archive = podman.temporary / "base.tar"
    run("tar", "-C", base, "--xattrs", "--xattrs-include=*", "-cf", archive, ".")
    podman("import", "-q", archive, "base")
    assert json.loads(podman("info", "--format", "json"))["store"]["graphDriverName"] == "overlay"
    expected = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in sorted(
        (f"/{path.relative_to(base)}", path) for path in base.rglob("*") if path.is_file()))
    listing = "export LC_ALL=C; find /bin /data /lib* /usr -type f 2>/dev/null | sort | " \
        'while read -r name; do sha256sum "$name"; done'
    assert podman.run("base", listing, "--rm") == expected

    podman.run("base", CHANGE, "--name", "changed")
    assert exported(podman, "changed") == AFTER
    changes = {line.split()[1]: line[0] for line in podman("diff", "changed").splitlines()}
    assert {name: kind for name, kind in changes.items() if name.startswith("/data/")} == {
        "/data/changed": "C", "/data/gone": "D", "/data/lower": "D", "/data/moved": "A",
        "/data/moved/deep": "A", "/data/moved/deep/file": "A", "/data/moved/deep/more": "A",
        "/data/opaque": "D", "/data/opaque/new": "A", "/data/linked": "C", "/data/hard": "A",
        "/data/soft": "A", "/data/mode": "C", "/data/owner": "C", "/data/fifo": "A", "/data/there": "C"}
    podman("commit", "-q", "changed", "second")
    podman.remount()
    assert exported(podman, "changed") == AFTER == exported_image(podman, "second")
    assert podman.run("second", "cat /data/moved/deep/more /data/soft; test ! -e /data/gone", "--rm") == \
        "more\nlinked of the image\n"
    assert podman.run("base", listing, "--rm") == expected

    context = podman.temporary / "context"
    context.mkdir()
    (context / "copied").write_text("copied")
    (context / "Containerfile").write_text(
        "FROM second\nCOPY copied /data/copied\nRUN rm -r /data/moved && echo built >/data/built\n"
        "RUN mv /data/built /data/twice && chmod 600 /data/twice\n")
    podman("build", "-q", "--isolation=chroot", "--network=host", "--ulimit=nofile=1024:1024",
           "--ulimit=nproc=1024:1024", "-t", "built", context)
    after_build = {name: value for name, value in AFTER.items() if not name.startswith("data/moved")} | {
        "data/copied": entry(b"copied"), "data/twice": entry(b"built\n", 0o600)}
    assert exported_image(podman, "built") == after_build

    podman("save", "-q", "-o", podman.temporary / "saved.tar", "built")
    podman("rm", "-a", "-f")
    podman("rmi", "-a", "-f")
    assert podman("images", "-q") == ""
    podman.remount()
    podman("load", "-q", "-i", podman.temporary / "saved.tar")
    assert exported_image(podman, "built") == after_build
    podman("rmi", "-a", "-f")
    podman.remount()


@pytest.mark.skipif(not LONG or shutil.which("debootstrap") is None,
                    reason="long: COWRAID_LONG=1 runs it; needs debootstrap and the network")
@LEVELS
def test_a_distribution(make_volume, data, metadata):
    """Packages are unpacked on a volume, and in a container: dpkg verifies every file of them."""
    volume = make_volume(data=data, metadata=metadata, member_mib=2048)
    volume.make()
    volume.mount()
    podman = Podman(volume)
    system = volume.mount_point / "system"
    run("debootstrap", "--variant=minbase", "bookworm", system, "http://deb.debian.org/debian", timeout=3600)
    assert run("chroot", system, "dpkg", "--verify").stdout == ""
    podman.remount()
    assert run("chroot", system, "dpkg", "--verify").stdout == ""
    (system / "etc" / "apt" / "sources.list").write_text("deb http://deb.debian.org/debian bookworm main\n")
    archive = podman.temporary / "system.tar"
    run("tar", "-C", system, "--xattrs", "--xattrs-include=*", "-cf", archive, ".")
    podman("import", "-q", archive, "debian")

    install = "export DEBIAN_FRONTEND=noninteractive; apt-get -q update; " \
        "apt-get -qy install --no-install-recommends gcc libc6-dev iputils-ping sqlite3 hello"
    podman.run("debian", install, "--network=host", "--name", "installed", timeout=3600)
    podman("commit", "-q", "installed", "installed")
    podman("rm", "installed")
    podman.remount()
    use = "dpkg --verify; hello; printf '#include <stdio.h>\nint main(void) { puts(\"built\"); }' >/a.c; " \
        "gcc -O2 -o /a /a.c; /a; sqlite3 /db 'create table t (a); insert into t values (42); select a from t'"
    assert podman.run("installed", use, "--name", "used", timeout=3600) == "Hello, world!\nbuilt\n42\n"
    podman("commit", "-q", "used", "used")
    podman.remount()
    assert podman.run("used", "dpkg --verify; /a; sqlite3 /db 'select a + 1 from t'") == "built\n43\n"
