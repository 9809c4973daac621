"""A sample of how long rows are along one axis: from lines of text, or from requests that were decoded.

Owns nothing. Knows no files and no topics: the command opens them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.core.failures import BadConfiguration
from worker.core.records import Rejection, Request
from worker.tools.profile.engine.axes import LengthAxis

Ints = NDArray[np.int64]

LONGEST = 1_000_000  # a row that is longer is a slip of the pen: one batch of them would fill the memory


@dataclass(frozen=True, slots=True)
class Sample:
    """`lengths` of rows, in the order of arrival. `source` says where they are from.

    `refused` records were no requests for this model, the first for the reason `why`.
    """

    lengths: Ints
    requests: int
    source: str
    refused: int = 0
    why: str | None = None

    @property
    def rows_per_request(self) -> float:
        return len(self.lengths) / self.requests


def of_lines(lines: Iterable[str], source: str, request_rows: int) -> Sample:
    """One length on each line, of a request with so many rows. Raises `BadConfiguration`."""
    lengths = [_length(line, source, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not lengths:
        raise BadConfiguration(f"--lengths {source}: there are no lengths in it; give one on each line")
    return Sample(np.repeat(np.array(lengths, np.int64), request_rows), len(lengths), source)


def of_requests(decoded: Iterable[Request | Rejection], axis: LengthAxis, topic: str) -> Sample:
    """The rows of those that are requests. Raises `BadConfiguration` when none is."""
    requests: list[tuple[int, int]] = []
    refusals: list[str] = []
    tensor, dimension = axis.spots[0]
    for found in decoded:
        if isinstance(found, Rejection):
            refusals.append(found.message)
        else:
            requests.append((found.shapes[tensor][dimension], found.rows))
    if not requests:
        raise BadConfiguration(f"--lengths-from {topic}: {_none_of(refusals)}")
    lengths, rows = np.array(requests, np.int64).T
    return Sample(np.repeat(lengths, rows), len(requests), topic, len(refusals), refusals[0] if refusals else None)


def _none_of(refusals: Sequence[str]) -> str:
    if not refusals:
        return "there are no records in it"
    return f"none of {len(refusals):,} records is a request for this model; of the first, {refusals[0]}"


def _length(line: str, source: str, number: int) -> int:
    try:
        length = int(line)
    except ValueError:
        length = 0
    if not 1 <= length <= LONGEST:
        raise BadConfiguration(
            f"--lengths {source}: line {number}: expected a length between 1 and {LONGEST:,}, got {line.strip()[:40]!r}"
        )
    return length
