"""The figures of a load, the check that they measure the contender, and the sentences about them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from worker.tools.bench.figures import (
    WARM_UP_S,
    Contender,
    Costs,
    Figures,
    Flow,
    Heard,
    Now,
    Sent,
    Steady,
    Window,
    latency_ms,
    steady_flow,
    verdict,
    window_flow,
)


def test_a_steady_load_sends_what_is_due_whatever_comes_back() -> None:
    """A sender that was held up catches up."""
    pace = Steady(rate=10.0, count=100)

    assert [pace.ready(Now(at, sent, 0)) for at, sent in ((0.0, 0), (0.05, 1), (1.0, 3), (99.0, 100))] == [1, 0, 8, 0]
    assert pace.until_next(Now(0.05, 1, 0)) == pytest.approx(0.05)
    assert pace.is_over(Now(9.9, 100, 0))


def test_a_window_holds_half_a_second_of_answers_within_its_bounds() -> None:
    """It fills batches at first, and grows with the rate."""
    pace = Window(least=64, most=500, seconds=2.0)

    ready = [pace.ready(now) for now in (Now(0.0, 0, 0), Now(1.0, 400, 300), Now(1.0, 9000, 8900))]

    assert ready == [64, 50, 400]
    assert pace.is_over(Now(WARM_UP_S + 2.0, 0, 0))


def test_a_latency_counts_from_the_instant_a_request_was_due() -> None:
    """A request that left late has waited, too; an unanswered request has waited until the end."""
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
    assert lost.unanswered == 10
    assert lost.latency_ms["p99"] > 50_000


def test_a_closed_loop_counts_the_answers_after_its_warm_up() -> None:
    """If the window is empty half of the time, the generator limits the rate."""
    pace = Window(least=50, most=50, seconds=2.0)
    sent = np.linspace(0.0, 2.5, 2500)

    busy = window_flow(pace, Sent(0.0, sent), Heard(np.arange(2500), sent + 0.05))
    starved = window_flow(pace, Sent(0.0, sent), Heard(np.arange(2500), sent + 0.001))

    assert busy.requests_per_second == pytest.approx(1000.0, rel=0.01)
    assert (busy.is_paced, starved.is_paced) == (True, False)


def test_a_quantile_needs_as_many_samples_as_can_show_it() -> None:
    """A p99 needs a hundred samples."""
    assert set(latency_ms(np.ones(99))) == {"p50"}
    assert set(latency_ms(np.ones(100))) == {"p50", "p99"}


def flow(rate: float, *, is_paced: bool = True) -> Flow:
    return Flow(rate, 0, {"p50": 4.0, "p99": 20.0}, is_paced)


def contender(name: str, rate: float, *, is_paced: bool = True) -> Contender:
    return Contender(name, flow(rate, is_paced=is_paced), flow(500.0), {}, None)


def figures(costs: Costs, *, is_paced: bool = True) -> Figures:
    """The figures of a worker that answers 5,000 requests a second, 200 µs each."""
    worker = contender("the worker", 5000.0, is_paced=is_paced)
    return Figures([worker, contender("the plain loop", 2500.0), contender("one by one", 1000.0)], costs, 500.0, "json")


@pytest.mark.parametrize(
    ("costs", "is_paced", "limit"),
    [
        (Costs(190.0, 5.0, 20.0), True, "model"),
        (Costs(5.0, 150.0, 190.0), True, "encoding"),
        (Costs(5.0, 150.0, None), True, "encoding"),
        (Costs(5.0, 20.0, 190.0), True, "loop"),
        (Costs(5.0, 20.0, 190.0), False, "generator"),
        (Costs(5.0, 20.0, 40.0), True, "machine"),
    ],
)
def test_the_limit_is_what_takes_the_time(costs: Costs, limit: str, is_paced: bool) -> None:  # noqa: FBT001 - pytest's
    """It is the model's lane, the encoding within the loop, the rest of the loop, the load itself, or none of these."""
    assert figures(costs, is_paced=is_paced).limit == limit


def test_plain_rows_are_never_the_limit() -> None:
    """Nothing is cheaper to read, so the loop is the limit."""
    rows = replace(figures(Costs(5.0, 150.0, 190.0)), encoding="rows")

    assert rows.limit == "loop"


def test_the_verdict_says_what_batching_buys_and_what_the_limit_is() -> None:
    """Each sentence has the figures that it follows from."""
    buys, limit = verdict(figures(Costs(5.0, 150.0, 190.0)))

    assert buys.startswith("Batching pays here: the worker answers 5,000 requests a second, 2.0 times as many as the")
    assert limit.startswith("The model needs 5.0 of the 200 µs a request, the worker's loop 190, of which json 150:")
    assert "the encoding is your limit" in limit


def test_figures_that_are_not_the_contenders_are_said_to_be() -> None:
    """The generator was late."""
    found = figures(Costs(5.0, 150.0, 190.0))
    worker = replace(found.contenders[0], steady=flow(500.0, is_paced=False))

    said = " ".join(verdict(replace(found, contenders=[worker, *found.contenders[1:]])))

    assert "(*): these latencies are its own: the worker." in said
