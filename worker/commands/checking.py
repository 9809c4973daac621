"""The work of `check`: it does all that a worker does before it joins its group, and reports all that is wrong at once.

Changes nothing, except with `--create-topics`. Looks at the model even if the cluster cannot be reached.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from worker.assembled_model import full_batch
from worker.assembled_states import store_server
from worker.codecs.codec import Codec
from worker.codecs.examples import EncodingName, encode_request, encodings
from worker.codecs.message_sizes import lack_of_room, longest_key
from worker.codecs.wire_contract import Wire
from worker.commands.orders import CheckOrder
from worker.commands.report import Headers, Report, show
from worker.commands.trying import look_at_mapping, try_newest
from worker.core.batching.limits import Limit
from worker.core.chunk import Prediction
from worker.core.failures import BadConfiguration, RunFailure, Stop
from worker.core.records import Partition, Record
from worker.core.tensors.signature import Signature
from worker.inference.model import Model
from worker.inference.model_loading import load_as_set
from worker.inference.row_independence import independence
from worker.kafka.client.command_clients import NO_LOG, client_log
from worker.kafka.client.connecting import Contact, connect
from worker.kafka.client.membership import TransactionalId, resolve_transactional_id
from worker.kafka.cluster.admin_answers import LIMIT_KEY
from worker.kafka.cluster.examination import START_TIMEOUT, judge
from worker.kafka.cluster.survey import advice, create_missing, losses, other_groups, try_clients
from worker.kafka.cluster.topics import Topics, missing, needed_for_transactions
from worker.kafka.transactions.kafka_transactions import try_transactions
from worker.scored_model import wants_host
from worker.scorer import Scorer
from worker.settings import DeliverySettings, KafkaSettings, Settings, load
from worker.settings.effective import effective
from worker.state import StateLayout
from worker.terminal.command_line import CLOSING, split_signature
from worker.terminal.terminal import count, print_json, table_console

# The setting that names a topic, and what the topic holds.
_HOLDS = {
    "REQUEST_TOPICS": "requests",
    "RESPONSE_TOPIC": "answers",
    "REPLY_TOPICS": "answers",
    "DEAD_LETTER_TOPIC": "dead letters",
    "CHANGELOG_TOPIC": "states",
}


def check(order: CheckOrder) -> int:
    """Check, and report. Returns the exit code of a worker's start with these settings; 0: it would serve."""
    report = examined(
        order.config, order.over(os.environ), creates_topics=order.create_topics, with_example=order.with_example
    )
    if order.as_json:
        print_json(report.as_json())
    else:
        show(table_console(), report)
    return report.exit_code


def examined(
    config_path: Path | None,
    environ: Mapping[str, str] = os.environ,
    *,
    creates_topics: bool = False,
    with_example: bool = False,
) -> Report:
    """Find out all that can be found out. A failure that would end a worker's start is a problem of the report.

    If settings are wrong, the report has all of these problems, and nothing else is looked at.
    """
    report = Report()
    try:
        settings = load(config_path, environ)
    except BadConfiguration as refusal:
        report.add(refusal)
        return report
    report.settings = list(effective(settings))
    with ExitStack() as closing:
        _look_at_all(settings, report, closing, creates_topics=creates_topics, with_example=with_example)
    return report


def _look_at_all(
    settings: Settings, report: Report, closing: ExitStack, *, creates_topics: bool, with_example: bool
) -> None:
    signature, scorer = _look_at_served(settings, report, closing, with_example=with_example)
    has_topics = _look_at_cluster(settings, report, creates_topics=creates_topics)
    if signature is not None:
        _look_at_room(signature, settings, report, scorer)
    if scorer is not None and has_topics:
        example = try_newest(scorer, settings, report)
        report.example = example if with_example else {}
    if settings.state.store is not None:
        _look_at_store(settings, report)


# The model


def _look_at_served(
    settings: Settings, report: Report, closing: ExitStack, *, with_example: bool
) -> tuple[Signature | None, Scorer | None]:
    """Look at the model and the mapping of records. Returns the model's signature, and what answers records.

    A model that runs with code of the operator's runs in a host. It is let go here before, so that memory has it once.
    """
    model = _look_at_model(settings, report)
    if model is None:
        return None, None
    signature = model.signature
    if settings.records is None:
        report.example = _example(model, settings) if with_example else {}
        return signature, None
    in_host = wants_host(settings)
    if in_host:
        del model
    return signature, look_at_mapping(None if in_host else model, settings, report, closing)


