"""What `profile` says of measurements that are made up: each verdict, in words."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from tests.unit.tools.profile.builders import measured, steady
from worker.tools.profile.engine.advice import Need, advise
from worker.tools.profile.engine.costs import TRANSPORT_SECONDS, MeasuredCosts
from worker.tools.profile.engine.forecast import Forecaster
from worker.tools.profile.engine.knee import knee
from worker.tools.profile.engine.sweep import SizeTimings, TooLarge
from worker.tools.profile.page import milliseconds
from worker.tools.profile.report import Profile, Subject
from worker.tools.profile.screen import show

SUBJECT = Subject("m\x1b[31m", "1", "m.onnx", "cpu", "WORKER_MODEL__DEVICE is cpu", 1, 1, 1.0)
SIZES = (1, 4, 16)


def profile(sizes: Sequence[SizeTimings], need: Need | None = None, too_large: TooLarge | None = None) -> Profile:
    forecasts = Forecaster(MeasuredCosts(sizes), TRANSPORT_SECONDS, requests=1000)
    advice = None if need is None else advise(need, [size.rows for size in sizes], forecasts)
    return Profile(SUBJECT, sizes, too_large, knee({s.rows: s.rows_per_s for s in sizes}), TRANSPORT_SECONDS, advice)


def told(profile: Profile) -> str:
    """In one line, as a terminal of 80 columns has it in several."""
    screen = Console(file=io.StringIO(), width=80)
    show(screen, profile)
    assert isinstance(screen.file, io.StringIO)
    text = screen.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.split())


def test_batches_are_advised_with_what_they_save() -> None:
    """Replicas with and without them."""
    text = told(profile(steady(SIZES, fixed=0.01), Need(900, 0.2)))

    assert "Batch: with up to 16 rows in a batch 1 replica is enough; one request at a time would take 13." in text
    assert "WORKER_BATCHING__MAX_BATCH_SIZE=16 The replica gets 900 requests/s" in text


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.25, "250"), (0.025, "25.00"), (0.00028, "0.28"), (0.000099, "0.099"), (0.0000041, "0.0041")],
)
def test_a_short_time_is_told_with_more_digits(seconds: float, told: str) -> None:
    """0.00 ms would say nothing of a small model's inference."""
    assert milliseconds(seconds) == told


def test_batches_that_save_nothing_are_not_advised() -> None:
    """Replicas are what helps, and partitions for them."""
    text = told(profile(steady(SIZES, fixed=0.0, per_row=0.01), Need(200, 0.5)))

    assert "Do not batch: it saves no replica. 3 replicas serve your rate within the budget." in text
    assert "Each of 3 replicas gets 67 requests/s" in text
    assert "The request topics need 3 partitions or more" in text
    assert "Larger batches gain next to nothing." in text


def test_a_budget_that_costs_replicas_is_told_with_one_that_does_not() -> None:
    """The operator can weigh them."""
    text = told(profile(steady(SIZES, fixed=0.01), Need(900, 0.028)))

    assert "The budget is what costs: with " in text
    assert "1 replica would be enough." in text


@pytest.mark.parametrize(("budget", "words"), [(3600.0, "3,600,000 ms"), (0.0425, "42.5 ms"), (0.2, "200 ms")])
def test_a_budget_is_written_as_people_write_numbers(budget: float, words: str) -> None:
    """An hour is no 3.6e+06 ms."""
    assert f"with a p99 of {words} " in told(profile(steady(SIZES, fixed=0.01), Need(10, budget)))


def test_how_long_requests_wait_for_company_is_left_to_auto() -> None:
    """It learns that from the requests, which a rate says nothing of."""
    text = told(profile(steady(SIZES, fixed=0.01), Need(900, 0.5)))

    assert "LINGER_MS stays auto, its default." in text
    assert "WORKER_BATCHING__LINGER_MS" not in text


def test_sizes_left_out_are_told_with_the_reason() -> None:
    """No one has to guess where the table ends."""
    text = told(profile(steady(SIZES, fixed=0.01), too_large=TooLarge(64, "no memory\x1b left")))

    assert "64 rows and more are left out: no memory\\x1b left" in text
    assert "It may rise further" not in text


def test_a_curve_that_still_rises_says_how_to_go_on() -> None:
    """The knee may be beyond what was measured."""
    assert "It may rise further: --batch-sizes measures larger ones." in told(profile(steady(SIZES, fixed=0.01)))


def test_a_machine_that_stalls_is_told_beside_the_table_and_the_advice() -> None:
    """Its figures are not the model's."""
    text = told(profile(measured({1: [0.01] * 50 + [0.2], 4: [0.011] * 200}), Need(10, 2.0)))

    assert "Batch sizes 1: the p99 is far above the p50" in text
    assert "The machine was unsteady, and so are these figures" in text


def test_nothing_of_a_models_name_reaches_the_terminal_raw() -> None:
    """Names come from files."""
    assert "Model m\\x1b[31m, version 1" in told(profile(steady(SIZES, fixed=0.01)))


def test_what_exactly_once_adds_is_told_with_what_is_assumed() -> None:
    """The settings may ask for it; the simulation has no transactions."""
    text = told(profile(steady(SIZES, fixed=0.01), Need(900, 0.2)))

    assert "with exactly once an answer waits for its transaction's end, so COMMIT_INTERVAL_MS belongs to --tr" in text


def test_a_length_that_was_made_up_is_told() -> None:
    """A text of 16 tokens takes a fraction of one of 256, and the page would not show which it was."""
    found = profile(steady(SIZES, fixed=0.01))
    assert "long" not in told(found)

    found.open_axes = {"ids\x1b:1": 16, "mask:1": 16}

    assert "ids\\x1b:1 is 16 long, mask:1 is 16 long: the model's file leaves that open." in told(found)


@pytest.mark.parametrize(("threads", "words"), [(0, "all cores"), (1, "1 thread"), (4, "4 threads")])
def test_the_threads_of_an_inference_are_told(threads: int, words: str) -> None:
    """They decide what a core of the device is worth."""
    found = profile(steady(SIZES, fixed=0.01))
    found.subject = SUBJECT._replace(threads=threads)

    assert f"an inference on the CPU has {words}" in told(found)
