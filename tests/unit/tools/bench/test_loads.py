"""The figures of a load: latencies from due instants, rates, and whether they are the contender's."""

from __future__ import annotations

import numpy as np
import pytest

from worker.tools.bench.loads import (
    WARM_UP_S,
    Backlog,
    Heard,
    Now,
    Sent,
    Steady,
    Window,
    latency_ms,
    steady_flow,
    window_flow,
)


def test_a_steady_load_sends_what_is_due_whatever_comes_back() -> None:
    """A sender that was held up catches up; it ends early where the broker keeps no more."""
    pace = Steady(rate=10.0, count=100)

    assert [pace.ready(Now(at, sent, 0)) for at, sent in ((0.0, 0), (0.05, 1), (1.0, 3), (99.0, 100))] == [1, 0, 8, 0]
    assert pace.until_next(Now(0.05, 1, 0)) == pytest.approx(0.05)
    assert pace.is_over(Now(9.9, 100, 0))
    assert Steady(10.0, 100, most=5).is_over(Now(0.5, 6, 1))


def test_a_window_holds_half_a_second_of_answers_within_its_bounds() -> None:
    """It fills batches at first, and grows with the rate."""
    pace = Window(least=64, most=500, seconds=2.0)

    ready = [pace.ready(now) for now in (Now(0.0, 0, 0), Now(1.0, 400, 300), Now(1.0, 9000, 8900))]

    assert ready == [64, 50, 400]
    assert pace.is_over(Now(WARM_UP_S + 2.0, 0, 0))


def test_a_backlog_goes_at_once() -> None:
    """All that is not sent yet."""
    assert Backlog(10).ready(Now(0.0, 4, 0)) == 6
    assert Backlog(10).is_over(Now(0.0, 10, 0))


def test_a_latency_counts_from_the_instant_a_request_was_due() -> None:
    """A request that left late has waited all the same; one without an answer has waited until the end."""
    pace, dues = Steady(100.0, 200), np.arange(200) / 100
    sent = Sent(5.0, dues)
    late = Sent(5.0, dues + 0.5)
    answered = 5.0 + dues + 0.6

    found = steady_flow(pace, sent, Heard(np.arange(200), answered), ended=9.0)
    held_up = steady_flow(pace, late, Heard(np.arange(200), answered), ended=9.0)
    lost = steady_flow(pace, sent, Heard(np.arange(190), answered[:190]), ended=60.0)

    assert found.latency_ms == held_up.latency_ms == pytest.approx({"p50": 600.0, "p99": 600.0})
    assert found.is_paced
    assert not held_up.is_paced
    assert (lost.unanswered, lost.keeps_up) == (10, False)
    assert lost.latency_ms["p99"] > 50_000


def test_a_queue_that_grows_is_seen() -> None:
    """Half of the answers come after the load: the latency would be greater with every second."""
    pace, dues = Steady(100.0, 200), np.arange(200) / 100

    calm = steady_flow(pace, Sent(0.0, dues), Heard(np.arange(200), dues + 0.05), ended=3.0)
    slow = steady_flow(pace, Sent(0.0, dues), Heard(np.arange(200), dues * 2), ended=5.0)

    assert calm.keeps_up
    assert not slow.keeps_up


def test_a_closed_loop_counts_the_answers_after_its_warm_up() -> None:
    """A window that is empty half of the time, or a reader that is behind, makes the rate the generator's."""
    pace = Window(least=50, most=50, seconds=2.0)
    sent = np.linspace(0.0, 2.5, 2500)

    busy = window_flow(pace, Sent(0.0, sent), Heard(np.arange(2500), sent + 0.05))
    starved = window_flow(pace, Sent(0.0, sent), Heard(np.arange(2500), sent + 0.001))
    behind = window_flow(pace, Sent(0.0, sent), Heard(np.arange(2500), sent + 0.05, behind=0.9))

    assert busy.requests_per_second == pytest.approx(1000.0, rel=0.01)
    assert (busy.is_paced, starved.is_paced, behind.is_paced) == (True, False, False)


def test_a_quantile_needs_as_many_samples_as_can_show_it() -> None:
    """A p99 needs a hundred."""
    assert set(latency_ms(np.ones(99))) == {"p50"}
    assert set(latency_ms(np.ones(100))) == {"p50", "p99"}
