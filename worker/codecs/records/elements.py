"""The type that a field must have, and its values as the elements of a tensor, column by column.

msgspec judges each value by its type while it reads it. What a type cannot say is judged here, for a whole column with
numpy, and for each value only if the column has a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from worker.codecs.records.paths import EACH
from worker.codecs.records.projection import REQUIRED, Wish
from worker.codecs.records.sources import BOOLEAN, DECIMAL, UNITS, Source
from worker.core.failures import BadConfiguration
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec

# By the index of a value in its column: what was expected there.
Faults = dict[int, str]
# Values of one field, none of them None unless the element may be missing.
Values = Sequence[Any]

_INT64 = np.iinfo(np.int64)
_MIDNIGHT = time()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INSTANT = "an instant such as 2026-01-31T12:00:00Z"
# An instant, or a day: msgspec has no type of both, so the column is judged here.
_INSTANT_OR_DAY = Annotated[
    Any, Meta(extra_json_schema={"type": "string", "anyOf": [{"format": "date-time"}, {"format": "date"}]})
]
# A text in the grammar of decimals. Python takes more for one: 1_000, full-width digits, " 1" and nan.
_DECIMAL = Annotated[str, Meta(extra_json_schema={"pattern": r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"})]
# As the JSON of Protobuf has whole numbers of 64 bits.
_OF_WHOLES = r"[+-]?[0-9]{1,20}"
_WHOLE_TEXT = Annotated[str, Meta(extra_json_schema={"pattern": f"^{_OF_WHOLES}$"})]
_OF_DECIMALS = b"0123456789+-.eE"
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)  # the instants that have parts
_EXACT = 2**53  # a whole number up to this is exact in FP64


class Element:
    """The elements of one input that come from one source. It knows the type of a value, and what to make of it."""

    def __init__(self, where: str, spec: TensorSpec, source: Source, *, takes_nan: bool) -> None:
        """`takes_nan`: so does the model, and a missing number is NaN.

        Raises `BadConfiguration` if the source cannot give such elements.
        """
        self.spec, self.source = spec, source
        self._takes_nan = takes_nan
        self._array = self._maker(where)
        self.type = self._type()
        self.fill = self._default(where)
        # None in a column of numbers is NaN in numpy.
        self.may_miss = self.fill is not None or (takes_nan and spec.is_float and source.names is None)

    @property
    def wish(self) -> Wish:
        """The field with one such value; a value in an array may be null where it may be missing."""
        names = self.source.names or ()
        if self.may_miss and self.source.path.steps[-1] == EACH:
            return Wish(self.source.path, self.type | None, names=names)
        return Wish(self.source.path, self.type, None if self.may_miss else REQUIRED, names=names)

    def array(self, values: Values, faults: Faults) -> Array:
        """The elements, of shape (n,); the index of each wrong value is in `faults` then, and its element is any."""
        return self._array(self.filled(values), faults)

    @property
    def is_plain(self) -> bool:
        """True if its elements are the values of the record as they are."""
        return self._array in (self._floats, self._plain, self._texts)

    def together(self, columns: Sequence[Values]) -> Array | None:
        """The elements of columns of this datatype, of shape (columns, n ≥ 1); None if a value is wrong. All are plain.

        500 columns of 64 numbers take 0.9 ms, and 6 ms one by one (2026-11).
        """
        wrong: Faults = {}
        try:
            whole = self._floats(columns, wrong) if self.spec.is_float else np.array(columns, self.spec.dtype)
        except OverflowError:
            return None
        return None if wrong else whole

    def filled(self, values: Values) -> Values:
        """The values, with the default for missing ones."""
        if self.fill is None or None not in values:
            return values
        return [self.fill if value is None else value for value in values]

    def _maker(self, where: str) -> Callable[[Values, Faults], Array]:
        spec, source = self.spec, self.source
        if source.names is not None:
            if spec.is_text or spec.dtype.kind == "b":
                raise BadConfiguration(f"{where}: names give numbers, and {spec.name} is {spec.datatype}")
            if not all(map(spec.can_be, source.names.values())):
                raise BadConfiguration(f"{where}: names: each number must be {spec.values}")
            return self._named
        match source.conversion:
            case None:
                return self._texts if spec.is_text else self._floats if spec.is_float else self._plain
            case "decimal" if spec.is_float or (spec.dtype.kind in "iu" and source.scale is None):
                return self._decimals if spec.is_float else self._wholes
            case "boolean" if not spec.is_text:
                return self._plain
            case _ if source.is_instant and spec.dtype.kind in "iuf":
                return self._instants
        raise BadConfiguration(f"{where}: as = {source.conversion!r} gives no {spec.datatype}, which {spec.name} is")

    def _type(self) -> Any:
        """The type that msgspec judges by."""
        spec, source = self.spec, self.source
        if source.names is not None:
            return str
        if source.conversion == DECIMAL:
            number = _DECIMAL | _number(spec) if spec.is_float else _WHOLE_TEXT | _whole(spec)
            return number if source.scale is None else bytes
        if source.conversion == BOOLEAN or spec.dtype.kind == "b":
            return bool
        if source.is_instant:
            return _INSTANT_OR_DAY if source.epoch is None else _since_1970(spec, str(source.conversion), source.epoch)
        if spec.is_text:
            return str
        return _number(spec) if spec.is_float else _whole(spec)

    def _default(self, where: str) -> Any:
        """The value in the place of a missing one, of the type of a given one."""
        default, wrong = self.source.default, dict[int, str]()
        if default is None:
            return None
        if is_fit := self._may_be(default):
            self._array([default], wrong)
        if wrong or not is_fit:
            raise BadConfiguration(f"{where}: default does not fit; expected {self.expected}")
        return _with_time(as_instant(default)) if self.source.is_instant and isinstance(default, str) else default

    def _may_be(self, default: float | str) -> bool:
        """True if a default is of the kind of a given value."""
        source = self.source
        if isinstance(default, bool) or self.type is bool:
            return isinstance(default, bool) and self.type is bool
        if isinstance(default, str) or self.type is str:
            return isinstance(default, str) and (self.type is str or source.conversion == DECIMAL or self._is_dated)
        return not self._is_dated if source.is_instant else self.spec.can_be(default)

    @property
    def _is_dated(self) -> bool:
        """True if its values are instants, and no numbers of a unit."""
        return self.source.is_instant and self.source.epoch is None

    @property
    def expected(self) -> str:
        """The expected value, in words."""
        spec, source = self.spec, self.source
        if source.names is not None:
            return f"one of {', '.join(list(source.names)[:8])}{', …' if len(source.names) > 8 else ''}"
        if source.is_instant:
            return _INSTANT if self._is_dated else f"a number of {source.epoch} since 1970"
        if source.conversion == DECIMAL:
            form = f"a text such as {'1.10' if spec.is_float else '110'}"
            return f"{spec.values}, or {form if source.scale is None else 'the digits of a decimal in base64'}"
        return "true or false" if self.type is bool else spec.values

    def _texts(self, values: Values, _: Faults) -> Array:
        return as_objects(values)

    def _plain(self, values: Values, faults: Faults) -> Array:
        try:
            return np.array(values, self.spec.dtype)
        except OverflowError:  # beyond INT64, where the type has no bounds
            limits = np.iinfo(self.spec.dtype)
            wrong = {at for at, value in enumerate(values) if not limits.min <= value <= limits.max}
            faults.update(dict.fromkeys(wrong, self.expected))
            return np.array([0 if at in wrong else value for at, value in enumerate(values)], self.spec.dtype)

    def _floats(self, values: Values, faults: Faults) -> Array:
        return self._narrow(np.array(values, np.float64), faults)

    def _narrow(self, numbers: Array, faults: Faults) -> Array:
        """The numbers in the input's type. One that is not finite is a fault, unless it came so and may be taken."""
        with np.errstate(over="ignore"):
            narrow: Array = numbers.astype(self.spec.dtype, copy=False)
        if not np.isfinite(narrow).all():
            wrong = np.isinf(narrow) & np.isfinite(numbers) if self._takes_nan else ~np.isfinite(narrow)
            faults.update(dict.fromkeys(np.flatnonzero(wrong).tolist(), self.expected))
        return narrow

    def _decimals(self, values: Values, faults: Faults) -> Array:
        scale = self.source.scale
        numbers = np.array([np.nan if value is None else _decimal(value, scale) for value in values])
        if not np.isfinite(numbers).all():
            for at in np.flatnonzero(~np.isfinite(numbers)).tolist():
                if values[at] is not None:
                    faults[at] = self.expected
        return self._narrow(numbers, faults)

    def _wholes(self, values: Values, faults: Faults) -> Array:
        wrong = {at for at, value in enumerate(values) if isinstance(value, str) and not _is_whole(value)}
        faults.update(dict.fromkeys(wrong, self.expected))
        return self._plain([0 if at in wrong else int(value) for at, value in enumerate(values)], faults)

    def _named(self, values: Values, faults: Faults) -> Array:
        names = self.source.names
        assert names is not None
        try:
            numbers = list(map(names.__getitem__, values))
        except KeyError:
            wrong = {at for at, value in enumerate(values) if value not in names}
            faults.update(dict.fromkeys(wrong, self.expected))
            numbers = [names.get(value, 0) for value in values]
        return np.array(numbers).astype(self.spec.dtype)

    def _instants(self, values: Values, faults: Faults) -> Array:
        """Instants in a unit since 1970, or a part of them in UTC. One without a zone is in UTC."""
        conversion, epoch = self.source.conversion, self.source.epoch
        if epoch is None:
            values = self._read_instants(values, faults)
        made = np.empty(len(values), np.float64 if self.spec.is_float else np.int64)
        for at, value in enumerate(values):
            try:
                if value is None:
                    made[at] = np.nan
                elif conversion is not None and conversion in UNITS:
                    made[at] = _microseconds(value, epoch) // UNITS[conversion]
                else:
                    made[at] = _part(_instant(value, epoch), str(conversion))
            except (OverflowError, ValueError):
                faults[at] = self.expected
                made[at] = 0
        return self._narrow(made, faults) if self.spec.is_float else self._plain(made.tolist(), faults)

    def _read_instants(self, values: Values, faults: Faults) -> Values:
        """The instants of texts in ISO 8601, and of instants and days of other encodings. A day begins at midnight."""
        read = _converted(values, list[datetime | None], list[date | None])
        if read is None:
            read = [as_instant(value) for value in values]
        for at, (value, instant) in enumerate(zip(values, read, strict=True)):
            if instant is None and (value is not None or not self.may_miss):
                faults[at] = self.expected
        return list(map(_with_time, read))


