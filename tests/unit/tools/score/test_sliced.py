"""Many inferences for one errand: each of at most a batch, and none believed that loses rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from worker.core.failures import ModelBroken, RunFailure
from worker.core.records import Array
from worker.tools.score.results import ScoreCounts
from worker.tools.score.scorer import Sliced

Outputs = Sequence[Array] | RunFailure


class Runs:
    """A runner that remembers how many rows each inference had."""

    def __init__(self, answer: Callable[[Array], Outputs]) -> None:
        self._answer = answer
        self.rows: list[int] = []

    def run(self, feeds: Mapping[str, Array]) -> Outputs:
        self.rows.append(len(feeds["x"]))
        return self._answer(feeds["x"])

    def probe(self) -> Outputs:
        return [np.zeros(1)]


def test_an_errand_is_cut_into_batches() -> None:
    """The rest is smaller; the outputs come home whole."""
    runner = Runs(lambda x: [x * 2, x + 1])
    x = np.arange(10)

    outputs = Sliced(runner, 4).run({"x": x})

    assert runner.rows == [4, 4, 2]
    assert not isinstance(outputs, RunFailure)
    assert [o.tolist() for o in outputs] == [(x * 2).tolist(), (x + 1).tolist()]


def test_a_batch_is_run_as_it_is() -> None:
    """Not even its row count is judged here: others do."""
    runner = Runs(lambda x: [x[1:]])

    outputs = Sliced(runner, 4).run({"x": np.arange(4)})

    assert not isinstance(outputs, RunFailure)
    assert len(outputs[0]) == 3


def test_the_first_failure_is_that_of_all() -> None:
    """The loop asks again in smaller pieces."""
    runner = Runs(lambda x: RunFailure("poisoned") if 5 in x else [x])

    assert Sliced(runner, 4).run({"x": np.arange(100)}) == RunFailure("poisoned")
    assert runner.rows == [4, 4]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x: [x[1:] if 0 in x else np.append(x, 0)], "4 rows went in"),
        (lambda x: [np.zeros((len(x), 1 + (0 in x)))], "depends on their neighbours"),
    ],
)
def test_rows_that_only_add_up_are_no_answers(answer: Callable[[Array], Outputs], words: str) -> None:
    """One lost here and one gained there would give requests each other's results."""
    failure = Sliced(Runs(answer), 4).run({"x": np.arange(8)})

    assert isinstance(failure, RunFailure)
    assert words in failure.message
    assert failure.loses_rows is ("went in" in words)


def test_results_of_a_model_that_loses_rows_are_not_trusted() -> None:
    """What is written already may be other rows' results, so scoring ends with an error and not with a file."""
    with pytest.raises(ModelBroken, match=r"written before may be wrong: score the file anew with --batch-size 1"):
        ScoreCounts(8).rows_lost("output y: 8 rows went in, shape (7,) came out")


def test_the_probe_is_the_runner_s() -> None:
    """The warm-up batch is small."""
    assert Sliced(Runs(lambda x: [x]), 4).probe() == [np.zeros(1)]
