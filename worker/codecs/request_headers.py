"""A request's headers say its encoding, how and until when its answer is wanted, and which of them go back.

Names have no case, the last header of a name counts, and a header without a value is no header. Reading never fails: a
wrong header is a `fault`, so that the error answer still carries the request's id and echoes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from worker.codecs.replies import REPLY_NAMES, ReplyTopics, admitted
from worker.codecs.wire_contract import CONTENT_TYPES, DATATYPE, HEAD_LENGTH, JSON, MAX_TEXT, OCTETS, ROWS
from worker.core.failures import Reject
from worker.core.records import UNREADABLE_HEADERS, Headers, Reply, ReplyTo, StateUse, Timeout

# Nothing else goes back. The list is short and its names are too, so only the length of the values bounds how much a
# publisher can make us repeat.
ECHOED = ("correlation-id", "correlation_id", "kafka_correlationid", "traceparent", "tracestate")

CONTENT_TYPE, ACCEPT, REQUEST_ID = "content-type", "accept", "request-id"
TIMEOUT, DEADLINE = "timeout-ms", "deadline"
STATE = "state"
# Gzipped rows may be as long as others: one length in four fits a model of one FP32. JSON and protobuf that can be read
# are not packed, whatever a bridge has copied from the HTTP request that it unpacked.
_ENCODING = "content-encoding"
_PACKED = frozenset({"gzip", "x-gzip", "deflate", "zstd", "br", "lz4", "snappy", "base64"})
_STATE_USES = tuple(use.value for use in StateUse)
_HEAD_LENGTH = HEAD_LENGTH.lower()
_READ = frozenset(
    {
        *(CONTENT_TYPE, ACCEPT, REQUEST_ID, TIMEOUT, DEADLINE, STATE, DATATYPE, ROWS, _HEAD_LENGTH, _ENCODING),
        *ECHOED,
        *REPLY_NAMES,
    }
)

# The headers that mean something, as they were sent, by their names in lower case.
KnownHeaders = dict[str, tuple[str, bytes]]

# Headers that say how a request is encoded and its answer wanted: publishers agree on a handful of values.
_FORM = frozenset({CONTENT_TYPE, ACCEPT, DATATYPE, ROWS, _ENCODING, *REPLY_NAMES})
# Milliseconds: up to 115 days to answer in; and from 1973 on, so that seconds and microseconds since 1970, which have
# other lengths, are errors and no instants far away.
_TIMEOUT_DIGITS, _DEADLINE_DIGITS = range(1, 11), range(12, 15)
_ROWS_DIGITS = range(1, 10)
_LONGEST_DATATYPE = 20  # characters that are kept: no datatype has so many
# A header takes two bytes of a record, and 0.7 µs to be read. Publishers, tracing and replays add ten or twenty.
MAX_HEADERS = 1000

# Forms, timeouts and lists of names that are remembered, each of at most 1 KiB. With one more all are forgotten: the
# common ones are learned anew, and none takes a place for good.
_MAX_KNOWN = 256

NO_TOPICS = ReplyTopics("", {})

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class StatedRows(NamedTuple):
    """The headers of a value that is nothing but rows; None: not said."""

    datatype: str | None = None
    rows: int | None = None


# By far most requests', and found by its identity.
NOTHING_STATED = StatedRows()


class Envelope(NamedTuple):
    """The headers of one request, read. `reply` is complete unless the body says more about the answer.

    `rows`: the statement on plain rows, None where the value is something else. `admitted`: the answer's possible
    content types. `head_length`: the bytes of the JSON head of the binary-data form, None without one. `size`: the
    bytes of all headers. `timeout`: when an answer is useless, None for never. `state`: a wish for the key's state.
    """

    content_type: str
    rows: StatedRows | None
    reply: Reply
    admitted: tuple[str, ...]
    head_length: int | None
    size: int
    fault: str | None
    timeout: Timeout | None
    state: StateUse | None = None


class _Layout(NamedTuple):
    """Where in a list of headers with these names each is that means something; `size` is the bytes of the names."""

    form: tuple[int, ...]
    request_id: int | None
    timeout: int | None
    deadline: int | None
    echoes: tuple[int, ...]
    size: int


class Envelopes:
    """Reads headers. Remembers the forms and the names that come again and again, and then reads only the rest.

    A publisher's requests differ in their ids: read whole, a content type and an id cost 2.3 to 4.2 µs, so 1.8
    (measured 2026). Headers that are odd in any way are read whole each time.
    """

    def __init__(
        self,
        default_content_type: str,
        default_timeout: float | None = None,
        *,
        reads_state: bool = False,
        reply_topics: ReplyTopics = NO_TOPICS,
    ) -> None:
        """`default_timeout` in seconds; None: without a header there is none. `reads_state`: the model has state."""
        self._reply_topics = reply_topics
        self._reads_state = reads_state
        self._form_names = _FORM | {STATE} if reads_state else _FORM
        self._default = default_content_type
        self._timeout = None if default_timeout is None else Timeout(default_timeout)
        self._bare = self._read(())
        self._alone: dict[tuple[str, bytes | None], Envelope] = {}
        self._layouts: dict[tuple[str, ...], _Layout | None] = {}
        self._forms: dict[tuple[object, ...], Envelope] = {}
        self._timeouts: dict[bytes, Timeout] = {}

    def read(self, headers: Headers) -> Envelope:
        """The meaning of these headers."""
        if not headers:
            return self._bare
        if len(headers) > 1:
            if len(headers) > MAX_HEADERS:
                return self._bare._replace(fault=f"{len(headers)} headers, at most {MAX_HEADERS} are read")
            return self._read_what_differs(headers) or self._read(headers)
        envelope = self._alone.get(headers[0])
        return envelope if envelope is not None else self._learn(headers)

    def _learn(self, headers: Headers) -> Envelope:
        envelope = self._read(headers)
        name, value = headers[0]
        is_common = name.lower() == CONTENT_TYPE and envelope.fault is None and len(value or b"") <= MAX_TEXT
        if is_common:
            _remember(self._alone, headers[0], envelope)
        return envelope

    def _read_what_differs(self, headers: Headers) -> Envelope | None:
        """The envelope, if names and form are known or can be learned; None: to be read whole."""
        names = tuple([name for name, _ in headers])
        layout = self._layouts[names] if names in self._layouts else self._learn_layout(names)
        values = [value for _, value in headers]
        if layout is None or None in values:
            return None
        form = self._form(names, headers, [values[at] for at in layout.form])
        if form is None:
            return None
        echo = tuple([headers[at] for at in layout.echoes if len(values[at]) <= MAX_TEXT])  # type: ignore[arg-type]  # none is None
        request_id = None
        if layout.request_id is not None:
            request_id = _text(values[layout.request_id]) or None  # type: ignore[arg-type]  # as above
        content_type, rows, reply, accepted, head_length, _, fault, timeout, state = form
        if layout.timeout is not None:
            asked = values[layout.timeout]
            timeout = self._timeouts.get(asked) or self._learn_timeout(asked)  # type: ignore[arg-type]  # as above
            if timeout is None:
                return None
        if layout.deadline is not None:
            until = _until(values[layout.deadline])  # type: ignore[arg-type]  # as above
            if until is None:
                return None
            timeout = Timeout(timeout.seconds if timeout else None, until)
        size = layout.size + sum(map(len, values))  # type: ignore[arg-type]  # as above
        # Both are built once per record: this saves 0.2 µs over the classes' own constructors.
        reply = tuple.__new__(Reply, (reply.content_type, request_id, None, (), echo, reply.to, reply.states_rows))
        whole = (content_type, rows, reply, accepted, head_length, size, fault, timeout, state)
        return tuple.__new__(Envelope, whole)

    def _learn_layout(self, names: tuple[str, ...]) -> _Layout | None:
        """The layout of these names; None where one comes twice, or gives the length of a head."""
        plain = [name.lower() for name in names]
        layout = None
        if len(set(plain)) == len(plain) and _HEAD_LENGTH not in plain:
            layout = _Layout(
                tuple([at for at, name in enumerate(plain) if name in self._form_names]),
                plain.index(REQUEST_ID) if REQUEST_ID in plain else None,
                plain.index(TIMEOUT) if TIMEOUT in plain else None,
                plain.index(DEADLINE) if DEADLINE in plain else None,
                tuple([at for at, name in enumerate(plain) if name in ECHOED]),
                sum(map(len, names)),
            )
        if sum(map(len, names)) <= MAX_TEXT:
            _remember(self._layouts, names, layout)
        return layout

    def _form(self, names: tuple[str, ...], headers: Headers, values: list[bytes | None]) -> Envelope | None:
        """The envelope of these values of the form's headers alone; None where they are at fault."""
        key = (names, *values)
        form = self._forms.get(key)
        if form is None:
            form = self._read([header for header in headers if header[0].lower() in self._form_names])
            if form.fault is not None:
                return None
            if sum([len(part or b"") for part in (*names, *values)]) <= MAX_TEXT:
                _remember(self._forms, key, form)
        return form

    def _learn_timeout(self, value: bytes) -> Timeout | None:
        """Apart from the form: a service that passes on the rest of its own time names another with each request."""
        digits = _digits(value, _TIMEOUT_DIGITS)
        if not digits:
            return None
        timeout = Timeout(digits / 1000)
        if len(value) <= MAX_TEXT:
            _remember(self._timeouts, value, timeout)
        return timeout

    def _read(self, headers: Headers) -> Envelope:
        found, size = _last_of_each(headers)
        is_stand_in = tuple(headers) == UNREADABLE_HEADERS
        faults = [f"the headers: {_text(value or b'')}" for _, value in headers] if is_stand_in else []
        content_type = self._content_type(found, faults)
        if _ENCODING in found and content_type == OCTETS:
            _check_encoding(found, faults)
        accepted = _accepted(found, content_type or JSON, faults)
        head_length = _head_length(found, faults)
        timeout = self._asked(found, faults) if TIMEOUT in found or DEADLINE in found else self._timeout
        to = self._reply_to(found, faults)
        accept, echo = accepted[0] if accepted else JSON, tuple(_echoes(found))
        rows = _stated_rows(found, faults) if content_type == OCTETS and head_length is None else None
        states_rows = rows is not None and rows is not NOTHING_STATED
        reply = Reply(accept, request_id=_request_id(found), echo=echo, to=to, states_rows=states_rows)
        state = _state(found, faults) if self._reads_state else None
        fault = faults[0] if faults else None
        return Envelope(content_type, rows, reply, accepted, head_length, size, fault, timeout, state)

    def _reply_to(self, found: KnownHeaders, faults: list[str]) -> ReplyTo | None:
        """A place that cannot be is a fault, which is answered in the response topic."""
        if not REPLY_NAMES.isdisjoint(found):
            try:
                return self._reply_topics.read({name: value for name, (_, value) in found.items()})
            except Reject as no:
                faults.append(no.message)
        return None

    def _asked(self, found: KnownHeaders, faults: list[str]) -> Timeout:
        """The timeout of the headers, or the default where they name none."""
        asked = self._timeout or Timeout()
        if TIMEOUT in found:
            digits = _digits(found[TIMEOUT][1], _TIMEOUT_DIGITS)
            if not digits:
                faults.append(f"{TIMEOUT}: expected milliseconds, 1 to 9999999999, got {_shown(found, TIMEOUT)}")
            asked = Timeout(digits / 1000)
        if DEADLINE in found:
            until = _until(found[DEADLINE][1])
            if until is None:
                got = _shown(found, DEADLINE)
                faults.append(f"{DEADLINE}: expected milliseconds since 1970, 12 to 14 digits, got {got}")
            asked = Timeout(asked.seconds, until)
        return asked

    def _content_type(self, found: KnownHeaders, faults: list[str]) -> str:
        """One of ours, or nothing for one that is not."""
        if CONTENT_TYPE not in found:
            return self._default
        text = _text(found[CONTENT_TYPE][1])
        name = (text or "").partition(";")[0].strip().strip('"').lower()
        if name in CONTENT_TYPES:
            return name
        faults.append(f"content-type: expected one of {', '.join(CONTENT_TYPES)}, got {_shown(found, CONTENT_TYPE)}")
        return ""


