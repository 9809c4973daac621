"""The lanes of a host that ends, hangs, or gives more than there is room for. `tests/contract` has what all promise."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Event

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.chunks import chunk
from tests.hosts import CRASH, FACTS, KILLED, PATIENCE, Hosts
from worker.core.chunk import Batch, Finished
from worker.core.failures import Code, DeviceLost, RowFault, RunFailure
from worker.core.records import Array, ClosedBy, HostEnd
from worker.core.tensors.many_inputs import WideFeeds
from worker.core.tensors.stacking import halve
from worker.inference.host import child
from worker.inference.host.lanes import MOST_AHEAD
from worker.inference.host.process import Ended
from worker.inference.host.shared_memory import address_of

ENDED = RunFailure(f"its process {CRASH.why}", ended_host=True)


def batch(number: int, rows: int = 1, *, is_alone: bool = False, gives_way: bool = False) -> Batch:
    feeds = {"x": np.full((rows, 4), number, np.float32)}
    return Batch([chunk()], feeds, rows, ClosedBy.SIZE, is_alone=is_alone, gives_way=gives_way)


def numbers(home: Sequence[Finished]) -> list[int]:
    return [-1 if f.batch is None else int(f.batch.feeds["x"][0, 0]) for f in home]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    hosts = Hosts()
    yield hosts
    hosts.close()


@pytest.fixture
def two_lanes() -> Iterator[Hosts]:
    hosts = Hosts(lanes=2)
    yield hosts
    hosts.close()


class Echo:
    """Gives back what it got: each input."""

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        return list(feeds.values())

    def probe(self) -> Sequence[Array] | RunFailure:
        return []


class ByName:
    """Gives back what it got, by the names of the inputs."""

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        return [feeds[name] for name in sorted(feeds)]

    def probe(self) -> Sequence[Array] | RunFailure:
        return []


class Made:
    """Gives these outputs in turn."""

    def __init__(self, *outputs: Sequence[Array] | RunFailure) -> None:
        self._outputs = list(outputs)

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:  # of a model
        return self._outputs.pop(0)

    def probe(self) -> Sequence[Array] | RunFailure:
        return []


# Ends


def test_what_a_host_had_begun_has_failed_and_what_it_had_not_begun_runs_on_the_next(hosts: Hosts) -> None:
    """The batch that waited in the host, and the one behind it, keep their order."""
    for number in range(3):
        hosts.lanes.submit(batch(number))
    assert hosts.began() == 0

    hosts.at.ends()
    (failed,) = hosts.fetch(1)
    hosts.let(None, None)
    rest = hosts.fetch(2)

    assert numbers([failed]) == [0]
    assert (failed.outputs, failed.failure) == (None, ENDED)
    assert failed.seconds >= 0
    assert numbers(rest) == [1, 2]
    assert [f.failure for f in rest] == [None, None]
    assert hosts.ended == [(*CRASH, 2)]
    assert hosts.started == ["the worker starts", f"the one before it {CRASH.why}"]
    assert hosts.lanes.in_flight == 0


def test_all_that_ran_side_by_side_has_failed(two_lanes: Hosts) -> None:
    """The run that did it is not known."""
    for number in range(3):
        two_lanes.lanes.submit(batch(number))
    begun = sorted([two_lanes.began(), two_lanes.began()])

    two_lanes.at.ends()
    failed = two_lanes.fetch(2)
    two_lanes.let(None)

    assert begun == sorted(numbers(failed)) == [0, 1]
    assert [f.failure for f in failed] == [ENDED, ENDED]
    assert numbers(two_lanes.fetch(1)) == [2]


def test_a_run_that_had_ended_before_its_host_did_is_no_failure(hosts: Hosts) -> None:
    """Its outputs lie in memory that outlives the host."""
    hosts.lanes.submit(batch(0))
    hosts.lanes.submit(batch(1))
    hosts.let(None)
    assert [hosts.began(), hosts.began()] == [0, 1]

    hosts.at.ends()
    first, second = hosts.fetch(2)

    assert first.outputs is not None
    assert first.outputs[0].tolist() == [[0.0] * 4]
    assert (numbers([second]), second.failure) == ([1], ENDED)


def test_what_is_submitted_while_no_host_is_ready_waits_for_it(hosts: Hosts) -> None:
    """The end is seen late, so the first batch is sent in vain."""
    hosts.at.ends()
    for number in range(4):
        hosts.lanes.submit(batch(number))
    hosts.lanes.finished(0.0)

    hosts.let(None, None, None, None)

    assert numbers(hosts.fetch(4)) == [0, 1, 2, 3]


def test_records_that_must_run_alone_do_so_and_others_go_between(hosts: Hosts) -> None:
    """Nothing is in the host next to one of them; between two go as many others as a host holds."""
    for number in range(2):
        hosts.lanes.submit(batch(number))
    assert hosts.began() == 0
    hosts.lanes.resubmit([batch(number, is_alone=True) for number in (10, 11, 12)])
    for number in range(2, 6):
        hosts.lanes.submit(batch(number))
    assert hosts.lanes.in_flight == 6  # those that wait to run alone are not counted

    held = []
    home = []
    for _ in range(9):
        held.append(sorted(numbers([Finished(run.batch, None, None, 0) for run in hosts.lanes._given.values()])))
        hosts.let(None)
        home += hosts.fetch(1)

    assert numbers(home) == [0, 1, 10, 2, 3, 11, 4, 5, 12]
    assert [of for of in held if len(of) == 1 and of[0] >= 10] == [[10], [11], [12]]
    assert all(max(of) < 10 for of in held if len(of) > 1)


def test_after_a_hosts_end_others_have_as_long_as_it_held_them_up(hosts: Hosts) -> None:
    """Before the next record that may end a host; or else each would cost them a start for two batches."""
    hosts.lanes._usual = 1.0  # seconds of a run, so that none is given ahead
    hosts.lanes.resubmit([batch(number, is_alone=True) for number in (10, 11)])
    assert hosts.began() == 10
    hosts.facts = None  # the next host takes its time
    hosts.at.ends()
    hosts.fetch(1)
    for number in range(8):
        hosts.lanes.submit(batch(number))
    hosts.facts = FACTS
    hosts.later += 3
    hosts.at.ends()  # while it starts
    hosts.later += 2
    hosts.turn_until(lambda: len(hosts.started) == 2)
    hosts.let(*[None] * 5)
    assert numbers(hosts.fetch(5)) == [0, 1, 2, 3, 4]

    hosts.later += 30
    hosts.let(*[None] * 4)

    assert numbers(hosts.fetch(4)) == [5, 6, 11, 7]


def test_batches_that_give_way_let_others_go_before_them(hosts: Hosts) -> None:
    """Others have as long as the last of them took. The host has one of them at a time, and while it is idle, any."""
    hosts.lanes._usual = 1.0  # seconds of a run, so that none is given ahead
    hosts.lanes.submit(batch(0))
    hosts.lanes.resubmit([batch(number, gives_way=True) for number in (10, 11, 12)])
    for number in range(1, 6):
        hosts.lanes.submit(batch(number))
    assert hosts.lanes.in_flight == 6  # so that the loop hands out others, also while the host has one of them
    hosts.let(None)
    assert [hosts.began(), hosts.began()] == [0, 10]
    hosts.later += 5
    hosts.let(None, None, None)
    assert numbers(hosts.fetch(4)) == [0, 10, 1, 2]

    hosts.later += 6
    hosts.let(None, None)
    assert numbers(hosts.fetch(2)) == [3, 4]
    hosts.let(*[None] * 3)

    assert numbers(hosts.fetch(3)) == [11, 5, 12]
    assert hosts.lanes.in_flight == 0


@pytest.mark.parametrize("room", ["of its own", "lent"])
def test_a_run_of_which_some_rows_failed_gives_the_outputs_of_the_others(room: str) -> None:
    """They come as other outputs do."""
    size = 4 if room == "lent" else 4000
    failure = RunFailure("no", faults={1: RowFault(Code.INTERNAL, "no")}, left=[2])
    hosts = Hosts(runner=Made([np.zeros((3, 4))], replace(failure, outputs=[np.ones((1, size))])))
    hosts.lanes.submit(batch(0, 3))
    hosts.lanes.submit(batch(1, 3))

    _, parted = hosts.fetch(2)

    assert parted.outputs is None
    assert parted.failure is not None
    assert (parted.failure, parted.failure.left) == (failure, [2])
    assert [output.tolist() for output in parted.failure.outputs or ()] == [[[1.0] * size]]
    hosts.close()


def test_a_lone_record_whose_run_ends_the_host_has_failed(hosts: Hosts) -> None:
    """No other run can have done it."""
    hosts.lanes.resubmit([batch(7, is_alone=True)])
    assert hosts.began() == 7

    hosts.at.ends()

    (failed,) = hosts.fetch(1)
    assert failed.failure == ENDED


def test_a_kill_from_outside_spares_a_lone_record_once(hosts: Hosts) -> None:
    """Who kills from outside does not mean a single record; a record that takes all memory is killed again."""
    hosts.lanes.resubmit([batch(7, is_alone=True), batch(8, is_alone=True)])
    assert hosts.began() == 7
    hosts.at.ends(KILLED)
    hosts.turn_until(lambda: len(hosts.started) == 2)
    assert hosts.began() == 7  # before its neighbour

    hosts.at.ends(KILLED)

    (failed,) = hosts.turn_until(lambda: len(hosts.started) == 3)
    assert numbers([failed]) == [7]
    assert failed.failure == RunFailure(f"its process {KILLED.why}", ended_host=True)
    assert hosts.began() == 8


@pytest.mark.parametrize("ended", [CRASH, KILLED])
def test_a_host_that_ends_in_its_warm_up_batch_is_replaced_once(hosts: Hosts, ended: Ended) -> None:
    """The next has run it to become ready; if it ends in it too, the device is broken."""
    hosts.lanes.probe()
    assert hosts.began() == -1
    hosts.at.ends(ended)
    hosts.turn_until(lambda: len(hosts.started) == 2)
    assert hosts.began() == -1

    hosts.at.ends(ended)

    (failed,) = hosts.fetch(1)
    assert (failed.batch, failed.failure) == (None, RunFailure(f"its process {ended.why}", ended_host=True))


def test_a_lane_with_a_defect_ends_its_host(hosts: Hosts) -> None:
    """It does not die alone and in silence."""
    hosts.lanes.submit(batch(0))
    hosts.let(TypeError("a defect"))

    (failed,) = hosts.fetch(1)

    assert failed.failure == RunFailure("its process ended with exit status 1", ended_host=True)


def test_a_lost_device_ends_its_host_with_the_model_s_own_words(hosts: Hosts) -> None:
    """A batch that waits in the host does not hide them."""
    hosts.lanes.submit(batch(0))
    hosts.lanes.submit(batch(1))
    hosts.let(DeviceLost("CUDA failure 700"))

    (failed,) = hosts.fetch(1)

    assert failed.failure == RunFailure("its process lost its device: CUDA failure 700", ended_host=True)
    assert hosts.ended == [(HostEnd.CRASH, "lost its device: CUDA failure 700", 2)]


class Loop:
    """The loop's use of the lanes: it submits batches, and has the records of failed ones run alone."""

    def __init__(self, lanes: int) -> None:
        self.hosts = Hosts(lanes=lanes)
        self._out: set[int] = set()
        self._count = 0

    @property
    def is_busy(self) -> bool:
        return bool(self._out) or self.hosts.lanes._is_awaited

    def do(self, step: str) -> None:
        match step:
            case "submit" | "alone":
                self._submit(batch(self._count, is_alone=step == "alone"))
                self._count += 1
            case "probe":
                self.hosts.lanes.probe()
            case "let":
                self.hosts.let(None)
            case "look":
                self.look()
            case "crash" | "kill":
                self.hosts.at.ends(CRASH if step == "crash" else KILLED)

    def look(self) -> None:
        for one in self.hosts.lanes.finished(0.0 if self.hosts.runner.permits.empty() else 0.001):
            assert one.failure is None or one.failure.ended_host
            if one.batch is not None:
                self._out.remove(*numbers([one]))
                self._conclude(one, one.batch)

    def _submit(self, one: Batch) -> None:
        self._out.update(one.feeds["x"][:1, 0].astype(int).tolist())
        if one.is_alone:
            self.hosts.lanes.resubmit([one])
        else:
            self.hosts.lanes.submit(one)

    def _conclude(self, one: Finished, ran: Batch) -> None:
        if one.failure is None:
            assert outputs_of(one)[0].tolist() == ran.feeds["x"].tolist()
        elif ran.is_alone:
            event("a lone record failed")
        else:
            event("a batch failed")
            self._submit(ran._replace(is_alone=True))


