"""The words on the command line: each names a command of `worker.commands` or `worker.tools`, imported when called.

Owns the exit codes: 0, or that of the `Stop` that ended the command. Decides nothing else. A failure that has a name is
told in plain lines on stderr, and so is what the system or a terminal's text would not do for a command (a full disk, a
name too long); any other is a defect and keeps its traceback.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from worker.core.failures import Incomplete, Stop
from worker.terminal.command_options import AsJson, Config
from worker.terminal.streams import Forgiving, stand_in_for_closed_streams
from worker.tools.bench import options as bench
from worker.tools.consume import options as consume
from worker.tools.demo import options as demo
from worker.tools.profile import options as profile
from worker.tools.publish import options as publish
from worker.version import VERSION

app = typer.Typer(
    no_args_is_help=True,
    # typer's own tracebacks print local variables, and with them whatever secret a frame holds.
    pretty_exceptions_enable=False,
    help="Batched ONNX inference from Kafka request topics to a Kafka response topic, nothing lost.",
    epilog="Exit codes: 0 clean, 1 a defect, 2 configuration, 3 drain or watchdog deadline, 4 Kafka refuses us for "
    "good, 5 model or device, 6 rejection limit, 7 a command did only a part of its work.",
)


def main() -> None:
    """What the process does, once all this is imported."""
    gc.disable()  # what is imported stays; looking through it took 70 ms of a start (measured). `_end` enables it again
    # No plugin stands between a setting and us; to look for some is to read the metadata of every package: 6 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    stand_in_for_closed_streams()
    sys.stdout, sys.stderr = Forgiving(sys.stdout), Forgiving(sys.stderr)
    app()


def _show_version(is_asked: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    if is_asked:
        typer.echo(f"inference-worker {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Takes what stands before the command's name."""


@app.command()
def run(config: Config = None) -> None:
    """Serve requests until SIGTERM. Every setting is WORKER_<SECTION>__<NAME>, or stands in --config."""

    def act() -> int:
        from worker.commands.run import run  # noqa: PLC0415 - see the module's first sentence

        return run(config)

    _end(act, imports_on=True)


@app.command()
def check(
    config: Config = None,
    *,
    as_json: AsJson = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show settings that have their defaults, too.")] = False,
) -> None:
    """Look at settings, model and cluster as a worker does before it joins its group, and tell all that is wrong.

    Exits as a worker's start would.
    """

    def act() -> int:
        from worker.commands.check.command import check  # noqa: PLC0415 - see the module's first sentence

        return check(config, as_json=as_json, show_all=show_all)

    _end(act)


@app.command()
def score(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX model.", show_default=False)],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Rows (.npy; .npz with an array per input), or requests as JSON lines; `-` reads them from a pipe.",
            show_default=False,
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where answers go: .npy for rows, else JSON lines."),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Rows of one inference, instead of WORKER_BATCHING__MAX_BATCH_SIZE.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many rows or lines.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there already.")] = False,
    config: Config = None,
) -> None:
    """Answer a file without Kafka, as a worker would: the same checks, batches and answers, in order."""

    def act() -> int:
        from worker.tools.score.command import score  # noqa: PLC0415 - see the module's first sentence
        from worker.tools.score.jobs import Asked  # noqa: PLC0415 - see the module's first sentence

        return score(config, model, Asked(file, output, limit, may_overwrite=force), batch_size)

    _end(act)


dead_letters = typer.Typer(
    no_args_is_help=True, help="Rejected requests: why, each one whole, and sent back once the cause is mended."
)
app.add_typer(dead_letters, name="dead-letters")

Topic = Annotated[
    str | None, typer.Option("--topic", help="The dead-letter topic, if not the settings'.", metavar="TOPIC")
]
Code = Annotated[str | None, typer.Option("--code", help="Only letters with this error code.", metavar="CODE")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", help="Only letters since: 90s, 15m, 2h, 3d ago, or an ISO 8601 time (UTC).", metavar="TIME"
    ),
]
RequestTopic = Annotated[
    str | None, typer.Option("--request-topic", help="Only requests that came from this topic.", metavar="TOPIC")
]
AsJsonLines = Annotated[bool, typer.Option("--json", help="One JSON object a line, with everything.")]


@dead_letters.command("list")
def list_dead_letters(
    *,
    code: Code = None,
    since: Since = None,
    request_topic: RequestTopic = None,
    topic: Topic = None,
    as_json: AsJsonLines = False,
    config: Config = None,
) -> None:
    """Why requests were rejected: one entry for each reason, with an example."""

    def act() -> int:
        from worker.tools.dead_letters.asking import Asked  # noqa: PLC0415 - see the module's first sentence
        from worker.tools.dead_letters.listing import show_reasons  # noqa: PLC0415 - the same

        return show_reasons(Asked(config, topic, code, since, request_topic), as_json=as_json)

    _end(act)


