# SPDX-License-Identifier: MIT
"""rsync -aHAX --checksum of a tree that has everything a filesystem can hold, to a volume and back."""

import hashlib
import os
import random
import shutil
import stat

import pytest

from conftest import random_content, run

LONG = os.environ.get("COWRAID_LONG") == "1"
SEED = int(os.environ.get("COWRAID_SEED", "1"))
COMMAND = ["rsync", "-aHAX", "--checksum", "--itemize-changes"]
ODD_NAMES = [b"new\nline", b"tab\there", b" leading", b"trailing ", b"-rf", b"\\back\\slash", b"*?[a]",
             b"\xff\xfe\x80", "é".encode(), "e\u0301".encode(), b"$(reboot)", b"'\"`", b"\x01\x7f",
             b".hidden", b"..three", b"n" * 255, "\N{SNOWMAN}".encode() * 85]
TIMES_NS = [0, 1, -1, 999_999_999, 315_532_800_123_456_789, -10**18 - 1, (1 << 31) * 10**9,
            (1 << 32) * 10**9 + 7, 1_700_000_000_000_000_001]
MODES = [0o000, 0o400, 0o644, 0o777, 0o4755, 0o2755, 0o1777, 0o6711, 0o7777]
ACLS = ["u:1000:rw", "g:1001:r,m::rwx", "u:1000:-,u:1001:rwx,u:4000000000:x,g:0:r", "o::-,g:50:wx,m::x"]
CAPABILITIES = ["cap_net_raw+ep", "cap_net_bind_service,cap_chown=p", "cap_setuid+eip"]

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync")


@pytest.fixture
def reference(tmp_path):
    """The folder of a kernel filesystem that knows ACLs, all extended attributes and old times."""
    image, folder = tmp_path / "image", tmp_path / "reference"
    with open(image, "wb") as file:
        file.truncate((32 if LONG else 4) << 30)
    folder.mkdir()
    run("mkfs.ext4", "-q", "-I", "256", "-E", "nodiscard", image)
    run("mount", "-o", "loop,acl,user_xattr", image, folder)
    yield folder
    run("umount", folder)


def content_of(generator, size):
    kind = generator.randrange(3)
    if kind == 0:
        return bytes(size)
    return random_content(size) if kind == 1 else (b"line %d\n" % size) * (size // 10)


def make_sparse(path, generator):
    """Data, holes, zeros that are no hole, and a hole at the end."""
    size = generator.randrange(1 << 20, (24 if LONG else 6) << 20)
    with open(path, "wb") as file:
        for _ in range(generator.randrange(6)):
            file.seek(generator.randrange(size))
            file.write(generator.choice([bytes(70_000), random_content(generator.randrange(1, 100_000))]))
        file.truncate(max(size, file.tell()))


def make_special(path, generator):
    """What is no regular file."""
    kind = generator.randrange(5)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        os.mknod(path, 0o660 | stat.S_IFSOCK)
    elif kind < 4:
        os.mknod(path, 0o660 | (stat.S_IFCHR if kind == 2 else stat.S_IFBLK),
                 os.makedev(generator.choice([0, 1, 255, 4095]), generator.choice([0, 3, 255, 1048575])))
    else:
        os.symlink(generator.choice([b"target", b"/abs/olute", b"x" * 4000, b"\xff\n"]), path)


def dress(path, generator):
    """Owner, mode, attributes, ACL, capabilities: in the order in which none takes another away."""
    found = os.lstat(path)
    os.lchown(path, generator.choice([0, 1000, 65534, 4_000_000_000]),
              generator.choice([0, 1001, 3_999_999_999]))
    if stat.S_ISLNK(found.st_mode):
        return
    directory, regular = stat.S_ISDIR(found.st_mode), stat.S_ISREG(found.st_mode)
    mode = generator.choice(MODES)
    os.chmod(path, mode)
    if directory or regular:
        for number in range(generator.randrange(4)):
            name = generator.choice(["user.n", f"user.{'l' * 200}", "trusted.t"]) + str(number)
            os.setxattr(path, name, generator.randbytes(generator.choice([0, 1, 50, 700])))
        # Of a sticky directory rsync 3.5.0 gives the group no rights, on ext4, too.
        if generator.randrange(3) == 0 and not (directory and mode & stat.S_ISVTX):
            run("setfacl", "-m", generator.choice(ACLS), "--", os.fsdecode(path))
    if directory and generator.randrange(3) == 0:
        run("setfacl", "-d", "-m", generator.choice(ACLS), "--", os.fsdecode(path))
    if regular and generator.randrange(4) == 0:
        run("setcap", generator.choice(CAPABILITIES), os.fsdecode(path))


def make_tree(root, generator, count):
    folders = [os.fsencode(root)]
    files = []
    for number in range(count):
        name = generator.choice(ODD_NAMES) if generator.randrange(8) == 0 else b"n%d" % number
        path = os.path.join(generator.choice(folders), name)
        if len(path) > 3000 or os.path.lexists(path):
            continue
        kind = generator.randrange(20)
        if kind < 3:
            os.mkdir(path)
            folders.append(path)
        elif kind < 6:
            make_special(path, generator)
        elif kind < 8 and files:
            os.link(generator.choice(files), path)
            continue
        elif kind == 8:
            make_sparse(path, generator)
            files.append(path)
        else:
            with open(path, "wb") as file:
                file.write(content_of(generator, generator.choice([0, 1, 4095, 4096, 4097, 70_000, 300_000])))
            files.append(path)
        dress(path, generator)
    for folder, directories, names in os.walk(os.fsencode(root), topdown=False):
        for name in names + directories:
            time = generator.choice(TIMES_NS)
            os.utime(os.path.join(folder, name), ns=(time, time), follow_symlinks=False)


def describe(root):
    """Everything of every name below `root`; of hard links, which names are one file."""
    found, numbers = {}, {}
    for folder, directories, names in os.walk(os.fsencode(root)):
        for name in names + directories:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, os.fsencode(root))
            status = os.lstat(path)
            content = None
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest() if status.st_size else ""
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            attributes = {key: os.getxattr(path, key, follow_symlinks=False)
                          for key in os.listxattr(path, follow_symlinks=False)}
            size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
            links = 0 if stat.S_ISDIR(status.st_mode) else status.st_nlink
            found[relative] = (status.st_mode, status.st_uid, status.st_gid, status.st_rdev, size, links,
                               status.st_mtime_ns, content, attributes)
            numbers.setdefault(status.st_ino, set()).add(relative)
    return found, {frozenset(names) for names in numbers.values() if len(names) > 1}