@settings(deadline=None, max_examples=60)  # the host's threads take their time
@given(
    st.lists(
        st.sampled_from(["submit", "submit", "let", "let", "alone", "probe", "look", "crash", "kill"]), max_size=40
    ),
    st.integers(1, 3),
)
def test_whenever_hosts_end_each_batch_comes_back_once_with_its_own_outputs(steps: list[str], lanes: int) -> None:
    """Or as a failure, and its records alone; at the end no memory and no number is lent."""
    loop = Loop(lanes)
    for step in steps:
        loop.do(step)
    give_up = time.monotonic() + PATIENCE
    while loop.is_busy:
        if loop.hosts.runner.permits.empty():
            loop.do("let")
        loop.look()
        assert time.monotonic() < give_up, "it did not come home"
    gone = loop.hosts
    gone.heap._put_back()

    assert gone.lanes.in_flight == 0
    assert sorted(gone.lanes._numbers) == list(range(lanes + MOST_AHEAD))
    assert not gone.lanes._begun.any()
    assert not gone.heap._lent
    gone.close()


# Time. A limit is met with three seconds to spare, because the machine may be busy.


def pass_by(hosts: Hosts, seconds: int) -> list[Finished]:
    """Let so many seconds pass; the loop looks at the lanes once in each."""
    home: list[Finished] = []
    for _ in range(seconds):
        hosts.later += 1
        home += hosts.lanes.finished(0.0)
    return home


