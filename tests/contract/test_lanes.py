"""The lanes' promises to the loop: order, accounting, waiting, and that nothing dies unseen.

The lanes run real threads here, over runners that the test steers, and once over a real model. The promises of the port
are shown by the lanes of this process and by those of a host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import get_ident

import numpy as np
import pytest

from tests import models
from tests.chunks import chunk
from tests.hosts import PATIENCE, Hosts, SteeredRunner
from worker.core.chunk import Batch, Finished
from worker.core.failures import Code, ModelBroken, RunFailure
from worker.core.records import Array, ClosedBy
from worker.inference.model_loading import load
from worker.inference.thread_lane import ThreadLane
from worker.settings import ModelSettings


def batch(number: int) -> Batch:
    return Batch([chunk()], {"x": np.full((1, 4), number, np.float32)}, 1, ClosedBy.SIZE)


class Lanes:
    """The lane of this process with its runner, as `Hosts` has those of a host."""

    ahead = 0  # batches that are given to a lane before it is idle, so that nothing overtakes them

    def __init__(self, brief: float = 0.0) -> None:
        self.runner = SteeredRunner()
        self.lanes = ThreadLane(self.runner, brief=brief)

    def fetch(self, count: int) -> list[Finished]:
        home: list[Finished] = []
        while len(home) < count:
            arrived = self.lanes.finished(PATIENCE)
            assert arrived, "nothing came home"
            home += arrived
        return home

    def close(self) -> None:
        for _ in range(20):
            self.runner.permits.put(None)
        assert self.lanes.close(PATIENCE)


@pytest.fixture(params=[Lanes, Hosts])
def steered(request: pytest.FixtureRequest) -> Iterator[Lanes | Hosts]:
    lanes: Lanes | Hosts = request.param()
    yield lanes
    lanes.close()


@pytest.fixture
def threads() -> Iterator[Lanes]:
    lanes = Lanes()
    yield lanes
    lanes.close()


def numbers(home: Sequence[Finished]) -> list[int]:
    return [-1 if f.batch is None else int(f.batch.feeds["x"][0, 0]) for f in home]


def test_a_batch_that_gives_way_is_behind_others_and_takes_no_place(steered: Lanes | Hosts) -> None:
    """The loop hands out another as if it were not there."""
    steered.lanes.submit(batch(0))
    steered.lanes.resubmit([batch(10)._replace(gives_way=True)])
    steered.lanes.submit(batch(1))
    assert steered.lanes.in_flight == 2
    assert steered.lanes.is_busy
    for _ in range(3):
        steered.runner.permits.put(None)

    assert sorted(numbers(steered.fetch(3))) == [0, 1, 10]
    assert steered.lanes.in_flight == 0


def test_batches_start_in_the_order_submitted(steered: Lanes | Hosts) -> None:
    """They also come back with their outputs and their run times."""
    for number in range(5):
        steered.lanes.submit(batch(number))
        steered.runner.permits.put(None)

    home = steered.fetch(5)

    assert numbers(home) == [0, 1, 2, 3, 4]
    assert all(f.outputs is not None and f.outputs[0][0, 0] == at for at, f in enumerate(home))
    assert all(f.failure is None and f.seconds >= 0 for f in home)


def test_halves_and_probes_go_to_the_head_of_the_queue(steered: Lanes | Hosts) -> None:
    """A bisect ends before the next batch begins, so no waiting batch is overtaken twice."""
    steered.lanes.submit(batch(0))
    assert steered.runner.began.get(timeout=PATIENCE) == 0
    ahead = [8] * steered.ahead
    for number in (*ahead, 9):
        steered.lanes.submit(batch(number))
    steered.lanes.resubmit([batch(1), batch(2)])
    steered.lanes.probe()
    for _ in range(5 + len(ahead)):
        steered.runner.permits.put(None)

    assert numbers(steered.fetch(5 + len(ahead))) == [0, *ahead, -1, 1, 2, 9]


def test_what_is_finished_keeps_no_lane_busy(threads: Lanes) -> None:
    """Until it is fetched it is in flight."""
    threads.lanes.submit(batch(0))
    was_busy = threads.lanes.is_busy
    threads.runner.permits.put(None)
    deadline = time.monotonic() + PATIENCE
    while threads.lanes.is_busy and time.monotonic() < deadline:
        time.sleep(0.001)

    assert (was_busy, threads.lanes.is_busy) == (True, False)
    assert threads.lanes.in_flight == 1
    threads.fetch(1)


def test_in_flight_counts_what_is_submitted_and_not_fetched(steered: Lanes | Hosts) -> None:
    """Halves count, probes do not."""
    counts = [steered.lanes.in_flight]
    steered.lanes.submit(batch(0))
    counts.append(steered.lanes.in_flight)
    steered.lanes.resubmit([batch(1), batch(2)])
    counts.append(steered.lanes.in_flight)
    steered.lanes.probe()
    counts.append(steered.lanes.in_flight)
    for _ in range(4):
        steered.runner.permits.put(None)
    steered.fetch(4)
    counts.append(steered.lanes.in_flight)

    assert counts == [0, 1, 3, 3, 0]


def test_nothing_is_waited_for_when_nothing_is_out(steered: Lanes | Hosts) -> None:
    """Else the loop would sleep through its next record."""
    began = time.monotonic()

    assert not steered.lanes.finished(PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2


def test_a_running_batch_is_waited_for_no_longer_than_asked(steered: Lanes | Hosts) -> None:
    """Then nothing has come back, and the batch is still in flight."""
    steered.lanes.submit(batch(0))

    assert list(steered.lanes.finished(0.0)) == []
    assert list(steered.lanes.finished(0.01)) == []
    assert steered.lanes.in_flight == 1


def test_a_probe_is_waited_for_and_comes_home_without_a_batch(steered: Lanes | Hosts) -> None:
    """The wait happens although a probe does not count as in flight."""
    steered.lanes.probe()
    steered.runner.permits.put(RunFailure("no device"))

    (home,) = steered.fetch(1)

    assert home.batch is None
    assert home.failure == RunFailure("no device")


def test_a_failure_comes_home_with_its_batch(steered: Lanes | Hosts) -> None:
    """The lane goes on."""
    failed = batch(0)
    steered.lanes.submit(failed)
    steered.lanes.submit(batch(1))
    steered.runner.permits.put(RunFailure("poison", Code.INTERNAL))
    steered.runner.permits.put(None)

    first, second = steered.fetch(2)

    assert (first.batch, first.outputs, first.failure) == (failed, None, RunFailure("poison"))
    assert second.failure is None


def test_of_several_inferences_the_oldest_is_the_one_to_watch() -> None:
    """Any lane may hang while the others go on."""
    several = Hosts(lanes=2)
    several.lanes.submit(batch(0))
    several.runner.began.get(timeout=PATIENCE)
    first = several.lanes.running_since
    several.lanes.submit(batch(1))
    several.runner.began.get(timeout=PATIENCE)

    assert several.lanes.running_since == first is not None
    several.close()


def test_the_age_of_the_running_inference_is_known_and_starts_anew_with_each(steered: Lanes | Hosts) -> None:
    """So a long bisect, which is many short runs, is no hang."""
    ages = [steered.lanes.running_since]
    steered.lanes.submit(batch(0))
    steered.lanes.submit(batch(1))
    for _ in range(2):
        steered.runner.began.get(timeout=PATIENCE)
        ages.append(steered.lanes.running_since)
        steered.runner.permits.put(None)
        steered.fetch(1)
    ages.append(steered.lanes.running_since)

    idle, first, second, idle_again = ages
    assert idle is None
    assert idle_again is None
    assert first is not None
    assert second is not None
    assert first < second


@pytest.mark.parametrize("death", [TypeError("a defect"), SystemExit(1)])
def test_a_lane_that_dies_is_raised_on_the_loop_s_thread_each_time(death: BaseException) -> None:
    """Earlier results are delivered first."""
    steered = Lanes()
    steered.lanes.submit(batch(0))
    steered.lanes.submit(batch(1))
    steered.runner.permits.put(None)
    steered.runner.permits.put(death)

    assert numbers(steered.fetch(1)) == [0]
    for _ in range(2):
        with pytest.raises(ModelBroken, match=f"an inference thread died of {type(death).__name__}"):
            steered.fetch(1)
    steered.close()


@pytest.mark.parametrize("is_probed", [False, True])
def test_a_lost_device_is_raised_as_it_was_said(threads: Lanes, *, is_probed: bool) -> None:
    """The model's own verdict reaches the operator unchanged, even before the first batch."""
    threads.runner.permits.put(ModelBroken("the device is lost: CUDA failure 700"))
    if is_probed:
        threads.lanes.probe()
    else:
        threads.lanes.submit(batch(0))

    with pytest.raises(ModelBroken, match=r"^the device is lost: CUDA failure 700$"):
        threads.fetch(1)


