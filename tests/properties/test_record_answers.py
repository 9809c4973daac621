"""An answer to a record, parsed as JSON, has what plain Python computes from the model's outputs, one row at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import jsonschema
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.meeting import meeting, met
from tests.unit.codecs.builders import PLAIN_WIRE, chunk, model, record, written
from worker.codecs.answer_writer import AnswerWriter
from worker.codecs.records.answer_contract import json_schema
from worker.codecs.records.answers import Keep, record_form
from worker.codecs.wire_contract import JSON
from worker.core.chunk import Chunk
from worker.core.records import Array, ReplyForm
from worker.core.tensors.specs import DTYPES, TensorSpec
from worker.inference.records.conclusions import fields_of

NUMBERS = [name for name in DTYPES if name != "BYTES"]
FLOATS = ("FP16", "FP32", "FP64")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), TEXTS, st.lists(st.integers(), max_size=2))


class Entry(NamedTuple):
    """An entry of the answer, and what it makes of one row of its output."""

    given: Any
    plain: Callable[[Any], Any]


def best(values: Sequence[float], count: int) -> list[int]:
    return sorted(range(len(values)), key=lambda at: (-values[at], at))[:count]


def soft(values: Sequence[float]) -> list[float]:
    powers = [math.exp(value - max(values)) for value in values]
    return [power / sum(powers) for power in powers]


def one_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def as_it_is(spec: TensorSpec) -> Callable[[Any], Any]:
    def plain(row: Any) -> Any:
        if spec.dims and set(spec.dims) == {1}:
            for _ in spec.dims:
                row = row[0]
        return row

    return plain


@st.composite
def entries(draw: st.DrawFn, spec: TensorSpec) -> Entry:
    name, size = spec.name, spec.dims[-1] if spec.dims else 0
    choices = ["output"]
    if len(spec.dims) == 1 and size and not spec.is_text:
        choices = [*(["softmax", "at"] if spec.is_float else []), "element", "argmax", "names", "top", "output"]
    at = draw(st.integers(0, max((size or 0) - 1, 0)))
    names = [f"n{number}" for number in range(size or 0)]
    match draw(st.sampled_from(choices)):
        case "element":
            return Entry(f"{name}[{at}]", lambda row: row[at])
        case "argmax":
            return Entry({"argmax": name}, lambda row: best(row, 1)[0])
        case "names":
            return Entry({"argmax": name, "names": names}, lambda row: names[best(row, 1)[0]])
        case "top":
            return Entry(
                {"argmax": name, "top": at + 1, "names": names},
                lambda row: one_or_all([names[index] for index in best(row, at + 1)]),
            )
        case "softmax":
            return Entry({"softmax": name}, lambda row: one_or_all(soft(row)))
        case "at":
            return Entry({"softmax": name, "at": at}, lambda row: soft(row)[at])
    return Entry(draw(st.sampled_from([name, {"output": name}])), as_it_is(spec))


@st.composite
def outputs(draw: st.DrawFn, spec: TensorSpec, rows: int) -> Array:
    """An output whose numbers all datatypes hold, and JSON too."""
    shape = (rows, *[1 if dim is None else dim for dim in spec.dims])
    size = math.prod(shape)
    if spec.is_text:
        return np.array(draw(st.lists(TEXTS, min_size=size, max_size=size)), object).reshape(shape)
    seed = draw(st.integers(0, 2**32 - 1))
    numbers = np.random.default_rng(seed).integers(
        -8 if spec.is_float else 0, 2 if spec.dtype.kind == "b" else 9, shape
    )
    return (numbers / 7 if spec.is_float else numbers).astype(spec.dtype)


class Asked(NamedTuple):
    """Records to answer, and how."""

    specs: Sequence[TensorSpec]
    answer: Mapping[str, Entry]
    keep: Keep
    kept: Sequence[Any]
    rows: Sequence[int] | None
    outputs: Mapping[str, Array]


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    dims = st.sampled_from([(3,), (2,), (4,), (), (1,), (0,), (1, 1), (2, 3), (2, 0)])
    specs = [
        TensorSpec(f"output {at}", draw(st.sampled_from([*FLOATS, *NUMBERS, "BYTES"])), draw(dims))
        for at in range(draw(st.integers(1, 3)))
    ]
    answer = {
        f"field {at} {draw(TEXTS)}": draw(entries(draw(st.sampled_from(specs))))
        for at in range(draw(st.integers(0, 4)))
    }
    count = draw(st.integers(1, 4))
    rows = draw(st.none() | st.lists(st.integers(1, 3), min_size=count, max_size=count))
    names = draw(st.none() | st.lists(TEXTS, unique=True, max_size=2))
    keep: Keep = "all" if names is None else names
    record = st.dictionaries(TEXTS, VALUES, max_size=3) if names is None else st.tuples(*[VALUES for _ in names])
    kept = draw(st.lists(record, min_size=count, max_size=count))
    total = sum(rows) if rows else count
    return Asked(specs, answer, keep, kept, rows, {spec.name: draw(outputs(spec, total)) for spec in specs})


def answers(one: Asked) -> list[Any]:
    """The answers as a reader parses them."""
    fields = fields_of({name: entry.given for name, entry in one.answer.items()}, one.specs)
    form = record_form(one.keep, has_rows=one.rows is not None)
    specs = [field.spec for field in fields]
    by = AnswerWriter([model(outputs=specs)], PLAIN_WIRE, form_of=lambda _: form)
    records: Chunk = chunk(*[record(b"{}")] * len(one.kept), form=ReplyForm(JSON), rows=one.rows)
    records.kept = list(map(as_bytes, one.kept)) if one.keep == "all" else one.kept
    found = [json.loads(each.value or b"") for each in written(by, records, *concluded(fields, one))]
    schema = json_schema(specs, one.keep, has_rows=one.rows is not None)
    for each in found:
        jsonschema.validate(each, schema)
    return found


def as_bytes(kept: Any) -> bytes:
    return json.dumps(kept, indent=len(kept) or None).encode()


def concluded(fields: Sequence[Any], one: Asked) -> list[Array]:
    return [field.conclude(one.outputs, {}) for field in fields]


def expected(one: Asked) -> list[dict[str, Any]]:
    """The answers by plain Python, one row at a time."""
    made = one.answer or {spec.name: Entry(spec.name, as_it_is(spec)) for spec in one.specs}
    found = []
    start = 0
    for kept, count in zip(one.kept, one.rows or repeat(1), strict=False):
        answer = dict(kept) if one.keep == "all" else dict(zip(one.keep, kept, strict=True))
        for name, entry in made.items():
            source = entry.given if isinstance(entry.given, str) else next(iter(entry.given.values()))
            output = one.outputs[source if source in one.outputs else source[: source.rindex("[")]]
            each = [entry.plain(row) for row in output[start : start + count].tolist()]
            answer[name] = each[0] if one.rows is None else each
        start += count
        found.append(answer)
    return found


def alike(found: Any, wanted: Any) -> bool:
    """True if both are the same but for the last digits of FP32."""
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(alike(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(alike, found, wanted))
    if isinstance(wanted, float):
        return math.isclose(found, wanted, rel_tol=1e-6, abs_tol=1e-12)
    return type(found) is type(wanted) and bool(found == wanted)


@meeting("no entry", "a record kept", "fields kept", "several rows", "a name", "an element", "a softmax")
@given(one=asked())
def test_an_answer_has_what_its_row_gives(one: Asked) -> None:
    """No answer has a value of its neighbour's, and each is in the shape that the contract tells."""
    kinds = [next(iter(entry.given)) if isinstance(entry.given, dict) else entry.given for entry in one.answer.values()]
    met("no entry", is_so=not one.answer)
    met("a record kept", is_so=one.keep == "all")
    met("fields kept", is_so=one.keep != "all" and len(one.keep) > 0)
    met("several rows", is_so=one.rows is not None)
    met("a name", is_so=any("names" in entry.given for entry in one.answer.values()))
    met("an element", is_so=any(kind.endswith("]") for kind in kinds))
    met("a softmax", is_so="softmax" in kinds)

    for found, wanted in zip(answers(one), expected(one), strict=True):
        assert alike(found, wanted), (found, wanted)
