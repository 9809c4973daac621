"""Runs this folder's tests in a process of their own that finds the stand-in as its CUDA.

A process reads the places of libraries at its start (`LD_LIBRARY_PATH`); after that every model with a free choice
would choose CUDA. So a second pytest runs all of this folder's selected tests; in this process a test only reports its
result from there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cuda.build import Unavailable, build
from tests.cuda.cuda import Cuda

HERE = Path(__file__).parent
REPORTS = "STAND_IN_REPORTS"  # in the second process's environment: the file for its reports
PATIENCE = 240  # seconds; they take 30 on an idle machine of two cores


@pytest.fixture(scope="session")
def complaints(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Each test's failure by its node; an empty text means that it passed."""
    if REPORTS in os.environ:
        return {}
    folder = tmp_path_factory.mktemp("cuda")
    try:
        build(folder)
    except Unavailable as reason:
        pytest.skip(f"no stand-in for CUDA: {reason}")
    reports = folder / "reports"
    reports.touch()
    nodes = [item.nodeid for item in request.session.items if HERE in item.path.parents]
    paths = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *nodes],
        cwd=request.config.rootpath,
        env={**os.environ, "LD_LIBRARY_PATH": ":".join(paths), REPORTS: str(reports)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    found: dict[str, str] = defaultdict(lambda: f"not run there: {done.returncode=}\n{done.stdout}\n{done.stderr}")
    for line in reports.read_text().splitlines():
        node, complaint = json.loads(line)
        found[node] = found.get(node, "") + complaint
    return found


@pytest.fixture
def cuda(request: pytest.FixtureRequest) -> Cuda:
    """The stand-in, with the order of streams from the test's parameter."""
    cuda = Cuda()
    if REPORTS in os.environ:
        cuda.serve(getattr(request, "param", "late"))
    return cuda


@pytest.fixture(autouse=True)
def complaint(request: pytest.FixtureRequest, complaints: Mapping[str, str]) -> str:
    return "" if REPORTS in os.environ else complaints[request.node.nodeid]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """In this process, report the test's failure from the second one instead of running it."""
    if REPORTS in os.environ:
        return None
    if complaint := pyfuncitem.funcargs["complaint"]:
        pytest.fail(str(complaint), pytrace=False)
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the second process, write a line for each test that ended, and for each step that failed."""
    if REPORTS in os.environ and (report.when == "call" or not report.passed):
        complaint = "" if report.passed else f"{report.longreprtext}\n{report.capstderr}"
        with Path(os.environ[REPORTS]).open("a") as file:
            file.write(json.dumps([report.nodeid, complaint]) + "\n")
