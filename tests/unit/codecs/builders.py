"""Records, models and codecs with defaults, so that a test shows only what matters to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from worker.codecs.answer_writer import AnswerWriter
from worker.codecs.codec import Codec
from worker.codecs.wire_contract import HEAD_LENGTH, JSON, OCTETS, PROTOBUF, Wire
from worker.core.chunk import Chunk, Prediction, Shapes
from worker.core.records import (
    NO_IDS,
    Answer,
    Array,
    Fields,
    Headers,
    Ids,
    Message,
    ModelKey,
    Partition,
    Record,
    Rejection,
    ReplyForm,
    StateUse,
    Tensor,
    Timeout,
)
from worker.core.rejections import Rejections
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

SOURCE = "requests/3/1042"
PLAIN_WIRE = Wire("responses", "scorers")
X = TensorSpec("x", "FP32", (3,))
Y = TensorSpec("y", "FP32", (2,))

AS_JSON = ("content-type", JSON.encode())
AS_PROTOBUF = ("content-type", PROTOBUF.encode())
AS_ROWS = ("content-type", OCTETS.encode())
OF_FP32, OF_FP64 = ("datatype", b"FP32"), ("datatype", b"FP64")


def model(*inputs: TensorSpec, outputs: Sequence[TensorSpec] = (Y,), max_rows: int = 100) -> Signature:
    """Model `m` of version 1; without arguments it takes x, three FP32, and gives y, two FP32."""
    return Signature("m", "1", inputs or (X,), tuple(outputs), max_rows)


def taking(datatype: str, *dims: int | None) -> Signature:
    """A model with one input `x` of that datatype."""
    return model(TensorSpec("x", datatype, dims or (3,)))


def giving(*datatypes: str) -> Signature:
    """A model whose outputs a, b, … are of these datatypes, one element a row."""
    return model(outputs=[TensorSpec(name, of, (1,)) for name, of in zip("abcdefg", datatypes, strict=False)])


def codecs(
    signature: Signature | None = None,
    tell: Callable[[Rejection], object] = lambda _: None,
    rejections: Rejections | None = None,
    **decisions: Any,
) -> Codec:
    return Codec([signature or model()], replace(PLAIN_WIRE, **decisions), tell, rejections)


class One(NamedTuple):
    """One record of a chunk."""

    record: Record
    rows: int
    tensors: tuple[Tensor, ...]
    shapes: Shapes
    form: ReplyForm
    ids: Ids
    size: int
    model: ModelKey
    timeout: Timeout | None
    state: StateUse | None


def of_chunk(chunk: Chunk, at: int) -> One:
    """The record at this index of a chunk."""
    return One(
        chunk.records[at],
        chunk.rows[at],
        tuple(column[at] for column in chunk.tensors),
        chunk.shapes[at],
        chunk.form,
        chunk.ids[at] if chunk.ids else NO_IDS,
        chunk.sizes[at],
        chunk.model,
        chunk.timeouts[at] if chunk.timeouts else None,
        chunk.state,
    )


def read_all(codec: Codec, records: Sequence[Record]) -> list[One | Rejection]:
    """The reading of each record when all are read together."""
    chunks, rejections, _ = codec.read(records)
    found: dict[int, One | Rejection] = dict(rejections)
    for chunk in chunks:
        assert list(chunk.at) == sorted(chunk.at)
        for at, place in enumerate(chunk.at):
            assert place not in found, "a record is answered once"
            found[place] = of_chunk(chunk, at)
    return [found[at] for at in range(len(records))]


def facts(one: One | Rejection) -> object:
    """The comparable facts of a record's reading, with tensors as bytes or lists."""
    if isinstance(one, Rejection):
        return one
    tensors = [t if isinstance(t, list) else bytes(t) for t in one.tensors]
    return one._replace(tensors=tensors)  # type: ignore[arg-type]  # only to be compared


def decode(codec: Codec, given: Record) -> One | Rejection:
    """The reading of a record that is read alone."""
    (one,) = read_all(codec, [given])
    return one


def record(value: bytes | None, *headers: tuple[str, bytes | None], key: bytes | None = b"k") -> Record:
    return Record(Partition("requests", 3), 1042, key, value, headers, None)


def document(**changes: Any) -> dict[str, Any]:
    """A JSON request for the plain model, right except for the changes."""
    return {"inputs": [tensor()], **changes}


