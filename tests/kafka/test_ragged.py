"""Requests of all lengths through a worker on a real Kafka: each gets its result as if run alone, in order."""

from __future__ import annotations

from pathlib import Path

from tests.kafka.checker import Answer
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.scene import Scene, quick_exactly_once
from tests.models import encoder
from tests.ragged import BUCKETS, MOST, PROTOBUF, Alone, as_request, fault, long_tailed, row_of, texts

COUNT = 300
MODEL = encoder(layers=2)


def requests(lengths: list[int]) -> list[Sent]:
    """Keyed requests of one row each, of these lengths."""
    rows = texts(lengths, vocabulary=100)
    return [Sent(b"key-%d" % (at % 37), as_request(row), [PROTOBUF]) for at, row in enumerate(rows)]


def faults(scene: Scene, answers: list[Answer]) -> list[str]:
    """The differences between the results and ONNX Runtime's own."""
    alone, found = Alone(MODEL), []
    for answer in answers:
        assert answer.source is not None
        request = scene.acknowledged[answer.source].value or b""
        found.append(fault(answer.value or b"", alone.one(row_of(request))))
    return [each for each in found if each]


@quick_exactly_once
def test_requests_of_any_length_are_answered_from_buckets(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Padding changes no answer, outputs for each token are cut back, and a length beyond the last bucket fails."""
    settings = {"BATCHING__BUCKETS": BUCKETS}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=MODEL) as scene:
        scene.publish(requests([*long_tailed(COUNT), MOST, MOST + 1]))

        replica = scene.replica()

        scene.expect_kept()
        answers = scene.answers()
        (refused,) = [answer for answer in answers if answer.is_error]
        assert refused.headers["error-code"] == "RESOURCE_EXHAUSTED"
        assert str(MOST) in (refused.value or b"").decode(errors="replace")
        assert not faults(scene, [answer for answer in answers if not answer.is_error])
        replica.wait_until_settled(COUNT + 2)
        assert replica.metric("inference_worker_batch_rows_total") == COUNT + 1
        assert replica.metric("inference_worker_bucket_rows_total") == COUNT + 1
        assert replica.metric("inference_worker_bucket_batches_total") < COUNT / 4
        assert replica.metric("inference_worker_elements_total", kind="padding") > 0
