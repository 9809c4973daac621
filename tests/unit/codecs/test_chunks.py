"""Records are read together, and each as it would be alone: compared with what was read before, or parsed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.judging import field
from tests.unit.codecs.builders import (
    AS_JSON,
    AS_PROTOBUF,
    AS_ROWS,
    OF_FP32,
    OF_FP64,
    PLAIN_WIRE,
    One,
    X,
    Y,
    codecs,
    facts,
    model,
    packed,
    read_all,
    record,
    said,
    taking,
    tensor,
)
from worker.codecs.encodings import oip_json, oip_protobuf
from worker.codecs.known import Known
from worker.codecs.reader import RequestReader
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.records import NO_IDS, Headers, Record, Rejection, ReplyTo, Timeout
from worker.core.tensors.buckets import Axis, Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

ROW = np.arange(3, dtype="<f4").tobytes()
IDS, MASK = TensorSpec("ids", "INT64", (None,)), TensorSpec("mask", "INT64", (None,))
TEXTS = model(IDS, MASK, outputs=[Y, TensorSpec("z", "FP32", (1,))])
NAMED = model(TensorSpec("name", "BYTES", (1,)), TensorSpec("is_new", "BOOL", (1,)), X)
FILLED = model(IDS, replace(MASK, default=1), outputs=[Y, TensorSpec("z", "FP32", (1,))])
PADDED = replace(TEXTS, axes=(Axis("ids", (4, 8), {Spot(0, 0): 0, Spot(1, 0): 0}),))


def alone(signature: Signature, given: Record, **decisions: Any) -> object:
    """The reading of a record by a codec that has read nothing before."""
    (one,) = read_all(codecs(signature, **decisions), [given])
    return facts(one)


def at_offset(offset: int, value: bytes | None, *headers: tuple[str, bytes | None]) -> Record:
    return record(value, *headers, key=b"k%d" % offset)._replace(offset=offset)


def rows(offset: int, value: bytes | None = ROW, *more: tuple[str, bytes]) -> Record:
    return at_offset(offset, value, AS_ROWS, *more)


# Chunks


def test_all_records_of_a_kind_are_one_chunk() -> None:
    """Ids, timeouts, lengths and rows are columns. A record of another kind gets its own chunk."""
    given = [
        rows(0, ROW * 2, ("request-id", b"a"), ("timeout-ms", b"250")),
        rows(1, ROW),
        rows(2, ROW, ("accept", b"application/json")),
        rows(3, ROW, ("correlation-id", b"c")),
    ]

    (plain, in_json), rejections, _ = codecs().read(given)

    assert rejections == []
    assert (list(plain.at), list(in_json.at)) == ([0, 1, 3], [2])
    assert list(plain.rows) == [2, 1, 1]
    assert [list(column) for column in plain.tensors] == [[ROW * 2, ROW, ROW]]
    assert plain.shapes[0] is plain.shapes[2]
    assert plain.ids is not None
    assert [ids.request_id for ids in plain.ids] == ["a", None, None]
    assert plain.ids[2].echo == (("correlation-id", b"c"),)
    assert plain.timeouts == [Timeout(0.25), None, None]
    assert (in_json.ids, in_json.timeouts) == (None, None)
    assert plain.form == read_all(codecs(), given[:1])[0].form


@pytest.mark.parametrize("encoding", ["protobuf", "binary", "json"])
def test_texts_of_any_length_are_one_chunk(encoding: str) -> None:
    """They differ in the lengths of their tensors and heads, which may be met for the first time or again."""
    codec = codecs(TEXTS)
    given = [IN_ENCODING[encoding](at, length) for at, length in enumerate([3, 5, 3, 99, 5, 3])]

    for _ in range(2):
        (chunk,), *_ = codec.read(given)

        assert [shapes[0] for shapes in chunk.shapes] == [(3,), (5,), (3,), (99,), (5,), (3,)]
        assert [len(raw) for raw in chunk.tensors[0]] == [24, 40, 24, 792, 40, 24]
        assert chunk.shapes[0] is chunk.shapes[5]


def numbers(at: int, length: int) -> list[int]:
    return [at, *range(1000, 1000 + length - 1)]


def in_protobuf(at: int, length: int, **more: Any) -> Record:
    message = oip_protobuf._InferRequest(**more)
    for name, held in (("ids", numbers(at, length)), ("mask", [1] * length)):
        message.inputs.add(name=name, datatype="INT64", shape=[1, length])
        message.raw_input_contents.append(np.array(held, "<i8").tobytes())
    return at_offset(at, message.SerializeToString(), AS_PROTOBUF)


def in_json(at: int, length: int, **more: Any) -> Record:
    inputs = [
        {"name": name, "shape": [1, length], "datatype": "INT64", "data": elements}
        for name, elements in (("ids", numbers(at, length)), ("mask", [1] * length))
    ]
    return at_offset(at, json.dumps({"inputs": inputs, **more}).encode(), AS_JSON)


def in_binary(at: int, length: int, **more: Any) -> Record:
    inputs = [
        {"name": name, "shape": [1, length], "datatype": "INT64", "parameters": {"binary_data_size": 8 * length}}
        for name in ("ids", "mask")
    ]
    head = json.dumps({"inputs": inputs, **more}).encode()
    tail = np.array([*numbers(at, length), *[1] * length], "<i8").tobytes()
    return at_offset(at, head + tail, AS_ROWS, (HEAD_LENGTH, b"%d" % len(head)))


IN_ENCODING = {"protobuf": in_protobuf, "binary": in_binary, "json": in_json}


# Compared with what was read before


def named_in_protobuf(name: bytes, is_new: bytes, body_id: str = "") -> Record:
    message = oip_protobuf._InferRequest(id=body_id)
    for spec, raw in zip(NAMED.inputs, (name, is_new, ROW), strict=True):
        message.inputs.add(name=spec.name, datatype=spec.datatype, shape=[1, *[d or 1 for d in spec.dims]])
        message.raw_input_contents.append(raw)
    return at_offset(1, message.SerializeToString(), AS_PROTOBUF)


def named_in_binary(name: bytes, is_new: bytes) -> Record:
    raws = (name, is_new, ROW)
    inputs = [
        {
            "name": spec.name,
            "shape": [1, *spec.dims],
            "datatype": spec.datatype,
            "parameters": {"binary_data_size": len(raw)},
        }
        for spec, raw in zip(NAMED.inputs, raws, strict=True)
    ]
    head = json.dumps({"inputs": inputs[::-1]}).encode()
    return at_offset(1, head + b"".join(raws[::-1]), AS_ROWS, (HEAD_LENGTH, b"%d" % len(head)))


def only_ids(given: Record) -> Record:
    """A request without its second input."""
    message = oip_protobuf._InferRequest.FromString(given.value or b"")
    del message.inputs[1]
    del message.raw_input_contents[1]
    return given._replace(value=message.SerializeToString())


def floats_in_contents(name: str, number: int, dtype: str) -> bytes:
    """An input of a protobuf request, with its elements in the field of this number."""
    contents = field(number, np.array([1, 2, 3], dtype).tobytes())
    datatype = {"<f4": b"FP32", "<f8": b"FP64"}[dtype]
    return field(5, field(1, name.encode()) + field(2, datatype) + field(3, b"\1\3") + field(5, contents))


WANTED = oip_protobuf._InferRequest.InferRequestedOutputTensor
LEARNED: dict[str, tuple[Signature, Record]] = {
    "protobuf": (TEXTS, in_protobuf(7, 4)),
    "protobuf, padded": (PADDED, in_protobuf(7, 4)),
    "protobuf, with all": (
        TEXTS,
        in_protobuf(7, 4, id="é-1", model_name="m", model_version="1", outputs=[WANTED(name="z")]),
    ),
    "protobuf, one left out": (FILLED, only_ids(in_protobuf(7, 4))),
    "protobuf, texts": (NAMED, named_in_protobuf(packed("é"), b"\1", "r-1")),
    "protobuf, raw first": (TEXTS, in_protobuf(7, 4)._replace(value=b"")),  # made below
    "protobuf, floats": (
        model(X, replace(X, name="z", datatype="FP64")),
        at_offset(
            1, floats_in_contents("z", 7, "<f8") + floats_in_contents("x", 6, "<f4") + field(3, b"r"), AS_PROTOBUF
        ),
    ),
    "protobuf, booleans": (
        taking("BOOL"),
        at_offset(
            1, field(5, field(1, b"x") + field(2, b"BOOL") + field(3, b"\1\3")) + field(7, b"\0\1\1"), AS_PROTOBUF
        ),
    ),
    "protobuf, contents": (
        taking("INT64", 3),
        at_offset(
            1,
            field(5, field(1, b"x") + field(2, b"INT64") + field(3, b"\1\3") + field(5, field(3, b"\1\2\3"))),
            AS_PROTOBUF,
        ),
    ),
    "binary": (TEXTS, in_binary(7, 4)),
    "binary, with all": (TEXTS, in_binary(7, 4, model_name="m", outputs=[{"name": "z"}, {"name": "y"}])),
    "binary, with an id": (TEXTS, in_binary(7, 4, id="r-1")),
    "binary, texts": (NAMED, named_in_binary(packed("é"), b"\1")),
    "json": (TEXTS, in_json(7, 4)),
    "json, with all": (TEXTS, in_json(7, 4, id="full", model_name="m", outputs=[{"name": "z"}])),
}
_WHOLE = in_protobuf(7, 4).value or b""
_AT = _WHOLE.index(b"\x3a\x20")
LEARNED["protobuf, raw first"] = (TEXTS, at_offset(7, _WHOLE[_AT:] + _WHOLE[:_AT], AS_PROTOBUF))


@pytest.mark.parametrize("name", LEARNED)
def test_a_value_that_is_nearly_known_is_read_as_if_it_were_the_first(name: str) -> None:
    """A byte has changed, or some are missing, doubled or exchanged, in any place, be it fixed or an element."""
    signature, right = LEARNED[name]
    value = right.value or b""
    knowing = codecs(signature)
    assert isinstance(read_all(knowing, [right])[0], One)

    for at in range(len(value)):
        before, behind = value[:at], value[at + 1 :]
        others = {0, 1, 0x22, 0x2C, 0xC3, 0xFF, value[at] ^ 1, value[at] ^ 0x80, value[at] + 1 & 0xFF} - {value[at]}
        near = [before + bytes([other]) + behind for other in sorted(others)]
        near += [before + behind, value[: at + 1] + value[at:], before, value[at:] + before]
        changed = [right._replace(value=each) for each in near]
        together = read_all(knowing, [right, *changed, right])

        assert list(map(facts, together)) == [alone(signature, one) for one in (right, *changed, right)], at


@pytest.mark.parametrize("encoding", ["protobuf", "binary", "json"])
def test_what_was_met_is_known(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second value that says the same is not judged, and in protobuf and the binary-data form not parsed."""
    codec = codecs(TEXTS)
    given_ = [IN_ENCODING[encoding](at, 4) for at in range(9)]
    read_all(codec, given_[:1])
    judged: list[object] = []
    monkeypatch.setattr("worker.codecs.encodings.oip.Judge.judge", judged.append)
    monkeypatch.setattr(oip_protobuf, "_InferRequest", None)
    if encoding == "binary":
        monkeypatch.setattr(oip_json, "orjson", None)

    found = read_all(codec, given_)

    assert all(isinstance(one, One) for one in found)
    assert judged == []


