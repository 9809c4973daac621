"""What a principal must be allowed to replay dead letters: four rights, each named when it is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from typer.testing import CliRunner

from tests.kafka.cluster import TIMEOUT, Cluster, Sent
from tests.kafka.fixtures import or_skip
from tests.kafka.guarded import USER, GuardedKafka
from worker import cli
from worker.codecs.dead_letters import DeadLetters
from worker.core.failures import Code
from worker.core.records import Partition, Record, Rejection, Reply


class Right(NamedTuple):
    """One operation on one thing, and what is said without it."""

    kind: ResourceType
    name: str
    operation: AclOperation
    told: str

    @property
    def binding(self) -> AclBinding:
        return AclBinding(
            self.kind,
            self.name,
            ResourcePatternType.LITERAL,
            f"User:{USER}",
            "*",
            self.operation,
            AclPermissionType.ALLOW,
        )

    @property
    def filter(self) -> AclBindingFilter:
        return AclBindingFilter(
            self.kind,
            self.name,
            ResourcePatternType.LITERAL,
            f"User:{USER}",
            "*",
            self.operation,
            AclPermissionType.ALLOW,
        )


class Access:
    """The worker's access rules on a guarded broker."""

    def __init__(self, kafka: Cluster) -> None:
        self._admin = kafka.admin

    def give(self, rights: list[Right]) -> None:
        for future in self._admin.create_acls([right.binding for right in rights]).values():
            future.result(TIMEOUT)
        self._wait({right.binding for right in rights}, set())

    def take(self, right: Right) -> None:
        for future in self._admin.delete_acls([right.filter]).values():
            future.result(TIMEOUT)
        self._wait(set(), {right.binding})

    def _wait(self, there: set[AclBinding], gone: set[AclBinding]) -> None:
        anything: Any = None  # the client takes None for names, and does not say so in its types
        everything = AclBindingFilter(
            ResourceType.ANY,
            anything,
            ResourcePatternType.ANY,
            anything,
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        deadline = time.monotonic() + TIMEOUT
        while not (there <= (known := set(self._admin.describe_acls(everything).result(TIMEOUT))) and not gone & known):
            assert time.monotonic() < deadline, "the broker does not know its access rules"
            time.sleep(0.02)


@pytest.fixture
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    """A broker that lets nobody do anything unasked."""
    broker = or_skip(lambda: GuardedKafka(tmp_path_factory.mktemp("guarded")))
    yield broker
    broker.remove()


@pytest.mark.slow
def test_four_rights_are_enough_and_each_is_named_when_missing(guarded: GuardedKafka) -> None:
    """Read the letters (enough to list them), write the requests, read the group, write its transactional id."""
    kafka = guarded.cluster
    dead, requests = kafka.create_topic("dead"), kafka.create_topic("requests")
    group = f"{dead}-replay"
    rejection = Rejection(
        Record(Partition(requests, 0), 1, b"k", b"{}", (), None), Code.INTERNAL, "no", Reply("application/json")
    )
    letter = DeadLetters(dead, "group", 1_000_000).letter(rejection)
    kafka.produce(dead, [Sent(letter.key, letter.value, letter.headers)])
    rights = [
        Right(ResourceType.TOPIC, dead, AclOperation.READ, f"{dead}; grant it the operation READ"),
        Right(ResourceType.TOPIC, requests, AclOperation.WRITE, f"{requests}; grant it the operation WRITE"),
        Right(ResourceType.GROUP, group, AclOperation.READ, "grant it READ on the group"),
        Right(ResourceType.TRANSACTIONAL_ID, group, AclOperation.WRITE, "WRITE on the transactional id of that name"),
    ]
    access = Access(kafka)
    settings = {f"WORKER_{key}": value for key, value in guarded.scram(DEAD_LETTER_TOPIC=dead).items()}

    access.give(rights[:1])
    listed = CliRunner().invoke(cli.app, ["dead-letters", "list"], env=settings)
    access.give(rights[1:])
    for right in rights:
        access.take(right)
        refused = CliRunner().invoke(cli.app, ["dead-letters", "replay"], env=settings)
        assert refused.exit_code in (2, 7), refused.output
        assert right.told in refused.output
        access.give([right])
    allowed = CliRunner().invoke(cli.app, ["dead-letters", "replay"], env=settings)

    assert listed.exit_code == 0, listed.output
    assert allowed.exit_code == 0, allowed.output
    assert len(kafka.read_all(requests)) == 1
