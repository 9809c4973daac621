"""`inference-worker check`: everything a worker does before it joins its group, and all that is wrong at once.

Loads and runs the model, asks the cluster, tries the clients. Joins no group, writes no record, and changes nothing:
`--create-topics` alone makes something.
Each part is looked at even where another cannot be: a missing model says nothing about the cluster.
"""

from __future__ import annotations

import os
import shlex
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from worker.assembly import announcement, full_batch, store_server
from worker.codecs import Wire, lack_of_room, longest_key
from worker.codecs.examples import encode_request, encodings
from worker.commands.check.delivery import WantedTransactions, can_transact, delivery_facts, wanted_transactions
from worker.commands.check.options import CheckOrder
from worker.commands.check.report import ClusterFacts, ModelFacts, Report
from worker.commands.check.restoring import restore_estimate
from worker.commands.check.screen import show
from worker.core.failures import Stop
from worker.core.tensors.signature import Signature
from worker.inference import Independence, Model, check_run_time, independence, load_as_set
from worker.kafka.client.command_clients import NO_LOG
from worker.kafka.client.connecting import Contact, connect
from worker.kafka.client.transactional_id import cost_of_a_kill
from worker.kafka.cluster.access import Finding
from worker.kafka.cluster.advice import advice
from worker.kafka.cluster.capabilities import capabilities, try_clients
from worker.kafka.cluster.creation import create_missing
from worker.kafka.cluster.examination import START_TIMEOUT, Topics, judge
from worker.kafka.cluster.losses import losses
from worker.kafka.cluster.survey import survey
from worker.settings import DeliverySettings, KafkaSettings, Settings, StateSettings
from worker.settings.conflicts import store_in_clear
from worker.settings.effective import effective
from worker.settings.for_commands import ScoringSettings, load_parts
from worker.telemetry import try_address
from worker.terminal.command_line import CLOSING, remembered
from worker.terminal.open_axes import open_axes
from worker.terminal.terminal import page, print_json

# Runs of which the median is shown, and the seconds after which a slow model has run often enough.
RUNS, RUNS_SECONDS = 5, 2.0


def check(order: CheckOrder) -> int:
    """The exit code of a worker with these settings, as far as its start goes: 0, it would serve."""
    report = examined(
        order.config,
        order.over(os.environ),
        order.words,
        creates_topics=order.create_topics,
        estimates_restore=order.restore_estimate,
    )
    if order.as_json:
        print_json(report.as_json())
    else:
        show(page(), report, show_all=order.show_all)
    return report.exit_code


def examined(
    config_path: Path | None,
    environ: Mapping[str, str] = os.environ,
    words: Sequence[str] = (),
    *,
    creates_topics: bool = False,
    estimates_restore: bool = False,
) -> Report:
    """All that can be found out; `words` are the options. What a worker's start would raise is a problem in there."""
    report = Report(shlex.join(["inference-worker", "check", "--json", *words]))
    parts = load_parts(config_path, environ)
    report.refuse([Finding(problem) for problem in parts.problems], 2 if parts.problems else 0)
    report.settings = list(effective(parts.settings)) if parts.settings else ()
    state = None if parts.settings is None else parts.settings.state
    model = None if parts.scoring is None else _look_at_model(parts.scoring, report, state)
    if parts.kafka is not None:
        client_id = announcement(parts.settings).client_id if parts.settings is not None else None
        _look_at_cluster(parts.kafka, parts.delivery, report, client_id, creates_topics=creates_topics)
        if model is not None:
            _look_at_room(model, parts.kafka, report, state)
    if parts.settings is not None:
        _look_at_telemetry(parts.settings, report)
        if parts.settings.state.store is not None and not list(store_in_clear(parts.settings)):
            _look_at_store(parts.settings, report)
        if estimates_restore and model is not None:
            _look_at_restore(parts.settings, model, report)
    return report


