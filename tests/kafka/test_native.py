"""The ceiling of `make bench`, a worker in C, keeps the promises of those that it is compared with.

Skipped where there is no C compiler.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from bench import native
from bench.loops.task import Task
from tests.kafka.checker import Reference, answer, judge
from tests.kafka.cluster import TIMEOUT, Cluster, Reader, Sent, fresh
from tests.kafka.publisher import Acknowledged, publish
from tests.kafka.scene import RAW_HEADER, WIDTH, raw
from tests.models import mlp, save

pytestmark = pytest.mark.skipif(native.why_absent() is not None, reason=f"the native worker: {native.why_absent()}")
PARTITIONS = 4
NAN = np.full(WIDTH, np.nan, np.float32).tobytes()


class Stage(NamedTuple):
    """Topics, a group and a model of one test."""

    cluster: Cluster
    requests: str
    responses: str
    group: str
    model: bytes
    folder: Path

    def start(self) -> subprocess.Popen[bytes]:
        """One more of the group."""
        places = (self.cluster.bootstrap_servers, self.requests, self.responses, self.group)
        words = Task(*places, str(save(self.model, self.folder)), batch=8).words()
        return subprocess.Popen([native.program(), *words, *native.words(*places)])

    def expect_answered(self, asked: Acknowledged, reader: Reader, *, repeats: int = 0) -> None:
        """All promises are kept, and each result is the model's."""
        answers = [answer(record) for record in reader.read_to_end()]
        judge(answers, asked).expect_clean(repeats=repeats)
        assert not Reference(self.model).wrong_values(answers, asked)


@contextmanager
def stage(cluster: Cluster, folder: Path, hidden: Sequence[int]) -> Iterator[tuple[Stage, Reader]]:
    """And who reads its answers."""
    requests, responses = (cluster.create_topic(name, partitions=PARTITIONS) for name in ("requests", "answers"))
    with Reader(cluster, responses) as reader:
        yield Stage(cluster, requests, responses, fresh("native"), mlp(WIDTH, hidden, 4), folder), reader


@pytest.mark.parametrize("hidden", [(32,), (2048, 2048)], ids=["on-the-loop", "in-the-lane"])
def test_each_request_is_answered_in_order_and_committed(kafka: Cluster, tmp_path: Path, hidden: tuple[int]) -> None:
    """A result for each good one, an error for each bad one, and the end of every partition in its group."""
    bad = [Sent(b"k", b"short", [RAW_HEADER]), Sent(b"k", NAN, [RAW_HEADER]), Sent(b"k", raw(1).value)]
    keyed = [raw(n, key=b"%d" % (n % 7)) for n in range(1000)]
    keyless = [raw(n, partition=n % PARTITIONS) for n in range(100)]
    with stage(kafka, tmp_path, hidden) as (at, reader):
        asked = publish(kafka, at.requests, [*keyed, *bad, *keyless])
        with at.start() as process:
            reader.read_until(len(asked))
            process.send_signal(signal.SIGTERM)

        assert process.wait(TIMEOUT) == 0
        at.expect_answered(asked, reader)
        errors = [found for found in map(answer, reader.records) if found.is_error]
        assert [found.headers["error-code"] for found in errors] == ["INVALID_ARGUMENT"] * len(bad)
        assert kafka.committed(at.group, at.requests) == kafka.end_offsets(at.requests)


@pytest.mark.slow
def test_nothing_is_lost_when_one_joins_and_the_other_is_killed(kafka: Cluster, tmp_path: Path) -> None:
    """What the killed one had answered and not committed comes again, and nothing else."""
    with stage(kafka, tmp_path, (2048, 2048)) as (at, reader), ExitStack() as running:
        asked = publish(kafka, at.requests, [raw(n, key=b"%d" % (n % 7)) for n in range(4_000)])
        first = running.enter_context(at.start())
        running.callback(first.kill)
        reader.read_until(100)
        second = running.enter_context(at.start())
        running.callback(second.kill)
        reader.read_until(500)
        first.kill()
        reader.read_until(len(asked))
        while kafka.committed(at.group, at.requests) != kafka.end_offsets(at.requests):
            reader.read(0.1)
        second.send_signal(signal.SIGTERM)

        assert second.wait(TIMEOUT) == 0
        at.expect_answered(asked, reader, repeats=len(asked))
