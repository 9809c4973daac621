"""Dead letters on a real Kafka: listed, shown, and sent back exactly once whatever dies in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from typer.testing import CliRunner

from tests.kafka.checker import answer
from tests.kafka.cluster import TIMEOUT, Cluster, Read, Sent
from tests.kafka.dying_replay import NEVER, POINTS, RECORDS, SESSION_MS
from tests.kafka.replica import PASSED_ON
from tests.kafka.scene import RAW_HEADER, Scene, raw
from worker import cli
from worker.codecs.dead_letters import DeadLetters
from worker.core.failures import Code
from worker.core.records import Partition, Record, Rejection, Reply
from worker.tools.dead_letters import replay_command

PARTITIONS = 2


class Stage:
    """A dead-letter topic and two request topics, and the command line on them. Ends what it started."""

    def __init__(self, kafka: Cluster) -> None:
        self.kafka = kafka
        self.dead = kafka.create_topic("dead", partitions=PARTITIONS)
        self.requests = kafka.create_topic("requests", partitions=3)
        self.group = f"{self.dead}-replay"
        self._writer = DeadLetters(self.dead, "digits", 1_000_000)
        self._started: list[subprocess.Popen[str]] = []
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
        """So many dead letters more, over all partitions. Returns the places of their requests."""
        letters, places = [], []
        for _ in range(count):
            number = self._count
            self._count += 1
            at = Partition(topic or self.requests, number % 3)
            body = b'{"number": %d}' % number if value is None else value
            request = Record(at, number, key, body, headers, None)
            said = self._writer.letter(Rejection(request, code, f"number {number}", Reply("application/json")))
            letters.append(Sent(said.key, said.value, said.headers, number % PARTITIONS))
            places.append(request.source)
        self.kafka.produce(self.dead, letters)
        return places

    def start(self, *words: str, point: str | None = None) -> subprocess.Popen[str]:
        """`inference-worker dead-letters ...`; one that dies at a point when that is given."""
        program = ["worker"] if point is None else ["tests.kafka.dying_replay", point]
        kept = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-m", *program, "dead-letters", *_agreed(words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=kept | self._settings,
        )
        self._started.append(process)
        return process

    def run(self, *words: str, code: int = 0, typed: str | None = None) -> tuple[str, str]:
        """The same in this process: what it wrote to standard output and error. Fails for another exit code.

        A replay is agreed to beforehand, unless something is `typed`.
        """
        given = _agreed(words) if typed is None else words
        result = CliRunner().invoke(cli.app, ["dead-letters", *given], env=self._settings, input=typed)
        assert result.exit_code == code, f"exit {result.exit_code}\n{result.output}\n{result.exception!r}"
        return result.stdout, result.stderr

    @property
    def _settings(self) -> dict[str, str]:
        return {
            "WORKER_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "WORKER_KAFKA__DEAD_LETTER_TOPIC": self.dead,
            "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
        }

    def replayed(self, topic: str | None = None) -> list[Read]:
        """What a reader of committed records finds in a request topic."""
        return self.kafka.read_all(topic or self.requests)

    def places_replayed(self) -> Counter[str]:
        """Which requests were sent back, and how often."""
        return Counter((dict(read.headers)["replay-of"] or b"").decode() for read in self.replayed())

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


def _agreed(words: Sequence[str]) -> Sequence[str]:
    return [*words, "--yes"] if words[0] == "replay" else words


@pytest.fixture
def stage(kafka: Cluster) -> Iterator[Stage]:
    """A stage of the test's own."""
    one = Stage(kafka)
    yield one
    one.close()


@pytest.mark.slow
def test_a_replay_killed_anywhere_loses_and_repeats_nothing(stage: Stage) -> None:
    """Killed at ten points of its work, one after the other: a reader of committed records finds each request once."""
    places = stage.reject(1000)

    for point in POINTS:
        process = stage.start("replay", point=point)
        _, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == -signal.SIGKILL, errors
    output, _ = stage.run("replay", "--json")

    assert stage.places_replayed() == Counter(places)
    # All but two died in their second transaction; the last one after it, the one before perhaps.
    assert sum(entry["count"] for entry in json.loads(output)["sent"]) in (1000 - 9 * RECORDS, 1000 - 10 * RECORDS)