def test_equal_bytes_with_another_head_are_another_value() -> None:
    """A header says where the head ends. Under another one a value that was met is judged anew."""
    codec, met = codecs(TEXTS), in_binary(1, 4)
    length = int(said(met.headers)[HEAD_LENGTH])
    given = [met, *[met._replace(headers=[AS_ROWS, (HEAD_LENGTH, b"%d" % (length + by))]) for by in (-1, 1, 32)]]

    for _ in range(2):
        assert list(map(facts, read_all(codec, given))) == [alone(TEXTS, one) for one in given]
        assert [isinstance(one, One) for one in read_all(codec, given)] == [True, False, False, False]


def test_what_is_remembered_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither many layouts nor long ones fill the memory, and few of one length are compared."""
    monkeypatch.setattr("worker.codecs.encodings.layouts.Known", partial(Known, 20))
    codec = codecs(TEXTS, max_request_bytes=2**24, max_json_bytes=2**24)
    given = [in_protobuf(at, 2 + at % 40) for at in range(200)]
    given += [in_protobuf(at, 4, outputs=[WANTED(name="yz"[at % 2])]) for at in range(9)]
    junk = [field(9, bytes([at]) * 40) for at in range(50)]
    given += [in_protobuf(1, 4)._replace(value=(in_protobuf(1, 4).value or b"") + each) for each in junk]
    given += [in_protobuf(1, 4)._replace(value=(in_protobuf(1, 4).value or b"") + field(9, bytes(2**21)))]

    found = read_all(codec, given)

    (known,) = [each._known for each in codec._encodings._made.values()]  # type: ignore[attr-defined]
    assert all(isinstance(one, One) for one in found)
    assert len(known) <= 20
    assert max(map(len, known.values())) <= 5
    assert sum(len(b"".join(one.fixed)) for alike in known.values() for one in alike) < 2**20


def test_how_many_forms_of_headers_are_remembered_is_bounded() -> None:
    """A publisher may ask for a partition of its own with each request. Each gets its answer there."""
    codec = codecs(TEXTS, reply_topics={"responses": 40})
    given = [in_protobuf(at, 4)._replace(headers=[AS_PROTOBUF, ("reply-partition", b"%d" % at)]) for at in range(40)]

    for _ in range(2):
        found = read_all(codec, given)

        assert [one.form.to for one in found] == [ReplyTo("responses", at) for at in range(40)]
    (known,) = [each._known for each in codec._encodings._made.values()]  # type: ignore[attr-defined]
    ((layout,),) = known.values()
    assert len(layout.statement.kinds) <= 16


@pytest.mark.parametrize(
    ("more", "is_learned"),
    [(field(9, b"") * 1001, 0), (b"\x4a\x83\x80\x80\x80\0abc", 1), (b"\x4d1234", 0), (b"\x8a\1\3abc", 1)],
    ids=["many fields", "a long length", "a fixed field", "a large number"],
)
def test_a_message_with_unusual_fields_is_read_like_any_other(more: bytes, is_learned: int) -> None:
    """The model does not ask for these fields. Where their bytes may be anywhere, each message is parsed."""
    codec = codecs(TEXTS)
    given = [in_protobuf(at, 4) for at in range(3)]
    given = [one._replace(value=(one.value or b"") + more) for one in given]

    found = [read_all(codec, given) for _ in range(2)]

    (known,) = [each._known for each in codec._encodings._made.values()]  # type: ignore[attr-defined]
    assert len(known) == is_learned
    for reading in found:
        assert list(map(facts, reading)) == [alone(TEXTS, one) for one in given]
        assert all(isinstance(one, One) for one in reading)


# Properties

HEADERS = st.sampled_from(
    [
        *[[], [("correlation-id", b"c")], [("request-id", b"r")], [("timeout-ms", b"250")]],
        *[[("timeout-ms", b"250"), ("request-id", b"r")], [("deadline", b"1700000000250")], [OF_FP32]],
        *[[("accept", b"application/json")], [OF_FP32, ("rows", b"1")], [("rows", b"1"), ("request-id", b"r")]],
        *[[("rows", b"2")], [OF_FP64], [("content-type", b"nonsense")], [AS_JSON], [("content-type", None)]],
        *[[("state", b"read")], [("state", b"reset")]],
    ]
)
VALUES = st.sampled_from([ROW, ROW, ROW, ROW * 2, b"odd", b"", None, b'{"instances": [[1, 2, 3]]}'.ljust(36)])
# A part repeats a record: equal neighbours would hardly ever come from records drawn one by one.
PARTS = st.lists(st.tuples(HEADERS, VALUES, st.integers(1, 5)), min_size=1, max_size=8)


@pytest.mark.parametrize("has_state", [False, True])
def test_rows_are_read_together_as_each_alone(*, has_state: bool) -> None:
    """Requests, rejections, ids, rows and sizes agree."""
    met: Counter[str] = Counter()

    @given(PARTS)
    def check(parts: list[tuple[Headers, bytes | None, int]]) -> None:
        kinds = [(headers, value) for headers, value, count in parts for _ in range(count)]
        decisions: dict[str, Any] = {"max_request_bytes": 36, "has_state": has_state, "max_key_bytes": 2}
        given_ = [rows(at, value)._replace(headers=[AS_ROWS, *h]) for at, (h, value) in enumerate(kinds)]
        given_ = [one._replace(key=None) if one.offset == 7 else one for one in given_]
        codec = codecs(**decisions)

        together = read_all(codec, given_)

        assert list(map(facts, together)) == [alone(model(), one, **decisions) for one in given_]
        assert list(map(facts, read_all(codec, given_))) == list(map(facts, together))
        if has_state:
            assert [at for chunk in codec.read(given_)[0] for at in chunk.at] == [
                at for at, one in enumerate(together) if isinstance(one, One)
            ]
        met.update(map(type, together))  # type: ignore[arg-type]  # counted by type

    check()

    assert met[One] >= 100  # type: ignore[index]  # as above
    assert met[Rejection] >= 100  # type: ignore[index]  # as above


@st.composite
def values_of(draw: st.DrawFn, right: bytes, others: Sequence[bytes]) -> bytes:
    """A right value, perhaps with bytes changed, or with a part of it replaced by a part of another one."""
    value = draw(st.sampled_from([right, *others]))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        start, length = draw(st.integers(0, len(value))), draw(st.sampled_from([0, 1, 1, 2, 8]))
        other = draw(st.sampled_from([right, *others]))
        begin = draw(st.integers(0, len(other)))
        piece = draw(st.sampled_from([other[begin : begin + length], bytes(length), b"\xff" * length, b"true", b"1.0"]))
        value = value[:start] + piece + value[start + length :]
    return value or b"-"


@pytest.mark.parametrize("encoding", ["protobuf", "binary", "json"])
@pytest.mark.parametrize("of", ["TEXTS", "NAMED"])
def test_any_values_are_read_together_as_each_alone(encoding: str, of: str) -> None:
    """Right ones, mutated ones and mixtures, in any order, many times in one codec that knows the earlier ones."""
    signature = {"TEXTS": TEXTS, "NAMED": NAMED}[of]
    some = VARIANTS[of, encoding]
    headers = some[0].headers
    knowing = codecs(signature)
    met: Counter[str] = Counter()

    @settings(max_examples=300)
    @given(st.lists(values_of(some[0].value or b"", [one.value or b"" for one in some]), min_size=1, max_size=6))
    def check(values: list[bytes]) -> None:
        given_ = [at_offset(at, value, *headers) for at, value in enumerate(values)]
        expected = [alone(signature, one) for one in given_]

        for codec in (codecs(signature), knowing):
            assert list(map(facts, read_all(codec, given_))) == expected
        met.update("refused" if isinstance(one, Rejection) else "taken" for one in expected)

    check()

    assert met["taken"] >= 100
    assert met["refused"] >= 100


def named_in_json(name: object, is_new: object, numbers_: list[object], **more: object) -> Record:
    data = ([name], [is_new], numbers_)
    inputs = [
        tensor(name=spec.name, datatype=spec.datatype, shape=[1, *spec.dims], data=each)
        for spec, each in zip(NAMED.inputs, data, strict=True)
    ]
    return at_offset(1, json.dumps({"inputs": inputs, **more}).encode(), AS_JSON)


VARIANTS: dict[tuple[str, str], list[Record]] = {
    ("TEXTS", "protobuf"): [
        in_protobuf(1, 4),
        in_protobuf(2, 4),
        in_protobuf(3, 5),
        in_protobuf(4, 4, id="r-1"),
        in_protobuf(4, 4, id="r-2", outputs=[WANTED(name="z")]),
    ],
    ("TEXTS", "binary"): [in_binary(1, 4), in_binary(2, 4), in_binary(3, 5), in_binary(4, 4, id="r-1")],
    ("TEXTS", "json"): [
        in_json(1, 4),
        in_json(0, 40),
        in_json(3, 5, id="full"),
        in_json(4, 4, outputs=[{"name": "z"}], model_name="m"),
    ],
    ("NAMED", "protobuf"): [
        named_in_protobuf(packed("é"), b"\1"),
        named_in_protobuf(packed("ab"), b"\0", "r-1"),
        named_in_protobuf(packed("abc"), b"\1"),
    ],
    ("NAMED", "binary"): [named_in_binary(packed("é"), b"\1"), named_in_binary(packed("ab"), b"\0")],
    ("NAMED", "json"): [
        named_in_json("é", True, [1.5, 2.5, 3]),
        named_in_json("true", False, [0, 1, 2], id="full"),
    ],
}
ELEMENTS = st.one_of(
    st.integers(-2, 3),
    st.booleans(),
    st.floats(-2, 2, width=32),
    st.sampled_from([2**63, 2**64, 1e39, None, "1", "true", [], [1], {}, {"a": 1}]),
)


@example([("BYTES", "a", [1, 1], None), ("BYTES", {"a": 1}, [1, 1], None), ("FP32", [True], [1, 1], None)])
@example([("INT64", [True, 1], [1, 2], each) for each in (None, "id", "full")])
@example([("FP32", [False, 0.5], [1, 2], each) for each in (None, "id", "full")])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["FP32", "INT64", "UINT8", "BYTES", "BOOL"]),
            st.one_of(st.lists(ELEMENTS, min_size=1, max_size=2), ELEMENTS),
            st.sampled_from([[1, 1], [1, 2], [2, 1], [1.0, 1], [True, 1], [1, 1, 1]]),
            st.sampled_from([None, "id", "full", "\u0001l"]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_elements_in_json_are_read_together_as_each_alone(
    tensors: list[tuple[str, Any, list[Any], str | None]],
) -> None:
    """Numbers, booleans among them, texts and other things, one or two of them, with an id or none."""
    for datatype in {each[0] for each in tensors}:
        signature = taking(datatype, None)
        knowing = codecs(signature)
        for count in (1, 2):  # both shapes are known
            right: object = {"BYTES": "a", "BOOL": True}.get(datatype, 5)
            held = {"inputs": [tensor(shape=[1, count], datatype=datatype, data=[right] * count)]}
            assert isinstance(read_all(knowing, [at_offset(0, json.dumps(held).encode(), AS_JSON)])[0], One)
        documents: list[dict[str, Any]] = [
            {"inputs": [tensor(shape=shape, datatype=datatype, data=data)], **({"id": body_id} if body_id else {})}
            for _, data, shape, body_id in tensors
        ]
        given_ = [at_offset(at, json.dumps(held).encode(), AS_JSON) for at, held in enumerate(documents)]

        assert list(map(facts, read_all(knowing, given_))) == [alone(signature, one) for one in given_]


@pytest.mark.parametrize("said", [{"parameters": {"content_type": "base64"}}, {"parameters": {"binary_data_size": 8}}])
def test_a_document_that_says_more_is_judged(said: dict[str, Any]) -> None:
    """It may say that its elements are something else, although all else is known."""
    codec = codecs(taking("BYTES", 1))
    plain = tensor(datatype="BYTES", shape=[1, 1], data=["YQ=="])
    known, other, whole = (
        at_offset(at, json.dumps(held).encode(), AS_JSON)
        for at, held in enumerate([{"inputs": [plain]}, {"inputs": [{**plain, **said}]}, {"inputs": [plain], **said}])
    )

    read_all(codec, [known])

    assert list(map(facts, read_all(codec, [known, other, whole]))) == [
        alone(taking("BYTES", 1), one) for one in (known, other, whole)
    ]


def test_unknown_members_of_a_document_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time in each document does not make it a new one, and booleans in it are none among the elements."""
    codec = codecs(TEXTS)
    given_ = [in_json(at, 4, sent_at=at, is_full=True) for at in range(4)]
    expected = [alone(TEXTS, one) for one in given_]
    read_all(codec, given_[:1])
    monkeypatch.setattr("worker.codecs.encodings.oip.Judge.judge", None)

    assert list(map(facts, read_all(codec, given_))) == expected


