"""Producers of the simulated cluster: an idempotent one behind `Sink`, a transactional one behind `Transactions`.

Both keep the order within an output partition, and only there. The idempotent one is never fenced: a zombie's remaining
messages arrive. The transactional one ends a transaction in steps, as its committer thread does, while the worker goes
on: wait until all is written, write the offsets, end. The answer to each step decides the next one:

| heard | then |
|---|---|
| a message or the offsets are refused | abort, and go on |
| fenced, but nobody else can have the id, or the coordinator may have ended the transaction by now | another epoch |
| fenced otherwise | another living process has this id: `KafkaFatal` |
| no answer in time | another epoch under the same id |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tests.properties.simulation.broker import BUSY, FENCED, NOTHING_OPEN, SimBroker
from tests.properties.simulation.log import Verdict
from tests.properties.simulation.process import TIMED_OUT, Process
from worker.core.failures import KafkaFatal
from worker.core.ordering.ledger import Stretch
from worker.core.records import Ending, Fields, Message, Partition

AGAIN_AFTER = 0.005  # when the coordinator was too busy
PUSH_WAIT = 0.001
READY_WAIT = 60.0
BELIEVED_SHARE = 0.9  # of the timeout: from then on the coordinator may have ended the transaction


class SimSink:
    """An idempotent producer. A refused message is lost for good; later ones are not."""

    def __init__(self, process: Process, broker: SimBroker) -> None:
        self._process = process
        self._broker = broker
        self._clock = process.clock
        self._reports: list[Stretch] = []
        self._refused: str | None = None

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        self._clock.stirred += 1
        unheard = list(messages)
        if not messages:
            self._reports.append(stretch)
        for message in map(Message._make, messages):
            log = self._broker.output(message)
            self._process.ask(
                f"{log.topic}/{log.number}",
                "produce",
                partial(self._broker.produce, message),
                partial(self._report, stretch, unheard),
                partial(self._broker.refuse, message),
            )

    def poll(self, timeout: float) -> Sequence[Stretch]:
        self._clock.wait(timeout, self._has_news)
        if self._refused is not None:
            raise KafkaFatal(self._refused)
        reports, self._reports = self._reports, []
        return reports

    def push(self) -> None:
        self._clock.wait(PUSH_WAIT, self._has_news)

    def _has_news(self) -> bool:
        return bool(self._reports) or self._refused is not None

    def _report(self, stretch: Stretch, unheard: list[Fields], refused: str | None) -> None:
        unheard.pop()
        if refused is not None:
            self._refused = self._refused or f"the broker refused the answer to {stretch.places}: {refused}"
        elif not unheard:
            self._reports.append(stretch)


class SimTransactions:
    """A transactional producer and the thread that ends its transactions."""

    def __init__(
        self,
        process: Process,
        broker: SimBroker,
        transactional_id: str,
        timeout: float,
        member: Callable[[], tuple[str, int]],
        *,
        is_unique: bool,
    ) -> None:
        """Aborts a predecessor's transaction under this id, and waits for its end."""
        self._process = process
        self._broker = broker
        self._clock = process.clock
        self._id = transactional_id
        self._timeout = timeout
        self._member = member
        self._is_unique = is_unique
        self._epoch = 0
        self._life = 0  # of producers: an older one's answers are ignored
        self._unwritten: list[Message] = []  # until the coordinator has opened the transaction
        self._is_registered = False
        self._on_the_way = 0
        self._wants_end: Callable[[], None] | None = None  # once all is written
        self._failure: str | None = None  # why the open transaction cannot be committed
        self._ended: Ending | KafkaFatal | None = None
        self._is_open = self._is_ending = False
        self._began_at = self._asked_at = 0.0
        self._renew(lambda: None)
        self._clock.wait(READY_WAIT, lambda: self._epoch > 0)
        assert self._epoch > 0

    # For the worker

    def begin(self) -> None:
        assert not self._is_open
        assert not self._is_ending
        self._clock.stirred += 1
        self._is_open = True
        self._is_registered = False
        self._failure = None
        self._began_at = self._clock.now

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        assert self._is_open
        self._clock.stirred += 1
        for message in messages if self._failure is None else ():
            self._put(Message._make(message))

    def _put(self, message: Message) -> None:
        if self._is_registered:
            self._write(message)
            return
        self._unwritten.append(message)
        if len(self._unwritten) == 1:
            self._on_the_way += 1
            self._register(self._life)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        taken, member = dict(offsets), self._member()
        self._begin_to_end(lambda: self._write_offsets(taken, member))

    def abort(self) -> None:
        self._failure = self._failure or "taken back"
        self._begin_to_end(self._take_back)

    def ended(self, timeout: float) -> Ending | None:
        self._clock.wait(timeout, lambda: self._ended is not None)
        ended = self._ended
        if isinstance(ended, KafkaFatal):
            raise ended
        self._ended = None
        return ended

    def serve(self, timeout: float) -> None:
        self._clock.wait(timeout)

    # Writing, in order

    def _register(self, life: int) -> None:
        epoch = self._epoch
        self._ask("open", lambda: self._broker.open(self._id, epoch), lambda refused: self._registered(refused, life))

    def _registered(self, refused: str | None, life: int) -> None:
        if life != self._life:
            return
        if refused == BUSY:
            self._process.later(AGAIN_AFTER, "opens again", lambda: self._register(life))
            return
        self._is_registered = True
        messages, self._unwritten = self._unwritten, []
        for message in messages if refused is None else ():
            self._write(message)
        self._written(refused, life)

    def _write(self, message: Message) -> None:
        log, epoch, life = self._broker.output(message), self._epoch, self._life
        self._on_the_way += 1
        self._process.ask(
            f"{log.topic}/{log.number} {life}",
            "write",
            lambda: self._broker.write(self._id, epoch, message),
            lambda refused: self._written(refused, life),
        )

    def _written(self, refused: str | None, life: int) -> None:
        if life != self._life:
            return
        self._failure = self._failure or refused
        self._on_the_way -= 1
        if self._wants_end is not None and not self._on_the_way:
            go_on, self._wants_end = self._wants_end, None
            go_on()

    # Ending

    def _begin_to_end(self, how: Callable[[], None]) -> None:
        assert self._is_open
        assert not self._is_ending
        self._clock.stirred += 1
        self._is_open, self._is_ending = False, True
        self._asked_at = self._clock.now
        if self._on_the_way:
            self._wants_end = how
        else:
            how()

    def _write_offsets(self, offsets: dict[Partition, int], member: tuple[str, int]) -> None:
        if self._failure is not None:
            self._take_back()
            return
        epoch = self._epoch
        self._ask(
            "write offsets",
            lambda: self._broker.write_offsets(self._id, epoch, member, offsets),
            lambda refused: self._offsets_written(offsets, member, refused),
        )

    def _offsets_written(self, offsets: dict[Partition, int], member: tuple[str, int], refused: str | None) -> None:
        if refused == BUSY:
            self._process.later(AGAIN_AFTER, "offsets again", lambda: self._write_offsets(offsets, member))
        elif refused is None:
            self._end(Verdict.COMMITTED)
        elif refused in (FENCED, TIMED_OUT):
            self._decide(refused)
        else:
            self._failure = refused
            self._take_back()

    def _take_back(self) -> None:
        if self._failure == FENCED:
            self._decide(FENCED)
        else:
            self._end(Verdict.ABORTED)

    def _end(self, verdict: Verdict) -> None:
        epoch = self._epoch
        kind = "commit transaction" if verdict is Verdict.COMMITTED else "abort transaction"
        self._ask(kind, lambda: self._broker.end_transaction(self._id, epoch, verdict), self._ended_as)

    def _ended_as(self, refused: str | None) -> None:
        if refused is None or (refused == NOTHING_OPEN and self._failure is not None):
            self._tell(self._failure)  # if nothing was written, there was nothing to take back
        else:
            self._decide(refused)

    def _decide(self, trouble: str) -> None:
        """Decide what follows when the transaction's end is not ours to choose."""
        is_too_early = self._clock.now - self._began_at < BELIEVED_SHARE * self._timeout
        if trouble == FENCED and is_too_early and not self._is_unique:
            self._ended = KafkaFatal(f"another process uses the transactional id {self._id}")
            return
        failure = self._failure or trouble
        self._renew(lambda: self._tell(failure))

    def _renew(self, then: Callable[[], None]) -> None:
        """Make another producer under this id: it aborts the open transaction and fences the old producer."""
        self._life += 1
        self._unwritten.clear()
        self._on_the_way = 0
        self._wants_end = None
        self._initialise(then)

    def _initialise(self, then: Callable[[], None]) -> None:
        self._ask(
            "initialise",
            lambda: self._broker.initialise(self._id, self._timeout),
            lambda answer: self._initialised(answer, then),
        )

    def _initialised(self, answer: int | str, then: Callable[[], None]) -> None:
        if isinstance(answer, int):
            self._epoch = answer
            then()
        else:
            self._process.later(AGAIN_AFTER, "initialises again", lambda: self._initialise(then))

    def _tell(self, failure: str | None) -> None:
        self._is_ending = False
        self._ended = Ending(failure, self._clock.now - self._asked_at)

    def _ask(self, kind: str, effect: Callable[[], object], heard: Callable[..., None]) -> None:
        self._process.ask(f"transactions {self._life}", kind, effect, heard)

    def __repr__(self) -> str:
        return f"<SimTransactions {self._id} epoch={self._epoch} open={self._is_open} ending={self._is_ending}>"
