"""Parameters of other servers of the protocol, which say that a request or its answer means something else than here.

Clients of MLServer and Triton send them. One that would change the answer is refused: to pass it over is to answer
another question, with `status: ok`. One that says only how soon, or for whom, is passed over and told once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from worker.codecs.encodings.elements import NAMES
from worker.core.failures import Reject

CONTENT_TYPE = "content_type"  # MLServer's: how elements, columns or the answer are packed
_SHARED = "shared_memory_region"
_CLASSIFICATION = "classification"
_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")

_NO_STATE = "the model remembers nothing of a sequence"
# What is passed over, and what to use here.
PASSED_OVER: Mapping[str, str] = {
    "timeout": "send the header timeout-ms or deadline",
    "priority": "requests are answered in their order; send urgent ones to a topic and a deployment of their own",
    **dict.fromkeys(_SEQUENCE, _NO_STATE),
}

# All names that are looked at beside those of the binary-data form.
KNOWN = frozenset({CONTENT_TYPE, _SHARED, _CLASSIFICATION, *PASSED_OVER})

# Content types under which elements are what we take them for, or a request its named inputs: MLServer's `np`, `str`
# and, for a request whose inputs are the columns, `pd`.
_OF_REQUESTS, _OF_TEXT, _OF_NUMBERS = ("np", "pd", "str"), ("np", "str"), ("np",)


def passed_over(parameters: Mapping[str, Any]) -> Sequence[str]:
    """The parameters of a request that mean nothing here, nearly always none. Raises `Reject` for what is refused."""
    if KNOWN.isdisjoint(parameters):
        return ()
    _check_content_type(parameters, "the request", _OF_REQUESTS)
    return [name for name in PASSED_OVER if parameters.get(name)]  # a 0 and an empty text are Triton's words for none


def check_sequence(names: Sequence[str]) -> None:
    """Raises `Reject` where a model with state is asked for a sequence: its states would be those of the keys."""
    if not set(_SEQUENCE).isdisjoint(names):
        raise Reject(
            f"parameter {next(name for name in names if name in _SEQUENCE)}: the model remembers something of each "
            "key, not of a sequence_id: publish the steps of a sequence under one key, and send the header state: "
            "reset with its first step, delete with its last"
        )


def check_input(parameters: Mapping[str, Any], datatype: str, where: str) -> None:
    """Raises `Reject` where the elements of this input are something else than they would be taken for."""
    if KNOWN.isdisjoint(parameters):
        return
    _check_content_type(parameters, where, _OF_TEXT if datatype == "BYTES" else _OF_NUMBERS)
    if parameters.get(_SHARED):
        raise Reject(f"{where}: parameter {_SHARED}: the worker shares no memory with you; send the elements")


def check_output(parameters: Mapping[str, Any], where: str) -> None:
    """Raises `Reject` where this output is wanted as something else than it is."""
    if KNOWN.isdisjoint(parameters):
        return
    _check_content_type(parameters, where, _OF_TEXT)
    if parameters.get(_CLASSIFICATION):
        raise Reject(
            f"{where}: parameter {_CLASSIFICATION}: no classes are made of scores here; leave it out, and take the "
            "highest of the scores that come"
        )
    if parameters.get(_SHARED):
        raise Reject(f"{where}: parameter {_SHARED}: the worker shares no memory with you; outputs come in the answer")


def _check_content_type(parameters: Mapping[str, Any], where: str, harmless: Sequence[str]) -> None:
    content_type = parameters.get(CONTENT_TYPE)
    if not content_type or content_type in harmless:
        return
    if not isinstance(content_type, str):
        raise Reject(f"{where}: expected {CONTENT_TYPE} to be a string, got {NAMES[type(content_type)]}")
    raise Reject(
        f"{where}: parameter {CONTENT_TYPE}: {content_type[:80]!r} is not decoded here: send what it decodes to, "
        f"without the parameter (only {', '.join(harmless)} may stay, which changes nothing)"
    )
