"""Fields of the Kafka record around a value: `$key`, `$timestamp`, `$topic`, `$headers.name`, and the value itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from worker.codecs.records.elements import Faults
from worker.codecs.records.paths import HEADERS
from worker.codecs.records.projection import READ_ERRORS, REQUIRED, Column, Wish, told
from worker.core.records import Record

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?|true|false", re.ASCII)


class Surroundings:
    """One such field of many records. A number in a key or a header is a text there, written as in JSON."""

    def __init__(self, wish: Wish) -> None:
        self.path = wish.path
        self._type = wish.type
        self._takes_text = _is_of(wish.type, "1")
        self._is_required = wish.default is REQUIRED

    def column(self, records: Sequence[Record], faults: Faults) -> Column:
        """The values; that of a record with an entry in `faults` is any."""
        return [self._value(at, record, faults) for at, record in enumerate(records)]

    def _value(self, at: int, record: Record, faults: Faults) -> Any:
        given = self._given(record)
        try:
            if given is None:
                if self._is_required:
                    faults.setdefault(at, f"{self.path}: missing")
                return None
            if self._type is bytes:
                return given
            if isinstance(given, bytes):
                given = given.decode()
            if not self._takes_text and isinstance(given, str) and _NUMBER.fullmatch(given):
                given = msgspec.json.decode(given)
            return msgspec.convert(given, self._type)
        except READ_ERRORS as error:
            why = "not UTF-8" if isinstance(error, UnicodeDecodeError) else told(error).partition(": ")[2]
            faults.setdefault(at, f"{self.path}: {why}")
            return None

    def _given(self, record: Record) -> Any:
        match self.path.steps:
            case ("$key",):
                return record.key
            case ("$timestamp",):
                return record.timestamp_ms
            case ("$topic",):
                return record.partition.topic
            case (head, name) if head == HEADERS:
                return next((value for own, value in reversed(record.headers) if own.lower() == name), None)
        return record.value


def _is_of(kind: Any, value: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True
