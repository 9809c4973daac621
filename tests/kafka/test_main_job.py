"""From request topic to response topic on a real Kafka: in every encoding, each request answered once, in order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tests.kafka.checker import Answer, Reference
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.publisher import Position
from tests.kafka.scene import MODEL, RAW_HEADER, ROWS, WIDTH, Scene, raw, row

JSON_HEADER = ("content-type", b"application/json")
PROTOBUF_HEADER = ("content-type", b"application/x-protobuf")


def json_request(number: int, rows: int = 1, **more: Any) -> bytes:
    """The value of an Open Inference Protocol request of so many rows from the n-th on."""
    data = ROWS[number : number + rows]
    tensor = {"name": "x", "shape": [rows, WIDTH], "datatype": "FP32", "data": data.ravel().tolist()}
    return json.dumps({"inputs": [tensor], **more}).encode()


def protobuf_request(number: int, **more: Any) -> bytes:
    """The same in protobuf, as Triton's own client makes it."""
    tensor = service_pb2.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, WIDTH])
    request = service_pb2.ModelInferRequest(inputs=[tensor], raw_input_contents=[row(number)], **more)
    value: bytes = request.SerializeToString()
    return value


def binary_request(number: int) -> tuple[bytes, int]:
    """The same in the binary-data form: the value, and the length of its head."""
    parameters = {"binary_data_size": 4 * WIDTH}
    tensor = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "parameters": parameters}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return head + row(number), len(head)


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


def test_json_requests_are_answered_in_json(kafka: Cluster, tmp_path: Path) -> None:
    """JSON is what a request without content-type is read as; id, model and values come back."""
    with Scene(kafka, tmp_path) as scene:
        scene.replica()

        scene.publish([Sent(b"k%d" % n, json_request(n, id=f"id-{n}")) for n in range(300)])

        scene.verdict().expect_clean()
        expected = Reference(MODEL).run(ROWS[:300])
        for number, found in _by_offset_of_key(scene).items():
            body = json.loads(found.value or b"")
            assert found.headers["content-type"] == "application/json"
            assert (body["id"], body["model_name"], body["model_version"]) == (f"id-{number}", "model", "1")
            assert found.headers["request-id"] == f"id-{number}"
            assert body["outputs"][0] | {"data": []} == {"name": "y", "shape": [1, 4], "datatype": "FP32", "data": []}
            np.testing.assert_allclose(body["outputs"][0]["data"], expected[number], rtol=1e-4, atol=1e-5)


def _by_offset_of_key(scene: Scene) -> Mapping[int, Answer]:
    answers = scene.answers()
    assert all(found.headers["status"] == "ok" for found in answers), [a.value for a in answers if a.is_error][:2]
    return {int((found.key or b"k-1")[1:]): found for found in answers}


def test_protobuf_requests_are_answered_in_protobuf(kafka: Cluster, tmp_path: Path) -> None:
    """A request serialized by Triton's client library is answered with a message that it can parse."""
    with Scene(kafka, tmp_path) as scene:
        scene.replica()

        requests = [protobuf_request(n, id=f"id-{n}", model_name="model") for n in range(300)]
        scene.publish([Sent(b"k%d" % n, value, [PROTOBUF_HEADER]) for n, value in enumerate(requests)])

        scene.verdict().expect_clean()
        expected = Reference(MODEL).run(ROWS[:300])
        for number, found in _by_offset_of_key(scene).items():
            body = service_pb2.ModelInferResponse.FromString(found.value)
            assert found.headers["content-type"] == "application/x-protobuf"
            assert (body.id, body.model_name, body.model_version) == (f"id-{number}", "model", "1")
            assert [(t.name, t.datatype, list(t.shape)) for t in body.outputs] == [("y", "FP32", [1, 4])]
            got = np.frombuffer(body.raw_output_contents[0], "<f4")
            np.testing.assert_allclose(got, expected[number], rtol=1e-4, atol=1e-5)


def test_binary_requests_are_answered_in_binary(kafka: Cluster, tmp_path: Path) -> None:
    """The Open Inference Protocol's binary-data form: a JSON head of the length said, then the tensors."""
    with Scene(kafka, tmp_path) as scene:
        scene.replica()
        made = [binary_request(n) for n in range(300)]
        headers = [[RAW_HEADER, ("Inference-Header-Content-Length", b"%d" % length)] for _, length in made]

        scene.publish([Sent(b"k%d" % n, made[n][0], headers[n]) for n in range(300)])

        scene.verdict().expect_clean()
        expected = Reference(MODEL).run(ROWS[:300])
        for number, found in _by_offset_of_key(scene).items():
            length = int({k.lower(): v for k, v in found.headers.items()}["inference-header-content-length"])
            head = json.loads((found.value or b"")[:length])
            assert head["outputs"][0]["parameters"]["binary_data_size"] == 16
            got = np.frombuffer((found.value or b"")[length:], "<f4")
            np.testing.assert_allclose(got, expected[number], rtol=1e-4, atol=1e-5)


def test_the_answer_is_encoded_as_the_request_asks(kafka: Cluster, tmp_path: Path) -> None:
    """`accept` chooses the answer's encoding; what cannot be served is an error."""
    with Scene(kafka, tmp_path) as scene:
        scene.replica()

        scene.publish(
            [
                Sent(b"json", row(0), [RAW_HEADER, ("accept", b"application/json")]),
                Sent(b"protobuf", row(1), [RAW_HEADER, ("Accept", b"application/x-protobuf")]),
                Sent(b"raw", json_request(2), [JSON_HEADER, ("accept", b"application/octet-stream")]),
                Sent(b"html", row(3), [RAW_HEADER, ("accept", b"text/html")]),
            ]
        )

        found = {a.key: a for a in scene.answers()}
        scene.verdict().expect_clean()
        kinds = {key: found[key].headers["content-type"] for key in (b"json", b"protobuf", b"raw")}
        assert kinds == {
            b"json": "application/json",
            b"protobuf": "application/x-protobuf",
            b"raw": "application/octet-stream",
        }
        assert found[b"html"].headers["error-code"] == "INVALID_ARGUMENT"


