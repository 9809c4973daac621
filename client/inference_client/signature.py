"""The inputs and outputs of a model, and the check that a caller's tensors fit them.

A signature is a model's metadata in the Open Inference Protocol: given, or fetched from a server. Without a signature
every tensor travels with its own type and shape, and the worker judges them. A wrong type is never guessed away.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, NamedTuple, Self

import numpy as np
import orjson
from numpy.typing import ArrayLike, NDArray

from inference_client.errors import InvalidArgument

Array = NDArray[Any]
# A tensor for each input, and an array for each output; of records their fields, and those of the answer.
Inputs = Mapping[str, Any]
Result = dict[str, Any]

# numpy's letter and size of each datatype; BYTES are strings.
DTYPES: Mapping[str, str] = {
    "BOOL": "?",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    "BYTES": "O",
}
_NAMES = {np.dtype(code).str.lstrip("<|"): name for name, code in DTYPES.items()}
# The datatype of a list's items without a signature: the one most models take. A model that takes another says so.
_OF_LISTS = {"b": "BOOL", "i": "INT64", "u": "INT64", "f": "FP32", "U": "BYTES", "S": "BYTES", "O": "BYTES"}
# Kinds that may become another without a change of meaning: no truth values as numbers, no fractions as integers.
_FROM = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "O": "USO"}
_UNEQUAL = "its lists are not equally long: pad them, or send rows of another length in another request"
# The most bytes of a model's metadata that are read: a thousand inputs take 100 KB.
_MOST_METADATA = 4 * 1024 * 1024


class TensorSpec(NamedTuple):
    """One input or output. `shape` begins with the rows; -1 is a dimension that requests choose."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.datatype}{list(self.shape)}"


class Signature(NamedTuple):
    """The inputs and outputs of a model, by name."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Self:
        """Read `{"inputs": [{"name": …, "datatype": …, "shape": [-1, 64]}], "outputs": […]}`. Raises `ValueError`."""
        try:
            return cls(*[{spec.name: spec for spec in map(_spec, metadata[side])} for side in ("inputs", "outputs")])
        except (KeyError, TypeError) as error:
            raise ValueError(f"no metadata of a model: {error!r} in {str(metadata)[:200]}") from error

    @property
    def takes(self) -> str:
        """The inputs, for a message: three at most, because there may be one for each of 500 columns."""
        specs, more = list(self.inputs.values()), len(self.inputs) - 3
        named = ", ".join(map(str, specs[:3]))
        return f"{named} and {more} more" if more > 0 else named

    @classmethod
    def fetch(cls, url: str, timeout: float = 5.0) -> Self:
        """Fetch the metadata from a server's, or worker's, `http://…/v2/models/NAME` within `timeout` seconds.

        Raises `OSError`, `TimeoutError` among them, and `ValueError`.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"expected an address that begins with http:// or https://, got {url!r}")
        asked: Future[bytes] = Future()
        # A socket's timeout is for one read alone, and the look-up of a name has none: a server that sends a byte now
        # and then would hold the program for good. This thread then ends with the program.
        Thread(target=_ask, args=(url, timeout, asked), daemon=True).start()
        try:
            return cls.of(orjson.loads(asked.result(timeout)))
        except TimeoutError as error:
            raise TimeoutError(f"{url}: no metadata of a model within {timeout:g} s") from error


def _ask(url: str, timeout: float, asked: Future[bytes]) -> None:
    try:
        asked.set_result(_metadata(url, timeout))
    except Exception as error:  # noqa: BLE001  # the thread that waits for the answer raises it
        asked.set_exception(error)


def _metadata(url: str, timeout: float) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:  # noqa: S310  # the scheme is checked by `fetch`
            found: bytes = answer.read(_MOST_METADATA + 1)
    except urllib.error.HTTPError as error:
        why = error.read(1000).decode(errors="replace").strip()
        raise ValueError(f"{url}: {error.code} {error.reason}: {why}") from error
    if len(found) > _MOST_METADATA:
        raise ValueError(f"{url}: over {_MOST_METADATA:,} bytes: no metadata of a model is so long")
    return found


Given = Signature | Mapping[str, Any] | str | None


def signature_of(given: Given) -> Signature | None:
    """The signature that a program gives as such, as metadata or by address. Raises `OSError` and `ValueError`."""
    if given is None or isinstance(given, Signature):
        return given
    return Signature.fetch(given) if isinstance(given, str) else Signature.of(given)


def _spec(entry: Mapping[str, Any]) -> TensorSpec:
    if entry["datatype"] not in DTYPES:
        raise ValueError(f"{entry['name']}: {entry['datatype']} is no datatype; there are {', '.join(DTYPES)}")
    return TensorSpec(str(entry["name"]), str(entry["datatype"]), tuple(int(size) for size in entry["shape"]))


def typed(name: str, given: ArrayLike, signature: Signature | None) -> tuple[str, Array]:
    """The datatype and the array, with its rows as the first dimension. Raises `InvalidArgument`."""
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):  # a masked element is no value
        raise InvalidArgument(f"input {name}: some elements are masked; give them a value, .filled(…)")
    if signature is None:
        return _typed_by_itself(name, given)
    spec = signature.inputs.get(name)
    if spec is None:
        raise InvalidArgument(f"the model has no input {name!r}; it takes {signature.takes}")
    array = _exactly(spec, given) if isinstance(given, np.ndarray | np.generic) else _converted(spec, given)
    return spec.datatype, _shaped(spec, array)


