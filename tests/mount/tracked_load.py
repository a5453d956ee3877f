# SPDX-License-Identifier: MIT
"""A load whose every acknowledged byte is known: threads write and fsync until the daemon dies under them.

Each path has two contents: what was acknowledged last, and what was under way. After a crash it holds the
first, the second, or what its way of writing allows between them, never less than what was acknowledged.
"""

import errno
import os
import random
import threading

BLOCK_BYTES = 4096
DEATH = (errno.ENOTCONN, errno.ECONNABORTED)


def is_death(error, folder):
    """Whether it says that the daemon was killed. The kernel makes EIO of a request that it cannot copy from
    or to a process that is being killed (fuse_dev_do_read, fuse_dev_do_write): then the next must say it."""
    if error.errno == errno.EIO:
        try:
            os.statvfs(folder)  # nothing of it is cached
        except OSError as following:
            error = following
    return error.errno in DEATH


def is_between_atomic(found, old, new):
    return found in (old, new)


def is_between_append(found, old, new):
    """Also of a file that is written for the first time: any beginning of it, once it is there."""
    if found is None:
        return old is None
    return found.startswith(old or b"") and new.startswith(found)


def is_between_overwrite(found, old, new):
    if found is None or len(found) != len(old):
        return False
    return all(found[at:at + BLOCK_BYTES] in (old[at:at + BLOCK_BYTES], new[at:at + BLOCK_BYTES])
               for at in range(0, len(old), BLOCK_BYTES))


class Tracked:
    """What one path may hold. None: it is not there."""

    def __init__(self, content=None):
        self.old = self.new = content
        self.is_between = is_between_atomic

    def begin(self, new, is_between):
        self.new, self.is_between = new, is_between

    def acknowledge(self):
        self.old = self.new


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_or_none(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


class Writer:
    """One thread in a folder of its own; subclasses do one tracked change per step()."""

    file_count = 6

    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.paths = [folder / f"file{index}" for index in range(self.file_count)]
        self.tracked = {path: Tracked() for path in self.paths}
        self.acknowledged, self.failure, self.thread = 0, None, None

    def prepare(self):
        """Called once, on the empty volume, and made durable by the caller."""
        self.folder.mkdir()

    def start(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while True:
                self.step()
                self.acknowledged += 1
        except Exception as error:  # whatever it is, join() says it
            if not isinstance(error, OSError) or not is_death(error, self.folder):
                self.failure = error

    def content(self, bytes_max=150000):
        return self.random.randbytes(self.random.randrange(1, bytes_max))

    def write(self, path, content, mode):
        with open(path, mode, buffering=0) as file:
            written = 0
            while written < len(content):
                written += file.write(content[written:])
            os.fsync(file.fileno())

    def verify(self):
        """What is found now is what must be found from now on."""
        for path, tracked in self.tracked.items():
            found = read_or_none(path)
            if not tracked.is_between(found, tracked.old, tracked.new):
                raise AssertionError(f"{path}: {describe(found, tracked.old)}; under way: "
                                     f"{'nothing' if tracked.new is tracked.old else size_of(tracked.new)}")
            self.tracked[path] = Tracked(found)


def size_of(content):
    return "absent" if content is None else f"{len(content)} bytes"


def describe(found, expected):
    text = f"found {size_of(found)}, acknowledged {size_of(expected)}"
    if found is not None and expected is not None:
        shorter = min(len(found), len(expected))
        wrong = next((at for at in range(shorter) if found[at] != expected[at]), shorter)
        text += f", first difference at {wrong}"
    return text


class Creator(Writer):
    """New files with fsync; a name that exists is removed first, with fsync of the folder."""

    def step(self):
        path = self.random.choice(self.paths)
        tracked = self.tracked[path]
        if tracked.old is not None:
            tracked.begin(None, is_between_atomic)
            os.unlink(path)
            sync(self.folder)
        else:
            content = self.content()
            tracked.begin(content, is_between_append)
            self.write(path, content, "wb")
        tracked.acknowledge()


class Replacer(Writer):
    """A new version beside the file, fsync, rename over it, fsync of the folder."""

    def step(self):
        path = self.random.choice(self.paths)
        content = self.content()
        beside = path.with_suffix(".new")
        self.write(beside, content, "wb")
        self.tracked[path].begin(content, is_between_atomic)
        os.rename(beside, path)
        sync(self.folder)
        self.tracked[path].acknowledge()


class Appender(Writer):
    """Appends of any length with fsync; a file grown large is begun again by a truncation of its own."""

    bytes_max = 1 << 20

    def step(self):
        path = self.random.choice(self.paths)
        tracked = self.tracked[path]
        if tracked.old is not None and len(tracked.old) > self.bytes_max:
            tracked.begin(b"", is_between_atomic)
            self.write(path, b"", "wb")
        else:
            more = self.content(20000)
            tracked.begin((tracked.old or b"") + more, is_between_append)
            self.write(path, more, "ab")
        tracked.acknowledge()


class Overwriter(Writer):
    """Writes inside files of a fixed size with fdatasync, at any offset; whole blocks are old or new."""

    file_count = 2
    file_bytes = 768 * 1024

    def prepare(self):
        super().prepare()
        for path in self.paths:
            content = self.random.randbytes(self.file_bytes)
            self.write(path, content, "wb")
            self.tracked[path] = Tracked(content)

    def step(self):
        path = self.random.choice(self.paths)
        tracked = self.tracked[path]
        piece = self.content(60000)
        at = self.random.randrange(self.file_bytes - len(piece))
        tracked.begin(tracked.old[:at] + piece + tracked.old[at + len(piece):], is_between_overwrite)
        fd = os.open(path, os.O_WRONLY)
        try:
            if os.pwrite(fd, piece, at) != len(piece):
                raise AssertionError("a short write inside a file")
            os.fdatasync(fd)
        finally:
            os.close(fd)
        tracked.acknowledge()


class Noise(Writer):
    """Dirty data that nobody waits for, so that commits carry more than what is acknowledged."""

    def step(self):
        with open(self.random.choice(self.paths), "wb", buffering=0) as file:
            for _ in range(16):
                file.write(self.random.randbytes(65536))

    def verify(self):
        for path in self.paths:
            read_or_none(path)


class Load:
    """All writers together on one mount."""

    kinds = (Creator, Replacer, Appender, Overwriter, Noise)

    def __init__(self, root, seed):
        self.root = root
        self.writers = [kind(root / kind.__name__, f"{seed}-{kind.__name__}") for kind in self.kinds]

    def prepare(self):
        for writer in self.writers:
            writer.prepare()
        sync(self.root)

    def start(self):
        for writer in self.writers:
            writer.start()

    def join(self):
        """After the daemon was killed. Every writer must have met that, and nothing else."""
        for writer in self.writers:
            writer.thread.join(30)
            assert not writer.thread.is_alive(), f"{writer.folder}: hangs after the daemon is dead"
            assert writer.failure is None, f"{writer.folder}: {writer.failure}"

    def verify(self):
        for writer in self.writers:
            writer.verify()

    def acknowledged(self):
        return sum(writer.acknowledged for writer in self.writers if not isinstance(writer, Noise))
