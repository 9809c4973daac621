"""Builds a worker that can run from the settings and the examined topics.

All packages meet only here, and here mypy proves that each satisfies the protocols of `ports.py`. The model is loaded
and warmed here. Meanwhile the open transaction of a killed predecessor is taken back, because readers wait for its end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from worker import telemetry
from worker.assembled_states import GIVE_UP_TIMEOUT, Start, StatefulParts, stateful_parts
from worker.codecs.codec import Codec
from worker.codecs.message_sizes import lack_of_room
from worker.codecs.wire_contract import Wire
from worker.core.batching.back_pressure import RESERVE, Bounds, Intake
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.batching.limits import Limit
from worker.core.batching.linger import Linger
from worker.core.deadlines import Punctuality
from worker.core.failures import BadConfiguration, listed
from worker.core.ordering.ledger import OffsetLedger
from worker.core.ordering.order_by_key import LEDGERS
from worker.core.records import ModelKey
from worker.core.rejections import FirstRejections, Rejections
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Stacker
from worker.delivery.at_least_once import AtLeastOnce
from worker.delivery.exactly_once import ExactlyOnce
from worker.inference.lanes import BRIEF, InferenceLanes
from worker.inference.model import Model
from worker.inference.model_loading import load_as_set
from worker.inference.row_independence import independence
from worker.kafka.client.config import poll_interval
from worker.kafka.client.membership import resolve_transactional_id
from worker.kafka.cluster.topics import Topics
from worker.kafka.consumer.source import KafkaSource
from worker.kafka.producer.sink import KafkaSink
from worker.kafka.transactions.kafka_transactions import KafkaTransactions
from worker.loop.conduct import Conduct, Parts
from worker.loop.stateless import Stateless
from worker.loop.suspects import Suspects
from worker.loop.worker import Worker
from worker.settings import BatchingSettings, Settings
from worker.signals import StopSignals
from worker.state import StatefulStacker

if TYPE_CHECKING:
    from worker import ports
    from worker.telemetry.tracing import Tracing

# Seconds. A revoke takes no longer than the other members will wait, and at most a fifth of `max.poll.interval.ms`: a
# member that does not poll for all of that is thrown out, and loses partitions that it should have kept.
REVOKE_TIMEOUT = 10.0
# The most records of one poll: texts in five buckets take 22.6 µs each with 1024, and 25.5 with 64, because a bucket
# gets its records together (2026-11). While a lane runs, a poll brings at most as many as fill the batches that the
# lanes hold, so that a finished lane does not wait for its next.
LEAST_POLLED, MOST_POLLED = 32, 1024


def assemble(
    settings: Settings,
    topics: Topics,
    *,
    signals: StopSignals,
    events: telemetry.WorkerEvents,
    tracing: Tracing | None,
    closing: ExitStack,
) -> Worker:
    """A worker ready to run; `closing` closes all its parts. Raises `BadConfiguration`."""
    start = Start(settings, topics, events, closing)
    logger = telemetry.kafka_logger()
    grows_not = topics.partitions[changelog] if (changelog := settings.kafka.changelog_topic) else None
    source = KafkaSource(settings.kafka, topics.membership, logger, events, most_partitions=grows_not)
    events.topics_counted({topic: topics.partitions[topic] for topic in settings.kafka.request_topics})
    outlet = _outlet(start, source)
    lanes, model, rooms = _engine(settings, events, closing)
    ledger = LEDGERS[settings.delivery.order]()
    stateful = stateful_parts(start, model, ledger)
    signature, states, link = model.signature, None, None
    if stateful is not None:
        states, signature, link, _ = stateful
    wire = _wire_contract(settings, topics, sys.maxsize if stateful is None else stateful.max_key_bytes)
    for why in lack_of_room(signature, wire):
        events.warned("row_too_long", why=why)
    events.serves(signature)
    batching = settings.batching
    bounds = Bounds(batching.max_inflight_records, batching.max_inflight_rows, batching.max_inflight_bytes)
    policy = batch_policy(batching, model)
    punctuality = Punctuality(time.time, batching.lanes)
    policies = {signature.key: policy}
    batcher = Batcher(policies, punctuality.needed, _learning(batching, policies))
    by_key = None if stateful is None else stateful.by_key(batcher)
    events.watch(
        telemetry.WatchedParts(
            ledger,
            states,
            running_since=lambda: lanes.running_since,
            linger=lambda: batcher.linger,
            stop_asked=lambda: signals.stop_asked,
            waiting_for_key=lambda: 0 if by_key is None else by_key.waiting,
            store_away_since=lambda: None if link is None else link.away_since,
            starts_awaited=lambda: source.starts_awaited,
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
    limit = settings.delivery.rejection_limit
    rejections = Rejections(limit or None)
    plain = Codec([signature], wire, events.rejected, rejections)
    codec, traced_lanes = (plain, lanes) if tracing is None else tracing.around(plain, lanes)
    # The steps of a sequence run one by one, also in an isolated run.
    alone = policy if stateful is None else replace(policy, max_rows=1)
    parts = Parts(
        source=source,
        codec=codec,
        ledger=ledger,
        intake=Intake(bounds, ledger, MOST_POLLED),
        stage=batcher if by_key is None else by_key,
        batcher=batcher,
        suspects=Suspects({signature.key: alone}, bounds.records + RESERVE),
        stackers={signature.key: _stacker(settings, model, rooms, stateful)},
        lanes=traced_lanes,
        punctuality=punctuality,
        delivery=_delivery(start, outlet, source, ledger, stateful, codec),
        rejections=rejections,
        events=events,
        signals=signals,
        conduct=Conduct(
            lanes=batching.lanes,
            inflight_batches=batching.max_inflight_batches,
            polled_beside_runs=max(LEAST_POLLED, batching.max_inflight_batches * policy.max_rows),
            drain_timeout=settings.delivery.drain_timeout_s,
            revoke_timeout=min(REVOKE_TIMEOUT, poll_interval(settings.kafka) / 5),
        ),
        clock=time.monotonic,
        states=Stateless() if states is None else states,
        first=_first_rejections(settings, source, plain, signature),
    )
    return Worker(parts)


def _first_rejections(settings: Settings, source: KafkaSource, codec: Codec, signature: Signature) -> FirstRejections:
    return FirstRejections(
        source,
        codec.description,
        signature.takes,
        telemetry.reason_of,
        is_exact=settings.delivery.guarantee == "exactly_once",
        is_over=settings.delivery.rejection_limit == 0,
    )


def _stacker(settings: Settings, model: ModelFacts, rooms: Rooms, stateful: StatefulParts | None) -> Stacker:
    refuse_input, refuse_output = settings.model.non_finite_input == "reject", settings.model.non_finite_output == "error"
    if stateful is None:
        return Stacker(model.signature, refuse_input, refuse_output, rooms)
    return StatefulStacker(
        stateful.signature,
        refuse_input,
        refuse_output,
        rooms,
        gives=model.signature.outputs,
        states=stateful.states,
        refuse_missing=settings.state.missing == "refuse",
    )


def _learning(batching: BatchingSettings, policies: Mapping[ModelKey, BatchPolicy]) -> Linger | None:
    """The linger that learns; None if the linger is fixed."""
    if batching.linger is not None:
        return None
    return Linger(
        lambda kind: policies[kind.model].limit(kind.shapes).rows,
        lanes=batching.lanes,
        budget=batching.latency_budget,
    )


def _outlet(start: Start, source: KafkaSource) -> KafkaSink | KafkaTransactions:
    """The producer of answers, which differs by guarantee, like `_delivery`."""
    settings, topics, events, closing = start
    kafka, delivery, logger, heard = settings.kafka, settings.delivery, telemetry.kafka_logger(), source.hear_of_login
    if delivery.guarantee == "at_least_once":
        sink = KafkaSink(kafka, topics, logger, events, on_error=heard)
        closing.callback(sink.close, GIVE_UP_TIMEOUT)
        return sink
    name = resolve_transactional_id(delivery.transactional_id, kafka.group_id, kafka.group_instance_id)
    timeout_ms = delivery.transaction_timeout_ms
    transactions = KafkaTransactions(kafka, topics, name, timeout_ms, source.member, logger, events, on_error=heard)
    closing.callback(transactions.close, GIVE_UP_TIMEOUT)
    events.noted("transactions_opened", transactional_id=name.text)
    return transactions


def _delivery(
    start: Start,
    outlet: KafkaSink | KafkaTransactions,
    source: KafkaSource,
    ledger: OffsetLedger,
    stateful: StatefulParts | None,
    codec: ports.Codec,
) -> ports.Delivery:
    """The delivery that the guarantee needs. Raises `BadConfiguration` if the broker opens no transactions for us."""
    interval, events, clock = start.settings.delivery.commit_interval_ms / 1000, start.events, time.monotonic
    if isinstance(outlet, KafkaSink):
        return AtLeastOnce(
            ledger=ledger,
            encoder=codec,
            sink=outlet if stateful is None else stateful.sink(outlet),
            offsets=source,
            events=events,
            commit_interval=interval,
            clock=clock,
        )
    outlet.wait_until_ready()
    return ExactlyOnce(
        ledger=ledger,
        encoder=codec,
        transactions=outlet if stateful is None else stateful.transactions(outlet),
        group=source,
        events=events,
        commit_interval=interval,
        clock=clock,
    )


def batch_policy(batching: BatchingSettings, model: Model) -> BatchPolicy:
    """The rules by which this model's batches close under these settings."""
    return BatchPolicy(
        model.most_rows(batching.max_batch_size),
        batching.max_batch_bytes,
        batching.linger or 0.0,
        batching.max_batch_tokens,
        model.signature.buckets,
        is_fixed=model.padding is not None,
    )


