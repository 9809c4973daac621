"""What a principal must be allowed to replay dead letters: four rights, each named when it is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from typer.testing import CliRunner

from tests.kafka.cluster import Sent
from tests.kafka.fixtures import or_skip
from tests.kafka.guarded import GuardedKafka, rule
from worker import cli
from worker.codecs.dead_letters import DeadLetters
from worker.core.failures import Code
from worker.core.records import Partition, Record, Rejection, Reply


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
        (rule(ResourceType.TOPIC, dead, AclOperation.READ), f"{dead}; grant it the operation READ"),
        (rule(ResourceType.TOPIC, requests, AclOperation.WRITE), f"{requests}; grant it the operation WRITE"),
        (rule(ResourceType.GROUP, group, AclOperation.READ), "grant it READ on the group"),
        (rule(ResourceType.TRANSACTIONAL_ID, group, AclOperation.WRITE), "WRITE on the transactional id of that name"),
    ]
    settings = {f"WORKER_{key}": value for key, value in guarded.scram(DEAD_LETTER_TOPIC=dead).items()}

    guarded.give([rights[0][0]])
    listed = CliRunner().invoke(cli.app, ["dead-letters", "list"], env=settings)
    guarded.give([right for right, _ in rights[1:]])
    for right, told in rights:
        guarded.take(right)
        refused = CliRunner().invoke(cli.app, ["dead-letters", "replay", "--yes"], env=settings)
        assert refused.exit_code in (2, 7), refused.output
        assert told in refused.output
        guarded.give([right])
    allowed = CliRunner().invoke(cli.app, ["dead-letters", "replay", "--yes"], env=settings)

    assert listed.exit_code == 0, listed.output
    assert allowed.exit_code == 0, allowed.output
    assert len(kafka.read_all(requests)) == 1
