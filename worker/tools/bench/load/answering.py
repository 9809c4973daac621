"""What the plain loops answer: one request through the model, or as many bytes as the model would.

Runs in a process of its own, which loads the model as a worker does. Rows are read as one would by hand, other
encodings by the worker's own codecs, for nobody writes those by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

import numpy as np

from worker.codecs import Codecs, Wire
from worker.codecs.wire import MIB
from worker.core.failures import Incomplete, RunFailure
from worker.core.records import Array, ClosedBy, Headers, Partition, Prediction, Record, Rejection
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Stacker
from worker.settings import Connection, ModelSettings
from worker.tools.bench.columns import Kind
from worker.tools.bench.plain_loop import PlainLoop

Answer = Callable[[bytes, Headers], bytes]
Run = Callable[[Mapping[str, Array]], Sequence[Array]]

# Records at a time: what a fast loop would take, where the model is not asked.
_AT_ONCE = 1000
_NOWHERE = Partition("", 0)


class Job(NamedTuple):
    """What one plain loop has to do. It takes the `share`th of `of` shares. A request has `rows` rows.

    `are_rows`: and is nothing else.
    """

    kind: Kind
    requests: str
    answers: str
    group: str
    share: int
    of: int
    rows: int
    are_rows: bool


def answer_for_ever(line: Pipe, kafka: Connection, model: ModelSettings, signature: Signature, job: Job) -> None:
    """One plain loop; sends `ready` when it is about to begin."""
    is_copying = job.kind is Kind.PASS_THROUGH
    answer = _copy(signature, job.rows) if is_copying else _one_by_one(model, are_rows=job.are_rows)
    loop = PlainLoop(kafka, job.requests, job.answers, job.group, answer)
    loop.assign(job.share, job.of)
    line.send("ready")
    loop.run(_AT_ONCE if is_copying else 1)


def _copy(signature: Signature, rows: int) -> Answer:
    """Bytes as many as the answer has; where the model does not say, as many as the request has."""
    sizes = [spec.row_bytes for spec in signature.outputs]
    if None in sizes:
        return lambda value, _headers: value
    blank = bytes(rows * sum(size for size in sizes if size is not None))
    return lambda _value, _headers: blank


def _one_by_one(settings: ModelSettings, *, are_rows: bool) -> Answer:
    from worker.inference import load  # noqa: PLC0415 - ONNX Runtime takes its time, and half of the loops do without

    model = load(settings, max_batch_size=1)

    def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
        found = model.run(feeds)
        if isinstance(found, RunFailure):
            raise Incomplete(f"the model fails on a request that was made for it: {found.message}")
        return found

    takes, gives = model.signature.inputs, model.signature.outputs
    is_plain = are_rows and len(takes) == len(gives) == 1 and not gives[0].is_text
    return (_by_hand if is_plain else _by_codecs)(model.signature, run)


def _by_hand(signature: Signature, run: Run) -> Answer:
    (spec,) = signature.inputs
    shape = tuple(d for d in spec.dims if d is not None)

    def answer(value: bytes, _headers: Headers) -> bytes:
        rows = np.frombuffer(value, spec.dtype).reshape(-1, *shape)
        return run({spec.name: rows})[0].tobytes()

    return answer


def _by_codecs(signature: Signature, run: Run) -> Answer:
    wire = Wire("", "", max_request_bytes=1024 * MIB, max_answer_bytes=1024 * MIB)
    codecs, stacker = Codecs(signature, wire, tell=lambda _: None), Stacker(signature)

    def answer(value: bytes, headers: Headers) -> bytes:
        request = codecs.decode(Record(_NOWHERE, 0, None, value, headers, None))
        if isinstance(request, Rejection):
            raise Incomplete(f"the one-by-one loop cannot read a request that bench has made: {request.message}")
        batch, _ = stacker.stack([request], ClosedBy.SIZE)
        assert batch is not None
        (message,) = codecs.encode(Prediction(request, tuple(run(batch.feeds))))
        return message.value or b""

    return answer
