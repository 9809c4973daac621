"""The memory that worker and host share: a lent piece is whole, is lent once, and comes back."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from worker.core.records import Array
from worker.core.tensors.room import ALIGNMENT, OwnRoom
from worker.inference.host.shared_memory import LARGE, Heap, SharedMemory, aligned, get, packed, put, room_for

SIZE = 1 << 16
DTYPES = ["?", "u1", "<u2", "<u4", "<u8", "i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8"]
# A number takes as many bytes; minus one drops a piece that is lent, by its place among them.
STEPS = st.lists(st.one_of(st.integers(0, SIZE // 4), st.integers(-40, -1)), max_size=60)


def start_of(heap: Heap, piece: Array) -> int:
    start = heap.memory.start_of(piece)
    assert start is not None
    return start


@given(STEPS)
def test_no_two_living_pieces_overlap_and_all_comes_back(steps: Sequence[int]) -> None:
    """Whatever is taken and dropped, in any order; holes next to each other are one."""
    heap = Heap(SIZE)
    pieces: list[Array] = []
    for step in steps:
        if step >= 0:
            try:
                pieces.append(heap.take(step))
            except MemoryError:
                event("memory ran out")
                assert all(free < max(aligned(step), ALIGNMENT) for _, free in heap._holes)
        elif pieces:
            del pieces[step % len(pieces)]
        places = sorted((start_of(heap, piece), len(piece)) for piece in pieces)
        ends = [mmap.PAGESIZE, *[start + size for start, size in places]]
        assert all(end <= start for end, (start, _) in zip(ends, places, strict=False))
        assert ends[-1] <= SIZE
        assert all(start % ALIGNMENT == 0 for start, _ in places)
    pieces.clear()
    whole = heap.take(SIZE - mmap.PAGESIZE)

    assert start_of(heap, whole) == mmap.PAGESIZE
    heap.close()


def test_a_piece_lives_as_long_as_a_view_of_it() -> None:
    """Also one by `memoryview`, or in another shape and type."""
    heap = Heap(SIZE)
    free = SIZE - mmap.PAGESIZE
    views = [heap.take(free // 4).view(np.float32).reshape(-1, 4)[1:], heap.take(free // 4).data[8:16]]
    for left in (1, 0):
        with pytest.raises(MemoryError, match=f"no {free} bytes in one piece are free"):
            heap.take(free)
        views.pop()
        assert len(views) == left

    assert len(heap.take(free)) == free
    heap.close()


def test_a_heap_has_the_machine_s_memory_and_takes_only_what_is_written() -> None:
    """No file is left, and closing it leaves the pieces as they are."""
    heap = Heap()
    piece = heap.take(10)
    piece[:] = 7
    heap.close()

    assert len(heap.memory.bytes) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert piece.tolist() == [7] * ALIGNMENT
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(heap.memory.fd)


def test_two_mappings_see_each_other_s_bytes() -> None:
    """As worker and host do."""
    heap = Heap(SIZE)
    other = SharedMemory(heap.memory.fd)
    piece = heap.take(4)
    start = start_of(heap, piece)
    piece[:4] = [1, 2, 3, 4]
    other.begun()[3] = 5

    assert other.bytes[start : start + 4].tolist() == [1, 2, 3, 4]
    assert heap.memory.begun()[3] == 5
    heap.close()


def test_mappings_and_descriptors_end_with_their_last_array() -> None:
    """A host that is started anew a thousand times takes no more."""
    heap = Heap(SIZE)

    def held() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text().count("memfd:inference-worker")
        return maps, sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = held()
    view = SharedMemory(heap.memory.fd).bytes[8:16]
    during = held()
    del view

    assert during > before
    assert held() == before
    heap.close()


def test_the_place_of_an_array_is_known_if_it_is_in_one_piece_here() -> None:
    """Rows of it are, columns are not."""
    heap = Heap(SIZE)
    array = heap.room(64).empty((4, 4), np.dtype(np.float32))
    start = start_of(heap, array)

    assert heap.memory.start_of(array[2:]) == start + 32
    assert heap.memory.start_of(array[:, 1:]) is None
    assert heap.memory.start_of(np.zeros(4)) is None
    heap.close()


@given(
    st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3), st.booleans()), min_size=1),
    st.integers(0, 3),
)
def test_arrays_cross_as_they_are(kinds: Sequence[tuple[str, list[int], bool]], first: int) -> None:
    """Each datatype and each shape, those without elements and those turned over too."""
    rng = np.random.default_rng(len(kinds))
    arrays = []
    for dtype, shape, is_turned in kinds:
        array = rng.integers(0, 255, (*shape, 8), np.uint8).view("u1")[..., : np.dtype(dtype).itemsize]
        array = np.ascontiguousarray(array).view(dtype)[..., 0] if dtype != "?" else array[..., 0] > 127
        arrays.append(array.T if is_turned else array)
    content = [packed(array) for array in arrays]
    into = np.zeros(room_for(content) + ALIGNMENT * first, np.uint8)

    places = put(content, into, ALIGNMENT * first)

    for array, place in zip(arrays, places, strict=True):
        got = get(place, into)
        assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert place[2] % ALIGNMENT == 0
    assert all(start + size <= len(into) for _, _, start, size in places)


@given(st.lists(st.text(), max_size=6), st.booleans())
def test_texts_cross_as_they_are(texts: list[str], is_turned: bool) -> None:  # noqa: FBT001  # hypothesis gives it
    """In their shape, without any too."""
    array = np.array([*texts, *texts], object).reshape(2, -1)
    array = array.T if is_turned else array
    content = [packed(array)]
    into = np.zeros(room_for(content), np.uint8)

    got = get(put(content, into)[0], into)

    assert got.dtype == object
    assert got.shape == array.shape
    assert got.tolist() == array.tolist()


@given(st.lists(st.tuples(st.sampled_from([0, 1, 5, 64, LARGE - 1, LARGE, LARGE + 3]), st.integers(1, 3)), max_size=4))
def test_a_shared_room_joins_as_a_room_of_our_own_does(columns: Sequence[tuple[int, int]]) -> None:
    """Tensors of any length, as bytes or views of them; what is joined next begins aligned."""
    heap = Heap(1 << 20)
    content = [[bytes([at + 1] * size) for at in range(count)] for size, count in columns]
    room, own = heap.room(sum(aligned(len(b"".join(tensors))) for tensors in content)), OwnRoom()

    for tensors in content:
        mixed = [memoryview(tensor) if at % 2 else tensor for at, tensor in enumerate(tensors)]
        joined = room.join(mixed)
        assert joined.tobytes() == bytes(own.join(tensors))
        assert not len(joined) or start_of(heap, joined) % ALIGNMENT == 0
    heap.close()


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)])
def test_a_shared_room_has_empty_arrays_as_numpy_has(shape: tuple[int, ...]) -> None:
    """One after the other, and after what was joined."""
    heap = Heap(SIZE)
    room = heap.room(1024)
    joined = room.join([b"abc"])
    arrays = [room.empty(shape, np.dtype(np.float64)) for _ in range(2)]
    for number, array in enumerate(arrays):
        array[...] = number

    assert joined.tobytes() == b"abc"
    for number, array in enumerate(arrays):
        expected = np.full(shape, float(number))
        assert (array.dtype, array.shape, array.tolist()) == (expected.dtype, expected.shape, expected.tolist())
    heap.close()
