"""The host's own code, on threads of the test: its start, and the ways in which its lanes end."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Any

import numpy as np
import pytest

from tests.hosts import FACTS, PATIENCE
from worker.core.failures import DeviceLost, RunFailure
from worker.core.records import Array
from worker.inference.host.child import Host
from worker.inference.host.messages import LONGEST, Broken, CannotLoad, Loaded, Message
from worker.inference.host.shared_memory import Heap


class Probed:
    """Answers its warm-up batch by this, for each of its runs; after these it runs well."""

    def __init__(self, *words: RunFailure | BaseException | None) -> None:
        self._words = list(words)
        self.ran_on: list[str] = []

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:  # of a model
        return self.probe()

    def probe(self) -> Sequence[Array] | RunFailure:
        self.ran_on.append(current_thread().name)
        word = self._words.pop(0) if self._words else None
        if isinstance(word, BaseException):
            raise word
        return [np.zeros(1)] if word is None else word


class Served:
    """A host of this model, the worker's end of its socket, and the exit status of each lane."""

    def __init__(self, model: Probed, lanes: int = 1, probes: int = 0) -> None:
        self.heap = Heap(1 << 16)
        self.ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.settimeout(PATIENCE)
        self.left: SimpleQueue[int] = SimpleQueue()
        self._lanes = lanes
        self.host = Host(self._theirs, self.heap.memory, model, lanes, self.left.put)
        Thread(target=self.host.serve, args=(FACTS,), kwargs={"probes": probes}, name="lane-0", daemon=True).start()

    def said(self) -> Message:
        message: Message = pickle.loads(self.ours.recv(LONGEST))  # noqa: S301  # from our host
        return message

    def give(self, *job: Any) -> None:
        self.ours.send(pickle.dumps(job))

    def close(self) -> list[int]:
        """Leave. Returns the exit statuses of all lanes, of which a process has the first."""
        self.ours.close()
        statuses = [self.left.get(timeout=PATIENCE) for _ in range(self._lanes)]
        self._theirs.close()
        self.heap.close()
        return statuses


@pytest.fixture
def quiet(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing is written."""
    yield
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("quiet")
def test_a_host_sends_its_facts_and_runs_until_its_socket_closes() -> None:
    """The warm-up batch is run for a job without feeds."""
    served = Served(Probed(), lanes=2)
    first = served.said()
    served.give(3, None, 4096, 64)
    ran = served.said()

    assert first == Loaded(FACTS)
    assert isinstance(ran, tuple)
    assert (ran[0], ran[2]) == (3, [("<f8", (1,), 0, 8)])
    assert served.close() == [0, 0]


def test_all_lanes_run_the_warm_up_batch_so_many_times_before() -> None:
    """So CUDA has set up each thread."""
    model = Probed()
    served = Served(model, lanes=3, probes=2)

    assert served.said() == Loaded(FACTS)
    assert sorted(model.ran_on) == ["lane-0", "lane-0", "lane-1", "lane-1", "lane-2", "lane-2"]
    assert served.close() == [0, 0, 0]


def test_a_model_that_fails_in_its_lanes_is_refused() -> None:
    """The other lanes do not wait for it."""
    served = Served(Probed(None, None, RunFailure("no memory")), lanes=3, probes=1)

    refusal = served.said()

    assert isinstance(refusal, CannotLoad)
    assert refusal.why.startswith("the model ran, and fails in 3 lanes at once: no memory")
    assert served.close() == [0, 0, 0]


@pytest.mark.parametrize(("death", "status"), [(DeviceLost("CUDA failure 700"), 0), (TypeError("a defect"), 1)])
def test_a_lane_that_dies_in_the_warm_up_ends_the_process(death: BaseException, status: int) -> None:
    """Whichever it is: the others would wait for it without end."""
    served = Served(Probed(None, death), lanes=2, probes=1)

    first = served.left.get(timeout=PATIENCE)

    assert first == status
    if status == 0:
        assert served.said() == Broken("CUDA failure 700")
    served.left.put(first)
    served.host._lanes.abort()  # where the process would have ended
    served.close()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("death", [None, DeviceLost("CUDA failure 700")])
def test_a_worker_that_has_left_before_the_end_of_a_run_is_told_nothing(death: BaseException | None) -> None:
    """It ends without a traceback."""

    class Leaving(Probed):
        def probe(self) -> Sequence[Array] | RunFailure:
            served.ours.close()
            return super().probe()

    served = Served(Leaving(death))
    served.said()
    served.give(0, None, 4096, 64)

    assert served.close() == [0]
