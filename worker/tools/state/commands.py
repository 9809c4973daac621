"""`inference-worker state get`, `list`, `export`, `import` and `reset`."""

from __future__ import annotations

import base64
import math
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from worker.codecs.examples import encode_request, encodings, example_feeds
from worker.core.failures import BadConfiguration, Incomplete
from worker.core.listing import listed
from worker.core.records import Array, Record
from worker.kafka.client.command_clients import reach
from worker.kafka.producer.sink import ANY_PARTITION
from worker.terminal.terminal import console, count, print_json, printable, progress, say
from worker.tools.consume.reading import headers_of, read
from worker.tools.consume.shown import decoded, moment
from worker.tools.kafka.groups import members_of
from worker.tools.kafka.publisher import PATIENCE, Publisher
from worker.tools.kafka.reader import READ_FOR, Reader
from worker.tools.state.changelog import LastStates, Stateful, key_of, last_states, rows_of, stateful
from worker.tools.state.options import ExportOrder, GetOrder, ImportOrder, ListStatesOrder, ResetOrder
from worker.tools.state.states_file import States, load_states, save

# The offset of a state that no request of the request topic wrote: whatever comes is newer.
NO_OFFSET = -1
_PORTION = 8192  # states written as one array
_WAIT = 0.05


class State(NamedTuple):
    """The state of one key. `offset` is of the request that wrote it, -1 for an import; -1 for no time, too."""

    key: bytes
    partition: int
    offset: int
    used_ms: int
    tensors: dict[str, Array]


def show_key(order: GetOrder) -> int:
    """0. Raises `Incomplete` for a key without state, and `BadConfiguration`."""
    of, key = stateful(order.config), key_of(order.key, is_base64=order.is_base64)
    found = [state for part in last_states(of, only_key=key) for state in _states(of, part)]
    if not found:
        raise Incomplete(f"{printable(order.key)}: {of.changelog} has no state of this key")
    for state in found:
        if order.as_json:
            print_json(_identity(of, state) | {"tensors": _tensors(of, state)})
            continue
        say(console(), _line(of, state))
        for tensor in of.layout.tensors:
            say(console(), f"  {tensor.spec}", "bold")
            say(console(), "  " + np.array2string(state.tensors[tensor.spec.name], prefix="  "))
    return 0


def show_keys(order: ListStatesOrder) -> int:
    """0, whatever was found. Raises `BadConfiguration`."""
    of = stateful(order.config)
    parts = last_states(of)
    states = (state for part in parts for state in _states(of, part))
    for state in islice(states, None if order.as_json else order.most):
        if order.as_json:
            print_json(_identity(of, state))
        else:
            say(console(), _line(of, state))
    if not order.as_json:
        total = sum(len(part.keys) for part in parts)
        more = f", {order.most:,} of them above" if total > order.most > 0 else ""
        say(console(), f"{count(total, 'key')} with a state in {of.changelog}{more}", "bold")
    return 0


def _states(of: Stateful, found: LastStates) -> Iterator[State]:
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


def _tensors(of: Stateful, state: State) -> dict[str, Any]:
    """NaN and infinities, which JSON has not, become null."""
    found: dict[str, Any] = {}
    for tensor in of.layout.tensors:
        array = state.tensors[tensor.spec.name]
        data = [None if isinstance(v, float) and not math.isfinite(v) else v for v in array.ravel().tolist()]
        found[tensor.spec.name] = {"datatype": tensor.spec.datatype, "shape": list(array.shape), "data": data}
    return found


def _line(of: Stateful, state: State) -> str:
    text = decoded(state.key)
    key = f"(base64) {base64.b64encode(state.key).decode()}" if text is None else printable(text)
    used = "" if state.used_ms < 0 else f", last used {moment(state.used_ms)} UTC"
    return f"{key}  written by {_source(of, state) or 'an import'}{used}"


def export(order: ExportOrder) -> int:
    """0. Raises `BadConfiguration`."""
    if order.file.exists() and not order.force:
        raise BadConfiguration(f"{order.file}: is there already; --force writes over it")
    of = stateful(order.config)
    parts = last_states(of)
    keys = [key for part in parts for key in part.keys]
    partitions = np.repeat([part.partition for part in parts], [len(part.keys) for part in parts])
    joined = np.concatenate(
        [np.empty(0, of.layout.dtype), *(rows for part in parts for rows in rows_of(of, part.values))]
    )
    save(order.file, of.layout, States(keys, partitions, len(parts), joined["time"], of.layout.tensors_of(joined)))
    if order.as_json:
        print_json({"file": str(order.file), "keys": len(keys), "partitions": len(parts)})
    else:
        say(console(), f"{count(len(keys), 'key')} of {of.changelog} in {order.file}")
    return 0


