"""The file `.env` of the folder where a command is called: settings that give way to those of the environment.

Only `WORKER_*` names are taken; the others belong to other programs. `$` means nothing in a value. Where `--config`
names a file, nothing is taken: the folder of a call must not say where that file's login goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from worker.core.failures import BadConfiguration
from worker.settings.names import PREFIX

DOTENV = Path(".env")


class Dotenv(NamedTuple):
    """The variables that it sets, and the names that it would set if no file were named."""

    sets: Mapping[str, str] = {}
    passed_over: tuple[str, ...] = ()


def read_dotenv(environ: Mapping[str, str], config: Path | None, path: Path = DOTENV) -> Dotenv:
    """What it sets and the environment does not. Raises `BadConfiguration` for a line that is no assignment."""
    if config is None:
        return Dotenv(_assignments(environ, path))
    with suppress(BadConfiguration):  # it need not be right
        return Dotenv(passed_over=tuple(_assignments(environ, path)))
    return Dotenv()


def _assignments(environ: Mapping[str, str], path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    from dotenv.parser import parse_stream  # noqa: PLC0415 - few folders have such a file

    try:
        with path.open(encoding="utf-8") as file:
            lines = list(parse_stream(file))
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{path}: cannot be read: {error}") from error
    if wrong := next((line for line in lines if line.error), None):
        raise BadConfiguration(f"{path}, line {wrong.original.line}: is no assignment; write NAME=VALUE")
    return {
        line.key: line.value
        for line in lines
        if line.key
        and line.value
        and line.key.startswith(PREFIX)
        and line.key.isprintable()
        and line.key not in environ
    }
