"""Answers that are written a chunk at once: keys, headers, forms and sizes, each as its requester wants it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.codecs.builders import (
    ROWS_FORM,
    SOURCE,
    apart,
    chunk,
    f4,
    floats,
    giving,
    headers_of,
    json_of,
    message,
    model,
    packed,
    record,
    writer,
    written,
)
from worker.codecs import answer_writer
from worker.codecs.encodings import columns
from worker.codecs.encodings.oip_protobuf import read_tensors
from worker.codecs.message_sizes import ROOM_FOR_HEADERS, fits, size_of
from worker.codecs.wire_contract import HEAD_LENGTH, JSON, OCTETS, PROTOBUF
from worker.core.chunk import Chunk
from worker.core.records import (
    Answer,
    Array,
    Ids,
    Message,
    ModelKey,
    Record,
    Rejection,
    ReplyForm,
    ReplyTo,
    RequestedOutput,
)
from worker.core.tensors.buckets import Axis, Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

TWO = f4([[1, 2]])
TRACE = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
INLINE, BYTES = RequestedOutput("y", binary=False), RequestedOutput("y", binary=True)
AS_JSON, AS_PROTOBUF, AS_BINARY = ReplyForm(JSON, (INLINE,)), ReplyForm(PROTOBUF, (BYTES,)), ReplyForm(OCTETS, (BYTES,))
FORMS = [ROWS_FORM, ROWS_FORM._replace(states_rows=True), AS_JSON, AS_PROTOBUF, AS_BINARY]


def records(count: int) -> list[Record]:
    return [record(b"v", key=b"k-%d" % at)._replace(offset=at) for at in range(count)]


def test_an_answer_carries_key_source_and_status() -> None:
    """It carries nothing that its requester does not need."""
    (answer,) = written(writer(), chunk(), TWO)

    assert tuple(answer) == ("responses", b"k", floats(1, 2), answer.headers, 3, None)
    assert headers_of(answer) == {
        "content-type": "application/octet-stream",
        "status": "ok",
        "model-version": "1",
        "source": SOURCE,
    }


@pytest.mark.parametrize("form", FORMS)
def test_every_answer_says_which_file_gave_it(form: ReplyForm) -> None:
    """The header holds the version as set, and the beginning of the file's digest: rows have no other place for it."""
    served = replace(model(), sha256="3f9a2b1c" * 8)

    (answer,) = written(writer(served), chunk(form=form), TWO)

    assert headers_of(answer)["model-version"] == "1@3f9a2b1c"


def test_an_answer_names_the_version_that_ran() -> None:
    """This may not be the version that is served when the answer is written."""
    by = writer(model(), replace(model(), version="2"))
    asked = [chunk(form=form) for form in (AS_JSON, AS_PROTOBUF)]
    for each in asked:
        each.model = ModelKey("m", "2")

    in_json, in_protobuf = [written(by, each, TWO)[0] for each in asked]

    assert json_of(in_json)["model_version"] == headers_of(in_json)["model-version"] == "2"
    assert read_tensors(in_protobuf.value or b"", "outputs")[0]["model_version"] == "2"
    assert headers_of(in_protobuf)["model-version"] == "2"


def test_each_answer_names_its_own_request() -> None:
    """Ids and echoes of one request are not in the answer to another."""
    ids = [Ids("r-0", "b-0"), Ids(), Ids(None, None, (TRACE, ("kafka_correlationId", b"\x01\xff")))]

    for form in FORMS:
        answers = written(writer(), chunk(*records(3), form=form, ids=ids), f4([[1, 2], [3, 4], [5, 6]]))

        names = ["source", "request-id", "traceparent", "kafka_correlationId"]
        ends = [[(name, value) for name, value in answer.headers if name in names] for answer in answers]
        assert ends == [
            [("source", b"requests/3/0"), ("request-id", b"r-0")],
            [("source", b"requests/3/1")],
            [("source", b"requests/3/2"), TRACE, ("kafka_correlationId", b"\x01\xff")],
        ]
        assert list(answers[2].headers[-2:]) == ends[2][1:]
        if form is AS_JSON:
            assert [json_of(answer).get("id") for answer in answers] == ["b-0", None, None]
        if form is AS_PROTOBUF:
            assert [read_tensors(answer.value or b"", "outputs")[0].get("id") for answer in answers] == [
                "b-0",
                None,
                None,
            ]


