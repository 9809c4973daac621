"""The settings: what can be set (`sections`), what fits together (`conflicts`), and how it is read (`loading`).

`load` and its variants for single sections are the only readers of the environment. Rooms import the type of their own
section from here, and the pattern that topic names must match.
"""

from worker.settings.effective import Effective, effective
from worker.settings.kafka_sections import ClientKafkaSettings, Connection, KafkaSettings
from worker.settings.loading import Parts, load, load_client, load_parts, load_scoring
from worker.settings.sections import (
    BatchingSettings,
    ClientSettings,
    DeliverySettings,
    ModelSettings,
    ScoringSettings,
    Settings,
    TelemetrySettings,
)
from worker.settings.value_types import TOPIC_NAME

__all__ = [
    "TOPIC_NAME",
    "BatchingSettings",
    "ClientKafkaSettings",
    "ClientSettings",
    "Connection",
    "DeliverySettings",
    "Effective",
    "KafkaSettings",
    "ModelSettings",
    "Parts",
    "ScoringSettings",
    "Settings",
    "TelemetrySettings",
    "effective",
    "load",
    "load_client",
    "load_parts",
    "load_scoring",
]
