"""Builds the part of a worker that a model with state adds: the place of the states, and the parts around them.

States lie in memory with a changelog, in a directory with a changelog, or in a store outside.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from worker import telemetry
from worker.codecs.message_sizes import longest_key
from worker.core.batching.batcher import Batcher
from worker.core.ordering.ledger import OffsetLedger
from worker.core.tensors.signature import Signature
from worker.delivery.last_states import EachState, LastStates
from worker.delivery.stored_states import StoringSink
from worker.inference.facts import ModelFacts
from worker.kafka.changelog import ChangelogFacts, ChangelogRestorer, changelog_facts
from worker.kafka.cluster.topics import Topics
from worker.ports import Sink, Transactions
from worker.settings import Settings
from worker.state import ByKey, KeyStates, OutsideStates, OutsideValues, StateFetch, StateLayout, layout_of

if TYPE_CHECKING:
    from worker.stores import LocalStore
    from worker.stores.link import StoreLink
    from worker.stores.server import StoreServer

# Seconds that a failed worker gives the broker to take messages already sent, and a lane to end. It commits nothing.
GIVE_UP_TIMEOUT = 1.0
# Seconds that a connection to a store outside, or one of its answers, may take before it is tried again.
STORE_TIMEOUT = 2.0
# Seconds beyond its TTL for which a store outside keeps an unused state, and for which it knows that a key was
# forgotten. A request that is read again so late must find it. It was not committed, so it is as old as the longest
# outage.
REREAD_WITHIN = 7 * 86_400


class Start(NamedTuple):
    """A start's material: the settings, the examined topics, the events to report to, and the stack that closes all."""

    settings: Settings
    topics: Topics
    events: telemetry.WorkerEvents
    closing: ExitStack


class StatefulParts(NamedTuple):
    """The parts that a model with state adds; `signature` has the inputs and outputs left for requests and answers."""

    states: KeyStates
    signature: Signature
    link: StoreLink | None = None
    max_key_bytes: int = sys.maxsize

    def by_key(self, batcher: Batcher) -> ByKey:
        """The stage before the batcher, which lets a key's records wait for one another."""
        states = self.states
        fetch = StateFetch(batcher, states, time.monotonic) if isinstance(states, OutsideStates) else None
        by_key = ByKey(fetch or batcher)
        states.is_taken = by_key.is_taken
        return by_key

    def sink(self, answers: Sink) -> Sink:
        """The sink that sends each state after its answer, to the changelog or to the store."""
        if self.link is None:
            return EachState(answers, self.states.leave, time.monotonic)
        return StoringSink(answers, self.states.leave, self.link, OutsideValues(self.states.layout))

    def transactions(self, answers: Transactions) -> Transactions:
        """The transactions that end with the last state of each key."""
        return LastStates(answers, self.states.leave)


def stateful_parts(start: Start, model: ModelFacts, ledger: OffsetLedger) -> StatefulParts | None:
    """The parts that this model's state adds; None for a model without state. Raises `BadConfiguration`."""
    state, changelog = start.settings.state, start.settings.kafka.changelog_topic
    if not state.tensors:
        return None
    layout, signature = layout_of(model.signature, state.tensors, state.initial, with_answer=state.answer)
    if state.steps == "axis:1":
        signature = replace(signature, max_rows=1)
    if state.store is not None:
        link, events, most = _link(start), start.events, state.keys_in_memory
        states = OutsideStates(layout, ledger, link, events, most_in_memory=most, ttl=state.ttl_s, date=time.time)
        return StatefulParts(states, signature, link)
    assert changelog is not None
    room = longest_key(changelog, start.topics.max_bytes[changelog], layout.dtype.itemsize)
    return StatefulParts(_states_in(changelog, start, layout, ledger), signature, max_key_bytes=room)


def _states_in(changelog: str, start: Start, layout: StateLayout, ledger: OffsetLedger) -> KeyStates:
    settings, _, events, closing = start
    kafka, state, logger = settings.kafka, settings.state, telemetry.kafka_logger()
    is_exact = settings.delivery.guarantee == "exactly_once"
    facts = None if state.directory is None else changelog_facts(kafka, changelog, logger)
    store = None if state.directory is None else _local_store(start, layout, facts)
    retention = 0.0 if facts is None else facts.retention
    restorer = ChangelogRestorer(
        kafka, changelog, layout, logger, is_exact=is_exact, date=time.time, retention=retention
    )
    closing.callback(restorer.close, GIVE_UP_TIMEOUT)
    return KeyStates(
        layout,
        ledger,
        restorer,
        events,
        topic=changelog,
        ttl=state.ttl_s,
        can_take_back=is_exact,
        store=store,
        most_in_memory=state.keys_in_memory,
        keeper=None if facts is None else store,
        clock=time.monotonic,
        date=time.time,
    )


def store_server(settings: Settings) -> StoreServer:
    """The server that keeps the states, not yet connected. Raises `BadConfiguration`."""
    from worker.stores.server import StoreAddress, StoreServer  # noqa: PLC0415  # most workers have none

    state = settings.state
    password = None if state.store_password is None else state.store_password.get_secret_value()
    address = StoreAddress(state.store or "", state.store_username, password, state.store_ca_location, STORE_TIMEOUT)
    return StoreServer(address, state.key_prefix or f"{settings.kafka.group_id}-state:")


def _link(start: Start) -> StoreLink:
    """Examine the store outside, and open the link to it. Raises `BadConfiguration`."""
    from worker.stores.link import StoreLink  # noqa: PLC0415  # most workers have none
    from worker.stores.server import examine_store  # noqa: PLC0415  # most workers have none

    server, ttl, events = store_server(start.settings), start.settings.state.ttl_s, start.events
    facts = examine_store(server)
    events.noted("state_store_examined", server=facts.name, version=facts.version)
    for why in facts.warnings:
        events.warned("state_store_noted", why=why)
    link = StoreLink(
        server,
        ttl=None if ttl is None else round(ttl) + REREAD_WITHIN,
        forgotten_for=REREAD_WITHIN,
        tell_round_trip=events.store_asked,
    )
    start.closing.callback(link.close, GIVE_UP_TIMEOUT)
    return link


def _local_store(start: Start, layout: StateLayout, facts: ChangelogFacts | None) -> LocalStore:
    from worker.stores import LocalStore  # noqa: PLC0415  # most workers have none

    directory, kafka, events = start.settings.state.directory, start.settings.kafka, start.events
    assert directory is not None
    identity = None
    if facts is None:
        why = "the cluster does not describe the changelog; grant DESCRIBE_CONFIGS on it"
        events.warned("states_will_not_be_kept", why=why)
    else:
        identity = {
            "group": kafka.group_id,
            "cluster": facts.cluster_id,
            "changelog": kafka.changelog_topic,
            "changelog's topic id": facts.topic_id,
            "delete.retention.ms": facts.retention,
            "layout of the state": f"{layout.fingerprint:08x}, {layout.dtype.itemsize} bytes",
        }
    store = LocalStore(directory, identity)
    start.closing.callback(store.close)
    if store.kept:
        events.noted("states_found", partitions=[str(partition) for partition in store.kept])
    elif store.why_thrown_away is not None:
        events.warned("states_thrown_away", why=store.why_thrown_away)
    return store
