"""The only reader of the environment: variables and a TOML file in, frozen `Settings` out.

pydantic-settings reads; the environment wins over the file. This module checks names and reports problems. Every
`WORKER_*` name must be known, so that a mistyped one is an error and not a default: `names` says which are not ours,
and what a mistyped one was meant to be. A secret may stand in a file instead: `WORKER_KAFKA__SASL_PASSWORD_FILE` names
it. All problems are found before one exception reports them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, InitSettingsSource, TomlConfigSettingsSource

from worker.core.failures import BadConfiguration
from worker.settings.conflicts import conflicts
from worker.settings.kafka_sections import Connection
from worker.settings.names import KNOWN, PREFIX, SECRET_FILES, is_ours, meant
from worker.settings.sections import SECTIONS, Sections, Settings, is_secret, variable
from worker.settings.value_types import UNSHOWN

_S = TypeVar("_S", bound=Sections)

_SECTIONS_AS_VARIABLES = f"settings are WORKER_<SECTION>__<NAME>, sections {', '.join(SECTIONS).upper()}."
_SECTIONS_AS_TABLES = f"tables are {', '.join(SECTIONS)}."

USUAL_FILE = "worker.toml"  # as `init` calls it
_OTHER_FORMATS = {".yaml": "YAML", ".yml": "YAML", ".json": "JSON", ".env": "variables", ".properties": "properties"}

# Unknown names are reported by `_unknown_names`, which knows where they stand. A default that cannot be made, because
# the value that it is made from is wrong, is no second mistake.
_REPORTED_ELSEWHERE = ("extra_forbidden", "model_type", "default_factory_not_called")


def load(config_path: Path | None, environ: Mapping[str, str]) -> Settings:
    """The settings that the environment and the file (None: no file) make together.

    Raises `BadConfiguration`, each problem a line of its message, without ever showing a secret.
    """
    return load_shape(Settings, conflicts, config_path, environ)


def load_shape(
    shape: type[_S], conflicts_of: Callable[[_S], Iterator[str]], path: Path | None, environ: Mapping[str, str]
) -> _S:
    """The sections of this shape. Raises as `load` does."""
    settings, problems = read_shape(shape, path, environ)
    if settings is None or problems:
        raise BadConfiguration("\n".join(problems))
    if found := list(conflicts_of(settings)):
        raise BadConfiguration("\n".join(found))
    return settings


def read_shape(shape: type[_S], path: Path | None, environ: Mapping[str, str]) -> tuple[_S | None, list[str]]:
    """The settings, unless a value is missing or wrong, and what is wrong with names and values."""
    file = _file(shape, path)
    problems = list(_unknown_names(file, path))
    environment = EnvSettingsSource(shape)
    environment.env_vars = {name.lower(): value for name, value in _variables(environ, problems)}
    # Every section is there, at least empty: what it lacks is then reported key by key.
    sections = InitSettingsSource(shape, {section: {} for section in shape.model_fields})
    try:
        settings = shape(_build_sources=((environment, file, sections), {}))
    except ValidationError as error:
        errors = [e for e in error.errors(include_url=False) if not _is_reported_elsewhere(e)]
        problems += map(_problem, errors)
        if any(_is_unset(e) for e in errors):
            problems += where_settings_stand(path)
        return None, list(dict.fromkeys(problems))
    if isinstance(kafka := getattr(settings, "kafka", None), Connection):
        kafka.read_secrets_from(tuple(Path(environ[name]) for name in SECRET_FILES if environ.get(name)))
    return settings, problems


def where_settings_stand(path: Path | None) -> list[str]:
    """The line that ends what is said of a setting that is missing: where it may stand. None where a file was read."""
    if path is not None:
        return []
    if Path(USUAL_FILE).is_file():
        return [f"{USUAL_FILE}, in this folder, was not read: add --config {USUAL_FILE}"]
    writes = f"`inference-worker init --model model.onnx` writes {USUAL_FILE}"
    return [f"no settings file was read: {writes}, and --config {USUAL_FILE} reads it"]


def _file(shape: type[_S], path: Path | None) -> TomlConfigSettingsSource:
    """pydantic-settings ignores what is no regular file; here that is an error."""
    try:
        if path is not None and not path.is_file():
            writes = f"there is no such file; `inference-worker init --model model.onnx --config {path}` writes it"
            raise FileNotFoundError("it is a folder" if path.is_dir() else writes)
        return TomlConfigSettingsSource(shape, path)
    except UnicodeDecodeError:
        raise BadConfiguration(f"--config {path}: cannot be read: it is no text, and TOML is") from None
    except ValueError as error:
        raise BadConfiguration(f"--config {path}: {_not_toml(path)}: {error}") from None
    except OSError as error:
        raise BadConfiguration(f"--config {path}: cannot be read: {error}") from None


def _not_toml(path: Path | None) -> str:
    """Formats that people expect, by the name of the file, with one line of it as TOML has it."""
    other = None if path is None else _OTHER_FORMATS.get(path.suffix.lower())
    if other is None:
        return "cannot be read: it is not TOML"
    return (
        f"is {other} by its name, and TOML is read: a line [kafka] and below it lines like "
        'bootstrap_servers = "localhost:9092"'
    )


def _unknown_names(file: TomlConfigSettingsSource, path: Path | None) -> Iterator[str]:
    for section, table in file.toml_data.items():
        if section in SECTIONS and not isinstance(table, dict):
            yield f"{section} in {path}: is a table, [{section}], and no value"
            continue
        # A stray value, or an empty table of no section's name, has no key to name.
        is_read = isinstance(table, dict) and (table or section in SECTIONS)
        for setting in [(section, key) for key in table] if is_read else [("", section)]:
            if setting not in KNOWN.values():
                yield _unknown_in_file(setting, path)


def _variables(environ: Mapping[str, str], problems: list[str]) -> Iterator[tuple[str, str]]:
    """The known names with their values. An empty variable counts as not set: `${NAME:-}` in a compose file."""
    ours = {name: value for name, value in environ.items() if is_ours(name, value)}
    for name, value in ours.items():
        if name in KNOWN:
            yield name, value
        elif name not in SECRET_FILES:
            problems.append(_unknown_variable(name))
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
                # What is no path may be the secret itself, in the wrong variable.
                named = value if value.startswith(("/", ".")) else "the file that it names"
                problems.append(f"{name}: cannot read {named}: {reason}")


def _unknown_variable(name: str) -> str:
    guess = meant(name)
    told = f"{name}: no such setting; {_guessed(guess, _SECTIONS_AS_VARIABLES)}"
    if guess and "__" not in name and name == guess[0].replace("__", "_"):
        return f"{told.removesuffix('?')}, with two underscores?"
    if name.upper().startswith("WORKER_KAFKA__"):
        return told + _client_key(guess, "WORKER_KAFKA__CONFIG")
    has_words = "_" in name.removeprefix(PREFIX)  # one word alone may well be another program's
    if "__" in name or (guess and has_words):
        return told
    return f"{told} If other software reads it, empty it for this process: {name}="


def _unknown_in_file(setting: tuple[str, str], path: Path | None) -> str:
    guess = meant(variable(*setting))
    spelled = [".".join(KNOWN[name]) if name in KNOWN else f"the variable {name}" for name in guess]
    name = ".".join(setting).removeprefix(".")
    told = f"{name} in {path}: no such setting; {_guessed(spelled, _SECTIONS_AS_TABLES)}"
    return told + _client_key(guess, "the table kafka.config") if setting[0] == "kafka" else told


def _guessed(names: Sequence[str], otherwise: str) -> str:
    return f"did you mean {' or '.join(names)}?" if names else otherwise


def _client_key(guess: Sequence[str], place: str) -> str:
    """What is no setting of that section may be one of the client's."""
    is_ours = any(name.startswith("WORKER_KAFKA__") for name in guess)
    return "" if is_ours else f" librdkafka's own settings stand in {place}"


def _is_reported_elsewhere(error: ErrorDetails) -> bool:
    return error["type"] in _REPORTED_ELSEWHERE and _is_of_setting(error)


def _is_unset(error: ErrorDetails) -> bool:
    return error["type"] == "missing" and _is_of_setting(error)


def _is_of_setting(error: ErrorDetails) -> bool:
    """As a whole, and of no part of its value."""
    return len(error["loc"]) <= len(("section", "key"))


def _problem(error: ErrorDetails) -> str:
    """One problem of one value: the variable, where in it, what is wrong, and what the setting is for."""
    section, key, *inner = map(str, error["loc"])
    purpose = SECTIONS[section].model_fields[key].description
    where = ": ".join([variable(section, key), *([".".join(inner)] if key == "buckets" and inner else [])])
    if error["type"] == "missing":
        return f"{where}: must be set. {purpose}"
    wrong = error["msg"].removeprefix("Value error, ")
    is_shown = not is_secret(section, key) and key != "config" and error["type"] != UNSHOWN
    got = f", got {error['input']!r}" if is_shown else ""
    return f"{where}: {wrong[0].lower()}{wrong[1:]}{got}. {purpose}"
