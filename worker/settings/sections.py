"""The settings: frozen sections, each name with its default, its bounds and one sentence for the operator.

The sentences are the reference: `docs/settings.md` is written from them. A value's type (`value_types.py`) judges the
value alone; `conflicts.py` judges values that must fit each other.
"""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from worker.core.tensors.buckets import WantedAxis
from worker.settings.kafka_sections import KafkaSettings
from worker.settings.records_section import RecordsSettings
from worker.settings.registry_section import RegistrySettings
from worker.settings.value_types import (
    MIB,
    Elements,
    Libraries,
    Linger,
    LogLevel,
    NameOfHost,
    PaddedAxes,
    Pages,
    Pairs,
    PassedThrough,
    RowCounts,
    Section,
    Sha256,
    StoreUrl,
    Text,
    Texts,
)

# Milliseconds between two commits. A commit of offsets alone is cheap; a transaction's answers wait for its commit.
COMMIT_INTERVALS_MS = {"at_least_once": 200, "exactly_once": 100}
# A transaction fills for a quarter of its timeout at most; the rest is for its end. Inferences do not count: a batch
# that runs when a transaction is due is answered in a later one, also while partitions move.
FILL_SHARE = 4
# Bytes. With the smallest model its process has 64 MB of what this limits, and 9 MB more for each lane (2026-11).
LEAST_MEMORY = 128 * MIB
# The most rows in flight, unless the batches under way hold more.
MAX_INFLIGHT_ROWS = 131_072


def _name_of(path: Path) -> str:
    """The name of a model: its file's without the ending, its folder's, or in Hugging Face's cache its repository's.

    It may not be UTF-8, and then is put into a form that an answer can carry.
    """
    name = path.stem
    if path.is_dir():
        folder = path.absolute()
        is_snapshot = folder.parent.name == "snapshots"
        name = folder.parent.parent.name.rpartition("--")[2] if is_snapshot else folder.name
    return os.fsencode(name).decode(errors="replace")


class ModelSettings(Section):
    """Which model is served, and on what."""

    path: Path = Field(description="The model: a local ONNX file, one in Python (`.py`), or a Hugging Face folder.")
    name: Text = Field(
        default_factory=lambda section: _name_of(section.get("path", Path("model"))),
        description="Name that requests may ask for and answers carry; else the file's or the folder's.",
    )
    version: Text = Field("1", description="Version that requests may ask for and answers carry.")
    sha256: Sha256 | None = Field(None, description="SHA-256 of the whole model, or the worker does not start.")
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$",
        description="`auto`: CUDA where it works, else the CPU. `cuda` and `cuda:1` start on nothing else.",
    )
    providers: Texts = Field((), description="ONNX Runtime's execution providers, the preferred one first, not DEVICE.")
    provider_options: PassedThrough = Field(
        {}, description='Their options: `{"CUDAExecutionProvider": {"arena_extend_strategy": "kSameAsRequested"}}`.'
    )
    gpu_mem_limit: int | None = Field(None, ge=MIB, description="Most bytes of GPU memory for the model's arena.")
    custom_ops: Libraries = Field(
        (), description="Libraries with operators that the model needs, each by path and SHA-256: `/ops.so@9f86…`."
    )
    intra_op_num_threads: int = Field(
        1, ge=0, le=1024, description="Threads of one inference on the CPU; 0: all cores. Large models gain from more."
    )
    host: Literal["process", "thread"] = Field(
        "process", description="The model has a process of its own, or is in the worker's, which ends if it crashes."
    )
    memory_limit: int | None = Field(
        None,
        ge=LEAST_MEMORY,
        description="Most bytes of memory for the model's process; else the container's limit less the worker's needs.",
    )
    run_timeout_s: float = Field(
        60.0,
        gt=0,
        le=240,
        description="An inference that takes longer is ended with the model's process, and its requests run alone; one "
        "that does it again gets an error. HOST=thread: the worker exits (3).",
    )
    input_defaults: Elements = Field(
        {}, description='Inputs that a request may leave out, and what their elements are: `{"attention_mask": 1}`.'
    )
    fixed_batch: Literal["refuse", "pad"] = Field(
        "refuse", description="A model of a fixed number of rows is refused, or its short batches are padded."
    )
    full_batches: Literal["auto", "never"] = Field(
        "auto", description="Whether short batches are padded to MAX_BATCH_SIZE; `auto`: for convolutions on CUDA."
    )
    warm_up_rows: RowCounts = Field(
        (), description="Row counts to run at start, two or more; else 1, 2, MAX_BATCH_SIZE, on CUDA powers of two."
    )
    warm_up_example: Path | None = Field(
        None, description="Input to try the model with: an `.npz` with an array for each input."
    )
    non_finite_input: Literal["reject", "allow"] = Field(
        "reject", description="What a request with a NaN or an infinity among its inputs gets."
    )
    non_finite_output: Literal["error", "allow", "null"] = Field(
        "error", description="What an answer with one becomes. `null`: null in JSON, unchanged elsewhere."
    )