def test_a_run_over_its_limit_ends_the_host(hosts: Hosts) -> None:
    """Not before; and the batch that waits in it runs on the next."""
    hosts.lanes.submit(batch(0))
    hosts.lanes.submit(batch(1))
    assert hosts.began() == 0
    assert not pass_by(hosts, 57)

    home = pass_by(hosts, 6)
    (failed,) = home + hosts.turn_until(lambda: len(hosts.started) == 2)

    assert failed.failure is not None
    assert failed.failure.message == "its process ran for more than 60 s (WORKER_MODEL__RUN_TIMEOUT_S)"
    assert failed.failure.ended_host
    assert hosts.ended[0][0] is HostEnd.HANG
    assert hosts.began() == 1


@pytest.mark.parametrize(("longest", "limit"), [(0.01, 5), (2, 20), (30, 60), (0.0, 60)])
def test_after_a_hang_a_record_has_ten_times_the_longest_run_that_succeeded(
    hosts: Hosts, longest: float, limit: int
) -> None:
    """But five seconds at least, no more than the limit of all runs, and that where none has succeeded."""
    hosts.lanes._longest, hosts.lanes._hung = longest, True
    hosts.lanes.resubmit([batch(7, is_alone=True)])
    assert hosts.began() == 7

    assert not pass_by(hosts, limit - 3)
    (failed,) = pass_by(hosts, 6) or hosts.fetch(1)

    assert failed.failure is not None
    assert failed.failure.message.startswith(f"its process ran for more than {limit} s")
    assert ("RUN_TIMEOUT_S" in failed.failure.message) == (limit == 60)


