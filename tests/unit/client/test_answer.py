"""An answer is a `concurrent.futures.Future`, whether it ended before anything waited for it or after."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, as_completed, wait
from contextlib import contextmanager

import pytest

from inference_client.answer import Answer
from inference_client.errors import Internal, NotFound
from inference_client.signature import Result
from tests.unit.client.builders import Stage

SOON = 20.0  # seconds for another thread on a busy machine
Y = [[0.5, 0.25]]


def is_made(answer: Answer) -> bool:
    """True if the answer has the condition that waiting needs."""
    return "_condition" in vars(answer)


def reply(stage: Stage, answer: Answer) -> None:
    """Deliver the answer's result."""
    stage.arrive(answer)
    stage.turn()


def refuse(stage: Stage, answer: Answer) -> None:
    """Deliver the answer's error."""
    stage.arrive(answer, b"error", b'{"error":"no"}', **{"error-code": b"NOT_FOUND"})
    stage.turn()


def cancel(_: Stage, answer: Answer) -> None:
    """Cancel the answer."""
    assert answer.cancel()


def outcome(future: Future[Result], timeout: float | None = None) -> object:
    """Return the result, or the type of the error."""
    try:
        return future.result(timeout)["y"].tolist()
    except (NotFound, CancelledError) as error:
        return type(error)


ENDS = pytest.mark.parametrize(
    ("end", "expected"), [(reply, Y), (refuse, NotFound), (cancel, CancelledError)], ids=["reply", "refuse", "cancel"]
)
End = Callable[[Stage, Answer], None]


def test_what_is_there_when_it_is_asked_for_costs_no_condition() -> None:
    """Every call returns one and the same object."""
    stage = Stage()
    answer = stage.submit()
    assert not answer.done()
    assert not answer.cancelled()
    assert not hasattr(answer, "__await__")

    reply(stage, answer)

    assert answer.done()
    assert answer.result(0)["y"].tolist() == Y
    assert answer.result() is answer.result()
    assert not is_made(answer)


@ENDS
def test_it_may_be_waited_for_before_it_ends_or_after(end: End, expected: object) -> None:
    """`result`, `wait` and `as_completed` work in both cases, and repeated calls agree."""
    stage = Stage()
    waited, late, plain = stage.submit(), stage.submit(), stage.submit()
    assert wait([waited], 0).not_done == {waited}
    assert is_made(waited)

    for answer in (waited, late, plain):
        end(stage, answer)

    assert [is_made(answer) for answer in (late, plain)] == [False, False]
    assert wait([waited, late], 0).done == {waited, late}
    assert set(as_completed([waited, late], 0)) == {waited, late}
    assert [outcome(answer, 0) for answer in (waited, late, plain, plain)] == [expected] * 4
    assert [answer.cancelled() for answer in (waited, late)] == [expected is CancelledError] * 2
    assert not plain.running()


def test_one_that_has_not_ended_is_waited_for_in_vain() -> None:
    """The wait ends after the timeout that was asked for."""
    answer = Stage().submit()

    with pytest.raises(TimeoutError):
        answer.result(0)
    with pytest.raises(TimeoutError):
        answer.exception(0)
    assert "state=pending" in repr(answer)


@ENDS
def test_asyncio_takes_it(end: End, expected: object) -> None:
    """`wrap_future` works for an answer that has ended and for one that ends later."""
    stage = Stage()
    before, after = stage.submit(), stage.submit()
    end(stage, before)

    async def main() -> list[object]:
        wrapped = [asyncio.wrap_future(answer) for answer in (before, after)]
        end(stage, after)
        await asyncio.wait(wrapped, timeout=SOON)
        return [CancelledError if one.cancelled() else one.exception() or one.result()["y"].tolist() for one in wrapped]

    found = [type(one) if isinstance(one, Exception) else one for one in asyncio.run(main())]
    assert found == [expected, expected]


@ENDS
def test_each_callback_is_called_once(end: End, expected: object) -> None:
    """The thread that ends the answer calls it, or the caller does if the answer has ended."""
    stage = Stage()
    answer = stage.submit()
    called: list[object] = []

    answer.when_done(lambda ended: called.append(outcome(ended)))
    end(stage, answer)
    answer.when_done(lambda ended: called.append(outcome(ended)))

    assert called == [expected, expected]


def test_one_that_is_about_to_end_is_not_cancelled() -> None:
    """The thread that takes the answer out of the table ends it."""
    stage = Stage()
    answer = stage.submit()
    taken = stage.pending.take(answer.request_id)
    assert taken is answer

    assert not answer.cancel()
    answer.end(Internal("no"))

    assert isinstance(answer.exception(0), Internal)
    assert not answer.cancelled()


@contextmanager
def hasty() -> Iterator[None]:
    """Let threads switch after every few steps."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


@ENDS
def test_who_ends_it_and_who_waits_may_meet(end: End, expected: object) -> None:
    """In any order of their steps, the answer ends once, and every wait ends."""
    stage = Stage()
    answers = [stage.submit(1000.0) for _ in range(1000)]
    found: list[list[object]] = []
    called: list[Answer] = []

    def look() -> None:
        for answer in answers:
            answer.when_done(called.append)
        wait(answers, SOON)
        found.append([outcome(answer, SOON) for answer in answers])

    with hasty():
        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for answer in answers:
            end(stage, answer)
        for thread in threads:
            thread.join(SOON)

    assert found == [[expected] * len(answers)] * 3
    assert len(called) == 3 * len(answers)