def assert_same(found, expected):
    for name in sorted(found[0].keys() | expected[0].keys()):
        assert found[0].get(name) == expected[0].get(name), \
            f"{name}: {found[0].get(name)}, expected {expected[0].get(name)}"
    assert found[1] == expected[1]


def sync(source, target, *options):
    return run(*COMMAND, *options, f"{source}/", f"{target}/").stdout


def blocks(root):
    return sum(os.lstat(os.path.join(folder, name)).st_blocks
               for folder, _, names in os.walk(os.fsencode(root)) for name in names)


@pytest.mark.parametrize("data, metadata", [("raid5", "raid1"), ("raid6", "raid1c3")])
def test_both_ways(make_volume, reference, data, metadata):
    generator = random.Random(SEED)
    volume = make_volume(data=data, metadata=metadata, member_mib=4096 if LONG else 1024)
    volume.make()
    volume.mount()
    source, back, sparse = reference / "source", reference / "back", volume.mount_point / "sparse"
    for folder in (source, back):
        folder.mkdir()
    make_tree(source, generator, 6000 if LONG else 300)
    expected = describe(source)
    kinds = {stat.S_IFMT(entry[0]) for entry in expected[0].values()}
    keys = {key for entry in expected[0].values() for key in entry[-1]}
    assert len(kinds) == 7 and expected[1]
    assert keys >= {"system.posix_acl_access", "system.posix_acl_default", "security.capability"}

    there = volume.mount_point / "there"
    there.mkdir()
    assert sync(source, there) != ""
    assert_same(describe(there), expected)
    assert sync(source, there) == ""
    volume.unmount()
    volume.check()
    volume.mount()
    assert sync(source, there) == ""
    assert_same(describe(there), expected)

    assert sync(there, back) != ""
    assert sync(there, back) == ""
    assert_same(describe(back), expected)

    sparse.mkdir()
    sync(there, sparse, "--sparse")
    assert_same(describe(sparse), expected)
    assert blocks(sparse) < blocks(there) / 2
    assert sync(sparse, there) == ""


def test_every_change_is_transferred(volume, reference):
    """What makes nothing to transfer mean something."""
    source, there = reference / "source", volume.mount_point / "there"
    source.mkdir()
    there.mkdir()
    for name in ("content", "mode", "owner", "time", "attribute", "acl", "capability", "same"):
        (source / name).write_bytes(b"before")
        os.setxattr(source / name, "user.a", b"before")
    sync(source, there)
    assert sync(source, there) == ""
    status = (there / "content").stat()
    (there / "content").write_bytes(b"after!")
    os.utime(there / "content", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.chmod(there / "mode", 0o600)
    os.chown(there / "owner", 1000, 0)
    os.utime(there / "time", ns=(1, 1))
    os.setxattr(there / "attribute", "user.a", b"after!")
    run("setfacl", "-m", "u:1000:rwx,m::r", there / "acl")
    run("setcap", "cap_net_raw+ep", there / "capability")
    os.symlink("same", there / "link")
    changed = {line.split()[1]: line.split()[0] for line in sync(source, there, "--delete").splitlines()}
    changed.pop("./", None)  # rsync compares whole seconds
    assert changed == {"content": ">fc........", "mode": ".f...p.....", "owner": ".f....o....",
                       "time": ".f..t......", "attribute": ".f........x", "acl": ".f.......a.",
                       "capability": ".f........x", "link": "*deleting"}
    assert_same(describe(there), describe(source))
    assert sync(source, there) == ""
