"""The benchmark's loops over records answer as the models do alone, and what a user writes for the worker is short."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import fastavro
import numpy as np
import orjson
import pytest
from confluent_kafka import Message
from tokenizers import Tokenizer

from bench.ground import MAPPINGS
from bench.loops.plain import Answer
from bench.loops.polls import LOOPS, answered
from bench.loops.records import ANSWER, pixels
from bench.loops.task import Task, opened
from tests.bert import WORDS, folder, forward, random_weights, word_tokenizer
from tests.models import save
from tests.payments import CLASSES, as_avro, as_json, columns, payments
from tests.photos import photos
from tests.records_models import fraud
from tests.unit.client.builders import Record

BATCH, HEADS = 8, 4


def answers(name: str, model: Path, values: Sequence[bytes]) -> list[Answer | Exception]:
    """Returns what a loop makes of the values, which come in one poll."""
    polled = cast("list[Message]", [Record([], value) for value in values])
    return answered(LOOPS[name].make(Task("", "", "", "", str(model), BATCH)), polled)


def fields(answer: Answer | Exception) -> Any:
    assert not isinstance(answer, Exception), answer
    value, headers = answer
    if headers:  # which say that it is JSON
        return orjson.loads(value)
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), ANSWER)


@pytest.fixture(scope="module")
def fraud_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(fraud(trees=5, trained_on=500), tmp_path_factory.mktemp("fraud"))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("plain_fraud_json", as_json),
        ("swift_fraud_json", as_json),
        ("plain_fraud_avro", as_avro),
        ("swift_fraud_avro", as_avro),
    ],
)
def test_a_payment_is_scored_as_by_the_model_alone(name: str, write: Callable[[Any], bytes], fraud_model: Path) -> None:
    """With its number, its score and its label, whether or not fields are missing."""
    asked = payments(30)

    found = [fields(answer) for answer in answers(name, fraud_model, [write(each) for each in asked])]

    labels, shares = opened(str(fraud_model)).run(["label", "probabilities"], columns(asked))
    assert found == [
        {"payment_id": each["payment_id"], "score": float(share), "label": CLASSES[label]}
        for each, share, label in zip(asked, shares[:, 1], labels, strict=True)
    ]


def test_a_wrong_payment_gets_an_error_and_its_neighbours_their_answers(fraud_model: Path) -> None:
    """A payment that lacks a field is refused alone."""
    asked = [as_json(each) for each in payments(3)]
    asked[1] = b'{"payment_id": "1"}'

    found = answers("plain_fraud_json", fraud_model, asked)

    assert [isinstance(each, Exception) for each in found] == [False, True, False]


@pytest.mark.parametrize("name", ["plain_documents", "swift_documents"])
def test_a_document_becomes_the_mean_of_its_tokens(name: str, tmp_path: Path) -> None:
    """The mean has length 1, and belongs to the document of its number, whatever the lengths of its neighbours."""
    rng, weights = np.random.default_rng(0), random_weights()
    model = folder(tmp_path, weights, HEADS, word_tokenizer()) / "onnx" / "model.onnx"
    bodies = [" ".join(rng.choice(WORDS, length)) for length in rng.integers(1, 40, 20)]

    found = answers(name, model, [orjson.dumps({"id": at, "body": body}) for at, body in enumerate(bodies)])

    tokenizer = Tokenizer.from_str(word_tokenizer())
    for at, (answer, body) in enumerate(zip(found, bodies, strict=True)):
        ids = np.array([tokenizer.encode(body).ids])
        mean = forward(weights, HEADS, ids, np.ones_like(ids))[0].mean(0)
        assert fields(answer)["id"] == at
        np.testing.assert_allclose(fields(answer)["embedding"], mean / np.linalg.norm(mean), atol=1e-5)


def test_a_picture_is_its_middle_with_numbers_around_zero() -> None:
    """Equal seeds give equal pictures."""
    (picture,), (again,) = photos(1), photos(1)

    found = pixels(picture)

    assert picture == again
    assert found.shape == (3, 224, 224)
    assert -2.2 < found.min() < found.max() < 2.7


@pytest.mark.parametrize("name", ["fraud", "documents", "pictures"])
def test_a_user_writes_fifteen_lines_at_most(name: str) -> None:
    """A mapping is short."""
    assert len((MAPPINGS / f"{name}.toml").read_text().splitlines()) <= 15
