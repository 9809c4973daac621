"""The plan of a measurement: the caller's settings, without the caller's topics, and requests for the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import mlp, save, two_in_two_out
from worker.core.failures import BadConfiguration
from worker.tools.bench import plan as plan_module
from worker.tools.bench.generator import Site
from worker.tools.bench.plan import Plan
from worker.tools.options import BenchOrder

MINE = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "orders",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__GROUP_ID": "mine",
    "WORKER_BATCHING__MAX_BATCH_SIZE": "16",
}

MOCK = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": ""}


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**MINE, "WORKER_MODEL__PATH": str(save(mlp(), folder)), **more}


def test_the_worker_has_the_callers_settings_and_none_of_its_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes a topic for dead letters, and an instance's id."""
    started: list[dict[str, str]] = []
    monkeypatch.setattr(plan_module, "Replica", lambda own, *_, **__: started.append(own))
    more = {"WORKER_KAFKA__DEAD_LETTER_TOPIC": "letters", "WORKER_KAFKA__GROUP_INSTANCE_ID": "me"}
    plan = Plan(BenchOrder(), environment(tmp_path, **more))

    plan.worker(Site(plan.settings.kafka, "r", "a", "rejected", "g"))

    (own,) = started
    assert own["BATCHING__MAX_BATCH_SIZE"] == "16"
    assert {name: own[f"KAFKA__{name}"] for name in ("REQUEST_TOPICS", "RESPONSE_TOPIC", "DEAD_LETTER_TOPIC")} == {
        "REQUEST_TOPICS": "r",
        "RESPONSE_TOPIC": "a",
        "DEAD_LETTER_TOPIC": "rejected",
    }
    assert (own["KAFKA__GROUP_ID"], own["KAFKA__GROUP_INSTANCE_ID"]) == ("g", "g")


@pytest.mark.parametrize(
    ("order", "more", "cause"),
    [
        (BenchOrder(), {**MOCK, "WORKER_DELIVERY__GUARANTEE": "exactly_once"}, "exactly_once needs a real Kafka"),
        (BenchOrder(), {**MOCK, "WORKER_RECORDS__ENCODING": "json"}, "give it settings without records"),
        (BenchOrder(prefix="p"), MOCK, "--prefix does nothing"),
        (BenchOrder(encoding="rows", model=Path("two")), {}, "--encoding rows"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    tmp_path: Path, order: BenchOrder, more: dict[str, str], cause: str
) -> None:
    """The error names the option or the setting."""
    if order.model is not None:
        order = BenchOrder(encoding=order.encoding, model=save(two_in_two_out(), tmp_path, "two"))

    with pytest.raises(BadConfiguration, match=cause):
        Plan(order, environment(tmp_path, **more))
