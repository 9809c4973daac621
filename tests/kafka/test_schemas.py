"""Records with a schema in a registry: a registry that is away costs time, and only the partitions that wait for it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.kafka.apicurio import Apicurio
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.replica import Replica
from tests.kafka.scene import Scene, quick_exactly_once
from tests.models import mlp

FIELDS = ("amount", "age", "hour", "count")
WAITING = "inference_worker_partitions_waiting_for_schema"
SETTLED = "inference_worker_records_settled_total"
TEN_MINUTES = 600.0
AWAY = "inference_worker_registry_away_seconds"


class Publisher:
    """Writes payments by the official serializer, each schema with so many more fields than the worker needs."""

    def __init__(self, theirs: SchemaRegistryClient, topic: str) -> None:
        self._theirs = theirs
        self._context = SerializationContext(topic, MessageField.VALUE)
        self._serializers: dict[int, AvroSerializer] = {}

    def payments(self, numbers: Sequence[int], partition: int, version: int = 0) -> list[Sent]:
        """The records of these numbers."""
        return [Sent(b"k%d" % n, self._written(n, version), [], partition) for n in numbers]

    def _written(self, number: int, version: int) -> bytes:
        names = [*FIELDS, *(f"more_{at}" for at in range(version))]
        if version not in self._serializers:
            fields = [{"name": name, "type": "double", "default": 0.0} for name in names]
            schema = json.dumps({"type": "record", "name": "Payment", "fields": fields})
            self._serializers[version] = AvroSerializer(self._theirs, schema)
        value = self._serializers[version](dict.fromkeys(names, number / 7), self._context)
        assert value is not None
        return value


def of_payments(kafka: Cluster, folder: Path, registry: Apicurio, guarantee: str) -> Scene:
    settings = {
        "RECORDS__ENCODING": "registry",
        "RECORDS__INPUTS": json.dumps({"x": list(FIELDS)}),
        "REGISTRY__URL": registry.url,
        "REGISTRY__TIMEOUT_S": "1",
    }
    return Scene(kafka, folder, settings, guarantee=guarantee, model=mlp(len(FIELDS)))


def wait_until_waiting(replica: Replica, partitions: int) -> None:
    replica.wait_until(WAITING, lambda waiting: waiting == partitions)


@quick_exactly_once
def test_a_registry_that_is_away_holds_up_only_partitions_with_a_new_schema(
    kafka: Cluster, registry: Apicurio, theirs: SchemaRegistryClient, tmp_path: Path, guarantee: str
) -> None:
    """Others are answered as before; when it is back every record has its one answer, and none is dead-lettered."""
    with of_payments(kafka, tmp_path, registry, guarantee) as scene:
        publisher = Publisher(theirs, scene.topic)
        first = publisher.payments(range(100), 0)
        replica = scene.replica()
        scene.publish([*first, *publisher.payments(range(100), 1)])
        replica.wait_until_settled(200)
        new = publisher.payments(range(50), 0, version=1)

        registry.stop()
        scene.publish([*publisher.payments(range(10), 0), *new, *publisher.payments(range(50), 0)])
        wait_until_waiting(replica, 1)
        for begin in range(0, 1000, 100):
            scene.publish([each for p in (1, 2, 3) for each in publisher.payments(range(begin, begin + 100), p)])
            replica.wait_until_settled(210 + 3 * (begin + 100), timeout=10.0)
            time.sleep(0.2)
        away, committed = replica.metric(AWAY), scene.committed()
        registry.start()

        scene.expect_kept()
        assert away > 2
        assert committed[0] == 110
        wait_until_waiting(replica, 0)
        assert "partition_waits_for_schema" in replica.log
        assert "partition_goes_on" in replica.log
        assert not replica.metric("inference_worker_rejections_total", code="INVALID_ARGUMENT")


@quick_exactly_once
def test_a_partition_that_moves_while_it_waits_is_answered_by_its_next_owner(
    kafka: Cluster, registry: Apicurio, theirs: SchemaRegistryClient, tmp_path: Path, guarantee: str
) -> None:
    """Nothing is left out or answered twice by a stop and a start while the registry is away."""
    with of_payments(kafka, tmp_path, registry, guarantee) as scene:
        scene.settings["REGISTRY__CACHE_DIRECTORY"] = str(tmp_path / "schemas")
        publisher = Publisher(theirs, scene.topic)
        old = [each for p in range(4) for each in publisher.payments(range(50), p)]
        replica = scene.replica()
        scene.publish(old)
        replica.wait_until_settled(200)
        new = [each for p in range(4) for each in publisher.payments(range(50), p, version=1)]

        registry.suspend()
        scene.publish([*old, *new, *old])
        wait_until_waiting(replica, 4)
        replica.terminate()
        assert replica.exit_code() == 0
        second = scene.replica()
        wait_until_waiting(second, 4)
        assert "registry_away_at_start" in second.log
        registry.heal()

        scene.expect_kept()


def test_a_schema_that_changes_in_mid_stream_costs_no_wait(
    kafka: Cluster, registry: Apicurio, theirs: SchemaRegistryClient, tmp_path: Path
) -> None:
    """Ten new schemas are fetched as their first records come, and an unknown one is that record's error."""
    with of_payments(kafka, tmp_path, registry, "at_least_once") as scene:
        publisher = Publisher(theirs, scene.topic)
        publisher.payments([0], 0)
        replica = scene.replica()
        absent = [b"\0" + (1_000_000 + n).to_bytes(4, "big") + b"\0" * 32 for n in range(20)]
        absent.append(b"\1" + UUID(int=7).bytes + b"\0" * 32)
        sent: list[Sent] = []
        for version in range(10):
            sent += publisher.payments(range(20), version % 4, version)
            sent += [Sent(b"k", absent[version], [], version % 4), Sent(b"k", absent[10 + version], [], version % 4)]
        sent.append(Sent(b"k", absent[20], [], 0))

        scene.publish(sent)

        scene.expect_kept()
        errors = [answer for answer in scene.auditor.answers if answer.is_error]
        assert len(errors) == 21
        assert {answer.headers["error-code"] for answer in errors} == {"INVALID_ARGUMENT"}
        waits = [json.loads(line)["stood_s"] for line in replica.log.splitlines() if "partition_goes_on" in line]
        assert max(waits, default=0) < 5, "a wait of a second, which a busy machine may need, is told"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_minutes_without_the_registry_cost_nothing(
    kafka: Cluster, registry: Apicurio, theirs: SchemaRegistryClient, tmp_path: Path
) -> None:
    """Under load: none is lost or dead-lettered, the other partitions are as before, and memory does not grow."""
    with of_payments(kafka, tmp_path, registry, "exactly_once") as scene:
        publisher = Publisher(theirs, scene.topic)
        version = 0
        publisher.payments([0], 0, version)
        replica = scene.replica()
        publisher.payments([0], 0, version + 1)

        def payment(number: int) -> tuple[str, Sent]:
            partition = number % 4
            (sent,) = publisher.payments([number], partition, version if partition == 0 else 0)
            return scene.topic, sent

        load = scene.publishing(400.0, payment)
        replica.wait_until_settled(4000)
        before = replica.peak_rss
        registry.stop()
        version, began = 1, time.monotonic()
        wait_until_waiting(replica, 1)
        longest = 0.0
        while time.monotonic() - began < TEN_MINUTES:
            time.sleep(0.5)
            settled = replica.metric(SETTLED)
            asked = time.monotonic()
            replica.wait_until(SETTLED, lambda now, then=settled: now > then)  # type: ignore[misc]  # it has a default
            longest = max(longest, time.monotonic() - asked)
        during = replica.peak_rss
        registry.start()
        load.stop()

        scene.expect_kept(timeout=120.0)
        assert longest < 3.0, longest
        assert during - before < 64 * 2**20, (before, during)
        assert not replica.metric("inference_worker_rejections_total", code="INVALID_ARGUMENT")
