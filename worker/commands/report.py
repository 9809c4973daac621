"""The findings of `check`: facts, problems that keep a worker from starting, and warnings that do not.

`as_json` is the whole of it. `show` writes it for people: what matters most comes last, the verdict at the very end.
Fits 80 columns and a pipe. Names come from the model and the cluster: their control characters never reach the
terminal.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.core.failures import Stop
from worker.kafka.client.membership import Membership
from worker.kafka.cluster.access import Finding
from worker.kafka.cluster.survey import GroupFacts, Survey
from worker.settings.effective import Effective
from worker.terminal.terminal import WIDEST, count, milliseconds, printable, write

if TYPE_CHECKING:
    from worker.stores.server import StoreFacts

Row = tuple[str, str]
Headers = Sequence[tuple[str, bytes | None]]
# The setting that names a topic, and what the topic holds.
_HOLDS = {
    "REQUEST_TOPICS": "requests",
    "RESPONSE_TOPIC": "answers",
    "REPLY_TOPICS": "answers",
    "DEAD_LETTER_TOPIC": "dead letters",
    "CHANGELOG_TOPIC": "states",
}
_DAY_MS = 86_400_000
# Characters of an example that are worth reading in a terminal.
_LONGEST_BODY = 2_000


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model as loaded.

    `run_seconds`: row count → median time of one inference; `open_axes`: the length in those runs of each axis that the
    model's file leaves open, by input and axis. `fixed_rows`: what short batches are padded to, for a model that runs
    at one number of rows, and `fixed_why`; `padded`: each padded axis and its buckets. `doubt`: which outputs did not
    show that rows are independent. `closed_by`: the setting that closes a full batch, where that is not MAX_BATCH_SIZE.
    `state`: what the model remembers of each key. `left_to_cpu`: nodes that a GPU was to run and does not, by operator.
    """

    name: str
    version: str
    device: str
    why: str
    takes: Sequence[str]
    gives: Sequence[str]
    row_bytes: int | None  # of the only input required, for raw rows
    row_dtype: str | None
    load_seconds: float
    run_seconds: Mapping[int, float]
    open_axes: Mapping[str, int] = field(default_factory=dict)
    fixed_rows: int | None = None
    fixed_why: str | None = None
    padded: Sequence[str] = ()
    doubt: str | None = None
    closed_by: str | None = None
    state: Sequence[str] = ()
    left_to_cpu: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterFacts:
    """The cluster as far as it answered. `membership` is None where problems keep a worker from joining."""

    survey: Survey
    is_mock: bool
    membership: Membership | None
    max_bytes: Mapping[str, int] | None
    can_transact: bool | None = None  # the broker prepared transactions; None: not tried


@dataclass(frozen=True, slots=True)
class Example:
    """A request of one row and its answer, as they are in Kafka."""

    request_headers: Headers
    request: bytes
    answer_headers: Headers
    answer: bytes


@dataclass(slots=True)
class Report:
    """Collected by the checks, each of which adds its part."""

    settings: Sequence[Effective] = ()
    model: ModelFacts | None = None
    guarantee: str | None = None
    transactional_id: str | None = None  # with a star for its random end
    cluster: ClusterFacts | None = None
    store: StoreFacts | None = None  # the server that keeps the states
    created: Mapping[str, int] = field(default_factory=dict)  # topics made, with their partitions
    example: Example | None = None
    problems: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    exit_code: int = 0

    def add(self, stop: Stop) -> None:
        """A reason why a worker would end, one problem for each line."""
        self.refuse([Finding(line) for line in str(stop).splitlines()], stop.exit_code)

    def refuse(self, problems: Sequence[Finding], exit_code: int) -> None:
        """The first check that fails decides how a worker would end: they run in its own order."""
        self.problems += problems
        self.exit_code = self.exit_code or exit_code

    def warn(self, *texts: str | None) -> None:
        """None: there is nothing to say."""
        self.warnings += [Finding(text) for text in texts if text is not None]

    def as_json(self) -> dict[str, Any]:
        """Plain values: one member for each section."""
        return {
            "starts": not self.problems,
            "exit_code": self.exit_code,
            "problems": [problem._asdict() for problem in self.problems],
            "warnings": [warning._asdict() for warning in self.warnings],
            "settings": {s.name: {"value": s.value, "is_default": s.is_default} for s in self.settings},
            "delivery": {"guarantee": self.guarantee, "transactional_id": self.transactional_id},
            "model": None if self.model is None else asdict(self.model),
            "example": None if self.example is None else _encoded(self.example),
            "created": dict(self.created),
            "cluster": None if self.cluster is None else asdict(self.cluster),
            "store": None if self.store is None else asdict(self.store),
        }


