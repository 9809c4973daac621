"""The types of the settings' values: how each is read from the environment or a file, and what it must look like.

Pure. `conflicts.py` checks two values against each other. The sections are in `kafka_sections.py` and `sections.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, LiteralString, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SkipValidation,
    StringConstraints,
    Tag,
)
from pydantic_core import PydanticCustomError

from worker.core.addresses import Url
from worker.core.records import Value

MIB = 1024 * 1024


class PathNamed(NamedTuple):
    """Marks a free table: in its entries a text of this name is a path."""

    name: str


def _split(value: Any) -> Any:
    """Lists are comma-separated in the environment; a TOML file may use its own."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _joined(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def as_object(example: str) -> Callable[[Any], Any]:
    """Make a parser of an object, which is JSON in the environment. It may hold a secret, so no message quotes it."""

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


def _ascending(lengths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(lengths)))


def as_list(value: Any) -> Any:
    """One value is a list of one."""
    return value if isinstance(value, list | tuple) else [value]


def _elements(value: Any) -> Any:
    """Check that there is one value for each input, which all of its elements have."""
    flat = _flat(value)
    if not isinstance(flat, dict) or not all(isinstance(held, bool | int | float | str) for held in flat.values()):
        raise ValueError('must be a JSON object with one value for each input, for example {"attention_mask": 1}')
    return flat


def _without_login(value: str) -> str:
    """Refuse a login: the client takes `user:password@host` for a host's name, and shows it in logs."""
    if "@" in value:
        raise PydanticCustomError(
            UNSHOWN,
            "a broker's address has no login in it; write host:port, and set WORKER_KAFKA__SASL_USERNAME and "
            "WORKER_KAFKA__SASL_PASSWORD",
        )
    return value


def _store(value: str) -> str:
    """Allow a plain address only: the client would take a login, which is shown, and options that weaken TLS."""
    if not _STORE.fullmatch(value):
        raise PydanticCustomError(
            UNSHOWN,
            "is no address; write redis://host:6379/0, or rediss://host:6379/0 for TLS, and no more: a login is "
            "WORKER_STATE__STORE_USERNAME and WORKER_STATE__STORE_PASSWORD",
        )
    return value


def _of_this_host(value: str) -> str:
    """Allow `{hostname}` in a name that replicas share. Other braces are a template that was not filled in."""
    if set("{}") & set(value.replace("{hostname}", "")):
        raise ValueError("{hostname} is all that may stand in braces")
    return value


def _page(value: str) -> str:
    """Refuse a login: addresses are shown, in logs and on the live page."""
    try:
        has_login = Url(value).has_login
    except ValueError:
        has_login = True
    if has_login:
        raise PydanticCustomError(UNSHOWN, "is no address of a web page without a login; write https://host:port/path")
    return value


_STORE = re.compile(r"rediss?://([\w.-]+|\[[\da-fA-F:.]+\])(?::\d{1,5})?(?:/\d*)?", re.ASCII)

# The type of a problem whose value is not shown: it may hold a secret.
UNSHOWN: LiteralString = "unshown"

# Kafka's own rule for topic names. A leading `^` would make librdkafka read the name as a pattern.
TOPIC_NAME = r"^[a-zA-Z0-9._-]{1,249}$"
TopicName = Annotated[str, StringConstraints(pattern=TOPIC_NAME)]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
TopicNames = Annotated[tuple[TopicName, ...], BeforeValidator(_split), Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_split)]
RowCounts = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_split), Field(min_length=2)]
ContentType = Literal["application/json", "application/x-protobuf", "application/octet-stream"]
PassedThrough = Annotated[
    dict[str, str], BeforeValidator(_texts), BeforeValidator(as_object('{"client.id": "worker-1"}'))
]
# Checked by `_elements`; pydantic would report one wrong value once for each type that it might have been.
Elements = Annotated[
    dict[str, SkipValidation[bool | int | float | str]],
    BeforeValidator(_elements),
    BeforeValidator(as_object('{"attention_mask": 1}')),
]
Pairs = Annotated[dict[Text, Text], BeforeValidator(_texts), BeforeValidator(as_object('{"h_in": "h_out"}'))]
NameOfHost = Annotated[Text, AfterValidator(_of_this_host)]
StoreUrl = Annotated[Text, AfterValidator(_store)]
Brokers = Annotated[Text, BeforeValidator(_joined), AfterValidator(_without_login)]
SecurityProtocol = Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], BeforeValidator(_upper)]
SaslMechanism = Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], BeforeValidator(_upper)]
LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{64}$", to_lower=True)]
# A library's path and its digest.
Library = Annotated[str, StringConstraints(pattern=r"^.+@[0-9a-fA-F]{64}$", strip_whitespace=True)]
Libraries = Annotated[tuple[Library, ...], BeforeValidator(_split)]
Page = Annotated[Text, AfterValidator(_page)]
Pages = Annotated[tuple[Page, ...], BeforeValidator(_split)]


class Section(BaseModel):
    """The base of every section: frozen, without unknown names; no error ever prints a value."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False, defer_build=True
    )


class PaddedAxis(Section):
    """One axis of an input that is padded, so that requests of different lengths share a batch."""

    axis: int = Field(ge=1)
    boundaries: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1), AfterValidator(_ascending)]
    pad: Value | None = None
    shared_by: dict[str, Value] = {}


# The two forms are told apart before either is tried, so that a mistake is one line and not two.
Linger = Annotated[
    Annotated[Literal["auto"], Tag("auto")] | Annotated[float, Field(ge=0, le=10_000), Tag("ms")],
    Discriminator(lambda value: "auto" if value == "auto" else "ms"),
]

# Several axes of one input stand in a list. A pad is checked when the model is known.
PaddedAxes = Annotated[
    dict[str, Annotated[tuple[PaddedAxis, ...], BeforeValidator(as_list)]],
    BeforeValidator(as_object('{"input_ids": {"axis": 1, "boundaries": [32]}}')),
]
