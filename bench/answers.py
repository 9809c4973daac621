"""Reads the worker's answers to some requests, of which each must have one."""

from __future__ import annotations

from collections.abc import Iterator

from bench.ground import WORKER, Job, response_topic, wait_for
from bench.running import running
from tests.kafka.cluster import Read


def answered(job: Job, count: int) -> Iterator[tuple[bytes, Read]]:
    """Has the worker answer the job's only topic, which holds `count` requests and is deleted then.

    Yields the value of each request with its answer. Fails unless each has exactly one.
    """
    cluster, (topic,) = job.cluster, job.requests
    with response_topic(cluster) as responses, running(WORKER, job, responses) as worker:
        wait_for(cluster, responses, count, worker.why_dead)
        assert worker.replica is not None
        worker.replica.stop()
        answers = cluster.read_all(responses)
    asked = {b"%b/%d/%d" % (topic.encode(), *each[:2]): each.value or b"" for each in cluster.read_all(topic)}
    cluster.delete_topic(topic)
    for answer in answers:
        source = dict(answer.headers)["source"] or b""
        assert source in asked, f"{source!r} is answered twice"
        yield asked.pop(source), answer
    assert not asked, f"{len(asked)} requests are not answered"
