"""A stage for the clients of `schemas/README.md`: a worker that serves its model, and a folder with its programs.

It knows only what a reader of the page knows. Its topics and broker's address stand in for the page's own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.kafka.cluster import Cluster, Read, Sent, fresh
from tests.kafka.scene import RAW_HEADER, Scene
from tests.models import model
from tests.readme import Block, blocks

SCHEMAS = Path(__file__).parents[2] / "schemas"
PAGE = SCHEMAS / "README.md"
PROGRAMS = SCHEMAS / "clients"
REQUESTS = ("json", "rows", "binary", "protobuf", "bad-json", "bad-protobuf")  # by their ids, in the order of the page
TIMEOUT = 50.0  # javac alone takes some seconds on a busy machine

_NAMES = re.compile(r'(?<=-t )(requests|answers)\b|(?<=")(requests|answers|readers)(?=")')


def scale() -> bytes:
    """The page's model: x FP32 (batch, 3) → y FP32 (batch, 2). It gives the page's answers to the page's requests."""
    weights = [[0.0, 0.0], [1.0, 0.5], [1.0, 0.5]]
    return model("float[batch, 3] x => float[batch, 2] y", "y = MatMul(x, w)", {"w": weights})


def block(name: str) -> Block:
    """The page's block of that name."""
    return next(found for found in blocks(PAGE) if found.name == name)


class Stage:
    """One language's clients. Owns their folder: `inference.proto` lies there, and `bin` is on its PATH."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self._scene = scene
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        shutil.copy(SCHEMAS / "inference.proto", folder)

    def text(self, text: str) -> str:
        """A text of the page, with the scene's address, its topics and a fresh group."""
        ours = {"requests": self._scene.topic, "answers": self._scene.response_topic, "readers": fresh("readers")}
        text = text.replace("localhost:9092", self._scene.kafka.bootstrap_servers)
        return _NAMES.sub(lambda match: ours[match[0]], text)

    def program(self, name: str) -> Path:
        """A program of `schemas/clients/`, as a file of the folder."""
        path = self.folder / name
        path.write_text(self.text((PROGRAMS / name).read_text(encoding="utf-8")), encoding="utf-8")
        return path

    def sh(self, *names: str) -> str:
        """The output of blocks that one shell runs one after the other. Fails the test when a command fails."""
        script = "\n".join(["set -e", *(self.text(block(name).text) for name in names)])
        return self.run("sh", "-c", script)

    def run(self, *command: str) -> str:
        """A command's output. Fails the test when the command fails."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    def lines(self, command: Sequence[str], until: str) -> list[str]:
        """An endless command's output up to the line that begins with `until`; then it is killed."""
        out, err = self.folder / "stdout", self.folder / "stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            running = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
        try:
            deadline = time.monotonic() + TIMEOUT
            while not any(line.startswith(until) for line in out.read_text().splitlines()):
                assert running.poll() is None, f"it ended: {out.read_text()}{err.read_text()}"
                assert time.monotonic() < deadline, f"nothing says {until!r}: {out.read_text()}{err.read_text()}"
                time.sleep(0.05)
        finally:
            running.kill()
            running.wait()
        return out.read_text().splitlines()

    @property
    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.bin), str(Path(sys.executable).parent), os.environ["PATH"]])
        quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # javac: 2 s of a core instead of 5
        own = {"HOME": str(self.folder), "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1", "JAVA_TOOL_OPTIONS": quick}
        return {"PATH": path, **own}

    def answers(self) -> list[Read]:
        """All answers to the page's requests, as an independent reader sees them."""
        return self._scene.kafka.read(self._scene.response_topic, len(REQUESTS))

    def repeat_and_end(self) -> None:
        """Repeat the answers, as a worker does after a crash; then publish one more request, called `end`."""
        again = [Sent(found.key, found.value, found.headers, found.partition) for found in self.answers()]
        self._scene.kafka.produce(self._scene.response_topic, again)
        row = np.array([0.1, 0.2, 0.3], "<f4").tobytes()
        self._scene.kafka.produce(self._scene.topic, [Sent(b"user-7", row, [RAW_HEADER, ("request-id", b"end")])])
        self._scene.kafka.read(self._scene.response_topic, 2 * len(REQUESTS) + 1)


@contextmanager
def stage(kafka: Cluster, factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage with a worker that is ready."""
    folder = factory.mktemp("stage")
    with Scene(kafka, folder, {"MODEL__NAME": "scale"}, model=scale(), partitions=2) as scene:
        scene.replica()
        yield Stage(scene, folder)
