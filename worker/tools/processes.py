"""The processes of a measurement, for `bench` and `demo`: a real worker as its users start it, and our own children.

A program has an environment and a log, and a signal ends it. It may be the worker of another checkout: that is started
by `python -m worker run` in its folder. A child is spawned and ignores Ctrl-C, because its parent ends it. It ends with
its parent, which gets the child's failure in one sentence.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from worker.core.failures import BadConfiguration, DeadlineMissed, Stop
from worker.tools.closing import Closing

# A start takes two seconds on an idle machine. These limits end only a worker that hangs, not one on a busy machine.
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 30.0
_END_S = 5.0
_LOOK_S = 0.02
# Spawned, never forked: a Kafka client does not outlive a fork.
_SPAWN = multiprocessing.get_context("spawn")
_SAMPLE = re.compile(r"^inference_worker_(\w+)(?:\{.*\})? (\S+)$")


class Process(Closing):
    """A running Python program, and its log. `close` kills it."""

    def __init__(self, name: str, command: Sequence[str], environ: Mapping[str, str], root: Path | None = None) -> None:
        self.name = name
        self.is_killed = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=environ,
            cwd=root,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """True if its log says that it has partitions."""
        return "partitions_assigned" in self.log()

    def wait_until_ready(self) -> None:
        """Wait until it is ready. Raises `Stop` with the end of the log if it ends, or is never ready."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self.is_ready:
            self.check()
            if time.monotonic() > deadline:
                raise self.late(f"{self.name} is not ready after {_START_TIMEOUT_S:g} s")
            time.sleep(_LOOK_S)

    def check(self) -> None:
        """Raises `Stop` with the end of the log if it has ended and was not killed."""
        if not self.is_killed and self._process.poll() is not None:
            raise BadConfiguration(f"{self.name} ended with {self._process.returncode}; its log ends:\n{self.log()}")

    def late(self, told: str) -> DeadlineMissed:
        """Returns the failure to raise for something that did not happen in time, with the end of the log."""
        return DeadlineMissed(f"{told}; its log ends:\n{self.log()}")

    def log(self) -> str:
        """Returns the last twenty lines. Leaves the file's position as it is, because the process writes there."""
        file = self._log.fileno()
        return "\n".join(os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace").splitlines()[-20:])

    def kill(self) -> None:
        """`kill -9`."""
        self.is_killed = True
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


class Replica(Process):
    """A running `inference-worker run`, which is asked over HTTP."""

    def __init__(
        self,
        settings: Mapping[str, str],
        environ: Mapping[str, str],
        *,
        config: Path | None = None,
        root: Path | None = None,
    ) -> None:
        """`settings` have names without the prefix. `environ` is passed on without its own worker settings.

        `config`: a TOML file with further settings. `root`: another checkout, whose worker is to run.
        """
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        kept = {name: value for name, value in environ.items() if not name.startswith("WORKER_")}
        own = {f"WORKER_{name}": value for name, value in {**settings, "TELEMETRY__HTTP_PORT": str(port)}.items()}
        command = ["-m", "worker", "run", *([] if config is None else ["--config", str(config)])]
        super().__init__("the worker", command, {**kept, **own}, root)

    @property
    def is_ready(self) -> bool:
        """True if `/readyz` says that it is ready."""
        try:
            self._get("/readyz")
        except OSError:
            return False
        return True

    def totals(self) -> Mapping[str, float]:
        """Returns the sum of each metric's samples, by name without our prefix; 0 for an unknown one. Raises `Stop`."""
        found: dict[str, float] = defaultdict(float)
        try:
            page = self._get("/metrics")
        except OSError as error:
            self.check()
            raise self.late(f"the worker does not show its counts: {error}") from error
        for line in page.splitlines():
            if sample := _SAMPLE.match(line):
                found[sample[1]] += float(sample[2])
        return found

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=_ANSWER_TIMEOUT_S) as answer:  # noqa: S310 - our own loopback address
            text: str = answer.read().decode()
            return text

    def stop(self) -> None:
        """Ask the worker to drain and exit. Raises `Stop` unless it exits with code 0."""
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self.late(f"the worker still runs {_STOP_TIMEOUT_S:g} s after SIGTERM") from None
        if code:
            raise Stop(f"the worker exited with {code} after SIGTERM; its log ends:\n{self.log()}")


class Child(Closing):
    """A process that runs `act(pipe, *given)`. `receive` gets its messages, and `send` gives it an order."""

    def __init__(self, name: str, act: Callable[..., None], *given: Any) -> None:
        self._name = name
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_live, args=(theirs, act, given), name=name, daemon=True)
        # The child inherits this, so that it ignores Ctrl-C from its first instruction on. For an instant we do, too.
        found = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._process.start()
        finally:
            signal.signal(signal.SIGINT, found)
        theirs.close()

    def send(self, order: Any) -> None:
        """Send an order. Raises `Stop` if the process has ended."""
        try:
            self._pipe.send(order)
        except OSError:
            self.check()
            raise

    @property
    def has_sent(self) -> bool:
        """True if there is a message to receive, or the process has ended."""
        return self._pipe.poll()

    def receive(self, timeout: float = _START_TIMEOUT_S) -> Any:
        """Returns the next message. Raises the child's own `Stop`, or one if it has ended or sends nothing in time."""
        if not self._pipe.poll(timeout):
            raise DeadlineMissed(f"{self._name} did not answer within {timeout:g} s")
        try:
            found = self._pipe.recv()
        except EOFError:
            self._process.join(_END_S)
            raise Stop(f"{self._name} ended with {self._process.exitcode}") from None
        if isinstance(found, Stop):
            raise found
        return found

    def check(self) -> None:
        """Raises `Stop` if the process has ended."""
        if not self._process.is_alive():
            while True:  # until its `Stop`, or the end of the pipe
                self.receive(0.0)

    def close(self) -> None:
        """Kill the process. It holds nothing that an orderly end would save."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _live(pipe: Pipe, act: Callable[..., None], given: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        act(pipe, *given)
    except Stop as stop:
        pipe.send(stop)
    except EOFError:  # the parent has closed its end: no more orders come
        return


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(0)


def main_thread_seconds(process: int) -> float | None:
    """Returns the CPU seconds of a process's main thread, a worker's loop. None if the system does not tell."""
    try:
        stat = Path(f"/proc/{process}/task/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
