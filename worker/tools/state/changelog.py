"""Reads the last state of each key from the changelog, or from an outside store."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from worker.core.failures import BadConfiguration
from worker.core.records import Partition
from worker.core.tensors.signature import Signature
from worker.kafka.reader import Reader
from worker.settings import Settings, load
from worker.state import StateLayout
from worker.state.layout import Sieve
from worker.state.outside_values import SOURCE, source_of
from worker.terminal.command_line import split_signature
from worker.terminal.terminal import count, progress, tell

_MOST_PARTITIONS = 10_000  # tried one by one to find the partition of a state in a store


class StatefulSetup(NamedTuple):
    """The settings of a worker whose model has state. `signature` has only the tensors of requests and answers."""

    settings: Settings
    layout: StateLayout
    signature: Signature

    @property
    def changelog(self) -> str:
        """The changelog topic, or the setting of the store that replaces it."""
        if self.settings.state.store is not None:
            return "WORKER_STATE__STORE"
        assert self.settings.kafka.changelog_topic is not None
        return self.settings.kafka.changelog_topic

    @property
    def requests(self) -> str:
        """The topic whose keys have states."""
        return self.settings.kafka.request_topics[0]


class PartitionStates(NamedTuple):
    """The last states of keys of one partition; `rows` are of the layout's `dtype`."""

    partition: int
    keys: Sequence[bytes]
    rows: NDArray[Any]


def stateful_setup(config: Path | None) -> StatefulSetup:
    """Loads the settings. Raises `BadConfiguration`, also for a model without state."""
    settings = load(config, os.environ)
    if not settings.state.tensors:
        raise BadConfiguration("WORKER_STATE__TENSORS: is empty, so the model has no state")
    from worker.inference.model_loading import inspect  # noqa: PLC0415 - ONNX Runtime takes its time, and the settings may be wrong

    layout, signature = split_signature(inspect(settings.model).signature, settings.state)
    assert layout is not None
    return StatefulSetup(settings, layout, signature)


def key_of(text: str, *, is_base64: bool) -> bytes:
    """Returns the key's bytes. Raises `BadConfiguration` if the text should be base64 and is not."""
    if not is_base64:
        return os.fsencode(text)
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise BadConfiguration(f"--base64: {text} is not base64: {error}") from None


def last_states(of: StatefulSetup, only_key: bytes | None = None) -> list[PartitionStates]:
    """Returns the last states by partition, in order. A forgotten key has none.

    Raises `BadConfiguration` if the changelog cannot be read or all states are another model's, `Incomplete` if a part
    of it cannot be read.
    """
    if of.settings.state.store is not None:
        return _in_store(of, only_key)
    sieve = Sieve(of.layout)
    with Reader(of.settings.kafka, of.changelog) as reader:
        kept: dict[Partition, dict[bytes, bytes]] = {at: {} for at in reader.ends}
        total = sum(reader.ends.values()) - sum(reader.beginnings.values())
        with progress(f"reading {of.changelog}", total) as advance:
            for record in reader.up_to_ends(reader.beginnings, advance):
                states, key = kept[record.partition], record.key or b""
                if only_key not in {None, key}:
                    continue
                if record.value is None:
                    states.pop(key, None)
                elif sieve.takes(record.value):
                    states[key] = record.value
        reader.expect_whole()  # otherwise older states could be taken for the last ones
    try:
        sieve.check()
    except ValueError as error:
        raise BadConfiguration(
            f"WORKER_KAFKA__CHANGELOG_TOPIC: {of.changelog} holds {error}; name the settings of the workers that wrote "
            "it"
        ) from None
    if records := sieve.passed_over:
        tell(f"{count(records, 'record')} of {of.changelog} are no states of this model: passed over")
    return [PartitionStates(at.number, list(found), of.layout.read(list(found.values()))) for at, found in kept.items()]


def _in_store(of: StatefulSetup, key: bytes | None) -> list[PartitionStates]:
    """Returns the server's state of one key. To list all keys, the server would have to search all that it holds."""
    if key is None:
        raise BadConfiguration(
            "WORKER_STATE__STORE: the states lie in a server, and only a changelog can be listed, exported and "
            "imported; SCAN the server for WORKER_STATE__KEY_PREFIX, and see docs/state.md for the values"
        )
    from worker.assembled_states import store_server  # noqa: PLC0415 - most workers have no store
    from worker.stores.server import StoreAway  # noqa: PLC0415 - as above

    server = store_server(of.settings)
    try:
        (value,) = server.exchange([], [key])
    except StoreAway as away:
        raise BadConfiguration(f"WORKER_STATE__STORE: {away}; see that it can be reached from here") from None
    finally:
        server.close()
    if value is None or not of.layout.is_ours(value[SOURCE:]):
        return []
    numbers = (n for n in range(_MOST_PARTITIONS) if value.startswith(source_of(Partition(of.requests, n))))
    return [PartitionStates(next(numbers, 0), [key], of.layout.read([value[SOURCE:]]))]