def test_rows_are_answered_with_rows() -> None:
    """They are row-major, whatever the array's layout in memory."""
    output = np.asfortranarray(f4([[1, 2], [3, 4]]))

    (two,) = written(writer(), chunk(rows=[2]), output)
    one, other = written(writer(), chunk(*records(2)), output)

    assert two.value == floats(1, 2, 3, 4)
    assert (one.value, other.value) == (floats(1, 2), floats(3, 4))
    assert HEAD_LENGTH not in headers_of(two)


def test_rows_that_say_what_they_are_get_answers_that_do() -> None:
    """The header names the output's datatype. An answer in another form needs no such headers."""
    by = writer(model(outputs=[TensorSpec("y", "FP64", (2,))]))
    output = np.arange(6, dtype="<f8").reshape(3, 2)

    answers = written(by, chunk(*records(2), rows=[2, 1], form=ROWS_FORM._replace(states_rows=True)), output)
    (in_json,) = written(by, chunk(rows=[3], form=AS_JSON._replace(states_rows=True)), output)

    assert [(headers_of(each)["datatype"], headers_of(each)["rows"]) for each in answers] == [
        ("FP64", "2"),
        ("FP64", "1"),
    ]
    assert [name for name, _ in answers[0].headers[3:]] == ["datatype", "rows", "source"]
    assert not {"datatype", "rows"} & set(headers_of(in_json))


def test_an_answer_in_json_names_model_version_id_and_outputs() -> None:
    """Numbers have as many digits as are needed to tell them apart, and no more."""
    (answer,) = written(writer(), chunk(form=AS_JSON, ids=[Ids("i-1", "i-1")]), f4([[0.1, 1e-30]]))

    assert answer.value == (
        b'{"model_name":"m","model_version":"1","id":"i-1",'
        b'"outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","data":[0.1,1e-30]}]}'
    )


def test_the_binary_data_form_is_json_with_bytes_behind_it() -> None:
    """It carries several outputs, half floats and strings; an output that is wanted so stands in the JSON."""
    form = ReplyForm(OCTETS, (RequestedOutput("c", True), RequestedOutput("b", False), RequestedOutput("a", True)))
    given_ = np.array([[1.5]], "<f2"), np.array([[7]], "<i8"), np.array([["grüße"]], object)

    (answer,) = written(writer(giving("FP16", "INT64", "BYTES")), chunk(form=form), *given_)

    assert answer.value is not None
    head = int(headers_of(answer)[HEAD_LENGTH])
    assert answer.value[:head] == (
        b'{"model_name":"m","model_version":"1","outputs":['
        b'{"name":"c","shape":[1,1],"datatype":"BYTES","parameters":{"binary_data_size":11}},'
        b'{"name":"b","shape":[1,1],"datatype":"INT64","data":[7]},'
        b'{"name":"a","shape":[1,1],"datatype":"FP16","parameters":{"binary_data_size":2}}]}'
    )
    assert answer.value[head:] == packed("grüße") + np.float16(1.5).tobytes()


@pytest.mark.parametrize("rows", [[1, 1, 1], [2, 1, 3]])
@pytest.mark.parametrize("where", [0, 1, 2])
@pytest.mark.parametrize(("policy", "odd"), [("error", 7.0), ("null", None), ("allow", None)])
def test_json_has_no_nan(rows: list[int], where: int, policy: Any, odd: float | None) -> None:
    """The policy makes it null or an error, for this record only. With "error" no NaN gets this far."""
    served = model(outputs=[TensorSpec("t", "BYTES", ()), TensorSpec("y", "FP32", (1,))])
    refused = [where] if policy == "allow" else []
    values = np.arange(sum(rows), dtype="<f4").reshape(-1, 1)
    values[sum(rows[:where])] = 7 if odd else np.nan
    texts = np.array(["s"] * sum(rows), object)

    answers, rejections = apart(
        writer(served, non_finite_output=policy).write(
            chunk(*records(3), rows=rows, form=ReplyForm(JSON)), [texts, values], 0
        )
    )

    expected = np.split(np.array([float(n) for n in range(sum(rows))], object), np.cumsum(rows)[:-1])
    expected[where][0] = odd
    found = [answer and json_of(message(answer))["outputs"][1]["data"] for answer in answers]
    assert found == [None if at in refused else list(own) for at, own in enumerate(expected)]
    assert [(at, rejection.record.offset, rejection.code, rejection.message) for at, rejection in rejections] == [
        (at, at, "INTERNAL", "output y: NaN or infinity has no form in JSON; accept another type") for at in refused
    ]


