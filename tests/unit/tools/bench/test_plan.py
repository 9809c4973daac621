"""What `bench` makes of the environment: every worker has the caller's settings, and none of the caller's topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.models import fixed_batch, gru, mlp, postcodes, save, sequence_mean
from worker.codecs.examples import Encoding
from worker.core.failures import BadConfiguration
from worker.settings import Connection
from worker.tools.bench.columns import Column
from worker.tools.bench.options import BenchOrder
from worker.tools.bench.plan import Plan
from worker.tools.load.generator import Site

KAFKA = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092"}
SITE = Site(Connection(bootstrap_servers="localhost:9092"), "b-requests", "b-answers", "b-rejected", "b")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(mlp(), tmp_path)


def own(plan: Plan, column: Column, number: int = 0) -> Mapping[str, str]:
    """What a replica is started with."""
    return plan._own(column, SITE, number)


def test_with_nothing_set_it_is_the_demos_model_on_a_mock() -> None:
    """`inference-worker bench` alone does something."""
    plan = Plan(BenchOrder(), {})

    assert plan.is_embedded
    assert plan.settings.model.name == "digits"
    assert plan.encoding is Encoding.ROWS
    assert plan.request_bytes == 256


def test_requests_are_made_of_the_operators_example(tmp_path: Path) -> None:
    """Where there is one: a model that takes postcodes refuses made-up numbers."""
    np.savez(tmp_path / "example.npz", code=[[10115], [20095]], city=[["Rome"], ["Oslo"]])
    environ = {
        "WORKER_MODEL__PATH": str(save(postcodes(), tmp_path)),
        "WORKER_MODEL__WARM_UP_EXAMPLE": str(tmp_path / "example.npz"),
    }

    plan = Plan(BenchOrder(encoding="json"), environ)

    inputs = [json.loads(request.value)["inputs"] for request in plan.requests]
    assert {(code["data"][0], city["data"][0]) for code, city in inputs} == {(10115, "Rome"), (20095, "Oslo")}


def test_a_replica_has_nothing_of_the_callers_topics(model: Path) -> None:
    """Not to read, not to write, not as a member of the group: whatever the environment says."""
    environ = KAFKA | {
        "WORKER_MODEL__PATH": str(model),
        "WORKER_KAFKA__REQUEST_TOPICS": "orders",
        "WORKER_KAFKA__RESPONSE_TOPIC": "results",
        "WORKER_KAFKA__DEAD_LETTER_TOPIC": "letters",
        "WORKER_KAFKA__GROUP_ID": "production",
        "WORKER_KAFKA__GROUP_INSTANCE_ID": "pod-0",
        "WORKER_KAFKA__AUTO_OFFSET_RESET": "latest",
        "WORKER_DELIVERY__TRANSACTIONAL_ID": "production-0",
        "WORKER_DELIVERY__GUARANTEE": "exactly_once",
        "WORKER_BATCHING__LINGER_MS": "7",
    }
    plan = Plan(BenchOrder(), environ)

    found = own(plan, plan.columns[0], number=1)

    for theirs in ("orders", "results", "letters", "production", "pod-0", "latest", "production-0"):
        assert theirs not in found.values()
    assert found["KAFKA__REQUEST_TOPICS"] == "b-requests"
    assert found["KAFKA__GROUP_INSTANCE_ID"] == found["DELIVERY__TRANSACTIONAL_ID"] == "b-1"
    assert found["BATCHING__LINGER_MS"] == "7"


def test_what_a_file_names_is_replaced_too(tmp_path: Path, model: Path) -> None:
    """An empty variable would leave it in force."""
    file = tmp_path / "worker.toml"
    file.write_text(
        f'[kafka]\nbootstrap_servers = "localhost:9092"\ndead_letter_topic = "letters"\n[model]\npath = "{model}"\n'
    )
    plan = Plan(BenchOrder(config=file), {})

    assert not plan.is_embedded
    assert plan.settings.model.path == model
    assert own(plan, plan.columns[0])["KAFKA__DEAD_LETTER_TOPIC"] == "b-rejected"


def test_a_model_with_state_is_refused(tmp_path: Path) -> None:
    """Its requests would need keys, and its replicas changelogs."""
    state = {"WORKER_STATE__TENSORS": '{"h_in": "h_out"}', "WORKER_MODEL__PATH": str(save(gru(), tmp_path))}

    with pytest.raises(BadConfiguration, match=r"model with state.*leave out all of WORKER_STATE__ and .*CHANGELOG"):
        Plan(BenchOrder(), KAFKA | state | {"WORKER_STATE__STEPS": "axis:1", "WORKER_KAFKA__CHANGELOG_TOPIC": "c"})


def test_a_set_goes_before_the_environment(model: Path) -> None:
    """And holds for its own column alone."""
    order = BenchOrder(model=model, sets=["LINGER_MS=1", "MAX_BATCH_SIZE=8"])
    plan = Plan(order, KAFKA | {"WORKER_BATCHING__LINGER_MS": "7"})

    first, second = (own(plan, column) for column in plan.columns[:2])

    assert first["BATCHING__LINGER_MS"] == "1"
    assert second["BATCHING__LINGER_MS"] == "7"
    assert plan.part(plan.columns[1]).max_batch_size == 8


def test_a_full_batch_of_a_model_exported_for_few_rows_has_those(tmp_path: Path) -> None:
    """Its batches are never larger, whatever the settings allow, and not a quarter full."""
    model = save(fixed_batch(rows=4), tmp_path)

    plan = Plan(
        BenchOrder(model=model, sets=["MAX_BATCH_SIZE=16", "MAX_BATCH_SIZE=2"]), {"WORKER_MODEL__FIXED_BATCH": "pad"}
    )

    assert [plan.part(column).max_batch_size for column in plan.columns[:2]] == [4, 2]


def test_the_lengths_made_up_for_an_axis_that_the_file_leaves_open_are_known(tmp_path: Path) -> None:
    """Figures hang on them."""
    open_one, closed = (Plan(BenchOrder(model=save(built, tmp_path)), {}) for built in (sequence_mean(), mlp()))

    assert {axis: tuple(span) for axis, span in open_one.open_axes.items()} == {"tokens:1": (1, 8)}
    assert closed.open_axes == {}


def test_a_mock_is_reached_without_anybodys_password(model: Path) -> None:
    """How the caller's brokers are reached is no business of it; its clients must ask it often."""
    environ = KAFKA | {
        "WORKER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "WORKER_KAFKA__SASL_MECHANISM": "PLAIN",
        "WORKER_KAFKA__SASL_USERNAME": "u",
        "WORKER_KAFKA__SASL_PASSWORD": "p",
        "WORKER_KAFKA__CONFIG": '{"client.id": "me"}',
    }
    plan = Plan(BenchOrder(model=model, embedded=True), environ)

    found = own(plan, plan.columns[0])

    assert not [name for name in found if "SASL" in name]
    assert json.loads(found["KAFKA__CONFIG"]) == {"fetch.wait.max.ms": "2", "client.id": "me"}


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (BenchOrder(sets=["MAX_BATCH_SIZE=0"]), "--set MAX_BATCH_SIZE=0: WORKER_BATCHING__MAX_BATCH_SIZE"),
        (
            BenchOrder(sets=["GUARANTEE=exactly_once"]),
            "exactly_once needs a real Kafka, and the embedded broker is a mock",
        ),
        (BenchOrder(rates="fast"), "--rates fast"),
        (BenchOrder(model=Path("absent.onnx")), "absent.onnx: the model cannot be read"),
    ],
)
def test_what_cannot_be_begun_is_told_before_anything_is(order: BenchOrder, told: str) -> None:
    """In one sentence with the cure."""
    with pytest.raises(BadConfiguration, match=told):
        Plan(order, {})


def test_models_that_take_something_else_cannot_be_compared(tmp_path: Path, model: Path) -> None:
    """The same requests go to all."""
    other = save(mlp(inputs=5), tmp_path, "other")

    with pytest.raises(BadConfiguration, match="only models that take the same"):
        Plan(BenchOrder(model=model, sets=[f"PATH={other}"]), {})


def test_a_window_fills_the_batches_of_all_lanes() -> None:
    """Of the largest set, twice over, in requests and not in rows."""
    plan = Plan(BenchOrder(sets=["MAX_BATCH_SIZE=64", "MAX_BATCH_SIZE=8"], rows_per_request=4, replicas=2), {})

    assert plan.least_window == 64 * 4 * 2 / 4
