"""Leaves the states of a clean stop to the next process, which then restores only later changes.

`loop/checkpoint.py` decides when, and for which partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from worker.core.records import Partition
from worker.state.key_slots import KeySlots
from worker.state.restoring import Extent, Keeper, Restorer


class KeptStates:
    """Owns how far the states of each restored partition follow their changelog."""

    def __init__(
        self, uncommitted: Callable[[], Collection[Partition]], slots: KeySlots, restorer: Restorer, keeper: Keeper
    ) -> None:
        """`uncommitted`: the partitions that may have states whose requests the group has not committed."""
        self._uncommitted = uncommitted
        self._slots = slots
        self._restorer = restorer
        self._keeper = keeper
        self.take = keeper.take
        self.extents: dict[Partition, Extent] = {}
        self.has_ended = False  # no state is written or forgotten any more

    def forget(self, partitions: Collection[Partition]) -> None:
        """Keep no states of these partitions."""
        for partition in partitions:
            self.extents.pop(partition, None)

    def ask_ends(self, timeout: float) -> Mapping[Partition, Extent]:
        """Returns the extents of the states that can be kept. Asks the changelog for `timeout` seconds at most.

        Everything must be committed before. An extent holds for a partition that is still ours after this call.
        """
        self.forget(self._uncommitted())
        return {**self.extents, **self._restorer.ends(self.extents, timeout)} if self.extents else {}

    def end(self, extents: Mapping[Partition, Extent]) -> None:
        """Note that no state is written or forgotten any more. `extents`: partitions still ours after `ask_ends`."""
        self.extents |= {p: extent for p, extent in extents.items() if p in self.extents}
        self.has_ended = True

    def keep(self, go_on: Callable[[], bool]) -> int | None:
        """Leave the states to the next process. Returns how many, or None if `go_on` returned False before the end."""
        is_kept = self._slots.store_all(self.extents, go_on) and self._keeper.keep(self.extents, go_on)
        return sum(map(self._slots.keys_of, self.extents)) if is_kept else None
