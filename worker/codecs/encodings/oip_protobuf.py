"""Open Inference Protocol requests and answers as protobuf: `inference.ModelInferRequest` and `ModelInferResponse`.

The messages live in a descriptor pool of their own, built from the descriptor that `schemas/generate.py` made: in
protobuf's default pool they would collide with those of any other client of the protocol in the process.

Imported by the first message, not by the start of a worker, which would take 12 ms longer (measured 2026).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from worker.codecs.encodings import oip, protobuf_wire
from worker.codecs.encodings.elements import from_bytes, from_values, out_of_range, pack, texts
from worker.codecs.encodings.inference_pb2 import DESCRIPTOR
from worker.codecs.encodings.oip import Claim, Elements, Output, Question, TensorCounts, WantedOutput, checked_id
from worker.core.failures import Reject
from worker.core.records import ModelKey, Tensor
from worker.core.tensors.signature import MAX_DIMENSIONS
from worker.core.tensors.specs import TensorSpec


def _pool(descriptor: bytes) -> DescriptorPool:
    pool = DescriptorPool()
    pool.AddSerializedFile(descriptor)
    return pool


def _what_is_read() -> bytes:
    """The protocol's file with parameters and contents left as the bytes they are.

    A parameter takes 20 ns and 50 bytes to parse, and nearly all of them mean nothing here.
    """
    file = FileDescriptorProto.FromString(DESCRIPTOR)
    request = next(message for message in file.message_type if message.name == "ModelInferRequest")
    for message in (request, *request.nested_type):
        for field in message.field:
            if field.name in {"parameters", "contents"}:
                field.type, field.label = FieldDescriptorProto.TYPE_BYTES, FieldDescriptorProto.LABEL_REPEATED
                field.ClearField("type_name")
    read: bytes = file.SerializeToString()
    return read


_POOL, _READ_POOL = _pool(DESCRIPTOR), _pool(_what_is_read())


def _message(name: str, pool: DescriptorPool = _POOL) -> Any:
    return GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}"))


_InferRequest = _message("ModelInferRequest")
_InferResponse = _message("ModelInferResponse")
_InferenceError = _message("InferenceError")
_Contents = _message("InferTensorContents")
_Parameter = _message("ModelInferRequest.ParametersEntry")
_Asked = _message("ModelInferRequest", _READ_POOL)

# So few bytes are parsed without a look at them: the worst such value takes 0.2 ms and 0.7 MiB.
_SMALL = 16 * 1024

# The field of InferTensorContents for each datatype. FP16 has none.
_FIELDS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_NUMBERS = {field.name: field.number for field in _Contents.DESCRIPTOR.fields}
# Numbers that are not packed, as no common client writes them, are read one by one: 20 ns and 24 bytes for each.
_MOST_UNPACKED = 4 * 1024
# A message may be written in parts, which no client does.
_MOST_PARTS = 16


class ProtobufBody:
    """A parsed message. Nothing in it is trusted."""

    def __init__(self, message: Any, bounds: TensorCounts) -> None:
        self._message = message
        self._bounds = bounds

    @classmethod
    def parse(cls, value: bytes, bounds: TensorCounts) -> ProtobufBody:
        """Raises `Reject` for a value that is no such message, or has more in it than any request."""
        if len(value) > _SMALL:
            check_counts(value, bounds)
        try:
            return cls(_Asked.FromString(value), bounds)
        except DecodeError as error:
            raise Reject(f"the value is no inference.ModelInferRequest: {error}") from None

    @property
    def body_id(self) -> str | None:
        """None for an empty id: protobuf does not tell it from none."""
        return checked_id(self._message.id or None)

    def question(self) -> Question:
        message = self._message
        outputs = [_output(output) for output in message.outputs[: self._bounds.most_outputs]]
        said = message.parameters
        over = oip.passed_over(_parameters(said, "the request")) if said else ()
        return Question(message.model_name, message.model_version, self._claims(), outputs, None, over)

    def _claims(self) -> list[Claim]:
        inputs = self._message.inputs
        if not inputs:
            raise Reject("expected at least one tensor in `inputs`")
        raw = self._message.raw_input_contents
        if raw and len(raw) != len(inputs):
            raise Reject(f"raw_input_contents: expected one entry for each of {len(inputs)} inputs, got {len(raw)}")
        few = inputs if len(inputs) <= self._bounds.inputs else inputs[: self._bounds.most_inputs]
        return [
            Claim(tensor.name, tensor.datatype, _shape(tensor.shape), _elements(tensor, raw[at] if raw else None))
            for at, tensor in enumerate(few)
        ]


def _shape(shape: Sequence[int]) -> Sequence[int]:
    """As a list, unless it is too long for any tensor."""
    return list(shape) if len(shape) <= MAX_DIMENSIONS else shape


def _elements(tensor: Any, raw: bytes | None) -> Elements:
    if said := tensor.parameters:
        where = f"input {tensor.name[:80]!r}"
        oip.check_input(_parameters(said, where), tensor.datatype, where)
    contents = tensor.contents
    if len(contents) > _MOST_PARTS:
        raise Reject(
            f"input {tensor.name[:80]!r}: its contents come in {len(contents)} parts, at most {_MOST_PARTS} are read"
        )
    if raw is None:
        return partial(_contents, contents)
    if contents and any(contents):
        raise Reject(f"input {tensor.name[:80]!r}: given in raw_input_contents and in contents too")
    return partial(from_bytes, raw)


def _output(output: Any) -> WantedOutput:
    if said := output.parameters:
        where = f"output {output.name[:80]!r}"
        oip.check_parameters(_parameters(said, where), where, "np", "str")
    return WantedOutput(output.name, None)


# Clients send at most a handful. Each that is looked at takes 0.2 µs, and one of a known name 1.5.
_MOST_PARAMETERS = 32
_KNOWN_PARAMETER = re.compile("|".join(oip.KNOWN_PARAMETERS).encode())


def _parameters(entries: Sequence[bytes], where: str) -> Mapping[str, object]:
    """The parameters with a name that is looked at. Raises `Reject` for more than any client sends."""
    if len(entries) > _MOST_PARAMETERS:
        raise Reject(f"{where}: {len(entries)} parameters, at most {_MOST_PARAMETERS} are read")
    known = [entry for entry in entries if _KNOWN_PARAMETER.search(entry)]
    # Of a name that comes again the last counts, and there are no more names.
    return dict(filter(None, map(_parameter, known[-len(oip.KNOWN_PARAMETERS) :])))


def _parameter(entry: bytes) -> tuple[str, object] | None:
    try:
        parameter = _Parameter.FromString(entry)
    except DecodeError:  # as what is passed over may be
        return None
    kind = parameter.value.WhichOneof("parameter_choice")
    return parameter.key, getattr(parameter.value, kind) if kind else None


# The fields of a request and of an input, by number, that may be large.
_INPUTS, _SHAPE = 5, 3
_LONGEST_VARINT = 10
# Fields that no model asks for: names, an id, parameters, what a later version of the protocol may bring.
_SPARE_FIELDS = 64
# An input of so many bytes may have anything in it: there are not many of them.
_SMALL_INPUT = 1024


def check_counts(value: bytes, bounds: TensorCounts) -> None:
    """Raises `Reject` for more fields than a request to the model can need. Looks at no more than that either.

    The parser makes an object of 64 bytes for each input and output, and 8 to 16 bytes for each dimension: of two bytes
    on the wire, or of one.
    """
    most = _SPARE_FIELDS + 4 * bounds.inputs + bounds.outputs
    for number, start, stop in _few_fields(value, 0, len(value), most):
        if number == _INPUTS and stop - start > _SMALL_INPUT:
            _check_input(value, start, stop)


def _check_input(value: bytes, start: int, stop: int) -> None:
    for number, begin, end in _few_fields(value, start, stop, _SPARE_FIELDS):
        if number == _SHAPE and end - begin > _LONGEST_VARINT * MAX_DIMENSIONS:
            raise Reject(f"a shape takes {end - begin} bytes: at most {MAX_DIMENSIONS} dimensions are possible")


def _few_fields(value: bytes, start: int, stop: int, most: int) -> Iterator[tuple[int, int, int]]:
    for count, field in enumerate(protobuf_wire.fields(value, start, stop)):
        if count == most:
            raise Reject(f"over {most} fields in a message: no request to this model needs so many")
        yield field


def _contents(parts: Sequence[bytes], spec: TensorSpec, elements: int) -> Tensor:
    """The elements of an input's contents: a message, which may come in parts."""
    parts = [part for part in parts if part]
    field = _FIELDS.get(spec.datatype, "raw_input_contents")
    packed = protobuf_wire.packed(parts[0], _NUMBERS[field]) if field in _NUMBERS and len(parts) == 1 else None
    tensor = None if packed is None else protobuf_wire.elements(spec, packed, elements, field)
    return tensor if tensor is not None else _read_contents(parts, field, spec, elements)


