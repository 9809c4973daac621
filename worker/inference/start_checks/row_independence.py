"""Does each row of a batch get its own answer, whatever lies beside it? Tried before requests share a batch.

A model that looks across the first axis answers wrongly and says nothing: one that is quantised dynamically (one scale
for the whole batch), whose first axis is the time, or that was exported in training mode. So a loud row (large numbers)
and a quiet one run together, and each once more among its own copies. The number of rows is the same each time, so
that the same kernels run: the answers of independent rows are equal then, up to rounding. In the end a row and its
opposite run in another number of copies, where only what differs by far is a sign.

An output that is the same for all rows, zeros behind a ReLU or one label, shows nothing: so rows of other signs and
sizes are tried, and outputs that never differed are reported. Operators that share a scale are reported in any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.inference.model import Model
from worker.inference.start_checks.made_up_rows import MadeUpRows, Recipe, Row, loud_and_quiet

# What two runs may differ by, as a part of the row's largest number: TF32 has ten bits, float16 as many.
TOLERANCE = 1e-3
# And in batches of different numbers of rows, which other kernels may run.
ROUGH = 0.1
# Seconds after which nothing more is tried, as the start waits; two quiet rows are tried however long they take.
LONGEST = 0.1
FEWEST_LOOKS = 2
# Each of three loud rows and six quiet ones; a further series only while answers are all the same. Of 1,323 random
# networks whose rows depend on each other four series find 1,274, one finds 1,262, and a single pair of rows finds
# 1,050 (measured 2026).
MOST_SERIES = 4

Outputs = Sequence[Array]

_KINDS = (
    "Models do that which are quantised dynamically (quantise statically instead), whose first axis is the time and "
    "not the batch (batch_first=True), which sort their rows or divide by how many they are, or which were exported in "
    "training mode"
)
_SHARED_SCALE = (
    "The model quantises dynamically ({}): by one scale for all rows of a batch, so that large numbers in one take the "
    "others' digits; quantise statically instead"
)
_CURE = "WORKER_BATCHING__MAX_BATCH_SIZE=1 runs each row alone"


class Independence(NamedTuple):
    """What was found. `why` rows that share a batch change one another's answers, with the cure; None: no sign of it.

    `unseen`: outputs that were the same for all quiet rows, which proves nothing about them. `tried`: how many rows
    that were, the same ones each time; of a slow model there is time for the first of them alone.
    """

    why: str | None = None
    unseen: tuple[str, ...] = ()
    tried: int = 0

    @property
    def doubt(self) -> str | None:
        """Which outputs proved nothing, in a sentence; None where all did, or `why` is known."""
        if self.why is not None or not self.unseen:
            return None
        return (
            f"{', '.join(self.unseen)}: not known whether rows that share a batch change one another's answers, as "
            f"of the rows tried ({self.tried}) none got another answer; name a file of rows whose answers differ in "
            "WORKER_MODEL__WARM_UP_EXAMPLE"
        )


class _Ran(NamedTuple):
    """Rows that were run together, and their answers."""

    rows: Sequence[Row]
    outputs: Outputs


class _Seen(NamedTuple):
    """A row's answer was not what it is among its copies: of which output, by how large a part, where, in which run."""

    output: str
    part: float
    where: str
    ran: _Ran


def independence(model: Model, max_batch_size: int, now: Callable[[], float] = time.monotonic) -> Independence:
    """No sign is no proof: other rows than the made-up ones may differ. Runs at a number of rows that was warmed up."""
    rows = min((count for count in model.warmed_up_at if count > 1), default=1)
    if min(rows, model.most_rows(max_batch_size)) == 1:
        return Independence()
    comparison = _Comparison(model, rows)
    why = comparison.why(now, now() + LONGEST)
    if why is not None:
        return Independence(why)
    if model.batch_quantisers:
        why = (
            "rows that share a batch change one another's answers, though of made-up rows none did. "
            f"{_shared_scale(model.batch_quantisers)}; {_CURE}"
        )
    return Independence(why, comparison.unseen(), comparison.tried)


