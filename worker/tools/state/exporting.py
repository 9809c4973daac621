"""`inference-worker state export`: all states in a file."""

from __future__ import annotations

import numpy as np

from worker.core.failures import BadConfiguration
from worker.terminal.terminal import console, count, print_json, say
from worker.tools.state.changelog import last_states, rows_of, stateful
from worker.tools.state.options import ExportOrder
from worker.tools.state.states_file import States, save


def export(order: ExportOrder) -> int:
    """0. Raises `BadConfiguration`."""
    if order.file.exists() and not order.force:
        raise BadConfiguration(f"{order.file}: is there already; --force writes over it")
    of = stateful(order.config)
    keys: list[bytes] = []
    partitions: list[int] = []
    rows = [np.empty(0, of.layout.dtype)]
    found = last_states(of)
    for part in found:
        keys += part.keys
        partitions += [part.partition] * len(part.keys)
        rows += rows_of(of, part.values)
    joined = np.concatenate(rows)
    tensors = of.layout.tensors_of(joined)
    save(order.file, of.layout, States(keys, np.array(partitions), len(found), joined["time"], tensors))
    if order.as_json:
        print_json({"file": str(order.file), "keys": len(keys), "partitions": len(found)})
    else:
        say(console(), f"{count(len(keys), 'key')} of {of.changelog} in {order.file}")
    return 0
