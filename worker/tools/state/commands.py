"""`inference-worker state get`, `list`, `export`, `import` and `reset`."""

from __future__ import annotations

import base64
import math
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from worker.codecs.examples import encode_request, encodings, example_feeds
from worker.core.failures import BadConfiguration, Incomplete, listed
from worker.core.records import Array, Record
from worker.core.tensors.specs import TensorSpec
from worker.kafka.client.command_clients import reach
from worker.kafka.producer.sink import ANY_PARTITION
from worker.kafka.reader import READ_FOR, Reader
from worker.state.slabs import NO_OFFSET
from worker.terminal.terminal import console, count, print_json, printable, say
from worker.tools.consume.reading import headers_of, read
from worker.tools.consume.shown import decoded, moment
from worker.tools.kafka.own_topics import members_of
from worker.tools.kafka.publisher import PATIENCE, Publisher
from worker.tools.state.changelog import PartitionStates, StatefulSetup, key_of, last_states, stateful_setup
from worker.tools.state.options import ExportOrder, GetOrder, ImportOrder, ListStatesOrder, ResetOrder
from worker.tools.state.states_file import SavedStates, load_states, save

_PORTION = 8192  # states written as one array
_WAIT = 0.05


def show_key(order: GetOrder) -> int:
    """Show a key's state. Returns 0. Raises `Incomplete` for a key without state, and `BadConfiguration`."""
    of, key = stateful_setup(order.config), key_of(order.key, is_base64=order.is_base64)
    for part in _found(of, key, order.key):
        pairs = list(
            zip([tensor.spec for tensor in of.layout.tensors], of.layout.tensors_of(part.rows[0]), strict=True)
        )
        if order.as_json:
            print_json(_identity(of, part, 0) | {"tensors": {spec.name: _tensor(spec, array) for spec, array in pairs}})
            continue
        say(console(), _line(of, part, 0))
        for spec, array in pairs:
            say(console(), f"  {spec}", "bold")
            say(console(), "  " + np.array2string(array, prefix="  "))
    return 0


def _found(of: StatefulSetup, key: bytes, name: str) -> list[PartitionStates]:
    """Returns the partitions that have a state of the key. Raises `Incomplete` if none has."""
    if not (found := [part for part in last_states(of, only_key=key) if part.keys]):
        raise Incomplete(f"{printable(name)}: {of.changelog} has no state of this key")
    return found


def show_keys(order: ListStatesOrder) -> int:
    """List the keys. Returns 0. Raises `BadConfiguration`."""
    of = stateful_setup(order.config)
    parts = last_states(of)
    every = ((part, at) for part in parts for at in range(len(part.keys)))
    for part, at in islice(every, None if order.as_json else order.most):
        if order.as_json:
            print_json(_identity(of, part, at))
        else:
            say(console(), _line(of, part, at))
    if not order.as_json:
        total = sum(len(part.keys) for part in parts)
        more = f", {order.most:,} of them above" if total > order.most > 0 else ""
        say(console(), f"{count(total, 'key')} with a state in {of.changelog}{more}", "bold")
    return 0


def _identity(of: StatefulSetup, part: PartitionStates, at: int) -> dict[str, Any]:
    """Describes a state. An import is `written_by` no request. Requests without a timestamp leave no last use."""
    key, offset, used = part.keys[at], int(part.rows[at]["offset"]), int(part.rows[at]["time"])
    text = decoded(key)
    return {
        "key": {"base64": base64.b64encode(key).decode()} | ({} if text is None else {"text": text}),
        "partition": part.partition,
        "written_by": None if offset < 0 else f"{of.requests}/{part.partition}/{offset}",
        "last_used_ms": None if used < 0 else used,
    }


def _tensor(spec: TensorSpec, array: Array) -> dict[str, Any]:
    """Describes a tensor. NaN and infinities become null, because JSON lacks them."""
    data = [None if isinstance(v, float) and not math.isfinite(v) else v for v in array.ravel().tolist()]
    return {"datatype": spec.datatype, "shape": list(array.shape), "data": data}


def _line(of: StatefulSetup, part: PartitionStates, at: int) -> str:
    said = _identity(of, part, at)
    text = said["key"].get("text")
    key = f"(base64) {said['key']['base64']}" if text is None else printable(text)
    used = "" if said["last_used_ms"] is None else f", last used {moment(said['last_used_ms'])} UTC"
    return f"{key}  written by {said['written_by'] or 'an import'}{used}"


