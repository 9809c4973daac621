"""Answers to records: kept fields first, then the answer's, as JSON objects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.unit.codecs.builders import PLAIN_WIRE, apart, chunk, f4, headers_of, model, record, written
from worker.codecs.answer_writer import AnswerWriter
from worker.codecs.codec import Codec
from worker.codecs.encodings import columns
from worker.codecs.records.answers import Keep, record_form, schema_form
from worker.codecs.wire_contract import JSON, Wire
from worker.core.chunk import Chunk, Prediction
from worker.core.records import Array, Ids, Message, Rejection, ReplyForm
from worker.core.tensors.buckets import Axis, Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

SCORE, LABEL = TensorSpec("score", "FP32", ()), TensorSpec("label", "BYTES", ())
SCORES, LABELS = f4([0.1, 0.25, 1e30]), np.array(["ok", 'fr"aud,\n', ""], object)
AS_JSON = ReplyForm(JSON)


def asked(
    count: int = 3,
    kept: Sequence[Any] | None = None,
    keys: Sequence[bytes] | None = None,
    rows: Sequence[int] | None = None,
) -> Chunk:
    one = chunk(*[record(b"{}", key=b"k")._replace(offset=at) for at in range(count)], form=AS_JSON, rows=rows)
    one.kept, one.answer_keys = kept, keys
    return one


def writer(*outputs: TensorSpec, keep: Keep = (), has_rows: bool = False, wire: Wire = PLAIN_WIRE) -> AnswerWriter:
    form = record_form(keep, has_rows=has_rows)
    return AnswerWriter([model(outputs=outputs)], wire, form_of=lambda _: form)


def values(by: AnswerWriter, of: Chunk, *outputs: Array) -> list[bytes]:
    return [answer.value or b"" for answer in written(by, of, *outputs)]


def test_an_answer_has_the_fields_in_their_order() -> None:
    """Numbers have the fewest digits that are theirs, and texts any characters."""
    assert values(writer(SCORE, LABEL), asked(), SCORES, LABELS) == [
        b'{"score":0.1,"label":"ok"}',
        b'{"score":0.25,"label":"fr\\"aud,\\n"}',
        b'{"score":1e+30,"label":""}',
    ]


def test_kept_fields_come_first() -> None:
    """They are in the order of their names, and a field may have any name."""
    kept = [(17, "a"), (2**70, 'b"\n'), (None, "")]

    assert values(writer(SCORE, keep=["id", 'na"me']), asked(kept=kept), SCORES) == [
        b'{"id":17,"na\\"me":"a","score":0.1}',
        b'{"id":1180591620717411303424,"na\\"me":"b\\"\\n","score":0.25}',
        b'{"id":null,"na\\"me":"","score":1e+30}',
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (-0.5, "-0.5"),
        (float("nan"), "null"),
        ([1, ["a\n", None]], '[1,["a\\n",null]]'),
        ({"a": {"b": []}}, '{"a":{"b":[]}}'),
        (Decimal("12.340"), '"12.340"'),
        (datetime(2026, 1, 2, 3, 4, 5, 678901, UTC), '"2026-01-02T03:04:05.678901Z"'),
        (b"\x00\xff", '"AP8="'),
        (msgspec.Raw(b"{\n  1.20}"), "{\n  1.20}"),
    ],
)
def test_kept_values_lose_nothing(value: object, text: str) -> None:
    """Decimals keep their digits, and instants their microseconds, as texts. A text in JSON stays as it came."""
    found = values(writer(SCORE, keep=["it"]), asked(kept=[(1,), (value,), ("x",)]), SCORES)

    assert found == [
        b'{"it":1,"score":0.1}',
        b'{"it":%b,"score":0.25}' % text.encode(),
        b'{"it":"x","score":1e+30}',
    ]


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize("value", ["\ud800", object(), {"a": object()}, {(1, 2): 3}, nested(100_000)])
def test_a_kept_value_that_cannot_be_written_is_its_records_error(value: object) -> None:
    """Its neighbours are answered."""
    by = writer(SCORE, keep=["id", "it"])

    answers, rejections = apart(by.write(asked(kept=[(1, 1), (2, value), (3, 3)]), [SCORES], 0))

    assert [answer and answer[2] for answer in answers] == [
        b'{"id":1,"it":1,"score":0.1}',
        None,
        b'{"id":3,"it":3,"score":1e+30}',
    ]
    ((at, rejection),) = rejections
    assert (at, rejection.code) == (1, "INVALID_ARGUMENT")
    assert rejection.message == "it: the answer keeps it, and it holds a value that cannot be written in JSON"


@pytest.mark.parametrize(
    ("record_text", "answer_text"),
    [
        (b'{"a":{"b":1}}', b'{"a":{"b":1},"score":0.1}'),
        (b"{}", b'{"score":0.1}'),
        (b" { \n} \n", b' { \n"score":0.1} \n'),
        (b'{\n  "a": 1.00,\n  "a": "}"\n}\n', b'{\n  "a": 1.00,\n  "a": "}"\n,"score":0.1}\n'),
        (b'{"a":"{"}', b'{"a":"{","score":0.1}'),
        (b'{"a":{}}', b'{"a":{},"score":0.1}'),
    ],
)
def test_an_answer_may_be_the_record_with_fields_added(record_text: bytes, answer_text: bytes) -> None:
    """All of it is byte for byte as it came, whatever its neighbours are."""
    for others in ([b'{"x":1}', b'{"x":2}'], [b"{}", b'{"x":1}\n']):
        found = values(writer(SCORE, keep="all"), asked(kept=[record_text, *others]), SCORES)

        assert found[0] == answer_text
        json.loads(found[0])
        assert [json.loads(each)["score"] for each in found] == [0.1, 0.25, 1e30]


def test_a_record_of_another_encoding_is_added_to_as_json() -> None:
    """One that JSON cannot hold is refused alone."""
    by = writer(SCORE, keep="all")
    kept = [{"a": Decimal("1.0")}, {"a": "\ud800"}, {}]

    answers, rejections = apart(by.write(asked(kept=kept), [SCORES], 0))

    assert [answer and answer[2] for answer in answers] == [b'{"a":"1.0","score":0.1}', None, b'{"score":1e+30}']
    assert [(at, no.message) for at, no in rejections] == [
        (1, "the record: the answer keeps it, and it holds a value that cannot be written in JSON")
    ]


@pytest.mark.parametrize(("keep", "wrong", "right"), [("all", b'{"a":"\xff"}', b'{"a":1}'), (["a"], b'"\xff"', b"1")])
def test_a_kept_text_that_is_not_utf8_is_its_records_error(keep: Keep, wrong: bytes, right: bytes) -> None:
    """No reader could read the answer, and the mapping has not looked at all of the record."""
    kept = [wrong, right, right] if keep == "all" else [(msgspec.Raw(value),) for value in (wrong, right, right)]

    answers, [(at, no)] = apart(writer(SCORE, keep=keep).write(asked(kept=kept), [SCORES], 0))

    assert [answer and answer[2] for answer in answers] == [None, b'{"a":1,"score":0.25}', b'{"a":1,"score":1e+30}']
    assert (at, no.code) == (0, "INVALID_ARGUMENT")


def test_an_answer_has_the_headers_of_any_answer() -> None:
    """A reader needs no other ones for records."""
    one = asked(2, kept=[(1,), (2,)])
    one.ids = [Ids("r-0", None, (("correlation-id", b"c"),)), Ids()]

    first, second = written(writer(SCORE, keep=["id"]), one, SCORES[:2])

    assert headers_of(first) == {
        "content-type": "application/json",
        "status": "ok",
        "model-version": "1",
        "source": "requests/3/0",
        "request-id": "r-0",
        "correlation-id": "c",
    }
    assert headers_of(second)["source"] == "requests/3/1"
    assert second.value == b'{"id":2,"score":0.25}'
    one.kept = None
    assert values(writer(SCORE), one, SCORES[:2])[1] == b'{"score":0.25}'


def test_a_wrong_record_gets_an_error_in_json() -> None:
    """It has the record's own key."""
    codec = Codec([model(outputs=[SCORE])], PLAIN_WIRE, form_of=lambda _: record_form(["id"]))

    (error,) = map(Message._make, codec.messages([refused(codec)]))

    assert (error.key, error.value) == (b"k", b'{"error":"expected a request, got an empty value"}')
    assert headers_of(error)["content-type"] == "application/json"
    assert headers_of(error)["status"] == "error"


