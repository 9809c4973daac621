"""Manifests without a cluster: rendered by kustomize or Helm, checked with a cluster's own schemas.

Kubernetes's own schemas come with the package `kubernetes-validate`, other projects' schemas with their Go modules.
`MissingToolError` names a tool that is not on this machine, or cannot be fetched.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

Manifest = dict[str, Any]

KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5@v5.8.1"
# The version of `.ci/run`.
HELM_INSTALL = "go install helm.sh/helm/v3/cmd/helm@v3.22.0"
# The place of each foreign group's definitions: module, folder in it, and the file's name.
FOREIGN = {
    "keda.sh": ("github.com/kedacore/keda/v2@v2.21.0", "config/crd/bases/keda.sh_{}s.yaml"),
    "monitoring.coreos.com": (
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_{}s.yaml",
    ),
}
# A first `go run` fetches and compiles.
RUN_WITHIN = 300.0


class MissingToolError(Exception):
    """The check needs a tool from outside this repository that is missing here. The message names it."""


def render(folder: Path) -> list[Manifest]:
    """The objects that `kubectl apply -k folder` would send. Fails the test when kustomize refuses."""
    done = subprocess.run([*_kustomize(), str(folder)], capture_output=True, text=True, timeout=RUN_WITHIN, check=False)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


@functools.cache
def _kustomize() -> tuple[str, ...]:
    if shutil.which("kustomize"):
        return "kustomize", "build"
    if shutil.which("kubectl"):
        return "kubectl", "kustomize"
    if shutil.which("go"):
        built = subprocess.run(
            ["go", "run", KUSTOMIZE, "version"], capture_output=True, text=True, timeout=RUN_WITHIN, check=False
        )
        if built.returncode == 0:
            return "go", "run", KUSTOMIZE, "build"
    raise MissingToolError("neither kustomize nor kubectl is installed, nor a Go that could fetch kustomize")


def helm(*words: str) -> str:
    """Helm's output. Fails the test when Helm refuses."""
    if not shutil.which("helm"):
        raise MissingToolError(f"helm is not installed; with Go it takes two minutes: {HELM_INSTALL}")
    done = subprocess.run(["helm", *words], capture_output=True, text=True, timeout=RUN_WITHIN, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The only manifest of that kind."""
    found = [manifest for manifest in manifests if manifest["kind"] == kind]
    assert len(found) == 1, f"{len(found)} of kind {kind}"
    return found[0]


def faults(manifest: Manifest, version: str) -> Iterator[str]:
    """The faults for which a cluster of that version would refuse a manifest; an unknown field is one."""
    group = manifest["apiVersion"].rpartition("/")[0]
    if group in FOREIGN:
        validator = jsonschema.Draft202012Validator(_definition(group, manifest["kind"], manifest["apiVersion"]))
        yield from (f"{error.json_path}: {error.message}" for error in validator.iter_errors(manifest))
        return
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield error.message


@functools.cache
def _definition(group: str, kind: str, api_version: str) -> Manifest:
    module, path = FOREIGN[group]
    definition = yaml.safe_load((module_folder(module) / path.format(kind.lower())).read_text())
    [schema] = [
        version["schema"]["openAPIV3Schema"]
        for version in definition["spec"]["versions"]
        if f"{group}/{version['name']}" == api_version
    ]
    # A cluster drops unknown fields with a warning; here they are faults. A cluster's own fields have another schema.
    strict = _strict(schema)
    strict["properties"]["metadata"] = {"type": "object"}
    return strict


def _strict(schema: Manifest) -> Manifest:
    """A schema that refuses unnamed fields."""
    for inner in schema.get("properties", {}).values():
        _strict(inner)
    for place in ("items", "additionalProperties"):
        if isinstance(schema.get(place), dict):
            _strict(schema[place])
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    return schema


@functools.cache
def module_folder(module: str) -> Path:
    """Go's folder of that version of a module, fetched if need be. Raises `MissingToolError`."""
    if not shutil.which("go"):
        raise MissingToolError(f"there is no Go to fetch {module} with")
    done = subprocess.run(
        ["go", "mod", "download", "-json", module], capture_output=True, text=True, timeout=RUN_WITHIN, check=False
    )
    told = json.loads(done.stdout or "{}")
    if "Dir" not in told:
        raise MissingToolError(f"{module} cannot be fetched: {told.get('Error') or done.stderr}")
    return Path(told["Dir"])


def keda_parameters(scaler: str) -> set[str]:
    """The names that a KEDA trigger's `metadata` may have. No schema has them: the scaler's source does."""
    source = module_folder(FOREIGN["keda.sh"][0]) / f"pkg/scalers/{scaler}_scaler.go"
    tags = re.findall(r'`keda:"name=(\w+),\s*order=([\w;]+)', source.read_text())
    literal = {name for name, order in tags if "triggerMetadata" in order}
    return literal | {f"{name}FromEnv" for name, order in tags if "resolvedEnv" in order}
