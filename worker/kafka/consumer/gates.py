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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from worker.core.records import Partition, Record, Suspect
from worker.kafka.client.errors import words_of
from worker.kafka.client.log import ClientLog
from worker.kafka.consumer.flowing import Flowing
from worker.kafka.consumer.pauses import By, Pauses
from worker.kafka.consumer.unreadable import Unreadable
from worker.kafka.offsets.attempts import NONE, SUSPECT_FROM, Attempts
from worker.kafka.offsets.inquiry import NOTHING, Answer, GroupStanding, Inquiry, waiting_words
from worker.kafka.offsets.marks import Mark, Marks
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


@dataclass(slots=True)
class _Gate:
    """One partition that is ours."""

    begun: int = 0  # where the group stood, as far as it has told
    first: int | None = None  # the first offset met in this assignment
    is_asleep: bool = True  # no record of it was handed out
    is_shut: bool = False
    is_adrift: bool = False  # shut, and the client may be looking up where it begins
    start: int | None = None  # of a shut one: to be committed before anything comes
    held: list[Record] = field(default_factory=list)
    bytes_held: int = 0
    standing: GroupStanding | None = None  # by which it was moved, for what comes there: nobody commits it before us
    wanted: Mark | None = None  # of what is held: to be taken before it is handed out
    attempts: int | None = None  # the one under way, once it was marked


