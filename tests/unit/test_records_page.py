"""The page of records, executed: its settings are taken, its records answered, its table of entries understood."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.payments import payments
from tests.readme import ROOT, blocks_of
from tests.records_models import fraud
from worker.assembled_records import record_mapping
from worker.codecs.records.answer_fields import AnswerField
from worker.codecs.records.answer_schemas import answer_schema
from worker.codecs.records.sources import entry_of
from worker.core.schemas import RegisteredSchema
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.settings import Settings, load
from worker.tools.demo.payments import MODEL, PAYMENTS, RECORDS
from worker.tools.records.options import TryOrder
from worker.tools.records.trying import try_records

PAGE = ROOT / "docs" / "records.md"
BLOCKS = {
    block.name: block.text
    for block in blocks_of([ROOT / "docs" / name for name in ("records.md", "models.md", "tools.md")])
}
NEEDED = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "payments",
    "WORKER_KAFKA__RESPONSE_TOPIC": "scores",
    "WORKER_KAFKA__GROUP_ID": "scorers",
    "WORKER_MODEL__PATH": str(MODEL),
}
ALONE = ["records-mapping", "records-parts", "records-registry", "records-answer-entries", "records-best-classes"]
WHOLE = ["records-fraud", "records-documents", "records-pictures"]


def settings_of(name: str, folder: Path) -> Settings:
    """The settings of a block."""
    (folder / "worker.toml").write_text(BLOCKS[name])
    return load(folder / "worker.toml", NEEDED)


def answered(folder: Path, settings: str, records: list[Any], capfd: pytest.CaptureFixture[str]) -> list[Any]:
    """The answers that `records try` gives with these settings and the demonstration's model."""
    (folder / "worker.toml").write_text(settings)
    (folder / "records.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    assert try_records(TryOrder(file=folder / "records.jsonl", config=folder / "worker.toml")) == 0
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    "name", [*ALONE, *WHOLE, "records-functions-named", "texts-and-more", "pictures", "infer-section"]
)
def test_the_settings_of_the_page_are_taken(name: str, tmp_path: Path) -> None:
    """They mean records. A whole example has 15 lines at most."""
    settings = settings_of(name, tmp_path)

    assert settings.records is not None
    assert name not in WHOLE or len([line for line in BLOCKS[name].splitlines() if line]) <= 15


def test_the_page_s_payment_gets_the_page_s_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The page's settings are the demonstration's, and so is its payment."""
    monkeypatch.setenv("WORKER_MODEL__PATH", str(MODEL))
    payment = json.loads(BLOCKS["records-payment"])

    found = answered(tmp_path, BLOCKS["records-mapping"], [payment], capfd)

    assert found == [json.loads(BLOCKS["records-payment-answer"])]
    assert tomllib.loads(BLOCKS["records-mapping"]) == tomllib.loads(RECORDS)
    assert payment in PAYMENTS


def test_the_answer_has_the_page_s_fields_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Kept fields come first."""
    monkeypatch.setenv("WORKER_MODEL__PATH", str(MODEL))
    inputs = BLOCKS["records-mapping"].partition("[records.answer]")[0]

    (found,) = answered(tmp_path, inputs + BLOCKS["records-answer-entries"], [{**PAYMENTS[1], "payment_id": 17}], capfd)

    shown = json.loads(BLOCKS["records-answer-value"])
    assert [*found] == [*shown]
    assert (found["payment_id"], found["label"]) == (shown["payment_id"], shown["label"])


def test_the_fraud_example_answers_payments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Some of their fields are missing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fraud.onnx").write_bytes(fraud(trees=2, trained_on=500))
    made = payments(20)

    found = answered(tmp_path, BLOCKS["records-fraud"], made, capfd)

    assert [each["payment_id"] for each in found] == [each["payment_id"] for each in made]
    assert {each["label"] for each in found} <= {"ok", "fraud"}


def test_every_entry_of_the_table_is_understood() -> None:
    """Each is an entry of `[records.inputs]` as TOML has it."""
    (table,) = re.findall(r"\| entry \| feeds.*?\n\n", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    first = [re.match(r"\| (.+?) \|", line) for line in table.splitlines()[2:]]
    entries = [text for cell in first if cell for text in re.findall(r"`([^`]+)`", cell[1])]

    understood = [entry_of(text, tomllib.loads(f"input = {text}")["input"]) for text in entries]

    assert len(understood) == 18


def test_the_parts_of_a_record_are_found(tmp_path: Path) -> None:
    """Envelope, kinds, rows and key go together."""
    signature = Signature("m", "1", (TensorSpec("price", "FP32", ()),), (TensorSpec("score", "FP32", ()),))
    payment = {"type": "payment", "payment_id": 3, "items": [{"price": 1.0}, {"price": 2.0}]}
    mapping = record_mapping(settings_of("records-parts", tmp_path), signature)
    assert mapping is not None

    mapped = mapping.read(
        [json.dumps({"payload": {"after": each}}).encode() for each in (payment, {"type": "refund"})], []
    )

    assert (mapped.rows, mapped.keys, mapped.passed_over, mapped.faults) == ([2], [b"3"], [1], {})


def test_the_schema_of_answers_is_the_page_s() -> None:
    """For records in Avro of which a field is kept."""
    text = '{"type": "record", "name": "shop.Payment", "fields": [{"name": "payment_id", "type": "string"}]}'
    record = RegisteredSchema(1, None, "AVRO", text)

    made = answer_schema(record, [AnswerField("score", "FP32")], {"payment_id": ("payment_id",)})

    assert json.loads(made.text) == json.loads(BLOCKS["records-answer-schema"])
