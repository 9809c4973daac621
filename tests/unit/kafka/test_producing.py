"""Where an answer goes."""

from __future__ import annotations

import pytest

from worker.kafka.producing import ANY_PARTITION, partition_of


def test_a_key_decides() -> None:
    """Every Kafka client puts a key where every other does."""
    assert partition_of("answers", b"k", 5, {"answers": 4}) == ANY_PARTITION


@pytest.mark.parametrize("key", [None, b""])
def test_without_a_key_the_request_s_partition_decides(key: bytes | None) -> None:
    """Order holds there too, though the topics differ in size; not every client counts an empty key as one."""
    assert partition_of("answers", key, 5, {"answers": 4, "dead-letters": 2}) == 1
