"""Requests whose answers are useless after a while: which of them run, and the error that the others get."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.builders import BOUNDS, CONDUCT, POISON, POLICY, World, names
from tests.chunks import P0, P1, floats, record
from worker.core.failures import Code
from worker.core.ordering.ledger import Stretch
from worker.core.records import Fields, Message

RUN = 0.02  # seconds of a batch with any number of rows
ROWS = POLICY.max_rows
CAPACITY = ROWS / RUN  # requests a second


def world_of(**fields: object) -> World:
    return World(**fields).start(P0, P1)  # type: ignore[arg-type]


def why(world: World) -> list[str]:
    """The error messages of the requests that were not run."""
    assert {rejection.code for rejection in world.events.rejections} <= {Code.DEADLINE_EXCEEDED}
    return [rejection.message for rejection in world.events.rejections]


@pytest.mark.parametrize("joins", [False, True])
def test_what_is_over_already_is_answered_at_once(joins: bool) -> None:  # noqa: FBT001  # a parameter
    """There is no inference; the request becomes a dead letter and is committed. Its neighbours run."""
    world = world_of(joins=joins)
    now = world.clock.now
    ages = [9.0, 8.0, 0.0, 0.5, 7.0, None]
    world.broker.append(
        *[record(at, at=None if age is None else now - age, timeout=1.0) for at, age in enumerate(ages)]
    )

    world.turn_for(0.5)

    assert world.answered() == names(0, 1, 2, 3, 4, 5)
    assert world.answered("error") == names(0, 1, 4)
    assert len([letter for letter in world.broker.answers if letter.topic == "dead-letters"]) == 3
    assert [message[:26] for message in why(world)] == ["not run: the deadline was "] * 3
    assert sum(batch.rows for batch in world.lanes.ran) == 3
    assert world.broker.committed == {P0: 6}
    assert world.ledger.records == world.ledger.rows == world.ledger.size == 0


def test_late_requests_are_no_reason_to_stop() -> None:
    """The limit of rejections in a row is about the content of requests."""
    world = world_of(rejection_limit=2)
    world.broker.append(*[record(at, at=world.clock.now - 10.0, timeout=1.0) for at in range(5)])

    world.turn_for(0.5)

    assert world.answered("error") == names(*range(5))


@pytest.mark.parametrize("joins", [False, True])
def test_what_cannot_make_it_behind_what_runs_is_not_run(joins: bool) -> None:  # noqa: FBT001  # a parameter
    """At the hand-out less time is left than it needs. Other requests of its batch that have time run."""
    world = world_of(joins=joins, conduct=replace(CONDUCT, inflight_batches=1))
    world.lanes.seconds = lambda: 0.1
    world.broker.append(*[record(at, at) for at in range(40 * ROWS)])
    world.turn_for(4.5)  # 0.1 s are well known by now
    world.lanes.seconds = lambda: 0.18
    world.broker.append(*[record(160 + at, at) for at in range(ROWS)])
    world.turn()
    now = world.clock.now
    world.broker.append(record(164, 1.0, at=now, timeout=0.24), record(165, 1.0, at=now, timeout=0.9))
    world.broker.append(record(166))

    world.turn_for(1.0)

    assert world.answered("error") == names(164)
    (message,) = why(world)
    assert message.startswith("not run: the deadline is in 6")
    assert world.answered("ok")[-2:] == names(165, 166)
    assert world.broker.committed == {P0: 167}


@pytest.mark.parametrize("joins", [False, True])
def test_records_that_come_together_are_judged_batch_by_batch(joins: bool) -> None:  # noqa: FBT001  # a parameter
    """The first batches of a long poll are in time, although the last ones cannot be."""
    world = world_of(joins=joins, chunk=12 * ROWS, conduct=replace(CONDUCT, inflight_batches=1))
    world.lanes.seconds = lambda: 0.1
    now = world.clock.now
    world.broker.append(*[record(at, 1.0, at=now, timeout=60.0) for at in range(4 * ROWS)])
    world.turn_for(2.0)  # 0.1 s are well known by now
    now = world.clock.now
    world.broker.append(*[record(4 * ROWS + at, 1.0, at=now, timeout=0.55) for at in range(12 * ROWS)])

    world.turn_for(3.0)

    assert world.answered() == names(*range(16 * ROWS))
    assert world.answered("ok") == names(*range(8 * ROWS))


@pytest.mark.parametrize("joins", [False, True])
def test_a_late_record_frees_no_key_of_another(joins: bool) -> None:  # noqa: FBT001  # a parameter
    """With state, the next record of a key waits for the one that runs, though a late one of that key is answered."""
    world = World(has_state=True, joins=joins).start(P0)
    world.lanes.seconds = lambda: 0.2
    world.turn(3)
    world.broker.append(record(0, 1.0), record(1, 10.0))
    world.turn(3)
    assert world.lanes.in_flight == 1
    world.broker.append(record(2, 100.0, at=world.clock.now - 9.0, timeout=1.0), record(3, 1000.0))

    world.turn_for(2.0)

    assert world.answered("error") == names(2)
    assert [batch.rows for batch in world.lanes.ran] == [1, 1, 1]
    answers = [answer for answer in world.broker.answers if answer.topic == "responses"]
    assert [answer.value for answer in answers if dict(answer.headers)["status"] == b"ok"] == [
        floats(1.0),
        floats(11.0),
        floats(1011.0),
    ]


def test_a_request_larger_than_a_batch_has_one_deadline() -> None:
    """A piece that cannot make it ends the whole request, which is answered once."""
    world = world_of()
    world.lanes.seconds = lambda: 0.1
    world.broker.append(record(0, *[1.0] * (3 * ROWS), at=world.clock.now, timeout=0.15))
    world.broker.append(record(1, 1.0))

    world.turn_for(2.0)

    assert world.answered("error") == names(0)
    assert world.answered("ok") == names(1)
    assert sum(batch.rows for batch in world.lanes.ran) < 3 * ROWS + 1


def test_late_results_are_results() -> None:
    """A request that was run gets its result, and counts as late."""
    world = world_of()
    world.lanes.seconds = lambda: 0.5
    world.broker.append(record(0, at=world.clock.now, timeout=0.1))

    world.turn_for(1.0)

    assert world.answered("ok") == names(0)
    assert world.events.counted["late"] == 1


def test_halves_of_a_failed_batch_run_whatever_the_time() -> None:
    """They are in the lanes already; only the bad request gets an error."""
    world = world_of(joins=True)
    world.lanes.seconds = lambda: 0.5
    now = world.clock.now
    world.broker.append(*[record(at, POISON if at == 2 else 1.0, at=now, timeout=0.6) for at in range(ROWS)])

    world.turn_for(5.0)

    assert world.answered("ok") == names(0, 1, 3)
    assert [rejection.code for rejection in world.events.rejections] == [Code.INTERNAL]


class Overload:
    """Requests for two seconds, at twice the capacity of the lanes, and their outcomes."""

    def __init__(self, timeout: float | None, *, joins: bool) -> None:
        self.world = world_of(bounds=replace(BOUNDS, records=20_000, rows=20_000), chunk=32, joins=joins)
        self.patience = 0.3  # seconds for which the publisher waits, stated in the request or not
        self._rng = random.Random(7)
        self.world.lanes.seconds = lambda: RUN * self._rng.uniform(0.8, 1.2)
        self.published_at: list[float] = []
        self._timeout = timeout
        self._end = self.world.clock.now + 2.0
        self._answered_at = self._note_answers()
        self._publish()
        began = self.world.clock.now
        while self.world.clock.now < self._end or self.world.ledger.records or self.waiting:
            self.world.turn()
        self.seconds = self.world.clock.now - began

    @property
    def waiting(self) -> int:
        return len(self.published_at) - self.world.source.next_offsets.get(P0, 0)

    def _publish(self) -> None:
        clock, offset = self.world.clock, len(self.published_at)
        self.world.broker.append(record(offset, 1.0, at=clock.now, timeout=self._timeout))
        self.published_at.append(clock.now)
        if clock.now < self._end:
            clock.at(clock.now + self._rng.expovariate(2 * CAPACITY), self._publish)

    def _note_answers(self) -> dict[str, float]:
        answered_at: dict[str, float] = {}
        acknowledge = self.world.sink._acknowledge

        def noted(message: Message, stretch: Stretch, unheard: list[Fields]) -> None:
            acknowledge(message, stretch, unheard)
            answered_at[(dict(message.headers)["source"] or b"").decode()] = self.world.clock.now

        self.world.sink._acknowledge = noted  # type: ignore[method-assign]
        return answered_at

    @property
    def run_when_dead(self) -> list[str]:
        """Records whose runs began after their deadlines."""
        records = [
            (record, began)
            for batch, began in self.world.lanes.began
            for chunk in batch.chunks
            for record in chunk.records
        ]
        return [record.source for record, at in records if at > self.published_at[record.offset] + self.patience]

    @property
    def goodput(self) -> float:
        """Results that came in time, as a share of the lanes' capacity."""
        results = [int(name.rsplit("/", 1)[1]) for name in self.world.answered("ok")]
        in_time = [
            offset
            for offset in results
            if self._answered_at[names(offset)[0]] - self.published_at[offset] <= self.patience
        ]
        return len(in_time) / self.seconds / CAPACITY

    @property
    def answered_all(self) -> bool:
        """True if each request was answered once, in order."""
        return self.world.answered() == names(*range(len(self.published_at)))


@pytest.mark.parametrize("joins", [False, True])
def test_under_overload_the_lanes_work_for_answers_in_time(joins: bool) -> None:  # noqa: FBT001  # a parameter
    """At twice the load, nine tenths of the capacity answer in time. All requests are answered; no late one runs."""
    overload = Overload(0.3, joins=joins)

    assert overload.answered_all
    assert overload.goodput >= 0.9
    assert len(why(overload.world)) > 0.4 * len(overload.published_at)
    assert not overload.run_when_dead
