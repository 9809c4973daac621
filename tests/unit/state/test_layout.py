"""The tensors that may be a model's state, and their form in the changelog."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.chunks import signature, spec
from worker.core.failures import BadConfiguration
from worker.core.tensors.signature import Signature
from worker.state import StateLayout, layout_of

LSTM = signature(
    spec("x", dims=(4,)),
    spec("h", dims=(2, 3)),
    spec("c", "FP64"),
    outputs=(spec("y"), spec("h_out", dims=(None, 3)), spec("c_out", "FP64")),
)
PAIRS = {"h": "h_out", "c": "c_out"}


def layout(initial: float | Path = 0.0) -> StateLayout:
    return layout_of(LSTM, PAIRS, initial, with_answer=False)[0]


def test_requests_bring_what_is_no_state() -> None:
    """Answers hold the outputs that are no state, or all outputs if set so."""
    _, left = layout_of(LSTM, PAIRS, 0.0, with_answer=False)
    _, with_answer = layout_of(LSTM, PAIRS, 0.0, with_answer=True)

    assert [t.name for t in left.inputs] == ["x"]
    assert [t.name for t in left.outputs] == ["y"]
    assert [t.name for t in with_answer.outputs] == ["y", "h_out", "c_out"]


@pytest.mark.parametrize(
    ("model", "pairs", "why"),
    [
        (LSTM, {"z": "h_out"}, "no input z; it takes x, h, c"),
        (LSTM, {"h": "z"}, "no output z; it gives y, h_out, c_out"),
        (LSTM, {"c": "h_out"}, "cannot be the next c"),
        (LSTM, {"h": "y"}, "cannot be the next h"),
        (LSTM, {"h": "h_out", "c": "h_out"}, "cannot be the next c"),
        (signature(spec("x"), spec("s", dims=(None,)), outputs=(spec("t", dims=(None,)),)), {"s": "t"}, "one size"),
        (signature(spec("x"), spec("s", "BYTES"), outputs=(spec("t", "BYTES"),)), {"s": "t"}, "numbers"),
        (signature(spec("s"), outputs=(spec("y"), spec("t"))), {"s": "t"}, "all of the model's inputs"),
        (signature(spec("x"), spec("s"), outputs=(spec("t"),)), {"s": "t"}, "WORKER_STATE__ANSWER=true"),
        (signature(spec("x"), spec("s"), spec("r"), outputs=(spec("t"),)), {"s": "t", "r": "t"}, "an output twice"),
    ],
)
def test_what_cannot_be_state_is_refused_with_the_cure(model: Signature, pairs: dict[str, str], why: str) -> None:
    """The refusal comes at the start, before any request."""
    with pytest.raises(BadConfiguration, match=why):
        layout_of(model, pairs, 0.0, with_answer=False)


def test_a_key_without_a_state_begins_as_is_set(tmp_path: Path) -> None:
    """It begins with a number, or with the arrays of a file."""
    np.savez(tmp_path / "both.npz", h=np.full((2, 3), 7, "<f4"), c=np.array([0.5]))
    np.save(tmp_path / "one.npy", np.array([3.0], "<f4"))
    single = signature(spec("x"), spec("s"), outputs=(spec("y"), spec("t")))

    h, c = layout(tmp_path / "both.npz").initial
    (s,) = layout_of(single, {"s": "t"}, tmp_path / "one.npy", with_answer=False)[0].initial

    assert (h.tolist(), c.tolist(), s.tolist()) == ([[7] * 3] * 2, [0.5], [3.0])
    assert [first.tolist() for first in layout(2.0).initial] == [[[2] * 3] * 2, [2]]
    assert [first.tolist() for first in layout(-np.inf).initial] == [[[-np.inf] * 3] * 2, [-np.inf]]


@pytest.mark.parametrize(
    ("datatype", "number", "cure"),
    [
        ("INT64", 0.5, "a whole number from -9223372036854775808"),
        ("INT8", 300.0, "a whole number from -128 to 127"),
        ("UINT8", -1.0, "a whole number from 0 to 255"),
        ("BOOL", 2.0, "0 or 1"),
        ("FP16", 1e6, "a number of at most 65504"),
        ("INT64", -np.inf, "a whole number from -9223372036854775808"),
    ],
)
def test_a_number_that_the_state_cannot_hold_is_refused(datatype: str, number: float, cure: str) -> None:
    """It would begin with another number. A number that fits is taken."""
    model = signature(spec("x"), spec("s", datatype), outputs=(spec("y"), spec("t", datatype)))

    with pytest.raises(BadConfiguration, match=re.escape(f"s is {datatype} and cannot be {number:g}: give {cure}")):
        layout_of(model, {"s": "t"}, number, with_answer=False)
    assert layout_of(model, {"s": "t"}, 1.0, with_answer=False)[0].initial[0].tolist() == [1]


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Another shape, another type, a missing array, or no such file at all."""
    np.savez(tmp_path / "missing.npz", h=np.zeros((2, 3), "<f4"))
    np.save(tmp_path / "wrong.npy", np.zeros((3, 2), "<f4"))
    (tmp_path / "text.npy").write_text("0")

    for name, why in {"missing.npz": "no array for c", "wrong.npy": "shape", "text.npy": "no array for h"}.items():
        with pytest.raises(BadConfiguration, match=why):
            layout(tmp_path / name)


def test_what_is_written_is_read_back() -> None:
    """A value has a head of 24 bytes, and the tensors in the order of the settings."""
    h, c = np.arange(12, dtype="<f4").reshape(2, 2, 3), np.array([[1.5], [2.5]])

    values = layout().written(np.array([4, 9]), np.array([-1, 1000]), np.array([True, False]), [h, c])
    rows = layout().read([value or b"" for value in values])

    assert {len(value or b"") for value in values} == {24 + 6 * 4 + 8}
    assert (values[0] or b"")[24:] == h[0].tobytes() + c[0].tobytes()
    assert (rows["offset"].tolist(), rows["time"].tolist(), rows["flags"].tolist()) == ([4, 9], [-1, 1000], [1, 0])
    assert (rows["s0"].tolist(), rows["s1"].tolist()) == (h.tolist(), c.tolist())
    assert not len(layout().read([]))
