"""Reads Open Inference Protocol requests as protobuf, `inference.ModelInferRequest`; answers too, for tools.

The messages have a descriptor pool of their own, built from the descriptor that `schemas/generate.py` made. In
protobuf's default pool they would collide with the messages of another client of the protocol in the process.

The first message imports this module, not the start of a worker, which would take 12 ms longer (measured 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from worker.codecs.answer_forms import AskedAnswer, WantedOutput
from worker.codecs.encodings import oip, protobuf_writer
from worker.codecs.encodings.elements import from_bytes, from_values, texts
from worker.codecs.encodings.inference_pb2 import DESCRIPTOR
from worker.codecs.encodings.layouts import ComparedEncoding, Slices
from worker.codecs.encodings.oip import Claim, Good, Question, check_size
from worker.codecs.request_headers import HeaderForm
from worker.core.failures import Code, Reject
from worker.core.records import Tensor
from worker.core.tensors.signature import MAX_DIMENSIONS
from worker.core.tensors.specs import TensorSpec


def _pool(descriptor: bytes) -> DescriptorPool:
    pool = DescriptorPool()
    pool.AddSerializedFile(descriptor)
    return pool


_POOL = _pool(DESCRIPTOR)


def _message(name: str) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"inference.{name}"))


_InferRequest = _message("ModelInferRequest")
_InferResponse = _message("ModelInferResponse")
_InferenceError = _message("InferenceError")
_Contents = _message("InferTensorContents")

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
# The numbers of fields: of a request, of an input, and of its contents.
_ID_FIELD, _INPUT_FIELD, _RAW_FIELD = 3, 5, 7
_CONTENTS_FIELD, _FLOAT_FIELDS = 5, (6, 7)
_BYTES = 2  # the type of a field of bytes
# A message with more fields is parsed each time: half a million texts in its contents would take 0.7 s to look at.
_MOST_LEARNED = 1000
_NUMBERS = {field.name: field.number for field in _Contents.DESCRIPTOR.fields}


class Protobuf(ComparedEncoding[Any]):
    """Reads protobuf requests, of at most `most_bytes` outside `raw_input_contents`."""

    def _parsed(self, form: HeaderForm, value: bytes) -> tuple[Any, object]:  # noqa: ARG002  # one for all encodings
        if len(value) > _SMALL:
            check_size("the message, without its raw_input_contents,", _size_beside_raw(value), self._most_bytes)
        try:
            message = _InferRequest.FromString(value)
        except DecodeError as error:
            raise Reject(f"the value is no inference.ModelInferRequest: {error}") from None
        return message, message.id or None  # protobuf does not tell an empty id from none

    def _question(self, held: Any) -> Question:
        said = held.parameters
        sequence = oip.sequence_of(_parameters(said)) if said else None
        asked = AskedAnswer(map(_output, held.outputs))
        return Question(held.model_name, held.model_version, _claims(held), asked, sequence)

    def _slices(self, value: bytes, held: Any, good: Good) -> Slices | None:
        met = _fields(value, slice(0, len(value)), _MOST_LEARNED)
        statement, tensors, _ = good
        if raw := list(held.raw_input_contents):
            found = [at for number, at in met if number == _RAW_FIELD]
            is_so = [value[at] for at in found] == raw
        else:
            found = [numbers for number, at in met if number == _INPUT_FIELD for numbers in _floats(value, at)]
            claims, indexes = statement.claims, statement.claim_indexes()
            is_whole = indexes is not None and len(found) == len(claims) and all(spec.is_float for spec, _ in claims)
            is_so = is_whole and [value[found[at]] for at in indexes or ()] == list(tensors)
        return Slices(found, [at for number, at in met if number == _ID_FIELD]) if is_so else None


def _claims(message: Any) -> Iterator[Claim]:
    inputs = message.inputs
    if not inputs:
        raise Reject("expected at least one tensor in `inputs`")
    raw = message.raw_input_contents
    if raw and len(raw) != len(inputs):
        raise Reject(f"raw_input_contents: expected one entry for each of {len(inputs)} inputs, got {len(raw)}")
    for at, tensor in enumerate(inputs):
        elements = _elements(tensor, raw[at] if raw else None)
        yield Claim(tensor.name, tensor.datatype, _shape(tensor.shape), elements)


# A message of at most this size is parsed unchecked. The worst one, inputs with an empty parameter each, takes 20 MiB.
_SMALL = 256 * 1024
# The worst message of this many fields, with 1 MiB in other fields than raw_input_contents, takes as much memory.
_MOST_FIELDS = 10_000


def _size_beside_raw(value: bytes) -> int:
    """The bytes that a message has outside `raw_input_contents`. Raises `Reject` for many fields, or odd ones.

    The parser makes an object of 64 to 300 bytes for each input, which may have two bytes in the message.
    """
    found = _fields(value, slice(0, len(value)), _MOST_FIELDS)
    if not found:
        raise Reject(
            f"a message of over {_SMALL} bytes may have {_MOST_FIELDS} fields, all of them bytes, texts or messages",
            Code.RESOURCE_EXHAUSTED,
        )
    raw: int = sum([at.stop - at.start for number, at in found if number == _RAW_FIELD])
    return len(value) - raw


def _floats(value: bytes, of: slice) -> Iterator[slice]:
    """The slice of the numbers in an input's contents, if these are one packed field of floats, as in memory."""
    contents = [at for number, at in _fields(value, of, _MOST_LEARNED) if number == _CONTENTS_FIELD]
    packed = _fields(value, contents[0], _MOST_LEARNED) if len(contents) == 1 else ()
    if len(packed) == 1 and packed[0][0] in _FLOAT_FIELDS:
        yield packed[0][1]


