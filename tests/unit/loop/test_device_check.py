"""Errors that the model caused wait for proof that the device works."""

from __future__ import annotations

from tests.builders import rejection, request
from worker.loop.device_check import PATIENCE, Suspicion

HELD = (request(0), rejection(0))


def test_a_suspect_error_is_asked_about_once_the_lanes_are_idle() -> None:
    """While lanes run, a success may still prove the device; when none does, the warm-up batch must."""
    suspicion = Suspicion()
    suspicion.failed(HELD)

    assert not suspicion.wants_probe(lanes_are_idle=False)
    assert suspicion.wants_probe(lanes_are_idle=True)


def test_failures_without_a_suspect_are_asked_about_only_in_a_row() -> None:
    """A failed batch that is being split holds nothing up yet."""
    suspicion = Suspicion()
    for _ in range(PATIENCE - 1):
        suspicion.failed()
        assert not suspicion.wants_probe(lanes_are_idle=True)

    suspicion.failed()

    assert suspicion.wants_probe(lanes_are_idle=False)


def test_one_probe_is_out_at_a_time() -> None:
    """Who waits for an answer does not ask again."""
    suspicion = Suspicion()
    suspicion.failed(HELD)

    assert suspicion.wants_probe(lanes_are_idle=True)
    assert suspicion.is_probing
    assert not suspicion.wants_probe(lanes_are_idle=True)

    suspicion.probed()
    assert suspicion.wants_probe(lanes_are_idle=True)


def test_proof_lets_the_suspects_go_and_forgets_the_failures() -> None:
    """After a success the count starts again."""
    suspicion = Suspicion()
    suspicion.failed(HELD)
    suspicion.failed(HELD, HELD)
    assert suspicion.failures == 2

    assert suspicion.cleared() == [HELD] * 3

    assert suspicion.failures == 0
    assert suspicion.cleared() == []
    assert not suspicion.wants_probe(lanes_are_idle=True)
