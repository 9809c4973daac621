"""Makes the function that goes over the fields of an Avro record: Python's text, one piece for each field, compiled.

    def read(value, at):              # for the fields (amount: double, note: string) of which `amount` is wanted
        try:
            v0, = unpack_double(value, at)
            at += 8
            n = value[at]
            if n & 129: n, at = size_of(value, at)
            else: n >>= 1; at += 1
            at += n
        except ERRORS as error:
            raise within(names[error.__traceback__.tb_lineno], error, why) from None
        return {k0: v0}, at

The text has nothing of the schema in it: names are constants outside of it. A function that calls one for each field
takes 8.2 µs for 15 fields, and this one 4.8; `fastavro` takes 9.5. To compile takes 0.1 ms a field (2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from worker.codecs.records.avro_containers import ERRORS, Step, why
from worker.codecs.records.avro_schema import Type
from worker.codecs.records.avro_values import (
    Read,
    boolean,
    rest_of_number,
    size_of,
    unpack_double,
    unpack_float,
)
from worker.codecs.records.wanted import within

_SIZE = ["n = value[at]", "if n & 129: n, at = size_of(value, at)", "else: n >>= 1; at += 1"]
_NUMBER = ["n = value[at]; at += 1", "if n > 127: n, at = rest_of_number(value, at, n & 127)"]
_READS: Mapping[str, Sequence[str]] = {
    "int": [*_NUMBER, "{v} = (n >> 1) ^ -(n & 1)"],
    "long": [*_NUMBER, "{v} = (n >> 1) ^ -(n & 1)"],
    "float": ["{v}, = unpack_float(value, at)", "at += 4"],
    "double": ["{v}, = unpack_double(value, at)", "at += 8"],
    "string": [*_SIZE, "n += at", "{v} = value[at:n].decode(); at = n"],
    "boolean": ["{v} = value[at] == 1", "if value[at] > 1: boolean(value, at)", "at += 1"],
}
_SKIPS: Mapping[str, Sequence[str]] = {
    "int": _NUMBER,
    "long": _NUMBER,
    "float": ["at += 4"],
    "double": ["at += 8"],
    "string": [*_SIZE, "at += n"],
    "bytes": [*_SIZE, "at += n"],
    "boolean": ["at += 1"],
}
_GLOBALS: Mapping[str, Any] = {
    "ERRORS": ERRORS,
    "within": within,
    "why": why,
    "boolean": boolean,
    "rest_of_number": rest_of_number,
    "size_of": size_of,
    "unpack_double": unpack_double,
    "unpack_float": unpack_float,
}


def compiled(steps: Sequence[Step]) -> Read:
    """The function that reads a record of these fields, in their order."""
    lines, names = ["def read(value, at):", "    try:", "        pass"], ["", "", "", ""]
    for at, step in enumerate(steps):
        pieces = _pieces(step.kind, f"g{at}", None if step.key is None else f"v{at}")
        lines += [f"        {piece}" for piece in pieces]
        names += [f".{step.name}"] * len(pieces)
    lines += [
        "    except ERRORS as error:",
        "        raise within(names[error.__traceback__.tb_lineno], error, why) from None",
        f"    return {{{', '.join([f'k{at}: v{at}' for at, step in enumerate(steps) if step.key is not None])}}}, at",
    ]
    given = {f"k{at}": step.key for at, step in enumerate(steps)} | {f"g{at}": step.go for at, step in enumerate(steps)}
    made: dict[str, Any] = {**_GLOBALS, **given, "names": names}
    exec("\n".join(lines), made)  # noqa: S102  # the text is made of the pieces above: nothing in it came from a schema
    read: Read = made.pop("read")  # a function among its own globals is a cycle: 1.5 KiB of each schema stayed
    return read


def _pieces(kind: Type, go: str, target: str | None) -> list[str]:
    """The text for a field of this type: it sets the target, if the field is wanted, and moves on."""
    pieces = _SKIPS if target is None else _READS
    if isinstance(kind, str) and kind in pieces:
        return [piece.format(v=target) for piece in pieces[kind]]
    call = [f"at = {go}(value, at)" if target is None else f"{target}, at = {go}(value, at)"]
    if not isinstance(kind, list) or len(kind) != 2 or "null" not in kind:
        return call
    null = kind.index("null")
    inner = _pieces(kind[1 - null], go, target)
    if inner == call:  # of a type that has no piece
        return call
    return [
        "n = value[at]",
        f"if n == {2 * null}:",
        "    at += 1" if target is None else f"    at += 1; {target} = None",
        f"elif n == {2 - 2 * null}:",
        "    at += 1",
        *[f"    {piece}" for piece in inner],
        "else:",  # a branch that is not there, or a longer number of one
        f"    {call[0]}",
    ]
