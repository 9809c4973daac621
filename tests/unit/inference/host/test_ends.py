"""What the lanes of a host do when it ends, hangs or stands still, without a process: its keeper is scripted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from tests.chunks import MODEL, batch, chunk
from worker.core.chunk import Batch, Finished
from worker.core.failures import RunFailure
from worker.core.records import HostEnd
from worker.core.tensors.stacking import each_alone
from worker.inference.host.lanes import ALONE_AT_LEAST, MOST_AHEAD, HostLanes
from worker.inference.host.messages import MOST_RUNS, Job, Ran
from worker.inference.host.process import Ended
from worker.inference.host.shared_memory import Heap, SharedMemory, get, packed, put

LIMIT = 60.0  # seconds of the longest run
CRASHED = Ended(HostEnd.CRASH, "died of SIGFPE")
KILLED = Ended(HostEnd.KILLED, "was killed by SIGKILL")


class FakeKeeper:
    """A keeper whose host does what a test says. `kill` ends it."""

    def __init__(self) -> None:
        self.is_ready = True
        self.facts = SimpleNamespace(signature=SimpleNamespace(key=MODEL))
        self.jobs: list[Job] = []
        self.killed: list[str] = []
        self._ran: list[tuple[Ran, SharedMemory | None]] = []
        self._ended: Ended | None = None

    def give(self, job: Job) -> None:
        self.jobs.append(job)

    def receive(self, timeout: float) -> Sequence[tuple[Ran, SharedMemory | None]]:  # nothing waits
        ran, self._ran = self._ran, []
        return ran

    def ended(self, batches: int) -> Ended | None:
        ended, self._ended = self._ended, None
        if ended is not None:
            self.jobs.clear()
        return ended

    def kill(self, cause: HostEnd, why: str) -> None:
        self.killed.append(why)
        self.end(Ended(cause, why))

    def look(self) -> None:
        pass

    def end(self, ended: Ended) -> None:
        self._ended = ended

    def answer(self, outcome: Sequence[np.ndarray] | RunFailure, memory: SharedMemory, seconds: float = 0.1) -> None:
        """Answer the oldest job, with outputs at the beginning of this memory."""
        number, *_ = self.jobs.pop(0)
        ran = outcome if isinstance(outcome, RunFailure) else put([packed(array) for array in outcome], memory.bytes)
        self._ran.append(((number, seconds, ran), memory))


class World:
    """The lanes, their keeper, their memory, and a clock that both sides read."""

    def __init__(self, lanes: int = 1, size: int = 1 << 24) -> None:
        self.now = 1000.0
        self.keeper = FakeKeeper()
        self.heap = Heap(size)
        self.lanes = HostLanes(self.keeper, self.heap, lanes, LIMIT, lambda: self.now)  # type: ignore[arg-type]

    def begin(self, job: int = 0) -> None:
        """Let the host begin its n-th job."""
        self.heap.memory.begun()[self.keeper.jobs[job][0]] = int(self.now * 1e9)

    def wait(self, seconds: float) -> list[Finished]:
        """Let time pass, with a look now and then, as the loop does."""
        finished: list[Finished] = []
        until = self.now + seconds
        while self.now < until:
            self.now += 1.0
            finished += self.lanes.finished(0.0)
        return finished

    def end(self, ended: Ended) -> Sequence[Finished]:
        """Let the host end."""
        self.keeper.end(ended)
        return self.lanes.finished(0.0)

    def run_alone(self, failed: Batch) -> None:
        """Hand out the records of a failed batch, each alone, and let the first begin."""
        self.lanes.resubmit(each_alone(failed))
        self.begin()


def offsets_of(job: Job, world: World) -> list[float]:
    """The records of a job, by their only input."""
    _, feeds, *_ = job
    assert feeds is not None
    return np.asarray(get(feeds["x"], world.heap.memory.bytes)).ravel().tolist()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.heap.close()


def test_a_batch_that_had_begun_has_failed_and_others_wait_for_the_next_host(world: World) -> None:
    """The second batch goes to the next host silently."""
    first, second = batch(chunk(0, 1)), batch(chunk(2, 3))
    world.lanes.submit(first)
    world.lanes.submit(second)
    world.begin()

    (failed,) = world.end(CRASHED)

    assert failed.batch is first
    assert failed.failure == RunFailure("its process died of SIGFPE", ended_host=True)
    assert [offsets_of(job, world) for job in world.keeper.jobs] == [[2, 3]]


def test_nothing_runs_beside_a_record_that_runs_alone(world: World) -> None:
    """The next one is given when it is done."""
    world.lanes.submit(batch(chunk(0, 1)))
    world.begin()
    (failed,) = world.end(CRASHED)
    assert failed.batch is not None
    world.run_alone(failed.batch)
    world.lanes.submit(batch(chunk(2, 3)))

    assert [offsets_of(job, world) for job in world.keeper.jobs] == [[0]]


def test_a_host_that_takes_no_batch_counts_as_hung(world: World) -> None:
    """It is stopped, or something holds its interpreter: its batches go to the next one, and none has failed."""
    world.lanes.submit(batch(chunk(0, 1)))

    assert not world.wait(LIMIT - 2)
    assert not world.keeper.killed
    assert not world.wait(4)

    assert world.keeper.killed == ["took no batch for 60 s"]
    assert [offsets_of(job, world) for job in world.keeper.jobs] == [[0, 1]]


def test_a_host_that_was_idle_for_long_has_all_its_time(world: World) -> None:
    """The limit counts from the first batch that it was given."""
    world.wait(2 * LIMIT)
    world.lanes.submit(batch(chunk(0, 1)))

    world.wait(LIMIT / 2)

    assert not world.keeper.killed


def test_a_record_whose_host_was_killed_has_all_its_time(world: World) -> None:
    """It may be a slow one, which nobody has seen before."""
    world.lanes.submit(batch(chunk(0, 1)))
    world.begin()
    (failed,) = world.end(KILLED)
    assert failed.batch is not None
    world.run_alone(failed.batch)

    world.wait(LIMIT - 2)
    assert not world.keeper.killed
    world.wait(4)
    assert world.keeper.killed == ["ran for more than 60 s (WORKER_MODEL__RUN_TIMEOUT_S)"]


def test_a_record_of_a_batch_that_hung_has_less_time(world: World) -> None:
    """So a record that hangs costs the limit once, and not twice."""
    world.lanes.submit(batch(chunk(0, 1)))
    world.begin()
    (failed,) = world.wait(LIMIT + 2)
    assert failed.batch is not None
    world.keeper.killed.clear()
    world.run_alone(failed.batch)

    world.wait(ALONE_AT_LEAST + 2)

    assert len(world.keeper.killed) == 1


def test_a_record_alone_is_run_again_once_if_its_host_is_killed_from_outside(world: World) -> None:
    """The second time the kernel may have killed it for its memory: the record has failed."""
    world.lanes.submit(batch(chunk(0)))
    world.begin()
    (failed,) = world.end(KILLED)
    assert failed.batch is not None
    world.run_alone(failed.batch)

    assert not world.end(KILLED)
    world.begin()
    (alone,) = world.end(KILLED)

    assert alone.batch is not None
    assert alone.batch.is_alone
    assert alone.failure is not None


def test_the_most_lanes_have_a_number_for_each_batch() -> None:
    """64 lanes, and as many batches ahead as there can be."""
    world = World(lanes=64)

    for _ in range(64 + MOST_AHEAD):
        world.lanes.submit(batch(chunk(0)))

    assert len(world.keeper.jobs) > 64
    assert max(number for number, *_ in world.keeper.jobs) < MOST_RUNS
    world.heap.close()


def test_one_record_with_long_outputs_does_not_use_up_the_memory(world: World) -> None:
    """Room for such outputs of a full batch would be more than there is: they come in a memory of their own."""
    world.lanes.submit(batch(chunk(0)))
    own = Heap(1 << 23)
    world.keeper.answer([np.zeros((1, 1 << 22), np.uint8)], own.memory)
    world.lanes.finished(0.0)

    world.lanes.submit(batch(chunk(*range(32))))
    world.lanes.submit(batch(chunk(*range(32))))

    assert len(world.keeper.jobs) == 2
    own.close()
