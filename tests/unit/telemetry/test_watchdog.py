"""The watchdog ends a process that hangs, and no other. Time is passed in."""

from __future__ import annotations

from itertools import count
from threading import Event, Thread

import pytest

from worker.telemetry.watchdog import CHECK_EVERY, LEAVE_TIMEOUT, REPORT_TIMEOUT, ForcedExit, TimeLimits, Watchdog


class Watched:
    """A worker as the watchdog sees it, with the test's clock."""

    def __init__(self, run: float | None = 10.0) -> None:
        self.now = 100.0
        self.heartbeat: float | None = None
        self.running_since: float | None = None
        self.stop_asked = False
        self.verdict: ForcedExit | None = None
        self.watchdog = Watchdog(
            TimeLimits(turn=30.0, run=run, stop=20.0),
            heartbeat=lambda: self.heartbeat,
            running_since=lambda: self.running_since,
            stop_asked=lambda: self.stop_asked,
            report=lambda _code, _reason: None,
            clock=lambda: self.now,
        )

    def begin(self) -> Watched:
        self.watchdog.let_begin(lambda: None)
        return self

    def after(self, seconds: float, *, turning: bool = True) -> str | None:
        """The reason of the first verdict in so many seconds of regular checks, or None."""
        for _ in range(round(seconds / CHECK_EVERY)):
            self.now += CHECK_EVERY
            if turning:
                self.heartbeat = self.now
            self.verdict = self.watchdog.check(self.now)
            if self.verdict is not None:
                return self.verdict.reason
        return None


@pytest.fixture
def watched() -> Watched:
    return Watched().begin()


def test_a_stop_ends_at_once_a_worker_that_has_not_begun() -> None:
    """The exit code is 0, since it holds nothing. Its main thread may be in a native call that takes minutes."""
    starting = Watched()
    assert starting.after(3600, turning=False) is None

    starting.stop_asked = True

    assert starting.after(CHECK_EVERY, turning=False) == "asked to before it began; nothing was taken"
    assert starting.verdict is not None
    assert starting.verdict.exit_code == 0


def test_a_loop_that_stops_turning_is_ended(watched: Watched) -> None:
    """It ends after the longest time for a turn, not before."""
    watched.after(1)

    assert watched.after(29, turning=False) is None
    assert watched.after(2, turning=False) == "the loop has not turned for 30 s"


def test_an_inference_that_hangs_is_ended_though_the_loop_turns(watched: Watched) -> None:
    """The message names the setting, in case the inference is only slow."""
    watched.running_since = watched.now

    assert watched.after(10) is None
    verdict = watched.after(1)
    assert verdict is not None
    assert verdict.startswith("an inference has been running for 10 s")
    assert "WORKER_MODEL__RUN_TIMEOUT_S" in verdict


def test_an_inference_in_another_process_is_not_ended_here() -> None:
    """The lanes end that process; the worker goes on."""
    watched = Watched(run=None).begin()
    watched.running_since = watched.now

    assert watched.after(3600) is None


def test_a_drain_that_takes_too_long_is_ended(watched: Watched) -> None:
    """The time counts from when the wish to stop was seen."""
    watched.stop_asked = True

    assert watched.after(20) is None
    assert watched.after(1) == "still not stopped 20 s after being asked to"
    assert watched.verdict is not None
    assert watched.verdict.exit_code == 3


def test_a_process_that_stood_still_gets_its_time_anew(watched: Watched) -> None:
    """After SIGSTOP, or a suspended machine, neither the loop nor the inference is at fault."""
    watched.heartbeat = watched.running_since = watched.now
    watched.after(1)
    watched.now += 3600

    assert watched.after(8, turning=False) is None
    assert watched.after(5, turning=False) is not None


def test_a_hang_is_ended_where_no_thread_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of a container's processes, it is better to end without a reason than not to end."""
    is_ended = Event()
    watchdog = Watchdog(
        TimeLimits(turn=30.0, run=0.0, stop=20.0),
        heartbeat=lambda: None,
        running_since=lambda: 0.0,
        stop_asked=lambda: False,
        report=lambda _code, _reason: None,
        clock=count(1).__next__,
        end_process=lambda _: is_ended.set(),
    )

    with watchdog:
        monkeypatch.setattr(Thread, "start", _refuse)

        assert is_ended.wait(10 * CHECK_EVERY)


def test_what_hangs_leaves_its_group_before_it_ends() -> None:
    """It does not wait for a log or a leave that hangs, too: standard error may have no reader."""
    acts: list[str] = []
    is_ended, never = Event(), Event()

    def leave() -> None:
        acts.append("left")
        never.wait()

    def report(_code: int, _reason: str) -> None:
        acts.append("told")
        never.wait()

    def end(_code: int) -> None:
        acts.append("ended")
        is_ended.set()

    watchdog = Watchdog(
        TimeLimits(turn=30.0, run=0.0, stop=20.0),
        heartbeat=lambda: None,
        running_since=lambda: 0.0,
        stop_asked=lambda: False,
        report=report,
        clock=count(1).__next__,
        end_process=end,
    )
    watchdog.let_begin(leave)

    with watchdog:
        assert is_ended.wait(REPORT_TIMEOUT + LEAVE_TIMEOUT + 20 * CHECK_EVERY)
    never.set()

    assert acts == ["told", "left", "ended"]


def _refuse(_: Thread) -> None:
    raise RuntimeError("can't start new thread")
