"""Under any interleaving each future of the client ends exactly once, and no place is lost."""

from __future__ import annotations

from collections import Counter

from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from tests.meeting import meeting, met
from tests.unit.client.builders import Stage

STEPS = st.lists(
    st.tuples(st.sampled_from(["submit", "answer", "refuse", "fail", "cancel", "wait", "close"]), st.integers(0, 7)),
    min_size=10,
    max_size=60,
)


def play(steps: list[tuple[str, int]]) -> tuple[Stage, Counter[bytes], Counter[str], int]:
    """Take the steps; return the stage, each future's number of ends, the events, and the number of answers."""
    stage = Stage(most=1000)
    answers = [stage.submit(1.0)]
    ends: Counter[bytes] = Counter()
    happened: Counter[str] = Counter()
    answers[0].when_done(lambda ended: ends.update([ended.request_id]))
    for what, number in steps:
        at = number % len(answers)
        chosen = answers[at]
        happened[f"{what} {'done' if chosen.done() else 'open'}"] += 1
        match what:
            case "submit" if not stage.pending.is_closed:
                answers.append(stage.submit(1.0 + number))
                answers[-1].when_done(lambda ended: ends.update([ended.request_id]))
            case "answer":
                stage.arrive(chosen)
            case "refuse":
                stage.arrive(chosen, b"error", b'{"error":"no"}')
            case "fail":
                stage.producer.fail(stage.producer.sent[at], KafkaError._MSG_TIMED_OUT)
            case "cancel":
                chosen.cancel()
            case "close":
                stage.pending.close()
        stage.turn(number / 4 if what == "wait" else 0.0)
    came = happened["answer open"] + happened["refuse open"] + happened["answer done"] + happened["refuse done"]
    stage.exchange._end()
    assert all(answer.done() for answer in answers)
    return stage, ends, happened, came


@meeting(
    "answer open", "answer done", "refuse open", "fail open", "fail done", "cancel open", "cancel done", "wait open"
)
@given(STEPS)
def test_each_future_ends_exactly_once(steps: list[tuple[str, int]]) -> None:
    """Each answer that came is a result, late, or a repeat."""
    stage, ends, happened, came = play(steps)
    for case in happened:
        met(case)

    assert set(ends.values()) == {1}
    assert len(stage.pending) == 0
    answered = happened["answer open"] + happened["refuse open"]
    assert stage.pending.late + stage.pending.repeats == came - answered
