"""A real Valkey or Redis server: this machine's binary with a port and a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
import redis

BINARIES = ("valkey-server", "redis-server")


def binary() -> str:
    """The server's binary. Skips the test where there is none; in CI that is an error."""
    found = next((path for name in BINARIES if (path := shutil.which(name))), None)
    if found is None:
        why = f"none of {', '.join(BINARIES)} is installed"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return found


class RunningStore:
    """Owns a server, which may be stopped, and started again with its data on disk."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        persistent = ("--appendonly", "yes", "--save", "", "--dir", str(self._folder))
        self._process = subprocess.Popen(  # noqa: S603  # a fixed command
            [binary(), "--port", str(self.port), "--bind", "127.0.0.1", *persistent, *self._options],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while not self._answers():
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64)[:1] in {b"+", b"-"} and not self._is_loading()
        except OSError:
            return False

    def _is_loading(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
            connection.sendall(b"GET x\r\n")
            return connection.recv(64).startswith(b"-LOADING")

    def stop(self, how: int = signal.SIGKILL) -> None:
        """End the server."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(10)
            self._process = None

    def suspend(self) -> None:
        """SIGSTOP: connections stay open, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self) -> redis.Redis:
        """A client of the test's own."""
        return redis.Redis.from_url(self.url)

    def values(self, prefix: str) -> dict[bytes, bytes]:
        """All values under a prefix, by keys without the prefix."""
        with self.client() as client:
            keys = [bytes(key) for key in client.scan_iter(f"{prefix}*", 1000)]
            values: list[bytes] = client.mget(keys) if keys else []
        return {key[len(prefix) :]: value for key, value in zip(keys, values, strict=True)}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
