# SPDX-License-Identifier: MIT
"""PostgreSQL on a volume whose daemon is killed: no transaction that was acknowledged is lost. Only with
COWRAID_LONG=1."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from conftest import PATIENCE, run, wait_for

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
ROUNDS = 3
SCRIPT = ("-qAt", "-v", "ON_ERROR_STOP=1")
SUMS = """select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches),
(select sum(tbalance) from pgbench_tellers), (select sum(delta) from pgbench_history)"""

pytestmark = pytest.mark.skipif(os.environ.get("COWRAID_LONG") != "1" or PROGRAMS is None,
                                reason="long: COWRAID_LONG=1 runs it; needs postgresql")


class Server:
    def __init__(self, volume):
        self.user = pwd.getpwnam("postgres").pw_name
        self.data, self.folder = volume.mount_point / "data", volume.folder / "postgres"
        for path in (self.data, self.folder):
            path.mkdir()
            shutil.chown(path, self.user)
        self("initdb", "-D", self.data, "--data-checksums", "--no-locale", "-E", "UTF8")
        self.process = None

    def as_user(self, name, *arguments):
        return ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups",
                str(PROGRAMS / name), *map(str, arguments)]

    def __call__(self, name, *arguments, **options):
        return run(*self.as_user(name, *arguments), cwd=self.folder, **options).stdout

    def connection(self):
        return ["-h", self.folder, "-U", self.user]

    def query(self, text):
        return self("psql", *self.connection(), *SCRIPT, "-c", text, "postgres").strip()

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                self.as_user("postgres", "-D", self.data, "-k", self.folder, "-h", ""), cwd=self.folder,
                stdout=log, stderr=log)
        ready = self.as_user("pg_isready", "-q", *self.connection())
        wait_for(lambda: run(*ready, check=False).returncode == 0,
                 otherwise=lambda: (self.folder / "log").read_text())

    def end(self, signal_):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal_)
            self.process.wait(5 * PATIENCE)
            self.process = None


class Writer(threading.Thread):
    """Inserts numbers, one after the other, and knows which of them were acknowledged."""

    def __init__(self, server, first):
        super().__init__()
        self.server, self.acknowledged = server, first - 1

    def run(self):
        command = self.server.as_user("psql", *self.server.connection(), *SCRIPT, "postgres")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, cwd=self.server.folder) as session, \
                contextlib.suppress(BrokenPipeError):
            while True:
                session.stdin.write(f"insert into numbers values ({self.acknowledged + 1}) returning a;\n")
                session.stdin.flush()
                if session.stdout.readline() != f"{self.acknowledged + 1}\n":
                    return
                self.acknowledged += 1


@pytest.mark.parametrize("data, metadata", [("raid5", "raid1"), ("raid6", "raid1c3")])
def test_killed(make_volume, data, metadata):
    volume = make_volume(data=data, metadata=metadata, member_mib=1024)
    volume.make()
    volume.mount()
    server = Server(volume)
    try:
        server.start()
        server("pgbench", *server.connection(), "-i", "-q", "-s", "5", "postgres")
        server.query("create table numbers (a bigint primary key)")
        first, transactions = 1, 0
        for _ in range(ROUNDS):
            writer = Writer(server, first)
            writer.start()
            command = server.as_user("pgbench", *server.connection(), "-n", "-c4", "-T600", "postgres")
            load = subprocess.Popen(command, cwd=server.folder, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
            started = time.monotonic()
            wait_for(lambda: writer.acknowledged > first + 50 and time.monotonic() > started + 5)
            volume.kill()
            server.end(signal.SIGQUIT)
            load.wait(PATIENCE)
            writer.join(PATIENCE)
            assert not writer.is_alive()
            volume.mount()
            server.start()
            found = int(server.query("select max(a) from numbers"))
            # The last one may be there without its answer.
            assert writer.acknowledged <= found <= writer.acknowledged + 1
            assert server.query("select count(*) from numbers") == str(found)
            sums = server.query(SUMS).split("|")
            assert len(sums) == 4 and len(set(sums)) == 1
            assert int(server.query("select count(*) from pgbench_history")) > transactions
            transactions = int(server.query("select count(*) from pgbench_history"))
            first = found + 1
        server("pg_amcheck", *server.connection(), "--all", "--heapallindexed", "--install-missing")
        server.end(signal.SIGINT)
        assert "Bad checksums:  0" in server("pg_checksums", "--check", "-D", server.data)
        print(f"postgres {data}: {first - 1} numbers, {transactions} transactions, {ROUNDS} kills, none lost")
    finally:
        server.end(signal.SIGQUIT)
    volume.unmount()
    assert volume.check()["clean"]
