"""Open Inference Protocol requests as JSON, alone or as the head of the binary-data form.

A request is an object with `inputs`, each with `name`, `shape`, `datatype` and either `data` or, in the binary-data
form, the parameter `binary_data_size`. Other members are ignored, and so are other parameters, except some that other
servers know. If a name comes twice in an object, the last counts, as in every JSON parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson

from worker.codecs.encodings import oip
from worker.codecs.encodings.elements import NAMES, flat, from_bytes, from_values
from worker.codecs.encodings.oip import Claim, Question, WantedOutput, check_size, checked_id
from worker.codecs.encodings.raw_tensor import split
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.failures import Reject
from worker.core.records import Tensor
from worker.core.tensors.specs import TensorSpec

Object = dict[str, Any]

_NOTHING = memoryview(b"")


class JsonBody:
    """A parsed JSON object, and the bytes that came after it. Nothing in it is trusted."""

    def __init__(self, document: Object, tail: memoryview) -> None:
        self._document = document
        self._tail = tail

    @classmethod
    def parse(cls, value: bytes, head_length: int | None, most_bytes: int) -> JsonBody:
        """Parse a JSON object of at most `most_bytes`. Raises `Reject` for any other value."""
        text: bytes | memoryview = value
        tail = _NOTHING
        if head_length is not None:
            text, tail = split(value, head_length)
        check_size("the JSON", len(text), most_bytes)
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            held = "the value" if head_length is None else f"the head of {head_length} bytes ({HEAD_LENGTH})"
            raise Reject(f"{held} is not JSON: {_fault_of(error)}") from None
        if not isinstance(document, dict):
            raise Reject(f"expected a JSON object with `inputs`, got {NAMES[type(document)]}")
        return cls(document, tail)

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
            map(self._output, _objects(document, "outputs")),
            _optional(said, "binary_data_output", bool, "the request"),
            oip.sequence_of(said) if said else None,
        )

    def _claims(self) -> Iterator[Claim]:
        inputs = _objects(self._document, "inputs")
        if not inputs:
            raise Reject("expected `inputs`, an array of at least one tensor")
        at = 0
        for entry in inputs:
            name = _required(entry, "name", str, "an input")
            where = f"input {name[:80]!r}"
            datatype = _required(entry, "datatype", str, where)
            size = None
            if said := _parameters(entry, where):
                size = _optional(said, "binary_data_size", int, where)
                oip.check_input(said, datatype, where)
            if size is None:
                elements = partial(_inline, entry)
            else:
                elements = partial(from_bytes, self._slice(at, size, where))
                at += size
            yield Claim(name, datatype, _required(entry, "shape", list, where), elements)
        if at != len(self._tail):
            raise Reject(f"{len(self._tail)} bytes came behind the JSON head, binary_data_size speaks of {at}")

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


def _inline(entry: Object, spec: TensorSpec, elements: int) -> Tensor:
    if "data" not in entry:
        raise Reject(
            f"input {spec.name}: expected `data`, or the parameter binary_data_size with bytes behind the head"
        )
    return from_values(spec, flat(spec, elements, entry["shape"], entry["data"]))


def _fault_of(error: orjson.JSONDecodeError) -> str:
    """The fault and its place. It names NaN and Infinity, which Python's own `json`, for example, writes."""
    if "surrogates" in error.msg:  # orjson says that of all bytes that are not UTF-8
        return "it is not UTF-8"
    odd = next((word for word in ("NaN", "Infinity") if error.doc.startswith(word, error.pos)), None)
    place = str(error).removeprefix(error.msg)
    return f"JSON has no {odd}{place}" if odd else f"{error.msg}{place}"


def _objects(holder: Object, name: str) -> list[Object]:
    """A member that is an array of objects; empty if it is absent."""
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
    """The member of that name; None if it is absent or null. Raises `Reject` if it is of another kind."""
    found = holder.get(name)
    if found is not None and type(found) is not kind:
        raise Reject(f"{where}: expected `{name}` to be {NAMES[kind]}, got {NAMES[type(found)]}")
    return found
