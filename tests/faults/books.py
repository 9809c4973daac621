"""The promises, judged from published, read and committed records. Pure: time is passed in, nothing waits.

| promise | broken when |
|---|---|
| nothing lost | a request in its topic has no answer, or a bad one no dead letter |
| nothing repeated (exactly once) | a second answer or dead letter of a request can be read whose offset was not lost |
| order | a request's first answer stands behind that of a later request of its partition, in one response partition |
| right | value, code, key, partition or place of an answer is not the one due to the request |
| state | the state in an answer, or the last state of a key, differs from a serial replay's |
| commit safety | an offset below the group's committed one has no answer that was written before our look |

Commit safety is judged per *look*: the group's committed offsets, then the logs' ends (the high watermark, open
transactions included). Once all below those ends is read, every request below the commit must have its answer there.
It needs no acknowledgements: an offset without a request in the part already read is a hole.

Requests spoiled on a broker's disk are lost to every reader: each still gets an error and a dead letter.

The request topic decides which requests exist. A publisher whose broker dies may send a written request again, and
hears only of the second place: both are requests, and both get an answer.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.faults.memories import Memory, State
from tests.faults.requests import PASSED_OVER, ROWS, Form, Request, Rows, number_of, request, rows, told_by, wrong_value

UNREADABLE = "INVALID_ARGUMENT"  # the error due to a request that cannot be read
ONE_TOPIC: Mapping[str, int] = {}
SHOWN = 20  # examples kept of each way in which a promise was broken


class Place(NamedTuple):
    """One partition of one of the topics that the checker reads; `topic` is "requests", "answers" or "dead"."""

    topic: str
    partition: int


class Seen(NamedTuple):
    """One record that the checker read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str]


class Found(NamedTuple):
    """The kept part of a request's first answer or dead letter: 400,000 whole ones held 600 MB."""

    partition: int
    offset: int
    number: int | None  # of the request that it names
    is_error: bool


class Look(NamedTuple):
    """The group's commits at second `at` (partition → next offset), and the logs' ends right after."""

    at: float
    committed: Mapping[int, int]
    ends: Mapping[Place, int]