@dead_letters.command("show")
def show_dead_letters(  # noqa: PLR0913 - typer wants a parameter for each option
    place: Annotated[
        str | None, typer.Argument(help="topic/partition/offset of the letter, or of its request.", metavar="[PLACE]")
    ] = None,
    *,
    most: Annotated[
        int | None,
        typer.Option(
            "-n", help="The newest so many, unless PLACE is a letter's; else one.", min=1, max=1000, metavar="N"
        ),
    ] = None,
    code: Code = None,
    since: Since = None,
    request_topic: RequestTopic = None,
    topic: Topic = None,
    as_json: AsJsonLines = False,
    config: Config = None,
) -> None:
    """Show dead letters whole: where each came from, why, headers, key and value."""

    def act() -> int:
        from worker.tools.dead_letters.asking import Asked  # noqa: PLC0415 - see the module's first sentence
        from worker.tools.dead_letters.showing import show_letters  # noqa: PLC0415 - the same

        return show_letters(Asked(config, topic, code, since, request_topic), place, most, as_json=as_json)

    _end(act)


@dead_letters.command(
    "replay",
    help="Send rejected requests back to the topics they came from, as they were, but without their timeouts.\n\n"
    "Each dead letter goes once for each --group, whatever options select it and whatever is killed meanwhile; those "
    "that the options leave out, or whose topic is missing, wait for a later replay. A request that is rejected again "
    "gets a new letter, which the next replay sends too: mend the cause first.",
)
def replay_dead_letters(  # noqa: PLR0913 - typer wants a parameter for each option
    *,
    code: Code = None,
    since: Since = None,
    request_topic: RequestTopic = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Send at most so many.", min=1, metavar="N")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Send at most so many a second.", min=0.1, metavar="R")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Send all to this topic, not where they came from.", metavar="TOPIC")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be sent, and touch nothing.")] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            help="Consumer group that remembers what was sent, for about a hundred different filters at once; else the "
            "dead-letter topic's name and -replay.",
            metavar="GROUP",
        ),
    ] = None,
    topic: Topic = None,
    as_json: AsJsonLines = False,
    config: Config = None,
) -> None:
    """What `help` above says."""

    def act() -> int:
        from worker.tools.dead_letters.asking import Asked  # noqa: PLC0415 - see the module's first sentence
        from worker.tools.dead_letters.replay import Pace  # noqa: PLC0415 - the same
        from worker.tools.dead_letters.replaying import How, replay  # noqa: PLC0415 - the same

        asked = Asked(config, topic, code, since, request_topic)
        return replay(asked, How(group, to, Pace(limit, rate), dry_run), as_json=as_json)

    _end(act)


@contextmanager
def _unwinding() -> Iterator[None]:
    """From here on Ctrl-C unwinds, unless `__main__` was told otherwise.

    Also where a callback of a Kafka client is interrupted: the client loses the exception and says that it has one.
    """
    interrupts: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> NoReturn:
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except SystemError:
        if not interrupts:
            raise
        raise KeyboardInterrupt from None


def _end(act: Callable[[], int], *, imports_on: bool = False) -> NoReturn:
    """Call it and exit as it says. `imports_on`: it goes on importing, and sees to gc and Ctrl-C itself."""
    if not imports_on:
        gc.enable()
    try:
        with nullcontext() if imports_on else _unwinding():
            code = act()
            sys.stdout.flush()  # what a full disk does not take is said below
    except Stop as stop:
        from worker.terminal.terminal import printable, tell  # noqa: PLC0415 - see the module's first sentence

        for line in str(stop).splitlines():
            tell(printable(line))
        raise typer.Exit(stop.exit_code) from None
    except BrokenPipeError:
        from worker.terminal.terminal import forgo  # noqa: PLC0415 - see the module's first sentence

        forgo(sys.stdout)  # its reader has enough
        raise typer.Exit(0) from None
    except (OSError, UnicodeError) as error:
        if imports_on:  # a worker's own affair, which is to be looked into
            raise
        from worker.terminal.terminal import tell  # noqa: PLC0415 - see the module's first sentence

        tell(str(error))
        _forgo_what_is_left()
        raise typer.Exit(Incomplete.exit_code) from None
    raise typer.Exit(code)


def _forgo_what_is_left() -> None:
    """Python would try once more to write it, and end with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        from worker.terminal.terminal import forgo  # noqa: PLC0415 - see the module's first sentence

        forgo(sys.stdout)


publish.register(app, _end)
consume.register(app, _end)
demo.register(app, _end)
profile.register(app, _end)
bench.register(app, _end)
