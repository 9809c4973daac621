"""Memory that the worker and the host of the model both see, so that tensors cross without a copy in a pipe.

It is one anonymous file (memfd) mapped by both: no /dev/shm, whose size a container limits to 64 MiB by default, and
no name that a killed process could leave behind. Its address space is as large as the machine's memory, of which only
pages that were written take any.
"""

from __future__ import annotations

import mmap
import os
import pickle
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from worker.core.records import Array, Tensor
from worker.core.tensors.room import ALIGNMENT
from worker.inference.host.messages import MOST_RUNS, Begun, Place

# Tensors of so many bytes are copied one by one; smaller ones are joined first, which takes fewer calls.
LARGE = 16 * 1024

# Most bytes given back at a time: 2.4 ms of the loop's time (2026-11).
MOST_GIVEN_BACK = 16 * 1024 * 1024


class SharedMemory:
    """A mapping of a memfd; `bytes` is all of it."""

    def __init__(self, fd: int) -> None:
        """Map all of the file. The descriptor stays the caller's."""
        self.fd = fd
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        with suppress(OSError, AttributeError):
            self._map.madvise(mmap.MADV_DONTDUMP)
        self.bytes = self.piece(0, len(self._map))
        self._address = address_of(self.bytes)

    def piece(self, start: int, size: int) -> Array:
        """Bytes of the mapping, as an array that is no view of another array."""
        return np.frombuffer(self._map, np.uint8, size, start)

    def give_back(self, start: int, size: int) -> None:
        """Give the system these whole pages; they are zeros when they are used again."""
        with suppress(OSError, AttributeError):
            self._map.madvise(mmap.MADV_REMOVE, start, size)

    def begun(self) -> Begun:
        """When each run began. The host writes it, and the worker reads it, also after the host's death."""
        return self.piece(0, MOST_RUNS * 8).view(np.int64)

    def start_of(self, array: Array) -> int | None:
        """Where this array begins; None if it lies elsewhere, or not in one piece."""
        start = address_of(array) - self._address
        return start if 0 <= start < len(self.bytes) and array.flags.c_contiguous else None


