"""The settings: what can be set (`sections`), what fits together (`conflicts`), and how it is read (`loading`).

`load` is the only reader of the environment. Rooms import the type of their own section from here and nothing else.
"""

from worker.settings.loading import load
from worker.settings.sections import (
    BatchingSettings,
    DeliverySettings,
    KafkaSettings,
    ModelSettings,
    Settings,
    TelemetrySettings,
)

__all__ = [
    "BatchingSettings",
    "DeliverySettings",
    "KafkaSettings",
    "ModelSettings",
    "Settings",
    "TelemetrySettings",
    "load",
]
