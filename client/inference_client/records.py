"""Turns records into the values of a topic that holds records, and answers back into dictionaries.

A worker with `[records]` takes such values. The module needs no schema registry: a program gives its own functions for
values that are not JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import ArrayLike

from inference_client.encoding import Encoded, Encoder
from inference_client.errors import Internal, InvalidArgument
from inference_client.signature import Inputs, Result

_JSON = b"application/json"
_FRAMED = "application/vnd.confluent"  # so begin the content types of answers with a schema
_FUNCTIONS = "Records(write=…, read=…) a serializer and a deserializer of that registry"


def value_of(record: Any) -> bytes:
    """The value of a record: a dictionary as JSON, a text as UTF-8, bytes as they are. Raises `InvalidArgument`.

    numpy's numbers and arrays, decimals, dates and UUIDs have a form in JSON; NaN and infinity become null.
    """
    if isinstance(record, str | bytes):
        try:
            return record.encode() if isinstance(record, str) else record
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"the text has no form in UTF-8: {error}") from error
    if not isinstance(record, Mapping):
        raise InvalidArgument(f"expected a record as a dict, or a text or bytes, got {type(record).__name__}")
    try:
        return orjson.dumps(record, _plain, orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise InvalidArgument(f"the record has no form in JSON: {error}") from error


def _plain(value: Any) -> Any:
    """A value that orjson has no form for: a decimal with all its digits, and an array such as a column of another."""
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value)) if value.is_finite() else None
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(type(value).__name__)  # orjson says it in its own words


class Records(NamedTuple):
    """The form of a topic's records and of their answers.

    `write` makes a record's value: for example a serializer of a schema registry, with its context. `read` makes a
    dictionary of an answer's value. Many threads may call them at once.
    """

    write: Callable[[Any], bytes] = value_of
    read: Callable[[bytes], dict[str, Any]] = orjson.loads


class RecordEncoder(Encoder):
    """Writes records, and reads their answers."""

    def __init__(self, records: Records) -> None:
        super().__init__(None)
        self._records = records

    def encode(self, inputs: Inputs | ArrayLike) -> Encoded:
        """The request for this record. Raises what `Records.write` raises: `InvalidArgument`, unless it is replaced."""
        return Encoded(self._records.write(inputs), ())

    def _without_head(self, headers: Mapping[str, bytes | None], value: bytes) -> Result:
        if foreign := self._foreign(headers):
            raise Internal(f"the answer {foreign}", (headers.get("source") or b"").decode(errors="replace"))
        result = self._records.read(value)
        if type(result) is not dict:
            raise TypeError(f"expected a dict, got {type(result).__name__}")
        return result

    def _why(self, headers: Mapping[str, bytes | None], value: bytes) -> str:
        """The message of an error, which has the form of the answers, or is JSON."""
        if headers.get("content-type") == _JSON:
            return super()._why(headers, value)
        if foreign := self._foreign(headers):
            return f"the reason {foreign}"
        message: str = self._records.read(value)["error"]
        return message

    def _foreign(self, headers: Mapping[str, bytes | None]) -> str:
        """Why an answer of this content type cannot be read as JSON; empty if it may be, or another function reads."""
        said = (headers.get("content-type") or b"").decode(errors="replace")
        if self._records.read is not orjson.loads or not said.startswith(_FRAMED):
            return ""
        return f"is {said}, and no JSON: the topics' records have a schema in a registry, so give {_FUNCTIONS}"
