"""The declarations of a mapping: entries of `[records]`, judged against the model before the first record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

from worker.codecs.records.inputs import Input, input_of
from worker.codecs.records.paths import EACH, Path, path_of
from worker.codecs.records.served import IMAGE, RECORD_INPUT, TEXT, TEXT_PAIR, WholeRecord, WholeValue, picture_input
from worker.codecs.records.sources import Entry, Source, entry_of
from worker.core.failures import BadConfiguration, listed
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

ALL: Literal["all"] = "all"
KEEP = "keep"


class Settings(Protocol):
    """The section that a mapping is made from, as plain values (`worker/settings/records_section.py`)."""

    @property
    def encoding(self) -> str: ...
    @property
    def envelope(self) -> str | None: ...
    @property
    def rows(self) -> str | None: ...
    @property
    def only(self) -> Mapping[str, Any]: ...
    @property
    def key(self) -> str | None: ...
    @property
    def inputs(self) -> Mapping[str, Any]: ...
    @property
    def text(self) -> Any: ...
    @property
    def image(self) -> Any: ...
    @property
    def answer(self) -> Mapping[str, Any]: ...
    @property
    def functions(self) -> Any: ...


def rows_of(rows: str | None) -> Path | None:
    """The path of the elements that are the rows of a record; None: a record is one row."""
    if rows is None:
        return None
    path = path_of("[records] rows", rows.removesuffix(f"[{EACH}]"))
    if path.is_of_record or path.has_each:
        raise BadConfiguration(f"[records] rows: {rows} is no array of the record")
    return Path((*path.steps, EACH))


def envelope_of(envelope: str | None) -> Path | None:
    """The path of the record in its envelope; None: the value is the record."""
    if envelope is None:
        return None
    path = _one_value("[records] envelope", envelope)
    if path.is_of_record:
        raise BadConfiguration(f"[records] envelope: {envelope} is no field of the value")
    return path


def key_of(key: str | None) -> Path | None:
    """The path of the answer's key; None: it is the record's."""
    return None if key is None else _one_value("[records] key", key)


class _Kinds(list[Any]):
    """Values among which true is not 1, as it is for Python."""

    def __contains__(self, kind: object) -> bool:
        return any(kind == each and isinstance(kind, bool) is isinstance(each, bool) for each in self)


def kinds_of(only: Mapping[str, Any]) -> dict[Path, list[Any]]:
    """The values of the fields that tell which records count."""
    return {_one_value("[records] only", name): _values(name, given) for name, given in only.items()}


def _one_value(where: str, given: object) -> Path:
    """The path of a field with one value for each record."""
    path = path_of(where, given)
    if path.has_each:
        raise BadConfiguration(f"{where}: {path} goes through an array, and one value is needed")
    return path


def _values(name: str, given: object) -> list[Any]:
    values = given if isinstance(given, list | tuple) else [given]
    if not values or not all(isinstance(value, bool | int | float | str) for value in values):
        raise BadConfiguration(f'[records] only: {name} must have a list of values, such as {{ type = ["payment"] }}')
    return list(values) if all(isinstance(value, str) for value in values) else _Kinds(values)


def kept_fields(keep: object) -> dict[str, Path]:
    """The kept fields by their names in the answer."""
    if not isinstance(keep, list | tuple):
        raise BadConfiguration(f'[records.answer] keep: expected "{ALL}", or a list of fields such as ["payment_id"]')
    paths = [path_of("[records.answer] keep", given) for given in keep]
    names = [path.name for path in paths]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadConfiguration(f"[records.answer] keep: two fields are called {twice[0]!r} in the answer; keep one")
    if inside := [path for path in paths if path.has_each or path.is_of_record]:
        cure = "; keep its array" if inside[0].has_each else ""
        raise BadConfiguration(f"[records.answer] keep: {inside[0]} is no field of the record itself{cure}")
    return dict(zip(names, paths, strict=True))


def inputs_of(
    settings: Settings, signature: Signature, rows: Path | None, *, takes_nan: bool, has_fields: bool
) -> Iterator[Input]:
    """The inputs in the signature's order: as their entries say, else each takes the field of its name.

    `has_fields`: a value is an object, and no text or bytes.
    """
    names = [spec.name for spec in signature.inputs]
    if unknown := [name for name in settings.inputs if name not in names]:
        raise BadConfiguration(f"[records.inputs] {unknown[0]}: the model takes {listed(signature.inputs)}")
    for spec in signature.inputs:
        special = _special(settings, spec, rows, has_fields=has_fields)
        if special is not None:
            yield special
            continue
        where = f"[records.inputs] {spec.name}"
        entry = (
            _by_name(spec, rows) if spec.name not in settings.inputs else entry_of(where, settings.inputs[spec.name])
        )
        yield input_of(spec, entry, rows, takes_nan=takes_nan)


def _by_name(spec: TensorSpec, rows: Path | None) -> Entry:
    steps = (spec.name,) if rows is None else (*rows.steps, spec.name)
    return Source(Path(steps), default=spec.default)


def _special(settings: Settings, spec: TensorSpec, rows: Path | None, *, has_fields: bool) -> Input | None:
    """The input that the model's process prepares: a text, a picture, or the whole record."""
    if spec.name in (TEXT, TEXT_PAIR) and settings.text is not None:
        given = settings.text["field" if spec.name == TEXT else "pair"]
        return input_of(spec, Source(path_of("[records.text] field", given)), rows, takes_nan=False)
    if spec.name == IMAGE and settings.image is not None:
        return picture_input(spec, path_of("[records.image] field", settings.image["field"]), rows)
    if spec.name != RECORD_INPUT or not settings.functions:
        return None
    if rows is not None:
        raise BadConfiguration("[records] rows: a function takes a whole record, which is one row then; leave one out")
    return WholeRecord(spec) if has_fields else WholeValue(spec, str if settings.encoding == "text" else bytes)
