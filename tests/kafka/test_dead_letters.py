"""Dead letters on a real Kafka: listed, shown, and sent back at least once whatever dies in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.kafka.checker import answer
from tests.kafka.cluster import TIMEOUT, Cluster, Read, Sent
from tests.kafka.dying_replay import POINTS, PORTION
from tests.kafka.replica import PASSED_ON
from tests.kafka.scene import RAW_HEADER, Scene, raw
from worker import cli
from worker.codecs.dead_letters import DeadLetters
from worker.core.failures import Code
from worker.core.records import Partition, Record, Rejection, ReplyForm
from worker.tools.dead_letters import replay

PARTITIONS = 2


class Stage:
    """A dead-letter topic and two request topics, and the command line on them."""

    def __init__(self, kafka: Cluster) -> None:
        self.kafka = kafka
        self.dead = kafka.create_topic("dead", partitions=PARTITIONS)
        self.requests = kafka.create_topic("requests", partitions=3)
        self.settings = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
        self._writer = DeadLetters(self.dead, "digits", 1_000_000)
        self._count = 0

    def reject(
        self,
        count: int,
        code: Code = Code.INVALID_ARGUMENT,
        *,
        topic: str | None = None,
        value: bytes | None = None,
        key: bytes | None = b"k",
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> list[str]:
        """Write `count` dead letters over all partitions. Returns the places of their requests."""
        letters, places = [], []
        for _ in range(count):
            number = self._count
            self._count += 1
            at = Partition(topic or self.requests, number % 3)
            body = b'{"number": %d}' % number if value is None else value
            request = Record(at, number, key, body, headers, None)
            said = self._writer.letter(Rejection(request, code, f"number {number}", ReplyForm("application/json")))
            letters.append(Sent(said.key, said.value, said.headers, number % PARTITIONS))
            places.append(request.source)
        self.kafka.produce(self.dead, letters)
        return places

    def run(self, *words: str, code: int = 0, typed: str | None = None) -> tuple[str, str]:
        """Run `dead-letters`; return its standard output and error. Fails for another exit code.

        Confirms a replay beforehand, unless something is `typed`.
        """
        agreed = ["--yes"] if words[0] == "replay" and typed is None else []
        result = CliRunner().invoke(cli.app, ["dead-letters", *words, *agreed], env=self._settings, input=typed)
        assert result.exit_code == code, f"exit {result.exit_code}\n{result.output}\n{result.exception!r}"
        return result.stdout, result.stderr

    def die(self, point: str) -> None:
        """Run a replay that is killed at `point`."""
        kept = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
        words = [sys.executable, "-m", "tests.kafka.dying_replay", point, "dead-letters", "replay", "--yes"]
        done = subprocess.run(words, capture_output=True, env=kept | self._settings, timeout=TIMEOUT, check=False)
        assert done.returncode == -signal.SIGKILL, done

    @property
    def _settings(self) -> dict[str, str]:
        return {
            **self.settings,
            "WORKER_KAFKA__DEAD_LETTER_TOPIC": self.dead,
            "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
        }

    def replayed(self, topic: str | None = None) -> list[Read]:
        return self.kafka.read_all(topic or self.requests)

    def places_replayed(self) -> Counter[str]:
        """The number of times that each request was sent back."""
        return Counter((dict(read.headers)["replay-of"] or b"").decode() for read in self.replayed())


@pytest.fixture
def stage(kafka: Cluster) -> Stage:
    """A stage of the test's own."""
    return Stage(kafka)


@pytest.mark.slow
def test_a_replay_killed_anywhere_loses_nothing(stage: Stage) -> None:
    """Killed at four points in turn, it sends each request back, and at most a portion twice."""
    places = stage.reject(500)

    for point in POINTS:
        stage.die(point)
    stage.run("replay")

    found = stage.places_replayed()
    assert found.keys() == set(places)
    assert found.total() - len(places) <= PORTION * len(POINTS)
    assert stage.kafka.committed(f"{stage.dead}-replay", stage.dead) == dict.fromkeys(range(PARTITIONS), 250)


def test_a_replay_goes_on_where_the_last_one_ended(stage: Stage) -> None:
    """A replay with a filter does not move that place; `--since` goes back before it."""
    places = stage.reject(5)
    internal = stage.reject(5, Code.INTERNAL)

    stage.run("replay", "--code", "internal")
    assert stage.places_replayed() == Counter(internal)
    stage.run("replay", "--limit", "3")
    stage.run("replay")
    assert stage.run("replay")[0].startswith("Sent 0 dead letters")
    assert stage.places_replayed() == Counter([*places, *internal, *internal])
    stage.run("replay", "--since", "1h", "--request-topic", stage.requests)
    assert stage.places_replayed().total() == 25


