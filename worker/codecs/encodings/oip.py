"""The rules that Open Inference Protocol requests share in every encoding.

`oip_json` and `oip_protobuf` take a value apart into a `Question`. This module compares it with the model's signature:
first the claims, then the elements, then the wanted outputs and their form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from worker.codecs.encodings.elements import NAMES
from worker.codecs.request_headers import Envelope
from worker.codecs.wire_contract import JSON, MAX_TEXT, OCTETS, PROTOBUF
from worker.core.failures import Code, Reject, listed
from worker.core.records import Reply, RequestedOutput, Tensor
from worker.core.tensors.signature import Judged, Signature
from worker.core.tensors.specs import TEXT_BYTES, NamedTensor, TensorSpec

# Reads the elements of a claim that was found true. Takes the input's spec and the number of elements.
Elements = Callable[[TensorSpec, int], Tensor]
Named = TypeVar("Named")


class Claim(NamedTuple):
    """One input as a request claims it. `shape` may hold anything until the signature has judged it."""

    name: str
    datatype: str
    shape: Sequence[int]
    elements: Elements


class WantedOutput(NamedTuple):
    """One entry of a request's `outputs`; `binary` None: the request as a whole decides its form."""

    name: str
    binary: bool | None


class Question(NamedTuple):
    """A request taken apart, but not judged. `binary` is the form of outputs that do not say theirs.

    Inputs and outputs are read only when asked for, because a value may name any number of them, and raise `Reject`
    then. `sequence` is the parameter that makes it a step of a sequence.
    """

    model_name: str | None
    model_version: str | None
    claims: Iterable[Claim]
    outputs: Iterable[WantedOutput]
    binary: bool | None
    sequence: str | None = None


def check_size(what: str, size: int, most: int) -> None:
    """Raises `Reject` for more bytes than may be parsed at once: for one byte a parser makes up to 80, in 0.1 µs."""
    if size > most:
        raise Reject(
            f"{what} has {size} bytes, at most {most} are taken (WORKER_KAFKA__MAX_JSON_BYTES): send large tensors as "
            "bytes, in plain rows, the binary-data form or raw_input_contents",
            Code.RESOURCE_EXHAUSTED,
        )


class Body(Protocol):
    """A value with correct syntax."""

    @property
    def body_id(self) -> str | None:
        """The request's id. Raises `Reject` if it is no short string."""

    def question(self) -> Question:
        """Take the request apart. Raises `Reject` if it is none."""


def checked_id(body_id: object) -> str | None:
    """The id of a request, which goes back as it was sent. Raises `Reject` if it is no short string."""
    if body_id is None:
        return None
    if not isinstance(body_id, str):
        raise Reject(f"id: expected a string, got {NAMES[type(body_id)]}")
    if len(body_id.encode()) > MAX_TEXT:
        raise Reject(f"id: at most {MAX_TEXT} bytes, got {len(body_id.encode())}")
    return body_id


# Parameters of other servers. One that would change the answer is refused: if it were ignored, the requester would get
# the answer to another question, with `status: ok`. One that only says how soon, or for whom, is ignored.
_REFUSED = {
    "shared_memory_region": "the worker shares no memory with you; send the elements, and read the answer",
    "classification": "no classes are made of scores here; take the highest of the scores that come",
}
_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
# The names of all parameters that are looked at, except the ones of the binary-data form.
KNOWN_PARAMETERS = frozenset({"content_type", *_REFUSED, *_SEQUENCE})


def sequence_of(parameters: Mapping[str, Any]) -> str | None:
    """The parameter that makes a request a step of a sequence, if any. Raises `Reject` for a refused parameter."""
    check_parameters(parameters, "the request", "np", "pd", "str")
    # With Triton a 0 and an empty text mean none.
    return next((name for name in _SEQUENCE if parameters.get(name)), None)


def check_input(parameters: Mapping[str, Any], datatype: str, where: str) -> None:
    """Raises `Reject` if parameters say that this input's elements are something else than they would be taken for."""
    check_parameters(parameters, where, "np", *(["str"] if datatype == "BYTES" else []))


