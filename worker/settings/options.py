"""What the command line sets: `--set KEY=VALUE`, each as the variable that it stands for. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from worker.core.failures import BadConfiguration
from worker.settings.names import KNOWN, PREFIX, SECRET_FILES, meant
from worker.settings.sections import is_secret


def as_variables(assignments: Iterable[str]) -> dict[str, str]:
    """`BATCHING__LINGER_MS=5`, or `batching.linger_ms=5` as in the file. Raises `BadConfiguration`, a line for each."""
    variables: dict[str, str] = {}
    problems = []
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        name = PREFIX + key.strip().upper().replace(".", "__").removeprefix(PREFIX)
        if why := _why_not(key, name, has_value=bool(equals)):
            problems.append(f"--set {key}: {why}")
        variables[name] = value
    if problems:
        raise BadConfiguration("\n".join(problems))
    return variables


def _why_not(key: str, name: str, *, has_value: bool) -> str:
    if name not in KNOWN and name not in SECRET_FILES:
        guess = " or ".join(other.removeprefix(PREFIX) for other in meant(name))
        return "no such setting; " + (f"did you mean {guess}?" if guess else "write KEY=VALUE, KEY without WORKER_")
    if name in KNOWN and is_secret(*KNOWN[name]):
        return f"every user of this machine can read a command line; set {name} or {name}_FILE in the environment"
    return "" if has_value else f"has no value; write --set {key}=VALUE"
