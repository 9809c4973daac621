"""Reads requests' headers: their encoding, how and until when their answers are wanted, and which headers go back.

Case does not count in names, the last header of a name counts, and a header without a value counts as absent. Reading
never fails: a wrong header is a `fault`, so that the error answer still carries the request's id and echoes.

Topics have few layouts. So a record's headers are looked up twice, and not read: by their names, which say where the
headers are that we know, and by the values of the ones that say how the request is encoded and its answer wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import add
from typing import NamedTuple

from worker.codecs.known import Known
from worker.codecs.replies import REPLY_NAMES, ReplyTopics, admitted
from worker.codecs.wire_contract import CONTENT_TYPES, DATATYPE, HEAD_LENGTH, JSON, MAX_TEXT, OCTETS, RECORD, ROWS
from worker.core.failures import Reject
from worker.core.records import (
    NO_IDS,
    UNREADABLE_HEADER,
    UNREADABLE_HEADERS,
    Headers,
    Ids,
    ReplyForm,
    ReplyTo,
    StateUse,
    Timeout,
)

# The only headers that go back. The list and its names are short, so the length of the values alone bounds how much a
# publisher can make the worker repeat.
ECHOED = ("correlation-id", "correlation_id", "kafka_correlationid", "traceparent", "tracestate")

CONTENT_TYPE, ACCEPT, REQUEST_ID = "content-type", "accept", "request-id"
TIMEOUT, DEADLINE = "timeout-ms", "deadline"
STATE = "state"
# Gzipped rows may have the length of plain ones: one length in four fits a model of one FP32. JSON and protobuf that
# can be read are not packed, whatever header a bridge has copied from the HTTP request that it unpacked.
_ENCODING = "content-encoding"
_PACKED = frozenset({"gzip", "x-gzip", "deflate", "zstd", "br", "lz4", "snappy", "base64"})
_STATE_USES = tuple(use.value for use in StateUse)
_HEAD_LENGTH = HEAD_LENGTH.lower()

# The values of the headers that the worker knows, by their names in lower case.
KnownHeaders = dict[str, bytes]

# Headers that say how a request is encoded and its answer wanted: publishers use few different values.
_FORM = frozenset(
    {CONTENT_TYPE, ACCEPT, DATATYPE, ROWS, _ENCODING, _HEAD_LENGTH, *REPLY_NAMES, UNREADABLE_HEADER.lower()}
)
# A record is what its topic holds, whatever a bridge says of it. So no header says how it is encoded.
_OF_RECORDS = frozenset({*REPLY_NAMES, UNREADABLE_HEADER.lower()})
# Digits of milliseconds: a timeout of up to 115 days; a deadline from 1973 on. Seconds and microseconds since 1970 have
# other lengths, so they are errors and no instants far away.
_TIMEOUT_DIGITS, _DEADLINE_DIGITS = range(1, 11), range(12, 15)
_ROWS_DIGITS = range(1, 10)
_LONGEST_DATATYPE = 20  # the characters that are kept; no datatype has as many
# A header takes at least two bytes of a record, and 0.7 µs to read. Publishers, tracing and replays add ten or twenty.
MAX_HEADERS = 1000

# The most forms and layouts that are remembered, each of at most 1 KiB.
_MOST_KNOWN = 256
_MOST_NAMES = 64  # of a layout

NO_TOPICS = ReplyTopics("", {})


class StatedRows(NamedTuple):
    """The headers `datatype` and `rows` of plain rows; None: the request does not say."""

    datatype: str | None = None
    rows: int | None = None


# By far the most common one; it is recognised by its identity.
NOTHING_STATED = StatedRows()


@dataclass(frozen=True, slots=True, eq=False)
class HeaderForm:
    """A form has all that headers say of a request and its answer. Equal forms are one object, while remembered.

    `rows`: the headers about plain rows, None if the value is something else. `reply` is complete unless the body says
    more about the answer. `admitted`: the answer's possible content types. `head_length`: the bytes of the JSON head of
    the binary-data form, None without a head. `state`: the use of the key's state.
    """

    content_type: str
    rows: StatedRows | None
    reply: ReplyForm
    admitted: tuple[str, ...]
    head_length: int | None
    fault: str | None
    state: StateUse | None


class Envelope(NamedTuple):
    """The headers of one request, read.

    `timeout`: when an answer is useless, None for never. `size`: the bytes of all headers. `fault`: why the request is
    refused, if its headers are wrong.
    """

    form: HeaderForm
    ids: Ids
    timeout: Timeout | None
    size: int
    fault: str | None


class EnvelopeColumns(NamedTuple):
    """The headers of n requests, in columns like an `Envelope`; a column is None where no request has any of it."""

    forms: Sequence[HeaderForm]
    ids: Sequence[Ids] | None
    timeouts: Sequence[Timeout | None] | None
    sizes: Sequence[int]
    faults: Sequence[str | None] | None

    def of(self, at: int) -> Envelope:
        """The headers of one request."""
        forms, ids, timeouts, sizes, faults = self
        return Envelope(
            forms[at],
            ids[at] if ids else NO_IDS,
            timeouts[at] if timeouts else None,
            sizes[at],
            faults[at] if faults else None,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """A layout says where headers are, if each has a value: the ones of the form, and the request's own ones."""

    size: int  # the bytes of the names
    form_at: Sequence[int]
    request_id_at: int | None
    times_at: Mapping[str, int]
    echoes_at: Sequence[int]


