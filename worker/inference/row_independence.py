"""Tries, before requests share a batch, whether a row gets its own answer, whatever row is next to it.

A model that looks across the first axis answers wrongly and raises no error: its first axis is the time, it finds
objects in the first image alone, or it was exported in training mode. So each made-up row runs among its own copies,
and then in a batch with the row before it. Both batches have equally many rows and so run on equal kernels: the answers
of independent rows are equal, up to rounding. The first row also runs in another number of copies, where only a large
difference is a sign. A model whose rows are not independent is refused. If rows only share a scale, a warning is given.

An output that is equal for all rows (zeros behind a ReLU, one label) shows nothing, and the result says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worker.core.failures import BadConfiguration, RunFailure, listed
from worker.core.records import Array
from worker.inference.facts import Independence, ModelFacts
from worker.inference.model import Model
from worker.inference.warm_up import ALWAYS_RUN, check_rows

# The largest difference of two runs, as a share of the row's largest number: TF32 and float16 have ten bits.
TOLERANCE = 1e-3
# The largest difference of batches with unequal numbers of rows, which other kernels may run.
ROUGH = 0.1
# Seconds of this thread's processor time after which no further row is tried, because the start waits.
LONGEST = 0.1
FEWEST_ROWS = 3  # tried however long they take

# Operators that compute one scale from all rows of a batch. Quantisation by blocks (MatMulNBits) keeps within a row;
# operators on integers (MatMulInteger and its kind) are given their scales.
BATCH_QUANTISERS = frozenset({"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
# Detectors with this operator often answer the first image of a batch alone. It shows only where they find an object.
FINDER = "NonMaxSuppression"

LOUD = 1000  # times the size of a quiet row
# Texts of one token, of several and of none, and texts that spell numbers.
_WORDS, _DIGITS, _LOUD_DIGITS = ("yes", "a b", "", "no"), ("0", "1", "5"), ("100", "7", "-50")

NEIGHBOURS = "next to another row from what it is next to its own copies"
CURE = "WORKER_BATCHING__MAX_BATCH_SIZE=1 runs each row alone (docs/models.md#rows-that-change-each-others-answers)"

Row = Mapping[str, Array]  # one row of each input


class _Ran(NamedTuple):
    """Rows that were run together, and their answers."""

    rows: Sequence[Row]
    outputs: Sequence[Array]


def independence(model: Model, max_batch_size: int, now: Callable[[], float] = time.thread_time) -> Independence:
    """Try the model with made-up rows, at warmed-up row counts. No sign is no proof: real rows may still differ.

    Raises `BadConfiguration` with the cure where rows get, or may get, answers that are not their own.
    """
    if model.most_rows(max_batch_size) == 1:
        return Independence()
    trial = _Trial(model)
    until = now() + LONGEST
    for ways in _rows(model):
        if (why := trial.look(ways)) is not None:
            return Independence(why)
        if len(trial.ran) >= FEWEST_ROWS and now() > until:
            break
    if quantisers := _those(model, BATCH_QUANTISERS):
        return Independence(f"rows that share a batch may change one another's answers: {_scale(quantisers)}")
    return Independence(doubt=_doubt(trial))


class _Trial:
    """Runs rows next to one another. Owns the rows that the model took, and their answers."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._rows = min((count for count in model.warmed_up_at if count > 1), default=ALWAYS_RUN)
        self.ran: list[_Ran] = []

    def run(self, rows: Sequence[Row]) -> _Ran | None:
        """Run these rows in one batch; None where the model fails on them."""
        outputs = self.model.run({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
        if isinstance(outputs, RunFailure):
            return None
        check_rows(self.model.signature.outputs, outputs, len(rows))
        return _Ran(rows, outputs)

    def look(self, ways: Sequence[Row]) -> str | None:
        """Try the first of these rows that runs: among its copies, then in a batch with the row before it.

        Returns the warning, if there is one. Raises `BadConfiguration`.
        """
        alone = next((ran for row in ways if (ran := self.run([row] * self._rows)) is not None), None)
        if alone is None:
            return None
        before = self.ran[-1] if self.ran else None
        self.ran.append(alone)
        if before is None:
            return self._in_other_numbers(alone) or self._copies(alone)
        if (why := self._copies(alone)) or (together := self.run([*before.rows[:-1], alone.rows[-1]])) is None:
            return why
        why = self._told(_first(together), _first(before), NEIGHBOURS, together)
        return why or self._told(_last(together), _last(alone), NEIGHBOURS, together)

    def _copies(self, alone: _Ran) -> str | None:
        return self._told(_last(alone), _first(alone), "behind its own copies from what it is before them", alone)

    def _in_other_numbers(self, alone: _Ran) -> str | None:
        """Compare with another number of copies: floats whole, others by shape, because rounding may change a label."""
        if self.model.padding:  # every run has one number of rows
            return None
        rows = min((count for count in self.model.warmed_up_at if count != self._rows), default=1)
        other = self.run([alone.rows[0]] * rows)
        if other is None:
            return None
        pairs = zip(_first(other), _first(alone), strict=True)
        told = [a if a.dtype.kind == "f" or a.shape != b.shape else b for a, b in pairs]
        where = f"in a batch of {rows} from what it is in one of {self._rows}"
        return self._told(told, _first(alone), where, other, ROUGH)

    def _told(
        self, got: Sequence[Array], expected: Sequence[Array], where: str, ran: _Ran, tolerance: float = TOLERANCE
    ) -> str | None:
        """The warning where these differ. Raises `BadConfiguration` unless a shared scale or chance explains that."""
        pairs = zip(self.model.signature.outputs, got, expected, strict=True)
        output = next((spec.name for spec, *pair in pairs if difference(*pair) > tolerance), None)
        if output is None:
            return None
        again = self.run(ran.rows)
        if again is None or max(map(difference, again.outputs, ran.outputs)) > TOLERANCE:
            why = f"the model answers the same rows differently each time ({output})"
            if drawn := _those(self.model, RANDOM):
                return f"{why}: it has {drawn} inside"
            raise BadConfiguration(f"{why}: it was exported in training mode; export it in evaluation mode")
        why = f"rows that share a batch change one another's answers: {output} of a made-up row differs {where}"
        quantisers = _those(self.model, BATCH_QUANTISERS)
        if quantisers and where == NEIGHBOURS:  # copies have one scale, however many they are
            return f"{why}. {_scale(quantisers)}"
        raise BadConfiguration(f"{why}; {CURE}")


def _rows(model: Model) -> Iterator[Sequence[Row]]:
    """The operator's rows, then made-up ones: a quiet row, a loud one and the opposite of the quiet one, in four sizes.

    A row next to numbers a thousand times larger is lost where both share a scale of 256 steps. A ReLU lets either a
    row or its opposite through. Positive numbers are for logarithms and roots, which make NaN of negative ones.

    A made-up row comes first with made-up whole numbers and texts, and then with made-up floats alone, for a model that
    fails on the first. On a GPU, where a wrong index may end the process, or with an example, only floats are made up.
    """
    count = model.example_rows or 1
    known = [{name: array[at : at + 1] for name, array in model.blank(count).items()} for at in range(count)]
    if model.example_rows:
        yield from ([row] for row in known)
    numbers = [spec.name for spec in model.signature.required if spec.is_float]
    may_be_any = not (model.is_accelerated or model.example_rows)
    ways = [[spec.name for spec in model.signature.required]] * may_be_any + [numbers] * bool(numbers)
    for seed, (size, is_signed) in enumerate(((1.0, True), (1.0, False), (30.0, True), (0.01, True))):
        row = known[seed % count]
        for loudness in (1, LOUD, -1 if is_signed else 3):
            made = {
                name: _made(array, (seed, at), size, loudness, is_signed=is_signed)
                for at, (name, array) in enumerate(row.items())
            }
            yield [{**row, **{name: made[name] for name in names}} for names in ways]


def _made(known: Array, seeds: tuple[int, int], size: float, loudness: int, *, is_signed: bool) -> Array:
    """Make up an input like the known one: normally distributed floats of its size, or values that most tables have."""
    is_loud = loudness == LOUD
    random = np.random.default_rng((int(is_loud), *seeds))
    if known.dtype.kind == "f":
        largest = float(np.abs(known.astype(np.float64)).max(initial=0.0)) or 1.0
        numbers = random.standard_normal(known.shape)
        most = float(np.finfo(known.dtype).max) / 4  # 16,376 for FP16
        numbers = (numbers if is_signed else np.abs(numbers)) * size * loudness * largest
        return numbers.clip(-most, most).astype(known.dtype)
    most_whole = 100 if is_loud else 1 + seeds[0]
    whole = random.integers(0, most_whole + 1, known.shape)
    if loudness < 0:
        whole = most_whole - whole
    if known.dtype != object:
        return whole.astype(known.dtype)
    texts = _LOUD_DIGITS if is_loud else _WORDS if seeds[0] == 1 else _DIGITS
    return np.array(texts, object)[whole % len(texts)]


def _first(ran: _Ran) -> Sequence[Array]:
    return [output[:1] for output in ran.outputs]


def _last(ran: _Ran) -> Sequence[Array]:
    return [output[-1:] for output in ran.outputs]


def difference(got: Array, expected: Array) -> float:
    """The difference as a share of the largest number expected; infinite where there is no such share."""
    if got.shape != expected.shape:
        return np.inf
    if got.dtype.kind != "f":
        return 0.0 if np.array_equal(got, expected) else np.inf
    with np.errstate(invalid="ignore"):  # infinity minus infinity, which counts as no difference below
        apart = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    apart[(got == expected) | (np.isnan(got) & np.isnan(expected))] = 0.0
    if not apart.any():
        return 0.0
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    return float(np.nan_to_num(apart.max(), nan=np.inf)) / largest if largest else np.inf


def _doubt(trial: _Trial) -> str | None:
    """The doubt that equal outputs leave. Raises `BadConfiguration` for a detector that found nothing in any row.

    Boxes and scores differ from object to object. Labels do not differ where there is one class, nor do counts.
    """
    outputs, ran = trial.model.signature.outputs, [ran.outputs for ran in trial.ran]
    alike = [
        spec
        for at, spec in enumerate(outputs)
        if not any(difference(given[at], ran[0][at]) > TOLERANCE for given in ran)
    ]
    if not alike:
        return None
    did_not_differ = f"{listed(spec.name for spec in alike)} did not differ in the {len(ran)} rows tried"
    is_found_in_floats = any(spec.is_float for spec in outputs)
    if FINDER in trial.model.operators and any(spec.is_float or not is_found_in_floats for spec in alike):
        raise BadConfiguration(
            f"the model has {FINDER} inside and found nothing ({did_not_differ}); many such exports answer the first "
            "image of a batch alone: name a file of images with unlike objects in WORKER_MODEL__WARM_UP_EXAMPLE, or "
            f"export it without NMS; {CURE}"
        )
    return (
        f"{did_not_differ}, so they do not show whether rows that share a batch change one another's answers. Nothing "
        "to do if the model was exported in evaluation mode, with the batch first; to have it tried, name a file of "
        "rows with unlike answers in WORKER_MODEL__WARM_UP_EXAMPLE"
    )


def _those(model: Model, operators: frozenset[str]) -> str:
    return ", ".join(sorted(model.operators & operators))


def _scale(quantisers: str) -> str:
    return f"the model quantises dynamically ({quantisers}), by one scale for all rows of a batch; {CURE}"


def facts_of(model: Model, max_batch_size: int) -> ModelFacts:
    """The facts of a model, which is tried for its rows' independence. Raises `BadConfiguration` if they depend."""
    return ModelFacts(
        model.signature,
        model.device,
        model.is_accelerated,
        model.warmed_up_at,
        model.padding,
        model.remark,
        model.left_to_cpu,
        independence(model, max_batch_size),
    )
