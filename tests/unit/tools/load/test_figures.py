"""What instants say: latencies without coordinated omission, rates, and whom a figure belongs to."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.tools.load.server import Server
from worker.tools.load.figures import Heard, backlog_flow, latency_ms, steady_flow, window_flow
from worker.tools.load.pace import WARM_UP_S, Sent, Steady, Window


def test_quantiles_are_numpys_of_latencies_that_occurred() -> None:
    """No value is made up between two."""
    seconds = np.random.default_rng(1).exponential(0.01, 5000)

    found = latency_ms(seconds)

    for name, q in (("p50", 50), ("p95", 95), ("p99", 99), ("p99.9", 99.9)):
        assert found[name] == pytest.approx(np.percentile(seconds, q, method="higher") * 1000)
        assert found[name] / 1000 == pytest.approx(seconds[np.argmin(abs(seconds - found[name] / 1000))])


@pytest.mark.parametrize(("samples", "told"), [(0, 0), (1, 0), (2, 1), (19, 1), (20, 2), (100, 3), (999, 3), (1000, 4)])
def test_a_quantile_wants_enough_samples(samples: int, told: int) -> None:
    """One in a thousand cannot be told from a hundred."""
    assert len(latency_ms(np.ones(samples))) == told


def test_a_stall_is_felt_by_all_who_came_during_it() -> None:
    """The server stands still for a second of ten: a tenth of the requests waits, half a second on average.

    A generator that waits for its answers would have sent one request in that second, and shown one slow answer.
    """
    pace = Steady(rate=100.0, count=1000)
    sent, heard = Server(service=0.0001, stall=(5.0, 6.0)).bear(pace)

    flow = steady_flow(pace, sent, heard, ended=111.0)

    assert flow.is_paced
    assert flow.latency_ms["p50"] < 1.0
    assert flow.latency_ms["p95"] == pytest.approx(500, abs=20)
    assert flow.latency_ms["p99"] == pytest.approx(900, abs=20)


def test_a_stall_that_holds_the_sender_up_too_is_not_omitted() -> None:
    """Counted from when each request was sent, nearly all of the stall would vanish: it counts from when it was due."""
    pace = Steady(rate=100.0, count=1000)
    sent, heard = Server(service=0.0001, stall=(5.0, 6.0), blocks=True).bear(pace)

    from_sent = latency_ms(heard.instants - sent.began - sent.instants)
    flow = steady_flow(pace, sent, heard, ended=111.0)

    assert from_sent["p99"] < 11
    assert flow.lateness_ms == pytest.approx(900, abs=20)
    assert not flow.is_paced  # and the generator says that it was late itself


def test_a_generator_that_is_slower_than_its_pace_says_so() -> None:
    """Each request takes it 2 ms, a thousand a second are asked for: the latency is its own."""
    pace = Steady(rate=1000.0, count=1000)
    sent, heard = Server(drag=0.002).bear(pace)

    flow = steady_flow(pace, sent, heard, ended=110.0)

    assert not flow.is_paced
    assert flow.lateness_ms > 900


def test_a_generator_may_be_late_where_it_does_not_matter() -> None:
    """Three milliseconds of a latency of forty are not what is reported."""
    pace = Steady(rate=100.0, count=200)
    due = np.arange(200) / 100.0
    heard = Heard(np.arange(200), 100.0 + due + 0.040)

    assert steady_flow(pace, Sent(100.0, due + 0.003), heard, ended=103.0).is_paced
    assert not steady_flow(pace, Sent(100.0, due + 0.012), heard, ended=103.0).is_paced


def test_a_request_without_an_answer_has_waited_until_the_end() -> None:
    """It is not left out, as if only the quick ones counted."""
    pace = Steady(rate=10.0, count=20)
    sent = Sent(100.0, np.arange(20) / 10.0)
    heard = Heard(np.arange(10), 100.0 + np.arange(10) / 10.0 + 0.01)

    flow = steady_flow(pace, sent, heard, ended=130.0)

    assert flow.unanswered == 10
    assert flow.latency_ms["p95"] > 28_000
    assert not flow.keeps_up


def test_a_long_latency_alone_is_no_growing_queue() -> None:
    """Half a second for every answer: each comes as fast as it is due."""
    pace = Steady(rate=100.0, count=400)
    due = np.arange(400) / 100.0

    flow = steady_flow(pace, Sent(100.0, due), Heard(np.arange(400), 100.0 + due + 0.5), ended=110.0)

    assert flow.keeps_up


def test_a_moment_in_which_nothing_is_answered_is_no_growing_queue() -> None:
    """Just before the end of the load, all of which was answered at once but for that."""
    pace = Steady(rate=100.0, count=200)

    flow = steady_flow(pace, *Server(service=0.0001, stall=(1.85, 2.2)).bear(pace), ended=110.0)

    assert flow.keeps_up
    assert flow.latency_ms["p99"] > 200


def test_a_server_that_is_too_slow_does_not_keep_up() -> None:
    """Two milliseconds a request, of which a thousand come a second."""
    pace = Steady(rate=1000.0, count=1000)

    flow = steady_flow(pace, *Server(service=0.002).bear(pace), ended=110.0)

    assert not flow.keeps_up
    assert flow.rate == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize(("count", "answered"), [(1, 0), (2, 1), (2, 0), (20, 0)])
def test_few_requests_whose_last_ones_have_no_answer_are_not_kept_up_with(count: int, answered: int) -> None:
    """However few they are: nothing of so little counts as fast enough."""
    pace = Steady(rate=1.0, count=count)
    due = np.arange(count) / 1.0
    heard = Heard(np.arange(answered), 100.0 + due[:answered] + 0.01)

    assert not steady_flow(pace, Sent(100.0, due), heard, ended=130.0).keeps_up


def test_one_request_that_is_answered_is_kept_up_with() -> None:
    """Also after the load's time, which is short."""
    pace = Steady(rate=1000.0, count=1)

    flow = steady_flow(pace, Sent(100.0, np.zeros(1)), Heard(np.arange(1), np.array([100.01])), ended=130.0)

    assert flow.keeps_up