def _remember(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    if len(known) >= _MAX_KNOWN:
        known.clear()
    known[key] = value


def _last_of_each(headers: Headers) -> tuple[KnownHeaders, int]:
    """The headers that mean something, and the bytes of all."""
    found: KnownHeaders = {}
    size = 0
    for name, value in headers:
        size += len(name) + len(value or b"")
        plain = name.lower()
        if plain in _READ:
            if value is None:
                found.pop(plain, None)
            else:
                found[plain] = (name, value)
    return found, size


def _check_encoding(found: KnownHeaders, faults: list[str]) -> None:
    if (_text(found[_ENCODING][1]) or "").strip().lower() in _PACKED:
        faults.append(
            f"{_ENCODING}: {_shown(found, _ENCODING)} is not unpacked here: send the value as it is, and let the "
            "producer compress (compression.type)"
        )


def _accepted(found: KnownHeaders, own: str, faults: list[str]) -> tuple[str, ...]:
    text = _text(found[ACCEPT][1]) if ACCEPT in found else ""
    accepted = admitted(text.strip() or "*/*", own) if text is not None else ()
    if not accepted:
        faults.append(f"accept: only {', '.join(CONTENT_TYPES)} can be served, got {_shown(found, ACCEPT)}")
    return accepted


def _head_length(found: KnownHeaders, faults: list[str]) -> int | None:
    if _HEAD_LENGTH not in found:
        return None
    digits = found[_HEAD_LENGTH][1].strip()
    if digits.isdigit() and len(digits) <= 10:
        return int(digits)
    faults.append(f"{HEAD_LENGTH}: expected a number of bytes, got {_shown(found, _HEAD_LENGTH)}")
    return None


def _stated_rows(found: KnownHeaders, faults: list[str]) -> StatedRows:
    if DATATYPE not in found and ROWS not in found:
        return NOTHING_STATED
    datatype = found[DATATYPE][1].decode(errors="replace")[:_LONGEST_DATATYPE] if DATATYPE in found else None
    rows = _digits(found[ROWS][1], _ROWS_DIGITS) if ROWS in found else None
    if rows == 0:
        faults.append(f"{ROWS}: expected a number of rows, 1 to 999999999, got {_shown(found, ROWS)}")
    return StatedRows(datatype, rows)


def _state(found: KnownHeaders, faults: list[str]) -> StateUse | None:
    if STATE not in found:
        return None
    text = (_text(found[STATE][1]) or "").strip().lower()
    if text in _STATE_USES:
        return StateUse(text)
    faults.append(f"{STATE}: expected {', '.join(StateUse)}, got {_shown(found, STATE)}")
    return None


def _until(value: bytes) -> float | None:
    """Seconds since the epoch; None for any other value."""
    digits = _digits(value, _DEADLINE_DIGITS)
    return digits / 1000 if digits else None


def _digits(value: bytes, lengths: range) -> int:
    """The number that so many decimal digits are; 0 for anything else."""
    digits = value.strip()
    return int(digits) if digits.isdigit() and len(digits) in lengths else 0


def _request_id(found: KnownHeaders) -> str | None:
    """None for one that could not be sent back as it came."""
    return (_text(found[REQUEST_ID][1]) or None) if REQUEST_ID in found else None


def _echoes(found: KnownHeaders) -> Iterable[tuple[str, bytes]]:
    return [header for name, header in found.items() if name in ECHOED and len(header[1]) <= MAX_TEXT]


def _text(value: bytes) -> str | None:
    """The value as text; None when it is none, or longer than a header's value may be."""
    try:
        return value.decode() if len(value) <= MAX_TEXT else None
    except UnicodeDecodeError:
        return None


def _shown(found: KnownHeaders, name: str) -> str:
    return repr(found[name][1][:60])[1:]
