"""Replicas that requesters cannot tell apart have one digest, and others have another."""

from __future__ import annotations

import pytest

from worker.settings import load
from worker.settings.sections import SECTIONS
from worker.settings.wire_digest import NOTICED, wire_digest

LEAST = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__GROUP_ID": "digits",
    "WORKER_MODEL__PATH": "digits.onnx",
}


def digest(**changes: str) -> str:
    return wire_digest(load(None, LEAST | {f"WORKER_{name}": value for name, value in changes.items()}))


def test_what_is_noticed_are_settings() -> None:
    """One that is renamed is not forgotten here."""
    for section, keys in NOTICED.items():
        assert keys <= SECTIONS[section].model_fields.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA__RESPONSE_TOPIC", "others"),
        ("KAFKA__ROWS_HEADERS", "required"),
        ("KAFKA__DEFAULT_CONTENT_TYPE", "application/octet-stream"),
        ("MODEL__INPUT_DEFAULTS", '{"mask": 1}'),
        ("BATCHING__BUCKETS", '{"ids": {"axis": 1, "boundaries": [8, 16], "pad": 0}}'),
        ("STATE__TENSORS", '{"h_in": "h_out"}'),
    ],
)
def test_what_a_requester_notices_counts(name: str, value: str) -> None:
    """Where answers go, what is taken, what comes back."""
    assert digest(**{name: value}) != digest()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BATCHING__MAX_BATCH_SIZE", "64"),
        ("BATCHING__LANES", "2"),
        ("MODEL__DEVICE", "cpu"),
        ("KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
        ("TELEMETRY__HTTP_PORT", "8080"),
    ],
)
def test_how_a_replica_works_does_not(name: str, value: str) -> None:
    """One may have a GPU, and another not."""
    assert digest(**{name: value}) == digest()
