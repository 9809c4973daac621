"""The only reader of the environment: variables and a TOML file in, frozen `Settings` out.

pydantic-settings reads, and the environment wins over the file. Every `WORKER_*` name and every name in the file must
be a setting, so that a mistyped one is an error and not a default. A secret may stand in a file:
`WORKER_KAFKA__SASL_PASSWORD_FILE` names it. All problems are found before one exception reports them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, InitSettingsSource

from worker.core.failures import BadConfiguration
from worker.settings.conflicts import conflicts
from worker.settings.kafka_sections import Connection
from worker.settings.names import KNOWN, SECRET_FILES, is_ours, nearest
from worker.settings.sections import OPTIONAL, SECTIONS, Sections, Settings, is_secret, variable
from worker.settings.value_types import UNSHOWN, PathNamed, Section

_S = TypeVar("_S", bound=Sections)
Tables = dict[str, Any]

USUAL_FILE = "worker.toml"  # as `init` calls it

_SECTIONS_AS_VARIABLES = f"settings are WORKER_<SECTION>__<NAME>, sections {', '.join(SECTIONS).upper()}"
_SECTIONS_AS_TABLES = f"tables are {', '.join(SECTIONS)}"


def load(config_path: Path | None, environ: Mapping[str, str]) -> Settings:
    """The settings that the environment and the file (None: no file) make together.

    Raises `BadConfiguration`, each problem a line of its message, without ever showing a secret.
    """
    return load_shape(Settings, conflicts, config_path, environ)


def load_shape(
    shape: type[_S], conflicts_of: Callable[[_S], Iterator[str]], path: Path | None, environ: Mapping[str, str]
) -> _S:
    """Load the sections of this shape. Raises as `load` does; conflicts are reported if names and values are right."""
    tables = _read(path)
    problems = list(_unknown_names(tables, path))
    # Every section is given, even if empty, so that its missing values are reported key by key.
    given: dict[str, Tables] = {section: {} for section in SECTIONS if section not in OPTIONAL or section in tables}
    for section, key in KNOWN.values():
        if isinstance(table := tables.get(section), dict) and key in table:
            given[section][key] = _from_file(SECTIONS[section], key, table[key], path)
    environment = EnvSettingsSource(shape)
    environment.env_vars = {name.lower(): value for name, value in _variables(environ, problems)}
    file = InitSettingsSource(shape, {section: given[section] for section in shape.model_fields if section in given})
    try:
        settings = shape(_build_sources=((environment, file), {}))
    except ValidationError as error:
        errors = [e for e in error.errors(include_url=False) if e["type"] != "default_factory_not_called"]
        problems += map(_problem, errors)
        if any(e["type"] == "missing" and len(e["loc"]) == len(("section", "key")) for e in errors):
            problems += where_settings_stand(path)
        raise BadConfiguration("\n".join(dict.fromkeys(problems))) from None
    if problems or (problems := list(conflicts_of(settings))):
        raise BadConfiguration("\n".join(problems))
    if isinstance(kafka := getattr(settings, "kafka", None), Connection):
        kafka._secret_files = tuple(Path(environ[name]) for name in SECRET_FILES if environ.get(name))  # noqa: SLF001 - pydantic has no other name for it
    return settings


def where_settings_stand(path: Path | None) -> list[str]:
    """The line that follows a missing setting: the file where it may stand. Empty if a file was read."""
    if path is not None:
        return []
    if Path(USUAL_FILE).is_file():
        return [f"{USUAL_FILE}, in this folder, was not read: add --config {USUAL_FILE}"]
    return [f"no settings file was read: `inference-worker init --model model.onnx` writes {USUAL_FILE}"]


def _read(path: Path | None) -> Tables:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is not TOML: {error}"
        raise BadConfiguration(f"--config {path}: cannot be read: {why}") from None


def _from_file(section: type[Section], key: str, value: Any, path: Path | None) -> Any:
    """The value of a setting in the file. A path there is relative to the file, also inside a table."""
    annotation, metadata = section.model_fields[key].annotation, section.model_fields[key].metadata
    if path is None or not value:
        return value
    if isinstance(value, dict) and (named := next((each for each in metadata if isinstance(each, PathNamed)), None)):
        return {name: _with_path(entry, named.name, path) for name, entry in value.items()}
    if isinstance(value, dict) and (inner := _section_in(annotation)) is not None:
        return {
            name: _from_file(inner, name, v, path) if name in inner.model_fields else v for name, v in value.items()
        }
    return str(path.parent / value) if isinstance(value, str) and "Path" in str(annotation) else value


def _with_path(entry: Any, name: str, path: Path) -> Any:
    """An entry of a free table, in which a text of this name is a path."""
    if isinstance(entry, dict) and isinstance(given := entry.get(name), str):
        return {**entry, name: str(path.parent / given)}
    return entry


def _section_in(annotation: Any) -> type[Section] | None:
    """The section of a table that may be left out."""
    return next((each for each in get_args(annotation) if isinstance(each, type) and issubclass(each, Section)), None)


def _unknown_names(tables: Tables, path: Path | None) -> Iterator[str]:
    settings = set(KNOWN.values())
    for section, table in tables.items():
        if not isinstance(table, dict):
            yield f"{section} in {path}: no such table; {_SECTIONS_AS_TABLES}"
            continue
        for key in (key for key in table if (section, key) not in settings):
            meant = KNOWN.get(nearest(f"{section}.{key}") or "")
            told = f"did you mean {'.'.join(meant)}?" if meant else _SECTIONS_AS_TABLES
            passed = ", and librdkafka's own keys stand in [kafka.config]" if section == "kafka" else ""
            yield f"{section}.{key} in {path}: no such setting; {told}{passed}"


def _variables(environ: Mapping[str, str], problems: list[str]) -> Iterator[tuple[str, str]]:
    """The known names with their values. An empty variable counts as not set: `${NAME:-}` in a compose file."""
    ours = {name: value for name, value in environ.items() if is_ours(name, value)}
    for name, value in ours.items():
        if name in KNOWN:
            yield name, value
        elif name not in SECRET_FILES:
            meant = nearest(name)
            told = f"did you mean {meant}?" if meant else _SECTIONS_AS_VARIABLES
            problems.append(f"{name}: no such setting; {told}")
        elif SECRET_FILES[name] in ours:
            problems.append(f"{name}: {SECRET_FILES[name]} is set as well; unset one of them")
        else:
            try:
                secret = Path(value).read_text(encoding="utf-8").rstrip("\r\n")
                if not secret:
                    problems.append(f"{name}: {value} is empty")
                yield SECRET_FILES[name], secret
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                # A value that is no path may be the secret itself, in the wrong variable.
                named = value if value.startswith(("/", ".")) else "the file that it names"
                problems.append(f"{name}: cannot read {named}: {reason}")


def _problem(error: ErrorDetails) -> str:
    """One problem of one value: the variable, where in it, what is wrong, and what the setting is for."""
    section, key, *inner = map(str, error["loc"])
    purpose = SECTIONS[section].model_fields[key].description
    where = ": ".join(
        [variable(section, key), *([".".join(inner)] if inner and (key == "buckets" or section == "records") else [])]
    )
    if error["type"] == "missing":
        return f"{where}: must be set. {purpose}"
    wrong = error["msg"].removeprefix("Value error, ")
    is_shown = not is_secret(section, key) and key != "config" and error["type"] != UNSHOWN
    got = f", got {error['input']!r}" if is_shown else ""
    return f"{where}: {wrong[0].lower()}{wrong[1:]}{got}. {purpose}"
