"""The tools on the command line. What one does is imported when it is called.

The options, in each tool's `options.py`, are imported with the command line: nothing heavy in here or there.
"""

# ruff: noqa: PLC0415 - the import of what a command does stands in its function, so that only that one is imported

from __future__ import annotations

import typer

from worker.terminal.command_end import give_stdout_back
from worker.terminal.command_options import End, add_command
from worker.tools.bench.options import BenchOrder
from worker.tools.consume.options import ConsumeOrder
from worker.tools.dead_letters import options as dead_letters
from worker.tools.demo.options import DemoOrder
from worker.tools.init.options import InitOrder
from worker.tools.profile.options import ProfileOrder
from worker.tools.publish.options import PublishOrder
from worker.tools.score.options import ScoreOrder
from worker.tools.state import options as state


def register(app: typer.Typer, end: End) -> None:
    """Put them on the command line, in the order of `--help`."""
    letters = typer.Typer(
        no_args_is_help=True, help="Rejected requests: why, each one whole, and sent back once the cause is mended."
    )
    states = typer.Typer(no_args_is_help=True, help="What the model remembers of each key: shown, saved, forgotten.")

    add_command(app, "init", InitOrder, _init, end)
    add_command(app, "score", ScoreOrder, _score, end)
    app.add_typer(letters, name="dead-letters")
    add_command(letters, "list", dead_letters.ListLettersOrder, _list_letters, end)
    add_command(letters, "show", dead_letters.ShowOrder, _show_letters, end)
    add_command(letters, "replay", dead_letters.ReplayOrder, _replay, end)
    app.add_typer(states, name="state")
    add_command(states, "get", state.GetOrder, _get_state, end)
    add_command(states, "list", state.ListStatesOrder, _list_states, end)
    add_command(states, "export", state.ExportOrder, _export_states, end)
    add_command(states, "import", state.ImportOrder, _import_states, end)
    add_command(states, "reset", state.ResetOrder, _reset_state, end)
    add_command(app, "publish", PublishOrder, _publish, end)
    add_command(app, "consume", ConsumeOrder, _consume, end)
    add_command(app, "demo", DemoOrder, _demo, end)
    add_command(app, "profile", ProfileOrder, _profile, end)
    add_command(app, "bench", BenchOrder, _bench, end)


def _init(order: InitOrder) -> int:
    from worker.tools.init.command import init

    return init(order)


def _score(order: ScoreOrder) -> int:
    from worker.tools.score.command import score

    return score(order)


def _list_letters(order: dead_letters.ListLettersOrder) -> int:
    from worker.tools.dead_letters.showing import show_reasons

    return show_reasons(order)


def _show_letters(order: dead_letters.ShowOrder) -> int:
    from worker.tools.dead_letters.showing import show_letters

    return show_letters(order)


def _replay(order: dead_letters.ReplayOrder) -> int:
    from worker.tools.dead_letters.replay import replay

    return replay(order)


def _get_state(order: state.GetOrder) -> int:
    from worker.tools.state.commands import show_key

    return show_key(order)


def _list_states(order: state.ListStatesOrder) -> int:
    from worker.tools.state.commands import show_keys

    return show_keys(order)


def _export_states(order: state.ExportOrder) -> int:
    from worker.tools.state.commands import export

    return export(order)


def _import_states(order: state.ImportOrder) -> int:
    from worker.tools.state.commands import bring_in

    return bring_in(order)


def _reset_state(order: state.ResetOrder) -> int:
    from worker.tools.state.commands import reset

    return reset(order)


def _publish(order: PublishOrder) -> int:
    from worker.tools.publish.command import publish

    return publish(order)


def _consume(order: ConsumeOrder) -> int:
    from worker.tools.consume.command import consume

    give_stdout_back()
    return consume(order)


def _demo(order: DemoOrder) -> int:
    from worker.tools.demo.command import demo

    return demo(order)


def _profile(order: ProfileOrder) -> int:
    from worker.tools.profile.command import profile

    return profile(order)


def _bench(order: BenchOrder) -> int:
    from worker.tools.bench.command import bench

    return bench(order)