def test_a_load_that_was_ended_early_was_not_kept_up_with() -> None:
    """However fast the answers came till then."""
    pace = Steady(rate=100.0, count=100)
    due = np.arange(60) / 100.0

    assert not steady_flow(pace, Sent(100.0, due), Heard(np.arange(60), 100.0 + due), ended=101.0).keeps_up


def test_the_rate_of_a_window_is_its_servers() -> None:
    """Two thousand a second, without what comes in the warm-up."""
    pace = Window(least=100, most=2000, seconds=1.0)

    flow = window_flow(pace, *Server(service=0.0005).bear(pace))

    assert flow.rate == pytest.approx(2000, rel=0.02)
    assert flow.is_paced


def test_a_window_that_stays_empty_is_the_generators_figure() -> None:
    """The server answers at once: whatever is counted is how fast requests came."""
    pace = Window(least=1000, most=4000, seconds=1.0)

    flow = window_flow(pace, *Server(drag=0.001).bear(pace))

    assert flow.rate == pytest.approx(1000, rel=0.02)
    assert not flow.is_paced


def test_a_reader_that_is_behind_makes_a_figure_the_generators() -> None:
    """Answers that wait to be read look late, or few."""
    pace = Window(least=100, most=2000, seconds=1.0)
    sent, heard = Server(service=0.0005).bear(pace)

    assert not window_flow(pace, sent, heard._replace(behind=0.8)).is_paced


def test_the_rate_of_a_backlog_is_of_its_middle() -> None:
    """Not of the seconds in which a contender warms up, nor of the last stragglers."""
    instants = np.concatenate([[200.0], 205.0 + np.arange(9997) / 5000.0, [260.0, 261.0]])
    sent = Sent(100.0, np.zeros(10_000))

    flow = backlog_flow(sent, Heard(np.arange(10_000), instants))

    assert flow.rate == pytest.approx(5000, rel=0.001)
    assert flow.unanswered == 0


def test_a_backlog_without_answers_has_no_rate() -> None:
    """And no division by nothing."""
    flow = backlog_flow(Sent(100.0, np.zeros(10)), Heard(np.array([], int), np.array([])))

    assert flow.rate == 0.0
    assert flow.unanswered == 10


def test_the_warm_up_is_not_measured() -> None:
    """A server that begins late has the rate that it has then."""
    pace = Window(least=100, most=2000, seconds=1.0)

    flow = window_flow(pace, *Server(service=0.0005, stall=(0.0, WARM_UP_S)).bear(pace))

    assert flow.rate == pytest.approx(2000, rel=0.05)
