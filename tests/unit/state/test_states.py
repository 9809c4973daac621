"""States read, written and sent by columns: answers and states equal a serial replay's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NONSENSE, SPOILT
from tests.chunks import P0, P1, RAW, tracked
from tests.fakes import CHANGELOG
from tests.states import kept, number_of
from tests.unit.state.rig import Rig, chunk_of, keyed
from worker.core.chunk import Prediction
from worker.core.failures import Code
from worker.core.ordering.ledger import Stretch
from worker.core.records import Fields, Record, Rejection, StateUse
from worker.state.layout import is_first

READ, RESET, DELETE = StateUse.READ, StateUse.RESET, StateUse.DELETE
keys = st.sampled_from([b"a", b"b", b"c", b"d"])
requests = st.lists(st.tuples(keys, st.integers(1, 3)), min_size=1, max_size=6)
chunks = st.lists(st.tuples(requests, st.sampled_from([None, None, *StateUse]), st.booleans()), max_size=6)


def replayed(states: dict[bytes, float], record: Record, use: StateUse | None) -> list[float]:
    """The answer of a model that runs one record at a time, row by row."""
    key, number, answer = record.key or b"", 0.0 if use is RESET else states.get(record.key or b"", 0.0), []
    for value in np.frombuffer(record.value or b"", "<f4").tolist():
        number += value
        answer.append(number)
    if use is DELETE:
        states.pop(key, None)
    elif use is not READ:
        states[key] = number
    return answer


@given(chunks, st.booleans())
def test_answers_and_states_are_those_of_a_serial_replay(taken: list[Any], can_take_back: bool) -> None:  # noqa: FBT001  # hypothesis gives it
    """This holds for any chunks: of keys that repeat, of sequences, of each use of the state, run at once or later."""
    rig, states, expected, offset = Rig(can_take_back=can_take_back), dict[bytes, float](), {}, 0
    for some, use, is_run in taken:
        records = [keyed(offset + at, key, *range(1, rows + 1)) for at, (key, rows) in enumerate(some)]
        offset += len(records)
        rig.take(*records, use=use)
        expected.update({record.offset: replayed(states, record, use) for record in records})
        if is_run:
            rig.run()

    assert rig.run() == expected
    assert kept(rig.changes) == states
    assert (rig.by_key.waiting, rig.ledger.records) == (0, 0)
    assert len({key for ran in rig.ran for key in ran}) == offset


def written(rig: Rig, *at: int) -> list[Fields]:
    """The changes of a chunk of ten keys, of which only these records are predicted, in one run."""
    chunk = tracked(rig.ledger, chunk_of([keyed(10 + n, b"%d" % n) for n in range(10)]))
    states = [np.arange(len(at), dtype="<f4").reshape(-1, 1)]
    rig.states.conclude([Prediction(chunk.pick(at), [], 0, states)])
    assert chunk.places is not None
    return rig.states.leave(Stretch(chunk.places, 0, 10))


@pytest.mark.parametrize("at", [range(10), range(1, 10), range(9), [0, 1, 5, 9], [4]])
def test_each_record_leaves_its_own_state(at: list[int]) -> None:
    """A record that was cut out of a chunk leaves none, wherever it stood, and its neighbours keep their places."""
    changes = written(Rig(), *at)

    assert [key for _, key, *_ in changes] == [b"%d" % n for n in at]
    assert [number_of(value or b"") for _, _, value, *_ in changes] == [*map(float, range(len(at)))]
    assert {(topic, headers, *where) for topic, _, _, headers, *where in changes} == {(CHANGELOG, None, 0, 0)}


def test_a_run_may_be_written_in_parts() -> None:
    """Each part has the rows of its own."""
    rig = Rig()
    chunk = tracked(rig.ledger, chunk_of([keyed(n, b"%d" % n) for n in range(5)]))
    states = [np.arange(5, dtype="<f4").reshape(-1, 1)]
    assert chunk.places is not None

    rig.states.conclude([Prediction(chunk.take(3, 5), [], 3, states)])
    rig.states.conclude([Prediction(chunk.take(0, 2), [], 0, states)])

    assert kept(rig.states.leave(Stretch(chunk.places, 0, 5))) == {b"0": 0, b"1": 1, b"3": 3, b"4": 4}


def test_a_state_leaves_once_with_its_own_answer() -> None:
    """Answers may leave in parts, and nothing leaves a second time."""
    rig = Rig()
    chunk = rig.take(*[keyed(n, b"%d" % n) for n in range(4)])
    rig.run()
    places = chunk.places
    assert places is not None
    assert len(rig.changes) == 4
    assert rig.states.leave(Stretch(places, 0, 4)) == []

    chunk = rig.take(*[keyed(n + 4, b"%d" % n, 2) for n in range(4)])
    states = [np.full((4, 1), 3, "<f4")]
    rig.states.conclude([Prediction(chunk, [], 0, states)])
    assert chunk.places is not None
    assert [len(rig.states.leave(Stretch(chunk.places, *part))) for part in [(0, 1), (1, 3), (3, 4)]] == [1, 2, 1]


def test_a_key_that_is_deleted_leaves_a_tombstone_that_says_as_of_when() -> None:
    """Its head says whether the key had a state before, and when it was used. A chunk may delete several."""
    rig = Rig()
    rig.take(keyed(0, b"a"))
    rig.run()
    rig.take(*[keyed(1, b"a")._replace(timestamp_ms=7), keyed(2, b"b")], use=DELETE)
    rig.run()

    _, first, second = rig.changes
    for (topic, key, value, headers, *where), expected, offset in ((first, b"a", b"1"), (second, b"b", b"2")):
        assert (topic, key, value, where) == (CHANGELOG, expected, None, [0, 0])
        said = dict(headers or ())
        assert (said["offset"], is_first(said["head"] or b"")) == (offset, expected == b"b")
    assert int.from_bytes((dict(first[3] or ())["head"] or b"")[16:], "little") == 7
    assert rig.states.keys == 0


def test_a_state_goes_to_the_partition_of_its_request() -> None:
    """Another client may have chosen that partition for the key."""
    rig = Rig()
    rig.take(keyed(0, b"a", 1, partition=P1))
    rig.take(keyed(0, b"a", 2))
    rig.take(keyed(1, b"a", partition=P1), use=DELETE)
    rig.run()

    assert sorted((key, number) for _, key, _, _, _, number in rig.changes) == [(b"a", 0), (b"a", 1), (b"a", 1)]


def test_what_comes_back_of_a_partition_that_left_is_not_written() -> None:
    """The next owner runs the request."""
    rig = Rig()
    chunk = rig.take(keyed(0, b"a"))
    rig.ledger.forget([P0])

    rig.states.conclude([Prediction(chunk, [], 0, [np.ones((1, 1), "<f4")])])

    assert chunk.places is not None
    assert (rig.states.keys, rig.states.leave(Stretch(chunk.places, 0, 1))) == (0, [])


def test_what_is_read_again_runs_on_the_states_before_it() -> None:
    """Writes and deletions of a chunk are undone from the committed offset on, and earlier ones stay."""
    rig = Rig(can_take_back=True)
    rig.take(*[keyed(n, key, 10) for n, key in enumerate([b"a", b"b", b"c"])])
    rig.take(*[keyed(3 + n, key) for n, key in enumerate([b"a", b"b", b"new"])])
    rig.take(keyed(6, b"c"), keyed(7, b"a"), use=DELETE)
    rig.run()

    rig.states.rewind([P0])
    rig.ledger.forget([P0])
    rig.by_key.forget([P0])
    rig.states.take_back([keyed(4, b"b")])

    rig.take(*[keyed(4 + n, key) for n, key in enumerate([b"b", b"new", b"c", b"a"])])
    assert rig.run() == {0: [10], 1: [10], 2: [10], 3: [11], 4: [11], 5: [1], 6: [11], 7: [12]}


def timed(offset: int, key: bytes, seconds: float) -> Record:
    return keyed(offset, key)._replace(timestamp_ms=round(seconds * 1000))


def test_tombstones_of_expired_keys_go_before_the_states() -> None:
    """A state that leaves with them may be of one of these keys. The latest request says as of when."""
    rig = Rig(ttl=10.0)
    rig.take(timed(0, b"old", 100), timed(1, b"other", 100))
    rig.run()
    for offset in range(2, 6):
        rig.take(timed(offset, b"new", 500))
        rig.run()

    gone = [at for at, (_, _, value, *_) in enumerate(rig.changes) if value is None]
    assert {rig.changes[at][1] for at in gone} == {b"old", b"other"}
    latest = dict(rig.changes[gone[0]][3] or ())["offset"] or b""
    assert number_of(rig.changes[gone[-1] + 1][2] or b"") == int(latest) - 1
    assert kept(rig.changes) == {b"new": 4}
    assert rig.states.keys == 1


def test_a_rejection_makes_no_state_too_old() -> None:
    """Only requests that wrote a state say how late it is."""
    rig = Rig(ttl=10.0)
    rig.take(timed(0, b"old", 100))
    rig.run()
    chunk = tracked(rig.ledger, chunk_of([timed(1, b"x", 5000), timed(2, b"new", 101), timed(3, b"y", 5000)]))
    rig.states.conclude([Prediction(chunk.take(1, 2), [], 0, [np.ones((1, 1), "<f4")])])
    assert chunk.places is not None
    refusals = [Rejection(record, Code.INTERNAL, "no", RAW) for record in chunk.records]
    rig.leave(rig.ledger.answer([(chunk.places, chunk.at, refusals)]))

    for offset in range(4, 8):
        rig.take(timed(offset, b"new", 102))
        rig.run()

    assert kept(rig.changes) == {b"old": 1, b"new": 5}


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("is_old", [False, True])
def test_a_key_without_a_state_may_be_refused(at: int, *, is_old: bool) -> None:
    """Its neighbours in the chunk run, wherever it stands. A state that is too old counts as none."""
    rig = Rig(refuse_missing=True, ttl=10.0)
    known = [key for n, key in enumerate([b"a", b"b", b"c"]) if n != at or is_old]
    rig.take(*[timed(n, key, 100 - 50 * (key == b"abc"[at : at + 1])) for n, key in enumerate(known)], use=RESET)
    rig.run()

    rig.take(*[timed(10 + n, key, 101) for n, key in enumerate([b"a", b"b", b"c"])])
    rig.run()

    found = {n: rig.answers[10 + n] for n in range(3)}
    assert found == {n: "its key has no state, and WORKER_STATE__MISSING is refuse" if n == at else [2] for n in found}


@pytest.mark.parametrize("at", [[0], [1], [2], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("value", [SPOILT, NONSENSE])
def test_a_row_that_is_not_finite_does_not_spoil_its_neighbours(at: list[int], value: float) -> None:
    """Its key's state stays as it was, wherever it stands in its chunk."""
    rig = Rig()
    rig.take(*[keyed(n, b"%d" % n, 5) for n in range(3)])
    rig.run()

    rig.take(*[keyed(3 + n, b"%d" % n, value if n in at else 1) for n in range(3)])
    rig.run()

    assert [isinstance(rig.answers[3 + n], str) for n in range(3)] == [n in at for n in range(3)]
    assert kept(rig.changes) == {b"%d" % n: 5 if n in at else 6 for n in range(3)}


def test_many_keys_find_room() -> None:
    """Slots are reused, and their number grows when needed."""
    rig = Rig(max_rows=512)
    for start in range(0, 3000, 100):
        rig.take(*[keyed(n, b"%d" % n, 5000 + n) for n in range(start, start + 100)])
    rig.run()
    rig.take(*[keyed(3000 + n, b"%d" % n) for n in range(10)], use=DELETE)
    rig.run()
    rig.take(*[keyed(3010 + n, b"again-%d" % n) for n in range(10)])
    rig.run()

    assert (rig.states.keys, rig.states.size) == (3000, 12_000)
    expected = {b"%d" % n: 5000 + n for n in range(10, 3000)} | {b"again-%d" % n: 1 for n in range(10)}
    assert kept(rig.changes) == expected


def test_what_is_committed_is_not_kept_to_be_taken_back() -> None:
    """This holds for any number of batches."""
    rig = Rig(can_take_back=True)
    for n in range(80):
        rig.take(keyed(n, b"%d" % (n % 3)))
        rig.run()
        rig.ledger.committed({P0: n + 1})

    assert len(rig.states._undos) < 70
