"""The Helm chart and kustomize's manifests render to equal objects."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import HELM_INSTALL, Manifest, MissingToolError, helm, only, render
from tests.deploy.settings import settings_of
from tests.readme import blocks
from worker.version import VERSION

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm/inference-worker"
RELEASE = "inference-worker"  # the name of kustomize's objects
CLUSTER = "1.37.0"
MODEL = {"claim": "models"}  # as the base has it
pytestmark = [
    pytest.mark.timeout(600),  # kustomize and the foreign schemas may have to be fetched first
    pytest.mark.skipif(shutil.which("helm") is None, reason=f"no helm on the PATH: {HELM_INSTALL}"),
]

STATES = {"states": {"size": "10Gi"}}
FILES = {"functions.py": "def answer(outputs, record):\n    return {}\n", "labels.txt": "ok\nfraud\n"}
LABELLED = {"labels": {"app.kubernetes.io/name": "inference-worker"}}  # as the chart has it on all objects

# Each component with the chart's values for it, and its overlay's settings.
KINDS: Mapping[str, tuple[list[str], dict[str, Any]]] = {
    "base": ([], {}),
    "model-image": (["model-image"], {"model": {"image": "inference-worker-model"}}),
    "state-directory": (["state-directory"], STATES),
    "gpu": (["gpu"], {"gpu": {"enabled": True}}),
    "autoscaling": (["autoscaling"], {"autoscaling": {"enabled": True}}),
    "files": (["files"], {"files": FILES}),
    "pod-monitor": (["pod-monitor"], {"podMonitor": {"enabled": True}}),
    "exactly-once": (["exactly-once"], {"exactlyOnce": True}),
    "all": (
        ["gpu", "autoscaling", "pod-monitor", "files", "exactly-once", "state-directory"],
        {
            **STATES,
            "files": FILES,
            "gpu": {"enabled": True},
            "autoscaling": {"enabled": True},
            "podMonitor": {"enabled": True},
            "exactlyOnce": True,
        },
    ),
}


def charted(values: Mapping[str, Any], folder: Path, release: str = RELEASE) -> list[Manifest]:
    """The objects that `helm install` sends with these values; the default model is the base's."""
    (folder / "values.yaml").write_text(yaml.safe_dump({"model": MODEL, **values}))
    words = ["template", release, str(CHART), "--values", str(folder / "values.yaml"), "--kube-version", CLUSTER]
    return [manifest for manifest in yaml.safe_load_all(helm(*words)) if manifest]


def overlaid(overlay: Mapping[str, Any], folder: Path) -> list[Manifest]:
    """Kustomize's objects for an overlay with this content, next to ours, for the pods of one release."""
    copied = shutil.copytree(DEPLOY / "kubernetes", folder / "kubernetes")
    one_of_many = {"pairs": {"app.kubernetes.io/instance": RELEASE}, "includeSelectors": True}
    (copied / "overlays/ours").mkdir()
    (copied / "overlays/ours/kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["../../base"], "labels": [one_of_many], **overlay})
    )
    try:
        return render(copied / "overlays/ours")
    except MissingToolError as reason:
        pytest.skip(str(reason))


def objects(manifests: list[Manifest]) -> dict[str, Any]:
    """The objects by kind and name, without known differences.

    Changed settings roll out by the ConfigMap's name in kustomize, and by an annotation in Helm. Lists of named things
    (variables, mounts, volumes) have no order; an empty list equals no list.
    """
    text = re.sub(r'("inference-worker(?:-files)?)-[a-z0-9]{10}(?=")', r"\1", json.dumps(manifests))
    return {f"{manifest['kind']} {manifest['metadata']['name']}": plain(manifest) for manifest in json.loads(text)}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(held) for key, held in value.items() if held != [] and key != "checksum/settings"}
    if not isinstance(value, list):
        return value
    held = [plain(each) for each in value]
    are_named = all(isinstance(each, dict) and "name" in each for each in held)
    return sorted(held, key=lambda each: str(each["name"])) if are_named else held


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Manifest], ...]:
    """The objects of both tools for one choice of components."""
    components, values = KINDS[request.param]
    overlay: dict[str, Any] = {"components": [f"../../components/{name}" for name in components]}
    if "exactly-once" in components:  # its overlay sets the id that the chart makes from the group's name
        settings = yaml.safe_load((DEPLOY / "kubernetes/overlays/exactly-once/kustomization.yaml").read_text())
        overlay["configMapGenerator"] = settings["configMapGenerator"]
    if "files" in components:
        made = {
            "name": "inference-worker-files",
            "literals": [f"{name}={content}" for name, content in FILES.items()],
            "options": LABELLED,
        }
        overlay["configMapGenerator"] = [*overlay.get("configMapGenerator", []), made]
    folder = tmp_path_factory.mktemp("both")
    return overlaid(overlay, folder), charted(values, folder)


def test_both_roads_lead_to_the_same_objects(both: tuple[list[Manifest], ...]) -> None:
    """They agree in every kind and field; a line that changes in only one of them fails here."""
    by_kustomize, by_helm = map(objects, both)

    assert by_helm == by_kustomize