def _look_at_model(settings: Settings, report: Report) -> Model | None:
    try:
        model = load_as_set(settings.model, settings.batching)
        layout, signature = split_signature(model.signature, settings.state)
    except Stop as stop:
        report.add(stop)
        return None
    full = full_batch(settings.batching, model)
    facts = _facts(model, signature, full, takes_rows=settings.records is None)
    facts["remembers"] = None if layout is None else _states(layout)
    try:
        found = independence(model, settings.batching.max_batch_size)
        facts["independence"] = found.doubt
        report.warn(found.why)
    except Stop as stop:
        report.add(stop)
    report.model = {name: text for name, text in facts.items() if text}
    report.warn(model.remark)
    return model


def _facts(model: Model, signature: Signature, full: Limit, *, takes_rows: bool) -> dict[str, str | None]:
    """Facts about the loaded model, by name. None or empty: there is nothing to say."""
    raw, left, fixed = signature.raw_input, model.left_to_cpu, model.padding
    nodes = ", ".join(f"{number} {operator}" for operator, number in left.items())
    return {
        "name": f"{signature.name}, version {signature.version}",
        "takes": ", ".join(map(str, signature.inputs)),
        "gives": ", ".join(map(str, signature.outputs)),
        "device": f"{model.device.name}: {model.device.reason}",
        "left to the CPU": f"{count(sum(left.values()), 'node')}: {nodes}" if left else None,
        "batches": f"of exactly {count(fixed.rows, 'row')}, short ones are padded: {fixed.why}" if fixed else None,
        "padded": ", ".join(f"{axis.name} to {', '.join(map(str, axis.boundaries))}" for axis in model.signature.axes),
        "full batches": CLOSING.get(full.why) and f"close at {count(full.rows, 'row')}, by {CLOSING[full.why]}",
        "raw rows": f"{raw.row_bytes} bytes a row, little-endian ({raw.dtype.str})" if takes_rows and raw else None,
    }


def _states(layout: StateLayout) -> str:
    tensors = [f"{tensor.spec} from {tensor.output}" for tensor in layout.tensors]
    return ", ".join([*tensors, f"{sum(first.nbytes for first in layout.initial)} bytes a key"])


def _example(model: Model, settings: Settings) -> Mapping[str, tuple[Headers, bytes]]:
    """The row of the warm-up as a request, and its answer, both as they would be in Kafka."""
    kafka = settings.kafka
    _, signature = split_signature(model.signature, settings.state)
    possible, feeds = encodings(signature), model.blank(1)
    request = encode_request(signature, feeds, EncodingName.JSON if EncodingName.JSON in possible else possible[0])
    codec = Codec([signature], Wire(kafka.response_topic, kafka.group_id), tell=lambda _: None)
    record = Record(Partition(kafka.request_topics[0], 0), 0, b"key", request.value, request.headers, None)
    (chunks, *_), outputs = codec.read([record]), model.run(feeds)
    if not chunks or isinstance(outputs, RunFailure):
        return {}
    given = dict(zip([spec.name for spec in model.signature.outputs], outputs, strict=True))
    answers = codec.write(Prediction(chunks[0], [given[spec.name] for spec in signature.outputs]))
    ((_, _, value, headers, *_),) = codec.messages(answers)
    return {"request": (request.headers, request.value), "answer": (headers or (), value or b"")}


# The cluster


def _look_at_cluster(settings: Settings, report: Report, *, creates_topics: bool) -> bool:
    """Look at brokers and topics. True if all topics were found."""
    kafka, delivery, name = settings.kafka, settings.delivery, None
    if delivery.guarantee == "exactly_once":
        name = resolve_transactional_id(delivery.transactional_id, kafka.group_id, kafka.group_instance_id)
    try:
        contact = connect(kafka, NO_LOG, START_TIMEOUT, kafka.response_topic)
        if creates_topics:
            report.created = create_missing(kafka, contact, START_TIMEOUT)
        topics = _ask(settings, contact, report)
        if topics is not None and topics.can_administer:
            try_clients(kafka, topics)
            if name is not None:
                tried = _tried_transactions(kafka, topics, name, delivery, report)
                report.cluster["transactions"] = f"{tried}, as {name.text if name.is_stable else f'{name.family}*'}"
    except Stop as stop:
        report.add(stop)
        return False
    else:
        return topics is not None


