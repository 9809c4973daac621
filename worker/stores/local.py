"""States in a directory of this machine: LMDB says where each lies, with a database for each partition.

    key ─▶ LMDB: its slot ─▶ a row of a file, which is mapped into memory

So a state that changes is written where it is. 64 of a million states at random are written in 0.17 ms so, and in 0.91
where LMDB has them (2026-11). The next start uses the states that a clean stop leaves (`checkpoint_file.py`), deletes
any others and restores them from the changelog. So nothing is synchronised to the disk.
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
# LMDB's keys have 1 to 511 bytes. A longer one of ours is stored under its digest, and stands behind its slot.
_LONGEST = 510
_AS_IT_IS, _DIGEST = b"\0", b"\1"
_SLOT = np.dtype("<u4")
_OPAQUE = np.dtype((np.void, _SLOT.itemsize))
_NONE = bytes(_SLOT.itemsize)
_MOST_PARTITIONS = 10_000
# Address space, not memory: as much as the directory's disk has is in reach.
_LEAST_SPACE = 1 << 30


class LocalStore:
    """Owns a directory."""

    def __init__(self, directory: Path, identity: Mapping[str, object] | None = None) -> None:
        """`identity` tells the changelog and its owner from others; None: what is left to the next start is not used.

        Raises `BadConfiguration` for a directory that cannot be used, or is another worker's.
        """
        self._directory = directory
        self._identity = identity
        self._lock = _locked(directory)
        self._databases: dict[Partition, Any] = {}
        self._next: dict[Partition, bytes] = {}  # key in the database where `some` goes on
        self._home = directory / "states"
        with ExitStack() as failing, self._speaking():
            failing.callback(self._lock.close)
            found = checkpoint_file.take(directory, self._home, identity or {})
            self._kept = dict(found.extents) if identity is not None else {}
            self.why_thrown_away = found.why  # None: all was used, or nothing was there
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
        """The partitions of which a former process left something that was not taken yet."""
        return list(self._kept)

    def take(self, partition: Partition) -> Extent | None:
        """How far the states reach that a former process kept, and that are ours to change now; None for none."""
        if (extent := self._kept.pop(partition, None)) is not None:
            with self._speaking():
                self._databases[partition] = self._environment.open_db(str(partition).encode())
        return extent

    def keep(self, extents: Mapping[Partition, Extent], go_on: Callable[[], bool]) -> bool:
        """Leave these, and what was never taken, to the next process: nothing may be written any more.

        Whether that was done before `go_on` said no.
        """
        assert self._identity is not None
        with self._speaking():
            kept = {**self._kept, **extents}
            return checkpoint_file.leave(self._directory, self._home, self._identity, kept, go_on)

    def grow(self, name: str, array: Array, rows: int) -> Array:
        """The array of that name, of the kind of `array`, with so many rows at least: those it had, and zeros.

        A disk that is full fails here, and not where a row is written. What is mapped already sees the same rows.
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
        """How many keys of the partition are stored."""
        if (database := self._databases.get(partition)) is None:
            return 0
        with self._reading(database) as reading:
            return int(reading.stat(database)["entries"])

    def get(self, partition: Partition, keys: Sequence[bytes]) -> Sequence[int]:
        """The slot of each key, 0 for one that has none."""
        if (database := self._databases.get(partition)) is None:
            return [0] * len(keys)
        with self._reading(database) as reading:
            found = list(map(reading.get, map(_stored, keys), repeat(_NONE)))
        return _slots(found)

    def put(self, partition: Partition, keys: Sequence[bytes], slots: Sequence[int]) -> None:
        """Write these. Raises `BadConfiguration` when the disk is full, or fails."""
        values: list[bytes] = np.array(slots, _SLOT).view(_OPAQUE).tolist()
        written = [
            (stored := _stored(key), value + key if stored[:1] == _DIGEST else value)
            for key, value in zip(keys, values, strict=True)
        ]
        self._write(partition, lambda writing: writing.cursor().putmulti(sorted(written)))

    def delete(self, partition: Partition, key: bytes) -> None:
        """Forget one, if it is there."""
        if partition in self._databases:
            self._write(partition, lambda writing: writing.delete(_stored(key)))

    def forget(self, partition: Partition) -> None:
        """Nothing of the partition is kept."""
        self._next.pop(partition, None)
        if (database := self._databases.pop(partition, None)) is not None:
            with self._speaking(), self._environment.begin(write=True) as writing:
                writing.drop(database, delete=True)

    def some(self, partition: Partition, most: int) -> Sequence[tuple[bytes, int]]:
        """Some keys with their slots; with each call the next ones, and the first again behind the last."""
        if (database := self._databases.get(partition)) is None:
            return ()
        with self._reading(database) as reading:
            cursor = reading.cursor()
            if not cursor.set_range(self._next.get(partition, b"")):
                self._next.pop(partition, None)
                return ()
            found = list(islice(iter(cursor), most))
        self._next[partition] = found[-1][0] + b"\0"  # what comes first behind it
        keys = [stored[1:] if stored[:1] == _AS_IT_IS else value[_SLOT.itemsize :] for stored, value in found]
        return list(zip(keys, _slots([value for _, value in found]), strict=True))

    def close(self) -> None:
        """Let go of the directory."""
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