def bring_in(order: ImportOrder) -> int:
    """0. Raises `BadConfiguration`, `KafkaFatal`, and `Incomplete` when some were not acknowledged."""
    of = stateful(order.config)
    states = load_states(order.file, of.layout)
    keeps_partitions = states.partition_count == _partitions(of)
    _check_import(order, of, states, keeps_partitions=keeps_partitions)
    publisher = Publisher(of.settings.kafka, of.changelog, order.partitioner)
    with progress(f"writing to {of.changelog}", len(states.keys)) as advance:
        for at, value in enumerate(_values(of, states)):
            partition = int(states.partitions[at]) if keeps_partitions else ANY_PARTITION
            while not publisher.publish(value, states.keys[at], (), None, partition):
                publisher.poll(_WAIT)
            if not at % _PORTION:
                publisher.poll()
                advance(publisher.acknowledged)
        waiting = publisher.flush(PATIENCE)
    if waiting or publisher.refused:
        raise Incomplete(
            f"{count(waiting + publisher.refused, 'state')} of {len(states.keys):,} were not acknowledged"
            f"{f': {publisher.refusal}' if publisher.refusal else ''}; the import may be begun again"
        )
    if order.as_json:
        print_json({"file": str(order.file), "keys": len(states.keys), "keeps_partitions": keeps_partitions})
    else:
        where = "in the partitions they had" if keeps_partitions else f"partitioned anew by {order.partitioner}"
        say(console(), f"{count(len(states.keys), 'key')} written to {of.changelog}, {where}")
    return 0


def _partitions(of: Stateful) -> int:
    """The partitions of both topics. Raises `BadConfiguration` where they differ, for then no worker starts."""
    ours, theirs = (
        len(reach(topic, of.settings.kafka, "DESCRIBE").cluster.topics[topic].partitions)
        for topic in (of.requests, of.changelog)
    )
    if ours != theirs:
        raise BadConfiguration(
            f"WORKER_KAFKA__CHANGELOG_TOPIC: {of.changelog} has {theirs} partitions and {of.requests} has {ours}; name "
            "a new changelog, make it with `check --create-topics`, and import into that"
        )
    return ours


def _check_import(order: ImportOrder, of: Stateful, states: States, *, keeps_partitions: bool) -> None:
    """Raises `BadConfiguration` where states would be lost."""
    if members := members_of(of.settings.kafka, of.settings.kafka.group_id):
        raise BadConfiguration(
            f"group {of.settings.kafka.group_id} has {count(members, 'member')}, which would not read what is imported "
            "and write over it; stop its workers first"
        )
    twice = [key for key, times in Counter(states.keys).items() if times > 1]
    if twice and not keeps_partitions:
        raise BadConfiguration(
            f"{order.file}: {count(len(twice), 'key')} with states in two partitions, of which one would be lost: "
            f"{listed(key.decode(errors='backslashreplace') for key in twice)}; partitions were added while workers "
            "ran, and the state that was used last began without the other; leave one row of each key in the file"
        )


def _values(of: Stateful, states: States) -> Iterator[bytes]:
    for start in range(0, len(states.keys), _PORTION):
        some = slice(start, start + _PORTION)
        used = states.used_ms[some]
        no_request, is_kept = np.full(len(used), NO_OFFSET, np.int64), np.ones(len(used), bool)
        yield from of.layout.written(no_request, used, is_kept, [rows[some] for rows in states.tensors])


def reset(order: ResetOrder) -> int:
    """0. Raises `Incomplete` for a key without state, and where no answer came, or an error; `BadConfiguration`.

    The key is forgotten by a request of its own, which is answered like any other: it takes its turn behind the
    requests of its key that wait already. Its row is made up. Where the model fails on the state, as on one of which it
    makes infinity, a request before it begins the key anew.
    """
    of, key = stateful(order.config), key_of(order.key, is_base64=order.is_base64)
    # Where it lies, whichever partitioner its publishers have.
    partitions = [found.partition for found in last_states(of, only_key=key) if found.keys]
    if not partitions:
        raise Incomplete(f"{printable(order.key)}: {of.changelog} has no state of this key")
    for partition in partitions:
        answer = _asked(of, key, partition, b"delete", order.timeout)
        if not _is_ok(answer) and _is_ok(_asked(of, key, partition, b"reset", order.timeout)):
            answer = _asked(of, key, partition, b"delete", order.timeout)
        if not _is_ok(answer):
            why = printable(read(answer).get("error") or "an error that does not say why")
            raise Incomplete(f"{printable(order.key)}: its state is not forgotten: {why}")
        source = headers_of(answer.headers).get("source", b"").decode(errors="replace")
        if order.as_json:
            print_json({"key": order.key, "partition": partition, "forgotten_by": source})
        else:
            say(console(), f"{printable(order.key)}: forgotten by {printable(source)}; its next request begins anew")
    return 0


def _is_ok(answer: Record) -> bool:
    return headers_of(answer.headers).get("status") == b"ok"


def _asked(of: Stateful, key: bytes, partition: int, use: bytes, timeout: float) -> Record:
    """The answer to a request that uses the key's state so. Raises `Incomplete` when none came in time."""
    kafka, name = of.settings.kafka, secrets.token_hex(8).encode()
    feeds = example_feeds(of.signature, 1, np.random.default_rng(0))
    request = encode_request(of.signature, feeds, encodings(of.signature)[0])
    with Reader(kafka, kafka.response_topic) as reader:
        reader.start_at(reader.ends)
        publisher = Publisher(kafka, of.requests)
        publisher.publish(request.value, key, (*request.headers, ("state", use), ("request-id", name)), None, partition)
        publisher.flush(timeout)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for record in reader.read(READ_FOR):
                if headers_of(record.headers).get("request-id") == name:
                    return record
    does = "forgets the key" if use == b"delete" else "begins the key anew, with a row that is made up"
    raise Incomplete(
        f"no answer within {timeout:g} s; the request lies in {of.requests}: a worker that comes to it {does}"
    )
