"""What is compared, read from the command line."""

from __future__ import annotations

import pytest

from worker.core.failures import BadConfiguration
from worker.tools.bench.columns import ONE_BY_ONE, PASS_THROUGH, Rate, columns_of, rates_of, settings_of


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("MAX_BATCH_SIZE=64", {"WORKER_BATCHING__MAX_BATCH_SIZE": "64"}),
        ("linger_ms=5", {"WORKER_BATCHING__LINGER_MS": "5"}),
        ("BATCHING__LANES=2", {"WORKER_BATCHING__LANES": "2"}),
        ("WORKER_MODEL__PATH=a.onnx", {"WORKER_MODEL__PATH": "a.onnx"}),
        ("DEVICE=cpu PROVIDERS='A, B'", {"WORKER_MODEL__DEVICE": "cpu", "WORKER_MODEL__PROVIDERS": "A, B"}),
        ("""CONFIG='{"linger.ms": "1"}'""", {"WORKER_KAFKA__CONFIG": '{"linger.ms": "1"}'}),
    ],
)
def test_settings_are_known_by_any_of_their_names(text: str, settings: dict[str, str]) -> None:
    """The prefix and the section go without saying where only one can be meant."""
    assert settings_of(text) == settings


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("BATCHING__MAX_BATCH=64", "did you mean BATCHING__MAX_BATCH_SIZE"),
        ("MIN_BATCH_SIZE=64", "no such setting; `inference-worker check --all` shows"),
        ("ZEBRA=1", "no such setting"),
        ("64", "NAME=VALUE"),
        ("LINGER_MS=", "NAME=VALUE"),
        ("", "say what to set"),
        ("CONFIG='{", "close the quotes"),
        ("GROUP_ID=mine", "bench has topics, a group"),
        ("REQUEST_TOPICS=orders", "bench has topics, a group"),
        ("BOOTSTRAP_SERVERS=a:1", "bench has topics, a group"),
        ("SASL_PASSWORD=hunter2", "bench has topics, a group"),
        ("HTTP_PORT=1", "bench has topics, a group"),
        ("TRANSACTIONAL_ID=a", "bench has topics, a group"),
    ],
)
def test_what_cannot_be_set_is_told_with_the_cure(text: str, told: str) -> None:
    """Before anything is started."""
    with pytest.raises(BadConfiguration, match=told):
        settings_of(text)


def test_no_message_shows_a_secret() -> None:
    """A user may put one there all the same."""
    with pytest.raises(BadConfiguration) as refusal:
        settings_of("SASL_PASSWORD=hunter2")

    assert "hunter2" not in str(refusal.value)


def test_each_set_is_a_worker_and_the_loops_come_last() -> None:
    """Without any there is the worker as it is set."""
    assert [column.name for column in columns_of(["LANES=1", "LANES=2"])] == [
        "LANES=1",
        "LANES=2",
        ONE_BY_ONE.name,
        PASS_THROUGH.name,
    ]
    assert [column.name for column in columns_of([])] == ["worker", ONE_BY_ONE.name, PASS_THROUGH.name]


def test_the_same_set_twice_is_a_mistake() -> None:
    """Two columns of one name could not be told apart."""
    with pytest.raises(BadConfiguration, match="twice"):
        columns_of(["LANES=1", "LANES=1"])


def test_rates_are_numbers_or_parts_of_a_maximum() -> None:
    """Parts give round numbers, which are easier to compare."""
    assert rates_of("500, 3_000") == (Rate(500, is_part=False), Rate(3000, is_part=False))
    assert [rate.at(6934) for rate in rates_of("10%,50%,80%")] == [690, 3500, 5500]
    assert rates_of("12.5")[0].at(1.0) == 12.5


@pytest.mark.parametrize("text", ["fast", "-5", "0", "0%", "10%%", "inf", "nan"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    """With what one is."""
    with pytest.raises(BadConfiguration, match="--rates"):
        rates_of(text)
