"""One replay: requests sent back to the topics they came from, once for each letter, in bounded transactions.

Reads what the topic holds at the start, so that it ends even where its own requests are rejected again: those get new
letters, which the next replay sends. What is sent and how far it is becomes true in one transaction (`ReplayGroup`);
which letters are done is reckoned in `progress.py`. Stopped, killed or failed at any point it is started
again and goes on.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from worker.codecs.dead_letters import Letter, read
from worker.codecs.message_sizes import size_of
from worker.codecs.request_headers import Envelopes
from worker.core.failures import Incomplete
from worker.core.records import Message, Partition, Record
from worker.tools.dead_letters.destinations import Destination
from worker.tools.dead_letters.originals import original
from worker.tools.dead_letters.progress import MAX_NOTES, Bookmark, Trail, request_topic
from worker.tools.dead_letters.replay_group import Committed, Sending

# What one transaction holds at most: with it, what a killed replay makes the readers of its topics wait for.
MOST_RECORDS = 500
MOST_BYTES = 8 * 1024 * 1024
MOST_SECONDS = 1.0
_READ_S = 0.2
_NAMED = 100  # places shown of the letters that did not go for one reason


class LetterReader(Protocol):
    """Where they are read. `Reader` is one."""

    @property
    def ends(self) -> Mapping[Partition, int]: ...
    @property
    def has_reached_ends(self) -> bool: ...
    def start_at(self, offsets: Mapping[Partition, int]) -> None: ...
    def read(self, timeout: float) -> Sequence[Record]: ...


class LetterSender(Protocol):
    """How they leave. `ReplayGroup` is one, `Rehearsal` the other."""

    def serve(self) -> None: ...
    def send(self, sendings: Sequence[Sending], offsets: Mapping[Partition, Committed]) -> None: ...


class TopicFinder(Protocol):
    """Where they may go. `Destinations` is one."""

    def find(self, topic: str) -> Destination: ...


class Rehearsal:
    """Sends nothing and remembers nothing: a dry run."""

    def serve(self) -> None: ...
    def send(self, sendings: Sequence[Sending], offsets: Mapping[Partition, Committed]) -> None: ...


class SendingLimits(NamedTuple):
    """How many, and how fast: at most `limit` letters, and `rate` of them a second. None: no bound."""

    limit: int | None = None
    rate: float | None = None

    @property
    def most_at_once(self) -> int:
        """Records of one transaction: about a second's worth, so that a slow replay is a steady one."""
        return MOST_RECORDS if self.rate is None else max(1, min(MOST_RECORDS, int(self.rate)))


@dataclass(slots=True)
class Unsent:
    """Letters that did not go for one reason. Of `places` there are the first."""

    letters: int = 0
    places: list[str] = field(default_factory=list)

    def add(self, letter: Letter) -> None:
        self.letters += 1
        if len(self.places) < _NAMED:
            self.places.append(str(letter.position))


@dataclass(slots=True)
class ReplayCounts:
    """What a replay did: letters sent by topic and code; those that no replay can send, and those left for another."""

    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: defaultdict[str, Unsent] = field(default_factory=lambda: defaultdict(Unsent))
    left: defaultdict[str, Unsent] = field(default_factory=lambda: defaultdict(Unsent))
    is_stopped: bool = False


