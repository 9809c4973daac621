"""The command line: what it says, and the codes it exits with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from worker import cli
from worker.core import failures
from worker.terminal import command_end, known_commands


def test_version_is_shown() -> None:
    """`--version` prints one line and ends well."""
    result = CliRunner().invoke(cli.app, ["--version"])

    assert result.exit_code == 0
    assert result.stdout.startswith("inference-worker ")


def test_a_sentence_of_the_help_is_not_broken_where_the_code_is() -> None:
    """The docstring of a command's options wraps at the width of the code; its sentences go on."""
    result = CliRunner().invoke(cli.app, ["dead-letters", "replay", "--help"], env={"COLUMNS": "1000"})

    assert "With one of these options it sends all that they choose, and remembers nothing." in result.stdout


def test_ctrl_c_during_the_imports_ends_in_silence() -> None:
    """As any program: no exception comes out of whatever is imported just then."""
    command = [sys.executable, "-v", "-m", "worker", "run"]  # tells each import, into a pipe that holds few of them
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("import 'typer'"))
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert process.returncode == -signal.SIGINT
    assert "Traceback" not in said


def test_an_unknown_command_is_a_usage_error() -> None:
    """Exit code 2, as for any wrong configuration."""
    assert CliRunner().invoke(cli.app, ["fly"]).exit_code == 2


@pytest.mark.parametrize(
    ("word", "meant"), [("serve", "run"), ("benchmark", "bench"), ("dlq", "dead-letters"), ("chekc", "check")]
)
def test_a_command_by_another_name_is_guessed(word: str, meant: str) -> None:
    """What others call it, and what is spelled nearly so."""
    result = CliRunner().invoke(cli.app, [word], env={"COLUMNS": "200"})

    assert result.exit_code == 2
    assert f"No such command '{word}'. Did you mean '{meant}'?" in result.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("profile --rate 100 --model x.onnx", "No such option '--model'. Did you mean 'profile --rate 100 x.onnx'?"),
        ("bench --model=x.onnx", "No such option '--model'. Did you mean 'bench x.onnx'?"),
        ("init x.onnx", "Unexpected 'x.onnx'. Did you mean 'init --model x.onnx'?"),
        ("run worker.toml", "Unexpected 'worker.toml'. Did you mean 'run --config worker.toml'?"),
        ("consume answers", "Unexpected 'answers'. Did you mean 'consume --topic answers'?"),
        ("dead-letters list a b", "Unexpected 'a b'. Did you mean 'dead-letters list --topic a'?"),
        ("demo fast", "Unexpected 'fast'."),
    ],
)
def test_what_a_command_does_not_take_is_told_with_what_it_does(words: str, told: str) -> None:
    """An option for an argument, and a word that lacks its option; the guess is what to type."""
    result = CliRunner().invoke(cli.app, words.split(), env={"COLUMNS": "200"})

    assert result.exit_code == 2
    assert f"│ {told}" in result.output.replace("'root ", "'")


def test_no_guessed_name_is_a_commands_own() -> None:
    """Or that command could not be called; and each guess is one that can be."""
    names = {command.name or command.callback.__name__ for command in cli.app.registered_commands if command.callback}
    names |= {group.name for group in cli.app.registered_groups if group.name}

    assert not names & set(known_commands.MEANT)
    assert set(known_commands.MEANT.values()) <= names


def test_settings_that_do_not_start_are_told_in_plain_lines(tmp_path: Path) -> None:
    """No traceback: each line names what to change."""
    result = CliRunner().invoke(cli.app, ["run", "--config", str(tmp_path / "absent.toml")])

    assert result.exit_code == 2
    assert result.stderr.startswith("inference-worker: --config ")
    assert "Traceback" not in result.stderr


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


