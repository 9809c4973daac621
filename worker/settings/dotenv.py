"""The file `.env` of the folder where a command is called: settings beneath those of the environment.

Taken are `WORKER_*` names alone; what else stands in it belongs to other programs. `$` means nothing in a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from worker.core.failures import BadConfiguration
from worker.settings.names import PREFIX

DOTENV = Path(".env")


def read_dotenv(environ: Mapping[str, str], path: Path = DOTENV) -> dict[str, str]:
    """What it sets and the environment does not. Raises `BadConfiguration` for a line that is no assignment."""
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
        if line.key and line.value and line.key.startswith(PREFIX) and line.key not in environ
    }
