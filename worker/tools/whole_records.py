"""Whole records as lines of JSON, with key, headers and value.

`consume --json` and `dead-letters show --json` write them so.

| member | is |
|---|---|
| `value`, or `value_base64` for bytes | a string becomes UTF-8, a null no value at all, anything else JSON |
| `record` | the value as JSON |
| `key`, or `key_base64` | likewise |
| `headers`, `headers_base64` | objects of such texts |

Only the form is checked. What else those commands write, such as the place of the record, is passed over here.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import orjson

from worker.core.failures import BadConfiguration
from worker.core.records import Headers

MEMBERS = frozenset({"key", "key_base64", "headers", "headers_base64", "value", "value_base64", "record"})
_VALUES = ("value", "value_base64", "record")
_ABOUT = frozenset({"topic", "partition", "offset", "timestamp_ms"})  # of `consume`
_ABOUT_LETTER = frozenset({"place", "time_ms", "request", "group", "code", "message", "omitted"})


class WholeRecord(NamedTuple):
    """One record. None: the line does not say its topic, or its time. Of a dead letter it is the letter's own time."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    topic: str | None = None
    timestamp_ms: int | None = None


def parsed(line: bytes, cure: str) -> Any:
    """The JSON of a line. Raises `BadConfiguration`, with the cure, if it is none."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadConfiguration(f"not JSON: {error}; {cure}") from None


class _WithRecord(msgspec.Struct):
    record: msgspec.Raw  # with all digits of its numbers


def whole_record(line: bytes, document: Any) -> WholeRecord:
    """The record that a line says, whose JSON this document is. Raises `BadConfiguration` for any other form."""
    if not isinstance(document, dict) or not document.keys() & set(_VALUES):
        raise BadConfiguration("a whole record is an object with `value` or `value_base64`")
    if unknown := sorted(document.keys() - MEMBERS - _ABOUT - _ABOUT_LETTER):
        raise BadConfiguration(f"a whole record has no member {unknown[0][:80]!r}; it has {', '.join(sorted(MEMBERS))}")
    if isinstance(omitted := document.get("omitted"), dict) and omitted:
        raise BadConfiguration(f"the dead letter lacks the record's {' and '.join(omitted)}, which did not fit into it")
    texts, binaries = (document.get(name) or {} for name in ("headers", "headers_base64"))
    if not isinstance(texts, dict) or not isinstance(binaries, dict):
        raise BadConfiguration("`headers` and `headers_base64` are objects of names and texts")
    headers = [(name, _bytes_of(text)) for name, text in texts.items()]
    headers += [(name, _decoded(f"headers_base64: {name[:80]}", text)) for name, text in binaries.items()]
    timestamp = document.get("timestamp_ms", document.get("time_ms"))
    topic = document.get("topic") or str(document.get("request") or "").partition("/")[0]
    value = _member(document, _VALUES)
    if "record" in document:
        value = bytes(msgspec.json.decode(line, type=_WithRecord).record)
    return WholeRecord(
        value,
        _member(document, ("key", "key_base64")),
        headers,
        str(topic) or None,
        timestamp if isinstance(timestamp, int) else None,
    )


def _member(document: Mapping[str, Any], names: tuple[str, ...]) -> bytes | None:
    found = [name for name in names if name in document]
    if len(found) > 1:
        raise BadConfiguration(f"a whole record has `{found[0]}` or `{found[1]}`, not both")
    if not found:
        return None
    [name] = found
    held = document[name]
    if name.endswith("_base64"):
        return _decoded(name, held)
    return _bytes_of(held)


def _bytes_of(held: object) -> bytes | None:
    if held is None:
        return None
    return held.encode() if isinstance(held, str) else orjson.dumps(held)


def _decoded(what: str, text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "-", validate=True)
    except ValueError:
        raise BadConfiguration(f"`{what}` must be a string of base64") from None
