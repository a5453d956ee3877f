# SPDX-License-Identifier: MIT
"""Files to put loop devices on, whose writes, or all of whose requests, can be made to fail."""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

F_SEAL_FUTURE_WRITE = 0x10  # linux/fcntl.h; a name of Python since 3.13


class MemberFile:
    """A file in memory, sparse. After fail_writes() every write and discard of a loop device over it fails
    with EIO and changes nothing, wherever it goes; reads and flushes succeed. A file on a full filesystem is
    not that fault: Linux 6.18 reports success for a write of which only the first part found room. Programs
    find the file at `path` while this process lives."""

    def __init__(self, size_bytes):
        self.fd = os.memfd_create("member", os.MFD_ALLOW_SEALING)
        os.truncate(self.fd, size_bytes)

    @property
    def path(self):
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def fail_writes(self):
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE)

    def copy(self):
        """Another file with this content, to which writes succeed. No loop device is to write meanwhile."""
        made = MemberFile(0)
        subprocess.run(["cp", "--sparse=always", self.path, made.path], check=True)
        return made

    def close(self):
        """The memory is free when no loop device uses it either."""
        os.close(self.fd)


class DetachableFile:
    """The same for a device that is pulled out: after fail_writes() every request of a loop device over it
    fails. It is a file of a FUSE filesystem, whose server is killed then."""

    def __init__(self, size_bytes, folder=None):
        self.folder = folder or Path(tempfile.mkdtemp(prefix="cowraid-test-", dir="/dev/shm"))
        image = self.folder / "image"
        with open(image, "ab") as file:
            file.truncate(size_bytes or image.stat().st_size)
        self.mount_point = Path(tempfile.mkdtemp(prefix="fuse-", dir=self.folder))
        self.path = self.mount_point / "member"
        self.server = subprocess.Popen(["nbdfuse", self.path, "--command", "nbdkit", "-s", "file", image])
        deadline = time.monotonic() + 60
        while not self.path.exists():
            if time.monotonic() > deadline:
                self.close()
                raise RuntimeError("nbdfuse does not serve its file")
            time.sleep(0.02)

    def fail_writes(self):
        self.server.kill()
        self.server.wait()
        subprocess.run(["umount", "-l", self.mount_point], check=False, stderr=subprocess.DEVNULL)

    def copy(self):
        """It is attached again: a file with the same content, to which requests succeed."""
        folder, self.folder = self.folder, None
        return DetachableFile(0, folder)

    def close(self):
        self.fail_writes()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
