"""Through failures, aborts and rebalances, answers and states equal a serial replay's, key by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NONSENSE, POISON, SPOILT, World
from tests.chunks import P0, P1, record
from tests.fakes import CommitFate, FakeStore, TransactionFate
from tests.unit.state.test_in_the_loop import answers, in_memory, kept
from worker.core.batching.batcher import BatchPolicy
from worker.core.records import Partition, Record

BAD = (POISON, NONSENSE, SPOILT)
FATES = (
    TransactionFate(),
    TransactionFate(is_committed=False, failure="refused"),
    TransactionFate(failure="in doubt"),
    TransactionFate(is_committed=False, failure="in doubt"),
)


class Ask(NamedTuple):
    """One request: its partition, key, rows and `state` header."""

    partition: Partition
    key: bytes
    rows: tuple[float, ...]
    state: str | None


row = st.one_of(st.integers(1, 50).map(float), st.sampled_from(BAD)) | st.integers(1, 50).map(float)
asks = st.builds(
    Ask,
    st.sampled_from([P0, P1]),
    st.sampled_from([b"a", b"b", b"c"]),
    st.lists(row, min_size=1, max_size=3).map(tuple),
    st.sampled_from([None, None, None, None, "read", "reset", "delete"]),
)
moves = st.sampled_from(["", "", "", "revoke", "lose"])


def records(asked: Sequence[Ask]) -> list[Record]:
    """The records of these requests; each partition has keys of its own."""
    offsets = {P0: 0, P1: 0}
    made: list[Record] = []
    for partition, key, rows, state in asked:
        headers = () if state is None else (("state", state.encode()),)
        one = record(offsets[partition], *rows, partition=partition, key=b"%d%b" % (partition.number, key))
        made.append(one._replace(headers=headers))
        offsets[partition] += 1
    return made


def replayed(asked: Sequence[Ask]) -> tuple[dict[str, list[float] | str], dict[bytes, float]]:
    """The right answer to each request, and the final states."""
    expected: dict[str, list[float] | str] = {}
    states: dict[bytes, float] = {}
    for ask, one in zip(asked, records(asked), strict=True):
        key = one.key or b""
        if not can_be_answered(ask):
            expected[one.source] = "error"
            continue
        total = 0.0 if ask.state == "reset" else states.get(key, 0.0)
        steps = [total := total + value for value in ask.rows]
        expected[one.source] = steps
        if ask.state == "delete":
            states.pop(key, None)
        elif ask.state != "read":
            states[key] = total
    return expected, states


def can_be_answered(ask: Ask) -> bool:
    """True if the request gets a result. Its last step may spoil a state that is not kept."""
    *earlier, last = ask.rows
    return not set(earlier) & set(BAD) and (last not in BAD or (last == SPOILT and ask.state in {"read", "delete"}))


@given(
    portions=st.lists(st.tuples(st.lists(asks, max_size=8), moves), min_size=1, max_size=4),
    fates=st.lists(st.sampled_from(FATES), max_size=5),
    most_rows=st.integers(1, 4),
    joins=st.booleans(),
    in_memory_at_most=st.none() | st.integers(1, 4),
)
def test_exactly_once_all_is_as_in_a_serial_replay(
    portions: list[tuple[list[Ask], str]],
    fates: list[TransactionFate],
    most_rows: int,
    *,
    joins: bool,
    in_memory_at_most: int | None,
) -> None:
    """Each request is answered once, although transactions fail and partitions leave and come back.

    The states are all in memory, or only a few, with the others in a store.
    """
    policy = BatchPolicy(max_rows=most_rows, max_bytes=1 << 20, linger=0.005)
    world = World(has_state=True, exactly_once=True, joins=joins, policy=policy, **stored(in_memory_at_most)).start(
        P0, P1
    )
    left = iter(fates)
    world.transactions.fate = lambda: next(left, TransactionFate())

    asked = publish_and_move(world, portions)

    expected, states = replayed(asked)
    assert answers(world) == expected
    assert len([m for m in world.broker.answers if m.topic == "responses"]) == len(expected)
    assert in_memory(world) == kept(world) == states


@given(
    portions=st.lists(st.tuples(st.lists(asks, max_size=8), moves), min_size=1, max_size=4),
    commits=st.lists(st.booleans(), max_size=5),
    joins=st.booleans(),
    in_memory_at_most=st.none() | st.integers(1, 4),
)
def test_at_least_once_the_last_answers_and_states_are_those_of_a_serial_replay(
    portions: list[tuple[list[Ask], str]], commits: list[bool], *, joins: bool, in_memory_at_most: int | None
) -> None:
    """Commits are lost, and with them the positions of partitions that leave and come back."""
    world = World(has_state=True, joins=joins, **stored(in_memory_at_most)).start(P0, P1)
    left = iter(commits)
    world.source.commit_fate = lambda: CommitFate(is_taken=next(left, True))

    asked = publish_and_move(world, portions)

    expected, states = replayed(asked)
    assert answers(world) == expected
    assert in_memory(world) == kept(world) == states


def stored(most: int | None) -> dict[str, Any]:
    """Settings for `most` states in memory; None: for all."""
    return {} if most is None else {"store": FakeStore(), "most_in_memory": most}


def publish_and_move(world: World, portions: list[tuple[list[Ask], str]]) -> list[Ask]:
    """Publish the portions; between them partitions leave and come back. Return when all is answered."""
    asked = [ask for portion, _ in portions for ask in portion]
    waiting = iter(records(asked))
    for portion, move in portions:
        world.broker.append(*(next(waiting) for _ in portion))
        world.turn(5)
        if move:
            getattr(world.source, move)(P0)
            world.turn(2)
            world.source.assign(P0)
    for _ in range(100):
        world.turn_for(1.0)
        if answered_all(world, len(asked)):
            break
    return asked


def answered_all(world: World, count: int) -> bool:
    return len(answers(world)) == count and not world.ledger.records and world.delivery.is_idle
