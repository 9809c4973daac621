"""The settings of commands that are no worker: some sections alone, or each section that holds by itself.

They come from the variables and the file of a worker. Nothing that `run` reaches imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import ConfigDict, Field

from worker.core.failures import BadConfiguration
from worker.settings.conflicts import bounds_conflicts, connection_conflicts, kafka_conflicts, model_conflicts
from worker.settings.kafka_sections import MAX_JSON_BYTES, MAX_REQUEST_BYTES, Connection, KafkaSettings
from worker.settings.loading import load, load_shape, read_shape, where_settings_stand
from worker.settings.sections import (
    BatchingSettings,
    ModelSettings,
    Sections,
    Settings,
    StateSettings,
)
from worker.settings.value_types import MIB, ContentType, Section, TopicName, TopicNames

_S = TypeVar("_S", bound=Sections)


class ClientKafkaSettings(Connection):
    """For a command that only publishes or reads: the connection, and topics unless the command line names them."""

    model_config = ConfigDict(extra="ignore")  # a worker's other settings may stand beside them

    request_topics: TopicNames | None = None
    response_topic: TopicName | None = None
    dead_letter_topic: TopicName | None = None
    default_content_type: ContentType = "application/json"


class ScoringKafkaSettings(Section):
    """The limits on a request, for a command without Kafka."""

    model_config = ConfigDict(extra="ignore")  # a worker's other settings may stand beside it

    max_request_bytes: int = Field(MIB, ge=1, le=1_000_000_000, description=MAX_REQUEST_BYTES)
    max_json_bytes: int = Field(MIB, ge=1, le=1_000_000_000, description=MAX_JSON_BYTES)


class ClientSettings(Sections):
    """For commands that publish or read. Made by `load_client`."""

    kafka: ClientKafkaSettings


class KafkaPart(Sections):
    """A worker's KAFKA section alone."""

    kafka: KafkaSettings


class ScoringSettings(Sections):
    """For commands that run the model without Kafka. Made by `load_scoring`."""

    kafka: ScoringKafkaSettings
    model: ModelSettings
    state: StateSettings
    batching: BatchingSettings


def load_client(config_path: Path | None, environ: Mapping[str, str]) -> ClientSettings:
    """For a command that only publishes or reads; the rest may be absent. Raises as `load` does."""
    return load_shape(ClientSettings, lambda found: connection_conflicts(found.kafka), config_path, environ)


def load_scoring(config_path: Path | None, environ: Mapping[str, str]) -> ScoringSettings:
    """For a command that runs the model without Kafka; the rest may be absent. Raises as `load` does."""
    return load_shape(ScoringSettings, _scoring_conflicts, config_path, environ)


def _scoring_conflicts(settings: ScoringSettings) -> Iterator[str]:
    yield from chain(bounds_conflicts(settings.batching), model_conflicts(settings.model))


def unset(problem: str, config_path: Path | None) -> BadConfiguration:
    """For a command that cannot do without what `load_client` leaves open."""
    return BadConfiguration("\n".join([problem, *where_settings_stand(config_path)]))


class Parts(NamedTuple):
    """The sections that hold by themselves, of settings that may not hold together; each problem is a line."""

    settings: Settings | None
    kafka: KafkaSettings | None
    scoring: ScoringSettings | None
    problems: tuple[str, ...]


def load_parts(path: Path | None, environ: Mapping[str, str]) -> Parts:
    """For `check`, which reports all that is wrong: the sections that can be used whatever else is missing."""
    try:
        settings = load(path, environ)
        # A changelog's topic is among them, which hangs on more than the KAFKA section.
        return Parts(settings, settings.kafka, _part(ScoringSettings, _scoring_conflicts, path, environ), ())
    except BadConfiguration as refusal:
        problems = tuple(str(refusal).splitlines())
    try:
        kafka = _part(KafkaPart, lambda found: kafka_conflicts(found.kafka), path, environ)
        scoring = _part(ScoringSettings, _scoring_conflicts, path, environ)
        whole = _part(Settings, lambda _: iter(()), path, environ)
    except BadConfiguration:  # the file cannot be read
        return Parts(None, None, None, problems)
    return Parts(whole, None if kafka is None else kafka.kafka, scoring, problems)


def _part(
    shape: type[_S], conflicts_of: Callable[[_S], Iterator[str]], path: Path | None, environ: Mapping[str, str]
) -> _S | None:
    found, _ = read_shape(shape, path, environ)
    return None if found is None or list(conflicts_of(found)) else found
