"""A request without optional inputs equals one that gives the defaults: for any model, shapes and choice of inputs."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.meeting import meeting, met
from worker.core.records import Tensor
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import NamedTensor, TensorSpec

SYMBOLS = ("length", "width", "depth")
LENGTHS = st.fixed_dictionaries({symbol: st.integers(1, 5) for symbol in SYMBOLS})


@st.composite
def inputs(draw: st.DrawFn) -> list[TensorSpec]:
    """A required input with every named axis, and any others, with a default or none."""
    first = TensorSpec("x0", "INT64", (None, None, None), SYMBOLS)
    others = []
    for number in range(draw(st.integers(1, 4))):
        axes = draw(st.lists(st.sampled_from([*SYMBOLS, 2]), max_size=3))
        dims = tuple(axis if isinstance(axis, int) else None for axis in axes)
        symbols = tuple(axis if isinstance(axis, str) else None for axis in axes)
        others.append(TensorSpec(f"x{number + 1}", "INT64", dims, symbols, draw(st.integers(-9, 9) | st.none())))
    return draw(st.permutations([first, *others]))


def tensor(spec: TensorSpec, rows: int, lengths: dict[str, int]) -> NamedTensor:
    """The input as a request gives it: its default, or sevens. Axes of one name are equally long."""
    dims = (lengths[symbol or ""] if dim is None else dim for dim, symbol in zip(spec.dims, spec.symbols, strict=True))
    shape = (rows, *dims)
    value = 7 if spec.default is None else spec.default
    elements: Tensor = np.full(math.prod(shape), value, "<i8").tobytes()
    return NamedTensor(spec.name, spec.datatype, shape, elements)


@meeting("one is left out", "several are left out", "one with an axis by name is left out", "one stays that could go")
@given(inputs(), LENGTHS, st.integers(1, 4), st.data())
def test_leaving_an_input_out_is_giving_its_default(
    specs: list[TensorSpec], lengths: dict[str, int], rows: int, data: st.DataObject
) -> None:
    """Rows, shapes and bytes are equal, so nothing behind the judge can tell the two apart."""
    model = Signature("m", "1", tuple(specs), (TensorSpec("y", "FP32", ()),))
    whole = [tensor(spec, rows, lengths) for spec in specs]
    optional = [spec.name for spec in specs if spec.default is not None]
    left_out = {name for name in optional if data.draw(st.sampled_from([True, True, False]))}

    gone = [spec for spec in specs if spec.name in left_out]
    met("one is left out", is_so=len(gone) == 1)
    met("several are left out", is_so=len(gone) > 1)
    met("one with an axis by name is left out", is_so=any(None in spec.dims for spec in gone))
    met("one stays that could go", is_so=len(gone) < len(optional))
    judged = model.judge([one for one in whole if one.name not in left_out])

    assert judged == model.judge(whole)
