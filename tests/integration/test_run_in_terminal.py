"""`run` in a terminal, a real pseudo-terminal of 80 columns, and in a pipe: on the mock broker."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Producer

from worker.tools.demo.digits import MODEL, held_out, requests
from worker.tools.kafka.embedded import CLIENT_CONFIG, EmbeddedBroker

PATIENCE = 60.0  # longer than any machine needs, seconds
COLUMNS = 80
CTRL_C = b"\x03"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        for topic in ("requests", "answers", "rejected"):
            broker.create_topic(topic)
        yield broker


class Terminal:
    """A terminal with a worker in it, as a shell starts one: Ctrl-C reaches it. Keeps all that it shows."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._shown = bytearray()
        self._screen, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("4H", 24, COLUMNS, 0, 0))
        self.worker = subprocess.Popen(
            [sys.executable, "-c", OWNS_ITS_TERMINAL],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=environ,
            start_new_session=True,
        )
        os.close(inside)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        try:
            while some := os.read(self._screen, 65_536):
                self._shown += some
        except OSError:
            pass  # the worker is gone, and with it the other side

    @property
    def lines(self) -> list[str]:
        """Without colours."""
        return re.sub(r"\x1b\[\d*m", "", self._shown.decode()).replace("\r", "").splitlines()

    def wait_for(self, pattern: str) -> str:
        """The first line that goes on so behind its time. What is typed is shown before it."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for line in self.lines:
                if found := re.fullmatch(rf"(?:\^C)?\d\d:\d\d:\d\d  {pattern}", line):
                    return found[0]
            time.sleep(0.05)
        raise AssertionError(f"{pattern} was not said: {self.lines}")

    def type(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def close(self) -> None:
        self.worker.kill()
        self.worker.wait()
        self._reading.join()
        os.close(self._screen)


# A session's terminal is the first that its leader takes.
OWNS_ITS_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "worker", "run"])
"""


def settings(broker: EmbeddedBroker) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WORKER_")}
    return kept | {
        "WORKER_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "WORKER_KAFKA__REQUEST_TOPICS": "requests",
        "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
        "WORKER_KAFKA__DEAD_LETTER_TOPIC": "rejected",
        "WORKER_KAFKA__GROUP_ID": "digits",
        "WORKER_KAFKA__CONFIG": json.dumps(CLIENT_CONFIG),
        "WORKER_MODEL__PATH": str(MODEL),
    }


def publish(broker: EmbeddedBroker, count: int) -> None:
    """So many good requests and a bad one."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    images = requests(held_out())
    for number in range(count):
        headers, value = images[number % len(images)]
        producer.produce("requests", value, headers=list(headers))
    producer.produce("requests", b"[]", partition=0)
    assert producer.flush(PATIENCE) == 0


def test_a_terminal_shows_when_it_is_ready_and_what_to_type_next(broker: EmbeddedBroker) -> None:
    """In lines that eighty columns hold, but for sentences and commands. Ctrl-C ends it."""
    terminal = Terminal(settings(broker))
    try:
        page = terminal.wait_for(r"ready  held=4 page=http://\S+/").rpartition("=")[2]
        with urllib.request.urlopen(page, timeout=PATIENCE) as answer:  # noqa: S310 - the worker's loopback address
            assert answer.status == 200
        publish(broker, 300)
        terminal.wait_for("warning: requests_rejected  count=1 reasons=INVALID_ARGUMENT:1 last=requests/0/.*")
        terminal.type(CTRL_C)
        assert terminal.worker.wait(PATIENCE) == 0
        terminal.wait_for("stopped  exit_code=0")
    finally:
        terminal.close()

    (following,) = (line for line in terminal.lines if line.startswith("          next: "))
    assert re.fullmatch(
        r" {10}next: inference-worker dead-letters show --topic rejected --bootstrap-servers \S+ requests/0/\d+",
        following,
    )
    assert not [line for line in terminal.lines if line.startswith("{")]


def test_a_pipe_gets_json_and_nothing_else(broker: EmbeddedBroker) -> None:
    """One object a line, with the fields in their order."""
    command = [sys.executable, "-m", "worker", "run"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=settings(broker)) as worker:
        assert worker.stderr is not None
        publish(broker, 300)
        said = []
        for line in worker.stderr:
            said.append(json.loads(line))
            if said[-1]["event"] == "requests_rejected":
                worker.terminate()
        assert worker.wait(PATIENCE) == 0

    assert all(list(line)[:3] == ["at", "level", "event"] for line in said)
    facts = [line["event"] for line in said]
    assert {"http_listening", "model_warmed", "partitions_assigned", "ready", "requests_rejected", "stopped"} <= set(
        facts
    )
    assert all(re.fullmatch(r"[a-z_]+", line["event"]) for line in said if "logger" not in line)
    (rejected,) = (line for line in said if line["event"] == "requests_rejected")
    assert list(rejected)[3:] == ["count", "reasons", "last", "why", "next"]
    assert rejected["next"].startswith("inference-worker dead-letters show --topic rejected ")
    assert rejected["next"].endswith(f" {rejected['last']}")
