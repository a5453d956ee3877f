#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Room while members are away, beside kernel btrfs on loop devices of the same size: bytes accepted, bytes
refused, capacity after all members are back and everything is deleted.

1. Five members raid5: filled, emptied, one away: 300 MiB are written.
2. Eight members raid6, 56 % full, two away: written until it is full.
3. Eight members raid6 at 5 % use, two of them begin to fail writes: 1,200 files of 16 KiB, each with fsync.
4. Capacity of the volumes of 1 and 2 with all members, everything deleted, beside that of a fresh one.

Run as root.    scripts/degraded_space.py [--build build-release] [--only cowraid]
"""

import argparse
import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from member_file import MemberFile

ROOT = Path(__file__).resolve().parents[1]
METADATA = {"raid5": "raid1", "raid6": "raid1c3"}
MIB = 1 << 20


def run(*command, check=True):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if check and result.returncode != 0:
        raise RuntimeError(f"{command} returned {result.returncode}\n{result.stdout}{result.stderr}")
    return result


class Volume:
    """Members as loop devices, each over a file in memory."""

    def __init__(self, arguments, profile, count, member_mib):
        self.profile, self.member_mib = profile, member_mib
        self.tools = Path(arguments.build) / "tools"
        self.mount_point = Path(tempfile.mkdtemp(prefix="degraded-space-"))
        self.files = [MemberFile(member_mib * MIB) for _ in range(count)]
        self.devices = [self.attach(index) for index in range(count)]

    def attach(self, index):
        return run("losetup", "-f", "--show", self.files[index].path).stdout.strip()

    def hide(self, indexes):
        for index in indexes:
            run("losetup", "-d", self.devices[index])
        self.forget()

    def unhide(self, indexes):
        for index in indexes:
            self.devices[index] = self.attach(index)

    def forget(self):
        """Nothing remembers devices that are gone."""

    def fail_writes(self, index):
        self.files[index].fail_writes()

    def close(self):
        run("umount", "--lazy", self.mount_point, check=False)
        for device in self.devices:
            run("losetup", "-d", device, check=False)
        for file in self.files:
            file.close()
        self.mount_point.rmdir()

    # What programs see.
    def available(self):
        space = os.statvfs(self.mount_point)
        return space.f_bavail * space.f_frsize

    def sync(self):
        fd = os.open(self.mount_point, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def write(self, bytes_max):
        """Files of 8 MiB until so much is taken or refused, then fsync: bytes taken, how it ended."""
        taken, piece = 0, os.urandom(256 * 1024)
        try:
            for number in range(1 << 20):
                with open(self.mount_point / f"f{time.monotonic_ns()}", "wb", buffering=0) as file:
                    for _ in range(32):
                        if taken >= bytes_max:
                            os.fsync(file.fileno())
                            return taken, "no write refused"
                        taken += file.write(piece)
                    if number % 8 == 0:
                        os.fsync(file.fileno())
        except OSError as error:
            ended = errno.errorcode[error.errno]
        try:
            self.sync()
        except OSError as error:
            ended += f", then fsync: {errno.errorcode[error.errno]}"
        return taken, ended

    def write_synced(self, first, count):
        """Files of 16 KiB, each with fsync; how many of them were refused."""
        refused, content = 0, os.urandom(16384)
        for number in range(first, first + count):
            try:
                with open(self.mount_point / f"s{number}", "wb", buffering=0) as file:
                    file.write(content)
                    os.fsync(file.fileno())
            except OSError:
                refused += 1
        return refused

    def empty(self):
        for path in self.mount_point.iterdir():
            path.unlink()
        self.sync()


class Cowraid(Volume):
    name = "cowraid"

    def make(self):
        run(self.tools / "mkfs.cowraid", "-q", "-d", self.profile, "-m", METADATA[self.profile],
            *self.devices)

    def mount(self, away=()):
        present = [device for index, device in enumerate(self.devices) if index not in away]
        run(self.tools / "mount.cowraid", *(["-o", "degraded"] if away else []), *present, self.mount_point)

    def unmount(self):
        run(self.tools / "umount.fuse.cowraid", self.mount_point)


class Btrfs(Volume):
    name = "btrfs"

    def make(self):
        run("mkfs.btrfs", "-q", "-f", "-d", self.profile, "-m", METADATA[self.profile], *self.devices)

    def forget(self):
        run("btrfs", "device", "scan", "--forget", check=False)

    def mount(self, away=()):
        present = [device for index, device in enumerate(self.devices) if index not in away]
        for device in present:
            run("btrfs", "device", "scan", device)
        run("mount", "-t", "btrfs", "-o", "degraded" if away else "defaults", present[0], self.mount_point)

    def unmount(self):
        run("umount", self.mount_point)
        self.forget()


def mib(count):
    return f"{count / MIB:.0f} MiB"


def attempt(what, function):
    """A filesystem that gives up has shown what it does."""
    try:
        return function()
    except (OSError, RuntimeError) as error:
        print(f"    {what}: {str(error).strip().splitlines()[-1]}")
        return None


def capacity_after(volume, fresh):
    """With all members, emptied, one minute at most for what is freed to come back."""
    volume.mount()
    volume.empty()
    for _ in range(60):
        if volume.available() >= fresh:
            break
        time.sleep(1)
    print(f"    members back, everything deleted: {mib(volume.available())} available, fresh {mib(fresh)}")
    volume.unmount()


def emptied_then_one_away(volume):
    volume.make()
    volume.mount()
    fresh = volume.available()
    taken, ended = volume.write(1 << 40)
    print(f"    filled: {mib(taken)} of {mib(fresh)} ({ended})")
    volume.empty()
    volume.unmount()
    volume.hide([0])
    volume.mount([0])
    print(f"    one away: {mib(volume.available())} available")
    taken, ended = volume.write(300 * MIB)
    print(f"    accepted {mib(taken)} of 300 MiB: {ended}")
    volume.unmount()
    volume.unhide([0])
    attempt("capacity", lambda: capacity_after(volume, fresh))


def half_full_two_away(volume):
    volume.make()
    volume.mount()
    fresh = volume.available()
    taken, ended = volume.write(fresh * 56 // 100)
    print(f"    56 % is {mib(taken)} of {mib(fresh)}: {ended}")
    volume.unmount()
    volume.hide([2, 5])
    volume.mount([2, 5])
    print(f"    two away: {mib(volume.available())} available")
    taken, ended = volume.write(1 << 40)
    print(f"    accepted {mib(taken)}: {ended}")
    volume.unmount()
    volume.unhide([2, 5])
    attempt("capacity", lambda: capacity_after(volume, fresh))


def two_fail_under_load(volume):
    volume.make()
    volume.mount()
    volume.write(volume.available() // 20)
    refused = volume.write_synced(0, 100)
    volume.fail_writes(1)
    refused += volume.write_synced(100, 400)
    volume.fail_writes(6)
    refused += volume.write_synced(500, 700)
    print(f"    refused {refused} of 1,200 writes with fsync; {mib(volume.available())} available")


SCENES = [("five members raid5, filled and emptied, one away", emptied_then_one_away, "raid5", 5),
          ("eight members raid6, 56 % full, two away", half_full_two_away, "raid6", 8),
          ("eight members raid6 at 5 %, two fail under load", two_fail_under_load, "raid6", 8)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build-release")
    parser.add_argument("--only", choices=["cowraid", "btrfs"])
    parser.add_argument("--scene", type=int, choices=[1, 2, 3])
    parser.add_argument("--member-mib", type=int, default=256)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or devices would stay behind
    for number, (title, scene, profile, count) in enumerate(SCENES, 1):
        if arguments.scene not in (None, number):
            continue
        print(f"{number}. {title}, {arguments.member_mib} MiB each")
        for kind in (Cowraid, Btrfs):
            if arguments.only not in (None, kind.name):
                continue
            print(f"  {kind.name}")
            volume = kind(arguments, profile, count, arguments.member_mib)
            try:
                attempt("ended", lambda: scene(volume))
            finally:
                volume.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