def test_what_is_too_deep_or_too_long_is_judged_each_time() -> None:
    """A document nested so deeply that it cannot be written, and a message with a long unknown field."""
    deep = json.loads('{"a":' * 400 + "1" + "}" * 400)
    codec = codecs(TEXTS, max_json_bytes=2**24, max_request_bytes=2**24)
    long = in_protobuf(1, 4)
    long = long._replace(value=(long.value or b"") + field(9, bytes(2**21)))

    for one in (in_json(1, 4, parameters=deep), long):
        found = [facts(each) for _ in range(2) for each in read_all(codec, [one])]

        assert found == [alone(TEXTS, one, max_json_bytes=2**24, max_request_bytes=2**24)] * 2
        assert isinstance(found[0], One)

    json_known, layouts = [*codec._encodings._made.values()]
    assert not json_known._known  # type: ignore[attr-defined]
    assert not layouts._known  # type: ignore[attr-defined]


def test_models_share_no_statements() -> None:
    """Equal tensors for two models give a chunk each."""
    other = replace(TEXTS, name="other")
    given_ = [in_json(at, 4, **({"model_name": "other"} if at % 2 else {})) for at in range(6)]

    chunks, *_ = RequestReader([TEXTS, other], PLAIN_WIRE).read(given_)

    assert [(chunk.model.name, list(chunk.at)) for chunk in chunks] == [("m", [0, 2, 4]), ("other", [1, 3, 5])]
    assert [chunk.ids or NO_IDS for chunk in chunks] == [NO_IDS, NO_IDS]