class BatchingSettings(Section):
    """When a batch closes, and how much may be under way."""

    max_batch_size: int = Field(32, ge=1, le=65_536, description="Rows (not requests) at which a batch closes.")
    linger_ms: Linger = Field(
        "auto", description="Longest wait of a batch's first request for company. `auto` learns it from the traffic."
    )
    latency_budget_ms: float | None = Field(
        None, gt=0, description="With LINGER_MS=auto: most that the wait and a full batch's inference take together."
    )
    timeout_ms: float | None = Field(
        None,
        gt=0,
        le=604_800_000,
        description="Longest wait for an answer from a request's timestamp on, unless its header `timeout-ms` says "
        "another; then it gets `DEADLINE_EXCEEDED`.",
    )
    max_batch_bytes: int = Field(16 * MIB, ge=1024, description="Bytes of input at which a batch closes.")
    max_batch_tokens: int | None = Field(
        None, ge=1, description="Elements of the largest input, padding included, at which a batch closes."
    )
    buckets: PaddedAxes = Field(
        {},
        description="Axes to pad, so that requests of different lengths share a batch: "
        '`{"input_ids": {"axis": 1, "boundaries": [32, 64, 128], "pad": 0}}`.',
    )
    lanes: int = Field(1, ge=1, le=64, description="Inference threads. One is right on the CPU; see `docs/models.md`.")
    max_request_rows: int = Field(65_536, ge=1, description="A request with more rows is rejected.")
    max_inflight_records: int = Field(20_000, ge=1, description="Requests taken and not yet answered for good.")
    max_inflight_bytes: int = Field(64 * MIB, ge=1024, description="Their bytes.")

    @property
    def max_inflight_batches(self) -> int:
        """Batches that run or are stacked ahead: one more than there are lanes."""
        return self.lanes + 1

    @property
    def max_inflight_rows(self) -> int:
        """The most rows of requests taken and not yet answered: one more batch fills while the others run."""
        return max(MAX_INFLIGHT_ROWS, (self.max_inflight_batches + 1) * self.max_batch_size)

    @property
    def linger(self) -> float | None:
        """Seconds; None when it is learned."""
        return None if self.linger_ms == "auto" else self.linger_ms / 1000

    @property
    def latency_budget(self) -> float:
        """Seconds."""
        return inf if self.latency_budget_ms is None else self.latency_budget_ms / 1000

    @property
    def wanted_axes(self) -> tuple[WantedAxis, ...]:
        """The padded axes, each with the name of its input."""
        return tuple(
            WantedAxis(name, axis.axis, axis.boundaries, axis.pad, axis.shared_by)
            for name, axes in self.buckets.items()
            for axis in axes
        )


class DeliverySettings(Section):
    """What is promised about answers and offsets."""

    guarantee: Literal["at_least_once", "exactly_once"] = Field(
        "at_least_once", description="How often a request is answered, whatever dies. `exactly_once`: in transactions."
    )
    order: Literal["partition", "key", "none"] = Field(
        "partition", description="An answer waits for all earlier requests of its partition, of its key, or for none."
    )
    commit_interval_ms: int = Field(
        default_factory=lambda section: COMMIT_INTERVALS_MS[section.get("guarantee", "at_least_once")],
        ge=1,
        le=60_000,
        description="Time between two commits, 200 unless set; exactly once: of one transaction, 100 unless set.",
    )
    transactional_id: NameOfHost | None = Field(
        None, description="Exactly once: this replica's own name, also after a restart: `my-group-{hostname}`."
    )
    transaction_timeout_ms: int = Field(
        10_000, ge=1_000, le=900_000, description="Exactly once: when a dead replica's transaction is aborted."
    )
    drain_timeout_s: float = Field(
        20.0, gt=0, le=600, description="Time to finish at SIGTERM, half of it for what has not begun; then exit 3."
    )
    rejection_limit: int | None = Field(
        None,
        ge=0,
        description="Stop (exit 6) after so many rejections in a row, late requests not counted; 0: never. Unless set, "
        "only where the first 100 records of a new group are all rejected.",
    )


