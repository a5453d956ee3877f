# SPDX-License-Identifier: MIT
"""nfs-ganesha as a server of a folder, and libnfs as a client, in a network of their own."""

import contextlib
import ctypes
import ctypes.util
import os
import shutil
import signal
import subprocess
from pathlib import Path

from conftest import PATIENCE, wait_for

PORT = 2049
MOUNT_PORT = 20048
# What one call moves. libnfs 4 has room for no more in a call of version 4 of the protocol.
PIECES = {3: 256 << 10, 4: 2 << 10}
CLONE_NEWNET = 0x40000000
EXPORT = """
NFS_CORE_PARAM {{ NFS_Port = {port}; MNT_Port = {mount_port}; Protocols = 3, 4;
    Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ RecoveryBackend = fs; RecoveryRoot = {folder}; Grace_Period = 5; Lease_Lifetime = 5; }}
EXPORT {{ Export_Id = 7; Path = {path}; Pseudo = /export; Access_Type = RW; Squash = none; SecType = sys;
    Protocols = 3, 4; Transports = TCP; FSAL {{ Name = VFS; }} }}
"""
# rpcbind's socket is in /run.
START = """
ip link set lo up
mount -t tmpfs tmpfs /run
mkdir -p /run/rpcbind
rpcbind
exec ganesha.nfsd -F -f "$1/conf" -L "$1/log" -p "$1/pid"
"""

libc = ctypes.CDLL(None, use_errno=True)


def library():
    """libnfs, unless its calls have other arguments (version 6)."""
    name = ctypes.util.find_library("nfs")
    return ctypes.CDLL(name) if name in ("libnfs.so.13", "libnfs.so.14") else None


def is_there():
    return library() is not None and all(map(shutil.which, ("ganesha.nfsd", "rpcbind", "ip", "unshare")))


class Server:
    def __init__(self, folder, path):
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        (folder / "conf").write_text(
            EXPORT.format(port=PORT, mount_port=MOUNT_PORT, folder=folder, path=path))
        self.network = None
        self.process = None

    def start(self):
        """In the network that it had before."""
        (self.folder / "log").write_text("")
        command = ["unshare", "--mount", "--propagation", "private", "--kill-child", "--pid", "--fork"]
        command += [] if self.network else ["--net"]
        with self.inside() if self.network else contextlib.nullcontext():
            with open(self.folder / "messages", "wb") as messages:
                self.process = subprocess.Popen([*command, "sh", "-e", "-c", START, "sh", self.folder],
                                                stdout=messages, stderr=messages)
        wait_for(lambda: "NFS SERVER INITIALIZED" in (self.folder / "log").read_text(), pause=0.01,
                 otherwise=lambda: (self.folder / "messages").read_text() + (self.folder / "log").read_text())
        if not self.network:
            self.network = os.open(f"/proc/{self.process.pid}/ns/net", os.O_RDONLY)

    def stop(self, signal_=signal.SIGTERM):
        """With all processes of it: nobody uses the folder afterwards."""
        if self.process:
            child = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            os.kill(int(child[0]) if child else self.process.pid, signal_)
            self.process.wait(PATIENCE)
            self.process = None

    def close(self):
        self.stop()
        if self.network:
            os.close(self.network)

    @contextlib.contextmanager
    def inside(self):
        """This thread is in the server's network."""
        outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            assert libc.setns(self.network, CLONE_NEWNET) == 0, ctypes.get_errno()
            yield
        finally:
            assert libc.setns(outside, CLONE_NEWNET) == 0
            os.close(outside)


class Status(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks", "atime", "mtime",
        "ctime", "atime_nsec", "mtime_nsec", "ctime_nsec", "used")]


class Entry(ctypes.Structure):
    pass


Entry._fields_ = [("next", ctypes.POINTER(Entry)), ("name", ctypes.c_char_p), ("inode", ctypes.c_uint64)]


class Client:
    """One client. What it opened it asks for by the handle that it got then."""

    def __init__(self, server, path, version=3):
        self.server, self.library, self.piece = server, library(), PIECES[version]
        for name in ("init_context", "parse_url_dir", "get_error", "readdir"):
            getattr(self.library, f"nfs_{name}").restype = ctypes.c_void_p
        self.library.nfs_get_error.restype = ctypes.c_char_p
        self.library.nfs_readdir.restype = ctypes.POINTER(Entry)
        self.context = ctypes.c_void_p(self.library.nfs_init_context())
        url = f"nfs://127.0.0.1{path}?version={version}&nfsport={PORT}&mountport={MOUNT_PORT}"
        parsed = self.library.nfs_parse_url_dir(self.context, url.encode())
        assert parsed, self.library.nfs_get_error(self.context)
        self.library.nfs_set_timeout(self.context, int(PATIENCE * 1000))
        self.call("mount", b"127.0.0.1", path.encode())

    def call(self, name, *arguments):
        with self.server.inside():
            result = getattr(self.library, f"nfs_{name}")(self.context, *arguments)
        if result < 0:
            raise OSError(-result, f"{name}: {self.library.nfs_get_error(self.context).decode()}")
        return result

    def on(self, name, path, *arguments):
        return self.call(name, path.encode(), *(value.encode() if isinstance(value, str) else value
                                                for value in arguments))

    def open(self, path, flags=os.O_RDWR):
        handle = ctypes.c_void_p()
        self.on("open", path, flags, ctypes.byref(handle))
        return handle

    def create(self, path, mode=0o644):
        handle = ctypes.c_void_p()
        self.on("creat", path, mode, ctypes.byref(handle))
        return handle

    def read(self, handle, offset=0, size=None):
        """To the end, unless a size is given. A call may read less than it was asked for."""
        pieces = []
        size = self.status_of(handle).size - offset if size is None else size
        while size:
            buffer = ctypes.create_string_buffer(min(size, self.piece))
            got = self.call("pread", handle, ctypes.c_uint64(offset), ctypes.c_uint64(len(buffer)), buffer)
            if got == 0:
                break
            pieces.append(buffer.raw[:got])
            offset, size = offset + got, size - got
        return b"".join(pieces)

    def write(self, handle, data, offset=0):
        for at in range(0, len(data), self.piece):
            piece = data[at:at + self.piece]
            assert self.call("pwrite", handle, ctypes.c_uint64(offset + at), ctypes.c_uint64(len(piece)),
                             piece) == len(piece)
        self.call("fsync", handle)

    def status_of(self, handle):
        status = Status()
        self.call("fstat64", handle, ctypes.byref(status))
        return status

    def status(self, path):
        status = Status()
        self.on("lstat64", path, ctypes.byref(status))
        return status

    def list(self, path):
        directory = ctypes.c_void_p()
        self.on("opendir", path, ctypes.byref(directory))
        found = {}
        while entry := self.library.nfs_readdir(self.context, directory):
            found[os.fsdecode(entry.contents.name)] = entry.contents.inode
        self.library.nfs_closedir(self.context, directory)
        return found

    def link_target(self, path):
        buffer = ctypes.create_string_buffer(4096)
        self.on("readlink", path, buffer, len(buffer))
        return os.fsdecode(buffer.value)

    def close(self, handle):
        self.call("close", handle)
