"""Protobuf written by hand: byte for byte as the generated classes write it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.codecs.encodings import oip_protobuf, protobuf_writer
from worker.codecs.encodings.columns import Column, EvenColumn, column_of
from worker.codecs.encodings.elements import to_bytes
from worker.core.records import Array, ModelKey
from worker.core.tensors.specs import DTYPES, TensorSpec

TEXTS = st.sampled_from(["", "m", "grüße", "100%", "x" * 127, "x" * 128, "y" * 20_000])
SHAPES = st.lists(st.sampled_from([0, 1, 2, 5, 127, 128, 300]), min_size=1, max_size=3).filter(
    lambda s: np.prod(s) < 4e5
)


def filled(datatype: str, shape: list[int]) -> Array:
    return np.full(shape, "é", object) if datatype == "BYTES" else np.ones(shape, DTYPES[datatype])


def by_the_library(model: ModelKey | None, outputs: list[tuple[TensorSpec, Array]], body_id: str | None) -> bytes:
    if model is None:
        message = oip_protobuf._InferRequest()
        tensors, raws = message.inputs, message.raw_input_contents
    else:
        message = oip_protobuf._InferResponse(model_name=model.name, model_version=model.version, id=body_id or "")
        tensors, raws = message.outputs, message.raw_output_contents
    for spec, array in outputs:
        tensors.add(name=spec.name, datatype=spec.datatype, shape=array.shape)
        raws.append(to_bytes(array))
    serialized: bytes = message.SerializeToString()
    return serialized


@given(
    TEXTS,
    TEXTS,
    st.none() | TEXTS,
    st.lists(st.tuples(TEXTS, st.sampled_from([*DTYPES]), SHAPES), min_size=1, max_size=4),
)
def test_a_message_is_as_the_library_writes_it(
    name: str, version: str, body_id: str | None, tensors: list[tuple[str, str, list[int]]]
) -> None:
    """This holds for any names, ids, datatypes and shapes, for answers and requests."""
    outputs = [(TensorSpec(of, datatype, ()), filled(datatype, shape)) for of, datatype, shape in tensors]
    columns = [column_of(spec, array, binary=True) for spec, array in outputs]
    model = ModelKey(name, version)

    (answer,) = protobuf_writer.values(model, columns, 1, [body_id])
    (request,) = protobuf_writer.values(None, columns, 1)

    assert answer == by_the_library(model, outputs, body_id)
    assert request == by_the_library(None, outputs, None)


@pytest.mark.parametrize("ids", [None, ["a", None, ""]])
@pytest.mark.parametrize("datatypes", [("FP32",), ("FP32", "INT8"), ("BYTES", "FP64"), ("BYTES",)])
def test_messages_written_together_are_as_the_library_writes_each(
    datatypes: tuple[str, ...], ids: list[str | None] | None
) -> None:
    """This holds for parts of one shape and of several."""
    specs = [TensorSpec(name, of, ()) for name, of in zip("ab", datatypes, strict=False)]
    model = ModelKey("m", "1")
    even = [filled(of, [6, 3]) for of in datatypes]
    parts = [[filled(of, [n, 2]) for n in (1, 200, 3)] for of in datatypes]
    of_one = [
        Column(spec, True, list(array.reshape(3, 2, 3))) if spec.is_text else EvenColumn(spec, True, array, 3)
        for spec, array in zip(specs, even, strict=True)
    ]
    of_several = [Column(spec, True, own) for spec, own in zip(specs, parts, strict=True)]

    for columns, outputs in (
        (of_one, [[array[2 * at : 2 * at + 2] for array in even] for at in range(3)]),
        (of_several, [[own[at] for own in parts] for at in range(3)]),
    ):
        assert protobuf_writer.values(model, columns, 3, ids) == [
            by_the_library(model, list(zip(specs, own, strict=True)), ids[at] if ids else None)
            for at, own in enumerate(outputs)
        ]


@given(TEXTS, st.none() | TEXTS)
def test_an_error_is_as_the_library_writes_it(text: str, body_id: str | None) -> None:
    """It holds the text and the id."""
    expected = oip_protobuf._InferenceError(error=text, id=body_id or "").SerializeToString()

    assert protobuf_writer.error(text, body_id) == expected
