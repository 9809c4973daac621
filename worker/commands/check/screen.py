"""What `check` found, for people: sections of names and values, the problems last, where the reader looks first.

Fits 80 columns and a pipe. Commands to copy are never wrapped: a terminal wraps them better. Names come from the model
and the cluster: their control characters never reach the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from worker.commands.check.kcat_examples import KINDS, publish_function, sent
from worker.commands.check.report import ClusterFacts, DeliveryFacts, ModelFacts, Report
from worker.commands.check.restoring import RestoreFacts
from worker.kafka.client.transactional_id import SWEEP_INTERVAL
from worker.kafka.cluster.access import Finding
from worker.kafka.cluster.advice import duration
from worker.kafka.cluster.examination import TopicFacts
from worker.kafka.cluster.survey import GroupFacts
from worker.settings.effective import Effective
from worker.terminal.terminal import WIDEST, count, printable, write

_LESS_ORDER = {
    "key": "that of the requests for answers of one key, none for others: a reader keeps each `source` to drop repeats",
    "none": "none: a reader keeps each `source` to drop repeats",
}
# By the setting that names a topic.
_HOLDS = {
    "REQUEST_TOPICS": "requests",
    "RESPONSE_TOPIC": "answers",
    "DEAD_LETTER_TOPIC": "dead letters",
    "CHANGELOG_TOPIC": "states",
}

Row = tuple[str, str]


def show(console: Console, report: Report, *, show_all: bool) -> None:
    """Write the report, warnings and problems at its end."""
    _ReportPage(console).show(report, show_all=show_all)


class _ReportPage:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(console.width, WIDEST)
        self._is_empty = True

    def show(self, report: Report, *, show_all: bool) -> None:
        self._settings(report.settings, show_all=show_all)
        if report.model is not None:
            self._section(f"Model {report.model.name}, version {report.model.version}", _model(report.model))
        if report.delivery is not None:
            self._section("Delivery", delivery_rows(report.delivery))
        if report.cluster is not None:
            self._cluster(report.cluster, report.delivery)
        if report.store is not None:
            self._section("States", [("kept by", f"{report.store.version} at {report.store.name}")])
        if report.restore is not None:
            self._section("States", [("read back", _restored(report.restore))])
        if report.created:
            made = [(topic, count(partitions, "partition")) for topic, partitions in report.created.items()]
            self._section("Topics created", made)
        if report.examples and report.settings:
            self._examples(report)
        self._findings("Warnings", "yellow", report.warnings)
        self._findings("Problems", "red", report.problems)
        self._verdict(report)

    def _settings(self, settings: Sequence[Effective], *, show_all: bool) -> None:
        shown = [setting for setting in settings if show_all or not setting.is_default]
        if not shown:
            return
        self._section("Settings", [(setting.name, setting.text) for setting in shown])
        if left_out := len(settings) - len(shown):
            self._write(Text(f"{left_out} more have their defaults (--all shows them)", "dim"))

    def _cluster(self, cluster: ClusterFacts, delivery: DeliveryFacts | None) -> None:
        self._section(f"Cluster{_release(cluster)}", _cluster(cluster, delivery))
        if cluster.survey.topics:
            self._console.print()
            self._write(_topics(cluster.survey.topics))
        if cluster.survey.group is not None:
            self._section("Group", group_rows(cluster.survey.group))

    def _examples(self, report: Report) -> None:
        self._section("A request to try: one row, published with kcat", [])
        values = {setting.name: setting.text for setting in report.settings}
        self._commands(publish_function(values))
        for encoding, example in report.examples.items():
            self._console.print()
            self._write(Text(f"as {KINDS[encoding]}", "dim"))
            self._commands(sent(encoding, example, report.command))

    def _findings(self, title: str, style: str, findings: Sequence[Finding]) -> None:
        if not findings:
            return
        self._section(title, [], style)
        for finding in findings:
            table = Table.grid(padding=(0, 1))
            table.add_row(Text("•", style), Text(printable(finding.text), overflow="fold"))
            self._write(table)
            if finding.command:
                self._commands([finding.command], indent=4)

    def _verdict(self, report: Report) -> None:
        if not self._is_empty:
            self._console.print()
        if not report.problems:
            self._console.print("[bold green]A worker with these settings starts.[/bold green]")
            return
        what = count(len(report.problems), "problem")
        self._console.print(
            f"[bold red]A worker with these settings ends with exit code {report.exit_code}:[/] {what}."
        )

    def _section(self, title: str, rows: Iterable[Row], style: str = "") -> None:
        if not self._is_empty:
            self._console.print()
        self._is_empty = False
        self._console.print(Text(printable(title), f"bold {style}".strip()))
        if rows := list(rows):
            table = Table.grid(padding=(0, 2))
            for name, value in rows:
                table.add_row(Text(printable(name), "dim", no_wrap=True), Text(printable(value), overflow="fold"))
            self._write(table)

    def _write(self, what: RenderableType) -> None:
        write(self._console, what, width=self._width)

    def _commands(self, lines: Iterable[str], indent: int = 2) -> None:
        for line in lines:
            self._console.print(" " * indent + printable(line), soft_wrap=True, markup=False, highlight=False)


def _fixed(rows: int, why: str | None) -> str:
    if rows == 1:
        return "none: the model was exported for one row, so each runs alone; export it with its batch axis left open"
    return f"of exactly {rows} rows, short ones are padded: {why}"


def _model(model: ModelFacts) -> list[Row]:
    rows = [("takes", ", ".join(model.takes)), ("gives", ", ".join(model.gives))]
    rows += [("remembers", tensor) for tensor in model.state]
    if model.fixed_rows is not None:
        rows.append(("batches", _fixed(model.fixed_rows, model.fixed_why)))
    rows += [("padded", axis) for axis in model.padded]
    if model.closed_by is not None:
        rows.append(("full batches", f"close at {count(max(model.run_seconds), 'row')}, by {model.closed_by}"))
    if model.doubt is not None:
        rows.append(("independence", model.doubt))
    rows.append(("device", f"{model.device}: {model.why}"))
    if left := model.left_to_cpu:
        nodes = ", ".join(f"{number} {operator}" for operator, number in left.items())
        rows.append(("left to the CPU", f"{count(sum(left.values()), 'node')}: {nodes}"))
    rows.append(("load and warm-up", _time(model.load_seconds)))
    if model.open_axes:
        lengths = ", ".join(f"{axis} {length:,} long" for axis, length in model.open_axes.items())
        rows.append(("measured with", f"{lengths}: the model's file leaves that open"))
    for at_once, seconds in model.run_seconds.items():
        rate = f", {at_once / seconds:,.0f} rows/s" if seconds > 0 else ""
        rows.append((f"{at_once} row{'s' if at_once > 1 else ''} at once", f"{_time(seconds)}{rate}"))
    if model.row_bytes is not None:
        rows.append(("raw rows", f"{model.row_bytes} bytes a row, little-endian ({model.row_dtype})"))
    return rows


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def delivery_rows(delivery: DeliveryFacts) -> Iterable[Row]:
    """What is promised, and what it costs."""
    if delivery.transactional_id is None:
        yield "guarantee", "at least once: after a crash some answers come twice, to be told apart by `source`"
        if delivery.order != "partition":
            yield "order", _LESS_ORDER[delivery.order]
        yield "offsets", f"committed every {delivery.commit_interval_ms} ms, behind acknowledged answers"
        return
    yield "guarantee", "exactly once, for readers with isolation.level=read_committed"
    yield "transactions", f"end {delivery.commit_interval_ms} ms after their first answer, or when all is answered"
    yield "cost", "an answer can be read when its transaction has ended"
    whose = "the same after a restart" if delivery.is_stable else "another for each process"
    yield "transactional id", f"{delivery.transactional_id} ({whose})"
    yield "after a kill", _after_a_kill(delivery)


def _after_a_kill(delivery: DeliveryFacts) -> str:
    """For how long readers wait behind the transaction of a killed replica."""
    assert delivery.transaction_timeout_ms is not None
    timeout = delivery.transaction_timeout_ms / 1000
    longest = f"{timeout:g} to {timeout + SWEEP_INTERVAL:g} s"
    if delivery.is_stable:
        return f"readers wait until the replica is back, or {longest}"
    return f"readers wait for {longest}"


def _release(cluster: ClusterFacts) -> str:
    release = cluster.capabilities.release
    if cluster.survey.controller is None:
        return ", a mock of librdkafka's"
    return f", Kafka {release} or later" if release else ""


def _cluster(cluster: ClusterFacts, delivery: DeliveryFacts | None) -> Iterable[Row]:
    brokers, knows = cluster.survey.brokers, cluster.capabilities
    yield "brokers", f"{count(len(brokers), 'broker')}: {', '.join(brokers[:5])}{', …' if len(brokers) > 5 else ''}"
    if cluster.survey.controller is not None:
        yield "controller", cluster.survey.controller
    if cluster.membership is not None:
        membership = cluster.membership
        yield "group protocol", f"{membership.protocol} ({membership.why})"
        yield "take-over", _takeover(membership.takeover_seconds)
    yield "KIP-848 groups", _known(knows.consumer_protocol)
    if cluster.can_produce is not None:
        yield "idempotent producer", "works (tried)" if cluster.can_produce else "refused (tried)"
    yield "transactions", _transactions(cluster, delivery)


def _transactions(cluster: ClusterFacts, delivery: DeliveryFacts | None) -> str:
    if cluster.can_transact is not None:
        return "work (tried)" if cluster.can_transact else "refused (tried)"
    is_used = delivery is not None and delivery.transactional_id is not None
    why = "" if is_used else ": at least once uses none"
    return f"{_known(cluster.capabilities.transactions)} (not tried{why})"


def _takeover(seconds: float | None) -> str:
    if seconds is None:
        return "the broker does not tell how long a killed replica keeps its partitions"
    return f"a killed replica's partitions move after {seconds:g} s"


def _restored(restore: RestoreFacts) -> str:
    whose = f"{count(restore.records, 'record')} of {count(restore.partitions, 'partition')}"
    if restore.is_reckoned:
        return f"{whose} take about {_time(restore.seconds)}, as one replica that has none of them, by the first"
    return f"{whose} took {_time(restore.seconds)}, as one replica that has none of them"


def _known(answer: bool | None) -> str:  # noqa: FBT001 - a fact to be spelled, no choice of the caller's
    return {True: "known to the broker", False: "not known to the broker", None: "the broker does not say"}[answer]


def _topics(topics: Sequence[TopicFacts]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for head in ("topic", "", "parts", "copies", "in sync", "max bytes", "kept"):
        is_text = head in ("topic", "")
        table.add_column(head, justify="left" if is_text else "right", overflow="fold", no_wrap=head != "topic")
    for topic in topics:
        config = topic.config or {}
        table.add_row(
            topic.name,
            _HOLDS[topic.setting],
            str(topic.partitions),
            str(topic.replication),
            f"≥ {config['min.insync.replicas']}" if "min.insync.replicas" in config else "?",
            f"{int(config['max.message.bytes']):,}" if "max.message.bytes" in config else "?",
            _kept(config.get("cleanup.policy"), config.get("retention.ms")),
        )
    return table


def _kept(policy: str | None, retention: str | None) -> str:
    if policy is None or retention is None:
        return "?"
    kept = "for ever" if int(retention) < 0 else duration(int(retention))
    return {"delete": kept, "compact": "last of each key"}.get(policy, f"last of each key, {kept}")


def group_rows(group: GroupFacts) -> Iterable[Row]:
    """What the group is, and what waits for it on each request topic."""
    if group.state == "dead":
        yield "state", "does not exist yet"
    else:
        yield "state", f"{group.state}, {group.members} member{'' if group.members == 1 else 's'}"
    for progress in group.progress:
        committed = f"{progress.partitions_committed} of {progress.partitions} partitions committed"
        waiting = f"{progress.waiting:,} request{' waits' if progress.waiting == 1 else 's wait'}"
        yield progress.topic, f"{waiting} ({committed})"
        if 0 < progress.waiting <= progress.partitions:
            yield "", "transaction markers count as one each"
