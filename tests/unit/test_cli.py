"""The command line: its output and its exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from worker import cli
from worker.core import failures
from worker.terminal import command_end


def test_a_sentence_of_the_help_is_not_broken_where_the_code_is() -> None:
    """The docstring of a command's options wraps at the width of the code; the help joins its lines."""
    result = CliRunner().invoke(cli.app, ["dead-letters", "replay", "--help"], env={"COLUMNS": "1000"})

    assert "With one of these options it sends all that they choose, and remembers nothing." in result.stdout


def test_no_text_of_the_help_has_a_bracket() -> None:
    """The help would take `[records]` for a style, and leave the word out."""

    def texts(command: Any) -> Iterator[str]:
        yield from (text for part in (command, *command.params) if (text := getattr(part, "help", None)))
        for inner in getattr(command, "commands", {}).values():
            yield from texts(inner)

    told = list(texts(typer.main.get_command(cli.app)))

    assert len(told) > 100
    assert [text for text in told if "[" in text] == []


def test_ctrl_c_during_the_imports_ends_in_silence() -> None:
    """It ends like any program: no exception comes out of a module that is being imported."""
    command = [sys.executable, "-v", "-m", "worker", "run"]  # reports each import, into a pipe that holds few of them
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("import 'typer'"))
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert process.returncode == -signal.SIGINT
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        (failures.BadConfiguration, 2),
        (failures.DeadlineMissed, 3),
        (failures.KafkaFatal, 4),
        (failures.ModelBroken, 5),
        (failures.TooManyRejections, 6),
    ],
)
def test_each_reason_to_stop_has_its_exit_code(
    stop: type[failures.Stop], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator's restart policy can tell them apart."""

    def act() -> int:
        raise stop("first line\nsecond line")

    with pytest.raises(typer.Exit) as end:
        command_end.end(act)

    assert end.value.exit_code == code
    assert capsys.readouterr().err == "inference-worker: first line\ninference-worker: second line\n"


def test_ctrl_c_that_a_client_loses_ends_as_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints a line. confluent_kafka drops the exception in some callbacks, and Python reports it missing."""

    def act() -> int:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise SystemError("<method 'poll' of 'cimpl.Producer' objects> returned NULL without setting an exception")

    found = signal.signal(signal.SIGINT, signal.SIG_DFL)  # as the process begins
    try:
        with pytest.raises(typer.Exit) as end:
            command_end.end(act)
    finally:
        signal.signal(signal.SIGINT, found)

    assert end.value.exit_code == 130
    assert capsys.readouterr().err == "inference-worker: interrupted\n"


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
def test_a_closed_standard_output_is_no_defect(closed: str) -> None:
    """The output is not wanted then; the exit code still tells that settings are missing."""
    command = f'exec "{sys.executable}" -m worker check --json {closed}'

    found = subprocess.run(["/bin/sh", "-c", command], env={}, capture_output=True, text=True, check=False)  # noqa: S603  # a fixed command

    assert (found.returncode, found.stdout, found.stderr) == (2, "", "")


@pytest.mark.parametrize(
    ("words", "closed", "code"),
    [
        ("--help", "stdout", 0),
        ("consume --help", "stdout", 0),
        ("check", "stdout", 2),
        ("check --json", "stdout", 2),
        ("fly", "stdout stderr", 2),
        ("score absent.onnx absent.npy", "stderr", 2),
    ],
)
def test_an_output_that_nobody_reads_changes_no_exit_code(words: str, closed: str, code: int) -> None:
    """Examples are `--help | head -1`, `check | grep -q` in a script with `pipefail`, and `2>&1 | head -1`."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        out, error = (nobody if stream in closed else subprocess.DEVNULL for stream in ("stdout", "stderr"))
        command = [sys.executable, "-m", "worker", *words.split()]
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(command, stdout=out, stderr=error, env=buffered, check=False)  # noqa: S603 - our own

    assert done.returncode == code


@pytest.mark.parametrize(("words", "code"), [("check --json > /dev/full", 7), ("run 2> /dev/full", 2)])
def test_a_full_disk_is_told_where_it_takes_a_result(words: str, code: int) -> None:
    """A supervisor tells a mistake in the settings from other failures by the code."""
    command = f'exec "{sys.executable}" -m worker {words}'

    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, check=False)  # noqa: S603  # fixed commands

    assert done.returncode == code
    assert (b"No space left on device" in done.stderr) is (code == 7)


@pytest.mark.parametrize(
    "words", [["--model", "m.onnx", "rows.npy"], ["rows.npy", "--model=m.onnx"], ["m.onnx", "rows.npy"]]
)
def test_a_model_is_named_in_one_way_by_every_command(words: list[str]) -> None:
    """`--model` works where MODEL is an argument, too; `score` then takes the argument as the rows."""
    result = CliRunner().invoke(cli.app, ["score", *words])

    assert result.exit_code == 2
    assert "rows.npy: there is no such file" in result.stderr


@pytest.mark.parametrize("words", ["consume", "publish x", "dead-letters list", "profile", "state list"])
def test_every_command_takes_any_setting(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is checked by its name."""
    monkeypatch.setenv("WORKER_BATCHING__LINGR_MS", "4")  # pytest removes it afterwards
    result = CliRunner().invoke(cli.app, [*words.split(), "--set", "BATCHING__LINGR_MS=5"])

    assert result.exit_code == 2
    assert "WORKER_BATCHING__LINGR_MS: no such setting; did you mean WORKER_BATCHING__LINGER_MS?" in result.stderr


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [("raise SystemExit(3)", 3, ""), ("raise KeyError('a defect')", 1, "KeyError: 'a defect'\n")],
)
def test_nothing_of_the_interpreter_s_own_end_runs(ends: str, code: int, said: str) -> None:
    """A thread of a Kafka client may outlive it, and crash; what was printed is flushed, as is a defect's traceback."""
    program = f"""
import atexit, sys, worker.cli, worker.__main__
def act():
    sys.stdout.write("printed")
    {ends}
atexit.register(print, "too late")
worker.cli.main = act
worker.__main__.main()
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603 - our own

    assert (done.returncode, done.stdout) == (code, "printed")
    assert done.stderr.endswith(said)


# The libraries that only some commands need.
HEAVY = ("onnxruntime", "redis", "opentelemetry", "structlog", "pydantic", "numpy", "confluent_kafka", "rich.progress")


@pytest.mark.parametrize(
    ("module", "free_of"),
    [
        ("worker.cli", HEAVY),
        ("worker.tools.publish.command", HEAVY[:4]),
        ("worker.tools.consume.command", HEAVY[:4]),
        ("worker.tools.dead_letters.showing", HEAVY[:4]),
        ("worker.tools.state.commands", HEAVY[:2]),
        ("worker.assembled_model", HEAVY[:3]),
        ("worker.assembly", HEAVY[:3]),
    ],
)
def test_a_command_imports_no_library_that_it_does_not_need(module: str, free_of: tuple[str, ...]) -> None:
    """Each costs a user a tenth of a second or more at every call."""
    ask = f"import sys, {module}; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.split()  # noqa: S603 - our own

    assert not set(loaded) & set(free_of)
