"""Where each partition stands between its assignment and its first record, and while it is to be read again.

    assigned ──▶ asleep ──first record──▶ held: [ committed()? ──▶ mark the attempt ] ──▶ flows ──rewind──▶ shut
                    ▲                       not where the group stands ──▶ shut                               │
                    └───────────────────── [ committed()? seek there ] ◀──────────────────────────────────────┘

What a partition brings first is held until the group has taken the mark of this attempt: a record that ends the process
at once is counted too, and no mark can arrive late and take a commit back. A shut partition gives nothing: what of it
is on its way is dropped, and it goes on where the group's offset stands, or where it began in this assignment, never
where the reset policy says. So it is with one of which the group did not tell at its assignment (`beginning.py`), but
that one is moved only when something of it has come: a seek while the client looks up where a log begins is undone half
a second later, without a word, and the log came again from there (librdkafka 2.16; 3 of 4 times right after an
assignment).

An offset of the group's beyond the partition's end is of records that are gone, as when their topic was made anew, and
counts for nothing: rewound to it, the partition would begin again and again. Without any offset under `latest` it is
shut from the beginning, until the place where it starts is committed: what is published afterwards is not lost by a
death.

A commit of an earlier assignment may still be on its way, with a transaction that is ending: until that is decided, a
partition that came back is neither asked about nor marked. Kafka keeps the commit that came last, and a mark between
the two halves of a transaction's commit would undo it (seen).

Questions to the group and for ends block the loop, so each has a time limit, and none is asked while all partitions
flow; what the group does not tell at once is asked for beside the loop (`inquiry.py`). Measured with a broker on the
same two cores, busy: the first question of an assignment 1.5 ms (median), a rewind 7 to 16 ms to its first record
beside a backlog. At the end of a topic that is 0.43 s, for the client goes on only when the broker has answered the
fetch under way, after `fetch.wait.max.ms`. A poll costs 0.04 µs more than without, idle partitions or not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from worker.core.records import Partition, Record, Suspect
from worker.kafka.attempts import NONE, SUSPECT_FROM, Attempts
from worker.kafka.client_log import ClientLog
from worker.kafka.errors import words_of
from worker.kafka.flowing import Flowing
from worker.kafka.inquiry import NOTHING, Answer, GroupStanding, Inquiry, waiting_words
from worker.kafka.marks import Mark, Marks
from worker.kafka.pauses import By, Pauses
from worker.ports import Assignments

# From a question that the group did not answer in full to the next one, seconds.
ASK_AGAIN_AFTER = 0.5

# A broker answers a connection's requests in turn, and a fetch before ours may take `fetch.wait.max.ms`, 0.5 s.
END_TIMEOUT = 1.0

# So many records of one partition are held before it is fetched no more, or so many bytes of values of all of them.
MOST_HELD = 1_000
MOST_BYTES_HELD = 16 * 1024 * 1024

# The longest poll while something is held or asked, seconds: what it waits for comes in a poll, or beside it.
WAKING_SLICE = 0.005


class Gates:
    """Which partitions are held and may give records. Owned by the source."""

    def __init__(  # noqa: PLR0913  # what the source owns, and what the gates tell it to do
        self,
        consumer: Consumer,
        flowing: Flowing,
        marks: Marks,
        pauses: Pauses,
        inquiry: Inquiry,
        log: ClientLog,
        *,
        starts_at_end: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._flowing = flowing
        self._marks = marks
        self._pauses = pauses
        self._inquiry = inquiry
        self._log = log
        self._starts_at_end = starts_at_end
        self._clock = clock
        self.begun: dict[Partition, int] = {}  # of what is ours: where the group stood, as far as it has told
        self._first: dict[Partition, int | None] = {}  # of what is ours: the first offset met in this assignment
        self._asleep: set[Partition] = set()  # of these no record was handed out
        self._held: dict[Partition, list[Record]] = {}
        self._bytes_held: Counter[Partition] = Counter()
        self._all_bytes_held = 0
        self._wanted: dict[Partition, Mark] = {}  # of what is held: to be taken before it is handed out
        self._ready: list[Record] = []
        self._attempts: dict[Partition, int] = {}  # of what was marked: the one under way
        self._own: dict[Partition, Mark] = {}  # the last we sent, also of what left and may come back
        self._starts: dict[Partition, int] = {}  # to be committed before anything comes
        self._ask_at = 0.0
        self._shut: set[Partition] = set()
        self._adrift: set[Partition] = set()  # shut, and the client may be looking up where they begin

    @property
    def is_waiting(self) -> bool:
        """Whether some partition wants to be attended to."""
        return bool(self._held or self._ready or self._shut or self._inquiry.is_under_way)

    def patience(self, timeout: float) -> float:
        """How long a poll may wait."""
        return min(timeout, WAKING_SLICE) if self._held or self._inquiry.is_under_way else timeout

    def assigned(self, partitions: Iterable[Partition]) -> None:
        """They are ours."""
        for partition in partitions:
            self._first[partition] = None
            self._asleep.add(partition)
            if self._starts_at_end:
                self._shut.add(partition)

    def forget(self, partitions: Sequence[Partition]) -> None:
        """They are not ours any more."""
        self._inquiry.forget(partitions)
        for partition in partitions:
            self._drop(partition)
            for memory in (self._first, self._attempts, self._starts):
                memory.pop(partition, None)
            for names in (self._asleep, self._shut, self._adrift):
                names.discard(partition)

    def at_rest(self) -> Sequence[Partition]:
        """Those that are ours of which all that came was handed out."""
        if self._ready:
            return ()
        return [partition for partition in self._first if partition not in self._shut and partition not in self._held]

    def holds(self, partition: Partition) -> bool:
        """Whether it is ours."""
        return partition in self._first

    def is_shut(self, partition: Partition) -> bool:
        """Whether what comes of it is dropped."""
        return partition in self._shut

    def rewind(self, partitions: Sequence[Partition]) -> None:
        """From now on nothing comes of those that are ours, until we know where the group stands."""
        self._inquiry.forget(partitions)
        for partition in partitions:
            if partition in self._first:
                self._drop(partition)
                self._pauses.release(partition, By.LOOP)
                self._shut.add(partition)

    def adrift(self, partitions: Sequence[Partition]) -> None:
        """The same for those that the client reads from their beginning, wherever the group stands."""
        self._adrift.update(partitions)
        self.rewind(partitions)

    def put_on_trial(self, partition: Partition, offset: int) -> bool:
        """Note with the group that this record is about to run alone; see `Source`."""
        attempts = self._attempts.get(partition)
        if attempts is None:
            return False
        mark = self._own[partition] = Mark(offset, Attempts(attempts, is_trial=True))
        return self._marks.note(partition, mark)

    def acquit(self, partition: Partition, offset: int) -> bool:
        """Note that its trial was broken off; see `Source`. Sent behind that note, it takes its place."""
        mark = Mark(offset, Attempts(self._attempts.get(partition, 0)))
        if self._own.get(partition) == mark:
            return self._marks.note(partition, mark)
        self._own[partition] = mark
        self._marks.send(partition, mark)
        return False

    def attend(self, assignments: Assignments) -> None:
        """Wake what is held, and let go on what is shut, as far as it is known how. Tells of suspects."""
        if not self._inquiry.is_under_way and self._clock() >= self._ask_at and (asked := self._unknown(assignments)):
            self._inquiry.ask(asked)
        if (answer := self._inquiry.answer()) is not None:
            self._learn(answer, assignments)
        for partition, mark in list(self._wanted.items()):
            if self._marks.note(partition, mark):
                self._wake(partition)
        for partition, offset in list(self._starts.items()):
            if self._marks.note(partition, Mark(offset, NONE)):
                self._go_on(partition, offset)
        for partition in self._shut - self._adrift:  # not to be read in vain meanwhile
            self._pauses.stop(partition, By.SOURCE)

    @property
    def has_ready(self) -> bool:
        """Whether some of what was held may be handed out."""
        return bool(self._ready)

    def behind(self, records: Sequence[Record], most: int) -> Sequence[Record]:
        """What is ready, with these behind it: they came later, perhaps of the same partitions."""
        self._ready += records
        return self.ready(most)

    def ready(self, most: int) -> Sequence[Record]:
        """Held records that may be handed out now: ahead of all that a fetch brings, for they came before."""
        ready, self._ready = self._ready[:most], self._ready[most:]
        return ready

    def admit(self, records: Sequence[Record]) -> Sequence[Record]:
        """What may be handed out of these, among which are some of partitions that do not flow."""
        self._flowing.strangers.clear()
        admitted: list[Record] = []
        for record in records:
            if self._flowing.has(record.partition):
                admitted.append(record)
            elif record.partition in self._first:
                self._hold(record)
        return admitted

    def _hold(self, record: Record) -> None:
        partition = record.partition
        if self._first[partition] is None:
            self._first[partition] = record.offset
        if partition in self._shut:
            self._adrift.discard(partition)
            return
        held = self._held.setdefault(partition, [])
        held.append(record)
        size = len(record.value or b"")
        self._bytes_held[partition] += size
        self._all_bytes_held += size
        if len(held) >= MOST_HELD or self._all_bytes_held >= MOST_BYTES_HELD:
            self._pauses.stop(partition, By.SOURCE)

    def _drop(self, partition: Partition) -> None:
        self._flowing.stop(partition)
        self._wanted.pop(partition, None)
        self._all_bytes_held -= self._bytes_held.pop(partition, 0)
        if self._held.pop(partition, None):
            self._pauses.release(partition, By.SOURCE)
        self._ready = [record for record in self._ready if record.partition != partition]

    def _unknown(self, assignments: Assignments) -> Sequence[Partition]:
        """Those of which it must be known where the group stands before anything comes of them."""
        shut = self._shut - self._adrift
        unknown = [p for p in self._held if p not in self._wanted] + [p for p in shut if p not in self._starts]
        return [partition for partition in unknown if not assignments.is_in_doubt(partition)]

    def _learn(self, answer: Answer, assignments: Assignments) -> None:
        standings = answer.standings
        ends = self._ends(
            [partition for partition, standing in standings.items() if self._hangs_on_end(partition, standing)]
        )
        is_known = len(standings) == len(answer.wanted)
        suspects: list[Suspect] = []
        for partition, standing in standings.items():
            if partition in self._shut:
                is_known = self._find(partition, standing, ends.get(partition)) and is_known
            else:
                is_known = self._mark(partition, standing, ends.get(partition), suspects) and is_known
        if not is_known:
            self._ask_at = self._clock() + ASK_AGAIN_AFTER
        if suspects:
            assignments.suspected(suspects)

    def _hangs_on_end(self, partition: Partition, standing: GroupStanding) -> bool:
        """Whether what is done about it may depend on where it ends."""
        if partition in self._shut:
            return self._starts_at_end and standing.offset is None and self._first[partition] is None
        is_behind = standing.offset is not None and self._held[partition][0].offset < standing.offset
        return is_behind or standing.attempts.times >= SUSPECT_FROM

    def _mark(self, partition: Partition, standing: GroupStanding, end: int | None, suspects: list[Suspect]) -> bool:
        """Say what must be marked before what is held is handed out. False when it is not known yet."""
        first = self._held[partition][0].offset
        if standing.offset is not None and first < standing.offset:
            if end is None:
                return False
            if standing.offset <= end:  # committed by an earlier assignment after the client had asked where to begin
                self.rewind([partition])
                return True
            standing = NOTHING  # beyond the end: of records that are gone
        (times, is_trial), offset = standing.attempts, first if standing.offset is None else standing.offset
        if self._own.get(partition) == Mark(offset, standing.attempts):  # nobody began it since, and we are alive
            times, is_trial = times - 1, False
        if times >= SUSPECT_FROM:
            if end is None:
                return False
            suspects.append(Suspect(partition, times, standing.offset if is_trial else None, end))
        # A trial stays one until it is settled: this process may die before it is.
        self._wanted[partition] = self._own[partition] = Mark(offset, Attempts(times + 1, is_trial))
        self._attempts[partition] = times + 1
        return True

    def _wake(self, partition: Partition) -> None:
        del self._wanted[partition]
        self._asleep.discard(partition)
        self._flowing.let(partition)
        self._ready += self._held.pop(partition)
        self._all_bytes_held -= self._bytes_held.pop(partition, 0)
        self._pauses.release(partition, By.SOURCE)

    def _find(self, partition: Partition, standing: GroupStanding, end: int | None) -> bool:
        """Go on where the group stands. False when that is not known yet."""
        if standing.offset is None and self._starts_at_end:
            return self._start(partition, end)
        if standing.offset is not None:
            self.begun[partition] = standing.offset
        self._go_on(partition, self._first[partition] if standing.offset is None else standing.offset)
        return True

    def _start(self, partition: Partition, end: int | None) -> bool:
        """Begin at the end, or with what came since we asked in vain, and commit that first."""
        start = end if self._first[partition] is None else self._first[partition]
        if start is None:
            return False
        self._starts[partition] = start
        self._marks.note(partition, Mark(start, NONE))
        return True

    def _go_on(self, partition: Partition, offset: int | None) -> None:
        """Read on from there; None: where the client is, having handed out nothing."""
        if offset is not None:
            try:
                self._consumer.seek(TopicPartition(*partition, offset))
            except KafkaException as error:  # not yet, or not any more
                self._log.tell("seek", f"{partition}: the client cannot go to {offset} now: {words_of(error)}")
                return
        self._starts.pop(partition, None)
        self._shut.discard(partition)
        self._pauses.release(partition, By.SOURCE)
        if partition not in self._asleep:
            self._flowing.let(partition)

    def _ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Where they end for us: each at its first open transaction, if there is one. Without those not known now.

        All at once: the client asks for the end of one alone behind the fetch under way, and 300 took the loop 80 s.
        But one that has no leader keeps it from asking about the others.
        """
        ends = self._ask_ends(partitions)
        if partitions and not ends and (led := self._led(partitions)) != partitions:
            ends = self._ask_ends(led)
        return ends

    def _ask_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        if not partitions:
            return {}
        try:
            found = self._consumer.offsets_for_times([TopicPartition(*p, OFFSET_END) for p in partitions], END_TIMEOUT)
        except KafkaException as error:
            self._tell_unknown(len(partitions), words_of(error))
            return {}
        if unknown := [at.error for at in found if at.error is not None]:
            self._tell_unknown(len(unknown), unknown[0].str())
        return {self._flowing.named(at.topic, at.partition): at.offset for at in found if at.offset >= 0}

    def _led(self, partitions: Sequence[Partition]) -> Sequence[Partition]:
        """Those of them that have a leader; none while that is not known."""
        try:
            topics = self._consumer.list_topics(timeout=END_TIMEOUT).topics
        except KafkaException:  # the question before this one failed, too, and was told
            return []
        leaders = {
            Partition(name, at.id): at.leader for name, topic in topics.items() for at in topic.partitions.values()
        }
        return [partition for partition in partitions if leaders.get(partition, -1) >= 0]

    def _tell_unknown(self, count: int, why: str) -> None:
        self._log.tell("end", f"the broker does not tell where partitions end, {waiting_words(count)}: {why}")
