"""The text of a settings file: the settings that were set or that most deployments set, each with its meaning.

Pure. A commented-out line has the value in force, so that a user can change it in its place. The file has no secret: a
comment says where the secret is read instead.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from worker.core.secrets import MASK
from worker.settings import Settings
from worker.settings.effective import Effective, effective
from worker.settings.names import KNOWN, SECRET_FILES
from worker.settings.sections import SECTIONS, is_path

WIDTH = 100  # columns of a comment

# Settings that the file shows even with their defaults.
_OFTEN_SET = {
    *("WORKER_KAFKA__SECURITY_PROTOCOL", "WORKER_MODEL__DEVICE", "WORKER_DELIVERY__GUARANTEE"),
    *("WORKER_BATCHING__MAX_BATCH_SIZE", "WORKER_BATCHING__LINGER_MS", "WORKER_BATCHING__BUCKETS"),
    *("WORKER_TELEMETRY__HTTP_ADDRESS", "WORKER_TELEMETRY__HTTP_PORT"),
}

_HEAD = """\
Settings of a worker, written by `inference-worker init`. A line that is commented out has its default. A path is \
relative to this file. A variable of the environment wins over a line here: WORKER_KAFKA__GROUP_ID over group_id in \
[kafka]. `inference-worker check --config FILE --json` has all settings in force, docs/settings.md their meaning."""


def settings_file(settings: Settings, environ: Mapping[str, str], folder: Path) -> str:
    """Returns the file's text. `environ` has all the settings that were set; `folder` is the file's."""
    parts = [comment(_HEAD)]
    shown = [one for one in effective(settings) if not one.is_default or one.name in _OFTEN_SET]
    for section in SECTIONS:
        ours = [one for one in shown if KNOWN[one.name][0] == section]
        # In TOML a table ends the section's own lines, so tables come last.
        for at, one in enumerate(sorted(ours, key=lambda one: isinstance(one.value, dict))):
            entry = "\n".join(_entry(one, environ, folder))
            parts.append(entry if at else f"[{section}]\n{entry}")
    return "\n\n".join(parts) + "\n"


def _entry(setting: Effective, environ: Mapping[str, str], folder: Path) -> Iterator[str]:
    (section, key), value = KNOWN[setting.name], setting.value
    yield comment(SECTIONS[section].model_fields[key].description or "")
    off = "# " if setting.is_default else ""
    if value == MASK or (isinstance(value, dict) and MASK in value.values()):
        also = f", or {setting.name}_FILE" if f"{setting.name}_FILE" in SECRET_FILES else ""
        yield comment(f"{key} holds a secret and is not in this file: set {setting.name}{also}.")
    elif isinstance(value, dict):
        yield off + "\n".join(_table(f"{section}.{key}", json.loads(environ.get(setting.name, "{}"))))
    else:
        yield f"{off}{key} = {toml_value(_path(value, folder) if is_path(section, key) else value)}"


def _path(value: Any, folder: Path) -> Any:
    return os.path.relpath(value, folder) if isinstance(value, str) and not Path(value).is_absolute() else value


def _table(name: str, members: Mapping[str, Any]) -> Iterator[str]:
    """Yields a table's own values, and after them the tables in it."""
    tables = {key: value for key, value in members.items() if isinstance(value, dict)}
    if not members or len(tables) < len(members):
        yield f"[{name}]"
    yield from (f"{toml_key(key)} = {toml_value(value)}" for key, value in members.items() if key not in tables)
    for key, value in tables.items():
        yield from _table(f"{name}.{toml_key(key)}", value)


def toml_value(value: Any) -> str:
    match value:
        case bool() | float():
            return str(value).lower()
        case list():
            return f"[{', '.join(map(toml_value, value))}]"
        case dict():
            return f"{{{', '.join(f'{toml_key(key)} = {toml_value(held)}' for key, held in value.items())}}}"
        case str():
            return _quoted(value)
    return str(value)


def toml_key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _quoted(text)


def _quoted(text: str) -> str:
    """Quotes a text for TOML, whose escapes are JSON's. Only DEL differs: JSON takes it raw, TOML does not."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def comment(text: str) -> str:
    """Writes a text as the lines of a comment."""
    return "\n".join(f"# {line}" for line in wrap(text, WIDTH - 2, break_on_hyphens=False, break_long_words=False))