def _decimal(value: float | str | bytes, scale: int | None) -> float:
    """The number that this is, that a text says, or that the bytes are the digits of; NaN for any others."""
    try:
        if isinstance(value, bytes):
            return int.from_bytes(value, "big", signed=True) / 10 ** (scale or 0) if value else np.nan
        if not isinstance(value, str):
            return value
        return np.nan if value.encode(errors="replace").translate(None, _OF_DECIMALS) else float(value)
    except (ValueError, OverflowError):
        return np.nan


def _is_whole(text: str) -> bool:
    return re.fullmatch(_OF_WHOLES, text) is not None


def _with_time(found: date | None) -> date | None:
    """The instant; a day begins at midnight."""
    return datetime.combine(found, _MIDNIGHT) if type(found) is date else found


def as_instant(value: Any) -> date | None:
    """The instant or the day that this is, or that a text says; None for anything else."""
    found: date | None = _converted(value, datetime, date)
    return found


def _converted(value: Any, *kinds: Any) -> Any:
    """The value as the first of these types that it fits; None if it fits none."""
    for kind in kinds:
        with suppress(msgspec.ValidationError):
            return msgspec.convert(value, kind)
    return None


def as_objects(values: Values) -> Array:
    """The values themselves, of shape (n,)."""
    objects: Array = np.empty(len(values), object)
    objects[:] = values
    return objects


