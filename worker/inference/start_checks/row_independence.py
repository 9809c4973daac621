"""Does each row of a batch get its own answer, whatever lies beside it? Tried before requests share a batch.

A model that looks across the first axis answers wrongly and says nothing: one whose first axis is the time, that finds
objects in the first image of a batch alone, or that was exported in training mode. So a row runs in another number of
copies, where only what differs by far is a sign. Then a loud row (large numbers) and a quiet one run together, and each
once more among its own copies. The number of rows is the same there, so that the same kernels run: the answers of
independent rows are equal, up to rounding. Such a model is refused, and one whose rows share a scale is warned of.

An output that is the same for all rows, zeros behind a ReLU or one label, shows nothing: so rows of other signs and
sizes are tried, and outputs that never differed are reported. Operators that share a scale are reported in any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from worker.core.failures import BadConfiguration, RunFailure
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.model import Model
from worker.inference.start_checks.independence import CURE, KINDS, SHARED_SCALE, UNFOUND, UNSTABLE, Independence
from worker.inference.start_checks.made_up_rows import MadeUpRows, Recipe, Row, loud_and_quiet
from worker.inference.start_checks.warm_up import ALWAYS_RUN, check_rows

# What two runs may differ by, as a part of the row's largest number: TF32 has ten bits, float16 as many.
TOLERANCE = 1e-3
# And in batches of different numbers of rows, which other kernels may run.
ROUGH = 0.1
# Seconds of this thread's processor time after which nothing more is tried, as the start waits; two quiet rows are
# tried however long they take: of a MiniLM 0.085 s (2026-11).
LONGEST = 0.08
FEWEST_LOOKS = 2
# Each of three loud rows and six quiet ones; the second only while answers are all the same.
MOST_SERIES = 2

# Operators that compute one scale from all rows of a batch. Those that quantise by blocks (MatMulNBits) keep within a
# row, and those of integers (MatMulInteger and its kind) are given their scales.
BATCH_QUANTISERS = frozenset({"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
# Detectors with this inside often fill the first image of a batch alone, and show it only where an object is found.
FINDER = "NonMaxSuppression"
TELLING = BATCH_QUANTISERS | RANDOM | {FINDER}

Outputs = Sequence[Array]

BESIDE_ANOTHER = "beside another row from what it is beside its own copies"


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


def independence(model: Model, max_batch_size: int, now: Callable[[], float] = time.thread_time) -> Independence:
    """No sign is no proof: other rows than the made-up ones may differ. Runs at numbers of rows that were warmed up.

    Raises `BadConfiguration` with the cure where rows get answers that are not theirs, or may.
    """
    if model.most_rows(max_batch_size) == 1:
        return Independence()
    comparison = _Comparison(model, min((count for count in model.warmed_up_at if count > 1), default=ALWAYS_RUN))
    why = comparison.why(now, now() + LONGEST)
    unseen = comparison.unseen()
    if FINDER in model.operators and _hides_objects(model.signature.outputs, unseen):
        raise BadConfiguration(UNFOUND.format(comparison.tried))
    return Independence(why, unseen if why is None else (), comparison.tried, comparison.is_whole)


def _hides_objects(outputs: Sequence[TensorSpec], unseen: Sequence[str]) -> bool:
    """Whether nothing shows that an object was found in any row.

    Boxes and scores differ from object to object. Labels do not where there is one class, nor do counts.
    """
    floats = {spec.name for spec in outputs if spec.is_float}
    return not floats.isdisjoint(unseen) if floats else bool(unseen)


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
        self.is_whole = True  # nothing was left out for want of time

    def why(self, now: Callable[[], float], until: float) -> str | None:
        """Why rows change one another's answers by a shared scale; None where no sign of it came before time was up.

        Raises `BadConfiguration` where it is not by a scale.
        """
        looks = self._looks()
        for number, seen in enumerate(looks, 1):
            if seen is not None:
                return self._explained(seen)
            if number >= FEWEST_LOOKS and now() > until:
                self.is_whole = False
                break
        if quantisers := self._quantisers:
            hidden = "rows that share a batch change one another's answers, though of made-up rows none did"
            return f"{hidden}. {SHARED_SCALE.format(quantisers)}; {CURE}"
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
                if len(self._quiet) == 2:  # of a row and its opposite a ReLU lets one through
                    yield quiet and self._in_other_numbers(quiet)
            # A model that sorts its rows may have found them sorted.
            yield loud and quiet and self._together(quiet, loud)

    def _in_other_numbers(self, quiet: _Ran) -> _Seen | None:
        """Whole numbers and texts are not compared, as rounding may bring about another label; their shapes are."""
        alone = 0 if self._model.padding else 1  # a padded model runs at one number
        rows = min((count for count in self._model.warmed_up_at if count != self._rows), default=alone)
        other = self._run([quiet.rows[0]] * rows) if rows else None
        if other is None:
            return None
        where = f"in a batch of {rows} from what it is in one of {self._rows}"
        pairs = zip(other.outputs, quiet.outputs, strict=True)
        is_seen = [(a if a.dtype.kind == "f" or a.shape[1:] != b.shape[1:] else b, b) for a, b in pairs]
        got, expected = ([output[:1] for output in outputs] for outputs in zip(*is_seen, strict=True))
        return self._seen(got, expected, where, other, ROUGH)

    @property
    def _last(self) -> _Ran | None:
        return self._quiet[-1] if self._quiet else None

    def _look(self, beside: _Ran | None, quiet: _Ran) -> _Seen | None:
        self._quiet.append(quiet)
        if len(self._quiet) == 1 and (seen := self._in_other_numbers(quiet)):
            return seen
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
        for at, alone in ((slice(1), first), (slice(-1, None), last)):
            got, expected = ([output[at] for output in ran.outputs] for ran in (together, alone))
            if seen := self._seen(got, expected, BESIDE_ANOTHER, together):
                return seen
        return None

    def _seen(
        self, got: Outputs, expected: Outputs, where: str, ran: _Ran, tolerance: float = TOLERANCE
    ) -> _Seen | None:
        names = [spec.name for spec in self._model.signature.outputs]
        part, output = max((_difference(*pair), name) for *pair, name in zip(got, expected, names, strict=True))
        return _Seen(output, part, where, ran) if part > tolerance else None

    @property
    def _quantisers(self) -> str:
        return ", ".join(sorted(self._model.operators & BATCH_QUANTISERS))

    def _explained(self, seen: _Seen) -> str:
        """What to warn of. Raises `BadConfiguration` for what is no matter of digits or of chance."""
        again = self._run(seen.ran.rows)
        if again is None or max(map(_difference, again.outputs, seen.ran.outputs)) > TOLERANCE:
            if drawn := ", ".join(sorted(self._model.operators & RANDOM)):
                return f"the model answers the same rows differently each time ({seen.output}): it has {drawn} inside"
            raise BadConfiguration(UNSTABLE.format(seen.output))
        by = f"by {seen.part:.1%}" if seen.part < 1 else "altogether"
        why = (
            f"rows that share a batch change one another's answers: {seen.output} of a made-up row differs "
            f"{by} {seen.where}. "
        )
        if seen.where == BESIDE_ANOTHER and (quantisers := self._quantisers):  # copies have one scale in any number
            return f"{why}{SHARED_SCALE.format(quantisers)}; {CURE}"
        raise BadConfiguration(f"{why}{KINDS}; {CURE}")

    def _among_copies(self, recipe: Recipe) -> _Ran | None:
        """The row that the recipe makes, with as many inputs varied as the model takes; None where it takes none."""
        for variety in self._varieties:
            ran = self._run([self._made_up.made(recipe, variety)] * self._rows)
            if ran is not None:
                return ran
        return None

    def _run(self, rows: Sequence[Row]) -> _Ran | None:
        outputs = self._model.run({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
        if isinstance(outputs, RunFailure):
            return None
        check_rows(self._model.signature.outputs, outputs, len(rows))
        return _Ran(rows, outputs)


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
