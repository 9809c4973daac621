"""Protobuf written by hand: byte for byte as the generated classes write it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from worker.codecs.encodings import oip_protobuf, protobuf_writer
from worker.codecs.encodings.columns import column_of
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


@given(TEXTS, st.none() | TEXTS)
def test_an_error_is_as_the_library_writes_it(text: str, body_id: str | None) -> None:
    """It holds the text and the id."""
    expected = oip_protobuf._InferenceError(error=text, id=body_id or "").SerializeToString()

    assert protobuf_writer.error(text, body_id) == expected
