"""A short mix of faults, as `make faults` runs it: each kind once, both guarantees, its own broker, and states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.brokers import Brokers
from tests.faults.mix import Options, run
from tests.faults.plan import kinds, plan
from tests.faults.records import FUNCTIONS, ROWS_OF_JSON
from tests.faults.requests import ROWS, Form
from tests.faults.table import table
from tests.kafka.broker import FORGETFUL, NEVER_FENCED
from tests.kafka.cluster import fresh
from tests.kafka.fixtures import NewBroker
from tests.stores.running import RunningStore

PACE = 0.25  # of the long run's times
# Seeds in which the joining member is an idle consumer: whole replicas join in the other tests.


@pytest.mark.parametrize(
    ("guarantee", "protocol", "seed", "state", "form"),
    [
        pytest.param("at_least_once", "classic", 6, "", ROWS, id="rows", marks=pytest.mark.slow),
        pytest.param("exactly_once", "consumer", 7, "gru", ROWS, id="states"),
        pytest.param("exactly_once", "consumer", 7, "gru", ROWS_OF_JSON, id="records", marks=pytest.mark.slow),
        pytest.param("at_least_once", "consumer", 6, "", FUNCTIONS, id="functions"),
    ],
)
def test_a_mix_of_faults_keeps_the_promise(
    new_broker: NewBroker, tmp_path: Path, guarantee: str, protocol: str, seed: int, state: str, form: Form
) -> None:
    """Killed, ended, suspended, rebalanced, and without a broker: every promise of the guarantee is kept."""
    folder = tmp_path / fresh("mix")
    folder.mkdir()
    each = kinds(guarantee, 1)
    ids = "stable" if guarantee == "exactly_once" else "unique"
    legs = plan(seed, 1, each, protocol=protocol, ids=ids, pace=PACE)

    outcome = run(
        Options(guarantee, legs, replicas=2, state=state, form=form),
        Brokers([new_broker({**NEVER_FENCED, **FORGETFUL} if guarantee == "exactly_once" else {})]),
        folder,
    )

    assert not outcome.broken, table(outcome, "this test")
    assert outcome.faults == dict.fromkeys(each, 1)
    assert outcome.books.errors > 0


@pytest.mark.slow
def test_a_mix_of_faults_leaves_no_wrong_state_in_a_store(new_broker: NewBroker, tmp_path: Path) -> None:
    """The store itself is killed and falls silent, besides all other faults."""
    folder = tmp_path / fresh("mix")
    folder.mkdir()
    each = kinds("at_least_once", 1, has_store=True)
    legs = plan(8, 1, each, protocol="consumer", ids="unique", pace=PACE)

    with RunningStore(folder, "--appendfsync", "always") as store:
        outcome = run(
            Options("at_least_once", legs, replicas=2, state="mean"), Brokers([new_broker({})]), folder, store
        )

    assert not outcome.broken, table(outcome, "this test")
    assert outcome.faults == dict.fromkeys(each, 1)
    assert outcome.books.states
