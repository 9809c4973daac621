"""The plan of a measurement: the caller's settings, checked, and requests made for the model.

Every contender has the caller's settings, but topics, group and addresses are the measurement's own. Everything is
checked before anything starts.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from worker.codecs.examples import EncodedRequest, EncodingName, encode_request, encodings, example_feeds
from worker.core.chunk import Prediction, Reading
from worker.core.failures import BadConfiguration
from worker.settings import Settings, load
from worker.terminal.command_line import check_idle, open_axes, with_options
from worker.tools.bench.generator import Site, kept_by_mock
from worker.tools.kafka.embedded import CLIENT_CONFIG
from worker.tools.options import BenchOrder
from worker.tools.processes import Replica
from worker.tools.profile.sweep import codec_seconds

_DEMO = Path(__file__).parents[1] / "demo" / "digits.onnx"  # the model if none is named
_BOOTSTRAP, _MODEL = "WORKER_KAFKA__BOOTSTRAP_SERVERS", "WORKER_MODEL__PATH"
_MOCK = {_BOOTSTRAP: "127.0.0.1:1", "WORKER_KAFKA__SECURITY_PROTOCOL": "PLAINTEXT"}  # until the mock broker runs
# Values for settings that the check requires; each contender gets its own instead.
_FILLED_IN = {
    f"WORKER_KAFKA__{key}": f"inference-worker-bench-{key.lower()}"
    for key in ("REQUEST_TOPICS", "RESPONSE_TOPIC", "GROUP_ID")
}
# The number and the bytes of the different requests, sent in turn: more than any cache holds, and not much memory.
_KINDS, _KINDS_BYTES = 256, 8 * 1024 * 1024
# The largest window of a closed loop, even if the broker could keep more.
_MOST = 10_000
_CODEC_S = 0.2  # seconds for timing the codec


class Plan:
    """The checked order. Raises `BadConfiguration` if it cannot be measured."""

    def __init__(self, order: BenchOrder, environ: Mapping[str, str]) -> None:
        from worker.inference.model_loading import example_of, inspect  # noqa: PLC0415 - ONNX Runtime takes its time

        self.order = order
        given = with_options(environ, **{_BOOTSTRAP: order.bootstrap_servers, _MODEL: order.model}) | _FILLED_IN
        unset = _unset(order.config, given)
        self.is_embedded = _BOOTSTRAP in unset
        if self.is_embedded:
            check_idle("on the mock broker, whose topics end with it", prefix=order.prefix)
        defaults = {_MODEL: str(_DEMO)} if _MODEL in unset else {}
        self._environ = given | defaults | (_MOCK if self.is_embedded else {})
        self.settings = _checked(load(order.config, self._environ), is_embedded=self.is_embedded)
        inspected, batching = inspect(self.settings.model), self.settings.batching
        self.signature = inspected.signature
        self.max_rows = min(batching.max_batch_size, inspected.fixed_rows or batching.max_batch_size)
        possible = encodings(self.signature)
        # Raw rows if the model takes them; else the binary-data form, which is the next cheapest to read.
        wanted = order.encoding or (possible[0] if possible[0] is EncodingName.ROWS else EncodingName.BINARY)
        if wanted not in possible:
            raise BadConfiguration(f"--encoding {wanted}: this model can be asked as {', '.join(possible)}")
        self.encoding = EncodingName(wanted)
        # Every run makes equal requests (the seed is fixed). `lengths` has those of axes that the model leaves open.
        example, rng, size = example_of(self.settings.model, self.signature), np.random.default_rng(0), 0
        self.requests: list[EncodedRequest] = []
        lengths: dict[str, list[int]] = defaultdict(list)
        required = self.signature.required
        while len(self.requests) < _KINDS and size <= _KINDS_BYTES:
            feeds = example_feeds(self.signature, order.rows_per_request, rng, example)
            self.requests.append(encode_request(self.signature, feeds, self.encoding))
            size += len(self.requests[-1].value)
            for axis, length in open_axes(required, [feeds[spec.name].shape[1:] for spec in required]).items():
                lengths[axis].append(length)
        self.open_axes = {axis: f"{min(found)} to {max(found)}" for axis, found in lengths.items()}

    @property
    def request_bytes(self) -> int:
        """Bytes of the longest request."""
        return max(len(request.value) for request in self.requests)

    @property
    def window(self) -> tuple[int, int]:
        """The least requests under way, which fill all batches in flight and two more, and the most."""
        batching = self.settings.batching
        most = min(_MOST, kept_by_mock(self.request_bytes)) if self.is_embedded else _MOST
        rows = batching.max_batch_size * (batching.max_inflight_batches + 2)
        return min(most, -(-rows // self.order.rows_per_request)), most

    def worker(self, site: Site) -> Replica:
        """Starts the worker with the caller's settings, but with none of the caller's topics and names."""
        return Replica(dict(self._worker_settings(site)), os.environ, config=self.order.config)

    def _worker_settings(self, site: Site) -> Iterator[tuple[str, str]]:
        for name, value in self._environ.items():
            if name.startswith("WORKER_"):
                yield name.removeprefix("WORKER_"), value
        yield "KAFKA__BOOTSTRAP_SERVERS", site.kafka.bootstrap_servers
        yield "KAFKA__REQUEST_TOPICS", site.requests
        yield "KAFKA__RESPONSE_TOPIC", site.answers
        yield "KAFKA__GROUP_ID", site.group
        yield "TELEMETRY__HTTP_ADDRESS", "127.0.0.1"
        kafka = self.settings.kafka
        if self.is_embedded:
            yield "KAFKA__CONFIG", json.dumps({**CLIENT_CONFIG, **kafka.config})
        # An empty variable counts as not set, so the file's value would win. A setting in the file gets another value.
        if kafka.dead_letter_topic is not None:
            yield "KAFKA__DEAD_LETTER_TOPIC", site.rejected
        if kafka.group_instance_id is not None:
            yield "KAFKA__GROUP_INSTANCE_ID", site.group
        if self.settings.delivery.transactional_id is not None:
            yield "DELIVERY__TRANSACTIONAL_ID", site.group

    def codec_seconds(self) -> float:
        """Measures the seconds to read a request and write its answer with the worker's codec, in this process."""
        rows, gives = len(self.requests) * self.order.rows_per_request, self.signature.outputs
        shapes = [(rows, *(d or 1 for d in spec.dims)) for spec in gives]
        outputs = [np.full(at, b"" if of.is_text else 0, of.dtype) for at, of in zip(shapes, gives, strict=True)]

        def answers(reading: Reading) -> Sequence[Prediction]:
            return [Prediction(chunk, outputs) for chunk in reading.chunks]

        return sum(codec_seconds(self.signature, self.requests, answers, _CODEC_S, time.perf_counter))


def _unset(config: Path | None, environ: Mapping[str, str]) -> set[str]:
    """Returns the settings that must be set and are not."""
    try:
        load(config, environ)
    except BadConfiguration as refusal:
        return {problem.partition(": must be set")[0] for problem in str(refusal).splitlines()}
    return set()


def _checked(settings: Settings, *, is_embedded: bool) -> Settings:
    """Raises `BadConfiguration` for settings that cannot be measured."""
    if is_embedded and settings.delivery.guarantee == "exactly_once":
        raise BadConfiguration(f"exactly_once needs a real Kafka, for the mock has no transactions: set {_BOOTSTRAP}")
    if settings.records is not None:
        raise BadConfiguration("[records]: bench makes requests of tensors up: give it settings without records")
    if settings.state.tensors:
        raise BadConfiguration(
            "WORKER_STATE__TENSORS: bench does not measure a model with state, as its requests have no keys; without "
            "the settings of state and WORKER_KAFKA__CHANGELOG_TOPIC it is measured with its state as an input"
        )
    return settings
