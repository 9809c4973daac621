"""How long answers stood still, and after which fault. Pure: time is passed in, seconds of the run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Stalls:
    """How long a request partition went without an answer, by what was done when it began."""

    longest: dict[str, float] = field(default_factory=dict)
    _last: dict[int, float] = field(default_factory=dict)
    _faults: list[tuple[float, str]] = field(default_factory=list)

    # An answer that was under way may still be read so long after the fault that stops the next, seconds.
    SLACK = 0.3

    def fault(self, at: float, kind: str) -> None:
        """This is done from now on."""
        self._faults.append((at, kind))

    def all_answered_since(self, at: float, partitions: int) -> bool:
        """Whether an answer came in each of so many partitions after this second."""
        return sum(last > at for last in self._last.copy().values()) == partitions

    def answered(self, at: float, partition: int) -> None:
        """One more answer to a request of this partition."""
        before = self._last.get(partition, at)
        self._last[partition] = at
        if at - before > self.SLACK:
            kind = next((kind for began, kind in reversed(self._faults) if began <= before + self.SLACK), "none")
            self.longest[kind] = max(self.longest.get(kind, 0.0), at - before)
