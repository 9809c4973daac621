"""Promises broken on purpose, one place at a time, to measure what the simulator catches.

A mutant is another body for a method of a real class, in place during a `with`. It breaks no protocol and raises
nothing by itself: only a broken promise can reveal it. `python -m tests.mutants` shows which test catches which mutant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

from tests.properties.simulation.producers import SimSink
from worker.core.chunk import Batch, Chunk, Finished, Pieces, Prediction
from worker.core.failures import RunFailure
from worker.core.ordering.ledger import Answered, Line, OffsetLedger, Places, Stretch, stretches_of
from worker.core.ordering.order_by_key import KeyedLedger, LooseLedger
from worker.core.records import Ending, Fields, Partition, Record, Rejection
from worker.core.tensors.stacking import reject
from worker.delivery.at_least_once import AtLeastOnce
from worker.delivery.exactly_once import ExactlyOnce
from worker.delivery.last_states import LastStates
from worker.delivery.stored_states import StoringSink, _Sent
from worker.loop.admission import Admission
from worker.loop.held_back import HeldBack
from worker.loop.outcomes import Outcomes
from worker.loop.worker import Worker
from worker.state import ByKey, KeyStates, OutsideStates, Restoration, RestoredRows

# The tests that may catch a mutant.
CRASH, SECOND, REBALANCE = "a crash in any state", "a second crash", "partitions that go and come"
SCHEDULES, KILLERS, DEADLY = "random schedules", "killers", "random schedules with many killers"


@dataclass(frozen=True)
class Mutant:
    """`body` (None: does nothing) replaces `owner`'s `name` and breaks the promise `what`. The test `by` catches it."""

    what: str
    owner: type
    name: str
    body: Callable[..., Any] | property | None
    by: str = CRASH

    @contextmanager
    def at_large(self) -> Iterator[None]:
        with mock.patch.object(self.owner, self.name, self.body or _nothing):
            yield


def _nothing(*_: object, **__: object) -> int:
    return 0


# At least once

_send = AtLeastOnce.send


def _settle_what_is_sent(self: AtLeastOnce, stretches: Sequence[Stretch]) -> None:
    _send(self, stretches)
    self._ledger.settle(stretches)


def _settling_past_others(settle: Callable[[Any, Sequence[Stretch]], None]) -> Callable[..., None]:
    """A `settle` that lets a commit go as far as the last of these places."""

    def settled(self: OffsetLedger, stretches: Sequence[Stretch]) -> None:
        settle(self, stretches)
        for stretch in stretches:
            line = stretch.places.line
            line.next_offset = max(line.next_offset, stretch.next_offset)

    return settled


def _report_the_first_message(self: SimSink, stretch: Stretch, unheard: list[Fields], refused: str | None) -> None:
    if unheard and refused is None:
        unheard.clear()
        self._reports.append(stretch)


def _commit_all_that_was_taken(
    self: OffsetLedger, partitions: Sequence[Partition] | None = None
) -> dict[Partition, int]:
    lines = self._lines.values() if partitions is None else self._known(partitions)
    offsets = {line.partition: line.places[-1].offsets[-1] + 1 for line in lines if line.places}
    return {**{line.partition: line.next_offset for line in lines if line.next_offset > line.committed}, **offsets}


def _answer_out_of_turn(self: OffsetLedger, answers: Iterable[Answered]) -> Sequence[Stretch]:
    leaving: list[Stretch] = []
    for places, at, given in answers:
        if self.knows(places):
            self._note(places, at, given)
            leaving += stretches_of(places, at)
    return leaving


def _answer_with_the_first_piece(
    self: Pieces, _: Chunk, outcome: Prediction | Rejection
) -> Prediction | Rejection | None:
    if self.is_over:
        return None
    self._finish()
    return outcome._replace(chunk=self.whole) if isinstance(outcome, Prediction) else outcome


# At least once, with less order


def _free_whoever_is_answered(_: KeyedLedger, places: Places, at: Sequence[int], free: dict[Places, list[int]]) -> None:
    free.setdefault(places, []).extend(at)


# Both


def _forget_nothing(self: OffsetLedger, partitions: Sequence[Partition]) -> int:
    return sum(len(line.places) for line in self._known(partitions))


def _forget_but_answer(self: OffsetLedger, partitions: Sequence[Partition]) -> int:
    """A running record still finds its line, although the partition has left."""
    unsettled = 0
    for line in self._known(partitions):
        for places in line.places:
            self._release(places)
            unsettled += 0 if places.is_gap else len(places)
        del self._lines[line.partition]
    return unsettled


# Exactly once


def _forget_to_read_again(self: Worker, partitions: Sequence[Partition]) -> None:
    self._admission.forget(partitions)
    self._events.rewound(partitions)


def _cover_what_is_taken(self: ExactlyOnce) -> None:
    self._is_ending = True
    for partition, line in self._ledger._lines.items():
        if partition in self._offsets and line.places:
            self._offsets[partition] = line.places[-1].offsets[-1] + 1
    self._transactions.commit(self._offsets)


