"""Changelogs and stores for states in the simulated world, and the clients that read and write them.

A changelog is an output topic like others; `SimRestorer` reads it back, once the group's offset is certain. An outside
store is a server of its own: `SimLink` has one round trip under way at a time, and repeats the rest when it hears
nothing. A round trip that it gave up on may arrive later, even behind newer writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tests.fakes import CHANGELOG, is_later
from tests.properties.simulation.broker import SimBroker
from tests.properties.simulation.group import Committed
from tests.properties.simulation.log import OutputLog
from tests.properties.simulation.process import TIMED_OUT, Process
from worker.core.ordering.ledger import Stretch
from worker.core.records import Message, Partition
from worker.state import Extent, Restoration, RestoredRows, StateLayout
from worker.state.outside_states import Asked
from worker.state.outside_values import Change

AGAIN_AFTER = 0.02  # when the group or the log cannot tell yet, or the store did nothing


class SimStore:
    """An outside server. Outlives every process; `tell` hears of each value that is written."""

    def __init__(self, tell: Callable[[bytes, bytes], None]) -> None:
        self._tell = tell
        self.values: dict[bytes, bytes] = {}

    def exchange(self, changes: Mapping[bytes, bytes], keys: Sequence[bytes]) -> list[bytes | None]:
        """One round trip. As in the real store, an earlier request's value does not overwrite a later one's."""
        for key, value in changes.items():
            if is_later(self.values.get(key), value):
                self.values[key] = value
                self._tell(key, value)
        return [self.values.get(key) for key in keys]


class SimLink:
    """The client of the store. Owns the questions and writes that are not acknowledged."""

    def __init__(self, process: Process, store: SimStore) -> None:
        self._process = process
        self._store = store
        self._asked: list[Asked] = []
        self._to_write: list[tuple[Sequence[Change], Stretch]] = []
        self._came: list[tuple[Asked, Sequence[bytes | None]]] = []
        self._written: list[Stretch] = []
        self._is_busy = False
        self._connection = 0  # an earlier connection's rest may come behind a later connection's work
        self.trouble: str | None = None

    def ask(self, asked: Sequence[Asked]) -> None:
        self._asked += asked
        self._go_on()

    def write(self, changes: Sequence[Change], stretch: Stretch) -> None:
        self._to_write.append((changes, stretch))
        self._go_on()

    def read(self) -> Sequence[tuple[Asked, Sequence[bytes | None]]]:
        came, self._came = self._came, []
        return came

    def written(self) -> Sequence[Stretch]:
        written, self._written = self._written, []
        return written

    def _go_on(self) -> None:
        self._process.clock.stirred += 1
        if self._is_busy or not (self._asked or self._to_write):
            return
        self._is_busy = True
        asked, written = list(self._asked), list(self._to_write)
        changes = {change.key: change.value for changes, _ in written for change in changes}
        keys = [key for item in asked for key in item.keys]
        self._process.ask(
            f"store {self._connection}",
            "store",
            lambda: self._store.exchange(changes, keys),
            lambda values: self._heard(values, asked, written),
        )

    def _heard(
        self, values: list[bytes | None] | str, asked: list[Asked], written: list[tuple[Sequence[Change], Stretch]]
    ) -> None:
        if isinstance(values, str):
            self.trouble = values
            self._connection += 1
            self._process.later(AGAIN_AFTER, "asks the store again", self._again)
            return
        self.trouble = None
        left = iter(values)
        self._came += [(item, [next(left) for _ in item.keys]) for item in asked]
        self._written += [stretch for _, stretch in written]
        del self._asked[: len(asked)]
        del self._to_write[: len(written)]
        self._again()

    def _again(self) -> None:
        self._is_busy = False
        self._go_on()


class SimRestorer:
    """Reads a partition's changelog up to its end at the moment when the group's offset is certain."""

    left = 0

    def __init__(self, process: Process, broker: SimBroker, layout: StateLayout, *, is_exact: bool) -> None:
        self._process = process
        self._broker = broker
        self._layout = layout
        self._is_exact = is_exact
        self._attempts: dict[Partition, int] = {}
        self._found: list[RestoredRows] = []

    def begin(self, partition: Partition, attempt: int, extent: Extent | None) -> None:
        self._attempts[partition] = attempt
        self._ask_where_it_stands(partition, attempt)

    def forget(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            del self._attempts[partition]

    def ends(self, partitions: Collection[Partition], timeout: float) -> Mapping[Partition, Extent]:
        return {}

    def found(self) -> RestoredRows | None:
        return self._found.pop(0) if self._found else None

    def _ask_where_it_stands(self, partition: Partition, attempt: int) -> None:
        def stable() -> Committed | str | None:
            group = self._broker.group
            return TIMED_OUT if group.is_unstable(partition) else group.committed.get(partition)

        def hear(answer: Committed | str | None) -> None:
            if isinstance(answer, str):
                self._process.later(AGAIN_AFTER, "asks again", lambda: self._ask_where_it_stands(partition, attempt))
            else:
                self._ask_for_the_end(partition, attempt, 0 if answer is None else answer.offset)

        if self._attempts.get(partition) == attempt:
            self._process.ask("restorer", "offset fetch", stable, hear)

    def _ask_for_the_end(self, partition: Partition, attempt: int, committed: int) -> None:
        log = self._broker.outputs.get((CHANGELOG, partition.number)) or OutputLog(CHANGELOG, partition.number)
        self._process.ask(
            "restorer",
            "list offsets",
            lambda: len(log.entries),
            lambda end: self._read(partition, attempt, committed, log, int(end)),
        )

    def _read(self, partition: Partition, attempt: int, committed: int, log: OutputLog, end: int) -> None:
        def hear(answer: Sequence[Message] | str) -> None:
            if isinstance(answer, str):
                self._process.later(
                    AGAIN_AFTER, "reads again", lambda: self._read(partition, attempt, committed, log, end)
                )
            elif self._attempts.get(partition) == attempt:
                self._take(Restoration(partition, attempt, self._layout, committed, is_exact=self._is_exact), answer)

        self._process.ask(
            "restorer", "fetch", lambda: TIMED_OUT if log.last_stable_offset < end else log.committed_before(end), hear
        )

    def _take(self, restoration: Restoration, messages: Sequence[Message]) -> None:
        self._process.clock.stirred += 1
        for message in messages:
            assert message.value is not None, "no request has its key forgotten here"
            self._found.append(restoration.states([message.key or b""], [message.value]))
        self._found.append(restoration.last())
