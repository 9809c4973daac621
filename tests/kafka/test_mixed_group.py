"""Two models in one group, on a real broker: nothing fails, so the second worker and `check` must say it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from typer.testing import CliRunner

from tests.kafka.cluster import Cluster
from tests.kafka.scene import WIDTH, Scene, quick_consumer, raw
from tests.models import mlp
from worker import cli
from worker.commands.checking import examined

OTHER = mlp(WIDTH, (8,), 4)


def said(log: str) -> list[str]:
    return [line for line in log.splitlines() if "group_is_mixed" in line]


@quick_consumer
def test_another_model_in_the_group_is_named_at_the_start_and_by_check(
    kafka: Cluster, tmp_path: Path, protocol: str
) -> None:
    """With its host, and neither is refused: a new version looks the same for a minute."""
    other = tmp_path / "fraud.onnx"
    other.write_bytes(OTHER)
    with Scene(kafka, tmp_path, {"KAFKA__GROUP_PROTOCOL": protocol}) as scene:
        first = scene.replica()
        second = scene.start({"MODEL__PATH": str(other)}).wait_until_ready()
        scene.wait_for_members(2)
        (warning,) = said(second.log)
        environment = {f"WORKER_{name}": value for name, value in scene.settings.items()}
        as_first = [finding.text for finding in examined(None, environment).warnings if "group " in finding.text]
        shown = CliRunner().invoke(cli.app, ["check"], env=environment)

    assert said(first.log) == []
    assert "members on 127.0.0.1 (1 in all) serve model 1 (" in warning
    assert ", this worker fraud 1 (" in warning
    assert len(as_first) == 1
    assert "members on 127.0.0.1 (1 in all) serve fraud 1 (" in as_first[0]
    assert "serve fraud 1 (" in " ".join(shown.output.split())
    assert shown.exit_code == 0


def test_a_file_written_in_the_place_of_another_is_told_and_its_answers_show_it(kafka: Cluster, tmp_path: Path) -> None:
    """Under the same version: by the start that picks it up, by each answer, and at the address of the model."""
    with Scene(kafka, tmp_path, {"MODEL__NAME": "digits"}) as scene:
        first = scene.replica()
        Path(scene.settings["MODEL__PATH"]).write_bytes(mlp(WIDTH, (32,), 4, seed=1))
        second = scene.start().wait_until_ready()
        scene.wait_for_members(2)
        (warning,) = said(second.log)
        scene.publish([raw(number, partition=number % 4) for number in range(40)])
        answers = kafka.read(scene.response_topic, 40)
        digests = [json.loads(each.text("/v2/models/digits"))["parameters"]["sha256"] for each in (first, second)]

    assert "with another model, version or file" in warning
    assert digests == [hashlib.sha256(mlp(WIDTH, (32,), 4, seed=seed)).hexdigest() for seed in (0, 1)]
    shown = {dict(answer.headers)["model-version"] for answer in answers}
    assert shown == {f"1@{digest[:8]}".encode() for digest in digests}
    assert all(f'"sha256": "{digest}"' in each.log for each, digest in zip((first, second), digests, strict=True))