def test_bytes_carry_nan_where_it_is_allowed() -> None:
    """Only JSON has no form for NaN. Finite outputs pass in JSON."""
    form = ReplyForm(OCTETS, (RequestedOutput("a", True), RequestedOutput("b", False)))

    assert written(
        writer(giving("FP32", "FP32"), non_finite_output="allow"), chunk(form=form), f4([[np.nan]]), f4([[1]])
    )


# Where it goes, and whether it fits


def test_how_many_forms_of_answers_are_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requesters choose outputs and partitions. Each gets its answer where it wants it, in any order."""
    monkeypatch.setattr(answer_writer, "_MOST_KNOWN", 3)
    by = writer()

    for number in (*range(9), *range(9)):
        (answer,) = written(by, chunk(form=ROWS_FORM._replace(to=ReplyTo("mine", number))), TWO)

        assert (answer.topic, answer.partition, answer.value) == ("mine", number, floats(1, 2))
        assert len(by._known) <= 3


def test_each_topic_has_a_limit_of_its_own() -> None:
    """An answer may be too large for one topic and fit another."""
    by = writer(reply_bytes={"mine": 400})
    mine = ROWS_FORM._replace(to=ReplyTo("mine", None))
    output = np.zeros((1, 100), "<f4")

    (refused,) = by.write(chunk(form=mine), [output], 0)

    assert isinstance(refused, Rejection)
    assert written(by, chunk(), output)
    assert refused.form is mine
    assert refused.message.endswith("topic mine at most 400")


@pytest.mark.parametrize("large", [[0], [2], [4], [0, 1, 4], [0, 1, 2, 3, 4]])
def test_an_answer_that_does_not_fit_is_refused_alone(large: list[int]) -> None:
    """Its neighbours have their answers. The rejection says how long the answer is, and names its requester's ids."""
    given_ = [one._replace(key=b"k" * 9_000) if at in large else one for at, one in enumerate(records(5))]
    ids = [Ids(f"r-{at}") for at in range(5)]

    answers, rejections = apart(
        writer(max_answer_bytes=9_000).write(chunk(*given_, ids=ids), [np.arange(10, dtype="<f4").reshape(5, 2)], 0)
    )

    assert [answer and answer[2] for answer in answers] == [
        None if at in large else floats(2 * at, 2 * at + 1) for at in range(5)
    ]
    assert [at for at, _ in rejections] == large
    for at, rejection in rejections:
        (whole,) = written(writer(), chunk(given_[at], ids=ids[at : at + 1]), f4([[4, 5]]))
        assert (rejection.record, rejection.ids, rejection.form) == (given_[at], ids[at], ROWS_FORM)
        assert rejection.code == "RESOURCE_EXHAUSTED"
        assert rejection.message == f"the answer takes {size_of(whole)} bytes, topic responses at most 9000"


