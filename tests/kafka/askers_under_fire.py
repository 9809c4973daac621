"""The client library beside what others ask with, while workers are killed, brokers restart and programs are rolled.

    python -m tests.kafka.askers_under_fire [SUBMITS] [at_least_once | exactly_once] [KIND…]

Two programs at a time submit at a steady rate, each for `LIFE` submits; then it waits for its answers, ends, and
another takes its place. All kinds get the same workers, the same rate and the same faults, those of `client_fire`, on a
broker of their own. Prints a table in Markdown. Spring needs a JDK and, once, Maven; its row says so where they are
missing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from tests.kafka.broker import JARS, JvmBroker, NoBrokerError, dying_with_us, jars
from tests.kafka.client_fire import Ground, burn
from tests.kafka.cluster import Cluster
from tests.kafka.scene import GUARANTEES, MODEL, ROWS

SPRING = Path(__file__).parents[2] / "bench" / "peers" / "spring"
SPRING_JARS = JARS.parents[1] / "spring-kafka" / "4.0.0"
PROGRAMS = 2
LIFE, RATE = 3_000, 300  # submits, and so many a second
TIMEOUT, GRACE = 30.0, 10.0
KINDS = {
    "client": "this client",
    "spring": "Spring's `ReplyingKafkaTemplate` 4.0.0, a group each",
    "own": "a loop by hand, a group each",
    "shared": "a loop by hand, one group",
}
COLUMNS = {
    "submits": "submits",
    "right": "right",
    "wrong": "wrong or mixed up",
    "errors": "errors",
    "timeouts": "timeouts",
    "never_ended": "never ended",
    "repeats": "repeats read",
    "late": "late answers",
}
PYTHON = [sys.executable, "-m", "tests.kafka.askers"]


def main() -> None:
    """Print the table."""
    submits = int(sys.argv[1]) if len(sys.argv) > 1 else 24_000
    guarantee = sys.argv[2] if len(sys.argv) > 2 else "at_least_once"
    assert guarantee in GUARANTEES, f"{guarantee} is not one of {', '.join(GUARANTEES)}"
    rows = [row(kind, submits, guarantee) for kind in sys.argv[3:] or KINDS]
    head = ["", *COLUMNS.values(), "workers killed", "broker restarts"]
    print("\n".join(map(line, [head, ["---"] * len(head), *rows])))  # noqa: T201


def line(cells: Sequence[str]) -> str:
    """Of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def row(kind: str, submits: int, guarantee: str) -> list[str]:
    """One kind's, after its fire."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            command = _spring(Path(folder)) if kind == "spring" else [*PYTHON, kind]
        except NoBrokerError as reason:
            return [f"{KINDS[kind]}: skipped, {reason}"]
        with JvmBroker({}) as broker:
            ground = _burnt(broker, Path(folder), command, submits, guarantee)
    counts = [ground.books[name] for name in (*COLUMNS, "kills", "broker_restarts")]
    sys.stderr.write(f"{kind}: {json.dumps(ground.books)}\n")
    return [KINDS[kind], *(f"{count:,}" for count in counts)]


def _burnt(broker: JvmBroker, folder: Path, command: list[str], submits: int, guarantee: str) -> Ground:
    kafka = Cluster(broker.bootstrap_servers)
    kafka.wait_until_coordinating()
    ground = Ground(kafka)
    (expected,) = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"]).run(None, {"x": ROWS})
    ROWS.astype("<f4").tofile(folder / "rows.f32")
    np.asarray(expected, "<f4").tofile(folder / "expected.f32")
    words = [kafka.bootstrap_servers, ground.requests, ground.answers, str(folder), str(LIFE), str(RATE)]
    command = [*command, *words, str(TIMEOUT), str(GRACE)]
    lives = submits // PROGRAMS // LIFE
    programs = [threading.Thread(target=_live, args=(ground, command, lives)) for _ in range(PROGRAMS)]
    began = time.monotonic()
    burn(ground, programs, broker, folder, guarantee)
    ground.note(seconds=round(time.monotonic() - began))
    assert not ground.books["failed"], "a program did not end well; its words are above"
    return ground


def _live(ground: Ground, command: list[str], lives: int) -> None:
    """One program after the other."""
    for _ in range(lives):
        done = subprocess.run([*dying_with_us(), *command], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stderr[-2000:])
            ground.note(failed=1)
        else:
            ground.note(**json.loads(done.stdout.splitlines()[-1]))


def _spring(folder: Path) -> list[str]:
    """Its command, compiled. Raises `NoBrokerError` where it cannot be had."""
    found = jars(SPRING / "pom.xml", SPRING_JARS)
    if shutil.which("javac") is None:
        raise NoBrokerError("no javac on the PATH")
    classpath = f"{folder}:{found}/*"
    subprocess.run(["javac", "-cp", classpath, "-d", str(folder), str(SPRING / "Asker.java")], check=True)
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", classpath, "Asker"]


if __name__ == "__main__":
    main()
