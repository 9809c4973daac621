"""Where a batch ends that cannot be read, found without reading it.

The broker gives the whole batch for each of its offsets, and the client reports it by its first one, however far into
it was asked. So a look at one offset says whether the batch reaches as far, and the end is found by going ahead in
growing steps and halving: 30 looks for 20,000 records, 1 ms each. A look after which the client's own thread sleeps
takes 1 s, one in ten does (librdkafka 2.16, measured 2026).

The client reports nothing of a batch whose records it cannot parse (librdkafka#5581): it fetches it again and again,
and counts that in its statistics. Nothing says where such a batch begins, and a good one may lie between two of them.
So each offset is looked at by itself, 60 ms each (measured 2026), until one shows something else. All that is given up
was looked at; a broker that is merely slow shows nothing.

What is looked at is the log as it lies on the broker: the gaps of compaction, markers of transactions and what is
behind them belong to no batch, or to another. Whatever a look does not show is taken for lying beyond, so that what is
found never goes further than the batch, and at worst falls short of its end.

It takes a client of its own, which never joins the group and unpacks little, in a thread of its own: in the consumer
each look would hold up all partitions of the same broker for as long as unpacking takes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from worker.core.records import Partition
from worker.kafka.client.config import Config
from worker.kafka.client.errors import UNREADABLE, words_of
from worker.kafka.client.log import ClientLog
from worker.kafka.client.statistics import unparsed_at
from worker.kafka.offsets.standing_lookup import in_background

LOOK_TIMEOUT = 5.0  # seconds for one look; a connection with TLS and a login to a broker far away takes one or two

# How often a batch is fetched again, and not parsed, until that is believed: once may be an answer that was cut short.
_TIMES_UNPARSED = 3
_POLL_SLICE = 0.01  # seconds; statistics do not end a poll
# So many records that cannot be parsed are looked at before what is found is told: a minute. Other questions wait.
MOST_UNPARSED = 1_000

# Larger than batches travel. zstd is unpacked up to it, and that takes 10 ms (measured 2026).
_MOST_UNPACKED = 64 * 1024 * 1024

_LOOKING: Config = {
    "statistics.interval.ms": 10,
    "fetch.error.backoff.ms": 20,  # between two fetches of a batch that cannot be parsed
    "log_level": 0,
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",  # what an open transaction holds back lies beyond, too
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 10,
    "queued.min.messages": 1,
    # One batch at a time: the first comes whatever its size.
    "message.max.bytes": 1_000,  # the client fetches no less than this
    "fetch.max.bytes": 1_000,
    "max.partition.fetch.bytes": 1_000,
}

# Besides a record, what a look may bring: a batch that cannot be read, nothing there yet, or nothing there any more.
_TELLING = UNREADABLE | {KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001  # public, as all codes


@dataclass(frozen=True, slots=True, eq=False)
class BatchQuestion:
    """How far does the batch that begins at `first` reach, if `at` is part of it?

    `first` None: are there records from `at` on that cannot be parsed, and how far do they reach? Two
    questions that read alike are not the same: a partition may leave and come back before the first is answered.
    """

    partition: Partition
    first: int | None
    at: int


def looking(reading: Config) -> Config:
    """What a client that looks is configured with, beside one that reads: it unpacks nothing that this one cannot."""
    most = min(int(reading["receive.message.max.bytes"]), _MOST_UNPACKED)
    return {**reading, **_LOOKING, "receive.message.max.bytes": most}


class Search:
    """Which offset to look at next. Decides, and looks at nothing itself."""

    def __init__(self, inside: int, end: int) -> None:
        """`inside` is known to be of the batch; at `end` there is nothing, or nothing yet."""
        self.inside = inside
        self._beyond = max(end, inside + 1)
        self._step = 1

    @property
    def next(self) -> int | None:
        """None: `inside` is the last one."""
        left = self._beyond - self.inside - 1
        return self.inside + min(self._step, (left + 1) // 2) if left else None

    def look(self, *, is_inside: bool) -> None:
        assert self.next is not None
        if is_inside:
            self.inside, self._step = self.next, self._step * 2
        else:
            self._beyond = self.next


# Makes a client that is configured by `looking`, with these callbacks.
NewLooker = Callable[[Mapping[str, Any]], Consumer]


class BatchEnds:
    """Answers one question at a time. Used by the loop's thread; each client it makes is used by another."""

    def __init__(self, new_client: NewLooker, log: ClientLog) -> None:
        self._new_client = new_client
        self._log = log
        self._waiting: deque[BatchQuestion] = deque()
        self._is_under_way = False
        self._found: Queue[tuple[BatchQuestion, int, str]] = Queue()

    def ask(self, question: BatchQuestion) -> None:
        self._waiting.append(question)
        self._go_on()

    def answer(self) -> tuple[BatchQuestion, int] | None:
        """A question, and the last offset known to be of its batch; None while nothing is known.

        It lies before the question's own where that was asked of records that may be readable, and nothing is known.
        """
        try:
            question, last, trouble = self._found.get_nowait()
        except Empty:
            return None
        if trouble:
            self._log.tell("batch-end", f"{question.partition}: where the batch at {question.first} ends: {trouble}")
        self._is_under_way = False
        self._go_on()
        return question, last

    def _go_on(self) -> None:
        if self._waiting and not self._is_under_way:
            self._is_under_way = True
            question = self._waiting.popleft()
            in_background(lambda: self._found.put((question, *find_end(self._new_client, question))), "batch-end")


