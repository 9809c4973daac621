"""A short mix of faults, as `make faults` runs it: both guarantees, its own broker, states, records and a registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.brokers import Brokers
from tests.faults.mix import Options, Outcome, run
from tests.faults.plan import Kind, kinds, plan
from tests.faults.records import FUNCTIONS, ROWS_OF_JSON
from tests.faults.requests import ROWS, Form
from tests.faults.table import table
from tests.kafka.apicurio import Apicurio
from tests.kafka.broker import FORGETFUL, NEVER_FENCED
from tests.kafka.cluster import fresh
from tests.kafka.fixtures import NewBroker
from tests.stores.running import RunningStore

PACE = 0.25  # of the long run's times
# Seeds in which the joining member is an idle consumer: whole replicas join in the other tests.


def mixed(  # all that a run may have
    new_broker: NewBroker,
    folder: Path,
    guarantee: str,
    protocol: str,
    seed: int,
    *,
    state: str = "",
    form: Form = ROWS,
    each: Sequence[Kind] | None = None,
    registry: Apicurio | None = None,
    store: RunningStore | None = None,
) -> Outcome:
    """The outcome of a short run with each of these kinds once; fails the test unless all promises were kept."""
    folder = folder / fresh("mix")
    folder.mkdir()
    each = each or kinds(guarantee, 1, has_store=store is not None, has_registry=registry is not None)
    ids = "stable" if guarantee == "exactly_once" else "unique"
    legs = plan(seed, 1, each, protocol=protocol, ids=ids, pace=PACE)

    outcome = run(
        Options(guarantee, legs, replicas=2, state=state, form=form),
        Brokers([new_broker({**NEVER_FENCED, **FORGETFUL} if guarantee == "exactly_once" else {})]),
        folder,
        store,
        registry,
    )

    assert not outcome.broken, table(outcome, "this test")
    assert outcome.faults == dict.fromkeys(each, 1)
    return outcome


@pytest.mark.parametrize(
    ("guarantee", "protocol", "seed", "state", "form"),
    [
        pytest.param("at_least_once", "classic", 6, "", ROWS, id="rows", marks=pytest.mark.slow),
        pytest.param("exactly_once", "consumer", 7, "gru", ROWS, id="states"),
        pytest.param("exactly_once", "consumer", 7, "gru", ROWS_OF_JSON, id="records", marks=pytest.mark.slow),
        pytest.param("at_least_once", "consumer", 6, "", FUNCTIONS, id="functions", marks=pytest.mark.slow),
    ],
)
def test_a_mix_of_faults_keeps_the_promise(
    new_broker: NewBroker, tmp_path: Path, guarantee: str, protocol: str, seed: int, state: str, form: Form
) -> None:
    """Killed, ended, suspended, rebalanced, and without a broker: every promise of the guarantee is kept."""
    outcome = mixed(new_broker, tmp_path, guarantee, protocol, seed, state=state, form=form)

    assert outcome.books.errors > 0


def test_a_mix_of_deaths_keeps_the_promise_to_records(new_broker: NewBroker, tmp_path: Path) -> None:
    """Replicas, hosts and functions die; each record's answer is its own, and those of another kind have none."""
    deaths = (Kind.KILL, Kind.HOST_KILL, Kind.TERMINATE)

    books = mixed(new_broker, tmp_path, "at_least_once", "consumer", 9, form=FUNCTIONS, each=deaths).books

    assert books.errors > 0
    assert books.passed_over > 0


@pytest.mark.slow
def test_a_mix_of_faults_and_a_registry_that_is_away_keep_the_promise(
    new_broker: NewBroker, registry: Apicurio, tmp_path: Path
) -> None:
    """Schemas change all the time, and the registry stops and stands still, besides all other faults."""
    assert mixed(new_broker, tmp_path, "at_least_once", "consumer", 6, registry=registry).books.errors > 0


@pytest.mark.slow
def test_a_mix_of_faults_leaves_no_wrong_state_in_a_store(new_broker: NewBroker, tmp_path: Path) -> None:
    """The store itself is killed and falls silent, besides all other faults."""
    with RunningStore(tmp_path, "--appendfsync", "always") as store:
        outcome = mixed(new_broker, tmp_path, "at_least_once", "consumer", 8, state="mean", store=store)

    assert outcome.books.states