def test_closing_drops_what_waits_and_gives_up_on_a_hung_run(threads: Lanes) -> None:
    """Python cannot interrupt a native call: the process must be able to end during one."""
    threads.lanes.submit(batch(0))
    threads.lanes.submit(batch(1))
    threads.runner.began.get(timeout=PATIENCE)

    assert not threads.lanes.close(0.05)
    threads.runner.permits.put(None)
    assert threads.lanes.close(PATIENCE)
    assert threads.runner.began.empty()


class NotingRunner:
    """Notes which thread runs each batch. A batch takes as many seconds of CPU time as its number.

    By the clock it takes `slowness` times as long.
    """

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.processor = self.clock = 0.0
        self.slowness = 2
        self.ages: list[float | None] = []
        self.lanes: ThreadLane | None = None

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        number = float(feeds["x"][0, 0])
        self.threads.append(get_ident())
        self.processor += number
        self.clock += number * self.slowness
        assert self.lanes is not None
        self.ages.append(self.lanes.running_since)
        return [feeds["x"]]

    def probe(self) -> Sequence[Array] | RunFailure:
        raise AssertionError("nobody asked for it")


class Noting:
    """A lane with a runner that notes threads; less than 8 s is brief."""

    def __init__(self, brief: float = 8.0) -> None:
        self.runner = NotingRunner()
        self.lanes = ThreadLane(
            self.runner,
            clock=lambda: self.runner.clock,
            brief=brief,
            processor_clock=lambda: self.runner.processor,
        )
        self.runner.lanes = self.lanes

    def run(self, *numbers: int) -> list[bool]:
        """Run batches one after the other; return which of them ran on this thread."""
        before = len(self.runner.threads)
        for number in numbers:
            self.lanes.submit(batch(number))
            assert self.lanes.finished(PATIENCE)
        return [thread == get_ident() for thread in self.runner.threads[before:]]


