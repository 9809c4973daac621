"""The Kubernetes manifests, rendered and checked with a cluster's schemas, without a cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from tests.deploy.manifests import Manifest, MissingToolError, faults, keda_parameters, only, render
from tests.deploy.settings import settings_of
from tests.readme import blocks
from worker.app import CLOSE_TIMEOUT

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
OVERLAYS = ("base", "overlays/gpu", "overlays/autoscaling", "overlays/exactly-once")
# The oldest version in the schemas' package, and the newest.
VERSIONS = ("1.28", "1.37")
SELECTING = {
    "Deployment": ("spec", "selector", "matchLabels"),
    "PodDisruptionBudget": ("spec", "selector", "matchLabels"),
    "NetworkPolicy": ("spec", "podSelector", "matchLabels"),
    "PodMonitor": ("spec", "selector", "matchLabels"),
}
T = TypeVar("T")
pytestmark = pytest.mark.timeout(600)  # kustomize and the foreign schemas may have to be fetched first


def or_skip(check: Callable[[], T]) -> T:
    """The result of `check`; without its tool the test is skipped."""
    try:
        return check()
    except MissingToolError as reason:
        pytest.skip(str(reason))


def refused(manifest: Manifest, version: str) -> list[str]:
    """The faults for which a cluster of that version refuses a manifest."""
    return or_skip(lambda: list(faults(manifest, version)))


@pytest.fixture(scope="module", params=OVERLAYS)
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    """One overlay, rendered."""
    return or_skip(lambda: render(FOLDER / request.param))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """The overlay that the README shows: all components, a claim for the model, and names of its own."""
    return rendered(tmp_path_factory.mktemp("deploy"), the_readmes_overlay())


@pytest.fixture(scope="module")
def exactly_once(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """The README's overlay with its component and setting for exactly once."""
    overlay = yaml.safe_load(the_readmes_overlay())
    page = (FOLDER / "README.md").read_text()
    component, literal = "../../components/exactly-once", "WORKER_DELIVERY__TRANSACTIONAL_ID=digits-{hostname}"
    assert f"`{component}`" in page
    assert f"`{literal}`" in page
    overlay["components"].append(component)
    overlay["configMapGenerator"][0]["literals"].append(literal)
    return rendered(tmp_path_factory.mktemp("deploy"), yaml.safe_dump(overlay))


