"""`inference-worker consume`: the answers in a response topic, or whatever else lies in a topic, for people or as JSON.

Reads beside every consumer group and commits nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from sys import maxsize

from worker.core.failures import Incomplete
from worker.core.records import Partition, Record
from worker.core.tensors.signature import Signature
from worker.kafka.client.command_clients import ANSWER_TIMEOUT
from worker.settings.for_commands import ClientSettings, load_client, unset
from worker.signals import StopSignals, stop_signals
from worker.terminal.command_line import check_idle, signature_if_any, with_options
from worker.terminal.terminal import console, tell
from worker.tools.consume.options import ConsumeOrder
from worker.tools.consume.reading import Reading, read
from worker.tools.consume.shown import RecordFacts, block, json_of
from worker.tools.kafka.reader import Reader

# The longest wait for a record before a signal or the end of the time is noticed, seconds.
_GLANCE = 0.1
# Records that the newest wanted ones are looked for in, of all partitions together: seconds of reading, not minutes.
_LOOK_THROUGH = 1_000_000


def consume(order: ConsumeOrder) -> int:
    """0 when what was asked for was shown, or nothing in particular was.

    Raises `Incomplete` when less came, or less within `timeout`, than `count`, `key` or `request_ids` ask for, when
    something could not be read, or not all came that was there at the start.
    """
    if order.follow is False and not (order.from_beginning or order.last):
        check_idle("without --from-beginning or --last: what comes is not waited for", no_follow=True)
    environ = with_options(
        os.environ, WORKER_KAFKA__BOOTSTRAP_SERVERS=order.bootstrap_servers, WORKER_MODEL__PATH=order.model
    )
    settings = load_client(order.config, environ)
    search = _Search(order)
    with Reader(settings.kafka, _topic(order, settings)) as reader, stop_signals() as signals:
        tail = _Tail(reader, order.last, search, looks_through_all=order.from_beginning) if order.last else None
        if tail is None:
            reader.start_at(reader.beginnings if order.from_beginning else reader.ends)
        _show_what_comes(order, reader, tail, search, _Page(order, environ), signals)
        if not signals.stop_asked:
            search.check()
        reader.expect_whole()
    return 0


def _topic(order: ConsumeOrder, settings: ClientSettings) -> str:
    topic = order.topic or settings.kafka.response_topic
    if topic is None:
        raise unset("WORKER_KAFKA__RESPONSE_TOPIC: must be set, or name a topic with --topic", order.config)
    return topic


def _show_what_comes(
    order: ConsumeOrder, reader: Reader, tail: _Tail | None, search: _Search, page: _Page, signals: StopSignals
) -> None:
    follows = (
        (sys.stdout.isatty() or not (order.from_beginning or order.last)) if order.follow is None else order.follow
    )
    patience = Patience(order.timeout, time.monotonic())
    while not signals.stop_asked and not search.is_over:
        is_backlog = not reader.has_reached_ends
        records = reader.read(_GLANCE)
        has_come = is_backlog and (bool(records) or reader.has_reached_ends)
        if tail is not None:
            records = tail.newest(records)
            tail = None if reader.has_reached_ends else tail
        if found := search.found(records):
            page.show(found)
        now = time.monotonic()
        if found or has_come:
            patience.heard(now)
        if patience.is_over(now, is_backlog=not reader.has_reached_ends):
            reader.expect_ends()
            return
        if reader.has_reached_ends and not follows:
            return


class _Tail:
    """The newest so many of the wanted records of all partitions together.

    An offset may also be an unwanted record, the marker of a transaction, a record of one that was taken back, or a
    gap: while what was not read may be newer than what was found, all is read once more, from further back. Within a
    partition records are taken to lie in the order of their time.
    """

    def __init__(self, reader: Reader, count: int, search: _Search, *, looks_through_all: bool) -> None:
        self._reader = reader
        self._count = count
        self._search = search
        is_bounded = search.is_choosy and not looks_through_all
        self._farthest = max(count, _LOOK_THROUGH // len(reader.ends)) if is_bounded else max(reader.ends.values())
        self._begin(count)

    def newest(self, records: Sequence[Record]) -> Sequence[Record]:
        """These have come. Nothing, until the newest are known."""
        for record in records:
            self._oldest.setdefault(record.partition, _time(record))
            if self._search.is_wanted(record):
                self._held[record.partition].append(record)
        if not self._reader.has_reached_ends:
            return ()
        found = sorted((record for held in self._held.values() for record in held), key=_time)[-self._count :]
        if self._may_be_newer(found):
            if self._reach < self._farthest:
                self._begin(min(self._reach * 4, self._farthest))
                return ()
            self._tell(len(found))
        return found

    def _begin(self, reach: int) -> None:
        ends, beginnings = self._reader.ends, self._reader.beginnings
        self._reach = reach
        self._held = {at: deque[Record](maxlen=self._count) for at in ends}
        self._oldest: dict[Partition, int] = {}  # times of the first that were read
        self._starts = {at: max(beginnings[at], end - reach) for at, end in ends.items()}
        self._reader.start_at(self._starts)

    def _may_be_newer(self, found: Sequence[Record]) -> bool:
        """Whether what lies before the starts may belong to the newest."""
        cut = [at for at, start in self._starts.items() if start > self._reader.beginnings[at]]
        if len(found) < self._count:
            return bool(cut)
        return any(_time(found[0]) < self._oldest.get(at, maxsize) for at in cut)

    def _tell(self, found: int) -> None:
        tell(
            f"{found:,} found in the newest {self._reach:,} offsets of each partition; earlier ones were not looked "
            "through; --from-beginning looks through all"
        )


def _time(record: Record) -> int:
    return record.timestamp_ms or 0


class Patience:
    """How long nothing wanted may come, once everything that was there at the start has been read.

    Until then only a broker that sends nothing at all is silent, and has as long as for any answer: a backlog is read
    to its end however long it takes, and a connection may take longer than `timeout`. Instants in seconds.
    """

    def __init__(self, timeout: float | None, now: float) -> None:
        self._timeout = timeout
        self._heard_at = now

    def heard(self, now: float) -> None:
        """Something wanted came, or anything of the backlog, or its end."""
        self._heard_at = now

    def is_over(self, now: float, *, is_backlog: bool) -> bool:
        """Never without a timeout."""
        if self._timeout is None:
            return False
        return now - self._heard_at > (max(self._timeout, ANSWER_TIMEOUT) if is_backlog else self._timeout)


class _Search:
    """Which records are wanted, and which of them are still to come. Owns the count."""

    def __init__(self, order: ConsumeOrder) -> None:
        self._order = order
        self._key = None if order.key is None else order.key.encode(errors="surrogateescape")
        self._missing = dict.fromkeys(order.request_ids or ())
        self._found = 0

    def found(self, records: Sequence[Record]) -> list[Record]:
        """Those that are wanted, no more than are still asked for."""
        room = None if self._order.count is None else self._order.count - self._found
        wanted = [record for record in records if self.is_wanted(record)][:room]
        self._found += len(wanted)
        for record in wanted if self._missing else ():
            for name in _names(record):
                self._missing.pop(name, None)
        return wanted

    def is_wanted(self, record: Record) -> bool:
        order = self._order
        return (
            (self._key is None or record.key == self._key)
            and (not order.errors_only or RecordFacts(record).is_error)
            and (not order.request_ids or not _names(record).isdisjoint(order.request_ids))
        )

    @property
    def is_choosy(self) -> bool:
        """Whether there may be records that are not wanted."""
        return self._key is not None or self._order.errors_only or bool(self._order.request_ids)

    @property
    def is_over(self) -> bool:
        has_all_names = bool(self._order.request_ids) and not self._missing and not self._order.follow
        return has_all_names or self._found == self._order.count

    def check(self) -> None:
        """Raises `Incomplete` for what was asked for and did not come."""
        if self._missing:
            raise Incomplete(f"no answer to {', '.join(self._missing)} was found")
        if self._order.count is not None and self._found < self._order.count:
            raise Incomplete(f"{self._found} of {self._order.count} records were found")
        if self._key is not None and not self._found:
            what = "error" if self._order.errors_only else "record"
            raise Incomplete(f"no {what} with the key {self._order.key} was found")


def _names(record: Record) -> set[str]:
    """What a request may be asked for by: its id, or its place."""
    told = RecordFacts(record)
    return {told.source} if told.request_id is None else {told.source, told.request_id}


class _Page:
    """Standard output, as a terminal, a file or a pipe, or for machines. Looks at the model when rows come."""

    def __init__(self, order: ConsumeOrder, environ: Mapping[str, str]) -> None:
        self._order = order
        self._environ = environ
        self._console = console()

    def show(self, records: Sequence[Record]) -> None:
        """Raises `BrokenPipeError` when it is read no more."""
        if self._order.as_json:
            lines = [json_of(record, self._read(record)) for record in records]
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()
            return
        today = datetime.now().astimezone().date()
        width = self._console.width if self._console.is_terminal else None
        for record in records:
            shown = block(record, self._read(record), width, today)
            if width is None:
                sys.stdout.write(f"{shown.plain}\n")
            else:
                self._console.print(shown, soft_wrap=True)
        sys.stdout.flush()

    def _read(self, record: Record) -> Reading:
        reading = read(record)
        return read(record, self._signature) if reading.is_rows else reading

    @cached_property
    def _signature(self) -> Signature | None:
        return signature_if_any(self._order.config, self._environ, is_asked_for=self._order.model is not None)