class StateSettings(Section):
    """What the model remembers of each key, from one request to the next."""

    tensors: Pairs = Field(
        {},
        description="Inputs that are state, each with the output that is its next value: "
        '`{"h_in": "h_out"}`. Requests do not bring them.',
    )
    initial: Annotated[float, Field(allow_inf_nan=True)] | Path = Field(  # a running maximum begins with -inf
        0.0, description="State of a key that has none: a number, or one row in an `.npy`, or an `.npz` by input."
    )
    missing: Literal["zeros", "refuse"] = Field(
        "zeros", description="What a request gets whose key has no state: INITIAL, or an error."
    )
    answer: bool = Field(False, description="Answers carry the next state, too.")
    steps: Literal["rows", "axis:1"] = Field(
        "rows", description="A sequence's steps: a request's rows, run one by one, or at once along the second axis."
    )
    ttl_s: float | None = Field(
        None, gt=0, description="A state that no request used for so long, by their timestamps, is forgotten."
    )
    directory: Path | None = Field(
        None, description="This replica's own directory on a quick disk, for states that memory does not hold."
    )
    keys_in_memory: int = Field(
        1_000_000, ge=1024, description="Keys used lately that are in memory; with STORE also their states."
    )
    store: StoreUrl | None = Field(
        None, description="A Valkey or Redis server for the states, at least once: `redis://host:6379/0`, `rediss://…`."
    )
    store_username: Text | None = Field(None, description="STORE: the user to log in as.")
    store_password: SecretStr | None = Field(None, description="STORE: the password.")
    store_ca_location: Path | None = Field(None, description="STORE: authorities to trust, in PEM; else the system's.")
    key_prefix: Text | None = Field(None, description="STORE: what its keys begin with; else GROUP_ID and `-state:`.")


class TelemetrySettings(Section):
    """What an operator sees."""

    http_address: Text = Field("127.0.0.1", description="Address of `/metrics`, the probes, `/v2` and the live page.")
    http_port: int = Field(0, ge=0, le=65_535, description="Their port; 0: any free one, which is logged.")
    page: bool = Field(True, description="A live page of this worker's numbers at `/`, and `/status`, which it draws.")
    replicas: Pages = Field((), description="The other replicas' live pages, to be linked from this one's.")
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="JSON lines, or text for people. `auto`: text where standard error is a terminal."
    )
    log_level: LogLevel = Field("INFO", description="The least level logged.")
    tracing: bool = Field(False, description="Spans of requests with a sampled `traceparent`, as OTEL_* variables say.")


class Sections(BaseSettings):
    """The sections that a command reads: some, or all."""

    model_config = SettingsConfigDict(
        env_prefix="WORKER_",
        env_nested_delimiter="__",
        env_nested_max_split=1,  # section and key: nothing lies deeper
        enable_decoding=False,  # `value_types.py` reads lists and objects, and reports each mistake
        frozen=True,
        extra="ignore",  # each name is checked in `loading`, whichever sections are read
        hide_input_in_errors=True,
        defer_build=True,
    )


class Settings(Sections):
    """All sections. `load` makes them; the composition root hands each room its own section."""

    kafka: KafkaSettings
    model: ModelSettings
    batching: BatchingSettings
    delivery: DeliverySettings
    state: StateSettings
    telemetry: TelemetrySettings
    records: RecordsSettings | None = None  # None: the topics hold requests
    registry: RegistrySettings | None = None  # None: no record names its schema

    @model_validator(mode="before")
    @classmethod
    def _with_state(cls, sections: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Set the defaults of state without a store: the guarantee is exactly once, and there is a changelog."""
        if sections.get("state", {}).get("tensors") and sections["state"].get("store") is None:
            sections.setdefault("delivery", {}).setdefault("guarantee", "exactly_once")
            if (group := sections.get("kafka", {}).get("group_id")) is not None:
                sections["kafka"].setdefault("changelog_topic", f"{group}-state")
        return sections


SECTIONS: dict[str, type[Section]] = {
    "kafka": KafkaSettings,
    "model": ModelSettings,
    "batching": BatchingSettings,
    "delivery": DeliverySettings,
    "state": StateSettings,
    "telemetry": TelemetrySettings,
    "records": RecordsSettings,
    "registry": RegistrySettings,
}
# Sections that exist only where they are set.
OPTIONAL = frozenset({"records", "registry"})


def variable(section: str, key: str) -> str:
    """The environment's name for a setting: `WORKER_KAFKA__GROUP_ID`."""
    return f"WORKER_{section}__{key}".upper()


def is_secret(section: str, key: str) -> bool:
    """True if no message may show the setting's value, and a file may hold it instead of the environment."""
    return "SecretStr" in str(SECTIONS[section].model_fields[key].annotation)


def is_path(section: str, key: str) -> bool:
    """True if the setting's value names a file or a folder."""
    return "Path" in str(SECTIONS[section].model_fields[key].annotation)
