"""The worker's hold on a process: real ones, which do little."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.hosts import PATIENCE
from worker.core.records import HostEnd
from worker.inference.host import process
from worker.inference.host.memory_limit import MIB
from worker.inference.host.messages import CannotLoad, Loaded, Order
from worker.inference.host.process import Ended, HostProcess
from worker.inference.host.shared_memory import Heap
from worker.settings import BatchingSettings, ModelSettings

# The begin of the children below: their end of the socket, and their order in bytes.
BEGIN = """
import os, pickle, select, signal, socket, sys, time
channel = socket.socket(fileno=int(sys.argv[1]))
order = channel.recv(1 << 20)
"""
WAIT = "time.sleep(60)"

Start = Callable[[str], HostProcess]


@pytest.fixture
def order() -> Iterator[Order]:
    heap = Heap(1 << 20)
    yield Order(ModelSettings(path=Path("none.onnx")), BatchingSettings(), heap.memory.fd, None, os.getpid())
    heap.close()


@pytest.fixture
def start(order: Order, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a process that runs this code."""
    started: list[HostProcess] = []

    def start(code: str) -> HostProcess:
        with monkeypatch.context() as patch:
            patch.setattr(process, "PROGRAM", "import sys; sys.path[:] = {}" + BEGIN + code)
            started.append(HostProcess(order))
        return started[-1]

    yield start
    for one in started:
        one.end(0.0)


def told(host: HostProcess) -> list[Any]:
    """All messages until its end."""
    messages: list[Any] = []
    while not host.is_over:
        arrived = host.receive(PATIENCE)
        assert arrived or host.is_over, "nothing came"
        messages += [message for message, _ in arrived]
    return messages


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_an_exit_is_told_with_its_status(start: Start) -> None:
    """Its earlier messages come first."""
    host = start("channel.send(pickle.dumps((1, 2.0, [], None)))\nos._exit(3)")

    assert told(host) == [(1, 2.0, [], None)]
    assert host.end(PATIENCE) == Ended(HostEnd.CRASH, "ended with exit status 3")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL])
def test_a_crash_is_told_by_the_name_of_its_signal(start: Start, number: signal.Signals) -> None:
    """The publisher's error says it, too."""
    quietly = "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    host = start(f"{quietly}os.kill(os.getpid(), {int(number)})\n{WAIT}")

    assert told(host) == []
    assert host.end(PATIENCE) == Ended(HostEnd.CRASH, f"died of {number.name}")


def test_a_kill_from_outside_is_no_crash(start: Start) -> None:
    """The kernel does it where memory runs out."""
    host = start(WAIT)
    os.kill(host.pid, signal.SIGKILL)

    assert told(host) == []
    end, why = host.end(PATIENCE)
    assert end is HostEnd.KILLED
    assert why.startswith("was killed by SIGKILL")


def test_what_we_killed_has_our_reason_and_the_first_one(start: Start) -> None:
    """All that it started ends with it: the socket closes, which that holds too."""
    host = start(f"os.fork()\nchannel.send(b'')\n{WAIT}")
    host.kill(HostEnd.HANG, "ran too long")
    host.kill(HostEnd.CRASH, "did something else")

    told(host)

    assert host.end(PATIENCE) == Ended(HostEnd.HANG, "ran too long")


def test_a_process_that_closes_its_socket_and_does_not_end_is_killed(start: Start) -> None:
    """The worker could not talk to it."""
    host = start(f"channel.close()\n{WAIT}")

    assert told(host) == []
    assert host.end(0.0) == Ended(HostEnd.HANG, "closed its socket and did not end")


def test_a_process_that_waits_for_us_ends_with_its_socket(start: Start) -> None:
    """It needs no signal."""
    host = start("channel.recv(1)\nos._exit(0)")

    assert host.end(PATIENCE) == Ended(HostEnd.CRASH, "ended with exit status 0")


def test_what_it_said_before_its_end_is_not_lost_with_a_job_unread(start: Start) -> None:
    """The kernel tells of the lost job before it gives out the messages."""
    host = start(
        "channel.send(pickle.dumps((1, 2.0, [], None)))\n"
        "channel.send(pickle.dumps((2, 2.0, [], None)))\n"
        "select.select([channel], [], [])\n"
        "os._exit(0)"
    )
    host.give((3, None, 0, 0))
    host._process.wait(PATIENCE)

    assert told(host) == [(1, 2.0, [], None), (2, 2.0, [], None)]


def test_a_process_that_is_gone_is_over_although_something_holds_its_socket(start: Start) -> None:
    """Its earlier messages still come, once, and the processes that it started are ended with it."""
    host = start(f"if other := os.fork():\n    channel.send(pickle.dumps((other, 2.0, [])))\n    os._exit(7)\n{WAIT}")
    (((other, *_), _),) = host.receive(PATIENCE)  # type: ignore[misc]  # a run
    ends = os.pidfd_open(other)
    assert not host.is_over
    host._process.wait(PATIENCE)
    host.look()

    assert host.receive(3600.0) == [] == told(host)
    assert host.end(PATIENCE) == Ended(HostEnd.CRASH, "ended with exit status 7")
    assert select.select([ends], [], [], PATIENCE)[0]
    os.close(ends)


def test_a_job_for_a_process_that_is_gone_is_given_to_nobody(start: Start) -> None:
    """The next `receive` tells."""
    host = start("os._exit(0)")
    host._process.wait(PATIENCE)

    for _ in range(2):
        host.give((1, None, 0, 0))

    assert told(host) == []