class Heap:
    """Lends pieces of a shared memory. Owned by the worker's process; the loop's thread takes.

    A piece is an array of bytes, and comes back by itself when nothing refers to it, or to a view of it, any more. So
    outputs are valid for as long as they are held, as if ONNX Runtime had allocated them.
    """

    def __init__(self, size: int | None = None) -> None:
        """`size` in bytes: the machine's memory if None."""
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if size is None else size
        fd = os.memfd_create("inference-worker")
        os.ftruncate(fd, size)
        self.memory = SharedMemory(fd)
        # (start, size), in ascending order, no two of them next to each other. The first page tells when runs began.
        self._holes = [(mmap.PAGESIZE, size - mmap.PAGESIZE)]
        self._lent: dict[int, _Lent] = {}  # by their starts
        self._back: list[_Lent] = []  # pieces that came back, from any thread
        self._highest = mmap.PAGESIZE  # the end of the highest piece that was lent since the last `give_back`
        self._used = mmap.PAGESIZE  # the end of the pages that were used before, and not given back

    def take(self, size: int) -> Array:
        """Borrow a piece of at least `size` bytes. Raises `MemoryError`."""
        if self._back:
            self._put_back()
        size = aligned(size) or ALIGNMENT
        at = next((at for at, (_, free) in enumerate(self._holes) if free >= size), None)
        if at is None:
            raise MemoryError(f"no {size} bytes in one piece are free for tensors")
        start, free = self._holes[at]
        self._holes[at : at + 1] = [(start + size, free - size)] if free > size else []
        self._highest = max(self._highest, start + size)
        piece = self.memory.piece(start, size)
        lent = self._lent[start] = _Lent(piece, self._back.append)
        lent.start, lent.size = start, size
        return piece

    def room(self, size: int) -> SharedRoom:
        """Borrow room for the tensors of one batch. Raises `MemoryError`."""
        return SharedRoom(self.take(size))

    def give_back(self, above: int = 0) -> None:
        """Give the system pages above all pieces that were lent at any time since the last call, so many at most.

        The first `above` bytes stay. A GPU that has page-locked them would go on reading the pages that were there.
        """
        self._put_back()
        highest = -(-max(self._highest, above) // mmap.PAGESIZE) * mmap.PAGESIZE
        start = max(highest, self._used - MOST_GIVEN_BACK)
        if start < self._used:
            self.memory.give_back(start, self._used - start)
        self._used = start
        self._highest = max((lent.start + lent.size for lent in self._lent.values()), default=mmap.PAGESIZE)

    def close(self) -> None:
        """Close the file. The memory itself goes with its last view."""
        os.close(self.memory.fd)

    def _put_back(self) -> None:
        while self._back:
            lent = self._back.pop()
            del self._lent[lent.start]
            self._holes.append((lent.start, lent.size))
        self._holes.sort()
        joined = [self._holes[0]]
        for start, size in self._holes[1:]:
            before, length = joined[-1]
            if before + length == start:
                joined[-1] = (before, length + size)
            else:
                joined.append((start, size))
        self._holes = joined


class _Lent(weakref.ref[Array]):
    """A lent piece: its place in the memory."""

    __slots__ = ("size", "start")
    start: int
    size: int


class SharedRoom:
    """Room for the tensors of one batch, one after the other (`core/tensors/room.py`)."""

    __slots__ = ("_end", "_piece", "_view")

    def __init__(self, piece: Array) -> None:
        self._piece = piece
        self._view = piece.data
        self._end = 0

    def join(self, tensors: Sequence[Tensor]) -> Array:
        """Copy the bytes of these tensors of numbers, one after the other."""
        first = self._end
        if len(tensors[0]) < LARGE:
            joined = b"".join(tensors)  # type: ignore[arg-type]  # no texts
            end = first + len(joined)
            self._view[first:end] = joined
        else:
            end = first
            for tensor in tensors:
                bytes_of = memoryview(tensor).cast("B")  # type: ignore[arg-type]
                start, end = end, end + len(bytes_of)
                self._view[start:end] = bytes_of
        self._end = aligned(end)
        return self._piece[first:end]

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An array without content."""
        start = self._end
        end = start + prod(shape) * dtype.itemsize
        self._end = aligned(end)
        return self._piece[start:end].view(dtype).reshape(shape)


# What stands in the place of a dtype: texts with a NUL between two, and other objects, pickled.
TEXTS, OBJECTS = "U", "O"
NUL = "\0"
# An array as bytes: its dtype, its shape and the bytes.
Packed = tuple[str, tuple[int, ...], bytes | memoryview]


def packed(array: Array) -> Packed:
    """The array as bytes, without a copy if it is in one piece; texts with a NUL between two, other objects pickled.

    Texts are pickled if one has a NUL or a half character. Otherwise that takes five times as long.
    """
    if array.dtype.hasobject:
        objects = array.ravel().tolist()
        with suppress(TypeError, UnicodeEncodeError):
            joined = NUL.join(objects).encode()
            if joined.count(NUL.encode()) == len(objects) - 1:
                return TEXTS, array.shape, joined
        return OBJECTS, array.shape, pickle.dumps(objects)
    return array.dtype.str, array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def room_for(arrays: Iterable[Packed]) -> int:
    """The bytes that these arrays take."""
    return sum([aligned(len(content)) for _, _, content in arrays])


def put(arrays: Iterable[Packed], into: Array, start: int = 0) -> list[Place]:
    """Copy the arrays into these bytes, one after the other from `start` on. Returns their places."""
    view, places = into.data, list[Place]()
    for dtype, shape, content in arrays:
        end = start + len(content)
        view[start:end] = content
        places.append((dtype, shape, start, len(content)))
        start = aligned(end)
    return places


def get(place: Place, of: Array) -> Array:
    """The array at this place of these bytes; a view unless it holds texts."""
    dtype, shape, start, size = place
    if dtype in (TEXTS, OBJECTS):
        data = of[start : start + size].data
        listed = str(data, "utf-8").split(NUL) if dtype == TEXTS else pickle.loads(data)  # noqa: S301  # from the worker, or its host
        objects: Array = np.empty(len(listed), object)
        objects[:] = listed
        return objects.reshape(shape)
    return np.ndarray(shape, dtype, of, start)


def aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def address_of(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