@pytest.fixture(scope="module")
def with_deadlines(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """The README's overlay with its trigger for requests with deadlines."""
    overlay = yaml.safe_load(the_readmes_overlay())
    [patch] = [block.text for block in blocks(FOLDER / "README.md") if block.name == "refusals"]
    overlay["patches"] += yaml.safe_load(patch)
    return rendered(tmp_path_factory.mktemp("deploy"), yaml.safe_dump(overlay))


@pytest.fixture(scope="module")
def with_records(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """The base with the README's lines for records, functions and a schema registry."""
    [lines] = [block.text for block in blocks(FOLDER / "README.md") if block.name == "records"]
    return rendered(tmp_path_factory.mktemp("deploy"), f"resources: [../../base]\n{lines}")


def the_readmes_overlay() -> str:
    [overlay] = re.findall(r"```yaml\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    return str(overlay)


def rendered(folder: Path, overlay: str) -> list[Manifest]:
    """The objects of an overlay with this text, next to ours."""
    copied = shutil.copytree(FOLDER, folder / "kubernetes")
    (copied / "overlays/digits").mkdir()
    (copied / "overlays/digits/functions.py").write_text("def answer(outputs, record):\n    return {}\n")
    (copied / "overlays/digits/kustomization.yaml").write_text(overlay)
    return or_skip(lambda: render(copied / "overlays/digits"))


def pod(manifests: list[Manifest]) -> dict[str, Any]:
    found: dict[str, Any] = workload(manifests)["spec"]["template"]["spec"]
    return found


def workload(manifests: list[Manifest]) -> Manifest:
    """The Deployment or StatefulSet."""
    [found] = [manifest for manifest in manifests if manifest["kind"] in {"Deployment", "StatefulSet"}]
    return found


def worker(manifests: list[Manifest]) -> dict[str, Any]:
    [found] = [container for container in pod(manifests)["containers"] if container["name"] == "worker"]
    return dict(found)


def environment(manifests: list[Manifest]) -> dict[str, str]:
    """The worker's environment: the pod's ConfigMap, overridden by the container's own variables."""
    container = worker(manifests)
    [config] = [m for m in manifests if m["kind"] == "ConfigMap" and "functions.py" not in m["data"]]
    assert [source["configMapRef"]["name"] for source in container["envFrom"]] == [config["metadata"]["name"]]
    return {**config["data"], **{variable["name"]: variable["value"] for variable in container["env"]}}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cluster_takes_them(manifests: list[Manifest], version: str) -> None:
    """Every manifest is valid for old and new clusters, with every field's name."""
    found = {manifest["kind"]: refused(manifest, version) for manifest in manifests}

    assert not any(found.values()), found


def test_a_cluster_takes_all_components_together(everything: list[Manifest]) -> None:
    """GPU, autoscaling and pod monitor on one base are valid, too."""
    found = {manifest["kind"]: refused(manifest, VERSIONS[-1]) for manifest in everything}

    assert not any(found.values()), found
    assert {"ScaledObject", "TriggerAuthentication", "PodMonitor"} <= found.keys()


def test_the_readmes_overlay_says_what_it_says(everything: list[Manifest], tmp_path: Path) -> None:
    """Its image, settings and claim arrive, and no model is copied."""
    found = pod(everything)

    assert worker(everything)["image"] == "registry.example.com/inference-worker:0.1.0-cuda"
    assert settings_of(environment(everything), tmp_path).model.name == "digits"
    assert {"name": "model", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}} in found["volumes"]
    assert "initContainers" not in found


def test_functions_and_a_registry_s_password_are_where_the_worker_looks(
    with_records: list[Manifest], tmp_path: Path
) -> None:
    """A cluster takes all of it; the functions come with the deployment, the password with the secret."""
    config = next(m for m in with_records if m["kind"] == "ConfigMap" and "functions.py" in m["data"])
    mounts = {mount["name"]: mount["mountPath"] for mount in worker(with_records)["volumeMounts"]}
    read = settings_of(environment(with_records), tmp_path)

    assert [refused(manifest, VERSIONS[-1]) for manifest in with_records] == [[]] * len(with_records)
    assert {"name": "files", "configMap": {"name": config["metadata"]["name"]}} in pod(with_records)["volumes"]
    assert read.records is not None
    assert read.records.functions == Path(mounts["files"]) / "functions.py"
    assert read.registry is not None
    assert read.registry.password is not None
    assert read.registry.ssl_ca_location == read.kafka.ssl_ca_location


def test_the_readmes_model_goes_where_the_worker_reads(everything: list[Manifest]) -> None:
    """A cluster takes the pod that copies it; the pod has the workers' claim at the workers' place."""
    [text] = [block.text for block in blocks(FOLDER / "README.md") if block.name == "copy-model"]
    copier = yaml.safe_load(text.split("<<'END'\n")[1].split("\nEND\n")[0])
    [container], [volume] = copier["spec"]["containers"], copier["spec"]["volumes"]
    claim = volume["persistentVolumeClaim"]["claimName"]

    assert refused(copier, VERSIONS[-1]) == []
    assert claim in [
        v["persistentVolumeClaim"]["claimName"] for v in pod(everything)["volumes"] if v["name"] == "model"
    ]
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/models"}]
    assert f"copy-model:{environment(everything)['WORKER_MODEL__PATH']}\n" in text


def test_the_worker_accepts_its_settings(manifests: list[Manifest], tmp_path: Path) -> None:
    """The worker starts with the manifests' environment; the password comes from a file."""
    found = environment(manifests)

    settings = settings_of(found, tmp_path)

    assert settings.kafka.security_protocol == "SASL_SSL"
    assert settings.kafka.sasl_password is not None
    assert not any(name.endswith(("_PASSWORD", "_SECRET")) for name in found)


def test_probes_reach_the_worker(manifests: list[Manifest], tmp_path: Path) -> None:
    """The probes ask the worker's port, for existing pages."""
    container, settings = worker(manifests), settings_of(environment(manifests), tmp_path)
    asked = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}

    assert container["ports"] == [{"name": "http", "containerPort": settings.telemetry.http_port}]
    assert settings.telemetry.http_address == "0.0.0.0"  # noqa: S104  # the pod's own address
    assert {probe["port"] for probe in asked.values()} == {"http"}
    assert [probe["path"] for probe in asked.values()] == ["/startupz", "/readyz", "/healthz"]


def test_the_kubelet_waits_longer_than_a_drain(manifests: list[Manifest], tmp_path: Path) -> None:
    """SIGKILL comes at least ten seconds after the worker's own deadline."""
    drain = settings_of(environment(manifests), tmp_path).delivery.drain_timeout_s

    assert pod(manifests)["terminationGracePeriodSeconds"] >= drain + CLOSE_TIMEOUT + 10


def test_a_pod_may_do_nothing_else(manifests: list[Manifest]) -> None:
    """Every container keeps to the `restricted` pod security standard, on a read-only file system."""
    found = pod(manifests)

    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["securityContext"]["runAsUser"] > 0
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["automountServiceAccountToken"] is False
    assert found["enableServiceLinks"] is False
    for container in [*found["containers"], *found.get("initContainers", [])]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]


