"""A consumer of the simulated cluster, behind the loop's `Source` and delivery's `Group`.

It learns of the group only by asking: its epoch by heartbeats, its positions by fetching offsets, which wait while a
transaction may still move them. So this member's knowledge is always a little old, and the group refuses its requests
with an old epoch.

All its requests to the group share one connection. A commit is lost only with the connection: the client keeps it, and
sends it first when anything gets through again, unless it has given up on it by then (librdkafka 2.15, `wait_coord_q`;
it lets go of no partition before). So no partition moves past a commit that was sent before.

    assigned ─▶ position asked for ─▶ first record there ─▶ nothing in doubt, group asked ─▶ attempt noted ─▶ it flows

Until the note is taken, no record of the assignment comes; partitions that were begun too often are reported before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.properties.simulation.broker import SimBroker
from tests.properties.simulation.group import Committed
from tests.properties.simulation.process import TIMED_OUT, Fate, Process
from worker.core.records import CommitResult, Partition, Record, Suspect
from worker.ports import Assignments

SUSPECT_FROM = 3  # attempts without progress
UNSTABLE_WAIT = 0.02  # between two questions for an offset that a transaction may still move
NOTE_AGAIN_AFTER = 0.1  # for a note that must be taken and was not
HEARTBEAT_WAIT = 0.05  # the longest wait of one poll for its group, when it gives and takes within the call
LEAVE_WAIT = 1.0

T = TypeVar("T")

_NOTE = re.compile(r"attempts=(\d+)( alone)?")


@dataclass(eq=False)
class Held:
    """One assigned partition. `position` None: not known yet, so no record comes."""

    partition: Partition
    position: int | None = None
    started_at: int = 0  # the first position
    attempt: tuple[int, str] | None = None  # to be noted before the first record comes
    is_begun: bool = False  # that was taken
    attempts: int = 0
    is_withheld: bool = False
    isolated: int | None = None  # the offset of the last note of an isolated run
    noting: tuple[int, str] | None = None  # a note on its way
    noted: tuple[int, str] | None = None  # the note that was taken
    note_not_before: float = 0.0
    asked: int = 0  # how often we asked where the group stands
    is_asking: bool = False  # about the attempt


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
        self._own: dict[Partition, tuple[int, str]] = {}  # the last note sent, kept for partitions that come back
        self._poisons: dict[Partition, int] = {}  # the offset at which another process died; likewise
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
        self._wake()
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
        self._commit({p: (offset, "") for p, offset in taken.items()}, lambda refused: self._hear(taken, refused))

    def commit_results(self) -> Sequence[CommitResult]:
        results, self._results = self._results, []
        return results

    def rewind(self, partitions: Sequence[Partition]) -> None:
        self._clock.stirred += 1
        for held in self._known(sorted(partitions)):  # one order, which hashes do not change
            held.is_withheld = False
            self._read_again(held)

    def withhold(self, partition: Partition) -> None:
        self.held[partition].is_withheld = True

    def release(self, partition: Partition) -> None:
        self.held[partition].is_withheld = False

    def positions(self) -> Mapping[Partition, int]:
        found: dict[Partition, int] = {}
        for partition, held in self.held.items():
            if held.position is None or held.position < self._broker.end(partition):
                continue
            held.position = self._broker.past_markers(partition, held.position)
            if held.position > held.started_at:
                found[partition] = held.position
        return found

    def note_isolated_run(self, partition: Partition, offset: int) -> bool:
        held = self.held[partition]
        held.isolated = offset
        return self._note(held, (offset, f"attempts={held.attempts + 1} alone"))

    def withdraw_note(self, partition: Partition, offset: int) -> bool:
        held = self.held[partition]
        note = offset, f"attempts={held.attempts + 1}"
        if self._own.get(partition) == note:
            return self._note(held, note)
        self._clock.stirred += 1
        self._send_note(held, note)
        return False

    def clear_note(self, partition: Partition, next_offset: int, patience: float) -> None:
        """Clear a note as the real source does: the question follows the commit, and so does its answer."""
        held, give_up_at = self.held[partition], self._clock.now + patience
        if held.isolated is None:
            return
        note = next_offset, f"attempts={held.attempts + 1}" if next_offset == held.isolated else ""
        if note[1]:
            self._send_note(held, note)
        while self._is_noted_alone(held, give_up_at):
            if self._clock.now >= give_up_at:
                self._broker.interrupt(partition, held.isolated)
                return
            self._clock.wait(NOTE_AGAIN_AFTER)
            if note[1]:
                self._send_note(held, note)
            else:
                self.commit({partition: next_offset})

    def _is_noted_alone(self, held: Held, give_up_at: float) -> bool:
        """True while the group does not answer, or the note is still there."""
        found: list[Committed | str | None] = []
        self._ask_group("offset fetch", lambda: self._stable(held.partition), found.append)
        self._clock.wait(give_up_at - self._clock.now, lambda: bool(found))
        told = found[0] if found else TIMED_OUT
        is_told = told is None or isinstance(told, Committed)
        return not is_told or (told is not None and told[:2] == (held.isolated, f"attempts={held.attempts + 1} alone"))

    def leave(self) -> None: ...

    def close(self) -> None:
        """Call `revoked` for held partitions, and leave after the commits that are under way."""
        if self._assignments is None:
            return
        self._give_up(list(self.held))
        self._ask_group("leave", lambda: self._group.leave(self._name), lambda _: self._left())
        self._clock.wait(LEAVE_WAIT, lambda: self._assignments is None)

    # For delivery

    def withdraw_notes(self, offsets: Mapping[Partition, int]) -> bool:
        ran = [(held.partition, held.isolated) for held in self._known(offsets) if held.isolated is not None]
        withdrawn = [self.withdraw_note(p, offset) for p, offset in ran if offset == offsets[p] - 1]
        return all(withdrawn)

    def has_note_under_way(self, partitions: Collection[Partition]) -> bool:
        return any(held.noting is not None for held in self._known(partitions))

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
        for held in self.held.values():
            if held.isolated is not None:
                self._broker.interrupt(held.partition, held.isolated)
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
            self._ask_position(self.held[partition])

    def _left(self) -> None:
        self._assignments = None

    # Where to read

    def _read_again(self, held: Held) -> None:
        """Ask for the position, once nothing of an earlier assignment can be committed any more."""
        held.position = None
        if self.held.get(held.partition) is not held:
            return
        if self._is_in_doubt(held.partition):
            self._process.later(UNSTABLE_WAIT, "is in doubt", lambda: self._read_again(held))
        else:
            self._ask_position(held)

    def _ask_position(self, held: Held) -> None:
        held.position = None
        self._ask(held, self._learn_position)

    def _learn_position(self, held: Held, committed: Committed | None) -> None:
        held.position = held.started_at = committed.offset if committed else 0

    def _ask(self, held: Held, learn: Callable[[Held, Committed | None], None]) -> None:
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
                learn(held, answer)

        ask()

    def _stable(self, partition: Partition) -> Committed | str | None:
        return TIMED_OUT if self._group.is_unstable(partition) else self._group.committed.get(partition)

    def _flowing(self) -> list[Held]:
        return [] if self._is_paused else self._with_more(is_begun=True)

    def _with_more(self, *, is_begun: bool) -> list[Held]:
        end = self._broker.end
        return [
            held
            for held in self.held.values()
            if held.is_begun is is_begun
            and not held.is_withheld
            and held.position is not None
            and end(held.partition) > held.position
        ]

    def _has_news(self) -> bool:
        self._wake()
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

    # Before the first record

    def _wake(self) -> None:
        """For partitions whose first record waits: ask, note the attempt, let it flow."""
        for held in self._with_more(is_begun=False):
            if held.attempt is None:
                if not held.is_asking and not self._is_in_doubt(held.partition):
                    held.is_asking = True
                    self._ask(held, self._learn_standing)
            elif self._note(held, held.attempt):
                held.is_begun = True

    def _learn_standing(self, held: Held, committed: Committed | None) -> None:
        """Count one more attempt, and report a suspect if there were too many."""
        held.is_asking = False
        if committed is not None and committed.offset > (held.position or 0):
            held.position = held.started_at = (
                committed.offset
            )  # an earlier assignment has committed since the first question
            return
        first = next(r.offset for r in self._broker.requests[held.partition] if r.offset >= (held.position or 0))
        offset, note, _ = committed or Committed(first, "", 0)
        found = _NOTE.fullmatch(note)
        held.attempts = int(found[1]) if found else 0
        is_alone = found is not None and found[2] is not None
        if self._is_own(held.partition, offset, note):  # no other process has begun it since, and this one lives
            held.attempts, is_alone = held.attempts - 1, self._poisons.get(held.partition) == offset
        elif is_alone:
            self._poisons[held.partition] = offset
        # A process that dies before the poison record is answered must not make it run again.
        held.attempt = offset, f"attempts={held.attempts + 1}{' alone' if is_alone else ''}"
        if held.attempts >= SUSPECT_FROM:
            until = self._broker.end(held.partition)
            self._tell("suspected", [Suspect(held.partition, held.attempts, offset if is_alone else None, until)])

    def _is_own(self, partition: Partition, offset: int, note: str) -> bool:
        """True if this process wrote the note, even if its withdrawal was not taken."""
        at, own = self._own.get(partition, (-1, ""))
        return (at, own.removesuffix(" alone")) == (offset, note.removesuffix(" alone"))

    def _is_in_doubt(self, partition: Partition) -> bool:
        assert self._assignments is not None
        return self._assignments.is_in_doubt(partition)

    # Notes with the group

    def _note(self, held: Held, note: tuple[int, str]) -> bool:
        """Write a note; call it until it returns True."""
        if held.noted != note and held.noting is None and self._clock.now >= held.note_not_before:
            self._clock.stirred += 1
            self._send_note(held, note)
        return held.noted == note

    def _send_note(self, held: Held, note: tuple[int, str]) -> None:
        held.noting = self._own[held.partition] = note
        self._commit({held.partition: note}, lambda refused: self._hear_note(held, note, refused))

    def _hear_note(self, held: Held, note: tuple[int, str], refused: str | None) -> None:
        if held.noting != note:
            return  # another note follows it
        held.noting = None
        if refused is None:
            held.noted = note
        else:
            held.note_not_before = self._clock.now + NOTE_AGAIN_AFTER

    # Commits

    def _commit(self, offsets: Mapping[Partition, tuple[int, str]], heard: Callable[[str | None], None]) -> None:
        epoch = self.epoch

        def arrive() -> str | None:
            return self._group.commit(self._name, epoch, offsets)

        self._ask_group(
            "commit" if all(not note for _, note in offsets.values()) else "note",
            arrive,
            lambda refused: self._unheard.append(lambda: heard(refused)),
            lambda fate: self._deferred.append((self._clock.now + (fate.heard_after or 0.0), arrive)),
        )

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
