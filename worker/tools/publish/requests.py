"""Reads the lines of a file or a pipe as records to publish.

| a line is an object with | published is |
|---|---|
| `inputs` | the line itself, as `application/json` |
| `value` or `value_base64` | the envelope's content, whatever it is: bad input is published this way |

An envelope may also have `key` or `key_base64`, `headers` and `headers_base64` (objects). A string becomes UTF-8, a
null becomes no value at all, anything else becomes JSON. Only the form is checked.

For a topic of records each line is a record, published as it stands.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from worker.codecs.records.paths import Path
from worker.codecs.wire_contract import JSON
from worker.core.failures import BadConfiguration
from worker.core.records import Headers

_MEMBERS = frozenset({"key", "key_base64", "headers", "headers_base64", "value", "value_base64"})
_AS_JSON: Headers = (("content-type", JSON.encode()),)


class Publishable(NamedTuple):
    """One record to publish."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()


ReadLine = Callable[[bytes], Publishable]


def read_lines(found: Iterator[bytes | None], name: str, read: ReadLine) -> Iterator[Publishable | None]:
    """Yields what `read` makes of each line, and None while a pipe is silent. It skips empty lines.

    Raises `BadConfiguration`, with the line's number, for a line that is not a record.
    """
    number = 0
    for line in found:
        number += line is not None
        if line is None:
            yield None
        elif line.strip():
            try:
                yield read(line.strip())
            except BadConfiguration as odd:
                raise BadConfiguration(f"{name}, line {number}: {odd}") from None


def read_record(line: bytes, key_field: Path | None) -> Publishable:
    """Returns a record of JSON, its key taken from a field. Raises `BadConfiguration` for a line that is no object."""
    document = _parsed(line, _ANYTHING)
    if not isinstance(document, dict):
        raise BadConfiguration(f"no JSON object; {_ANYTHING}")
    return Publishable(line, None if key_field is None else _key(document, key_field))


def _key(document: Any, field: Path) -> bytes:
    for name in field.steps:
        document = document.get(name) if isinstance(document, dict) else None
    if not isinstance(document, str | int) or isinstance(document, bool):
        raise BadConfiguration(f"{field}, its key, must be a text or a whole number")
    return str(document).encode()


def read_text(line: bytes) -> Publishable:
    """Returns a record whose value is the whole line."""
    return Publishable(line)


_ANYTHING = 'with --no-records, {"value": ...} publishes anything'


def read_line(line: bytes) -> Publishable:
    """Returns the request or the record of a line. Raises `BadConfiguration` for a line that has neither form."""
    document = _parsed(line, '{"value": "..."} publishes any text, {"value_base64": "..."} any bytes')
    if isinstance(document, dict) and "inputs" in document:
        return Publishable(line, headers=_AS_JSON)
    if not isinstance(document, dict) or not document.keys() & {"value", "value_base64"}:
        raise BadConfiguration(
            'neither a request (no `inputs`) nor an envelope (no `value`); {"value": ...} publishes anything'
        )
    if unknown := sorted(document.keys() - _MEMBERS):
        raise BadConfiguration(f"an envelope has no member {unknown[0][:80]!r}; it has {', '.join(sorted(_MEMBERS))}")
    texts, binaries = (document.get(name) or {} for name in ("headers", "headers_base64"))
    if not isinstance(texts, dict) or not isinstance(binaries, dict):
        raise BadConfiguration("`headers` and `headers_base64` are objects of names and texts")
    headers = [(name, _bytes_of(text)) for name, text in texts.items()]
    headers += [(name, _decoded(f"headers_base64: {name[:80]}", text)) for name, text in binaries.items()]
    return Publishable(_member(document, "value"), _member(document, "key"), headers)


def _parsed(line: bytes, cure: str) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadConfiguration(f"not JSON: {error}; {cure}") from None


def _member(document: Mapping[str, Any], name: str) -> bytes | None:
    coded = f"{name}_base64"
    if coded not in document:
        return _bytes_of(document.get(name))
    if name in document:
        raise BadConfiguration(f"an envelope has `{name}` or `{coded}`, not both")
    return _decoded(coded, document[coded])


def _bytes_of(held: object) -> bytes | None:
    if held is None:
        return None
    return held.encode() if isinstance(held, str) else orjson.dumps(held)


def _decoded(what: str, text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "-", validate=True)
    except ValueError:
        raise BadConfiguration(f"`{what}` must be a string of base64") from None
