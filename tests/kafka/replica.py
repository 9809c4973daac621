"""A worker replica as a real process: started, watched from outside, and ended by a signal of any kind.

Knows only what an operator knows: environment variables, signals, exit codes, the log, the HTTP endpoints and /proc.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.kafka.broker import free_port
from tests.kafka.child_server import dying_with_us

READY_TIMEOUT = 90.0  # 1-2 s on an idle machine of two cores; a busy one takes many times that
START_TIMEOUT = 30.0  # for all else, also for an end: a worker that hangs for a minute must be noticed
TICKS = os.sysconf("SC_CLK_TCK")
# The only variables a replica gets from the tests' own environment: a program needs them to start.
PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")


class Held(NamedTuple):
    """A process's resources: bytes of memory, threads, open files (Linux)."""

    memory: int
    threads: int
    files: int


class Replica:
    """One `inference-worker run`. Owns its process and its log file.

    `settings` have the environment's names without the prefix: `{"KAFKA__GROUP_ID": "g"}`. `variables` are
    environment variables that are not the worker's own. `root` is another checkout, whose worker runs instead.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        folder: Path,
        name: str = "replica",
        variables: Mapping[str, str] | None = None,
        *,
        root: Path | None = None,
    ) -> None:
        self.name = name
        self._port = free_port()
        self._log_path = folder / f"{name}.log"
        own = {"TELEMETRY__HTTP_PORT": str(self._port), **settings}
        kept = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
        environment = {**kept, **{f"WORKER_{key}": value for key, value in own.items()}, **(variables or {})}
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*dying_with_us(), sys.executable, "-m", "worker", "run"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=root,
                process_group=0,  # of its own, so that a test can signal it and its host as a terminal does
            )

    def wait_until_ready(self, timeout: float = READY_TIMEOUT) -> Replica:
        """Wait until /readyz says yes; fail the test when the process ends first or takes too long."""
        deadline = time.monotonic() + timeout
        while self.status("/readyz") != 200:
            assert self._process.poll() is None, f"{self.name} exited with {self._process.returncode}:\n{self.log}"
            assert time.monotonic() < deadline, f"{self.name} is not ready after {timeout} s:\n{self.log}"
            time.sleep(0.02)
        return self

    def status(self, path: str) -> int | None:
        """The HTTP status of one of its endpoints; None while nobody answers."""
        try:
            return self._ask(path)[0]
        except (OSError, http.client.HTTPException):
            return None

    def text(self, path: str) -> str:
        """The body of one of its endpoints."""
        return self._ask(path)[1]

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over all labels except the given ones."""
        lines = [line.rsplit(" ", 1) for line in self.text("/metrics").splitlines() if not line.startswith("#")]
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        values = [
            float(value)
            for head, value in lines
            if head.split("{")[0] == name and all(label in head for label in wanted)
        ]
        assert values, f"no metric {name} with {wanted}"
        return sum(values)

    def wait_until_settled(self, count: int, timeout: float = START_TIMEOUT) -> None:
        """Wait until its metrics count this many settled requests."""
        self.wait_until_counted("inference_worker_records_settled_total", count, timeout)

    def wait_until_taken(self, count: int, timeout: float = START_TIMEOUT) -> None:
        """Wait until its metrics count this many requests taken."""
        self.wait_until_counted("inference_worker_records_taken_total", count, timeout)

    def wait_until_counted(self, name: str, count: int, timeout: float = START_TIMEOUT, **labels: str) -> None:
        """Wait until a metric reaches `count`."""
        self.wait_until(name, lambda counted: counted >= count, timeout, **labels)

    def wait_until(
        self, name: str, is_so: Callable[[float], bool], timeout: float = START_TIMEOUT, **labels: str
    ) -> None:
        """Wait until `is_so` of a metric; the page may be a quarter of a second behind the log."""
        deadline = time.monotonic() + timeout
        while not is_so(value := self.metric(name, **labels)):
            assert time.monotonic() < deadline, f"{name} is {value:g} after {timeout} s"
            time.sleep(0.05)

    def wait_until_logged(self, event: str, timeout: float = START_TIMEOUT) -> None:
        """Wait until its log has this event."""
        deadline = time.monotonic() + timeout
        while event not in self.log:
            assert time.monotonic() < deadline, f"{self.name} does not say {event} in {timeout} s:\n{self.log}"
            time.sleep(0.02)

    def wait_until_logged_more(self, event: str, count: int, timeout: float = START_TIMEOUT) -> None:
        """Wait until its log has this event more than `count` times."""
        deadline = time.monotonic() + timeout
        while self.whole_log.count(event) <= count:
            assert time.monotonic() < deadline, f"{self.name} does not say {event} again in {timeout} s:\n{self.log}"
            time.sleep(0.02)

    def wait_until_taken_back(self) -> None:
        """Wait until its metrics count a transaction that was taken back."""
        self.wait_until_counted("inference_worker_transactions_total", 1, result="failed")

    @property
    def failed_transactions(self) -> float:
        """The number of its transactions that were taken back."""
        return self.metric("inference_worker_transactions_total", result="failed")

    def _ask(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=START_TIMEOUT)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def terminate(self) -> None:
        """SIGTERM: please stop."""
        self._process.send_signal(signal.SIGTERM)

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to it and to all its children, as Ctrl-C in a terminal does."""
        os.killpg(self.pid, number)

    def hang_up(self) -> None:
        """SIGHUP: its terminal closes."""
        self._process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def suspend(self) -> None:
        """SIGSTOP: alive and silent."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def exit_code(self, timeout: float = START_TIMEOUT) -> int:
        """Wait for its end; fails the test when it does not come in time."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout} s:\n{self.log}") from None

    @property
    def is_running(self) -> bool:
        """True if the process has not ended."""
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """The last 8,000 characters of its standard output and error."""
        return self.whole_log[-8000:]

    @property
    def whole_log(self) -> str:
        """All of its standard output and error."""
        return self._log_path.read_text(errors="replace")

    @property
    def peak_rss(self) -> int:
        """The most memory it ever held, bytes (Linux)."""
        return self._told("VmHWM") * 1024

    @property
    def held(self) -> Held:
        """Its resources now."""
        files = len(list(Path(f"/proc/{self.pid}/fd").iterdir()))
        return Held(self._told("VmRSS") * 1024, self._told("Threads"), files)

    def _told(self, name: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def children(self) -> Sequence[int]:
        """The ids of its child processes, ended ones that it has not waited for included (Linux)."""
        found: list[int] = []
        for task in Path(f"/proc/{self.pid}/task").glob("*/children"):
            with suppress(FileNotFoundError):  # of a thread that has ended meanwhile
                found += map(int, task.read_text().split())
        return found

    @property
    def host(self) -> int:
        """The id of the process that has the model, once there is one and no other child."""
        deadline = time.monotonic() + START_TIMEOUT
        while len(children := self.children) != 1:
            assert time.monotonic() < deadline, f"{self.name} has the children {children}, not one host:\n{self.log}"
            time.sleep(0.02)
        return children[0]

    def kill_host(self) -> int:
        """SIGKILL its host. Return the dead one's id."""
        host = self.host
        os.kill(host, signal.SIGKILL)
        return host

    def close(self) -> None:
        """Kill it if it runs."""
        if self.is_running:
            self.resume()
            self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Replica {self.name} pid {self._process.pid}>"


def is_alive(pid: int) -> bool:
    """True if this process runs: neither gone nor ended (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (Linux)."""
    return _seconds(Path(f"/proc/{pid}/stat"))


def _seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
