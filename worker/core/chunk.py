"""A `Chunk`: neighbouring records of one partition, decoded and judged, in columns. The unit of work from poll to answer.

    n records ──read──▶ Chunk ──take──▶ a slice for each batch ──stack──▶ feeds ──run──▶ outputs ──write──▶ n answers
        └─ wrong ones, by index ──▶ Rejection, one each

Whatever all records say alike is said once: the model, the form of the answer, the use of the state. What differs is a
column, a list with one entry for each record. So a layer costs a few calls for a chunk, and a chunk of one record is
as right as one of 200. A record that fails is cut out by its index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from worker.core.records import ModelKey, Record, ReplyTo, RequestedOutput, StateUse, Tensor, Timeout

if TYPE_CHECKING:
    from worker.core.ordering.ledger import Places

# The non-batch dimensions of each input.
Shapes = tuple[tuple[int, ...], ...]


class ReplyForm(NamedTuple):
    """How an answer is written. Equal forms are one object where possible: then answers are written together.

    `outputs` are the wanted ones; empty: all. `to` None: the response topic. `states_rows`: an answer of plain rows has
    headers that say what they are.
    """

    content_type: str
    outputs: tuple[RequestedOutput, ...] = ()
    to: ReplyTo | None = None
    states_rows: bool = False


class Ids(NamedTuple):
    """What a requester knows its answer by. `request_id` None stands for the record's source.

    The answer's body repeats `body_id` as it was sent. `echo` holds request headers that go back unchanged.
    """

    request_id: str | None = None
    body_id: str | None = None
    echo: tuple[tuple[str, bytes], ...] = ()


NO_IDS = Ids()


@dataclass(slots=True, eq=False)
class Chunk:
    """n ≥ 1 records of one partition, in the order of their offsets. Nobody writes to a column once it is built.

    `tensors` has a column for each input of the model, in the signature's order; a tensor holds all rows of its record.
    Equal `shapes` are one object where possible. `sizes`: the bytes that each record holds in memory. `at`: the index
    of each among `places`, the records that were read together. `ids` None: no record has any; `timeouts` and
    `deadlines` None: any answer is wanted, however late. A deadline is an instant of the loop's clock, infinity for none.
    """

    model: ModelKey
    form: ReplyForm
    records: Sequence[Record]
    rows: Sequence[int]
    shapes: Sequence[Shapes]
    tensors: Sequence[Sequence[Tensor]]
    sizes: Sequence[int]
    at: Sequence[int]
    ids: Sequence[Ids] | None = None
    timeouts: Sequence[Timeout | None] | None = None
    state: StateUse | None = None
    places: Places | None = None
    deadlines: Sequence[float] | None = None
    whole: Chunk | None = None  # set on a piece of one record: the record's chunk, which has more rows than a batch

    def __len__(self) -> int:
        return len(self.records)

    def take(self, start: int, stop: int) -> Chunk:
        """The records `start` to `stop`; the chunk itself if these are all."""
        if start == 0 and stop == len(self.records):
            return self
        return self._with(itemgetter(slice(start, stop)))

    def pick(self, indexes: Sequence[int]) -> Chunk:
        """The records at these indexes, which ascend; there is at least one."""
        first, count = indexes[0], len(indexes)
        if indexes[-1] - first == count - 1:
            return self.take(first, first + count)
        return self._with(itemgetter(*indexes))

    def _with(self, of: Callable[[Sequence[Any]], Sequence[Any]]) -> Chunk:
        """The chunk whose columns are these parts of ours."""
        return Chunk(
            self.model,
            self.form,
            of(self.records),
            of(self.rows),
            of(self.shapes),
            list(map(of, self.tensors)),
            of(self.sizes),
            of(self.at),
            self.ids and of(self.ids),
            self.timeouts and of(self.timeouts),
            self.state,
            self.places,
            self.deadlines and of(self.deadlines),
            self.whole,
        )
