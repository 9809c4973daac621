"""The messages between a worker and the host of its model, over a pair of sockets. Tensors lie in shared memory.

The host is a child of the same program on the same machine, so a message is as trusted as a function call, and pickled.
Those of a run are plain tuples, because named ones take three times as long.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from worker.core.failures import RunFailure
from worker.inference.facts import ModelFacts

if TYPE_CHECKING:
    from worker.settings import BatchingSettings, ModelSettings, RecordsSettings

# The signals that stop a worker, which its host ignores.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Bytes of the longest message. A run of a model with 5,000 inputs takes 250 KB.
LONGEST = 400 * 1024
# A host holds fewer batches at a time: one for each of 64 lanes, and some ahead. The mapping begins with a number for
# each.
MOST_RUNS = 128


class Order(NamedTuple):
    """The first message to a host: the model to load. `parent` is the worker's process.

    The sections are plain objects of their values: the classes bring pydantic, 21 MB and 0.2 s of CPU (2026-11).
    """

    model: ModelSettings
    batching: BatchingSettings
    memory: int  # the descriptor of the shared memory
    memory_limit: int | None  # bytes
    parent: int
    records: RecordsSettings | None = None
    states: Mapping[str, str] = {}  # the inputs that are state, each with the output of its next value


@dataclass(frozen=True, slots=True)
class Loaded:
    """The host's first answer: the model has run its warm-up."""

    facts: ModelFacts


@dataclass(frozen=True, slots=True)
class CannotLoad:
    """The host's first and last answer: the model is refused, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The host's last message: its device is lost, and no later run can succeed."""

    why: str


# The place of an array: dtype, shape, start and size in bytes; an output's start is in its room.
Place = tuple[str, tuple[int, ...], int, int]

# The places of a batch's feeds by name. Feeds that are rows of one array have one place, by all their names.
Places = dict[str | tuple[str, ...], Place]

# One run: its number; the feeds, or None for the warm-up batch; the start of the room for the outputs, and its
# size in bytes.
Job = tuple[int, Places | None, int, int]

# The end of one run: its number, how many seconds it took, and the outputs, the failure, or both where only some rows
# have outputs. Outputs that are longer than their room are in a memory of their own, whose descriptor comes with the
# message.
Ran = tuple[int, float, list[Place] | None, RunFailure | None]

Message = Loaded | CannotLoad | Broken | Ran

# When each run began, in nanoseconds of the monotonic clock; 0: it has not.
Begun = np.ndarray[tuple[int], np.dtype[np.int64]]
