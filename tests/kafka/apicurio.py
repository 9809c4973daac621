"""A real schema registry for tests: Apicurio under the local JVM, which speaks Confluent's API.

Maven fetches it once (109 MB), and a start takes 8 s (2026-11). It keeps its schemas in a file, so a registry that is
stopped and started again has them, with their ids. By hand: `python -m tests.kafka.apicurio` starts one until Ctrl-C.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.kafka.broker import NoBrokerError, fetching, free_port
from tests.kafka.child_server import ChildServer

VERSION = "3.0.9"  # the last that Java 17 runs
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
# Later ones want the parent of its POM, too, which needs not be there.
GET = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"
FOLDER = Path(__file__).parents[2] / ".cache" / "apicurio" / VERSION
START_TIMEOUT = 120.0
OPTIONS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Apicurio(ChildServer):
    """A registry on its own port and data."""

    def __init__(self) -> None:
        """Raises `NoBrokerError` where it cannot be started."""
        self._program = _program()
        super().__init__("registry-")
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> Self:
        """Start, or start again with its port and data; returns when it answers."""
        properties = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(self._port),
            "apicurio.datasource.url": f"jdbc:h2:file:{self._folder / 'data'}",
        }
        options = [f"-D{name}={value}" for name, value in properties.items()]
        self._launch(["java", *OPTIONS, *options, "-jar", str(self._program)])
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if (why := self._why_dead()) or time.monotonic() > deadline:
                self.remove()
                raise NoBrokerError(f"the registry does not answer: {why or 'it takes too long'}")
            time.sleep(0.1)
        return self

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/subjects", timeout=5):  # noqa: S310  # our own
            return True
        return False

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} {self.url}>"


def _program() -> Path:
    """The jar that starts it, fetched and unpacked once for all test runs. Raises `NoBrokerError`."""
    with fetching(FOLDER):
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
