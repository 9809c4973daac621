"""Values that are nasty to judge, and what judging one may cost.

The promise: from a record to its request or rejection, its error answer and its dead letter, a value within its caps
takes at most 100 ms of a core and 64 MiB, whatever is in it. Memory is what the process takes from the machine in a
child of its own, since the parsers have allocators that Python does not see.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from tests.unit.codecs.builders import AS_JSON, AS_PROTOBUF, AS_ROWS, PLAIN_WIRE, X, Y, model
from worker.app import GC_THRESHOLDS
from worker.codecs.reader import RequestReader
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.records import Headers, Partition, Record, Rejection
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

MODELS: Mapping[str, Signature] = {
    "plain": model(max_rows=65536),
    "long": model(TensorSpec("x", "FP32", (None,)), max_rows=65536),
    "bytes": model(TensorSpec("x", "INT8", (None,)), max_rows=65536),
    "deep": model(TensorSpec("x", "INT64", (None, 1, 1)), max_rows=65536),
    "truth": model(TensorSpec("x", "BOOL", (None,)), max_rows=65536),
    "text": model(TensorSpec("x", "BYTES", (None,)), max_rows=65536),
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

    def codecs(self) -> RequestReader:
        wire = replace(
            PLAIN_WIRE, dead_letter_topic="dead-letters", max_request_bytes=2**24, max_dead_letter_bytes=2**25
        )
        return RequestReader([MODELS[self.model]], wire)


def judge(codecs: RequestReader, case: Case) -> Rejection | None:
    """Read a record as a worker does before the model runs; None if it is a request."""
    _, rejections, _ = codecs.read([case.record])
    return rejections[0][1] if rejections else None


MOST_SECONDS, MOST_BYTES = 0.1, 64 * 2**20


class Cost(NamedTuple):
    """The cost of judging a value, and the message of its rejection (None for a request)."""

    seconds: float
    bytes: int
    message: str | None


class Judges:
    """A process that judges each value in a child of its own."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()

    def cost(self, case: Case) -> Cost:
        self._pipe.send(case)
        cost: Cost = self._pipe.recv()
        return cost

    def close(self) -> None:
        self._process.terminate()
        self._process.join()


def _serve(pipe: Connection) -> None:
    """Judge the incoming values as a worker does, and send back the cost of each."""
    for case in (in_protobuf("plain", "message", b"-", 1), in_json("plain", "value", b"-", 1)):
        judge(case.codecs(), case)
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    while True:
        case = pipe.recv()
        child = os.fork()
        if child == 0:
            pipe.send(_cost(case))
            os._exit(0)
        os.waitpid(child, 0)


def _cost(case: Case) -> Cost:
    codecs = case.codecs()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before, began = _resident("VmRSS"), time.process_time()
    decoded = judge(codecs, case)
    seconds = time.process_time() - began
    return Cost(seconds, _resident("VmHWM") - before, decoded.message if decoded else None)


def _resident(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


# Places in a request where a run of nasty units may stand


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    groups = []
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def field(number: int, held: bytes) -> bytes:
    """A protobuf field that holds bytes or a message."""
    return varint(number << 3 | 2) + varint(len(held)) + held


def _input(signature: Signature, dims: Sequence[int]) -> bytes:
    spec = signature.inputs[0]
    shape = b"".join(map(varint, dims))
    return field(1, spec.name.encode()) + field(2, spec.datatype.encode()) + field(3, shape)


CONTENTS = {"BOOL": 1, "INT8": 2, "INT64": 3, "FP32": 6, "FP64": 7, "BYTES": 8}


def _packed(signature: Signature, run: bytes, unit: bytes) -> bytes:
    """One packed field of the input's contents, with as many elements as the run has bytes or units."""
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
}


def in_protobuf(name: str, place: str, unit: bytes, size: int) -> Case:
    """A protobuf request with `size` bytes of this unit at this place."""
    return Case(name, [AS_PROTOBUF], IN_PROTOBUF[place](MODELS[name], unit * (size // len(unit)), unit))


def in_json(name: str, place: str, unit: bytes, size: int) -> Case:
    return Case(name, [AS_JSON], IN_JSON[place](MODELS[name], unit * (size // len(unit)), unit))


def in_head(name: str, place: str, unit: bytes, size: int) -> Case:
    """A JSON request as the head of the binary-data form, with nothing behind it."""
    value = in_json(name, place, unit, size).value
    return Case(name, [AS_ROWS, (HEAD_LENGTH, b"%d" % len(value))], value)


# The worst values found, by hand and by the search of the benchmark: the model, the place, and the repeated unit
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
    ("bytes", "contents", b"\x10\5"),
    ("bytes", "packed", b"\1"),
    ("deep", "packed", b"\1"),
    ("deep", "packed", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"),
    ("truth", "packed", b"\1"),
    ("text", "contents", b"\x42\0"),
    ("text", "contents", b"\x42\2ab"),
    ("text", "raw", b"\0\0\0\0"),
    ("plain", "message", field(5, field(3, b"\1" * 15_000))),
    ("plain", "message", field(5, b"\x2a\0" * 7_500)),
    ("plain", "message", field(5, b"\x22\0" * 50)),
    ("plain", "message", field(5, field(4, b"") + field(5, b""))),
    ("many", "right input", b"\x22\0"),
    ("deep", "packed", b"\xff\1"),
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
    ("bytes", "data", b"1,"),
    ("deep", "data", b"5,"),
    ("long", "data", b"0.5,"),
    ("long", "data", b"1e39,"),
    ("long", "data of no shape", b"5,"),
    ("truth", "data", b"true,"),
    ("deep", "nested", b"[[0]],"),
    ("text", "data", b'"",'),
    ("text", "data", b'"ab",'),
    ("deep", "nested", b"{},"),
    ("text", "member", b'{"":[' * 490 + b"0" + b"]}" * 490 + b","),
]


def _case(build: Callable[[str, str, bytes, int], Case], name: str, place: str, unit: bytes) -> Callable[[int], Case]:
    return lambda size: build(name, place, unit, size)


NASTY: Mapping[str, Callable[[int], Case]] = {
    f"{form} {name} {place} {unit[:12]!r}": _case(build, name, place, unit)
    for form, build, found in [
        ("protobuf", in_protobuf, _NASTY_PROTOBUF),
        ("json", in_json, _NASTY_JSON),
    ]
    for name, place, unit in found
}