def _encoded(example: Example) -> dict[str, Any]:
    pairs = {
        "request": (example.request_headers, example.request),
        "answer": (example.answer_headers, example.answer),
    }
    return {
        name: {
            "headers": {key: value and value.decode() for key, value in headers},
            "value_base64": base64.b64encode(body).decode(),
        }
        for name, (headers, body) in pairs.items()
    }


def show(console: Console, report: Report, *, show_all: bool) -> None:
    """Write the report: facts, then warnings and problems, then the verdict."""
    page = _Page(console)
    shown = [setting for setting in report.settings if show_all or not setting.is_default]
    left_out = len(report.settings) - len(shown)
    page.section("Settings", ((setting.name, setting.text) for setting in shown))
    if shown and left_out:
        page.line(f"  {left_out} more have their defaults (--all shows them)", "dim")
    if (model := report.model) is not None:
        page.section(f"Model {model.name}, version {model.version}", _model(model))
    if report.cluster is not None:
        page.section("Cluster", _cluster(report.cluster, report))
    if report.store is not None:
        page.section("States", [("kept by", f"{report.store.version} at {report.store.name}")])
    page.section("Topics created", ((topic, count(number, "partition")) for topic, number in report.created.items()))
    if (example := report.example) is not None:
        page.body("Example: a request", example.request_headers, example.request)
        page.body("Example: its answer", example.answer_headers, example.answer)
    page.findings("Warnings", "yellow", report.warnings)
    page.findings("Problems", "red", report.problems)
    if report.problems:
        many = count(len(report.problems), "problem")
        page.line(f"A worker with these settings ends with exit code {report.exit_code}: {many}.", "bold red", gap=True)
    else:
        page.line("A worker with these settings starts.", "bold green", gap=True)


