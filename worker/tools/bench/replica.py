"""One real worker, started as its users start it: a process with an environment, asked over HTTP, ended by a signal.

Also another checkout's worker, of any layout: it is started by `python -m worker run` in that folder. Owns the process
and its log. Imports nothing of the worker that runs. Processor time is asked of Linux from outside; other systems have
no such figures.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from worker.core.failures import BadConfiguration, DeadlineMissed, Stop
from worker.tools.closing import Closing

# A start takes two seconds on an idle machine. These end only a worker that hangs, not one on a busy machine.
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 30.0
# Counts are shown a few times a second, and those of the last batch once its answers are acknowledged.
_COUNTS_WITHIN_S = 30.0
_LOOK_S = 0.02
_SAMPLE = re.compile(r"^inference_worker_(\w+)(?:\{(.*)\})? (\S+)$")
_PROCESSOR_TIME = 2  # of a whole process, all its threads, as `clock_getcpuclockid` numbers it


class Replica(Closing):
    """An `inference-worker run`. As a context manager it leaves neither process nor log behind."""

    def __init__(
        self,
        settings: Mapping[str, str],
        environ: Mapping[str, str],
        *,
        config: Path | None = None,
        root: Path | None = None,
    ) -> None:
        """`settings` by their names without the prefix; `environ` is passed on without settings for another worker.

        `config`: a TOML file with what is not among `settings`. `root`: another checkout, whose worker is to run.
        """
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        kept = {name: value for name, value in environ.items() if not name.startswith("WORKER_")}
        own = {f"WORKER_{name}": value for name, value in settings.items()}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process, in __exit__
        self._process = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-m", "worker", "run", *([] if config is None else ["--config", str(config)])],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**kept, **own, "WORKER_TELEMETRY__HTTP_PORT": str(port)},
            cwd=root,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until `/readyz` says yes. Raises `Stop` with the end of the log when it never does."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._is_ready():
            self.check()
            if time.monotonic() > deadline:
                raise self.late(f"the worker is not ready after {_START_TIMEOUT_S:g} s")
            time.sleep(_LOOK_S)

    def _is_ready(self) -> bool:
        try:
            self._get("/readyz")
        except OSError:
            return False
        return True

    def check(self) -> None:
        """Raises `Stop` with the end of the log when the process is gone."""
        if self._process.poll() is not None:
            raise BadConfiguration(f"the worker exited with {self._process.returncode}; its log ends:\n{self.log()}")

    def late(self, told: str) -> DeadlineMissed:
        """The failure to raise for something that did not happen in time, with the end of the log."""
        return DeadlineMissed(f"{told}; its log ends:\n{self.log()}")

    def counts(self, metric: str) -> dict[str, float]:
        """A metric's samples by the text of their labels (empty where there are none). Raises `Stop`."""
        return self.all_counts()[metric]

    def total(self, metric: str) -> float:
        """The sum of a metric's samples. Raises `Stop`."""
        return sum(self.counts(metric).values())

    def wait_until_settled(self, count: int, timeout: float = _COUNTS_WITHIN_S) -> None:
        """Wait until it has counted so many records as settled, some time after the last answer. Raises `Stop`."""
        deadline = time.monotonic() + timeout
        while (settled := self.total("records_settled_total")) < count:
            if time.monotonic() > deadline:
                raise self.late(f"the worker has settled {settled:,.0f} of {count:,} records")
            time.sleep(_LOOK_S)

    def all_counts(self) -> Mapping[str, dict[str, float]]:
        """The samples of every metric, by its name without our prefix; none for an unknown one. Asks once."""
        found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        try:
            page = self._get("/metrics")
        except OSError as error:
            self.check()
            raise self.late(f"the worker does not show its counts: {error}") from error
        for line in page.splitlines():
            if sample := _SAMPLE.match(line):
                found[sample[1]][sample[2] or ""] += float(sample[3])
        return found

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=_ANSWER_TIMEOUT_S) as answer:  # noqa: S310 - our own loopback address
            text: str = answer.read().decode()
            return text

    def stop(self) -> None:
        """Ask it to drain and leave. Raises `Stop` unless it does so with exit code 0."""
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self.late(f"the worker still runs {_STOP_TIMEOUT_S:g} s after SIGTERM") from None
        if code:
            raise Stop(f"the worker exited with {code} after SIGTERM; its log ends:\n{self.log()}")

    def log(self) -> str:
        """The last twenty lines. Read where they lie: the worker goes on writing at the file's position."""
        file = self._log.fileno()
        return "\n".join(os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace").splitlines()[-20:])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def cpu_seconds(processes: Iterable[int]) -> float | None:
    """The processor time of running processes. None where one has ended, or the system is no Linux."""
    try:
        # To the nanosecond, where /proc/<id>/stat counts in hundredths of a second.
        return sum(time.clock_gettime(~process << 3 | _PROCESSOR_TIME) for process in processes)
    except (OSError, AttributeError):
        return None


def main_thread_seconds(process: int) -> float | None:
    """The processor time of a process's main thread, which is a worker's loop. None where Linux does not tell it."""
    try:
        stat = Path(f"/proc/{process}/task/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