class Envelopes:
    """Reads headers, and remembers layouts and forms: then it reads only the headers that are a request's own."""

    def __init__(
        self,
        default_content_type: str,
        default_timeout: float | None = None,
        *,
        reads_state: bool = False,
        reply_topics: ReplyTopics = NO_TOPICS,
    ) -> None:
        """`default_timeout` in seconds; None: no timeout without a header. `reads_state`: the model has state."""
        self._reply_topics = reply_topics
        self._reads_state = reads_state
        names = _OF_RECORDS if default_content_type == RECORD else _FORM
        self._form_names = names | {STATE} if reads_state else names
        self._default = default_content_type
        self._timeout = None if default_timeout is None else Timeout(default_timeout)
        self._layouts = Known[tuple[str, ...], _Layout](_MOST_KNOWN)
        self._forms = Known[Headers, HeaderForm](_MOST_KNOWN)
        # The last record's headers: the next one's are often equal.
        self._last: Headers = ()
        self._envelope = self._read(())

    def read_all(self, headers: Sequence[Headers]) -> EnvelopeColumns:
        """The envelopes of n requests, with one call if they are equal, and with few if only their ids differ."""
        count, first = len(headers), headers[0]
        if headers[-1] == first and headers.count(first) == count:
            form, ids, timeout, size, fault = self.read(first)
            return EnvelopeColumns(
                [form] * count,
                None if ids is NO_IDS else [ids] * count,
                None if timeout is None else [timeout] * count,
                [size] * count,
                None if fault is None else [fault] * count,
            )
        alike = self._alike(headers) if set(map(len, headers)) == {len(first)} else None
        if alike is not None:
            return alike
        forms, each, timeouts, sizes, faults = zip(*map(self.read, headers), strict=True)
        return EnvelopeColumns(
            forms,
            None if each.count(NO_IDS) == count else each,
            None if timeouts.count(None) == count else timeouts,
            sizes,
            None if faults.count(None) == count else faults,
        )

    def _alike(self, headers: Sequence[Headers]) -> EnvelopeColumns | None:
        """The envelopes of headers with the same names and times; None for others, and if their forms have faults.

        It takes 0.9 µs for each with an id, and `read` takes 2.5 (2026-11).
        """
        form, _, timeout, _, fault = self.read(headers[0])
        names = tuple([name for name, _ in headers[0]])
        layout = self._layouts.get(names)
        if layout is None:
            return None
        count = len(headers)
        sizes, texts = [layout.size] * count, None
        columns = list(zip(*headers, strict=True))
        for at, column in enumerate(columns):
            its, values = zip(*column, strict=True)
            is_fixed = at in layout.times_at.values()
            if None in values or its.count(names[at]) < count or (is_fixed and values.count(values[0]) < count):
                return None
            lengths = list(map(len, values))
            sizes = list(map(add, sizes, lengths))
            if at == layout.request_id_at:
                texts = [_text(value) or None for value in values]
            elif at in layout.echoes_at and max(lengths) > MAX_TEXT:
                return None
        ids = None
        if texts or layout.echoes_at:
            echoes = zip(*[columns[at] for at in layout.echoes_at], strict=True) if layout.echoes_at else repeat(())
            ids = [tuple.__new__(Ids, (text, None, echo)) for text, echo in zip(texts or repeat(None), echoes)]  # noqa: B905  # one may repeat
        forms = self._forms_of([columns[at] for at in layout.form_at], [form] * count)
        if forms.count(form) < count and (fault is not None or any(each.fault for each in forms)):
            return None
        timeouts = None if timeout is None else [timeout] * count
        return EnvelopeColumns(forms, ids, timeouts, sizes, None if fault is None else [fault] * count)

    def _forms_of(self, columns: Sequence[Headers], if_equal: Sequence[HeaderForm]) -> Sequence[HeaderForm]:
        """The forms of n requests: a column for each header of the form."""
        if all(column.count(column[0]) == len(column) for column in columns):
            return if_equal
        return list(map(self._form, zip(*columns, strict=True)))

    def read(self, headers: Headers) -> Envelope:
        """The envelope that these headers give. It takes 2 µs for a known layout with an id (2026-11)."""
        if headers != self._last:
            self._envelope, self._last = self._read(headers), headers
        return self._envelope

    def _read(self, headers: Headers) -> Envelope:
        if not headers or len(headers) > MAX_HEADERS:
            none = self._form(())
            fault = f"{len(headers)} headers, at most {MAX_HEADERS} are read" if headers else none.fault
            return Envelope(none, NO_IDS, self._timeout, 0, fault)
        names, values = zip(*headers, strict=True)
        if None in values:
            size = sum([len(name) + len(value or b"") for name, value in headers])
            return self._read(_with_values(headers))._replace(size=size)
        layout = self._layouts.get(names) or self._layout(names)
        form = self._form(tuple([headers[at] for at in layout.form_at]))
        timeout, fault, request_id = self._timeout, form.fault, None
        if layout.times_at:
            faults = [fault] if fault is not None else []
            timeout = self._asked({plain: values[at] for plain, at in layout.times_at.items()}, faults)
            fault = faults[0] if faults else None
        if layout.request_id_at is not None:
            request_id = _text(values[layout.request_id_at]) or None
        echo: tuple[tuple[str, bytes], ...] = ()
        if layout.echoes_at:
            echo = tuple([(names[at], values[at]) for at in layout.echoes_at if len(values[at]) <= MAX_TEXT])
        ids = NO_IDS if request_id is None and not echo else tuple.__new__(Ids, (request_id, None, echo))
        # Both are built once per record: this is 0.2 µs faster than the classes' own constructors.
        return tuple.__new__(Envelope, (form, ids, timeout, layout.size + sum(map(len, values)), fault))

    def _layout(self, names: tuple[str, ...]) -> _Layout:
        """The layout of these names. Of equal ones the last counts, in the place of the first."""
        last = {name.lower(): at for at, name in enumerate(names)}
        layout = _Layout(
            sum(map(len, names)),
            [at for plain, at in last.items() if plain in self._form_names],
            last.get(REQUEST_ID),
            {plain: last[plain] for plain in (TIMEOUT, DEADLINE) if plain in last},
            [at for plain, at in last.items() if plain in ECHOED],
        )
        if layout.size <= MAX_TEXT and len(names) <= _MOST_NAMES:
            self._layouts.learn(names, layout)
        return layout

    def _form(self, headers: Headers) -> HeaderForm:
        """The form of these headers, all of which belong to it; each name comes once."""
        known = self._forms.get(headers)
        if known is not None:
            return known
        form = self._read_form(headers)
        if form.fault is None and sum([len(name) + len(value or b"") for name, value in headers]) <= MAX_TEXT:
            self._forms.learn(headers, form)
        return form

    def _read_form(self, headers: Headers) -> HeaderForm:
        found: KnownHeaders = {name.lower(): value for name, value in headers}  # type: ignore[misc]  # it has a value
        faults = ["the headers: the name of a header is not UTF-8"] if headers == UNREADABLE_HEADERS else []
        content_type = self._content_type(found, faults)
        if _ENCODING in found and content_type == OCTETS:
            _check_encoding(found, faults)
        accepted = (RECORD,) if content_type == RECORD else _accepted(found, content_type or JSON, faults)
        head_length = _head_length(found, faults)
        to = self._reply_to(found, faults)
        rows = _stated_rows(found, faults) if content_type == OCTETS and head_length is None else None
        states_rows = rows is not None and rows is not NOTHING_STATED
        reply = ReplyForm(accepted[0] if accepted else JSON, to=to, states_rows=states_rows)
        state = _state(found, faults) if self._reads_state else None
        return HeaderForm(content_type, rows, reply, accepted, head_length, faults[0] if faults else None, state)

    def _reply_to(self, found: KnownHeaders, faults: list[str]) -> ReplyTo | None:
        """The place for the answer. One that is not possible is a fault, answered in the response topic."""
        if not REPLY_NAMES.isdisjoint(found):
            try:
                return self._reply_topics.read(found)
            except Reject as no:
                faults.append(no.message)
        return None

    def _asked(self, found: KnownHeaders, faults: list[str]) -> Timeout:
        """The timeout of the headers, or the default if they name none."""
        asked = self._timeout or Timeout()
        if TIMEOUT in found:
            digits = _digits(found[TIMEOUT], _TIMEOUT_DIGITS)
            if not digits:
                faults.append(f"{TIMEOUT}: expected milliseconds, 1 to 9999999999, got {_shown(found, TIMEOUT)}")
            asked = Timeout(digits / 1000)
        if DEADLINE in found:
            digits = _digits(found[DEADLINE], _DEADLINE_DIGITS)
            if not digits:
                got = _shown(found, DEADLINE)
                faults.append(f"{DEADLINE}: expected milliseconds since 1970, 12 to 14 digits, got {got}")
            asked = Timeout(asked.seconds, digits / 1000 or None)
        return asked

    def _content_type(self, found: KnownHeaders, faults: list[str]) -> str:
        """One of our content types, or an empty text for another one."""
        if CONTENT_TYPE not in found:
            return self._default
        text = _text(found[CONTENT_TYPE])
        name = (text or "").partition(";")[0].strip().strip('"').lower()
        if name in CONTENT_TYPES:
            return name
        faults.append(f"content-type: expected one of {', '.join(CONTENT_TYPES)}, got {_shown(found, CONTENT_TYPE)}")
        return ""


