"""The states as the changelog has them now: of each key the last one."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from worker.core.failures import BadConfiguration
from worker.core.records import Partition, Record
from worker.core.tensors.signature import Signature
from worker.settings import Settings, load
from worker.state import StateLayout
from worker.state.layout import Sieve
from worker.state.outside_values import SOURCE, source_of
from worker.terminal.command_line import remembered
from worker.terminal.terminal import count, progress, tell
from worker.tools.kafka.reader import Reader

# What a topic may have at most, of those that are tried.
_MOST_PARTITIONS = 10_000
# Values looked at as one array.
_PORTION = 8192


class Stateful(NamedTuple):
    """The settings of a worker whose model has state. `signature` is what is left for requests and answers."""

    settings: Settings
    layout: StateLayout
    signature: Signature

    @property
    def changelog(self) -> str:
        """The topic; or the store that is there in its place."""
        if self.settings.state.store is not None:
            return "WORKER_STATE__STORE"
        assert self.settings.kafka.changelog_topic is not None
        return self.settings.kafka.changelog_topic

    @property
    def requests(self) -> str:
        """The topic whose keys have states."""
        return self.settings.kafka.request_topics[0]


class LastStates(NamedTuple):
    """The last states of keys of one partition; `values` as they lie in the changelog."""

    partition: int
    keys: Sequence[bytes]
    values: Sequence[bytes]


def stateful(config: Path | None) -> Stateful:
    """What the settings say. Raises `BadConfiguration`, also for a model without state."""
    settings = load(config, os.environ)
    if not settings.state.tensors:
        raise BadConfiguration("WORKER_STATE__TENSORS: is empty, so the model has no state")
    from worker.inference import inspect  # noqa: PLC0415 - ONNX Runtime takes its time, and the settings may be wrong

    layout, signature = remembered(inspect(settings.model).signature, settings.state)
    assert layout is not None
    return Stateful(settings, layout, signature)


def key_of(text: str, *, is_base64: bool) -> bytes:
    """The key's bytes. Raises `BadConfiguration` where they are to be base64, and are not."""
    if not is_base64:
        return os.fsencode(text)
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise BadConfiguration(f"--base64: {text} is not base64: {error}") from None


def last_states(of: Stateful, only_key: bytes | None = None, only_partition: int | None = None) -> list[LastStates]:
    """Of each partition, in their order; a key that was forgotten has none.

    Raises `BadConfiguration` when the changelog cannot be read, and for a partition that it does not have, `Incomplete`
    when a part of it cannot be read.
    """
    if of.settings.state.store is not None:
        return list(_in_store(of, only_key))
    with Reader(of.settings.kafka, of.changelog) as reader:
        if only_partition is not None and Partition(of.changelog, only_partition) not in reader.ends:
            raise BadConfiguration(f"--partition {only_partition}: {of.changelog} has {len(reader.ends)} partitions")
        wanted = {at: first for at, first in reader.beginnings.items() if only_partition in {None, at.number}}
        total = sum(reader.ends[at] - first for at, first in wanted.items())
        kept: dict[Partition, dict[bytes, bytes]] = {at: {} for at in wanted}
        sieve = Sieve(of.layout)
        with progress(f"reading {of.changelog}", total) as advance:
            _keep(kept, reader.up_to_ends(wanted, advance), only_key, sieve)
        reader.expect_whole()  # or older states would stand for those that cannot be read
    _tell_passed_over(of, sieve)
    return [LastStates(at.number, list(states), list(states.values())) for at, states in kept.items()]


def _in_store(of: Stateful, key: bytes | None) -> Iterator[LastStates]:
    """What the server has of a key: asked for more, it would have to look through all that it holds."""
    if key is None:
        raise BadConfiguration(
            "WORKER_STATE__STORE: the states lie in a server, and not in a changelog, which alone can be listed, "
            "exported and imported; SCAN the server for WORKER_STATE__KEY_PREFIX, and see docs/state.md for the values"
        )
    from worker.assembly import store_server  # noqa: PLC0415 - most workers have no store
    from worker.stores.server import StoreAway  # noqa: PLC0415 - the same

    server = store_server(of.settings)
    try:
        (value,) = server.exchange([], [key])
    except StoreAway as away:
        raise BadConfiguration(f"WORKER_STATE__STORE: {away}; see that it can be reached from here") from None
    finally:
        server.close()
    if value is not None and len(value) == SOURCE + of.layout.dtype.itemsize:
        numbers = (n for n in range(_MOST_PARTITIONS) if value.startswith(source_of(Partition(of.requests, n))))
        yield LastStates(next(numbers, 0), [key], [value[SOURCE:]])


def _tell_passed_over(of: Stateful, sieve: Sieve) -> None:
    """Raises `BadConfiguration` where all states are another model's."""
    try:
        sieve.check()
    except ValueError as error:
        raise _of_another(of, error) from None
    if records := sieve.passed_over.records:
        tell(f"{count(records, 'record')} of {of.changelog} are no states of this model: passed over")


def _of_another(of: Stateful, error: ValueError) -> BadConfiguration:
    return BadConfiguration(
        f"WORKER_KAFKA__CHANGELOG_TOPIC: {of.changelog} holds {error}; name the settings of the workers that wrote it"
    )


def _keep(
    kept: Mapping[Partition, dict[bytes, bytes]], records: Iterable[Record], only_key: bytes | None, sieve: Sieve
) -> None:
    """The last value of each key."""
    for record in records:
        key = record.key or b""
        if only_key not in {None, key}:
            continue
        if record.value is None:
            kept[record.partition].pop(key, None)
        elif sieve.takes(record.value, record.offset):
            kept[record.partition][key] = record.value


def rows_of(of: Stateful, values: Sequence[bytes]) -> Iterator[NDArray[Any]]:
    """The values as arrays of the layout's `dtype`. Raises `BadConfiguration` for states of another model."""
    for start in range(0, len(values), _PORTION):
        try:
            yield of.layout.read(values[start : start + _PORTION])
        except ValueError as error:
            raise _of_another(of, error) from None
