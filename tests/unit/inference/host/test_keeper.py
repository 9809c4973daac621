"""The keeper: when a host is started, ended and given up, by a script of what the process says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.chunks import signature, spec
from tests.hosts import CRASH, FACTS
from worker.core.failures import BadConfiguration, ModelBroken
from worker.core.records import HostEnd
from worker.inference.facts import Device
from worker.inference.host.keeper import Keeper
from worker.inference.host.messages import Broken, CannotLoad, Job, Loaded, Message
from worker.inference.host.process import Ended
from worker.inference.host.shared_memory import SharedMemory

LOADED = Loaded(FACTS)
OTHER = Loaded(replace(FACTS, signature=signature(spec(dims=(2,)))))
ELSEWHERE = Loaded(replace(FACTS, device=Device("cuda:1", "it is a test")))
END = None  # of a script: the process ends there


class Scripted:
    """A process that says these things, one at each `receive`; after END, or a kill, it is over.

    One that `is_held` is over after a look: a process that it started has its socket.
    """

    def __init__(self, script: Sequence[Message | None], at: float) -> None:
        self._script = list(script)
        self.started_at = at
        self.pid = 7
        self.is_over = self.is_held = False
        self.jobs: list[Job] = []
        self.verdict: Ended | None = None
        self.was_closed_after: float | None = None

    def give(self, job: Job) -> None:
        self.jobs.append(job)

    def receive(self, _: float) -> Sequence[tuple[Message, SharedMemory | None]]:
        if self.verdict is not None or (self._script and self._script[0] is END and not self.is_held):
            self.is_over = True
        elif self._script and (message := self._script.pop(0)) is not None:
            return [(message, None)]
        return []

    def look(self) -> None:
        self.is_held = False

    def kill(self, cause: HostEnd, why: str) -> None:
        self.verdict = self.verdict or Ended(cause, why)

    def end(self, patience: float = 1.0) -> Ended:
        self.was_closed_after = patience
        return self.verdict or CRASH


class World:
    """A keeper of processes with these scripts, in turn; its clock and what it reported."""

    def __init__(self, *scripts: Sequence[Message | None]) -> None:
        self._scripts = list(scripts)
        self.now = 100.0
        self.processes: list[Scripted] = []
        self.reports: list[tuple[object, ...]] = []
        self.keeper = Keeper(self._start, self, lambda: self.now)  # type: ignore[arg-type]  # by its methods

    def host_started(self, pid: int, seconds: float, why: str) -> None:
        self.reports.append((pid, seconds, why))

    def host_ended(self, end: HostEnd, why: str, batches: int) -> None:
        self.reports.append((end, why, batches))

    def turn(self, batches: int = 0) -> Ended | None:
        self.keeper.receive(0.0)
        ended = self.keeper.ended(batches)
        self.keeper.look()
        return ended

    def _start(self) -> Scripted:
        self.processes.append(Scripted(self._scripts.pop(0), self.now))
        return self.processes[-1]


def test_the_first_host_s_facts_are_waited_for() -> None:
    """Then it takes jobs."""
    world = World([LOADED])
    world.now += 2.5

    assert world.keeper.facts is FACTS
    assert world.keeper.facts is FACTS
    assert world.keeper.is_ready
    world.keeper.give((1, None, 0, 0))
    assert world.processes[0].jobs == [(1, None, 0, 0)]
    assert world.reports == [(7, 2.5, "the worker starts")]


def test_a_model_that_is_refused_is_told_in_its_words() -> None:
    """The process ends with it."""
    with pytest.raises(BadConfiguration, match=r"^m\.onnx: it has no inputs$"):
        _ = World([CannotLoad("m.onnx: it has no inputs")]).keeper.facts


@pytest.mark.parametrize(
    ("script", "why"), [([END], CRASH.why), ([Broken("no device"), END], "lost its device: no device")]
)
def test_a_first_host_that_ends_is_a_broken_model(script: Sequence[Message | None], why: str) -> None:
    """There is nothing to go back to."""
    world = World(script)

    with pytest.raises(ModelBroken, match=f"^the model's process {why}, while it loaded the model and warmed it up$"):
        _ = world.keeper.facts


def test_a_first_host_that_ends_while_something_holds_its_socket_is_not_waited_for() -> None:
    """It may have started a process of its own while it loaded the model."""
    world = World([END])
    world.processes[0].is_held = True

    with pytest.raises(ModelBroken, match=CRASH.why):
        _ = world.keeper.facts


def test_a_host_that_ends_is_followed_at_once_by_another() -> None:
    """It takes no jobs before it has loaded the model."""
    world = World([LOADED, END], [LOADED])
    _ = world.keeper.facts
    world.now += 10

    ready = [world.keeper.is_ready]
    assert world.turn(batches=2) == CRASH
    ready.append(world.keeper.is_ready)
    world.now += 3
    assert world.turn() is None
    ready.append(world.keeper.is_ready)

    assert ready == [True, False, True]
    assert world.reports[1:] == [(*CRASH, 2), (7, 3, f"the one before it {CRASH.why}")]


def test_the_device_is_given_up_after_three_failed_starts_in_a_row() -> None:
    """There is a second between two; the model's own words are in the message."""
    world = World([LOADED, END], [END], [CannotLoad("no such file"), END], [Broken("no device"), END])
    _ = world.keeper.facts
    assert world.turn() == CRASH
    counts = []
    for _ in range(2):
        for _ in range(2):
            assert world.turn() is None
        counts.append(len(world.processes))
        world.now += 0.99
        world.turn()
        counts.append(len(world.processes))
        world.now += 0.02
        world.turn()

    world.turn()
    with pytest.raises(ModelBroken) as given_up:
        world.turn()

    assert counts == [2, 2, 3, 3]
    assert "3 times in a row before its warm-up was over" in str(given_up.value)
    assert "it lost its device: no device" in str(given_up.value)
    assert [why for _, why, _ in world.reports[2:]] == [
        CRASH.why,
        "could not load the model: no such file",
        "lost its device: no device",
    ]


