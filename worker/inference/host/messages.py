"""What the worker and the host of its model say to each other: one pickled message each, over a pair of sockets.

The host is a child of the same program on the same machine, so a message is as trusted as a function call. Tensors lie
in the shared memory, and messages say where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worker.core.failures import RunFailure
from worker.inference.facts import ModelFacts
from worker.settings import BatchingSettings, ModelSettings

# Bytes of the longest message. A run of a model with 5,000 inputs takes 250 KB.
LONGEST = 400 * 1024
# The most batches that a host holds at a time; the mapping begins with a number for each.
MOST_RUNS = 64


class Order(NamedTuple):
    """The first message to a host: the model to load. `parent` is the worker's process."""

    model: ModelSettings
    batching: BatchingSettings
    memory: int  # the descriptor of the shared memory
    memory_limit: int | None  # bytes
    parent: int


class Loaded(NamedTuple):
    """The host's first answer: the model has run its warm-up."""

    facts: ModelFacts


class CannotLoad(NamedTuple):
    """The host's first and last answer: the model is refused, and why."""

    why: str


class Broken(NamedTuple):
    """The host's last message: its device is lost, and no later run can succeed."""

    why: str


class Tensor(NamedTuple):
    """The place of an array, `size` bytes long; of an output from the start of its room. Texts are a pickled list."""

    dtype: str
    shape: Sequence[int]
    start: int
    size: int


class Job(NamedTuple):
    """One run; without `feeds` of the warm-up batch. `room`: the start of the outputs, and the bytes they may have."""

    number: int
    feeds: Mapping[str, Tensor] | None
    room: tuple[int, int]


class Ran(NamedTuple):
    """The end of one run, after so many seconds.

    Outputs that are longer than their room are in a memory of their own, whose descriptor comes with the message.
    """

    number: int
    seconds: float
    outcome: Sequence[Tensor] | RunFailure


Message = Loaded | CannotLoad | Broken | Ran

# When each run began, in nanoseconds of the monotonic clock; 0: it has not.
Begun = np.ndarray[tuple[int], np.dtype[np.int64]]