def test_an_answer_may_have_a_key_of_its_own() -> None:
    """Without keys of their own, answers have their records'."""
    for keys in (None, [b"1", b"", b"3"]):
        answers = written(writer(SCORE), asked(keys=keys), SCORES)

        assert [answer.key for answer in answers] == (keys or [b"k"] * 3)


def test_what_is_kept_goes_with_its_record() -> None:
    """Parts of a chunk have their records' kept fields and keys."""
    whole = asked(4, kept=[(at,) for at in range(4)], keys=[b"%d" % at for at in range(4)])

    for part in (whole.take(1, 3), whole.pick([1, 2])):
        assert (list(part.kept or ()), list(part.answer_keys or ())) == ([(1,), (2,)], [b"1", b"2"])
    assert list(whole.pick([0, 3]).kept or ()) == [(0,), (3,)]
    answers = written(writer(SCORE, keep=["id"]), whole.pick([0, 3]), SCORES)
    assert [(answer.key, answer.value) for answer in answers] == [
        (b"0", b'{"id":0,"score":0.1}'),
        (b"3", b'{"id":3,"score":0.25}'),
    ]


# Shapes of fields

GRID = np.arange(12, dtype="f4").reshape(2, 2, 3)


def parsed(found: Sequence[bytes]) -> list[Any]:
    return [json.loads(each) for each in found]