def _with_values(headers: Headers) -> Headers:
    """The last header of each name, without the names that have no value in the end."""
    found: dict[str, tuple[str, bytes | None]] = {}
    for header in headers:
        if header[1] is None:
            found.pop(header[0].lower(), None)
        else:
            found[header[0].lower()] = header
    return list(found.values())


def _check_encoding(found: KnownHeaders, faults: list[str]) -> None:
    if (_text(found[_ENCODING]) or "").strip().lower() in _PACKED:
        faults.append(
            f"{_ENCODING}: {_shown(found, _ENCODING)} is not unpacked here: send the value as it is, and let the "
            "producer compress (compression.type)"
        )


def _accepted(found: KnownHeaders, own: str, faults: list[str]) -> tuple[str, ...]:
    text = _text(found[ACCEPT]) if ACCEPT in found else ""
    accepted = admitted(text.strip() or "*/*", own) if text is not None else ()
    if not accepted:
        faults.append(f"accept: only {', '.join(CONTENT_TYPES)} can be served, got {_shown(found, ACCEPT)}")
    return accepted


def _head_length(found: KnownHeaders, faults: list[str]) -> int | None:
    if _HEAD_LENGTH not in found:
        return None
    digits = found[_HEAD_LENGTH].strip()
    if digits.isdigit() and len(digits) <= 10:
        return int(digits)
    faults.append(f"{HEAD_LENGTH}: expected a number of bytes, got {_shown(found, _HEAD_LENGTH)}")
    return None


