"""Late requests are answered, kept as dead letters, and never run."""

from __future__ import annotations

import time
from pathlib import Path

from tests.kafka.cluster import Cluster, Sent
from tests.kafka.scene import RAW_HEADER, Scene, quick_at_least_once, raw

BACKLOG = 400


def within(timeout_ms: int, number: int) -> Sent:
    """The n-th raw request, with a timeout of `timeout_ms`."""
    sent = raw(number, key=b"key-%d" % number)
    return sent._replace(headers=[*sent.headers, ("timeout-ms", b"%d" % timeout_ms)])


def by(instant: float, number: int) -> Sent:
    """The n-th raw request, with `instant` as its deadline."""
    sent = raw(number, key=b"key-%d" % number)
    return sent._replace(headers=[*sent.headers, ("deadline", b"%d" % (instant * 1000))])


def runs(metrics: str) -> float:
    """The number of inferences on a page of metrics."""
    lines = [line for line in metrics.splitlines() if line.startswith("inference_worker_inference_runs_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@quick_at_least_once
def test_what_comes_too_late_is_answered_without_an_inference(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """A backlog older than its timeout costs no run, and requests in time are answered as ever."""
    with Scene(kafka, tmp_path, guarantee=guarantee) as scene:
        late = scene.publish([within(200, number) for number in range(BACKLOG)])
        late |= scene.publish([by(time.time() - 1.0, number) for number in range(BACKLOG, BACKLOG + 40)])
        time.sleep(0.3)

        replica = scene.replica()
        answers = {answer.source: answer for answer in scene.answers()}
        replica.wait_until_settled(len(late))

        assert set(answers) == set(late)
        assert {answer.headers["error-code"] for answer in answers.values()} == {"DEADLINE_EXCEEDED"}
        assert all(b"not run: the deadline was " in (answer.value or b"") for answer in answers.values())
        assert runs(replica.text("/metrics")) == 0

        in_time = scene.publish([within(600_000, number) for number in range(40)])
        in_time |= scene.publish([by(time.time() + 600.0, number) for number in range(40)])
        bad = scene.publish([Sent(b"k", raw(0).value, [RAW_HEADER, ("timeout-ms", b"soon")])])
        answers = {answer.source: answer for answer in scene.answers()}

        assert not any(answers[position].is_error for position in in_time)
        (refused,) = (answers[position] for position in bad)
        replica.wait_until_settled(len(scene.acknowledged))
        assert refused.headers["error-code"] == "INVALID_ARGUMENT"
        assert runs(replica.text("/metrics")) > 0
        assert replica.metric("inference_worker_rejections_total", code="DEADLINE_EXCEEDED") == len(late)
        scene.expect_kept()
        scene.expect_right_values()