@pytest.mark.parametrize("most", [0, columns.MOST_WRITTEN])
def test_a_tensor_is_nested_lists(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones are written one by one, and look the same."""
    monkeypatch.setattr("worker.codecs.records.answers.MOST_WRITTEN", most)
    grid, vector = TensorSpec("grid", "FP32", (2, 3)), TensorSpec("vector", "FP32", (3,))
    tags = TensorSpec("tags", "BYTES", (2,))

    found = values(writer(grid, tags, vector), asked(2), GRID, np.array([["a", "b"], ["c", "d"]], object), GRID[:, 0])

    assert parsed(found) == [
        {"grid": GRID[0].tolist(), "tags": ["a", "b"], "vector": [0, 1, 2]},
        {"grid": GRID[1].tolist(), "tags": ["c", "d"], "vector": [6, 7, 8]},
    ]


@pytest.mark.parametrize("shape", [(2, 0), (2, 0, 3), (2, 3, 0)])
def test_an_empty_tensor_is_an_empty_list(shape: tuple[int, ...]) -> None:
    """This is as numpy nests it."""
    empty = np.zeros(shape, "f4")

    assert parsed(values(writer(TensorSpec("y", "FP32", shape[1:])), asked(2), empty)) == [
        {"y": part} for part in empty.tolist()
    ]


@pytest.mark.parametrize("rows", [[2, 2], [1, 3], [1, 1]])
def test_a_record_of_rows_has_lists(rows: list[int]) -> None:
    """Each field has one entry for a row, also of a single one."""
    count = sum(rows)
    scores, grids = np.arange(count, dtype="f4"), np.arange(count * 4, dtype="i8").reshape(count, 2, 2)
    labels = np.array([f"l{at}" for at in range(count)], object)

    found = parsed(
        values(
            writer(SCORE, LABEL, TensorSpec("grid", "INT64", (2, 2)), keep=["id"], has_rows=True),
            asked(2, kept=[(7,), (8,)], rows=rows),
            *(scores, labels, grids),
        )
    )

    first = rows[0]
    parts = [slice(0, first), slice(first, count)]
    assert found == [
        {"id": id_, "score": scores[part].tolist(), "label": labels[part].tolist(), "grid": grids[part].tolist()}
        for id_, part in zip((7, 8), parts, strict=True)
    ]


def test_a_field_has_no_padding() -> None:
    """An output with the length of a padded input is cut for each record."""
    signature = Signature(
        "m",
        "1",
        (TensorSpec("x", "FP32", (None,)),),
        (TensorSpec("y", "FP32", (None,)), TensorSpec("z", "BYTES", (None,))),
        axes=(Axis("x", (2, 4), {Spot(0, 0): 0}, (Spot(0, 0), Spot(1, 0))),),
    )
    by = AnswerWriter([signature], PLAIN_WIRE, form_of=lambda _: record_form())
    one = asked(2)
    one.shapes = [((1,),), ((2,),)]

    found = values(by, one, f4([[1, 0], [2, 3]]), np.array([["a", ""], ["b", "c"]], object))

    assert parsed(found) == [{"y": [1], "z": ["a"]}, {"y": [2, 3], "z": ["b", "c"]}]


def test_numbers_that_are_none_are_null_where_the_wire_says_so() -> None:
    """Else the record is refused, because JSON has no form for them."""
    odd = f4([1, np.nan, -np.inf])

    for wire in (Wire("r", "g", non_finite_output="null"), Wire("r", "g", non_finite_output="error")):
        assert parsed(values(writer(SCORE, wire=wire), asked(), odd)) == [
            {"score": 1},
            {"score": None},
            {"score": None},
        ]
    answers, rejections = apart(writer(SCORE, wire=Wire("r", "g", non_finite_output="allow")).write(asked(), [odd], 0))
    assert [answer is None for answer in answers] == [False, True, True]
    assert {(no.code, no.message) for _, no in rejections} == {
        ("INTERNAL", "output score: NaN or infinity has no form in JSON")
    }


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "UINT64", "INT64", "FP64"])
def test_a_number_keeps_its_value(datatype: str) -> None:
    """Integers of 64 bits have all their digits."""
    spec = TensorSpec("y", datatype, ())
    array = np.array([1, 0] if datatype == "BOOL" else [2**63 - 1, 0.1] if datatype == "FP64" else [255, 0], spec.dtype)
    if datatype in ("INT64", "UINT64"):
        array[0] = np.iinfo(spec.dtype).max

    assert parsed(values(writer(spec), asked(2), array)) == [{"y": each} for each in array.tolist()]


# Answers of an operator's function

MADE = TensorSpec("answer", "BYTES", ())


def dicts(*given: dict[str, Any]) -> Array:
    array = np.empty(len(given), object)
    array[:] = given
    return array


@pytest.mark.parametrize(
    ("keep", "kept", "begins"),
    [
        ((), None, b"{"),
        (["id"], [(1,)] * 3, b'{"id":1,'),
        ("all", [b'{"id": 1 }'] * 3, b'{"id": 1 ,'),
        ("all", [{"id": 1}] * 3, b'{"id":1,'),
    ],
)
@pytest.mark.parametrize("fields", [(), (SCORE,)])
def test_the_fields_that_a_function_made_come_last(
    keep: Keep, kept: Sequence[Any] | None, begins: bytes, fields: Sequence[TensorSpec]
) -> None:
    """They are fields of the answer like others; it may have made none."""
    by = writer(*fields, MADE, keep=keep)
    made = dicts({"a": [1.5, "x"], "b": None}, {}, {"c": {}})
    before = b'"score":%b,' if fields else b"%b"

    found = values(by, asked(kept=kept), *([SCORES] if fields else []), made)

    scores = [b"0.1", b"0.25", b"1e+30"] if fields else [b""] * 3
    ends = [b'"a":[1.5,"x"],"b":null}', b"}", b'"c":{}}']
    whole = [begins + before % score + end for score, end in zip(scores, ends, strict=True)]
    assert found == [each.replace(b",}", b"}") for each in whole]


def test_other_outputs_may_stand_behind_a_functions() -> None:
    """A model with state may answer with it."""
    found = values(writer(MADE, SCORE), asked(1), dicts({"a": 1}), SCORES[:1])

    assert found == [b'{"score":0.1,"a":1}']


def test_a_function_may_add_to_an_empty_record() -> None:
    """No comma stands before the first field."""
    assert values(writer(MADE, keep="all"), asked(2, kept=[b"{}", b"{ }"]), dicts({"a": 1}, {})) == [b'{"a":1}', b"{ }"]


@pytest.mark.parametrize(("keep", "kept"), [(["id"], (1,)), ("all", b'{"id":1}')])
def test_a_function_cannot_replace_a_kept_field(keep: Keep, kept: Any) -> None:
    """The record is refused alone."""
    made = dicts({"score": 1}, {"id": 2})

    answers, rejections = apart(writer(MADE, keep=keep).write(asked(2, kept=[kept, kept]), [made], 0))

    assert answers[0] is not None
    assert answers[0][2] == b'{"id":1,"score":1}'
    assert [(at, no.code, no.message) for at, no in rejections] == [
        (1, "INTERNAL", "the function `answer` gave the field 'id', which the answer has already")
    ]


def test_a_function_makes_an_entry_for_each_row() -> None:
    """They are a list then, in a field of that name."""
    found = values(writer(MADE, has_rows=True), asked(2, rows=[1, 2]), dicts({"a": 1}, {"a": 2}, {}))

    assert found == [b'{"answer":[{"a":1}]}', b'{"answer":[{"a":2},{}]}']


# Other answers


class Table:
    """Writes the columns as lines of text."""

    content_type = "text/table"

    def write(self, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        return [repr(each).encode() for each in zip(*columns, strict=True)]

    def error(self, message: str) -> bytes:
        return f"error: {message}".encode()


def test_answers_with_a_schema_are_written_from_columns_of_values() -> None:
    """Kept fields come first. A form that has NaN gets it; errors have the form of answers."""
    form = schema_form(Table())
    codec = Codec([model(outputs=[SCORE, LABEL])], PLAIN_WIRE, form_of=lambda _: form)
    one = asked(2, kept=[(1, "a"), (2, "b")])

    answers = codec.write(Prediction(one, [f4([0.5, np.nan]), LABELS[:2]]))
    error, *_ = codec.messages([refused(codec)])

    first, second = [Message._make(answer) for answer in answers if not isinstance(answer, Rejection)]
    assert [first.value, second.value] == [b"(1, 'a', 0.5, 'ok')", b"(2, 'b', nan, 'fr\"aud,\\n')"]
    assert Message._make(error).value == b"error: expected a request, got an empty value"
    for each in (first, Message._make(error)):
        assert headers_of(each)["content-type"] == "text/table"


def test_a_schema_has_columns_for_the_fields_of_whole_records() -> None:
    """A field that a record lacks is None there."""
    form = schema_form(Table(), ["id", "note"])
    by = AnswerWriter([model(outputs=[SCORE])], PLAIN_WIRE, form_of=lambda _: form)

    found = values(by, asked(2, kept=[{"note": "a", "id": 1, "x": 0}, {"id": 2}]), f4([1, 2]))

    assert found == [b"(1, 'a', 1.0)", b"(2, None, 2.0)"]


def test_several_rows_are_lists_of_values() -> None:
    """So a schema's array has them."""
    form = schema_form(Table(), has_rows=True)
    by = AnswerWriter([model(outputs=[SCORE])], PLAIN_WIRE, form_of=lambda _: form)

    assert values(by, asked(2, rows=[1, 2]), f4([1, 2, 3])) == [b"([1.0],)", b"([2.0, 3.0],)"]


def refused(codec: Codec) -> Any:
    (_, rejection), *_ = codec.read([record(b"")]).rejections
    return rejection