def _stated_rows(found: KnownHeaders, faults: list[str]) -> StatedRows:
    if DATATYPE not in found and ROWS not in found:
        return NOTHING_STATED
    datatype = found[DATATYPE].decode(errors="replace")[:_LONGEST_DATATYPE] if DATATYPE in found else None
    rows = _digits(found[ROWS], _ROWS_DIGITS) if ROWS in found else None
    if rows == 0:
        faults.append(f"{ROWS}: expected a number of rows, 1 to 999999999, got {_shown(found, ROWS)}")
    return StatedRows(datatype, rows)


def _state(found: KnownHeaders, faults: list[str]) -> StateUse | None:
    if STATE not in found:
        return None
    text = (_text(found[STATE]) or "").strip().lower()
    if text in _STATE_USES:
        return StateUse(text)
    faults.append(f"{STATE}: expected {', '.join(StateUse)}, got {_shown(found, STATE)}")
    return None


def _digits(value: bytes, lengths: range) -> int:
    """The number in a value of decimal digits, if `lengths` has their count; else 0."""
    digits = value.strip()
    return int(digits) if digits.isdigit() and len(digits) in lengths else 0


def _text(value: bytes) -> str | None:
    """The value as text; None if it is no text, or longer than a header's value may be."""
    try:
        return value.decode() if len(value) <= MAX_TEXT else None
    except UnicodeDecodeError:
        return None


def _shown(found: KnownHeaders, name: str) -> str:
    return repr(found[name][:60])[1:]
