"""Mappings and records with defaults, so that a test shows only what matters to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.unit.codecs.builders import Y
from worker.codecs.codec import Codec
from worker.codecs.records.answers import record_form
from worker.codecs.records.mapping import Mapped, RecordMapping
from worker.codecs.records.projection import Given, ReaderOf, from_json
from worker.codecs.wire_contract import Wire
from worker.core.records import Headers, Partition, Record, Tensor
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

PAYMENTS = Partition("payments", 0)


@dataclass
class Section:
    """The section `[records]`, as plain values."""

    encoding: str = "json"
    envelope: str | None = None
    rows: str | None = None
    only: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    text: Mapping[str, Any] | None = None
    image: Mapping[str, Any] | None = None
    answer: Mapping[str, Any] = field(default_factory=dict)
    functions: str | None = None


def spec(datatype: str = "FP32", *dims: int | None, name: str = "x", **more: Any) -> TensorSpec:
    return TensorSpec(name, datatype, dims, **more)


def served(*inputs: TensorSpec, **more: Any) -> Signature:
    return Signature("m", "1", inputs or (spec(),), (Y,), **more)


def mapping(
    *inputs: TensorSpec,
    reader_of: ReaderOf | None = from_json,
    takes_nan: bool = False,
    skips_null: bool = False,
    **section: Any,
) -> RecordMapping:
    return RecordMapping(Section(**section), served(*inputs), reader_of, takes_nan=takes_nan, skips_null=skips_null)


def record(
    value: object, offset: int = 0, key: bytes | None = b"k", headers: Headers = (), at: int | None = 1_700_000_000_000
) -> Record:
    """A record with this value: bytes as they are, anything else in JSON."""
    given = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Record(PAYMENTS, offset, key, given, headers, at)


def read(of: RecordMapping, *values: object) -> Mapped:
    """These values, read."""
    records = [record(value, at) for at, value in enumerate(values)]
    return of.read([one.value for one in records], records)  # type: ignore[misc]  # none is None


def read_objects(of: RecordMapping, *values: Given) -> Mapped:
    return of.read(values, [record(b"", at) for at in range(len(values))])


def numbers(tensors: Sequence[Tensor], dtype: str = "<f4") -> list[list[Any]]:
    return [np.frombuffer(tensor, dtype).tolist() for tensor in tensors]  # type: ignore[arg-type]  # bytes


def why(of: RecordMapping, value: object) -> str:
    """Why this value has no tensors."""
    mapped = read(of, value)
    assert not mapped.good
    return mapped.faults[0]


def record_codec(signature: Signature, of: RecordMapping, **decisions: Any) -> Codec:
    form = record_form(of.keep, has_rows=of.has_rows)
    return Codec([signature], Wire("answers", "scorers", records=of, **decisions), form_of=lambda _: form)
