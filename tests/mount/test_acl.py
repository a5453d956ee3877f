# SPDX-License-Identifier: MIT
"""Access control lists: stored, inherited and kept with the mode as a filesystem of the kernel does it."""

import errno
import os
import random
import stat
import struct
import sys
import tempfile

import pytest

from conftest import run

SEED = int(os.environ.get("COWRAID_SEED", "1"))
ROUNDS = int(os.environ.get("COWRAID_ACL_ROUNDS", "300"))
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
USERS = [0, 1000, 1001]
GROUPS = [0, 1000, 1002]


@pytest.fixture
def reference():
    """A folder of the kernel's own filesystem; its lists are what ours are compared with."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        os.chmod(name, 0o755)
        yield name


def state(root):
    """Modes, owners and lists of everything below `root`, as text."""
    lists = run("getfacl", "-R", "-P", "-n", "-p", ".", cwd=root).stdout
    modes = run("find", ".", "-printf", "%P %y %m %U %G\n", cwd=root).stdout.splitlines()
    return "\n".join(sorted(modes)) + "\n" + "\n".join(sorted(lists.split("\n\n")))


def entry(generator):
    name = generator.choice(["u:", "g:", "m:", "o:", "u:7:", "u:1000:", "g:8:", "g:1002:"])
    if name in ("m:", "o:"):
        name += ":"
    elif name in ("u:", "g:"):
        name += ":"
    return name + "".join(generator.choice([letter, "-"]) for letter in "rwx")


class Changes:
    """The same random changes again for every root; each is a command and what it returned."""

    def __init__(self, seed):
        self.generator = random.Random(seed)
        self.directories, self.files = [""], []

    def next(self):
        generator = self.generator
        anything = generator.choice(self.directories + self.files) or "."
        directory = generator.choice(self.directories) or "."
        kind = generator.randrange(9)
        name = f"{directory}/{'d' if kind == 0 else 'f'}{generator.randrange(10 ** 6)}"
        if kind == 0:
            self.directories.append(name)
            return ["sh", "-c", f"umask {generator.choice(['022', '077', '000'])}; mkdir {name}"]
        if kind in (1, 2):
            self.files.append(name)
            make = generator.choice(["touch", "mkfifo", "ln -s x", "mknod -m 0666"])
            tail = " c 1 3" if make.startswith("mknod") else ""
            return ["sh", "-c", f"umask {generator.choice(['022', '027', '000'])}; {make} {name}{tail}"]
        if kind == 3:
            return ["chmod", f"{generator.randrange(0o10000):o}", anything]
        if kind == 4:
            return ["chown", "-h", f"{generator.choice(USERS)}:{generator.choice(GROUPS)}", anything]
        if kind == 5:
            return ["setfacl", "-m", entry(generator), anything]
        if kind == 6:
            return ["setfacl", "-d", "-m", entry(generator), directory]
        if kind == 7:
            return ["setfacl", generator.choice(["-b", "-k", "-x u:7", "-x g:8"]).split(), anything]
        return ["setfacl", "-n", "-m", entry(generator), anything]


def flat(command):
    return [word for part in command for word in (part if isinstance(part, list) else [part])]


def test_random_changes_as_linux_does(volume, reference):
    ours = volume.mount_point / "tree"
    ours.mkdir(mode=0o755)
    changes = Changes(SEED)
    done = {}
    for number in range(ROUNDS):
        command = flat(changes.next())
        results = [run(*command, cwd=root, check=False).returncode for root in (ours, reference)]
        assert results[0] == results[1], (SEED, number, command)
        done[command[0]] = done.get(command[0], 0) + (results[0] == 0)
        if number % 25 == 0:
            assert state(ours) == state(reference), (SEED, number, command)
    theirs = state(reference)
    assert state(ours) == theirs, SEED
    assert theirs.count("mask::") > 10 and theirs.count("default:mask::") > 3
    assert min(done[name] for name in ("setfacl", "chmod", "chown", "sh")) > 10, done
    volume.unmount()
    volume.check()
    volume.mount()
    assert state(ours) == theirs


def as_user(uid, gid, code, *arguments):
    """Runs a line of Python as somebody else; its exit status: 0, or the number of the error."""
    program = "import os, sys\ntry:\n    " + code + "\nexcept OSError as error:\n    sys.exit(error.errno)"
    return run("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", sys.executable, "-c", program,
               *arguments, check=False).returncode


def test_who_may_what(volume):
    file = volume.mount_point / "file"
    file.write_text("secret")
    file.chmod(0o600)
    read, write = "open(sys.argv[1]).read()", "open(sys.argv[1], 'a').write('x')"
    assert as_user(1000, 1000, read, file) == errno.EACCES
    run("setfacl", "-m", "u:1000:r", file)
    assert as_user(1000, 1000, read, file) == 0
    assert as_user(1000, 1000, write, file) == errno.EACCES
    assert as_user(1001, 1001, read, file) == errno.EACCES
    run("setfacl", "-m", "g:1001:rw", file)
    assert as_user(1001, 1001, write, file) == 0
    file.chmod(0o640)  # the mask
    assert as_user(1001, 1001, write, file) == errno.EACCES
    assert as_user(1001, 1001, read, file) == 0
    volume.unmount()
    volume.mount()
    assert as_user(1001, 1001, write, file) == errno.EACCES
    assert as_user(1000, 1000, read, file) == 0
    run("setfacl", "-b", file)
    assert as_user(1000, 1000, read, file) == errno.EACCES
    assert os.listxattr(file) == []


def value_of(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 0xffffffff
SAMPLE = value_of((1, 6, NOBODY), (2, 7, 1000), (4, 4, NOBODY), (16, 6, NOBODY), (32, 0, NOBODY))


def test_values_and_errors(volume):
    file = volume.mount_point / "file"
    file.touch(mode=0o644)
    os.setxattr(file, ACCESS, SAMPLE)
    assert os.getxattr(file, ACCESS) == SAMPLE
    assert os.listxattr(file) == [ACCESS]
    assert stat.S_IMODE(file.stat().st_mode) == 0o660
    assert as_user(1000, 1000, f"os.setxattr(sys.argv[1], '{ACCESS}', {SAMPLE!r})", file) == errno.EPERM
    assert as_user(1000, 1000, f"os.removexattr(sys.argv[1], '{ACCESS}')", file) == errno.EPERM
    for name, value, number in (
            (DEFAULT, SAMPLE, errno.EACCES), (ACCESS, SAMPLE[:-1], errno.EINVAL),
            (ACCESS, value_of((1, 6, NOBODY)), errno.EINVAL), (ACCESS, b"\3" + SAMPLE[1:], errno.EOPNOTSUPP),
            ("system.posix_acl_other", SAMPLE, errno.EOPNOTSUPP)):
        with pytest.raises(OSError, match=rf"\[Errno {number}\]"):
            os.setxattr(file, name, value)
    os.removexattr(file, ACCESS)
    assert stat.S_IMODE(file.stat().st_mode) == 0o660
    with pytest.raises(OSError, match=rf"\[Errno {errno.ENODATA}\]"):
        os.getxattr(file, ACCESS)
    os.symlink("file", volume.mount_point / "link")
    with pytest.raises(OSError, match=rf"\[Errno {errno.EOPNOTSUPP}\]"):
        os.setxattr(volume.mount_point / "link", ACCESS, SAMPLE, follow_symlinks=False)


@pytest.mark.parametrize("gid, kept", [(1001, True), (1002, False)])
def test_set_gid_goes_for_who_is_not_in_the_group(volume, gid, kept):
    file = volume.mount_point / "file"
    file.touch()
    os.chown(file, 1000, 1001)
    file.chmod(0o2755)
    assert as_user(1000, gid, f"os.setxattr(sys.argv[1], '{ACCESS}', {SAMPLE!r})", file) == 0
    assert stat.S_IMODE(file.stat().st_mode) == (0o2660 if kept else 0o660)


def test_copies_keep_lists(volume, reference):
    run("sh", "-c", "mkdir -p a/b && touch a/b/c && setfacl -R -m u:7:rw a && setfacl -d -m g:8:rx a",
        cwd=reference)
    run("rsync", "-aAX", f"{reference}/", f"{volume.mount_point}/copied/")
    run("cp", "-a", reference, volume.mount_point / "cp")
    assert state(volume.mount_point / "copied") == state(reference) == state(volume.mount_point / "cp")
    assert "user:7:rw-" in state(reference)
    changed = run("rsync", "-aAXi", f"{reference}/", f"{volume.mount_point}/copied/").stdout
    assert changed == ""
