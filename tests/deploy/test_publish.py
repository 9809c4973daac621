"""The commands of `make publish`, with stand-ins for git, Docker and Helm: no registry is asked.

No test pushes to a real registry: that the SBOM gets written is BuildKit's own promise.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from worker.version import VERSION

ROOT = Path(__file__).parents[2]
DIGEST, REVISION = f"sha256:{'5d' * 32}", "c0ffee" * 6 + "c0ff"
# Each stand-in records its arguments, and prints what the recipe reads.
STAND_INS = {
    "git": f'case "$1" in status) printf "$CHANGED";; rev-parse) echo {REVISION};; esac',
    "docker": f'case "$2" in imagetools) [ -z "$OFFLINE" ] || exit 1; echo {DIGEST};; esac',
    "helm": "",
}


class Publishing:
    """One call in a folder of its own; `ran` has the commands, one a line."""

    def __init__(self, folder: Path, registry: str = "registry.example.com/us", **environment: str) -> None:
        for name, body in STAND_INS.items():
            tool = folder / name
            tool.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/ran"\n{body}\n')
            tool.chmod(0o755)
        done = subprocess.run(
            ["make", "--silent", "publish", f"REGISTRY={registry}"],
            cwd=ROOT,
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.exit_code, self.said = done.returncode, done.stderr
        self.ran = (folder / "ran").read_text().splitlines() if (folder / "ran").exists() else []

    @property
    def pushed(self) -> list[str]:
        return [line for line in self.ran if "--push" in line or "helm push" in line]


def test_both_images_are_of_one_base_and_one_commit_with_a_list_of_what_is_in_them(tmp_path: Path) -> None:
    """The base's name can mean another image tomorrow; without a revision a pod's code is unknown."""
    published = Publishing(tmp_path)
    cpu, cuda, chart = published.pushed

    assert published.exit_code == 0, published.said
    for build, tag in ((cpu, VERSION), (cuda, f"{VERSION}-cuda")):
        assert f"-t registry.example.com/us/inference-worker:{tag} " in build
        assert f"PYTHON_IMAGE=python:3.11-slim-bookworm@{DIGEST}" in build
        assert f"REVISION={REVISION}" in build
        assert "--sbom=true --provenance=mode=max" in build
    assert chart == f"helm push build/inference-worker-{VERSION}.tgz oci://registry.example.com/us/charts"


@pytest.mark.parametrize(
    ("registry", "environment", "why"),
    [
        ("", {}, "REGISTRY=host/owner says where to"),
        ("r/us", {"CHANGED": " M worker/app.py"}, "commit first: images name their revision"),
        ("r/us", {"OFFLINE": "1"}, "Error"),
    ],
)
def test_nothing_is_pushed_without_a_registry_a_commit_or_a_base(
    tmp_path: Path, registry: str, environment: dict[str, str], why: str
) -> None:
    """An uncommitted change has no name; a base without its digest could be any image."""
    refused = Publishing(tmp_path, registry, **environment)

    assert refused.exit_code != 0
    assert why in refused.said
    assert refused.pushed == []
