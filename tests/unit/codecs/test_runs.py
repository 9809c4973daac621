"""Neighbouring plain rows are decoded together, and answered exactly as each would be alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.codecs.builders import (
    AS_JSON,
    AS_PROTOBUF,
    AS_ROWS,
    OF_FP32,
    OF_FP64,
    PLAIN_WIRE,
    X,
    codecs,
    document,
    giving,
    model,
    record,
    taking,
    tensor,
)
from worker.codecs.encodings import oip_protobuf
from worker.codecs.registry import Codecs, SingleCodecs
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.failures import TooManyRejections
from worker.core.records import Headers, Message, Partition, Prediction, Record, Rejection, Request, Timeout
from worker.core.rejections import Rejections
from worker.core.runs import Run, predictions
from worker.core.tensors.specs import TensorSpec

P3, P4 = Partition("requests", 3), Partition("requests", 4)
ROW = np.arange(3, dtype="<f4").tobytes()


def rows(offset: int, value: bytes | None = ROW, *, headers: Headers = (AS_ROWS,), partition: Partition = P3) -> Record:
    return record(value, key=b"k%d" % offset)._replace(offset=offset, headers=list(headers), partition=partition)


def flat(decoded: Sequence[Request | Rejection]) -> list[Request | Rejection]:
    """The decoded items, with each run split into single requests."""
    return [single for one in decoded for single in ([*one.singles()] if isinstance(one, Run) else [one])]


def facts(one: Request | Rejection) -> object:
    if isinstance(one, Rejection):
        return one
    return one.record, one.rows, one.tensors, one.shapes, one.reply, one.size, one.timeout


def answers(codec: Codecs, run: Run, outputs: np.ndarray) -> Sequence[Message]:
    return codec.encode(Prediction(run, [outputs], 0, run.rows))


def test_where_each_key_has_an_order_of_its_own_each_record_comes_by_itself() -> None:
    """Each request equals the one that it would be in a run."""
    records = [rows(at) for at in (1, 2, 5, 9)]

    singles = SingleCodecs([model()], PLAIN_WIRE, tell=lambda _: None).decode_all(records)

    assert [one.record for one in singles] == records
    assert [facts(one) for one in singles] == [facts(one) for one in flat(codecs().decode_all(records))]


def test_rows_that_are_wanted_by_different_times_come_as_one() -> None:
    """Each keeps its own timeout; where none has one, the run keeps none."""
    deadlines = [("deadline", b"170000000000%d" % at) for at in range(4)]
    (run,) = codecs().decode_all([rows(at, headers=[AS_ROWS, header]) for at, header in enumerate(deadlines)])
    (plain,) = codecs().decode_all([rows(at, headers=[AS_ROWS, ("request-id", b"%d" % at)]) for at in range(4)])

    assert isinstance(run, Run)
    assert list(run.timeouts) == [Timeout(None, 1_700_000_000 + at / 1000) for at in range(4)]
    assert [single.timeout for single in run.singles()] == list(run.timeouts)
    assert isinstance(plain, Run)
    assert plain.timeouts == ()


def test_what_is_odd_stands_alone_and_its_neighbours_do_not() -> None:
    """One bad record only cuts the run in two."""
    given = [rows(at, b"odd" if at == 20 else ROW) for at in range(64)]

    decoded = codecs().decode_all(given)

    assert list(map(facts, flat(decoded))) == list(map(facts, map(codecs().decode, given)))
    assert len(decoded) <= 12
    assert sum(isinstance(one, Rejection) for one in decoded) == 1


def test_rows_that_say_what_they_are_come_as_one() -> None:
    """A run needs equal statements: rows with these headers get them in the answer, rows without do not."""
    full = [AS_ROWS, OF_FP32, ("rows", b"1")]
    (alike,) = codecs().decode_all([rows(at, headers=[*full, ("request-id", b"%d" % at)]) for at in range(4)])
    halves = codecs().decode_all([rows(at, headers=full if at < 4 else [AS_ROWS]) for at in range(8)])

    assert isinstance(alike, Run)
    assert [len(run.records) for run in halves if isinstance(run, Run)] == [4, 4]


@pytest.mark.parametrize("said", [OF_FP64, ("rows", b"2")])
def test_one_that_says_otherwise_is_refused_alone(said: tuple[str, bytes]) -> None:
    """The others state their type, and have equal lengths."""
    records = [rows(at, headers=[AS_ROWS, said if at == 20 else OF_FP32]) for at in range(64)]

    decoded = codecs().decode_all(records)

    assert [one.record.offset for one in decoded if isinstance(one, Rejection)] == [20]
    assert list(map(facts, flat(decoded))) == list(map(facts, map(codecs().decode, records)))


@pytest.mark.parametrize(
    "signature",
    [
        model(X, replace(X, name="z")),
        taking("BOOL"),
        giving("FP32", "FP32"),
        giving("BYTES"),
        model(TensorSpec("x", "FP32", (None,))),
    ],
    ids=["two inputs", "booleans", "two outputs", "strings", "dynamic"],
)
def test_what_rows_do_not_answer_or_needs_a_look_never_runs(signature: object) -> None:
    """Each is decoded by itself."""
    given = [rows(at) for at in range(8)]

    decoded = codecs(signature).decode_all(given)  # type: ignore[arg-type]  # parametrized

    assert list(map(facts, decoded)) == [facts(codecs(signature).decode(one)) for one in given]  # type: ignore[arg-type]  # as above


HEADERS = st.sampled_from(
    [
        [AS_ROWS],
        [AS_ROWS, ("correlation-id", b"c")],
        [AS_ROWS, ("request-id", b"r")],
        [AS_ROWS, ("timeout-ms", b"250")],
        [AS_ROWS, ("timeout-ms", b"250"), ("request-id", b"r")],
        [AS_ROWS, ("deadline", b"1700000000250")],
        [AS_ROWS, ("accept", b"application/json")],
        [AS_ROWS, OF_FP32],
        [AS_ROWS, OF_FP32, ("rows", b"1")],
        [AS_ROWS, ("rows", b"1"), ("request-id", b"r")],
        [AS_ROWS, ("rows", b"2")],
        [AS_ROWS, OF_FP64],
        [AS_ROWS, ("content-type", b"nonsense")],
        [AS_JSON],
        [],
    ]
)
VALUES = st.sampled_from([ROW, ROW, ROW, ROW * 2, b"odd", b"", None])
# A part repeats a record: four equal neighbours would hardly ever come from records drawn one by one.
RECORDS = st.lists(st.tuples(HEADERS, VALUES, st.sampled_from([P3, P3, P3, P4]), st.integers(1, 9)), max_size=8)


def test_together_or_alone_the_same_is_decoded() -> None:
    """Requests, rejections, replies, rows and sizes agree, in order."""
    met: Counter[str] = Counter()

    @given(RECORDS)
    def check(parts: list[tuple[Headers, bytes | None, Partition, int]]) -> None:
        codec = codecs(max_request_bytes=20)
        shapes = [(headers, value, p) for headers, value, p, count in parts for _ in range(count)]
        given_ = [rows(at, value, headers=headers, partition=p) for at, (headers, value, p) in enumerate(shapes)]

        decoded = codec.decode_all(given_)

        assert list(map(facts, flat(decoded))) == list(map(facts, map(codec.decode, given_)))
        for run in runs_among(decoded, met):
            assert run.size == sum(run.sizes)
            assert [len(run.values), run.rows] == [len(run.records), sum(one.rows for one in run.singles())]
            assert list(run.values) == [record.value for record in run.records]

    check()

    assert met["alone"] >= 30
    assert met["in a run"] >= 30


def runs_among(decoded: Sequence[Request | Rejection], met: Counter[str]) -> list[Run]:
    """The runs, counted together with single items: a property whose examples meet none of them proves nothing."""
    runs = [one for one in decoded if isinstance(one, Run)]
    met["in a run"] += len(runs)
    met["alone"] += len(decoded) - len(runs)
    return runs


NUMBERS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3)
FORMS = st.sampled_from(
    [
        *("raw", "contents", "json", "binary", "binary, answered inline", "binary, short", "named", "correlated"),
        *("null", "rows", "rows, bad", "rows, answered inline"),
    ]
)


def in_form(form: str, numbers: list[float], at: int) -> Record:
    """A request of one row in this form, as its publisher would send it."""
    raw = np.array(numbers, "<f4").tobytes()
    if form == "correlated":
        return in_form("raw", numbers, at)._replace(headers=[AS_PROTOBUF, ("correlation-id", b"%d" % (at // 5))])
    if form in ("rows", "rows, bad"):
        return rows(at, raw[: 12 if form == "rows" else 7])
    if form == "rows, answered inline":
        return rows(at, raw, headers=[AS_ROWS, ("accept", AS_JSON[1]), ("request-id", b"%d" % at)])
    if form == "null":
        return rows(at, None, headers=[AS_PROTOBUF])
    if form in ("raw", "named"):
        message = oip_protobuf._InferRequest(id=f"r-{at}" if form == "named" else "")
        message.inputs.add(name="x", datatype="FP32", shape=[1, 3])
        message.raw_input_contents.append(raw)
        return rows(at, message.SerializeToString(), headers=[AS_PROTOBUF])
    if form == "contents":
        message = oip_protobuf._InferRequest()
        message.inputs.add(name="x", datatype="FP32", shape=[1, 3]).contents.fp32_contents.extend(numbers)
        return rows(at, message.SerializeToString(), headers=[AS_PROTOBUF])
    if form == "json":
        return rows(at, json.dumps(document(inputs=[tensor(data=numbers)])).encode(), headers=[AS_JSON])
    entry = {"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}
    wanted = [{"name": "y", "parameters": {"binary_data": False}}] if form == "binary, answered inline" else []
    head = json.dumps({"inputs": [entry], "outputs": wanted}).encode()
    value = head + (raw[:-1] if form == "binary, short" else raw)
    return rows(at, value, headers=[AS_ROWS, (HEAD_LENGTH, b"%d" % len(head))])


def test_requests_of_one_form_are_decoded_and_answered_as_each_alone() -> None:
    """Protobuf, the binary-data form and JSON come in any mixture."""
    met: Counter[str] = Counter()

    @given(st.lists(st.tuples(FORMS, st.integers(1, 9), NUMBERS), min_size=1, max_size=8))
    def check(parts: list[tuple[str, int, list[float]]]) -> None:
        codec = codecs()
        forms = [(form, [n + at for n in numbers]) for form, count, numbers in parts for at in range(count)]
        given_ = [in_form(form, numbers, at) for at, (form, numbers) in enumerate(forms)]

        decoded = codec.decode_all(given_)

        assert [plain(one) for one in flat(decoded)] == [plain(codec.decode(one)) for one in given_]
        for run in runs_among(decoded, met):
            outputs = np.random.default_rng(1).standard_normal((run.rows, 2), dtype=np.float32)
            whole = Prediction(run, [outputs], 0, run.rows)
            alone = [message for single in predictions(whole) for message in codec.encode(single)]
            assert list(codec.encode(whole)) == alone

    check()

    assert met["alone"] >= 30
    assert met["in a run"] >= 30


def plain(one: Request | Rejection) -> object:
    """The comparable facts of an item, with its tensor as bytes."""
    if isinstance(one, Rejection):
        return one
    (found,) = one.tensors
    return one.record, one.rows, np.asarray(np.frombuffer(found, "<f4")).tobytes(), one.shapes, one.reply, one.size


class Counting(Codecs):
    """Counts how often a record is decoded singly."""

    decoded = 0

    def decode(self, record: Record) -> Request | Rejection:
        self.decoded += 1
        return super().decode(record)


@pytest.mark.parametrize("odd", ["binary", "binary, short", "json", "named", "correlated", "null"])
def test_what_is_odd_among_requests_of_one_form_keeps_only_itself_apart(odd: str) -> None:
    """Two odd ones among a hundred do not make the others be decoded singly."""
    given_ = [in_form(odd if at in (10, 70) else "raw", [at + 2.5, 2.0, 3.0], at) for at in range(100)]
    codec = Counting([model()], PLAIN_WIRE, tell=lambda _: None)

    decoded = codec.decode_all(given_)

    assert [plain(one) for one in flat(decoded)] == [plain(codecs().decode(one)) for one in given_]
    assert [len(one.records) if isinstance(one, Run) else 1 for one in decoded] == [10, 1, 59, 1, 29]
    assert codec.decoded == 5 + 3  # the first of each run once more, with other rows


@pytest.mark.parametrize(
    "form", ["named", "json", "binary, short", "null", "rows, bad", "rows, answered inline", "correlated"]
)
def test_where_all_are_odd_each_is_decoded_once(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for any number of them, and the headers of few are read twice."""
    codec = Counting([model()], PLAIN_WIRE, tell=lambda _: None)
    read = Mock(wraps=codec._envelopes.read)
    monkeypatch.setattr(codec._envelopes, "read", read)

    decoded = codec.decode_all([in_form(form, [at + 2.5, 2.0, 3.0], 100 + at * 5) for at in range(180)])

    assert len(decoded) == codec.decoded == 180
    assert read.call_count < 200


