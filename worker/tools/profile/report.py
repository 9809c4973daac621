"""What `profile` found, as values. `as_json` is the whole of it; `screen` and `plot` show it to people.

The members of the JSON are a contract, in docs/tools.md: names stay, new ones may come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from worker.tools.profile.engine.advice import FILL, HEAD_ROOM, Advice, Capacity
from worker.tools.profile.engine.costs import ANSWER_SECONDS, BATCH_SECONDS, HAND_OVER_SECONDS, TAKE_SECONDS
from worker.tools.profile.engine.forecast import Forecast
from worker.tools.profile.engine.knee import Knee
from worker.tools.profile.engine.padding import BucketAdvice, MeasuredBucket
from worker.tools.profile.engine.sweep import SizeTimings, TooLarge


class Subject(NamedTuple):
    """What was measured, and how: the model, where it ran, and for how many seconds each size."""

    name: str
    version: str
    path: str
    device: str
    why: str
    threads: int
    request_rows: int
    seconds: float


@dataclass(slots=True)
class Profile:
    """Made by the command. `transport` in seconds; `advice` once a rate and a budget were given and can be met.

    `refusal` once they cannot, `buckets` once there is a sample of lengths. `open_axes`: how long axes were that the
    model's file leaves open, by input and axis.
    """

    subject: Subject
    sizes: Sequence[SizeTimings]
    too_large: TooLarge | None
    knee: Knee
    transport: float
    advice: Advice | None = None
    refusal: str | None = None
    buckets: BucketAdvice | None = None
    open_axes: Mapping[str, int] = field(default_factory=dict)

    @property
    def unsteady(self) -> list[SizeTimings]:
        return [size for size in self.sizes if size.is_unsteady]

    def as_json(self) -> dict[str, Any]:
        """Plain values: one member for each section."""
        return {
            "model": self.subject._asdict(),
            "open_axes": dict(self.open_axes),
            "sizes": [_size(size) for size in self.sizes],
            "too_large": None if self.too_large is None else self.too_large._asdict(),
            "unsteady": [size.rows for size in self.unsteady],
            "lengths": None if self.buckets is None else _lengths(self.buckets),
            "knee": _knee(self.knee),
            "refusal": self.refusal,
            "advice": None if self.advice is None else _advice(self.advice, self.transport),
        }


def _knee(knee: Knee) -> dict[str, Any]:
    rounded = {"rows_per_s": round(knee.rows_per_s, 1), "share": round(knee.share, 3), "gain": round(knee.gain, 3)}
    return knee._asdict() | rounded


def _size(size: SizeTimings) -> dict[str, Any]:
    return {
        "rows": size.rows,
        "inferences": size.inferences,
        "rows_per_s": round(size.rows_per_s, 1),
        "inference_ms": {"p50": _ms(size.run_seconds(50)), "p99": _ms(size.run_seconds(99))},
        "stack_ms": _ms(size.stack_seconds),
        "split_ms": _ms(size.split_seconds),
    }


def settings_of(found: BucketAdvice) -> dict[str, str | int]:
    """The variables to set, ready for an environment."""
    buckets = json.dumps(found.axis.setting(found.boundaries))
    tokens = {} if found.fill.tokens is None else {"WORKER_BATCHING__MAX_BATCH_TOKENS": found.fill.tokens}
    return {"WORKER_BATCHING__BUCKETS": buckets, **tokens}


def _lengths(found: BucketAdvice) -> dict[str, Any]:
    sample = found.sample
    return {
        "axis": str(found.axis),
        "sample": {
            "source": sample.source,
            "requests": sample.requests,
            "rows": len(sample.lengths),
            "mean": round(float(sample.lengths.mean()), 2),
            "longest": int(sample.lengths.max()),
            "refused": sample.refused,
            "why": sample.why,
        },
        "ways": [
            {"name": way.name, "waste": round(way.waste, 4), "rows_per_s": round(way.rows_per_s, 1)}
            for way in found.ways
        ],
        "gain": round(found.gain, 3),
        "buckets": [_bucket(bucket) for bucket in found.buckets],
        "mean_padded": found.mean_padded,
        "settings": settings_of(found),
    }


def _bucket(bucket: MeasuredBucket) -> dict[str, Any]:
    return {
        "boundary": bucket.boundary,
        "share": round(bucket.share, 4),
        "waste": round(bucket.waste, 4),
        "mean_rows": round(bucket.mean_rows, 2),
        "sizes": [_size(size) for size in bucket.swept.sizes],
        "too_large": None if bucket.swept.too_large is None else bucket.swept.too_large._asdict(),
    }


def _advice(advice: Advice, transport: float) -> dict[str, Any]:
    return {
        "rate": advice.need.rate,
        "latency_budget_ms": _ms(advice.need.budget),
        "batch": advice.is_batching,
        "settings": {"WORKER_BATCHING__MAX_BATCH_SIZE": advice.forecast.max_rows},
        "replicas": advice.replicas,
        "each": _forecast(advice.forecast) | {"load": round(advice.load, 3)},
        "capacities": [_capacity(capacity, advice.need.rate) for capacity in advice.capacities],
        "roomier": None
        if advice.roomier is None
        else {"replicas": advice.roomier[0], "latency_budget_ms": _ms(advice.roomier[1])},
        "assumed": {
            "guarantee": "at_least_once",
            "transport_ms": _ms(transport),
            "request_cpu_ms": _ms(TAKE_SECONDS + ANSWER_SECONDS),
            "batch_cpu_ms": _ms(BATCH_SECONDS),
            "hand_over_ms": _ms(HAND_OVER_SECONDS),
            "head_room": HEAD_ROOM,
            "budget_filled": FILL,
        },
    }


def _forecast(forecast: Forecast) -> dict[str, Any]:
    return {
        "rate": round(forecast.rate, 3),
        "latency_ms": {"p50": _ms(forecast.p50), "p99": _ms(forecast.p99)},
        "mean_rows": round(forecast.mean_rows, 2),
        "lane_busy": round(forecast.lane_busy, 3),
    }


def _capacity(capacity: Capacity, rate: float) -> dict[str, Any]:
    return {
        "rows": capacity.max_rows,
        "at_most": round(capacity.ceiling, 1),
        "within_budget": round(capacity.within, 1),
        "replicas": capacity.replicas(rate),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 4)
