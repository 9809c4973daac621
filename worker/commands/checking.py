"""The work of `check`: all that a worker does before it joins its group, and all that is wrong at once.

Changes nothing, except with `--create-topics`. Each part is looked at even where another cannot be.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from worker.assembled_states import store_server
from worker.assembly import announcement, full_batch
from worker.codecs.examples import Encoding, encode_request, encodings
from worker.codecs.message_sizes import lack_of_room, longest_key
from worker.codecs.registry import Codecs
from worker.codecs.wire_contract import Wire
from worker.commands.orders import CheckOrder
from worker.commands.report import Example, Report, show
from worker.core.batching.limits import Limit
from worker.core.failures import RunFailure, Stop
from worker.core.records import Partition, Prediction, Record, Request
from worker.core.tensors.signature import Signature
from worker.inference import Model, check_run_time, independence, load_as_set
from worker.kafka.client.command_clients import NO_LOG, client_log
from worker.kafka.client.connecting import Contact, connect
from worker.kafka.client.transactional_id import TransactionalId, cost_of_a_kill, resolve_transactional_id
from worker.kafka.cluster.access import Finding, missing, needed_for_transactions
from worker.kafka.cluster.admin_answers import LIMIT_KEY
from worker.kafka.cluster.examination import START_TIMEOUT, judge
from worker.kafka.cluster.losses import losses
from worker.kafka.cluster.survey import advice, create_missing, other_groups, try_clients
from worker.kafka.cluster.topics import Topics
from worker.kafka.transactions.kafka_transactions import try_transactions
from worker.settings import DeliverySettings, KafkaSettings, Settings, StateSettings
from worker.settings.conflicts import store_in_clear
from worker.settings.effective import effective
from worker.settings.for_commands import ScoringSettings, load_parts
from worker.telemetry import try_address
from worker.terminal.command_line import CLOSING, remembered
from worker.terminal.terminal import count, page, print_json

# The setting that names a topic, and what the topic holds.
_HOLDS = {
    "REQUEST_TOPICS": "requests",
    "RESPONSE_TOPIC": "answers",
    "REPLY_TOPICS": "answers",
    "DEAD_LETTER_TOPIC": "dead letters",
    "CHANGELOG_TOPIC": "states",
}


def check(order: CheckOrder) -> int:
    """The exit code of a worker with these settings, as far as its start goes: 0, it would serve."""
    report = examined(
        order.config, order.over(os.environ), creates_topics=order.create_topics, with_example=order.with_example
    )
    if order.as_json:
        print_json(report.as_json())
    else:
        show(page(), report, show_all=order.show_all)
    return report.exit_code


def examined(
    config_path: Path | None,
    environ: Mapping[str, str] = os.environ,
    *,
    creates_topics: bool = False,
    with_example: bool = False,
) -> Report:
    """All that can be found out. A failure that would end a worker's start is a problem in there."""
    report = Report()
    parts = load_parts(config_path, environ)
    report.refuse([Finding(problem) for problem in parts.problems], 2 if parts.problems else 0)
    settings = parts.settings
    report.settings = list(effective(settings)) if settings else ()
    state = None if settings is None else settings.state
    model = None if parts.scoring is None else _look_at_model(parts.scoring, report, state)
    if parts.kafka is not None:
        client_id = announcement(settings).client_id if settings is not None else None
        _look_at_cluster(
            parts.kafka,
            None if settings is None else settings.delivery,
            report,
            client_id,
            creates_topics=creates_topics,
        )
        if model is not None:
            _look_at_room(model, parts.kafka, report, state)
            if with_example:
                report.example = _example(model, parts.kafka, state)
    if settings is not None:
        _look_at_telemetry(settings, report)
        if settings.state.store is not None and not list(store_in_clear(settings)):
            _look_at_store(settings, report)
    return report


# The model


def _look_at_model(settings: ScoringSettings, report: Report, state: StateSettings | None = None) -> Model | None:
    try:
        model = load_as_set(settings.model, settings.batching)
        signature, states = _without_state(model.signature, state)
    except Stop as stop:
        report.add(stop)
        return None
    full = full_batch(settings.batching, model)
    facts = {**_facts(model, signature, full), "remembers": ", ".join(states)}
    try:
        check_run_time(model, full.rows, settings.model.run_timeout_s)
        found = independence(model, settings.batching.max_batch_size)
        facts["independence"] = found.doubt
        report.warn(found.why)
    except Stop as stop:
        report.add(stop)
    report.model = {name: text for name, text in facts.items() if text}
    report.warn(*model.remarks)
    if model.not_finite:
        refused = ", and a request of it gets an error" if settings.model.non_finite_output == "error" else ""
        report.warn(
            f"the model is tried with a row whose {', '.join(model.not_finite)} is NaN or infinity{refused}: name a "
            "file of rows with finite answers in WORKER_MODEL__WARM_UP_EXAMPLE"
        )
    return model


