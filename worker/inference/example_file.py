"""Reads the operator's example of a model's input: an `.npz` with an array for each input, checked as a request is.

Nothing is ever unpickled. A faulty file is refused at start, with the cure.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from worker.codecs.encodings.elements import to_bytes
from worker.core.failures import BadConfiguration, Reject
from worker.core.foreign_values import DAMAGED
from worker.core.records import Array, Tensor
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import NamedTensor
from worker.inference.warm_up import Feeds

# Each row runs by itself at start.
MOST_ROWS = 32


def read_example(path: Path, signature: Signature, *, may_be_infinite: bool) -> Feeds:
    """Read the example's rows; inputs that it leaves out are filled in as in a request. Raises `BadConfiguration`."""
    try:
        return _given(path, signature, may_be_infinite=may_be_infinite)
    except (OSError, Reject, BadConfiguration) as wrong:
        why = f"cannot be read: {wrong.strerror or wrong}" if isinstance(wrong, OSError) else str(wrong)
        raise BadConfiguration(f"WORKER_MODEL__WARM_UP_EXAMPLE: {path}: {why}") from wrong


def _given(path: Path, signature: Signature, *, may_be_infinite: bool) -> Feeds:
    """Raises `OSError`, `Reject`, `BadConfiguration`."""
    judged = signature.judge([_named(signature, name, array) for name, array in _arrays(path).items()])
    if judged.rows > MOST_ROWS:
        raise BadConfiguration(f"it has {judged.rows} rows, at most {MOST_ROWS} are taken: leave those that are unlike")
    tensors = zip(signature.inputs, judged.tensors, judged.shapes, strict=True)
    arrays = {spec.name: spec.array(tensor, (judged.rows, *dims)) for spec, tensor, dims in tensors}
    infinite = [name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
    if infinite and not may_be_infinite:
        raise BadConfiguration(
            f"{infinite[0]} has NaN or infinity in it, and requests may not: give finite numbers, or set "
            "WORKER_MODEL__NON_FINITE_INPUT=allow"
        )
    return arrays


def _arrays(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except DAMAGED as error:
        if isinstance(error, OSError) and error.strerror:
            raise
        how = "numpy.savez(path, name=array, …), texts as numpy.array(texts, dtype=str)"
        raise BadConfiguration(f"it is no archive of arrays ({error}): save it with {how}") from error


def _named(signature: Signature, name: str, array: Array) -> NamedTensor:
    """The array as a request carries it; without a batch axis it is one row. Raises `Reject`, `BadConfiguration`."""
    spec = signature.input(name)
    if array.dtype.kind != "U" if spec.is_text else not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        raise BadConfiguration(f"{name} is {array.dtype}, and the model takes {spec}")
    rows = array[np.newaxis] if array.ndim == len(spec.dims) else array
    signature.check_claim(name, spec.datatype, rows.shape)
    tensor: Tensor = rows.reshape(-1).tolist() if spec.is_text else to_bytes(rows.astype(spec.dtype))
    return NamedTensor(name, spec.datatype, rows.shape, tensor)
