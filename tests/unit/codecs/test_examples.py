"""Requests made up from a signature: the worker itself takes every one of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.codecs.builders import One, codecs, elements, model, record, request
from worker.codecs.examples import EncodedRequest, EncodingName, encode_request, encodings, example_feeds
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import DTYPES, TensorSpec

WIDE = model(TensorSpec("x", "FP32", (2, 3)))
MIXED = model(*[TensorSpec(f"x{datatype}", datatype, (2,)) for datatype in DTYPES if datatype != "FP16"])
DYNAMIC = model(TensorSpec("ids", "INT64", (None,)), TensorSpec("mask", "INT64", (None,)))


def example(signature: Signature, encoding: EncodingName, rows: int = 3, seed: int = 0) -> EncodedRequest:
    return encode_request(signature, example_feeds(signature, rows, np.random.default_rng(seed)), encoding)


def decoded(signature: Signature, encoded: EncodedRequest) -> One:
    """The request as the worker reads it; it must decode."""
    return request(codecs(signature), record(encoded.value, *encoded.headers))


DEFAULTED = model(TensorSpec("x", "FP32", (3,)), TensorSpec("scale", "FP16", (), (), 1.0))


@pytest.mark.parametrize(
    ("signature", "encoding"),
    [(signature, one) for signature in (WIDE, MIXED, DYNAMIC, DEFAULTED) for one in encodings(signature)],
)
def test_every_encoding_that_a_model_can_be_asked_in_is_taken(signature: Signature, encoding: EncodingName) -> None:
    """Names, datatypes, shapes and rows are right by construction."""
    found = decoded(signature, example(signature, encoding))

    assert found.rows == 3
    assert found.form.states_rows == (encoding is EncodingName.ROWS)


def test_what_was_made_up_is_what_arrives() -> None:
    """All encodings carry equal numbers."""
    feeds = example_feeds(WIDE, 2, np.random.default_rng(1))

    arrived = [decoded(WIDE, encode_request(WIDE, feeds, encoding)) for encoding in encodings(WIDE)]

    for found in arrived:
        assert elements(found.tensors[0], "<f4") == feeds["x"].reshape(-1).tolist()


def test_the_same_seed_makes_the_same_request() -> None:
    """So a run can be repeated."""
    assert example(MIXED, EncodingName.JSON, seed=7) == example(MIXED, EncodingName.JSON, seed=7)
    assert example(MIXED, EncodingName.JSON, seed=7) != example(MIXED, EncodingName.JSON, seed=8)


def test_rows_need_one_numeric_input_of_fixed_dimensions() -> None:
    """Rows are then the first choice; otherwise JSON is."""
    assert encodings(WIDE) == (EncodingName.ROWS, EncodingName.JSON, EncodingName.PROTOBUF, EncodingName.BINARY)
    assert encodings(DYNAMIC) == (EncodingName.JSON, EncodingName.PROTOBUF, EncodingName.BINARY)


def test_a_model_with_halves_is_not_asked_in_json() -> None:
    """FP16 has no form in JSON, neither in a request nor in an answer."""
    takes = model(TensorSpec("a", "FP16", (2,)), TensorSpec("b", "FP32", (2,)))
    gives = model(outputs=[TensorSpec("y", "FP16", (2,))])

    assert encodings(takes) == (EncodingName.PROTOBUF, EncodingName.BINARY)
    assert EncodingName.JSON not in encodings(gives)
    assert decoded(takes, example(takes, EncodingName.BINARY)).rows == 3


def test_rows_that_are_given_are_asked_instead_of_made_up_ones() -> None:
    """Whole given rows are used, for a model that accepts no others. Inputs with a default are left out."""
    inputs = (TensorSpec("a", "INT64", (1,)), TensorSpec("b", "FP32", ()), TensorSpec("c", "FP32", (), default=1.0))
    signature = Signature("m", "1", inputs, (TensorSpec("y", "FP32", ()),))
    given = {"a": np.array([[10], [20]]), "b": np.array([1, 2], np.float32), "c": np.array([5, 6], np.float32)}

    feeds = example_feeds(signature, 30, np.random.default_rng(1), given)

    assert set(feeds) == {"a", "b"}
    assert set(zip(feeds["a"][:, 0].tolist(), feeds["b"].tolist(), strict=True)) == {(10, 1.0), (20, 2.0)}
