"""The one thread of control: from request records to answers and commits.

    source.poll → codec.decode → ledger.track → batcher.add/due → lanes.submit ┈(thread)┈ lanes.finished
      → ledger.answer → codec.encode → sink.send ┈(delivery report)┈ ledger.settle → commit

`Worker.turn()` goes once round: take in what arrived, hand out what is due, bring home what is finished, record how
far we are. Inference overlaps all of it, because a lane runs its batch outside the GIL while the loop takes, stacks the
next batch and produces the last one. What is briefer than the way to a lane and back runs here, in `lanes.submit`.

**Waiting.** A finished lane cannot wake a Kafka poll. So while a lane runs, the poll returns at once and the loop waits
on the lanes; when none runs, it waits in the poll for at most 100 ms, less when something falls due. Python runs signal
handlers only between two polls, hence the 100 ms. When nothing may be taken, it glances at Kafka every 100 ms all the
same, because rebalance callbacks run only in a poll (`core/batching/intake.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

from worker.core.batching.batcher import Batcher, Group
from worker.core.batching.intake import Intake
from worker.core.batching.runs import Run, unravel
from worker.core.deadlines.punctuality import Punctuality
from worker.core.failures import Code, DeadlineMissed, ModelBroken, RunFailure, Stop
from worker.core.ordering.ledger import OffsetLedger, Place
from worker.core.records import Array, Batch, Outcome, Partition, Record, Rejection, Request, Suspect, nothing_owed
from worker.core.rejections import Rejections
from worker.core.tensors.stacking import Split, Stacker, halve, reject
from worker.loop.device_check import Suspicion
from worker.loop.quarantine import Trial, Trials
from worker.ports import Codec, Delivery, Events, Lanes, Signals, Source

POLL_SLICE = 0.1  # the longest wait in one poll, so that a signal is seen soon, seconds
LANE_SLICE = 0.001  # the longest wait for a lane before the topics are looked at again, seconds
SHORTEST_WAIT = 0.001  # the client counts milliseconds and takes less for no wait at all: a spin, seconds
LEAVE_AFTER = 0.5  # of a drain's time: then what has not begun is left to its next owner
WITHDRAW_TIMEOUT = 1.0  # for the group to take back that a record is on trial, seconds
LOOK_AGAIN_AFTER = 1.0  # how often the source is asked how far it has come, seconds
REPORT_WAIT = 0.01  # one wait for delivery reports while only they can free anything, seconds

CONVICTED = "this request ended the worker's process while it ran alone; it is not run again"


@dataclass(frozen=True, slots=True)
class Conduct:
    """How the loop uses its lanes, and how long it takes to let go. Timeouts in seconds."""

    lanes: int = 1
    inflight_batches: int = 2
    drain_timeout: float = 20.0
    revoke_timeout: float = 10.0
    lane_slice: float = LANE_SLICE


class Worker:
    """Owns batcher, ledger, intake and delivery, and with its thread the consumer and the producer."""

    def __init__(  # noqa: PLR0913  # the composition root names every part once
        self,
        *,
        source: Source,
        codec: Codec,
        ledger: OffsetLedger,
        intake: Intake,
        batcher: Batcher,
        trials: Trials,
        stacker: Stacker,
        lanes: Lanes,
        punctuality: Punctuality,
        delivery: Delivery,
        rejections: Rejections,
        events: Events,
        signals: Signals,
        conduct: Conduct,
        clock: Callable[[], float],
    ) -> None:
        self._source = source
        self._codec = codec
        self._ledger = ledger
        self._intake = intake
        self._batcher = batcher
        self._trials = trials
        self._stacker = stacker
        self._lanes = lanes
        self._punctuality = punctuality
        self._delivery = delivery
        self._rejections = rejections
        self._events = events
        self._signals = signals
        self._conduct = conduct
        self._clock = clock
        self._suspicion = Suspicion()
        self._out: dict[int, Batch] = {}  # batches in the lanes, by identity
        self._next_glance = self._next_look = 0.0
        self._drain_deadline = inf
        self._is_behind = False  # the last poll brought all it might: more is waiting
        self._is_paused = self._is_draining = self._is_over = False

    def run(self) -> None:
        """Until told to stop; then drain and leave the group. Raises `Stop` when it cannot go on."""
        try:
            if not self._signals.stop_asked:  # perhaps while the model was warmed: no rebalance for a moment's sake
                self._source.subscribe(self)
            while not self._signals.stop_asked:
                self.turn()
            self._drain()
        except Stop:
            self._is_over = True
            self._withdraw()
            raise
        except BaseException:
            self._trials.convict()  # it died of the record on trial, if there is one
            raise
        finally:
            self._is_over = True
            self._source.close()

    def turn(self) -> None:
        """Take in what arrived, hand out what is due, bring home what is finished, record how far we are."""
        taken = self._take_in()
        now = self._clock()
        if now >= self._next_look and not self._trials.is_sitting:
            self._pass_by(now)
        self._pause_or_resume()
        self._hand_out(now)
        self._bring_home(0.0 if taken else self._conduct.lane_slice)
        self._record_progress()

    @property
    def _has_backlog(self) -> bool:
        """The lanes have enough ahead of them: what comes next may stay with Kafka."""
        return self._batcher.backlog >= self._conduct.inflight_batches

    @property
    def _awaits_word(self) -> bool:
        """A trial waits for Kafka: for its note, or for the end of its record."""
        return self._trials.is_sitting and not self._lanes.in_flight

    # Taking in

    def _take_in(self) -> int:
        """Take what there is room for. Returns the number of records."""
        now = self._clock()
        room = 0 if self._has_backlog or self._trials.is_sitting else self._intake.room()
        if postponed := self._trials.resume():
            records = postponed
        elif room:
            records = self._source.poll(room, self._patience(now))
            self._is_behind = len(records) == room
        else:
            records = self._glance(now)
        if earlier := self._trials.resume():  # a rebalance in the poll broke the trial off
            records = [*earlier, *records]
        if records and self._trials.is_sitting:
            self._trials.postpone(records)
        elif records:
            self._take(records, self._clock())
        return len(records)

    def _take(self, records: Sequence[Record], now: float) -> None:
        track, add = self._ledger.track, self._batcher.add
        rows, size = self._ledger.rows, self._ledger.size
        for request in self._codec.decode_all(self._set_aside(records, now) if self._trials.has_suspects else records):
            record = request.record
            if isinstance(request, Rejection):
                place = track(record, 0, len(record.value or b""), now)
                self._refuse([(place, request)])
            elif isinstance(request, Run):
                self._take_run(request, now)
            elif request.timeout is None or self._is_in_time(request, now):
                request.place = track(record, request.rows, request.size, now)
                add(request, now)
        self._intake.took(len(records), self._ledger.rows - rows, self._ledger.size - size)
        self._events.taken(len(records))

    def _take_run(self, run: Run, now: float) -> None:
        """Take it in as few parts as there are batches that it fills."""
        rest: Run | None = run
        while rest is not None:
            first, rest = rest.cut(self._batcher.room(rest))
            if not first.timeouts:
                self._add_run(first, now)
                continue
            shapes, backlog = self._batcher.shapes(first), self._batcher.backlog
            for part in self._punctuality.sifted(first, shapes, backlog, now):
                if isinstance(part, Run):
                    self._add_run(part, now)
                else:
                    self._refuse([(self._track_refused(request, now), why) for request, why in part])

    def _add_run(self, run: Run, now: float) -> None:
        request = run if len(run.records) > 1 else run.only
        request.place = self._ledger.track(run.records[-1], run.rows, run.size, now, len(run.records))
        self._batcher.add(request, now)

    def _is_in_time(self, request: Request, now: float) -> bool:
        """One that cannot be answered in time is taken only to be told so at once."""
        refusal = self._punctuality.refusal(request, self._batcher.shapes(request), self._batcher.backlog, now)
        if refusal is not None:
            self._refuse([(self._track_refused(request, now), refusal)])
        return refusal is None

    def _track_refused(self, request: Request, now: float) -> Place:
        return self._ledger.track(request.record, 0, request.size, now)

    def _set_aside(self, records: Sequence[Record], now: float) -> Sequence[Record]:
        """Keep what may end the process for its trial, undecoded. Returns the other records."""
        innocent: list[Record] = []
        for record in records:
            suspect = self._trials.claims(record)
            if suspect is None:
                innocent.append(record)
                continue
            place = self._ledger.track(record, 1, len(record.value or b""), now)
            if record.offset == suspect.poison:
                self._refuse([(place, self._codec.refuse(record, Code.INTERNAL, CONVICTED))])
            elif self._trials.add(record, place):
                self._source.withhold(record.partition)
        return innocent

    def _pass_by(self, now: float) -> None:
        """Let commits go past what nobody answers: markers of transactions, and what these took back.

        Nobody's lag would ever be 0 behind a publisher that uses transactions. To be called when all that the source
        gave is in the ledger, for a commit may go as far as the source has come where nothing is owed.
        """
        self._next_look = now + LOOK_AGAIN_AFTER
        passed: list[tuple[Place, Outcome]] = []
        for partition, position in self._source.positions().items():
            if self._ledger.is_behind(partition, position):
                nothing = nothing_owed(partition, position - 1)
                passed.append((self._ledger.track(nothing.record, 0, 0, now, records=0), nothing))
        self._answer(passed)

    def _glance(self, now: float) -> Sequence[Record]:
        """Let Kafka's callbacks run although nothing is wanted; what comes with them when full is the reserve."""
        if now < self._next_glance and not self._awaits_word:
            return ()
        self._next_glance = now + POLL_SLICE
        records = self._source.poll(1, 0.0)
        if self._intake.is_full:
            self._intake.took_from_reserve(len(records))
        return records

    def _pause_or_resume(self) -> None:
        should_pause = self._intake.should_pause() or self._trials.has_postponed_enough
        if should_pause == self._is_paused:
            return
        self._is_paused = should_pause
        if should_pause:
            self._source.pause()
        else:
            self._source.resume()
        self._events.paused(is_paused=should_pause)

    def _patience(self, now: float) -> float:
        """How long the poll may wait: not at all while a lane runs, else until something falls due."""
        if self._lanes.in_flight or self._suspicion.is_probing:
            return 0.0
        if self._trials.current is not None:
            return SHORTEST_WAIT
        dues = [due for due in (self._batcher.next_due, self._delivery.next_due) if due is not None]
        if not dues:
            return POLL_SLICE
        wait = min(dues) - now
        return 0.0 if wait <= 0 else min(POLL_SLICE, max(SHORTEST_WAIT, wait))

    # Handing out

    def _hand_out(self, now: float) -> None:
        if (trial := self._trials.current) is not None and self._holds_court(trial, now):
            return
        while self._lanes.in_flight < self._conduct.inflight_batches:
            group = self._next_group(now)
            if group is None:
                return
            self._dispatch(group, now)

    def _next_group(self, now: float) -> Group | None:
        if self._is_draining:
            return self._batcher.drain()
        if self._lanes.in_flight >= self._conduct.lanes:
            return self._batcher.ahead(now)
        return self._batcher.due(now) or (self._batcher.pressed() if self._intake.is_full else None)

    def _dispatch(self, group: Group, now: float) -> None:
        requests = self._still_in_time(group, now) if self._punctuality.is_asked_for else group.requests
        batch, refused = self._stacker.stack(requests, group.closed_by)
        if refused and _has_runs(request for request, _ in refused):
            requests = unravel(requests, self._ledger)
            batch, refused = self._stacker.stack(requests, group.closed_by)
        if refused:
            self._refuse(self._whole(refused))
        if batch is not None:
            self._out[id(batch)] = batch
            self._lanes.submit(batch)
            self._punctuality.handed_out(batch, now)
            self._events.batch_closed(batch, now - group.opened_at)

    def _still_in_time(self, group: Group, now: float) -> Sequence[Request]:
        """What of the group would be home before its deadline; the others are told that they would not."""
        running, late = self._punctuality.triaged(group.requests, group.bucket.shapes, now, self._apart)
        if late:
            self._refuse(self._whole(late))
        return running

    def _apart(self, requests: Sequence[Request]) -> Sequence[Request]:
        return unravel(requests, self._ledger) if _has_runs(requests) else requests

    # Records that may end the process

    def _holds_court(self, trial: Trial, now: float) -> bool:
        """Take the next step of the trial. Whether the lanes are to be left to it alone."""
        if not self._ledger.is_next(trial.place) and not trial.is_begun:
            return False  # until the records before it are settled, others may run
        if self._lanes.in_flight:
            return True
        if not trial.is_begun and self._is_noted(trial):
            trial.is_begun = True
            self._begin_trial(trial, now)
        if (group := self._trials.next_group()) is not None:
            self._dispatch(group, now)
        elif self._ledger.is_done(trial.place):
            self._end_trial(trial)
            return False
        return True

    def _is_noted(self, trial: Trial) -> bool:
        """Whether the group knows that this record runs next. The note is a commit: no other one may follow it."""
        trial.is_called = True
        self._ledger.committed({trial.record.partition: trial.record.offset})
        return self._source.note_isolated_run(trial.record.partition, trial.record.offset)

    def _begin_trial(self, trial: Trial, now: float) -> None:
        self._pace()
        request = self._codec.decode(trial.record)
        if isinstance(request, Rejection):
            self._refuse([(trial.place, request)])
        else:
            request.place = trial.place
            if request.timeout is not None:
                self._punctuality.give_deadline(request, now)
            self._trials.run(request, now)

    def _acquit(self, trial: Trial | None, leaving: Collection[Partition]) -> None:
        """A record whose trial is broken off has ended nothing."""
        if trial is not None and trial.record.partition in leaving and self._is_owed_a_word(trial):
            self._source.withdraw_note(trial.record.partition, trial.record.offset)

    def _is_owed_a_word(self, trial: Trial) -> bool:
        """Whether it was called, and its record is not settled, nor may be: a word is a commit, and would undo that."""
        is_in_doubt = trial.place.is_in_doubt or self._delivery.is_in_doubt(trial.record.partition)
        return trial.is_called and not self._ledger.is_settled(trial.place) and not is_in_doubt

    def _withdraw(self) -> None:
        """Break off the trial for good, and wait until the group knows: it may refuse at first, and `close` hears none.

        Whatever ends us goes before.
        """
        trial, deadline = self._trials.current, self._clock() + WITHDRAW_TIMEOUT
        if trial is None or not self._is_owed_a_word(trial):
            return
        with suppress(Stop):
            while self._trials.current is trial and self._clock() < deadline:
                if self._source.withdraw_note(trial.record.partition, trial.record.offset):
                    return
                self._source.poll(1, SHORTEST_WAIT)

    def _end_trial(self, trial: Trial) -> None:
        if self._trials.end():
            self._source.release(trial.record.partition)
        self._pace()

    def _pace(self) -> None:
        """A commit is urgent while somebody waits for it: a drain, or a trial."""
        self._delivery.hasten(is_urgent=self._is_draining or self._trials.current is not None)

    # Bringing home

    def _bring_home(self, timeout: float) -> None:
        home = self._lanes.finished(timeout)
        if home:
            now = self._clock()
            self._punctuality.came_home(home, now)
            self._hand_out(now)  # before the answers are written: a lane should not wait for that
        for batch, outputs, failure, seconds in home:
            if batch is None:
                self._judge_device(failure)
                continue
            del self._out[id(batch)]
            split = self._split(batch, outputs) if outputs is not None else failure
            assert split is not None
            failed = split.for_log if isinstance(split, RunFailure) else None
            self._events.batch_ran(batch.rows, seconds, failed)
            if isinstance(split, RunFailure):
                self._punctuality.failed(batch)
                self._try_smaller(batch, split)
            else:
                self._batcher.ran(batch, seconds, now)
                self._conclude(split)
                if late := self._punctuality.answered(batch, self._clock()):
                    self._events.answered_late(late)
        if self._suspicion.wants_probe(lanes_are_idle=not self._lanes.in_flight):
            self._lanes.probe()

    def _split(self, batch: Batch, outputs: Sequence[Array]) -> Split | RunFailure:
        split = self._stacker.split(batch, outputs)
        if isinstance(split, Split) and split.refused and _has_runs(request for request, _ in split.refused):
            split = self._stacker.split(self._unravelled(batch), outputs)
        return split

    def _unravelled(self, batch: Batch) -> Batch:
        """The same batch, of whose requests each stands for one record."""
        return replace(batch, requests=unravel(batch.requests, self._ledger))

    def _conclude(self, split: Split) -> None:
        """A run gave usable output: answer, unless it is nothing but rejections, which says nothing for the device."""
        if not split.predicted:
            self._suspicion.failed(*split.refused)
            return
        self._refuse(self._whole([*self._suspicion.cleared(), *split.refused]))
        self._answer(self._whole([(prediction[0], prediction) for prediction in split.predicted]))

    def _try_smaller(self, batch: Batch, failure: RunFailure) -> None:
        """Halve a failed batch until the culprit is alone; its neighbours get their results on the way.

        For want of memory a single request is halved, too, and those that come after it share smaller batches.
        """
        if _has_runs(batch.requests):
            batch = self._unravelled(batch)
        wants_memory = failure.code is Code.RESOURCE_EXHAUSTED
        if wants_memory:
            self._batcher.ran_out_of_memory(batch)
        if len(batch.requests) == 1 and not (wants_memory and batch.rows > 1):
            self._suspicion.failed((batch.requests[0], reject(batch.requests[0], failure)))
            return
        self._suspicion.failed()
        halves = halve(batch)
        self._out.update((id(half), half) for half in halves)
        self._lanes.resubmit(halves)
        for half in halves:
            self._punctuality.handed_out(half, self._clock())

    def _judge_device(self, failure: RunFailure | None) -> None:
        """The warm-up batch came home: if even that fails, no request is to blame."""
        self._suspicion.probed()
        self._events.device_probed(failure.message if failure else None)
        if failure is not None:
            raise ModelBroken(
                f"the model fails on its own warm-up batch, which ran at start: {failure.message}. The device or the "
                "deployment is broken; the requests that failed with it are unanswered and will be read again."
            )
        self._refuse(self._whole(self._suspicion.cleared()))

    # Answering

    def _whole(self, judged: Iterable[tuple[Request, Outcome]]) -> list[tuple[Place, Outcome]]:
        """Places and outcomes; a request cut into pieces appears once, when its last piece is home."""
        ready: list[tuple[Place, Outcome]] = []
        for request, outcome in judged:
            assert request.place is not None
            if request.reassembly is None:
                ready.append((request.place, outcome))
            elif (whole := _reassembled(request, outcome)) is not None:
                if isinstance(whole, Rejection) and whole is not outcome:  # its parts do not fit together
                    self._events.rejected(whole)
                ready.append((request.place, whole))
        return ready

    def _answer(self, outcomes: Iterable[tuple[Place, Outcome]]) -> None:
        if leaving := self._ledger.answer(outcomes):
            self._delivery.send(leaving)
            self._rejections.check()

    def _refuse(self, rejections: list[tuple[Place, Outcome]]) -> None:
        for place, rejection in rejections:
            assert isinstance(rejection, Rejection)
            if not rejection.is_silent and self._ledger.knows(place):
                self._events.rejected(rejection)
        self._answer(rejections)

    def _record_progress(self) -> None:
        if not (self._lanes.in_flight or self._batcher.backlog or self._is_behind):
            self._delivery.push()
        is_waiting_for_broker = self._awaits_word or (self._intake.is_full and not self._lanes.in_flight)
        now = self._clock()
        astray = self._delivery.turn(now, REPORT_WAIT if is_waiting_for_broker else 0.0)
        self._rejections.check()  # exactly once writes what waited for a transaction only now
        if astray:
            self._rewind(astray)
        self._batcher.look_back(now)
        self._events.turned(now, self._ledger.records)

    def _rewind(self, partitions: Sequence[Partition]) -> None:
        """Begin again where Kafka says that they are. What of them still runs comes home to no line and is dropped."""
        self._acquit(self._trials.current, partitions)
        self._forget(partitions)
        self._rejections.take_back()
        self._source.rewind(partitions)
        self._events.rewound(partitions)

    def _forget(self, partitions: Sequence[Partition]) -> None:
        self._batcher.forget(partitions)
        self._trials.forget(partitions)
        self._pace()

    # Partitions come and go

    def assigned(self, partitions: Sequence[Partition]) -> None:
        self._events.assigned(partitions)

    def suspected(self, suspects: Sequence[Suspect]) -> None:
        """Called before any record of theirs comes: each will run alone."""
        self._trials.suspect(suspects)
        self._events.suspected(suspects)

    def is_in_doubt(self, partition: Partition) -> bool:
        """Whether something of an earlier assignment may still be committed."""
        return self._delivery.is_in_doubt(partition)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Called before the partitions move, and the only callback that acts: what runs comes home and is committed.

        Waiting rows are dropped first, since their next owner reads them again; then the running batches are brought
        home, then delivery reports are served, and the commit is the last call.
        """
        if self._is_over:
            self._acquit(self._trials.current, partitions)
            self._trials.forget(partitions)
            self._delivery.lost(partitions)
            return
        self._let_go(partitions, self._clock() + self._conduct.revoke_timeout)

    def _let_go(self, partitions: Sequence[Partition], deadline: float) -> None:
        began, trial = self._clock(), self._trials.current
        self._forget(partitions)
        self._trials.acquit(partitions)
        try:
            while self._is_out(partitions) and self._clock() < min(deadline, self._stop_by()):
                self._bring_home(LANE_SLICE)
                self._record_progress()
            unsettled = self._delivery.revoke(partitions, min(deadline, self._stop_by()))
        finally:  # what ends us here is not the record whose trial is broken off
            self._acquit(trial, partitions)
        self._events.revoked(partitions, self._clock() - began, unsettled)

    def lost(self, partitions: Sequence[Partition]) -> None:
        """The partitions moved without us: forget, commit nothing. What runs comes home to no line and is dropped."""
        self._forget(partitions)
        self._trials.acquit(partitions)
        unsettled = self._delivery.lost(partitions)
        self._events.lost(partitions, unsettled)

    def _is_out(self, partitions: Collection[Partition]) -> bool:
        return any(r.record.partition in partitions for batch in self._out.values() for r in batch.requests)

    # Going home

    def _drain(self) -> None:
        """Finish and commit what is held. Raises `DeadlineMissed`, having committed nothing unsettled.

        When `LEAVE_AFTER` of the time is gone, what no lane has begun is left to its next owner: many small batches of
        a slow model would else take all of it, and end in an error that nothing had caused. Partitions are let go once
        the group has taken the commit of what ran, for there are polls here to hear of that, unlike in a rebalance.
        """
        leave_at = self._stop_by() - (1 - LEAVE_AFTER) * self._conduct.drain_timeout
        self._is_draining, is_leaving = True, False
        self._is_behind = False  # nothing more is taken
        self._source.pause()
        self._pace()
        while self._ledger.records or not self._delivery.is_idle:
            if self._clock() > self._stop_by():
                raise DeadlineMissed(
                    f"stopped before all was settled: {self._ledger.records} records taken are unanswered or "
                    "uncommitted and will be answered again"
                )
            if self._clock() > leave_at and self._has_waiting:
                self._forget(list(self._ledger.oldest_by_partition()))
                is_leaving = True
            if is_leaving and self._is_all_home:
                self._let_go(list(self._ledger.oldest_by_partition()), self._stop_by())
            # Polled for its callbacks: a record that still comes is its next owner's.
            self._source.poll(1, 0.0 if self._lanes.in_flight else SHORTEST_WAIT)
            self._hand_out(self._clock())
            self._bring_home(LANE_SLICE)
            self._record_progress()

    def _stop_by(self) -> float:
        """When the drain must be over: never before a stop is asked for, at once when it is asked for again.

        Its time begins when the wish is first seen, perhaps in the middle of a revoke, for so the watchdog counts.
        """
        if self._signals.hurry_asked:
            return -inf
        if self._signals.stop_asked:
            self._drain_deadline = min(self._drain_deadline, self._clock() + self._conduct.drain_timeout)
        return self._drain_deadline

    @property
    def _has_waiting(self) -> bool:
        """Something that was taken waits for a lane, or for its trial; one under way is taken back by `_withdraw`."""
        trial = self._trials.current
        return self._batcher.next_due is not None if trial is None else not trial.is_called

    @property
    def _is_all_home(self) -> bool:
        """What ran is answered, and committed as far as it may be."""
        is_running = bool(self._out) or self._suspicion.is_probing
        return not (is_running or self._ledger.awaits_delivery() or self._ledger.committable())


def _has_runs(requests: Iterable[Request]) -> bool:
    return any(isinstance(request, Run) for request in requests)


def _reassembled(piece: Request, outcome: Outcome) -> Outcome | None:
    """The outcome of the whole request, once it is known. A piece that was cut again is put together first."""
    whole: Outcome | None = outcome
    while piece.reassembly is not None and whole is not None:
        whole, piece = piece.reassembly.collect(piece, whole), piece.reassembly.request
    return whole
