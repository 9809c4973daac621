"""State by key over a real Kafka: answers and states equal a serial replay's, whatever dies in between."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime as ort
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import MORTAL, Cluster, Sent
from tests.kafka.publisher import Acknowledged
from tests.kafka.scene import Scene, quick_exactly_once
from tests.models import identities, running_mean
from tests.unit.kafka.client.test_config import settings
from worker.core.records import Partition
from worker.core.tensors.specs import TensorSpec
from worker.kafka.changelog import ChangelogRestorer
from worker.kafka.cluster.admin_answers import told_offset
from worker.state import StateLayout
from worker.state.layout import StateTensor

RAW = ("content-type", b"application/octet-stream")
MEAN_STATE = {"sum_in": "sum_out", "count_in": "count_out"}
MEAN_SETTINGS = {"STATE__TENSORS": json.dumps(MEAN_STATE)}
PARTITIONS = 4


def number(value: float, key: bytes, *headers: tuple[str, bytes]) -> Sent:
    """A request of the running mean: one row, or more."""
    return Sent(key, np.array([value], "<f8").tobytes(), [RAW, *headers])


class StatefulScene(Scene):
    """A scene whose replicas keep states in a changelog."""

    def __init__(
        self,
        kafka: Cluster,
        folder: Path,
        settings: Mapping[str, str] = MEAN_SETTINGS,
        *,
        model: bytes | None = None,
        guarantee: str = "exactly_once",
        partitions: int = PARTITIONS,
    ) -> None:
        model = model or running_mean()
        super().__init__(
            kafka, folder, settings, guarantee=guarantee, model=model, partitions=partitions, session=MORTAL
        )
        self.changelog = kafka.create_topic("states", partitions=partitions, config={"cleanup.policy": "compact"})
        self.settings["KAFKA__CHANGELOG_TOPIC"] = self.changelog
        self.settings["DELIVERY__GUARANTEE"] = guarantee


class Serial:
    """The model run for one request after the other, with a state for each key."""

    def __init__(self, model: bytes, pairs: Mapping[str, str], visible: str, dtype: str) -> None:
        self._session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        self._pairs, self._visible, self._dtype = pairs, visible, dtype
        self._zeros = {
            at.name: np.zeros((1, *at.shape[1:]), {"tensor(double)": "<f8", "tensor(int64)": "<i8"}.get(at.type, "<f4"))
            for at in self._session.get_inputs()
            if at.name in pairs
        }
        self.states: dict[bytes, dict[str, np.ndarray]] = {}

    def run(self, key: bytes, value: bytes) -> np.ndarray:
        """The answer to rows of one key, one step after the other."""
        answers = []
        for row in np.frombuffer(value, self._dtype).reshape(-1, self._session.get_inputs()[0].shape[1]):
            state = self.states.get(key, self._zeros)
            names = [self._visible, *self._pairs.values()]
            answer, *after = self._session.run(names, {"x": row[None], **state})
            self.states[key] = dict(zip(self._pairs, after, strict=True))
            answers.append(answer)
        return np.concatenate(answers)

    def state_bytes(self, key: bytes) -> bytes:
        """A key's state as it lies behind the head of a changelog value."""
        return b"".join(self.states[key][name].tobytes() for name in self._pairs)


def last_states(scene: StatefulScene) -> dict[bytes, bytes | None]:
    """The last state of each key in the changelog, without the heads.

    At least once, a key's last state is its latest request's: a replica that stood still may have written an older one
    behind it.
    """
    records = sorted(scene.kafka.read_all(scene.changelog), key=lambda read: (read.partition, read.offset))
    if scene.settings["DELIVERY__GUARANTEE"] == "at_least_once":
        records.sort(key=lambda read: request_offset(read.value))
    return {read.key or b"": read.value and read.value[24:] for read in records}


def request_offset(value: bytes | None) -> int:
    """The offset of the request that wrote this state; none of these tests forgets a key."""
    assert value is not None
    return int.from_bytes(value[8:16], "little")


def expect_serial(scene: StatefulScene, acknowledged: Acknowledged, serial: Serial, tolerance: float = 0.0) -> None:
    """Fail the test unless all answers, in order, and all last states equal a serial replay's."""
    requests = sorted(acknowledged.items(), key=lambda item: item[0])
    answers = {answer.source: answer for answer in scene.answers()}
    for position, sent in requests:
        found = answers[position]
        assert not found.is_error, found
        expected = serial.run(sent.key or b"", sent.value or b"")
        got = np.frombuffer(found.value or b"", expected.dtype).reshape(expected.shape)
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    kept = last_states(scene)
    assert kept.keys() == serial.states.keys()
    for key, value in kept.items():
        if tolerance:
            np.testing.assert_allclose(
                np.frombuffer(value or b"", "<f4"), np.frombuffer(serial.state_bytes(key), "<f4"), tolerance, tolerance
            )
        else:
            assert value == serial.state_bytes(key), key


def mean_serial() -> Serial:
    return Serial(running_mean(), MEAN_STATE, "mean", "<f8")


