"""What `publish` refuses before it looks for a broker."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import models
from worker.core.failures import BadConfiguration
from worker.tools.publish.command import _looking_up, _requests, publish
from worker.tools.publish.options import PublishOrder


def test_a_closed_standard_input_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `<&-` leaves it, or a supervisor that gives none."""
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(BadConfiguration, match="standard input is closed; give it a pipe, or name a FILE"):
        publish(PublishOrder(file="-", topic="requests", bootstrap_servers="127.0.0.1:9"))


@pytest.mark.parametrize("setting", ["RESPONSE_TOPIC", "DEAD_LETTER_TOPIC"])
def test_nothing_is_published_to_where_workers_write(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    """Readers of answers would take the requests for some."""
    monkeypatch.setenv(f"WORKER_KAFKA__{setting}", "theirs")

    with pytest.raises(BadConfiguration, match=f"--topic theirs: is WORKER_KAFKA__{setting}, and its readers would"):
        publish(PublishOrder(file="-", topic="theirs", bootstrap_servers="127.0.0.1:9"))


def test_errors_are_looked_up_where_they_came_from() -> None:
    """Whoever named brokers, settings or topic on the command line may have them nowhere else."""
    there = PublishOrder(response_topic="theirs", config=Path("my settings.toml"), bootstrap_servers="kafka:9092")

    assert _looking_up(PublishOrder(), 3) == "inference-worker consume --errors-only --last 3"
    assert _looking_up(there, 1) == (
        "inference-worker consume --errors-only --last 1 --topic theirs --config 'my settings.toml' "
        "--bootstrap-servers kafka:9092"
    )


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (PublishOrder(file="-", timeout=5.0), "--timeout does nothing without --wait"),
        (
            PublishOrder(file="-", response_topic="a", timeout=5.0),
            "--timeout and --response-topic do nothing without --wait",
        ),
        (PublishOrder(file="-", seed=0), "--seed does nothing without --random"),
        (PublishOrder(file="-", encoding="rows"), "--encoding does nothing without --random"),
    ],
)
def test_an_option_that_does_nothing_is_refused(order: PublishOrder, told: str) -> None:
    """Whoever gives it expects something of it."""
    with pytest.raises(BadConfiguration, match=f"^{told}$"):
        publish(order)


def test_made_up_requests_of_a_model_with_state_want_a_key(tmp_path: Path) -> None:
    """Each would be answered with an error."""
    path = models.save(models.gru(), tmp_path)
    environ = {"WORKER_MODEL__PATH": str(path), "WORKER_STATE__TENSORS": '{"h_in": "h_out"}'}

    with pytest.raises(BadConfiguration, match=r"a request without a key is refused then: say --key 'made-up-\{n\}'"):
        _requests(PublishOrder(random=2), environ, ExitStack())
    assert _requests(PublishOrder(random=2, key="k"), environ, ExitStack()).total == 2


def test_lines_are_published_as_they_stand(tmp_path: Path) -> None:
    """Neither a model nor a number of rows changes them."""
    lines = tmp_path / "lines.jsonl"
    lines.write_text("{}\n")
    order = PublishOrder(
        file=str(lines), topic="t", bootstrap_servers="127.0.0.1:9", model=Path("m.onnx"), rows_per_request=2
    )

    with pytest.raises(BadConfiguration, match="--rows-per-request and --model do nothing with JSON lines"):
        publish(order)
