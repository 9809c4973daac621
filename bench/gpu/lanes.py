"""Compares two lanes that share a session with two that have one each: rate, memory, and whether answers stay right.

Runs beside each other in one session share its memory, and CUDA's provider may give one what another still uses
(onnxruntime#32342, known of `Einsum`). So each answer is compared with that of the session's lone run.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from functools import partial
from threading import Thread
from typing import NamedTuple

import numpy as np

from bench.gpu.device import MIB, Device, NoNvmlError
from bench.gpu.networks import FP32, Feeds, Network, Rows
from bench.gpu.results import NETWORK, Case, Column, Line, Part, Stage, of
from bench.gpu.sessions import answered, loaded
from tests.models import model
from worker.core.records import Array
from worker.inference.model import Model

KINDS = 3  # different batches of a lane, in turn
SIDE = 64
HOW = """The worker's model at its batch, run by one thread, by two that share a session, and by two with a session
each. Memory: of the whole device, more than before the first session. Wrong: runs whose answer is not, bit by bit, that
of the session's lone run; by at most: their largest difference, as a part of the largest number."""
COLUMNS = (
    *NETWORK,
    Column("batch", "batch", "d"),
    Column("lanes", "lanes"),
    Column("rate", "rows/s", ",.0f"),
    Column("memory_mib", "memory, MiB", ",.0f"),
    Column("runs", "runs", "d"),
    Column("wrong", "wrong", "d"),
    Column("off", "by at most", ".2g"),
)


def einsum() -> bytes:
    """x FP32 (batch, 64, 64) → y FP32 (batch, 64): products and a diagonal by `Einsum`."""
    return model(
        f"float[batch, {SIDE}, {SIDE}] x => float[batch, {SIDE}] y",
        """a = Einsum<equation = "bij,bjk->bik">(x, x)
        b = Einsum<equation = "bij,bkj->bik">(a, x)
        c = Einsum<equation = "bii->bi">(b)
        d = Einsum<equation = "bij->bi">(a)
        y = Add(c, d)""",
    )


EINSUM = Network("Einsum", FP32, einsum, Rows("float32", (SIDE, SIDE)), 32)


class Lane(NamedTuple):
    """A model, the batches that a thread runs on it in turn, and its answers while nothing runs beside."""

    model: Model
    batches: Sequence[Feeds]
    wanted: Sequence[Sequence[Array]]


class Tally:
    """The count of a lane's runs, and of wrong ones among them. The lane's thread owns it."""

    def __init__(self) -> None:
        self.runs = self.wrong = 0
        self.off = 0.0
        self.died: Exception | None = None

    def serve(self, lane: Lane, until: float) -> None:
        try:
            while time.perf_counter() < until:
                kind = self.runs % len(lane.batches)
                found, wanted = answered(lane.model, lane.batches[kind]), lane.wanted[kind]
                self.runs += 1
                if not all(map(np.array_equal, found, wanted)):
                    self.wrong += 1
                    self.off = max(self.off, *map(_apart, found, wanted))
        except Exception as error:  # noqa: BLE001  # the thread that measures raises it
            self.died = error


def cases(stage: Stage) -> Iterator[Case]:
    """Yields each network in turn, and last the one that may break the device. Ragged texts are left out."""
    for network in [*stage.networks, EINSUM]:
        if not network.is_ragged:
            yield Case(of(network, batch=network.batch), partial(_network, stage, network))


def _network(stage: Stage, network: Network) -> Iterator[Line]:
    gc.collect()  # the sessions of the network before
    before, batches = _used_mib(stage), _batches(network)
    session = loaded(stage.model(network), stage.device, network.batch)
    one = _lane(session, batches[:KINDS])
    yield {"lanes": "one", **_measured(stage, network, [one], before)}
    beside = _lane(session, batches[KINDS:])
    yield {"lanes": "two, one session", **_measured(stage, network, [one, beside], before)}
    other = _lane(loaded(stage.model(network), stage.device, network.batch), batches[KINDS:])
    yield {"lanes": "two, a session each", **_measured(stage, network, [one, other], before)}


def _batches(network: Network) -> list[Feeds]:
    """Makes different batches, `KINDS` for each of two lanes."""
    rows, count = network.batch, 2 * KINDS
    values = network.form.values(rows * count)
    return [network.form.batch([values[(at * rows + n) % len(values)] for n in range(rows)]) for at in range(count)]


def _lane(session: Model, batches: Sequence[Feeds]) -> Lane:
    return Lane(session, batches, [answered(session, feeds) for feeds in batches])


def _measured(stage: Stage, network: Network, lanes: Sequence[Lane], before: float | None) -> Line:
    """Runs all lanes at once for the time of a measurement."""
    tallies = [Tally() for _ in lanes]
    began = time.perf_counter()
    threads = [
        Thread(target=tally.serve, args=(lane, began + stage.seconds))
        for tally, lane in zip(tallies, lanes, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, used = time.perf_counter() - began, _used_mib(stage)
    for error in (tally.died for tally in tallies):
        if error is not None:
            raise error
    runs = sum(tally.runs for tally in tallies)
    return {
        "rate": runs * network.batch / took,
        "memory_mib": None if used is None or before is None else used - before,
        "runs": runs,
        "wrong": sum(tally.wrong for tally in tallies),
        "off": max(tally.off for tally in tallies),
    }


def _apart(found: Array, wanted: Array) -> float:
    """Returns the largest difference, as a part of the largest number."""
    apart = np.abs(found.astype(np.float64) - wanted).max()
    return float(apart / np.abs(wanted.astype(np.float64)).max())


def _used_mib(stage: Stage) -> float | None:
    try:
        return Device().sample().used / MIB if stage.is_gpu else None
    except NoNvmlError:
        return None


PART = Part("lanes", "On a GPU: two lanes and their sessions", HOW, COLUMNS, cases, limit=120)