def _fields(value: bytes, of: slice, most: int) -> Sequence[tuple[int, slice]]:
    """The number of each field of a message, and where its contents are; none if some are no bytes, or there are more.

    Where a message breaks off, the last field goes beyond its end.
    """
    at, found = of.start, list[tuple[int, slice]]()
    while at < of.stop:
        tag, at = _varint(value, at)
        length, at = _varint(value, at)
        if tag & 7 != _BYTES or len(found) == most:
            return ()
        found.append((tag >> 3, slice(at, at := at + length)))
    return found


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends; 0 and the end of the value if no number begins there."""
    number = 0
    for shift, byte in enumerate(value[at : at + 10]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    return 0, len(value)


def _shape(shape: Sequence[int]) -> Sequence[int]:
    """The shape as a list, unless it is too long for any tensor."""
    return list(shape) if len(shape) <= MAX_DIMENSIONS else shape


def _elements(tensor: Any, raw: bytes | None) -> Callable[[TensorSpec, int], Tensor]:
    if said := tensor.parameters:
        oip.check_input(_parameters(said), tensor.datatype, f"input {tensor.name[:80]!r}")
    if raw is None:
        return partial(_contents, tensor.contents)
    if tensor.HasField("contents") and tensor.contents.ListFields():
        raise Reject(f"input {tensor.name[:80]!r}: given in raw_input_contents and in contents too")
    return partial(from_bytes, raw)


def _output(output: Any) -> WantedOutput:
    if said := output.parameters:
        oip.check_parameters(_parameters(said), f"output {output.name[:80]!r}", "np", "str")
    return output.name, None


def _parameters(said: Any) -> Mapping[str, object]:
    """The parameters whose names are known."""
    return {name: _value(said[name]) for name in oip.KNOWN_PARAMETERS if name in said}


def _value(parameter: Any) -> object:
    kind = parameter.WhichOneof("parameter_choice")
    return getattr(parameter, kind) if kind else None


def _contents(contents: Any, spec: TensorSpec, elements: int) -> Tensor:
    field = _FIELDS.get(spec.datatype, "raw_input_contents")
    if field in _NUMBERS and (spec.is_float or spec.datatype == "BOOL"):
        size = elements * spec.element_bytes
        # Floats and booleans are written as they are in memory.
        head, written = protobuf_writer.head(_NUMBERS[field], size), contents.SerializeToString()
        if len(written) == len(head) + size and written.startswith(head):
            return written[-size:]  # type: ignore[no-any-return]  # protobuf has no types
    given = [descriptor.name for descriptor, _ in contents.ListFields()]
    if given != [field]:
        raise Reject(f"input {spec.name}: expected its {spec.datatype} elements in {field}, got {given or 'none'}")
    values = getattr(contents, field)
    if len(values) != elements:
        raise Reject(f"input {spec.name}: the shape holds {elements} elements, {field} has {len(values)}")
    return from_values(spec, texts(spec, values) if spec.is_text else values[:])


# For tools that show messages to people; the worker does not use them


def read_error(value: bytes) -> tuple[str, str]:
    """The message and the id of an `InferenceError`. Raises `ValueError` for any other value."""
    message = _parsed(_InferenceError, value)
    return message.error, message.id


def read_tensors(
    value: bytes, role: Literal["inputs", "outputs"]
) -> tuple[dict[str, str], list[tuple[str, str, list[int], bytes | list[object]]]]:
    """The names and tensors (name, datatype, shape, bytes or elements) of a request or response, by `role`.

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
    """The elements, whichever field they are in; strings as text."""
    elements = [element for _, field in contents.ListFields() for element in field]
    return [
        element.decode(errors="backslashreplace") if isinstance(element, bytes) else element for element in elements
    ]


def _parsed(kind: Any, value: bytes) -> Any:
    try:
        return kind.FromString(value)
    except DecodeError as error:
        raise ValueError(str(error)) from None
