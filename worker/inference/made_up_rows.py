"""Rows that are made up to be unlike: numbers of both signs and of several sizes, small whole numbers, short texts.

Each is made of a row on which the model runs. A model may take no other whole numbers or texts, so only the numbers may
be varied. Pure; `row_independence` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worker.core.records import Array

Row = Mapping[str, Array]  # one row of each input


class Recipe(NamedTuple):
    """How a row is made: `number` says what it holds, `size` how large its numbers are, below 0 for the opposite.

    Rows that are not `is_signed` have no number below 0.
    """

    number: int
    size: float
    is_loud: bool = False
    is_signed: bool = True


def recipes() -> Iterator[Recipe]:
    """A quiet row, a loud one and the opposite of the quiet one, for several sizes.

    Next to numbers a thousand times larger a row is lost wherever both share a scale of 256 steps. Of a row and its
    opposite a ReLU lets one through. Positive numbers are for logarithms and roots, which make NaN of others.
    """
    for number, (size, is_signed) in enumerate(((1.0, True), (1.0, False), (30.0, True), (0.01, True))):
        quiet = Recipe(5 * number, size, is_signed=is_signed)
        yield quiet
        yield Recipe(5 * number + 1, 1000 * size, is_loud=True, is_signed=is_signed)
        yield quiet._replace(size=-size if is_signed else 3 * size)


# Cycles that the elements of a row go through. In quiet rows whole numbers are in nearly every table, and texts are
# words or spell numbers. Loud rows have large ones.
_WHOLE = ((0, 1, 1), (1,), (1, 0, 1, 0, 0), (0,))
_TEXTS = (("0", "1", "1"), ("yes", "no", "a"), ("a b", "b, a, no", ""), ("b", "1", "5"))
_LOUD_WHOLE, _LOUD_TEXTS = (100, 7, 50), ("100", "7", "-50")


class MadeUpRows:
    """Makes rows of `known` ones on which the model runs; inputs that are not `open_names` stay what they are there.

    `are_given`: the operator has given those rows. Numbers are made as large as there, whole numbers and texts only
    change their places, and loud texts come twice.
    """

    def __init__(self, known: Row, open_names: frozenset[str], *, are_given: bool) -> None:
        self._known, self._open, self._are_given = known, open_names, are_given

    def given(self) -> Iterator[Row]:
        """The operator's, each as it is."""
        yield from map(self._row, range(len(next(iter(self._known.values()))) if self._are_given else 0))

    def made(self, recipe: Recipe, *, numbers_alone: bool) -> Row:
        """A row of this recipe; with `numbers_alone` whole numbers and texts stay. Inputs side by side differ."""
        return {
            name: self._input(array, recipe._replace(number=recipe.number + at), numbers_alone=numbers_alone)
            if name in self._open
            else array
            for at, (name, array) in enumerate(self._row(recipe.number).items())
        }

    def _row(self, at: int) -> Row:
        return {name: array[at % len(array) :][:1] for name, array in self._known.items()}

    def _input(self, known: Array, recipe: Recipe, *, numbers_alone: bool) -> Array:
        if known.dtype.kind == "f":
            return self._numbers(known, recipe)
        if numbers_alone:
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
