"""What there is to publish: lines as they come, rows of arrays of any layout, requests made up for a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.codecs.builders import X, Y, model, taking
from worker.codecs.examples import Encoding
from worker.core.failures import BadConfiguration
from worker.core.tensors.signature import Signature
from worker.tools.publish import requests
from worker.tools.publish.requests import LineRequests, MadeUpRequests, Requests, RowRequests, is_archive, is_array

BODY = b'{"inputs":[]}'


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[bytes], LineRequests]]:
    """Makes a file of that content, open as `publish` opens it."""
    with ExitStack() as files:

        def lines(content: bytes) -> LineRequests:
            path = tmp_path / "requests.jsonl"
            path.write_bytes(content)
            return LineRequests(files.enter_context(path.open("rb", buffering=0)), path.name)

        yield lines


def saved(array: np.ndarray, tmp_path: Path) -> Path:
    path = tmp_path / "rows.npy"
    np.save(path, array)
    return path


def values(source: Requests) -> list[bytes | None]:
    return [request.value for request in source if request is not None]


def test_lines_come_in_order_and_empty_ones_not_at_all(opened: Callable[[bytes], LineRequests]) -> None:
    """Whatever ends a line, and without an end behind the last one."""
    content = b"\n".join([BODY, b"", b"  ", BODY + b"\r", b'{"value": "last"}'])

    assert values(opened(content)) == [BODY, BODY, b"last"]


def test_a_line_longer_than_a_block_is_one_request(opened: Callable[[bytes], LineRequests]) -> None:
    """Blocks are how a file is read, not what it holds."""
    long = b'{"value": "%b"}' % (b"x" * (2 * requests.BLOCK))

    assert list(map(len, filter(None, values(opened(long + b"\n" + BODY))))) == [
        2 * requests.BLOCK,
        len(BODY),
    ]


def test_an_odd_line_is_told_by_its_number(opened: Callable[[bytes], LineRequests]) -> None:
    """What stands before it has been handed on."""
    source = iter(opened(BODY + b"\n\n{}\n"))

    assert next(source) is not None
    with pytest.raises(BadConfiguration, match=r"requests.jsonl, line 3: neither a request"):
        next(source)


def test_a_line_without_end_is_refused(
    opened: Callable[[bytes], LineRequests], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it fills the memory."""
    monkeypatch.setattr(requests, "LONGEST_LINE", 100)

    with pytest.raises(BadConfiguration, match="more than 100 bytes"):
        list(opened(b"x" * 101))


def test_a_silent_pipe_gives_nothing_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that whoever publishes can look after what is under way; a closed one is the end."""
    monkeypatch.setattr(requests, "_GLANCE", 0.0)
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb", buffering=0) as pipe:
        source = iter(LineRequests(pipe, "standard input"))

        assert next(source) is None
        os.write(writes, BODY[:3])
        assert next(source) is None
        os.write(writes, BODY[3:] + b"\n")
        found = next(source)
        assert found is not None
        assert found.value == BODY
        os.close(writes)
        assert list(source) == []


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<i8", "u1", "?"])
def test_rows_are_little_endian_whatever_the_file_has(dtype: str, order: str, tmp_path: Path) -> None:
    """Byte order and layout are the file's own affair."""
    array = np.array(np.arange(12).reshape(4, 3) % 5, dtype, order=order)  # type: ignore[call-overload]  # order is C or F

    source = RowRequests(saved(array, tmp_path), 1)

    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    assert source.total == 4
    assert values(source) == [row.tobytes() for row in plain]


def test_rows_may_share_a_request(tmp_path: Path) -> None:
    """The last one has what is left."""
    array = np.arange(10, dtype="<f4").reshape(5, 2)

    source = RowRequests(saved(array, tmp_path), 2)

    assert source.total == 3
    assert values(source) == [array[:2].tobytes(), array[2:4].tobytes(), array[4:].tobytes()]


@pytest.mark.parametrize(("dtype", "datatype"), [("<f4", b"FP32"), (">i8", b"INT64"), ("?", b"BOOL"), ("g", None)])
def test_rows_say_what_they_are(dtype: str, datatype: bytes | None, tmp_path: Path) -> None:
    """Their datatype, which the bytes do not say and a long double has none of, and how many they are."""
    source = RowRequests(saved(np.zeros((3, 2), dtype), tmp_path), 2)

    found = [dict(one.headers) for one in source if one is not None]

    assert [one.get("datatype") for one in found] == [datatype] * 2
    assert [one["rows"] for one in found] == [b"2", b"1"]


