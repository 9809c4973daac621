"""A partition whose next record needs a schema that is not here stands, and loses nothing; the others go on."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders import BOUNDS, World, names
from tests.chunks import P0, P1, record
from tests.fakes import FakeSchemas
from worker.core.failures import Code
from worker.loop import held_back

NEW, OTHER, UNKNOWN = 7, 8, FakeSchemas.UNKNOWN


def world_of(**fields: object) -> World:
    return World(**fields).start(P0, P1)  # type: ignore[arg-type]


def away(**fields: object) -> World:
    """A world whose registry is away."""
    world = world_of(**fields)
    world.schemas.takes, world.schemas.trouble = None, "connection refused"
    return world


def test_records_before_the_one_that_waits_are_answered_and_no_commit_passes_it() -> None:
    """The partition is answered and committed up to the record that waits, and not beyond."""
    world = away()
    world.broker.append(record(0), record(1), record(2, schema=NEW), record(3))

    world.turn_for(5.0)

    assert world.answered() == names(0, 1)
    assert world.broker.committed == {P0: 2}
    assert world.ledger.records == 0


def test_other_partitions_go_on() -> None:
    """Only the partition of the record stands, and what comes in others is answered at once."""
    world = away()
    world.broker.append(record(0, schema=NEW), record(0, partition=P1))
    world.turn_for(0.3)

    world.broker.append(record(1, partition=P1))
    world.turn_for(0.3)

    assert world.answered() == ["requests/1/0", "requests/1/1"]
    assert world.broker.committed == {P1: 2}


@pytest.mark.parametrize("seconds", [0.05, 30.0], ids=["soon", "late"])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_it_goes_on_in_order_when_the_schema_comes(seconds: float, exactly_once: bool) -> None:  # noqa: FBT001  # a case
    """However long the registry takes, each record is answered once and in order."""
    world = away(exactly_once=exactly_once)
    world.broker.append(record(0), record(1, schema=NEW), record(2))
    world.turn_for(0.01)
    world.broker.append(record(3), record(4, schema=NEW))
    world.clock.at(world.clock.now + seconds, lambda: world.schemas.come(NEW))

    world.turn_for(seconds + 1)

    assert world.answered() == names(0, 1, 2, 3, 4)
    assert world.broker.committed == {P0: 5}
    assert world.events.counted["taken"] == 5


def test_a_schema_that_comes_soon_costs_no_second_fetch() -> None:
    """The records wait here at first: Kafka is not asked for them again, and nobody is told."""
    world = world_of()
    world.schemas.takes = 0.2
    world.broker.append(record(0, schema=NEW))

    world.turn_until(lambda: world.answered() == names(0))

    assert world.clock.now < 1000.0 + 0.25
    assert not world.source.held
    assert (world.events.standing, world.events.gone_on) == ([], [])


def test_a_long_wait_is_told_when_it_begins_and_when_it_ends() -> None:
    """An operator hears once of a partition that stands, with the registry's trouble, and once that it goes on."""
    world = away()
    world.broker.append(record(0, schema=NEW))
    world.clock.at(world.clock.now + 10.0, lambda: world.schemas.come(NEW))

    world.turn_for(12.0)

    assert world.events.standing == [(P0, "7", "connection refused")]
    [(partition, seconds)] = world.events.gone_on
    assert partition == P0
    assert seconds == pytest.approx(10.0, abs=0.1)


def test_a_schema_that_the_registry_does_not_have_is_the_records_error() -> None:
    """Its record is rejected, and the partition goes on behind it."""
    world = world_of()
    world.broker.append(record(0), record(1, schema=UNKNOWN), record(2))

    world.turn_for(1.0)

    assert world.answered() == names(0, 1, 2)
    [rejection] = world.events.rejections
    assert (rejection.code, rejection.message) == (Code.INVALID_ARGUMENT, "schema id 1000 is not in the registry")


def test_one_unknown_schema_after_the_other_holds_nobody_up() -> None:
    """A publisher that names a new schema in each record waits for each answer, and others wait for none."""
    world = world_of()
    world.schemas.takes = 0.02
    world.broker.append(*[record(at, schema=UNKNOWN + at) for at in range(30)])
    world.turn_for(0.1)
    began = world.clock.now
    world.broker.append(record(0, partition=P1))

    world.turn_until(lambda: "requests/1/0" in world.answered())
    waited = world.clock.now - began
    world.turn_for(2.0)

    assert waited < 0.1
    assert sorted(world.answered()) == sorted([*names(*range(30)), "requests/1/0"])
    assert world.broker.committed == {P0: 30, P1: 1}


def test_a_schema_that_came_uncovers_the_next_one_that_is_missing() -> None:
    """Records behind another missing schema wait again, in their place."""
    world = away()
    world.broker.append(record(0, schema=NEW), record(1), record(2, schema=OTHER), record(3))
    world.turn_for(0.1)

    world.schemas.come(NEW)
    world.turn_for(0.3)
    between = world.answered()
    world.broker.append(record(4))
    world.schemas.come(OTHER)
    world.turn_for(1.0)

    assert between == names(0, 1)
    assert world.answered() == names(0, 1, 2, 3, 4)


