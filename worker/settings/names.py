"""The names of settings: which variables are ours, and which setting a mistyped name is nearest to. Pure.

Every `WORKER_*` variable is ours, except what a platform injects for a service whose name begins with "worker".
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from worker.core.failures import BadConfiguration
from worker.settings.sections import SECTIONS, is_secret, variable

PREFIX = "WORKER_"
KNOWN = {variable(section, key): (section, key) for section, cls in SECTIONS.items() for key in cls.model_fields}
SECRET_FILES = {f"{name}_FILE": name for name, setting in KNOWN.items() if is_secret(*setting)}

# Tests on a broker of their own set this variable, and the workers that they start inherit it.
_OF_OUR_TESTS = "WORKER_TEST_BOOTSTRAP_SERVERS"

# Variables that Kubernetes makes for a Service (pkg/kubelet/envvars) and Docker for a `--link`, if it is called worker,
# or worker-metrics. Many names end in `_PORT` or `_NAME`, so these two are recognised by their values.
_INJECTED = re.compile(r"WORKER_(?:\w+_)?(?:SERVICE_(?:HOST|PORT(?:_\w+)?)|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?|ENV_\w+)")
_INJECTED_VALUES = {"_PORT": re.compile(r"(?:tcp|udp|sctp)://.+:\d+"), "_NAME": re.compile(r"/[^/]+/[^/]+")}

_NEAR = 0.8  # the least likeness (difflib's ratio): a section left out, or a few letters wrong


def is_ours(name: str, value: str) -> bool:
    """True if a variable of the environment is meant for this worker; an empty one counts as not set.

    A name in lower case is ours only if it is a setting's: scripts have variables in lower case, too.
    """
    if not value or name == _OF_OUR_TESTS:
        return False
    if name.upper() in KNOWN or name in SECRET_FILES:
        return True
    return name.startswith(PREFIX) and not _is_injected(name, value)


def _is_injected(name: str, value: str) -> bool:
    of_value = _INJECTED_VALUES.get(name[name.rindex("_") :])
    return bool((of_value and of_value.fullmatch(value)) or _INJECTED.fullmatch(name))


def nearest(name: str) -> str | None:
    """The variable whose name is nearest to this one, written with dots or underscores; None where none is near."""
    near = difflib.get_close_matches(_variable(name), (*KNOWN, *SECRET_FILES), n=1, cutoff=_NEAR)
    return near[0] if near else None


def as_variables(assignments: Iterable[str]) -> dict[str, str]:
    """The variables that `--set KEY=VALUE` stands for. A key is `BATCHING__LINGER_MS`, or `batching.linger_ms`.

    Raises `BadConfiguration`, with a line for each wrong assignment. `load` reports names that are no setting.
    """
    variables: dict[str, str] = {}
    problems = []
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        name = _variable(key.strip())
        if name in KNOWN and is_secret(*KNOWN[name]):
            where = f"set {name} or {name}_FILE in the environment"
            problems.append(f"--set {key}: every user of this machine can read a command line; {where}")
        elif not equals:
            problems.append(f"--set {key}: has no value; write --set {key}=VALUE")
        variables[name] = value
    if problems:
        raise BadConfiguration("\n".join(problems))
    return variables


def _variable(key: str) -> str:
    return PREFIX + key.upper().replace(".", "__").replace("-", "_").removeprefix(PREFIX)
