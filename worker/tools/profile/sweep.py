"""Measures batch sizes on a device, and requests in an encoding: it repeats a worker's steps and times each of them.

The worker's own `Stacker` stacks and splits the batches; its own `Codec` reads requests and writes answers. Sizes
take turns in short rounds, so that a machine that slows down for a while slows all of them and not one. Medians count.
The caller passes the clock in. The rows are those of the model's warm-up: shapes cost time, and values hardly do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worker.codecs.codec import Codec
from worker.codecs.examples import EncodedRequest, EncodingName, encode_request
from worker.codecs.wire_contract import Wire
from worker.core.chunk import Chunk, Prediction, Reading
from worker.core.failures import BadConfiguration, RunFailure
from worker.core.records import Array, ClosedBy, ModelKey, Partition, Record, ReplyForm
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Split, Stacker

ROUNDS = 10  # slices of a size's time, so that a slow second affects all sizes alike
WARM_UPS = 3  # runs before a size is timed: the first allocates, and a provider tunes at the first or second
LONGEST_RUN = 1.0  # sizes stop growing when an inference takes so many seconds: no budget has room for two of them

# Requests that are read and answered together, like those of one poll and one batch; fewer if they are large.
TOGETHER, TOGETHER_BYTES = 64, 16 * 1024 * 1024
_PARTITION = Partition("profile", 0)
_NO_RECORD = Record(_PARTITION, 0, None, None, (), None)
_FORM = ReplyForm("application/octet-stream")

Clock = Callable[[], float]
Run = Callable[[Mapping[str, Array]], Sequence[Array] | RunFailure]
Blank = Callable[[int], Mapping[str, Array]]  # makes so many rows


class Timing(NamedTuple):
    """The seconds of one batch: the loop stacks it, a lane runs it, the loop splits it."""

    stack: float
    run: float
    split: float


class Size(NamedTuple):
    """The figures of a batch size, in seconds: `p50` and `p99` of an inference, and medians of `stack` and `split`."""

    rows: int
    inferences: int
    p50: float
    p99: float
    stack: float
    split: float

    @property
    def rows_per_s(self) -> float:
        """Rows a second at the median inference. The loop stacks and splits while the lane runs, so that is no part."""
        return self.rows / self.p50


class TooLarge(NamedTuple):
    """The first size that was left out, and why; no larger size was tried."""

    rows: int
    reason: str


class Sweep(NamedTuple):
    """The measured sizes, ascending by rows, and the first that was left out."""

    sizes: Sequence[Size]
    too_large: TooLarge | None


class RequestCost(NamedTuple):
    """The seconds that the loop needs to read one request and to write its answer, and the request's bytes."""

    encoding: str
    size: int
    decode: float
    encode: float


