"""Open Inference Protocol requests and answers as protobuf: `inference.ModelInferRequest` and `ModelInferResponse`.

The messages live in a descriptor pool of their own, built from the descriptor that `schemas/generate.py` made: in
protobuf's default pool they would collide with those of any other client of the protocol in the process.

Imported by the first message, not by the start of a worker, which would take 12 ms longer (measured).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from worker.codecs.elements import from_bytes, from_values, text
from worker.codecs.inference_pb2 import DESCRIPTOR
from worker.codecs.oip import Claim, Elements, Output, Question, WantedOutput, checked_id
from worker.core.failures import Reject
from worker.core.records import Tensor
from worker.core.signature import Signature, TensorSpec

_POOL = DescriptorPool()
_POOL.AddSerializedFile(DESCRIPTOR)


def _message(name: str) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"inference.{name}"))


_InferRequest = _message("ModelInferRequest")
_InferResponse = _message("ModelInferResponse")
_InferenceError = _message("InferenceError")

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


class ProtobufBody:
    """A parsed message. Nothing in it is trusted."""

    def __init__(self, message: Any) -> None:
        self._message = message

    @classmethod
    def parse(cls, value: bytes) -> ProtobufBody:
        """Raises `Reject` for what is no message of that type."""
        try:
            return cls(_InferRequest.FromString(value))
        except DecodeError as error:
            raise Reject(f"the value is no inference.ModelInferRequest: {error}") from None

    @property
    def body_id(self) -> str | None:
        """None for an empty id: protobuf does not tell it from none."""
        return checked_id(self._message.id or None)

    def question(self) -> Question:
        message = self._message
        outputs = [WantedOutput(output.name, None) for output in message.outputs]
        return Question(message.model_name, message.model_version, self._claims(), outputs, None)

    def _claims(self) -> list[Claim]:
        inputs = self._message.inputs
        if not inputs:
            raise Reject("expected at least one tensor in `inputs`")
        raw = self._message.raw_input_contents
        if raw and len(raw) != len(inputs):
            raise Reject(f"raw_input_contents: expected one entry for each of {len(inputs)} inputs, got {len(raw)}")
        return [
            Claim(tensor.name, tensor.datatype, list(tensor.shape), _elements(tensor, raw[at] if raw else None))
            for at, tensor in enumerate(inputs)
        ]


def _elements(tensor: Any, raw: bytes | None) -> Elements:
    if raw is None:
        return partial(_contents, tensor.contents)
    if tensor.contents.ListFields():
        raise Reject(f"input {tensor.name[:80]!r}: given in raw_input_contents and in contents too")
    return partial(from_bytes, raw)


def _contents(contents: Any, spec: TensorSpec, elements: int) -> Tensor:
    field = _FIELDS.get(spec.datatype, "raw_input_contents")
    given = [descriptor.name for descriptor, _ in contents.ListFields()]
    if given != [field]:
        raise Reject(f"input {spec.name}: expected its {spec.datatype} elements in {field}, got {given or 'none'}")
    values = list(getattr(contents, field))
    if len(values) != elements:
        raise Reject(f"input {spec.name}: the shape holds {elements} elements, {field} has {len(values)}")
    return from_values(spec, [text(spec, value) for value in values] if spec.is_text else values)


def request(inputs: Sequence[Output]) -> bytes:
    """The serialized request; tensors in `raw_input_contents`."""
    message = _InferRequest()
    for spec, array, raw in inputs:
        message.inputs.add(name=spec.name, datatype=spec.datatype, shape=array.shape)
        message.raw_input_contents.append(raw)
    serialized: bytes = message.SerializeToString()
    return serialized


def answer(signature: Signature, outputs: Sequence[Output], body_id: str | None) -> bytes:
    """The serialized response; tensors in `raw_output_contents`."""
    message = _InferResponse(model_name=signature.name, model_version=signature.version, id=body_id or "")
    for spec, array, raw in outputs:
        message.outputs.add(name=spec.name, datatype=spec.datatype, shape=array.shape)
        message.raw_output_contents.append(raw)
    serialized: bytes = message.SerializeToString()
    return serialized


def error(message: str, body_id: str | None) -> bytes:
    """The serialized `InferenceError`."""
    serialized: bytes = _InferenceError(error=message, id=body_id or "").SerializeToString()
    return serialized


# Read by people, not by the worker


def read_error(value: bytes) -> tuple[str, str]:
    """The message and the id of an `InferenceError`. Raises `ValueError` for what is none."""
    message = _parsed(_InferenceError, value)
    return message.error, message.id


def read_tensors(
    value: bytes, role: Literal["inputs", "outputs"]
) -> tuple[dict[str, str], list[tuple[str, str, list[int], bytes | list[object]]]]:
    """Names and tensors (name, datatype, shape, bytes or elements) of a request (`inputs`) or response (`outputs`).

    Raises `ValueError` for what is no such message.
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
