# SPDX-License-Identifier: MIT
"""Members with unreadable blocks. Each is an image on another volume without redundancy: where a block of
that is damaged, a read of the image fails, until the block is written again."""

import json
import mmap
import os
import random

from conftest import Volume, tool, wait_for
from test_sparse import runs_of

BLOCK = 4096
MIB = 1 << 20


def blocks_of(content):
    return {content[at:at + BLOCK] for at in range(0, len(content), BLOCK)}


class UnreadableMembers:
    """A volume of loop devices and, behind them, images of which blocks can be made unreadable."""

    def __init__(self, folder, loop_count=3, image_count=1, data="raid5", metadata="raid1", member_mib=256):
        self.environment = {**os.environ, "COWRAID_RUN_DIR": str(folder)}
        self.below = []
        self.volume = Volume(member_count=loop_count, member_mib=member_mib, data=data, metadata=metadata)
        self.images = []
        self.devices = [*self.volume.loops]
        try:
            for number in range(loop_count + 1, loop_count + image_count + 1):
                self.add_image(f"member{number}.img", member_mib)
            tool("mkfs.cowraid", "-q", "-d", data, "-m", metadata, *self.devices)
        except BaseException:
            self.destroy()
            raise

    def add_image(self, name, mebibytes):
        below = Volume(member_count=1, member_mib=4 * mebibytes, data="single", metadata="single")
        self.below.append(below)
        below.make()
        tool("mount.cowraid", *below.devices, below.mount_point, env=self.environment)
        image = below.mount_point / name
        with open(image, "wb") as file:
            file.truncate(mebibytes << 20)
        self.images.append(image)
        self.volume.images.append(image)
        self.devices.append(str(image))

    def sync(self):
        tool("cowraid", "filesystem", "sync", self.volume.mount_point)
        for below in self.below:
            tool("cowraid", "filesystem", "sync", below.mount_point, env=self.environment)

    def damage_blocks(self, index, wanted):
        """Blocks of image `index` that are in `wanted` cannot be read any more; how many that are."""
        self.sync()
        found = 0
        with open(self.below[index].images[0], "r+b") as file, mmap.mmap(file.fileno(), 0) as raw:
            for begin, end in runs_of(file.fileno()):
                for at in range(max(begin, 16 * MIB), end, BLOCK):
                    if raw[at:at + BLOCK] in wanted:
                        raw[at] ^= 1
                        found += 1
        return found

    def damage(self, content):
        """The same of the first image and of `content` of files."""
        return self.damage_blocks(0, blocks_of(content))

    def damage_some(self, index, share, seed):
        """One block in `share` of what was ever written to image `index`: data, parity, nodes, logs."""
        self.sync()
        with open(self.images[index], "rb") as file:
            written = [block for block in iter(lambda: file.read(BLOCK), b"") if any(block)]
        chosen = random.Random(seed).sample(written, len(written) // share)
        return self.damage_blocks(index, set(chosen))

    def drop_caches(self):
        self.volume.drop_caches()

    def status(self):
        return json.loads(tool("cowraid", "status", "--json", self.volume.mount_point).stdout)["volumes"][0]

    def wait_for_condition(self, condition):
        """Of the last member; the status then."""
        wait_for(lambda: self.status()["members"][-1]["condition"] == condition, otherwise=self.status)
        return self.status()

    def wait_for_event(self, text):
        """All events so far. The daemon looks once a second."""
        def told():
            return tool("cowraid", "events", self.volume.mount_point).stdout
        wait_for(lambda: text in told(), otherwise=told)
        return told()

    def destroy(self):
        self.volume.destroy()
        for below in self.below:
            below.destroy()
