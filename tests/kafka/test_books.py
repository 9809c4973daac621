"""The judge of the mix of faults sees each broken promise, and finds nothing where all were kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnxruntime as ort
import pytest

from tests.faults.books import Books, Look, Place, Seen, Source
from tests.faults.checker import Topics
from tests.faults.memories import MEMORIES, Memory
from tests.faults.records import ROWS_OF_JSON
from tests.faults.requests import (
    JSON,
    POISON_EVERY,
    RAW,
    TABLE,
    WEIGHTS,
    request,
    right_value,
    rows,
    told_by,
)
from tests.models import fragile, with_memory

PARTITIONS = 2
BAD = POISON_EVERY // 2  # the first bad request
Headers = Mapping[str, str]
NONE: Headers = {}


def lying_at(number: int) -> Source:
    """The place of request n: even numbers lie in partition 0, odd ones in 1."""
    return Source(number % PARTITIONS, number // PARTITIONS)


def asked_for(number: int, at: Source | None = None) -> Seen:
    """Request n, as it lies in its topic."""
    asked, lies = request(number, PARTITIONS), at or lying_at(number)
    return Seen(*lies, asked.key, asked.value, {"request-id": f"r-{number}"})


def answered(
    number: int, offset: int, headers: Headers = NONE, *, partition: int = 0, as_if: int | None = None
) -> Seen:
    """The right answer to request n, except for `headers`; `as_if` gives it another request's value."""
    asked, (lies_in, lies_at) = request(number, PARTITIONS), lying_at(number)
    said = {"source": f"requests/{lies_in}/{lies_at}", "request-id": f"r-{number}", "status": "ok"}
    value = b"{}"
    if asked.code:
        said |= {"status": "error", "error-code": asked.code}
    else:
        said |= {"content-type": RAW.decode()}
        value = right_value(number if as_if is None else as_if).tobytes()
    return Seen(partition, offset, asked.key, value, {**said, **headers})


def dead_letter(number: int, offset: int = 0, headers: Headers = NONE) -> Seen:
    """The right dead letter of request n, except for `headers`."""
    asked, (partition, at) = request(number, PARTITIONS), lying_at(number)
    said = {"__dlq.errors.partition": str(partition), "__dlq.errors.offset": str(at), "request-id": f"r-{number}"}
    return Seen(0, offset, asked.key, asked.value, {**said, "error-code": asked.code or "INTERNAL", **headers})


def books(
    asked: Iterable[int], answers: Sequence[Seen], letters: Sequence[Seen] = (), *, exactly_once: bool = True
) -> Books:
    """Closed books over these requests, answers and dead letters."""
    found = Books(PARTITIONS, exactly_once=exactly_once, tell=lambda _promise, _how: None)
    for number in asked:
        found.published(lying_at(number), number)
        found.requested(asked_for(number))
    for seen in answers:
        found.answered(seen, 0.0)
    for seen in letters:
        found.dead_lettered(seen)
    found.close()
    return found


KEPT = [answered(n, n) for n in range(1, 7)]  # 0 has no key, and so another answer partition


def test_a_kept_promise_is_found_clean() -> None:
    """All answered once and in order, a bad one with its dead letter: nothing is found."""
    found = books([*range(1, 7), BAD], [*KEPT, answered(BAD, 9)], [dead_letter(BAD)])

    assert (found.broken, found.answers, found.errors) == ([], 7, 1)


def test_a_missing_answer_is_lost() -> None:
    """A request without an answer is named."""
    found = books(range(1, 7), KEPT[1:])

    assert found.broken == ["lost"]
    assert "request 1," in found.examples["lost"][0]


def test_a_missing_dead_letter_is_lost() -> None:
    """A bad request that has its error answer and no dead letter is named."""
    assert books([BAD], [answered(BAD, 0)]).broken == ["lost"]


def test_a_repeated_answer_breaks_exactly_once_alone() -> None:
    """An answer that can be read twice is counted under both guarantees, and breaks only exactly once."""
    answers = [*KEPT, answered(5, 8), answered(6, 9)]

    once, at_least = (books(range(1, 7), answers, exactly_once=is_once) for is_once in (True, False))

    assert (once.found["repeated"], once.broken) == (2, ["repeated"])
    assert (at_least.found["repeated"], at_least.broken) == (2, [])


