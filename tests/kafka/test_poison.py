"""Bad requests among good ones: each gets one error answer and a dead letter; its neighbours get their results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.kafka.checker import Answer
from tests.kafka.cluster import MORTAL, Cluster, Read, Sent
from tests.kafka.fixtures import NewBroker
from tests.kafka.publisher import Position
from tests.kafka.scene import RAW_HEADER, WIDTH, Scene, quick_at_least_once, quick_exactly_once, raw, row
from tests.kafka.test_reply_topics import succeed
from tests.models import counted_out, lookup, mlp

JSON_HEADER = ("content-type", b"application/json")
PROTOBUF_HEADER = ("content-type", b"application/x-protobuf")


def tensor(**changes: Any) -> dict[str, Any]:
    """A right input tensor, except for the changes."""
    return {"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": [0.5] * WIDTH, **changes}


def as_json(*tensors: dict[str, Any], **more: Any) -> Sent:
    """A JSON request of these tensors."""
    return Sent(b"poison", json.dumps({"inputs": list(tensors), **more}).encode(), [JSON_HEADER])


def text(value: bytes) -> Sent:
    """A request with JSON's content type and this value."""
    return Sent(b"poison", value, [JSON_HEADER])


def floats(value: float) -> bytes:
    """A raw row with one odd element."""
    return row(0)[:-4] + np.float32(value).tobytes()


MANY = [
    Sent(b"poison", b"", [RAW_HEADER]),
    Sent(b"poison", None, [RAW_HEADER]),
    Sent(b"poison", row(0)[:-1], [RAW_HEADER]),
    Sent(b"poison", floats(float("nan")), [RAW_HEADER]),
    Sent(b"poison", floats(float("inf")), [RAW_HEADER]),
    text(b'{"inputs": [{"name": "x", '),
    Sent(b"poison", row(0), [("content-type", b"application/x-python-pickle")]),
    Sent(b"poison", b"\xff\xff\xff\xff", [PROTOBUF_HEADER]),
    as_json(tensor(shape=[1, WIDTH + 1])),
    Sent(None, row(0), []),  # no content-type: floats read as JSON
    text(b"\xef\xbb\xbf" + b'{"inputs": []}'),
    text(b'{"inputs": "\xff\xfe"}'),
    text(b'{"id": "\\ud800", "inputs": []}'),
    text(b"[" * 100_000),
    text(b'{"inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [' + b"9" * 5000 + b"]}]}"),
    text(b"[]"),
    text(b"null"),
    text(b"{}"),
    as_json(),
    as_json(tensor(data=["0.5"] * WIDTH)),
    as_json(tensor(data=[None] * WIDTH)),
    as_json(tensor(data=[True] * WIDTH)),
    as_json(tensor(data=[1e39] * WIDTH)),
    as_json(tensor(data=[0.5] * (WIDTH - 1))),
    as_json(tensor(data=[[0.5] * WIDTH, [0.5]])),
    as_json(tensor(data="AAAA")),
    as_json(tensor(datatype="FP64")),
    as_json(tensor(datatype="O")),
    as_json(tensor(datatype=7)),
    as_json(tensor(name="z")),
    as_json(tensor(name=None)),
    as_json(tensor(), tensor()),
    as_json(tensor(), tensor(name="z")),
    as_json(tensor(shape=[WIDTH])),
    as_json(tensor(shape=[1, 1, WIDTH])),
    as_json(tensor(shape=[-1, WIDTH])),
    as_json(tensor(shape=[0, WIDTH], data=[])),
    as_json(tensor(shape=[2**64, WIDTH])),
    as_json(tensor(shape=[2**32, 2**32])),
    as_json(tensor(shape=[1] * 40 + [WIDTH])),
    as_json(tensor(shape=[1.0, WIDTH])),
    as_json(tensor(shape=[True, WIDTH])),
    as_json(tensor(shape=None)),
    as_json(tensor(), outputs=[{"name": "nope"}]),
    Sent(b"poison", row(0), [RAW_HEADER, ("Inference-Header-Content-Length", b"1000000")]),
    Sent(b"poison", row(0), [RAW_HEADER, ("Inference-Header-Content-Length", b"-1")]),
    Sent(b"poison", row(0), [RAW_HEADER, ("Inference-Header-Content-Length", b"many")]),
    Sent(b"poison", row(0), [RAW_HEADER, ("Inference-Header-Content-Length", b"64")]),
    Sent(b"poison", b"", [PROTOBUF_HEADER]),
    Sent(b"poison", row(0), [("content-type", b"\xff\xfe")]),
    Sent(b"poison", row(0), [("content-type", b"")]),
    Sent(b"poison", b"\0" * 70_000, [RAW_HEADER]),
    Sent(b"poison", b"\0" * 70_000, [JSON_HEADER]),
]


