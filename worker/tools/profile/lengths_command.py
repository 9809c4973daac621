"""The part of `profile` that is about lengths: a sample from a file or a topic, the model measured at some lengths, and
the buckets that follow.

Reads a topic beside every group and commits nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from worker.codecs.registry import Codecs
from worker.codecs.wire_contract import Wire
from worker.core.failures import BadConfiguration
from worker.core.records import Partition, Rejection, Request
from worker.core.tensors.stacking import Stacker
from worker.inference import Model
from worker.settings.for_commands import ScoringSettings, load_client
from worker.terminal.command_line import check_idle, with_options
from worker.terminal.terminal import progress
from worker.tools.kafka.reader import Reader
from worker.tools.profile.engine.advice import Need
from worker.tools.profile.engine.axes import LengthAxis, axis_of
from worker.tools.profile.engine.grid import ROUNDS, AtLength, LengthCosts, batch_sizes, powers_between
from worker.tools.profile.engine.lengths import LONGEST, Sample, of_lines, of_requests
from worker.tools.profile.engine.padding import (
    BucketAdvice,
    Elements,
    Fill,
    boundaries_for,
    compare,
    fill_for,
    in_buckets,
    rows_per_s,
    with_tokens,
)
from worker.tools.profile.engine.sweep import Bench, Sweep, SweptModel, sweep_all
from worker.tools.profile.options import ProfileOrder

# Of the time that is measured at each batch size: there are several times as many of them.
SHARE_OF_SECONDS = 0.25
_RECORDS = 5000  # of a topic, unless --sample says another number


def has_sample(order: ProfileOrder) -> bool:
    """Whether advice about lengths is wanted. Raises `BadConfiguration` for two samples, or what needs one."""
    if order.lengths is not None and order.lengths_from is not None:
        raise BadConfiguration("--lengths and --lengths-from are two samples: give one")
    if order.boundaries is not None and (order.buckets or order.longest):
        raise BadConfiguration("--boundaries says all that --buckets and --longest ask for: leave them out")
    if order.lengths_from is None:
        check_idle("without --lengths-from", sample=order.sample, bootstrap_servers=order.bootstrap_servers)
    is_given = order.lengths is not None or order.lengths_from is not None
    if not is_given and (order.bucket_axis or order.buckets or order.longest or order.boundaries):
        raise BadConfiguration(
            "--bucket-axis, --buckets, --longest and --boundaries need a sample of lengths: --lengths or --lengths-from"
        )
    return is_given


@dataclass(frozen=True, slots=True)
class Benches:
    """Measure the model, as the settings stack its batches. `seconds`: for each batch size."""

    model: Model
    settings: ScoringSettings
    request_rows: int
    seconds: float

    @property
    def most_rows(self) -> int:
        return self.model.most_rows(self.settings.batching.max_batch_size)

    def plain(self) -> Bench:
        """On rows as the model's file has them."""
        return self._bench(self.model, "")

    def at(self, axis: LengthAxis, length: int) -> Bench:
        """On rows that are so long."""
        return self._bench(AtLength(self.model, axis, length), f" of length {length}")

    def swept(self, axis: LengthAxis, lengths: Sequence[int], what: str) -> dict[int, Sweep]:
        """Raises `BadConfiguration` when the model does not run at one of them."""
        benches = {length: (bench := self.at(axis, length), self._sizes(bench)) for length in lengths}
        with progress(what, ROUNDS * sum(len(sizes) for _, sizes in benches.values())) as tell:
            return sweep_all(benches, self.seconds * SHARE_OF_SECONDS, ROUNDS, tell)

    def elements(self, axis: LengthAxis) -> Elements:
        """Of one row's largest input, at every length."""
        sizes = [array.size for array in self.model.blank(1, dict.fromkeys(axis.spots, 1)).values()]
        ragged = {spot.tensor for spot in axis.spots}
        return Elements(
            max(sizes[at] for at in ragged), max((size for at, size in enumerate(sizes) if at not in ragged), default=0)
        )

    def _bench(self, model: SweptModel, of: str) -> Bench:
        settings = self.settings.model
        stacker = Stacker(
            self.model.signature,
            refuse_non_finite_input=settings.non_finite_input == "reject",
            refuse_non_finite_output=settings.non_finite_output == "error",
        )
        return Bench(model, stacker, self.request_rows, time.perf_counter, of)

    def _sizes(self, bench: Bench) -> list[int]:
        """Those that would not close by bytes; the smallest always."""
        sizes = batch_sizes(self.most_rows, self.request_rows)
        most = self.settings.batching.max_batch_bytes // bench.requests(1)[0].size
        return [size for size in sizes if size <= max(most, sizes[0])]