def test_what_is_repeated_behind_a_lost_offset_was_announced() -> None:
    """The group had lost its offset; repeats of requests before it, or not committed then, still count."""
    found = Books(PARTITIONS, exactly_once=True, tell=lambda _promise, _how: None)
    for number in (0, 2, 4):
        found.answered(answered(number, number), 0.0)
    found.lost_offset(0, 1, 2)

    for number in (0, 2, 4):
        found.answered(answered(number, 10 + number), 0.0)

    assert (found.announced, found.found["repeated"]) == (1, 2)


def test_a_first_answer_after_a_later_one_is_out_of_order() -> None:
    """A reader that keeps the highest offset would drop it."""
    found = books([1, 3], [answered(3, 0), answered(1, 1)], exactly_once=False)

    assert found.broken == ["out of order"]


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (answered(1, 0, as_if=2), ", not [["),
        (answered(7, 0, as_if=1), "16 bytes, not 48"),
        (answered(1, 0)._replace(key=b"other"), "key b'other', not b'key-"),
        (answered(1, 0, {"status": "error", "error-code": "INTERNAL"}), "status error INTERNAL, not ok"),
        (answered(1, 0, {"status": "fine"}), "status fine None, not ok"),
        (answered(BAD, 0, {"status": "ok"}), "status ok None, not INVALID_ARGUMENT"),
        (answered(1, 0, {"content-type": "text/plain"}), "content-type text/plain"),
        (answered(1, 0, {"request-id": "x"}), "request-id 'x' is nobody's"),
        (answered(11, 0, partition=0), "in partition 0, not 1"),  # keyless
        (answered(1, 0, {"source": "nowhere"}), "has the source 'nowhere'"),
    ],
)
def test_a_wrong_answer_is_named(seen: Seen, fault: str) -> None:
    """Value, key, code, encoding, name, partition and source must be those due to the request."""
    found = books([], [seen])

    assert fault in found.examples["wrong"][0]


def test_an_answer_to_another_request_is_wrong() -> None:
    """The publisher knows each request's place: an answer with another place went to the wrong request."""
    found = books([1], [answered(3, 0, {"source": "requests/1/0"})])

    assert "is request 1, answered as request 3" in found.examples["wrong"][0]


def spoiled(*answers: Seen, letters: Sequence[Seen] = ()) -> Books:
    """Books in which request 1 is unreadable, with these answers to it."""
    found = Books(PARTITIONS, exactly_once=True, tell=lambda _promise, _how: None)
    found.published(lying_at(1), 1)
    found.lost({lying_at(1): 1})
    for seen in answers:
        found.answered(seen, 0.0)
    for seen in letters:
        found.dead_lettered(seen)
    found.looked(Look(1.0, {1: 1}, {Place(what, at): 9 for what in ("answers", "dead") for at in (0, 1)}))
    assert found.is_all_done == bool(answers)
    found.close()
    return found


UNREAD = Seen(1, 0, None, b"{}", {"source": "requests/1/0", "status": "error", "error-code": "INVALID_ARGUMENT"})
UNREAD_PLACE = {"__dlq.errors.partition": "1", "__dlq.errors.offset": "0"}
UNREAD_LETTER = Seen(0, 0, None, None, {**UNREAD_PLACE, "error-code": "INVALID_ARGUMENT"})


def test_a_request_that_was_lost_on_a_disk_is_owed_an_error_and_a_dead_letter() -> None:
    """Its key and id are unknown; without an answer it is lost."""
    kept, unanswered, letterless = (
        spoiled(UNREAD, letters=[UNREAD_LETTER]),
        spoiled(letters=[UNREAD_LETTER]),
        spoiled(UNREAD),
    )

    assert (kept.broken, kept.errors) == ([], 1)
    assert "lost" in unanswered.broken
    assert letterless.found["lost"] == 1


