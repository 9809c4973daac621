"""Records of a response or dead-letter topic, written for people or as JSON. Pure; the width and the day are passed in.

Whatever a record holds, nothing of it reaches a terminal raw: what is not printable is escaped, and nothing is read as
markup.
"""

from __future__ import annotations

import base64
import codecs
import json
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, tzinfo
from itertools import islice

import numpy as np
from rich.text import Text

from worker.codecs.dead_letters import PREFIX
from worker.core.records import Array, Record
from worker.terminal.terminal import printable
from worker.tools.consume.reading import Reading, ReadTensor, headers_of, json_line

_INDENT = "    "
_LONGEST_WORD = 40  # of a key, an id or a string among the elements
_MOST_ELEMENTS = 32  # that could stand in a line
_MOST_BYTES = 256
_DEEPEST = 64  # numpy's most dimensions: what lies deeper is no element of a tensor, and Python's stack would end


def text_of(raw: bytes) -> str:
    """The bytes as printable text; what is no UTF-8 escaped."""
    return printable(raw.decode(errors="backslashreplace"))


class RecordFacts:
    """What a record says of itself in its headers, its value unread."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._headers = headers_of(record.headers)
        self.is_dead_letter = f"{PREFIX}topic" in self._headers
        self.is_answer = "status" in self._headers and not self.is_dead_letter

    @property
    def is_error(self) -> bool:
        return self.is_dead_letter or self._headers.get("status") == b"error"

    @property
    def source(self) -> str:
        """The request's place in Kafka; for what is no answer, the record's own."""
        if self.is_dead_letter:
            return "/".join(self._said(PREFIX + name) for name in ("topic", "partition", "offset"))
        return self._said("source") if "source" in self._headers else self._record.source

    @property
    def request_id(self) -> str | None:
        return self._said("request-id") if "request-id" in self._headers else None

    @property
    def verdict(self) -> str:
        code = self._said("error-code") or "error"
        if self.is_dead_letter:
            return f"dead letter {code}"
        if not self.is_answer:
            return "record"
        return code if self.is_error else self._said("status")

    @property
    def reason(self) -> str | None:
        """A dead letter's, which stands in a header."""
        return self._said(f"{PREFIX}message") if self.is_dead_letter else None

    def _said(self, name: str) -> str:
        return self._headers.get(name, b"").decode(errors="backslashreplace")


def block(record: Record, reading: Reading, width: int | None, today: date) -> Text:
    """A line of what the record is, and one for each tensor, error or whatever it says. `width` None: no terminal."""
    told = RecordFacts(record)
    shown = Text(no_wrap=True)
    shown.append(_time(record, today), "dim")
    shown.append(
        f"  {printable(told.verdict)}", "bold red" if told.is_error else "bold green" if told.is_answer else "bold"
    )
    key = None if record.key is None else text_of(record.key)
    for label, value in (("key", key), ("source", printable(told.source)), ("id", told.request_id)):
        if value is not None:
            shown.append(f"  {label} ", "dim")
            shown.append(_shortened(printable(value), _LONGEST_WORD if label == "key" else None))
    for line in _said(record, told, reading, width):
        shown.append(f"\n{_INDENT}{line}")
    return shown


def _time(record: Record, today: date) -> str:
    if record.timestamp_ms is None:
        return "no time"
    at = instant(record.timestamp_ms, None)
    if at is None:
        return f"{record.timestamp_ms} ms"
    clock = at.strftime("%H:%M:%S.%f")[:-3]
    return clock if at.date() == today else f"{at.date()} {clock}"


