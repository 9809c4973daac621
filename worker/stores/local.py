"""States in a directory of this machine. LMDB has the slot of each key, in a database for each partition.

    key ─▶ LMDB: its slot ─▶ a row of a file, which is mapped into memory

So a changed state is written in its place. Writing 64 random states of a million takes 0.17 ms so, and 0.91 ms if LMDB
holds the states (2026-11). The next start uses the states that a clean stop left (`checkpoint_file.py`). It deletes any
others and restores them from the changelog, so nothing has to be synchronised to the disk.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from itertools import islice, repeat
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from worker.core.failures import BadConfiguration
from worker.core.records import Array, Partition
from worker.state.restoring import Extent
from worker.stores import checkpoint_file
from worker.stores.checkpoint_file import made_folder, opened

SETTING = "WORKER_STATE__DIRECTORY"
try:
    import lmdb
except ImportError as missing:
    raise BadConfiguration(
        f"{SETTING}: lmdb is not installed ({missing}): install this package with its extra, "
        "pip install '.[state-directory]'"
    ) from missing
# LMDB's keys have 1 to 511 bytes. A longer key of ours is stored under its digest, and follows the slot in the value.
_LONGEST = 510
_AS_IT_IS, _DIGEST = b"\0", b"\1"
_SLOT = np.dtype("<u4")
_OPAQUE = np.dtype((np.void, _SLOT.itemsize))
_NONE = bytes(_SLOT.itemsize)
_MOST_PARTITIONS = 10_000
# Address space, not memory: at least this much, or the size of the directory's disk.
_LEAST_SPACE = 1 << 30


class LocalStore:
    """The `SlotStore` and `Keeper` of a directory, which it owns."""

    def __init__(self, directory: Path, identity: Mapping[str, object] | None = None) -> None:
        """`identity` tells the changelog and its owner from others. If None, states of an earlier start are deleted.

        Raises `BadConfiguration` for a directory that cannot be used, or belongs to another worker.
        """
        self._directory = directory
        self._identity = identity
        self._lock = _locked(directory)
        self._databases: dict[Partition, Any] = {}
        self._next: dict[Partition, bytes] = {}  # the database key where `some` goes on
        self._home = directory / "states"
        with ExitStack() as failing, self._speaking():
            failing.callback(self._lock.close)
            found = checkpoint_file.take(directory, self._home, identity or {})
            self._kept = dict(found.extents) if identity is not None else {}
            self.why_thrown_away = found.why  # None if all was used, or nothing was there
            if not self._kept:
                shutil.rmtree(self._home, ignore_errors=True)
            made_folder(self._home)
            space = max(_LEAST_SPACE, shutil.disk_usage(directory).total)
            self._environment = lmdb.open(
                str(self._home),
                map_size=space,
                max_dbs=_MOST_PARTITIONS,
                sync=False,
                metasync=False,
                lock=False,
                mode=0o600,
                readahead=False,
            )
            self._drop_what_was_not_kept()
            failing.pop_all()

    @property
    def kept(self) -> Sequence[Partition]:
        """The partitions whose states a former process left and this process has not taken yet."""
        return list(self._kept)

    def take(self, partition: Partition) -> Extent | None:
        """Take over the states that a former process kept. Returns their extent, or None if there are none."""
        if (extent := self._kept.pop(partition, None)) is not None:
            with self._speaking():
                self._databases[partition] = self._environment.open_db(str(partition).encode())
        return extent

    def keep(self, extents: Mapping[Partition, Extent], go_on: Callable[[], bool]) -> bool:
        """Leave these states, and those never taken, to the next process. Nothing may be written after that.

        Returns False if `go_on` returned False before the end.
        """
        assert self._identity is not None
        with self._speaking():
            kept = {**self._kept, **extents}
            return checkpoint_file.leave(self._directory, self._home, self._identity, kept, go_on)

    def grow(self, name: str, array: Array, rows: int) -> Array:
        """Returns the array of that name, with the type of `array` and at least `rows` rows; new rows are zeros.

        A full disk fails here, and not when a row is written. Earlier mappings of the file show the same rows.
        """
        width = array.dtype.itemsize * prod(array.shape[1:])
        with self._speaking(), opened(self._home / name, "a+b") as file:
            size = file.tell()
            if size < rows * width:
                os.posix_fallocate(file.fileno(), size, rows * width - size)
            mapped = mmap.mmap(file.fileno(), 0)
        mapped.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(mapped, array.dtype).reshape(-1, *array.shape[1:])

    def keys_of(self, partition: Partition) -> int:
        """Returns the number of keys of the partition that are stored."""
        if (database := self._databases.get(partition)) is None:
            return 0
        with self._reading(database) as reading:
            return int(reading.stat(database)["entries"])

    def get(self, partition: Partition, keys: Sequence[bytes]) -> Sequence[int]:
        """Returns the slot of each key, 0 for a key without one."""
        if (database := self._databases.get(partition)) is None:
            return [0] * len(keys)
        with self._reading(database) as reading:
            found = list(map(reading.get, map(_stored, keys), repeat(_NONE)))
        return _slots(found)

    def put(self, partition: Partition, keys: Sequence[bytes], slots: Sequence[int]) -> None:
        """Write the slots of these keys. Raises `BadConfiguration` if the disk is full, or fails."""
        values: list[bytes] = np.array(slots, _SLOT).view(_OPAQUE).tolist()
        written = [
            (stored := _stored(key), value + key if stored[:1] == _DIGEST else value)
            for key, value in zip(keys, values, strict=True)
        ]
        self._write(partition, lambda writing: writing.cursor().putmulti(sorted(written)))

    def delete(self, partition: Partition, key: bytes) -> None:
        """Delete a key, if it is stored."""
        if partition in self._databases:
            self._write(partition, lambda writing: writing.delete(_stored(key)))

    def forget(self, partition: Partition) -> None:
        """Delete all keys of the partition."""
        self._next.pop(partition, None)
        if (database := self._databases.pop(partition, None)) is not None:
            with self._speaking(), self._environment.begin(write=True) as writing:
                writing.drop(database, delete=True)

    def some(self, partition: Partition, most: int) -> Sequence[tuple[bytes, int]]:
        """Returns at most `most` keys with their slots: with each call the next ones, and after the last the first."""
        if (database := self._databases.get(partition)) is None:
            return ()
        with self._reading(database) as reading:
            cursor = reading.cursor()
            if not cursor.set_range(self._next.get(partition, b"")):
                self._next.pop(partition, None)
                return ()
            found = list(islice(iter(cursor), most))
        self._next[partition] = found[-1][0] + b"\0"  # the smallest key after the last one
        keys = [stored[1:] if stored[:1] == _AS_IT_IS else value[_SLOT.itemsize :] for stored, value in found]
        return list(zip(keys, _slots([value for _, value in found]), strict=True))

    def close(self) -> None:
        """Close the database, and release the directory."""
        self._environment.close()
        self._lock.close()

    def _drop_what_was_not_kept(self) -> None:
        with self._environment.begin() as reading:
            there = [name for name, _ in reading.cursor()]
        for name in set(there) - {str(partition).encode() for partition in self._kept}:
            database = self._environment.open_db(name)
            with self._environment.begin(write=True) as writing:
                writing.drop(database, delete=True)

    def _write(self, partition: Partition, act: Callable[[Any], object]) -> None:
        with self._speaking():
            database = self._databases.get(partition)
            if database is None:
                database = self._databases[partition] = self._environment.open_db(str(partition).encode())
            with self._environment.begin(database, write=True) as writing:
                act(writing)

    @contextmanager
    def _reading(self, database: Any) -> Iterator[Any]:
        with self._speaking(), self._environment.begin(database) as reading:
            yield reading

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except (lmdb.Error, OSError) as error:
            raise BadConfiguration(
                f"{SETTING}: states cannot be kept there: {error}; see that the disk has room and works; start again"
            ) from error


def _slots(values: Sequence[bytes]) -> list[int]:
    joined = b"".join(values)
    if len(joined) > len(values) * _SLOT.itemsize:
        joined = b"".join([value[: _SLOT.itemsize] for value in values])
    slots: list[int] = np.frombuffer(joined, _SLOT).tolist()
    return slots


def _stored(key: bytes) -> bytes:
    return _AS_IT_IS + key if len(key) <= _LONGEST else _DIGEST + sha256(key).digest()


def _locked(directory: Path) -> IO[bytes]:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = opened(directory / "lock", "a+b")
    except OSError as error:
        raise BadConfiguration(
            f"{SETTING}: {directory} cannot be written: {error.strerror}: {error.filename}"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise BadConfiguration(
            f"{SETTING}: {directory} is another worker's, which runs; give each replica a directory of its own"
        ) from None
    return lock
