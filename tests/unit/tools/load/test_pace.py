"""When requests are due, and that they are sent then."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.unit.tools.load.server import Server
from worker.tools.load.pace import WARM_UP_S, Backlog, Now, Steady, Window


def test_a_steady_load_sends_each_request_when_it_is_due() -> None:
    """Request n leaves n / rate seconds after the first, and none before."""
    sent, _ = Server().bear(Steady(rate=100.0, count=50))

    late = sent.instants - np.arange(50) / 100.0
    assert sent.requests == 50
    assert late.min() >= -1e-9
    assert late.max() < 0.001


def test_a_steady_load_does_not_wait_for_answers() -> None:
    """A server that answers nothing gets every request in time."""
    sent, _ = Server(stall=(0.0, 60.0)).bear(Steady(rate=100.0, count=50))

    assert sent.instants[-1] == pytest.approx(0.49, abs=0.001)


def test_after_a_hold_up_all_that_is_due_goes_at_once() -> None:
    """A sender that was held up for a second does not move its plan by a second."""
    sent, _ = Server(stall=(0.1, 1.1), blocks=True).bear(Steady(rate=100.0, count=150))

    assert sent.instants[-1] == pytest.approx(1.49, abs=0.01)


def test_a_steady_load_ends_early_where_no_more_would_fit() -> None:
    """More unanswered requests than the broker keeps would be lost, and that would be our own fault."""
    sent, _ = Server(stall=(0.0, 60.0)).bear(Steady(rate=1000.0, count=500, most=100))

    assert 100 <= sent.requests < 110


def test_a_window_is_as_deep_as_half_a_second() -> None:
    """A slow server gets no more than it works off soon, a fast one as much as the broker keeps."""
    window = Window(least=10, most=4000, seconds=1.0)

    assert window.size(1.0) == 10
    assert window.size(2000.0) == 1000
    assert window.size(1e6) == 4000


def test_a_window_is_refilled_as_answers_come() -> None:
    """Never more under way than its size, and never an idle server."""
    server = Server(service=0.001)

    sent, heard = server.bear(Window(least=20, most=1000, seconds=1.0))

    assert sent.instants[-1] <= WARM_UP_S + 1.0
    assert heard.instants[-1] - 100.0 == pytest.approx(sent.requests * 0.001, rel=0.02)


def test_a_backlog_goes_at_once() -> None:
    """All of it, and nothing after."""
    backlog = Backlog(5000)

    assert backlog.ready(Now(0.0, 0, 0)) == 5000
    assert not backlog.is_over(Now(1.0, 4999, 0))
    assert backlog.is_over(Now(1.0, 5000, 0))
    assert Server().bear(backlog)[0].requests == 5000


def test_without_a_limit_a_steady_load_never_ends_early() -> None:
    """A real broker keeps whatever is sent."""
    assert not Steady(1.0, 10).is_over(Now(math.inf, 9, -(10**9)))
