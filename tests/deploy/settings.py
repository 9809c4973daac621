"""A worker's settings from a deployment's environment, read and checked as at its start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from worker.settings import Settings, load


def interpolated(value: str) -> str:
    """A value of the compose file with no variable set: `${NAME:-default}` is its default."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


def settings_of(environment: Mapping[str, object], files: Path) -> Settings:
    """The settings. Raises `BadConfiguration` where the worker refuses them. `files` replaces the secret's volume."""
    for secret in ("password", "registry-password"):
        (files / secret).write_text("secret\n")
    (files / "ca.crt").write_text("")
    given = {name: interpolated(str(value)) for name, value in environment.items()}
    return load(None, {name: value.replace("/etc/kafka-client", str(files)) for name, value in given.items()})