@quick_exactly_once
def test_answers_and_states_are_those_of_a_serial_replay(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """10,000 requests of 300 keys with a Zipf skew; meanwhile a second replica joins, and the first one leaves."""
    rng = np.random.default_rng(1)
    keys = [b"key-%d" % key for key in rng.zipf(1.3, 10_000) % 300]
    requests = [number(float(value), key) for value, key in zip(rng.integers(0, 1000, 10_000), keys, strict=True)]
    with StatefulScene(kafka, tmp_path, guarantee=guarantee) as scene:
        first = scene.replica()
        acknowledged = scene.publish(requests[:4000])
        scene.replica()
        acknowledged |= scene.publish(requests[4000:7000])
        first.terminate()
        acknowledged |= scene.publish(requests[7000:])
        expect_serial(scene, acknowledged, mean_serial())
        scene.verdict().expect_clean()


@quick_exactly_once
def test_a_killed_replica_leaves_no_wrong_state(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Killed twice under load and replaced: no request is applied twice, and none is left out."""
    values = np.random.default_rng(3).integers(0, 50, (65_536, 2))
    with StatefulScene(kafka, tmp_path, guarantee=guarantee) as scene:

        def make(count: int) -> tuple[str, Sent]:
            value, key = values[count % len(values)]
            return scene.topic, number(float(value), b"key-%d" % key)

        replica = scene.replica()
        with scene.publishing(600, make) as load:
            for _ in range(2):
                scene.wait_for_progress(50)
                replica.kill()
                replica = scene.replica()
            acknowledged = load.stop()
        expect_serial(scene, acknowledged, mean_serial())


@quick_exactly_once
def test_a_key_that_leaves_its_state_no_room_is_answered_with_an_error(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """Request and answer fit their topics, the changelog's record does not. Its neighbours get their results."""
    width = 20_000
    model = identities({"": "FP32", "_h": "FP32", "_g": "FP32"}, (width,))
    settings = {"STATE__TENSORS": '{"x_h": "y_h", "x_g": "y_g"}'}
    row = Sent(b"short", np.ones(width, "<f4").tobytes(), [RAW], 0)
    with StatefulScene(kafka, tmp_path, settings, model=model, guarantee=guarantee) as scene:
        replica = scene.replica()
        acknowledged = scene.publish([row, row._replace(key=b"k" * 910_000), row])

        answers = {answer.source: answer.is_error for answer in scene.answers()}

        assert replica.is_running
        assert [answers[position] for position in sorted(acknowledged)] == [False, True, False]


def test_a_leader_that_stands_still_tells_no_end(own_broker: JvmBroker) -> None:
    """The client reports no error then, but an invalid offset."""
    kafka = Cluster(own_broker.bootstrap_servers)
    topic = kafka.create_topic("states")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b"x")
    assert producer.flush(20.0) == 0
    assert kafka.end_offsets(topic) == {0: 1}
    own_broker.suspend()

    asked = kafka.admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}, request_timeout=1.0)  # type: ignore[no-untyped-call]  # the client declares no types there

    assert [told_offset(answer, 10.0) for answer in asked.values()] == [None]


def test_a_restore_asks_the_leader_that_was_elected_last(own_broker: JvmBroker) -> None:
    """The new leader has another epoch than the client knows."""
    topic = Cluster(own_broker.bootstrap_servers).create_topic("states")
    kafka = settings(bootstrap_servers=own_broker.bootstrap_servers)
    layout = StateLayout((StateTensor(TensorSpec("h", "FP32", (1,)), "next"),), (np.zeros(1, "<f4"),))
    restorer = ChangelogRestorer(kafka, topic, layout, logging.getLogger(__name__), is_exact=True, date=time.time)

    for attempt in range(2):
        restorer.begin(Partition("requests", 0), attempt, None)
        deadline = time.monotonic() + 60.0
        while (found := restorer.found()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (found.attempt, found.is_last) == (attempt, True)
        own_broker.kill()
        own_broker.heal()
    restorer.close(5.0)


def test_states_beyond_memory_survive_a_kill(kafka: Cluster, tmp_path: Path) -> None:
    """A third of the keys is in memory, the rest in a directory, which the next replica does not trust."""
    settings = {
        **MEAN_SETTINGS,
        "STATE__DIRECTORY": str(tmp_path / "states"),
        "STATE__KEYS_IN_MEMORY": "1024",
    }
    picked = np.random.default_rng(4).integers(0, 3000, 65_536)
    with StatefulScene(kafka, tmp_path, settings) as scene:

        def make(count: int) -> tuple[str, Sent]:
            return scene.topic, number(float(count % 50), b"key-%d" % picked[count % len(picked)])

        replica = scene.replica()
        with scene.publishing(2000, make) as load:
            scene.wait_for_progress(1500)
            replica.wait_until_counted("inference_worker_states_loaded_total", 1)
            replica.kill()
            replica = scene.replica()
            scene.wait_for_progress(1500)
            acknowledged = load.stop()
        expect_serial(scene, acknowledged, mean_serial())
        keys = len({sent.key for sent in acknowledged.values()})
        assert keys > 2000
        replica.wait_until("inference_worker_states", lambda states: states == keys)
        assert replica.metric("inference_worker_restore_records_left") == 0
        assert replica.metric("inference_worker_state_bytes") == 16 * keys