def _typed_by_itself(name: str, given: ArrayLike) -> tuple[str, Array]:
    array = _array(name, given)
    says_itself = isinstance(given, np.ndarray | np.generic)
    datatype = _datatype(array) if says_itself else _OF_LISTS.get(array.dtype.kind)
    if datatype is None:
        raise InvalidArgument(f"input {name}: there is no tensor of {array.dtype}")
    if array.ndim == 0:
        raise InvalidArgument(
            f"input {name}: expected rows, got a single value; write [value] for one row, or where the topic holds "
            "records give the client records=Records()"
        )
    if not says_itself:
        _check_range(name, array, np.dtype(DTYPES[datatype]), datatype)
    return datatype, _as(name, given, array, datatype)


def _datatype(array: Array) -> str | None:
    return "BYTES" if array.dtype.kind in "USOT" else _NAMES.get(array.dtype.newbyteorder("<").str.lstrip("<|"))


def _exactly(spec: TensorSpec, given: Any) -> Array:
    """An array that has exactly the input's type: float64 for FP32 is more likely a mistake than a wish."""
    array = np.asarray(given)
    found = _datatype(array)
    if found != spec.datatype:
        cast = "" if spec.datatype == "BYTES" else f"; if that is meant, .astype({DTYPES[spec.datatype].lstrip('<')!r})"
        raise InvalidArgument(f"input {spec.name}: expected {spec.datatype}, got {found or array.dtype}{cast}")
    return _as(spec.name, given, array, spec.datatype)


def _converted(spec: TensorSpec, given: ArrayLike) -> Array:
    """Python's numbers in the type that the model takes, if they fit: they have no size of their own."""
    array = _array(spec.name, given)
    if spec.datatype == "UINT64" and array.dtype.kind == "f":
        array = _integers(given, array)
    wanted = np.dtype(DTYPES[spec.datatype])
    if array.size and array.dtype.kind not in _FROM[wanted.kind]:
        raise InvalidArgument(f"input {spec.name}: expected {spec.datatype}, got {array.dtype}")
    _check_range(spec.name, array, wanted, spec.datatype)
    return _as(spec.name, given, array, spec.datatype)


def _check_range(name: str, array: Array, wanted: np.dtype[Any], datatype: str) -> None:
    """Refuse numbers that are too large: numpy makes another number of an integer, and infinity of a fraction."""
    if array.size and not _is_in_range(array, wanted):
        raise InvalidArgument(f"input {name}: out of the range of {datatype}")


def _is_in_range(array: Array, wanted: np.dtype[Any]) -> bool:
    if wanted.kind == "f":  # not by its limits: a number a little above the largest is rounded down to it
        with np.errstate(over="ignore"):
            return not np.any(np.isinf(array.astype(wanted)) & np.isfinite(array))
    if wanted.kind not in "iu":
        return True
    limits = np.iinfo(wanted)
    return bool(limits.min <= array.min() and array.max() <= limits.max)


def _integers(given: ArrayLike, array: Array) -> Array:
    """The numbers as integers, if all are: numpy makes floats of a list in which only some need 64 bits."""
    numbers = np.array(given, object)
    are_whole = set(map(type, numbers.reshape(-1))) == {int} and numbers.min() >= 0
    return numbers.astype("u8") if are_whole else array


def _array(name: str, given: ArrayLike) -> Array:
    try:
        array = np.asarray(given)
    except (ValueError, OverflowError) as error:
        why = _UNEQUAL if "inhomogeneous" in str(error) else str(error)
        raise InvalidArgument(f"input {name}: {why}") from error
    if array.dtype == object and not isinstance(given, np.ndarray | np.generic):
        kinds = set(map(type, array.reshape(-1)))
        if type(None) in kinds and kinds & {int, float}:
            raise InvalidArgument(f"input {name}: expected numbers, got None; float('nan') is a missing one")
    return array


def _as(name: str, given: ArrayLike, array: Array, datatype: str) -> Array:
    """The array in the wire's byte order and layout; strings as objects.

    Strings are taken as they were given. In a list with strings numpy turns other items into strings (a missing one is
    "nan"), and it cuts off the NULs at the end of a string.
    """
    if datatype != "BYTES":
        return np.asarray(array, DTYPES[datatype], order="C")
    strings = np.array(given, object)
    odd = [type(item).__name__ for item in strings.reshape(-1) if not isinstance(item, str | bytes)]
    if odd:
        raise InvalidArgument(f"input {name}: expected strings, got {odd[0]}")
    return strings


def _shaped(spec: TensorSpec, array: Array) -> Array:
    """The array in the input's shape. An array without a dimension for the rows is one row."""
    if array.ndim == len(spec.shape) - 1:
        array = array[None]
    fits = array.ndim == len(spec.shape) and all(
        size in (-1, found) for size, found in zip(spec.shape[1:], array.shape[1:], strict=True)
    )
    if not fits:
        raise InvalidArgument(f"input {spec.name}: expected {list(spec.shape)}, got {list(array.shape)}")
    return array
