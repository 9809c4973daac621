"""Turns finished batches and refusals into outcomes, each for the place of its record. They leave in ledger order.

| a run gave                            | then |
|---|---|
| usable outputs                        | each request gets its own rows, or an error if these are not finite |
| no outputs, for several requests      | the batch is halved, until the request on which the model fails is alone |
| no outputs, for one request           | the device check holds its error until the device works |
| no outputs, because memory ran out    | one request is halved, too; later batches of this kind are smaller   |
| another number of rows than went in   | from then on each row of that model runs alone: their owners are not known |
| outputs of a piece of a large request | they wait for the other pieces, and are answered together |

The device check separates bad data from a bad device. A dead device fails on all requests, and an error for each would
drain the topic into the dead letters. So an error that the model caused is held until there is proof that the device
works: any success, or another run of the warm-up batch. That run is requested after `PATIENCE` failures in a row, and
as soon as the lanes have no other batch that could be the proof. If the warm-up batch fails too, the process stops, and
the requests whose errors are held stay unanswered and uncommitted. Each model has its own check.

Gives places to the delivery, and returns the halves to run next. Owns the device checks. Never touches a lane or a
record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from worker.core.failures import Code, ModelBroken, RunFailure
from worker.core.records import (
    Array,
    Batch,
    Finished,
    ModelKey,
    Outcome,
    Partition,
    Place,
    Refused,
    Rejection,
    Request,
    nothing_owed,
)
from worker.core.runs import Run, unravel
from worker.core.tensors.stacking import Split, halve, reject
from worker.loop.conduct import Parts

# Failures in a row before the device is probed, which costs one run of the warm-up batch. One bad request in a batch of
# 64 causes up to 7 failures in a row while the batch is halved, so twenty have another cause.
PATIENCE = 20


class DeviceCheck:
    """One model's failures in a row, the rejections held because of them, and whether a probe runs."""

    def __init__(self) -> None:
        self.failures = 0
        self._held: list[Refused] = []
        self.is_probing = False

    def failed(self, *held: Refused) -> None:
        """Note that a run failed, or gave no finite answer. `held` are the rejections that follow from it."""
        self.failures += 1
        self._held.extend(held)

    def cleared(self) -> list[Refused]:
        """Note that the device works. Returns the rejections that may leave now."""
        self.failures = 0
        held, self._held = self._held, []
        return held

    def wants_probe(self, *, is_running: bool) -> bool:
        """True, once for each probe, if the warm-up batch must run now. `is_running`: the lanes have a batch."""
        if self.is_probing or not (self.failures >= PATIENCE or (self._held and not is_running)):
            return False
        self.is_probing = True
        return True

    def probed(self) -> None:
        """Note that the warm-up batch has run."""
        self.is_probing = False


