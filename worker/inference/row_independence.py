"""Does each row of a batch get its own answer, whatever lies next to it? Tried before requests share a batch.

A model that looks across the first axis answers wrongly and says nothing: one whose first axis is the time, that finds
objects in the first image alone, or that was exported in training mode. So each made-up row runs among its own copies,
and then in a batch with the row before it. The number of rows is the same, so that the same kernels run: the answers of
independent rows are equal, up to rounding. The first one also runs in another number of copies, where only a difference
by far is a sign. A model whose rows are not independent is refused, or warned of where they share no more than a scale.

An output that is the same for all rows, zeros behind a ReLU or one label, shows nothing, which is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worker.core.failures import BadConfiguration, RunFailure, listed
from worker.core.records import Array
from worker.inference.model import Model
from worker.inference.warm_up import ALWAYS_RUN, check_rows

# How far apart two runs may be, as a part of the row's largest number: TF32 has ten bits, float16 as many.
TOLERANCE = 1e-3
# And in batches of different numbers of rows, which other kernels may run.
ROUGH = 0.1
# Seconds of this thread's processor time after which nothing more is tried, as the start waits.
LONGEST = 0.1
FEWEST_ROWS = 3  # are tried however long they take

# Operators that compute one scale from all rows of a batch. Those that quantise by blocks (MatMulNBits) keep within a
# row, and those of integers (MatMulInteger and its kind) are given their scales.
BATCH_QUANTISERS = frozenset({"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
# Detectors with this inside often fill the first image of a batch alone, and show it only where an object is found.
FINDER = "NonMaxSuppression"

# Cycles that the elements of a made-up row go through. In quiet rows whole numbers are in nearly every table, and texts
# are words or spell numbers. Loud rows have large ones.
_WHOLE = ((0, 1, 1), (1,), (1, 0, 1, 0, 0), (0,))
_TEXTS = (("0", "1", "1"), ("yes", "no", "a"), ("a b", "b, a, no", ""), ("b", "1", "5"))
_LOUD_WHOLE, _LOUD_TEXTS = (100, 7, 50), ("100", "7", "-50")

CURE = "WORKER_BATCHING__MAX_BATCH_SIZE=1 runs each row alone (docs/models.md#rows-that-change-each-others-answers)"

Row = Mapping[str, Array]  # one row of each input


class Independence(NamedTuple):
    """What was found. `why` rows that share a batch may change one another's answers, with the cure; None: no sign.

    `doubt`: why the trial may have missed it, and whether to act; None where nothing speaks for that.
    """

    why: str | None = None
    doubt: str | None = None


class _Ran(NamedTuple):
    """Rows that were run together, and their answers."""

    rows: Sequence[Row]
    outputs: Sequence[Array]


class _Seen(NamedTuple):
    """Which output of a row differed, by how large a part, from what, and the run in which it did."""

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
    trial = _Trial(model, min((count for count in model.warmed_up_at if count > 1), default=ALWAYS_RUN))
    until = now() + LONGEST
    for seen in trial.looks():
        if seen is not None:
            return Independence(_explained(trial, seen))
        if len(trial.ran) >= FEWEST_ROWS and now() > until:
            break
    if quantisers := _those(model, BATCH_QUANTISERS):
        return Independence(f"rows that share a batch may change one another's answers: {_scale(quantisers)}")
    return Independence(doubt=_doubt(trial))


class _Trial:
    """Runs rows next to one another. Owns the rows that the model took, and their answers."""

    def __init__(self, model: Model, rows: int) -> None:
        self.model, self._rows = model, rows
        self._given = model.example_rows
        self._known = model.blank(self._given or 1)
        self._open = frozenset(spec.name for spec in model.signature.required)
        # On a device an index outside of its table may end the process. The indexes of an example are inside.
        is_careful = model.is_accelerated and not self._given
        has_numbers = any(spec.is_float for spec in model.signature.required)
        self._ways = [False] * (not is_careful) + [True] * has_numbers  # whether numbers alone are varied
        self.ran: list[_Ran] = []

    def looks(self) -> Iterator[_Seen | None]:
        """A look at each further row: the operator's, then made-up ones."""
        for at in range(self._given):
            yield self._look(self.run([self._row(at)] * self._rows))
        for recipe in _recipes():
            copies = [[self._made(recipe, numbers_alone=way)] * self._rows for way in self._ways]
            yield self._look(next((ran for ran in map(self.run, copies) if ran is not None), None))

    def run(self, rows: Sequence[Row]) -> _Ran | None:
        """None where the model fails on them."""
        outputs = self.model.run({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
        if isinstance(outputs, RunFailure):
            return None
        check_rows(self.model.signature.outputs, outputs, len(rows))
        return _Ran(rows, outputs)

    def unseen(self) -> Sequence[str]:
        """The outputs that were the same for each row."""
        return [
            spec.name
            for at, spec in enumerate(self.model.signature.outputs)
            if not any(difference(ran.outputs[at], self.ran[0].outputs[at]) > TOLERANCE for ran in self.ran)
        ]

    def _look(self, alone: _Ran | None) -> _Seen | None:
        """At a row among its copies, which runs once more in a batch with the row before it."""
        if alone is None:
            return None
        before = self.ran[-1] if self.ran else None
        self.ran.append(alone)
        if before is None and (seen := self._in_other_numbers(alone)):
            return seen
        where = "behind its own copies from what it is before them"
        if (seen := self._seen(_last(alone), _first(alone), where, alone)) or before is None:
            return seen
        together = self.run([*before.rows[:-1], alone.rows[-1]])
        if together is None:
            return None
        where = "next to another row from what it is next to its own copies"
        seen = self._seen(_first(together), _first(before), where, together)
        return seen or self._seen(_last(together), _last(alone), where, together)

    def _in_other_numbers(self, alone: _Ran) -> _Seen | None:
        """Whole numbers and texts are not compared, as rounding may bring about another label; their shapes are."""
        if self.model.padding:  # it runs at one number
            return None
        rows = min((count for count in self.model.warmed_up_at if count != self._rows), default=1)
        other = self.run([alone.rows[0]] * rows)
        if other is None:
            return None
        pairs = zip(_first(other), _first(alone), strict=True)
        told = [a if a.dtype.kind == "f" or a.shape != b.shape else b for a, b in pairs]
        where = f"in a batch of {rows} from what it is in one of {self._rows}"
        return self._seen(told, _first(alone), where, other, ROUGH)

    def _seen(
        self, got: Sequence[Array], expected: Sequence[Array], where: str, ran: _Ran, tolerance: float = TOLERANCE
    ) -> _Seen | None:
        names = [spec.name for spec in self.model.signature.outputs]
        part, output = max((difference(*pair), name) for *pair, name in zip(got, expected, names, strict=True))
        return _Seen(output, part, where, ran) if part > tolerance else None

    def _row(self, at: int) -> Row:
        """A row on which the model runs."""
        return {name: array[at % len(array) :][:1] for name, array in self._known.items()}

    def _made(self, recipe: _Recipe, *, numbers_alone: bool) -> Row:
        """A row of this recipe. Inputs side by side differ; inputs that requests may leave out stay what they are.

        Numbers are as large as in the operator's rows. A model may take no other whole numbers or texts than theirs,
        which only change their places; loud texts come twice.
        """
        row = dict(self._row(recipe.number))
        for at, (name, known) in enumerate(row.items()):
            own = recipe._replace(number=recipe.number + at)
            if name not in self._open or (numbers_alone and known.dtype.kind != "f"):
                continue
            if known.dtype.kind == "f":
                row[name] = _numbers(known, own, is_given=self._given > 0)
            elif not self._given:
                row[name] = _others(known, own)
            else:
                moved = np.roll(known, own.number, axis=-1) if known.ndim > 1 else known
                row[name] = moved + " " + moved if own.is_loud and known.dtype == object else moved
        return row


class _Recipe(NamedTuple):
    """How a row is made: `number` says what it holds, `size` how large its numbers are, below 0 for the opposite.

    Rows that are not `is_signed` have no number below 0.
    """

    number: int
    size: float
    is_loud: bool = False
    is_signed: bool = True


def _recipes() -> Iterator[_Recipe]:
    """A quiet row, a loud one and the opposite of the quiet one, for several sizes.

    Next to numbers a thousand times larger a row is lost wherever both share a scale of 256 steps. Of a row and its
    opposite a ReLU lets one through. Positive numbers are for logarithms and roots, which make NaN of others.
    """
    for number, (size, is_signed) in enumerate(((1.0, True), (1.0, False), (30.0, True), (0.01, True))):
        quiet = _Recipe(5 * number, size, is_signed=is_signed)
        yield quiet
        yield _Recipe(5 * number + 1, 1000 * size, is_loud=True, is_signed=is_signed)
        yield quiet._replace(size=-size if is_signed else 3 * size)


def _numbers(known: Array, recipe: _Recipe, *, is_given: bool) -> Array:
    """Normally distributed, and as large as those given."""
    largest = float(np.abs(known.astype(np.float64)).max(initial=0.0)) if is_given else 1.0
    numbers = np.random.default_rng(recipe.number).standard_normal(known.shape)
    numbers = (numbers if recipe.is_signed else np.abs(numbers)) * recipe.size * (largest or 1.0)
    most = float(np.finfo(known.dtype).max) / 4  # of FP16: 16,376
    return numbers.clip(-most, most).astype(known.dtype)


def _others(blank: Array, recipe: _Recipe) -> Array:
    if recipe.is_loud and blank.dtype == np.uint8:
        return np.random.default_rng(recipe.number).integers(0, 256, blank.shape, np.uint8)  # pixels
    is_text = blank.dtype == object
    quiet: Sequence[Sequence[object]] = _TEXTS if is_text else _WHOLE
    loud: Sequence[object] = _LOUD_TEXTS if is_text else _LOUD_WHOLE
    cycle = loud if recipe.is_loud else quiet[(recipe.number + 2 * (recipe.size < 0)) % len(quiet)]
    at = np.arange(recipe.number, recipe.number + blank.size) % len(cycle)
    return np.array(cycle, blank.dtype)[at].reshape(blank.shape)


def _first(ran: _Ran) -> Sequence[Array]:
    return [output[:1] for output in ran.outputs]


def _last(ran: _Ran) -> Sequence[Array]:
    return [output[-1:] for output in ran.outputs]


def difference(got: Array, expected: Array) -> float:
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


def _explained(trial: _Trial, seen: _Seen) -> str:
    """The warning. Raises `BadConfiguration` for what is no matter of digits or of chance."""
    again = trial.run(seen.ran.rows)
    if again is None or max(map(difference, again.outputs, seen.ran.outputs)) > TOLERANCE:
        why = f"the model answers the same rows differently each time ({seen.output})"
        if drawn := _those(trial.model, RANDOM):
            return f"{why}: it has {drawn} inside"
        raise BadConfiguration(
            f"{why}, and draws no random numbers: it was exported in training mode; export it in evaluation mode "
            "(docs/models.md)"
        )
    by = f"by {seen.part:.1%}" if seen.part < 1 else "altogether"
    why = f"rows that share a batch change one another's answers: {seen.output} of a made-up row differs {by} "
    quantisers = _those(trial.model, BATCH_QUANTISERS)
    if quantisers and seen.where.startswith("next to another"):  # copies have one scale in any number
        return f"{why}{seen.where}. {_scale(quantisers)}"
    raise BadConfiguration(f"{why}{seen.where}; {CURE}")


def _doubt(trial: _Trial) -> str | None:
    """Raises `BadConfiguration` for a detector that found nothing in any row.

    Boxes and scores differ from object to object. Labels do not where there is one class, nor do counts.
    """
    unseen, tried = trial.unseen(), len(trial.ran)
    floats = {spec.name for spec in trial.model.signature.outputs if spec.is_float}
    hides_objects = not floats.isdisjoint(unseen) if floats else bool(unseen)
    if FINDER in trial.model.operators and hides_objects:
        raise BadConfiguration(
            f"the model has {FINDER} inside and found nothing in the {tried} made-up rows ({listed(unseen)} did not "
            "differ); many such exports answer the first image of a batch alone: name a file of images with unlike "
            f"objects in WORKER_MODEL__WARM_UP_EXAMPLE, or export it without NMS; {CURE}"
        )
    if not unseen:
        return None
    return (
        f"{listed(unseen)} did not differ in the {tried} rows tried, so they do not show whether rows that share a "
        "batch change one another's answers. Nothing to do if the model was exported in evaluation mode, with the "
        "batch first; to have it tried, name a file of rows with unlike answers in WORKER_MODEL__WARM_UP_EXAMPLE"
    )


def _those(model: Model, operators: frozenset[str]) -> str:
    return ", ".join(sorted(model.operators & operators))


def _scale(quantisers: str) -> str:
    return f"the model quantises dynamically ({quantisers}), by one scale for all rows of a batch; {CURE}"