def check_parameters(parameters: Mapping[str, Any], where: str, *harmless: str) -> None:
    """Raises `Reject` for a parameter that would change the answer. The `harmless` content types change nothing."""
    if KNOWN_PARAMETERS.isdisjoint(parameters):
        return
    packed = parameters.get("content_type")
    if packed and packed not in harmless:
        got = repr(packed[:80]) if isinstance(packed, str) else NAMES[type(packed)]
        raise Reject(
            f"{where}: parameter content_type: {got} is not decoded here: send what it decodes to, without the "
            f"parameter (only {', '.join(harmless)} may stay, which changes nothing)"
        )
    for name, why in _REFUSED.items():
        if parameters.get(name):
            raise Reject(f"{where}: parameter {name}: {why}")


def sequence_refused(name: str) -> Reject:
    """The refusal of a step of a sequence by a model with state, whose states belong to keys."""
    return Reject(
        f"parameter {name}: the model remembers something of each key, not of a sequence_id: publish the steps of a "
        "sequence under one key, and send the header state: reset with its first step, delete with its last"
    )


def judge(signature: Signature, question: Question) -> Judged:
    """The question's tensors, judged. Raises `Reject` if another model is meant, or if this one does not take them."""
    signature.check_model(question.model_name, question.model_version)
    return signature.judge([_tensor(signature, claim) for claim in _few(question.claims, signature.inputs)])


def _few(named: Iterable[Named], specs: Sequence[TensorSpec]) -> Iterable[Named]:
    """At most one more than the model has: if there are more, one is unknown or comes twice."""
    return islice(named, len(specs) + 1)


def _tensor(signature: Signature, claim: Claim) -> NamedTensor:
    elements = signature.check_claim(claim.name, claim.datatype, claim.shape)
    tensor = claim.elements(signature.input(claim.name), elements)
    return NamedTensor(claim.name, claim.datatype, claim.shape, tensor)


def reply_to(signature: Signature, question: Question, envelope: Envelope, reply: Reply) -> Reply:
    """The reply that this question wants. Raises `Reject` if no admitted encoding can carry it."""
    asked = list(_few(question.outputs, signature.outputs))
    outputs = _wanted(signature, asked)
    if reply.content_type == PROTOBUF:
        return reply._replace(outputs=tuple(RequestedOutput(output.name, binary=True) for output in outputs))
    by_default = reply.content_type == OCTETS if question.binary is None else question.binary
    if asked or by_default:
        requested = tuple(RequestedOutput(name, by_default if binary is None else binary) for name, binary in outputs)
    else:
        requested = signature.all_inline
    check_inline(signature, requested)
    if reply.content_type == JSON and any(output.binary for output in requested):
        if OCTETS not in envelope.admitted:
            raise Reject(f"binary outputs are asked for, but `accept` admits only {', '.join(envelope.admitted)}")
        return reply._replace(content_type=OCTETS, outputs=requested)
    return reply._replace(outputs=requested)


def _wanted(signature: Signature, outputs: Sequence[WantedOutput]) -> Sequence[WantedOutput]:
    """The outputs asked for, or all if none is named. Raises `Reject` for an unknown one, and for one named twice."""
    if not outputs:
        return [WantedOutput(spec.name, None) for spec in signature.outputs]
    unknown = [output.name for output in outputs if output.name not in signature.output_index]
    if unknown:
        raise Reject(f"the model has no output {unknown[0][:80]!r}; it gives {listed(signature.outputs)}")
    if len({output.name for output in outputs}) < len(outputs):
        raise Reject("an output is asked for twice")
    return outputs


def check_inline(signature: Signature, requested: Sequence[RequestedOutput]) -> None:
    """Raises `Reject` if an output that is wanted in JSON has no form there."""
    for name, binary in requested:
        if not binary and signature.outputs[signature.output_index[name]].datatype == "FP16":
            raise Reject(
                f"output {name}: FP16 has no form in JSON; ask for it with the parameter "
                "binary_data, or accept application/octet-stream or application/x-protobuf"
            )


def memory(judged: Judged) -> int:
    """The bytes that the tensors hold in addition to the record's own; views of the value hold none."""
    return sum(_tensor_memory(tensor) for tensor in judged.tensors)


def _tensor_memory(tensor: Tensor) -> int:
    if isinstance(tensor, np.ndarray):
        return tensor.size * TEXT_BYTES if tensor.dtype == object else tensor.nbytes
    return len(tensor) if isinstance(tensor, bytes) else 0
