"""The settings: what can be set (`sections`), what fits together (`conflicts`), and how it is read (`loading`).

`load` and its smaller sisters are the only readers of the environment. Rooms import the type of their own section
from here, the patterns by which others' words are judged as ours are, and nothing else.
"""

from worker.settings.effective import Effective, effective
from worker.settings.loading import Parts, load, load_client, load_parts, load_scoring
from worker.settings.sections import (
    TOPIC_NAME,
    BatchingSettings,
    ClientKafkaSettings,
    ClientSettings,
    Connection,
    DeliverySettings,
    KafkaSettings,
    ModelSettings,
    ScoringSettings,
    Settings,
    TelemetrySettings,
)

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