def full_batch(batching: BatchingSettings, model: Model) -> Limit:
    """The limit of a batch of blank rows. A worker never runs more rows than that, whatever MAX_BATCH_SIZE says."""
    row = model.blank(1)
    row_bytes = sum(array.nbytes for array in row.values())
    shapes = tuple(array.shape[1:] for array in row.values())
    return batch_policy(batching, model).limit_of_rows(shapes, row_bytes)


class _Engine(NamedTuple):
    """What runs the model: its lanes, the facts of the model, and where its batches are stacked."""

    lanes: InferenceLanes | HostLanes
    facts: ModelFacts
    rooms: Rooms


def _engine(settings: Settings, events: telemetry.WorkerEvents, closing: ExitStack) -> _Engine:
    """Load and warm the model, in a host or in this process. Raises `BadConfiguration`."""
    engine = _hosted(settings, events, closing) if settings.model.host == "process" else _threaded(settings, closing)
    facts, batching = engine.facts, settings.batching
    signature, padding, found = facts.signature, facts.padding, facts.independence
    events.model_warmed(
        signature.name,
        signature.version,
        facts.device.name,
        signature.sha256,
        why=facts.device.reason,
        takes=signature.takes,
        gives=listed(signature.outputs),
        row_counts=facts.warmed_up_at,
    )
    if left := facts.left_to_cpu:
        events.noted("nodes_left_to_cpu", device=facts.device.name, nodes=left, count=sum(left.values()))
    events.padded(signature.buckets)
    if padding is not None:
        most = facts.most_rows(batching.max_batch_size)
        events.noted("batches_padded", rows=padding.rows, max_batch_size=most, why=padding.why)
    if facts.remark is not None:
        events.warned("model_remarked", why=facts.remark)
    if found.why is not None:
        events.warned("rows_depend_on_each_other", why=found.why)
    elif found.doubt is not None:
        events.noted("independence_unseen", why=found.doubt)
    return engine


