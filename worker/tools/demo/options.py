"""The options of `demo`. They are imported with the command line, so this module imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from worker.terminal.command_options import flag


@dataclass(frozen=True, kw_only=True)
class DemoOrder:
    """Classify digits next to a plain loop, kill a worker under load, score payments: on a mock broker."""

    stay: bool = flag("--stay", "Keep a worker and its live page up until Ctrl-C.")
