"""The rooms put together: from what is set and what the cluster said to a worker that can run.

This is where the rooms meet, and where mypy proves that each satisfies the protocols of `ports.py`. The model is loaded
and warmed here; what a killed predecessor left open of a transaction is taken back meanwhile, since readers wait.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from worker import telemetry
from worker.codecs import Codecs, SingleCodecs, Wire, lack_of_room, longest_key
from worker.core.batching.back_pressure import RESERVE, Bounds, Intake
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.batching.limits import Limit
from worker.core.batching.linger import Linger
from worker.core.deadlines import Punctuality
from worker.core.failures import BadConfiguration
from worker.core.listing import listed
from worker.core.ordering.ledger import OffsetLedger
from worker.core.ordering.order_by_key import LEDGERS
from worker.core.records import ModelKey
from worker.core.rejections import FirstRejections, Rejections
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Stacker
from worker.delivery.at_least_once import AtLeastOnce
from worker.delivery.exactly_once import ExactlyOnce
from worker.delivery.last_states import LastStates
from worker.delivery.stored_states import STORE, StoringSink
from worker.inference import InferenceLanes, Model, check_run_time, digest_of, independence, inline_limit, load_as_set
from worker.kafka import (
    Announcement,
    ChangelogFacts,
    ChangelogRestorer,
    KafkaSink,
    KafkaSource,
    KafkaTransactions,
    Topics,
    changelog_facts,
    cost_of_a_kill,
    others_since,
    poll_interval,
    resolve_transactional_id,
)
from worker.loop.checkpoint import Checkpoint
from worker.loop.composition import compose
from worker.loop.conduct import Conduct
from worker.loop.suspects import Suspects
from worker.ports import Encoder, Sink
from worker.settings import BatchingSettings, Settings
from worker.settings.effective import wire_digest
from worker.signals import StopSignals
from worker.state import (
    ByKey,
    KeyStates,
    OutsideStates,
    OutsideValues,
    StateFetch,
    StatefulEncoder,
    StatefulStacker,
    StateLayout,
    layout_of,
)

if TYPE_CHECKING:
    from worker.loop.worker import Worker
    from worker.ports import Delivery
    from worker.stores import LocalStore
    from worker.stores.link import StoreLink
    from worker.stores.server import StoreServer
    from worker.telemetry.tracing import TracedCodec, TracedLanes, Tracing

# Seconds. A revoke takes no longer than the group's others will wait, and no longer than a fifth of
# `max.poll.interval.ms`: a member that does not poll for all of it is thrown out, with partitions that were to stay.
REVOKE_TIMEOUT = 10.0
# What a failed worker gives the broker to take what was already sent, and a lane to end. It commits nothing any more.
GIVE_UP_TIMEOUT = 1.0
# How often all lanes run the warm-up batch together before the first request, on a GPU: until runs of 0.2 ms have
# overlapped in 40 starts of 40. After one time a batch set up cuDNN anew in 21 to 28 of them, after three in 3
# (measured 2026, on a stand-in for CUDA).
PROBES_OF_LANES = 10
# How long a connection to a store outside, or an answer of its, may take until it is tried again, seconds.
STORE_TIMEOUT = 2.0
# For how long a store outside knows that a key was forgotten, and keeps a state that nothing used, beyond its TTL,
# seconds: a request that is read again so long after must find it. What is read again was not committed, so it is as
# old as the longest outage.
REREAD_WITHIN = 7 * 86_400
# Records of one poll: a batch, but enough to share a turn's own cost, and few enough that a finished lane does not wait
# long for its next. Between 32 and 256 no difference could be measured at batches of 64.
SMALLEST_CHUNK, LARGEST_CHUNK = 32, 256


def assemble(
    settings: Settings,
    topics: Topics,
    *,
    signals: StopSignals,
    events: telemetry.WorkerEvents,
    tracing: Tracing | None,
    closing: ExitStack,
) -> Worker:
    """A worker ready to run; what it holds is closed by `closing`. Raises `BadConfiguration`."""
    logger = telemetry.kafka_logger()
    tell_others = partial(_tell_others, settings, topics, events)
    grows_not = None if topics.changelog is None else topics.partitions[topics.changelog]
    source = KafkaSource(
        settings.kafka, topics.membership, logger, events, joined=tell_others, most_partitions=grows_not
    )
    events.topics_counted({topic: topics.partitions[topic] for topic in settings.kafka.request_topics})
    outlet = _outlet(settings, topics, source, events, closing)
    model = _warm_model(settings, events)
    lanes = _lanes(settings, model, closing)
    ledger = LEDGERS[settings.delivery.order]()
    stateful = _stateful(settings, topics, model, ledger, events, closing)
    signature = model.signature if stateful is None else stateful.signature
    wire = _wire_contract(settings, topics, stateful)
    for why in lack_of_room(model, signature, wire):
        events.warned("row_too_long", why=why)
    events.serves(signature)
    batching = settings.batching
    bounds = Bounds(batching.max_inflight_records, batching.max_inflight_rows, batching.max_inflight_bytes)
    policy = batch_policy(batching, model)
    punctuality = Punctuality(time.time, batching.lanes)
    policies = {signature.key: policy}
    batcher = Batcher(policies, punctuality.needed, _learning(batching, policies))
    states = None if stateful is None else stateful.states
    fetch = StateFetch(batcher, states, time.monotonic) if isinstance(states, OutsideStates) else None
    by_key = None if stateful is None else ByKey(fetch or batcher)
    if states is not None and by_key is not None:
        states.is_taken = by_key.is_taken
    link = None if stateful is None else stateful.link
    events.watch(
        telemetry.WatchedParts(
            ledger,
            states,
            running_since=lambda: lanes.running_since,
            linger=lambda: batcher.linger,
            stop_asked=lambda: signals.stop_asked,
            waiting_for_key=lambda: 0 if by_key is None else by_key.waiting,
            store_away_since=lambda: None if link is None else link.away_since,
            places_awaited=lambda: source.places_awaited,
        )
    )
    events.bounded(
        lanes=batching.lanes,
        batch=policy.max_rows,
        records=bounds.records,
        rows=bounds.rows,
        size=bounds.size,
        run=settings.model.run_timeout_s,
    )
    if model.is_accelerated:
        _warm_lanes(lanes, settings)
    limit = settings.delivery.rejection_limit
    rejections = Rejections(limit or None)
    speaks = SingleCodecs if settings.delivery.order == "key" else Codecs
    codecs = speaks([signature], wire, events.rejected, rejections, events.passed_over)
    codec = codecs if tracing is None else _traced_codec(tracing, codecs)
    # The steps of a sequence run one by one, also where it runs alone.
    alone = policy if stateful is None else replace(policy, max_rows=1)
    return compose(
        source=source,
        offsets=source,
        notes=source,
        codec=codec,
        ledger=ledger,
        intake=Intake(bounds, ledger, chunk=min(LARGEST_CHUNK, max(SMALLEST_CHUNK, policy.max_rows))),
        batcher=batcher,
        suspects=Suspects({signature.key: alone}, bounds.records + RESERVE),
        stackers={signature.key: _stacker(settings, model, stateful)},
        lanes=lanes if tracing is None else _traced_lanes(tracing, lanes, model),
        punctuality=punctuality,
        delivery=_delivery(settings, outlet, source, ledger, codec, events, stateful),
        rejections=rejections,
        events=events,
        signals=signals,
        conduct=_conduct(settings),
        clock=time.monotonic,
        states=states,
        by_key=by_key,
        checkpoint=_checkpoint(states, source, ledger, events),
        first=None if limit == 0 else _first_rejections(settings, source, codecs, signature),
    )


def _first_rejections(settings: Settings, source: KafkaSource, codecs: Codecs, signature: Signature) -> FirstRejections:
    is_exact = settings.delivery.guarantee == "exactly_once"
    return FirstRejections(source, codecs.description, signature.takes, telemetry.reason_of, is_exact=is_exact)


def _tell_others(settings: Settings, topics: Topics, events: telemetry.WorkerEvents) -> None:
    """Who has joined the group meanwhile, and serves something else."""
    for why in others_since(settings.kafka, topics, telemetry.kafka_logger()):
        events.warned("group_is_mixed", why=why)


class _Stateful(NamedTuple):
    """What a model with state has besides; `signature` is what is left for requests and answers."""

    states: KeyStates
    signature: Signature
    link: StoreLink | None = None
    max_key_bytes: int = sys.maxsize


def _stateful(
    settings: Settings,
    topics: Topics,
    model: Model,
    ledger: OffsetLedger,
    events: telemetry.WorkerEvents,
    closing: ExitStack,
) -> _Stateful | None:
    """None for a model without state. Raises `BadConfiguration`."""
    state, changelog = settings.state, settings.kafka.changelog_topic
    if not state.tensors:
        return None
    layout, signature = layout_of(model.signature, state.tensors, state.initial, with_answer=state.answer)
    if state.steps == "axis:1":
        signature = replace(signature, max_rows=1)
    if state.store is not None:
        link = _link(settings, events, closing)
        return _Stateful(_states_outside(settings, layout, ledger, link, events), signature, link)
    assert changelog is not None
    room = longest_key(changelog, topics.max_bytes[changelog], layout.dtype.itemsize)
    states = _states_in(changelog, settings, layout, ledger, events, closing)
    return _Stateful(states, signature, max_key_bytes=room)


def _states_outside(
    settings: Settings, layout: StateLayout, ledger: OffsetLedger, link: StoreLink, events: telemetry.WorkerEvents
) -> OutsideStates:
    return OutsideStates(
        layout,
        ledger,
        link,
        events,
        most_in_memory=settings.state.keys_in_memory,
        ttl=settings.state.ttl_s,
        date=time.time,
    )


def _states_in(
    changelog: str,
    settings: Settings,
    layout: StateLayout,
    ledger: OffsetLedger,
    events: telemetry.WorkerEvents,
    closing: ExitStack,
) -> KeyStates:
    kafka, state, logger = settings.kafka, settings.state, telemetry.kafka_logger()
    is_exact = settings.delivery.guarantee == "exactly_once"
    facts = None if state.directory is None else changelog_facts(kafka, changelog, logger)
    store = None if state.directory is None else _local_store(settings, layout, facts, events, closing)
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
        ttl=state.ttl_s,
        can_take_back=is_exact,
        store=store,
        most_in_memory=state.keys_in_memory,
        keeper=None if facts is None else store,
        clock=time.monotonic,
        date=time.time,
    )


def store_server(settings: Settings) -> StoreServer:
    """The server that keeps the states, not spoken to yet. Raises `BadConfiguration`."""
    from worker.stores.server import StoreAddress, StoreServer  # noqa: PLC0415  # most workers have none

    state = settings.state
    password = None if state.store_password is None else state.store_password.get_secret_value()
    address = StoreAddress(state.store or "", state.store_username, password, state.store_ca_location, STORE_TIMEOUT)
    return StoreServer(address, state.key_prefix or f"{settings.kafka.group_id}-state:")


def _link(settings: Settings, events: telemetry.WorkerEvents, closing: ExitStack) -> StoreLink:
    """Raises `BadConfiguration`."""
    from worker.stores.link import StoreLink  # noqa: PLC0415  # the same
    from worker.stores.server import examine_store  # noqa: PLC0415  # most workers have none

    server = store_server(settings)
    facts = examine_store(server)
    events.noted("state_store_examined", server=facts.name, version=facts.version)
    for why in facts.warnings:
        events.warned("state_store_noted", why=why)
    ttl = settings.state.ttl_s
    link = StoreLink(
        server,
        ttl=None if ttl is None else round(ttl) + REREAD_WITHIN,
        forgotten_for=REREAD_WITHIN,
        tell_round_trip=events.store_asked,
    )
    closing.callback(link.close, GIVE_UP_TIMEOUT)
    return link


def _local_store(
    settings: Settings,
    layout: StateLayout,
    facts: ChangelogFacts | None,
    events: telemetry.WorkerEvents,
    closing: ExitStack,
) -> LocalStore:
    from worker.stores import LocalStore  # noqa: PLC0415  # most workers have none

    directory, kafka = settings.state.directory, settings.kafka
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
    closing.callback(store.close)
    if store.kept:
        events.noted("states_found", partitions=[str(partition) for partition in store.kept])
    elif store.why_thrown_away is not None:
        events.warned("states_thrown_away", why=store.why_thrown_away)
    return store


def _checkpoint(
    states: KeyStates | None, source: KafkaSource, ledger: OffsetLedger, events: telemetry.WorkerEvents
) -> Checkpoint | None:
    """What a clean stop leaves of the states, if there is a place for it."""
    if states is None or not states.can_keep:
        return None
    return Checkpoint(states=states, offsets=source, source=source, ledger=ledger, events=events, clock=time.monotonic)


def _conduct(settings: Settings) -> Conduct:
    return Conduct(
        lanes=settings.batching.lanes,
        inflight_batches=settings.batching.max_inflight_batches,
        drain_timeout=settings.delivery.drain_timeout_s,
        revoke_timeout=min(REVOKE_TIMEOUT, poll_interval(settings.kafka) / 5),
    )


def _stacker(settings: Settings, model: Model, stateful: _Stateful | None) -> Stacker:
    non_finite = {
        "refuse_non_finite_input": settings.model.non_finite_input == "reject",
        "refuse_non_finite_output": settings.model.non_finite_output == "error",
    }
    if stateful is None:
        return Stacker(model.signature, **non_finite)
    return StatefulStacker(
        stateful.signature,
        **non_finite,
        gives=model.signature.outputs,
        states=stateful.states,
        refuse_missing=settings.state.missing == "refuse",
    )


def _learning(batching: BatchingSettings, policies: Mapping[ModelKey, BatchPolicy]) -> Linger | None:
    """What chooses the linger, unless it is fixed."""
    if batching.linger is not None:
        return None
    return Linger(
        lambda kind: policies[kind.model].limit(kind.shapes).rows,
        lanes=batching.lanes,
        budget=batching.latency_budget,
    )


def _outlet(
    settings: Settings, topics: Topics, source: KafkaSource, events: telemetry.WorkerEvents, closing: ExitStack
) -> KafkaSink | KafkaTransactions:
    """Where answers go: the one thing in which the guarantees differ."""
    kafka, delivery, logger = settings.kafka, settings.delivery, telemetry.kafka_logger()
    if delivery.guarantee == "at_least_once":
        sink = KafkaSink(kafka, topics, logger, events, on_error=source.hear_of_login)
        closing.callback(sink.close, GIVE_UP_TIMEOUT)
        return sink
    name = resolve_transactional_id(delivery.transactional_id, kafka.group_id, kafka.group_instance_id)
    timeout_ms, heard = delivery.transaction_timeout_ms, source.hear_of_login
    transactions = KafkaTransactions(kafka, topics, name, timeout_ms, source.member, logger, events, on_error=heard)
    closing.callback(transactions.close, GIVE_UP_TIMEOUT)
    events.noted("transactions_opened", transactional_id=name.text)
    if not name.is_stable:
        events.warned("transactional_id_at_random", why=cost_of_a_kill(delivery.transaction_timeout_ms))
    return transactions


def _delivery(
    settings: Settings,
    outlet: KafkaSink | KafkaTransactions,
    source: KafkaSource,
    ledger: OffsetLedger,
    codec: Encoder,
    events: telemetry.WorkerEvents,
    stateful: _Stateful | None,
) -> Delivery:
    """How answers become durable. Raises `BadConfiguration` when the broker opens no transactions for us."""
    interval = settings.delivery.commit_interval_ms / 1000
    encoder = codec
    if stateful is not None:
        encoder = StatefulEncoder(codec, stateful.states, settings.kafka.changelog_topic or STORE)
    if isinstance(outlet, KafkaSink):
        sink: Sink = outlet
        if stateful is not None and stateful.link is not None:
            sink = StoringSink(sink, stateful.link, OutsideValues(stateful.states.layout))
        return AtLeastOnce(
            ledger=ledger,
            encoder=encoder,
            sink=sink,
            offsets=source,
            events=events,
            commit_interval=interval,
            clock=time.monotonic,
        )
    outlet.wait_until_ready()
    return ExactlyOnce(
        ledger=ledger,
        encoder=encoder,
        transactions=outlet if stateful is None else LastStates(outlet),
        group=source,
        events=events,
        commit_interval=interval,
        clock=time.monotonic,
    )


def _traced_codec(tracing: Tracing, codecs: Codecs) -> TracedCodec:
    from worker.telemetry.tracing import TracedCodec  # noqa: PLC0415  # as `app._tracing` says

    return TracedCodec(codecs, tracing)


def _traced_lanes(tracing: Tracing, lanes: InferenceLanes, model: Model) -> TracedLanes:
    from worker.telemetry.tracing import ServedModel, TracedLanes  # noqa: PLC0415  # the same

    return TracedLanes(lanes, tracing, ServedModel(model.signature.name, model.signature.version, model.device.name))


def announcement(settings: Settings) -> Announcement:
    """What a replica with these settings tells its group that it serves."""
    model = settings.model
    digest = model.sha256.lower() if model.sha256 is not None else digest_of(model.path)
    return Announcement.of(model.name, model.version, digest, wire_digest(settings))


def batch_policy(batching: BatchingSettings, model: Model) -> BatchPolicy:
    """When this model's batches close under these settings."""
    return BatchPolicy(
        model.most_rows(batching.max_batch_size),
        batching.max_batch_bytes,
        batching.linger or 0.0,
        batching.max_batch_tokens,
        model.signature.buckets,
        is_fixed=model.padding is not None,
    )


