"""What is reported of measurements: medians, which contender's they are, and one document."""

from __future__ import annotations

import json

from tests.unit.tools.bench.measurements import FACTS, HIGH, LOW, PARTS, WORKER, accounts, found, measured
from worker.tools.bench.course import Findings
from worker.tools.bench.report import Spread, accounts_of, document, warnings


def test_a_figure_is_a_median_with_its_least_and_most() -> None:
    """None where no round has it."""
    assert Spread.of([3.0, None, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert Spread.of([None]) is None


def test_costs_are_of_all_lanes_and_of_the_batch_size() -> None:
    """One and a half seconds of inference a second, on two lanes; 32 rows in batches of 64."""
    cost = accounts()[0].steady[0].cost

    assert cost.lane_busy == Spread(0.75, 0.75, 0.75)
    assert cost.batch_fill == Spread(0.5, 0.5, 0.5)


def test_a_latency_of_the_generators_is_not_told() -> None:
    """Where it was late in most rounds; a round in which it was not late counts alone where most are such."""
    late = measured(500.0, 900.0, is_paced=False)
    mostly = Findings({WORKER.name: [measured(1.0)]}, {(WORKER.name, LOW): [late, late, measured(500.0, 20.0)]}, (LOW,))
    rarely = mostly._replace(steady={(WORKER.name, LOW): [late, measured(500.0, 20.0), measured(500.0, 22.0)]})

    untold = accounts_of(mostly, PARTS)[0].steady[0]
    told = accounts_of(rarely, PARTS)[0].steady[0]

    assert not untold.is_paced
    assert untold.latency_ms == {}
    assert told.latency_ms["p99"] == Spread(21.0, 20.0, 22.0)


def test_a_load_beyond_the_maximum_has_a_line_without_figures() -> None:
    """It was not tried, and the report says so."""
    one_by_one = document(accounts(), FACTS)["contenders"][1]

    assert one_by_one["steady"][1]["is_over_maximum"] is True
    assert one_by_one["steady"][1]["requests_per_second"] is None


def test_the_document_is_json_with_all_keys_everywhere() -> None:
    """A reader never has to ask whether a key is there."""
    found = json.loads(json.dumps(document(accounts(), FACTS), allow_nan=False))

    assert [c["name"] for c in found["contenders"]] == [part.column.name for part in PARTS]
    assert len({frozenset(c) for c in found["contenders"]}) == 1
    assert len({frozenset(load) for c in found["contenders"] for load in c["steady"]}) == 1
    first = found["contenders"][0]
    assert first["maximum"]["requests_per_second"] == {"median": 8050.0, "min": 8000.0, "max": 8100.0}
    assert first["steady"][0]["latency_ms"]["p99"] == {"median": 21.0, "min": 20.0, "max": 22.0}
    assert first["steady"][1]["part_of_maximum"] == 0.5
    assert first["steady"][1]["asked_per_second"] == HIGH.rate
    assert found["contenders"][2]["maximum"]["is_of_generator"] is True


def test_what_must_be_known_of_the_figures_is_told() -> None:
    """Whose they are, where a queue grows, what was lost."""
    told = list(warnings(accounts()))

    assert "pass-through at its maximum; pass-through at 500/s" in told[0]
    assert f"{WORKER.name} at 4,000/s" in told[1]
    assert f"{WORKER.name} at 4,000/s 6" in told[2]


def test_a_measurement_that_was_interrupted_tells_what_there_is() -> None:
    """Contenders whose turn did not come have no figures, and no line that looks like one."""
    cut = Findings({WORKER.name: [measured(8000.0)]}, {}, (LOW,))

    first, second, _ = accounts_of(cut, PARTS)

    assert first.maximum is not None
    assert first.steady[0].rounds == 0
    assert second.maximum is None
    assert second.steady == ()
    assert document([first, second], FACTS)["contenders"][1]["maximum"] is None


def test_errors_are_summed_over_all_loads() -> None:
    """With the text of the first."""
    bad = measured(500.0, 20.0, errors={"INTERNAL": 2})
    errors = found()._replace(steady={(WORKER.name, LOW): [bad, bad]})

    account = accounts_of(errors, PARTS)[0]

    assert account.errors == {"INTERNAL": 4}
    assert account.error == '{"error": "odd"}'
