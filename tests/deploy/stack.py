"""The compose file in use: brought up under a name of its own, disturbed, watched, and taken down.

Owns the project's containers and their data. It uses the docker command line, as people do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kafka.broker import free_port
from tests.kafka.cluster import fresh

ROOT = Path(__file__).parents[2]
UP_WITHIN = 600.0  # a first build fetches 70 MB of wheels, seconds


def no_engine() -> str | None:
    """The reason why no compose file can run here; None when it can."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    for asked in (["docker", "info"], ["docker", "compose", "version"]):
        found = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        if found.returncode:
            return f"{' '.join(asked)}: {found.stderr.strip().splitlines()[-1]}"
    return None


class Stack:
    """One compose project. `with` takes it down, its volume too."""

    def __init__(self) -> None:
        self.project = fresh("compose")
        self._port = free_port()
        self.address = f"localhost:{self._port}"

    def compose(self, *words: str) -> str:
        """`docker compose …` for this project: its standard output. Fails the test when it fails."""
        return _docker("compose", "--project-name", self.project, *words, KAFKA_PORT=str(self._port))

    def sh(self, commands: str) -> str:
        """Commands as people type them, on this project. Fails the test when one fails."""
        return _run("sh", "-ec", commands, COMPOSE_PROJECT_NAME=self.project, KAFKA_PORT=str(self._port))

    def up(self, workers: int = 2) -> float:
        """Start `workers` workers and wait until all are healthy. Returns the seconds it took."""
        began = time.monotonic()
        self.compose("up", "--wait", "--quiet-pull", "--scale", f"worker={workers}")
        return time.monotonic() - began

    def workers(self) -> list[str]:
        """The ids of the running workers' containers."""
        return self.compose("ps", "--quiet", "worker").split()

    def inspect(self, name: str) -> dict[str, Any]:
        """The engine's description of a container or an image."""
        found: dict[str, Any] = json.loads(_docker("inspect", name))[0]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            error.add_note(self.compose("logs", "--no-color", "--tail", "40"))
        self.compose("--profile", "publisher", "down", "--volumes", "--timeout", "5")


def _docker(*words: str, **environment: str) -> str:
    return _run("docker", *words, **environment)


def _run(*words: str, **environment: str) -> str:
    # The user's own variables stay out: MODEL or MAX_BATCH_SIZE in the shell would make another stack.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT") if name in os.environ}
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=UP_WITHIN,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)} exited with {done.returncode}:\n{done.stderr[-4000:]}"
    return done.stdout
