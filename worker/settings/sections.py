"""What can be set: five frozen sections, each name with its default, its bounds and one sentence for the operator.

The sentences are the reference: `python -m worker.settings` prints the tables of `docs/settings.md` from them. What can
be judged from one value is judged by its type here; what needs two values is judged in `conflicts.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, LiteralString

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    SecretStr,
    SkipValidation,
    StringConstraints,
    Tag,
    field_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from worker.core.records import Value
from worker.core.tensors.buckets import WantedAxis

MIB = 1024 * 1024


def _split(value: Any) -> Any:
    """Lists are comma-separated in the environment; a TOML file may use its own."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _joined(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _object_like(example: str) -> Callable[[Any], Any]:
    """In the environment it is JSON. It may hold a secret: the message has neither it nor the parser's excerpt."""

    def parsed(value: Any) -> Any:
        try:
            return json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            raise ValueError(f"must be a JSON object, for example {example}") from None

    return parsed


def _texts(value: Any) -> Any:
    flat = _flat(value)
    return {name: _text(held) for name, held in flat.items()} if isinstance(flat, dict) else flat


def _flat(value: Any) -> Any:
    """In TOML `linger.ms = 1` is a table `linger` with a key `ms`; here it is one name again."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, Any] = {}
    for name, held in value.items():
        inner = _flat(held)
        flat |= {f"{name}.{rest}": v for rest, v in inner.items()} if isinstance(inner, dict) else {name: inner}
    return flat


def _text(value: Any) -> Any:
    """librdkafka reads every value as text, and truth values as `true` and `false`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


def _elements(value: Any) -> Any:
    """One value for each name: what every element of an input may be."""
    try:
        flat = _flat(json.loads(value) if isinstance(value, str) else value)
    except (ValueError, RecursionError):
        flat = None
    if not isinstance(flat, dict) or not all(isinstance(held, bool | int | float | str) for held in flat.values()):
        raise ValueError('must be a JSON object with one value for each input, for example {"attention_mask": 1}')
    return flat


def _without_login(value: str) -> str:
    """The client takes `user:password@host` for a host's name, and shows it in logs."""
    if "@" in value:
        raise PydanticCustomError(
            UNSHOWN,
            "a broker's address has no login in it; write host:port, and set WORKER_KAFKA__SASL_USERNAME and "
            "WORKER_KAFKA__SASL_PASSWORD",
        )
    return value


def _of_this_host(value: str) -> str:
    """A name that replicas may share as a pattern. Other braces are a template that was not filled in."""
    if set("{}") & set(value.replace("{hostname}", "")):
        raise ValueError("{hostname} is all that may stand in braces")
    return value


# The type of a problem whose value is not shown: it may hold a secret.
UNSHOWN: LiteralString = "unshown"

# Kafka's own rule for topic names. A leading `^` would make librdkafka read the name as a pattern.
TOPIC_NAME = r"^[a-zA-Z0-9._-]{1,249}$"
TopicName = Annotated[str, StringConstraints(pattern=TOPIC_NAME)]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
# NoDecode: pydantic-settings would take these for JSON, and end at the first that is none with the rest untold.
TopicNames = Annotated[tuple[TopicName, ...], NoDecode, BeforeValidator(_split), Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], NoDecode, BeforeValidator(_split)]
RowCounts = Annotated[tuple[Annotated[int, Field(ge=1)], ...], NoDecode, BeforeValidator(_split)]
ContentType = Literal["application/json", "application/x-protobuf", "application/octet-stream"]
_MAX_REQUEST_BYTES = "A longer request value is rejected before it is decoded."
# How often progress is recorded, in milliseconds. A commit of offsets alone is cheap; answers wait for a transaction's.
COMMIT_INTERVALS_MS = {"at_least_once": 200, "exactly_once": 100}
# Of a transaction's timeout a quarter may go by while it fills. The rest is for its end. No inference counts: what runs
# when a transaction is due is answered in a later one, also while partitions move.
FILL_SHARE = 4
PassedThrough = Annotated[
    dict[str, str], NoDecode, BeforeValidator(_texts), BeforeValidator(_object_like('{"client.id": "worker-1"}'))
]
# Judged by `_elements`; pydantic would tell one wrong value once for each kind that it might have been.
Elements = Annotated[dict[str, SkipValidation[bool | int | float | str]], NoDecode, BeforeValidator(_elements)]


