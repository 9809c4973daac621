"""Requests go on to a stage, which need not be the batcher."""

from __future__ import annotations

from tests.builders import BOUNDS, CHUNK, P0, POLICY, World, record
from tests.fakes import MODEL
from worker.core.batching.back_pressure import Intake
from worker.core.batching.batcher import Batcher
from worker.core.records import Request
from worker.loop.decoding import Decoding


class Holding(Batcher):
    """Holds requests back, until they are released."""

    def __init__(self) -> None:
        super().__init__({MODEL: POLICY})
        self.held: list[Request] = []

    def add(self, request: Request, now: float) -> None:  # as the loop calls it
        self.held.append(request)

    def release(self, now: float) -> None:
        for request in self.held:
            super().add(request, now)


def test_a_stage_may_hold_a_request_back() -> None:
    """It is owed an answer from when it is taken, and gathers in a batch from when it is released."""
    world, stage = World(), Holding()
    decoding = Decoding(
        quarantine=world.quarantine,
        codec=world.codec,
        ledger=world.ledger,
        intake=Intake(BOUNDS, world.ledger, CHUNK),
        stage=stage,
        punctuality=world.worker._steps._outcomes._punctuality,
        outcomes=world.worker._steps._outcomes,
    )

    decoding.take([record(0), record(1)], 1.0)
    taken, due_while_held = world.ledger.records, stage.next_due
    stage.release(2.0)

    assert (taken, due_while_held) == (2, None)
    assert stage.next_due == 2.0 + POLICY.linger
    assert world.ledger.oldest_by_partition() == {P0: 1.0}
