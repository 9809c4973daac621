"""The only reader of the environment: variables and a TOML file in, frozen `Settings` out.

The environment wins over the file. Every `WORKER_*__*` name must be known, so that a mistyped one is an error and not
a default; names without `__` are not ours (Kubernetes injects `WORKER_SERVICE_HOST`). A secret may stand in a file
instead: `WORKER_KAFKA__SASL_PASSWORD_FILE` names it. All problems are found before one exception reports them.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from worker.core.failures import BadConfiguration
from worker.settings.conflicts import conflicts
from worker.settings.sections import SECTIONS, Settings, is_secret, variable

_PREFIX = "WORKER_"
_FILE = "_file"


def load(config_path: Path | None, environ: Mapping[str, str]) -> Settings:
    """The settings that the environment and the file (None: no file) make together.

    Raises `BadConfiguration`, each problem a line of its message, without ever showing a secret.
    """
    given = _Given()
    if config_path is not None:
        given.read_file(config_path)
    given.read_environment(environ)
    settings = given.settings()
    _report(conflicts(settings))
    return settings


def _report(problems: Iterable[str]) -> None:
    found = list(problems)
    if found:
        raise BadConfiguration("\n".join(found))


class _Given:
    """What was given so far, by section and key, and what was wrong with it."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        self._problems: list[str] = []

    def read_file(self, path: Path) -> None:
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadConfiguration(f"--config {path}: cannot be read: {error}") from None
        for section, table in tables.items():
            if not isinstance(table, dict):
                self._unknown(f"{section} in {path}", "", section)
                continue
            for key, value in table.items():
                self._take(f"{section}.{key} in {path}", section, key, value)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        """An empty variable counts as not set: that is what `${NAME:-}` in a compose file leaves."""
        ours = {n: v for n, v in environ.items() if n.startswith(_PREFIX) and "__" in n and v}
        for name, value in ours.items():
            section, _, key = name.lower().removeprefix(_PREFIX.lower()).partition("__")
            if name != name.upper():
                self._unknown(name, section, key)
            elif _is_secret_file(section, key):
                self._read_secret(name, section, key.removesuffix(_FILE), value, ours)
            else:
                self._take(name, section, key, self._decoded(name, value))

    def _take(self, name: str, section: str, key: str, value: Any) -> None:
        if section in SECTIONS and key in SECTIONS[section].model_fields:
            self._values[section][key] = value
        else:
            self._unknown(name, section, key)

    def _unknown(self, name: str, section: str, key: str) -> None:
        self._problems.append(f"{name}: no such setting{_guess(section, key)}")

    def _read_secret(self, name: str, section: str, key: str, path: str, ours: Mapping[str, str]) -> None:
        if variable(section, key) in ours:
            self._problems.append(f"{name}: {variable(section, key)} is set as well; unset one of them")
            return
        try:
            self._values[section][key] = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            self._problems.append(f"{name}: cannot read {path}: {reason}")

    def _decoded(self, name: str, value: str) -> Any:
        if name != variable("kafka", "config"):
            return value
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            # The value may hold a secret: it is not shown, and neither is the parser's excerpt of it.
            self._problems.append(f'{name}: must be a JSON object, for example {{"client.id": "worker-1"}}')
            return {}

    def settings(self) -> Settings:
        """Raises `BadConfiguration` with every problem met so far and those of the values themselves."""
        try:
            settings = Settings.model_validate(self._values)
        except ValidationError as error:
            self._problems += [
                _told(e) for e in error.errors(include_url=False) if e["type"] != "default_factory_not_called"
            ]
            # Not `from error`: its traceback would carry the values.
            raise BadConfiguration("\n".join(dict.fromkeys(self._problems))) from None
        _report(self._problems)
        return settings


def _is_secret_file(section: str, key: str) -> bool:
    secret = key.removesuffix(_FILE)
    is_field = section in SECTIONS and secret in SECTIONS[section].model_fields
    return key.endswith(_FILE) and is_field and is_secret(section, secret)


def _guess(section: str, key: str) -> str:
    """Did they mean another one? Close names only: a wrong guess sends people the wrong way."""
    known = [variable(s, k) for s, cls in SECTIONS.items() for k in cls.model_fields]
    close = difflib.get_close_matches(variable(section, key), known, n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else f"; sections are {', '.join(s.upper() for s in SECTIONS)}"


def _told(error: ErrorDetails) -> str:
    """One problem of one value: the variable, what is wrong, and what it is for."""
    section, key = str(error["loc"][0]), str(error["loc"][1])
    purpose = SECTIONS[section].model_fields[key].description
    if error["type"] == "missing":
        return f"{variable(section, key)}: must be set. {purpose}"
    wrong = error["msg"].removeprefix("Value error, ")
    is_shown = not is_secret(section, key) and key != "config"
    got = f", got {error['input']!r}" if is_shown else ""
    return f"{variable(section, key)}: {wrong[0].lower()}{wrong[1:]}{got}. {purpose}"
