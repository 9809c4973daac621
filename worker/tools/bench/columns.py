"""What is compared: the worker under several settings, beside a loop that answers one by one and one that only copies.

Reads `MAX_BATCH_SIZE=64 LINGER_MS=5` as settings, and rates as numbers or parts of a maximum. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from worker.core.failures import BadConfiguration
from worker.settings import names
from worker.settings.kafka_sections import Connection
from worker.settings.sections import SECTIONS, is_secret, variable

# Topics, group and pages of the workers are the measurement's own; how brokers are reached holds for all processes.
_OWN = {
    variable(section, key)
    for section, keys in {
        "kafka": (
            *(key for key in Connection.model_fields if key != "config"),
            *("request_topics", "response_topic", "dead_letter_topic"),
            *("group_id", "group_instance_id", "auto_offset_reset"),
        ),
        "delivery": ("transactional_id",),
        "telemetry": ("http_address", "http_port"),
    }.items()
    for key in keys
}
_KNOWN = {variable(section, key): key.upper() for section, cls in SECTIONS.items() for key in cls.model_fields}


class ContenderKind(StrEnum):
    """What answers."""

    WORKER = "worker"
    ONE_BY_ONE = "one_by_one"
    PASS_THROUGH = "pass_through"  # noqa: S105 - no password


@dataclass(frozen=True, slots=True)
class Column:
    """One contender. `settings`: what is set for it alone, by the environment's names."""

    name: str
    kind: ContenderKind
    settings: Mapping[str, str] = field(default_factory=dict)


ONE_BY_ONE = Column("one by one", ContenderKind.ONE_BY_ONE)
PASS_THROUGH = Column("pass-through", ContenderKind.PASS_THROUGH)


class Rate(NamedTuple):
    """Requests per second, or a part of the first worker's maximum."""

    number: float
    is_part: bool

    def at(self, maximum: float) -> float:
        """Requests per second, the parts of a maximum to two figures."""
        return float(f"{self.number * maximum:.2g}") if self.is_part else self.number


def columns_of(sets: Sequence[str]) -> tuple[Column, ...]:
    """The workers, one for each text, or the settings as they are; then what they are compared with.

    Raises `BadConfiguration` for what is no setting, or not theirs to choose.
    """
    if len(set(sets)) < len(sets):
        raise BadConfiguration("--set: the same settings stand there twice; name each set once")
    workers = [Column(" ".join(text.split()), ContenderKind.WORKER, settings_of(text)) for text in sets]
    return (*(workers or [Column("worker", ContenderKind.WORKER)]), ONE_BY_ONE, PASS_THROUGH)


def settings_of(text: str) -> dict[str, str]:
    """`NAME=VALUE NAME=VALUE` by the environment's names; a value with spaces stands in quotes."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadConfiguration(f"--set {text}: {str(error).lower()}; close the quotes") from None
    if not words:
        raise BadConfiguration('--set: say what to set, as in --set "MAX_BATCH_SIZE=64 LINGER_MS=5"')
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value:
            raise BadConfiguration(f"--set {word}: a setting is NAME=VALUE, as in MAX_BATCH_SIZE=64")
        found[_variable(name)] = value
    return found


def _variable(name: str) -> str:
    plain = name.upper().removeprefix("WORKER_")
    exact = f"WORKER_{plain}"
    if exact in _KNOWN:
        return _allowed(exact)
    meant = [known for known, key in _KNOWN.items() if key == plain]
    if len(meant) == 1:
        return _allowed(meant[0])
    if meant:
        raise BadConfiguration(f"--set {name}: which one, {' or '.join(m.removeprefix('WORKER_') for m in meant)}?")
    near = names.nearest(exact)
    guess = (
        f"; did you mean {near.removeprefix('WORKER_')}?"
        if near
        else "; `inference-worker check --all` shows all settings"
    )
    raise BadConfiguration(f"--set {name}: no such setting{guess}")


def _allowed(name: str) -> str:
    section, _, key = name.removeprefix("WORKER_").lower().partition("__")
    if name in _OWN or is_secret(section, key):
        raise BadConfiguration(
            f"--set {name}: bench has topics, a group and addresses of its own, and reaches the brokers in one way for "
            "all; leave it out, or set it in the environment"
        )
    return name


def rates_of(text: str) -> tuple[Rate, ...]:
    """`500,3000` or `10%,50%,80%`. Raises `BadConfiguration`."""
    return tuple(_rate(word.strip()) for word in text.split(",") if word.strip())


def _rate(word: str) -> Rate:
    is_part = word.endswith("%")
    try:
        number = float(word.removesuffix("%").replace("_", ""))
    except ValueError:
        number = 0.0
    if not 0 < number < 1e7:
        raise BadConfiguration(f"--rates {word}: requests per second, or a part of the maximum as in 50%, above 0")
    return Rate(number / 100, is_part=True) if is_part else Rate(number, is_part=False)