@pytest.fixture
def noting() -> Iterator[Noting]:
    noting = Noting()
    yield noting
    assert noting.lanes.close(PATIENCE)


def test_what_is_usually_brief_runs_on_the_loop_s_thread(noting: Noting) -> None:
    """The first run tells how long they take. After a long one, several have to be brief again."""
    assert noting.run(1, 1, 1) == [False, True, True]
    assert noting.run(160) == [True]  # nobody could know
    assert noting.run(1, 1) == [False, False]
    assert noting.run(*[1] * 10)[-1]


def test_what_runs_on_the_loop_s_thread_stays_until_it_takes_twice_as_long(noting: Noting) -> None:
    """A busy machine makes all runs longer; if they went to the lane they would stay there, too."""
    noting.run(1)

    assert all(noting.run(*[12] * 50))
    assert not noting.run(*[20] * 50)[-1]
    assert not any(noting.run(*[12] * 50))


def test_what_begins_to_wait_for_something_else_goes_back_to_a_lane(noting: Noting) -> None:
    """Eight in a row are no accident of the machine."""
    assert noting.run(1, 1) == [False, True]
    noting.runner.slowness = 1000

    assert noting.run(*[1] * 10) == [True] * 8 + [False] * 2


def test_nothing_runs_on_the_loop_s_thread_unless_that_is_wanted() -> None:
    """The loop must keep an accelerator busy, not wait for it."""
    noting = Noting(brief=0.0)

    assert not any(noting.run(0, 0, 0))
    assert noting.lanes.close(PATIENCE)


def test_nothing_overtakes_what_is_in_a_lane() -> None:
    """Even a brief batch does not overtake."""
    steered = Lanes(brief=PATIENCE)
    steered.lanes.submit(batch(0))
    steered.runner.permits.put(None)
    steered.fetch(1)
    steered.lanes.resubmit([batch(1)])
    assert [steered.runner.began.get(timeout=PATIENCE) for _ in range(2)] == [0, 1]

    steered.lanes.submit(batch(2))
    for _ in range(2):
        steered.runner.permits.put(None)

    assert numbers(steered.fetch(2)) == [1, 2]
    steered.close()


def test_a_real_model_runs_on_a_lane(tmp_path: Path) -> None:
    """The outputs are right, a failing batch comes back as a failure, and the probe passes."""
    model = load(ModelSettings(path=models.save(models.lookup(), tmp_path), device="cpu"), max_batch_size=4)
    lanes = ThreadLane(model)
    good, bad = (Batch([chunk()], {"id": np.array([[i]])}, 1, ClosedBy.LINGER) for i in (3, 99))
    lanes.submit(good)
    lanes.submit(bad)
    home: list[Finished] = []
    while lanes.in_flight:
        home += lanes.finished(PATIENCE)
    lanes.probe()
    (probe,) = lanes.finished(PATIENCE)

    assert [f.batch for f in home] == [good, bad]
    assert home[0].outputs is not None
    assert home[0].outputs[0].tolist() == [[[6.0, 7.0]]]
    assert home[1].failure is not None
    assert probe.failure is None
    assert lanes.close(PATIENCE)
