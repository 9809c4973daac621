"""docker-compose.yml, really run: it is built, ready and answers, and the pages' lines for it work.

Needs a Docker engine with compose v2; else skipped. Prints its figures: `pytest -s tests/deploy/test_compose.py`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import pytest

from tests.deploy.stack import Stack, no_engine
from tests.readme import GUIDE, blocks_of

pytestmark = pytest.mark.timeout(900)


def tell(line: str) -> None:
    sys.stderr.write(f"\n{line}\n")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """The whole stack, built and up, with two workers."""
    if reason := no_engine():
        pytest.skip(f"no compose: {reason}")
    with Stack() as stack:
        began = time.monotonic()
        stack.compose("build", "--quiet")
        built = time.monotonic() - began
        tell(f"image: {stack.inspect('inference-worker')['Size'] / 1e6:.0f} MB, built in {built:.0f} s")
        tell(f"two workers ready after {stack.up():.1f} s")
        yield stack


def test_a_worker_is_nobody_and_writes_nothing(stack: Stack) -> None:
    """The container runs as a number that is not root, without capabilities, on a read-only file system."""
    found = stack.inspect(stack.workers()[0])

    assert found["Config"]["User"].split(":")[0].isdigit()
    assert found["Config"]["User"].split(":")[0] != "0"
    assert found["HostConfig"]["ReadonlyRootfs"]
    assert found["HostConfig"]["CapDrop"] == ["ALL"]
    assert found["HostConfig"]["CapAdd"] is None


def test_a_first_try_needs_no_client(stack: Stack) -> None:
    """The publisher's profile publishes random requests, waits for their answers, and shows some."""
    published = stack.compose("run", "--rm", "-T", "publish")
    consumed = stack.compose("run", "--rm", "-T", "consume", "--last", "5", "--json")

    assert "1,000 ok" in published
    assert "0 missing, 0 repeated" in published
    assert [json.loads(line)["headers"]["status"] for line in consumed.splitlines()] == ["ok"] * 5


def test_the_guide_s_lines_do_what_they_say() -> None:
    """They lead from nothing to four workers and back to nothing."""
    if reason := no_engine():
        pytest.skip(f"no compose: {reason}")
    page = {block.name: block.text for block in blocks_of(GUIDE)}
    with Stack() as stack:
        stack.sh(page["broker-docker"])
        assert stack.compose("ps", "--quiet", "kafka") != ""
        assert stack.workers() == []

        stack.sh(page["compose-up"])
        assert len(stack.workers()) == 2

        printed = stack.sh(page["compose-try"])
        assert "1,000 ok" in printed
        assert printed.count("probabilities FP32[1, 10]") == 5

        stack.sh(page["compose-scale"])
        assert len(stack.workers()) == 4

        stack.sh(page["compose-down"])
        assert stack.compose("ps", "--all", "--quiet") == ""