class Section(BaseModel):
    """What the sections share: frozen, no unknown names, defaults checked, no value ever printed by an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False, defer_build=True
    )


class Connection(Section):
    """How the brokers are reached, and who we are to them."""

    bootstrap_servers: Annotated[Text, BeforeValidator(_joined), AfterValidator(_without_login)] = Field(
        description="Brokers to ask first, `host:port`, comma-separated."
    )
    security_protocol: Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], BeforeValidator(_upper)] = (
        Field("PLAINTEXT", description="How connections to the brokers are secured.")
    )
    allow_plaintext: bool = Field(
        False, description="Allow unencrypted connections to brokers, and to the issuer of tokens, on other machines."
    )
    insecure_tls: bool = Field(False, description="Accept any certificate. For a test bench, never beyond it.")
    ssl_ca_location: Path | None = Field(
        None, description="Certificates of the authorities to trust, a PEM file or directory; otherwise the system's."
    )
    ssl_certificate_location: Path | None = Field(None, description="Mutual TLS: our certificate, a PEM file.")
    ssl_key_location: Path | None = Field(None, description="Mutual TLS: our private key, a PEM file.")
    ssl_key_password: SecretStr | None = Field(None, description="Mutual TLS: opens the private key.")
    ssl_crl_location: Path | None = Field(None, description="Certificates that were revoked, a PEM file.")
    sasl_mechanism: (
        Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], BeforeValidator(_upper)] | None
    ) = Field(None, description="How we log in, with a SASL security protocol.")
    sasl_username: Text | None = Field(None, description="PLAIN and SCRAM: the user.")
    sasl_password: SecretStr | None = Field(None, description="PLAIN and SCRAM: the password.")
    oauth_token_endpoint_url: Text | None = Field(
        None, description="OAUTHBEARER (OIDC): where tokens are issued, `https://…`."
    )
    oauth_client_id: Text | None = Field(None, description="OAUTHBEARER (OIDC): the client.")
    oauth_client_secret: SecretStr | None = Field(None, description="OAUTHBEARER (OIDC): the client's secret.")
    oauth_scope: Text | None = Field(None, description="OAUTHBEARER (OIDC): the scope to ask for.")
    config: PassedThrough = Field(
        {},
        repr=False,
        description="librdkafka keys for both clients, except those the worker owns; in the environment a JSON object.",
    )
    _secret_files: tuple[Path, ...] = PrivateAttr(())

    def read_secrets_from(self, files: tuple[Path, ...]) -> None:
        """Remember which files held the secrets. Called where they are read."""
        self._secret_files = files

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """Those that held passwords, as far as they lie in files."""
        return self._secret_files

    @property
    def certificates(self) -> dict[str, Path]:
        """The files of our certificate and key, and of the authorities we trust, by the setting that names each."""
        settings = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location", "ssl_crl_location")
        return {setting: file for setting in settings if (file := getattr(self, setting)) is not None}


class KafkaSettings(Connection):
    """Where requests come from, where answers go, and how the cluster knows us."""

    request_topics: TopicNames = Field(description="Topics to consume, comma-separated.")
    response_topic: TopicName = Field(
        description="Topic for the answers. Must exist and be none of the request topics."
    )
    dead_letter_topic: TopicName | None = Field(
        None, description="Topic that also gets the original of every rejected request."
    )
    group_id: Text = Field(
        description="Consumer group. Replicas of one deployment share it; different models never do."
    )
    group_instance_id: Annotated[Text, AfterValidator(_of_this_host)] | None = Field(
        None,
        description="Static membership: a name that is this replica's alone and outlives its restarts, such as "
        "`{hostname}` where pods keep their names.",
    )
    group_protocol: Literal["auto", "consumer", "classic"] = Field(
        "auto",
        description="`consumer` is KIP-848. `auto` takes it unless the broker has none, or SESSION_TIMEOUT_MS or "
        "GROUP_INSTANCE_ID is set.",
    )
    session_timeout_ms: int | None = Field(
        None, ge=1000, le=1_800_000, description="Classic groups: silence after which a replica counts as dead."
    )
    auto_offset_reset: Literal["earliest", "latest", "error"] = Field(
        "earliest",
        description="Where a group begins that has no offset of a partition committed, and where it goes on when "
        "retention has taken what it comes to next (`requests_deleted_total` counts those). With `latest` that is the "
        "end: what is left, and what came to a partition that was added before the worker saw it, is not read.",
    )
    max_request_bytes: int = Field(MIB, ge=1, le=1_000_000_000, description=_MAX_REQUEST_BYTES)
    max_message_bytes: int | None = Field(
        None,
        ge=1024,
        le=1_000_000_000,
        description="Size limit of the response and dead-letter topics, where the broker does not let us read it.",
    )
    default_content_type: ContentType = Field(
        "application/json", description="How a request without the header `content-type` is read."
    )
    null_value: Literal["reject", "skip"] = Field(
        "reject", description="What a request without a value gets: an error answer, or (compacted topics) nothing."
    )


class ClientKafkaSettings(Connection):
    """What a command needs that only publishes or reads: the connection, and those topics it may be told otherwise."""

    model_config = ConfigDict(extra="ignore")  # a worker's other settings may stand beside them

    request_topics: TopicNames | None = None
    response_topic: TopicName | None = None
    dead_letter_topic: TopicName | None = None
    default_content_type: ContentType = "application/json"


class ScoringKafkaSettings(Section):
    """What a command without Kafka needs of the wire contract all the same."""

    model_config = ConfigDict(extra="ignore")  # a worker's other settings may stand beside it

    max_request_bytes: int = Field(MIB, ge=1, le=1_000_000_000, description=_MAX_REQUEST_BYTES)


def _readable(name: str) -> str:
    """A file's name as an answer can carry it: it may be no UTF-8."""
    return os.fsencode(name).decode(errors="replace")


