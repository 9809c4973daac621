"""One line of a file as a record to publish: a request's body, published as it stands, or an envelope around anything.

| the line is an object with | published is |
|---|---|
| `inputs` | the line itself, as `application/json` |
| `value` or `value_base64` | what the envelope holds, whatever it is: this is how bad input is published |

An envelope may also have `key` or `key_base64`, `headers` and `headers_base64` (objects; a null is a header without a
value). `value`: a string is its UTF-8, null no value at all, anything else its JSON, to the byte. Pure; judges nothing
but the form.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, NamedTuple, cast

import orjson

from worker.codecs.request_headers import REQUEST_ID
from worker.codecs.wire_contract import JSON, MAX_TEXT
from worker.core.failures import BadConfiguration

_Object = dict[str, Any]
_Headers = tuple[tuple[str, bytes | None], ...]

_MEMBERS = frozenset({"key", "key_base64", "headers", "headers_base64", "value", "value_base64"})
_AS_JSON: _Headers = (("content-type", JSON.encode()),)

# What lies between two values of a line that is known to be JSON.
_GAP = re.compile(r"[\s:,]*")
_VALUES = json.JSONDecoder(parse_int=str, parse_float=str)  # says where a value ends; what it makes of it is not used


class Publishable(NamedTuple):
    """One record to publish. `name`: the request id among its headers, by which its answer is known; None: has none."""

    value: bytes | None
    key: bytes | None = None
    headers: _Headers = ()
    name: bytes | None = None


def read_line(line: bytes) -> Publishable:
    """The record that the line stands for. Raises `BadConfiguration` for a line that is neither form."""
    document = _object(line)
    if "inputs" in document:
        name = _usable(document.get("id"))
        # In the header too: an answer that refuses the body before it is read has no other name for it.
        return Publishable(line, headers=_AS_JSON if name is None else (*_AS_JSON, (REQUEST_ID, name)), name=name)
    if "value" not in document and "value_base64" not in document:
        raise BadConfiguration(
            'neither a request (no `inputs`) nor an envelope (no `value`); {"value": ...} publishes anything'
        )
    if unknown := sorted(document.keys() - _MEMBERS):
        raise BadConfiguration(f"an envelope has no member {unknown[0][:80]!r}; it has {', '.join(sorted(_MEMBERS))}")
    headers = _headers(document)
    names = [value for name, value in headers if name.lower() == REQUEST_ID]  # the last counts
    return Publishable(_value(document, line), _key(document), headers, _usable(names[-1]) if names else None)


def _object(line: bytes) -> _Object:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if not _is_text(line):
            raise BadConfiguration(
                'not JSON, nor text at all; {"value_base64": "..."} publishes any bytes, and rows of numbers are read '
                "from a .npy that is named"
            ) from None
        raise BadConfiguration(f'not JSON: {error}; {{"value": "..."}} publishes any text') from None
    if not isinstance(document, dict):
        raise BadConfiguration("expected a JSON object: a request, or an envelope around anything")
    return document


def _usable(name: object) -> bytes | None:
    """The name as an answer will carry it; None for one that a worker would pass over."""
    raw = name.encode() if isinstance(name, str) else name
    if not isinstance(raw, bytes) or not 0 < len(raw) <= MAX_TEXT:
        return None
    return raw if _is_text(raw) else None


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _value(document: _Object, line: bytes) -> bytes | None:
    if "value_base64" in document:
        return _exclusive(document, "value")
    value = document["value"]
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return _as_written(line, "value")


def _as_written(line: bytes, member: str) -> bytes:
    """The member's value as the line has it: no parser holds every number. Of two with that name the last counts."""
    text = line.decode()
    found, at = "", _behind_gap(text, text.index("{") + 1)
    try:
        while text[at] != "}":
            name, colon = _VALUES.raw_decode(text, at)
            start = _behind_gap(text, colon)
            _, end = _VALUES.raw_decode(text, start)
            if name == member:
                found = text[start:end]
            at = _behind_gap(text, end)
    except RecursionError:
        raise BadConfiguration(f"`{member}` is nested deeper than Python goes; give it as a string") from None
    return found.encode()


def _behind_gap(text: str, at: int) -> int:
    return cast("re.Match[str]", _GAP.match(text, at)).end()


def _key(document: _Object) -> bytes | None:
    if "key_base64" in document:
        return _exclusive(document, "key")
    return _text("key", document.get("key"))


def _exclusive(document: _Object, name: str) -> bytes:
    if name in document:
        raise BadConfiguration(f"an envelope has `{name}` or `{name}_base64`, not both")
    return _decoded(f"{name}_base64", document[f"{name}_base64"])


def _headers(document: _Object) -> _Headers:
    texts = _members(document, "headers")
    binaries = _members(document, "headers_base64")
    return (
        *((name, _text(f"header {name[:80]}", value)) for name, value in texts.items()),
        *((name, _decoded(f"headers_base64: {name[:80]}", value)) for name, value in binaries.items()),
    )


def _members(document: _Object, name: str) -> _Object:
    members = document.get(name) or {}
    if not isinstance(members, dict):
        raise BadConfiguration(f"`{name}` must be an object of names and texts")
    return members


def _text(what: str, value: object) -> bytes | None:
    if value is not None and not isinstance(value, str):
        raise BadConfiguration(f"`{what}` must be a string or null")
    return None if value is None else value.encode()


def _decoded(what: str, value: object) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "-", validate=True)
    except ValueError:
        raise BadConfiguration(f"`{what}` must be a string of base64") from None
