"""The list of tools on the command line. A tool's code is imported when the tool is called.

Its options, in its `options.py`, are imported with the command line. So neither this module nor those import much.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer

from worker.terminal.command_options import End, add_command
from worker.tools.dead_letters.options import ListLettersOrder, ReplayOrder, ShowOrder
from worker.tools.demo.options import DemoOrder
from worker.tools.init.options import InitOrder
from worker.tools.options import BenchOrder, ConsumeOrder, ProfileOrder, PublishOrder, ScoreOrder
from worker.tools.records.options import ContractOrder, InferOrder, TryOrder
from worker.tools.state import options as state

_GROUPS = {
    "dead-letters": "Rejected requests: why, each one whole, and sent back once the cause is mended.",
    "records": "Topics of records: a mapping proposed from a sample, and tried on a file.",
    "state": "What the model remembers of each key: shown, saved, forgotten.",
}

# The words to type, the options, and the function that takes them, in the order of `--help`.
_COMMANDS: tuple[tuple[str, type[Any], str], ...] = (
    ("init", InitOrder, "init.command:init"),
    ("records infer", InferOrder, "records.inferring:infer"),
    ("records try", TryOrder, "records.trying:try_records"),
    ("records contract", ContractOrder, "records.contract:contract"),
    ("score", ScoreOrder, "score.command:score"),
    ("dead-letters list", ListLettersOrder, "dead_letters.showing:show_reasons"),
    ("dead-letters show", ShowOrder, "dead_letters.showing:show_letters"),
    ("dead-letters replay", ReplayOrder, "dead_letters.replay:replay"),
    ("state get", state.GetOrder, "state.commands:show_key"),
    ("state list", state.ListStatesOrder, "state.commands:show_keys"),
    ("state export", state.ExportOrder, "state.commands:export"),
    ("state import", state.ImportOrder, "state.commands:bring_in"),
    ("state reset", state.ResetOrder, "state.commands:reset"),
    ("publish", PublishOrder, "publish.command:publish"),
    ("consume", ConsumeOrder, "consume.command:consume"),
    ("demo", DemoOrder, "demo.command:demo"),
    ("profile", ProfileOrder, "profile.command:profile"),
    ("bench", BenchOrder, "bench.command:bench"),
)


def register(app: typer.Typer, end: End) -> None:
    """Put the tools on the command line."""
    groups: dict[str, typer.Typer] = {"": app}
    for words, options, target in _COMMANDS:
        group, _, name = words.rpartition(" ")
        if group not in groups:
            groups[group] = typer.Typer(no_args_is_help=True, help=_GROUPS[group])
            app.add_typer(groups[group], name=group)

        def act(order: Any, target: str = target) -> int:
            module, _, function = target.partition(":")
            code: int = getattr(import_module(f"worker.tools.{module}"), function)(order)
            return code

        add_command(groups[group], name, options, act, end)
