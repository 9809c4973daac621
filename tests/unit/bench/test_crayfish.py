"""What the figures of tests/bench/crayfish are made of; the runs themselves need a broker."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime
import orjson
import pytest

from tests.bench.crayfish.events import FFNN, FORMS, RESNET, as_json, crayfish_json, events
from tests.bench.crayfish.published import LATENCIES, THROUGHPUTS
from tests.bench.crayfish.rules import Floats, Judged, Trips, judged, middle
from tests.bench.crayfish.serving import Side, Throughput
from tests.bench.crayfish.tables import Found, tables


def trips(asked: float, served: float, count: int = 1000) -> Trips:
    """So many events, due at one rate and answered at another, the first one at once."""
    due = np.arange(count) / asked
    return Trips(due, due, np.maximum(due, np.arange(count) / served))


def weights(model: bytes) -> int:
    return sum(math.prod(each.dims) for each in onnx.load_from_string(model).graph.initializer)


def test_what_keeps_up_counts_at_the_rate_that_is_asked() -> None:
    """Neither the first quarter nor the last answer's way changes that by much."""
    assert judged(trips(asked=100, served=5000)).rate == pytest.approx(100, rel=0.01)


def test_where_all_events_come_at_once_three_quarters_of_the_rate_count() -> None:
    """Crayfish's rule takes the time from the creation of the first event that is left."""
    assert judged(trips(asked=1e9, served=1000)).rate == pytest.approx(750, rel=0.01)


def test_the_first_quarter_of_what_was_read_is_in_no_figure() -> None:
    """However late its answers were."""
    due = np.arange(400.0)
    waited = np.where(due < 100, 50.0, 0.010)

    found = judged(Trips(due, due, due + waited))

    assert (found.mean, found.p50, found.p99) == pytest.approx((10, 10, 10))


def test_a_latency_counts_from_the_instant_an_event_was_due() -> None:
    """A sender that is late hides nothing."""
    due: Floats = np.arange(400.0)

    assert judged(Trips(due, due + 0.3, due + 0.5)).mean == pytest.approx(500)


def test_too_few_answers_tell_no_p99() -> None:
    """A quantile is a latency that did occur."""
    assert math.isnan(judged(trips(100, 100, count=120)).p99)


def test_the_rounds_middle_is_that_of_each_figure() -> None:
    """Not that of one round."""
    assert middle([Judged(1, 9, 5, 7), Judged(2, 8, 4, 9), Judged(3, 7, 6, 8)]) == Judged(2, 8, 5, 8)


def test_an_event_holds_the_same_numbers_in_either_form() -> None:
    """To the last bit."""
    for written, rows in zip(events(FFNN, "JSON", 2), events(FFNN, "rows", 2), strict=True):
        (x,) = orjson.loads(written.value)["inputs"]

        assert x["shape"] == [2, 784]
        assert np.array_equal(np.array(x["data"], np.float32), np.frombuffer(rows.value, np.float32))


def test_our_json_is_about_as_long_as_crayfishs_own() -> None:
    """Within a hundredth, so that neither sends more than the other."""
    images = np.random.default_rng(1).random((1, 784), np.float32)

    assert len(as_json(images)) == pytest.approx(len(crayfish_json(images, 1_700_000_000_000)), rel=0.01)


def test_the_feed_forward_net_has_crayfishs_layers() -> None:
    """28,618 parameters, the 28K of the paper."""
    assert weights(FFNN.build()) == 785 * 32 + 3 * 33 * 32 + 33 * 10 == 28_618


def test_the_residual_net_has_as_many_weights_as_resnet50() -> None:
    """Those of torchvision, but for a batch normalisation: of its two numbers a channel the bias is left."""
    model = RESNET.build()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    (answers,) = session.run(None, {"x": np.random.default_rng(0).random((1, *RESNET.shape), np.float32)})

    assert weights(model) == 25_557_032 - 53_120 + 26_560
    assert answers.shape == (1, 1000)
    assert np.isfinite(answers).all()


def test_the_tables_have_our_figures_and_what_is_published_of_that_network() -> None:
    """Ours are the medians of the rounds; a run that was not asked for its throughput is in no table of that."""
    delays = {load: Judged(5, 1.25, 1, 2) for load in ("low", "50%")}
    rounds = {
        Side(FFNN, form, 1, 64): [Found(Throughput(rate, 9.0, rate, rate), delays) for rate in (1e3, 3e3, 2e3)]
        for form in FORMS
    } | {Side(FFNN, "JSON", 1, 64, images): [Found(None, delays)] for images in LATENCIES}

    throughput, latency, of_images, beside = tables(rounds)

    assert [line[1:3] for line in throughput.lines] == [["2,000", "1,000-3,000"]] * 2
    assert [line[3] for line in latency.lines] == ["1.2"] * 4
    assert [line[0] for line in of_images.lines] == ["JSON, 32", "JSON, 128", "JSON, 512"]
    assert len(beside.lines) == 2 + sum(each.network == FFNN.name for each in THROUGHPUTS)
    assert {len(line) for section in tables(rounds) for line in section.lines} <= {5, 6}
