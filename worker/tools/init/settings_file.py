"""The text of a settings file: what most deployments set, and what was set, each with its meaning and what was found.

Pure. A line that is commented out has the value in force, so that it can be changed in its place. No secret goes into
the file: a comment says where it is read instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from worker.core.secrets import MASK
from worker.settings import Settings
from worker.settings.effective import Effective, Value, effective
from worker.settings.names import KNOWN, SECRET_FILES
from worker.settings.sections import SECTIONS

WIDTH = 100  # columns of a comment

# What stands in the file though it has its default.
_OFTEN_SET = {
    "WORKER_KAFKA__SECURITY_PROTOCOL",
    "WORKER_MODEL__DEVICE",
    "WORKER_BATCHING__MAX_BATCH_SIZE",
    "WORKER_BATCHING__LINGER_MS",
    "WORKER_DELIVERY__GUARANTEE",
    "WORKER_TELEMETRY__HTTP_ADDRESS",
    "WORKER_TELEMETRY__HTTP_PORT",
}

_HEAD = """\
Settings of a worker, written by `inference-worker init`. A line that is commented out has its default. A variable of \
the environment wins over a line here: WORKER_KAFKA__GROUP_ID over group_id in [kafka]. Beside a --config no `.env` is \
read. \
`inference-worker check --config FILE --all` shows all settings that are in force, docs/settings.md what they mean."""


def settings_file(settings: Settings, environ: Mapping[str, str], found: Mapping[str, Sequence[str]]) -> str:
    """The file for these settings, which `environ` alone has set. `found`: sentences about settings, by variable."""
    tables: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for setting in effective(settings):
        if _is_shown(setting, found):
            entry = _entry(setting, environ, found.get(setting.name, ()))
            tables[KNOWN[setting.name][0]].append("\n".join(entry))
    parts = [f"[{section}]\n" + "\n\n".join(entries) for section, entries in tables.items() if entries]
    return "\n\n".join([_comment(_HEAD), *parts]) + "\n"


def _is_shown(setting: Effective, found: Mapping[str, Sequence[str]]) -> bool:
    return not setting.is_default or setting.name in _OFTEN_SET or setting.name in found


def _entry(setting: Effective, environ: Mapping[str, str], found: Sequence[str]) -> Iterator[str]:
    section, key = KNOWN[setting.name]
    yield _comment(SECTIONS[section].model_fields[key].description or "")
    yield from (_comment(f"Found: {sentence}.") for sentence in found)
    if _holds_a_secret(setting.value):
        yield _comment(f"{key} holds a secret and is not in this file: set {_places(setting.name)}.")
    else:
        yield f"{'# ' if setting.is_default else ''}{key} = {_toml(setting.value, environ.get(setting.name, '{}'))}"


def _holds_a_secret(value: Value) -> bool:
    return value == MASK or (isinstance(value, dict) and MASK in value.values())


def _places(name: str) -> str:
    return f"{name}, or {name}_FILE" if f"{name}_FILE" in SECRET_FILES else name


def _comment(text: str) -> str:
    return "\n".join(f"# {line}" for line in wrap(text, WIDTH - 2, break_on_hyphens=False, break_long_words=False))


def _toml(value: Value, as_given: str) -> str:
    """An object is written as the environment has it, in JSON: its parts are of more kinds than are shown."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case list():
            return f"[{', '.join(map(_quoted, value))}]"
        case dict():
            return _quoted(as_given)
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """JSON's escapes are TOML's, too; DEL, which JSON takes raw, TOML does not."""
    if '"' in text and "'" not in text and text.isprintable():
        return f"'{text}'"  # as it is: JSON in quotes of its own is hard to read
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