class ModelSettings(Section):
    """Which model is served, and on what."""

    path: Path = Field(description="The ONNX model, a local file.")
    name: Text = Field(
        default_factory=lambda section: _readable(section.get("path", Path("model")).stem),
        description="Name that requests may ask for and answers carry; the file's stem unless set.",
    )
    version: Text = Field("1", description="Version that requests may ask for and answers carry.")
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{64}$", to_lower=True)] | None = Field(
        None,
        description="The file must have this SHA-256, with no weights in other files, or the worker does not start.",
    )
    device: Annotated[str, StringConstraints(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = Field(
        "auto", description="`auto`: CUDA where it works, else the CPU. `cuda` and `cuda:1` start on nothing else."
    )
    providers: Texts = Field(
        (), description="ONNX Runtime execution providers in order of preference, comma-separated, instead of DEVICE."
    )
    provider_options: PassedThrough = Field(
        {},
        description="Options of the providers, passed on as they are; in the environment a JSON object, "
        '`{"CUDAExecutionProvider": {"gpu_mem_limit": "8589934592"}}`.',
    )
    gpu_mem_limit: int | None = Field(
        None, ge=MIB, description="Most bytes of GPU memory for the model's arena on CUDA; means nothing on the CPU."
    )
    arena_extend_strategy: Literal["next_power_of_two", "same_as_requested"] | None = Field(
        None,
        description="How that arena grows: ahead of the need, ONNX Runtime's own choice, or by no more than it; means "
        "nothing on the CPU.",
    )
    intra_op_num_threads: int = Field(
        1, ge=0, le=1024, description="Threads of one inference on the CPU; 0: all cores. Large models gain from more."
    )
    run_timeout_s: float = Field(
        60.0, gt=0, le=240, description="An inference that takes longer counts as hung: the worker exits (3)."
    )
    input_defaults: Elements = Field(
        {},
        description="Inputs that a request may leave out, and what each of their elements then is; in the environment "
        'a JSON object, `{"attention_mask": 1, "token_type_ids": 0}`.',
    )
    fixed_batch: Literal["refuse", "pad"] = Field(
        "refuse",
        description="What becomes of a model exported for a fixed number of rows; `pad`: it runs, short batches padded "
        "to that number.",
    )
    warm_up_rows: RowCounts = Field(
        (),
        description="Row counts to run at start, two or more, comma-separated; unless set 1, 2 and MAX_BATCH_SIZE, on "
        "CUDA also the powers of two between.",
    )
    warm_up_example: Path | None = Field(
        None,
        description="What the model is tried with instead of zeros and ones, at start and whenever it is in doubt: an "
        "`.npz` with an array for each input by name, with a row or more of them or without a batch axis, or one "
        "request as JSON.",
    )
    non_finite_input: Literal["reject", "allow"] = Field(
        "reject", description="What a request with a NaN or an infinity among its inputs gets."
    )
    non_finite_output: Literal["error", "allow", "null"] = Field(
        "error",
        description="What an answer with a NaN or an infinity becomes. `null`: null in JSON, unchanged elsewhere.",
    )


class PaddedAxis(Section):
    """One axis of an input that is padded, so that requests of different lengths share a batch."""

    axis: int = Field(ge=1)
    boundaries: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    pad: Value | None = None
    shared_by: dict[str, Value] = {}

    @field_validator("boundaries")
    @classmethod
    def _ascending(cls, boundaries: tuple[int, ...]) -> tuple[int, ...]:
        if list(boundaries) != sorted(set(boundaries)):
            raise ValueError("must be ascending, each length once")
        return boundaries


# Told apart before either is tried, so that a mistake is one line and not two.
Linger = Annotated[
    Annotated[Literal["auto"], Tag("auto")] | Annotated[float, Field(ge=0, le=10_000), Tag("ms")],
    Discriminator(lambda value: "auto" if value == "auto" else "ms"),
]

# Several axes of one input stand in a list. Whether a pad fits is judged when the model is known.
PaddedAxes = Annotated[
    dict[str, Annotated[tuple[PaddedAxis, ...], BeforeValidator(_listed)]],
    NoDecode,
    BeforeValidator(_object_like('{"input_ids": {"axis": 1, "boundaries": [32]}}')),
]


class BatchingSettings(Section):
    """When a batch closes, and how much may be under way."""

    max_batch_size: int = Field(32, ge=1, le=65_536, description="Rows (not requests) at which a batch closes.")
    linger_ms: Linger = Field(
        "auto",
        description="Longest wait of a batch's first request for company. `auto` learns from the requests whether any "
        "is worth it, and how long.",
    )
    latency_budget_ms: float | None = Field(
        None,
        gt=0,
        description="With LINGER_MS=auto: the wait and a full batch's inference take no longer than this together; any "
        "wait that is worth it unless set.",
    )
    timeout_ms: float | None = Field(
        None,
        gt=0,
        le=604_800_000,
        description="Longest wait for an answer, from a request's timestamp on, unless its header `timeout-ms` says "
        "another: what cannot keep it is answered `DEADLINE_EXCEEDED` without being run; any wait unless set.",
    )
    max_batch_bytes: int = Field(16 * MIB, ge=1024, description="Bytes of input at which a batch closes.")
    max_batch_tokens: int | None = Field(
        None,
        ge=1,
        description="Elements of the largest input, padding included, at which a batch closes; any number unless set.",
    )
    buckets: PaddedAxes = Field(
        {},
        description="Axes to pad, so that requests of different lengths share a batch; in the environment a JSON "
        'object, `{"input_ids": {"axis": 1, "boundaries": [32, 64, 128], "pad": 0}}`.',
    )
    max_inflight_batches: int = Field(2, ge=1, le=64, description="Batches running or stacked ahead.")
    lanes: int = Field(
        1,
        ge=1,
        le=64,
        description="Inference threads. One keeps a GPU busy; on the CPU a single one leaves what is done in 0.3 to "
        "0.9 ms, by the machine's speed, to the thread that serves Kafka.",
    )
    max_request_rows: int = Field(65_536, ge=1, description="A request with more rows is rejected.")
    max_inflight_records: int = Field(20_000, ge=1, description="Requests taken and not yet answered for good.")
    max_inflight_rows: int = Field(131_072, ge=1, description="Their rows.")
    max_inflight_bytes: int = Field(64 * MIB, ge=1024, description="Their bytes.")

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
        "at_least_once",
        description="How often a request is answered whatever dies in between. `exactly_once` takes transactions.",
    )
    order: Literal["partition", "key", "none"] = Field(
        "partition",
        description="For which earlier requests of its partition an answer waits: for all, those of its key, or none.",
    )
    commit_interval_ms: int = Field(
        default_factory=lambda section: COMMIT_INTERVALS_MS[section.get("guarantee", "at_least_once")],
        ge=1,
        le=60_000,
        description="Time between two commits of offsets: 200 unless set. Exactly once: how long answers are gathered "
        "for a transaction: 100 unless set.",
    )
    transactional_id: Annotated[Text, AfterValidator(_of_this_host)] | None = Field(
        None,
        description="Exactly once: a name that is this replica's alone and outlives its restarts, such as "
        "`my-group-{hostname}`. Unless set it is made of GROUP_ID and GROUP_INSTANCE_ID; without the latter, of "
        "GROUP_ID and a random part.",
    )
    transaction_timeout_ms: int = Field(
        10_000,
        ge=1_000,
        le=900_000,
        description="Exactly once: when the broker takes back what a dead replica has left open.",
    )
    drain_timeout_s: float = Field(
        20.0,
        gt=0,
        le=600,
        description="Time to finish what was taken at SIGTERM, half of it for what has not begun; then it exits (3).",
    )
    rejection_limit: int | None = Field(
        None,
        ge=1,
        description="Stop (exit 6) after so many rejections in a row, as answers leave, late requests not counted; "
        "never unless set.",
    )


class TelemetrySettings(Section):
    """What an operator sees."""

    http_address: Text = Field("127.0.0.1", description="Address of `/metrics`, `/healthz` and `/readyz`.")
    http_port: int = Field(0, ge=0, le=65_535, description="Their port; 0: any free one, which is logged.")
    log_format: Literal["json", "console"] = Field("json", description="One JSON object per line, or text for people.")
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)] = Field(
        "INFO", description="The least level logged."
    )
    tracing: bool = Field(
        False, description="Spans for requests that carry a sampled `traceparent`, exported as OTEL_* variables say."
    )


