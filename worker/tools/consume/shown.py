"""Writes records of any topic as text for people, or as JSON. Pure; the width and the day are passed in.

No part of a record reaches a terminal raw: characters that are not printable are escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, date, datetime, tzinfo
from typing import Any

import orjson

from worker.codecs.dead_letters import PREFIX
from worker.core.records import Record
from worker.terminal.terminal import printable
from worker.tools.consume.reading import Reading, headers_of, json_line

_INDENT = "    "
_LONGEST_KEY = 40
_MOST_BYTES = 256
_MOST_JSON = 2000  # characters of a record: its answer's fields may stand behind all of its own


class RecordFacts:
    """The facts in a record's headers. Its value is not read."""

    def __init__(self, record: Record) -> None:
        self._headers = headers_of(record.headers)
        is_dead_letter = f"{PREFIX}topic" in self._headers
        self.is_error = is_dead_letter or self._headers.get("status") == b"error"
        self.request_id = self._said("request-id") if "request-id" in self._headers else None
        if is_dead_letter:
            self.source = "/".join(self._said(PREFIX + name) for name in ("topic", "partition", "offset"))
            self.verdict = f"dead letter {self._said('error-code')}"
            self.reason = self._said(f"{PREFIX}message")
        else:
            self.source = self._said("source") or record.source
            self.verdict = self._said("error-code") or "error" if self.is_error else self._said("status") or "record"
            self.reason = ""
        # A user may ask for a request by its id, or by its place.
        self.names = {self.source, *([] if self.request_id is None else [self.request_id])}

    def _said(self, name: str) -> str:
        return self._headers.get(name, b"").decode(errors="backslashreplace")


def lines_of(record: Record, reading: Reading, width: int, today: date) -> Iterator[str]:
    """Yields a line about the record, and a line for each tensor, its error, its JSON, or its raw value."""
    told, room = RecordFacts(record), width - len(_INDENT)
    key = None if record.key is None else _shortened(text_of(record.key), _LONGEST_KEY)
    named = (("key", key), ("source", told.source), ("id", told.request_id))
    words = "".join(f"  {label} {printable(value)}" for label, value in named if value is not None)
    clock = moment(record.timestamp_ms, None, "%Y-%m-%d %H:%M:%S.%f").removeprefix(f"{today} ").removesuffix("000")
    yield f"{clock}  {printable(told.verdict)}{words}"
    if reason := told.reason or reading.get("error"):
        yield f"{_INDENT}{printable(reason)}"
    for role in ("inputs", "outputs"):
        for tensor in reading.get(role, ()):
            yield _INDENT + _shortened(_tensor(tensor, role, room), room)
    if "record" in reading:
        yield _INDENT + _shortened(text_of(reading["record"]), _MOST_JSON)
    if not reading:
        yield _INDENT + _shortened(_value(record.value), room)


def text_of(raw: bytes) -> str:
    """Returns the bytes as printable text. Bytes that are not UTF-8 are escaped."""
    return printable(raw.decode(errors="backslashreplace"))


def moment(time_ms: int | None, zone: tzinfo | None = UTC, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Writes a time in a zone (None: local). Writes its number if it is no date: some producers stamp microseconds."""
    if time_ms is None:
        return "no time"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone(zone).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def _tensor(tensor: Reading, role: str, room: int) -> str:
    shape = "" if tensor["shape"] is None else f"[{', '.join(map(str, tensor['shape']))}]"
    try:
        data = orjson.dumps(tensor["data"][:room], option=orjson.OPT_SERIALIZE_NUMPY).decode()
    except TypeError:  # nested deeper than JSON goes, or a number too large for it
        data = "…"
    return printable(f"{'' if role == 'outputs' else 'input '}{tensor['name']} {tensor['datatype']}{shape}  {data}")


def _value(value: bytes | None) -> str:
    text = decoded(value)
    if value is None:
        return "no value"
    if text is None or "\0" in text:
        return f"{len(value):,} bytes  {value[:_MOST_BYTES].hex(' ')}"
    return printable(text[:_MOST_BYTES]) or "an empty value"


def _shortened(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def json_of(record: Record, reading: Reading) -> bytes:
    """Returns the record as a line of JSON. If JSON cannot hold what was read, the line has the raw value instead."""
    try:
        return json_line(document(record, reading))
    except TypeError:
        return json_line(document(record, {}))


def document(record: Record, reading: Reading) -> dict[str, Any]:
    """Returns the record for machines: its value as read, else `value` (text) or `value_base64`."""
    whole = envelope(record)
    if reading:
        whole = {name: held for name, held in whole.items() if not name.startswith("value")}
    return {
        "topic": record.partition.topic,
        "partition": record.partition.number,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **whole,
        **reading,
        **({"record": orjson.Fragment(reading["record"])} if "record" in reading else {}),
    }


def envelope(record: Record) -> dict[str, object]:
    """Returns key, headers and value as `publish` takes them. If a header comes twice, the last one counts."""
    headers: dict[str, dict[str, object]] = {"headers": {}}
    for name, value in record.headers:
        for member, held in _member("headers", value).items():
            headers.setdefault(member, {})[name] = held
    return {**_member("key", record.key), **headers, **_member("value", record.value)}


def _member(name: str, raw: bytes | None) -> dict[str, object]:
    """Returns the member as text, or as base64 if the bytes are not text."""
    text = decoded(raw)
    return {name: text} if raw is None or text is not None else {f"{name}_base64": base64.b64encode(raw).decode()}


def decoded(raw: bytes | None) -> str | None:
    """Returns the bytes as text, or None if they are not UTF-8."""
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None
