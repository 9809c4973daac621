"""Batches that decompress to more than the client takes, and large ones that it takes, on a real Kafka."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Producer

from tests.contract.test_source import MEMBERSHIPS, Heard
from tests.kafka.cluster import MORTAL, Cluster, Sent
from tests.kafka.scene import Scene, quick_consumer, quick_exactly_once
from tests.kafka.test_source_sink import joined, read, settings

# Small limits, so that a test need not decompress hundreds of megabytes.
SMALL = {"fetch.wait.max.ms": "10", "fetch.max.bytes": "1000000", "receive.message.max.bytes": "2000000"}
BOMB = [Sent(b"k", bytes(4_000))] * 3_000
# A flush sends all waiting records as one batch.
AS_ONE = {
    "compression.type": "zstd",
    "linger.ms": "30000",
    "batch.size": "1000000000",
    "batch.num.messages": "1000000",
    "message.max.bytes": "1000000000",
    "queue.buffering.max.kbytes": "1000000",
}
GOOD = [Sent(b"k", b"good")] * 5


@quick_consumer
def test_batches_that_cannot_be_unpacked_are_handed_on_in_bulk(kafka: Cluster, protocol: str) -> None:
    """They lie among good ones, two in a row, and last in the log: each record comes once, in order, in seconds."""
    topic = kafka.create_topic("requests")
    kafka.produce(topic, GOOD)
    for _ in range(2):
        kafka.produce(topic, BOMB, AS_ONE)
    kafka.produce(topic, GOOD)
    kafka.produce(topic, BOMB, AS_ONE)
    began = time.monotonic()

    source = joined(settings(kafka, topic, config=SMALL), Heard(), MEMBERSHIPS[f"kafka-{protocol}"])
    records = read(source, 9_010)
    kafka.produce(topic, GOOD)
    behind = read(source, 5)
    source.close()

    assert [record.offset for record in [*records, *behind]] == list(range(9_015))
    good = [record.offset for record in [*records, *behind] if record.value == b"good"]
    assert good == [*range(5), *range(6_005, 6_010), *range(9_010, 9_015)]
    assert sum(record.unreadable is not None for record in records) > 8_900  # a flush may send its first record alone
    assert time.monotonic() - began < 25.0, "10 s (measured), and 40 minutes one by one"


def test_a_partition_with_such_a_batch_does_not_hold_up_the_others(kafka: Cluster) -> None:
    """Records that come to the others meanwhile are handed out meanwhile."""
    topic = kafka.create_topic("requests", partitions=2)
    kafka.produce(topic, [Sent(b"k", bytes(4_000), (), 0)] * 3_000, AS_ONE)
    source = joined(settings(kafka, topic, config=SMALL), Heard())
    late: list[float] = []
    seen, began = 0, time.monotonic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})

    while seen < 3_000:
        sent = time.monotonic()
        producer.produce(topic, b"good", partition=1)
        came = False
        while not came:
            records = source.poll(1000, 0.02)
            producer.poll(0)
            seen += sum(record.partition.number == 0 for record in records)
            came = any(record.partition.number == 1 for record in records)
            assert time.monotonic() - sent < 5.0
            assert time.monotonic() - began < 25.0
        late.append(time.monotonic() - sent)
    source.close()

    assert sorted(late[1:])[len(late) * 9 // 10] < 0.5, late  # except the first, which joins the group


@quick_exactly_once
def test_a_kill_in_the_middle_of_such_a_batch_leaves_no_request_unanswered(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """Exactly once each is answered once, and the order is kept."""
    count = 40_000
    config = {"KAFKA__CONFIG": json.dumps(SMALL)}
    with Scene(kafka, tmp_path, config, guarantee=guarantee, partitions=1, session=MORTAL) as scene:
        kafka.produce(scene.topic, [Sent(b"k", bytes(2_000))] * count, AS_ONE)
        killed = scene.replica()
        deadline = time.monotonic() + 60.0
        while not sum(kafka.committed(scene.group, scene.topic).values()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        killed.kill()
        before = sum(kafka.committed(scene.group, scene.topic).values())
        scene.replica()
        while sum(kafka.committed(scene.group, scene.topic).values()) < count:
            assert time.monotonic() < deadline
            time.sleep(0.1)

        scene.auditor.wait_for_count(count)  # the killed one's open transaction holds readers up until its timeout
        offsets = [found.source.offset for found in scene.auditor.answers if found.source is not None]
        while kafka.has_open_transaction(scene.dead_letter_topic):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        letters = len(kafka.read_all(scene.dead_letter_topic))

        assert 0 < before < count, "it was killed in the middle"
        assert set(offsets) == set(range(count))
        if guarantee == "exactly_once":
            assert offsets == list(range(count))
        assert letters >= count


def test_markers_and_an_open_transaction_behind_a_batch_are_no_part_of_it(kafka: Cluster) -> None:
    """They have offsets, too, and readers of committed data do not get an open transaction's records."""
    topic = kafka.create_topic("requests")
    packed = Producer({"bootstrap.servers": kafka.bootstrap_servers, **AS_ONE, "transactional.id": topic})
    packed.init_transactions()
    for value in (bytes(4_000), bytes(3_000)):
        packed.begin_transaction()
        for _ in range(3_000):
            packed.produce(topic, value, b"k")
        packed.commit_transaction()
    packed.begin_transaction()
    packed.produce(topic, b"not yet", b"k")
    packed.flush()

    source = joined(settings(kafka, topic, config=SMALL), Heard())
    records = read(source, 6_000)
    source.close()
    packed.abort_transaction()

    assert [record.offset for record in records] == [*range(3_000), *range(3_001, 6_001)]


def test_a_large_batch_in_good_faith_is_simply_read(kafka: Cluster) -> None:
    """2,000 requests of 58 KiB are 120 MB, above the client's own limit of 100 MB."""
    topic = kafka.create_topic("requests")
    values = [b"%d" % n + bytes(58 * 1024) for n in range(2_000)]
    kafka.produce(topic, [Sent(b"k", value) for value in values], AS_ONE)

    source = joined(settings(kafka, topic), Heard())
    records = read(source, 2_000)
    source.close()

    assert [record.value for record in records] == values
    assert all(before.offset + 1 == after.offset for before, after in pairwise(records))
