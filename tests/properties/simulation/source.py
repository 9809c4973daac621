"""A consumer of the simulated cluster, behind the loop's `GroupSource`.

It learns of the group only by asking: its epoch by heartbeats, its positions by fetching offsets, which wait while a
transaction may still move them. So this member's knowledge is always a little old, and the group refuses its requests
with an old epoch.

All its requests to the group share one connection. A commit is lost only with the connection: the client keeps it, and
sends it first when anything gets through again, unless it has given up on it by then (librdkafka 2.15, `wait_coord_q`;
it lets go of no partition before). So no partition moves past a commit that was sent before.

    assigned ─▶ nothing in doubt ─▶ group asked ─▶ it flows ──rewind──▶ nothing in doubt ─▶ group asked ─▶ it flows
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.properties.simulation.broker import SimBroker
from tests.properties.simulation.group import Committed
from tests.properties.simulation.process import TIMED_OUT, Fate, Process
from worker.core.records import CommitResult, Partition, Record
from worker.ports import Assignments

UNSTABLE_WAIT = 0.02  # between two questions for an offset that a transaction may still move
HEARTBEAT_WAIT = 0.05  # the longest wait of one poll for its group, when it gives and takes within the call
LEAVE_WAIT = 1.0

T = TypeVar("T")


@dataclass(eq=False)
class Held:
    """One assigned partition. `position` None: not known yet, so no record comes."""

    partition: Partition
    position: int | None = None
    started_at: int = 0  # the first position
    asked: int = 0  # how often we asked where the group stands
    is_waiting: bool = False  # for something that is not in Kafka


class SimSource:
    """One member of the group. `is_member`: the group knew it at its last contact."""

    def __init__(self, process: Process, broker: SimBroker) -> None:
        self._process = process
        self._clock = process.clock
        self._broker = broker
        self._group = broker.group
        self._name = process.name
        self._assignments: Assignments | None = None
        self._failure: Exception | None = None
        self._results: list[CommitResult] = []
        self._deferred: list[tuple[float, Callable[[], object]]] = []  # lost commits, and the times when they expire
        self._unheard: list[Callable[[], None]] = []  # results of commits, told in the next poll
        self._let_go: set[Partition] = set()  # the group does not know yet
        self._served = -1, -1  # the group's changes when there was nothing left to do, and our epoch then
        self._is_beating = False
        self._is_paused = False
        self.is_out_of_touch = False  # it has heard nothing of the group for so long that it gives itself up
        self.epoch = 0
        self.held: dict[Partition, Held] = {}

    # For the loop

    def subscribe(self, assignments: Assignments) -> None:
        if self._assignments is None:
            self._assignments = assignments
            self.epoch = self._group.join(self._name)

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        assert max_records >= 1
        self._clock.wait(0.0)
        self._serve()
        self._clock.wait(timeout, self._has_news)
        self._tell_results()
        self._raise_failure()
        records = self._fetch(max_records)
        self._raise_failure()
        self._clock.stirred += len(records)
        return records

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._clock.stirred += 1
        taken = dict(offsets)
        epoch = self.epoch

        def arrive() -> str | None:
            return self._group.commit(self._name, epoch, taken)

        self._ask_group(
            "commit",
            arrive,
            lambda refused: self._unheard.append(lambda: self._hear(taken, refused)),
            lambda fate: self._deferred.append((self._clock.now + (fate.heard_after or 0.0), arrive)),
        )

    def commit_results(self) -> Sequence[CommitResult]:
        results, self._results = self._results, []
        return results

    def rewind(self, partitions: Sequence[Partition]) -> None:
        self._clock.stirred += 1
        for held in self._known(sorted(partitions)):  # one order, which hashes do not change
            self._read_again(held)

    def hold(self, partition: Partition, offset: int) -> None:
        self._clock.stirred += 1
        for held in self._known([partition]):
            held.position = held.started_at = offset
            held.is_waiting = True

    def release(self, partition: Partition) -> None:
        self._clock.stirred += 1
        for held in self._known([partition]):
            held.is_waiting = False

    def positions(self) -> Mapping[Partition, int]:
        found: dict[Partition, int] = {}
        for partition, held in self.held.items():
            if held.position is None or held.position < self._broker.end(partition):
                continue
            held.position = self._broker.past_markers(partition, held.position)
            if held.position > held.started_at:
                found[partition] = held.position
        return found

    def leave(self) -> None: ...

    def close(self) -> None:
        """Call `revoked` for held partitions, and leave after the commits that are under way."""
        if self._assignments is None:
            return
        self._give_up(list(self.held))
        self._ask_group("leave", lambda: self._group.leave(self._name), lambda _: self._left())
        self._clock.wait(LEAVE_WAIT, lambda: self._assignments is None)

    @property
    def member(self) -> tuple[str, int]:
        """The name and epoch that fence this member's offsets in a transaction."""
        return self._name, self.epoch

    # The group

    def _serve(self) -> None:
        """Do what the group wants, with the callbacks; nothing if the group has not changed."""
        if (self._group.changes, self.epoch) == self._served and not self.is_out_of_touch:
            return
        if self._is_expelled():
            self._lose()
            self.epoch = self._group.join(self._name)
        elif self.is_out_of_touch:
            self._lose()
            self.epoch = self._group.rejoin(self._name)
        self.is_out_of_touch = False
        bouncing = self._group.bouncing.pop(self._name, set())
        wanted = {p for p, name in self._group.target.items() if name == self._name} - bouncing
        self._give_up([p for p in self.held if p not in wanted])
        if self.epoch != self._group.epoch or self._let_go:
            self._beat()
        if bouncing:
            self._clock.wait(HEARTBEAT_WAIT, lambda: self.epoch == self._group.epoch)
        if self.epoch == self._group.epoch and not self._is_expelled() and not self._let_go:
            self._take()

    def _is_expelled(self) -> bool:
        """True if the group has expelled it. A poll hears it at once; earlier requests are still refused."""
        member = self._group.members.get(self._name)
        return member is None or not member.held >= self.held.keys()

    def _give_up(self, partitions: Sequence[Partition]) -> None:
        if not partitions:
            return
        self._clock.stirred += 1
        self._tell("revoked", partitions)
        for partition in partitions:
            del self.held[partition]
        self._let_go.update(partitions)

    def _lose(self) -> None:
        self._clock.stirred += 1
        lost = list(self.held)
        self.held.clear()
        self._let_go.clear()
        if lost:
            self._tell("lost", lost)

    def _beat(self) -> None:
        """Report the partitions that it let go, behind their last commits."""
        if self._is_beating:
            return
        self._is_beating = True
        let_go, epoch = frozenset(self._let_go), self.epoch
        self._ask_group(
            "heartbeat",
            lambda: self._group.heartbeat(self._name, epoch, let_go),
            lambda answer: self._beaten(answer, epoch, let_go),
        )

    def _beaten(self, answer: int | str, asked_with: int, let_go: Collection[Partition]) -> None:
        self._is_beating = False
        if isinstance(answer, int) and self.epoch == asked_with:  # else it has joined anew
            self.epoch = answer
            self._let_go.difference_update(let_go)

    def _take(self) -> None:
        new = sorted(self._group.take(self._name))
        self._served = self._group.changes, self.epoch  # noted first: it may be expelled during the callbacks
        if not new:
            return
        self._clock.stirred += 1
        self.held.update((p, Held(p)) for p in new)
        self._tell("assigned", new)
        for partition in new:
            self._read_again(self.held[partition])

    def _left(self) -> None:
        self._assignments = None

    # Where to read

    def _read_again(self, held: Held) -> None:
        """Ask for the position, once nothing of an earlier assignment can be committed any more."""
        held.position, held.is_waiting = None, False
        if self.held.get(held.partition) is not held:
            return
        assert self._assignments is not None
        if self._assignments.is_in_doubt(held.partition):
            self._process.later(UNSTABLE_WAIT, "is in doubt", lambda: self._read_again(held))
        else:
            self._ask_position(held)

    def _ask_position(self, held: Held) -> None:
        """Ask for the group's offset. Only the last answer counts, and only in this assignment."""
        held.asked += 1
        number = held.asked

        def ask() -> None:
            if self.held.get(held.partition) is held and held.asked == number:
                self._ask_group("offset fetch", lambda: self._stable(held.partition), hear)

        def hear(answer: Committed | str | None) -> None:
            if self.held.get(held.partition) is not held or held.asked != number:
                return
            if isinstance(answer, str):
                self._process.later(UNSTABLE_WAIT, "asks again", ask)
            else:
                held.position = held.started_at = answer.offset if answer else 0

        ask()

    def _stable(self, partition: Partition) -> Committed | str | None:
        return TIMED_OUT if self._group.is_unstable(partition) else self._group.committed.get(partition)

    def _flowing(self) -> list[Held]:
        end, held = self._broker.end, () if self._is_paused else self.held.values()
        open_ones = [one for one in held if one.position is not None and not one.is_waiting]
        return [one for one in open_ones if end(one.partition) > (one.position or 0)]

    def _has_news(self) -> bool:
        return bool(self._unheard or self._flowing())

    def _fetch(self, most: int) -> list[Record]:
        fetched: list[Record] = []
        for held in self._flowing():
            log = self._broker.requests[held.partition]
            records = [r for r in log if r.offset >= (held.position or 0)][: most - len(fetched)]
            if records:
                held.position = records[-1].offset + 1
                fetched += records
        return fetched

    # Commits

    def _ask_group(
        self,
        kind: str,
        effect: Callable[[], T | str],
        heard: Callable[[T | str], None],
        lost: Callable[[Fate], object] = lambda _: None,
    ) -> None:
        """Ask on the one connection: deferred commits arrive first."""

        def arrive() -> T | str:
            self._send_deferred()
            return effect()

        self._process.ask("group", kind, arrive, heard, lost=lost)

    def _send_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for give_up_at, arrive in deferred:
            if self._process.is_alive and self._clock.now < give_up_at:
                arrive()

    def _hear(self, offsets: Mapping[Partition, int], refused: str | None) -> None:
        result = CommitResult({}, dict.fromkeys(offsets, refused)) if refused else CommitResult(offsets, {})
        self._results.append(result)

    def _tell_results(self) -> None:
        unheard, self._unheard = self._unheard, []
        for tell in unheard:
            tell()

    def _tell(self, what: str, partitions: Sequence[object]) -> None:
        """Call back. The poll around it raises what the callback raises."""
        self._process.world.note(self._name, f"{what} {[str(p) for p in partitions]}")
        try:
            getattr(self._assignments, what)(partitions)
        except Exception as error:  # noqa: BLE001  # recorded, as the real source does
            self._failure = self._failure or error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _known(self, partitions: Iterable[Partition]) -> list[Held]:
        return [self.held[p] for p in partitions if p in self.held]

    def __repr__(self) -> str:
        return f"<SimSource {self._name} epoch={self.epoch} {list(self.held.values())}>"
