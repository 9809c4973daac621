"""Counting: buckets, sums and snapshots that stay as they were."""

import pytest

from worker.telemetry.metrics.declared import METRICS
from worker.telemetry.metrics.metric_values import Histogram, Metric, MetricKind, MetricValues

SIZES = Metric("sizes", MetricKind.HISTOGRAM, "?", bounds=(1.0, 2.0, 5.0))
EVENTS = Metric("events", MetricKind.COUNTER, "?", labels=("kind",), values=(("good",),))
TURNS = Metric("turns", MetricKind.COUNTER, "?")


def test_a_value_on_a_bound_belongs_to_the_bucket_below_it() -> None:
    """As Prometheus reads `le`."""
    histogram = Histogram((1.0, 2.0))

    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)

    assert histogram.state.counts == (2, 2, 1)
    assert histogram.state.total == pytest.approx(7.5)


def test_one_value_counts_as_often_as_it_is_said() -> None:
    """Records that were taken and settled together waited equally long."""
    one_by_one, at_once = Histogram(SIZES.bounds), Histogram(SIZES.bounds)

    for _ in range(5):
        one_by_one.observe(1.5)
    at_once.observe(1.5, 5)

    assert at_once.state == one_by_one.state


def test_known_labels_are_shown_from_zero() -> None:
    """A rate over a counter that appears with its first event misses that event."""
    numbers = MetricValues([EVENTS, TURNS]).numbers()

    assert numbers == {EVENTS: {("good",): 0.0}, TURNS: {(): 0.0}}


def test_what_was_handed_out_does_not_change() -> None:
    """Another thread reads it while the loop goes on counting."""
    values = MetricValues([EVENTS, SIZES])
    values.add(EVENTS, 2, "good")
    numbers, histograms = values.numbers(), values.histograms()

    values.add(EVENTS, 1, "bad")
    values.observe(SIZES, 1.0)

    assert numbers == {EVENTS: {("good",): 2.0}}
    assert histograms[SIZES].counts == (0, 0, 0, 0)
    assert values.numbers()[EVENTS]["bad",] == 1.0


def test_every_metric_has_a_question_and_a_name_of_its_own() -> None:
    """Times are in seconds and say so."""
    names = [metric.name for metric in METRICS]

    assert len(set(names)) == len(names)
    assert all(metric.question.rstrip().endswith(("?", ".")) and "?" in metric.question for metric in METRICS)
    assert all(metric.name.endswith("_seconds") for metric in METRICS if metric.kind is MetricKind.AGE)
    assert all(bool(metric.bounds) == (metric.kind is MetricKind.HISTOGRAM) for metric in METRICS)