def _look_at_restore(settings: Settings, model: Model, report: Report) -> None:
    """Where a worker would start, and its model has state."""
    layout, _ = remembered(model.signature, settings.state)
    cluster = report.cluster
    if layout is None:
        report.refuse([Finding("--restore-estimate: WORKER_STATE__TENSORS is empty, so the model has no state")], 2)
    elif settings.state.store is not None:
        report.refuse([Finding("--restore-estimate: with WORKER_STATE__STORE nothing is restored; leave it out")], 2)
    elif cluster is not None and not report.problems:
        partitions = next(t.partitions for t in cluster.survey.topics if t.name == settings.kafka.changelog_topic)
        try:
            report.restore = restore_estimate(settings, layout, partitions)
        except Stop as stop:
            report.add(stop)


def _look_at_store(settings: Settings, report: Report) -> None:
    """The server that keeps the states: tried as a worker does before it joins its group."""
    from worker.stores.examination import examine_store  # noqa: PLC0415  # most workers have none

    try:
        server = store_server(settings)
        report.store = examine_store(server)
        server.close()
    except Stop as stop:
        report.add(stop)
        return
    report.warnings += map(Finding, report.store.warnings)


def _look_at_telemetry(settings: Settings, report: Report) -> None:
    """The address, not the port: a worker that runs here may have it already."""
    try:
        try_address(settings.telemetry.http_address)
        if settings.telemetry.tracing:
            from worker.telemetry.tracing import start  # noqa: PLC0415  # an optional extra

            start(settings.kafka.group_id).close(0.0)
    except Stop as stop:
        report.add(stop)


def _look_at_model(settings: ScoringSettings, report: Report, state: StateSettings | None = None) -> Model | None:
    batching = settings.batching
    began = time.monotonic()
    try:
        model = load_as_set(settings.model, batching)
        signature, remembered = _without_state(model.signature, state)
    except Stop as stop:
        report.add(stop)
        return None
    seconds = time.monotonic() - began
    row = model.blank(1)
    report.examples = {encoding: encode_request(signature, row, encoding) for encoding in encodings(signature)}
    raw = signature.raw_input
    full = full_batch(batching, model)
    _look_at_run_time(model, full.rows, settings.model.run_timeout_s, report)
    found = _look_at_independence(model, batching.max_batch_size, report)
    report.model = ModelFacts(
        name=signature.name,
        version=signature.version,
        device=model.device.name,
        why=model.device.reason,
        takes=[str(spec) for spec in signature.inputs],
        gives=[str(spec) for spec in signature.outputs],
        row_bytes=None if raw is None else raw.row_bytes,
        row_dtype=None if raw is None else raw.dtype.str,
        load_seconds=seconds,
        run_seconds={rows: _run_seconds(model, rows) for rows in sorted({1, full.rows})},
        open_axes=open_axes(signature.inputs, [row[spec.name].shape[1:] for spec in signature.inputs]),
        fixed_rows=None if model.padding is None else model.padding.rows,
        fixed_why=None if model.padding is None else model.padding.why,
        padded=[f"{axis.name} to {', '.join(map(str, axis.boundaries))}" for axis in signature.axes],
        doubt=found.doubt,
        closed_by=CLOSING.get(full.why),
        state=remembered,
        left_to_cpu=model.left_to_cpu,
    )
    report.warnings += [Finding(why) for why in (found.why, model.misdeclared, model.cost_of_inputs) if why is not None]
    if model.not_finite:
        report.warnings.append(Finding(_of_no_use(model.not_finite, settings.model.non_finite_output)))
    return model


def _of_no_use(outputs: Sequence[str], policy: str) -> str:
    """What rows are bad for that the model answers with NaN or infinity in these outputs."""
    refused = ", and a request of it, as shown here, gets an error" if policy == "error" else ""
    return (
        f"the model is tried with a row whose {', '.join(outputs)} is NaN or infinity: a device that computes nonsense "
        f"would not show by it{refused}. Name a file of rows with finite answers in WORKER_MODEL__WARM_UP_EXAMPLE"
    )


def _without_state(signature: Signature, state: StateSettings | None) -> tuple[Signature, Sequence[str]]:
    """What is left for requests and answers, and what is remembered of each key. Raises `BadConfiguration`."""
    layout, left = (None, signature) if state is None else remembered(signature, state)
    if layout is None:
        return left, ()
    tensors = [f"{tensor.spec} from {tensor.output}" for tensor in layout.tensors]
    return left, [*tensors, f"{sum(first.nbytes for first in layout.initial)} bytes a key"]