def _read_contents(parts: Sequence[bytes], field: str, spec: TensorSpec, elements: int) -> Tensor:
    """The contents of strings, and of messages that are wrong or that no common client writes."""
    if sum(map(len, parts)) > _MOST_UNPACKED and not spec.is_text:
        raise Reject(f"input {spec.name}: expected {elements} elements in {field}, packed, in range and nothing beside")
    try:
        contents = _Contents()
        for part in parts:  # each a message of its own: what is cut in two is none
            contents.MergeFromString(part)
    except DecodeError as error:
        raise Reject(f"input {spec.name}: its contents are no inference.InferTensorContents: {error}") from None
    given = [descriptor.name for descriptor, _ in contents.ListFields()]
    if given != [field]:
        raise Reject(f"input {spec.name}: expected its {spec.datatype} elements in {field}, got {given or 'none'}")
    values = getattr(contents, field)
    protobuf_wire.check_count(spec, elements, len(values), field)
    return from_values(spec, texts(spec, values)) if spec.is_text else _one_by_one(spec, values[:])


def _one_by_one(spec: TensorSpec, values: list[Any]) -> bytes:
    """The elements one by one, all of the field's kind."""
    try:
        return pack(spec.datatype, values)
    except (struct.error, OverflowError):
        raise out_of_range(spec) from None


