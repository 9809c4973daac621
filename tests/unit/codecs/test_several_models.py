"""With two models: the model that checks a request, and the model that its answer names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.codecs.builders import (
    AS_ROWS,
    PLAIN_WIRE,
    answer,
    as_binary,
    as_json,
    document,
    f4,
    floats,
    json_of,
    model,
    record,
    rejection,
    request,
    tensor,
)
from worker.codecs.codec import Codec
from worker.core.failures import Code
from worker.core.records import ModelKey
from worker.core.tensors.specs import TensorSpec

IDS, MASK, Z = TensorSpec("ids", "INT64", (2,)), TensorSpec("mask", "INT64", (2,)), TensorSpec("z", "FP32", (1,))
WIDE = replace(model(IDS, MASK, outputs=[Z]), name="wide")


def both() -> Codec:
    """Codecs of the plain model `m`, and of `wide`, which takes other inputs and more of them."""
    return Codec([model(), WIDE], PLAIN_WIRE)


def wide(**changes: Any) -> dict[str, Any]:
    two = [{"name": name, "shape": [1, 2], "datatype": "INT64", "data": [1, 2]} for name in ("ids", "mask")]
    return {"model_name": "wide", "inputs": two, **changes}


def test_a_request_is_held_against_the_model_that_it_names() -> None:
    """Its tensors, its batch and its answer belong to that model."""
    named = request(both(), as_json(wide()))

    assert (named.model, named.shapes) == (ModelKey("wide", "1"), ((2,), (2,)))
    message = answer(both(), as_json(wide()), f4([[5]]))
    assert json_of(message)["model_name"] == "wide"
    assert [(output["name"], output["data"]) for output in json_of(message)["outputs"]] == [("z", [5.0])]


def test_a_request_that_names_no_model_means_the_first() -> None:
    """Rows cannot name one."""
    bare = tensor(parameters={"binary_data_size": 12})
    bare.pop("data")
    asked = [as_json(document()), as_binary({"inputs": [bare]}, floats(1, 2, 3)), record(floats(1, 2, 3), AS_ROWS)]

    assert [request(both(), one).model for one in asked] == [ModelKey("m", "1")] * 3


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"model_name": "other"}, Code.NOT_FOUND),
        ({"model_version": "2"}, Code.NOT_FOUND),
        ({"model_name": "m"}, Code.INVALID_ARGUMENT),  # m takes x
    ],
)
def test_no_request_reaches_a_model_that_it_does_not_mean(named: dict[str, str], code: Code) -> None:
    """This holds even where its tensors would fit."""
    assert rejection(both(), as_json(wide(**named))).code is code


def test_of_two_versions_the_first_takes_requests() -> None:
    """This happens in a swap. The old one's running requests are answered as its own (`test_answers.py`)."""
    new, old = replace(model(), version="2"), model()
    before = Codec([old], PLAIN_WIRE)
    during = Codec([new, old], PLAIN_WIRE)
    asked = as_json(document(model_name="m"))

    assert request(before, asked).model == ModelKey("m", "1")
    assert request(during, asked).model == ModelKey("m", "2")
