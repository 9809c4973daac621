"""The worker broken on purpose where the simulator does not look: in the parts that talk to clients or that wait.

As in `tests/properties/simulation/mutants.py`, a method of a real class has another body for a while. Most of these
bugs have passed the quick tests once. Each bug names the test that was written for it, which must fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from confluent_kafka import TopicPartition
from hypothesis import Phase, settings

from tests.builders import NONSENSE, SPOILT
from tests.properties import test_hostile_values
from tests.properties.simulation.mutants import store_before_it_is_answered
from tests.unit.codecs import test_answer_writer, test_counting, test_raw_tensor
from tests.unit.codecs.records import test_answers as test_record_answers
from tests.unit.codecs.test_counting import NO, RESULT
from tests.unit.core import test_batcher
from tests.unit.delivery import test_at_least_once, test_exactly_once, test_last_states
from tests.unit.kafka import scripted, test_changelog
from tests.unit.kafka.consumer import test_gates
from tests.unit.kafka.producer import test_sink
from tests.unit.kafka.transactions import test_kafka_transactions
from tests.unit.loop import (
    test_answering,
    test_chunks,
    test_deadlines,
    test_turning,
)
from tests.unit.state import test_in_the_loop as test_state
from tests.unit.state import test_kept_states, test_outside, test_states, test_stored_slots
from tests.unit.stores import test_kept
from worker.codecs.answer_writer import AnswerWriter
from worker.codecs.codec import Codec
from worker.codecs.encodings import columns
from worker.codecs.encodings.raw_tensor import PlainRows
from worker.codecs.reader import RequestReader
from worker.core.batching.back_pressure import Intake
from worker.core.batching.batcher import Batcher, Pool
from worker.core.chunk import Batch, Chunk, Reading, Refused, refusal
from worker.core.failures import Code, RunFailure
from worker.core.ordering.ledger import Stretch
from worker.core.records import Answer, Array, BatchKind, Fields, Partition, Record, Rejection
from worker.core.tensors import stacking
from worker.core.tensors.stacking import Split, Stacker
from worker.delivery.at_least_once import AtLeastOnce
from worker.delivery.last_states import LastStates
from worker.delivery.stored_states import StoringSink
from worker.kafka import changelog
from worker.kafka.consumer.flow import By, Pauses
from worker.kafka.producer.sink import KafkaSink, Receipt
from worker.kafka.transactions.kafka_transactions import KafkaTransactions
from worker.kafka.transactions.transactional_producer import TransactionalProducer
from worker.loop.checkpoint import Checkpoint
from worker.loop.outcomes import Outcomes
from worker.state import ByKey, KeyStates, Restoration, RestoredRows, StatefulStacker, changes
from worker.state.keeping import KeptStates
from worker.state.key_slots import KeySlots
from worker.state.outside_states import OutsideStates
from worker.stores import checkpoint_file

_produce = KafkaSink._produce
_sort = Batcher._sorted
_read = RequestReader.read
_write = AnswerWriter.write
_make = KafkaTransactions.__init__
_hear = AtLeastOnce._hear_commit_results
_cut = Stretch.cut
_take = Chunk.take
_with = Chunk._with
_parts = columns._parts
_refusal = refusal
_parted = Stacker._parted
_messages = Codec.messages
_smaller = Outcomes._smaller


def _nothing(*_: object, **__: object) -> None: ...


def _drop_what_finds_no_room(self: KafkaSink, messages: Sequence[Fields], receipt: Receipt) -> Sequence[Fields]:
    return _produce(self, messages, receipt)[1:]


def _take_the_member_once(self: KafkaTransactions, *arguments: Any) -> None:
    kafka, topics, name, timeout_ms, member, *others = arguments
    taken = member()
    _make(self, kafka, topics, name, timeout_ms, lambda: taken, *others)


def _wait_for_a_lost_commit(self: AtLeastOnce) -> None:
    _hear(self)
    if self._commit_lost_at is not None:
        self._commit_lost_at = float("inf")


def _answer_one_twice(self: Stretch, count: int) -> tuple[Stretch, Stretch]:
    first, rest = _cut(self, count)
    return first, rest._replace(start=rest.start - 1)


def _sort_for_the_model_before(self: Batcher, chunk: Chunk) -> Sequence[tuple[Pool, Chunk]]:
    return _sort(self, replace(chunk, model=next(iter(self._by_shapes), chunk.model)))


def _name_what_is_served(self: AnswerWriter, chunk: Chunk, *given: Any) -> Sequence[Answer]:
    return _write(self, replace(chunk, model=next(iter(self._signatures))), *given)


def _believe_any_number_of_rows(self: PlainRows, length: int, _: object) -> int:
    return self._signature.raw_rows(length)


def _refuse_the_record_behind(self: RequestReader, records: Sequence[Record]) -> Reading:
    reading = _read(self, records)
    return reading._replace(rejections=[((at + 1) % len(records), why) for at, why in reading.rejections])


def _read_the_neighbours_lengths(self: RequestReader, records: Sequence[Record]) -> Reading:
    reading = _read(self, records)
    return reading._replace(chunks=[replace(chunk, rows=[*chunk.rows[1:], chunk.rows[0]]) for chunk in reading.chunks])


def _keep_the_first_ones_fields(self: Chunk, of: Any) -> Chunk:
    part = _with(self, of)
    return replace(part, kept=self.kept and self.kept[: len(part)])


def _refuse_the_neighbour(chunk: Chunk, at: int, code: Code, message: str) -> Refused:
    return _refusal(chunk, (at + 1) % len(chunk), code, message)


def _cut_by_the_neighbours_lengths(output: Array, cuts: Any, chunk: Chunk, start: int) -> Sequence[Array]:
    first, *others = chunk.rows
    return _parts(output, cuts, replace(chunk, rows=[*others, first]), start)


def _stack_the_neighbours_lengths(self: Stacker, *given: Any) -> Split | RunFailure:
    split = _parted(self, *given)
    if isinstance(split, RunFailure):
        return split
    return split._replace(predicted=[one._replace(start=at) for at, one in enumerate(split.predicted)])


def _take_one_before_along(self: Chunk, start: int, stop: int) -> Chunk:
    return _take(self, max(0, start - 1), stop)


def _doubt_the_device(self: Outcomes, batch: Batch, failure: RunFailure) -> Sequence[Batch]:
    """Rows that fail alone count as failures of the model."""
    self.check.failed()
    return _smaller(self, batch, failure)


def _judge_all_as_one_batch(self: Batcher, chunk: Chunk) -> Sequence[tuple[BatchKind, Chunk]]:
    return self.by_kind(chunk)


def _count_the_last_alone(self: Codec, answers: Sequence[Answer]) -> Sequence[Fields]:
    with mock.patch.object(self._rejections, "predicted"):
        messages = _messages(self, answers)
    if not isinstance(answers[-1], Rejection):
        self._rejections.predicted()
    return messages


def _release_for_everybody(self: Pauses, partition: Partition, _: By) -> None:
    if self._stopped.pop(partition, None):
        self._consumer.resume([TopicPartition(*partition)])


def _let_all_of_a_key_run_at_once(self: ByKey, chunk: Chunk, now: float) -> None:
    self._next_stage.add(chunk, now)


def _count_what_comes_again(self: Restoration, keys: Sequence[bytes], values: Sequence[bytes]) -> RestoredRows:
    return RestoredRows(self.partition, self._attempt, keys, self._layout.read(values))


_comes_again, _last, _forget_with = Restoration._comes_again, Restoration.last, KeyStates._forgotten_with


def _trust_a_tail(self: Restoration, *given: Any, is_first: bool) -> None:
    _comes_again(self, *given, is_first=is_first)
    self.must_begin_anew = False


def _miss_no_state(self: Restoration, *given: Any) -> RestoredRows:
    return _last(self, *given)._replace(gone={})


def _forget_for_good(self: KeyStates, *given: Any) -> Sequence[bytes]:
    can_take_back, self._can_take_back = self._can_take_back, False
    gone = _forget_with(self, *given)
    self._can_take_back = can_take_back
    return gone


def _abort_with_states_that_wait(self: LastStates) -> None:
    self._transactions.abort()


def _keep_what_is_not_finite(*_: object) -> dict[int, Any]:
    return {}


def _drop_what_is_in_memory(self: KeySlots, partition: Partition, key: bytes) -> None:
    if slot := self._of(partition).lately.pop(key, 0):
        self._free([slot])


def _find_no_damage(*_: object) -> dict[str, list[int]]:
    return {}


def _confirm_without_asking(_: Checkpoint, offsets: Mapping[Partition, int], __: object) -> Collection[Partition]:
    return offsets.keys()


def _keep_what_is_in_doubt(*_: object) -> bool:
    return False


def _let_all_go(_: OutsideStates, __: Partition, keys: Sequence[bytes], *___: object) -> Sequence[bool]:
    return [True] * len(keys)


def _take_what_is_being_restored(*_: object) -> bool:
    return False


def _see_no_record_again(_: OutsideStates, chunk: Chunk) -> Any:
    return np.zeros(len(chunk), np.bool_)


def _note_with_the_neighbour(topic: str, chunk: Chunk, values: Sequence[bytes]) -> None:
    _note_change(topic, replace(chunk, at=[at - at % 2 for at in chunk.at]), values)


def _leave_again(self: KeyStates, stretch: Stretch) -> Sequence[Fields]:
    found = list(stretch.places.changes or ())
    leaving = _leave(self, stretch)
    stretch.places.changes = found or None
    return leaving


_note_change, _leave = changes.note, KeyStates.leave


Check = Callable[[pytest.MonkeyPatch], None]
SEEN = AssertionError, pytest.fail.Exception  # the second comes when an expected exception is not raised


@dataclass(frozen=True)
class Planted:
    """A bug: `owner`'s `name` has this `body`, and `check` must fail."""

    owner: type | ModuleType
    name: str
    body: Callable[..., Any]
    check: Check