class Bench:
    """Makes and times batches of one model. Each request has `request_rows` rows; a batch's last may have fewer."""

    def __init__(self, run: Run, blank: Blank, stacker: Stacker, request_rows: int, clock: Clock) -> None:
        self._run = run
        self._blank = blank
        self._stacker = stacker
        self._request_rows = request_rows
        self._clock = clock

    def chunk(self, rows: int) -> Chunk:
        """Makes requests with so many rows in all, in the form that the codec gives them."""
        counts = [min(self._request_rows, rows - first) for first in range(0, rows, self._request_rows)]
        specs = self._stacker.signature.inputs
        blanks = {count: self._blank(count) for count in set(counts)}
        # Each request has its own copy, like a record: a shared one would stay in the processor's cache.
        tensors = [
            [
                array.reshape(-1).tolist() if spec.is_text else array.tobytes()
                for array in (blanks[of][spec.name] for of in counts)
            ]
            for spec in specs
        ]
        shapes = tuple(blanks[counts[0]][spec.name].shape[1:] for spec in specs)
        sizes = [sum(array.nbytes for array in blanks[of].values()) for of in counts]
        many = len(counts)
        return Chunk(ModelKey("", ""), _FORM, [_NO_RECORD] * many, counts, [shapes] * many, tensors, sizes, range(many))

    def run(self, chunks: Sequence[Chunk]) -> tuple[Timing, Split] | RunFailure:
        """Runs these requests as one batch. Its rows are finite, because the model ran on them when it was loaded."""
        began = self._clock()
        batch, _ = self._stacker.stack(chunks, ClosedBy.SIZE)
        assert batch is not None
        stacked = self._clock()
        outputs = self._run(batch.feeds)
        ran = self._clock()
        split = outputs if isinstance(outputs, RunFailure) else self._stacker.split(batch, outputs)
        if isinstance(split, RunFailure):
            return split
        return Timing(stacked - began, ran - stacked, self._clock() - ran), split

    def time_for(self, seconds: float, chunk: Chunk) -> list[Timing]:
        """Times batches of this chunk for so long, at least one. Raises `BadConfiguration` if the model fails."""
        timings: list[Timing] = []
        deadline = self._clock() + seconds
        while not timings or self._clock() < deadline:
            found = self.run([chunk])
            if isinstance(found, RunFailure):
                rows = sum(chunk.rows)
                raise BadConfiguration(f"the model ran on {rows} rows, and then failed: {found.message}")
            timings.append(found[0])
        return timings

    def request_cost(self, encoding: EncodingName, seconds: float, most_rows: int) -> RequestCost:
        """Measures it for about `seconds`, `most_rows` in a batch. Raises `BadConfiguration` if the model lacks it."""
        signature, rng = self._stacker.signature, np.random.default_rng(0)
        feeds = {name: _varied(array, rng) for name, array in self._blank(self._request_rows).items()}
        request = encode_request(signature, feeds, encoding)
        count = max(1, min(TOGETHER, TOGETHER_BYTES // len(request.value), most_rows // self._request_rows))

        def answers(reading: Reading) -> Sequence[Prediction]:
            chunks, wrong, _ = reading
            found = RunFailure(wrong[0][1].message) if wrong else self.run(chunks)
            if isinstance(found, RunFailure):
                raise BadConfiguration(f"the model cannot be asked in {encoding}: {found.message}")
            return found[1].predicted

        decode, encode = codec_seconds(signature, [request] * count, answers, seconds, self._clock)
        return RequestCost(encoding, len(request.value), decode, encode)


def codec_of(signature: Signature) -> Codec:
    """Makes the worker's codec for one model, with limits that no request made for it reaches."""
    wire = Wire("", "", max_request_bytes=1 << 62, max_json_bytes=1 << 62, max_answer_bytes=1 << 62)
    return Codec([signature], wire, lambda _: None)


def codec_seconds(
    signature: Signature,
    requests: Sequence[EncodedRequest],
    answers: Callable[[Reading], Sequence[Prediction]],
    seconds: float,
    clock: Clock,
) -> tuple[float, float]:
    """Measures the medians of reading one of these requests and writing its answer, for about so many seconds."""
    codec = codec_of(signature)  # its answers follow the request's content type
    records = [Record(_PARTITION, at, None, value, headers, None) for at, (headers, value) in enumerate(requests)]
    decode, encode = list[float](), list[float]()
    deadline = clock() + seconds
    while not decode or clock() < deadline:
        began = clock()
        reading = codec.read(records)
        decode.append(clock() - began)
        predictions = answers(reading)
        began = clock()
        for prediction in predictions:
            codec.messages(codec.write(prediction))
        encode.append(clock() - began)
    return float(np.median(decode)) / len(records), float(np.median(encode)) / len(records)


def _varied(array: Array, rng: np.random.Generator) -> Array:
    """Replaces zeros by fractions, which as text are as long as those of real requests."""
    if array.dtype.kind != "f" or array.any():
        return array
    return rng.standard_normal(array.shape).round(3).astype(array.dtype)


def sweep(bench: Bench, sizes: Sequence[int], seconds: float, tell: Callable[[int], None]) -> Sweep:
    """Measure each of these ascending sizes for so many seconds; `tell` gets the number of slices done.

    Raises `BadConfiguration` if the model fails at the smallest size, or later at a size at which it ran before.
    """
    ready, too_large = _warm(bench, sizes)
    timings: dict[int, list[Timing]] = {rows: [] for rows in ready}
    there_and_back = itertools.cycle((list(ready), list(ready)[::-1]))  # so the size before a size changes
    turns = itertools.chain.from_iterable(itertools.islice(there_and_back, ROUNDS))
    for done, rows in enumerate(turns, 1):
        timings[rows] += bench.time_for(seconds / ROUNDS, ready[rows])
        tell(done)
    return Sweep([_size(rows, of) for rows, of in timings.items()], too_large)


def _size(rows: int, timings: Sequence[Timing]) -> Size:
    stack, run, split = np.array(timings).T
    p50, p99 = np.percentile(run, (50, 99), method="higher").tolist()
    return Size(rows, len(timings), p50, p99, float(np.median(stack)), float(np.median(split)))


def _warm(bench: Bench, sizes: Sequence[int]) -> tuple[dict[int, Chunk], TooLarge | None]:
    """Runs each of these ascending sizes. Returns a chunk of each size that ran, and the first size left out."""
    ready: dict[int, Chunk] = {}
    for rows in sizes:
        chunk = bench.chunk(rows)
        last = [bench.run([chunk]) for _ in range(WARM_UPS)][-1]
        if isinstance(last, RunFailure):
            if not ready:
                raise BadConfiguration(f"the model does not run on {rows} rows: {last.message}")
            return ready, TooLarge(rows, last.message)
        if (seconds := last[0].run) > LONGEST_RUN and ready:
            return ready, TooLarge(rows, f"one inference takes {seconds:.1f} s")
        ready[rows] = chunk
    return ready, None
