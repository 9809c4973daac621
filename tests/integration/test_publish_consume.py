"""`publish` and `consume` on a mock broker: published records are shown, and can be published again."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from worker import cli
from worker.tools.kafka.embedded import EmbeddedBroker

Command = Callable[..., Result]

ENVELOPES = [
    {"key": "k1", "headers": {"content-type": "text/plain", "request-id": "a1"}, "value": "free text"},
    {"key": None, "headers": {"request-id": "a2", "gone": None}, "value": None},
    {"key_base64": "/wA=", "headers": {"request-id": "a3"}, "headers_base64": {"h": "/w=="}, "value_base64": "AP8="},
]


@pytest.fixture
def command() -> Iterator[Command]:
    """Runs a command against a mock broker of this test's own."""
    with EmbeddedBroker() as broker:
        settings = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers}
        broker.create_topic("answers")
        broker.create_topic("copies")
        yield lambda *words: CliRunner().invoke(cli.app, [str(word) for word in words], env=settings)


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def test_what_is_consumed_can_be_published_again(command: Command, tmp_path: Path) -> None:
    """Key, headers and value of any bytes are members of an envelope."""
    place = {"topic", "partition", "offset", "timestamp_ms"}

    assert command("publish", written(tmp_path / "1", *ENVELOPES), "--topic", "answers").exit_code == 0
    first = [
        json.loads(line)
        for line in command("consume", "--topic", "answers", "--from-beginning", "--json").stdout.splitlines()
    ]
    envelopes = [{name: held for name, held in one.items() if name not in place} for one in first]
    assert command("publish", written(tmp_path / "2", *envelopes), "--topic", "copies").exit_code == 0
    second = command("consume", "--topic", "copies", "--from-beginning", "--json").stdout.splitlines()

    by_id = {one["headers"]["request-id"]: one for one in envelopes}
    assert [by_id[f"a{n}"] for n in (1, 2, 3)] == ENVELOPES
    copies = [{name: held for name, held in json.loads(one).items() if name not in place} for one in second]
    assert sorted(map(str, copies)) == sorted(map(str, envelopes))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["publish"], "WORKER_KAFKA__REQUEST_TOPICS: must be set, or name a topic with --topic"),
        (["publish", "--topic", "t"], "Name a FILE (- is standard input), or say --random N"),
        (["consume"], "WORKER_KAFKA__RESPONSE_TOPIC: must be set, or name a topic with --topic"),
        (["dead-letters", "list"], "no settings file was read"),
        (["publish", "f", "--random", "1", "--topic", "t"], "Name a FILE"),
        (["publish", "absent", "--topic", "t"], "absent: cannot be read: No such file or directory"),
        (["publish", "--random", "1", "--topic", "t"], "WORKER_MODEL__PATH: must be set"),
    ],
)
def test_what_cannot_be_begun_is_told_in_one_sentence(command: Command, words: list[str], told: str) -> None:
    """Exit code 2, and nothing is published."""
    done = command(*words)

    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stdout == ""


def test_a_reader_who_has_seen_enough_is_no_failure(tmp_path: Path) -> None:
    """`publish ... | true`: all is published, and the exit code shows no defect."""
    with EmbeddedBroker() as broker, written(tmp_path / "lines", *ENVELOPES).open("rb") as lines:
        broker.create_topic("copies")
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "wb") as nobody:
            words = ["publish", "-", "--topic", "copies", "--bootstrap-servers", broker.bootstrap_servers]
            command = [sys.executable, "-m", "worker", *words]
            done = subprocess.run(command, stdin=lines, stdout=nobody, stderr=subprocess.PIPE, check=False)
        topic = ["consume", "--topic", "copies", "--from-beginning", "--json"]
        seen = CliRunner().invoke(cli.app, [*topic, "--bootstrap-servers", broker.bootstrap_servers])

    assert (done.returncode, done.stderr) == (0, b"")
    assert len(seen.stdout.splitlines()) == len(ENVELOPES)


def test_records_that_get_no_answer_are_not_waited_for(command: Command, tmp_path: Path) -> None:
    """Without a worker, too, the command ends well if `only` passes all of them over."""
    settings = tmp_path / "worker.toml"
    settings.write_text('[kafka]\nresponse_topic = "answers"\n[records]\nonly = { kind = ["payment"] }\n')
    lines = written(tmp_path / "lines", {"kind": "refund"}, {})

    done = command("publish", lines, "--topic", "copies", "--config", settings, "--wait", "--timeout", "20", "--json")

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["answers"] == {"ok": 0, "errors": {}, "missing": 0, "repeated": 0, "passed_over": 2}


def test_all_of_a_file_is_one_record_where_values_are_bytes(command: Command, tmp_path: Path) -> None:
    """A picture has no lines."""
    (tmp_path / "worker.toml").write_text('[records]\nencoding = "bytes"\n')
    (tmp_path / "picture").write_bytes(b" \x89PNG\r\n\x1a\n")

    done = command("publish", tmp_path / "picture", "--topic", "copies", "--config", tmp_path / "worker.toml")
    [shown] = command("consume", "--topic", "copies", "--from-beginning", "--json").stdout.splitlines()

    assert done.exit_code == 0, done.output
    assert base64.b64decode(json.loads(shown)["value_base64"]) == b" \x89PNG\r\n\x1a\n"
