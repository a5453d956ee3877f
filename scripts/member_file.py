# SPDX-License-Identifier: MIT
"""A file to put a loop device on whose writes can be made to fail."""

import fcntl
import os
import subprocess

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
