"""What `check` found, for people: sections of names and values, the problems last, where the eye is when it ends.

Fits 80 columns and a pipe. Commands to copy are written as they are and never wrapped: a terminal wraps them better.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from worker.codecs.examples import EncodedRequest, Encoding
from worker.commands.check_report import ClusterFacts, ModelFacts, Report
from worker.kafka.access import Finding
from worker.kafka.advice import duration
from worker.kafka.survey import GroupFacts, TopicFacts
from worker.settings import Effective

# A value that is no longer stands in the command itself; a longer one is fetched from the JSON report.
SHORT_VALUE = 400
# Lines longer than this are hard to read, however wide the terminal is.
WIDEST = 110

Row = tuple[str, str]


def show(console: Console, report: Report, *, show_all: bool) -> None:
    """Write the report, warnings and problems at its end."""
    _Screen(console).show(report, show_all=show_all)


class _Screen:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(console.width, WIDEST)

    def show(self, report: Report, *, show_all: bool) -> None:
        self._settings(report.settings, show_all=show_all)
        if report.model is not None:
            self._section(f"Model {report.model.name}, version {report.model.version}", _model(report.model))
        if report.cluster is not None:
            self._cluster(report.cluster)
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

    def _cluster(self, cluster: ClusterFacts) -> None:
        self._section(f"Cluster{_release(cluster)}", _cluster(cluster))
        if cluster.survey.topics:
            self._console.print()
            self._write(_topics(cluster.survey.topics))
        if cluster.survey.group is not None:
            self._section("Group", _group(cluster.survey.group))

    def _examples(self, report: Report) -> None:
        self._section("A request to try: one row, published with kcat", [])
        values = {setting.name: setting.text for setting in report.settings}
        self._commands([_publish(values)])
        for encoding, example in report.examples.items():
            self._console.print()
            self._write(Text(f"as {_KINDS[encoding]}", "dim"))
            self._commands(_example(encoding, example))

    def _findings(self, title: str, style: str, findings: Sequence[Finding]) -> None:
        if not findings:
            return
        self._section(title, [], style)
        for finding in findings:
            table = Table.grid(padding=(0, 1))
            table.add_row(Text("•", style), Text(finding.text, overflow="fold"))
            self._write(table)
            if finding.command:
                self._commands([finding.command], indent=4)

    def _verdict(self, report: Report) -> None:
        self._console.print()
        if not report.problems:
            self._console.print("[bold green]A worker with these settings starts.[/bold green]")
            return
        count = len(report.problems)
        what = f"{count} problem{'s' if count > 1 else ''}"
        self._console.print(
            f"[bold red]A worker with these settings ends with exit code {report.exit_code}:[/] {what}."
        )

    def _section(self, title: str, rows: Iterable[Row], style: str = "") -> None:
        self._console.print()
        self._console.print(Text(title, f"bold {style}".strip()))
        if rows := list(rows):
            table = Table.grid(padding=(0, 2))
            for name, value in rows:
                table.add_row(Text(name, "dim", no_wrap=True), Text(value, overflow="fold"))
            self._write(table)

    def _write(self, what: RenderableType) -> None:
        """Two spaces in, without the spaces that a table fills its last column with."""
        with self._console.capture() as written:
            self._console.print(Padding(what, (0, 0, 0, 2)), width=self._width)
        self._console.file.write("".join(f"{line.rstrip()}\n" for line in written.get().splitlines()))

    def _commands(self, lines: Iterable[str], indent: int = 2) -> None:
        for line in lines:
            self._console.print(" " * indent + line, soft_wrap=True, markup=False, highlight=False)


def _model(model: ModelFacts) -> list[Row]:
    rows = [("takes", ", ".join(model.takes)), ("gives", ", ".join(model.gives))]
    rows += [("device", f"{model.device}: {model.why}"), ("load and warm-up", _time(model.load_seconds))]
    for count, seconds in model.run_seconds.items():
        rate = f", {count / seconds:,.0f} rows/s" if seconds > 0 else ""
        rows.append((f"{count} row{'s' if count > 1 else ''} at once", f"{_time(seconds)}{rate}"))
    if model.row_bytes is not None:
        rows.append(("raw rows", f"{model.row_bytes} bytes a row, little-endian ({model.row_dtype})"))
    return rows


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _release(cluster: ClusterFacts) -> str:
    release = cluster.capabilities.release
    if cluster.survey.controller is None:
        return ", a mock of librdkafka's"
    return f", Kafka {release} or later" if release else ""


def _cluster(cluster: ClusterFacts) -> Iterable[Row]:
    brokers, knows = cluster.survey.brokers, cluster.capabilities
    count = f"{len(brokers)} broker" + ("s" if len(brokers) > 1 else "")
    yield "brokers", f"{count}: {', '.join(brokers[:5])}{', …' if len(brokers) > 5 else ''}"
    if cluster.survey.controller is not None:
        yield "controller", cluster.survey.controller
    if cluster.membership is not None:
        membership = cluster.membership
        yield "group protocol", f"{membership.protocol} ({membership.why})"
        yield "take-over", _takeover(membership.takeover_seconds)
    yield "KIP-848 groups", _known(knows.consumer_protocol)
    if cluster.can_produce is not None:
        yield "idempotent producer", "works (tried)" if cluster.can_produce else "refused (tried)"
    yield "transactions", f"{_known(knows.transactions)} (not tried: at least once uses none)"


def _takeover(seconds: float | None) -> str:
    if seconds is None:
        return "the broker does not tell how long a killed replica keeps its partitions"
    return f"a killed replica's partitions move after {seconds:g} s"


def _known(answer: bool | None) -> str:  # noqa: FBT001 - a fact to be spelled, no choice of the caller's
    return {True: "known to the broker", False: "not known to the broker", None: "the broker does not say"}[answer]


def _topics(topics: Sequence[TopicFacts]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for head in ("topic", "", "parts", "copies", "in sync", "max bytes", "kept"):
        table.add_column(head, justify="left" if head in ("topic", "") else "right", overflow="fold")
    for topic in topics:
        config = topic.config or {}
        table.add_row(
            topic.name,
            {"REQUEST_TOPICS": "requests", "RESPONSE_TOPIC": "answers"}.get(topic.setting, "dead letters"),
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


def _group(group: GroupFacts) -> Iterable[Row]:
    if group.state == "dead":
        yield "state", "does not exist yet"
    else:
        yield "state", f"{group.state}, {group.members} member{'' if group.members == 1 else 's'}"
    for progress in group.progress:
        committed = f"{progress.partitions_committed} of {progress.partitions} partitions committed"
        yield progress.topic, f"{progress.waiting:,} requests wait ({committed})"


_KINDS = {
    Encoding.JSON: "JSON",
    Encoding.ROWS: "raw rows",
    Encoding.PROTOBUF: "protobuf",
    Encoding.BINARY: "binary data behind a JSON head",
}


def _publish(values: dict[str, str]) -> str:
    """A shell function, so that what differs stands out. The password is taken from where the worker has it."""
    options = [f"-b {shlex.quote(values['WORKER_KAFKA__BOOTSTRAP_SERVERS'])}", "-X partitioner=murmur2_random"]
    for name, key in _SECURITY.items():
        if value := values.get(f"WORKER_KAFKA__{name}"):
            shown = f'"$WORKER_KAFKA__{name}"' if value == "***" else shlex.quote(value)
            if (name, value) != ("SECURITY_PROTOCOL", "PLAINTEXT"):
                options.append(f"-X {key}={shown}")
    topic = values["WORKER_KAFKA__REQUEST_TOPICS"].split(",")[0]
    options += [f"-t {topic} -k example", '"$@"']
    return "publish() { kcat -P " + " \\\n    ".join(_joined(options, 66)) + "; }"


def _joined(options: Sequence[str], width: int) -> list[str]:
    """As many to a line as fit."""
    lines = [options[0]]
    for option in options[1:]:
        if len(lines[-1]) + len(option) < width:
            lines[-1] += f" {option}"
        else:
            lines.append(option)
    return lines


_SECURITY = {
    "SECURITY_PROTOCOL": "security.protocol",
    "SSL_CA_LOCATION": "ssl.ca.location",
    "SSL_CERTIFICATE_LOCATION": "ssl.certificate.location",
    "SSL_KEY_LOCATION": "ssl.key.location",
    "SSL_KEY_PASSWORD": "ssl.key.password",
    "SASL_MECHANISM": "sasl.mechanism",
    "SASL_USERNAME": "sasl.username",
    "SASL_PASSWORD": "sasl.password",
}


def _example(encoding: Encoding, example: EncodedRequest) -> list[str]:
    headers = " ".join(f"-H {name}={value.decode()}" for name, value in example.headers)
    if encoding is Encoding.JSON and len(example.value) <= SHORT_VALUE:
        return [f"echo {shlex.quote(example.value.decode())} |", f"  publish {headers}"]
    file = f"request.{'json' if encoding is Encoding.JSON else 'bin'}"
    return [f"{_made(encoding, example.value)} > {file}", f"publish {headers} {file}"]


def _made(encoding: Encoding, value: bytes) -> str:
    """Most of a blank row is zeros, and they are at the end."""
    head = value.rstrip(b"\0")
    zeros = f"head -c {len(value) - len(head)} /dev/zero"
    if not head:
        return zeros
    if len(head) <= SHORT_VALUE:
        printed = f"printf '{''.join(map(_escaped, head))}'"
        return printed if head == value else f"{{ {printed}; {zeros}; }}"
    return f"inference-worker check --json | jq -r .examples.{encoding.value}.value_base64 | base64 -d"


def _escaped(byte: int) -> str:
    """As any shell's printf reads it between single quotes."""
    is_plain = 32 <= byte < 127 and chr(byte) not in "'\\%"
    return chr(byte) if is_plain else f"\\{byte:03o}"