# The types of numbers. The contract tells bounds that msgspec does not judge; the columns are judged by them.


def _number(spec: TensorSpec) -> Any:
    """Numbers of this datatype of floats."""
    most = float(np.finfo(spec.dtype).max)
    return float if spec.dtype == np.float64 else _said(float, -most, most)


def _whole(spec: TensorSpec) -> Any:
    """Whole numbers of this datatype; msgspec knows no bounds beyond INT64."""
    low, high = int(np.iinfo(spec.dtype).min), int(np.iinfo(spec.dtype).max)
    return Annotated[int, Meta(ge=low, le=high)] if high < _INT64.max else _said(int, low, high)


def _since_1970(spec: TensorSpec, conversion: str, epoch: str) -> Any:
    """Numbers in the unit `epoch` whose instants have all parts, or are of this datatype in the unit wanted."""
    unit: int = UNITS[epoch]
    number: Any = int | float
    if conversion not in UNITS:
        return _said(number, -((_EPOCH - _FIRST) // _MICROSECOND // unit), (_LAST - _EPOCH) // _MICROSECOND // unit)
    if spec.is_float:
        most = float(np.finfo(spec.dtype).max) * UNITS[conversion] / unit
        return _said(number, -most, most) if most < np.inf else number
    limits = np.iinfo(spec.dtype)
    low, high = (int(limit) * UNITS[conversion] // unit for limit in (limits.min, limits.max))
    return _said(number, low, high) if -_INT64.max <= low and high <= _INT64.max else number


def _said(kind: Any, low: float, high: float) -> Any:
    return Annotated[kind, Meta(extra_json_schema={"minimum": low, "maximum": high})]


def _microseconds(value: datetime | float, epoch: str | None) -> int:
    if isinstance(value, datetime):
        return (_in_utc(value) - _EPOCH) // _MICROSECOND
    return int(value * UNITS[str(epoch)]) if abs(value) < _EXACT else int(value) * UNITS[str(epoch)]


def _instant(value: datetime | float, epoch: str | None) -> datetime:
    return _in_utc(value) if isinstance(value, datetime) else _EPOCH + _microseconds(value, epoch) * _MICROSECOND


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _part(value: datetime, part: str) -> int:
    """A part of an instant; weekdays count from Monday, 0."""
    return date.weekday(value) if part == "weekday" else int(getattr(value, part))
