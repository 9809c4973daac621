"""A hosted model runs one batch at a time in a process that a run may end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest

from tests.hosts import CRASH, FACTS, Hosts
from tests.unit.test_settings import LEAST
from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.scored_model import HostedModel, wants_host
from worker.settings import load


class Ending:
    """Gives back what it got, and ends its host where the first element is 13."""

    hosts: Hosts

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        if feeds["x"][0, 0] == 13:
            self.hosts.at.ends(CRASH)
        return [feeds["x"]]

    def probe(self) -> Sequence[Array] | RunFailure:
        return [np.ones((1, 1))]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    runner = Ending()
    hosts = runner.hosts = Hosts(runner=runner)
    yield hosts
    hosts.close()


def rows(number: float) -> dict[str, Array]:
    return {"x": np.full((2, 3), number, np.float32)}


def test_a_run_that_ends_the_process_is_a_failure_and_the_next_one_runs(hosts: Hosts) -> None:
    """Another process takes it; the warm-up batch runs in it, too."""
    model = HostedModel(hosts.lanes, FACTS)

    first, ended, probed, last = model.run(rows(1)), model.run(rows(13)), model.probe(), model.run(rows(2))

    assert isinstance(ended, RunFailure)
    assert ended.ended_host
    assert not isinstance(first, RunFailure)
    assert not isinstance(probed, RunFailure)
    assert not isinstance(last, RunFailure)
    assert [first[0][0, 0], probed[0][0, 0], last[0][0, 0]] == [1, 1, 2]
    assert len(hosts.hosts) == 2


@pytest.mark.parametrize(
    ("settings", "is_wanted"),
    [
        ({"MODEL__PATH": "model.onnx", "RECORDS__ENCODING": "json"}, False),
        ({"MODEL__PATH": "model.py"}, False),
        ({"MODEL__PATH": "model.py", "RECORDS__ENCODING": "json"}, True),
        ({"MODEL__PATH": "model.onnx", "RECORDS__FUNCTIONS": "functions.py"}, True),
        ({"MODEL__PATH": "model.onnx", "RECORDS__FUNCTIONS": "functions.py", "MODEL__HOST": "thread"}, False),
    ],
)
def test_code_of_the_operator_s_answers_records_in_a_host(settings: Mapping[str, str], *, is_wanted: bool) -> None:
    """A worker may have it in its own process, too, and rows of an array file need speed."""
    given = {f"WORKER_{name}": value for name, value in settings.items()}

    assert wants_host(load(None, LEAST | given)) == is_wanted