class Outcomes:
    """Decides the answer to each record. Owns the device checks."""

    def __init__(self, parts: Parts) -> None:
        """With `states` each key has a state, written with the outcome; then the key's next request has its turn."""
        self._states = parts.states
        self._by_key = parts.by_key
        self._ledger = parts.ledger
        self._delivery = parts.delivery
        self._rejections = parts.rejections
        self._stackers = parts.stackers
        self._batcher = parts.batcher
        self._punctuality = parts.punctuality
        self._events = parts.events
        self._clock = parts.clock
        self.checks = defaultdict[ModelKey, DeviceCheck](DeviceCheck)
        self._alone: set[ModelKey] = set()  # models that lost rows; a right number of rows is only chance from then on

    def conclude(self, finished: Finished, now: float) -> Sequence[Batch]:
        """Answer the requests of a run. Returns the halves to run next if it failed; nearly always none.

        Raises `ModelBroken` if the warm-up batch failed, and `TooManyRejections`.
        """
        batch, outputs, failure, seconds, model = finished
        check = self.checks[model]
        if batch is None:
            self._judge_device(check, failure)
            return ()
        split = self._split(batch, outputs) if outputs is not None else failure
        assert split is not None
        if isinstance(split, RunFailure) and split.loses_rows:
            self._run_alone(model, split)
        self._events.batch_ran(batch.rows, seconds, split.for_log if isinstance(split, RunFailure) else None)
        if isinstance(split, RunFailure):
            self._punctuality.failed(batch)
            return self._smaller(batch, split, check)
        self._batcher.ran(batch, seconds, now)
        self._answer_split(split, check)
        if late := self._punctuality.answered(batch, self._clock()):
            self._events.answered_late(late)
        return ()

    def refuse_requests(self, refused: Collection[Refused]) -> None:
        """Answer these requests with their rejections; a request cut into pieces gets one answer."""
        self.refuse(self._whole(refused))

    def refuse(self, rejections: Sequence[tuple[Place, Outcome]]) -> None:
        """Answer the records at these places with their rejections, each counted once."""
        for place, rejection in rejections:
            assert isinstance(rejection, Rejection)
            if not rejection.is_silent and self._ledger.knows(place):
                self._events.rejected(rejection)
        self._answer(rejections)

    def commit_past_gaps(self, positions: Mapping[Partition, int], now: float) -> None:
        """Let commits go past offsets that hold no record: markers of transactions, and records of aborted ones.

        Otherwise the lag behind a publisher that uses transactions would never be 0. Call it when all records from the
        source are in the ledger: where nothing is owed, a commit may go as far as the source has come.
        """
        gaps: list[tuple[Place, Outcome]] = []
        for partition, position in positions.items():
            if self._ledger.is_behind(partition, position):
                nothing = nothing_owed(partition, position - 1)
                gaps.append((self._ledger.track(nothing.record, 0, 0, now, records=0), nothing))
        self._answer(gaps)

    def is_unsettled(self, place: Place) -> bool:
        """True if its answer is certainly not durable."""
        is_in_doubt = place.is_in_doubt or self._delivery.is_in_doubt(place.line.partition)
        return not is_in_doubt and not self._ledger.is_settled(place)

    def apart(self, requests: Sequence[Request]) -> Sequence[Request]:
        """The requests, with each `Run` replaced by a request for each of its records."""
        return unravel(requests, self._ledger) if _has_runs(requests) else requests

    def _run_alone(self, model: ModelKey, failure: RunFailure) -> None:
        """Let no rows of this model share a run from now on, because it does not give one row for each that went in."""
        if model not in self._alone:
            self._alone.add(model)
            self._batcher.run_alone(model)
            self._events.rows_lost(failure.message)

    def _split(self, batch: Batch, outputs: Sequence[Array]) -> Split | RunFailure:
        if batch.rows > 1 and batch.model in self._alone:
            return RunFailure("the model lost rows of another batch, so each row runs alone", loses_rows=True)
        stacker = self._stackers[batch.model]
        split = stacker.split(batch, outputs)
        if isinstance(split, Split) and split.refused and _has_runs(request for request, _ in split.refused):
            split = stacker.split(self._batch_apart(batch), outputs)
        return split

    def _batch_apart(self, batch: Batch) -> Batch:
        return replace(batch, requests=self.apart(batch.requests))

    def _answer_split(self, split: Split, check: DeviceCheck) -> None:
        """Answer a run with usable output, unless all of it is rejections: they do not prove that the device works."""
        if not split.predicted:
            check.failed(*split.refused)
            return
        if refused := [*check.cleared(), *split.refused]:  # nearly always none, and the call would cost a microsecond
            self.refuse_requests(refused)
        self._answer(self._whole([(prediction[0], prediction) for prediction in split.predicted]))

    def _smaller(self, batch: Batch, failure: RunFailure, check: DeviceCheck) -> Sequence[Batch]:
        """The halves of a failed batch, until the bad request is alone. Its neighbours get their results meanwhile."""
        batch = self._batch_apart(batch)
        wants_memory = failure.code is Code.RESOURCE_EXHAUSTED
        if wants_memory:
            self._batcher.ran_out_of_memory(batch)
        may_be_cut = batch.rows > 1 and (wants_memory or failure.loses_rows)
        if len(batch.requests) == 1 and not may_be_cut:
            check.failed((batch.requests[0], reject(batch.requests[0], failure)))
            return ()
        check.failed()
        return halve(batch)

    def _judge_device(self, check: DeviceCheck, failure: RunFailure | None) -> None:
        """Judge the device by another run of the warm-up batch: if that fails, the fault is not in a request."""
        check.probed()
        self._events.device_probed(failure.message if failure else None)
        if failure is not None:
            raise ModelBroken(
                f"the model fails on its own warm-up batch, which ran at start: {failure.message}. The device or the "
                "deployment is broken; the requests that failed with it are unanswered and will be read again."
            )
        self.refuse_requests(check.cleared())

    def _whole(self, judged: Collection[tuple[Request, Outcome]]) -> list[tuple[Place, Outcome]]:
        """The places and their outcomes. A request cut into pieces appears once, when its last piece is finished."""
        ready: list[tuple[Place, Outcome]] = []
        for request, outcome in judged:
            assert request.place is not None
            if request.reassembly is None:
                ready.append((request.place, outcome))
            elif (whole := _reassembled(request, outcome)) is not None:
                if isinstance(whole, Rejection) and whole is not outcome:  # its pieces' outputs do not fit together
                    self._events.rejected(whole)
                ready.append((request.place, whole))
        if self._states is not None:
            self._states.conclude(ready)
        if self._by_key is not None:
            self._by_key.concluded([request for request, _ in judged], self._clock())
        return ready

    def _answer(self, outcomes: Iterable[tuple[Place, Outcome]]) -> None:
        if leaving := self._ledger.answer(outcomes):
            self._delivery.send(leaving)
            self._rejections.check()


def _has_runs(requests: Iterable[Request]) -> bool:
    return any(isinstance(request, Run) for request in requests)


def _reassembled(piece: Request, outcome: Outcome) -> Outcome | None:
    """The outcome of the whole request once it is known. A piece that was cut again is joined first."""
    whole: Outcome | None = outcome
    while piece.reassembly is not None and whole is not None:
        whole, piece = piece.reassembly.collect(piece, whole), piece.reassembly.request
    return whole