def test_parts_of_one_poll_keep_their_order() -> None:
    """A poll may bring a partition in several parts; what follows the record that waits, waits with it."""
    world = away()
    records = [record(0, schema=NEW), record(0, partition=P1), record(1), record(1, partition=P1)]

    world.turn()
    world.admission.take(records, world.clock.now)
    world.schemas.come(NEW)
    world.broker.append(record(0, schema=NEW), record(1), record(0, partition=P1), record(1, partition=P1))
    world.source.next_offsets.update({P0: 2, P1: 2})
    world.turn_for(1.0)

    assert [source for source in world.answered() if source.startswith("requests/0")] == names(0, 1)
    assert world.broker.committed == {P0: 2, P1: 2}


def test_more_than_fits_waits_in_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that wait are bounded in number: the rest of a partition is fetched again when it goes on."""
    monkeypatch.setattr(held_back, "MOST_RECORDS", 3)
    world = away()
    world.broker.append(*[record(at, schema=NEW) for at in range(10)])

    world.turn_for(3.0)
    waits_in_kafka = set(world.source.held)
    world.schemas.come(NEW)
    world.turn_for(1.0)

    assert waits_in_kafka == {P0}
    assert world.answered() == names(*range(10))


def test_large_records_wait_in_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that wait are bounded in bytes, with those of their headers."""
    monkeypatch.setattr(held_back, "MOST_BYTES", 30)
    world = away()
    world.broker.append(record(0, schema=NEW))
    world.turn_for(0.1)
    few = set(world.source.held)

    world.broker.append(record(1), record(2), record(3), record(4))
    world.turn_for(0.1)

    assert few == set()
    assert world.source.held == {P0}


def test_records_on_their_way_to_a_partition_left_to_kafka_are_dropped() -> None:
    """They are fetched again from the first that waits, so none of them is answered twice."""
    world = away()
    world.broker.append(record(0, schema=NEW), record(1))
    world.turn_for(2.0)

    world.admission.take([record(2)], world.clock.now)
    world.broker.append(record(2))
    world.schemas.come(NEW)
    world.turn_for(1.0)

    assert world.answered() == names(0, 1, 2)


@pytest.mark.parametrize("waited", [0.5, 3.0], ids=["here", "in Kafka"])
@pytest.mark.parametrize("how", ["revoke", "lose"])
def test_a_partition_that_leaves_while_it_stands_is_read_by_its_next_owner(how: str, waited: float) -> None:
    """Nothing of what waits is committed or answered, and a later owner answers it."""
    world = away()
    world.broker.append(record(0), record(1, schema=NEW), record(2))
    world.turn_for(waited)

    getattr(world.source, how)(P0)
    world.schemas.come(NEW)
    world.turn_for(1.0)
    before, committed = world.answered(), dict(world.broker.committed)
    world.source.assign(P0)
    world.turn_for(1.0)

    assert (before, committed) == (names(0), {P0: 1})
    assert world.answered() == names(0, 1, 2)
    assert world.broker.committed == {P0: 3}


@pytest.mark.parametrize("waited", [0.5, 3.0], ids=["here", "in Kafka"])
def test_a_partition_that_is_read_again_while_it_stands_stands_anew(waited: float) -> None:
    """A rewind ends the hold: earlier records are read again, and it stands at the record that waits."""
    world = away()
    world.broker.append(record(0), record(1, schema=NEW), record(2))
    world.turn_for(waited)

    world.worker._rewind([P0])
    world.broker.committed.clear()
    world.ledger.forget([P0])
    world.source.next_offsets[P0] = 0
    world.turn_for(1.0)
    between = world.answered()
    world.schemas.come(NEW)
    world.turn_for(1.0)

    assert between == names(0, 0)
    assert world.answered() == names(0, 0, 1, 2)


@pytest.mark.parametrize("waited", [0.5, 3.0], ids=["here", "in Kafka"])
def test_a_drain_leaves_what_waits_to_the_next_owner(waited: float) -> None:
    """A stop does not wait for the registry: what was taken is committed, what waits is not."""
    world = away()
    world.broker.append(record(0), record(1, schema=NEW), record(2))
    world.turn_for(waited)
    world.signals.stop_asked = True
    began = world.clock.now

    world.worker.run()

    assert world.clock.now - began < 1.0
    assert world.answered() == names(0)
    assert world.broker.committed == {P0: 1}


def test_no_gap_is_committed_past_a_record_that_waits() -> None:
    """The source has come further than the partition is taken, and a commit goes no further than that."""
    world = away()
    world.broker.append(record(0, schema=NEW))
    world.broker.markers[P0] = {1, 2}

    world.turn_for(0.9)
    while_here = dict(world.broker.committed)
    world.turn_for(5.0)
    in_kafka = dict(world.broker.committed)
    world.schemas.come(NEW)
    world.turn_for(3.0)

    assert while_here == in_kafka == {}
    assert world.broker.committed == {P0: 3}


def test_a_partition_that_stands_is_held_through_back_pressure() -> None:
    """Fetching pauses and goes on while a partition stands, and that one goes on only with its schema."""
    world = away(bounds=dataclasses.replace(BOUNDS, records=4))
    world.broker.append(record(0, schema=NEW), *[record(at, partition=P1) for at in range(200)])
    world.lanes.seconds = lambda: 1.0
    world.turn_for(120.0)

    world.schemas.come(NEW)
    world.turn_for(120.0)

    assert True in world.events.pauses
    assert len(world.answered()) == len(set(world.answered())) == 201
    assert world.broker.committed == {P0: 1, P1: 200}
