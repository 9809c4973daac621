"""Counting: buckets, sums, and snapshots that do not change."""

from __future__ import annotations

import pytest

from worker.telemetry.metrics import METRICS, Metric, Numbers

SIZES = Metric("sizes", "histogram", "?", bounds=(1.0, 2.0))
EVENTS = Metric("events", "counter", "?", labels=("kind",), known=(("good",),))
TURNS = Metric("turns", "counter", "?", known=((),))


def test_a_value_on_a_bound_belongs_to_the_bucket_below_it() -> None:
    """Prometheus reads `le` like this. One call may count a value several times."""
    numbers = Numbers([SIZES])

    for value, times in ((0.5, 1), (1.0, 1), (1.5, 3), (2.0, 1), (2.5, 1)):
        numbers.observe(SIZES, value, times)

    assert numbers.histograms()[SIZES].counts == (2, 4, 1)
    assert numbers.histograms()[SIZES].total == pytest.approx(0.5 + 1.0 + 3 * 1.5 + 2.0 + 2.5)


def test_known_labels_are_shown_from_zero() -> None:
    """A rate over a counter that appears with its first event misses that event."""
    assert Numbers([EVENTS, TURNS]).copied() == {EVENTS: {("good",): 0.0}, TURNS: {(): 0.0}}


def test_what_was_handed_out_does_not_change() -> None:
    """Another thread reads it while the loop goes on counting."""
    numbers = Numbers([EVENTS, SIZES])
    numbers.add(EVENTS, 2, "good")
    copied, histograms = numbers.copied(), numbers.histograms()

    numbers.add(EVENTS, 1, "bad")
    numbers.observe(SIZES, 1.0)

    assert copied == {EVENTS: {("good",): 2.0}}
    assert histograms[SIZES].counts == (0, 0, 0)
    assert numbers.copied()[EVENTS]["bad",] == 1.0


def test_every_metric_has_a_question_and_a_name_of_its_own() -> None:
    """Times are in seconds, and their names say so."""
    names = [metric.name for metric in METRICS]

    assert len(set(names)) == len(names)
    assert all("?" in metric.question or metric.kind == "age" for metric in METRICS)
    assert all(metric.name.endswith("_seconds") for metric in METRICS if metric.kind == "age")
    assert all(bool(metric.bounds) == (metric.kind == "histogram") for metric in METRICS)
