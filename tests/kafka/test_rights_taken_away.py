"""A running worker loses a right: it stops, has committed nothing unanswered, and goes on later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from tests.kafka.cluster import MORTAL
from tests.kafka.fixtures import or_skip
from tests.kafka.guarded import GuardedKafka, rule
from tests.kafka.scene import GUARANTEES, Scene, both_guarantees, raw
from tests.kafka.test_reply_topics import expect_errors, naming, succeed, usual
from tests.kafka.test_security import rights

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    """A broker with access rules."""
    broker = or_skip(lambda: GuardedKafka(tmp_path_factory.mktemp("guarded")))
    yield broker
    broker.remove()


@both_guarantees
def test_a_worker_that_may_not_answer_any_more_stops(guarded: GuardedKafka, tmp_path: Path, guarantee: str) -> None:
    """WRITE on the response topic is taken away: exit 4, with nothing committed past; given back, all is answered."""
    settings = {**guarded.scram(), **GUARANTEES[guarantee]}
    with Scene(guarded.cluster, tmp_path, settings, guarantee=guarantee, partitions=1, session=MORTAL) as scene:
        guarded.grant(rights(scene.settings))
        replica = scene.replica()
        scene.publish([raw(number) for number in range(20)])
        scene.answers()
        scene.expect_all_committed()
        write = rule(ResourceType.TOPIC, scene.response_topic, AclOperation.WRITE)

        guarded.take(write)
        scene.publish([raw(number) for number in range(20)])

        assert replica.exit_code(60.0) == 4, replica.log
        assert scene.committed() == {0: 20}
        assert scene.response_topic in replica.log
        guarded.give([write])
        scene.replica()
        scene.expect_kept()
        scene.expect_right_values()


@both_guarantees
def test_a_worker_that_may_not_write_a_reply_topic_goes_on_without_it(
    guarded: GuardedKafka, tmp_path: Path, guarantee: str
) -> None:
    """From the next start, requests that name the topic get an error, and all others their results."""
    replies = guarded.cluster.create_topic("replies")
    settings = {**guarded.scram(), **GUARANTEES[guarantee], "KAFKA__REPLY_TOPICS": replies}
    with Scene(guarded.cluster, tmp_path, settings, guarantee=guarantee, partitions=1, session=MORTAL) as scene:
        guarded.grant(rights(scene.settings))
        replica = scene.replica()
        guarded.cluster.produce(scene.topic, naming(replies, range(10)))
        guarded.cluster.read(replies, 10)

        guarded.take(rule(ResourceType.TOPIC, replies, AclOperation.WRITE))
        scene.publish([*naming(replies, range(20)), *usual(range(20))])

        if guarantee == "exactly_once":  # the client does not name the topic
            succeed(scene, replica)
        expect_errors(scene, replies, 20)


@both_guarantees
def test_a_reply_topic_that_refuses_answers_for_a_reason_no_start_sees_ends_no_worker_for_ever(
    guarded: GuardedKafka, tmp_path: Path, guarantee: str
) -> None:
    """It takes no answer without a key, and the worker may not read its settings. Requests that name it get errors."""
    replies = guarded.cluster.create_topic("replies", config={"cleanup.policy": "compact"})
    settings = {**guarded.scram(), **GUARANTEES[guarantee], "KAFKA__REPLY_TOPICS": replies}
    with Scene(guarded.cluster, tmp_path, settings, guarantee=guarantee, partitions=1, session=MORTAL) as scene:
        guarded.grant(rights(scene.settings))
        replica = scene.replica()

        scene.publish([*(one._replace(key=None) for one in naming(replies, range(20))), *usual(range(20))])

        expect_errors(scene, replies, 20)
        assert replica.is_running, replica.log
        replica.terminate()
        assert replica.exit_code() == 0, replica.log