def test_a_message_brings_its_memory(start: Start) -> None:
    """Its descriptor closes with it."""
    before = descriptors()
    host = start(
        "fd = os.memfd_create('x')\nos.write(fd, bytes(range(64)))\n"
        f"socket.send_fds(channel, [pickle.dumps((1, 2.0, [], None))], [fd])\n{WAIT}"
    )

    ((message, memory),) = host.receive(PATIENCE)
    assert memory is not None
    assert message == (1, 2.0, [], None)
    assert memory.bytes.tolist() == list(range(64))
    host.kill(HostEnd.CRASH, "it is enough")
    host.end()
    del memory

    assert descriptors() == before


def test_nothing_is_waited_for_longer_than_asked(start: Start) -> None:
    """There is no message, and it is not over."""
    host = start(WAIT)

    assert host.receive(0.0) == []
    assert not host.is_over


def test_numpy_takes_as_many_threads_as_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the environment says otherwise, or the model takes as many as it likes."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    numbers = [process._environment(threads).get("OPENBLAS_NUM_THREADS") for threads in (0, 2)]
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")

    assert numbers == [None, "2"]
    assert process._environment(2)["OPENBLAS_NUM_THREADS"] == "7"


def test_a_host_starts_in_a_folder_with_modules_of_our_names(
    order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `worker.py` is not rare. The model is refused by our own code."""
    for name in ("worker", "numpy", "pickle"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)")
    monkeypatch.chdir(tmp_path)
    host = HostProcess(order)

    (refusal,) = told(host)

    assert isinstance(refusal, CannotLoad)
    assert "none.onnx" in refusal.why
    host.end(PATIENCE)


MODEL = """
import os, subprocess, sys
import numpy as np

class Model:
    inputs = {"x": ("FP32", [None, 4])}
    outputs = {"y": ("FP32", [None, 4])}

    def predict(self, feeds):
        print("said while it ran", flush=False)
        return {"y": feeds["x"] * 2}
"""


def test_a_host_is_a_child_that_takes_jobs_until_its_socket_closes(
    order: Order, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model in Python: what it prints goes to stderr, and is not lost with the process."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    heap = Heap(1 << 20)
    room = heap.take(1 << 10)
    room[:16] = np.arange(4, dtype=np.float32).view(np.uint8)
    start = heap.memory.start_of(room)
    assert start is not None
    host = HostProcess(order._replace(model=ModelSettings(path=path), memory=heap.memory.fd, memory_limit=4096 * MIB))
    ((loaded, _),) = host.receive(PATIENCE)
    assert isinstance(loaded, Loaded)

    host.give((5, {"x": ("<f4", (1, 4), start, 16)}, start + 64, 64))
    (((number, _, places, _), memory),) = host.receive(PATIENCE)  # type: ignore[misc]  # a run

    assert (number, places, memory) == (5, [("<f4", (1, 4), 0, 16)], None)
    assert room[64:80].view(np.float32).tolist() == [0, 2, 4, 6]
    assert heap.memory.begun()[5] > 0
    assert Path(f"/proc/{host.pid}/oom_score_adj").read_text() != Path("/proc/self/oom_score_adj").read_text()
    assert host.end(PATIENCE) == Ended(HostEnd.CRASH, "ended with exit status 0")
    out, err = capfd.readouterr()
    assert (out, "said while it ran" in err) == ("", True)
    heap.close()


CHILD = """
import ctypes, resource
from worker.inference.host.child import _be_a_child
_be_a_child(pickle.loads(order))
died_with = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(died_with))  # PR_GET_PDEATHSIG
ignored = [signal.getsignal(number) is signal.SIG_IGN for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
channel.send(pickle.dumps((died_with.value, ignored, limit)))
"""


@pytest.mark.parametrize("limit", [None, 512 * MIB])
def test_a_child_leaves_signals_to_the_worker_and_has_its_limit(
    order: Order, monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    """And dies with the worker."""
    monkeypatch.setattr(process, "PROGRAM", "import sys; sys.path[:] = {}" + BEGIN + CHILD)
    host = HostProcess(order._replace(memory_limit=limit))

    (said,) = told(host)

    assert said == (signal.SIGKILL, [True] * 3, -1 if limit is None else limit)
    host.end(PATIENCE)


def test_a_child_whose_worker_is_gone_already_ends(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not be told later."""
    monkeypatch.setattr(process, "PROGRAM", "import sys; sys.path[:] = {}" + BEGIN + CHILD)
    host = HostProcess(order._replace(parent=1))

    assert told(host) == []
    assert host.end(PATIENCE) == Ended(HostEnd.CRASH, "ended with exit status 1")


def test_a_host_does_not_outlive_its_worker() -> None:
    """However the worker ends. Whatever the host does, it holds this pipe until its end."""
    worker = f"""
import os, signal
from pathlib import Path
from worker.inference.host import process
from worker.inference.host.messages import Order
from worker.inference.host.shared_memory import Heap
from worker.settings import BatchingSettings, ModelSettings
process.PROGRAM = "import sys; sys.path[:] = {{}}" + {BEGIN + CHILD + WAIT!r}
fd = Heap(1 << 20).memory.fd
host = process.HostProcess(Order(ModelSettings(path=Path("x")), BatchingSettings(), fd, None, os.getpid()))
assert host.receive({PATIENCE})
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run(  # noqa: S603  # ours
        [sys.executable, "-c", worker], stderr=subprocess.PIPE, timeout=3 * PATIENCE, check=False
    )

    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