def test_selectors_find_this_models_pods_only(everything: list[Manifest]) -> None:
    """Budget, network policy, monitor and spread apply only to this deployment's pods, not to another model's."""
    labels = only(everything, "Deployment")["spec"]["template"]["metadata"]["labels"]

    for kind, place in SELECTING.items():
        selector: Any = only(everything, kind)
        for step in place:
            selector = selector[step]
        assert selector == labels, kind
    assert pod(everything)["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == labels
    assert labels["app.kubernetes.io/instance"] == "digits"


def test_the_autoscaler_alone_counts_workers(everything: list[Manifest]) -> None:
    """With autoscaling no number of replicas is applied; the scaler names the deployment and its own authentication."""
    scaled = only(everything, "ScaledObject")["spec"]

    assert "replicas" not in only(everything, "Deployment")["spec"]
    assert scaled["scaleTargetRef"]["name"] == only(everything, "Deployment")["metadata"]["name"]
    [reference] = [trigger["authenticationRef"]["name"] for trigger in scaled["triggers"]]
    assert reference == only(everything, "TriggerAuthentication")["metadata"]["name"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cluster_takes_exactly_once_with_all_components(exactly_once: list[Manifest], version: str) -> None:
    """It is a StatefulSet with the base's pods, and without a Deployment's own fields."""
    found = {manifest["kind"]: refused(manifest, version) for manifest in exactly_once}

    assert not any(found.values()), found
    assert "StatefulSet" in found
    assert "Deployment" not in found


def test_the_autoscaler_counts_the_workers_of_a_statefulset(exactly_once: list[Manifest]) -> None:
    """This holds for any name that an overlay gives it."""
    target = only(exactly_once, "ScaledObject")["spec"]["scaleTargetRef"]
    scaled = workload(exactly_once)

    assert target == {"kind": scaled["kind"], "name": scaled["metadata"]["name"]}
    assert "replicas" not in scaled["spec"]


def test_the_autoscaler_looks_where_the_worker_reads(everything: list[Manifest]) -> None:
    """Brokers, group, topic and starting point come from the worker's own settings."""
    found = environment(everything)
    [metadata] = [trigger["metadata"] for trigger in only(everything, "ScaledObject")["spec"]["triggers"]]

    assert {name: found[variable] for name, variable in metadata.items() if name.endswith("FromEnv")} == {
        "bootstrapServersFromEnv": found["WORKER_KAFKA__BOOTSTRAP_SERVERS"],
        "consumerGroupFromEnv": "digits",
        "topicFromEnv": "requests",
    }
    assert metadata["offsetResetPolicy"] == found.get("WORKER_KAFKA__AUTO_OFFSET_RESET", "earliest")


def test_the_scaler_knows_its_parameters(everything: list[Manifest]) -> None:
    """KEDA's Kafka scaler knows every parameter that is set; it would silently ignore a mistyped one."""
    [metadata] = [trigger["metadata"] for trigger in only(everything, "ScaledObject")["spec"]["triggers"]]

    known = or_skip(lambda: keda_parameters("kafka"))

    assert metadata.keys() <= known
    assert "lagTreshold" not in known


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on the PATH")
@pytest.mark.parametrize(
    ("refused_of_100", "workers"), [(0, None), (5, None), (50, 4.0), (20, 2.5), (100, 4.0)], ids=str
)
def test_refusals_ask_for_as_many_workers_as_answer_all(
    with_deadlines: list[Manifest], tmp_path: Path, refused_of_100: int, workers: float | None
) -> None:
    """It counts two workers, as a third has just come; it asks for twice as many at most, and ignores few refusals."""
    query = only(with_deadlines, "ScaledObject")["spec"]["triggers"][1]["metadata"]["query"]
    series = {
        'ready{%s,instance="a"}': "1+0x20",
        'ready{%s,instance="b"}': "1+0x20",
        'ready{%s,instance="c"}': "_x9 0+0x8 1+0x3",
        'rejections_total{%s,code="DEADLINE_EXCEEDED"}': f"0+{refused_of_100}x20",
        'rejections_total{%s,code="INTERNAL"}': "0+90x20",
        "records_settled_total{%s}": "0+900x20",
        "records_passed_over_total{%s}": "0+800x20",
    }
    job = 'job="inference/inference-worker-digits"'
    test = {
        "interval": "15s",
        "input_series": [
            {"series": "inference_worker_" + name % job, "values": values} for name, values in series.items()
        ],
        "promql_expr_test": [
            {"expr": query, "eval_time": "5m", "exp_samples": [] if workers is None else [{"value": workers}]}
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"evaluation_interval": "15s", "tests": [test]}))

    said = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "test.yml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert said.returncode == 0, said.stdout + said.stderr