class Source(NamedTuple):
    """A request's place."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"


class Books:
    """Owns all data of one run. One thread calls everything except `published`, which another may call."""

    def __init__(
        self,
        partitions: int,
        *,
        exactly_once: bool,
        tell: Callable[[str, str], None],
        memory: Memory | None = None,
        form: Form = ROWS,
        firsts: Mapping[str, int] = ONE_TOPIC,
    ) -> None:
        """`partitions` of all request topics are numbered one topic after the other, from `firsts` on.

        The answers have as many partitions as one request topic.
        """
        self.requests: dict[Source, int] = {}  # place → the request's number
        self.answers = self.errors = self.dead_letters = self.looks = 0
        self.passed_over = 0  # records that get no answer
        self.announced = 0  # repeats of requests whose offset the group had lost
        self._read_again: dict[int, range] = {}  # partition → offsets that may be read again
        self.committed: dict[int, int] = {}  # as last seen: partition → next offset
        self.found: Counter[str] = Counter()
        self.examples: defaultdict[str, list[str]] = defaultdict(list)
        self._answered_at: dict[int, float] = {}  # request partition → second of its last answer
        self._partitions = partitions
        self._firsts = firsts
        self._answer_partitions = partitions // (len(firsts) or 1)
        self._exactly_once = exactly_once
        self._memory = memory
        self._form = form
        self._told: dict[Source, Rows] = {}  # with state: the first answer's columns of state
        self.states: dict[bytes, State] = {}  # with state: the right last state of each key
        self._spoiled: set[Source] = set()  # on a disk
        self._last: Counter[int] = Counter()  # partition → next offset behind read and lost requests
        self._tell = tell
        self._acknowledged: dict[int, Source | None] = {}  # number → its place, as far as its publisher knows
        self._first: dict[Source, Found] = {}
        self._first_letter: dict[Source, Found] = {}
        self._highest: dict[tuple[int, int], int] = {}
        self._partition_of_key: dict[bytes, int] = {}
        self._reached: dict[Place, int] = {}
        self._pending: deque[Look] = deque()
        self._checked: Counter[int] = Counter()

    def published(self, source: Source | None, number: int) -> None:
        """The n-th request is acknowledged at `source`; None: at an unknown place."""
        self._acknowledged[number] = source

    def requested(self, seen: Seen) -> None:
        """A request was read."""
        number = number_of(seen.headers.get("request-id", ""))
        assert number is not None, "only the load publishes there"
        self._lies(Source(seen.partition, seen.offset), number)

    def lost(self, requests: Mapping[Source, int]) -> None:
        """These requests lie in the request topic, and cannot be read."""
        for source, number in requests.items():
            self._lies(source, number)
        self._spoiled |= requests.keys()

    def _lies(self, source: Source, number: int) -> None:
        self.requests[source] = number
        self.passed_over += self._is_passed_over(number)
        self._last[source.partition] = max(source.offset + 1, self._last[source.partition])

    def lost_offset(self, partition: int, begin: int, committed: int) -> None:
        """The group has lost a partition's offset, and reads again from `begin`."""
        before = self._read_again.get(partition, range(begin, begin))
        self._read_again[partition] = range(min(begin, before.start), max(committed, before.stop))

    def reached(self, place: Place, offset: int) -> None:
        """All below this offset of a topic is read."""
        self._reached[place] = max(offset, self._reached.get(place, 0))
        self._judge_looks()

    def answered(self, seen: Seen, at: float) -> None:
        """An answer was read."""
        self.answers += 1
        self.errors += seen.headers.get("status") == "error"
        source = self._source(seen.headers.get("source", ""))
        if source is None:
            self._break("wrong", f"answer {seen.partition}/{seen.offset} has the source {seen.headers.get('source')!r}")
            return
        self._answered_at[source.partition] = at
        if source in self._first:
            self._repeated(source, f"{source} is answered at {_places(self._first[source], seen)}")
        else:
            self._first[source] = _found(seen)
            self._check_order(source, seen)
        for fault in self._lost_faults(source, seen) if source in self._spoiled else self._faults(source, seen):
            self._break("wrong", f"{source}, answered at {seen.partition}/{seen.offset}: {fault}")

    def dead_lettered(self, seen: Seen) -> None:
        """A dead letter was read."""
        self.dead_letters += 1
        headers = seen.headers
        try:
            first = self._firsts.get(headers.get("__dlq.errors.topic", ""), 0)
            source = Source(first + int(headers["__dlq.errors.partition"]), int(headers["__dlq.errors.offset"]))
        except (KeyError, ValueError):
            self._break("wrong", f"dead letter {seen.partition}/{seen.offset} does not say where its request lies")
            return
        if source in self._first_letter:
            self._repeated(source, f"the dead letter of {source} is at {_places(self._first_letter[source], seen)}")
        self._first_letter.setdefault(source, _found(seen))
        for fault in self._lost_faults(source, seen) if source in self._spoiled else self._letter_faults(seen):
            self._break("wrong", f"dead letter of {source} at {seen.partition}/{seen.offset}: {fault}")

    def looked(self, look: Look) -> None:
        """The group's commits were looked at."""
        self.looks += 1
        self.committed.update(look.committed)
        self._pending.append(look)
        self._judge_looks()

    def all_answered_since(self, at: float) -> bool:
        """True if an answer came in each partition after this second."""
        return sum(last > at for last in self._answered_at.copy().values()) == self._partitions

    @property
    def is_all_answered(self) -> bool:
        """True if all acknowledged requests are read, and all read requests are answered."""
        return len(self._acknowledged) <= len(self.requests) <= len(self._first) + self.passed_over

    @property
    def is_all_done(self) -> bool:
        """True if all is answered and committed."""
        return self.is_all_answered and all(self.committed.get(at, 0) >= last for at, last in self._last.items())

    @property
    def published_twice(self) -> int:
        """The number of requests in the topic that the publisher never heard of."""
        return len(self.requests) - len(self._acknowledged)

    @property
    def unjudged(self) -> int:
        """Looks whose ends are not yet read."""
        return len(self._pending)

    def close(self) -> None:
        """Nothing more will be read: judge the promises that need the whole."""
        for source, number in self.requests.items():
            found = self._first.get(source)
            if self._is_passed_over(number):  # an answer or a dead letter would have been found wrong
                continue
            if found is None:
                self._break("lost", f"{source}, request {number}, has no answer")
            elif found.number != (None if source in self._spoiled else number):
                self._break("wrong", f"{source} is request {number}, answered as request {found.number}")
            if (source in self._spoiled or self._asked(number).code) and source not in self._first_letter:
                self._break("lost", f"{source}, request {number}, has no dead letter")
        self._judge_acknowledgements()
        if self._memory is not None:
            self._judge_states(self._memory)
        for source in self._first.keys() - self.requests.keys():
            self._break("wrong", f"{source} is answered, and no request lies there")

    def _judge_acknowledgements(self) -> None:
        there = set(self.requests.values())
        for number, told in self._acknowledged.items():
            if number not in there or (told is not None and self.requests.get(told) != number):
                self._break(
                    "wrong", f"request {number} is acknowledged at {told or 'no place'}, and does not lie there"
                )

    def restored(self, values: Mapping[bytes, bytes]) -> None:
        """Judge the last states, given as values of the changelog. Call it after `close`."""
        assert self._memory is not None
        states = {key: self._memory.read(value) for key, value in values.items()}
        for key in states.keys() | self.states.keys():
            got, due = states.get(key), self.states.get(key)
            if got is None or due is None or self._differ(got, due):
                self._break("wrong state", f"{key!r} ends with {_shown(got)}, not {_shown(due)}")

    def _judge_states(self, memory: Memory) -> None:
        """Replay the requests of each partition, one by one."""
        for source in sorted(self.requests):
            number = self.requests[source]
            key, code = self._asked(number).key or b"", self._asked(number).code
            if code is not None or source in self._spoiled:
                continue
            state, due = self.states.get(key, memory.initial), []
            for row in rows(number, self._form):
                state = memory.after(state, row[memory.columns])
                due.append(memory.told(state))
            self.states[key] = state
            got = self._told.get(source)
            if got is not None and self._differ(got, np.array(due)):
                self._break("wrong state", f"{source}, of {key!r}, told {_shown(got)}, not {_shown(np.array(due))}")

    def _differ(self, one: NDArray[Any], other: NDArray[Any]) -> bool:
        assert self._memory is not None
        # `not <=`, because NaN is neither.
        return not (np.abs(one - other) <= self._memory.tolerance * (1.0 + np.abs(other))).all()

    @property
    def broken(self) -> list[str]:
        """The names of broken promises; at least once, a repeat breaks none."""
        return [name for name, count in self.found.items() if count and (self._exactly_once or name != "repeated")]

    def _source(self, text: str) -> Source | None:
        topic, *numbers = text.rsplit("/", 2)
        if len(numbers) < 2 or not all(number.isdecimal() for number in numbers):
            return None
        return Source(self._firsts.get(topic, 0) + int(numbers[0]), int(numbers[1]))

    def _asked(self, number: int) -> Request:
        return request(number, self._partitions, self._form, has_state=self._memory is not None)

    def _is_passed_over(self, number: int) -> bool:
        return self._asked(number).code == PASSED_OVER

    def _repeated(self, source: Source, how: str) -> None:
        if source.offset in self._read_again.get(source.partition, ()):
            self.announced += 1
        else:
            self._break("repeated", how)

    def _break(self, promise: str, how: str) -> None:
        self.found[promise] += 1
        if len(self.examples[promise]) < SHOWN:
            self.examples[promise].append(how)
        self._tell(promise, how)

    def _check_order(self, source: Source, seen: Seen) -> None:
        line = (seen.partition, source.partition)
        highest = self._highest.get(line, -1)
        self._highest[line] = max(highest, source.offset)
        if source.offset < highest:
            self._break("out of order", f"{source} at {seen.partition}/{seen.offset} comes after offset {highest}")

    def _faults(self, source: Source, seen: Seen) -> list[str]:
        headers = seen.headers
        number = number_of(headers.get("request-id", ""))
        if number is None:
            return [f"request-id {headers.get('request-id')!r} is nobody's"]
        asked = self._asked(number)
        faults = []
        if asked.key != seen.key:
            faults.append(f"key {seen.key!r}, not {asked.key!r}")
        if fault := self._misplaced(source, seen):
            faults.append(fault)
        got = headers.get("error-code") if headers.get("status") == "error" else None
        if headers.get("status") not in ("ok", "error") or got != asked.code:
            faults.append(f"status {headers.get('status')} {got}, not {asked.code or 'ok'}: {seen.value!r}")
        elif asked.code is None:
            if headers.get("content-type") != self._form.answer_type:
                faults.append(f"content-type {headers.get('content-type')}")
            else:
                faults += self._wrong_values(source, number, seen.value or b"")
        return faults

    def _lost_faults(self, source: Source, seen: Seen) -> list[str]:
        """The faults of an answer to a request that cannot be read, or of its dead letter."""
        faults = [] if seen.key is None else [f"key {seen.key!r} of a request that cannot be read"]
        if seen.headers.get("error-code") != UNREADABLE:
            faults.append(f"error-code {seen.headers.get('error-code')}, not {UNREADABLE}")
        if "status" in seen.headers and (fault := self._misplaced(source, seen)):
            faults.append(fault)
        return faults

    def _wrong_values(self, source: Source, number: int, answer: bytes) -> Iterator[str]:
        more = 0 if self._memory is None else self._memory.width
        try:
            value = self._form.raw(number, answer)
        except ValueError as error:
            yield str(error)
            return
        if wrong := wrong_value(number, value, more, self._form):
            yield wrong
        elif self._memory is not None:
            first = self._told.setdefault(source, got := told_by(value, more))
            if self._differ(got, first):
                yield f"told {_shown(got)} of its key, and {_shown(first)} in its first answer"

    def _misplaced(self, source: Source, seen: Seen) -> str | None:
        """Answers of one key share a partition; keyless ones lie in the request's, so that order holds there too."""
        if seen.key is None:
            due = source.partition % self._answer_partitions
        else:
            due = self._partition_of_key.setdefault(seen.key, seen.partition)
        return None if due == seen.partition else f"in partition {seen.partition}, not {due}"

    def _letter_faults(self, seen: Seen) -> list[str]:
        number = number_of(seen.headers.get("request-id", ""))
        if number is None:
            return [f"request-id {seen.headers.get('request-id')!r} is nobody's"]
        asked = self._asked(number)
        faults = []
        if asked.code != seen.headers.get("error-code"):
            faults.append(f"error-code {seen.headers.get('error-code')}, not {asked.code}")
        if (asked.key, asked.value) != (seen.key, seen.value):
            faults.append("key or value is not the request's")
        return faults

    def _judge_looks(self) -> None:
        while self._pending and all(self._reached.get(place, 0) >= end for place, end in self._pending[0].ends.items()):
            look = self._pending.popleft()
            for partition, committed in look.committed.items():
                for offset in range(self._checked[partition], committed):
                    self._check_commit(Source(partition, offset), committed, look)
                self._checked[partition] = max(committed, self._checked[partition])

    def _check_commit(self, source: Source, committed: int, look: Look) -> None:
        found = self._first.get(source)
        is_read = self._reached.get(Place("requests", source.partition), 0) > source.offset
        number = self.requests.get(source)  # None: a transaction's marker, or an aborted record
        if is_read and (number is None or self._is_passed_over(number)):
            return
        if found is None or found.offset >= look.ends[Place("answers", found.partition)]:
            self._break("committed past", f"{source} had no answer at {look.at:.3f} s, and {committed} was committed")
        elif found.is_error:
            letter = self._first_letter.get(source)
            if letter is None or letter.offset >= look.ends[Place("dead", letter.partition)]:
                self._break(
                    "committed past", f"{source} had no dead letter at {look.at:.3f} s, and {committed} was committed"
                )


def _found(seen: Seen) -> Found:
    number = number_of(seen.headers.get("request-id", ""))
    return Found(seen.partition, seen.offset, number, seen.headers.get("status") == "error")


def _places(first: Found, again: Seen) -> str:
    return f"{first.partition}/{first.offset} and {again.partition}/{again.offset}"


def _shown(numbers: NDArray[Any] | None) -> object:
    return None if numbers is None else numbers.tolist()
