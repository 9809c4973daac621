"""The benchmark's loops over polls answer as the model does alone: a bar beside a wrong loop would mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import orjson
import pytest
from confluent_kafka import Message
from tritonclient.grpc import service_pb2

from bench.cases import columns
from bench.ground import HEADERS
from bench.loops.plain import HEAD_LENGTH, PROTOBUF, Answer
from bench.loops.polls import LOOPS, answered, refusal
from bench.loops.task import Task, opened
from bench.requests import Feeds, Request, as_binary, as_json, as_protobuf
from tests.models import mlp, save
from tests.unit.client.builders import Record

Numbers = list[list[float]]
Write = Callable[[Feeds], Request]
ROWS = [{"x": row[None]} for row in np.random.default_rng(3).standard_normal((100, 8), np.float32)]
BATCH, BYTES = 16, 4 * 384
TEXTS = columns.text_model(), columns.text_feeds()[:100]
TABLE = columns.table_model(), columns.table_feeds()[:100]


def of_json(value: bytes) -> Numbers:
    """Returns the outputs of an answer in JSON."""
    return [output["data"] for output in orjson.loads(value)["outputs"]]


def of_protobuf(value: bytes) -> Numbers:
    """Returns the outputs of an answer in protobuf."""
    return [of_rows(raw)[0] for raw in service_pb2.ModelInferResponse.FromString(value).raw_output_contents]


def of_binary(value: bytes) -> Numbers:
    """Returns the only output, 384 floats, of an answer in binary data."""
    return of_rows(value[-BYTES:])


def of_rows(value: bytes) -> Numbers:
    """Returns the only output of plain rows."""
    return [np.frombuffer(value, np.float32).tolist()]


def as_rows(feeds: Feeds) -> Request:
    """Writes plain rows."""
    return Request(feeds["x"].tobytes(), HEADERS)


def answers(name: str, model: Path, requests: Sequence[Request]) -> list[Answer | Exception]:
    """Returns what a loop makes of the requests, which come in one poll."""
    polled = [Record(request.headers, request.value) for request in requests]
    return answered(LOOPS[name].make(Task("", "", "", "", str(model), BATCH)), cast("list[Message]", polled))


@pytest.mark.parametrize(
    ("name", "case", "write", "read"),
    [
        ("floor", (mlp(8), ROWS), as_rows, of_rows),
        ("swift_json", (mlp(8), ROWS), as_json, of_json),
        ("swift_json", TABLE, as_json, of_json),
        ("swift_json", TEXTS, as_json, of_json),
        ("swift_protobuf", TEXTS, as_protobuf, of_protobuf),
        ("swift_binary", TEXTS, as_binary, of_binary),
        ("plain_json", (mlp(8), ROWS), as_json, of_json),
        ("plain_json", TABLE, as_json, of_json),
        ("plain_json", TEXTS, as_json, of_json),
        ("plain_protobuf", TEXTS, as_protobuf, of_protobuf),
        ("plain_binary", TEXTS, as_binary, of_binary),
    ],
)
def test_a_loop_answers_each_request_as_the_model_alone_does(
    name: str,
    case: tuple[bytes, list[Feeds]],
    write: Write,
    read: Callable[[bytes], Numbers],
    tmp_path: Path,
) -> None:
    """In the order of the requests, whatever their lengths, and with headers that fit each answer."""
    model, feeds = save(case[0], tmp_path), case[1]
    alone = opened(str(model))

    found = answers(name, model, [*map(write, feeds)])

    for answer, each in zip(found, feeds, strict=True):
        assert not isinstance(answer, Exception)
        value, headers = answer
        for numbers, expected in zip(read(value), alone.run(None, each), strict=True):
            np.testing.assert_allclose(numbers, expected.ravel(), rtol=1e-5, atol=1e-6)
        assert dict(headers).get(HEAD_LENGTH) in {None, b"%d" % (len(value) - BYTES)}


@pytest.mark.parametrize("name", ["swift_protobuf", "plain_protobuf"])
def test_a_bad_request_gets_an_error_and_its_neighbours_their_answers(name: str, tmp_path: Path) -> None:
    """However it is bad: the benchmark offers the same to the worker."""
    model, good = save(TEXTS[0], tmp_path), [*map(as_protobuf, TEXTS[1])]
    requests = columns.spoiled(good, 0.5)

    found = answers(name, model, requests)

    clean = answers(name, model, good)
    for answer, request, other, usual in zip(found, requests, good, clean, strict=True):
        assert isinstance(answer, Exception) == (request != other)
        assert isinstance(answer, Exception) or answer == usual


def test_an_error_in_protobuf_is_the_contracts_message() -> None:
    """Its text is in field 1, as in `inference.InferenceError`."""
    value, headers = refusal(ValueError("no"), PROTOBUF)

    assert value == b"\n\x0eValueError: no"
    assert headers == [("content-type", PROTOBUF)]