def instant(time_ms: int, zone: tzinfo | None) -> datetime | None:
    """The time in that zone (None: here); None for what is none, as when a producer stamps microseconds."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        return None


def _said(record: Record, told: RecordFacts, reading: Reading, width: int | None) -> Iterator[str]:
    room = (width or 80) - len(_INDENT)
    reason = told.reason or reading.error or (record.unreadable and f"cannot be read: {record.unreadable}")
    if reason:
        # In a file or a pipe a message stays one line; a terminal gets it under its heading.
        text = printable(reason)
        yield from textwrap.wrap(text, max(20, room)) if width is not None else [text]
    if reading.tensors is not None:
        yield from (_tensor(tensor, reading.role, room) for tensor in reading.tensors)
    elif reading.error is None and record.unreadable is None:
        yield _shortened(_value(record.value, reading), room)


def _tensor(tensor: ReadTensor, role: str, room: int) -> str:
    shape = "" if tensor.shape is None else f"[{', '.join(map(str, tensor.shape))}]"
    line = printable(f"{'' if role == 'outputs' else 'input '}{tensor.name} {tensor.datatype}{shape} ")
    words = [_word(element) for element in islice(_elements(tensor.data), _MOST_ELEMENTS + 1)]
    shown = 0
    for word in words[:_MOST_ELEMENTS]:
        if shown and len(line) + len(word) + 2 > room:
            break
        line += f" {word}"
        shown += 1
    return f"{line} …" if shown < len(words) else line


def _elements(data: Array | Sequence[object], depth: int = 1) -> Iterator[object]:
    """Of arrays, flat lists, and lists nested as a shape."""
    for element in data[: _MOST_ELEMENTS + 1].tolist() if isinstance(data, np.ndarray) else data:
        if isinstance(element, list) and depth < _DEEPEST:
            yield from _elements(element, depth + 1)
        else:
            yield element


def _word(element: object) -> str:
    if isinstance(element, float):
        return f"{element:.4g}"
    if isinstance(element, str):
        return f'"{_shortened(printable(element), _LONGEST_WORD)}"'
    if isinstance(element, list | dict):
        return "[…]" if isinstance(element, list) else "{…}"
    return json.dumps(element)


def _value(value: bytes | None, reading: Reading) -> str:
    if value is None:
        return "no value"
    if reading.is_rows:
        return f"{len(value):,} bytes of rows; --model FILE shows them as numbers"
    text = _text(value[:_MOST_BYTES])
    if text is None:
        return f"{len(value):,} bytes  {value[:_MOST_BYTES].hex(' ')}"
    return printable(text) if text else "an empty value"


def _text(raw: bytes) -> str | None:
    """None for what is no text: not UTF-8, or with a NUL in it. A character cut through at the end is passed over."""
    try:
        return None if b"\0" in raw else codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        return None


def _shortened(text: str, room: int | None) -> str:
    return text if room is None or len(text) <= room else f"{text[: room - 1]}…"


def json_of(record: Record, reading: Reading) -> bytes:
    """The record as a line of JSON; what is read and no JSON can hold stays the value that it was read from."""
    try:
        return json_line(document(record, reading))
    except TypeError:
        return json_line(document(record, Reading()))


def document(record: Record, reading: Reading) -> dict[str, object]:
    """The record for machines: `outputs`, `inputs`, `error`, or else `value` (text) or `value_base64`."""
    return {
        "topic": record.partition.topic,
        "partition": record.partition.number,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text_or_base64("key", record.key),
        **_headers(record),
        **reading.named,
        **_content(record, reading),
    }


def _headers(record: Record) -> dict[str, object]:
    """As in an envelope that `publish` takes; of a name that comes twice the last."""
    texts: dict[str, object] = {}
    binaries: dict[str, object] = {}
    for name, value in record.headers:
        for held in _text_or_base64("", value).items():
            (binaries if held[0] else texts)[name] = held[1]
    return {"headers": texts, "headers_base64": binaries} if binaries else {"headers": texts}


def _content(record: Record, reading: Reading) -> dict[str, object]:
    if record.unreadable is not None:
        return {"unreadable": record.unreadable}
    if reading.error is not None:
        return {"error": reading.error}
    if reading.tensors is not None:
        return {reading.role: [tensor._asdict() for tensor in reading.tensors]}
    return _text_or_base64("value", record.value)


def _text_or_base64(name: str, raw: bytes | None) -> dict[str, object]:
    text = decoded(raw)
    return {name: text} if raw is None or text is not None else {f"{name}_base64": base64.b64encode(raw).decode()}


def decoded(raw: bytes | None) -> str | None:
    """The bytes as text; None for what is none."""
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None
