"""The operator's example of what the model takes, read from a file and checked as a request is.

Either an `.npz` with an array for each input by its name, or a request of the Open Inference Protocol as JSON. Nothing
is ever unpickled. What is wrong with it is refused at start, with the cure.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from worker.codecs.encodings.elements import to_bytes
from worker.codecs.encodings.oip import judge
from worker.codecs.encodings.oip_json import JsonBody
from worker.core.failures import BadConfiguration, Reject, listed
from worker.core.foreign_values import DAMAGED
from worker.core.records import Array, Tensor
from worker.core.tensors.signature import Judged, Signature
from worker.core.tensors.specs import NamedTensor
from worker.inference.warm_up import ExampleRows

# Each is run by itself at start.
MOST_ROWS = 32

_NUMPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"


def read_example(path: Path, signature: Signature, *, may_be_infinite: bool) -> ExampleRows:
    """Its rows, inputs that it leaves out filled in as in a request. Raises `BadConfiguration`."""
    try:
        return _given(path.read_bytes(), signature, may_be_infinite=may_be_infinite)
    except (OSError, Reject, BadConfiguration) as wrong:
        why = f"cannot be read: {wrong.strerror or wrong}" if isinstance(wrong, OSError) else str(wrong)
        raise BadConfiguration(f"WORKER_MODEL__WARM_UP_EXAMPLE: {path}: {why}") from wrong


def _given(content: bytes, signature: Signature, *, may_be_infinite: bool) -> ExampleRows:
    """Raises `Reject`, `BadConfiguration`."""
    if content.startswith(_NUMPY):
        names = listed(f"{spec.name}=array" for spec in signature.required)
        raise BadConfiguration(f"it is one array without a name: save it with numpy.savez(path, {names})")
    if content.startswith(_ZIP):
        judged = signature.judge([_named(signature, name, array) for name, array in _arrays(content).items()])
    else:
        judged = _of_request(content, signature)
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
    return ExampleRows(arrays)


def _of_request(content: bytes, signature: Signature) -> Judged:
    try:
        return judge(signature, JsonBody.parse(content, None, len(content)).question())
    except Reject as no:
        raise BadConfiguration(f"{no}; give a request as JSON, or an .npz with an array for each input") from None


def _arrays(content: bytes) -> dict[str, Array]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except DAMAGED as error:
        if "allow_pickle" in str(error):
            raise BadConfiguration(
                "it holds pickled objects, and nothing is unpickled: save texts as numpy.array(texts, dtype=str)"
            ) from error
        raise BadConfiguration(f"it is damaged ({error}): save it anew with numpy.savez") from error


def _named(signature: Signature, name: str, array: Array) -> NamedTensor:
    """The array as a request claims it; without a batch axis it is one row. Raises `Reject`, `BadConfiguration`."""
    spec = signature.input(name)
    wanted = "str" if spec.is_text else spec.dtype.name
    if array.dtype.kind != "U" if spec.is_text else array.dtype.newbyteorder("<") != spec.dtype:
        raise BadConfiguration(f"{name} is {array.dtype}, and the model takes {spec}: save {name}.astype({wanted!r})")
    rows = array[np.newaxis] if array.ndim == len(spec.dims) else array
    signature.check_claim(name, spec.datatype, rows.shape)
    tensor: Tensor = rows.astype(object).reshape(-1) if spec.is_text else to_bytes(rows.astype(spec.dtype))
    return NamedTensor(name, spec.datatype, rows.shape, tensor)
