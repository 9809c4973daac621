"""A real schema registry for tests: Apicurio under the local JVM, which speaks Confluent's API.

Maven fetches it once (109 MB), and a start takes 8 s (2026-11). It keeps its schemas in a file, so a registry that is
stopped and started again has them, with their ids. By hand: `python -m tests.kafka.apicurio` starts one until Ctrl-C.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kafka.broker import NoBrokerError, dying_with_us, free_port

VERSION = "3.0.9"  # the last that Java 17 runs
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
# Later ones want the parent of its POM, too, which needs not be there.
GET = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"
FOLDER = Path(__file__).parents[2] / ".cache" / "apicurio" / VERSION
START_TIMEOUT = 120.0
STOP_TIMEOUT = 20.0
OPTIONS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Apicurio:
    """A registry on its own port and data, which `stop` leaves and `remove` deletes. Owns the process."""

    def __init__(self) -> None:
        """Raises `NoBrokerError` where it cannot be started."""
        self._program = _program()
        self._folder = Path(tempfile.mkdtemp(prefix="registry-"))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> Self:
        """Start, or start again with its port and data; returns when it answers."""
        assert self._process is None, "already running"
        properties = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(self._port),
            "apicurio.datasource.url": f"jdbc:h2:file:{self._folder / 'data'}",
        }
        with (self._folder / "registry.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(*dying_with_us(), "java", *OPTIONS),
                    *(f"-D{name}={value}" for name, value in properties.items()),
                    *("-jar", str(self._program)),
                ],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                why = (self._folder / "registry.log").read_text()[-2000:]
                self.remove()
                raise NoBrokerError(f"the registry does not answer: {why}")
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        """Shut down in good order: its port refuses connections."""
        self._end(signal.SIGTERM)

    def suspend(self) -> None:
        """SIGSTOP: it takes connections, and answers nothing until `heal`."""
        assert self._process is not None, "not running"
        self._process.send_signal(signal.SIGSTOP)

    def heal(self) -> None:
        """Let it run again after any fault."""
        if self._process is None:
            self.start()
        else:
            self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """Kill it if it runs, and delete its data."""
        if self._process is not None:
            self._end(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None, "not running"
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/subjects", timeout=5):  # noqa: S310  # our own
            return True
        return False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Apicurio {self.url} {'running' if self._process else 'not running'}>"


def _program() -> Path:
    """The jar that starts it, fetched and unpacked once for all test runs. Raises `NoBrokerError`."""
    needed = ("java",) if FOLDER.is_dir() else ("java", "mvn")
    if missing := [tool for tool in needed if shutil.which(tool) is None]:
        raise NoBrokerError(f"no {' and no '.join(missing)} on the PATH")
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with (FOLDER.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may want it at once
        if not FOLDER.is_dir():
            _fetch(FOLDER.with_suffix(".part"))
    return next(FOLDER.glob("*-runner.jar"))


def _fetch(part: Path) -> None:
    shutil.rmtree(part, ignore_errors=True)
    # A local repository of its own tells where the file is.
    own = [f"-Dmaven.repo.local={part / 'maven'}", "-Dtransitive=false"]
    command = ["mvn", "-q", "-B", *own, f"-Dartifact={ARTIFACT}", GET]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if result.returncode:
        raise NoBrokerError(f"Maven could not fetch the registry: {result.stdout[-500:]}")
    (archive,) = part.rglob("*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(part, filter="data")
    shutil.rmtree(part / "maven")
    part.rename(FOLDER)


def main() -> None:
    """Start a registry, and stay until Ctrl-C."""
    with Apicurio() as registry:
        sys.stdout.write(f"export WORKER_REGISTRY__URL={registry.url}\n")
        sys.stdout.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