def test_a_lone_record_has_all_the_time_after_another_end_than_a_hang(hosts: Hosts) -> None:
    """It may be a slow one whose host was killed."""
    hosts.lanes._longest = 0.01
    hosts.lanes.resubmit([batch(7, is_alone=True)])
    assert hosts.began() == 7

    assert not pass_by(hosts, 57)

    assert not hosts.ended


def test_a_host_that_stood_still_with_the_whole_machine_gets_its_time_again(hosts: Hosts) -> None:
    """The worker did not look meanwhile either."""
    hosts.lanes.submit(batch(0))
    assert hosts.began() == 0
    hosts.later += 3600

    assert not pass_by(hosts, 57)
    assert not hosts.ended

    assert (pass_by(hosts, 6) or hosts.fetch(1))[0].failure is not None


@pytest.fixture
def deaf() -> Iterator[Hosts]:
    """A host that takes no job, and has waited for one for longer than a run may take."""
    hosts = Hosts(of_lanes=0)
    hosts.of_lanes = 1
    pass_by(hosts, 100)
    yield hosts
    hosts.close()


def test_a_host_that_begins_nothing_is_ended_and_nothing_has_failed(deaf: Hosts) -> None:
    """It was stopped, or a thread of the model keeps the interpreter."""
    deaf.lanes.submit(batch(0))
    pass_by(deaf, 57)
    assert not deaf.ended

    pass_by(deaf, 6)
    deaf.turn_until(lambda: len(deaf.started) == 2)
    deaf.let(None)

    assert deaf.fetch(1)[0].failure is None
    assert deaf.ended == [(HostEnd.HANG, "began no run for more than 60 s (WORKER_MODEL__RUN_TIMEOUT_S)", 1)]


