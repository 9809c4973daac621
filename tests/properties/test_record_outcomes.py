"""Each record's outcome is its own: hostile neighbours in its chunk change nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kafka.hostile_records import GOOD, RECORDS, VALUES, hostile, written
from tests.unit.codecs.records.builders import mapping
from worker.codecs.records.mapping import Mapped, RecordMapping
from worker.core.records import Partition, Record
from worker.core.tensors.specs import TensorSpec

_OF_ROWS = (
    '{"type": "a", "id": %s, "k": [{"x": 1}]}',
    '{"type": %s, "k": 1}',
    '{"type": "a", "k": [{"x": %s}, {"x": 2}]}',
)


def of_fields() -> tuple[RecordMapping, Sequence[bytes]]:
    """A mapping with a field of every kind, and records for it."""
    kinds = {"single": "FP32", "double": "FP64", "long": "INT64", "tiny": "INT8", "flag": "BOOL", "as_number": "FP32"}
    kinds |= {"channel": "INT64", "text": "BYTES", "at": "INT64", "price": "FP64", "deep": "FP32"}
    specs = [TensorSpec(name, kind, (1,)) for name, kind in kinds.items()]
    specs.append(TensorSpec("items", "FP32", (None,)))
    return mapping(*specs, inputs=RECORDS["inputs"], answer={"keep": ["id"]}), [*hostile(), *[written(GOOD)] * 300]


def of_rows() -> tuple[RecordMapping, Sequence[bytes]]:
    """A mapping of several rows, with other kinds, a key and a kept field, and records for it."""
    entries: dict[str, Any] = {"rows": "k", "only": {"type": ["a"]}, "key": "type", "answer": {"keep": ["id"]}}
    values = [(form % value).encode("utf-8", "surrogatepass") for value in VALUES for form in _OF_ROWS]
    return mapping(TensorSpec("x", "FP32", ()), **entries), values


@cache
def prepared(
    made: Callable[[], tuple[RecordMapping, Sequence[bytes]]],
) -> tuple[Any, Sequence[bytes], Mapping[bytes, Any]]:
    """The mapping, the records, and the outcome of each record alone."""
    by, values = made()
    return by, values, {value: outcome(read(by, [value]), 0) for value in set(values)}


def read(by: RecordMapping, values: Sequence[bytes]) -> Mapped:
    return by.read(values, [Record(Partition("t", 0), at, b"k", value, (), 1) for at, value in enumerate(values)])


def outcome(mapped: Mapped, index: int) -> tuple[Any, ...]:
    """The fault of one of the records, or all that is read of it."""
    if index in mapped.faults:
        return ("fault", mapped.faults[index])
    if index in mapped.passed_over:
        return ("passed over",)
    at = list(mapped.good).index(index)
    tensors = [
        tensor if isinstance(tensor, list) else bytes(tensor) for tensor in (each[at] for each in mapped.tensors)
    ]
    dims = [each if isinstance(each, tuple) else each[at] for each in mapped.dims]
    kept = [bytes(each) for each in mapped.kept[at]] if mapped.kept else None
    return ("good", tensors, dims, kept, mapped.rows and mapped.rows[at], mapped.keys and mapped.keys[at])


@pytest.mark.parametrize("made", [of_fields, of_rows])
@settings(max_examples=60)
@given(data=st.data())
def test_a_record_s_outcome_is_its_own(made: Any, data: st.DataObject) -> None:
    """It equals that of the record alone, in any company."""
    by, values, alone = prepared(made)
    together = data.draw(st.lists(st.sampled_from(values), min_size=2, max_size=60))

    mapped = read(by, together)

    assert [outcome(mapped, index) for index in range(len(together))] == [alone[value] for value in together]


@pytest.mark.parametrize("made", [of_fields, of_rows])
def test_the_records_meet_each_outcome(made: Any) -> None:
    """Else the property above would say little."""
    _, _, alone = prepared(made)

    assert {found[0] for found in alone.values()} == (
        {"good", "fault"} if made is of_fields else {"good", "fault", "passed over"}
    )
