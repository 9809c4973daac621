"""The facts of a loaded model that a worker needs, in whatever process that is. Imports no ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from worker.core.failures import RowsLost, RunFailure
from worker.core.records import Array
from worker.core.tensors.signature import Signature


@dataclass(frozen=True, slots=True)
class Device:
    """The device of the inference: `cpu`, `cuda:0`, or the providers in order; and the reason, for the log."""

    name: str
    reason: str


class Padding(NamedTuple):
    """The number of rows of every run, padding included, and why. `is_exported`: the model takes no other number."""

    rows: int
    why: str
    is_exported: bool = False

    def padded(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The feeds, padded to the number of rows of every run. Raises `ValueError` for feeds with more."""
        return {name: self._padded(name, array) for name, array in feeds.items()}

    def cut(self, outputs: Sequence[Array], names: Sequence[str], rows: int) -> Sequence[Array]:
        """The first `rows` rows of each output. Raises `RowsLost` for an output that lacks rows, or has more.

        The outputs of a full batch are not cut and not checked.
        """
        if rows == self.rows:
            return outputs
        for name, output in zip(names, outputs, strict=True):
            if output.shape[:1] != (self.rows,):
                raise RowsLost(name, self.rows, output.shape)
        return [output[:rows] for output in outputs]

    def _padded(self, name: str, array: Array) -> Array:
        rows = len(array)
        if rows == self.rows:
            return array
        if rows > self.rows:
            raise ValueError(f"input {name}: {rows} rows, and a run has {self.rows}")
        padded = np.empty((self.rows, *array.shape[1:]), array.dtype)
        padded[:rows], padded[rows:] = array, array[-1:]
        return padded


class Independence(NamedTuple):
    """The trial's result. `why`: the reason why rows may change one another's answers, with the cure; None: no sign.

    `doubt`: why the trial may have missed such a reason, and whether to act; None: there is no doubt.
    """

    why: str | None = None
    doubt: str | None = None


class PageLocked(NamedTuple):
    """The first bytes of the shared memory, page-locked for a GPU, or why they could not be."""

    size: int
    why: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A loaded model that has run its warm-up, without the model itself."""

    signature: Signature
    device: Device
    is_accelerated: bool  # it runs on a GPU
    warmed_up_at: Sequence[int]  # row counts
    padding: Padding | None
    remark: str | None  # on a model that works, but would be safer after another export
    left_to_cpu: Mapping[str, int]  # the nodes that the CPU runs for a model on a GPU, by operator
    independence: Independence
    page_locked: PageLocked | None = None  # None: the model is not on CUDA in a process of its own

    def most_rows(self, wanted: int) -> int:
        """The most rows of one run, where a batch may have `wanted` rows."""
        return most_rows(self.padding, wanted)


class Runnable(Protocol):
    """A loaded model, as a lane uses it. Several lanes call it at once."""

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure: ...
    def probe(self) -> Sequence[Array] | RunFailure: ...


def most_rows(padding: Padding | None, wanted: int) -> int:
    return wanted if padding is None else min(wanted, padding.rows)


def fails_in_lanes(lanes: int, failure: RunFailure) -> str:
    """The refusal of a model that ran, and then failed in its lanes."""
    where, cure = ("its lane", "") if lanes == 1 else (f"{lanes} lanes at once", "; set WORKER_BATCHING__LANES to 1")
    return f"the model ran, and fails in {where}: {failure.message}{cure}"