def test_a_run_that_began_late_has_its_whole_time(deaf: Hosts) -> None:
    """The time before was no run's."""
    deaf.lanes.submit(batch(0))
    (number,) = deaf.lanes._given
    pass_by(deaf, 50)
    deaf.lanes._begun[number] = int(deaf.clock() * 1e9)

    pass_by(deaf, 57)

    assert not deaf.ended


def test_a_host_that_gives_one_run_back_has_time_to_begin_the_next(deaf: Hosts) -> None:
    """The next has waited for as long as the first ran."""
    for number in range(2):
        deaf.lanes.submit(batch(number))
    number, _ = deaf.lanes._given
    deaf.lanes._begun[number] = int(deaf.clock() * 1e9)
    pass_by(deaf, 57)
    child.send(deaf.at._theirs, (number, 59.0, [], None))

    home = pass_by(deaf, 57)

    assert numbers(home) == [0]
    assert not deaf.ended


def test_a_reply_that_came_in_time_counts_however_late_it_is_fetched(hosts: Hosts) -> None:
    """The loop has other things to do."""
    hosts.lanes.submit(batch(0))
    assert hosts.began() == 0
    pass_by(hosts, 57)
    hosts.let(None)
    assert hosts.at._waiting.poll(PATIENCE * 1000)  # the reply is here

    hosts.later += 4
    (ran,) = hosts.fetch(1)

    assert ran.failure is None


# Tensors


def outputs_of(run: Finished) -> Sequence[Array]:
    assert run.outputs is not None
    return run.outputs


def test_outputs_longer_than_their_room_come_in_a_memory_of_their_own() -> None:
    """From the next run on there is room for as many bytes a row."""
    long = np.arange(3000, dtype=np.int64).reshape(3, 1000)
    hosts = Hosts(runner=Made([long], [long[:2]], [long + 1]))
    rooms = []
    for rows in (3, 2, 3):
        hosts.lanes.submit(batch(0, rows))
        rooms += [len(run.room) for run in hosts.lanes._given.values() if run.room is not None]
        (run,) = hosts.fetch(1)
        assert np.array_equal(outputs_of(run)[0], long[:rows] + (len(rooms) == 3))

    assert rooms == [0, 64 + 16000, 64 + 24000]
    hosts.close()


def test_one_row_of_huge_outputs_leaves_memory_for_the_batches_after_it() -> None:
    """The room for a batch of such rows would not fit: its outputs come in a memory of their own."""
    huge, small = np.zeros((1, 1 << 18), np.uint8), np.zeros((256, 4), np.uint8)
    hosts = Hosts(runner=Made([huge], [small], [small]), memory=1 << 22)
    for rows in (1, 256, 256):
        hosts.lanes.submit(batch(0, rows))
        (run,) = hosts.fetch(1)
        assert len(outputs_of(run)[0]) == rows
    hosts.close()


