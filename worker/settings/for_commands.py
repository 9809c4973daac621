"""The settings of commands that are no worker: these read only some sections.

They come from the variables and the file of a worker. Nothing that `run` reaches imports this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from worker.core.failures import BadConfiguration
from worker.settings.conflicts import bounds_conflicts, connection_conflicts, registry_conflicts
from worker.settings.kafka_sections import MAX_JSON_BYTES, MAX_REQUEST_BYTES, Connection
from worker.settings.loading import load_shape, where_settings_stand
from worker.settings.records_section import RecordsSettings
from worker.settings.registry_section import RegistrySettings
from worker.settings.sections import BatchingSettings, ModelSettings, Sections, StateSettings
from worker.settings.value_types import MIB, ContentType, Section, TopicName, TopicNames


class ClientKafkaSettings(Connection):
    """The KAFKA section of a command that only publishes or reads. The command line may name the topics instead."""

    model_config = ConfigDict(extra="ignore")  # a worker's other settings may stand next to them

    request_topics: TopicNames | None = None
    response_topic: TopicName | None = None
    dead_letter_topic: TopicName | None = None
    default_content_type: ContentType = "application/json"
    null_value: Literal["reject", "skip"] = "reject"


class ScoringKafkaSettings(Section):
    """The limits on a request, for a command without Kafka."""

    model_config = ConfigDict(extra="ignore")  # a worker's other settings may stand next to them

    max_request_bytes: int = Field(MIB, ge=1, le=1_000_000_000, description=MAX_REQUEST_BYTES)
    max_json_bytes: int = Field(MIB, ge=1, le=1_000_000_000, description=MAX_JSON_BYTES)
    null_value: Literal["reject", "skip"] = Field("reject", description="Envelopes of records that hold null.")


class ClientSettings(Sections):
    """The settings of commands that publish or read. `load_client` makes them."""

    kafka: ClientKafkaSettings
    records: RecordsSettings | None = None
    registry: RegistrySettings | None = None


class ScoringSettings(Sections):
    """The settings of commands that run the model without Kafka. `load_scoring` makes them."""

    kafka: ScoringKafkaSettings
    model: ModelSettings
    state: StateSettings
    batching: BatchingSettings
    records: RecordsSettings | None = None


def load_client(config_path: Path | None, environ: Mapping[str, str]) -> ClientSettings:
    """Load the settings of a command that only publishes or reads; others may be absent. Raises as `load` does."""
    return load_shape(ClientSettings, _client_conflicts, config_path, environ)


def load_scoring(config_path: Path | None, environ: Mapping[str, str]) -> ScoringSettings:
    """Load the settings of a command that runs the model without Kafka; others may be absent. Raises as `load` does."""
    return load_shape(ScoringSettings, lambda found: bounds_conflicts(found.batching), config_path, environ)


def _client_conflicts(settings: ClientSettings) -> Iterator[str]:
    yield from connection_conflicts(settings.kafka)
    if settings.registry is not None:
        yield from registry_conflicts(settings.registry, settings.kafka)


def unset(problem: str, config_path: Path | None) -> BadConfiguration:
    """The refusal of a command that lacks a setting which `load_client` lets be absent."""
    return BadConfiguration("\n".join([problem, *where_settings_stand(config_path)]))