def export(order: ExportOrder) -> int:
    """Save all states to a file. Returns 0. Raises `BadConfiguration`."""
    if order.file.exists() and not order.force:
        raise BadConfiguration(f"{order.file}: is there already; --force writes over it")
    of = stateful_setup(order.config)
    parts = last_states(of)
    keys = [key for part in parts for key in part.keys]
    partitions = np.repeat([part.partition for part in parts], [len(part.keys) for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    save(order.file, of.layout, SavedStates(keys, partitions, len(parts), rows["time"], of.layout.tensors_of(rows)))
    if order.as_json:
        print_json({"file": str(order.file), "keys": len(keys), "partitions": len(parts)})
    else:
        say(console(), f"{count(len(keys), 'key')} of {of.changelog} in {order.file}")
    return 0


def bring_in(order: ImportOrder) -> int:
    """Import states. Returns 0. Raises `BadConfiguration`, `KafkaFatal`; `Incomplete` if some were not acknowledged."""
    of = stateful_setup(order.config)
    states = load_states(order.file, of.layout)
    keeps_partitions = states.partition_count == _partitions(of)
    _check_import(order, of, states, keeps_partitions=keeps_partitions)
    publisher = Publisher(of.settings.kafka, of.changelog, order.partitioner)
    for at, value in enumerate(_values(of, states)):
        partition = int(states.partitions[at]) if keeps_partitions else ANY_PARTITION
        while not publisher.publish(value, states.keys[at], (), None, partition):
            publisher.poll(_WAIT)
    if missing := publisher.flush(PATIENCE) + publisher.refused:
        raise Incomplete(
            f"{count(missing, 'state')} of {len(states.keys):,} were not acknowledged"
            f"{f': {publisher.refusal}' if publisher.refusal else ''}; the import may be begun again"
        )
    if order.as_json:
        print_json({"file": str(order.file), "keys": len(states.keys), "keeps_partitions": keeps_partitions})
    else:
        where = "in the partitions they had" if keeps_partitions else f"partitioned anew by {order.partitioner}"
        say(console(), f"{count(len(states.keys), 'key')} written to {of.changelog}, {where}")
    return 0


def _partitions(of: StatefulSetup) -> int:
    """Returns the partition count of both topics. Raises `BadConfiguration` if they differ: no worker starts then."""
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


def _check_import(order: ImportOrder, of: StatefulSetup, states: SavedStates, *, keeps_partitions: bool) -> None:
    """Raises `BadConfiguration` if the import would lose states."""
    if members := members_of(of.settings.kafka, of.settings.kafka.group_id):
        raise BadConfiguration(
            f"group {of.settings.kafka.group_id} has {count(members, 'member')}, which would write over what is "
            "imported; stop its workers first"
        )
    twice = [key for key, times in Counter(states.keys).items() if times > 1]
    if twice and not keeps_partitions:
        raise BadConfiguration(
            f"{order.file}: {count(len(twice), 'key')} with states in two partitions: "
            f"{listed(key.decode(errors='backslashreplace') for key in twice)}; workers ran while partitions were "
            "added. Leave one row of each key in the file"
        )


def _values(of: StatefulSetup, states: SavedStates) -> Iterator[bytes]:
    """Makes the changelog values. They carry no request's offset, so every later request is newer."""
    for start in range(0, len(states.keys), _PORTION):
        some = slice(start, start + _PORTION)
        used = states.used_ms[some]
        no_request, is_kept = np.full(len(used), NO_OFFSET, np.int64), np.ones(len(used), bool)
        yield from of.layout.written(no_request, used, is_kept, [rows[some] for rows in states.tensors])


def reset(order: ResetOrder) -> int:
    """Have a key forgotten. Returns 0. Raises `Incomplete` for a key without state, and if no answer or an error came.

    It sends two requests with a made-up row, which queue after the key's waiting requests. The first begins the key
    anew, because the model may fail on its state. The second has it forgotten. Also raises `BadConfiguration`.
    """
    of, key = stateful_setup(order.config), key_of(order.key, is_base64=order.is_base64)
    # The partitions come from the states, so the publishers' partitioner does not matter.
    for partition in [part.partition for part in _found(of, key, order.key)]:
        answer = _forgotten(of, key, partition, order.timeout)
        headers = headers_of(answer.headers)
        if headers.get("status") != b"ok":
            why = printable(read(answer).get("error") or "an error that does not say why")
            raise Incomplete(f"{printable(order.key)}: its state is not forgotten: {why}")
        source = headers.get("source", b"").decode(errors="replace")
        if order.as_json:
            print_json({"key": order.key, "partition": partition, "forgotten_by": source})
        else:
            say(console(), f"{printable(order.key)}: forgotten by {printable(source)}; its next request begins anew")
    return 0


def _forgotten(of: StatefulSetup, key: bytes, partition: int, timeout: float) -> Record:
    """Returns the answer to the request that has the key forgotten. Raises `Incomplete` if none came in time."""
    kafka, name = of.settings.kafka, secrets.token_hex(8).encode()
    feeds = example_feeds(of.signature, 1, np.random.default_rng(0))
    request = encode_request(of.signature, feeds, encodings(of.signature)[0])
    with Reader(kafka, kafka.response_topic) as reader:
        reader.start_at(reader.ends)
        publisher = Publisher(kafka, of.requests)
        for use, request_id in ((b"reset", b"first-" + name), (b"delete", name)):
            headers = (*request.headers, ("state", use), ("request-id", request_id))
            publisher.publish(request.value, key, headers, None, partition)
        publisher.flush(timeout)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for record in reader.read(READ_FOR):
                if headers_of(record.headers).get("request-id") == name:
                    return record
    raise Incomplete(f"no answer within {timeout:g} s; a worker that comes to {of.requests} still forgets the key")