def test_texts_numbers_and_nothing_cross_as_they_are() -> None:
    """Feeds outside the shared memory, states among them, are copied; outputs without elements have their shape."""
    hosts = Hosts(runner=Echo())
    feeds = {
        "texts": np.array([["a", "ü\0"], ["", "🎂"]], object),
        "halves": np.array([[1.5], [2.5]], np.float16),
        "flags": np.array([True, False]),
        "nothing": np.empty((2, 0, 3), np.float32),
        "turned": np.arange(6, dtype=np.int32).reshape(3, 2).T,
    }
    states = {"state": np.array([[1.0], [2.0]])}
    hosts.lanes.submit(Batch([chunk()], feeds, 2, ClosedBy.SIZE, states))

    (run,) = hosts.fetch(1)

    for got, put in zip(outputs_of(run), (*feeds.values(), *states.values()), strict=True):
        assert (got.dtype, got.shape, got.tolist()) == (put.dtype, put.shape, put.tolist())
    hosts.close()


def test_feeds_in_the_shared_memory_are_not_copied_and_neither_are_halves_of_them() -> None:
    """The rows of a half are in one piece."""
    hosts = Hosts(runner=Echo())
    array = hosts.heap.room(64).empty((4, 4), np.dtype(np.float32))
    array[:] = np.arange(16).reshape(4, 4)
    whole = Batch([chunk(0, 1, 2, 3)], {"x": array}, 4, ClosedBy.SIZE)
    halves = halve(whole)
    hosts.lanes.resubmit(halves)

    first, second = hosts.fetch(2)

    assert [hosts.lanes._placed(half)[1] for half in halves] == [{}, {}]
    assert outputs_of(first)[0].tolist() == array[:2].tolist()
    assert outputs_of(second)[0].tolist() == array[2:].tolist()
    hosts.close()


@pytest.mark.parametrize("is_shared", [True, False])
def test_feeds_that_lie_in_one_array_cross_with_one_place(is_shared: bool) -> None:  # noqa: FBT001  # a parameter of pytest
    """The host gets each by its name, beside others; if the array lies elsewhere, they are copied."""
    hosts = Hosts(runner=ByName())
    names = ("c", "a", "b")
    whole = hosts.heap.room(64).empty((3, 2, 1), np.dtype(np.int64)) if is_shared else np.empty((3, 2, 1), np.int64)
    whole[:] = np.arange(6).reshape(3, 2, 1)
    texts = np.array([["x"], ["y"]], object)
    feeds = WideFeeds({"t": texts, **dict(zip(names, whole, strict=True))}, {names: whole, "t": texts})
    given = Batch([chunk()], feeds, 2, ClosedBy.SIZE)
    hosts.lanes.submit(given)
    hosts.lanes.submit(given._replace(states={"s": np.array([[7], [8]])}))

    first, second = hosts.fetch(2)

    assert [each.tolist() for each in outputs_of(first)] == [[[2], [3]], [[4], [5]], [[0], [1]], [["x"], ["y"]]]
    assert [each.tolist() for each in outputs_of(second)[:4]] == [[[2], [3]], [[4], [5]], [[0], [1]], [[7], [8]]]
    hosts.close()


def test_memory_comes_back_when_nothing_refers_to_it() -> None:
    """An output stays as it is for as long as it is held, or a part of it."""
    hosts = Hosts(runner=Echo())
    kept = []
    for number in range(3):
        hosts.lanes.submit(batch(number))
        (run,) = hosts.fetch(1)
        kept.append(outputs_of(run)[0][0, 1:3])
    del run
    values = [part.tolist() for part in kept]
    places = {address_of(part) for part in kept}
    lent = len(hosts.heap._lent)
    kept.clear()
    hosts.heap._put_back()

    assert values == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    assert len(places) == 3
    assert lent > len(hosts.heap._lent) == 0
    hosts.close()


# How much a host gets ahead