def test_a_message_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever of a file, a topic or a model it repeats; its lines stay lines."""

    def act() -> int:
        raise failures.BadConfiguration("header \x1b[31mé\x9b\nsecond")

    with pytest.raises(typer.Exit):
        command_end.end(act)

    assert capsys.readouterr().err == "inference-worker: header \\x1b[31mé\\x9b\ninference-worker: second\n"


def test_ctrl_c_that_a_client_loses_ends_as_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    """With a line. confluent_kafka keeps no exception of some callbacks, and Python misses it: no defect of ours."""

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


def test_a_clean_end_exits_with_what_the_command_says() -> None:
    """0 stays 0."""
    with pytest.raises(typer.Exit) as end:
        command_end.end(lambda: 0)

    assert end.value.exit_code == 0


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
def test_a_closed_standard_output_is_no_defect(closed: str) -> None:
    """What would be written there is not wanted; the exit code is, and here that settings are missing."""
    command = f'exec "{sys.executable}" -m worker check --json {closed}'

    found = subprocess.run(["/bin/sh", "-c", command], env={}, capture_output=True, text=True, check=False)  # noqa: S603  # a fixed command

    assert (found.returncode, found.stdout, found.stderr) == (2, "", "")


def test_a_standard_error_that_nobody_reads_changes_no_exit_code(tmp_path: Path) -> None:
    """As in `2>&1 | head -1`: what would be said there is lost, and nothing else."""
    command = [sys.executable, "-m", "worker", "score", str(tmp_path / "no.onnx"), str(tmp_path / "absent.npy")]
    read, write = os.pipe()
    os.close(read)

    with os.fdopen(write, "wb") as nobody:
        done = subprocess.run(command, stderr=nobody, check=False)  # noqa: S603 - our own

    assert done.returncode == 2


@pytest.mark.parametrize("words", [["run"], ["check"], ["score", "absent.onnx", "absent.npy"]])
def test_a_log_that_a_full_disk_does_not_take_changes_no_exit_code(words: list[str], tmp_path: Path) -> None:
    """By it a supervisor tells a mistake in the settings from all else."""
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "worker", *words]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=full, env=environ, cwd=tmp_path, check=False)  # noqa: S603 - our own

    assert done.returncode == 2


def unread(*words: str, closed: str) -> int:
    """The exit code of a call whose reader has left before it began."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        out, error = (nobody if stream in closed else subprocess.DEVNULL for stream in ("stdout", "stderr"))
        command = [sys.executable, "-m", "worker", *words]
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        return subprocess.run(command, stdout=out, stderr=error, env=buffered, check=False).returncode  # noqa: S603 - our own


@pytest.mark.parametrize("words", ["check", "check --json"])
def test_a_report_that_nobody_reads_keeps_its_exit_code(words: str) -> None:
    """`check | grep -q` in a script with `pipefail`: these settings do not start."""
    assert unread(*words.split(), closed="stdout") == 2


def test_a_report_that_a_full_disk_does_not_take_is_told() -> None:
    """And the exit code is ours, not that of Python's own end."""
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "worker", "check", "--json"]
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environ, check=False)  # noqa: S603 - our own

    assert done.returncode == 7
    assert done.stderr.startswith(b"inference-worker: [Errno 28] No space left on device")


COMMANDS = ("run", "check", "demo", "score", "profile", "bench", "publish", "consume", "dead-letters")


@pytest.mark.parametrize("words", ["--version", "--help", *(f"{command} --help" for command in COMMANDS)])
def test_help_that_nobody_reads_to_its_end_is_no_defect(words: str) -> None:
    """As in `--help | head -1`."""
    assert unread(*words.split(), closed="stdout") == 0


@pytest.mark.parametrize("words", ["fly", "score", "check --fly", "dead-letters show -n 0"])
@pytest.mark.parametrize("closed", ["stderr", "stdout stderr"])
def test_a_usage_error_that_nobody_reads_stays_one(words: str, closed: str) -> None:
    """As in `2>&1 | head -1`."""
    assert unread(*words.split(), closed=closed) == 2
