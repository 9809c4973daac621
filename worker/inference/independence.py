"""Does each row of a batch get its own answer, whatever lies beside it? Tried before strangers' rows share a batch.

A model that looks across the first axis answers wrongly and says nothing: one that is quantised dynamically (one scale
for the whole batch), whose first axis is the time, or that was exported in training mode. Its file does not tell. So
two rows that are unlike run together, and each once more among its own copies. As many rows each time, so that the same
kernels run: rows that are independent come out the same to the last bits, or nearly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.inference.model import Feeds, Model

# What two runs may differ by, as a part of the row's largest number: TF32 has ten bits, float16 as many.
TOLERANCE = 1e-3
# One row's numbers beside the other's: a scale that both share leaves little of the smaller ones.
LOUD = 100.0


def entanglement(model: Model, max_batch_size: int) -> str | None:
    """Why rows that share a batch change one another's answers, with the cure; None where that did not show.

    Made-up numbers prove nothing: what only others do goes unnoticed. Runs at a number of rows that was warmed up.
    """
    rows = min((count for count in model.warmed_up_at if count > 1), default=1)
    if min(rows, model.most_rows(max_batch_size)) == 1:
        return None
    loud, calm = _rows(model, LOUD, 1), _rows(model, 1.0, 0)
    both = [*[loud] * (rows - 1), calm]
    mixed = _run(model, both)
    first, last = _run(model, [loud] * rows), _run(model, [calm] * rows)
    if mixed is None or first is None or last is None:
        return None  # the model does not take such numbers
    differences = {
        spec.name: max(_difference(together[:1], one[:1]), _difference(together[-1:], other[-1:]))
        for spec, together, one, other in zip(model.signature.outputs, mixed, first, last, strict=True)
    }
    output, most = max(differences.items(), key=lambda entry: entry[1])
    if most <= TOLERANCE:
        return None
    again = _run(model, both)
    if again is None or max(map(_difference, again, mixed)) > TOLERANCE:
        return f"the model answers the same rows differently each time ({output}): export it in evaluation mode"
    return (
        f"rows that share a batch change one another's answers: {output} of a made-up row differs {_by(most)} beside "
        "another row from what it is beside its own copies. Models do that which are quantised dynamically (quantise "
        "statically instead), whose first axis is the time and not the batch (batch_first=True), or which were "
        "exported in training mode; WORKER_BATCHING__MAX_BATCH_SIZE=1 runs each row alone"
    )


def _rows(model: Model, scale: float, number: int) -> Feeds:
    """One row. Numbers of all signs for floating point, `number` for others where that is known to do no harm."""
    blank = model.blank(1)
    # A device may not come back from an index that is outside of its table.
    other = blank if model.is_accelerated else model.blank(1, value=number)
    open_to_requests = {spec.name for spec in model.signature.required}
    return {
        name: _made_up(array, scale) if array.dtype.kind == "f" and name in open_to_requests else other[name]
        for name, array in blank.items()
    }


def _made_up(blank: Array, scale: float) -> Array:
    numbers = np.sin(np.arange(blank.size, dtype=np.float64) ** 2 + scale) * scale
    return numbers.reshape(blank.shape).astype(blank.dtype)


def _run(model: Model, rows: Sequence[Feeds]) -> Sequence[Array] | None:
    outputs = model.run({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
    return None if isinstance(outputs, RunFailure) else outputs


def _difference(got: Array, expected: Array) -> float:
    """As a part of the largest number expected; infinite where it cannot be said as one."""
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


def _by(part: float) -> str:
    return f"by {part:.1%}" if part < 1 else "altogether"