def advise_buckets(order: ProfileOrder, benches: Benches, need: Need | None, transport: float) -> BucketAdvice:
    """The buckets for a sample. Raises `BadConfiguration` without a sample, or an axis to pad."""
    axis = axis_of(benches.model.signature, order.bucket_axis)
    sample, given = _sample(order, axis, benches), _given(order)
    longest = _longest(order, given, sample)
    measured = benches.swept(axis, powers_between(int(sample.lengths.min()), longest), "measuring lengths")
    costs, coarse = LengthCosts(measured), list(measured)
    fill = Fill(benches.most_rows, benches.elements(axis))
    fill = with_tokens(fill, sample, coarse, costs)
    if need is not None:
        fill = fill_for(need, transport, sample, rows_per_s(in_buckets(sample.lengths, coarse), fill, costs), fill)
    boundaries = given or boundaries_for(sample, costs, fill, order.longest, order.buckets)
    measured |= benches.swept(axis, [end for end in boundaries if end not in measured], "measuring buckets")
    costs = LengthCosts(measured)
    fill = with_tokens(fill, sample, boundaries, costs)
    return compare(axis, sample, fill, costs, {end: measured[end] for end in boundaries})


def _given(order: ProfileOrder) -> list[int]:
    """Boundaries that are not to be looked for. Raises `BadConfiguration` for what is none."""
    text = order.boundaries
    try:
        found = [] if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if found != sorted(set(found)) or not all(1 <= end <= LONGEST for end in found):
        raise BadConfiguration(f"--boundaries {text}: expected ascending lengths, comma-separated, such as 16,64,256")
    return found


def _longest(order: ProfileOrder, given: Sequence[int], sample: Sample) -> int:
    seen = int(sample.lengths.max())
    longest = given[-1] if given else order.longest or seen
    if longest < seen:
        option = f"--boundaries {order.boundaries}" if given else f"--longest {longest}"
        raise BadConfiguration(f"{option}: the sample has rows of length {seen}")
    return longest


def _sample(order: ProfileOrder, axis: LengthAxis, benches: Benches) -> Sample:
    """Raises `BadConfiguration` when there is none."""
    if order.lengths_from is None:
        return of_lines(_lines(str(order.lengths)), str(order.lengths), benches.request_rows)
    environ = with_options(os.environ, WORKER_KAFKA__BOOTSTRAP_SERVERS=order.bootstrap_servers)
    kafka = load_client(order.config, environ).kafka
    most = benches.settings.kafka.max_request_bytes
    wire = Wire("", "", default_content_type=kafka.default_content_type, max_request_bytes=most)
    codecs = Codecs([benches.model.signature], wire, tell=lambda _: None)
    with Reader(kafka, order.lengths_from) as reader:
        return of_requests(_decoded(reader, codecs, order.sample or _RECORDS), axis, order.lengths_from)


def _lines(file: str) -> Sequence[str]:
    try:
        return (sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadConfiguration(f"--lengths {file}: cannot be read: {reason}") from None


def _decoded(reader: Reader, codecs: Codecs, count: int) -> Iterator[Request | Rejection]:
    """About so many of the newest records."""
    starts = newest(reader.beginnings, reader.ends, count)
    with progress("records", sum(reader.ends[at] - start for at, start in starts.items())) as tell:
        yield from map(codecs.decode, reader.up_to_ends(starts, tell))


def newest(beginnings: Mapping[Partition, int], ends: Mapping[Partition, int], count: int) -> dict[Partition, int]:
    """Where to begin for the newest so many records, each partition by its share of what the topic holds."""
    held = {partition: end - beginnings[partition] for partition, end in ends.items()}
    share = min(1.0, count / max(1, sum(held.values())))
    return {partition: ends[partition] - ceil(share * records) for partition, records in held.items()}
