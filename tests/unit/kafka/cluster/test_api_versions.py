"""What follows from the requests that a broker knows."""

from __future__ import annotations

from worker.kafka.cluster.api_versions import fences_by_group


def test_a_broker_too_old_to_know_who_commits_does_not_fence_by_group() -> None:
    """TxnOffsetCommit names the member since its version 3 (Kafka 2.5)."""
    assert fences_by_group({28: 3})
    assert not fences_by_group({28: 2})
    assert not fences_by_group({0: 9})
    assert fences_by_group({}), "a broker that does not tell is believed"