def test_a_replay_asks_first(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a yes or a terminal it sends nothing; a dry run sends nothing and leaves no group behind."""
    stage.reject(3)

    _, refused = stage.run("replay", typed="", code=2)
    monkeypatch.setattr(replay, "is_person_there", lambda: True)
    output, asked = stage.run("replay", typed="no\n", code=7)
    told = json.loads(stage.run("replay", "--dry-run", "--json")[0])

    assert "give --yes, or --dry-run to see what would be sent" in refused
    assert output == ""
    assert "3  INVALID_ARGUMENT, to " in asked
    assert "Send them? [y/N] " in asked
    assert told["sent"] == [{"topic": stage.requests, "code": "INVALID_ARGUMENT", "count": 3}]
    assert stage.replayed() == []
    groups = stage.kafka.admin.list_consumer_groups(request_timeout=TIMEOUT).result().valid
    assert f"{stage.dead}-replay" not in {group.group_id for group in groups}
    output, _ = stage.run("replay", typed="y\n")
    assert output.startswith("Sent 3 dead letters ")
    assert stage.places_replayed().total() == 3


def test_a_topic_that_is_missing_is_told_and_holds_up_no_other(stage: Stage) -> None:
    """Exit code 7. Once the topic is there its requests are sent by its name."""
    stage.reject(4)
    stage.reject(2, topic=f"{stage.requests}-gone")
    stage.reject(1)

    output, errors = stage.run("replay", code=7)
    again, _ = stage.run("replay", "--to", stage.requests, "--request-topic", f"{stage.requests}-gone")

    assert f"2  not sent: there is no topic {stage.requests}-gone" in output
    assert "2 of the dead letters asked for were not sent back" in errors
    assert again.startswith("Sent 2 ")
    assert sum(stage.places_replayed().values()) == 7


def test_reasons_are_listed_and_letters_shown(stage: Stage) -> None:
    """Like messages share an entry with an example for `show`, which also finds a request's own place."""
    stage.reject(5)
    (internal,) = stage.reject(1, Code.INTERNAL, headers=[("h", b"[bold]\x1b[31m")], value=b'{"a": "\xc3\xa9"}')

    listed, _ = stage.run("list")
    entries = [json.loads(line) for line in stage.run("list", "--json")[0].splitlines()]
    shown, _ = stage.run("show", internal)
    (whole,) = [json.loads(line) for line in stage.run("show", entries[1]["example"], "--json")[0].splitlines()]
    newest, _ = stage.run("show", "--json", "-n", "3")

    assert listed.startswith(f"6 dead letters in {stage.dead}, ")
    assert "\x1b" not in listed + shown
    assert [(entry["code"], entry["message"], entry["count"]) for entry in entries] == [
        ("INVALID_ARGUMENT", "number #", 5),
        ("INTERNAL", "number #", 1),
    ]
    assert r'{"h": "[bold]\u001b[31m"}' in shown
    assert (whole["request"], whole["value"]) == (internal, '{"a": "é"}')
    assert len(newest.splitlines()) == 3


@pytest.mark.slow
def test_a_request_sent_back_is_answered_under_its_first_name(kafka: Cluster, stage: Stage, tmp_path: Path) -> None:
    """Rejected for its size, sent back to a worker that takes it: the answer names its first place.

    A request that is still wrong becomes a dead letter again, and the replay still ends.
    """
    with Scene(kafka, tmp_path, {"KAFKA__MAX_REQUEST_BYTES": "10"}, partitions=1) as scene:
        stage.dead = scene.dead_letter_topic
        with scene.replica() as strict:
            scene.publish([raw(0, key=b"a"), Sent(b"b", b"123", [RAW_HEADER]), raw(1, key=b"c")])
            scene.dead_letters(3)
            strict.terminate()
            assert strict.exit_code() == 0
        scene.settings["KAFKA__MAX_REQUEST_BYTES"] = "1000"
        scene.replica()

        stage.run("replay")

        places = [f"{scene.topic}/0/{offset}" for offset in range(3)]
        answers = [answer(read) for read in kafka.read(scene.response_topic, 6)[3:]]
        assert [(found.key, found.is_error) for found in answers] == [(b"a", False), (b"b", True), (b"c", False)]
        assert [found.headers["request-id"] for found in answers] == places
        scene.dead_letters(4)
        stage.run("replay")
        (again,) = [answer(read) for read in kafka.read(scene.response_topic, 7)[6:]]
        assert (again.is_error, again.headers["request-id"]) == (True, places[1])
