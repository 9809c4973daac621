"""A file of states: saved states come back; damage, or another model's states, is refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.failures import BadConfiguration
from worker.core.tensors.specs import TensorSpec
from worker.state import StateLayout
from worker.state.layout import StateTensor
from worker.tools.state.changelog import key_of
from worker.tools.state.states_file import SavedStates, load_states, save


def layout_of(*tensors: tuple[str, str, tuple[int, ...]]) -> StateLayout:
    specs = [TensorSpec(name, datatype, dims) for name, datatype, dims in tensors]
    return StateLayout(
        tuple(StateTensor(spec, f"{spec.name}_next") for spec in specs),
        tuple(np.zeros([d or 1 for d in spec.dims], spec.dtype) for spec in specs),
    )


LAYOUT = layout_of(("h", "FP32", (3,)), ("layer/0/n", "INT64", (1,)))
KEYS = [b"a", b"\0b\0", b"", "ключ".encode()]


def states_of(keys: list[bytes]) -> SavedStates:
    count = len(keys)
    tensors = [np.arange(count * 3, dtype="<f4").reshape(count, 3), np.arange(count, dtype="<i8").reshape(count, 1)]
    return SavedStates(keys, np.arange(count, dtype="i4") % 4, 4, np.arange(count, dtype="i8") - 1, tensors)


def test_a_link_in_the_place_of_the_unfinished_file_is_not_followed(tmp_path: Path) -> None:
    """A link that a killed run left is no obstacle either."""
    (tmp_path / "file").write_bytes(b"precious")
    (tmp_path / "states.npz.part").symlink_to(tmp_path / "file")

    save(tmp_path / "states.npz", LAYOUT, states_of(KEYS))

    assert (tmp_path / "file").read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "states.npz"]


@pytest.mark.parametrize("keys", [KEYS, []])
def test_what_is_saved_comes_back(tmp_path: Path, keys: list[bytes]) -> None:
    """Keys may have any bytes or none, tensor names a slash, and there may be no state at all."""
    states = states_of(keys)
    save(tmp_path / "states.npz", LAYOUT, states)

    back = load_states(tmp_path / "states.npz", LAYOUT)

    assert (list(back.keys), back.partition_count) == (keys, 4)
    assert back.partitions.tolist() == states.partitions.tolist()
    assert back.used_ms.tolist() == states.used_ms.tolist()
    assert all((a == b).all() for a, b in zip(back.tensors, states.tensors, strict=True))
    assert [path.name for path in tmp_path.iterdir()] == ["states.npz"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (layout_of(("h", "FP32", (3,))), "state/layer/0/n, used_ms, where a file"),
        (layout_of(("h", "FP64", (3,)), ("layer/0/n", "INT64", (1,))), "h: expected float64 of shape"),
        (layout_of(("h", "FP32", (4,)), ("layer/0/n", "INT64", (1,))), r"h: expected float32 of shape \(4, 4\)"),
    ],
)
def test_another_models_states_are_refused(tmp_path: Path, other: StateLayout, said: str) -> None:
    """The name, type or shape of a tensor differs."""
    save(tmp_path / "states.npz", LAYOUT, states_of(KEYS))

    with pytest.raises(BadConfiguration, match=said):
        load_states(tmp_path / "states.npz", other)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("key_ends", np.array([1, 0, 4, 12], "i8"), "key_ends do not fit keys"),
        ("key_ends", np.array([1, 4, 4, 11], "i8"), "key_ends do not fit keys"),
        ("key_ends", np.array([1.0, 4, 4, 12]), "key_ends: expected int64"),
        ("key_ends", np.array(12, "i8"), r"key_ends: expected int64 of shape \(1,\)"),
        ("partitions", np.array([0, 1, 2, 4], "i4"), "partitions: expected numbers below"),
        ("partitions", np.array([0, 1, 2], "i4"), "partitions: expected int32"),
        ("partition_count", np.array([4]), "partition_count: expected int64"),
        ("used_ms", np.array([0, 0, 0, -2], "i8"), "used_ms: expected milliseconds"),
        ("used_ms", None, "holds key_ends, .* where a file .*used_ms"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(tmp_path: Path, name: str, value: np.ndarray | None, said: str) -> None:
    """A changed file is not written to a changelog."""
    path = tmp_path / "states.npz"
    save(path, LAYOUT, states_of(KEYS))
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files if key != name}
    if value is not None:
        arrays[name] = value
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)

    with pytest.raises(BadConfiguration, match=said):
        load_states(path, LAYOUT)


@given(at=st.integers(0, 2000), flipped=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_file_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory,
    at: int,
    flipped: int,
    cut: bool,  # noqa: FBT001
) -> None:
    """A byte is changed anywhere, or the end is missing: the refusal is one line."""
    path = tmp_path_factory.mktemp("states") / "states.npz"
    save(path, LAYOUT, states_of(KEYS))
    content = bytearray(path.read_bytes())
    at %= len(content)
    content[at] ^= flipped
    path.write_bytes(content[:at] if cut else content)

    try:
        assert len(load_states(path, LAYOUT).keys) == len(KEYS)
    except BadConfiguration as refusal:
        assert str(path) in str(refusal)  # noqa: PT017 - it may be read, too


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """No file is left behind."""
    with pytest.raises(BadConfiguration, match="cannot be written: No such file"):
        save(tmp_path / "nowhere" / "states.npz", LAYOUT, states_of(KEYS))
    with pytest.raises(BadConfiguration, match="there is no such file"):
        load_states(tmp_path / "none.npz", LAYOUT)


def test_a_key_is_text_or_base64() -> None:
    """So any bytes can be named."""
    assert key_of("ключ", is_base64=False) == "ключ".encode()
    assert key_of("AAH/", is_base64=True) == b"\x00\x01\xff"
    with pytest.raises(BadConfiguration, match="--base64: key-1 is not base64"):
        key_of("key-1", is_base64=True)