def _hosted(settings: Settings, events: telemetry.WorkerEvents, closing: ExitStack) -> _Engine:
    heap = Heap()
    closing.callback(heap.close)
    order = Order(settings.model, settings.batching, heap.memory.fd, None, os.getpid())
    keeper = Keeper(partial(HostProcess, order), events)
    lanes = HostLanes(keeper, heap, settings.batching.lanes, settings.model.run_timeout_s)
    closing.callback(lanes.close, GIVE_UP_TIMEOUT)
    return _Engine(lanes, keeper.facts, heap.room)


def _threaded(settings: Settings, closing: ExitStack) -> _Engine:
    from worker.inference.model_loading import load_as_set  # noqa: PLC0415  # only here does a worker load ONNX Runtime
    from worker.inference.row_independence import facts_of  # noqa: PLC0415

    model = load_as_set(settings.model, settings.batching)
    facts = facts_of(model, settings.batching.max_batch_size)
    brief = 0.0 if facts.is_accelerated else BRIEF
    lanes = InferenceLanes({facts.signature.key: model}, settings.batching.lanes, brief=brief)
    closing.callback(lanes.close, GIVE_UP_TIMEOUT)
    if facts.is_accelerated:
        _warm_lanes(lanes, settings)
    return _Engine(lanes, facts, own_room)


def _warm_lanes(lanes: InferenceLanes, settings: Settings) -> None:
    """Let CUDA's libraries set themselves up for runs side by side. Raises `BadConfiguration` if they cannot."""
    probes = [probe for _ in range(PROBES_OF_LANES) for probe in lanes.probe_each()]
    failure = next((probe.failure for probe in probes if probe.failure is not None), None)
    if failure is not None:
        raise BadConfiguration(fails_in_lanes(settings.model.path, settings.batching.lanes, failure))


def _wire_contract(settings: Settings, topics: Topics, max_key_bytes: int) -> Wire:
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
        max_json_bytes=kafka.max_json_bytes,
        max_answer_bytes=topics.max_bytes[kafka.response_topic],
        max_dead_letter_bytes=topics.max_bytes[dead_letters] if dead_letters else 0,
        null_value=kafka.null_value,
        non_finite_output=settings.model.non_finite_output,
        has_state=bool(settings.state.tensors),
        must_state_rows=kafka.rows_headers == "required",
        reply_topics={topic: topics.partitions[topic] for topic in answered},
        reply_bytes={topic: topics.max_bytes[topic] for topic in answered[1:]},
        shut=topics.shut,
        max_key_bytes=max_key_bytes,
    )
