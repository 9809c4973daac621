"""The oracle: what a publisher was promised, checked from the response topic alone. Shares no code with `worker`.

| promise | broken when |
|---|---|
| nothing lost | an acknowledged request has no answer |
| order | a consumer that keeps the highest offset of each line (`line_of`) would drop an answer |
| repeats | more answers name a `source` than allowed |
| right answers | value, key or a header is not what the wire contract says |
| commit safety | the group's committed offset passes a request whose answer cannot be read |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnxruntime

from tests.kafka.cluster import Read
from tests.kafka.publisher import Acknowledged, Position

RAW = "application/octet-stream"
_DLQ = "__dlq.errors."


class Answer(NamedTuple):
    """One record of the response topic, or of the dead-letter topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str]
    source: Position | None  # None: no such header, or not in the contract's form

    @property
    def is_error(self) -> bool:
        return self.headers.get("status") == "error"


def answer(record: Read) -> Answer:
    """A record as an answer. Fails the test when a header comes twice or is no UTF-8."""
    names = Counter(name for name, _ in record.headers)
    assert max(names.values(), default=0) <= 1, f"a header comes twice: {record.headers}"
    headers = {name: (value or b"").decode() for name, value in record.headers}
    source = _position(headers.get("source", ""))
    return Answer(record.partition, record.offset, record.key, record.value, headers, source)


def _position(text: str) -> Position | None:
    parts = text.split("/")
    if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    return Position(parts[0], int(parts[1]), int(parts[2]))


def dead_letters(records: Iterable[Read]) -> Counter[Position]:
    """The number of dead letters for each request."""
    found = [{name: (value or b"").decode() for name, value in record.headers} for record in records]
    return Counter(
        Position(said[_DLQ + "topic"], int(said[_DLQ + "partition"]), int(said[_DLQ + "offset"])) for said in found
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Findings as text for people; all are empty when every promise was kept, except `repeats`.

    With no repeats and no disorder, all answers to a partition are in order, not only the first answers.
    """

    lost: Sequence[str]
    disordered: Sequence[str]
    unasked: Sequence[str]
    faults: Sequence[str]
    unsafe_commits: Sequence[str]
    repeats: int

    def expect_clean(self, *, repeats: int = 0) -> None:
        """Fail the test unless every promise was kept, with at most `repeats` repeats."""
        for name in ("lost", "disordered", "unasked", "faults", "unsafe_commits"):
            found = getattr(self, name)
            assert not found, f"{len(found)} {name}: {found[:5]}"
        assert self.repeats <= repeats, f"{self.repeats} answers repeated, at most {repeats} allowed"


def line_of(found: Answer, order: str) -> Hashable:
    """Names the line of an answer: the answers of one response and one source partition whose order is promised."""
    assert found.source is not None
    line = (found.partition, found.source.topic, found.source.partition)
    if order == "partition":
        return line
    return (*line, found.key) if order == "key" and found.key is not None else found.source


def judge(
    answers: Iterable[Answer],
    acknowledged: Acknowledged,
    unsafe_commits: Sequence[str] = (),
    *,
    order: str = "partition",
) -> Verdict:
    """Judge everything except the values (`wrong_values`). `order` is the worker's `DELIVERY__ORDER`."""
    seen: Counter[Position] = Counter()
    kept: set[Position] = set()  # what a consumer that drops repeats by the contract's rule is left with
    highest: dict[Hashable, int] = {}
    unasked, faults = [], []
    for found in answers:
        asked = acknowledged.get(found.source) if found.source else None
        if found.source is None or asked is None:
            unasked.append(f"{found.partition}/{found.offset}: {found.headers}")
            continue
        seen[found.source] += 1
        line = line_of(found, order)
        if found.source.offset > highest.get(line, -1):
            highest[line] = found.source.offset
            kept.add(found.source)
        faults += [f"{found.source}: {fault}" for fault in _header_faults(found, asked.key)]
    lost = [str(position) for position in acknowledged if position not in seen]
    disordered = [str(position) for position in seen if position not in kept]
    return Verdict(lost, disordered, unasked, faults, unsafe_commits, seen.total() - len(seen))


def _header_faults(found: Answer, key: bytes | None) -> Iterable[str]:
    status = found.headers.get("status")
    if status not in ("ok", "error"):
        yield f"status is {status!r}"
    if (status == "error") != ("error-code" in found.headers):
        yield f"status {status!r} with error-code {found.headers.get('error-code')!r}"
    if "content-type" not in found.headers:
        yield "no content-type"
    if found.headers.get("request-id") == str(found.source):
        yield "request-id repeats source"
    if found.key != key:
        yield f"key {found.key!r}, not {key!r}"


class Reference:
    """ONNX Runtime alone: the model without any worker. One input and one output, both FP32 (batch, width)."""

    def __init__(self, model: bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name

    def run(self, rows: np.ndarray) -> np.ndarray:
        """(n, width) float32 → (n, outputs) float32."""
        result: np.ndarray = self._session.run(None, {self._input: rows})[0]
        return result

    def wrong_values(self, answers: Iterable[Answer], acknowledged: Acknowledged) -> list[str]:
        """The raw `ok` answers whose rows differ from the model's by more than the last few bits."""
        pairs = [(a, acknowledged[a.source].value or b"") for a in answers if a.source and not a.is_error]
        if not pairs:
            return []
        width = self._session.get_inputs()[0].shape[1]
        rows = np.frombuffer(b"".join(value for _, value in pairs), "<f4").reshape(-1, width)
        expected, at, wrong = self.run(rows), 0, []
        for found, value in pairs:
            count = len(value) // (4 * width)
            wrong += _raw_faults(found, expected[at : at + count])
            at += count
        return wrong


def _raw_faults(found: Answer, expected: np.ndarray) -> list[str]:
    if found.headers.get("content-type") != RAW:
        return [f"{found.source}: content-type {found.headers.get('content-type')}"]
    if len(found.value or b"") != expected.nbytes:
        return [f"{found.source}: {len(found.value or b'')} bytes, not {expected.nbytes}"]
    got = np.frombuffer(found.value or b"", "<f4").reshape(expected.shape)
    # Batched and single results differ in the last bits.
    return [] if np.allclose(got, expected, rtol=1e-4, atol=1e-5) else [f"{found.source}: {got} is not {expected}"]
