"""The settings in effect: every name with its value as it may be shown, and a digest of what requesters notice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

from pydantic import SecretStr

from worker.core import secrets
from worker.settings.sections import SECTIONS, Settings, variable
from worker.settings.value_types import PaddedAxis

# The settings that a requester can notice. Speed, load and place are none of them: replicas may differ there.
NOTICED: Mapping[str, set[str]] = {
    "kafka": {
        *("response_topic", "reply_topics", "dead_letter_topic", "changelog_topic"),
        *("max_request_bytes", "default_content_type", "rows_headers", "null_value"),
    },
    "model": {"input_defaults", "non_finite_input", "non_finite_output"},
    "batching": {"timeout_ms", "max_request_rows", "buckets"},
    "delivery": {"guarantee", "order"},
    "state": {"tensors", "initial", "missing", "answer", "steps", "ttl_s"},
}

Value = str | int | float | bool | None | list[str] | dict[str, str]


class Effective(NamedTuple):
    """One setting by its variable's name. `is_default`: it is what it would be unset."""

    name: str
    value: Value
    is_default: bool

    @property
    def text(self) -> str:
        """The value as the environment spells it."""
        match self.value:
            case None:
                return ""
            case bool():
                return str(self.value).lower()
            case list():
                return ",".join(self.value)
            case dict():
                return ", ".join(f"{key}={value}" for key, value in self.value.items())
        return str(self.value)


def effective(settings: Settings) -> Iterator[Effective]:
    """All of them, section by section, secrets masked."""
    for section, cls in SECTIONS.items():
        values = getattr(settings, section)
        for key, field in cls.model_fields.items():
            value = getattr(values, key)
            default = field.get_default(call_default_factory=True, validated_data=dict(values))
            is_default = key not in values.model_fields_set or value == default
            yield Effective(variable(section, key), _shown(value), is_default)


def _shown(value: object) -> Value:
    match value:
        case SecretStr():
            return secrets.MASK
        case tuple():
            return [secrets.masked(str(part)) for part in value]
        case dict():
            # A number is no secret, whatever it is called: `token_type_ids`.
            return {
                key: secrets.MASK if isinstance(held, str) and secrets.NAME.search(key) else _held(held)
                for key, held in value.items()
            }
        case None | bool() | int() | float():
            return value
    return secrets.masked(str(value))


def _held(value: object) -> str:
    """Padded axes as they are set; whatever else a name stands for, as text."""
    if not isinstance(value, tuple):
        return secrets.masked(str(value))
    return json.dumps([axis.model_dump(exclude_defaults=True) for axis in value if isinstance(axis, PaddedAxis)])


def wire_digest(settings: Settings) -> str:
    """The SHA-256 of what a requester can notice, in hexadecimal: replicas of one deployment have one."""
    noticed = {name: getattr(settings, name).model_dump(mode="json", include=keys) for name, keys in NOTICED.items()}
    return sha256(json.dumps(noticed, sort_keys=True).encode()).hexdigest()