@pytest.mark.parametrize(("sizes", "calls"), [([2, 501, 3], 2), ([501], 0), ([501] * 4, 0), ([60] * 12, 1)])
def test_an_answer_in_json_that_cannot_fit_is_not_written(
    sizes: list[int], calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing millions of numbers takes seconds, in which the worker does nothing else."""
    write = Mock(wraps=columns.in_json)
    monkeypatch.setattr(columns, "in_json", write)
    by = writer(model(outputs=[TensorSpec("y", "FP32", (1,))]), max_answer_bytes=1000)

    answers, rejections = apart(
        by.write(chunk(*records(len(sizes)), rows=sizes, form=AS_JSON), [np.zeros((sum(sizes), 1), "<f4")], 0)
    )

    assert [answer is None for answer in answers] == [size > 500 for size in sizes]
    assert {rejection.message for _, rejection in rejections} <= {
        "the answer takes more than 1002 bytes, topic responses at most 1000"
    }
    assert write.call_count == calls


def test_bytes_are_as_long_as_they_are() -> None:
    """Only a number that stands in JSON takes at least two bytes."""
    form = ReplyForm(OCTETS, (RequestedOutput("a", True), RequestedOutput("b", False)))

    assert written(
        writer(giving("INT8", "INT8"), max_answer_bytes=1300), chunk(form=form), np.ones((1, 700), "i1"), f4([[1]])
    )


def test_an_answer_may_fill_its_topic_to_the_byte() -> None:
    """This holds when the size is counted, and when the room is so large that it need not be."""
    (fitting,) = written(writer(), chunk(), TWO)

    assert written(writer(max_answer_bytes=size_of(fitting)), chunk(), TWO)
    assert apart(writer(max_answer_bytes=size_of(fitting) - 1).write(chunk(), [TWO], 0))[1]
    assert fits(fitting, ROOM_FOR_HEADERS + len("k") + 8)


# Together or alone

NUMBERS = ["BOOL", "INT8", "UINT16", "INT32", "UINT64", "FP16", "FP32", "FP64"]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Signature, ReplyForm, Chunk, list[Array], int]:
    """A chunk somewhere in a batch, and the batch's outputs; some have an axis that is padded to 5."""
    count = draw(st.integers(1, 6))
    datatypes = draw(st.lists(st.sampled_from([*NUMBERS, "BYTES"]), min_size=1, max_size=3))
    axis = Axis("x", (5,), {Spot(0, 0): 0}, [Spot(at, 0) for at in range(len(datatypes)) if draw(st.booleans())])
    outputs_ = [TensorSpec(name, of, (None,)) for name, of in zip("a%c", datatypes, strict=False)]
    served = replace(model(TensorSpec("x", "FP32", (None,)), outputs=outputs_), axes=(axis,))
    content_type = draw(st.sampled_from([JSON, OCTETS, PROTOBUF]))
    wanted = draw(st.permutations(outputs_))[: draw(st.integers(1, 3))]
    form = ReplyForm(
        content_type,
        tuple(
            RequestedOutput(
                spec.name,
                content_type == PROTOBUF
                or (content_type == OCTETS and (draw(st.booleans()) or spec.datatype == "FP16")),
            )
            for spec in wanted
            if content_type != JSON or spec.datatype != "FP16"
        ),
    )
    if not form.outputs:
        form = ReplyForm(PROTOBUF)
    few, lengths = draw(st.sampled_from([(1, 1), (3, 3), (1, 5), (3, 5)]))
    rows = draw(st.lists(st.integers(1, few), min_size=count, max_size=count))
    shapes = [((draw(st.integers(1, lengths)),),) for _ in range(count)]
    ids = draw(
        st.none() | st.lists(st.sampled_from([Ids(), Ids("é", "é"), Ids(None, "")]), min_size=count, max_size=count)
    )
    start = draw(st.integers(0, 2))
    numbers = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 99, (start + sum(rows) + 1, 5))
    arrays = [
        np.vectorize(str, [object])(numbers) if of == "BYTES" else numbers.astype(spec.dtype)
        for of, spec in zip(datatypes, outputs_, strict=True)
    ]
    return (
        served,
        form,
        chunk(*records(count), form=form, signature=served, rows=rows, shapes=shapes, ids=ids),
        arrays,
        start,
    )


def tensors_in(answer: Message) -> list[tuple[str, str, list[int], list[Any]]]:
    """The outputs of an answer, as a reader of its form sees them."""
    if headers_of(answer)["content-type"] == PROTOBUF:
        return [
            (name, of, shape, read(of, raw)) for name, of, shape, raw in read_tensors(answer.value or b"", "outputs")[1]
        ]
    at = int(headers_of(answer).get(HEAD_LENGTH, len(answer.value or b"")))
    found = []
    for output in json_of(answer._replace(value=(answer.value or b"")[:at]))["outputs"]:
        data = output.get("data")
        if data is None:
            size = output["parameters"]["binary_data_size"]
            data = read(output["datatype"], (answer.value or b"")[at : at + size])
            at += size
        found.append((output["name"], output["datatype"], output["shape"], data))
    return found


def read(datatype: str, raw: Any) -> list[Any]:
    if datatype != "BYTES":
        numbers: list[Any] = np.frombuffer(raw, TensorSpec("", datatype, ()).dtype).tolist()
        return numbers
    texts = []
    while raw:
        end = 4 + int.from_bytes(raw[:4], "little")
        texts.append(raw[4:end].decode())
        raw = raw[end:]
    return texts