@pytest.mark.slow
def test_a_replay_that_was_frozen_sends_nothing_more(kafka: Cluster, stage: Stage) -> None:
    """Another has taken over by then: the frozen one is refused and says so, and nothing goes twice."""
    places = stage.reject(600)
    frozen = stage.start("replay", "--rate", "60", point=NEVER)
    kafka.read(stage.requests, 60)

    frozen.send_signal(signal.SIGSTOP)
    time.sleep(SESSION_MS / 1000)
    stage.run("replay")
    frozen.send_signal(signal.SIGCONT)
    _, errors = frozen.communicate(timeout=TIMEOUT)

    assert frozen.returncode == 4, errors
    assert "run this again" in errors
    assert stage.places_replayed() == Counter(places)


@pytest.mark.slow
def test_a_second_replay_waits_and_then_gives_up(kafka: Cluster, stage: Stage) -> None:
    """While the first one lives nothing is sent by another."""
    places = stage.reject(36)
    first = stage.start("replay", "--rate", "6", point=NEVER)
    kafka.read(stage.requests, 6)

    second = stage.start("replay", point=NEVER)
    output, errors = second.communicate(timeout=TIMEOUT)

    assert (second.returncode, output) == (7, "")
    assert f"group {stage.group} has a member, another replay or one that was killed" in errors
    assert f"group {stage.group} has a member: another replay, whose end is to be waited for" in errors
    first.communicate(timeout=TIMEOUT)
    assert first.returncode == 0
    assert stage.places_replayed() == Counter(places)


def test_ctrl_c_ends_a_replay_between_two_transactions(kafka: Cluster, stage: Stage) -> None:
    """It says how many went, and the next one goes on behind them."""
    places = stage.reject(100)
    process = stage.start("replay", "--rate", "1", "--json")  # takes 100 s, if nobody stops it
    kafka.read(stage.requests, 1)

    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=TIMEOUT)

    assert process.returncode == 7, errors
    assert "run this again" in errors
    told = json.loads(output)
    assert told["stopped"]
    assert sum(entry["count"] for entry in told["sent"]) == stage.places_replayed().total() < 100
    stage.run("replay")
    assert stage.places_replayed() == Counter(places)


def test_a_dry_run_touches_nothing(stage: Stage) -> None:
    """It counts by topic and code, at no rate; no group is there afterwards, no record, and a real one finds all."""
    stage.reject(5)
    stage.reject(3, Code.INTERNAL)
    began = time.monotonic()

    output, _ = stage.run("replay", "--dry-run", "--json", "--rate", "0.1", "--since", "1969-12-31")

    assert time.monotonic() - began < 40, "a rehearsal of eight letters rested ten seconds for each"
    found = json.loads(output)
    assert found["dry_run"]
    assert {(entry["topic"], entry["code"], entry["count"]) for entry in found["sent"]} == {
        (stage.requests, "INVALID_ARGUMENT", 5),
        (stage.requests, "INTERNAL", 3),
    }
    assert stage.replayed() == []
    groups = stage.kafka.admin.list_consumer_groups(request_timeout=TIMEOUT).result().valid
    assert stage.group not in {group.group_id for group in groups}