def _cover_too_little(self: ExactlyOnce) -> None:
    self._is_ending = True
    self._transactions.commit({p: offset - 1 for p, offset in self._offsets.items()})


def _keep_what_is_lost(self: ExactlyOnce, partitions: Sequence[Partition]) -> int:
    """The open transaction goes on with offsets of partitions that now belong to another."""
    self._drop_waiting(partitions)
    return self._ledger.forget(partitions)


def _believe_in_success(self: ExactlyOnce, timeout: float) -> None:
    ending = self._transactions.ended(timeout)
    if ending is None:
        return
    inside, offsets, self._inside, self._offsets = self._inside, self._offsets, [], {}
    self._is_ending = self._is_taken_back = False
    self._events.transaction_ended(Ending(None, ending.seconds), len(inside))
    self._settle(inside, offsets)


def _doubt_nothing(_: ExactlyOnce, __: Partition) -> bool:
    return False


# A host that ends

_smaller, _parted = Outcomes._smaller, Outcomes._parted


def _blame_all(self: Outcomes, batch: Batch, failure: RunFailure) -> Sequence[Batch]:
    if not failure.ended_host:
        return _smaller(self, batch, failure)
    self.check.failed(*[reject(chunk.take(at, at + 1), failure) for chunk in batch.chunks for at in range(len(chunk))])
    return ()


def _run_killers_for_ever(self: Outcomes, batch: Batch, failure: RunFailure) -> Sequence[Batch]:
    return [batch] if failure.ended_host and batch.is_alone else _smaller(self, batch, failure)


def _blame_one_that_had_company(self: Outcomes, batch: Batch, failure: RunFailure) -> Sequence[Batch]:
    is_one = sum(map(len, batch.chunks)) == 1
    return _smaller(self, batch._replace(is_alone=batch.is_alone or is_one), failure)


def _lose_what_ran_beside(self: Outcomes, batch: Batch, failure: RunFailure) -> Sequence[Batch]:
    return _smaller(self, batch, failure)[:1] if failure.ended_host else _smaller(self, batch, failure)


# Rows that fail alone


def _run_the_first_rows_again(self: Outcomes, finished: Finished, failure: RunFailure, now: float) -> Sequence[Batch]:
    """The rest of a batch has the feeds of its first rows, and so a refused record's."""
    again = _parted(self, finished, failure, now)
    feeds = finished.batch.feeds if finished.batch else {}
    return [one._replace(feeds={name: array[: one.rows] for name, array in feeds.items()}) for one in again]


def _mix_up_the_outputs(self: Outcomes, finished: Finished, failure: RunFailure, now: float) -> Sequence[Batch]:
    outputs = None if failure.outputs is None else [np.roll(output, 1, axis=0) for output in failure.outputs]
    return _parted(self, finished, replace(failure, outputs=outputs), now)


def _run_faults_for_ever(self: Outcomes, finished: Finished, failure: RunFailure, now: float) -> Sequence[Batch]:
    assert finished.batch is not None
    return [finished.batch] if failure.faults else _parted(self, finished, failure, now)


# States


def _take_the_first(self: LastStates, offsets: Mapping[Partition, int]) -> None:
    for _, states in self._waiting.values():
        states.reverse()
    _commit(self, offsets)


_commit = LastStates.commit
_restored = Restoration.states
_add = ByKey.add


def _say_no(*_: object) -> bool:
    return False


def _restore_past_what_is_committed(self: Restoration, *given: Any) -> RestoredRows:
    self._committed = None
    return _restored(self, *given)


def _wait_for_no_single_row(self: ByKey, chunk: Chunk, now: float) -> None:
    for at, rows in enumerate(chunk.rows):
        one = chunk.take(at, at + 1)
        if rows == 1:
            self._next_stage.add(one, now)
        else:
            _add(self, one, now)


def store_before_it_is_answered(self: StoringSink, messages: Sequence[Fields], stretch: Stretch) -> None:
    if changes := self._changes(stretch):
        self._writes.write(changes, stretch)
        self._unwritten += 1
    self._on_the_way[stretch] = _Sent(stretch, ())
    self._lines.setdefault(stretch.places.line, deque()).append(self._on_the_way[stretch])
    self._sink.send(messages, stretch)


def _settle_before_it_is_stored(self: StoringSink, line: Line) -> list[Stretch]:
    sent, settled = self._lines[line], list[Stretch]()
    while sent and sent[0].is_answered:
        first = sent.popleft()
        self._writes.write(first.changes, first.stretch)
        settled.append(first.stretch)
    if not sent:
        del self._lines[line]
    return settled


def _see_no_record_again(_: OutsideStates, chunk: Chunk) -> Any:
    return np.zeros(len(chunk), np.bool_)


# Records that wait for a schema


def _commit_past_what_waits(_: Admission, positions: Mapping[Partition, int]) -> Mapping[Partition, int]:
    return positions


def _let_others_overtake(_: HeldBack, records: Sequence[Record]) -> list[Record]:
    return list(records)


def _go_on_with_the_last(self: HeldBack, partition: Partition, held: Any) -> None:
    if held.records:
        self._source.hold(partition, held.records[-1].offset)
        held.records, held.size = [], 0


