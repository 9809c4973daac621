"""The advice for the operator when Kafka refuses a consumer."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from worker.kafka.client.errors import FATAL, refusal


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        (KafkaError.UNRELEASED_INSTANCE_ID, "is in the group: end it"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "the broker's authorizer log"),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, "raise offset.metadata.max.bytes"),
    ],
)
def test_a_refusal_says_what_to_do(code: int, cure: str) -> None:
    """It works for a plain error, and for KIP-848's, which come within a fatal error."""
    plain = KafkaError(code)

    assert cure in (refusal(plain) or "")
    assert cure in (refusal(KafkaError(FATAL, f"Fatal consumer error: {plain.str()}", True)) or "")
