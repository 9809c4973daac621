"""What a person at a terminal is told: when it is ready, how it goes, and nothing while there is nothing."""

from __future__ import annotations

import threading

import pytest

from tests.unit.telemetry.test_events import P0, P1, Watched, batch, rejection
from worker.core.records import Standing
from worker.telemetry.metrics.metric_values import Snapshot
from worker.telemetry.rates import HEADS, quantile, rates
from worker.telemetry.terminal_report import EVERY, ROWS_BELOW_HEADS, TerminalLines, TerminalReport

PAGE = "http://127.0.0.1:8080/"
BOUNDS = (0.1, 0.2, 0.4)


class Report:
    """A worker's events, and what is said of them."""

    def __init__(self, page: str | None = PAGE) -> None:
        self.watched = Watched()
        self.lines = TerminalLines(page)

    def ready(self) -> list[str]:
        self.watched.events.model_warmed("digits", "1", "cpu")
        self.watched.events.assigned([P0, P1])
        return self.turn()

    def work(self, requests: int = 100, seconds_each: float = 0.02) -> None:
        """Of so many requests in full batches each is answered."""
        events = self.watched.events
        events.taken(requests)
        events.batch_closed(batch(32), waited=0.001)
        events.settled({self.watched.now - seconds_each: requests}, self.watched.now)

    def turn(self, in_flight: int = 0) -> list[str]:
        self.watched.turn(EVERY, in_flight)
        return list(self.lines.of(self.watched.events.latest))


@pytest.fixture
def report() -> Report:
    return Report()


@pytest.mark.parametrize(
    ("page", "told"), [(PAGE, f"ready until Ctrl-C; live page: {PAGE}"), (None, "ready until Ctrl-C")]
)
def test_a_worker_is_ready_once(page: str | None, told: str) -> None:
    """Once it is in its group and its loop turns; with the live page's address, if there is a page."""
    report = Report(page)
    before = report.turn()
    report.watched.events.model_warmed("digits", "1", "cpu")
    report.watched.events.assigned([P0])

    unturned = list(TerminalLines(page).of(Snapshot(None)))
    ready = report.turn()
    report.watched.events.lost([P0], 0)
    report.watched.events.assigned([P0])

    assert (before, unturned, ready, report.turn()) == ([], [], [told], [])


def test_rates_are_of_the_seconds_since_the_last_row(report: Report) -> None:
    """Each figure stands below its head."""
    report.ready()
    report.work(1000)
    report.watched.events.rejected(rejection())
    report.watched.events.consumer_seen(1, {P0: Standing(0, 12_345)})

    heads, row = report.turn()

    assert heads == HEADS
    assert row == "       200        200       1        100%    18 ms    25 ms   12,345"
    assert len(f"12:34:56  {heads}") <= 80


def test_heads_come_again_after_a_minute_and_after_a_pause(report: Report) -> None:
    """They are in sight above every row."""
    report.ready()
    said = []
    for _ in range(ROWS_BELOW_HEADS + 1):
        report.work()
        said.append(report.turn())
    report.turn()
    report.work()

    assert [len(lines) for lines in said] == [2] + [1] * (ROWS_BELOW_HEADS - 1) + [2]
    assert report.turn()[0] == HEADS


def test_nothing_is_said_while_there_is_nothing_to_do(report: Report) -> None:
    """But what is taken and not answered is said again and again: it may be stuck."""
    report.ready()

    assert [report.turn(), report.turn()] == [[], []]
    assert report.turn(in_flight=3)[1].split() == ["0", "0", "0", "–", "–", "–", "–"]


def test_a_loop_that_does_not_turn_has_no_rates(report: Report) -> None:
    """Its counters are those of a moment ago. What it did meanwhile is told with its next turn."""
    report.ready()
    report.work(500)
    latest = report.watched.events.latest

    assert list(report.lines.of(latest)) == []
    assert rates(latest, latest) is None
    assert report.turn()[1].split()[0] == "100"


def test_small_rates_have_a_fraction(report: Report) -> None:
    """One request in five seconds is not none."""
    report.ready()
    report.work(1, seconds_each=0.0004)

    assert report.turn()[1].split()[:2] == ["0.2", "0.2"]


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.0004, "0.38 ms"), (0.004, "3.8 ms"), (0.3, "375 ms"), (4.0, "3.8 s"), (20.0, "20 s")]
)
def test_a_latency_has_two_figures_or_three(seconds: float, told: str, report: Report) -> None:
    """In the unit in which they are short."""
    report.ready()
    report.work(seconds_each=seconds)

    assert f"  {told}  " in report.turn()[1]


@pytest.mark.parametrize(
    ("counts", "share", "found"),
    [
        ([0, 0, 0, 0], 0.5, None),
        ([10, 0, 0, 0], 0.5, 0.05),
        ([0, 10, 0, 0], 0.5, 0.15),
        ([5, 0, 5, 0], 0.99, 0.396),
        ([1, 0, 0, 99], 0.5, 0.4),
    ],
)
def test_a_quantile_lies_in_its_bucket(counts: list[int], share: float, found: float | None) -> None:
    """As far in it as its share of the bucket's answers; beyond the last bound nothing is known."""
    assert quantile(share, BOUNDS, counts) == (None if found is None else pytest.approx(found))


def test_what_is_said_comes_from_a_thread_of_its_own() -> None:
    """It ends with the worker."""
    shown, said = Report(), threading.Event()
    shown.ready()
    whose: list[str] = []

    def say(line: str) -> None:
        whose.append(f"{threading.current_thread().name}: {line}")
        said.set()

    report = TerminalReport(lambda: shown.watched.events.latest, say, PAGE)
    assert said.wait(10.0)
    (thread,) = (each for each in threading.enumerate() if each.name == "report")
    report.close()
    thread.join(10.0)

    assert whose == [f"report: ready until Ctrl-C; live page: {PAGE}"]
    assert not thread.is_alive()
