"""Writes Open Inference Protocol answers and requests as JSON, and in the binary-data form: JSON with bytes behind it.

NaN and infinity become null, because JSON has no form for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import orjson

from worker.codecs.encodings.columns import Column, Frame, Headings, values_of
from worker.core.records import ModelKey


def values(
    model: ModelKey | None, columns: Sequence[Column], count: int, body_ids: Sequence[str | None] | None = None
) -> list[bytes]:
    """The answers of this model to `count` records, or requests if there is no model; without binary outputs."""
    ids = None if body_ids is None else [_id(body_id) for body_id in body_ids]
    texts = [column.texts() for column in columns if not column.binary]
    return values_of(columns, _frame, model, ids, texts, count)


def binary_values(
    model: ModelKey | None, columns: Sequence[Column], count: int, body_ids: Sequence[str | None] | None = None
) -> tuple[list[bytes], list[int]]:
    """The values in binary-data form, and the lengths of their heads; the bytes of binary outputs come behind these."""
    heads = values(model, columns, count, body_ids)
    raws = [column.raws() for column in columns if column.binary]
    return list(map(b"".join, zip(heads, *raws, strict=True))), list(map(len, heads))


def error(message: str, body_id: str | None) -> bytes:
    return orjson.dumps({"error": message} if body_id is None else {"error": message, "id": body_id})


def _id(body_id: str | None) -> bytes:
    return b"" if body_id is None else b'"id":%b,' % orjson.dumps(body_id)


@lru_cache(maxsize=256)
def _frame(model: ModelKey | None, headings: Headings) -> Frame:
    """The frame: all that is not an id, or the elements of an output in JSON."""
    opening, role = (b"{", b"inputs") if model is None else (_opening(*model), b"outputs")
    pieces, piece = [opening], b'"%b":[' % role
    for at, (name, datatype, shape, size) in enumerate(headings):
        piece += (b"," if at else b"") + orjson.dumps({"name": name, "shape": shape, "datatype": datatype})[:-1]
        if size is not None:
            piece += b',"parameters":{"binary_data_size":%d}}' % size
        else:
            pieces.append(piece + b',"data":[')
            piece = b"]}"
    return (*pieces, piece + b"]}")


def _opening(name: str, version: str) -> bytes:
    """The beginning of each answer of this model."""
    return orjson.dumps({"model_name": name, "model_version": version})[:-1] + b","
