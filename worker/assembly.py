"""Builds a worker that can run from the settings and the examined topics.

All packages meet only here, and here mypy proves that each satisfies the protocols of `ports.py`. While the model is
loaded and warmed, the open transaction of a killed predecessor is taken back, because readers wait for its end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from worker import telemetry
from worker.assembled_model import Engine, batch_policy
from worker.assembled_records import RecordParts, record_parts
from worker.assembled_states import GIVE_UP_TIMEOUT, Start, StatefulParts, stateful_parts
from worker.codecs.codec import Codec
from worker.codecs.message_sizes import lack_of_room
from worker.codecs.wire_contract import Wire
from worker.core.batching.back_pressure import Bounds, Intake
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.batching.linger import Linger
from worker.core.deadlines import Punctuality
from worker.core.ordering.ledger import OffsetLedger
from worker.core.ordering.order_by_key import LEDGERS
from worker.core.records import ModelKey
from worker.core.rejections import FirstRejections, Rejections
from worker.core.tensors.room import Rooms
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Stacker
from worker.delivery.at_least_once import AtLeastOnce
from worker.delivery.exactly_once import ExactlyOnce
from worker.inference.facts import ModelFacts
from worker.inference.host.memory_limit import container_limit
from worker.kafka.client.config import poll_interval
from worker.kafka.client.membership import resolve_transactional_id
from worker.kafka.cluster.topics import Topics
from worker.kafka.consumer.source import KafkaSource
from worker.kafka.producer.sink import KafkaSink
from worker.kafka.transactions.kafka_transactions import KafkaTransactions
from worker.loop.conduct import Conduct, Parts
from worker.loop.stateless import Stateless
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
    wait_for_model: Callable[[], Engine],
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
    lanes, model, rooms = wait_for_model()
    ledger = LEDGERS[settings.delivery.order]()
    stateful = stateful_parts(start, model, ledger)
    signature, states, link = model.signature, None, None
    if stateful is not None:
        states, signature, link, _ = stateful
    records = record_parts(settings, signature, closing)
    if records.warning is not None:
        events.warned("registry_away_at_start", why=records.warning)
    wire = _wire_contract(settings, topics, sys.maxsize if stateful is None else stateful.max_key_bytes, records)
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
            registry_away_since=lambda: None if records.schemas is None else records.schemas.away_since,
        )
    )
    events.bounded(
        lanes=batching.lanes,
        batch=policy.max_rows,
        records=bounds.records,
        rows=bounds.rows,
        size=bounds.size,
        run=settings.model.run_timeout_s,
        memory=container_limit(),
    )
    limit = settings.delivery.rejection_limit
    rejections = Rejections(limit or None)
    plain = Codec([signature], wire, events.rejected, rejections, records.form_of)
    codec, traced_lanes = (plain, lanes) if tracing is None else tracing.around(plain, lanes)
    parts = Parts(
        source=source,
        codec=codec,
        ledger=ledger,
        intake=Intake(bounds, ledger, MOST_POLLED),
        stage=batcher if by_key is None else by_key,
        batcher=batcher,
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
        schemas=records.schemas,
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
    refuse_input = settings.model.non_finite_input == "reject"
    refuse_output = settings.model.non_finite_output == "error"
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
        events=events,
        commit_interval=interval,
        clock=clock,
    )


def _wire_contract(settings: Settings, topics: Topics, max_key_bytes: int, records: RecordParts) -> Wire:
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
        records=records.mapping,
        framed=records.framed,
    )