def tensor(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1.0, 2.0, 3.0], **changes}


def as_json(held: Any, *headers: tuple[str, bytes | None]) -> Record:
    return record(json.dumps(held).encode(), AS_JSON, *headers)


def as_binary(head: Mapping[str, Any], tail: bytes, *headers: tuple[str, bytes | None]) -> Record:
    """A request in binary-data form."""
    raw = json.dumps(head).encode()
    return record(raw + tail, AS_ROWS, (HEAD_LENGTH, b"%d" % len(raw)), *headers)


def request(codec: Codec, given: Record) -> One:
    """The decoded request; the record must decode."""
    decoded = decode(codec, given)
    assert isinstance(decoded, One), decoded
    return decoded


def rejection(codec: Codec, given: Record) -> Rejection:
    """The record's rejection; the record must be refused."""
    decoded = decode(codec, given)
    assert isinstance(decoded, Rejection), decoded
    return decoded


def answer(codec: Codec, given: Record, *outputs: Array) -> Message:
    """The result sent for the record when the model gives these outputs."""
    (chunk,), *_ = codec.read([given])
    (message,) = codec.messages(codec.write(Prediction(chunk, outputs)))
    return Message._make(message)


def refusal(codec: Codec, rejected: Rejection) -> list[Message]:
    """The messages of a rejection."""
    return leaving(codec, [rejected])


def leaving(codec: Codec, answers: Sequence[Answer]) -> list[Message]:
    """The messages of answers that leave."""
    return list(map(Message._make, codec.messages(answers)))


def headers_of(message: Message) -> dict[str, str]:
    """The headers as text; each name must come once."""
    return said(message.headers)


def said(headers: Headers) -> dict[str, str]:
    names = [name for name, _ in headers]
    assert len(set(names)) == len(names), names
    return {name: (value or b"").decode(errors="backslashreplace") for name, value in headers}


def json_of(message: Message) -> Any:
    return json.loads(message.value or b"")


def elements(tensor: Tensor, dtype: str) -> list[Any]:
    """A request's tensor as Python values."""
    assert isinstance(tensor, list) == (dtype == "O")
    return tensor if isinstance(tensor, list) else np.frombuffer(tensor, dtype).tolist()


def floats(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def packed(*strings: str) -> bytes:
    """Strings in binary form."""
    return b"".join(len(raw).to_bytes(4, "little") + raw for raw in (string.encode() for string in strings))


def f4(values: object) -> Array:
    """Nested lists as an array of FP32."""
    return np.array(values, "<f4")


# Chunks, as they are read, and their answers

ROWS_FORM = ReplyForm(OCTETS)


def writer(*signatures: Signature, **decisions: Any) -> AnswerWriter:
    return AnswerWriter(signatures or [model()], replace(PLAIN_WIRE, **decisions))


def chunk(
    *records: Record,
    form: ReplyForm = ROWS_FORM,
    signature: Signature | None = None,
    rows: Sequence[int] | None = None,
    shapes: Sequence[tuple[tuple[int, ...], ...]] | None = None,
    ids: Sequence[Ids] | None = None,
) -> Chunk:
    """A chunk of these records, of one row each; without any, of one record."""
    given = list(records) or [record(floats(1, 2, 3), AS_ROWS)]
    count = len(given)
    return Chunk(
        (signature or model()).key,
        form,
        given,
        list(rows or [1] * count),
        list(shapes or [((3,),)] * count),
        [[b""] * count],
        [len(each.key or b"") + len(each.value or b"") for each in given],
        range(count),
        ids,
    )


def message(fields: Fields | None) -> Message:
    """The answer, which must be one."""
    assert fields is not None
    return Message._make(fields)


def written(by: AnswerWriter, asked: Chunk, *outputs: Array, start: int = 0) -> list[Message]:
    """The answers to the chunk, none of which may be refused."""
    answers, rejections = apart(by.write(asked, outputs, start))
    assert not rejections
    return list(map(message, answers))


def apart(answers: Sequence[Answer]) -> tuple[list[Fields | None], list[tuple[int, Rejection]]]:
    """The messages, None for a record that is refused; and the rejections, each with its index."""
    messages = [None if isinstance(answer, Rejection) else answer for answer in answers]
    return messages, [(at, answer) for at, answer in enumerate(answers) if isinstance(answer, Rejection)]
