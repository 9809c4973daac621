"""`check` tries the mapping of records on the newest records of the topics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.models import model, save
from tests.unit.registry.scripted import ABSENT, ScriptedRegistry, schema_page
from tests.unit.test_settings import LEAST
from worker.commands import trying
from worker.commands.report import Report
from worker.core.failures import BadConfiguration, KafkaFatal
from worker.core.records import Partition, Record, Rejection
from worker.inference.model_loading import load_as_set
from worker.registry.registry import Registry
from worker.scorer import Scorer
from worker.settings import RegistrySettings, Settings, load

SUM = model("float[batch, 2] x, float[batch, 1] weight => float[batch, 2] y", "y = Mul(x, weight)")
RECORDS = {
    "WORKER_RECORDS__INPUTS": '{"x": ["a", "b.c"], "weight": {"value": 2}}',
    "WORKER_RECORDS__ONLY": '{"type": [1]}',
    "WORKER_RECORDS__ANSWER": '{"y": "y[1]", "keep": ["id"]}',
    "WORKER_KAFKA__REQUEST_TOPICS": "payments",
}


def record(**fields: object) -> Record:
    value = json.dumps({"type": 1, "id": 5, "a": 1, "b": {"c": 3}, **fields}).encode()
    return Record(Partition("payments", 0), 0, None, value, (), None)


GOOD, BAD, OTHER = record(), record(a="x"), record(type=2)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = str(save(SUM, tmp_path))
    return load(None, LEAST | RECORDS | {"WORKER_MODEL__PATH": path, "WORKER_MODEL__DEVICE": "cpu"})


@pytest.fixture
def scorer(settings: Settings) -> Scorer:
    return Scorer(load_as_set(settings.model, settings.batching), settings)


def tried(
    monkeypatch: pytest.MonkeyPatch, scorer: Scorer, settings: Settings, records: Sequence[Record]
) -> tuple[Report, trying.Example]:
    """The report, and the example, where the topic's newest records are these."""
    placed = [record._replace(offset=at) for at, record in enumerate(records)]
    monkeypatch.setattr(trying, "newest", lambda *_: placed)
    report = Report()
    return report, trying.try_newest(scorer, settings, report)


def test_the_report_says_what_feeds_each_input_and_what_the_answer_has(scorer: Scorer) -> None:
    """A constant has no field."""
    assert dict(trying.mapped(scorer)) == {
        "x": "FP32[batch, 2] from a, b.c",
        "weight": "FP32[batch, 1], a constant",
        "answer": "y FP32[batch], with id",
    }


