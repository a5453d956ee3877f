# SPDX-License-Identifier: MIT
"""Directories whose inodes cannot all be read."""

import errno
import os
import struct

HEADER_BYTES = 64
NODE_MAGIC = b"CRGWNODE"
FILE_TREE = 256
ROOT_INODE = 256


def leaves_of_files(image):
    """Offsets of leaves of the file tree that hold nothing of the root directory, with the inodes in them."""
    found = []
    at = image.find(NODE_MAGIC)
    while at >= 0:
        start = at
        tree, level, _, count = struct.unpack_from("<QHHI", image, start + 40)
        if start % 4096 == 0 and tree == FILE_TREE and level == 0 and 0 < count < 600:
            inodes = [struct.unpack_from("<Q", image, start + HEADER_BYTES + 24 * i)[0] for i in range(count)]
            if inodes[0] > ROOT_INODE:
                found.append((start, inodes))
        at = image.find(NODE_MAGIC, at + 1)
    return found


def damage_leaf_with(volume, inode):
    """All copies of it, old ones too."""
    count = 0
    for path in volume.images:
        with open(path, "r+b") as file:
            for start, inodes in leaves_of_files(file.read()):
                if inodes[0] < inode < inodes[-1]:
                    os.pwrite(file.fileno(), b"damage", start + HEADER_BYTES + 2)
                    count += 1
    return count


def test_damaged_inodes_do_not_hide_a_directory(make_volume):
    volume = make_volume(data="raid1", metadata="raid1", member_count=2)
    volume.make()
    volume.mount()
    root = volume.mount_point
    names = [f"entry{i:04}" for i in range(1000)]
    for name in names:
        (root / name).touch()
    victim = os.stat(root / "entry0500").st_ino
    volume.unmount()
    volume.hide(range(2))
    assert damage_leaf_with(volume, victim) >= 2
    volume.unhide(range(2))
    volume.mount(options="ro")
    entries = {entry.name: entry for entry in os.scandir(root)}
    assert sorted(entries) == names
    assert entries["entry0500"].inode() == victim
    assert entries["entry0500"].is_file(follow_symlinks=False)
    errors = {}
    for name in names:
        try:
            assert os.lstat(root / name).st_size == 0
        except OSError as error:
            errors[name] = error.errno
    assert "entry0500" in errors and set(errors.values()) == {errno.EIO}
    assert len(errors) < 500
