"""Errors that the model caused wait for proof that the device works."""

from __future__ import annotations

from tests.builders import rejection, request
from worker.loop.outcomes import PATIENCE, DeviceCheck

HELD = (request(0), rejection(0))


def test_a_suspect_error_is_asked_about_once_the_model_has_no_batch_in_the_lanes() -> None:
    """While one runs, its success may still prove the device; when none does, the warm-up batch must."""
    check = DeviceCheck()
    check.failed(HELD)

    assert not check.wants_probe(is_running=True)
    assert check.wants_probe(is_running=False)


def test_failures_without_a_suspect_are_asked_about_only_in_a_row() -> None:
    """A failed batch that is being split holds nothing up yet."""
    check = DeviceCheck()
    for _ in range(PATIENCE - 1):
        check.failed()
        assert not check.wants_probe(is_running=False)

    check.failed()

    assert check.wants_probe(is_running=True)


def test_one_probe_is_out_at_a_time() -> None:
    """Who waits for an answer does not ask again."""
    check = DeviceCheck()
    check.failed(HELD)

    assert check.wants_probe(is_running=False)
    assert check.is_probing
    assert not check.wants_probe(is_running=False)

    check.probed()
    assert check.wants_probe(is_running=False)


def test_proof_lets_the_suspects_go_and_forgets_the_failures() -> None:
    """After a success the count starts again."""
    check = DeviceCheck()
    check.failed(HELD)
    check.failed(HELD, HELD)
    assert check.failures == 2

    assert check.cleared() == [HELD] * 3

    assert check.failures == 0
    assert check.cleared() == []
    assert not check.wants_probe(is_running=False)
