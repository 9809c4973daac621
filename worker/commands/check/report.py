"""What `check` found, as values: facts, problems that keep a worker from starting, and warnings that do not.

`as_json` is the whole of it; `screen` writes it for people.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from worker.codecs.examples import EncodedRequest, Encoding
from worker.commands.check.restoring import RestoreFacts
from worker.core.failures import Stop
from worker.kafka.client.membership import Membership
from worker.kafka.cluster.access import Finding
from worker.kafka.cluster.capabilities import Capabilities
from worker.kafka.cluster.survey import Survey
from worker.settings.effective import Effective
from worker.stores.server import StoreFacts


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


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """What is promised. `commit_interval_ms` is between two commits, of offsets or of transactions.

    `transactional_id` is this process's; at random unless `is_stable`: the same after a restart. None: there are none.
    """

    guarantee: str
    order: str
    commit_interval_ms: int
    transactional_id: str | None = None
    is_stable: bool = False
    transaction_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The cluster as far as it answered. `membership` is None where problems keep a worker from joining."""

    survey: Survey
    capabilities: Capabilities
    membership: Membership | None
    max_bytes: Mapping[str, int] | None
    can_produce: bool | None  # an idempotent producer got its id; None: not tried
    can_transact: bool | None  # the broker prepared transactions; None: not tried


@dataclass(slots=True)
class Report:
    """Collected by the checks, each of which adds its part. `command` prints it as JSON."""

    command: str
    settings: Sequence[Effective] = ()
    delivery: DeliveryFacts | None = None
    model: ModelFacts | None = None
    examples: dict[Encoding, EncodedRequest] = field(default_factory=dict)
    cluster: ClusterFacts | None = None
    restore: RestoreFacts | None = None
    store: StoreFacts | None = None  # the server that keeps the states
    created: Mapping[str, int] = field(default_factory=dict)  # topics made, with their partitions
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

    def as_json(self) -> dict[str, Any]:
        """Plain values: one member for each section."""
        return {
            "starts": not self.problems,
            "exit_code": self.exit_code,
            "problems": [problem._asdict() for problem in self.problems],
            "warnings": [warning._asdict() for warning in self.warnings],
            "settings": {s.name: {"value": s.value, "is_default": s.is_default} for s in self.settings},
            "delivery": None if self.delivery is None else asdict(self.delivery),
            "model": None if self.model is None else asdict(self.model),
            "examples": {encoding.value: _example(example) for encoding, example in self.examples.items()},
            "created": dict(self.created),
            "cluster": None if self.cluster is None else asdict(self.cluster),
            "store": None if self.store is None else asdict(self.store),
            "restore": None if self.restore is None else asdict(self.restore),
        }


def _example(example: EncodedRequest) -> dict[str, Any]:
    headers = {name: value.decode() for name, value in example.headers}
    return {"headers": headers, "value_base64": base64.b64encode(example.value).decode()}
