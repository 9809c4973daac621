"""A worker that reads another team's topic by mistake leaves no trace there."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kafka.cluster import Cluster, Sent
from tests.kafka.scene import Scene, both_guarantees, quick_exactly_once, raw


def payments(count: int) -> list[Sent]:
    """Another team's records."""
    return [
        Sent(b"p-%d" % at, json.dumps({"payment_id": at, "amount": 9.5, "currency": "EUR", "by": "x"}).encode(), [])
        for at in range(count)
    ]


@quick_exactly_once
def test_a_worker_at_a_foreign_topic_stops_and_leaves_no_trace(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """However often it starts again: no answer, no dead letter, no offset. The log says what it saw."""
    with Scene(kafka, tmp_path, guarantee=guarantee) as scene:
        scene.publish(payments(2000))

        for _ in range(2):
            replica = scene.start()
            assert replica.exit_code() == 6, replica.log
            assert "looks like a JSON object with the fields 'payment_id', 'amount'" in replica.log

        assert sum(kafka.end_offsets(scene.response_topic).values()) == 0
        assert sum(kafka.end_offsets(scene.dead_letter_topic).values()) == 0
        assert set(scene.committed().values()) <= {0}

        scene.start({"DELIVERY__REJECTION_LIMIT": "0"}).wait_until_ready()
        scene.expect_kept()
        assert all(answer.is_error for answer in scene.auditor.answers)


@both_guarantees
def test_a_group_that_answered_a_few_is_put_back(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Slow records are answered one by one up to a hundred. Exactly once these answers stay."""
    with Scene(kafka, tmp_path, guarantee=guarantee, partitions=1) as scene:
        replica = scene.replica()
        scene.publish(payments(50))
        scene.expect_all_committed()

        scene.publish(payments(60))

        assert replica.exit_code() == 6, replica.log
        stands = {0: 0 if guarantee == "at_least_once" else 50}
        assert scene.committed() == stands
        scene.publish(payments(40))
        again = scene.start()
        assert again.exit_code() == 6, again.log
        assert scene.committed() == stands


@quick_exactly_once
def test_a_group_that_has_served_answers_any_number_of_bad_records(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """A broken publisher does not stop workers that start later either."""
    with Scene(kafka, tmp_path, guarantee=guarantee, partitions=2) as scene:
        first = scene.replica()
        scene.publish([raw(at, key=b"k-%d" % at) for at in range(20)])
        scene.expect_all_committed()
        first.terminate()
        assert first.exit_code() == 0, first.log
        scene.publish(payments(1000))

        scene.start()

        scene.expect_kept()
