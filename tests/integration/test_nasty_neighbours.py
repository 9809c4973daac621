"""Values that are nasty to judge, on one partition of a whole worker: the others do not notice."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests import models
from tests.judging import AS_PROTOBUF, NASTY
from tests.kafka.replica import Replica
from worker.tools.kafka.embedded import PARTITIONS, EmbeddedBroker

NASTY_ONES, GOOD_ONES = 8, 60
ROW = bytes(16)
HEADERS: list[tuple[str, str | bytes | None]] = [("content-type", b"application/octet-stream")]
# Where each input of such a value is built, the longest wait is 17 s; else 0.04 s (measured on 2026-11-23).
LONGEST_WAIT_S = 3.0


def test_eight_values_that_are_nasty_to_judge_keep_no_other_partition_waiting(tmp_path: Path) -> None:
    """Half a million empty inputs each, a few kilobytes on the wire; every record is answered."""
    with EmbeddedBroker() as broker:
        for topic in ("requests", "answers"):
            broker.create_topic(topic)
        worker = a_worker(broker, tmp_path)
        try:
            worker.wait_until_ready()
            longest, answers = served(broker)
        finally:
            worker.close()

    assert answers == {b"ok": GOOD_ONES, b"error": NASTY_ONES}
    assert longest < LONGEST_WAIT_S


def a_worker(broker: EmbeddedBroker, folder: Path) -> Replica:
    settings = {
        "KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "KAFKA__REQUEST_TOPICS": "requests",
        "KAFKA__RESPONSE_TOPIC": "answers",
        "KAFKA__GROUP_ID": "nasty",
        "KAFKA__CONFIG": '{"fetch.wait.max.ms": "2"}',
        "MODEL__PATH": str(models.save(models.identity(), folder)),
        "MODEL__DEVICE": "cpu",
    }
    return Replica(settings, folder, "nasty")


def served(broker: EmbeddedBroker) -> tuple[float, dict[bytes, int]]:
    """The longest that a good request waited for its answer, and how many answers of each kind came."""
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    reader = Consumer({**servers, "group.id": "reader", "fetch.wait.max.ms": 2, "enable.auto.commit": False})
    reader.assign([TopicPartition("answers", number, 0) for number in range(PARTITIONS)])
    producer = Producer({**servers, "linger.ms": 0, "compression.type": "zstd"})
    nasty = NASTY[r"protobuf plain message b'*\x00'"](900_000)
    for _ in range(NASTY_ONES):
        producer.produce("requests", nasty.value, headers=[AS_PROTOBUF], partition=0)
    producer.flush()
    sent, longest, answers = {}, 0.0, {b"ok": 0, b"error": 0}
    for number in range(GOOD_ONES):
        sent[b"%d" % number] = time.monotonic()
        producer.produce("requests", ROW, b"%d" % number, headers=HEADERS, partition=1 + number % (PARTITIONS - 1))
    producer.flush()
    until = time.monotonic() + 60
    while sum(answers.values()) < GOOD_ONES + NASTY_ONES and time.monotonic() < until:
        message = reader.poll(0.1)
        if message is None or message.error() is not None:
            continue
        answers[dict(message.headers() or ())["status"]] += 1  # type: ignore[index]  # bytes, as the worker writes it
        longest = max(longest, time.monotonic() - sent.get(message.key() or b"", time.monotonic()))
    reader.close()
    return longest, answers
