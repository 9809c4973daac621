"""Plain rows of the wrong type, through a whole worker and the client, on a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inference_client import InferenceClient, InvalidArgument
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.scene import RAW_HEADER, ROWS, WIDTH, Scene

DOUBLE = ROWS[:1].astype("<f8").tobytes()
SAID = [RAW_HEADER, ("datatype", b"FP64"), ("rows", b"1")]


@pytest.mark.parametrize(
    ("setting", "codes"), [("optional", [None, b"INVALID_ARGUMENT"]), ("required", [b"INVALID_ARGUMENT"] * 2)]
)
def test_a_row_that_fits_twice_is_refused_where_it_says_what_it_is(
    kafka: Cluster, tmp_path: Path, setting: str, codes: list[bytes | None]
) -> None:
    """Without its headers it has two wrong answers, unless the deployment wants them."""
    with Scene(kafka, tmp_path, {"KAFKA__ROWS_HEADERS": setting}, partitions=1) as scene:
        scene.replica()
        scene.publish([Sent(b"k", DOUBLE, [RAW_HEADER]), Sent(b"k", DOUBLE, SAID)])
        answers = kafka.read(scene.response_topic, 2)

    assert [dict(answer.headers).get("error-code") for answer in answers] == codes
    assert len(answers[0].value or b"") == 2 * 4 * 4 or setting == "required"
    assert b"expected FP32, got 'FP64'" in (answers[1].value or b"")


def test_the_client_knows_a_worker_s_types(kafka: Cluster, tmp_path: Path) -> None:
    """From its address: a wrong type is an error before Kafka sees it, and a right one goes as rows."""
    with Scene(kafka, tmp_path, partitions=1) as scene:
        replica = scene.replica()
        listening = next(line for line in replica.log.splitlines() if "http_listening" in line)
        address = f"{json.loads(listening)['url']}/v2/models/model"
        with InferenceClient(
            kafka.bootstrap_servers, requests=scene.topic, answers=scene.response_topic, signature=address
        ) as client:
            (given,) = client.infer(ROWS[:3]).values()
            with pytest.raises(InvalidArgument, match="expected FP32, got FP64"):
                client.submit(ROWS[:3].astype("f8"))
        (sent,) = kafka.read(scene.topic, 1)
        (answered,) = kafka.read(scene.response_topic, 1)

    assert given.shape == (3, 4)
    assert sent.value == ROWS[:3, :WIDTH].tobytes()
    for headers in (sent.headers, answered.headers):
        assert {"datatype": b"FP32", "rows": b"3"}.items() <= dict(headers).items()
