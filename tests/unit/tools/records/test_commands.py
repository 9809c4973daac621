"""`records infer` and `records try` on files, and `init` with a sample of records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import bert
from tests.models import model, running_mean, save
from worker.core.failures import BadConfiguration, Incomplete
from worker.settings import load
from worker.settings.records_section import ImageSettings
from worker.tools.init.command import init
from worker.tools.init.options import InitOrder
from worker.tools.records.inferring import infer
from worker.tools.records.options import InferOrder, TryOrder
from worker.tools.records.trying import try_records

# features FP32 (batch, 2), country BYTES (batch, 1) → probabilities FP32 (batch, 2): a softmax of the features
FRAUD = model(
    "float[batch, 2] features, string[batch, 1] country => float[batch, 2] probabilities",
    "probabilities = Softmax<axis = 1>(features)\nunused = Identity(country)",
)
PAYMENTS = [{"payment_id": f"p{at}", "amount": at, "customer": {"age": 30.5, "country": "NL"}} for at in range(20)]
KAFKA = '[kafka]\nbootstrap_servers = "localhost:9092"\nrequest_topics = ["payments"]\n[model]\npath = "model.onnx"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the model and payments, in which the commands run."""
    monkeypatch.setenv("WORKER_MODEL__DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    save(FRAUD, tmp_path)
    lines(tmp_path, PAYMENTS)
    return tmp_path


def lines(folder: Path, records: Sequence[Any], name: str = "payments.jsonl") -> Path:
    (folder / name).write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return Path(name)


def inferred(**asked: Any) -> int:
    return infer(InferOrder(**{"model": Path("model.onnx"), "file": Path("payments.jsonl"), **asked}))


def test_what_is_inferred_serves_the_records(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The settings are whole, the records are shown with their tensors and answers, and all of them are answered."""
    assert inferred(output=Path("worker.toml")) == 0

    shown = capfd.readouterr().out
    assert "payments.jsonl/0/20" in shown
    assert "amount 19, customer.age 30.5," in shown
    assert try_records(TryOrder(file=Path("payments.jsonl"), config=Path("worker.toml"))) == 0
    answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [answer["payment_id"] for answer in answers] == [record["payment_id"] for record in PAYMENTS]
    records = load(folder / "worker.toml", {}).records
    assert records is not None
    assert records.inputs == {"features": ["amount", "customer.age"], "country": "customer.country"}


def test_the_section_alone_is_printed_for_settings_at_hand(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its reader appends it, or has it written behind them into a new file."""
    (folder / "worker.toml").write_text(KAFKA)

    assert inferred(model=None, config=Path("worker.toml")) == 0
    printed = capfd.readouterr().out
    assert inferred(model=None, config=Path("worker.toml"), output=Path("new.toml")) == 0

    assert printed.startswith("# Proposed from 20 records")
    assert (folder / "new.toml").read_text() == f"{KAFKA}\n{printed}"


@pytest.mark.parametrize(
    ("config", "asked", "told"),
    [
        (KAFKA, {"output": Path("there.toml")}, "there.toml is there already; --force"),
        (f"{KAFKA}[records]\n", {}, r"has \[records\] already"),
        (KAFKA, {"output": Path("sub/new.toml")}, "must lie next to worker.toml"),
        (KAFKA, {"output": Path("gone/new.toml")}, "there is no folder gone"),
        (KAFKA, {"topic": "payments"}, "--topic does nothing with --file"),
        (KAFKA.replace("request_topics", "# "), {"file": None}, "which topic has the records"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused(
    folder: Path, config: str, asked: dict[str, Any], told: str
) -> None:
    """Nothing is written."""
    (folder / "worker.toml").write_text(config)
    (folder / "there.toml").write_text("mine")
    (folder / "sub").mkdir()

    with pytest.raises(BadConfiguration, match=told):
        inferred(config=Path("worker.toml"), **asked)

    assert (folder / "there.toml").read_text() == "mine"
    assert not (folder / "sub" / "new.toml").exists()


def test_an_input_that_stays_open_is_told_and_the_file_is_written(folder: Path) -> None:
    """The operator completes its line."""
    lines(folder, [{"amount": 1, "a": "x", "b": "y"}])

    with pytest.raises(Incomplete, match="it is not clear which field feeds features, country"):
        inferred(output=Path("worker.toml"))

    assert "# country = \n" in (folder / "worker.toml").read_text()


def test_records_without_an_answer_are_shown_with_the_reason(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The proposal holds for most of them."""
    lines(folder, [*PAYMENTS, {**PAYMENTS[0], "amount": "much"}])

    with pytest.raises(Incomplete, match="1 of 10 records got no answer"):
        inferred()

    assert "amount: expected a number" in " ".join(capfd.readouterr().err.split())


def test_a_folder_is_no_file_of_records(folder: Path) -> None:
    """Neither to be read, nor to be written."""
    with pytest.raises(BadConfiguration, match="is a folder; name a file"):
        try_records(TryOrder(file=folder, config=with_section(folder)))
    with pytest.raises(BadConfiguration, match="cannot be written: Is a directory"):
        inferred(output=folder, force=True)


def with_section(folder: Path) -> Path:
    (folder / "worker.toml").write_text(f'{KAFKA}[records.inputs]\nfeatures = ["amount", "amount"]\n')
    return folder / "worker.toml"


def test_a_proposal_that_the_model_refuses_is_printed_with_the_reason(folder: Path) -> None:
    """It is a start, which the operator corrects."""
    save(model("int64[batch, length] input_ids => int64[batch, length] y", "y = Identity(input_ids)"), folder)
    lines(folder, [{"body": "a text"}])

    with pytest.raises(Incomplete, match=r"could not be tried: .*\[records.text\] tokenizer"):
        inferred(output=Path("worker.toml"))

    assert 'field = "body"' in (folder / "worker.toml").read_text()


def test_states_are_no_inputs_of_records(folder: Path) -> None:
    """The worker feeds them itself; each record that is shown is the first of its key."""
    save(running_mean(), folder)
    lines(folder, [{"x": 2.5}])
    (folder / "worker.toml").write_text(f'{KAFKA}[state]\ntensors = {{ sum_in = "sum_out", count_in = "count_out" }}\n')

    assert inferred(model=None, config=Path("worker.toml"), output=Path("new.toml")) == 0

    section = (folder / "new.toml").read_text().partition("[records]")[2]
    assert 'x = "x"' in section
    assert "sum_" not in section


def test_without_a_mapping_there_is_nothing_to_try(folder: Path) -> None:
    """The cure is named."""
    (folder / "worker.toml").write_text(KAFKA)

    with pytest.raises(BadConfiguration, match="`inference-worker records infer` proposes one"):
        try_records(TryOrder(file=Path("payments.jsonl"), config=Path("worker.toml")))


def test_init_writes_what_would_be_inferred(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And it says that the lines are to be confirmed."""
    assert inferred(output=Path("inferred.toml")) == 0
    capfd.readouterr()

    assert init(InitOrder(model=Path("model.onnx"), records=Path("payments.jsonl"))) == 0

    assert (folder / "worker.toml").read_text() == (folder / "inferred.toml").read_text()
    said = capfd.readouterr().out
    assert "20 records looked at: confirm each line of [records] in it" in said
    assert "inference-worker records try payments.jsonl --config worker.toml\n" in said
    assert "requests" not in said


def test_init_names_the_lines_that_stay_open(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They are comments in the file."""
    lines(folder, [{"amount": 1}])

    assert init(InitOrder(model=Path("model.onnx"), records=Path("payments.jsonl"))) == 0

    assert "it is not clear which field feeds features, country: complete these lines" in capfd.readouterr().out


def test_init_for_a_folder_has_the_lines_that_take_texts(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They are comments, because the folder does not know the field; with a sample they are entries."""
    (folder / "encoder").mkdir()
    bert.folder(folder / "encoder", bert.random_weights(), 4, bert.word_tokenizer())
    lines(folder, [{"doc_id": at, "body": "the cat sat"} for at in range(3)])

    assert init(InitOrder(model=Path("encoder"))) == 0
    plain, said = (folder / "worker.toml").read_text(), " ".join(capfd.readouterr().out.split())
    assert init(InitOrder(model=Path("encoder"), records=Path("payments.jsonl"), force=True)) == 0
    section = (folder / "worker.toml").read_text().partition("[records]")[2]

    assert "or take the comment marks from [records.text] at the end of worker.toml" in said
    assert "requests of different lengths share no batch" in said
    assert "of different lengths" not in capfd.readouterr().out  # texts are padded
    assert plain.endswith('\n# [records.text]\n# field = "text"\n')
    assert 'field = "body"' in section
    assert "tokenizer" not in section
    assert try_records(TryOrder(file=Path("payments.jsonl"), config=Path("worker.toml"))) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[0]).keys() == {"doc_id", "embedding"}


def test_init_for_a_folder_that_takes_pictures_has_the_lines_for_a_topic_of_them(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the comment marks taken away they serve such a topic."""
    (folder / "vision" / "onnx").mkdir(parents=True)
    network = model("float[batch, 3, 8, 8] pixels => float[batch, 3, 8, 8] y", "y = Identity(pixels)")
    (folder / "vision" / "onnx" / "model.onnx").write_bytes(network)
    (folder / "vision" / "config.json").write_text("{}")
    steps = {"do_resize": True, "size": {"height": 8, "width": 8}, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}
    (folder / "vision" / "preprocessor_config.json").write_text(json.dumps(steps))

    assert init(InitOrder(model=Path("vision"))) == 0

    assert "take the comment marks from [records.image]" in " ".join(capfd.readouterr().out.split())
    text = (folder / "worker.toml").read_text()
    head, mark, commented = text.partition("# [records]\n")
    (folder / "worker.toml").write_text(head + (mark + commented).replace("# ", ""))
    records = load(folder / "worker.toml", {}).records
    assert records is not None
    assert (records.encoding, records.image) == ("bytes", ImageSettings(field="$value"))


@pytest.mark.usefixtures("folder")
def test_init_says_what_else_a_topic_may_hold(capfd: pytest.CaptureFixture[str]) -> None:
    """A stranger with a topic of JSON objects learns how they are mapped; with a mapping nothing is said."""
    assert init(InitOrder(model=Path("model.onnx"))) == 0
    plain = " ".join(capfd.readouterr().out.split())
    assert init(InitOrder(model=Path("model.onnx"), force=True, assignments=["RECORDS.KEY=payment_id"])) == 0

    hint = "expects requests with tensors; if the topic has records, say --topic NAME, or --records FILE"
    assert hint in plain
    assert "tensors" not in capfd.readouterr().out
