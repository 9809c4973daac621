"""The settings in effect: every name with its value as it may be shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import SecretStr

from worker.core import secrets
from worker.settings.sections import SECTIONS, Settings, variable
from worker.settings.value_types import Section

Value = str | int | float | bool | None | list[str] | dict[str, str]


class Effective(NamedTuple):
    """One setting by its variable's name. `is_default`: it was not set."""

    name: str
    value: Value
    is_default: bool

    @property
    def text(self) -> str:
        """The value as the environment spells it."""
        match self.value:
            case list(parts):
                return ",".join(parts)
            case dict(held):
                return ", ".join(f"{key}={value}" for key, value in held.items())
            case bool(truth):
                return str(truth).lower()
        return "" if self.value is None else str(self.value)


def effective(settings: Settings) -> Iterator[Effective]:
    """All settings, section by section, with secrets masked. A section that may be absent is left out if it is."""
    for section, cls in SECTIONS.items():
        values = getattr(settings, section)
        for key in cls.model_fields if values is not None else ():
            is_default = key not in values.model_fields_set
            shown = _shown if section != "records" else _mapping_shown
            yield Effective(variable(section, key), shown(getattr(values, key)), is_default)


def _shown(value: object) -> Value:
    match value:
        case None | bool() | int() | float():
            return value
        case SecretStr():
            return secrets.MASK
        case tuple(parts):
            return [secrets.masked(str(part)) for part in parts]
        case dict(held):
            return {key: _held(key, each) for key, each in held.items()}
    return secrets.masked(str(value))


def _mapping_shown(value: object) -> Value:
    """A value of RECORDS, which has names of fields and no secret, whatever they are called: `token`."""
    if isinstance(value, Section):
        value = value.model_dump(exclude_none=True, mode="json")
    if isinstance(value, dict):
        return {key: each if isinstance(each, str) else json.dumps(each) for key, each in value.items()}
    return None if value is None else str(value)


def _held(key: str, value: object) -> str:
    if isinstance(value, tuple):  # padded axes, as they are set
        return json.dumps([axis.model_dump(exclude_defaults=True) for axis in value])
    # A number is no secret, whatever it is called: `token_type_ids`.
    return secrets.MASK if isinstance(value, str) and secrets.NAME.search(key) else secrets.masked(str(value))