def full_batch(batching: BatchingSettings, model: Model) -> Limit:
    """Of requests of a blank row each. A worker never runs more rows than that, whatever MAX_BATCH_SIZE says."""
    row = model.blank(1)
    row_bytes = sum(array.nbytes for array in row.values())
    shapes = tuple(array.shape[1:] for array in row.values())
    return batch_policy(batching, model).limit_of_rows(shapes, row_bytes)


def _warm_model(settings: Settings, events: telemetry.WorkerEvents) -> Model:
    batching = settings.batching
    model = load_as_set(settings.model, batching)
    signature = model.signature
    events.model_warmed(
        signature.name,
        signature.version,
        model.device.name,
        signature.sha256,
        why=model.device.reason,
        takes=signature.takes,
        gives=listed(signature.outputs),
        row_counts=model.warmed_up_at,
    )
    if left := model.left_to_cpu:
        events.noted("nodes_left_to_cpu", device=model.device.name, nodes=left, count=sum(left.values()))
    events.padded(signature.buckets)
    if (padding := model.padding) is not None:
        most = model.most_rows(batching.max_batch_size)
        events.noted("batches_padded", rows=padding.rows, max_batch_size=most, why=padding.why)
    check_run_time(model, full_batch(batching, model).rows, settings.model.run_timeout_s)
    for remark in model.remarks:
        events.warned("model_remarked", why=remark)
    found = independence(model, batching.max_batch_size)
    if found.why is not None:
        events.warned("rows_depend_on_each_other", why=found.why)
    elif found.doubt is not None:
        events.noted("independence_unseen", why=found.doubt)
    return model


