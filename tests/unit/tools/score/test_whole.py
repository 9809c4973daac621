"""`score --whole` and `records try --whole` answer lines that `consume --json` and `dead-letters show --json` print."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.models import mlp, model, save
from tests.unit.registry.scripted import PAYMENT, ScriptedRegistry, schema_page
from worker.codecs.dead_letters import DeadLetters, read
from worker.codecs.records.framing import SCHEMA_HEADER, frame
from worker.core.failures import BadConfiguration, Code, Incomplete
from worker.core.records import Partition, Record, Rejection, ReplyForm
from worker.registry import registry as registries
from worker.tools.consume.shown import json_of
from worker.tools.dead_letters.showing import as_document
from worker.tools.options import ScoreOrder
from worker.tools.records.options import TryOrder
from worker.tools.records.trying import try_records
from worker.tools.score.command import score

DOUBLE = model(
    "float[batch, 1] amount, string[batch, 1] name => float[batch, 1] double, string[batch, 1] same",
    "double = Add(amount, amount)\nsame = Identity(name)",
)
AROUND = """
[model]
path = "model.onnx"
[records.inputs]
name = "$headers.name"
amount = "$timestamp"
[records.answer]
same = "same"
double = "double"
"""
FRAMED = """
[model]
path = "model.onnx"
[kafka]
bootstrap_servers = "localhost:9092"
allow_plaintext = true
[records]
encoding = "registry"
[records.inputs]
name = "$topic"
[records.answer]
double = "double"
same = "same"
"""
REGISTRY = '[registry]\nurl = "http://localhost:8081"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the model, in which the commands run."""
    monkeypatch.setenv("WORKER_MODEL__DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    save(DOUBLE, tmp_path)
    return tmp_path


def tried(capfd: pytest.CaptureFixture[str], settings: str, *lines: Any) -> tuple[list[Any], int]:
    """The answers to these lines under these settings, and the exit code."""
    Path("worker.toml").write_text(settings)
    Path("whole.jsonl").write_text(
        "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    )
    capfd.readouterr()
    try:
        code = try_records(TryOrder(file=Path("whole.jsonl"), whole=True, config=Path("worker.toml")))
    except Incomplete as incomplete:
        code = incomplete.exit_code
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()], code


def kept(value: bytes | None, *headers: tuple[str, bytes | None], topic: str = "payments") -> Record:
    return Record(Partition(topic, 3), 17, b"key", value, headers, 64)


@pytest.mark.usefixtures("folder")
def test_a_dead_letter_is_tried_as_the_record_that_it_holds(capfd: pytest.CaptureFixture[str]) -> None:
    """It has the record's headers again, and the topic that the record came from."""
    settings = AROUND.replace('"$headers.name"', '"$topic"').replace('"$timestamp"', '"amount"')
    rejection = Rejection(kept(b'{"amount": "1"}'), Code.INVALID_ARGUMENT, "amount: a text", ReplyForm(""))
    topic, key, value, headers, *_ = DeadLetters("rejected", "g", 10_000).letter(rejection)
    letter = read(Record(Partition(topic, 0), 5, key, value, headers, 70))

    answers, code = tried(capfd, settings, as_document(letter), as_document(letter) | {"value": '{"amount": 1}'})

    assert answers == [
        {"error": "amount: expected a number, got a text", "code": "INVALID_ARGUMENT", "line": 1},
        {"same": "payments", "double": 2.0},
    ]
    assert code == 7


@pytest.mark.usefixtures("folder")
def test_a_consumed_record_is_tried_with_what_is_around_it(capfd: pytest.CaptureFixture[str]) -> None:
    """Its value may be of any bytes, or shown as JSON."""
    named = kept(b'{"n": 1}', ("name", b"Ann"))
    lines = [json_of(named, {}).decode(), json_of(named, {"record": b'{"n": 1}'}).decode()]

    answers, code = tried(capfd, AROUND, *map(str.strip, lines))

    assert answers == [{"same": "Ann", "double": 128.0}] * 2
    assert code == 0


@pytest.mark.usefixtures("folder")
def test_a_null_that_a_worker_skips_has_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    """Else it is an error."""
    skips = f'{AROUND}[kafka]\nnull_value = "skip"\n'

    assert tried(capfd, skips, {"value": None}) == ([], 0)
    ([error], code) = tried(capfd, AROUND, {"value": None})
    assert (error["error"], code) == ("expected a record, got a null value", 7)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "whole.jsonl, line 2: not JSON: .*; `consume --json` and .* write such lines"),
        ('{"amount": 1}', "line 2: a whole record is an object with `value`.*; without --whole a line is a value"),
        ('{"value": null, "omitted": {"value": "9 bytes"}}', "line 2: the dead letter lacks the record's value"),
    ],
)
def test_a_line_that_is_no_whole_record_ends_the_command(
    capfd: pytest.CaptureFixture[str], line: str, told: str
) -> None:
    """The option was a mistake, or a letter does not hold its record."""
    with pytest.raises(BadConfiguration, match=told):
        tried(capfd, AROUND, {"value": "{}"}, line)


def test_a_whole_request_is_answered_in_json(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file without a mapping has requests, in the encodings that their headers say."""
    save(mlp(), folder)
    request = kept(bytes(4 * 64), ("content-type", b"application/octet-stream"), ("Accept", b"application/protobuf"))
    (folder / "whole.jsonl").write_bytes(json_of(request, {}))

    assert score(ScoreOrder(model=folder / "model.onnx", file=folder / "whole.jsonl", whole=True)) == 0
    assert json.loads(capfd.readouterr().out)["outputs"]


def test_rows_are_no_whole_records(folder: Path) -> None:
    """Only lines of JSON are."""
    (folder / "rows.npy").write_bytes(b"")

    with pytest.raises(BadConfiguration, match=r"--whole: rows\.npy has no lines of JSON"):
        ScoreOrder(model=Path("model.onnx"), file=Path("rows.npy"), whole=True).check()


def avro(amount: float) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(body, json.loads(PAYMENT), {"amount": amount})
    return body.getvalue()


@pytest.mark.usefixtures("folder")
def test_records_with_a_schema_are_read_as_the_registry_says(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that `consume` has shown as JSON are read, too, also between others."""
    script = ScriptedRegistry({"/schemas/ids/7": schema_page()})
    monkeypatch.setattr(registries, "RegistryClient", lambda _: script.client())
    framed = frame(7) + avro(1.5)
    by_header = kept(avro(2.5), (SCHEMA_HEADER, frame(7)))
    records = [kept(framed), kept(b'{"amount": 2}'), by_header, kept(b"junk"), kept(framed[:-1])]

    answers, code = tried(capfd, FRAMED + REGISTRY, *[json_of(one, {}).decode().strip() for one in records])

    assert [answer.get("double") for answer in answers] == [3.0, 4.0, 5.0, None, None]
    assert answers[0]["same"] == "payments"
    assert answers[3]["error"].startswith("the value: expected the frame of a schema registry")
    assert [answer.get("code") for answer in answers[3:]] == ["INVALID_ARGUMENT"] * 2
    assert code == 7


@pytest.mark.usefixtures("folder")
def test_without_a_registry_none_of_them_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    """The setting is named."""
    with pytest.raises(BadConfiguration, match="WORKER_REGISTRY__URL: must be set"):
        tried(capfd, FRAMED, {"value_base64": "AAAAAAc="})