def test_rows_of_many_blocks_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No block ends inside a request."""
    monkeypatch.setattr(requests, "BLOCK", 100)
    array = np.arange(100, dtype="<f8").reshape(25, 4)

    found = values(RowRequests(saved(array, tmp_path), 2))

    assert b"".join(filter(None, found)) == array.tobytes()
    assert len(found) == 13


def test_a_flat_array_has_rows_of_one_element(tmp_path: Path) -> None:
    """For a model that takes one number a row."""
    assert values(RowRequests(saved(np.array([1, 2], "<i8"), tmp_path), 1)) == [b"\1" + 7 * b"\0", b"\2" + 7 * b"\0"]


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.array(1.0), "holds no rows"),
        (np.zeros((0, 3)), "holds no rows"),
        (np.zeros((3, 0)), "holds no rows"),
        (np.array(["a"]), "only numbers"),
        (np.zeros(2, [("a", "f4")]), "only numbers"),
        (np.array([1j]), "only numbers"),
    ],
)
def test_an_array_without_rows_of_numbers_is_refused(array: np.ndarray, told: str, tmp_path: Path) -> None:
    """In words, before anything is published."""
    with pytest.raises(BadConfiguration, match=told):
        RowRequests(saved(array, tmp_path), 1)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    """A file must not run code."""
    path = tmp_path / "evil.npy"
    np.save(path, np.array([{}], object), allow_pickle=True)

    with pytest.raises(BadConfiguration, match="cannot be read as an array"):
        RowRequests(path, 1)


def test_an_array_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    """Whatever the file is called; a folder or nothing is none."""
    assert is_array(saved(np.zeros(1), tmp_path))
    assert not is_array(tmp_path / "absent")
    assert not is_array(tmp_path)


def test_an_archive_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    """As an array is."""
    np.savez(tmp_path / "rows.npz", x=np.zeros(1))

    assert is_archive(tmp_path / "rows.npz")
    assert not is_archive(saved(np.zeros(1), tmp_path))


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 12), "<f4"), np.zeros((2, 12), ">f4"), np.zeros((2, 4, 3), "<f4"), np.zeros((2, 3, 4), "<f4")],
)
def test_rows_of_as_many_elements_fit(array: np.ndarray, tmp_path: Path) -> None:
    """The bytes are the same, whatever their layout in the file."""
    RowRequests(saved(array, tmp_path), 1).check(taking("FP32", 3, 4))


def test_a_flat_array_fits_a_model_of_single_numbers(tmp_path: Path) -> None:
    """With an axis for the one number and without."""
    for dims in ((1,), ()):
        RowRequests(saved(np.zeros(2, "<i8"), tmp_path), 1).check(model(replace(X, datatype="INT64", dims=dims)))


@pytest.mark.parametrize(
    ("array", "signature", "told"),
    [
        (np.zeros((2, 4), "<f4"), model(), "float32 of shape [2, 4]; the model takes x FP32[batch, 3]"),
        (np.zeros((2, 3), "<f8"), model(), "save array.astype('float32')"),
        (np.zeros((2, 3), "<i4"), model(), "save array.astype('float32')"),
        (np.zeros((2, 3), "<f4"), model(X, Y), "publish JSON lines"),
        (np.zeros((2, 3), "<f4"), taking("FP32", None), "publish JSON lines"),
        (np.zeros((2, 3), "<f4"), taking("BYTES"), "publish JSON lines"),
    ],
)
def test_rows_that_a_model_does_not_take_are_refused(
    array: np.ndarray, signature: Signature, told: str, tmp_path: Path
) -> None:
    """Those too that have as many bytes and mean other numbers."""
    with pytest.raises(BadConfiguration) as failure:
        RowRequests(saved(array, tmp_path), 1).check(signature)

    assert told in str(failure.value)


def test_the_same_seed_makes_the_same_requests() -> None:
    """As many as were asked for, each another."""
    made = [values(MadeUpRequests(model(), 20, Encoding.ROWS, 1, seed)) for seed in (1, 1, 2)]

    assert made[0] == made[1] != made[2]
    assert len(set(made[0])) == 20
