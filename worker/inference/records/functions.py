"""The operator's functions of records: ten lines of Python where the mapping ends. docs/records.md describes them.

    inputs(record) → dict of arrays          answer(outputs, record) → dict
    inputs_batch(records) → dict of arrays   answer_batch(outputs, records) → list of dicts

A record fails alone if a function raises, or returns something that does not fit. A function that takes a batch is
called again for each record of a batch that failed, to find whose fault it is. Functions get copies, which they may
change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from worker.core.failures import BadConfiguration, Code, RowFault, listed
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.operator_file import OperatorFile, Unfit, as_declared
from worker.inference.records.answer_values import plain_fields
from worker.inference.records.parts import Column, Prepared, RowsFailed

RECORD = TensorSpec("record", "BYTES", ())  # its elements are dicts
ANSWER = TensorSpec("answer", "BYTES", ())  # likewise
_MODULE = "record_functions"
_ARGUMENTS = {
    "inputs": ("record",),
    "inputs_batch": ("records",),
    "answer": ("outputs", "record"),
    "answer_batch": ("outputs", "records"),
}
_CONTAINERS = frozenset((dict, list))


class Function(NamedTuple):
    """A function of the file, by its name there."""

    file: OperatorFile
    name: str
    call: Callable[..., Any]

    @property
    def takes_batch(self) -> bool:
        return self.name.endswith("_batch")


class Functions(NamedTuple):
    """The functions of a file; None where it has none. Several lanes may call them at once."""

    inputs: Function | None
    answer: Function | None


def functions_in(path: Path) -> Functions:
    """Execute this file, and find its functions. Raises `BadConfiguration`, with the line."""
    try:
        return _found_in(OperatorFile(path, _MODULE), path.read_bytes())
    except OSError as error:
        raise BadConfiguration(f"[records] functions: {path}: it cannot be read: {error.strerror}") from error
    except BadConfiguration as refusal:
        raise BadConfiguration(f"[records] functions: {path}: {refusal}") from refusal


def _found_in(file: OperatorFile, content: bytes) -> Functions:
    module = file.executed(content)
    found = {name: _function(file, module, name) for name in _ARGUMENTS if hasattr(module, name)}
    for name in ("inputs", "answer"):
        if {name, f"{name}_batch"} <= found.keys():
            raise BadConfiguration(f"it has {name} and {name}_batch: leave one of them out")
    if not found:
        raise BadConfiguration(f"it needs one of the functions {', '.join(_ARGUMENTS)}, and has none")
    return Functions(*[found.get(name) or found.get(f"{name}_batch") for name in ("inputs", "answer")])


def _function(file: OperatorFile, module: ModuleType, name: str) -> Function:
    call, arguments = getattr(module, name), _ARGUMENTS[name]
    try:
        inspect.signature(call).bind(*arguments)
    except (TypeError, ValueError) as error:
        code = getattr(call, "__code__", None)
        line = f"{file.path.name}:{code.co_firstlineno}: " if code else ""
        raise BadConfiguration(f"{line}{name} must be a function of ({', '.join(arguments)}): {error}") from error
    return Function(file, name, call)


class MadeInputs:
    """A preparation: the operator's function makes inputs of the model from whole records."""

    def __init__(self, function: Function, makes: Sequence[TensorSpec], *, refuse_non_finite: bool) -> None:
        """`makes`: the inputs that nothing else makes. Raises `BadConfiguration` if there is none."""
        if not makes:
            raise BadConfiguration(
                f"[records] functions: {function.name} has no input to make, because the mapping makes all of them"
            )
        self.takes = (RECORD,)
        self.makes = {spec.name: spec for spec in makes}
        self._function = function
        self._refuse_non_finite = refuse_non_finite

    def prepare(self, feeds: Mapping[str, Array]) -> Prepared:
        """Make the inputs of these records. Raises the function's lack of memory."""
        records, tried = feeds[RECORD.name].tolist(), self._function.file.tried
        together = tried(self._of_batch, records) if self._function.takes_batch else None
        if isinstance(together, list):
            return self._judged(len(records), together)
        rows = [tried(self._of_record, record) for record in records]
        faults = {row: one for row, one in enumerate(rows) if isinstance(one, RowFault)}
        well = [row for row in range(len(rows)) if row not in faults]
        if not well:
            return Prepared({}, faults)
        arrays = [_joined(column) for column in zip(*[rows[row] for row in well], strict=True)]
        columns, wrong, _ = self._judged(len(well), arrays)
        return Prepared(columns, {**faults, **{well[at]: fault for at, fault in wrong.items()}})

    def _of_batch(self, records: Sequence[Any]) -> list[Array]:
        return self._arrays(self._function.call([copied(record) for record in records]), len(records))

    def _of_record(self, record: Any) -> list[Array]:
        if self._function.takes_batch:
            return [array[0] for array in self._of_batch([record])]
        return self._arrays(self._function.call(copied(record)))

    def _arrays(self, given: Any, *rows: int) -> list[Array]:
        """The arrays that were given, in the order of `makes`. Raises `Unfit`."""
        name = self._function.name
        if not isinstance(given, Mapping):
            raise Unfit(f"{name} gave {type(given).__name__}, and a dict of arrays is needed")
        if given.keys() != self.makes.keys():
            raise Unfit(f"{name} gave {listed(given) or 'nothing'}, and {listed(self.makes)} is needed")
        arrays = list[Array]()
        for spec in self.makes.values():
            shape = (*rows, *spec.dims)
            try:
                arrays.append(as_declared(spec, given[spec.name], shape))
            except Unfit as unfit:
                needed = ", ".join("?" if size is None else str(size) for size in shape)
                raise Unfit(
                    f"input {spec.name}: {name} gave {unfit}, and {spec.datatype} of shape [{needed}] is needed"
                ) from None
        return arrays

    def _judged(self, rows: int, arrays: Sequence[Array | Sequence[Array]]) -> Prepared:
        """These inputs, without the rows that hold NaN or infinity."""
        faults = dict[int, RowFault]()
        if self._refuse_non_finite:
            for spec, array in zip(self.makes.values(), arrays, strict=True):
                if spec.is_float and not _is_finite(array):
                    fault = RowFault(Code.INVALID_ARGUMENT, f"input {spec.name}: holds NaN or infinity")
                    faults |= {row: fault for row in range(rows) if not np.isfinite(array[row]).all()}
        columns = dict(zip(self.makes, map(Column, arrays), strict=True))
        if faults:
            well = [row for row in range(rows) if row not in faults]
            columns = {name: column.of(well) for name, column in columns.items()}
        return Prepared(columns, faults)


