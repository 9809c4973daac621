"""`inference-worker state import`: the states of a file as the last ones in the changelog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from worker.core.failures import BadConfiguration, Incomplete
from worker.core.listing import listed
from worker.kafka.client.command_clients import reach
from worker.kafka.producer.destination import ANY_PARTITION
from worker.terminal.terminal import console, count, print_json, progress, say
from worker.tools.kafka.groups import members_of
from worker.tools.kafka.publisher import PATIENCE, Publisher
from worker.tools.state.changelog import Stateful, stateful
from worker.tools.state.options import ImportOrder
from worker.tools.state.states_file import States, load_states

# Of a state that no request of the request topic wrote: whatever comes is newer.
NO_OFFSET = -1
# States written as one array.
_PORTION = 8192
_WAIT = 0.05


def bring_in(order: ImportOrder) -> int:
    """0. Raises `BadConfiguration`, `KafkaFatal`, and `Incomplete` when some were not acknowledged."""
    of = stateful(order.config)
    states = load_states(order.file, of.layout)
    partitions = _partitions(of)
    if members := members_of(of.settings.kafka, of.settings.kafka.group_id):
        raise BadConfiguration(
            f"group {of.settings.kafka.group_id} has {count(members, 'member')}, which would not read what is imported "
            "and write over it; stop its workers first"
        )
    keeps_partitions = states.partition_count == partitions
    if not keeps_partitions and (twice := [key for key, times in Counter(states.keys).items() if times > 1]):
        raise BadConfiguration(_comes_twice(order.file, twice))
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
    """Of both topics. Raises `BadConfiguration` where they differ, for then no worker starts."""
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


def _comes_twice(file: Path, keys: Sequence[bytes]) -> str:
    named = listed(key.decode(errors="backslashreplace") for key in keys)
    return (
        f"{file}: {count(len(keys), 'key')} with states in two partitions, of which one would be lost: {named}; "
        "partitions were added while workers ran, and the state that was used last began without the other; leave one "
        "row of each key in the file"
    )


def _values(of: Stateful, states: States) -> Iterator[bytes]:
    for start in range(0, len(states.keys), _PORTION):
        some = slice(start, start + _PORTION)
        used = states.used_ms[some]
        no_request = np.full(len(used), NO_OFFSET, np.int64)
        yield from of.layout.written(
            no_request, used, np.ones(len(used), bool), [rows[some] for rows in states.tensors]
        )