class _Page:
    """Sections of names and values. Owns whether something is written already."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(console.width, WIDEST)
        self._is_empty = True

    def section(self, title: str, rows: Iterable[Row]) -> None:
        if rows := list(rows):
            self.line(title, "bold", gap=True)
            table = Table.grid(padding=(0, 2))
            for name, value in rows:
                table.add_row(Text(printable(name), "dim", no_wrap=True), Text(printable(value), overflow="fold"))
            write(self._console, table, width=self._width)

    def body(self, title: str, headers: Headers, body: bytes) -> None:
        """On one line that can be copied. A body that is no text, or a long one, is in the JSON report alone."""
        self.section(title, ((key, (value or b"").decode()) for key, value in headers))
        is_short = len(body) <= _LONGEST_BODY and body.isascii() and body.decode("ascii").isprintable()
        self.line(f"  {body.decode('ascii') if is_short else f'{len(body):,} bytes, which --json shows'}")

    def findings(self, title: str, style: str, findings: Sequence[Finding]) -> None:
        if findings:
            self.line(title, f"bold {style}", gap=True)
        for finding in findings:
            table = Table.grid(padding=(0, 1))
            table.add_row(Text("•", style), Text(printable(finding.text), overflow="fold"))
            write(self._console, table, width=self._width)
            if finding.command:  # a terminal wraps it better than we could
                self.line(f"    {finding.command}")

    def line(self, text: str, style: str = "", *, gap: bool = False) -> None:
        if gap and not self._is_empty:
            self._console.print()
        self._is_empty = False
        self._console.print(Text(printable(text), style), soft_wrap=True)


def _model(model: ModelFacts) -> list[Row]:
    left = model.left_to_cpu
    nodes = ", ".join(f"{number} {operator}" for operator, number in left.items())
    lengths = ", ".join(f"{axis} {length:,} long" for axis, length in model.open_axes.items())
    full = count(max(model.run_seconds), "row")
    rows = [
        ("takes", ", ".join(model.takes)),
        ("gives", ", ".join(model.gives)),
        *(("remembers", tensor) for tensor in model.state),
        ("batches", _fixed(model)),
        *(("padded", axis) for axis in model.padded),
        ("full batches", model.closed_by and f"close at {full}, by {model.closed_by}"),
        ("independence", model.doubt),
        ("device", f"{model.device}: {model.why}"),
        ("left to the CPU", left and f"{count(sum(left.values()), 'node')}: {nodes}"),
        ("load and warm-up", milliseconds(model.load_seconds * 1000)),
        ("measured with", lengths and f"{lengths}: the model's file leaves that open"),
        *((f"{count(rows, 'row')} at once", _speed(rows, seconds)) for rows, seconds in model.run_seconds.items()),
        ("raw rows", model.row_bytes and f"{model.row_bytes} bytes a row, little-endian ({model.row_dtype})"),
    ]
    return [(name, str(value)) for name, value in rows if value]


def _fixed(model: ModelFacts) -> str | None:
    if model.fixed_rows == 1:
        return "none: the model was exported for one row, so each runs alone; export it with its batch axis left open"
    if model.fixed_rows is None:
        return None
    return f"of exactly {model.fixed_rows} rows, short ones are padded: {model.fixed_why}"


def _speed(rows: int, seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms{f', {rows / seconds:,.0f} rows/s' if seconds > 0 else ''}"


def _cluster(cluster: ClusterFacts, report: Report) -> Iterator[Row]:
    brokers = cluster.survey.brokers
    mock = ", a mock of librdkafka's" if cluster.is_mock else ""
    yield "brokers", f"{count(len(brokers), 'broker')}: {', '.join(brokers[:5])}{', …' if brokers[5:] else ''}{mock}"
    if cluster.membership is not None:
        yield "group protocol", str(cluster.membership).removeprefix("group protocol ")
    yield "guarantee", (report.guarantee or "").replace("_", " ")
    if report.transactional_id is not None:
        tried = {True: "work (tried)", False: "refused (tried)", None: "not tried"}[cluster.can_transact]
        yield "transactions", f"{tried}, as {report.transactional_id}"
    for topic in cluster.survey.topics:
        config = topic.config or {}
        facts = [count(topic.partitions, "partition"), count(topic.replication, "replica")]
        if limit := config.get("max.message.bytes"):
            facts.append(f"records of {int(limit):,} bytes at most")
        if config:
            facts.append(_kept(config))
        yield _HOLDS[topic.setting], f"{topic.name}: {', '.join(facts)}"
    if cluster.survey.group is not None:
        yield from _group(cluster.survey.group)


def _kept(config: Mapping[str, str]) -> str:
    policy, retention = config.get("cleanup.policy", "delete"), int(config.get("retention.ms", -1))
    kept = "kept for ever" if retention < 0 else f"kept for {retention / _DAY_MS:.3g} days"
    return {"delete": kept, "compact": "last of each key kept"}.get(policy, f"last of each key {kept}")


def _group(group: GroupFacts) -> Iterator[Row]:
    yield "group", "does not exist yet" if group.state == "dead" else f"{group.state}, {count(group.members, 'member')}"
    for progress in group.progress:
        markers = " or transaction markers" if 0 < progress.waiting <= progress.partitions else ""
        committed = f"{progress.partitions_committed} of {count(progress.partitions, 'partition')} committed"
        yield "waiting", f"{count(progress.waiting, 'request')}{markers} on {progress.topic} ({committed})"
