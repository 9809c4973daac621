"""Plain rows of the wrong type, through a whole worker and the client, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.cluster import Cluster, Sent
from tests.kafka.scene import RAW_HEADER, ROWS, Scene

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
