"""Reads the lines of a file or a pipe as records to publish.

| a line is an object with | published is |
|---|---|
| `inputs` | the line itself, as `application/json` |
| `value` or `value_base64` | a whole record, whatever it is (`whole_records.py`): bad input is published this way |

For a topic of records each line is a record, published as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from worker.codecs.records.paths import Path
from worker.codecs.wire_contract import JSON
from worker.core.failures import BadConfiguration
from worker.core.records import Headers
from worker.tools.whole_records import MEMBERS, parsed, whole_record

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
    document = parsed(line, _ANYTHING)
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
    document = parsed(line, '{"value": "..."} publishes any text, {"value_base64": "..."} any bytes')
    if isinstance(document, dict) and "inputs" in document:
        return Publishable(line, headers=_AS_JSON)
    if not isinstance(document, dict) or not document.keys() & MEMBERS:
        raise BadConfiguration(
            'neither a request (no `inputs`) nor a whole record (no `value`); {"value": ...} publishes anything'
        )
    value, key, headers, *_ = whole_record(line, document)
    return Publishable(value, key, tuple(headers))
