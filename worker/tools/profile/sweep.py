"""Batch sizes measured on a device, and requests in an encoding: what a worker does, over and over, timed by its parts.

A batch is stacked from requests, run and split with the worker's own `Stacker`; requests are decoded and answers
encoded by its own `Codecs`. Sizes take turns in short rounds, so that a machine that slows down for a while slows all
of them and not one; medians count. Reads the clock it is given; the rows are the ones that the model is warmed up with,
since shapes cost time and values hardly do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worker.codecs.examples import EncodedRequest, Encoding, encode_request
from worker.codecs.registry import Codecs
from worker.codecs.wire_contract import Wire
from worker.core.failures import BadConfiguration, RunFailure
from worker.core.records import Array, ClosedBy, ModelKey, Partition, Prediction, Record, Rejection, Reply, Request
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Split, Stacker

ROUNDS = 10  # slices that a size's time is cut into: a swing of a second falls on all sizes alike
WARM_UPS = 3  # runs before a size is timed: allocation at the first, a provider's tuning at the first or second
LONGEST_RUN = 1.0  # sizes stop growing at an inference of so many seconds: no budget has room for two of them

# Requests that are decoded and answered together, as those of one poll and one batch are; fewer of large ones.
TOGETHER, TOGETHER_BYTES = 64, 16 * 1024 * 1024
_PARTITION = Partition("profile", 0)
_NO_RECORD = Record(_PARTITION, 0, None, None, (), None)
_REPLY = Reply("application/octet-stream")

Clock = Callable[[], float]
Run = Callable[[Mapping[str, Array]], Sequence[Array] | RunFailure]
Blank = Callable[[int], Mapping[str, Array]]  # so many rows


class Timing(NamedTuple):
    """One batch, seconds: stacked by the loop, run by a lane, split by the loop."""

    stack: float
    run: float
    split: float


class Size(NamedTuple):
    """One batch size. `p50` and `p99` are of one inference, `stack` and `split` medians; all in seconds."""

    rows: int
    inferences: int
    p50: float
    p99: float
    stack: float
    split: float

    @property
    def rows_per_s(self) -> float:
        """At the median inference. Stacking and splitting do not count: the loop does them while the lane runs."""
        return self.rows / self.p50


class TooLarge(NamedTuple):
    """The first size that was left out, and why; none that is larger was tried."""

    rows: int
    reason: str


class Sweep(NamedTuple):
    """What was measured, ascending by rows, and what was not."""

    sizes: Sequence[Size]
    too_large: TooLarge | None


class RequestCost(NamedTuple):
    """What the loop needs to decode one request and to encode its answer, seconds, and the request's bytes."""

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

    def requests(self, rows: int) -> list[Request]:
        """So many rows in requests, as the codecs leave them."""
        sizes = [min(self._request_rows, rows - first) for first in range(0, rows, self._request_rows)]
        blanks = {size: self._blank(size) for size in set(sizes)}
        # A copy for each, as records are: one that is read over and over would lie in the processor's cache.
        return [self._request(blanks[size], size) for size in sizes]

    def _request(self, feeds: Mapping[str, Array], rows: int) -> Request:
        specs = self._stacker.signature.inputs
        arrays = [feeds[spec.name] for spec in specs]
        tensors = [
            array.reshape(-1) if spec.is_text else array.tobytes() for spec, array in zip(specs, arrays, strict=True)
        ]
        shapes, size = tuple(array.shape[1:] for array in arrays), sum(array.nbytes for array in arrays)
        return Request(_NO_RECORD, rows, tuple(tensors), shapes, _REPLY, size, ModelKey("", ""))

    def run(self, requests: Sequence[Request]) -> tuple[Timing, Split] | RunFailure:
        """One batch of them. Its rows are finite, because the model ran on them when it was loaded."""
        began = self._clock()
        batch, _ = self._stacker.stack(requests, ClosedBy.SIZE)
        assert batch is not None
        stacked = self._clock()
        outputs = self._run(batch.feeds)
        ran = self._clock()
        split = outputs if isinstance(outputs, RunFailure) else self._stacker.split(batch, outputs)
        if isinstance(split, RunFailure):
            return split
        return Timing(stacked - began, ran - stacked, self._clock() - ran), split

    def time_for(self, seconds: float, requests: Sequence[Request]) -> list[Timing]:
        """Batches of them for so long: at least one. Raises `BadConfiguration` when the model fails."""
        timings: list[Timing] = []
        deadline = self._clock() + seconds
        while not timings or self._clock() < deadline:
            found = self.run(requests)
            if isinstance(found, RunFailure):
                rows = sum(request.rows for request in requests)
                raise BadConfiguration(f"the model ran on {rows} rows, and then failed: {found.message}")
            timings.append(found[0])
        return timings

    def request_cost(self, encoding: Encoding, seconds: float, most_rows: int) -> RequestCost:
        """Measured for about so long, `most_rows` in a batch. Raises `BadConfiguration` when the model has no such."""
        signature, rng = self._stacker.signature, np.random.default_rng(0)
        feeds = {name: _varied(array, rng) for name, array in self._blank(self._request_rows).items()}
        request = encode_request(signature, feeds, encoding)
        count = max(1, min(TOGETHER, TOGETHER_BYTES // len(request.value), most_rows // self._request_rows))

        def answers(requests: Sequence[Request | Rejection]) -> Sequence[Prediction]:
            wrong = [found.message for found in requests if isinstance(found, Rejection)]
            found = RunFailure(wrong[0]) if wrong else self.run([r for r in requests if isinstance(r, Request)])
            if isinstance(found, RunFailure):
                raise BadConfiguration(f"the model cannot be asked in {encoding}: {found.message}")
            return found[1].predicted

        decode, encode = codec_seconds(signature, [request] * count, answers, seconds, self._clock)
        return RequestCost(encoding, len(request.value), decode, encode)


def codecs_of(signature: Signature) -> Codecs:
    """The worker's codecs for one model, with limits that no request made for it meets."""
    wire = Wire("", "", max_request_bytes=1 << 62, max_json_bytes=1 << 62, max_answer_bytes=1 << 62)
    return Codecs([signature], wire, lambda _: None)


def codec_seconds(
    signature: Signature,
    requests: Sequence[EncodedRequest],
    answers: Callable[[Sequence[Request | Rejection]], Sequence[Prediction]],
    seconds: float,
    clock: Clock,
) -> tuple[float, float]:
    """The medians of decoding one of these requests and of encoding its answer, over about so many seconds."""
    codecs = codecs_of(signature)  # whose answers follow the request's content type
    records = [Record(_PARTITION, at, None, value, headers, None) for at, (headers, value) in enumerate(requests)]
    decode, encode = list[float](), list[float]()
    deadline = clock() + seconds
    while not decode or clock() < deadline:
        began = clock()
        decoded = codecs.decode_all(records)
        decode.append(clock() - began)
        predictions = answers(decoded)
        began = clock()
        for prediction in predictions:
            codecs.encode(prediction)
        encode.append(clock() - began)
    return float(np.median(decode)) / len(records), float(np.median(encode)) / len(records)


def _varied(array: Array, rng: np.random.Generator) -> Array:
    """Fractions in the place of zeros: written as text they are as long as those of real requests."""
    if array.dtype.kind != "f" or array.any():
        return array
    return rng.standard_normal(array.shape).round(3).astype(array.dtype)


def sweep(bench: Bench, sizes: Sequence[int], seconds: float, tell: Callable[[int], None]) -> Sweep:
    """Measure each of these ascending sizes for so many seconds; `tell` gets the number of slices done.

    Raises `BadConfiguration` when the model fails at the smallest already, or later at one that it ran on.
    """
    ready, too_large = _warm(bench, sizes)
    timings: dict[int, list[Timing]] = {rows: [] for rows in ready}
    there_and_back = itertools.cycle((list(ready), list(ready)[::-1]))  # none always follows the same one
    turns = itertools.chain.from_iterable(itertools.islice(there_and_back, ROUNDS))
    for done, rows in enumerate(turns, 1):
        timings[rows] += bench.time_for(seconds / ROUNDS, ready[rows])
        tell(done)
    return Sweep([_size(rows, of) for rows, of in timings.items()], too_large)


def _size(rows: int, timings: Sequence[Timing]) -> Size:
    stack, run, split = np.array(timings).T
    p50, p99 = np.percentile(run, (50, 99), method="higher").tolist()
    return Size(rows, len(timings), p50, p99, float(np.median(stack)), float(np.median(split)))


def _warm(bench: Bench, sizes: Sequence[int]) -> tuple[dict[int, list[Request]], TooLarge | None]:
    """Requests of each of these ascending sizes that the model has run on, and the first size left out."""
    ready: dict[int, list[Request]] = {}
    for rows in sizes:
        requests = bench.requests(rows)
        last = [bench.run(requests) for _ in range(WARM_UPS)][-1]
        if isinstance(last, RunFailure):
            if not ready:
                raise BadConfiguration(f"the model does not run on {rows} rows: {last.message}")
            return ready, TooLarge(rows, last.message)
        if (seconds := last[0].run) > LONGEST_RUN and ready:
            return ready, TooLarge(rows, f"one inference takes {seconds:.1f} s")
        ready[rows] = requests
    return ready, None