def test_what_only_looks_alike_stays_apart() -> None:
    """The cases: answers inline, a tensor that is not at the end, different headers."""
    inline = [in_form("binary, answered inline", [at + 2.5, 2.0, 3.0], at) for at in range(8)]
    behind = [one._replace(value=(one.value or b"") + b"\xfa\x07\x0c" + bytes(12)) for one in typed_raw()]
    others = [
        one._replace(headers=[*one.headers, ("correlation-id", b"%d" % at)]) for at, one in enumerate(typed_raw())
    ]

    for given_ in (inline, behind, others):
        decoded = codecs().decode_all(given_)

        assert [plain(one) for one in decoded] == [plain(codecs().decode(one)) for one in given_]


def typed_raw() -> list[Record]:
    return [in_form("raw", [2.5, 2.0, 3.0], at) for at in range(8)]


@pytest.mark.parametrize("refused", [(0, 1, 3), (2, 3, 4)])
def test_the_answers_of_a_run_count_one_by_one(refused: tuple[int, ...]) -> None:
    """Refusals with a result between them are no three in a row; a run of results ends any row."""
    rejections = Rejections(3)
    codec = codecs(rejections=rejections, max_answer_bytes=9_000)
    for too_long in [(3, 4), (), refused]:
        given = [rows(at)._replace(key=b"k" * (9_000 if at in too_long else 3)) for at in range(5)]
        (run,) = codec.decode_all(given)
        assert isinstance(run, Run)
        answers(codec, run, np.zeros((5, 2), "<f4"))

    with pytest.raises(TooManyRejections) if refused == (2, 3, 4) else nullcontext():
        rejections.check()


@pytest.mark.parametrize(("datatype", "field", "odd"), [("UINT8", "uint_contents", 200), ("INT8", "int_contents", 300)])
def test_small_integers_of_a_protobuf_field_are_no_rows(datatype: str, field: str, odd: int) -> None:
    """A small element is one byte and looks like the element itself; a larger one takes two bytes."""

    def asking(*values: int) -> bytes:
        message = oip_protobuf._InferRequest()
        asked = message.inputs.add(name="x", datatype=datatype, shape=[1, 3])
        getattr(asked.contents, field).extend(values)
        return bytes(message.SerializeToString())

    values = [asking(5, 6, 7), asking(odd, 7), asking(5, 6, 7), asking(1, 2, 3)]
    assert len(set(map(len, values))) == 1
    records = [rows(at, value, headers=[AS_PROTOBUF]) for at, value in enumerate(values)]
    codec = codecs(taking(datatype, 3))

    together = flat(codec.decode_all(records))

    assert [one.message if isinstance(one, Rejection) else list(map(bytes, one.tensors)) for one in together] == [
        [b"\5\6\7"],
        f"input x: the shape holds 3 elements, {field} has 2",
        [b"\5\6\7"],
        [b"\1\2\3"],
    ]