class Gates:
    """Which partitions are held and may give records. Owned by the source."""

    def __init__(  # noqa: PLR0913  # what the source owns, and what the gates tell it to do
        self,
        consumer: Consumer,
        flowing: Flowing,
        marks: Marks,
        pauses: Pauses,
        unreadable: Unreadable,
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
        self._unreadable = unreadable
        self._inquiry = inquiry
        self._log = log
        self._starts_at_end = starts_at_end
        self._clock = clock
        self._gates: dict[Partition, _Gate] = {}
        self._closed: dict[Partition, _Gate] = {}  # those that are shut or hold something, all that a poll looks at
        self._all_bytes_held = 0
        self._ready: list[Record] = []
        self._own: dict[Partition, Mark] = {}  # the last we sent, also of what left and may come back
        self._ask_at = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether some partition wants to be attended to."""
        return bool(self._closed or self._ready or self._inquiry.is_under_way)

    def patience(self, timeout: float) -> float:
        """How long a poll may wait."""
        is_urgent = self._inquiry.is_under_way or any(gate.held for gate in self._closed.values())
        return min(timeout, WAKING_SLICE) if is_urgent else timeout

    def assigned(self, partitions: Iterable[Partition]) -> None:
        """They are ours."""
        for partition in partitions:
            self._gates[partition] = gate = _Gate()
            if self._starts_at_end:
                self._shut(partition, gate)

    def begin(self, partition: Partition, offset: int) -> None:
        """It is read from here, where the group stood at its assignment."""
        if (gate := self._gates.get(partition)) is not None:
            gate.begun = offset

    def begun(self, partition: Partition) -> int:
        """Where the group stood when we began, as far as it has told; 0 when it has not."""
        gate = self._gates.get(partition)
        return 0 if gate is None else gate.begun

    def forget(self, partitions: Sequence[Partition]) -> None:
        """They are not ours any more."""
        self._inquiry.forget(partitions)
        for partition in partitions:
            if (gate := self._gates.pop(partition, None)) is not None:
                self._drop(partition, gate)
                self._closed.pop(partition, None)

    def at_rest(self) -> Sequence[Partition]:
        """Those that are ours of which all that came was handed out."""
        return () if self._ready else [partition for partition in self._gates if partition not in self._closed]

    def holds(self, partition: Partition) -> bool:
        """Whether it is ours."""
        return partition in self._gates

    def is_shut(self, partition: Partition) -> bool:
        """Whether what comes of it is dropped."""
        return partition in self._closed and self._closed[partition].is_shut

    def rewind(self, partitions: Sequence[Partition]) -> None:
        """From now on nothing comes of those that are ours, until we know where the group stands."""
        self._inquiry.forget(partitions)
        for partition in partitions:
            if (gate := self._gates.get(partition)) is not None:
                self._drop(partition, gate)
                self._pauses.release(partition, By.LOOP)
                self._shut(partition, gate)

    def adrift(self, partitions: Sequence[Partition]) -> None:
        """The same for those that the client reads from their beginning, wherever the group stands."""
        self.rewind(partitions)
        for partition in partitions:
            if (gate := self._gates.get(partition)) is not None:
                gate.is_adrift = True

    def note_isolated_run(self, partition: Partition, offset: int) -> bool:
        """Note with the group that this record is about to run alone; see `Source`."""
        gate = self._gates.get(partition)
        if gate is None or gate.attempts is None:
            return False
        mark = self._own[partition] = Mark(offset, Attempts(gate.attempts, is_trial=True))
        return self._marks.note(partition, mark)

    def withdraw_note(self, partition: Partition, offset: int) -> bool:
        """Note that its trial was broken off; see `Source`. Sent behind that note, it takes its place."""
        gate = self._gates.get(partition)
        mark = Mark(offset, Attempts(0 if gate is None or gate.attempts is None else gate.attempts))
        if self._own.get(partition) == mark:
            return self._marks.note(partition, mark)
        self._own[partition] = mark
        self._marks.send(partition, mark)
        return False

    def attend(self, assignments: Assignments) -> None:
        """Wake what is held, and let go on what is shut, as far as it is known how. Tells of suspects."""
        if not self._inquiry.is_under_way and self._clock() >= self._ask_at:
            self._ask(assignments)
        if (answer := self._inquiry.answer()) is not None:
            self._learn(answer, assignments)
        for partition, gate in list(self._closed.items()):
            if gate.wanted is not None and self._marks.note(partition, gate.wanted):
                self._wake(partition, gate)
            if gate.start is not None and self._marks.note(partition, Mark(gate.start, NONE)):
                self._go_on(partition, gate, gate.start)
            if gate.is_shut and not gate.is_adrift:  # not to be read in vain meanwhile
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
            elif (gate := self._gates.get(record.partition)) is not None:
                self._hold(record, gate)
        return admitted

    def _hold(self, record: Record, gate: _Gate) -> None:
        if gate.first is None:
            gate.first = record.offset
        if gate.is_shut:
            gate.is_adrift = False
            return
        gate.held.append(record)
        self._closed[record.partition] = gate
        size = len(record.value or b"")
        gate.bytes_held += size
        self._all_bytes_held += size
        if len(gate.held) >= MOST_HELD or self._all_bytes_held >= MOST_BYTES_HELD:
            self._pauses.stop(record.partition, By.SOURCE)

    def _shut(self, partition: Partition, gate: _Gate) -> None:
        gate.is_shut = True
        self._unreadable.forget([partition])
        self._closed[partition] = gate

    def _open(self, partition: Partition, gate: _Gate) -> None:
        """Let it be fetched again, and flow unless it is asleep."""
        del self._closed[partition]
        self._pauses.release(partition, By.SOURCE)
        if not gate.is_asleep:
            self._flowing.let(partition)

    def _drop(self, partition: Partition, gate: _Gate) -> None:
        self._flowing.stop(partition)
        if self._let_out(gate):
            self._pauses.release(partition, By.SOURCE)
        gate.standing = gate.wanted = None
        self._ready = [record for record in self._ready if record.partition != partition]

    def _let_out(self, gate: _Gate) -> Sequence[Record]:
        self._all_bytes_held -= gate.bytes_held
        held, gate.held, gate.bytes_held = gate.held, [], 0
        return held

    def _ask(self, assignments: Assignments) -> None:
        """Where the group stands with those of which it must be known before anything comes of them."""
        asked: list[Partition] = []
        told: dict[Partition, GroupStanding] = {}
        for partition, gate in self._closed.items():
            is_known = gate.wanted is not None or gate.start is not None
            if is_known or gate.is_adrift or assignments.is_in_doubt(partition):
                continue
            if gate.standing is None:
                asked.append(partition)
            else:
                told[partition] = gate.standing
        if asked:
            self._inquiry.ask(asked)
        if told:
            self._learn(Answer(told, told), assignments)

    def _learn(self, answer: Answer, assignments: Assignments) -> None:
        standings = answer.standings
        ends = self._ends(
            [partition for partition, standing in standings.items() if self._hangs_on_end(partition, standing)]
        )
        is_known = len(standings) == len(answer.wanted)
        suspects: list[Suspect] = []
        for partition, standing in standings.items():
            if self.is_shut(partition):
                is_known = self._find(partition, standing, ends.get(partition)) and is_known
            else:
                is_known = self._mark(partition, standing, ends.get(partition), suspects) and is_known
        if not is_known:
            self._ask_at = self._clock() + ASK_AGAIN_AFTER
        if suspects:
            assignments.suspected(suspects)

    def _hangs_on_end(self, partition: Partition, standing: GroupStanding) -> bool:
        """Whether what is done about it may depend on where it ends."""
        gate = self._closed[partition]
        if gate.is_shut:
            return self._starts_at_end and standing.offset is None and gate.first is None
        is_behind = standing.offset is not None and gate.held[0].offset < standing.offset
        return is_behind or standing.attempts.times >= SUSPECT_FROM

    def _mark(self, partition: Partition, standing: GroupStanding, end: int | None, suspects: list[Suspect]) -> bool:
        """Say what must be marked before what is held is handed out. False when it is not known yet."""
        gate = self._closed[partition]
        first = gate.held[0].offset
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
        gate.wanted = self._own[partition] = Mark(offset, Attempts(times + 1, is_trial))
        gate.attempts = times + 1
        return True

    def _wake(self, partition: Partition, gate: _Gate) -> None:
        gate.wanted, gate.is_asleep = None, False
        self._ready += self._let_out(gate)
        self._open(partition, gate)

    def _find(self, partition: Partition, standing: GroupStanding, end: int | None) -> bool:
        """Go on where the group stands. False when that is not known yet."""
        gate = self._closed[partition]
        if standing.offset is None and self._starts_at_end:
            return self._start(partition, gate, end)
        if standing.offset is not None:
            gate.begun = standing.offset
        self._go_on(partition, gate, gate.first if standing.offset is None else standing.offset)
        if not gate.is_shut:
            gate.standing = standing
        return True

    def _start(self, partition: Partition, gate: _Gate, end: int | None) -> bool:
        """Begin at the end, or with what came since we asked in vain, and commit that first."""
        gate.start = end if gate.first is None else gate.first
        if gate.start is None:
            return False
        self._marks.note(partition, Mark(gate.start, NONE))
        return True

    def _go_on(self, partition: Partition, gate: _Gate, offset: int | None) -> None:
        """Read on from there; None: where the client is, having handed out nothing."""
        if offset is not None:
            try:
                self._consumer.seek(TopicPartition(*partition, offset))
            except KafkaException as error:  # not yet, or not any more
                self._log.tell("seek", f"{partition}: the client cannot go to {offset} now: {words_of(error)}")
                return
        gate.is_shut, gate.start = False, None
        self._open(partition, gate)

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
