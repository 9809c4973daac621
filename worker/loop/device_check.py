"""Is it the data or the device?

A model that fails on one request is asked about the next one. A device that died fails on all of them, and answering
each with an error would drain the topic into the dead letters. So an error that the model caused is held until there is
proof that the device works: any success, or the warm-up batch run again. It is asked for after `PATIENCE` failures in a
row, and as soon as the lanes have no other batch to prove it with. If the warm-up batch fails too, the process stops
and what is held stays unanswered and uncommitted. Each model has a check of its own: that another one runs says nothing
of its file, its memory or its session.
"""

from __future__ import annotations

from worker.core.records import Refused

# Failures in a row before the device itself is asked. Halving a batch of 64 requests fails up to 7 times in a row for
# one bad request, so twenty are not that; a probe costs one run of the warm-up batch.
PATIENCE = 20


class DeviceCheck:
    """One model's failures in a row, the rejections that they caused, held back, and whether a probe is out."""

    def __init__(self) -> None:
        self.failures = 0
        self._held: list[Refused] = []
        self.is_probing = False

    def failed(self, *held: Refused) -> None:
        """A run failed, or the model answered only nonsense; `held` are the rejections that follow from it."""
        self.failures += 1
        self._held.extend(held)

    def cleared(self) -> list[Refused]:
        """The device works. Returns the rejections that may leave now."""
        self.failures = 0
        held, self._held = self._held, []
        return held

    def wants_probe(self, *, is_running: bool) -> bool:
        """Whether to run the warm-up batch now; True once for each probe. `is_running`: the lanes have a batch."""
        if self.is_probing or not (self.failures >= PATIENCE or (self._held and not is_running)):
            return False
        self.is_probing = True
        return True

    def probed(self) -> None:
        """The warm-up batch has run."""
        self.is_probing = False
