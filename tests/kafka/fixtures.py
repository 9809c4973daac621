"""Fixtures that need a real Kafka: `kafka`, one broker for the whole test run; `hurt_broker`, one for all tests that
stop it; `own_broker`, one for a single test; `new_broker`, one that is configured as a test likes; `registry`, a schema
registry; `theirs`, the official client of it.

Without any broker these tests are skipped and say so; where CI is set, that is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Protocol, TypeVar

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.kafka.apicurio import Apicurio
from tests.kafka.broker import JvmBroker, Login, NoBrokerError, any_broker
from tests.kafka.cluster import Cluster

T = TypeVar("T")


class NewBroker(Protocol):
    """The function that `new_broker` yields: call it to start a broker."""

    def __call__(self, config: Mapping[str, str], login: Login | None = None) -> JvmBroker: ...


@pytest.fixture(scope="session")
def kafka() -> Iterator[Cluster]:
    """A running Kafka that all tests share: make your own topics and groups, and never stop it."""
    broker = or_skip(any_broker)
    cluster = Cluster(broker.bootstrap_servers)
    cluster.wait_until_coordinating()
    yield cluster
    broker.remove()


@pytest.fixture
def new_broker() -> Iterator[NewBroker]:
    """Starts a broker of this test's own, configured as it likes."""
    with ExitStack() as brokers:

        def start(config: Mapping[str, str], login: Login | None = None) -> JvmBroker:
            return brokers.enter_context(or_skip(lambda: JvmBroker(config, login)))

        yield start


@pytest.fixture
def own_broker(new_broker: NewBroker) -> JvmBroker:
    """A running broker of this test's own, to be killed and started again at will."""
    return new_broker({})


@pytest.fixture(scope="session")
def _hurt_broker() -> Iterator[JvmBroker]:
    with or_skip(JvmBroker) as broker:
        yield broker


@pytest.fixture
def hurt_broker(_hurt_broker: JvmBroker) -> Iterator[JvmBroker]:
    """A running broker to be killed and started again at will; later tests get it too, with what is on it."""
    _hurt_broker.heal()
    yield _hurt_broker
    _hurt_broker.heal()


@pytest.fixture(scope="session")
def _registry() -> Iterator[Apicurio]:
    registry = or_skip(Apicurio)
    with registry:
        yield registry


@pytest.fixture
def registry(_registry: Apicurio) -> Iterator[Apicurio]:
    """A real schema registry, to be stopped and started again at will: use subjects of your own."""
    _registry.heal()
    yield _registry
    _registry.heal()


@pytest.fixture
def theirs(registry: Apicurio) -> Iterator[SchemaRegistryClient]:
    """The official client of that registry, as a publisher has it."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def or_skip(start: Callable[[], T]) -> T:
    """Return the result of `start`; without a broker skip the test, or fail it where CI is set."""
    try:
        return start()
    except NoBrokerError as reason:
        message = f"no Kafka: {reason}"
        if os.environ.get("CI"):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