def test_trace_and_correlation_headers_come_back(kafka: Cluster, tmp_path: Path) -> None:
    """What lets a publisher find its answer is echoed; headers that are nobody's business are not."""
    echoed = {"correlation-id": "c-1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    sent = {**echoed, "kafka_correlationId": "c-2", "correlation_id": "c-3", "secret": "s", "status": "forged"}
    headers = [(name, value.encode()) for name, value in sent.items()]
    with Scene(kafka, tmp_path) as scene:
        scene.replica()

        scene.publish([Sent(b"k", row(0), [RAW_HEADER, ("request-id", b"mine"), *headers])])

        scene.verdict().expect_clean()
        got = scene.answers()[0].headers
        assert {name: got.get(name) for name in echoed} == echoed
        assert (got["kafka_correlationId"], got["correlation_id"]) == ("c-2", "c-3")
        assert got["request-id"] == "mine"
        assert got["status"] == "ok"
        assert "secret" not in got


def test_keyless_requests_keep_their_order(kafka: Cluster, tmp_path: Path) -> None:
    """Without a key an answer goes to the response partition of its request's number, so order holds there too."""
    with Scene(kafka, tmp_path) as scene:
        scene.replica()

        scene.publish([raw(n, partition=n % 4) for n in range(2000)])

        scene.verdict().expect_clean()
        scene.expect_right_values()
        assert all(a.source and a.source.partition == a.partition for a in scene.answers())
        for partition in range(4):
            offsets = [a.source.offset for a in scene.answers() if a.source and a.partition == partition]
            assert offsets == list(range(500))


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_requests_without_a_key_are_answered_in_a_compacted_topic(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """It takes no record without a key: the answer has an empty one, and the workers live on."""
    with Scene(kafka, tmp_path, guarantee=guarantee, response_config={"cleanup.policy": "compact"}) as scene:
        replica = scene.replica()

        scene.publish([raw(n, key=b"k" if n % 2 else None, partition=n % 4) for n in range(40)])

        scene.expect_all_committed()
        replica.terminate()
        assert replica.exit_code() == 0, replica.log
        assert Counter(answer.key for answer in scene.answers()) == {b"": 20, b"k": 20}


def test_two_request_topics_share_batches_and_one_response_topic(kafka: Cluster, tmp_path: Path) -> None:
    """Requests of both topics are answered, and `source` tells them apart."""
    with Scene(kafka, tmp_path, request_topics=2, partitions=2) as scene:
        scene.replica()

        for topic in scene.topics:
            scene.publish([raw(n, key=b"k%d" % n) for n in range(500)], topic)

        scene.verdict().expect_clean()
        scene.expect_right_values()
        scene.expect_all_committed()


def test_a_request_may_hold_more_rows_than_a_batch(kafka: Cluster, tmp_path: Path) -> None:
    """Beside batches of 32, one size after another and many of a size: each gets all its rows, in its own order."""
    rows = [1, 500, 2, 31, 33, 1, 64, 1] * 10 + [33] * 40 + [96] * 40
    with Scene(kafka, tmp_path, {"BATCHING__MAX_BATCH_SIZE": "32"}) as scene:
        scene.replica()

        requests = [
            Sent(b"k%d" % n, b"".join(row(n + i) for i in range(size)), [RAW_HEADER]) for n, size in enumerate(rows)
        ]
        scene.publish(requests)

        scene.verdict().expect_clean()
        scene.expect_right_values()


def test_two_replicas_share_the_partitions(kafka: Cluster, tmp_path: Path) -> None:
    """Both work, nothing is answered twice, and the order of each partition holds."""
    with Scene(kafka, tmp_path) as scene:
        replicas = scene.replicas(2)

        scene.publish([raw(n, key=b"key-%d" % (n % 97)) for n in range(4000)])

        scene.verdict().expect_clean()
        scene.expect_right_values()
        for replica in replicas:
            replica.terminate()
        assert [replica.exit_code() for replica in replicas] == [0, 0]
        scene.expect_all_committed(timeout=0.0)


def test_requests_sent_before_the_worker_came_are_answered(kafka: Cluster, tmp_path: Path) -> None:
    """A group without committed offsets begins with the oldest request."""
    with Scene(kafka, tmp_path, partitions=1) as scene:
        owed = scene.publish([raw(n, key=b"k") for n in range(100)])
        assert Position(scene.topic, 0, 0) in owed

        scene.replica()

        scene.verdict().expect_clean()


def test_a_restarted_worker_goes_on_where_the_last_one_stopped(kafka: Cluster, tmp_path: Path) -> None:
    """After a clean stop the next worker answers what came since, and nothing again."""
    with Scene(kafka, tmp_path, partitions=2) as scene:
        first = scene.replica()
        scene.publish([raw(n, key=b"k%d" % n) for n in range(500)])
        scene.answers()
        first.terminate()
        assert first.exit_code() == 0

        scene.publish([raw(n, key=b"k%d" % n) for n in range(500, 1000)])
        scene.replica()

        scene.verdict().expect_clean()
        scene.expect_all_committed()
