"""Turns finished batches and refusals into answers, each for the place of its record. They leave in ledger order.

| a run gave                            | then |
|---|---|
| usable outputs                        | each record gets its own rows, or an error if these are not finite |
| outputs of some rows, and faults      | the faulty rows' records are refused; rows that were left run later |
| no outputs, because of single rows    | their records are refused at once, and the others run again without them |
| no outputs, for several records       | the batch is halved, until the record on which the model fails is alone |
| no outputs, for one record            | the device check holds its error until the device works |
| no outputs, because memory ran out    | one record is halved, too; later batches of this kind are smaller |
| no outputs, because its process ended | each record runs alone, until the one that ends the process again is known |
| another number of rows than went in   | from then on each row of that model runs alone: their owners are not known |
| outputs of a piece of a large record  | they wait for the other pieces, and are answered together |

The device check separates bad data from a bad device. A dead device fails on all requests, and an error for each would
drain the topic into the dead letters. So an error that the model caused is held until there is proof that the device
works: any success, or another run of the warm-up batch. That run is requested after `PATIENCE` failures in a row, and
as soon as the lanes have no other batch that could be the proof. If the warm-up batch fails too, the process stops, and
the requests whose errors are held stay unanswered and uncommitted.

Gives places to the delivery, and returns the halves to run next. Owns the device check. Never touches a lane or a
record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from worker.core.chunk import Batch, Chunk, Finished, Prediction, Refused
from worker.core.failures import Code, ModelBroken, RunFailure
from worker.core.ordering.ledger import Answered, Place, Places
from worker.core.records import Array, ModelKey, Partition, Rejection, nothing_owed
from worker.core.tensors.stacking import Split, each_alone, halve, parted, reject
from worker.core.writing_together import write_together
from worker.loop.conduct import Parts

# Failures in a row before the device is probed, which costs one run of the warm-up batch. One bad request in a batch of
# 64 causes up to 7 failures in a row while the batch is halved, so twenty have another cause.
PATIENCE = 20
# Seconds of a failed run whose parts let other batches go before them: to find the record among 20 that fail takes up
# to 39 runs. Functions that took all memory held others up for 7 s so (2026-11).
LONG = 0.05


class DeviceCheck:
    """The failures in a row, the rejections held because of them, and whether a probe runs."""

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
    """Decides the answer to each record. Owns the device check."""

    def __init__(self, parts: Parts) -> None:
        self._states = parts.states
        self._stage = parts.stage
        self._codec = parts.codec
        self._ledger = parts.ledger
        self._delivery = parts.delivery
        self._rejections = parts.rejections
        self._stackers = parts.stackers
        self._batcher = parts.batcher
        self._punctuality = parts.punctuality
        self._events = parts.events
        self._clock = parts.clock
        self.check = DeviceCheck()
        self._alone: set[ModelKey] = set()  # models that lost rows; a right number of rows is only chance from then on

    def conclude(self, finished: Finished, now: float) -> Sequence[Batch]:
        """Answer the records of a run. Returns the halves to run next if it failed; nearly always none.

        Raises `ModelBroken` if the warm-up batch failed, and `TooManyRejections`.
        """
        batch, outputs, failure, seconds = finished
        if batch is None:
            self._judge_device(failure)
            return ()
        split = self._split(batch, outputs) if outputs is not None else failure
        assert split is not None
        if isinstance(split, RunFailure) and split.loses_rows:
            self._run_alone(batch.model, split)
        if isinstance(split, RunFailure):
            if not split.is_of_data:
                self._events.batch_ran(batch.rows, seconds, split.for_log)
            self._punctuality.failed(batch)
            parts = self._parted(finished, split, now) if split.is_of_rows else self._smaller(batch, split)
            return parts if seconds < LONG else [part._replace(gives_way=not part.is_alone) for part in parts]
        self._events.batch_ran(batch.rows, seconds, None)
        self._batcher.ran(batch, seconds, now)
        self._answer_split(split)
        if late := self._punctuality.answered(batch, self._clock()):
            self._events.answered_late(late)
        return ()

    def refuse_records(self, refused: Collection[Refused]) -> None:
        """Answer these records with their rejections; a record cut into pieces gets one answer."""
        if not refused:
            return
        places: list[tuple[Place, Rejection]] = []
        for chunk, at, rejection in refused:
            whole = rejection if chunk.reassembly is None else _reassembled(chunk, rejection)
            if isinstance(whole, Rejection):
                places.append((chunk.place(at), whole))
        self._stage.concluded([chunk.take(at, at + 1) for chunk, at, _ in refused], self._clock())
        self.refuse(places)

    def refuse(self, rejections: Sequence[tuple[Place, Rejection]]) -> None:
        """Answer the records at these places with their rejections, each counted once."""
        for place, rejection in rejections:
            if not rejection.is_silent and self._ledger.knows(place.places):
                self._events.rejected(rejection)
        self._answer([(place.places, (place.at,), (rejection,)) for place, rejection in rejections])

    def commit_past_gaps(self, positions: Mapping[Partition, int], now: float) -> None:
        """Let commits go past offsets that hold no record: markers of transactions, and records of aborted ones.

        Otherwise the lag behind a publisher that uses transactions would never be 0. Call it when all records from the
        source are in the ledger: where nothing is owed, a commit may go as far as the source has come.
        """
        self._answer(
            [
                (self._ledger.track_gap(partition, position - 1, now), (0,), (nothing_owed(partition, position - 1),))
                for partition, position in positions.items()
                if self._ledger.is_behind(partition, position)
            ]
        )

    def _run_alone(self, model: ModelKey, failure: RunFailure) -> None:
        """Let no rows of this model share a run from now on, because it does not give one row for each that went in."""
        if model not in self._alone:
            self._alone.add(model)
            self._batcher.run_alone(model)
            self._events.rows_lost(failure.message)

    def _split(self, batch: Batch, outputs: Sequence[Array]) -> Split | RunFailure:
        if batch.rows > 1 and batch.model in self._alone:
            return RunFailure("the model lost rows of another batch, so each row runs alone", loses_rows=True)
        return self._stackers[batch.model].split(batch, outputs)

    def _answer_split(self, split: Split) -> None:
        """Answer a run with usable output, unless all of it is rejections: they do not prove that the device works."""
        if not split.predicted:
            self.check.failed(*split.refused)
            return
        if refused := [*self.check.cleared(), *split.refused]:  # nearly always none
            self.refuse_records(refused)
        predicted = [whole for prediction in split.predicted if (whole := self._whole(prediction)) is not None]
        self._states.conclude(predicted)
        self._answer(self._written(predicted))
        self._stage.concluded([prediction.chunk for prediction in split.predicted], self._clock())

    def _whole(self, prediction: Prediction) -> Prediction | None:
        """The prediction of whole records; None for a piece of a record that is not finished."""
        chunk = prediction.chunk
        if chunk.reassembly is None:
            return prediction
        whole = _reassembled(chunk, prediction)
        if isinstance(whole, Rejection):  # its pieces' outputs do not fit together
            self.refuse([(chunk.place(0), whole)])
            return None
        return whole

    def _written(self, predicted: Sequence[Prediction]) -> Sequence[Answered]:
        """The answers. A record whose partition was forgotten while it ran gets none: its next owner answers it."""
        known = [(each, places) for each in predicted if (places := self._known(each.chunk)) is not None]
        written = write_together(self._codec.write, [prediction for prediction, _ in known])
        return [(places, each.chunk.at, answers) for (each, places), answers in zip(known, written, strict=True)]

    def _known(self, chunk: Chunk) -> Places | None:
        """The places of a chunk; None if its partition was forgotten."""
        assert chunk.places is not None
        return chunk.places if self._ledger.knows(chunk.places) else None

    def _parted(self, finished: Finished, failure: RunFailure, now: float) -> Sequence[Batch]:
        """Refuse the records of faulty rows, and answer those with results. Returns what runs again."""
        batch, _, _, seconds = finished
        assert batch is not None
        done, outputs, rest, refused = parted(batch, failure)
        if done is None and not refused:  # as if no row were named, so that nothing runs for ever
            return self._smaller(batch, failure)
        self.refuse_records(refused)  # the device check holds none, for they say nothing about the device
        again = [] if rest is None else [rest._replace(gives_way=bool(failure.left))]
        return again if done is None else [*again, *self.conclude(Finished(done, outputs, None, seconds), now)]

    def _smaller(self, batch: Batch, failure: RunFailure) -> Sequence[Batch]:
        """The parts of a failed batch, until the bad record is alone. Its neighbours get their results meanwhile.

        Halves, but single records where the process ended: each failure costs a start of the model, and halves of 64
        would take six. A record whose partition was forgotten meanwhile does not run again.
        """
        wants_memory = failure.code is Code.RESOURCE_EXHAUSTED
        if wants_memory:
            self._batcher.ran_out_of_memory(batch)
        if failure.ended_host and not batch.is_alone:
            self.check.failed()
            return [one for one in each_alone(batch) if self._ledger.knows(one.chunks[0].place(0).places)]
        may_be_cut = batch.rows > 1 and (wants_memory or failure.loses_rows or bool(failure.left))
        if sum(map(len, batch.chunks)) == 1 and not may_be_cut:
            self.check.failed(reject(batch.chunks[0], failure))
            return ()
        self.check.failed()
        return halve(batch)

    def _judge_device(self, failure: RunFailure | None) -> None:
        """Judge the device by another run of the warm-up batch: if that fails, the fault is not in a request."""
        self.check.probed()
        self._events.device_probed(failure.message if failure else None)
        if failure is not None:
            raise ModelBroken(
                f"the model fails on its own warm-up batch, which ran at start: {failure.message}. The device or the "
                "deployment is broken; what failed with it is unanswered and will be read again."
            )
        self.refuse_records(self.check.cleared())

    def _answer(self, answers: Sequence[Answered]) -> None:
        if leaving := self._ledger.answer(answers):
            self._delivery.send(leaving)
            self._rejections.check()


def _reassembled(piece: Chunk, outcome: Prediction | Rejection) -> Prediction | Rejection | None:
    """The outcome of the whole record once it is known. A piece that was cut again is joined first."""
    whole: Prediction | Rejection | None = outcome
    while piece.reassembly is not None and whole is not None:
        whole, piece = piece.reassembly.collect(piece, whole), piece.reassembly.whole
    return whole