@dataclass(kw_only=True)
class ReplayRun:
    """One run. Owns what it has taken and not yet sent, and the way through each partition."""

    letters: LetterReader
    topics: TopicFinder
    sender: LetterSender
    envelopes: Envelopes
    trails: Mapping[Partition, Trail]
    to: str | None = None
    limits: SendingLimits = field(default_factory=SendingLimits)
    is_stop_asked: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep

    def __post_init__(self) -> None:
        self.counts = ReplayCounts()
        self._saved: dict[Partition, Bookmark] = {at: trail.bookmark for at, trail in self.trails.items()}
        self._pending: list[Sending] = []
        self._pending_bytes = 0
        self._pending_counts: Counter[tuple[str, str]] = Counter()
        self._last_send = self.clock()

    def run(self, advance: Callable[[int], object]) -> None:
        """Until every letter is sent, or the limit reached, or a stop asked for. `advance` hears of offsets passed.

        Raises `Stop` when Kafka does not let it go on; what the counts says was sent is sent.
        """
        starts = {at: trail.next_offset for at, trail in self.trails.items()}
        self.letters.start_at(starts)
        while not self.letters.has_reached_ends and self._may_go_on():
            self.sender.serve()
            records = self.letters.read(_READ_S)
            self._take_all(records)
            if not records or self.clock() - self._last_send >= MOST_SECONDS:
                self._send()
            advance(sum(trail.next_offset - starts[at] for at, trail in self.trails.items()))
        if self._may_go_on():
            for partition, trail in self.trails.items():
                trail.ended(self.letters.ends[partition])
        self._send()

    def _may_go_on(self) -> bool:
        self.counts.is_stopped = self.counts.is_stopped or self.is_stop_asked()
        return not self.counts.is_stopped and self._room > 0

    @property
    def _room(self) -> int:
        taken = self.counts.sent.total() + len(self._pending)
        return 1 if self.limits.limit is None else self.limits.limit - taken

    def _take_all(self, records: Sequence[Record]) -> None:
        for record in records:
            if not self._may_go_on():
                return
            if record.offset < self.letters.ends[record.partition]:
                self._take(read(record), self.trails[record.partition])
            if len(self._pending) >= self.limits.most_at_once or self._pending_bytes >= MOST_BYTES:
                self._send()

    def _take(self, letter: Letter, trail: Trail) -> None:
        reason = self._hold(letter, trail) if trail.wants(letter) else None
        if reason is not None:
            self.counts.left[reason].add(letter)
        trail.passed(letter, is_left=reason is not None)

    def _hold(self, letter: Letter, trail: Trail) -> str | None:
        """Until the next transaction, or count it as lost. Returns why it is left for a later run, if it is."""
        if letter.loss is not None:
            self.counts.lost[letter.loss].add(letter)
            return None
        topic = self.to or request_topic(letter)
        if not topic:
            return "the dead letter does not say where it came from; give --to"
        destination = self.topics.find(topic)
        if destination.fault is not None:
            return destination.fault
        if trail.is_behind(letter):
            return "they come behind one that is left"
        message = original(letter, topic, self.envelopes)
        size = size_of(message)
        if size > destination.max_bytes:
            reason = f"topic {topic} does not take records so large"
            if self.to is not None:  # where it came from it may go all the same
                return reason
            self.counts.lost[reason].add(letter)
            return None
        partition = _partition(message, destination, is_own=letter.origin is not None and self.to is None)
        self._pending.append(Sending(message, partition, destination.max_bytes))
        self._pending_bytes += size
        self._pending_counts[topic, letter.code] += 1
        return None

    def _send(self) -> None:
        """One transaction, if there is anything to remember; then a rest, where a rate is asked for."""
        bookmarks = {at: trail.bookmark for at, trail in self.trails.items()}
        changed = {at: bookmark for at, bookmark in bookmarks.items() if bookmark != self._saved[at]}
        self._last_send = self.clock()
        if not changed:
            return
        offsets = {at: Committed(bookmark.next_offset, bookmark.notes()) for at, bookmark in changed.items()}
        for at, offset in offsets.items():
            if len(offset.notes.encode()) > MAX_NOTES:
                raise Incomplete(
                    f"{at}: Kafka has no room to remember more filters beside the group's offset; replay once without "
                    "a filter, or begin anew with another --group, which sends again what this one has sent"
                )
        self.sender.send(self._pending, offsets)
        self._saved |= changed
        self.counts.sent += self._pending_counts
        sent = len(self._pending)
        self._pending, self._pending_bytes, self._pending_counts = [], 0, Counter()
        self._rest(sent)

    def _rest(self, sent: int) -> None:
        """Time that went by before, with nothing to send, is no credit."""
        if self.limits.rate is None:
            return
        due = self._last_send + sent / self.limits.rate
        while not self.is_stop_asked() and (left := due - self.clock()) > 0:
            self.sleep(min(left, _READ_S))
            self.sender.serve()


def _partition(message: Message, destination: Destination, *, is_own: bool) -> int:
    """Where it lay before, so that order holds however it was keyed; in another topic, where its key belongs."""
    if is_own and message.source_partition < destination.partitions:
        return message.source_partition
    return -1 if message.key else message.source_partition % destination.partitions
