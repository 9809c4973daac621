"""The fields of the answer, made from the outputs of a run: one `Field` for each entry of `[records.answer]`.

    score     = "probabilities[1]"                                  # an output, or an element of it
    label     = { argmax = "logits", names = ["ok", "fraud"] }
    score     = { softmax = "logits", at = 1 }
    embedding = { mean = "last_hidden_state", normalize = true }

An entry says on its left what is made. A table has one operation, which names an output, and options of that operation.
Each field is one tensor, so that every encoding of answers can carry it: the three best classes and their scores are
two fields. They are judged here, against the model's outputs, before the first record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from worker.core.failures import BadConfiguration, listed
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.records import output_steps as steps
from worker.inference.records import pooling
from worker.inference.records.output_steps import Feeds, Step, Unfit, all_rows
from worker.inference.records.parts import RowsFailed

# The options of each operation.
OPERATIONS = {
    "output": ("names", "top", "normalize"),
    "argmax": ("names", "top"),
    "softmax": ("at", "top"),
    "sigmoid": ("at", "top"),
    "mean": ("normalize",),
    "max": ("normalize",),
    "cls": ("normalize",),
    "last": ("normalize",),
}
_FIRST: dict[str, Step] = {
    "softmax": steps.Softmax(),
    "sigmoid": steps.Sigmoid(),
    "mean": pooling.Pooled(pooling.mean),
    "max": pooling.Pooled(pooling.highest),
    "cls": pooling.FirstToken(),
    "last": pooling.Pooled(pooling.final),
}
_NEED_MASK = ("mean", "max", "last")
_ELEMENT = re.compile(r"(.+)\[([0-9, -]+)\]")


class Field:
    """One field of the answer: an output, and the steps from there. A `Conclusion`."""

    def __init__(self, name: str, output: TensorSpec, way: Sequence[Step]) -> None:
        """Raises `Unfit` if a step cannot be taken."""
        self.output = output
        self._steps = list(way)
        if output.datatype == "FP16":
            self._steps.insert(0, steps.Wide())
        spec = output
        for step in self._steps:
            spec = step.gives(spec)
        if spec.dims and set(spec.dims) == {1}:
            self._steps.append(last := steps.Number())
            spec = last.gives(spec)
        self.spec = TensorSpec(name, spec.datatype, spec.dims)

    def is_by_token(self, axis: str | None) -> bool:
        """True if each token has a part in it, padding too: `axis` is the model's name of theirs, None has no name."""
        if self.spec.dims[:1] == (None,) and len(self.spec.dims) > 1:
            return True
        is_of_all = not any(isinstance(step, steps.Element | pooling.Pooled) for step in self._steps)
        return is_of_all and axis is not None and self.output.symbols[:1] == (axis,)

    def conclude(self, outputs: Mapping[str, Array], feeds: Feeds) -> Array:
        """The field of each row. Raises `RowsFailed`."""
        values = outputs[self.output.name]
        try:
            self._check(values)
            with np.errstate(all="ignore"):  # NaN and infinity are judged in the field, as in any output
                for step in self._steps:
                    values = step.make(values, feeds)
        except RowsFailed as failed:
            named = {row: fault._replace(message=f"{self}: {fault.message}") for row, fault in failed.faults.items()}
            raise RowsFailed(named) from None
        return values

    def _check(self, values: Array) -> None:
        dims, came = self.output.dims, values.shape[1:]
        if came == dims:
            return
        if len(dims) != len(came) or any(dim not in (None, size) for dim, size in zip(dims, came, strict=True)):
            raise RowsFailed(all_rows(values, f"{self.output} was expected, and shape {values.shape} came out"))

    def __repr__(self) -> str:
        return f"field {self.spec.name}, from output {self.output.name}"


def fields_of(
    answer: Mapping[str, Any],
    outputs: Sequence[TensorSpec],
    inputs: Collection[str] = (),
    labels: Sequence[str] = (),
) -> list[Field]:
    """The fields of these entries; without any, all outputs under their own names. Raises `BadConfiguration`.

    `inputs` are the names of the model's inputs, and `labels` the classes that the model's folder names.
    """
    entries = answer or {spec.name: {"output": spec.name} for spec in outputs}
    return [_Entry(name, outputs, inputs, labels).field(entry) for name, entry in entries.items()]


