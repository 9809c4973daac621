"""Headers whose names are not UTF-8, on a real Kafka, which takes them; its Python client does not.

Where `Message.headers()` of confluent-kafka 2.16 is called often, it returns an unusable list, and the next operation
raises the exception. So each test reads many good records before.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from confluent_kafka import cimpl

from inference_client import InferenceClient
from tests.kafka.cluster import TIMEOUT, Cluster, Sent
from tests.kafka.scene import ROWS, Scene, raw

GOOD = [Sent(b"k", b"v", [("a", b"1"), ("b", None)])] * 500
_END, _TOPIC, _HEADER = 0, 1, 9  # what the next of `rd_kafka_producev`'s arguments are: RD_KAFKA_VTYPE_…
_PRODUCER = 0


def produce_oddly_named(kafka: Cluster, topic: str) -> None:
    """Send a record with such a header between two others. Only the library under Python's client can send it."""
    library = ctypes.CDLL(cimpl.__file__)
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    config, why = ctypes.c_void_p(library.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    library.rd_kafka_conf_set(config, b"bootstrap.servers", kafka.bootstrap_servers.encode(), why, 512)
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, config, why, 512))
    assert producer.value, why.value
    size = ctypes.c_ssize_t(1)
    headers = [part for name in (b"a", b"\xff", b"b") for part in (_HEADER, name, b"1", size)]
    assert library.rd_kafka_producev(producer, _TOPIC, topic.encode(), *headers, _END) == 0
    assert library.rd_kafka_flush(producer, int(TIMEOUT * 1000)) == 0
    library.rd_kafka_destroy(producer)


def test_a_worker_and_a_client_go_on(kafka: Cluster, tmp_path: Path) -> None:
    """A request with such a header is answered with an error; the client passes over such an answer."""
    row, answers = {"x": ROWS[:1]}, kafka.create_topic("answers")  # the scene's own reader would die of them
    with Scene(kafka, tmp_path, {"KAFKA__RESPONSE_TOPIC": answers}, partitions=1) as scene:
        replica = scene.replica()
        kafka.produce(scene.topic, [raw(number) for number in range(500)])
        produce_oddly_named(kafka, scene.topic)
        with InferenceClient(kafka.bootstrap_servers, requests=scene.topic, answers=answers, timeout=TIMEOUT) as client:
            before = [client.submit(row) for _ in range(500)]
            produce_oddly_named(kafka, answers)
            behind = [client.submit(row) for _ in range(500)]
            assert {future.result()["y"].shape for future in [*before, *behind]} == {(1, 4)}

        replica.wait_until_settled(1501)
        (letter,) = scene.dead_letters(1)
        assert dict(letter.headers)["__dlq.errors.message"] == b"the headers: the name of a header is not UTF-8"
