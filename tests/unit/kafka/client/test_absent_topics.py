"""A topic's name that is nearly another's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from worker.kafka.client.absent_topics import near_topics, topics_told


class Admin:
    """Knows these topics, or may tell of none."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics

    def list_topics(self, timeout: float) -> Any:
        if not self.topics:
            raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
        return SimpleNamespace(topics=dict.fromkeys(self.topics, SimpleNamespace(partitions={0: 0, 1: 0})))


@pytest.mark.parametrize(
    ("known", "in_use", "told"),
    [
        (("newc-req", "answers"), (), "; did you mean newc-req?"),
        (("requests", "newc-req", "new-reqs"), (), "; did you mean newc-req or new-reqs?"),
        (("newc-req",), ("newc-req",), ""),
        (("__new-req", "orders"), (), ""),
        ((), (), ""),
    ],
)
def test_the_nearest_names_are_told(known: tuple[str, ...], in_use: tuple[str, ...], told: str) -> None:
    """None that this worker uses for something else, none of Kafka's own, and none where we may not look."""
    assert near_topics(Admin(*known), "new-req", 1.0, in_use) == told  # type: ignore[arg-type]  # a fake


def test_the_topics_that_we_may_see_are_told() -> None:
    """With their partitions, without Kafka's own; none where we may not look."""
    assert topics_told(Admin("orders", "__consumer_offsets"), 1.0) == {"orders": 2}  # type: ignore[arg-type]  # a fake
    assert topics_told(Admin(), 1.0) == {}  # type: ignore[arg-type]  # a fake