class _Sections(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="WORKER_",
        env_nested_delimiter="__",
        env_nested_max_split=1,  # section and key: nothing lies deeper
        frozen=True,
        extra="ignore",  # each name is judged in `loading`, whichever sections are read
        hide_input_in_errors=True,
        defer_build=True,
    )


class Settings(_Sections):
    """All of it. Made by `load`; passed to the composition root, which hands each room its own section."""

    kafka: KafkaSettings
    model: ModelSettings
    batching: BatchingSettings
    delivery: DeliverySettings
    telemetry: TelemetrySettings


class ClientSettings(_Sections):
    """For commands that publish or read. Made by `load_client` from the same variables and file."""

    kafka: ClientKafkaSettings


class KafkaPart(_Sections):
    """A worker's Kafka section alone: `check` looks at the cluster also where the rest is wrong."""

    kafka: KafkaSettings


class DeliveryPart(_Sections):
    """A worker's DELIVERY section alone: `check` shows it also where the rest is wrong."""

    delivery: DeliverySettings


class ScoringSettings(_Sections):
    """For commands that run the model without Kafka. Made by `load_scoring` from the same variables and file."""

    kafka: ScoringKafkaSettings
    model: ModelSettings
    batching: BatchingSettings


SECTIONS: dict[str, type[Section]] = {
    "kafka": KafkaSettings,
    "model": ModelSettings,
    "batching": BatchingSettings,
    "delivery": DeliverySettings,
    "telemetry": TelemetrySettings,
}


def variable(section: str, key: str) -> str:
    """The environment's name for a setting: `WORKER_KAFKA__GROUP_ID`."""
    return f"WORKER_{section}__{key}".upper()


def is_secret(section: str, key: str) -> bool:
    """Whether no message may show its value, and a file may hold it instead of the environment."""
    return "SecretStr" in str(SECTIONS[section].model_fields[key].annotation)