class _Entry:
    """Judges one entry. Raises `BadConfiguration`."""

    def __init__(
        self, name: str, outputs: Sequence[TensorSpec], inputs: Collection[str], labels: Sequence[str]
    ) -> None:
        self._name = name
        self._outputs = {spec.name: spec for spec in outputs}
        self._inputs = inputs
        self._labels = labels

    def field(self, entry: Any) -> Field:
        """The field that this entry makes."""
        table = {"output": entry} if isinstance(entry, str) else entry
        found = [key for key in table if key in OPERATIONS] if isinstance(table, dict) else []
        if len(found) != 1 or not isinstance(table[found[0]], str):
            raise self._wrong(
                f"name an output, or give a table with one of {', '.join(OPERATIONS)} and an output's name"
            )
        (operation,) = found
        options = {key: value for key, value in table.items() if key != operation}
        if unknown := sorted(options.keys() - set(OPERATIONS[operation])):
            takes = ", ".join(OPERATIONS[operation])
            raise self._wrong(f"{operation} has no option {unknown[0]}; it takes {takes}")
        if {"at", "top"} <= options.keys():
            raise self._wrong("give `at` or `top`, not both")
        output, way = self._source(table[operation])
        try:
            return Field(self._name, output, [*way, *self._steps(operation, options, Field("", output, way).spec)])
        except Unfit as why:
            raise self._wrong(str(why)) from None

    def _source(self, text: str) -> tuple[TensorSpec, list[Step]]:
        """The output that the text names, and the step to the element that it wants."""
        if text in self._outputs:
            return self._outputs[text], []
        element = _ELEMENT.fullmatch(text)
        name = element[1].strip() if element else text
        if name not in self._outputs:
            raise self._wrong(f"the model has no output {name}; it gives {listed(self._outputs.values())}")
        indexes = [index.strip() for index in element[2].split(",")] if element else []
        if not all(map(str.isdigit, indexes)):
            raise self._wrong(f"{text}: an element is given by its number, from 0 on, or by several with commas")
        return self._outputs[name], [steps.Element(tuple(map(int, indexes)))]

    def _steps(self, operation: str, options: Mapping[str, Any], source: TensorSpec) -> list[Step]:
        """The steps from the source to the field."""
        if operation in _NEED_MASK and pooling.MASK not in self._inputs:
            raise self._wrong(f"{operation} takes the tokens that {pooling.MASK} says, and the model has no such input")
        way = [_FIRST[operation]] if operation in _FIRST else []
        if "at" in options:
            way.append(steps.At(self._number("at", options["at"], 0)))
        if "top" in options or operation == "argmax":
            top = self._number("top", options.get("top", 1), 1)
            way.append(steps.Best(top) if operation == "argmax" else steps.Highest(top))
        classes = source.dims[-1] if operation == "argmax" and source.dims else None
        names = options.get("names", self._labels if classes == len(self._labels) else None)
        if names is not None:
            way.append(steps.Names(self._names(names, classes)))
        if options.get("normalize", False) not in (True, False):
            raise self._wrong("`normalize` is true or false")
        return [*way, pooling.Unit()] if options.get("normalize") else way

    def _number(self, option: str, value: Any, least: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self._wrong(f"`{option}` is a whole number from {least} on")
        return value

    def _names(self, value: Any, classes: int | None) -> Mapping[int, str]:
        """The names by their numbers: of a list, of the lines of a file, or of a table. `classes` must have names."""
        if isinstance(value, str):
            try:
                value = Path(value).read_text(encoding="utf-8").splitlines()
            except (OSError, ValueError) as error:
                raise self._wrong(f"`names`: the file cannot be read: {error}") from None
        pairs = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
        )
        try:
            names = {int(number): name for number, name in pairs}
        except ValueError:
            raise self._wrong("`names` in a table stand behind whole numbers") from None
        if not names or not all(isinstance(name, str) for name in names.values()):
            raise self._wrong('`names` is a list of texts, the path of a file with one on each line, or { 1 = "…" }')
        if classes is not None and names.keys() != set(range(classes)):
            raise self._wrong(f"{classes} names are needed, one for each class, and `names` has {len(names)}")
        return names

    def _wrong(self, why: str) -> BadConfiguration:
        return BadConfiguration(f"[records.answer] {self._name}: {why}")
