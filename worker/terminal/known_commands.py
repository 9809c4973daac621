"""The command that was meant by a name that others have for it; typer itself knows those that are spelled nearly so."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_CALLED = {
    "init": "new setup configure quickstart",
    "run": "serve start up worker",
    "check": "validate verify doctor test lint",
    "score": "predict infer eval",
    "publish": "produce send request",
    "consume": "read tail subscribe answers",
    "bench": "benchmark load loadtest perf",
    "profile": "measure tune",
    "dead-letters": "dlq deadletters letters rejected",
}
MEANT = {other: name for name, others in _CALLED.items() for other in others.split()}


class KnownCommands(TyperGroup):
    """The command line's first word."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer does, and with a guess for what others call our commands."""
        if (name := args[0]) in MEANT:
            ctx.fail(f"No such command '{name}'. Did you mean '{MEANT[name]}'?")
        return super().resolve_command(ctx, args)
