"""Values that are nasty to judge, and what judging one may cost.

The promise: from a record to its request or rejection, its error answer and its dead letter, a value takes at most

    time    100 µs, 10 ns for each byte, 0.2 µs for each string of a BYTES input, 10 µs for each input of the model
    memory  1 MiB, 4 bytes for each byte, 150 for each such string, and the tensors that come of it

as measured on 2026-11-23, on two cores of a cloud machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.unit.codecs.builders import PLAIN_WIRE, X, Y, model
from worker.codecs.encodings.oip import memory
from worker.codecs.registry import Codecs
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.records import Headers, Partition, Record, Rejection, Request
from worker.core.tensors.signature import Judged, Signature
from worker.core.tensors.specs import TensorSpec

AS_JSON, AS_PROTOBUF, AS_OCTETS = [
    ("content-type", f"application/{name}".encode()) for name in ("json", "x-protobuf", "octet-stream")
]

MODELS: Mapping[str, Signature] = {
    "plain": model(max_rows=65536),
    "long": model(TensorSpec("x", "FP32", (None,)), max_rows=65536),
    "bytes": model(TensorSpec("x", "INT8", (None,)), max_rows=65536),
    "deep": model(TensorSpec("x", "INT64", (None, 1, 1)), max_rows=65536),
    "truth": model(TensorSpec("x", "BOOL", (None,)), max_rows=65536),
    "text": model(TensorSpec("x", "BYTES", (None,)), max_rows=65536),
    "both": model(TensorSpec("x", "BYTES", (None,)), TensorSpec("n", "FP64", (None,)), max_rows=65536),
    "many": model(*[replace(X, name=f"x{at}") for at in range(50)], max_rows=65536),
    "defaults": model(X, TensorSpec("mask", "INT64", (3,), default=1), outputs=[Y, replace(Y, name="z")]),
}


class Case(NamedTuple):
    """A value for one of the models, with its headers."""

    model: str
    headers: Headers
    value: bytes

    @property
    def record(self) -> Record:
        return Record(Partition("requests", 3), 1042, b"k", self.value, self.headers, None)

    def codecs(self) -> Codecs:
        wire = replace(
            PLAIN_WIRE, dead_letter_topic="dead-letters", max_request_bytes=2**24, max_dead_letter_bytes=2**25
        )
        return Codecs([MODELS[self.model]], wire, tell=lambda _: None)


def judge(codecs: Codecs, case: Case) -> Request | Rejection:
    """All that is done for it before the model, or instead of it."""
    decoded = codecs.decode(case.record)
    if isinstance(decoded, Rejection):
        codecs.encode(decoded)
    return decoded


def most_seconds(case: Case) -> float:
    """What the promise allows."""
    inputs = len(MODELS[case.model].inputs)
    return 1e-4 + 1e-8 * len(case.value) + 2e-7 * _strings(case) + 1e-5 * inputs


def most_bytes(case: Case, decoded: Request | Rejection) -> int:
    """The same of memory."""
    tensors = memory(Judged(decoded.rows, decoded.shapes, decoded.tensors)) if isinstance(decoded, Request) else 0
    return 2**20 + 4 * len(case.value) + 150 * _strings(case) + tensors


def _strings(case: Case) -> int:
    """As many as the value can hold, for a model that takes any; whether they are right is known when they are read."""
    if not any(spec.is_text for spec in MODELS[case.model].inputs):
        return 0
    if case.headers[0] == AS_JSON:
        return case.value.count(b'"') // 2
    return len(case.value) // (2 if case.headers[0] == AS_PROTOBUF else 4)


# Where in a request a run of nasty units may stand


def varint(number: int) -> bytes:
    """As protobuf writes it."""
    groups = []
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def field(number: int, held: bytes) -> bytes:
    """A field of bytes or of a message."""
    return varint(number << 3 | 2) + varint(len(held)) + held


def _input(signature: Signature, dims: Sequence[int]) -> bytes:
    spec = signature.inputs[0]
    shape = b"".join(map(varint, dims))
    return field(1, spec.name.encode()) + field(2, spec.datatype.encode()) + field(3, shape)


CONTENTS = {"BOOL": 1, "INT8": 2, "INT64": 3, "FP32": 6, "FP64": 7, "BYTES": 8}


def _packed(signature: Signature, run: bytes, unit: bytes) -> bytes:
    """One field of the input's contents, packed, of as many elements as it has bytes or units."""
    spec = signature.inputs[0]
    count = len(run) // {"FP32": 4, "FP64": 8}.get(spec.datatype, len(unit))
    return field(5, _input(signature, _dims(spec, count)) + field(5, field(CONTENTS[spec.datatype], run)))


