"""States that a clean end left in a directory: the next start has them, or throws them away and says why."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.chunks import P0, P1
from tests.unit.stores.test_local import KEYS, SLOTS
from worker.state import Extent
from worker.stores import LocalStore
from worker.stores.checkpoint_file import NAME

OURS = {"group": "g", "cluster": "c", "layout": "aa, 8 bytes"}
EXTENT = Extent(17, 1000.5)
NONE = np.empty(0, np.int64)


def yes() -> bool:
    return True


def opened(folder: Path, **other: object) -> LocalStore:
    return LocalStore(folder, {**OURS, **other})


def left(folder: Path, go_on: Callable[[], bool] = yes) -> bool:
    """A store left with P0, whose keys are kept, and P1, whose keys are not."""
    store = opened(folder)
    store.grow("rows", NONE, 1000)[1:] = range(1, 1000)
    store.put(P0, KEYS, SLOTS)
    store.put(P1, KEYS, SLOTS)
    is_kept = store.keep({P0: EXTENT}, go_on)
    store.close()
    return is_kept


def expect_nothing(folder: Path, why: str | None, **other: object) -> None:
    with closing(opened(folder, **other)) as store:
        assert (store.why_thrown_away, store.kept, store.take(P0), store.keys_of(P0)) == (why, [], None, 0)
        assert store.get(P0, KEYS) == [0] * len(KEYS)
        assert not store.grow("rows", NONE, 10).any()


def test_what_was_kept_is_there_once_it_is_taken(tmp_path: Path) -> None:
    """Its extent is given once. States of P1 are gone, and P0's count only after they are taken."""
    expect_nothing(tmp_path, None)
    expect_nothing(tmp_path, "the process that had it did not stop cleanly")
    assert left(tmp_path)

    store = opened(tmp_path)

    assert (store.why_thrown_away, store.kept, store.keys_of(P0)) == (None, [P0], 0)
    assert (store.take(P0), store.take(P0), store.take(P1)) == (EXTENT, None, None)
    assert store.get(P0, KEYS) == SLOTS
    assert (store.keys_of(P0), store.get(P1, KEYS)) == (len(KEYS), [0] * len(KEYS))
    assert store.grow("rows", NONE, 10).tolist() == list(range(1000))
    store.close()


def test_what_is_not_taken_is_left_again(tmp_path: Path) -> None:
    """New states are kept with it."""
    left(tmp_path)
    store = opened(tmp_path)
    store.put(P1, KEYS[:1], [1])
    assert store.keep({P1: Extent(3, 2.0)}, yes)
    store.close()

    store = opened(tmp_path)

    assert (store.take(P0), store.take(P1)) == (EXTENT, Extent(3, 2.0))
    assert store.get(P0, KEYS) == SLOTS
    store.close()


@pytest.mark.parametrize("name", OURS)
def test_what_is_of_another_is_thrown_away(tmp_path: Path, name: str) -> None:
    """The reason names the difference: group, cluster or layout."""
    left(tmp_path)

    expect_nothing(tmp_path, f"it is of another {name}: {OURS[name]}, and not theirs", **{name: "theirs"})


@pytest.mark.parametrize("name", ["data.mdb", "rows"])
@pytest.mark.parametrize("at", [0.0, 0.3, 0.6, 0.999])
def test_one_bit_is_enough(tmp_path: Path, at: float, name: str) -> None:
    """Its position does not matter."""
    left(tmp_path)
    file = tmp_path / "states" / name
    content = bytearray(file.read_bytes())
    content[int(at * len(content))] ^= 1
    file.write_bytes(content)

    expect_nothing(tmp_path, "it is damaged")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda said: said.replace(b"17", b"18"),
        lambda said: said[:-1],
        lambda _: b"nonsense",
        lambda _: b"",
        lambda _: b"%08x {}" % zlib.crc32(b"{}"),
    ],
)
def test_a_checkpoint_that_is_damaged_is_not_believed(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    """None of its offsets is used."""
    left(tmp_path)
    checkpoint = tmp_path / NAME
    checkpoint.write_bytes(spoil(checkpoint.read_bytes()))

    store = opened(tmp_path)
    assert (store.why_thrown_away is None, store.kept) == (False, [])
    store.close()


def test_what_is_not_done_in_time_is_not_kept(tmp_path: Path) -> None:
    """Half a checksum is no checksum."""
    assert not left(tmp_path, lambda: False)

    expect_nothing(tmp_path, "the process that had it did not stop cleanly")


def test_without_an_identity_nothing_is_believed(tmp_path: Path) -> None:
    """Without the cluster's id, the changelog could be another one."""
    left(tmp_path)

    store = LocalStore(tmp_path)

    assert (store.kept, store.take(P0), store.get(P0, KEYS[:1])) == ([], None, [0])
    store.close()