A_SCHEMA_IS_MISSING = (
    Mutant(
        "a commit past a record that waits for its schema", Admission, "taken_up_to", _commit_past_what_waits, SCHEDULES
    ),
    Mutant("records overtake one that waits for its schema", HeldBack, "sift", _let_others_overtake, SCHEDULES),
    Mutant(
        "a partition goes on behind records that waited", HeldBack, "_leave_to_kafka", _go_on_with_the_last, SCHEDULES
    ),
    Mutant("records wait on after their partition left", HeldBack, "forget", None, SCHEDULES),
)
A_HOST_ENDS = (
    Mutant("all records of a host that ended are refused", Outcomes, "_smaller", _blame_all, KILLERS),
    Mutant("a record that ends the host alone runs for ever", Outcomes, "_smaller", _run_killers_for_ever, KILLERS),
    Mutant("one that ran beside the killer is blamed", Outcomes, "_smaller", _blame_one_that_had_company, KILLERS),
    Mutant("records that ran with the killer are lost", Outcomes, "_smaller", _lose_what_ran_beside, KILLERS),
)
ROWS_FAIL = (
    Mutant(
        "a record has the row of one that failed beside it", Outcomes, "_parted", _run_the_first_rows_again, SCHEDULES
    ),
    Mutant("a record beside a faulty one has another's outputs", Outcomes, "_parted", _mix_up_the_outputs, SCHEDULES),
    Mutant("rows that failed run for ever", Outcomes, "_parted", _run_faults_for_ever),
)
AT_LEAST_ONCE = (
    Mutant("a commit before the delivery report", AtLeastOnce, "send", _settle_what_is_sent),
    Mutant("a commit past a gap", OffsetLedger, "settle", _settling_past_others(OffsetLedger.settle)),
    Mutant("a commit past what was only taken", OffsetLedger, "committable", _commit_all_that_was_taken),
    Mutant("settled by the answer, before its dead letter", SimSink, "_report", _report_the_first_message),
    Mutant("answers that do not wait their turn", OffsetLedger, "answer", _answer_out_of_turn),
    Mutant("a partition is kept, settled and committed after it was revoked", OffsetLedger, "forget", _forget_nothing),
    Mutant("the first piece of a request answers for it", Pieces, "collect", _answer_with_the_first_piece, KILLERS),
    *A_HOST_ENDS,
    *ROWS_FAIL,
    *A_SCHEMA_IS_MISSING,
)
KEYED = (Mutant("answers that do not wait for those of their key", KeyedLedger, "_free", _free_whoever_is_answered),)
LOOSE = (
    Mutant(
        "a commit past a record that is not settled", LooseLedger, "settle", _settling_past_others(LooseLedger.settle)
    ),
)
EXACTLY_ONCE = (
    Mutant("no rewind after an abort", Worker, "_rewind", _forget_to_read_again),
    Mutant("answers that wait survive a rewind", ExactlyOnce, "_drop_waiting", None),
    Mutant("what still runs is answered after a rewind", OffsetLedger, "forget", _forget_but_answer, REBALANCE),
    Mutant("a partition is kept, settled and committed after it was revoked", OffsetLedger, "forget", _forget_nothing),
    Mutant("offsets of answers that are not in the transaction", ExactlyOnce, "_commit", _cover_what_is_taken),
    Mutant("answers whose offsets are not in the transaction", ExactlyOnce, "_commit", _cover_too_little),
    Mutant("a transaction outlives the loss of its partition", ExactlyOnce, "lost", _keep_what_is_lost, REBALANCE),
    Mutant("a partition begins beside its ending transaction", ExactlyOnce, "is_in_doubt", _doubt_nothing, REBALANCE),
    Mutant("a failed transaction counts as committed", ExactlyOnce, "_hear", _believe_in_success),
    Mutant("answers that do not wait their turn", OffsetLedger, "answer", _answer_out_of_turn),
    Mutant("the first piece of a request answers for it", Pieces, "collect", _answer_with_the_first_piece, KILLERS),
    *A_HOST_ENDS,
    *ROWS_FAIL,
)
AT_A_CHANGELOG = (
    Mutant("states are restored past what is committed", Restoration, "states", _restore_past_what_is_committed),
)
IN_A_STORE = (
    Mutant("a state is stored before its answer is safe", StoringSink, "send", store_before_it_is_answered),
    Mutant("an offset is committed before its state is stored", StoringSink, "_go_on", _settle_before_it_is_stored),
    Mutant("what is answered is applied again", OutsideStates, "are_ahead", _see_no_record_again),
)
AT_A_CHANGELOG_EXACTLY_ONCE = (
    Mutant("states outlive their transaction", KeyStates, "rewind", None),
    Mutant("states do not wait for the last of their key", LastStates, "commit", _take_the_first),
    Mutant("requests of a key run at once", ByKey, "add", _wait_for_no_single_row),
    Mutant("requests come before their states", KeyStates, "is_restoring", _say_no, REBALANCE),
)