@pytest.mark.parametrize(
    "answer",
    [
        answered(1, 0),
        UNREAD._replace(key=b"k"),
        UNREAD._replace(partition=0),
        UNREAD._replace(headers={**UNREAD.headers, "error-code": "INTERNAL"}),
    ],
)
def test_another_answer_to_a_request_that_was_lost_on_a_disk_is_wrong(answer: Seen) -> None:
    """The request was unreadable from the start."""
    assert "wrong" in spoiled(answer, letters=[UNREAD_LETTER]).broken


def test_a_request_that_was_published_twice_is_two_requests() -> None:
    """Its publisher heard of one place only. Each of the two needs one answer, or it is lost."""
    again = Source(1, 1)
    answers = [answered(1, 0), answered(1, 1, {"source": "requests/1/1"})]
    for given, broken in ((answers, []), (answers[:1], ["lost"])):
        found = Books(PARTITIONS, exactly_once=True, tell=lambda _promise, _how: None)
        found.published(lying_at(1), 1)
        found.requested(asked_for(1))
        found.requested(asked_for(1, again))
        for seen in given:
            found.answered(seen, 0.0)
        found.close()

        assert (found.published_twice, found.broken) == (1, broken)


def test_an_acknowledged_request_that_is_not_there_is_noticed() -> None:
    """The brokers lost it: nothing that follows can be trusted."""
    found = Books(PARTITIONS, exactly_once=True, tell=lambda _promise, _how: None)
    found.published(lying_at(1), 1)
    found.published(None, 2)
    found.requested(asked_for(3))
    found.published(None, 3)
    found.answered(answered(3, 0), 0.0)
    found.close()

    assert [example[:9] for example in found.examples["wrong"]] == ["request 1", "request 2"]


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (dead_letter(1), "error-code INTERNAL, not None"),
        (dead_letter(BAD)._replace(value=b"other"), "key or value is not the request's"),
        (dead_letter(BAD, 0, {"__dlq.errors.offset": "?"}), "does not say where its request lies"),
    ],
)
def test_a_wrong_dead_letter_is_named(seen: Seen, fault: str) -> None:
    """A good request has no dead letter, and a bad request's dead letter is the original."""
    assert fault in books([], [], [seen]).examples["wrong"][0]


OTHER_KIND = POISON_EVERY // 4  # the first record of another kind


def record_answered(number: int, *, names: int | None = None, as_if: int | None = None) -> Seen:
    """The right answer to record n; `names` gives it another record's number, `as_if` another one's value."""
    y = right_value(number if as_if is None else as_if, ROWS_OF_JSON)
    value = json.dumps({"id": number if names is None else names, "y": y.tolist()}).encode()
    seen = answered(number, 0, {"status": "ok", "content-type": JSON.decode()})
    return seen._replace(value=value, headers={name: it for name, it in seen.headers.items() if name != "error-code"})


def books_of_records(number: int, *answers: Seen, committed: int = 0) -> Books:
    """Closed books over this record, which is the first one of its partition; its group has committed so far."""
    found = Books(PARTITIONS, exactly_once=True, tell=lambda _promise, _how: None, form=ROWS_OF_JSON)
    lies, asked = Source(number % PARTITIONS, 0), request(number, PARTITIONS, ROWS_OF_JSON)
    found.published(lies, number)
    found.requested(Seen(*lies, asked.key, asked.value, {"request-id": f"r-{number}"}))
    for seen in answers:
        found.answered(seen._replace(headers={**seen.headers, "source": f"requests/{lies}"}), 0.0)
    found.looked(Look(1.0, {lies.partition: committed}, {Place("answers", 0): 9, Place("requests", lies.partition): 1}))
    found.reached(Place("requests", lies.partition), 1)
    found.reached(Place("answers", 0), 9)
    assert found.is_all_answered == bool(answers or number == OTHER_KIND)
    found.close()
    return found


def test_a_record_of_another_kind_is_owed_nothing() -> None:
    """It may be committed past; an answer to it is wrong."""
    assert books_of_records(OTHER_KIND, committed=1).broken == []
    assert books_of_records(OTHER_KIND, record_answered(OTHER_KIND)).broken == ["wrong"]


