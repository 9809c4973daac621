"""The README, done as it says: its settings, its commands in their order, its Python, on a real Kafka.

The broker's address and the topics of this run stand in for the page's own. A block that no test knows fails.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message

from tests.kafka.cluster import TIMEOUT, Cluster, Sent, fresh
from tests.readme import Block, blocks

ROOT = Path(__file__).parents[2]
PAGE = blocks(ROOT / "README.md")
# What `make demo` prints is a picture of one machine, tested in `tests/integration/test_demo.py`; the page's first
# block is a drawing. What `profile` and `bench` print are pictures too; `bench` takes minutes, and is tried shorter in
# `tests/integration/test_bench.py`; a sample of lengths, in `tests/unit/tools/profile/test_lengths_command.py`.
PICTURES = {"demo", "demo-printed", "profile-printed", "profile-lengths-printed", "bench", "bench-printed"}
ONLY_LOOKED_AT = {"", "profile-lengths", *PICTURES}
BLOCK_TIMEOUT = 240.0  # `profile` takes 19 s of a core, which is two minutes beside thirty waiting processes

_NAMES = re.compile(
    r'(?<=TOPICS=)requests\b|(?<=_TOPIC=)(?:answers|rejected)\b|(?<=GROUP_ID=)digits\b|(?<=")requests\b'
)
_FIGURE = re.compile(r"\d[\d,.]*")


def block(name: str) -> Block:
    """The page's block of that name."""
    return next(found for found in PAGE if found.name == name)


