"""Results in a .npy: whole or called partial, never corrupt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import spec
from worker.core.failures import BadConfiguration, Incomplete
from worker.tools.score.files.npy_file import NpyFile

Y = spec("y", "FP32", (2,))


def test_rows_in_any_order_make_the_array(tmp_path: Path) -> None:
    """Under its own name only when all are there."""
    rows = np.arange(8, dtype="<f4").reshape(4, 2)
    file = NpyFile(tmp_path / "y.npy", Y, 4)
    file.write(2, rows[2:])
    early = [path.name for path in tmp_path.iterdir()]
    file.write(0, rows[:2])

    assert file.close(4) == tmp_path / "y.npy"
    assert early == ["y.partial.npy"]
    assert [path.name for path in tmp_path.iterdir()] == ["y.npy"]
    assert np.array_equal(np.load(tmp_path / "y.npy"), rows)


def test_a_part_is_a_whole_array_by_another_name(tmp_path: Path) -> None:
    """It says how far it is, and holds nothing beyond."""
    file = NpyFile(tmp_path / "y.npy", Y, 1_000_000)
    file.write(0, np.ones((3, 2), "<f4"))
    file.write(5, np.ones((1, 2), "<f4"))

    assert file.close(3) == tmp_path / "y.partial.npy"
    assert np.array_equal(np.load(tmp_path / "y.partial.npy"), np.ones((3, 2)))


def test_a_file_that_was_never_closed_is_refused_by_numpy(tmp_path: Path) -> None:
    """A process that is killed leaves no array that looks whole, even if its last row is written."""
    file = NpyFile(tmp_path / "y.npy", Y, 4)
    file.write(3, np.ones((1, 2), "<f4"))

    with pytest.raises(ValueError, match="pickled"):
        np.load(tmp_path / "y.partial.npy")
    file.close(0)


def test_nothing_is_kept_of_nothing(tmp_path: Path) -> None:
    """Not even a header."""
    assert NpyFile(tmp_path / "y.npy", Y, 4).close(0) is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("datatype", "stands_for"), [("FP32", np.nan), ("INT64", 0), ("BOOL", False)])
def test_a_refused_row_is_nan_or_zeros(tmp_path: Path, datatype: str, stands_for: float) -> None:
    """NaN where the datatype has one."""
    file = NpyFile(tmp_path / "y.npy", spec("y", datatype, (2,)), 2)
    file.write(0, np.ones((1, 2), file.dtype))
    file.refuse(1)
    file.close(2)

    expected = np.array([[1.0, 1.0], [stands_for, stands_for]]).astype(file.dtype)
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected, equal_nan=True)


def test_an_open_shape_is_the_first_row_s(tmp_path: Path) -> None:
    """Rows that were refused before it are filled in then."""
    file = NpyFile(tmp_path / "y.npy", spec("y", "FP32", (None,)), 3)
    file.refuse(0)
    file.write(1, np.ones((2, 3), "<f4"))
    file.close(3)

    assert np.isnan(np.load(tmp_path / "y.npy")).tolist() == [[True] * 3, [False] * 3, [False] * 3]


def test_rows_of_unequal_shapes_are_no_array(tmp_path: Path) -> None:
    """JSON lines can hold them."""
    file = NpyFile(tmp_path / "y.npy", spec("y", "FP32", (None,)), 3)
    file.write(0, np.ones((1, 3), "<f4"))

    with pytest.raises(Incomplete, match=r"row 1 has shape \[2\] and those before it \[3\].*JSON lines"):
        file.write(1, np.ones((1, 2), "<f4"))
    file.close(1)


def test_text_is_no_array(tmp_path: Path) -> None:
    """numpy would pickle it."""
    with pytest.raises(BadConfiguration, match="output y is text"):
        NpyFile(tmp_path / "y.npy", spec("y", "BYTES", (1,)), 3)


def test_a_disk_too_small_is_told_first(tmp_path: Path) -> None:
    """Not after the first hours, and nothing is left of it."""
    with pytest.raises(BadConfiguration, match=r"y.npy will have 8,000,000,000,000,128 bytes, and its disk has only"):
        NpyFile(tmp_path / "y.npy", Y, 10**15)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With the reason of the operating system."""
    with pytest.raises(BadConfiguration, match=r"y.partial.npy: cannot be written: No such file"):
        NpyFile(tmp_path / "absent" / "y.npy", Y, 1)


def test_two_runs_never_share_a_file(tmp_path: Path) -> None:
    """The second is refused, and the first one's rows are its own."""
    first = NpyFile(tmp_path / "y.npy", Y, 2)
    first.write(0, np.ones((2, 2), "<f4"))

    with pytest.raises(BadConfiguration, match=r"y.partial.npy: another run is writing it"):
        NpyFile(tmp_path / "y.npy", Y, 2)

    assert first.close(2) == tmp_path / "y.npy"
    assert np.array_equal(np.load(tmp_path / "y.npy"), np.ones((2, 2)))


def test_another_run_s_unfinished_file_gets_no_full_name(tmp_path: Path) -> None:
    """Somebody removed ours, and started anew."""
    first = NpyFile(tmp_path / "y.npy", Y, 2)
    first.write(0, np.ones((2, 2), "<f4"))
    first.partial.unlink()
    second = NpyFile(tmp_path / "y.npy", Y, 2)

    with pytest.raises(Incomplete, match=r"y.npy: cannot be finished: .*y.partial.npy was removed meanwhile"):
        first.close(2)

    assert not (tmp_path / "y.npy").exists()
    second.close(0)
