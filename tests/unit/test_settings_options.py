"""Settings from the command line: which wins, and how each mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_settings import LEAST
from worker.commands.orders import RunOrder
from worker.core.failures import BadConfiguration
from worker.settings import load
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
    """Where a secret belongs, and what is missing. No value is repeated."""
    name = "WORKER_KAFKA__SASL_PASSWORD"
    why = f"every user of this machine can read a command line; set {name} or {name}_FILE in the environment"

    with pytest.raises(BadConfiguration) as refusal:
        as_variables(["KAFKA__SASL_PASSWORD=hunter2", "BATCHING__LANES"])

    assert str(refusal.value).splitlines() == [
        f"--set KAFKA__SASL_PASSWORD: {why}",
        "--set BATCHING__LANES: has no value; write --set BATCHING__LANES=VALUE",
    ]
