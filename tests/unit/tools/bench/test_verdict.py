"""The verdict: the limit that the figures show, and the sentences that say so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from worker.tools.bench.loads import Flow
from worker.tools.bench.verdict import Contender, Costs, Figures, Limit, document, limit_of, verdict


def flow(rate: float, *, is_paced: bool = True, keeps_up: bool = True) -> Flow:
    return Flow(rate, 0, {"p50": 4.0, "p99": 20.0}, is_paced=is_paced, keeps_up=keeps_up)


def contender(name: str, rate: float, *, is_paced: bool = True) -> Contender:
    return Contender(name, flow(rate, is_paced=is_paced), flow(500.0), {}, None, 0)


def figures(costs: Costs, *, is_paced: bool = True) -> Figures:
    """A worker that answers 5,000 requests a second, 200 µs each."""
    worker = contender("the worker", 5000.0, is_paced=is_paced)
    return Figures([worker, contender("the plain loop", 2500.0), contender("one by one", 1000.0)], costs, 500.0, "json")


@pytest.mark.parametrize(
    ("costs", "is_paced", "limit"),
    [
        (Costs(190.0, 5.0, 20.0, 64.0), True, Limit.MODEL),
        (Costs(5.0, 150.0, 190.0, 64.0), True, Limit.ENCODING),
        (Costs(5.0, 150.0, None, 64.0), True, Limit.ENCODING),
        (Costs(5.0, 20.0, 190.0, 64.0), True, Limit.LOOP),
        (Costs(5.0, 20.0, 190.0, 64.0), False, Limit.GENERATOR),
        (Costs(5.0, 20.0, 40.0, 64.0), True, Limit.MACHINE),
    ],
)
def test_the_limit_is_what_takes_the_time(costs: Costs, limit: Limit, is_paced: bool) -> None:  # noqa: FBT001 - pytest's
    """The model's lane, the encoding within the loop, the rest of the loop, the load itself, or none of these."""
    assert limit_of(figures(costs, is_paced=is_paced)) is limit


def test_plain_rows_are_never_the_limit() -> None:
    """Nothing is cheaper to read: it is the loop then."""
    rows = replace(figures(Costs(5.0, 150.0, 190.0, 64.0)), encoding="rows")

    assert limit_of(rows) is Limit.LOOP


def test_the_verdict_says_what_batching_buys_and_what_the_limit_is() -> None:
    """With the figures that it follows from."""
    buys, waits, limit = verdict(figures(Costs(5.0, 150.0, 190.0, 64.0)))

    assert buys.startswith("Batching pays here: the worker answers 5,000 requests a second, 2.0 times as many as the")
    assert waits == "The p99 at 500 a second: the worker 20.0 ms, the plain loop 20.0 ms, one by one 20.0 ms."
    assert limit.startswith("The model needs 5.0 of the 200 µs a request, the worker's loop 190, of which json 150:")
    assert "the encoding is your limit" in limit


def test_figures_that_are_not_the_contenders_are_said_to_be() -> None:
    """A late generator, and a queue that grows."""
    found = figures(Costs(5.0, 150.0, 190.0, 64.0))
    worker = replace(found.contenders[0], steady=flow(500.0, is_paced=False, keeps_up=False))

    said = " ".join(verdict(replace(found, contenders=[worker, *found.contenders[1:]])))

    assert "(*): these latencies are its own: the worker." in said
    assert "(†): the worker." in said


def test_machines_get_the_figures_the_limit_and_the_verdict() -> None:
    """As JSON, next to the facts."""
    found = json.loads(json.dumps(document(figures(Costs(5.0, 150.0, 190.0, 64.0)), {"seconds": 4.0})))

    assert found["limit"] == "encoding"
    assert found["seconds"] == 4.0
    assert [each["name"] for each in found["contenders"]] == ["the worker", "the plain loop", "one by one"]
    assert found["contenders"][0]["maximum"]["requests_per_second"] == 5000.0
    assert found["costs"]["encoding_us"] == 150.0
