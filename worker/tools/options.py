"""The options of `publish`, `consume`, `score`, `profile` and `bench`. Imports nothing heavy: `--help` must be fast."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from worker.core.failures import BadConfiguration
from worker.terminal.command_options import AsJson, AskedModel, Brokers, Config, argument, flag, option

MadeEncoding = Literal["rows", "json", "protobuf", "binary"]
STDIN = Path("-")
WHOLE = (
    "Each line is a whole record, with key, headers and value: as `consume --json` and `dead-letters show --json` "
    "print it."
)


@dataclass(frozen=True, kw_only=True)
class PublishOrder:
    """Publish requests, and with --wait see them answered.

    A line with `inputs` is a request, published as it stands.
    One with `value` is any record: `key`, `headers` and `value`, or these with `_base64` for bytes.
    Where the settings have RECORDS, each line is a record, as it stands.
    """

    file: str | None = argument(None, "JSON lines; - reads them from standard input.", "FILE")
    random: int | None = option(None, "Instead of a file: make N requests up for the model.", "N", min=1)
    topic: str | None = option(None, "The topic; otherwise the settings' only request topic.", "TOPIC")
    key: str | None = option(
        None, "Key of requests without one of their own; {n} in it is the request's number.", "TEXT"
    )
    key_field: str | None = option(None, "Of records: the field that is the key; customer.id in an object.", "FIELD")
    records: bool | None = option(
        None,
        "Each line is a record, as where the settings have RECORDS; or a line is a request or has `value`.",
        None,
        "--records/--no-records",
        show_default=False,
    )
    rate: float | None = option(None, "Requests a second, steadily; else as fast as can be.", "N", min=0.001)
    wait: bool = flag(
        "--wait",
        "Wait for the answers to these very requests, and say how long they took. Exit code 7 if one is an "
        "error or missing.",
    )
    timeout: float | None = option(
        None, "With --wait: give up when no answer comes for so long; else for 30 s.", "SECONDS", min=0.1
    )
    encoding: MadeEncoding | None = option(
        None,
        "With --random: rows (if the model takes them, the default), json, protobuf or binary.",
        "NAME",
        show_default=False,
    )
    model: AskedModel = None
    as_json: bool = flag("--json", "The result as one line of JSON.")
    config: Config = None
    bootstrap_servers: Brokers = None


@dataclass(frozen=True, kw_only=True)
class ConsumeOrder:
    """Show answers as they come, or what lies in any topic. Joins no group and commits nothing."""

    topic: str | None = option(None, "The topic; otherwise the settings' response topic.", "TOPIC")
    from_beginning: bool = flag("--from-beginning", "All that the topic has.")
    last: int | None = option(
        None, "The newest N of those that the options below choose, and what comes then.", "N", min=1
    )
    follow: bool | None = option(
        None,
        "Go on after the end, or stop there, as is the default for --from-beginning and --last in a file or pipe.",
        None,
        "--follow/--no-follow",
        show_default=False,
    )
    count: int | None = option(None, "Stop after so many.", "N", "--count", "-n", min=1)
    errors_only: bool = flag("--errors-only", "Only errors.")
    request_ids: list[str] | None = option(
        None, "Only the answer to this request, by its id or its source; may be repeated.", "ID", "--request-id"
    )
    as_json: bool = flag("--json", "One line of JSON for each.")
    model: AskedModel = None
    config: Config = None
    bootstrap_servers: Brokers = None


@dataclass(frozen=True, kw_only=True)
class ScoreOrder:
    """Answer a file without Kafka, as a worker would: the same checks, batches and answers, in order."""

    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model.", show_default=False)]
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Rows (.npy; .npz with an array per input), or requests as JSON lines; `-` reads them from a pipe. "
            "With RECORDS in the settings: records as JSON lines, a .csv or a .parquet.",
            show_default=False,
        ),
    ]
    output: Path | None = option(
        None, "Where answers go: .npy for rows, .csv for records, else JSON lines.", "FILE", "--output", "-o"
    )
    batch_size: int | None = option(None, "Rows of one inference, instead of WORKER_BATCHING__MAX_BATCH_SIZE.", min=1)
    whole: bool = flag("--whole", WHOLE)
    force: bool = flag("--force", "Write over files that are there already.")
    config: Config = None

    @property
    def name(self) -> str:
        """The input's name, as records and messages can carry it: a file's name may not be UTF-8."""
        return "standard input" if self.is_piped else os.fsencode(self.file).decode(errors="replace")

    @property
    def is_piped(self) -> bool:
        return self.file == STDIN

    @property
    def unit(self) -> str:
        """The unit of the counts."""
        return "row" if self.is_array or self.is_table else "line"

    @property
    def is_table(self) -> bool:
        return self.file.suffix in {".csv", ".parquet"}

    @property
    def is_array(self) -> bool:
        return self.file.suffix in {".npy", ".npz"}

    @property
    def wants_arrays(self) -> bool:
        return self.output is not None and self.output.suffix == ".npy"

    def check(self) -> None:
        """Raises `BadConfiguration` for an order that no model could carry out."""
        if not self.is_piped and not self.file.exists():
            raise BadConfiguration(f"{self.file}: there is no such file")
        if not self.is_piped and self.file.is_dir():
            raise BadConfiguration(f"{self.file}: is a folder; name a file")
        if self.wants_arrays and not self.is_array:
            raise BadConfiguration(f"{self.output}: only rows of a .npy or .npz are answered as .npy")
        if self.whole and (self.is_array or self.is_table):
            raise BadConfiguration(f"--whole: {self.file} has no lines of JSON")
        if self.output is not None and self.output.suffix == ".parquet":
            raise BadConfiguration(f"{self.output}: answers are written as JSON lines or .csv: give such a name")


@dataclass(frozen=True, kw_only=True)
class ProfileOrder:
    """Measure the model alone, without Kafka, at many batch sizes, and what its requests cost to read and to answer.

    Says which of the two is the limit, and what to set. With --lengths: also the BUCKETS to pad to.
    """

    model: Path | None = argument(None, "The model, if not the settings'.", "MODEL")
    encoding: MadeEncoding = option(
        "json", "How requests and answers are written: rows, json, protobuf or binary.", "NAME"
    )
    rate: float | None = option(None, "Say how many replicas so many requests a second take.", "N", min=0.001, max=1e9)
    latency_budget_ms: float | None = option(
        None, "Advise for this p99 from a request's record to its answer's.", "MS", min=0.001, max=1e9
    )
    rows_per_request: int = option(1, "Rows in a request.", "N", min=1, max=65_536)
    batch_sizes: str | None = option(
        None, "Rows of the batches to measure; else one request, doubled up to 1,024.", "N,N,..."
    )
    seconds: float = option(1.0, "How long each size is measured.", "S", min=0.01, max=3600)
    lengths: str | None = option(
        None, "Advise buckets for rows so long: one length a line; - is standard input.", "FILE"
    )
    bucket_axis: str | None = option(
        None, "The axis that they are about, if several are dynamic (axis 0 is the batch).", "INPUT:AXIS"
    )
    buckets: int = option(4, "How many buckets.", "N", min=1, max=64)
    as_json: AsJson = False
    config: Config = None


@dataclass(frozen=True, kw_only=True)
class BenchOrder:
    """Measure the worker under load, from Kafka to Kafka, next to a loop written by hand and to one by one.

    It says what the limit is. Without brokers in the settings it runs on a mock inside this process.
    On a Kafka it makes topics of its own, deletes them in the end, and touches no others.
    """

    model: Path | None = argument(None, "The model, if not the settings'; else the demo's.", "MODEL")
    rate: float | None = option(
        None, "The steady load, requests a second; else half of the worker's maximum.", "N", min=1, max=10_000_000
    )
    seconds: float = option(4.0, "How long each load lasts.", "S", min=0.2, max=3600)
    rows_per_request: int = option(1, "Rows in a request.", "N", min=1, max=65_536)
    encoding: MadeEncoding | None = option(
        None,
        "rows (if the model takes them, the default), binary (else), json or protobuf.",
        "NAME",
        show_default=False,
    )
    prefix: str | None = option(
        None, "What the names of topics and groups made begin with; else inference-worker-bench.", "TEXT"
    )
    as_json: AsJson = False
    config: Config = None
    bootstrap_servers: Brokers = None
