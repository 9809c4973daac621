"""The worker's loop between two files: everything but Kafka, wired as `assembly.py` wires it.

A file has no hurry: batches wait for company until they are full or it ends, so the same file makes the same batches
every time. A pipe is read along as a topic is, with the linger of the settings.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from worker.codecs import Codecs, Wire
from worker.core.batching.back_pressure import Bounds, Intake
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.deadlines import Punctuality
from worker.core.failures import DeadlineMissed, Incomplete, RunFailure
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Array
from worker.core.rejections import Rejections
from worker.core.tensors.stacking import Stacker
from worker.inference import InferenceLanes, Model, RunnableModel
from worker.loop.composition import compose
from worker.loop.conduct import LANE_SLICE, Conduct
from worker.loop.suspects import Suspects
from worker.loop.worker import Worker
from worker.settings.for_commands import ScoringSettings
from worker.signals import StopSignals
from worker.tools.score.files.sources import FileSource, LineCodec
from worker.tools.score.results import FileDelivery, ScoreCounts, Writer

# Records of one poll, as many as the worker takes; a source of whole batches brings fewer.
CHUNK = 256
# The longest wait for a lane, seconds. A file has no news meanwhile, and a thread that only looks takes the interpreter
# from the lane: 15% of the speed with the worker's own millisecond (measured 2026).
PATIENCE = 0.1
# How long Python lets a busy thread keep the interpreter, seconds. At its default of 5 ms the loop keeps a lane waiting
# between two inferences: 15 to 20% of the speed (measured 2026).
SWITCH_INTERVAL = 0.0005
# What a lane gets to finish in when the operator hurries, seconds.
CLOSE_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class Until:
    """The loop's `Signals`: a file's end is the operator's word, too."""

    is_over: Callable[[], bool]
    is_hurried: Callable[[], bool]

    @property
    def stop_asked(self) -> bool:
        return self.is_over()

    @property
    def hurry_asked(self) -> bool:
        return self.is_hurried()


class Scorer:
    """Runs one model over files. Owns the lanes, until `close`."""

    def __init__(self, model: Model, settings: ScoringSettings, counts: ScoreCounts, signals: StopSignals) -> None:
        self.codecs = Codecs(
            [model.signature],
            # No topic bounds an answer here, and how long a request may be is known to the reader of the file.
            Wire(
                "",
                "",
                max_request_bytes=sys.maxsize,
                max_answer_bytes=sys.maxsize,
                non_finite_output=settings.model.non_finite_output,
            ),
            tell=counts.rejected,
        )
        self.signature = model.signature
        self._settings = settings
        self.counts = counts
        self._signals = signals
        sliced = Sliced(model, model.most_rows(settings.batching.max_batch_size))
        self._lanes = InferenceLanes({model.signature.key: sliced}, settings.batching.lanes)

    def run(self, source: FileSource, writer: Writer) -> bool:
        """Everything in the source, unless the operator stops it: then what was taken. Whether it was everything.

        Raises `Incomplete` when told to hurry, and whatever source, model or writer raise.
        """
        self._run(source, writer, lambda: source.is_over or self._signals.stop_asked)
        return source.is_over

    def run_again(self, source: FileSource, writer: Writer) -> None:
        """The same, for a remainder without which the rest is worth less: only a hurry stops it."""
        self._run(source, writer, lambda: source.is_over or self._signals.hurry_asked)

    def close(self) -> bool:
        """End the lanes. False when an inference still runs."""
        return self._lanes.close(CLOSE_TIMEOUT)

    def _run(self, source: FileSource, writer: Writer, is_over: Callable[[], bool]) -> None:
        found = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL)
        try:
            self._worker(source, writer, Until(is_over, lambda: self._signals.hurry_asked)).run()
            while self._lanes.in_flight:  # pieces of a request that is refused already are none of the next pass's
                self._lanes.finished(PATIENCE)
        except DeadlineMissed as missed:
            raise Incomplete("stopped at once: what was under way has no answers") from missed
        finally:
            sys.setswitchinterval(found)
            writer.flush()

    def _worker(self, source: FileSource, writer: Writer, until: Until) -> Worker:
        batching, model = self._settings.batching, self._settings.model
        ledger = OffsetLedger()
        policy = BatchPolicy(
            max(batching.max_batch_size, source.most_rows),
            max(batching.max_batch_bytes, source.most_bytes),
            (batching.linger or 0.0) if source.is_live else math.inf,
            batching.max_batch_tokens,
            self.signature.buckets,
        )
        policies = {self.signature.key: policy}
        stacker = Stacker(
            self.signature,
            refuse_non_finite_input=model.non_finite_input == "reject",
            refuse_non_finite_output=model.non_finite_output == "error",
        )
        punctuality = Punctuality(time.time, batching.lanes)
        bounds = Bounds(batching.max_inflight_records, batching.max_inflight_rows, batching.max_inflight_bytes)
        return compose(
            source=source,
            codec=LineCodec(self.codecs),
            ledger=ledger,
            intake=Intake(bounds, ledger, chunk=CHUNK),
            batcher=Batcher(policies, punctuality.needed),
            suspects=Suspects(policies, bounds.records),
            stackers={self.signature.key: stacker},
            lanes=self._lanes,
            punctuality=punctuality,
            delivery=FileDelivery(ledger, writer),
            rejections=Rejections(),
            events=self.counts,
            signals=until,
            conduct=Conduct(
                batching.lanes,
                batching.max_inflight_batches,
                drain_timeout=math.inf,
                lane_slice=LANE_SLICE if source.is_live else PATIENCE,
            ),
            clock=time.monotonic,
        )


class Sliced:
    """A `RunnableModel` over another, which gets at most `rows` rows at once: what `passes.py` calls an errand is cut
    into batches here, by the lane. Called by several lanes at once.
    """

    def __init__(self, runner: RunnableModel, rows: int) -> None:
        self._runner = runner
        self._rows = rows

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        """All outputs whole, or the first failure."""
        rows = len(next(iter(feeds.values())))
        if rows <= self._rows:
            return self._runner.run(feeds)
        slices: list[Sequence[Array]] = []
        for start in range(0, rows, self._rows):
            stop = min(start + self._rows, rows)
            outputs = self._runner.run({name: array[start:stop] for name, array in feeds.items()})
            if isinstance(outputs, RunFailure):
                return outputs
            # Looked at here: a row too few in one slice and one too many in the next would be missed in the whole.
            if any(output.shape[:1] != (stop - start,) for output in outputs):
                return RunFailure(f"{stop - start} rows went in, and another number came out", loses_rows=True)
            slices.append(outputs)
        if len({tuple(output.shape[1:] for output in outputs) for outputs in slices}) > 1:
            return RunFailure("the shape of an output's rows depends on their neighbours")
        return [np.concatenate(parts) for parts in zip(*slices, strict=True)]

    def probe(self) -> Sequence[Array] | RunFailure:
        """The warm-up batch."""
        return self._runner.probe()
