"""Builds the part of a worker that runs its model: in a host, a process of its own, or on a thread of this one.

Only the thread needs ONNX Runtime in this process, which takes time and memory, so it is imported for it alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

from worker import telemetry
from worker.assembled_states import GIVE_UP_TIMEOUT
from worker.core.batching.batcher import BatchPolicy
from worker.core.batching.limits import Limit
from worker.core.failures import BadConfiguration, listed
from worker.core.tensors.room import Rooms, own_room
from worker.inference.facts import ModelFacts, fails_in_lanes
from worker.inference.host.keeper import Keeper
from worker.inference.host.lanes import HostLanes
from worker.inference.host.memory_limit import container_limit, limit_for_host
from worker.inference.host.messages import Order
from worker.inference.host.process import HostProcess
from worker.inference.host.shared_memory import Heap
from worker.ports import HostEvents
from worker.settings import BatchingSettings, ModelSettings, RecordsSettings, Settings, StateSettings

if TYPE_CHECKING:
    from worker.inference.model import Model
    from worker.inference.thread_lane import ThreadLane

S = TypeVar("S", BatchingSettings, ModelSettings, RecordsSettings)


class ModelSections(Protocol):
    """The sections that a served model is made of."""

    @property
    def model(self) -> ModelSettings: ...
    @property
    def batching(self) -> BatchingSettings: ...
    @property
    def records(self) -> RecordsSettings | None: ...
    @property
    def state(self) -> StateSettings: ...


class Engine(NamedTuple):
    """The parts that run the model: its lanes, the facts of the model, and where its batches are stacked."""

    lanes: HostLanes | ThreadLane
    facts: ModelFacts
    rooms: Rooms


def begin_model(settings: Settings, events: telemetry.WorkerEvents, closing: ExitStack) -> Callable[[], Engine]:
    """Let a host begin to load the model. The function returned waits for it, and raises `BadConfiguration`.

    A model on this process's thread is loaded when that is called.
    """
    is_hosted = settings.model.host == "process"
    engine = _hosted(settings, events, closing) if is_hosted else partial(_threaded, settings, closing)
    return lambda: _told(engine(), settings, events)


def _told(engine: Engine, settings: Settings, events: telemetry.WorkerEvents) -> Engine:
    """Say what was loaded, and what is to be known about it."""
    facts, batching = engine.facts, settings.batching
    signature, padding, found = facts.signature, facts.padding, facts.independence
    events.model_warmed(
        signature.name,
        signature.version,
        facts.device.name,
        signature.sha256,
        why=facts.device.reason,
        takes=signature.takes,
        gives=listed(signature.outputs),
        row_counts=facts.warmed_up_at,
    )
    if left := facts.left_to_cpu:
        events.noted("nodes_left_to_cpu", device=facts.device.name, nodes=left, count=sum(left.values()))
    if (locked := facts.page_locked) is not None:
        if locked.why is None:
            events.noted("memory_page_locked", size=locked.size)
        else:
            events.warned("memory_not_page_locked", why=locked.why)
    events.padded(signature.buckets)
    if padding is not None:
        most = facts.most_rows(batching.max_batch_size)
        events.noted("batches_padded", rows=padding.rows, max_batch_size=most, why=padding.why)
    if facts.remark is not None:
        events.warned("model_remarked", why=facts.remark)
    if found.why is not None:
        events.warned("rows_depend_on_each_other", why=found.why)
    elif found.doubt is not None:
        events.noted("independence_unseen", why=found.doubt)
    return engine


def _hosted(settings: Settings, events: telemetry.WorkerEvents, closing: ExitStack) -> Callable[[], Engine]:
    if (limit := _memory_limit(settings)) is not None:  # said before a start that may fail for it
        by = "the container's limit" if settings.model.memory_limit is None else "WORKER_MODEL__MEMORY_LIMIT"
        events.noted("model_host_limited", memory_limit=limit, by=by)
    return begin_host(settings, events, closing)


def _memory_limit(settings: ModelSections) -> int | None:
    return limit_for_host(settings.model.memory_limit, settings.batching.max_inflight_bytes, container_limit())


def begin_host(settings: ModelSections, events: HostEvents, closing: ExitStack) -> Callable[[], Engine]:
    """Let a host begin to load the model. The function returned waits for it, and raises `BadConfiguration`."""
    heap = Heap()
    closing.callback(heap.close)
    model, batching = settings.model, settings.batching
    plain = plain_section(model), plain_section(batching, wanted_axes=batching.wanted_axes)
    shared, limit = heap.memory.fd, _memory_limit(settings)
    order = Order(*plain, shared, limit, os.getpid(), _records(settings), settings.state.tensors)
    keeper = Keeper(partial(HostProcess, order), events)
    lanes = HostLanes(keeper, heap, batching.lanes, model.run_timeout_s)
    closing.callback(lanes.close, GIVE_UP_TIMEOUT)
    return lambda: Engine(lanes, keeper.facts, heap.room)


def plain_section(section: S, **reckoned: object) -> S:
    """The section's values without its class, and values that the class reckons from them."""
    return cast("S", SimpleNamespace(**section.model_dump(), **reckoned))


def _records(settings: ModelSections) -> RecordsSettings | None:
    """The section of records as plain values, which the model's process takes; None: the topics hold requests."""
    return None if settings.records is None else plain_section(settings.records)


def _threaded(settings: Settings, closing: ExitStack) -> Engine:
    from worker.inference.served_model import load_served  # noqa: PLC0415  # only here does a worker load ONNX Runtime
    from worker.inference.thread_lane import BRIEF, ThreadLane  # noqa: PLC0415

    model, facts = load_served(settings.model, settings.batching, _records(settings), settings.state.tensors)
    lane = ThreadLane(model, brief=0.0 if facts.is_accelerated else BRIEF)
    closing.callback(lane.close, GIVE_UP_TIMEOUT)
    if facts.is_accelerated:
        _warm_up(lane, settings)
    return Engine(lane, facts, own_room)


def _warm_up(lane: ThreadLane, settings: Settings) -> None:
    """Let CUDA's libraries set themselves up for the lane's thread. Raises `BadConfiguration` if they cannot."""
    lane.probe()
    while not (probed := lane.finished(1.0)):
        pass
    if (failure := probed[0].failure) is not None:
        raise BadConfiguration(f"{settings.model.path}: {fails_in_lanes(1, failure)}")


def batch_policy(batching: BatchingSettings, model: Model | ModelFacts) -> BatchPolicy:
    """The rules by which this model's batches close under these settings."""
    return BatchPolicy(
        model.most_rows(batching.max_batch_size),
        batching.max_batch_bytes,
        batching.linger or 0.0,
        batching.max_batch_tokens,
        model.signature.buckets,
        is_fixed=model.padding is not None,
    )


def full_batch(batching: BatchingSettings, model: Model) -> Limit:
    """The limit of a batch of blank rows. A worker never runs more rows than that, whatever MAX_BATCH_SIZE says."""
    row = model.blank(1)
    row_bytes = sum(array.nbytes for array in row.values())
    shapes = tuple(array.shape[1:] for array in row.values())
    return batch_policy(batching, model).limit_of_rows(shapes, row_bytes)