def _look_at_room(model: Model, kafka: KafkaSettings, report: Report, state: StateSettings | None) -> None:
    """Whether a row fits into a request, its answer and its state into what is known of their topics."""
    limits = (report.cluster.max_bytes if report.cluster else None) or {}
    wire = Wire(
        kafka.response_topic,
        kafka.group_id,
        max_request_bytes=kafka.max_request_bytes,
        max_answer_bytes=limits.get(kafka.response_topic, sys.maxsize),
        reply_bytes={topic: limits[topic] for topic in kafka.reply_topics if topic in limits},
    )
    layout, signature = (None, model.signature) if state is None else remembered(model.signature, state)
    report.warnings += map(Finding, lack_of_room(model, signature, wire))
    changelog = kafka.changelog_topic
    if layout is not None and changelog is not None and changelog in limits:
        try:
            longest_key(changelog, limits[changelog], layout.dtype.itemsize)
        except Stop as stop:
            report.add(stop)


def _look_at_run_time(model: Model, rows: int, longest: float, report: Report) -> None:
    try:
        check_run_time(model, rows, longest)
    except Stop as stop:
        report.add(stop)


def _look_at_independence(model: Model, max_batch_size: int, report: Report) -> Independence:
    try:
        return independence(model, max_batch_size)
    except Stop as stop:
        report.add(stop)
        return Independence()


def _run_seconds(model: Model, rows: int) -> float:
    """The median. The first of several runs may set something up, where the warm-up has not run so many rows."""
    feeds = model.blank(rows)
    times: list[float] = []
    while len(times) < RUNS and sum(times) < RUNS_SECONDS:
        began = time.perf_counter()
        model.run(feeds)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _look_at_cluster(
    kafka: KafkaSettings,
    delivery: DeliverySettings | None,
    report: Report,
    client_id: str | None,
    *,
    creates_topics: bool,
) -> None:
    wanted = wanted_transactions(kafka, delivery)
    report.delivery = delivery_facts(delivery, wanted) if delivery else None
    if wanted and not wanted.name.is_stable:
        report.warnings.append(Finding(cost_of_a_kill(wanted.timeout_ms)))
    try:
        contact = connect(kafka, NO_LOG, START_TIMEOUT, kafka.response_topic)
        if creates_topics:
            report.created = create_missing(kafka, contact, START_TIMEOUT)
        _ask(kafka, contact, wanted, report, client_id)
    except Stop as stop:
        report.add(stop)


def _ask(
    kafka: KafkaSettings, contact: Contact, wanted: WantedTransactions | None, report: Report, client_id: str | None
) -> None:
    """Raises `Stop` where a client of another kind than the one that is in contact refuses its configuration."""
    verdict = judge(kafka, contact, START_TIMEOUT, with_transactions=wanted is not None)
    topics = verdict.topics
    report.refuse(verdict.problems, 2 if verdict.problems else 0)
    report.warnings += verdict.warnings
    found = survey(kafka, contact, verdict, START_TIMEOUT)
    report.warnings += map(Finding, losses(kafka, topics) if topics is not None else ())
    report.warnings += advice(kafka, found, topics)
    if topics is not None and client_id is not None:
        report.warnings += map(Finding, topics.announcing(client_id).others(kafka.group_id))
    usable = topics if verdict.can_administer else None
    report.cluster = ClusterFacts(
        survey=found,
        capabilities=capabilities(kafka, START_TIMEOUT),
        membership=topics.membership if topics else None,
        max_bytes=topics.max_bytes if topics else None,
        can_produce=_can_produce(kafka, usable, report) if usable else None,
        can_transact=can_transact(kafka, usable, wanted, report, NO_LOG, START_TIMEOUT) if usable and wanted else None,
    )


def _can_produce(kafka: KafkaSettings, topics: Topics, report: Report) -> bool:
    try:
        try_clients(kafka, topics, NO_LOG, START_TIMEOUT)
    except Stop as stop:
        report.add(stop)
        return False
    return True
