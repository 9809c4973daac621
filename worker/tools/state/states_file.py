"""States in a file: an `.npz` that NumPy reads.

| array | dtype, shape | |
|---|---|---|
| `keys` | uint8 (bytes of all keys) | the keys, one after the other |
| `key_ends` | int64 (states) | the end of each key in `keys` |
| `partitions` | int32 (states) | the key's partition of the request topic |
| `partition_count` | int64 () | number of partitions of that topic |
| `used_ms` | int64 (states) | timestamp of the last request, milliseconds since the epoch; -1: none |
| `state/<input>` | the input's (states, *dims) | one for each tensor of the state |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from worker.core.failures import BadConfiguration
from worker.core.foreign_values import DAMAGED
from worker.core.records import Array
from worker.state import StateLayout
from worker.state.layout import NO_TIME

PREFIX = "state/"
_DTYPES = {"keys": "u1", "key_ends": "i8", "partitions": "i4", "partition_count": "i8", "used_ms": "i8"}


class SavedStates(NamedTuple):
    """The states of all keys. `tensors` are in the order of the layout, each of shape (states, *dims)."""

    keys: Sequence[bytes]
    partitions: Array
    partition_count: int
    used_ms: Array
    tensors: Sequence[Array]


def save(path: Path, layout: StateLayout, states: SavedStates) -> None:
    """Write the file: whole, or not at all. Raises `BadConfiguration`."""
    arrays = {f"{PREFIX}{at.spec.name}": array for at, array in zip(layout.tensors, states.tensors, strict=True)}
    unfinished = path.with_name(f"{path.name}.part")
    try:
        unfinished.unlink(missing_ok=True)  # left by a killed command, or a link to another file
        with unfinished.open("xb") as file:
            np.savez(
                file,
                allow_pickle=False,
                keys=np.frombuffer(b"".join(states.keys), np.uint8),
                key_ends=np.cumsum([len(key) for key in states.keys], dtype=np.int64),
                partitions=states.partitions.astype(np.int32),
                partition_count=np.int64(states.partition_count),
                used_ms=states.used_ms.astype(np.int64),
                **arrays,
            )
        unfinished.replace(path)
    except OSError as error:
        raise BadConfiguration(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def load_states(path: Path, layout: StateLayout) -> SavedStates:
    """Reads the file. Raises `BadConfiguration` if it is damaged, or holds states of another model."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise BadConfiguration(f"{path}: there is no such file") from None
    except DAMAGED as error:
        raise BadConfiguration(f"{path}: is not a file of states, or damaged: {error}") from error
    if why := next(_problems(arrays, layout), None):
        raise BadConfiguration(f"{path}: {why}")
    whole, ends = arrays["keys"].tobytes(), arrays["key_ends"].tolist()
    keys = [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    tensors = [arrays[f"{PREFIX}{tensor.spec.name}"] for tensor in layout.tensors]
    return SavedStates(keys, arrays["partitions"], int(arrays["partition_count"]), arrays["used_ms"], tensors)


def _problems(arrays: Mapping[str, Array], layout: StateLayout) -> Iterator[str]:
    """Yields problems of the file. Each check relies on the earlier ones, so only the first problem counts."""
    of_model = {f"{PREFIX}{tensor.spec.name}" for tensor in layout.tensors}
    if (ours := _DTYPES.keys() | of_model) != arrays.keys():
        yield f"holds {', '.join(sorted(arrays))}, where a file of this model's states has {', '.join(sorted(ours))}"
    count = arrays["key_ends"].size
    shapes: dict[str, tuple[int, ...]] = {"keys": (arrays["keys"].size,), "partition_count": ()}
    expected = {name: (np.dtype(dtype), shapes.get(name, (count,))) for name, dtype in _DTYPES.items()}
    for tensor, first in zip(layout.tensors, layout.initial, strict=True):
        expected[f"{PREFIX}{tensor.spec.name}"] = first.dtype, (count, *first.shape)
    for name, (dtype, shape) in expected.items():
        if ((array := arrays[name]).dtype, array.shape) != (dtype, shape):
            yield f"{name}: expected {dtype} of shape {shape}, found {array.dtype} of shape {array.shape}"
    steps = np.diff(arrays["key_ends"], prepend=0)
    if (steps < 0).any() or int(steps.sum()) != arrays["keys"].size:
        yield "key_ends do not fit keys"
    if not ((arrays["partitions"] >= 0) & (arrays["partitions"] < arrays["partition_count"])).all():
        yield "partitions: expected numbers below partition_count"
    if (arrays["used_ms"] < NO_TIME).any():
        yield "used_ms: expected milliseconds since the epoch"