@pytest.mark.parametrize(
    ("seen", "broken"),
    [
        ([record_answered(1)], []),
        ([record_answered(1, names=2)], ["wrong"]),
        ([record_answered(1, as_if=2)], ["wrong"]),
        ([record_answered(1)._replace(value=b"[")], ["wrong"]),
        ([], ["committed past", "lost"]),
    ],
)
def test_a_record_is_owed_an_answer_of_its_own(seen: list[Seen], broken: list[str]) -> None:
    """The answer has the record's number and rows, and is there before the commit."""
    assert books_of_records(1, *seen, committed=1).broken == broken


def test_the_partitions_of_two_topics_are_numbered_one_topic_after_the_other() -> None:
    """A source of the second topic is another one, and a key has one of the topics."""
    topics = Topics(["a", "b"], "answers", "dead", 4, 1)
    found = Books(4, exactly_once=True, tell=lambda _promise, _how: None, firsts=topics.firsts)
    right = answered(1, 0)
    for offset, source in enumerate(("a/1/0", "b/1/0")):
        found.answered(right._replace(offset=offset, headers={**right.headers, "source": source}), 0.0)

    assert found.broken == []
    assert [topics.lying(number) for number in range(4)] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert topics.places["b", 1] == Place("requests", 3)
    assert {topics.taking(request(number, 4)) for number in range(40)} == {
        ("a", -1),
        ("b", -1),
        *(topics.lying(number) for number in range(4)),
    }


class Looking:
    """Books over one answer partition and one dead-letter partition, which look for request 1 (at 1/0)."""

    def __init__(self) -> None:
        self.books = Books(PARTITIONS, exactly_once=True, tell=lambda _promise, _how: None)

    def look(self, committed: int, answers: int, dead: int = 0) -> None:
        """Look when partition 1 is committed up to `committed`, and the logs then end at these offsets."""
        ends = {Place("answers", 0): answers, Place("answers", 1): 0, Place("dead", 0): dead}
        self.books.looked(Look(1.0, {1: committed}, ends))

    def read(self, seen: Seen, place: str = "answers") -> None:
        """Read this record and all before it."""
        self.books.answered(seen, 2.0) if place == "answers" else self.books.dead_lettered(seen)
        self.books.reached(Place(place, seen.partition), seen.offset + 1)


def test_an_answer_written_before_we_looked_makes_a_commit_safe() -> None:
    """The answer may be read later: only then is the look judged."""
    looking = Looking()

    looking.look(committed=1, answers=1)
    waiting = looking.books.unjudged
    looking.read(answered(1, 0))

    assert (waiting, looking.books.unjudged, looking.books.broken) == (1, 0, [])


def test_an_answer_written_after_we_looked_does_not_make_a_commit_safe() -> None:
    """The group had committed the request, and a crash at that moment would have lost it."""
    looking = Looking()

    looking.look(committed=1, answers=0)
    looking.read(answered(1, 0))

    assert looking.books.broken == ["committed past"]


def test_an_aborted_answer_does_not_make_a_commit_safe() -> None:
    """The reader has passed its place in the log and read nothing there."""
    looking = Looking()

    looking.look(committed=1, answers=2)
    looking.books.reached(Place("answers", 0), 2)

    assert looking.books.broken == ["committed past"]


def test_an_offset_without_a_request_needs_no_answer_before_the_commit() -> None:
    """It held a transaction's marker or an aborted record, which is known only when all up to there is read."""
    for is_read, broken in ((True, []), (False, ["committed past"])):
        looking = Looking()
        if is_read:
            looking.books.reached(Place("requests", 1), 1)

        looking.look(committed=1, answers=0)

        assert looking.books.broken == broken


def test_an_error_needs_its_dead_letter_before_the_commit() -> None:
    """Answer and dead letter are one outcome."""
    for letter_end, broken in ((1, []), (0, ["committed past"])):
        looking = Looking()

        looking.look(committed=1, answers=1, dead=letter_end)
        looking.read(dead_letter(BAD, 0, {"__dlq.errors.partition": "1", "__dlq.errors.offset": "0"}), "dead")
        looking.read(answered(BAD, 0, {"source": "requests/1/0"}))

        assert looking.books.broken == broken