def _facts(model: Model, signature: Signature, full: Limit) -> dict[str, str | None]:
    """The model as loaded, by name. None or empty: there is nothing to say."""
    raw, left = signature.raw_input, model.left_to_cpu
    nodes = ", ".join(f"{number} {operator}" for operator, number in left.items())
    return {
        "name": f"{signature.name}, version {signature.version}",
        "takes": ", ".join(map(str, signature.inputs)),
        "gives": ", ".join(map(str, signature.outputs)),
        "device": f"{model.device.name}: {model.device.reason}",
        "left to the CPU": f"{count(sum(left.values()), 'node')}: {nodes}" if left else None,
        "batches": _fixed(model),
        "padded": ", ".join(f"{axis.name} to {', '.join(map(str, axis.boundaries))}" for axis in model.signature.axes),
        "full batches": CLOSING.get(full.why) and f"close at {count(full.rows, 'row')}, by {CLOSING[full.why]}",
        "raw rows": f"{raw.row_bytes} bytes a row, little-endian ({raw.dtype.str})" if raw else None,
    }


def _fixed(model: Model) -> str | None:
    if model.padding is None:
        return None
    if model.padding.rows == 1:
        return "none: the model was exported for one row, so each runs alone; export it with its batch axis left open"
    return f"of exactly {model.padding.rows} rows, short ones are padded: {model.padding.why}"


def _without_state(signature: Signature, state: StateSettings | None) -> tuple[Signature, Sequence[str]]:
    """The signature of requests and answers, and a line for each state of a key. Raises `BadConfiguration`."""
    layout, left = (None, signature) if state is None else remembered(signature, state)
    if layout is None:
        return left, ()
    tensors = [f"{tensor.spec} from {tensor.output}" for tensor in layout.tensors]
    return left, [*tensors, f"{sum(first.nbytes for first in layout.initial)} bytes a key"]


def _example(model: Model, kafka: KafkaSettings, state: StateSettings | None) -> Example | None:
    """The row of the warm-up as a request, and its answer, both as they would be in Kafka."""
    signature, _ = _without_state(model.signature, state)
    possible, feeds = encodings(signature), model.blank(1)
    request = encode_request(signature, feeds, Encoding.JSON if Encoding.JSON in possible else possible[0])
    codecs = Codecs([signature], Wire(kafka.response_topic, kafka.group_id), tell=lambda _: None)
    place = Partition(kafka.request_topics[0], 0)
    decoded, outputs = codecs.decode(Record(place, 0, b"key", request.value, request.headers, None)), model.run(feeds)
    if not isinstance(decoded, Request) or isinstance(outputs, RunFailure):
        return None
    given = dict(zip([spec.name for spec in model.signature.outputs], outputs, strict=True))
    (answer,) = codecs.encode(Prediction(decoded, [given[spec.name] for spec in signature.outputs]))
    return Example(request.headers, request.value, answer.headers, answer.value or b"")


# The cluster


def _look_at_cluster(
    kafka: KafkaSettings,
    delivery: DeliverySettings | None,
    report: Report,
    client_id: str | None,
    *,
    creates_topics: bool,
) -> None:
    name = None
    if delivery is not None and delivery.guarantee == "exactly_once":
        name = resolve_transactional_id(delivery.transactional_id, kafka.group_id, kafka.group_instance_id)
        if not name.is_stable:
            report.warn(cost_of_a_kill(delivery.transaction_timeout_ms))
    try:
        contact = connect(kafka, NO_LOG, START_TIMEOUT, kafka.response_topic)
        if creates_topics:
            report.created = create_missing(kafka, contact, START_TIMEOUT)
        topics = _ask(kafka, contact, report, client_id, with_transactions=name is not None)
        if topics is not None and topics.can_administer:
            try_clients(kafka, topics)
            if name is not None and delivery is not None:
                tried = _tried_transactions(kafka, topics, name, delivery, report)
                report.cluster["transactions"] = f"{tried}, as {name.text if name.is_stable else f'{name.family}*'}"
    except Stop as stop:
        report.add(stop)