def among_good(poison: Sequence[Sent], good: int) -> list[Sent]:
    """Good raw requests with the poison spread evenly among them."""
    requests = [raw(n, key=b"key-%d" % (n % 97)) for n in range(good)]
    for at, bad in enumerate(poison):
        requests.insert((at + 1) * good // (len(poison) + 1) + at, bad)
    return requests


def expect_errors_for(
    scene: Scene, poison: Sequence[Sent], codes: frozenset[str] = frozenset({"INVALID_ARGUMENT"})
) -> None:
    """Fail the test unless the poison alone got error answers, by the contract, each with a complete dead letter."""
    errors = {a.source: a for a in scene.answers() if a.is_error and a.source}
    guilty = {position: sent for position, sent in scene.acknowledged.items() if any(sent is bad for bad in poison)}
    assert set(errors) == set(guilty), (
        f"{len(errors)} errors for {len(guilty)} poison: {odd_ones(scene, errors, guilty)}"
    )
    for position, found in errors.items():
        assert found.headers["error-code"] in codes, (guilty[position], found)
        expect_error_body(found, guilty[position])
    letters = scene.dead_letters(len(poison))
    assert len(letters) == len(poison)
    for letter in letters:
        expect_dead_letter(scene, letter, errors)


def odd_ones(scene: Scene, errors: dict[Position, Answer], guilty: dict[Position, Sent]) -> list[object]:
    """Poison without an error, and errors for good requests."""
    unpunished = [scene.acknowledged[p] for p in guilty if p not in errors]
    innocent = [(found.value, scene.acknowledged[p]) for p, found in errors.items() if p not in guilty]
    return [*unpunished, *innocent]


def expect_error_body(found: Answer, sent: Sent) -> None:
    """Fail the test unless the body is an Open Inference Protocol error with a message, or protobuf for protobuf."""
    assert found.value, sent
    if found.headers["content-type"] == "application/json":
        body = json.loads(found.value)
        assert isinstance(body["error"], str), sent
        assert len(body["error"]) > 10, (sent, body)
        assert len(found.value) < 5000, (sent, found.value)
    else:
        assert found.headers["content-type"] == "application/x-protobuf", (sent, found)


def expect_dead_letter(scene: Scene, letter: Read, errors: dict[Position, Answer]) -> None:
    """Fail the test unless the letter has the original key, value and headers, its position and the reason."""
    said = {name: value or b"" for name, value in letter.headers}
    partition, offset = int(said["__dlq.errors.partition"]), int(said["__dlq.errors.offset"])
    position = Position(said["__dlq.errors.topic"].decode(), partition, offset)
    sent = scene.acknowledged[position]
    assert (letter.key, letter.value) == (sent.key, sent.value)
    assert list(letter.headers[: len(sent.headers)]) == list(sent.headers)
    assert said["__dlq.errors.group"].decode() == scene.group
    assert said["__dlq.errors.message"]
    assert said["error-code"].decode() == errors[position].headers["error-code"]


@quick_at_least_once
def test_every_kind_of_bad_request_is_answered_with_an_error(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Each kind is refused before inference, with a message, and its neighbours get their results."""
    with Scene(kafka, tmp_path, {"KAFKA__MAX_REQUEST_BYTES": "65536"}, guarantee=guarantee) as scene:
        replica = scene.replica()

        scene.publish(among_good(MANY, 500))

        scene.verdict().expect_clean()
        scene.expect_right_values()
        expect_errors_for(scene, MANY, frozenset({"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}))
        assert replica.is_running


@quick_exactly_once
def test_a_value_that_the_model_raises_on_fails_alone(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Ids out of a table's range fail the whole inference: the batch is split until only their requests fail."""
    bad = [7, 8, 100, 101, 255, 300, 499]
    with Scene(kafka, tmp_path, {"BATCHING__LINGER_MS": "50"}, guarantee=guarantee, model=lookup(rows=10)) as scene:
        replica = scene.replica()

        ids = [10**6 if n in bad else n % 10 for n in range(500)]
        scene.publish([Sent(b"k%d" % n, np.int64(i).tobytes(), [RAW_HEADER]) for n, i in enumerate(ids)])

        scene.verdict().expect_clean()
        found = {int((a.key or b"k-1")[1:]): a for a in scene.answers()}
        assert sorted(n for n, a in found.items() if a.is_error) == bad
        for number, answer in found.items():
            if not answer.is_error:
                expected = np.array([ids[number] * 2, ids[number] * 2 + 1], np.float32)
                np.testing.assert_array_equal(np.frombuffer(answer.value or b"", "<f4"), expected)
        assert replica.is_running
        assert len(scene.dead_letters(len(bad))) == len(bad)


@quick_exactly_once
def test_rows_that_get_lost_are_nobody_s_answer(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """A batch with a wrong number of output rows is run row by row: only rows with none or two get an error."""
    lost = {1: 1e10, 100: 1e10, 101: -1e10, 103: 1e10, 104: -1e10, 300: 1e10}
    with Scene(kafka, tmp_path, guarantee=guarantee, model=counted_out(), partitions=1) as scene:
        scene.replica()

        rows = [np.float32(lost.get(n, n)) for n in range(500)]
        scene.publish([Sent(b"k%d" % n, row.tobytes(), [RAW_HEADER]) for n, row in enumerate(rows)])

        scene.verdict().expect_clean()
        found = {int((a.key or b"k-1")[1:]): a for a in scene.answers()}
        assert sorted(n for n, a in found.items() if a.is_error) == sorted(lost)
        for number, answer in found.items():
            if not answer.is_error:
                assert np.frombuffer(answer.value or b"", "<f4").tolist() == [number]


@quick_exactly_once
def test_bad_data_in_a_row_never_stops_a_worker(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """The model fails on 300 requests in a row: the probe clears the device, all are answered, and it goes on."""
    with Scene(kafka, tmp_path, guarantee=guarantee, model=lookup(rows=10), partitions=1) as scene:
        replica = scene.replica()

        ids = [10**6] * 300 + [3] * 50
        scene.publish([Sent(b"k", np.int64(i).tobytes(), [RAW_HEADER]) for i in ids])

        scene.verdict().expect_clean()
        assert [a.is_error for a in scene.answers()] == [True] * 300 + [False] * 50
        assert replica.is_running


@quick_exactly_once
def test_an_answer_too_large_for_the_response_topic_becomes_an_error(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """1,000 rows answer with 16 KB where the topic takes 4 KB: an error instead; its neighbours are answered."""
    requests = [raw(n, key=b"k") for n in range(200)]
    requests.insert(100, Sent(b"big", b"".join(row(n) for n in range(1000)), [RAW_HEADER]))
    # A timeout so long that no transaction fails on a slow machine.
    settings = {"DELIVERY__TRANSACTION_TIMEOUT_MS": "60000"} if guarantee == "exactly_once" else {}
    with Scene(
        kafka, tmp_path, settings, guarantee=guarantee, partitions=1, response_config={"max.message.bytes": "4096"}
    ) as scene:
        replica = scene.replica()

        scene.publish(requests)

        scene.verdict().expect_clean()
        scene.expect_right_values()
        errors = [a for a in scene.answers() if a.is_error]
        assert [(a.key, a.headers["error-code"]) for a in errors] == [(b"big", "RESOURCE_EXHAUSTED")]
        assert replica.failed_transactions == 0, "a transaction was tried with it in it"


@quick_at_least_once
def test_an_answer_too_large_for_any_request_to_the_broker_becomes_an_error(
    new_broker: NewBroker, tmp_path: Path, guarantee: str
) -> None:
    """Its topic would take it, but the broker hangs up at a request of more than `socket.request.max.bytes`."""
    broker = new_broker({"socket.request.max.bytes": "200000"})
    cluster = Cluster(broker.bootstrap_servers)
    requests = [raw(n, key=b"k") for n in range(20)]
    for rows in (1000, 750):  # 256 bytes each in the answer: the second is a little below
        requests.insert(10, Sent(b"%d" % rows, b"".join(row(n) for n in range(rows)), [RAW_HEADER]))
    model = mlp(WIDTH, (32,), 64)
    with Scene(cluster, tmp_path, guarantee=guarantee, partitions=1, model=model, session=MORTAL) as scene:
        replica = scene.replica()

        scene.publish(requests)

        scene.verdict().expect_clean()
        scene.expect_right_values()
        errors = [a for a in scene.answers() if a.is_error]
        assert [(a.key, a.headers["error-code"]) for a in errors] == [(b"1000", "RESOURCE_EXHAUSTED")]
        replica.terminate()
        assert replica.exit_code() == 0, replica.log


@quick_at_least_once
def test_a_limit_that_is_lowered_under_way_is_read_by_the_next_start(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """The worker ends. Answers that have become too large turn into errors; all others leave in order."""
    large = Sent(b"big", b"".join(row(n) for n in range(1000)), [RAW_HEADER])
    with Scene(kafka, tmp_path, guarantee=guarantee, partitions=2) as scene:
        replica = scene.replica()
        scene.publish([*[raw(n, key=b"k%d" % (n % 8)) for n in range(200)], large])
        scene.answers()

        kafka.limit_messages(scene.response_topic, 4096)
        scene.publish([*[raw(n, key=b"k%d" % (n % 8)) for n in range(4000)], large])

        succeed(scene, replica)
        scene.verdict().expect_clean(repeats=4000)
        scene.expect_right_values()
        errors = [a for a in scene.answers() if a.is_error]
        assert {(a.key, a.headers["error-code"]) for a in errors} == {(b"big", "RESOURCE_EXHAUSTED")}


@quick_at_least_once
def test_a_key_too_large_for_the_response_topic_is_left_out(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """If the key alone is too large, the answer comes without it and says so."""
    with Scene(
        kafka, tmp_path, guarantee=guarantee, partitions=1, response_config={"max.message.bytes": "4096"}
    ) as scene:
        replica = scene.replica()

        scene.publish([raw(0, key=b"k"), raw(1, key=b"K" * 5000), raw(2, key=b"k")])

        found = scene.answers()
        assert [a.key for a in found] == [b"k", None, b"k"]
        assert ["key-omitted" in a.headers for a in found] == [False, True, False]
        assert replica.is_running