def test_long_lists_are_cut() -> None:
    """A model may have an input for each of 500 columns."""
    assert trying._listed([str(at) for at in range(14)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"


def test_many_inputs_are_counted(tmp_path: Path) -> None:
    """The report shows the first of them."""
    names = [f"x{at}" for at in range(22)]
    many = model(
        f"{', '.join(f'float[batch, 1] {name}' for name in names)} => float[batch, 1] y", f"y = Sum({', '.join(names)})"
    )
    given = {"WORKER_MODEL__PATH": str(save(many, tmp_path)), "WORKER_RECORDS__ANSWER": '{"keep": "all"}'}
    settings = load(None, LEAST | given)

    rows = list(trying.mapped(Scorer(load_as_set(settings.model, settings.batching), settings)))

    assert rows[19][0] == "x19"
    assert rows[20:] == [("…", "and 2 inputs more"), ("answer", "y FP32[batch], with the whole record")]


def test_a_function_s_input_is_the_whole_record(tmp_path: Path) -> None:
    """It has no path of its own."""
    (tmp_path / "functions.py").write_text("def inputs(record):\n    return {}\n")
    functions = {"WORKER_RECORDS__FUNCTIONS": str(tmp_path / "functions.py"), "WORKER_MODEL__HOST": "thread"}
    settings = load(None, LEAST | functions | {"WORKER_MODEL__PATH": str(save(SUM, tmp_path))})

    rows = dict(trying.mapped(Scorer(load_as_set(settings.model, settings.batching), settings)))

    assert rows["record"] == "BYTES[batch] from the whole record"


@pytest.mark.parametrize(
    ("records", "told", "warnings", "problems"),
    [
        ([GOOD, GOOD], "2 newest records tried: 2 answered, 0 refused", 0, 0),
        ([GOOD, OTHER], "2 newest records tried: 1 answered, 0 refused, 1 of another kind passed over", 0, 0),
        ([GOOD, BAD, OTHER], "3 newest records tried: 1 answered, 1 refused, 1 of another kind passed over", 1, 0),
        ([BAD, BAD, OTHER], "3 newest records tried: 0 answered, 2 refused, 1 of another kind passed over", 0, 1),
        ([OTHER], "1 newest record tried: 0 answered, 0 refused, 1 of another kind passed over", 1, 0),
        ([], "there is no record to try", 0, 0),
    ],
)
def test_some_records_without_an_answer_are_a_warning_and_all_are_a_problem(
    monkeypatch: pytest.MonkeyPatch,
    scorer: Scorer,
    settings: Settings,
    records: Sequence[Record],
    told: str,
    warnings: int,
    problems: int,
) -> None:
    """Records of another kind are neither; if there is nothing else, that is a warning, too."""
    report, example = tried(monkeypatch, scorer, settings, records)

    assert report.records == {"payments": told}
    assert (len(report.warnings), len(report.problems)) == (warnings, problems)
    assert report.exit_code == (2 if problems else 0)
    assert bool(example) == (GOOD in records)


def test_the_reasons_are_counted(monkeypatch: pytest.MonkeyPatch, scorer: Scorer, settings: Settings) -> None:
    """A reason names the field and what was expected."""
    report, _ = tried(monkeypatch, scorer, settings, [GOOD, BAD, BAD])

    assert report.warnings == [
        "payments: 2 of the 3 newest records would get an error: a: expected a number, got a text (2)"
    ]


@pytest.mark.parametrize(("records", "warned"), [([record(id=None), BAD], 1), ([record(id=None), GOOD], 0)])
def test_a_kept_field_that_no_record_has_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, scorer: Scorer, settings: Settings, records: Sequence[Record], warned: int
) -> None:
    """Its name may be wrong, and it would be null in every answer."""
    report, _ = tried(monkeypatch, scorer, settings, records)

    assert report.warnings.count("payments: [records.answer] keeps id, and none of the newest records has it") == warned


def test_the_example_is_a_record_and_its_answer(
    monkeypatch: pytest.MonkeyPatch, scorer: Scorer, settings: Settings
) -> None:
    """As they are in Kafka."""
    _, example = tried(monkeypatch, scorer, settings, [BAD, GOOD])

    assert example["record"] == ((), GOOD.value)
    assert example["answer"][1] == b'{"id":5,"y":6.0}'


@pytest.mark.parametrize(
    ("failure", "warnings", "exit_code"), [(BadConfiguration("not ours"), 1, 0), (KafkaFatal("closed"), 0, 4)]
)
def test_a_topic_that_cannot_be_read_is_told(
    monkeypatch: pytest.MonkeyPatch,
    scorer: Scorer,
    settings: Settings,
    failure: Exception,
    warnings: int,
    exit_code: int,
) -> None:
    """Without the right to look at it a worker may still start."""

    def newest(*_: object) -> list[Record]:
        raise failure

    monkeypatch.setattr(trying, "newest", newest)
    report = Report()

    assert trying.try_newest(scorer, settings, report) == {}
    assert (len(report.warnings), report.exit_code) == (warnings, exit_code)


def test_of_a_registry_the_schemas_are_asked_and_none_is_registered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The answers are written by the schema that a worker would register; a record of an unknown one is refused."""
    newest = "/subjects/payments-value/versions/latest"
    trial = f"/compatibility/subjects/{LEAST['WORKER_KAFKA__RESPONSE_TOPIC']}-value/versions/latest"
    script = ScriptedRegistry({newest: schema_page(id=7, version=1), "/schemas/ids/8": ABSENT, trial: ABSENT})

    def opened(given: RegistrySettings) -> Registry:
        registry = Registry(given)
        script.attach(registry._client)
        return registry

    monkeypatch.setattr("worker.registry.registry.Registry", opened)
    path = save(model("double[batch, 1] amount => double[batch, 1] y", "y = Add(amount, amount)"), tmp_path)
    given = {
        "WORKER_MODEL__PATH": str(path),
        "WORKER_KAFKA__REQUEST_TOPICS": "payments",
        "WORKER_RECORDS__ENCODING": "registry",
        "WORKER_REGISTRY__URL": "http://localhost:8081",
    }
    settings, report = load(None, LEAST | given), Report()
    framed = [record()._replace(offset=at, value=bytes([0, 0, 0, 0, at]) + bytes(8)) for at in (7, 8)]

    with ExitStack() as closing:
        scorer = trying.look_at_mapping(load_as_set(settings.model, settings.batching), settings, report, closing)
        assert scorer is not None
        answered, refused = scorer.records(framed)

    assert not isinstance(answered, Rejection)
    assert (answered[2] or b"")[:5] == bytes(5)
    assert isinstance(refused, Rejection)
    assert "8" in refused.message
    assert report.records["answer"] == "y FP64[batch]"
    assert {request.url.path for request in script.asked if request.method == "POST"} == {trial}


def test_a_mapping_that_no_model_can_serve_is_a_problem(settings: Settings) -> None:
    """A worker would not start."""
    assert settings.records is not None
    wrong = settings.records.model_copy(update={"inputs": {"z": "a"}})
    report = Report()

    found = trying.look_at_mapping(
        load_as_set(settings.model, settings.batching),
        settings.model_copy(update={"records": wrong}),
        report,
        ExitStack(),
    )

    assert found is None
    assert report.exit_code == 2
    assert "[records.inputs] z" in report.problems[0]