def own_outputs(served: Signature, asked: Chunk, outputs: Sequence[Array], start: int) -> list[list[Any]]:
    """The wanted outputs of each record, cut out of the batch by hand."""
    names = [wanted.name for wanted in asked.form.outputs] or [spec.name for spec in served.outputs]
    found = []
    for rows, shapes in zip(asked.rows, asked.shapes, strict=True):
        own = []
        for at in [served.output_index[name] for name in names]:
            is_padded = any(spot.tensor == at for spot in served.axes[0].outputs)
            part = outputs[at][start : start + rows, : shapes[0][0] if is_padded else None]
            own.append(
                (served.outputs[at].name, served.outputs[at].datatype, list(part.shape), part.reshape(-1).tolist())
            )
        start += rows
        found.append(own)
    return found


def test_together_or_alone_each_gets_its_own_rows() -> None:
    """This holds in every form, for any rows, lengths and ids. The records after a cut get what they got before."""
    met: Counter[str] = Counter()

    @given(batches())
    def check(case: tuple[Signature, ReplyForm, Chunk, list[Array], int]) -> None:
        served, form, asked, outputs, start = case
        by = writer(served)

        together = written(by, asked, *outputs, start=start)

        assert list(map(tensors_in, together)) == own_outputs(served, asked, outputs, start)
        alone, at = [], start
        for index, rows in enumerate(asked.rows):
            alone += written(by, asked.take(index, index + 1), *outputs, start=at)
            at += rows
        assert together == alone
        met["even" if len({*asked.rows}) == 1 else "uneven"] += len(together) > 1
        met[form.content_type] += 1

    check()

    assert min(met[kind] for kind in ("even", "uneven", JSON, OCTETS, PROTOBUF)) >= 10


def test_together_or_alone_each_is_refused_for_what_is_wrong_with_it() -> None:
    """NaN has no form in JSON, and some answers have no room. The others are written, whatever is between them."""
    met: Counter[str] = Counter()

    @settings(max_examples=300)
    @given(batches(), st.sets(st.integers(0, 9)), st.integers(0, 5))
    def check(case: tuple[Signature, ReplyForm, Chunk, list[Array], int], odd: set[int], largest: int) -> None:
        served, _, asked, outputs, start = case
        sizes = sorted(map(size_of, written(writer(served), asked, *outputs, start=start)))
        for spec, output in zip(served.outputs, outputs, strict=True):
            if spec.is_float:
                output[[row for row in odd if row < len(output)]] = np.nan
        by = writer(served, max_answer_bytes=sizes[largest % len(sizes)], non_finite_output="allow")

        answers = by.write(asked, outputs, start)

        alone, at = list[Answer](), start
        for index, rows in enumerate(asked.rows):
            alone += by.write(asked.take(index, index + 1), outputs, at)
            at += rows
        assert list(answers) == alone
        _, refused = apart(alone)
        met["some are refused"] += 0 < len(refused) < len(alone)
        met["all are refused"] += len(refused) == len(alone) > 1
        met.update(rejection.code for _, rejection in refused)

    check()

    cases = ("some are refused", "all are refused", "INTERNAL", "RESOURCE_EXHAUSTED")
    assert min(met[case] for case in cases) >= 5, met


@pytest.mark.parametrize("size", [2, 100_000])
def test_large_outputs_are_cut_alike(size: int) -> None:
    """Small ones are copied and written at once, large ones one by one."""
    output = np.arange(3 * size, dtype="<f4").reshape(3, size)

    for form in (ROWS_FORM, AS_JSON):
        answers = written(writer(max_answer_bytes=10_000_000), chunk(*records(3), form=form), output)

        values = [floats(*row) if form is ROWS_FORM else row.tolist() for row in output]
        found = [each.value if form is ROWS_FORM else json_of(each)["outputs"][0]["data"] for each in answers]
        assert found == values


def test_an_output_without_elements_has_an_answer() -> None:
    """A model may find nothing in any row."""
    served = model(outputs=[TensorSpec("y", "FP32", (None,))])

    for form in (AS_JSON, AS_PROTOBUF, AS_BINARY):
        answers = written(writer(served), chunk(*records(3), form=form), np.zeros((3, 0), "<f4"))

        assert list(map(tensors_in, answers)) == [[("y", "FP32", [1, 0], [])]] * 3