class MadeAnswer:
    """A conclusion: the operator's function makes the answer's fields from a run's outputs and the whole records."""

    spec = ANSWER

    def __init__(self, function: Function, *, refuse_non_finite: bool) -> None:
        self._function = function
        self._refuse_non_finite = refuse_non_finite

    def conclude(self, outputs: Mapping[str, Array], feeds: Mapping[str, Array]) -> Array:
        """Make the answers: an array of dicts. Raises `RowsFailed`, and the function's lack of memory."""
        records, tried = feeds[RECORD.name].tolist(), self._function.file.tried
        answers = tried(self._of_batch, outputs, records) if self._function.takes_batch else None
        if not isinstance(answers, list):
            outputs = {name: array.copy() for name, array in outputs.items()}
            answers = [tried(self._of_record, outputs, row, record) for row, record in enumerate(records)]
        if faults := {row: one for row, one in enumerate(answers) if isinstance(one, RowFault)}:
            raise RowsFailed(faults)
        found: Array = np.empty(len(records), object)
        found[:] = answers
        return found

    def _of_batch(self, outputs: Mapping[str, Array], records: Sequence[Any]) -> list[Any]:
        name, call = self._function.name, self._function.call
        given = call({name: array.copy() for name, array in outputs.items()}, [copied(record) for record in records])
        if not isinstance(given, list | tuple) or len(given) != len(records):
            what = f"{len(given)} answers" if isinstance(given, list | tuple) else type(given).__name__
            raise Unfit(f"{name} gave {what}, and a list of {len(records)} dicts is needed")
        return [self._fields(one) for one in given]

    def _of_record(self, outputs: Mapping[str, Array], row: int, record: Any) -> Any:
        if self._function.takes_batch:
            [fields] = self._of_batch({name: array[row : row + 1] for name, array in outputs.items()}, [record])
            return fields
        return self._fields(self._function.call({name: array[row] for name, array in outputs.items()}, copied(record)))

    def _fields(self, given: Any) -> Mapping[str, Any]:
        try:
            return plain_fields(given, refuse_non_finite=self._refuse_non_finite)
        except Unfit as unfit:
            raise Unfit(f"{self._function.name} gave {unfit}") from None


def copied(value: Any) -> Any:
    """A copy of a record with copies of its dicts and lists. It takes a tenth of `deepcopy`'s time."""
    if type(value) is dict:
        copy: Any = value.copy()
        for key, inner in value.items():
            if type(inner) in _CONTAINERS:
                copy[key] = copied(inner)
        return copy
    return [copied(inner) if type(inner) in _CONTAINERS else inner for inner in value]


def _joined(rows: Sequence[Array]) -> Array | Sequence[Array]:
    """One array of these rows, if all have one shape. It takes a third of the time of `numpy.stack`."""
    shape = rows[0].shape
    if any(row.shape != shape for row in rows):
        return rows
    return np.concatenate(rows, axis=None).reshape(len(rows), *shape)


def _is_finite(rows: Array | Sequence[Array]) -> bool:
    return all(np.isfinite(array).all() for array in ((rows,) if isinstance(rows, np.ndarray) else rows))