class Reader:
    """Someone who types what the page says into a terminal of its own, with the page's settings."""

    def __init__(self, kafka: Cluster, folder: Path) -> None:
        self.kafka = kafka
        self.topics = {name: kafka.create_topic(name) for name in ("requests", "answers", "rejected")}
        self._names = {**self.topics, "digits": fresh("digits")}
        self._folder = folder

    def text(self, name: str) -> str:
        """A block, with this run's address and topics."""
        text = block(name).text.replace("localhost:9092", self.kafka.bootstrap_servers)
        return _NAMES.sub(lambda found: self._names[found[0]], text)

    def begin(self, name: str) -> subprocess.Popen[bytes]:
        """Type a block and leave it running."""
        # The worker in the place of the shell, so that it gets its signals.
        typed = re.sub(r"^(inference-worker run)$", r"exec \1", self.text(name), flags=re.MULTILINE)
        script = "\n".join(["set -e", self.text("settings"), typed])
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {"PATH": path, "HOME": str(self._folder), "LC_ALL": "C.UTF-8", "COLUMNS": "80"}
        with (self._folder / name).open("wb") as out:
            return subprocess.Popen(
                ["sh", "-c", script], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def type(self, name: str) -> str:
        """Type a block and wait for its end: what it prints. Fails the test when it fails."""
        assert self.begin(name).wait(BLOCK_TIMEOUT) == 0, self.printed(name)
        return self.printed(name)

    def printed(self, name: str) -> str:
        """What a block has printed so far, on standard output and error: with the page's names, and without figures."""
        text = (self._folder / name).read_text(encoding="utf-8")
        for name_of_page, name_of_ours in self._names.items():
            text = text.replace(name_of_ours, name_of_page)
        return _FIGURE.sub("#", text)

    @staticmethod
    def shown(name: str) -> str:
        """What the page says is printed, without figures."""
        return _FIGURE.sub("#", block(name).text)

    def answers(self, count: int) -> list[Message]:
        """So many answers, as a consumer has them."""
        config = {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": fresh("readers")}
        consumer = Consumer({**config, "auto.offset.reset": "earliest"})
        consumer.subscribe([self.topics["answers"]])
        found: list[Message] = []
        deadline = time.monotonic() + TIMEOUT
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} answers of {count}"
            found += [message for message in consumer.consume(count, 0.1) if message.error() is None]
        consumer.close()
        return found


@pytest.fixture(scope="module")
def reader(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader whose worker runs."""
    reader = Reader(kafka, tmp_path_factory.mktemp("readme"))
    with serving(reader, "run"):
        yield reader


@contextmanager
def serving(reader: Reader, name: str) -> Iterator[None]:
    """The worker that this block starts, in its group until it is asked to stop."""
    worker = reader.begin(name)
    deadline = time.monotonic() + TIMEOUT
    while "partitions_assigned" not in reader.printed(name):
        assert worker.poll() is None, reader.printed(name)
        assert time.monotonic() < deadline, reader.printed(name)
        time.sleep(0.05)
    yield
    worker.terminate()
    assert worker.wait(TIMEOUT) == 0, reader.printed(name)


def test_every_block_is_tried() -> None:
    """One that is new on the page needs a test here, in `test_compose.py`, or a reason to be only looked at."""
    source = Path(__file__).read_text() + (Path(__file__).parent / "test_compose.py").read_text()

    untried = {found.name for found in PAGE if f'"{found.name}"' not in source}

    assert untried <= ONLY_LOOKED_AT


def test_every_make_target_named_exists() -> None:
    """In its blocks and between its lines."""
    named = set(re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)$", (ROOT / "README.md").read_text(), re.MULTILINE))
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert {"demo", "setup", "test"} <= {"".join(pair) for pair in named} <= set(targets)


def test_check_finds_nothing_wrong(reader: Reader) -> None:
    """With the page's settings and topics a worker starts."""
    assert "A worker with these settings starts." in reader.type("check")


def test_a_first_try_is_answered(reader: Reader) -> None:
    """It prints what the page shows, figures apart."""
    assert reader.type("publish") == reader.shown("publish-printed")


def test_a_client_of_one_s_own_is_answered(reader: Reader) -> None:
    """The page's Python publishes a request; its answer has the key, the id and ten numbers."""
    exec(reader.text("ask"), {})  # noqa: S102  # the page's own words

    answer = next(found for found in reader.answers(1001) if found.key() == b"customer-17")

    assert dict(answer.headers() or ())["request-id"] == b"a1"
    assert len(answer.value() or b"") == 40


def test_exactly_once_is_a_setting_away(kafka: Cluster, tmp_path: Path) -> None:
    """The page's next worker answers in transactions, and the rest of the page works as it stands."""
    reader = Reader(kafka, tmp_path)

    with serving(reader, "exactly-once"):
        published = reader.type("publish")

    assert published == reader.shown("publish-printed")
    assert '"event":"transactions_opened"' in reader.printed("exactly-once").replace(" ", "")


def test_the_newest_answers_are_shown(reader: Reader) -> None:
    """One paragraph each."""
    printed = reader.type("consume")

    assert printed.count(" ok ") == printed.count("probabilities FP#[# #]") == 3


def test_dead_letters_are_listed_and_could_be_replayed(reader: Reader) -> None:
    """Of two bad requests it prints what the page shows."""
    for count, value in enumerate((b'{"inputs": []}', b"zzz"), 1):
        reader.kafka.produce(reader.topics["requests"], [Sent(None, value)])
        reader.kafka.read(reader.topics["rejected"], count)
        time.sleep(1.0)  # the page's two did not come in the same second

    assert reader.type("dead-letters") == reader.shown("dead-letters-printed")


def test_a_file_is_answered_without_kafka(reader: Reader) -> None:
    """A wrong line says what a worker would say."""
    assert reader.type("score") == reader.shown("score-printed")


def test_repeats_are_dropped(reader: Reader) -> None:
    """The page's function passes each answer once, in any mix of partitions, when all of them come twice."""
    found = reader.answers(1000)[:1000]
    page: dict[str, object] = {}
    exec(reader.text("drop-repeats"), page)  # noqa: S102  # the page's own words
    is_repeat, highest = page["is_repeat"], {}  # type: ignore[var-annotated]
    assert callable(is_repeat)

    again = [[is_repeat(answer, highest) for answer in found] for _ in range(2)]

    assert again == [[False] * len(found), [True] * len(found)]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch: the page's export is not tried")
def test_the_page_s_export_has_a_dynamic_batch_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model that it writes is taken."""
    monkeypatch.chdir(tmp_path)
    exec(block("export").text, {})  # noqa: S102  # the page's own words

    scored = subprocess.run(
        [sys.executable, "-m", "worker", "score", "model.onnx", "-"],
        input='{"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": %s}]}' % ([0] * 64),
        capture_output=True, text=True, check=False, timeout=TIMEOUT,
    )  # fmt: skip
    assert scored.returncode == 0, scored.stderr


def test_profile_advises(reader: Reader) -> None:
    """For the rate and the budget of the page; what, depends on the machine."""
    assert "Advice for #" in reader.type("profile")
