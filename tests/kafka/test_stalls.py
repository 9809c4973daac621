"""Partitions that stall although their logs grow, on a real Kafka: damaged batches, open transactions."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Producer

from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import MORTAL, Cluster
from tests.kafka.scene import Scene, quick_exactly_once, raw, row
from tests.kafka.spoiled_batches import AS_ONE, spoil, ten
from tests.kafka.test_publish_consume import run
from tests.kafka.test_state import StatefulScene, number

STALLED = "inference_worker_partition_stalled_seconds"


@quick_exactly_once
def test_a_batch_that_cannot_be_parsed_is_passed_over_and_an_open_transaction_waited_for(
    hurt_broker: JvmBroker, tmp_path: Path, guarantee: str
) -> None:
    """The worker reports both after half a minute; the client reports neither. Other partitions go on."""
    kafka = Cluster(hurt_broker.bootstrap_servers)
    with (
        Scene(kafka, folder(tmp_path, "held"), guarantee=guarantee, partitions=1) as held,
        Scene(kafka, folder(tmp_path, "spoiled"), guarantee=guarantee, partitions=2, session=MORTAL) as scene,
    ):
        other = Producer({**kafka.login, "transactional.id": held.group, "transaction.timeout.ms": 300_000})
        other.init_transactions()
        other.begin_transaction()
        other.produce(held.topic, row(0), b"k", headers={"content-type": b"application/octet-stream"})
        other.flush()
        kafka.produce(held.topic, [raw(number) for number in range(20)])
        waiting = held.start()

        for _ in range(3):
            kafka.produce(scene.topic, [raw(number, partition=0) for number in range(10)], AS_ONE)
        spoiled = spoil(hurt_broker.data, scene.topic, 0, offset=13)
        began = time.monotonic()
        replica = scene.replica()
        scene.auditor.wait_for_count(13)
        kafka.produce(scene.topic, [raw(number, partition=1) for number in range(10)])
        scene.auditor.wait_for_count(23)
        beside = time.monotonic() - began
        scene.auditor.wait_for_count(40)
        seconds = time.monotonic() - began

        answers = [found for found in scene.auditor.answers if found.source is not None and found.source.partition == 0]
        assert [found.source.offset for found in answers if found.source] == list(range(30))
        errors = [found.source.offset for found in answers if found.source and found.is_error]
        assert errors == list(spoiled.lost) == list(range(13, 20))
        letters = scene.dead_letters(len(errors))
        assert [dict(letter.headers)["__dlq.errors.offset"] for letter in letters] == [b"%d" % at for at in errors]
        scene.expect_all_committed()
        assert "partition_stalled" in replica.log
        assert "the 7 records from 13 to 19, one batch, cannot be read and are answered with errors" in replica.log
        replica.wait_until_logged("partition_goes_on")
        assert replica.status("/readyz") == 200
        assert beside < 25.0
        assert 30.0 < seconds < 60.0, "33 s (measured)"

        waiting.wait_until_logged("partition_stalled", 60.0)
        waiting.wait_until(STALLED, lambda age: age >= 30.0)
        status, why = waiting.status("/readyz"), waiting.text("/readyz")
        assert not held.auditor.answers
        other.commit_transaction()
        held.auditor.wait_for_count(21)
        assert "a transaction of another producer is open since offset 0" in waiting.log
        assert status == 503
        assert f"{held.topic}/0" in why
        waiting.wait_until(STALLED, lambda age: age == 0.0)
        waiting.wait_until_ready()
        assert not any(found.is_error for found in held.auditor.answers)


def folder(parent: Path, name: str) -> Path:
    """A new folder for one scene."""
    made = parent / name
    made.mkdir()
    return made


def test_a_changelog_that_cannot_be_parsed_ends_the_worker_with_the_way_out(
    hurt_broker: JvmBroker, tmp_path: Path
) -> None:
    """Else it would wait for ever, or answer from older states. The commands that read states refuse, too."""
    kafka = Cluster(hurt_broker.bootstrap_servers)
    with StatefulScene(kafka, tmp_path, partitions=1) as scene:
        kafka.produce(scene.topic, [number(1.0, b"key-%d" % key) for key in range(10)], AS_ONE)
        first = scene.replica()
        scene.auditor.wait_for_count(10)
        first.terminate()
        first.exit_code()
        spoiled = spoil(hurt_broker.data, scene.changelog, 0, offset=4)

        second = scene.start()
        code = second.exit_code(60.0)
        exported = run(scene, "state", "export", tmp_path / "states.jsonl")

        assert code == 4
        assert f"the changelog {scene.changelog}/0 cannot be read from offset 4 to {spoiled.last}" in second.log
        assert "delete its records below offset" in second.log
        assert exported.code == 7
        assert f"{scene.changelog}/0 from 4 to {spoiled.last}" in exported.errors
        assert not (tmp_path / "states.jsonl").exists()

        kafka.configure(scene.changelog, {"cleanup.policy": "compact,delete", "retention.ms": "-1"})
        kafka.delete_records(scene.changelog, 0, spoiled.last + 1)
        kafka.configure(scene.changelog, {"cleanup.policy": "compact"})
        scene.replica()
        kafka.produce(scene.topic, [number(3.0, b"key-1")])
        scene.auditor.wait_for_count(11)


def test_an_open_transaction_in_a_changelog_is_told_and_waited_for(kafka: Cluster, tmp_path: Path) -> None:
    """A former owner's transaction ends by its timeout, and its states may count."""
    with StatefulScene(kafka, tmp_path, partitions=1) as scene:
        other = Producer({**kafka.login, "transactional.id": scene.group, "transaction.timeout.ms": 300_000})
        other.init_transactions()
        other.begin_transaction()
        other.produce(scene.changelog, b"", b"k")
        other.flush()

        replica = scene.start()
        replica.wait_until_logged(f"the states of {scene.changelog}/0 wait: a transaction of another producer", 60.0)
        other.abort_transaction()

        replica.wait_until_ready()


def test_commands_name_what_they_cannot_parse_and_end_with_7(hurt_broker: JvmBroker, tmp_path: Path) -> None:
    """They show all records before it. The next replay goes on there."""
    kafka = Cluster(hurt_broker.bootstrap_servers)
    with Scene(kafka, tmp_path, partitions=1) as scene:
        for topic in (scene.response_topic, scene.dead_letter_topic):
            for _ in range(2):
                kafka.produce(topic, ten(), AS_ONE)
        scene.auditor.wait_for_count(20)  # the auditor must read first: it cannot read spoiled batches
        for topic in (scene.response_topic, scene.dead_letter_topic):
            spoil(hurt_broker.data, topic, 0, offset=3)
        lost = "/0 from 3 to 9: its batch is damaged on the broker's disk"

        shown = run(scene, "consume", "--from-beginning", "--json")
        listed = run(scene, "dead-letters", "list")
        newest = run(scene, "dead-letters", "show", "-n", "20", "--json")
        replayed = run(scene, "dead-letters", "replay", "--yes", "--json")

        assert [document["offset"] for document in shown.documents] == [0, 1, 2]
        assert [found.code for found in (shown, listed, newest, replayed)] == [7] * 4
        assert f"{scene.response_topic}{lost}" in shown.errors.replace("\n", " ")
        assert f"{scene.dead_letter_topic}{lost}" in listed.errors.replace("\n", " ")
        assert len(newest.documents) == 3
        assert kafka.committed(f"{scene.dead_letter_topic}-replay", scene.dead_letter_topic) == {0: 3}