def _ask(settings: Settings, contact: Contact, report: Report) -> Topics | None:
    kafka, with_transactions = settings.kafka, settings.delivery.guarantee == "exactly_once"
    verdict = judge(kafka, contact, START_TIMEOUT, with_transactions=with_transactions)
    topics = verdict.topics
    report.refuse(verdict.problems, 2 if verdict.problems else 0)
    report.warnings += verdict.warnings
    asks = topics is not None and topics.can_administer
    others = other_groups(kafka, START_TIMEOUT, client_log()) if asks else {}
    report.warn(*advice(verdict.seen, others))
    if topics is not None:
        report.warn(*losses(kafka, topics))
    brokers = [f"{broker.host}:{broker.port}" for _, broker in sorted(contact.cluster.brokers.items())]
    mock = ", a mock of librdkafka's" if contact.is_mock else ""
    report.cluster["brokers"] = f"{', '.join(brokers[:5])}{', …' if brokers[5:] else ''}{mock}"
    for topic in verdict.seen:
        limit = (topic.config or {}).get(LIMIT_KEY)
        takes = f", records of {int(limit):,} bytes at most" if limit else ""
        has = f"{count(topic.partitions, 'partition')}, {count(topic.replication, 'replica')}{takes}"
        is_of_records = settings.records is not None and topic.setting == "REQUEST_TOPICS"
        report.cluster[topic.name] = f"{'records' if is_of_records else _HOLDS[topic.setting]}: {has}"
    if topics is not None:
        report.max_bytes = topics.max_bytes
        report.cluster["group"] = str(topics.membership)
    return topics


def _tried_transactions(
    kafka: KafkaSettings, topics: Topics, name: TransactionalId, delivery: DeliverySettings, report: Report
) -> str:
    """Try a transaction, and say how that went. It has a name like ours, because ours may be in use."""
    another = name.relative()
    refused = missing(needed_for_transactions(another), "write")
    try:
        try_transactions(kafka, topics, another, delivery.transaction_timeout_ms, NO_LOG, START_TIMEOUT)
    except Stop as stop:
        if str(stop) != refused:
            report.add(stop)
        elif name.is_stable:  # a rule for this very name may exist
            report.warn(f"whether this client may use the transactional id {name.text} was not tried")
            return "not tried"
        else:
            report.refuse([refused], stop.exit_code)
        return "refused (tried)"
    return "work (tried)"


# All else


def _look_at_room(whole: Signature, settings: Settings, report: Report, scorer: Scorer | None) -> None:
    """Check that a row fits into a request, and its answer and state into their topics, as far as limits are known.

    `scorer`: of records; None: the topics hold requests.
    """
    kafka, limits = settings.kafka, report.max_bytes
    wire = Wire(
        kafka.response_topic,
        kafka.group_id,
        max_request_bytes=kafka.max_request_bytes,
        max_answer_bytes=limits.get(kafka.response_topic, sys.maxsize),
        reply_bytes={topic: limits[topic] for topic in kafka.reply_topics if topic in limits},
        records=None if scorer is None else scorer.mapping,
    )
    layout, signature = split_signature(whole, settings.state)
    report.warn(*lack_of_room(signature if scorer is None else scorer.signature, wire))
    changelog = kafka.changelog_topic
    if layout is not None and changelog is not None and changelog in limits:
        try:
            longest_key(changelog, limits[changelog], layout.dtype.itemsize)
        except Stop as stop:
            report.add(stop)


def _look_at_store(settings: Settings, report: Report) -> None:
    """Try the server that keeps the states, as a worker does before it joins its group."""
    from worker.stores.server import examine_store  # noqa: PLC0415  # most workers have none

    try:
        server = store_server(settings)
        found = examine_store(server)
        server.close()
    except Stop as stop:
        report.add(stop)
        return
    report.cluster["states"] = f"kept by {found.version} at {found.name}"
    report.warn(*found.warnings)