def test_a_success_ends_the_row() -> None:
    """The next failed starts are counted from the first."""
    world = World([LOADED, END], [END], [END], [LOADED, END], [END], [END], [LOADED])
    _ = world.keeper.facts

    for _ in range(40):
        world.turn()
        world.now += 0.5

    assert world.keeper.is_ready
    assert len(world.processes) == 7


@pytest.mark.parametrize(
    ("other", "why"), [(OTHER, "loaded another model"), (ELSEWHERE, "found cuda:1 where the worker began with cpu")]
)
def test_another_model_or_device_is_not_taken(other: Loaded, why: str) -> None:
    """Requests that wait were decoded for the first one, and without its GPU a worker would be slow and silent."""
    world = World([LOADED, END], [other])
    _ = world.keeper.facts
    world.turn()
    world.turn()
    world.turn()

    assert not world.keeper.is_ready
    end, reported, _ = world.reports[-1]
    assert end is HostEnd.CRASH
    assert str(reported).startswith(why)


@pytest.mark.parametrize(("first", "most"), [(0.0, 60), (3.0, 90)])
def test_a_start_may_take_ten_times_the_first_and_a_minute(first: float, most: float) -> None:
    """The first may take as long as it likes."""
    world = World([LOADED, END], [])
    world.now += first
    world.keeper.look()
    _ = world.keeper.facts
    world.turn()
    world.now += most
    world.turn()
    assert world.processes[1].verdict is None

    world.now += 1
    world.turn()

    assert world.processes[1].verdict == (HostEnd.HANG, f"took longer than {most} s to load the model")


def test_a_kill_and_a_close_find_no_host_between_two_starts() -> None:
    """Nothing is there to be ended."""
    world = World([LOADED, END], [END])
    _ = world.keeper.facts
    for _ in range(2):
        world.turn()
        world.now += 0.1

    world.keeper.kill(HostEnd.HANG, "")
    world.keeper.close(1.0)

    assert world.keeper.receive(0.0) == []
    assert len(world.processes) == 2


def test_a_host_is_killed_and_closed() -> None:
    """A close gives it time."""
    world = World([LOADED])
    _ = world.keeper.facts

    world.keeper.kill(HostEnd.HANG, "ran too long")
    world.keeper.close(1.5)

    assert world.processes[0].verdict == (HostEnd.HANG, "ran too long")
    assert world.processes[0].was_closed_after == 1.5


def test_a_host_that_loads_its_model_is_closed_at_once() -> None:
    """The worker was refused for another reason, and says so without a delay."""
    world = World([])

    world.keeper.close(1.5)

    assert world.processes[0].was_closed_after == 0.0