GRU = MEMORIES["gru"]
# Three requests of one key and one partition, one row each.
SAME_KEY = [n for n in range(1, 999, 2) if request(n, 2)[::4] == (b"key-0", None) and len(rows(n)) == 1][:3]


def told(numbers: Sequence[int], offset: int = 0, *, ends_with: int | None = None) -> Seen:
    """The right answer to the last of these requests after all of them ran; `ends_with` gives another's value."""
    state = GRU.initial
    for number in numbers:
        state = GRU.after(state, rows(number)[0][GRU.columns])
    last = numbers[-1] if ends_with is None else ends_with
    value = np.concatenate([right_value(last)[0], GRU.told(state)]).astype(np.float32)
    return answered(last, offset)._replace(value=value.tobytes())


def left_by(*numbers: int) -> bytes:
    """The changelog's value after these requests."""
    state = GRU.initial
    for number in numbers:
        state = GRU.after(state, rows(number)[0][GRU.columns])
    return bytes(24) + state.astype("<f4").tobytes()


def stateful_books(*answers: Seen) -> Books:
    """Closed books over consecutive requests of one key."""
    found = Books(PARTITIONS, exactly_once=True, tell=lambda _promise, _how: None, memory=GRU)
    for number in SAME_KEY:
        found.published(lying_at(number), number)
        found.requested(asked_for(number))
    for seen in answers:
        found.answered(seen, 0.0)
    found.close()
    return found


FIRST, SECOND, THIRD = SAME_KEY
SERIAL = [told(SAME_KEY[: at + 1], at) for at in range(3)]


def test_states_of_a_serial_replay_are_found_clean() -> None:
    """Each answer tells of the requests before it, and the changelog ends with the last state."""
    found = stateful_books(*SERIAL)
    found.restored({b"key-0": left_by(*SAME_KEY)})

    assert found.broken == []


@pytest.mark.parametrize(
    "last",
    [
        told([THIRD]),
        told([FIRST, THIRD]),
        told([FIRST, SECOND, SECOND, THIRD]),
        told([SECOND, FIRST, THIRD]),
        told([FIRST, THIRD, SECOND], ends_with=THIRD),
    ],
)
def test_what_is_lost_applied_twice_or_out_of_order_is_a_wrong_state(last: Seen) -> None:
    """The answer's own columns tell the state of its key."""
    found = stateful_books(*SERIAL[:2], last._replace(offset=2))

    assert found.broken == ["wrong state"]


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {b"key-0": left_by(FIRST, SECOND)},
        {b"key-0": left_by(*SAME_KEY), b"key-1": left_by(FIRST)},
        {b"key-0": bytes(24) + np.full(16, np.nan, "<f4").tobytes()},
    ],
)
def test_a_changelog_that_ends_otherwise_is_wrong(kept: Mapping[bytes, bytes]) -> None:
    """It has another state of a key, no state, or the state of a key that no request had."""
    found = stateful_books(*SERIAL)
    found.restored(kept)

    assert found.broken == ["wrong state"]


@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
def test_the_judge_replays_what_the_model_does(memory: Memory) -> None:
    """Row by row, with a computation of its own: the answer's outputs, its columns of state, and the new state."""
    session = ort.InferenceSession(with_memory(fragile(TABLE, WEIGHTS), memory.model, memory.columns))
    dtypes = {"tensor(double)": "<f8", "tensor(int64)": "<i8", "tensor(float)": "<f4"}
    given = {at.name: np.zeros((1, *at.shape[1:]), dtypes[at.type]) for at in session.get_inputs()[1:]}
    state = memory.initial
    for row in (row for number in range(300) for row in rows(number)):
        y, *left = session.run(["y", *memory.tensors.values()], {"x": row[None], **given})
        given = dict(zip(memory.tensors, left, strict=True))
        state = memory.after(state, row[memory.columns])

        most = memory.tolerance
        np.testing.assert_allclose(told_by(y.tobytes(), memory.width)[0], memory.told(state), most, most)
        np.testing.assert_allclose(memory.read(b"".join(array.tobytes() for array in left)), state, most, most)