def _dims(spec: TensorSpec, count: int) -> list[int]:
    return [1, *(max(count, 1) if dim is None else dim for dim in spec.dims)]


ProtobufPlace = Callable[[Signature, bytes, bytes], bytes]
IN_PROTOBUF: Mapping[str, ProtobufPlace] = {
    "message": lambda _, run, __: run,
    "input": lambda _, run, __: field(5, run),
    "right input": lambda s, run, _: field(5, _input(s, _dims(s.inputs[0], 1)) + run),
    "shape": lambda s, run, _: field(5, field(1, s.inputs[0].name.encode()) + field(3, run)),
    "output": lambda s, run, _: field(5, _input(s, _dims(s.inputs[0], 1))) + field(6, run),
    "parameter": lambda _, run, __: field(4, run),
    "contents": lambda s, run, unit: field(5, _input(s, _dims(s.inputs[0], len(run) // len(unit))) + field(5, run)),
    "packed": _packed,
    "raw": lambda s, run, unit: field(5, _input(s, _dims(s.inputs[0], len(run) // len(unit)))) + field(7, run),
}


def _entry(signature: Signature, dims: Sequence[int], data: bytes) -> bytes:
    spec = signature.inputs[0]
    shape = b",".join(b"%d" % dim for dim in dims)
    head = b'{"name":"%b","datatype":"%b","shape":[%b],' % (spec.name.encode(), spec.datatype.encode(), shape)
    return b'{"inputs":[%b"data":%b}]}' % (head, data)


JsonPlace = Callable[[Signature, bytes, bytes], bytes]
IN_JSON: Mapping[str, JsonPlace] = {
    "value": lambda _, run, __: run,
    "member": lambda _, run, __: b'{"a":[%b0]}' % run,
    "members": lambda _, run, __: b'{%b"a":0}' % run,
    "inputs": lambda _, run, __: b'{"inputs":[%b0]}' % run,
    "input": lambda _, run, __: b'{"inputs":[{%b"a":0}]}' % run,
    "outputs": lambda _, run, __: b'{"inputs":[{}],"outputs":[%b0]}' % run,
    "parameters": lambda _, run, __: b'{"parameters":{%b"a":0}}' % run,
    "shape": lambda _, run, __: b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%b1],"data":[1]}]}' % run,
    "data": lambda s, run, unit: _entry(
        s, _dims(s.inputs[0], len(run) // len(unit) * max(unit.count(b","), 1)), b"[%b]" % run.rstrip(b",")
    ),
    "data of no shape": lambda s, run, _: _entry(s, [1, 3], b"[%b]" % run.rstrip(b",")),
    "nested": lambda s, run, unit: _entry(
        s, _dims(s.inputs[0], len(run) // len(unit) * max(unit.count(b","), 1)), b"[[%b]]" % run.rstrip(b",")
    ),
    "data of none": lambda _, run, __: b'{"a":{"data":[%b]}}' % run.rstrip(b","),
}


def in_protobuf(name: str, place: str, unit: bytes, size: int) -> Case:
    """So many bytes of this unit, there."""
    return Case(name, [AS_PROTOBUF], IN_PROTOBUF[place](MODELS[name], unit * (size // len(unit)), unit))


def in_json(name: str, place: str, unit: bytes, size: int) -> Case:
    return Case(name, [AS_JSON], IN_JSON[place](MODELS[name], unit * (size // len(unit)), unit))


def in_head(name: str, place: str, unit: bytes, size: int) -> Case:
    """The same as the head of the binary-data form, with nothing behind it."""
    value = in_json(name, place, unit, size).value
    return Case(name, [AS_OCTETS, (HEAD_LENGTH, b"%d" % len(value))], value)


# What was found to be worst, by hand and by the search of the benchmark: the model, the place, and what is repeated
_NASTY_PROTOBUF = [
    ("plain", "message", b"\x2a\0"),
    ("plain", "message", b"\x32\0"),
    ("plain", "message", b"\x3a\0"),
    ("plain", "message", b"\x22\0"),
    ("plain", "message", b"\x2a\2\x22\0"),
    ("plain", "message", b"\x7b\x7c"),
    ("many", "message", b"\x2a\0"),
    ("plain", "input", b"\x18\1"),
    ("plain", "input", b"\x22\0"),
    ("plain", "shape", b"\1"),
    ("long", "contents", b"\x42\0"),
    ("bytes", "contents", b"\x10\5"),
    ("bytes", "packed", b"\1"),
    ("bytes", "packed", b"\x85\0"),
    ("deep", "packed", b"\1"),
    ("deep", "packed", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"),
    ("truth", "packed", b"\1"),
    ("text", "contents", b"\x42\0"),
    ("text", "contents", b"\x42\2ab"),
    ("text", "raw", b"\0\0\0\0"),
    ("plain", "right input", b"\x2a\0"),
    ("truth", "packed", b"0"),
    ("deep", "packed", b" \xff"),
    ("bytes", "packed", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\xff:"),
    ("plain", "message", field(5, field(3, b"\1" * 15_000))),
    ("plain", "message", field(5, b"\x2a\0" * 7_500)),
]
_NASTY_JSON = [
    ("plain", "inputs", b"[],"),
    ("plain", "inputs", b"{},"),
    ("plain", "inputs", b'{"":0},'),
    ("plain", "member", b'{"":' * 999 + b"0" + b"}" * 999 + b","),
    ("plain", "member", b"[" * 999 + b"0" + b"]" * 999 + b","),
    ("plain", "member", '"é",'.encode()),
    ("plain", "members", b'"":0,'),
    ("plain", "outputs", b'{"name":"y"},'),
    ("plain", "shape", b"1,"),
    ("plain", "value", b"["),
    ("plain", "value", b"\xff"),
    ("plain", "data of none", b"[],"),
    ("many", "inputs", b'{"data":['),
    ("bytes", "data", b"1,"),
    ("bytes", "data", b"300,"),
    ("deep", "data", b"5,"),
    ("long", "data", b"5,"),
    ("long", "data", b"0.5,"),
    ("long", "data", b"1e39,"),
    ("long", "data of no shape", b"5,"),
    ("truth", "data", b"true,"),
    ("deep", "nested", b"[[0]],"),
    ("text", "data", b'"",'),
    ("text", "data", b'"ab",'),
    ("text", "member", b"[],"),
    ("text", "member", b'"",[],'),
    ("text", "data", b'"[[[{{{",'),
    ("both", "member", b"{},"),
    ("deep", "nested", b"{},"),
    ("long", "nested", b'5,{"name":"y"},'),
    ("truth", "nested", b'{},"ab",'),
    ("bytes", "nested", b"0.5,5,"),
    ("long", "nested", b"5,0,5,5,"),
    ("long", "data", b"5," * 97 + b"9300000000000000000,"),
    ("text", "member", b'{"":0},'),
    ("text", "member", b'"",{"":[{"":[{"":[0]}]}]},'),
    ("text", "member", b'{"":[' * 490 + b"0" + b"]}" * 490 + b","),
]


def _case(build: Callable[[str, str, bytes, int], Case], name: str, place: str, unit: bytes) -> Callable[[int], Case]:
    return lambda size: build(name, place, unit, size)


NASTY: Mapping[str, Callable[[int], Case]] = {
    f"{form} {name} {place} {unit[:12]!r}": _case(build, name, place, unit)
    for form, build, found in [
        ("protobuf", in_protobuf, _NASTY_PROTOBUF),
        ("json", in_json, _NASTY_JSON),
        ("head", in_head, _NASTY_JSON),
    ]
    for name, place, unit in found
}
