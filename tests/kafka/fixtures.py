"""Fixtures that need a real Kafka: `kafka`, one broker for the whole test run, and `own_broker`, one that may be hurt.

Without any broker these tests are skipped and say so; where CI is set, that is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.kafka.broker import JvmBroker, NoBrokerError, any_broker
from tests.kafka.cluster import Cluster

T = TypeVar("T")


@pytest.fixture(scope="session")
def kafka() -> Iterator[Cluster]:
    """A running Kafka that all tests share: make your own topics and groups, and never stop it."""
    broker = _or_skip(any_broker)
    yield Cluster(broker.bootstrap_servers)
    broker.remove()


@pytest.fixture
def own_broker() -> Iterator[JvmBroker]:
    """A running broker of this test's own, to be killed and started again at will."""
    broker = _or_skip(lambda: JvmBroker().start())
    yield broker
    broker.remove()


def _or_skip(start: Callable[[], T]) -> T:
    try:
        return start()
    except NoBrokerError as reason:
        message = f"no Kafka: {reason}"
        if os.environ.get("CI"):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
