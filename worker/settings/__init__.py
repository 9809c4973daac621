"""The settings: what can be set (`sections`), what fits together (`conflicts`), and how it is read (`loading`).

`load` and its variants in `for_commands` are the only readers of the environment. Rooms import the type of their own
section from here, and the pattern that topic names must match.
"""

from worker.settings.kafka_sections import Connection, KafkaSettings
from worker.settings.loading import load
from worker.settings.records_section import RecordsSettings
from worker.settings.registry_section import RegistrySettings
from worker.settings.sections import (
    BatchingSettings,
    DeliverySettings,
    ModelSettings,
    Settings,
    StateSettings,
    TelemetrySettings,
)
from worker.settings.value_types import TOPIC_NAME

__all__ = [
    "TOPIC_NAME",
    "BatchingSettings",
    "Connection",
    "DeliverySettings",
    "KafkaSettings",
    "ModelSettings",
    "RecordsSettings",
    "RegistrySettings",
    "Settings",
    "StateSettings",
    "TelemetrySettings",
    "load",
]
