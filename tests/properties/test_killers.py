"""Records that always end the process: the workers get past them in a few lives, and blame no other record."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import pytest

from tests.chunks import P0, P1, floats
from tests.properties.simulation.checker import Position
from tests.properties.simulation.lives import Crash, Lives, Scenario, request
from tests.properties.simulation.process import Fate
from tests.properties.simulation.replica import KILLER, UNDECODABLE_KILLER, Setup
from worker.core.failures import KafkaFatal
from worker.core.records import Record
from worker.loop.conduct import Conduct

IN_A_BATCH = floats(KILLER)
IN_A_LARGE_REQUEST = floats(*[1.0] * 7, KILLER)  # cut into three pieces; the last one kills
IN_DECODING = UNDECODABLE_KILLER

FEW = 70

# Three counted lives, one in which the record runs alone, and the fifth answers. One more if there was progress before
# the first.
LIVES_PER_KILLER = 6
# A killer behind uncommitted answers sometimes ends a life without progress.
LIVES_IN_ALL = 30

# A killer's death loses all unsent messages: the note must have been taken by then.
AFTER_A_DEATH = Crash(0, takeover=0.02)

GUARANTEES = {
    "at_least_once": Setup(),
    "exactly_once": Setup(is_exact=True),
    "exactly_once-unique_ids": Setup(is_exact=True, transactional_id=None),
}
LESS_ORDER = {"at_least_once-key": Setup(order="key"), "at_least_once-none": Setup(order="none")}
ALL = {**GUARANTEES, **LESS_ORDER}
guarantees = pytest.mark.parametrize("setup", ALL.values(), ids=ALL)

KILLERS: Mapping[str, Mapping[Position, bytes]] = {
    "first": {(P0, 0): IN_A_BATCH},
    "in a batch": {(P0, 3): IN_A_BATCH},
    "in decoding": {(P1, 1): IN_DECODING},
    "last": {(P0, 7): IN_A_BATCH},
    "in a piece": {(P0, 4): IN_A_LARGE_REQUEST},
    "two in a row": {(P0, 3): IN_A_BATCH, (P0, 4): IN_DECODING},
    "one each": {(P0, 3): IN_A_BATCH, (P1, 5): IN_DECODING},
}
killers_of = pytest.mark.parametrize("killers", KILLERS.values(), ids=KILLERS)


def with_killers(setup: Setup, killers: Mapping[Position, bytes]) -> Scenario:
    """The usual requests, with killers in these places."""

    def deadly(record: Record) -> Record:
        return record._replace(value=killers.get((record.partition, record.offset), record.value))

    calm = Scenario(setup)
    return Scenario(
        setup,
        requests=[deadly(record) for record in calm.requests],
        later=[(seconds, deadly(record)) for seconds, record in calm.later],
    )


def live_through(scenario: Scenario, *crashes: Crash) -> Lives:
    """Live until all is answered, through all deaths."""
    lives = Lives(scenario, default_crash=AFTER_A_DEATH, most_lives=LIVES_IN_ALL)
    lives.until_done(crashes)
    return lives


@guarantees
@killers_of
def test_the_killers_are_found_in_a_few_lives_and_no_other_record(
    setup: Setup, killers: Mapping[Position, bytes]
) -> None:
    """They get an error and a dead letter, in order; all others get their results."""
    lives = live_through(with_killers(setup, killers))

    lives.checker.require_poison(killers)
    assert len(lives.lived) <= LIVES_PER_KILLER * len(killers) + 4


@guarantees
def test_an_isolated_run_whose_answer_is_not_committed_begins_again(setup: Setup) -> None:
    """Every second commit is refused: plain ones, notes, and within transactions."""
    killers = {(P0, 3): IN_A_BATCH}
    refused = [Fate(), Fate(refusal="refused for this time")] * 40
    fates = {"commit": refused, "write offsets": refused, "note": refused[:20]}

    lives = live_through(replace(with_killers(setup, killers), fates=fates))

    lives.checker.require_poison(killers)


@guarantees
def test_a_crash_in_any_state_of_an_isolated_run_breaks_no_promise(setup: Setup) -> None:
    """Only records that ran alone at a death are marked: the killer, and at worst one that ran alone just then."""
    killers = {(P0, 3): IN_A_BATCH}
    scenario = with_killers(setup, killers)
    calm = live_through(scenario)
    lived = [replica.process.steps for replica in calm.lived]

    for life, steps in enumerate(lived[3:], 3):
        before = [AFTER_A_DEATH] * life
        for step in sorted({changes: step for step, changes in reversed(list(enumerate(steps, 1)))}.values())[::4]:
            lives = live_through(scenario, *before, Crash(step, last_words=step % 2 == 0, takeover=0.02))

            assert set(killers) <= lives.checker.poison
            assert len(lives.checker.poison) <= 2


@pytest.mark.parametrize(
    ("setup", "kind"),
    [
        (GUARANTEES["at_least_once"], "produce"),
        (GUARANTEES["exactly_once"], "write"),
        (GUARANTEES["exactly_once-unique_ids"], "write offsets"),
        (GUARANTEES["exactly_once"], "commit transaction"),
    ],
)
def test_a_stop_in_an_isolated_run_marks_no_record(setup: Setup, kind: str) -> None:
    """Refused answers stop the worker while a record runs alone: that record killed no process."""
    killers = {(P0, 3): IN_A_BATCH}
    lives = Lives(with_killers(setup, killers), default_crash=AFTER_A_DEATH, most_lives=LIVES_IN_ALL)
    for _ in range(3):
        lives.live(AFTER_A_DEATH)
    lives.weather.fates[kind] = lambda: Fate(refusal="the topic is closed")

    stopped = lives.live(AFTER_A_DEATH)
    lives.weather.clear()
    lives.until_done()

    assert isinstance(stopped.failure, KafkaFatal)
    lives.checker.require_poison(killers)


@pytest.mark.parametrize("refused", range(1, 9))
def test_a_stop_in_an_isolated_run_marks_no_record_though_the_group_refuses_once(refused: int) -> None:
    """The group may have moved on to another epoch; it takes the next note."""
    killers = {(P0, 3): IN_A_BATCH}
    lives = Lives(
        with_killers(GUARANTEES["at_least_once"], killers), default_crash=AFTER_A_DEATH, most_lives=LIVES_IN_ALL
    )
    for _ in range(3):
        lives.live(AFTER_A_DEATH)
    words = count()
    lives.weather.fates["produce"] = lambda: Fate(refusal="the topic is closed")
    lives.weather.fates["note"] = lambda: Fate(refusal="stale member epoch" if next(words) == refused else None)

    stopped = lives.live(AFTER_A_DEATH)

    lives.weather.clear()
    lives.until_done()
    assert isinstance(stopped.failure, KafkaFatal)
    lives.checker.require_poison(killers)


@guarantees
def test_a_killer_behind_a_gap_is_found(setup: Setup) -> None:
    """A compacted topic has offsets far apart, and one poll brings records from both sides."""
    far = 1_000_000
    scenario = Scenario(setup, requests=[request(P0, 0, floats(1.0)), request(P0, far, IN_DECODING)], later=())

    lives = live_through(scenario)

    lives.checker.require_poison({(P0, far)})


@pytest.mark.parametrize("seed", range(FEW))
def test_any_killers_anywhere_are_found_and_no_other_record(seed: int) -> None:
    """Up to three killers, some of them late, are found with any lanes and any commit interval."""
    dice = random.Random(seed)
    setup = replace(
        dice.choice(list(GUARANTEES.values())),
        commit_interval=dice.choice([0.001, 0.02, 0.1]),
        conduct=Conduct(lanes=dice.choice([1, 2]), inflight_batches=3, revoke_timeout=2.0),
    )
    usual = Scenario(setup)
    positions = [(r.partition, r.offset) for r in (*usual.requests, *(record for _, record in usual.later))]
    killers = {
        position: dice.choice([IN_A_BATCH, IN_DECODING, IN_A_LARGE_REQUEST])
        for position in dice.sample(positions, dice.randint(1, 3))
    }
    scenario = with_killers(setup, killers)
    slower = dice.choice([1.0, 10.0, 20.0])

    lives = live_through(replace(scenario, later=[(slower * seconds, record) for seconds, record in scenario.later]))

    lives.checker.require_poison(killers)