def on_a_source(test: Callable[[scripted.World], None]) -> Check:
    """Run the test on a source that holds two partitions."""

    def run(patch: pytest.MonkeyPatch) -> None:
        world = scripted.new_world(patch)
        world.assign(scripted.P, scripted.Q)
        test(world)

    return run


def on_transactions(test: Callable[[test_kafka_transactions.Stage], None]) -> Check:
    def run(patch: pytest.MonkeyPatch) -> None:
        stage = test_kafka_transactions.Stage(patch)
        try:
            test(stage)
        finally:
            stage.close()

    return run


PLANTED: Mapping[str, Planted] = {
    "rows that say otherwise are believed": Planted(
        PlainRows,
        "_count",
        _believe_any_number_of_rows,
        lambda _: test_raw_tensor.test_another_number_of_rows_than_the_headers_say_is_refused(),
    ),
    "the index of a fault in a value is off by one": Planted(
        RequestReader,
        "read",
        _refuse_the_record_behind,
        lambda _: test_hostile_values.test_a_hostile_value_costs_its_neighbours_nothing("json", "a byte less"),
    ),
    "a record has its neighbour's rows": Planted(
        RequestReader,
        "read",
        _read_the_neighbours_lengths,
        lambda _: test_hostile_values.test_a_hostile_value_costs_its_neighbours_nothing("rows", "a byte less"),
    ),
    "the index of a fault is off by one": Planted(
        stacking,
        "refusal",
        _refuse_the_neighbour,
        lambda _: test_chunks.test_one_bad_request_costs_its_chunk_nothing(2, NONSENSE, exactly_once=False),
    ),
    "an answer is cut by its neighbour's length": Planted(
        columns,
        "_parts",
        _cut_by_the_neighbours_lengths,
        lambda _: test_answer_writer.test_together_or_alone_each_gets_its_own_rows(),
    ),
    "a part of a batch begins at another's row": Planted(
        Stacker,
        "_parted",
        _stack_the_neighbours_lengths,
        lambda _: test_chunks.test_one_bad_request_costs_its_chunk_nothing(2, NONSENSE, exactly_once=False),
    ),
    "rows that fail alone make the device be doubted": Planted(
        Outcomes,
        "_smaller",
        _doubt_the_device,
        lambda _: test_answering.test_a_batch_of_nothing_but_faults_leaves_nothing_to_run(),
    ),
    "a slice takes its neighbour along, which is answered twice": Planted(
        Chunk,
        "take",
        _take_one_before_along,
        lambda _: test_chunks.test_a_chunk_is_cut_where_a_batch_is_full(),
    ),
    "an answer repeats the fields of its neighbour": Planted(
        Chunk,
        "_with",
        _keep_the_first_ones_fields,
        lambda _: test_record_answers.test_what_is_kept_goes_with_its_record(),
    ),
    "all records of a poll are judged late with the last ones": Planted(
        Batcher,
        "by_batch",
        _judge_all_as_one_batch,
        lambda _: test_deadlines.test_records_that_come_together_are_judged_batch_by_batch(joins=True),
    ),
    "a result among rejections does not end their row": Planted(
        Codec,
        "messages",
        _count_the_last_alone,
        lambda _: test_counting.test_a_result_ends_a_row_wherever_it_stands([[NO, NO, RESULT, NO, NO]]),
    ),
    "two requests of one key share a batch": Planted(
        ByKey,
        "add",
        _let_all_of_a_key_run_at_once,
        lambda _: test_state.test_requests_of_one_key_run_one_after_the_other(exactly_once=False, joins=False),
    ),
    "a state leaves with its neighbour's answer": Planted(
        changes,
        "note",
        _note_with_the_neighbour,
        lambda _: test_states.test_each_record_leaves_its_own_state([*range(10)]),
    ),
    "a state leaves twice": Planted(
        KeyStates, "leave", _leave_again, lambda _: test_states.test_a_state_leaves_once_with_its_own_answer()
    ),
    "a state outlives the transaction that is taken back": Planted(
        KeyStates,
        "take_back",
        _nothing,
        lambda _: test_state.test_what_a_transaction_took_back_is_taken_back_here(joins=False, is_committed=False),
    ),
    "states that wait outlive the transaction that is taken back": Planted(
        LastStates,
        "abort",
        _abort_with_states_that_wait,
        lambda _: test_last_states.test_what_was_taken_back_is_in_no_later_transaction(test_last_states.Transaction()),
    ),
    "a state that is not finite is kept": Planted(
        StatefulStacker,
        "_spoilt",
        _keep_what_is_not_finite,
        lambda _: test_state.test_a_request_that_fails_leaves_the_state_as_it_was(bad=SPOILT, joins=False),
    ),
    "states are restored past the committed end": Planted(
        Restoration,
        "states",
        _count_what_comes_again,
        lambda _: test_state.test_at_least_once_what_comes_again_is_applied_to_what_was_before_it(joins=False),
    ),
    "a changelog ends where its leader does not say": Planted(
        changelog,
        "known_offset",
        lambda answer: answer.result().offset,
        lambda _: test_changelog.test_a_leader_that_does_not_say_where_a_changelog_ends_is_asked_again(),
    ),
    "requests come before their states are restored": Planted(
        KeyStates,
        "is_restoring",
        _take_what_is_being_restored,
        lambda _: test_state.test_states_leave_with_their_partition_and_come_back_with_it(
            exactly_once=True, how="revoke"
        ),
    ),
    "states that are damaged are believed": Planted(
        checkpoint_file,
        "_checksums",
        _find_no_damage,
        lambda _: test_kept.test_one_bit_is_enough(Path(mkdtemp()), 0.3, "rows"),
    ),
    "states are kept of a partition that another replica may have": Planted(
        Checkpoint,
        "_confirmed",
        _confirm_without_asking,
        lambda _: (
            test_kept_states.test_a_process_that_lost_its_partitions_unknowingly_does_not_count_what_others_wrote()
        ),
    ),
    "states are kept that a transaction took back": Planted(
        KeptStates,
        "forget",
        _nothing,
        lambda _: test_kept_states.test_what_a_transaction_took_back_is_not_kept(),
    ),
    "in a tail, a copy is taken for the state before": Planted(
        Restoration,
        "_comes_again",
        _trust_a_tail,
        lambda _: test_kept_states.test_at_least_once_a_copy_older_than_what_comes_again_is_thrown_away(),
    ),
    "an old state stays forgotten when its transaction is taken back": Planted(
        KeyStates,
        "_forgotten_with",
        _forget_for_good,
        lambda _: test_state.test_a_state_that_was_too_old_comes_back_with_the_transaction(
            in_store=False, is_committed=False
        ),
    ),
    "a deleted key without a state before it is answered from nothing": Planted(
        Restoration,
        "last",
        _miss_no_state,
        lambda _: test_state.test_at_least_once_a_key_that_was_deleted_is_not_answered_from_nothing(
            is_written_again=False
        ),
    ),
    "requests are applied twice where the group has lost its offsets": Planted(
        KeyStates,
        "_has_applied",
        _keep_what_is_in_doubt,
        lambda _: test_state.test_exactly_once_nothing_is_applied_twice_where_the_group_has_lost_its_offsets(
            None, in_store=False
        ),
    ),
    "a key leaves memory without being stored": Planted(
        KeySlots,
        "_store_news",
        _nothing,
        lambda _: test_stored_slots.test_what_was_not_used_lately_leaves_memory(),
    ),
    "a key that is gone stays in the store": Planted(
        KeySlots,
        "drop",
        _drop_what_is_in_memory,
        lambda _: test_stored_slots.test_a_slot_that_is_free_is_given_again(),
    ),
    "a state outside is written before its answers are safe": Planted(
        StoringSink,
        "send",
        store_before_it_is_answered,
        lambda _: test_outside.test_a_state_waits_for_the_dead_letter_of_an_earlier_request(),
    ),
    "a state outside is let go before it is stored": Planted(
        OutsideStates,
        "_may_go",
        _let_all_go,
        lambda _: test_outside.test_a_state_that_is_not_stored_stays_in_memory(),
    ),
    "what a store outside says is answered is applied again": Planted(
        OutsideStates,
        "are_ahead",
        _see_no_record_again,
        lambda _: test_outside.test_what_was_answered_is_not_applied_again(joins=False),
    ),
    "an answer is dropped where the producer's queue is full": Planted(
        KafkaSink,
        "_produce",
        _drop_what_finds_no_room,
        test_sink.test_what_a_full_queue_does_not_take_goes_later_and_in_order,
    ),
    "an answer is dropped from a transaction where the producer's queue is full": Planted(
        TransactionalProducer,
        "_refused",
        _nothing,
        test_sink.test_a_transaction_that_finds_no_room_cannot_be_committed,
    ),
    "transactions are committed by the member of the first": Planted(
        KafkaTransactions,
        "__init__",
        _take_the_member_once,
        on_transactions(test_kafka_transactions.test_each_transaction_is_committed_by_the_member_of_that_moment),
    ),
    "a transaction is left open at the end": Planted(
        KafkaTransactions,
        "abort",
        _nothing,
        on_transactions(test_kafka_transactions.test_what_is_open_at_the_end_is_taken_back),
    ),
    "two versions of a model share a batch": Planted(
        Batcher,
        "_sorted",
        _sort_for_the_model_before,
        lambda _: test_batcher.test_only_requests_for_the_same_model_share_a_group(),
    ),
    "rows that are as many by chance are answered": Planted(
        Outcomes,
        "_run_alone",
        _nothing,
        lambda _: test_answering.test_rows_that_are_no_rows_are_nobodys_answers(),
    ),
    "an answer names the model that is served": Planted(
        AnswerWriter,
        "write",
        _name_what_is_served,
        lambda _: test_answer_writer.test_an_answer_names_the_version_that_ran(),
    ),
    "how large records are is never learned": Planted(
        Intake,
        "took",
        _nothing,
        lambda _: test_turning.test_large_records_are_asked_for_a_few_at_a_time(),
    ),
    "a commit that was lost is waited for, for ever": Planted(
        AtLeastOnce,
        "_hear_commit_results",
        _wait_for_a_lost_commit,
        lambda _: test_at_least_once.test_a_commit_whose_result_never_comes_is_repeated_after_a_while(
            test_at_least_once.world_of()
        ),
    ),
    "a slice of a chunk is answered twice": Planted(
        Stretch,
        "cut",
        _answer_one_twice,
        lambda _: test_exactly_once.test_a_transaction_that_is_nearly_full_takes_the_first_answers_of_the_next_chunk(
            test_exactly_once.world_of()
        ),
    ),
    "who releases a partition releases it for all": Planted(
        Pauses,
        "release",
        _release_for_everybody,
        on_a_source(test_gates.test_a_partition_is_fetched_when_nothing_stops_it),
    ),
}


@pytest.fixture
def unshrunk() -> Iterator[None]:
    """Hypothesis makes no failing example smaller, which takes seconds, or minutes where a machine is busy."""
    settings.register_profile("unshrunk", settings.get_profile("worker"), phases=[Phase.explicit, Phase.generate])
    settings.load_profile("unshrunk")
    yield
    settings.load_profile("worker")


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, planted: Planted) -> None:
    """The test that was written for it fails, and passes without the bug."""
    planted.check(monkeypatch)

    with mock.patch.object(planted.owner, planted.name, planted.body), pytest.raises(SEEN):
        planted.check(monkeypatch)
