"""The AsyncAPI document of a topic of records agrees with the records that a worker takes and the answers it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from tests.bert import folder, random_weights, word_tokenizer
from tests.contract.exchanges import EXAMPLES, text_of
from tests.contract.test_asyncapi import asyncapi_schema  # noqa: F401  # a fixture
from tests.models import running_mean, save
from tests.unit.codecs.records.builders import mapping, record, record_codec, spec
from worker.assembled_records import record_mapping
from worker.codecs.codec import Codec
from worker.core.chunk import Prediction
from worker.core.records import Fields
from worker.inference.served_model import load_served
from worker.settings.for_commands import load_scoring
from worker.tools.demo.payments import MODEL, PAYMENTS, RECORDS, WRONG
from worker.tools.records.contract import around, contract
from worker.tools.records.options import ContractOrder

GOLDEN = json.loads((EXAMPLES / "payments.asyncapi.json").read_text(encoding="utf-8"))
MESSAGES = GOLDEN["components"]["messages"]
TOPICS = """\
[kafka]
bootstrap_servers = "localhost:9092"
request_topics = ["payments"]
response_topic = "scores"
dead_letter_topic = "rejected"
group_id = "scorers"
"""


def encoder(at: Path) -> Path:
    """A sentence encoder's folder."""
    return folder(at / "encoder", random_weights(), 4, word_tokenizer())


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of the demonstration's payments, and its topics."""
    monkeypatch.setenv("WORKER_MODEL__PATH", str(MODEL))
    path = tmp_path / "payments.toml"
    path.write_text(TOPICS + RECORDS)
    return path


@pytest.fixture
def codec(settings: Path) -> Codec:
    """The worker's codec with these settings."""
    found = load_scoring(settings, {"WORKER_MODEL__PATH": str(MODEL)})
    _, facts = load_served(found.model, found.batching, found.records, {})
    mapping = record_mapping(found, facts.signature)
    assert mapping is not None
    return record_codec(facts.signature, mapping, dead_letter_topic="rejected")


def faults(message: str, written: Fields) -> list[str]:
    """The faults of a written record, as the document sees it."""
    _, _, value, *_ = written
    rules = MESSAGES[message]
    found = [*Draft7Validator(rules["headers"]).iter_errors(text_of(written))]
    found += Draft202012Validator(rules["payload"]).iter_errors(json.loads(value or b""))
    return [error.message for error in found]


def test_the_document_is_the_example(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`records contract` prints it: with `>schemas/examples/payments.asyncapi.json` it is written anew."""
    assert contract(ContractOrder(config=settings)) == 0

    assert json.loads(capsys.readouterr().out) == GOLDEN


TEXTS = """
[records.text]
field = "body"
[records.answer]
keep = ["id"]
"""
STATES = """
[records.answer]
mean = "mean"
[state]
tensors = { sum_in = "sum_out", count_in = "count_out" }
"""


@pytest.mark.parametrize(
    ("made", "records", "reads", "gives"),
    [
        pytest.param(encoder, TEXTS, {"body", "id"}, {"id", "embedding"}, id="texts"),
        pytest.param(partial(save, running_mean()), STATES, {"x"}, {"mean"}, id="states"),
    ],
)
def test_it_has_the_fields_of_records_and_answers(
    made: Callable[[Path], Path],
    records: str,
    reads: set[str],
    gives: set[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A text is a field, too. A state is none, because publishers do not send it."""
    settings = tmp_path / "worker.toml"
    settings.write_text(f"{TOPICS}[model]\npath = '{made(tmp_path)}'\n{records}")

    assert contract(ContractOrder(config=settings)) == 0

    messages = json.loads(capsys.readouterr().out)["components"]["messages"]
    assert messages["record"]["payload"]["properties"].keys() == reads
    assert messages["answer"]["payload"]["properties"].keys() == gives


def test_it_is_valid_by_asyncapi_s_own_schema(asyncapi_schema: Any) -> None:  # noqa: F811  # the fixture
    """AsyncAPI knows every object in it."""
    assert not [f"{error.json_path}: {error.message}" for error in Draft7Validator(asyncapi_schema).iter_errors(GOLDEN)]


def test_the_payments_are_records_of_the_document() -> None:
    """And a wrong one is not."""
    judge = Draft202012Validator(MESSAGES["record"]["payload"])

    assert [judge.is_valid(payment) for payment in (*PAYMENTS, WRONG)] == [True, True, True, False]


def test_answers_errors_and_dead_letters_are_those_of_the_document(codec: Codec) -> None:
    """Headers and values fit the message, and no other message of the topic."""
    sent = [("request-id", b"a1"), ("correlation-id", b"c")]
    chunks, rejections, _ = codec.read([record(PAYMENTS[0], 0, headers=sent), record(WRONG, 1, headers=sent)])
    outputs = [np.array([0.93], "<f4"), np.array(["fraud"], object)]

    [answer] = codec.messages(codec.write(Prediction(chunks[0], outputs)))
    error, letter = codec.messages([rejections[0][1]])

    assert [faults("answer", answer), faults("error", error), faults("rejected", letter)] == [[], [], []]
    assert faults("answer", error)
    assert faults("error", answer)


def test_what_is_around_a_value_is_part_of_the_document() -> None:
    """Headers that the mapping needs are required; a key that it needs is no null."""
    of = mapping(
        spec("BYTES"),
        spec(name="y"),
        inputs={"x": "$headers.tenant", "y": {"field": "$headers.weight", "default": 1}},
        only={"$headers.kind": ["payment", 7], "$key": True},
    )
    headers, key = around(of)

    assert Draft202012Validator(headers).is_valid({"tenant": "a", "kind": "7", "more": ""})
    assert {"tenant", "weight", "timeout-ms"} <= headers["properties"].keys()
    for lacking in ({"kind": "7"}, {"tenant": "a"}, {"tenant": "a", "kind": "refund"}):
        assert not Draft202012Validator(headers).is_valid(lacking)
    assert key == {"enum": ["true"]}
    assert around(mapping(inputs={"x": "$timestamp"})) == around(mapping())