def test_a_replay_asks_first_and_names_who_reads_there(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups with members or with offsets in the request topic. Without a yes or a terminal nothing is sent."""
    stage.reject(3)
    kept = [ConsumerGroupTopicPartitions("audit", [TopicPartition(stage.requests, 2, 0)])]
    stage.kafka.admin.alter_consumer_group_offsets(kept)["audit"].result(TIMEOUT)
    reader = Consumer({**stage.kafka.login, "group.id": "digits", "enable.auto.commit": False})
    reader.subscribe([stage.requests])
    while not reader.assignment():
        reader.poll(0.1)

    _, refused = stage.run("replay", typed="", code=2)
    monkeypatch.setattr(replay_command, "is_person_there", lambda: True)
    output, asked = stage.run("replay", typed="no\n", code=7)

    assert "asks first, and no terminal is here to answer; give --yes, or --dry-run to see" in refused
    assert output == ""
    assert "3  INVALID_ARGUMENT, to " in asked
    assert f"{stage.requests} is read by audit (no member now), digits (members: 1)" in asked
    assert "Send them? [y/N] " in asked
    assert stage.replayed() == []
    told = json.loads(stage.run("replay", "--dry-run", "--json")[0])
    reader.close()
    assert told["readers"] == {stage.requests: [{"group": "audit", "members": 0}, {"group": "digits", "members": 1}]}
    output, _ = stage.run("replay", typed="y\n")
    assert output.startswith("Sent 3 dead letters ")
    assert stage.places_replayed().total() == 3


def test_one_letter_is_sent_alone_and_once(stage: Stage) -> None:
    """By its place; the others go with a later replay, and it does not go again with them."""
    places = stage.reject(7)

    stage.run("replay", f"{stage.dead}/1/1", "--dry-run")
    output, _ = stage.run("replay", f"{stage.dead}/1/1", "--json")
    assert json.loads(output)["sent"] == [{"topic": stage.requests, "code": "INVALID_ARGUMENT", "count": 1}]
    assert stage.places_replayed() == Counter([places[3]])

    _, again = stage.run("replay", f"{stage.dead}/1/1", code=2)
    assert f"{stage.dead}/1/1 went already, for group {stage.group}; name another by --group to send it again" in again
    stage.run("replay", f"{stage.dead}/1/1", "--group", f"{stage.group}-again")
    assert stage.places_replayed() == Counter([places[3]] * 2)
    stage.run("replay")
    assert stage.places_replayed() == Counter([*places, places[3]])


def test_filters_leave_the_others_in_reach(stage: Stage) -> None:
    """One code, then a few, then all: each request once."""
    invalid = stage.reject(20)
    internal = stage.reject(20, Code.INTERNAL)

    stage.run("replay", "--code", "INTERNAL")
    assert stage.places_replayed() == Counter(internal)
    stage.run("replay", "--since", "1h", "--limit", "7")
    assert stage.places_replayed().total() == 27
    stage.run("replay", "--dry-run", "--code", "INTERNAL")
    stage.run("replay", "--request-topic", stage.requests)
    stage.run("replay")

    assert stage.places_replayed() == Counter(invalid + internal)
    assert stage.kafka.committed(stage.group, stage.dead) == dict.fromkeys(range(PARTITIONS), 20)


def test_a_topic_that_is_missing_is_told_and_tried_again(stage: Stage) -> None:
    """The others go; once it is there its requests go too, and only they."""
    stage.reject(4)
    stage.reject(2, topic=f"{stage.requests}-gone")
    stage.reject(1)

    output, errors = stage.run("replay", code=7)
    again, _ = stage.run("replay", "--to", stage.requests)

    assert f"there is no topic {stage.requests}-gone" in output
    assert "2 of the dead letters asked for were not sent back" in errors
    assert again.startswith("Sent 2 ")
    assert sum(stage.places_replayed().values()) == 7


def test_a_letter_that_names_what_is_no_topic_is_told_and_holds_nobody_up(stage: Stage) -> None:
    """Whoever may write there may write anything."""
    stage.reject(1, topic="no\0topic")
    stage.reject(2)

    output, _ = stage.run("replay", code=7)

    assert "no topic is called 'no\\x00topic'" in output
    assert sum(stage.places_replayed().values()) == 2


def test_a_topic_with_small_batches_takes_its_records_one_by_one(kafka: Cluster, stage: Stage) -> None:
    """Kafka limits the batch: five records that fit each would be refused together."""
    small = kafka.create_topic("small", config={"max.message.bytes": "2000"})
    stage.reject(5, topic=small, value=b"v" * 1000)
    too_large = stage.reject(1, topic=small, value=b"v" * 3000)

    output, _ = stage.run("replay", code=7)

    assert len(stage.replayed(small)) == 5
    assert f"topic {small} does not take records so large" in output
    assert too_large


def test_a_broker_that_refuses_a_record_is_quoted(kafka: Cluster, stage: Stage) -> None:
    """A compacted topic takes no record without a key: the transaction is taken back, and the exit code is 4."""
    compacted = kafka.create_topic("compacted", config={"cleanup.policy": "compact"})
    stage.reject(3, topic=compacted)
    stage.reject(1, topic=compacted, key=None)

    output, errors = stage.run("replay", code=4)

    assert output.startswith("Sent 0 ")
    assert f"a record for topic {compacted} was refused" in errors
    assert stage.replayed(compacted) == []


def test_a_group_of_somebody_else_is_left_alone(kafka: Cluster, stage: Stage) -> None:
    """What stands beside its offsets was not written by a replay."""
    stage.reject(1)
    theirs = TopicPartition(stage.dead, 0, 0, metadata="theirs")
    asked = kafka.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(stage.group, [theirs])])
    asked[stage.group].result(TIMEOUT)

    output, errors = stage.run("replay", code=2)

    assert output == ""
    assert f"group {stage.group} is not one of a replay" in errors
    assert stage.replayed() == []


def test_another_topic_may_be_named(stage: Stage) -> None:
    """Beside the one that the settings give."""
    _, errors = stage.run("list", "--topic", "no-such-topic", code=2)

    assert "there is no topic no-such-topic" in errors


def test_the_same_reasons_are_listed_once(stage: Stage) -> None:
    """Like messages in one entry, with an example that `show` takes; a request's own place is found too."""
    stage.reject(5)
    headers = [("h", b"[bold]\x1b[31m"), ("replay-of", b"requests/0/7")]
    (internal,) = stage.reject(1, Code.INTERNAL, headers=headers, value=b'{"a": "\xc3\xa9"}')

    listed, _ = stage.run("list")
    entries = [json.loads(line) for line in stage.run("list", "--json")[0].splitlines()]
    shown, _ = stage.run("show", internal)
    (whole,) = [json.loads(line) for line in stage.run("show", entries[1]["example"], "--json")[0].splitlines()]
    newest, _ = stage.run("show", "--json", "-n", "3")

    assert listed.startswith(f"6 dead letters in {stage.dead}, 1 of them of requests sent back before, ")
    assert "\x1b" not in listed + shown
    assert [(entry["code"], entry["message"], entry["count"], entry["replayed"]) for entry in entries] == [
        ("INVALID_ARGUMENT", "number #", 5, 0),
        ("INTERNAL", "number #", 1, 1),
    ]
    assert r"h: [bold]\x1b[31m" in shown
    assert whole["request"] == internal
    assert whole["value"]["text"] == '{"a": "é"}'
    assert len(newest.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "nonsense"], "a place is topic/partition/offset"),
        (["show", "{dead}/9/0"], "has 2 partitions, counted from 0"),
        (["show", "{dead}/0/7"], "partition 0 holds offsets 0 to 0 now"),
        (["show", "{dead}/1/0"], "partition 1 holds nothing now"),
        (["show", "other/0/7"], "does not hold a dead letter of the request other/0/7"),
        (["show", "--code", "NOT_FOUND"], "does not hold such a dead letter"),
        (["list", "--since", "soon"], "90s, 15m, 2h, 3d"),
        (["replay", "nonsense"], "a place is topic/partition/offset"),
        (["replay", "{dead}/0/7"], "partition 0 holds offsets 0 to 0 now"),
        (["replay", "requests/0/7"], "is no place in {dead}; `dead-letters show requests/0/7` finds the letter"),
        (["replay", "{dead}/0/0", "--limit", "1"], "--limit does nothing with the place of a dead letter"),
        (["replay", "--to", "{dead}"], "no request comes from {dead}"),
        (["replay", "--to", "__consumer_offsets"], "no request comes from __consumer_offsets"),
        (["replay", "--to", "answers"], "readers would take requests for answers; name a topic that workers read"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(stage: Stage, words: list[str], told: str) -> None:
    """Exit code 2, and no traceback."""
    stage.reject(1)

    output, errors = stage.run(*[word.format(dead=stage.dead) for word in words], code=2)

    assert output == ""
    assert told.format(dead=stage.dead) in errors
    assert errors.count("\n") == 1


@pytest.mark.slow
def test_a_request_sent_back_is_answered_under_its_first_name(kafka: Cluster, stage: Stage, tmp_path: Path) -> None:
    """Rejected for its size, sent back to a worker that takes it: the answer names the place where it lay first.

    The one that is still wrong becomes a dead letter again, and the replay ends all the same.
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
