"""Counting: buckets, sums and snapshots that stay as they were."""

import numpy as np
import pytest

from worker.telemetry.metrics import METRICS
from worker.telemetry.tally import Histogram, Kind, Metric, Tally

SIZES = Metric("sizes", Kind.HISTOGRAM, "?", bounds=(1.0, 2.0, 5.0))
EVENTS = Metric("events", Kind.COUNTER, "?", labels=("kind",), values=(("good",),))
TURNS = Metric("turns", Kind.COUNTER, "?")


def test_a_value_on_a_bound_belongs_to_the_bucket_below_it() -> None:
    """As Prometheus reads `le`."""
    histogram = Histogram((1.0, 2.0))

    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)

    assert histogram.buckets.counts == (2, 2, 1)
    assert histogram.buckets.total == pytest.approx(7.5)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 1000])
def test_many_values_count_as_one_by_one(count: int) -> None:
    """Whether numpy counts them or not."""
    values = (np.random.default_rng(count).integers(0, 12, count) / 2).tolist()
    one_by_one, at_once = Histogram(SIZES.bounds), Histogram(SIZES.bounds)

    for value in values:
        one_by_one.observe(value)
    at_once.observe_all(values)

    assert at_once.buckets.counts == one_by_one.buckets.counts
    assert at_once.buckets.total == pytest.approx(one_by_one.buckets.total)


def test_known_labels_are_shown_from_zero() -> None:
    """A rate over a counter that appears with its first event misses that event."""
    numbers = Tally([EVENTS, TURNS]).numbers()

    assert numbers == {EVENTS: {("good",): 0.0}, TURNS: {(): 0.0}}


def test_what_was_handed_out_does_not_change() -> None:
    """Another thread reads it while the loop goes on counting."""
    tally = Tally([EVENTS, SIZES])
    tally.add(EVENTS, 2, "good")
    numbers, histograms = tally.numbers(), tally.histograms()

    tally.add(EVENTS, 1, "bad")
    tally.observe(SIZES, 1.0)

    assert numbers == {EVENTS: {("good",): 2.0}}
    assert histograms[SIZES].counts == (0, 0, 0, 0)
    assert tally.number(EVENTS, "bad") == 1.0


def test_every_metric_has_a_question_and_a_name_of_its_own() -> None:
    """Times are in seconds and say so."""
    names = [metric.name for metric in METRICS]

    assert len(set(names)) == len(names)
    assert all(metric.question.rstrip().endswith(("?", ".")) and "?" in metric.question for metric in METRICS)
    assert all(metric.unit in {"", "seconds", "bytes", "ratio"} for metric in METRICS)
    assert all(metric.name.endswith(metric.unit) for metric in METRICS)
    assert all(bool(metric.bounds) == (metric.kind is Kind.HISTOGRAM) for metric in METRICS)
