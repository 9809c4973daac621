"""A new model file in the place of another, under its version, on a real broker."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.kafka.cluster import Cluster
from tests.kafka.scene import WIDTH, Scene, raw
from tests.models import mlp


def test_a_file_written_in_the_place_of_another_is_told_and_its_answers_show_it(kafka: Cluster, tmp_path: Path) -> None:
    """The next start, each answer, and the model's address tell it."""
    with Scene(kafka, tmp_path, {"MODEL__NAME": "digits"}) as scene:
        first = scene.replica()
        Path(scene.settings["MODEL__PATH"]).write_bytes(mlp(WIDTH, (32,), 4, seed=1))
        second = scene.start().wait_until_ready()
        scene.wait_for_members(2)
        scene.publish([raw(number, partition=number % 4) for number in range(40)])
        answers = kafka.read(scene.response_topic, 40)
        digests = [json.loads(each.text("/v2/models/digits"))["parameters"]["sha256"] for each in (first, second)]

    assert digests == [hashlib.sha256(mlp(WIDTH, (32,), 4, seed=seed)).hexdigest() for seed in (0, 1)]
    shown = {dict(answer.headers)["model-version"] for answer in answers}
    assert shown == {f"1@{digest[:8]}".encode() for digest in digests}
    assert all(f'"sha256": "{digest}"' in each.log for each, digest in zip((first, second), digests, strict=True))
