# SPDX-License-Identifier: MIT
"""File handles (name_to_handle_at) open their file while it is there: without its path, after the kernel has
forgotten it, after a remount."""

import ctypes
import errno
import os

import pytest

HANDLE_BYTES = 128
AT_EMPTY_PATH = 0x1000
libc = ctypes.CDLL(None, use_errno=True)


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * HANDLE_BYTES)]

    @staticmethod
    def of(path):
        handle = Handle(bytes=HANDLE_BYTES)
        mount = ctypes.c_int()
        if libc.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0) != 0:
            raise OSError(ctypes.get_errno(), "name_to_handle_at")
        return handle

    def open(self, volume, flags=os.O_RDONLY):
        mount = os.open(volume.mount_point, os.O_RDONLY)
        try:
            fd = libc.open_by_handle_at(mount, ctypes.byref(self), flags)
            if fd < 0:
                raise OSError(ctypes.get_errno(), "open_by_handle_at")
            return fd
        finally:
            os.close(mount)

    def read(self, volume):
        with os.fdopen(self.open(volume), "rb") as file:
            return file.read()

    def error(self, volume):
        with pytest.raises(OSError) as caught:
            os.close(self.open(volume))
        return caught.value.errno


def forget(volume):
    volume.drop_caches()


def remount(volume):
    volume.unmount()
    volume.mount()


@pytest.mark.parametrize("between", [lambda volume: None, forget, remount],
                         ids=["at once", "forgotten", "remounted"])
def test_handles_open_their_files(volume, between):
    root = volume.mount_point
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("content")
    (root / "gone").write_text("gone")
    (root / "moved").write_text("moved")
    os.symlink("a", root / "link")
    names = ("", "a", "a/b", "a/b/file", "gone", "moved")
    handles = {name: Handle.of(root / name) for name in names}
    numbers = {name: (root / name).stat().st_ino for name in names}
    between(volume)
    os.unlink(root / "gone")
    os.rename(root / "moved", root / "a" / "elsewhere")
    (root / "new").write_text("new")
    between(volume)
    assert handles["a/b/file"].read(volume) == b"content"
    assert handles["moved"].read(volume) == b"moved"
    assert handles["gone"].error(volume) == errno.ESTALE
    for name in ("", "a", "a/b"):
        fd = handles[name].open(volume, os.O_RDONLY | os.O_DIRECTORY)
        try:
            assert os.fstat(fd).st_ino == numbers[name]
            # Where it lies is found from below.
            assert os.readlink(f"/proc/self/fd/{fd}") == str(root / name).rstrip("/")
            above = os.stat("..", dir_fd=fd).st_ino
        finally:
            os.close(fd)
        if name:
            assert above == numbers[os.path.dirname(name)]
    fd = handles["a/b/file"].open(volume, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b" and more")
    os.close(fd)
    assert (root / "a" / "b" / "file").read_text() == "content and more"


def test_numbers_are_not_used_again(volume):
    file = volume.mount_point / "file"
    file.write_text("first")
    handle, number = Handle.of(file), file.stat().st_ino
    for round_ in range(3):
        os.unlink(file)
        remount(volume)
        file.write_text(f"next {round_}")
        assert file.stat().st_ino != number
        assert handle.error(volume) == errno.ESTALE


def test_forged_handles(volume):
    (volume.mount_point / "file").write_text("content")
    remount(volume)
    good = Handle.of(volume.mount_point / "file")
    assert good.bytes >= 12
    forget(volume)
    seen = 0
    for index in range(good.bytes):
        for value in (0, 1, 0x7f, 0xff):
            forged = Handle.from_buffer_copy(good)
            if forged.data[index] == value:
                continue
            forged.data[index] = value
            try:
                assert forged.read(volume) == b"content"
            except OSError as error:
                assert error.errno in (errno.ESTALE, errno.EISDIR, errno.EIO)
            seen += 1
    assert seen > 30
    assert good.read(volume) == b"content"


@pytest.mark.parametrize("stores", [False, True], ids=["nothing stored", "something stored"])
def test_a_handle_of_what_a_crash_cut_off_opens_no_other_file(make_volume, stores):
    volume = make_volume(member_count=3, data="raid5", metadata="raid1")
    volume.make()
    volume.mount()
    (volume.mount_point / "before").write_text("before")
    volume.unmount()
    volume.mount(options="commit=300")
    if stores:
        with open(volume.mount_point / "before", "ab") as file:
            os.fsync(file.fileno())
    (volume.mount_point / "cut off").write_text("cut off")
    number, handle = (volume.mount_point / "cut off").stat().st_ino, Handle.of(volume.mount_point / "cut off")
    volume.kill()
    volume.mount(options="commit=300")
    assert not (volume.mount_point / "cut off").exists()
    for attempt in range(3):
        (volume.mount_point / f"new{attempt}").write_text("of somebody else")
    assert number in [path.stat().st_ino for path in volume.mount_point.iterdir()]
    assert handle.error(volume) == errno.ESTALE