def test_a_host_gets_more_brief_batches_ahead(hosts: Hosts) -> None:
    """As much as three milliseconds of work, but sixteen batches at most; those of a slow model one."""
    counts = []
    for usual in (1.0, 0.003, 0.0015, 0.001, 0.00001):
        hosts.lanes._usual = usual
        counts.append((hosts.lanes.more_ahead, hosts.lanes.is_busy))

    assert counts == [(0, False), (0, False), (1, False), (2, False), (MOST_AHEAD - 1, False)]


def test_lanes_of_brief_batches_need_not_be_looked_after(hosts: Hosts) -> None:
    """The loop fetches their outputs in its own time."""
    hosts.lanes.submit(batch(0))
    busy = []
    for usual in (0.001, 0.0004):
        hosts.lanes._usual = usual
        busy.append(hosts.lanes.is_busy)

    assert busy == [True, False]


def test_a_host_has_numbers_for_as_many_lanes_as_may_be_set() -> None:
    """And for all that may be given ahead of them."""
    hosts = Hosts(lanes=64, runner=Echo())
    hosts.lanes._usual = 1e-9
    for number in range(100):
        hosts.lanes.submit(batch(number))

    assert sorted(numbers(hosts.fetch(100))) == list(range(100))
    hosts.close()


def test_memory_that_ran_out_next_to_other_runs_is_tried_alone(two_lanes: Hosts) -> None:
    """And not where there was no other lane."""
    no_memory = RunFailure("no memory", Code.RESOURCE_EXHAUSTED)
    for number in range(2):
        two_lanes.lanes.submit(batch(number))
    assert sorted([two_lanes.began(), two_lanes.began()]) == [0, 1]
    two_lanes.let(no_memory)
    two_lanes.turn_until(lambda: two_lanes.lanes.in_flight == 1)  # the other waits to run alone
    two_lanes.let(None)
    first = two_lanes.fetch(1)
    again = two_lanes.began()
    two_lanes.let(no_memory)
    (failed,) = two_lanes.fetch(1)

    assert sorted([*numbers(first), again]) == [0, 1]
    assert (numbers([failed]), failed.failure) == ([again], no_memory)


class Narrow:
    """A device on which the warm-up batch lacks memory beside a run, which ends when the test lets it."""

    def __init__(self) -> None:
        self.may_end = Event()

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        assert self.may_end.wait(PATIENCE)
        return [feeds["x"]]

    def probe(self) -> Sequence[Array] | RunFailure:
        return [] if self.may_end.is_set() else RunFailure("no memory", Code.RESOURCE_EXHAUSTED)


def test_a_warm_up_batch_without_memory_beside_a_run_is_tried_alone_and_is_no_batch_in_flight() -> None:
    """One batch is in flight, however the warm-up batch waits."""
    device = Narrow()
    hosts = Hosts(lanes=2, runner=device)
    hosts.lanes.submit(batch(7))
    hosts.lanes.probe()
    hosts.turn_until(lambda: hosts.lanes._alone)
    in_flight = hosts.lanes.in_flight
    device.may_end.set()
    home = hosts.fetch(2)

    assert in_flight == 1
    assert numbers(home) == [7, -1]
    assert [finished.failure for finished in home] == [None, None]
    hosts.close()


def test_a_single_lane_does_not_run_again_what_ran_out_of_memory(hosts: Hosts) -> None:
    """The batch behind it had not begun."""
    no_memory = RunFailure("no memory", Code.RESOURCE_EXHAUSTED)
    hosts.lanes.submit(batch(0))
    hosts.lanes.submit(batch(1))
    hosts.let(no_memory, None)

    assert [f.failure for f in hosts.fetch(2)] == [no_memory, None]


def test_closing_drops_what_waits_and_ends_the_host(hosts: Hosts) -> None:
    """A run that hangs does not keep it."""
    for number in range(3):
        hosts.lanes.submit(batch(number))
    hosts.lanes.resubmit([batch(3, is_alone=True)])
    assert hosts.began() == 0

    hosts.lanes.close(0.5)

    assert hosts.at.ended == (HostEnd.CRASH, "was closed after 0.5 s")
    assert len(hosts.hosts) == 1
