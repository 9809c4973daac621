"""Rows that are made up to be unlike: numbers of all signs and of several sizes, small whole numbers, short texts.

Each is made of a row on which the model runs. A model may take no other whole numbers or texts, or no other numbers at
all: so a row can be varied more or less. Pure; `row_independence` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worker.core.records import Array

Row = Mapping[str, Array]  # one row of each input

# Beside a row of numbers so many times larger the smaller one is lost wherever both share a scale of 256 steps.
LOUDER = 1000.0
# Sizes of the smaller row: of measurements after a normalisation, of pixels, and nearly nothing.
SIZES = (1.0, 30.0, 0.01)

# Cycles that the elements of a row go through. In quiet rows whole numbers are in nearly every table, and texts are
# words or spell numbers. Loud rows have what is large.
_WHOLE = ((0, 1, 1), (1,), (1, 0, 1, 0, 0), (0,))
_TEXTS = (("0", "1", "1"), ("yes", "no", "a"), ("a b", "b, a, no", ""), ("b", "1", "5"))
_LOUD_WHOLE, _LOUD_TEXTS = (100, 7, 50), ("100", "7", "-50")


class Variety(NamedTuple):
    """What is made up of a row; the rest stays as it is known."""

    numbers: bool  # floating point
    others: bool  # whole numbers, truth values and texts


class Recipe(NamedTuple):
    """How a row is made: `number` says what it holds, `size` how large its numbers are, below 0 for the opposite.

    Of rows that are not `is_signed` all numbers have one sign.
    """

    number: int
    size: float
    is_loud: bool = False
    is_signed: bool = True


def loud_and_quiet(series: int) -> Iterator[tuple[Recipe, Sequence[Recipe]]]:
    """A loud row and the quiet ones to be run beside it, for each size; other ones in each series.

    Of a quiet row and its opposite a ReLU lets one through. In the second series a row's numbers have one sign: of
    others a logarithm and a root make NaN.
    """
    is_signed = series != 1
    for at, size in enumerate(SIZES):
        number = 5 * (series * len(SIZES) + at)
        loud = Recipe(number + 1, size * LOUDER, is_loud=True, is_signed=is_signed)
        yield loud, [Recipe(number, way * size, is_signed=is_signed) for way in (1, -1)]


class MadeUpRows:
    """Makes rows of `known` ones on which the model runs; inputs that are not `open_names` stay what they are there.

    `are_given`: the operator has given those rows: numbers are made as large as there, whole numbers and texts only
    change their places, and loud texts come twice. Else they are blank rows, and what else the model takes is not
    known.
    """

    def __init__(self, known: Row, open_names: frozenset[str], *, are_given: bool) -> None:
        self._known, self._open, self._are_given = known, open_names, are_given
        kinds = {array.dtype.kind == "f" for name, array in known.items() if name in open_names}
        wanted = (Variety(numbers=True, others=True), Variety(numbers=True, others=False))
        only_others = Variety(numbers=False, others=True)
        self.varieties = wanted if kinds == {True, False} else wanted[1:] if kinds == {True} else (only_others,)

    def given(self) -> Iterator[Row]:
        """The operator's, each as it is."""
        yield from map(self._row, range(len(next(iter(self._known.values()))) if self._are_given else 0))

    def made(self, recipe: Recipe, variety: Variety) -> Row:
        """The same for the same recipe. Inputs side by side differ: a mask would hide what is 0 as it is."""
        return {
            name: self._input(array, recipe._replace(number=recipe.number + at), variety)
            if name in self._open
            else array
            for at, (name, array) in enumerate(self._row(recipe.number).items())
        }

    def _row(self, at: int) -> Row:
        return {name: array[at % len(array) :][:1] for name, array in self._known.items()}

    def _input(self, known: Array, recipe: Recipe, variety: Variety) -> Array:
        if known.dtype.kind == "f":
            return self._numbers(known, recipe) if variety.numbers else known
        if not variety.others:
            return known
        if not self._are_given:
            return _others(known, recipe)
        moved: Array = np.roll(known, recipe.number, axis=-1) if known.ndim > 1 else known
        return moved + " " + moved if recipe.is_loud and known.dtype == object else moved

    def _numbers(self, known: Array, recipe: Recipe) -> Array:
        """Normally distributed, and as large as those given."""
        largest = float(np.abs(known.astype(np.float64)).max(initial=0.0)) if self._are_given else 1.0
        numbers = np.random.default_rng(recipe.number).standard_normal(known.shape)
        numbers = (numbers if recipe.is_signed else np.abs(numbers)) * recipe.size * (largest or 1.0)
        most = float(np.finfo(known.dtype).max) / 4  # of FP16: 16,376
        return numbers.clip(-most, most).astype(known.dtype)


def _others(blank: Array, recipe: Recipe) -> Array:
    if recipe.is_loud and blank.dtype == np.uint8:
        return np.random.default_rng(recipe.number).integers(0, 256, blank.shape, np.uint8)  # pixels
    is_text = blank.dtype == object
    quiet: Sequence[Sequence[object]] = _TEXTS if is_text else _WHOLE
    loud: Sequence[object] = _LOUD_TEXTS if is_text else _LOUD_WHOLE
    cycle = loud if recipe.is_loud else quiet[(recipe.number + 2 * (recipe.size < 0)) % len(quiet)]
    at = np.arange(recipe.number, recipe.number + blank.size) % len(cycle)
    return np.array(cycle, blank.dtype)[at].reshape(blank.shape)
