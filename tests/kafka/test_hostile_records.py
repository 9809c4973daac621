"""Hostile records on a real Kafka: each is answered, nothing grows without bound, and no other partition waits."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.checker import Answer
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.hostile_records import CANARY, GOOD, RECORDS, as_held, echo, hostile, read, right_fields, written
from tests.kafka.record_scene import RecordScene, latencies, settings_of
from tests.kafka.replica import Replica

MIB = 1 << 20
ALONE = 400  # records before the hostile ones come
CODES = {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}


def memory_of(replica: Replica) -> tuple[int, int]:
    """The memory of the worker and of its host, bytes."""
    lines = Path(f"/proc/{replica.host}/status").read_text().splitlines()
    return replica.held.memory, next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def quantiles(waits: Sequence[int]) -> str:
    """The half, 99 in 100, and all wait no longer than so."""
    return " / ".join(str(waits[int(share * (len(waits) - 1))]) for share in (0.5, 0.99, 1.0))


def disturbed(
    kafka: Cluster, scene: RecordScene, replica: Replica, values: Sequence[bytes], good: bytes
) -> list[Answer]:
    """Send these values to partition 0 three times, next to a load of good ones in partition 1.

    Return the answers to the values. Fails the test if the worker or its host takes ever more memory, or ends, or if
    records of the other partition wait.
    """
    host = replica.host
    with scene.publishing(200, lambda n: (scene.topic, Sent(b"%d" % n, good, [], 1))) as load:
        replica.wait_until_settled(ALONE)
        sizes: list[tuple[int, int]] = []
        for _ in range(3):
            for start in range(0, len(values), 100):  # as they come from others, and not all at once
                kafka.produce(scene.topic, [Sent(b"bad", value, [], 0) for value in values[start : start + 100]])
            replica.wait_until_settled(sum(kafka.end_offsets(scene.topic).values()), 120.0)
            sizes.append(memory_of(replica))
        good_ones = len(load.stop())
    scene.auditor.wait_for_count(3 * len(values) + good_ones)
    waits = [round(1000 * wait) for wait in latencies(kafka, scene, 1)]
    alone, beside = sorted(waits[:ALONE]), sorted(waits[ALONE:])
    most = beside[-1]
    sys.stderr.write(
        f"{len(values)} values; without them others waited {quantiles(alone)} ms, with them {quantiles(beside)} ms; "
        f"memory {sizes}\n"
    )
    assert replica.host == host, replica.log
    for now, before in zip(sizes[-1], sizes[0], strict=True):
        assert now - before < 64 * MIB, sizes
    assert most < 1000
    return [found for found in scene.auditor.answers if found.source and found.source.partition == 0]


def test_every_hostile_record_is_answered_and_no_other_waits(kafka: Cluster, tmp_path: Path) -> None:
    """What is taken for a right one is what Python's own JSON reads; what is refused is not quoted."""
    values = list(hostile())
    assert len(set(values)) > 500
    with RecordScene(kafka, tmp_path, settings_of(**RECORDS), model=echo(), partitions=2) as scene:
        replica = scene.replica()
        answers = disturbed(kafka, scene, replica, values, written(GOOD))

        by_offset = {found.source.offset: found for found in answers if found.source}
        assert sorted(by_offset) == list(range(3 * len(values)))
        right = 0
        for offset, found in by_offset.items():
            value = values[offset % len(values)]
            if found.is_error:
                assert found.headers["error-code"] in CODES, (value[:300], found)
                assert CANARY not in json.loads(found.value or b"")["error"]
                assert len(found.value or b"") < 2000, (value[:300], found)
            else:
                right += 1
                assert as_held(read(found.value or b"")) == right_fields(value), value[:300]
        assert right > 100
