"""A reply topic has another owner than the worker: nothing he does to it costs other requests their answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.checker import judge
from tests.kafka.cluster import MORTAL, Cluster, Sent
from tests.kafka.replica import Replica
from tests.kafka.scene import RAW_HEADER, Scene, quick_exactly_once, raw, row

MANY = 200


def naming(topic: str, numbers: Sequence[int], *more: tuple[str, bytes]) -> list[Sent]:
    """Requests that name `topic` for their answers."""
    wanted = [("reply-topic", topic.encode()), *more]
    return [one._replace(headers=[*one.headers, *wanted]) for one in usual(numbers)]


def usual(numbers: Sequence[int]) -> list[Sent]:
    """Requests without a reply topic."""
    return [raw(n, key=b"k%d" % (n % 8)) for n in numbers]


def expect_errors(scene: Scene, topic: str, count: int) -> None:
    """Fail the test unless `count` requests have an error that names `topic`, and all others a result.

    Errors may come late: other answers overtook them while theirs were still on the way to the other topic.
    """
    answers = scene.answers()
    judge(answers, scene.acknowledged, scene.auditor.unsafe_commits, order="none").expect_clean(repeats=sys.maxsize)
    scene.expect_all_committed()
    scene.expect_right_values()
    errors = [answer for answer in answers if answer.is_error]
    assert len({answer.source for answer in errors}) == count
    assert {answer.headers["error-code"] for answer in errors} <= {"INVALID_ARGUMENT"}
    assert all(topic in str(answer.value) for answer in errors)


def succeed(scene: Scene, replica: Replica) -> None:
    """Wait for the replica's end because a topic refused an answer, and start another one, as a supervisor does."""
    assert replica.exit_code(60.0) == 4, replica.log
    scene.replica()


@quick_exactly_once  # at least once the client looks for the topic for half a minute
def test_a_reply_topic_that_is_gone_is_the_error_of_the_requests_that_name_it(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """It is deleted with answers under way: all other requests get theirs from the next process."""
    replies = kafka.create_topic("replies")
    settings = {"KAFKA__REPLY_TOPICS": replies}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, partitions=2, session=MORTAL) as scene:
        replica = scene.replica()
        kafka.produce(scene.topic, naming(replies, range(10)))
        kafka.read(replies, 10)

        kafka.delete_topic(replies)
        scene.publish([*naming(replies, range(MANY)), *usual(range(MANY))])

        expect_errors(scene, replies, MANY)
        assert "start again" in replica.log
        assert replica.is_running


def test_the_limit_of_a_reply_topic_is_its_own(kafka: Cluster, tmp_path: Path) -> None:
    """Answers to the response topic may be as large as the response topic takes."""
    replies = kafka.create_topic("replies", config={"max.message.bytes": "600"})
    large = Sent(b"big", b"".join(row(n) for n in range(5000)), [RAW_HEADER])
    with Scene(kafka, tmp_path, {"KAFKA__REPLY_TOPICS": replies}, partitions=1) as scene:
        scene.replica()

        scene.publish([large, *usual(range(10))])

        expect_errors(scene, replies, 0)
        kafka.produce(scene.topic, naming(replies, range(1)))
        kafka.read(replies, 1)
