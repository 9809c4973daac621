"""The options of `run`, `check` and `init`: the settings that nearly every first start needs.

They win over the environment, as that does over the file. Imported with the command line: nothing heavy in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from worker.terminal.command_options import AskedModel, Assignments, Brokers, Config, option

# Each option's setting.
_SETTINGS = {
    "bootstrap_servers": "WORKER_KAFKA__BOOTSTRAP_SERVERS",
    "requests": "WORKER_KAFKA__REQUEST_TOPICS",
    "answers": "WORKER_KAFKA__RESPONSE_TOPIC",
    "dead_letters": "WORKER_KAFKA__DEAD_LETTER_TOPIC",
    "group": "WORKER_KAFKA__GROUP_ID",
    "model": "WORKER_MODEL__PATH",
}


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The options that set a worker's settings."""

    bootstrap_servers: Brokers = None
    requests: str | None = option(None, "Topics to read.", "TOPIC,...")
    answers: str | None = option(None, "The topic for answers.", "TOPIC")
    dead_letters: str | None = option(None, "The topic for the originals of rejected requests.", "TOPIC")
    group: str | None = option(None, "The consumer group.", "GROUP")
    model: AskedModel = None
    assignments: Assignments = None
    config: Config = None

    def over(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment with what was given in the place of its own. Raises `BadConfiguration`."""
        from worker.settings.names import as_variables  # noqa: PLC0415 - pydantic takes its time

        given = {
            setting: str(value) for name, setting in _SETTINGS.items() if (value := getattr(self, name)) is not None
        }
        return {**environ, **as_variables(self.assignments or ()), **given}
