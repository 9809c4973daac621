"""Settings from the command line and from `.env`: which wins, and how each mistake is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_settings import LEAST
from worker.commands.run import RunOrder
from worker.core.failures import BadConfiguration
from worker.settings import load
from worker.settings.dotenv import Dotenv, read_dotenv
from worker.settings.names import as_variables


def test_options_win_over_the_environment_and_the_file(tmp_path: Path) -> None:
    """Each in the place of its own setting; what was not given stays."""
    config = tmp_path / "worker.toml"
    config.write_text('[batching]\nmax_batch_size = 8\nlanes = 2\n[kafka]\nresponse_topic = "file"\n')
    environ = LEAST | {"WORKER_BATCHING__MAX_BATCH_SIZE": "16"}
    order = RunOrder(
        requests="a,b",
        dead_letters="rejected",
        model=Path("/models/another.onnx"),
        assignments=["BATCHING__MAX_BATCH_SIZE=64"],
        config=config,
    )

    settings = load(order.config, order.over(environ))

    assert settings.kafka.request_topics == ("a", "b")
    assert settings.kafka.dead_letter_topic == "rejected"
    assert settings.kafka.response_topic == LEAST["WORKER_KAFKA__RESPONSE_TOPIC"]
    assert settings.model.name == "another"
    assert (settings.batching.max_batch_size, settings.batching.lanes) == (64, 2)


@pytest.mark.parametrize("key", ["BATCHING__LINGER_MS", "WORKER_BATCHING__LINGER_MS", "batching.linger_ms"])
def test_a_key_is_spelled_as_in_the_environment_or_in_the_file(key: str) -> None:
    """A value may hold what separates it from the key."""
    assert as_variables([f"{key}=5=5"]) == {"WORKER_BATCHING__LINGER_MS": "5=5"}


def test_every_assignment_that_is_none_is_told_at_once() -> None:
    """What was meant, where a secret belongs, and what is missing. No value is repeated."""
    name = "WORKER_KAFKA__SASL_PASSWORD"
    why = f"every user of this machine can read a command line; set {name} or {name}_FILE in the environment"

    with pytest.raises(BadConfiguration) as refusal:
        as_variables(["BATCHING__LINGR_MS=5", "FOO=hunter2", "KAFKA__SASL_PASSWORD=hunter2", "BATCHING__LANES"])

    assert str(refusal.value).splitlines() == [
        "--set BATCHING__LINGR_MS: no such setting; did you mean BATCHING__LINGER_MS?",
        "--set FOO: no such setting; write KEY=VALUE, KEY without WORKER_",
        f"--set KAFKA__SASL_PASSWORD: {why}",
        "--set BATCHING__LANES: has no value; write --set BATCHING__LANES=VALUE",
    ]


def test_dotenv_sets_what_the_environment_does_not(tmp_path: Path) -> None:
    """Our names alone, quoted or not, and none that a terminal would obey; an empty variable counts: it was emptied."""
    file = tmp_path / ".env"
    file.write_text(
        "# a comment\nexport WORKER_MODEL__PATH='m $HOME.onnx'\nWORKER_KAFKA__GROUP_ID=file\nMODEL=other\n"
        "WORKER_BATCHING__LANES=2\nWORKER_BATCHING__LINGER_MS=\nWORKER_\x1b[2J=told\n"
    )

    found = read_dotenv({"WORKER_KAFKA__GROUP_ID": "mine", "WORKER_BATCHING__LANES": ""}, None, file)

    assert found == Dotenv({"WORKER_MODEL__PATH": "m $HOME.onnx"})
    assert read_dotenv({}, None, tmp_path / "absent") == Dotenv()


@pytest.mark.parametrize(
    ("content", "passed_over"),
    [("WORKER_KAFKA__GROUP_ID=g\nWORKER_BATCHING__LANES=2\n", ("WORKER_BATCHING__LANES",)), ("'no assignment", ())],
)
def test_a_dotenv_beside_a_file_that_is_named_sets_nothing(
    tmp_path: Path, content: str, passed_over: tuple[str, ...]
) -> None:
    """It could send the file's login to brokers of its own; the names alone are told."""
    (tmp_path / ".env").write_text(content)

    found = read_dotenv({"WORKER_KAFKA__GROUP_ID": "mine"}, tmp_path / "worker.toml", tmp_path / ".env")

    assert found == Dotenv(passed_over=passed_over)


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"WORKER_MODEL__PATH=m\n'no assignment\n", ", line 2: is no assignment"), (b"\xff", ": cannot be read: ")],
)
def test_a_dotenv_that_is_none_is_named(tmp_path: Path, content: bytes, told: str) -> None:
    """With the line; a command does not start on half of it."""
    (tmp_path / ".env").write_bytes(content)

    with pytest.raises(BadConfiguration) as refusal:
        read_dotenv({}, None, tmp_path / ".env")

    assert f"{tmp_path}/.env{told}" in str(refusal.value)


@pytest.mark.parametrize(
    ("command", "file", "said"),
    [
        ("run", None, '"event": "dotenv_read"'),
        ("check", None, "LANES from .env\n"),
        ("run", "worker.toml", '"event": "dotenv_passed_over"'),
        ("check", "worker.toml", "LANES of .env passed over"),
    ],
)
def test_a_dotenv_that_was_read_or_passed_over_is_told(
    tmp_path: Path, command: str, file: str | None, said: str
) -> None:
    """A setting whose place is not known is looked for in vain; beside a file it does not count."""
    (tmp_path / ".env").write_text("WORKER_BATCHING__LANES=61\n")
    (tmp_path / "worker.toml").write_text("[telemetry]\nhttp_port = 1\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WORKER_")}
    words = [sys.executable, "-m", "worker", command, "--requests", "r", "--answers", "a", "--group", "g"]
    words += ["--model", "absent.onnx", "--bootstrap-servers", "127.0.0.1:1", "--set", "TELEMETRY__HTTP_PORT=1"]
    words += ["--set", "BATCHING__MAX_BATCH_BYTES=1024", *([] if file is None else ["--config", file])]
    environ["PYTHONPATH"] = str(Path.cwd())

    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - our own

    assert done.returncode == 2
    assert said in done.stderr
    assert ("61" in done.stdout) is (command == "check" and file is None)
