"""States in a directory: a dictionary per partition, for any keys, that no other process shares."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chunks import P0, P1
from tests.fakes import FakeStore
from worker.core.failures import BadConfiguration
from worker.state import Extent
from worker.stores import LocalStore
from worker.stores.local import _LONGEST

KEYS = [b"", b"a", b"\0", b"k" * _LONGEST, b"k" * (_LONGEST + 1), b"l" * 5000]
SLOTS = [3, 1, 4, 1 << 31, 5, 9]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    made = LocalStore(tmp_path)
    yield made
    made.close()


def test_some_goes_round(store: LocalStore) -> None:
    """All keys come once, then again from the first, even if one was deleted meanwhile."""
    store.put(P0, KEYS, SLOTS)

    first, then, nothing, again = (store.some(P0, 4) for _ in range(4))

    assert dict([*first, *then]) == dict(zip(KEYS, SLOTS, strict=True))
    assert (len(first), len(then), nothing, again) == (4, 2, (), first)
    assert store.some(P1, 4) == ()
    store.delete(P0, then[0][0])
    assert store.some(P0, 4) == then[1:]


@pytest.mark.parametrize("dims", [(), (2, 3)])
@pytest.mark.parametrize("is_fake", [False, True])
def test_rows_stay_when_there_are_more(store: LocalStore, dims: tuple[int, ...], *, is_fake: bool) -> None:
    """The next, larger array of that name holds the written rows; new rows are zeros."""
    one, none = FakeStore() if is_fake else store, np.empty((0, *dims), np.float32)

    small, other = one.grow("a", none, 10), one.grow("b", none, 10)
    small[:] = 1.0
    large = one.grow("a", small, 5000)
    large[9:11] = 2.0

    assert (large.shape, large.dtype.str, large.flags.c_contiguous) == ((5000, *dims), "<f4", True)
    assert large.reshape(5000, -1)[:, 0].tolist() == [1.0] * 9 + [2.0] * 2 + [0.0] * 4989
    assert len(one.grow("a", large, 1)) == 5000
    assert not other.any()


@given(
    st.lists(
        st.tuples(
            st.sampled_from([P0, P1]), st.sampled_from(KEYS), st.sampled_from(["put", "put", "delete", "forget", "get"])
        ),
        max_size=30,
    )
)
def test_it_is_a_dictionary(tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[object, bytes, str]]) -> None:
    """This holds for any sequence of calls."""
    store, simple = LocalStore(tmp_path_factory.mktemp("store")), FakeStore()
    for number, (partition, key, call) in enumerate(calls):
        for one in (store, simple):
            if call == "put":
                one.put(partition, [key], [number + 1])  # type: ignore[arg-type]
            elif call == "delete":
                one.delete(partition, key)  # type: ignore[arg-type]
            elif call == "forget":
                one.forget(partition)  # type: ignore[arg-type]
        assert [store.get(p, KEYS) for p in (P0, P1)] == [simple.get(p, KEYS) for p in (P0, P1)]
        assert [store.keys_of(p) for p in (P0, P1)] == [simple.keys_of(p) for p in (P0, P1)]
    store.close()


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    """The next owner finds nothing that the last one left."""
    store = LocalStore(tmp_path / "made")
    store.put(P0, KEYS, SLOTS)
    with pytest.raises(BadConfiguration, match="made is another worker's, which runs"):
        LocalStore(tmp_path / "made")
    store.close()

    store = LocalStore(tmp_path / "made")
    assert store.get(P0, KEYS) == [0] * len(KEYS)
    store.close()


def test_what_lies_in_a_directory_is_for_this_user_alone(tmp_path: Path) -> None:
    """States come from requests, and others may read the directory."""
    directory = tmp_path / "made" / "here"

    store = LocalStore(directory, {"group": "g"})
    store.grow("rows", np.empty(0, np.int64), 10)
    store.put(P0, [b"k"], [1])
    assert store.keep({P0: Extent(1, 0.0)}, lambda: True)
    store.close()

    modes = {path.name: path.stat().st_mode & 0o777 for path in (directory, *directory.rglob("*"))}
    files = dict.fromkeys(("lock", "checkpoint.json", "rows", "data.mdb"), 0o600)
    assert modes == {"here": 0o700, "states": 0o700} | files


@pytest.mark.parametrize("name", ["lock", "states", "checkpoint.json"])
def test_no_link_is_followed(name: str, tmp_path: Path) -> None:
    """Another user may have left it in a shared directory: this user's files would be overwritten."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_bytes(b"precious")
    directory = tmp_path / "directory"
    directory.mkdir()
    (directory / name).symlink_to(kept if name == "states" else kept / "file")

    with pytest.raises(BadConfiguration, match=rf"WORKER_STATE__DIRECTORY: .*(link|{name})"):
        LocalStore(directory, {"group": "g"})

    assert {path.name: path.read_bytes() for path in kept.iterdir()} == {"file": b"precious"}


def test_a_link_in_the_place_of_what_a_clean_stop_leaves_is_replaced(tmp_path: Path) -> None:
    """The file gets its proper place, and the link's target stays unchanged."""
    (tmp_path / "file").write_bytes(b"precious")
    store = LocalStore(tmp_path / "directory", {"group": "g"})
    (tmp_path / "directory" / "checkpoint.json.new").symlink_to(tmp_path / "file")

    assert store.keep({}, lambda: True)
    store.close()

    assert (tmp_path / "file").read_bytes() == b"precious"
    assert not (tmp_path / "directory" / "checkpoint.json").is_symlink()


@pytest.mark.parametrize("name", ["lock", "checkpoint.json"])
def test_no_pipe_is_waited_for(name: str, tmp_path: Path) -> None:
    """A pipe without a writer would block the start for ever: it is refused, or counts as empty."""
    os.mkfifo(tmp_path / name)

    with suppress(BadConfiguration):
        LocalStore(tmp_path, {"group": "g"}).close()


def test_a_directory_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    """The error names the setting."""
    (tmp_path / "file").touch()
    with pytest.raises(BadConfiguration, match=r"WORKER_STATE__DIRECTORY: .*file cannot be written: "):
        LocalStore(tmp_path / "file")


def test_a_disk_that_fails_ends_the_worker_with_the_reason(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be full or broken: no state counts as stored that is not."""
    store.put(P0, [b"a"], [1])

    def fails(*_: object, **__: object) -> None:
        raise lmdb.DiskError(f"mdb_txn_commit: {errno.ENOSPC}")

    class Full:
        begin = staticmethod(fails)
        close = staticmethod(lambda: None)

    environment = store._environment
    monkeypatch.setattr(store, "_environment", Full())
    with pytest.raises(BadConfiguration, match=r"states cannot be kept there: .*28; see that the disk has room"):
        store.put(P0, [b"a"], [1])
    with pytest.raises(BadConfiguration, match="states cannot be kept there"):
        store.get(P0, [b"a"])
    environment.close()