def test_a_model_and_brokers_of_one_s_own_arrive_as_by_kustomize(tmp_path: Path) -> None:
    """A claim, a registry's image and outside brokers: both pages' overlay and values give equal objects."""
    [page] = re.findall(r"```yaml\n(.*?)```", (DEPLOY / "kubernetes/README.md").read_text(), re.DOTALL)
    overlay = yaml.safe_load(page)
    for renamed in ("nameSuffix", "namespace", "labels", "resources"):
        overlay.pop(renamed)
    [values] = [block.text for block in blocks(CHART / "README.md") if block.name == "values"]

    assert objects(charted(yaml.safe_load(values), tmp_path)) == objects(overlaid(overlay, tmp_path))


def test_records_arrive_as_by_kustomize(tmp_path: Path) -> None:
    """Both pages' lines for records, functions and a schema registry give equal objects, and the worker takes them."""
    code = "def answer(outputs, record):\n    return {}\n"
    [page] = [block.text for block in blocks(DEPLOY / "kubernetes/README.md") if block.name == "records"]
    overlay = yaml.safe_load(page)
    [files, settings] = overlay["configMapGenerator"]
    overlay["configMapGenerator"] = [
        {"name": files["name"], "literals": [f"functions.py={code}"], "options": LABELLED},
        settings,
    ]
    [text] = [block.text for block in blocks(CHART / "README.md") if block.name == "records"]
    values = {**yaml.safe_load(text), "files": {"functions.py": code}}

    by_kustomize, by_helm = overlaid(overlay, tmp_path), charted(values, tmp_path)
    read = settings_of(environment(by_helm), tmp_path)

    found, wanted = objects(by_helm), objects(by_kustomize)
    assert {name for name in wanted if found[name] != wanted[name]} == {
        "ConfigMap inference-worker",  # JSON with and without spaces, and where the files of the secret are named
        "Deployment inference-worker",
    }
    assert settings_of(environment(by_kustomize), tmp_path) == read
    assert read.registry is not None
    assert read.registry.password is not None
    assert read.records is not None
    assert read.records.answer == {"keep": ["id"], "score": "probabilities[1]"}


def test_the_chart_is_clean_and_of_this_release() -> None:
    """Helm's linter misses only an icon; chart and image have the worker's version."""
    said = helm("lint", "--strict", str(CHART), "--kube-version", CLUSTER)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert re.findall(r"^\[.*", said, re.MULTILINE) == ["[INFO] Chart.yaml: icon is recommended"]
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_settings_arrive_as_the_worker_reads_them(tmp_path: Path) -> None:
    """This includes numbers that a float would change, lists, objects, and settings that are taken away."""
    settings = {
        "KAFKA__MAX_REQUEST_BYTES": 12_582_912,
        "KAFKA__REQUEST_TOPICS": ["orders", "backfill"],
        "KAFKA__DEAD_LETTER_TOPIC": None,
        "BATCHING__LINGER_MS": 2.5,
        "BATCHING__BUCKETS": {"input_ids": {"axis": 1, "boundaries": [16, 32], "pad": 0}},
        "TELEMETRY__PAGE": False,
    }
    found = environment(charted({"settings": settings}, tmp_path))

    read = settings_of(found, tmp_path)

    assert read.kafka.max_request_bytes == 12_582_912
    assert read.kafka.request_topics == ("orders", "backfill")
    assert read.kafka.dead_letter_topic is None
    assert read.batching.linger_ms == 2.5
    assert read.batching.wanted_axes[0].boundaries == (16, 32)
    assert read.telemetry.page is False


def test_a_changed_file_rolls_out(tmp_path: Path) -> None:
    """The pods' template changes with a file's content, as with a setting."""
    first, changed = (
        only(charted({"files": {"functions.py": code}}, tmp_path), "Deployment")["spec"]["template"]
        for code in ("LIMIT = 1", "LIMIT = 2")
    )

    assert first != changed


def environment(manifests: list[Manifest]) -> dict[str, str]:
    [workload] = [manifest for manifest in manifests if manifest["kind"] in {"Deployment", "StatefulSet"}]
    [worker] = workload["spec"]["template"]["spec"]["containers"]
    [settings] = [m for m in manifests if m["kind"] == "ConfigMap" and "functions.py" not in m["data"]]
    return {**settings["data"], **{each["name"]: each["value"] for each in worker["env"]}}


def test_a_changed_setting_rolls_out(tmp_path: Path) -> None:
    """The pods' template changes with the setting, and only with it."""
    first, again, changed = (
        only(charted({"settings": {"BATCHING__MAX_BATCH_SIZE": size}}, tmp_path), "Deployment")["spec"]["template"]
        for size in (32, 32, 16)
    )

    assert first == again
    assert first != changed


def test_without_a_model_nothing_is_rendered(tmp_path: Path) -> None:
    """The demonstration's model would answer every request of another shape with an error."""
    with pytest.raises(AssertionError, match=r"where is the model\? Set model\.claim"):
        charted({"model": {}}, tmp_path)
