"""From request topic to response topic on a real Kafka: each request answered once, in order.

`test_publish_consume.py` has every encoding.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.cluster import Cluster, Sent
from tests.kafka.scene import RAW_HEADER, ROWS, WIDTH, Scene, quick_at_least_once, raw, row

JSON_HEADER = ("content-type", b"application/json")


def json_request(number: int) -> bytes:
    """The value of an Open Inference Protocol request for the n-th row."""
    tensor = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": ROWS[number].tolist()}
    return json.dumps({"inputs": [tensor]}).encode()


@pytest.fixture(scope="module")
def shared(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One worker for requests of all encodings."""
    with Scene(kafka, tmp_path_factory.mktemp("shared")) as scene:
        scene.replica()
        yield scene


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_every_raw_request_gets_its_answer(kafka: Cluster, tmp_path: Path, protocol: str) -> None:
    """5,000 keyed requests: each answered once, in order, with the model's own result; all committed at the end."""
    with Scene(kafka, tmp_path, {"KAFKA__GROUP_PROTOCOL": protocol}) as scene:
        replica = scene.replica()

        scene.publish([raw(n, key=b"key-%d" % (n % 97)) for n in range(5000)])

        scene.verdict().expect_clean()
        scene.expect_right_values()
        replica.terminate()
        assert replica.exit_code() == 0, replica.log
        scene.expect_all_committed(timeout=0.0)
        assert len(scene.answers()) == 5000


def test_the_answer_is_encoded_as_the_request_asks(shared: Scene) -> None:
    """`accept` chooses the answer's encoding; one that cannot be served is an error."""
    shared.publish(
        [
            Sent(b"to json", row(0), [RAW_HEADER, ("accept", b"application/json")]),
            Sent(b"to protobuf", row(1), [RAW_HEADER, ("Accept", b"application/x-protobuf")]),
            Sent(b"to raw", json_request(2), [JSON_HEADER, ("accept", b"application/octet-stream")]),
            Sent(b"html", row(3), [RAW_HEADER, ("accept", b"text/html")]),
        ]
    )

    found = {a.key: a for a in shared.answers()}
    shared.verdict().expect_clean()
    kinds = {key: found[key].headers["content-type"] for key in (b"to json", b"to protobuf", b"to raw")}
    assert kinds == {
        b"to json": "application/json",
        b"to protobuf": "application/x-protobuf",
        b"to raw": "application/octet-stream",
    }
    assert found[b"html"].headers["error-code"] == "INVALID_ARGUMENT"


def test_trace_and_correlation_headers_come_back(shared: Scene) -> None:
    """Headers by which a publisher finds its answer are echoed; private headers are not."""
    echoed = {"correlation-id": "c-1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    sent = {**echoed, "kafka_correlationId": "c-2", "correlation_id": "c-3", "secret": "s", "status": "forged"}
    headers = [(name, value.encode()) for name, value in sent.items()]
    shared.publish([Sent(b"traced", row(0), [RAW_HEADER, ("request-id", b"mine"), *headers])])

    shared.verdict().expect_clean()
    (got,) = [found.headers for found in shared.answers() if found.key == b"traced"]
    assert {name: got.get(name) for name in echoed} == echoed
    assert (got["kafka_correlationId"], got["correlation_id"]) == ("c-2", "c-3")
    assert got["request-id"] == "mine"
    assert got["status"] == "ok"
    assert "secret" not in got


@pytest.fixture(scope="module")
def plain(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One worker for plain rows."""
    with Scene(kafka, tmp_path_factory.mktemp("plain")) as scene:
        scene.replica()
        yield scene


def test_keyless_requests_keep_their_order(plain: Scene) -> None:
    """A keyless answer goes to the response partition with its request partition's number, so order holds."""
    plain.publish([raw(n, partition=n % 4) for n in range(2000)])

    plain.verdict().expect_clean()
    plain.expect_right_values()
    keyless = [a for a in plain.answers() if a.key is None]
    assert all(a.source and a.source.partition == a.partition for a in keyless)
    for partition in range(4):
        offsets = [a.source.offset for a in keyless if a.source and a.partition == partition]
        assert len(offsets) == 500
        assert offsets == sorted(offsets)


@quick_at_least_once
def test_requests_without_a_key_are_answered_in_a_compacted_topic(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """Such a topic takes no record without a key: the answer has an empty key, and the workers live on."""
    with Scene(kafka, tmp_path, guarantee=guarantee, response_config={"cleanup.policy": "compact"}) as scene:
        replica = scene.replica()

        scene.publish([raw(n, key=b"k" if n % 2 else None, partition=n % 4) for n in range(40)])

        scene.expect_all_committed()
        replica.terminate()
        assert replica.exit_code() == 0, replica.log
        assert Counter(answer.key for answer in scene.answers()) == {b"": 20, b"k": 20}


def test_a_request_may_hold_more_rows_than_a_batch(plain: Scene) -> None:
    """Batches hold 32; sizes are mixed, or many alike: each request gets all its rows, in its own order."""
    rows = [1, 500, 2, 31, 33, 1, 64, 1] * 10 + [33] * 40 + [96] * 40
    requests = [
        Sent(b"k%d" % n, b"".join(row(n + i) for i in range(size)), [RAW_HEADER]) for n, size in enumerate(rows)
    ]

    plain.publish(requests)

    plain.verdict().expect_clean()
    plain.expect_right_values()