def _ask(
    kafka: KafkaSettings, contact: Contact, report: Report, client_id: str | None, *, with_transactions: bool
) -> Topics | None:
    verdict = judge(kafka, contact, START_TIMEOUT, with_transactions=with_transactions)
    topics = verdict.topics
    report.refuse(verdict.problems, 2 if verdict.problems else 0)
    report.warnings += verdict.warnings
    others = other_groups(kafka, START_TIMEOUT, client_log()) if verdict.can_administer else {}
    report.warn(*advice(kafka, verdict.seen, others))
    if topics is not None:
        report.warn(*losses(kafka, topics))
        report.warn(*(topics.announcing(client_id).others(kafka.group_id) if client_id is not None else ()))
    brokers = [f"{broker.host}:{broker.port}" for _, broker in sorted(contact.cluster.brokers.items())]
    mock = ", a mock of librdkafka's" if contact.is_mock else ""
    report.cluster["brokers"] = f"{', '.join(brokers[:5])}{', …' if brokers[5:] else ''}{mock}"
    for topic in verdict.seen:
        limit = (topic.config or {}).get(LIMIT_KEY)
        takes = f", records of {int(limit):,} bytes at most" if limit else ""
        has = f"{count(topic.partitions, 'partition')}, {count(topic.replication, 'replica')}{takes}"
        report.cluster[topic.name] = f"{_HOLDS[topic.setting]}: {has}"
    if topics is not None:
        report.max_bytes = topics.max_bytes
        report.cluster["group"] = str(topics.membership)
    return topics


def _tried_transactions(
    kafka: KafkaSettings, topics: Topics, name: TransactionalId, delivery: DeliverySettings, report: Report
) -> str:
    """Whether the broker prepares transactions: under a name like ours, for ours may be in use."""
    another = name.relative()
    refused = missing(kafka, needed_for_transactions(another), "write")
    try:
        try_transactions(kafka, topics, another, delivery.transaction_timeout_ms, NO_LOG, START_TIMEOUT)
    except Stop as stop:
        if str(stop) != refused.text:
            report.add(stop)
        elif name.is_stable:  # a rule for this very name may exist
            untried = f"whether this client may use the transactional id {name.text} was not tried"
            report.warnings.append(Finding(untried, missing(kafka, needed_for_transactions(name), "write").command))
            return "not tried"
        else:
            report.refuse([refused], stop.exit_code)
        return "refused (tried)"
    return "work (tried)"


# All else


def _look_at_room(model: Model, kafka: KafkaSettings, report: Report, state: StateSettings | None) -> None:
    """Whether a row fits into a request, its answer and its state into what is known of their topics."""
    limits = report.max_bytes
    wire = Wire(
        kafka.response_topic,
        kafka.group_id,
        max_request_bytes=kafka.max_request_bytes,
        max_answer_bytes=limits.get(kafka.response_topic, sys.maxsize),
        reply_bytes={topic: limits[topic] for topic in kafka.reply_topics if topic in limits},
    )
    layout, signature = (None, model.signature) if state is None else remembered(model.signature, state)
    report.warn(*lack_of_room(signature, wire))
    changelog = kafka.changelog_topic
    if layout is not None and changelog is not None and changelog in limits:
        try:
            longest_key(changelog, limits[changelog], layout.dtype.itemsize)
        except Stop as stop:
            report.add(stop)


def _look_at_telemetry(settings: Settings, report: Report) -> None:
    """The address, not the port: a worker that runs here may have it already."""
    try:
        try_address(settings.telemetry.http_address)
        if settings.telemetry.tracing:
            from worker.telemetry.tracing import start  # noqa: PLC0415  # an optional extra

            start(settings.kafka.group_id).close(0.0)
    except Stop as stop:
        report.add(stop)


def _look_at_store(settings: Settings, report: Report) -> None:
    """The server that keeps the states: tried as a worker does before it joins its group."""
    from worker.stores.server import examine_store  # noqa: PLC0415  # most workers have none

    try:
        server = store_server(settings)
        found = examine_store(server)
        server.close()
    except Stop as stop:
        report.add(stop)
        return
    report.store["kept by"] = f"{found.version} at {found.name}"
    report.warn(*found.warnings)
