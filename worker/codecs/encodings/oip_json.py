"""Open Inference Protocol requests and answers as JSON, alone or as the head of the binary-data form.

A request is an object with `inputs`, each with `name`, `shape`, `datatype` and either `data` or, in the binary-data
form, the parameter `binary_data_size`. Members that are not named here mean nothing and are passed over, and so are
parameters, except some of other servers. Where a name comes twice in an object the last counts, as in every JSON
parser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import orjson

from worker.codecs.encodings import json_numbers, oip
from worker.codecs.encodings.elements import NAMES, flat, from_bytes, from_values
from worker.codecs.encodings.json_numbers import NO_UTF8, Frame, fault_of, frame_of
from worker.codecs.encodings.oip import SMALL, Claim, Output, Question, TensorCounts, WantedOutput, checked_id
from worker.codecs.encodings.raw_tensor import split
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.failures import Reject
from worker.core.records import ModelKey, Tensor
from worker.core.tensors.specs import TensorSpec

Object = dict[str, Any]

_NOTHING = memoryview(b"")


class JsonBody:
    """A parsed JSON object, and the bytes that came behind it. Nothing in it is trusted."""

    def __init__(self, document: Object, tail: memoryview, numbers: Mapping[str, bytes], bounds: TensorCounts) -> None:
        self._document = document
        self._tail = tail
        self._numbers = numbers
        self._bounds = bounds

    @classmethod
    def parse(cls, value: bytes, head_length: int | None, bounds: TensorCounts) -> JsonBody:
        """Raises `Reject` for any other value than a JSON object, or for one with more in it than any request."""
        text, tail = value, _NOTHING
        if head_length is not None:
            head, tail = split(value, head_length)
            text = bytes(head)
        numbers: Mapping[str, bytes] = {}
        if len(text) > _TINY and not _is_plain(text) and not _is_of_many_inputs(text, bounds):
            text, numbers = _checked_frame(text, bounds)
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            held = "the value" if head_length is None else f"the head of {head_length} bytes ({HEAD_LENGTH})"
            fault = fault_of(error)
            where = "" if numbers or fault == NO_UTF8 else str(error).removeprefix(error.msg)
            raise Reject(f"{held} is not JSON: {fault}{where}") from None
        if not isinstance(document, dict):
            raise Reject(f"expected a JSON object with `inputs`, got {NAMES[type(document)]}")
        return cls(document, tail, numbers, bounds)

    @property
    def body_id(self) -> str | None:
        return checked_id(self._document.get("id"))

    def question(self) -> Question:
        document = self._document
        said = _parameters(document, "the request")
        return Question(
            _optional(document, "model_name", str, "the request"),
            _optional(document, "model_version", str, "the request"),
            self._claims(),
            [self._output(entry) for entry in _objects(document, "outputs")[: self._bounds.most_outputs]],
            _optional(said, "binary_data_output", bool, "the request"),
            oip.passed_over(said) if said else (),
        )

    def _claims(self) -> list[Claim]:
        inputs = _objects(self._document, "inputs")
        if not inputs:
            raise Reject("expected `inputs`, an array of at least one tensor")
        claims = []
        at = 0
        for entry in inputs[: self._bounds.most_inputs]:
            name = _required(entry, "name", str, "an input")
            where = f"input {name[:80]!r}"
            datatype = _required(entry, "datatype", str, where)
            size = None
            if said := _parameters(entry, where):
                size = _optional(said, "binary_data_size", int, where)
                oip.check_input(said, datatype, where)
            if size is None:
                elements = partial(_inline, entry, self._numbers)
            else:
                elements = partial(from_bytes, self._slice(at, size, where))
                at += size
            claims.append(Claim(name, datatype, _required(entry, "shape", list, where), elements))
        if at != len(self._tail) and len(claims) == len(inputs):
            raise Reject(f"{len(self._tail)} bytes came behind the JSON head, binary_data_size speaks of {at}")
        return claims

    def _slice(self, at: int, size: int, where: str) -> memoryview:
        if size < 0 or at + size > len(self._tail):
            raise Reject(f"{where}: binary_data_size is {size}, {len(self._tail) - at} bytes are left")
        return self._tail[at : at + size]

    @staticmethod
    def _output(entry: Object) -> WantedOutput:
        name = _required(entry, "name", str, "an output")
        where = f"output {name[:80]!r}"
        said = _parameters(entry, where)
        oip.check_parameters(said, where, "np", "str")
        return WantedOutput(name, _optional(said, "binary_data", bool, where))


def _inline(entry: Object, numbers: Mapping[str, bytes], spec: TensorSpec, elements: int) -> Tensor:
    if "data" not in entry:
        raise Reject(
            f"input {spec.name}: expected `data`, or the parameter binary_data_size with bytes behind the head"
        )
    data = entry["data"]
    if numbers and isinstance(data, str) and (held := numbers.get(data)) is not None:
        return json_numbers.elements(held, spec, entry["shape"], elements)
    return from_values(spec, flat(spec, elements, entry["shape"], data))


# So many bytes for each input and output, with names and shapes; the rest is for the model's name, and parameters.
_MOST_FOR_EACH = 512
# Of so few bytes not even arrays in arrays take longer than is promised, and of twice as many not even objects.
_TINY = 2 * 1024
_FEW = 64
# An input of an element says some 70 bytes. Where names are few a parser makes 16 bytes of one at most: 0.8 MiB.
_MANY, _LONGEST_OF_MANY = 16, 48 * 1024


def _is_plain(text: bytes) -> bool:
    """Whether it may be parsed as it is."""
    return len(text) <= SMALL and _has_few(text, b"[") and (len(text) <= 2 * _TINY or _has_few(text, b"{"))


def _is_of_many_inputs(text: bytes, bounds: TensorCounts) -> bool:
    """Whether it may be parsed as it is, for it has little more in it than a short array for each of many inputs.

    To read their numbers apart takes half as long again (500 inputs of an element, measured 2026-11: 7.2 ms, so 4.9).
    """
    most = bounds.inputs + _FEW
    if bounds.inputs < _MANY or len(text) > _LONGEST_OF_MANY:
        return False
    return _count(text, "{") <= 2 * most and _count(text, "[") <= 4 * most and _count(text, '"') <= 24 * most


def _has_few(text: bytes, bracket: bytes) -> bool:
    """Most often there are three or four, and each is found in 0.1 µs; to count takes 1.5 µs."""
    at = -1
    for _ in range(_FEW):
        at = text.find(bracket, at + 1)
        if at < 0:
            return True
    return False


def _checked_frame(head: bytes, bounds: TensorCounts) -> Frame:
    """The head apart from its numbers. Raises `Reject` where the rest is more than any request needs."""
    frame = frame_of(head, bounds.most_inputs)
    most = _TINY + _MOST_FOR_EACH * (bounds.inputs + bounds.outputs)
    if len(frame.text) > most and not (bounds.has_text and _is_mostly_text(frame.text)):
        if not head.lstrip().startswith(b"{"):  # rows, compressed bodies, Avro: most often a header was forgotten
            raise Reject(f"the value is not a JSON object with `inputs`: it begins with {head[:16]!r}")
        how = (
            ", unless they are strings, flat or each in an array of its own"
            if bounds.has_text
            else "; so is all of a `data` that is, or has in it, a string or an object"
        )
        raise Reject(
            f"{len(frame.text)} bytes of the JSON are something else than the numbers of an input's `data`, "
            f"at most {most} are taken{how}"
        )
    return frame


def _is_mostly_text(text: bytes) -> bool:
    """Whether each string has no more than a comma and a bracket beside it, as in the arrays that are data.

    An object takes as much as three arrays.
    """
    return _has_room(text, _count(text, '"')) or _has_room(*_without_strings(text))


def _has_room(text: bytes, quotes: int) -> bool:
    return _count(text, "[") + 3 * _count(text, "{") + _count(text, ",") <= quotes + 4 * _FEW


def _count(text: bytes, character: str) -> int:
    # Where a character is frequent, `bytes.count` takes ten times as long.
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord(character)))


def _without_strings(text: bytes) -> tuple[bytes, int]:
    """The text outside of strings, and how many quotes begin or end one."""
    parts = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    return b"".join(parts[::2]), len(parts) - 1


def _objects(holder: Object, name: str) -> list[Object]:
    """A member that is an array of objects; none when it is absent."""
    entries = _optional(holder, name, list, "the request") or []
    for entry in entries:
        if type(entry) is not dict:
            raise Reject(f"`{name}`: expected an array of objects, got {NAMES[type(entry)]} in it")
    return entries


def _parameters(holder: Object, where: str) -> Object:
    return _optional(holder, "parameters", dict, where) or {}


def _required(holder: Object, name: str, kind: type, where: str) -> Any:
    found = _optional(holder, name, kind, where)
    if found is None:
        raise Reject(f"{where}: `{name}` is missing")
    return found


def _optional(holder: Object, name: str, kind: type, where: str) -> Any:
    """The member of that name, None when it is absent or null. Raises `Reject` when it is of another kind."""
    found = holder.get(name)
    if found is not None and type(found) is not kind:
        raise Reject(f"{where}: expected `{name}` to be {NAMES[kind]}, got {NAMES[type(found)]}")
    return found


def answer(model: ModelKey, outputs: Sequence[Output], body_id: str | None) -> bytes:
    """The answer of this model as JSON, or the head of one in binary-data form.

    NaN and infinity, which JSON has not, become null.
    """
    head = _opening(*model)
    if body_id is not None:
        head += b'"id":%b,' % orjson.dumps(body_id)
    return b'%b"outputs":[%b]}' % (head, b",".join([_entry(output) for output in outputs]))


def request(inputs: Sequence[Output]) -> bytes:
    """A request for these tensors as JSON, or the head of one in binary-data form."""
    return b'{"inputs":[%b]}' % b",".join([_entry(tensor) for tensor in inputs])


@lru_cache(maxsize=16)
def _opening(name: str, version: str) -> bytes:
    """How each answer of this model begins."""
    return orjson.dumps({"model_name": name, "model_version": version})[:-1] + b","


@lru_cache(maxsize=1024)
def _heading(name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    """How each tensor of this name and shape begins."""
    return orjson.dumps({"name": name, "shape": shape, "datatype": datatype})[:-1] + b","


def _entry(output: Output) -> bytes:
    spec, array, raw = output
    heading = _heading(spec.name, spec.datatype, array.shape)
    if raw is not None:
        return b'%b"parameters":{"binary_data_size":%d}}' % (heading, len(raw))
    # From the array's own memory, with the fewest digits that name each number: 0.1, not 0.10000000149011612.
    flat = array.reshape(-1).tolist() if spec.is_text else np.ascontiguousarray(array).reshape(-1)
    return b'%b"data":%b}' % (heading, orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY))


def error(message: str, body_id: str | None) -> bytes:
    return orjson.dumps({"error": message} if body_id is None else {"error": message, "id": body_id})