def _lanes(settings: Settings, model: Model, closing: ExitStack) -> InferenceLanes:
    brief = 0.0 if model.is_accelerated else inline_limit()
    lanes = InferenceLanes({model.signature.key: model}, settings.batching.lanes, brief=brief)
    closing.callback(lanes.close, GIVE_UP_TIMEOUT)
    return lanes


def _warm_lanes(lanes: InferenceLanes, settings: Settings) -> None:
    """CUDA's libraries set themselves up for runs side by side. Raises `BadConfiguration` when they cannot."""
    probes = [probe for _ in range(PROBES_OF_LANES) for probe in lanes.probe_each()]
    failures = [probe.failure for probe in probes if probe.failure is not None]
    if failures:
        count = settings.batching.lanes
        where = "its lane" if count == 1 else f"{count} lanes at once"
        cure = "" if count == 1 else "; set WORKER_BATCHING__LANES to 1"
        raise BadConfiguration(
            f"{settings.model.path}: the model ran, and fails in {where}: {failures[0].message}{cure}"
        )


def _wire_contract(settings: Settings, topics: Topics, stateful: _Stateful | None) -> Wire:
    kafka = settings.kafka
    dead_letters, timeout_ms = kafka.dead_letter_topic, settings.batching.timeout_ms
    answered = [topic for topic in (kafka.response_topic, *kafka.reply_topics) if topic not in topics.shut]
    return Wire(
        response_topic=kafka.response_topic,
        group_id=kafka.group_id,
        dead_letter_topic=dead_letters,
        default_content_type=kafka.default_content_type,
        default_timeout=None if timeout_ms is None else timeout_ms / 1000,
        max_request_bytes=kafka.max_request_bytes,
        max_answer_bytes=topics.max_bytes[kafka.response_topic],
        max_dead_letter_bytes=topics.max_bytes[dead_letters] if dead_letters else 0,
        null_value=kafka.null_value,
        non_finite_output=settings.model.non_finite_output,
        has_state=bool(settings.state.tensors),
        must_state_rows=kafka.rows_headers == "required",
        reply_topics={topic: topics.partitions[topic] for topic in answered},
        reply_bytes={topic: topics.max_bytes[topic] for topic in answered[1:]},
        shut=topics.shut,
        max_key_bytes=sys.maxsize if stateful is None else stateful.max_key_bytes,
    )