def find_end(new_client: NewLooker, question: BatchQuestion) -> tuple[int, str]:
    """The last offset known to be of the batch, and what was in the way of knowing more; raises nothing."""
    is_unparsed = question.first is None
    search = Search(question.at, question.at + 1)
    along = _Unparsed(question.partition, question.at)
    try:
        client = new_client({"stats_cb": along.hear} if is_unparsed else {})
        try:
            _, end = client.get_watermark_offsets(TopicPartition(*question.partition), LOOK_TIMEOUT)
            if is_unparsed:
                trouble = along.look_from(client, end)
            else:
                search = Search(question.at, end)
                trouble = _look_for_end(client, question, search)
        finally:
            client.close()
    except Exception as error:  # noqa: BLE001  # what is known by then is true all the same
        trouble = words_of(error)
    return along.last if is_unparsed else search.inside, trouble


class _Unparsed:
    """Looks at one offset after the other, as long as the client cannot parse what is there. `last` is the last one."""

    def __init__(self, partition: Partition, at: int) -> None:
        self.last = at - 1
        self._partition = partition
        self._before: int | None = None  # unparsed batches when the client stood at the offset for the first time
        self._times = 0

    def hear(self, statistics: str) -> None:
        """The client's callback, inside its poll."""
        count = unparsed_at(statistics, self._partition, self.last + 1)
        if count is not None:
            self._before = count if self._before is None else self._before
            self._times = count - self._before

    def look_from(self, client: Consumer, end: int) -> str:
        """Up to the first offset that shows anything else, for a while. Returns what was in the way."""
        end = min(end, self.last + 1 + MOST_UNPARSED)
        while self.last + 1 < end:
            self._before, self._times = None, 0
            client.assign([TopicPartition(*self._partition, self.last + 1)])
            seen, until = None, time.monotonic() + LOOK_TIMEOUT
            while (seen := client.poll(_POLL_SLICE)) is None and self._times < _TIMES_UNPARSED:
                if time.monotonic() > until:
                    return f"the broker does not show offset {self.last + 1}"
            if seen is not None:
                error = seen.error()
                return "" if error is None or error.code() in _TELLING else error.str()
            self.last += 1
        return ""


def _look_for_end(client: Consumer, question: BatchQuestion, search: Search) -> str:
    while (offset := search.next) is not None:
        # A seek takes 1 s nine times as often (measured 2026).
        client.assign([TopicPartition(*question.partition, offset)])
        seen = client.poll(LOOK_TIMEOUT)
        if seen is None:
            return f"the broker does not show offset {offset}"
        error = seen.error()
        if error is not None and error.code() not in _TELLING:
            return error.str()
        search.look(is_inside=error is not None and error.code() in UNREADABLE and seen.offset() == question.first)
    return ""
