"""A server that others wrote, as a child process in a folder of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

STOP_TIMEOUT = 30.0


class ChildServer:
    """Owns the process and its folder, which `stop` leaves and `remove` deletes.

    It dies with us where `setpriv` exists, so that a test run that is killed leaves nothing behind.
    """

    def __init__(self, prefix: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, or start again with its port and data; returns when it answers."""
        raise NotImplementedError

    def stop(self) -> None:
        """Shut down in good order: its port refuses connections."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill -9. What it has written is in the operating system's cache, and survives."""
        self._end(signal.SIGKILL)

    def suspend(self) -> None:
        """SIGSTOP: it takes connections, and answers nothing until `heal`."""
        assert self._process is not None, "not running"
        self._process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self._process.pid}/task")
        while any(stat.read_text().rpartition(")")[2].split()[0] != "T" for stat in tasks.glob("*/stat")):
            time.sleep(0.005)  # a thread that runs may answer for a moment more

    def heal(self) -> None:
        """Let it run again after any fault."""
        if self._process is None:
            self.start()
        else:
            self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """Kill it if it runs, and delete its data."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def log(self) -> Path:
        """The file with its standard output."""
        return self._folder / "server.log"

    def _launch(self, command: Sequence[str]) -> None:
        assert self._process is None, "already running"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*dying_with_us(), *command],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _why_dead(self) -> str | None:
        if self._process is None or self._process.poll() is None:
            return None
        return f"it exited with {self._process.returncode}: {self.log.read_text()[-2000:]}"

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None, "not running"
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.remove()

    def __repr__(self) -> str:
        state = f"pid {self._process.pid}" if self._process else "not running"
        return f"<{type(self).__name__} {state} {self._folder}>"


def dying_with_us() -> list[str]:
    """A command's prefix that ends its process with ours, where the system can."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
