"""The benchmark's loops over polls answer as the model does alone: a bar beside a wrong loop would mean nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import orjson
import pytest
from confluent_kafka import Message
from tritonclient.grpc import service_pb2

from bench.cases import columns
from bench.ground import HEADERS
from bench.loops.polls import FORMS, HEAD_LENGTH, Model
from bench.loops.task import Task
from bench.requests import Feeds, Request, as_binary, as_json, as_protobuf
from tests.models import mlp, save
from tests.unit.client.builders import Record

Numbers = list[list[float]]
ROWS = [{"x": row[None]} for row in np.random.default_rng(3).standard_normal((100, 8), np.float32)]
BATCH, BYTES = 16, 4 * 384


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


@pytest.mark.parametrize(
    ("name", "model", "feeds", "write", "read"),
    [
        ("floor", mlp(8), ROWS, as_rows, of_rows),
        ("json_loop", mlp(8), ROWS, as_json, of_json),
        ("table_loop", columns.table_model(), columns.table_feeds()[:100], as_json, of_json),
        ("texts_json", columns.text_model(), columns.text_feeds()[:100], as_json, of_json),
        ("texts_protobuf", columns.text_model(), columns.text_feeds()[:100], as_protobuf, of_protobuf),
        ("texts_binary", columns.text_model(), columns.text_feeds()[:100], as_binary, of_binary),
    ],
)
def test_a_loop_answers_each_request_as_the_model_alone_does(
    name: str,
    model: bytes,
    feeds: list[Feeds],
    write: Callable[[Feeds], Request],
    read: Callable[[bytes], Numbers],
    tmp_path: Path,
) -> None:
    """In the order of the requests, whatever their lengths, and with headers that fit all answers."""
    opened = Model(Task("", "", "", "", str(save(model, tmp_path)), BATCH))
    headers, written = FORMS[name].write(opened)
    polled = [Record(request.headers, request.value) for request in map(write, feeds)]

    answers = written(FORMS[name].read(opened, cast("list[Message]", polled)))

    for answer, each in zip(answers, feeds, strict=True):
        for found, alone in zip(read(answer), opened.session.run(None, each), strict=True):
            np.testing.assert_allclose(found, alone.ravel(), rtol=1e-5, atol=1e-6)
    assert int(headers.get(HEAD_LENGTH, b"0")) in {0, *(len(answer) - BYTES for answer in answers)}