class _Comparison:
    """Runs rows beside one another. Owns the answers of the quiet ones."""

    def __init__(self, model: Model, rows: int) -> None:
        self._model, self._rows = model, rows
        open_names = frozenset(spec.name for spec in model.signature.required)
        given = model.example_rows
        self._made_up = MadeUpRows(model.blank(given or 1), open_names, are_given=given > 0)
        # On a device an index outside of its table may end the process. Those of an example are inside.
        is_careful = model.is_accelerated and not given
        self._varieties = [v for v in self._made_up.varieties if not (v.others and is_careful)]
        self._quiet: list[_Ran] = []

    def why(self, now: Callable[[], float], until: float) -> str | None:
        """Why rows change one another's answers; None where none did before time was up."""
        for looks, seen in enumerate(self._looks(), 1):
            if seen is not None:
                return self._explained(seen)
            if looks >= FEWEST_LOOKS and now() > until:
                break
        return None

    @property
    def tried(self) -> int:
        """How many quiet rows the model took."""
        return len(self._quiet)

    def unseen(self) -> tuple[str, ...]:
        """The outputs that were the same for each quiet row."""
        return tuple(
            spec.name
            for at, spec in enumerate(self._model.signature.outputs)
            if not any(_difference(quiet.outputs[at], self._quiet[0].outputs[at]) > TOLERANCE for quiet in self._quiet)
        )

    def _looks(self) -> Iterator[_Seen | None]:
        """What each further row shows."""
        for row in self._made_up.given():
            given = self._run([row] * self._rows)
            yield given and self._look(self._last, given)
        for loud_recipe, quiet_recipes in self._recipes():
            loud = self._among_copies(loud_recipe)
            for recipe in quiet_recipes:
                quiet = self._among_copies(recipe)
                yield quiet and self._look(loud or self._last, quiet)
            # A model that sorts its rows may have found them sorted.
            yield loud and quiet and self._together(quiet, loud)
        # Of a row and its opposite a ReLU lets one through.
        for quiet in self._quiet[:2]:
            yield self._in_other_numbers(quiet)

    def _in_other_numbers(self, quiet: _Ran) -> _Seen | None:
        """Whole numbers and texts are left out, as rounding may bring about another label."""
        rows = min((count for count in self._model.warmed_up_at if count != self._rows), default=0)
        other = self._run([quiet.rows[0]] * rows) if rows else None
        if other is None:
            return None
        where = f"in a batch of {rows} from what it is in one of {self._rows}"
        pairs = zip(other.outputs, quiet.outputs, strict=True)
        got, expected = zip(*((a[:1] if a.dtype.kind == "f" else b[:1], b[:1]) for a, b in pairs), strict=True)
        return self._seen(got, expected, where, other, ROUGH)

    @property
    def _last(self) -> _Ran | None:
        return self._quiet[-1] if self._quiet else None

    def _look(self, beside: _Ran | None, quiet: _Ran) -> _Seen | None:
        self._quiet.append(quiet)
        first, last = ([output[at] for output in quiet.outputs] for at in (slice(1), slice(-1, None)))
        where = "behind its own copies from what it is before them"
        return self._seen(last, first, where, quiet) or (beside and self._together(beside, quiet))

    def _recipes(self) -> Iterator[tuple[Recipe, Sequence[Recipe]]]:
        """One series of sizes, and others for as long as an output is the same for all rows."""
        for series in range(MOST_SERIES):
            yield from loud_and_quiet(series)
            if not self.unseen():
                return

    def _together(self, first: _Ran, last: _Ran) -> _Seen | None:
        together = self._run([*first.rows[:-1], last.rows[-1]])
        if together is None:
            return None
        where = "beside another row from what it is beside its own copies"
        for at, alone in ((slice(1), first), (slice(-1, None), last)):
            got, expected = ([output[at] for output in ran.outputs] for ran in (together, alone))
            if seen := self._seen(got, expected, where, together):
                return seen
        return None

    def _seen(
        self, got: Outputs, expected: Outputs, where: str, ran: _Ran, tolerance: float = TOLERANCE
    ) -> _Seen | None:
        names = [spec.name for spec in self._model.signature.outputs]
        part, output = max((_difference(*pair), name) for *pair, name in zip(got, expected, names, strict=True))
        return _Seen(output, part, where, ran) if part > tolerance else None

    def _explained(self, seen: _Seen) -> str:
        again = self._run(seen.ran.rows)
        if again is None or max(map(_difference, again.outputs, seen.ran.outputs)) > TOLERANCE:
            return (
                f"the model answers the same rows differently each time ({seen.output}): export it in evaluation mode"
            )
        quantisers = self._model.batch_quantisers
        by = f"by {seen.part:.1%}" if seen.part < 1 else "altogether"
        return (
            f"rows that share a batch change one another's answers: {seen.output} of a made-up row differs "
            f"{by} {seen.where}. {_shared_scale(quantisers) if quantisers else _KINDS}; {_CURE}"
        )

    def _among_copies(self, recipe: Recipe) -> _Ran | None:
        """The row that the recipe makes, with as many inputs varied as the model takes; None where it takes none."""
        for variety in self._varieties:
            ran = self._run([self._made_up.made(recipe, variety)] * self._rows)
            if ran is not None:
                return ran
        return None

    def _run(self, rows: Sequence[Row]) -> _Ran | None:
        outputs = self._model.run({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
        return None if isinstance(outputs, RunFailure) else _Ran(rows, outputs)


def _shared_scale(operators: Sequence[str]) -> str:
    return _SHARED_SCALE.format(", ".join(operators))


def _difference(got: Array, expected: Array) -> float:
    """As a part of the largest number expected; infinite where there is no such part."""
    if got.shape != expected.shape:
        return np.inf
    if got.dtype.kind != "f":
        return 0.0 if np.array_equal(got, expected) else np.inf
    with np.errstate(invalid="ignore"):  # infinity less infinity; such numbers are alike, as the next line says
        apart = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    apart[(got == expected) | (np.isnan(got) & np.isnan(expected))] = 0.0
    if not apart.any():
        return 0.0
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    return float(np.nan_to_num(apart.max(), nan=np.inf)) / largest if largest else np.inf
