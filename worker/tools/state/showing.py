"""`inference-worker state get` and `list`."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from worker.core.failures import Incomplete
from worker.core.records import Array
from worker.terminal.terminal import console, count, print_json, printable, say
from worker.tools.consume.shown import decoded
from worker.tools.dead_letters.texts import moment
from worker.tools.state.changelog import LastStates, Stateful, key_of, last_states, rows_of, stateful
from worker.tools.state.options import GetOrder, ListStatesOrder


class State(NamedTuple):
    """Of one key. `offset` is of the request that wrote it, -1 for one that was imported; -1 for no time, too."""

    key: bytes
    partition: int
    offset: int
    used_ms: int
    tensors: dict[str, Array]


def show_key(order: GetOrder) -> int:
    """0. Raises `Incomplete` for a key without state, and `BadConfiguration`."""
    of, key = stateful(order.config), key_of(order.key, is_base64=order.is_base64)
    found = [state for part in last_states(of, only_key=key) for state in states_of(of, part)]
    if not found:
        raise Incomplete(f"{printable(order.key)}: {of.changelog} has no state of this key")
    for state in found:
        if order.as_json:
            print_json(_document(of, state))
        else:
            _show(of, state)
    return 0


def show_keys(order: ListStatesOrder) -> int:
    """0, whatever was found. Raises `BadConfiguration`."""
    of = stateful(order.config)
    total, left = 0, order.most
    for part in last_states(of, only_partition=order.partition):
        total += len(part.keys)
        for state in islice(states_of(of, part), None if order.as_json else left):
            left -= 1
            if order.as_json:
                print_json(_identity(of, state))
            else:
                say(console(), _line(of, state))
    if not order.as_json:
        more = f", {order.most:,} of them above" if total > order.most > 0 else ""
        say(console(), f"{count(total, 'key')} with a state in {of.changelog}{more}", "bold")
    return 0


def states_of(of: Stateful, found: LastStates) -> Iterator[State]:
    """One after the other."""
    keys, names = iter(found.keys), [tensor.spec.name for tensor in of.layout.tensors]
    for rows in rows_of(of, found.values):
        for row, key in zip(rows, keys, strict=False):
            tensors = dict(zip(names, of.layout.tensors_of(row), strict=True))
            yield State(key, found.partition, int(row["offset"]), int(row["time"]), tensors)


def _source(of: Stateful, state: State) -> str | None:
    return None if state.offset < 0 else f"{of.requests}/{state.partition}/{state.offset}"


def _identity(of: Stateful, state: State) -> dict[str, Any]:
    text = decoded(state.key)
    return {
        "key": {"base64": base64.b64encode(state.key).decode()} | ({} if text is None else {"text": text}),
        "partition": state.partition,
        "written_by": _source(of, state),
        "last_used_ms": None if state.used_ms < 0 else state.used_ms,
    }


def _document(of: Stateful, state: State) -> dict[str, Any]:
    """For a program. NaN and infinities, which JSON has not, become null."""
    tensors = {
        tensor.spec.name: {
            "datatype": tensor.spec.datatype,
            "shape": list(state.tensors[tensor.spec.name].shape),
            "data": [_plain(value) for value in state.tensors[tensor.spec.name].ravel().tolist()],
        }
        for tensor in of.layout.tensors
    }
    return {**_identity(of, state), "tensors": tensors}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown_key(key: bytes) -> str:
    text = decoded(key)
    return f"(base64) {base64.b64encode(key).decode()}" if text is None else printable(text)


def _line(of: Stateful, state: State) -> str:
    used = "" if state.used_ms < 0 else f", last used {moment(state.used_ms)} UTC"
    return f"{_shown_key(state.key)}  written by {_source(of, state) or 'an import'}{used}"


def _show(of: Stateful, state: State) -> None:
    say(console(), _line(of, state))
    for tensor in of.layout.tensors:
        say(console(), f"  {tensor.spec}", "bold")
        say(console(), "  " + np.array2string(state.tensors[tensor.spec.name], prefix="  "))
