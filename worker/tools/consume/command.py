"""`inference-worker consume`: shows the answers in a response topic, or the records of any topic, as text or JSON.

It reads outside every consumer group and commits nothing.
"""

from __future__ import annotations

import heapq
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from worker.core.failures import BadConfiguration, Incomplete
from worker.core.records import Partition, Record
from worker.kafka.reader import Reader, age, near_ends
from worker.settings.for_commands import ClientSettings, load_client, unset
from worker.signals import StopSignals, stop_signals
from worker.terminal.command_end import give_stdout_back
from worker.terminal.command_line import check_idle, signature_and_example, with_options
from worker.terminal.terminal import tell
from worker.tools.consume.reading import Reading, headers_of, read
from worker.tools.consume.records import RecordValues
from worker.tools.consume.shown import RecordFacts, json_of, lines_of
from worker.tools.options import ConsumeOrder

if TYPE_CHECKING:
    from worker.core.tensors.signature import Signature

# Seconds of the longest wait for a record before a signal is noticed.
_GLANCE = 0.1
# Offsets, over all partitions, in which the newest wanted records are searched: a second or two of reading.
LOOK_THROUGH = 200_000


def consume(order: ConsumeOrder) -> int:
    """Show records. Returns 0 if all was shown that `count` and `request_ids` ask for.

    Raises `Incomplete` if less came than they ask for, or if something could not be read.
    """
    if order.follow is False and not (order.from_beginning or order.last):
        check_idle("without --from-beginning or --last: what comes is not waited for", no_follow=True)
    if order.from_beginning:
        check_idle("with --from-beginning, which shows all", last=order.last)
    environ = with_options(
        os.environ, WORKER_KAFKA__BOOTSTRAP_SERVERS=order.bootstrap_servers, WORKER_MODEL__PATH=order.model
    )
    settings = load_client(order.config, environ)
    give_stdout_back()  # output goes on until its reader closes the pipe
    search, topic = _Search(order), _topic(order, settings)
    with (
        RecordValues(settings.registry) as values,
        Reader(settings.kafka, topic) as reader,
        stop_signals() as signals,
    ):
        reading = _reading_of(values, _signature_of(order, environ), is_of_records=settings.records is not None)
        for records in _come(order, reader, search, signals):
            _show(records, reading, as_json=order.as_json)
        if not signals.stop_asked:
            search.check()
        reader.expect_whole()
    return 0


def _topic(order: ConsumeOrder, settings: ClientSettings) -> str:
    topic = order.topic or settings.kafka.response_topic
    if topic is None:
        raise unset("WORKER_KAFKA__RESPONSE_TOPIC: must be set, or name a topic with --topic", order.config)
    return topic


def _signature_of(order: ConsumeOrder, environ: Mapping[str, str]) -> Callable[[], Signature | None]:
    """Returns a function that reads the model once, when rows come. Raises only if the order names a model."""

    @cache
    def signature() -> Signature | None:
        try:
            return signature_and_example(order.config, environ)[0]
        except BadConfiguration:
            if order.model is not None:
                raise
            tell("some values are rows of numbers; --model FILE shows them as such")
            return None

    return signature


def _reading_of(
    values: RecordValues, signature: Callable[[], Signature | None], *, is_of_records: bool
) -> Callable[[Record], Reading]:
    """Returns the function that reads a value: as a record where topics have such, or where it is nothing else."""

    def reading(record: Record) -> Reading:
        is_error = headers_of(record.headers).get("status") == b"error"
        found = values.read(record) if is_of_records and not is_error else {}
        return found or read(record, signature) or values.read(record)

    return reading


def _come(order: ConsumeOrder, reader: Reader, search: _Search, signals: StopSignals) -> Iterator[Sequence[Record]]:
    """Yields the wanted records as they come; with `last`, the newest ones once all partitions' ends are reached."""
    follows = order.follow
    if follows is None:
        follows = sys.stdout.isatty() or not (order.from_beginning or order.last)
    starts, held = search.starts(reader), list[Record]()
    reader.start_at(starts)
    while not signals.stop_asked and not search.is_over:
        is_backlog = not reader.has_reached_ends
        found = search.wanted(reader.read(_GLANCE))
        if order.last is not None and is_backlog:
            held = heapq.nlargest(order.last, [*held, *found], key=age)
            found = held[::-1] if reader.has_reached_ends else ()
            if reader.has_reached_ends and len(held) < order.last and starts != reader.beginnings:
                tell(f"{len(held):,} found among the newest records; --from-beginning looks through all")
        yield search.taken(found)
        if reader.has_reached_ends and not follows:
            return


class _Search:
    """Chooses the wanted records, and knows which of them are still missing. Owns the count."""

    def __init__(self, order: ConsumeOrder) -> None:
        self._order = order
        self._missing = dict.fromkeys(order.request_ids or ())
        self._taken = 0
        self._is_choosy = order.errors_only or bool(order.request_ids)

    def starts(self, reader: Reader) -> Mapping[Partition, int]:
        """Returns the offset at which reading begins, for each partition."""
        if self._order.last is None:
            return reader.beginnings if self._order.from_beginning else reader.ends
        near = near_ends(reader, self._order.last)
        if not self._is_choosy:
            return near
        reach = LOOK_THROUGH // len(reader.ends)
        return {at: max(first, min(near[at], reader.ends[at] - reach)) for at, first in reader.beginnings.items()}

    def wanted(self, records: Sequence[Record]) -> Sequence[Record]:
        return [record for record in records if self._is_wanted(record)] if self._is_choosy else records

    def _is_wanted(self, record: Record) -> bool:
        names, facts = self._order.request_ids, RecordFacts(record)
        return (facts.is_error or not self._order.errors_only) and not (names and facts.names.isdisjoint(names))

    def taken(self, wanted: Sequence[Record]) -> Sequence[Record]:
        """Returns as many of these records as are still asked for, and counts them."""
        taken = wanted if self._order.count is None else wanted[: self._order.count - self._taken]
        self._taken += len(taken)
        for record in taken if self._missing else ():
            for name in RecordFacts(record).names:
                self._missing.pop(name, None)
        return taken

    @property
    def is_over(self) -> bool:
        has_all_names = bool(self._order.request_ids) and not self._missing and not self._order.follow
        return has_all_names or self._taken == self._order.count

    def check(self) -> None:
        """Raises `Incomplete` if wanted records did not come."""
        if self._missing:
            raise Incomplete(f"no answer to {', '.join(self._missing)} was found")
        if self._order.count is not None and self._taken < self._order.count:
            raise Incomplete(f"{self._taken} of {self._order.count} records were found")


def _show(records: Sequence[Record], reading_of: Callable[[Record], Reading], *, as_json: bool) -> None:
    """Write records to standard output. Raises `BrokenPipeError` if its reader has closed it."""
    today, width = datetime.now().astimezone().date(), shutil.get_terminal_size().columns
    for record in records:
        reading = reading_of(record)
        if as_json:
            sys.stdout.buffer.write(json_of(record, reading))
        else:
            sys.stdout.writelines(f"{line}\n" for line in lines_of(record, reading, width, today))
    sys.stdout.flush()
