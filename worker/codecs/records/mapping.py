"""The mapping: which fields of a record feed which input, which are kept for its answer, and which records count.

    values ── envelope ──▶ projection ──▶ columns ── only? ──▶ inputs ──▶ tensors of the good records
                               └── faults by index              └── faults by index

Pure. Everything that can be judged without a record is judged when it is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from worker.codecs.records.all_inputs import AllInputs
from worker.codecs.records.declared_mapping import (
    ALL,
    KEEP,
    Settings,
    envelope_of,
    inputs_of,
    kept_fields,
    key_of,
    kinds_of,
    rows_of,
)
from worker.codecs.records.elements import Faults
from worker.codecs.records.envelope import Envelope
from worker.codecs.records.inputs import Dims
from worker.codecs.records.paths import WHOLE, Path
from worker.codecs.records.projection import Column, Given, Projection, ReaderOf, Wish, from_json
from worker.codecs.records.surroundings import Surroundings
from worker.core.failures import BadConfiguration
from worker.core.records import Record, Tensor
from worker.core.tensors.signature import Signature

_NULL = msgspec.Raw(b"null")


class Mapped(NamedTuple):
    """Records that were read: in columns those at the indexes `good`, and why others have no tensors, by index.

    `tensors` has a column for each input of the signature, `dims` the dimensions of a row of each, for each record or
    for all. `rows` None: one each. `kept`: for each record the kept values, or its text. `keys`: of the answers; None:
    the records' own.
    """

    good: Sequence[int]
    tensors: Sequence[Sequence[Tensor]]
    dims: Sequence[Dims | Sequence[Dims]]
    rows: Sequence[int] | None
    kept: Sequence[Any] | None
    keys: Sequence[bytes] | None
    faults: Mapping[int, str]
    passed_over: Sequence[int]


class RecordMapping:
    """Reads records into the tensors of a signature."""

    def __init__(
        self,
        settings: Settings,
        signature: Signature,
        reader_of: ReaderOf | None = from_json,
        *,
        takes_nan: bool = False,
        skips_null: bool = False,
    ) -> None:
        """`reader_of` reads a record as a type; None: the value has no fields. `takes_nan`: a missing number is NaN.

        `skips_null`: an envelope with null, as of a row that was deleted, is passed over. Raises `BadConfiguration`.
        """
        self._is_json = reader_of is from_json
        self._rows = rows_of(settings.rows)
        kinds = kinds_of(settings.only)
        self._only = {path: allowed for path, allowed in kinds.items() if not path.is_of_record}
        self._only_around = [
            (Surroundings(Wish(path, Any, None)), allowed) for path, allowed in kinds.items() if path.is_of_record
        ]
        self._key = key_of(settings.key)
        keep = settings.answer.get(KEEP, ())
        self._keeps_all = keep == ALL
        self._kept = {} if self._keeps_all else kept_fields(keep)
        has_fields = reader_of is not None
        self._inputs = list(inputs_of(settings, signature, self._rows, takes_nan=takes_nan, has_fields=has_fields))
        self._all_inputs = AllInputs(self._inputs)
        outputs = [name for name in settings.answer if name != KEEP] or [spec.name for spec in signature.outputs]
        if clash := [name for name in outputs if name in self._kept]:
            raise BadConfiguration(f"[records.answer] keep: the answer has a field {clash[0]!r} already; leave one out")
        self._added = [Path((name,)) for name in outputs] if self._keeps_all else []
        wishes = list(self._wishes())
        own = [at for at, wish in enumerate(wishes) if not wish.path.is_of_record]
        if reader_of is None:
            if settings.envelope is not None or self._keeps_all or own:
                some = "envelope" if settings.envelope is not None else 'keep = "all"' if self._keeps_all else None
                needs = f"{some} needs some" if some is not None else f"{wishes[own[0]].path} is one"
                raise BadConfiguration(
                    f"[records] encoding: a text and bytes have no fields, and {needs}; the value itself "
                    "is $value, and $key, $timestamp, $topic and $headers.name are around it"
                )
            reader_of = from_json
        self._projected = own
        self._projection = Projection([wishes[at] for at in own], reader_of)
        self._around = [(at, Surroundings(wish)) for at, wish in enumerate(wishes) if wish.path.is_of_record]
        self._count = len(wishes)
        self._kinds = Projection([Wish(path, Any, None) for path in self._only], reader_of)
        self._wants_value = bool(own) or self._keeps_all or bool(self._only)
        self._skips_null = skips_null
        envelope = envelope_of(settings.envelope)
        self._envelope = None if envelope is None else Envelope(envelope, reader_of)

    @property
    def has_rows(self) -> bool:
        """True if a record is several rows."""
        return self._rows is not None

    @property
    def reads_values(self) -> bool:
        """True if it takes fields of the values, or whole records, and not only what is around them."""
        return self._wants_value

    @property
    def takes_whole(self) -> bool:
        """True if an input is the whole record, as objects of Python."""
        return any(wish.path == WHOLE for each in self._inputs for wish in each.wishes)

    @property
    def fed_by(self) -> Mapping[str, Sequence[Path]]:
        """The fields that feed each input; none: it is a constant."""
        return {each.spec.name: [wish.path for wish in each.wishes] for each in self._inputs}

    @property
    def keep(self) -> Sequence[str] | Literal["all"]:
        """The names of the kept fields in the answer; "all": the whole record, with the answer's fields added."""
        return ALL if self._keeps_all else tuple(self._kept)

    @property
    def kept_paths(self) -> Mapping[str, tuple[str, ...]]:
        """The paths of the kept fields, in a record with its envelope, by their names in the answer."""
        return {name: self._from_outside(path).steps for name, path in self._kept.items()}

    @property
    def wanted(self) -> Sequence[tuple[str, ...]] | None:
        """The paths of the fields that are read, of a record with its envelope; None: whole records."""
        return None if self._keeps_all or self.takes_whole else [wish.path.steps for wish in self.fields]

    @property
    def fields(self) -> Sequence[Wish]:
        """The fields that are read, of a record with its envelope."""
        wishes = [wish for wish in self._wishes() if not wish.path.is_of_record]
        return [wish._replace(path=self._from_outside(wish.path)) for wish in wishes]

    @property
    def fields_around(self) -> Sequence[Wish]:
        """The fields that are read of the Kafka record around the value."""
        kinds = [Wish(around.path, Any, None, names=allowed) for around, allowed in self._only_around]
        return [*kinds, *[wish for wish in self._wishes() if wish.path.is_of_record]]

    def _from_outside(self, path: Path) -> Path:
        """The path that leads to this one through the envelope."""
        return path if self._envelope is None else Path((*self._envelope.path.steps, *path.steps))

    def _wishes(self) -> Iterator[Wish]:
        """The wishes, in the order in which `read` takes their columns."""
        for path, allowed in self._only.items():
            yield Wish(path, Any, None, names=allowed)
        if self._rows is not None:
            yield Wish(self._rows, Any)
        if self._key is not None:
            yield Wish(self._key, str | int)
        for path in self._kept.values():
            yield Wish(path, msgspec.Raw, _NULL) if self._is_json else Wish(path, Any, None)
        for path in self._added:
            yield Wish(path, msgspec.Raw | msgspec.UnsetType if self._is_json else Any, msgspec.UNSET)
        for each in self._inputs:
            yield from each.wishes

    def read(self, values: Sequence[Given], records: Sequence[Record]) -> Mapped:
        """Read these records, whose values may have been read from another encoding before."""
        if self._envelope is None:
            return self._read(values, records, {}, ())
        values, faults, empty = self._envelope.unwrapped(values, skips_null=self._skips_null)
        return self._read(values, records, faults, {*empty})

    def _read(
        self, values: Sequence[Given], records: Sequence[Record], faults: dict[int, str], passed_over: Collection[int]
    ) -> Mapped:
        """Read these records. Some may have faults, or be passed over, before."""
        columns: list[Column] = [[]] * self._count
        good: Sequence[int] = range(len(values))
        for around, allowed in self._only_around:
            others = [at for at, kind in enumerate(around.column(records, {})) if kind not in allowed]
            passed_over = {*passed_over, *others}
            faults = {at: why for at, why in faults.items() if at not in passed_over}
        if self._wants_value:
            good, projected, wrong = self._projection.read(values)
            for at, column in zip(self._projected, projected, strict=True):
                columns[at] = column
            lacking = {at: why for at, why in wrong.items() if at not in faults and at not in passed_over}
            if self._only:
                passed_over = {*passed_over, *self._passed_over(values, good, columns, lacking)}
            faults |= lacking
        if faults or passed_over:
            good, columns = _without(good, columns, {*faults, *passed_over})
        if self._around:
            good, columns = self._surrounded(records, good, columns, faults)
        mapped, wrong_now = self._made(values, good, columns[len(self._only) :])
        if not faults and not wrong_now and not passed_over:
            return mapped
        cleared = _cleared(mapped, wrong_now) if wrong_now else mapped
        faults |= {good[at]: why for at, why in wrong_now.items()}
        return cleared._replace(faults=faults, passed_over=sorted(passed_over))

    def _surrounded(
        self, records: Sequence[Record], good: Sequence[int], columns: list[Column], faults: dict[int, str]
    ) -> tuple[Sequence[int], list[Column]]:
        """Add the columns of what is around the values."""
        wrong: Faults = {}
        own = records if len(good) == len(records) else _picked(records, good)
        for at, around in self._around:
            columns[at] = around.column(own, wrong)
        if not wrong:
            return good, columns
        faults |= {good[at]: why for at, why in wrong.items()}
        return _without(good, columns, faults)

    def _made(
        self, values: Sequence[Given], good: Sequence[int], columns: Sequence[Column]
    ) -> tuple[Mapped, dict[int, str]]:
        """The tensors of the records at these indexes, and what is wrong in them, by their place among these."""
        rest, wrong = iter(columns), dict[int, str]()
        rows = None if self._rows is None else self._row_counts(self._rows, next(rest), wrong)
        keys = None if self._key is None else [str(key).encode() for key in next(rest)]
        kept: Sequence[Any] | None = [next(rest) for _ in self._kept] or None
        for path in self._added:
            for at in [at for at, found in enumerate(next(rest)) if found is not msgspec.UNSET]:
                wrong.setdefault(at, f"{path}: the record has this field, and the answer adds it")
        made = self._all_inputs.make(list(rest), rows, len(good), wrong)
        if self._keeps_all:
            own = values if len(good) == len(values) else _picked(values, good)
            kept = list(map(bytes, own)) if self._is_json else own
        elif kept is not None:
            kept = list(zip(*kept, strict=True))
        return Mapped(good, made.tensors, made.dims, rows, kept, keys, {}, ()), wrong

    def _row_counts(self, rows: Path, column: Column, wrong: Faults) -> list[int]:
        for at in [at for at, array in enumerate(column) if not array]:
            wrong.setdefault(at, f"{Path(rows.steps[:-1])}: expected an array with an element")
        return list(map(len, column))

    def _passed_over(
        self, values: Sequence[Given], good: Sequence[int], columns: Sequence[Column], faults: dict[int, str]
    ) -> Sequence[int]:
        """The records of other kinds. Those that lack a field of ours are no faults, and leave these."""
        suspects = sorted(faults)
        readable, kinds, _ = self._kinds.read([values[at] for at in suspects])
        others = [suspects[at] for at in self._others(readable, kinds)]
        for at in others:
            del faults[at]
        return [*self._others(good, columns), *others]

    def _others(self, good: Sequence[int], columns: Sequence[Column]) -> list[int]:
        """The good ones that are not of the wanted kinds."""
        allowed = list(self._only.values())
        return [
            index
            for index, *kinds in zip(good, *columns[: len(allowed)], strict=True)
            if not all(kind in some for kind, some in zip(kinds, allowed, strict=True))
        ]


def _without(
    good: Sequence[int], columns: list[Column], left_out: Collection[int]
) -> tuple[Sequence[int], list[Column]]:
    """The good indexes and their columns, without some of these indexes."""
    keep = [at for at, index in enumerate(good) if index not in left_out]
    if len(keep) == len(good):
        return good, columns
    return _picked(good, keep), [_picked(column, keep) if column else column for column in columns]


def _cleared(mapped: Mapped, wrong: Faults) -> Mapped:
    """The records without these, which have faults by their place among the good ones."""
    good, tensors, dims, rows, kept, keys, *_ = mapped
    keep = [at for at in range(len(good)) if at not in wrong]
    return Mapped(
        _picked(good, keep),
        [_picked(column, keep) for column in tensors],
        [each if isinstance(each, tuple) else _picked(each, keep) for each in dims],
        rows and _picked(rows, keep),
        kept and _picked(kept, keep),
        keys and _picked(keys, keep),
        {},
        (),
    )


def _picked(column: Sequence[Any], at: Sequence[int]) -> list[Any]:
    return [column[index] for index in at]