def request(inputs: Sequence[Output]) -> bytes:
    """The serialized request; tensors in `raw_input_contents`."""
    message = _InferRequest()
    for spec, array, raw in inputs:
        message.inputs.add(name=spec.name, datatype=spec.datatype, shape=array.shape)
        message.raw_input_contents.append(raw)
    serialized: bytes = message.SerializeToString()
    return serialized


def answer(model: ModelKey, outputs: Sequence[Output], body_id: str | None) -> bytes:
    """The serialized response; tensors in `raw_output_contents`."""
    message = _InferResponse(model_name=model.name, model_version=model.version, id=body_id or "")
    for spec, array, raw in outputs:
        message.outputs.add(name=spec.name, datatype=spec.datatype, shape=array.shape)
        message.raw_output_contents.append(raw)
    serialized: bytes = message.SerializeToString()
    return serialized


def error(message: str, body_id: str | None) -> bytes:
    serialized: bytes = _InferenceError(error=message, id=body_id or "").SerializeToString()
    return serialized


# Read by people, not by the worker


def read_error(value: bytes) -> tuple[str, str]:
    """The message and the id of an `InferenceError`. Raises `ValueError` for any other value."""
    message = _parsed(_InferenceError, value)
    return message.error, message.id


def read_tensors(
    value: bytes, role: Literal["inputs", "outputs"]
) -> tuple[dict[str, str], list[tuple[str, str, list[int], bytes | list[object]]]]:
    """Names and tensors (name, datatype, shape, bytes or elements) of a request (`inputs`) or response (`outputs`).

    Raises `ValueError` for any other value.
    """
    message = _parsed(_InferRequest if role == "inputs" else _InferResponse, value)
    names = {name: getattr(message, name) for name in ("model_name", "model_version", "id")}
    tensors = list(getattr(message, role))
    raw = list(message.raw_input_contents if role == "inputs" else message.raw_output_contents)
    held = raw if len(raw) == len(tensors) else [_all_contents(tensor.contents) for tensor in tensors]
    found = [(tensor.name, tensor.datatype, list(tensor.shape), one) for tensor, one in zip(tensors, held, strict=True)]
    return {name: text for name, text in names.items() if text}, found


def _all_contents(contents: Any) -> list[object]:
    """The elements, in whichever field they are; strings as text."""
    elements = [element for _, field in contents.ListFields() for element in field]
    return [
        element.decode(errors="backslashreplace") if isinstance(element, bytes) else element for element in elements
    ]


def _parsed(kind: Any, value: bytes) -> Any:
    try:
        return kind.FromString(value)
    except DecodeError as error:
        raise ValueError(str(error)) from None
