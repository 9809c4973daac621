"""docker-compose.yml, really run: ready, answers, one replica stopped, one killed, four of them.

Needs a Docker engine with compose v2; skipped without. Prints its figures: `pytest -s tests/deploy/test_compose.py`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import pytest

from tests.deploy.stack import Audience, Stack, no_engine
from tests.readme import GUIDE, blocks_of

SESSION = 6.0  # seconds of silence after which the compose file's broker takes a worker for dead
# A killed worker's requests that were answered and not yet committed.
# A second of the load; 0 to 19 were measured.
MOST_REPEATS = 500
pytestmark = pytest.mark.timeout(900)


def tell(line: str) -> None:
    sys.stderr.write(f"\n{line}\n")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """The whole of it, built and up, with two workers."""
    if reason := no_engine():
        pytest.skip(f"no compose: {reason}")
    with Stack() as stack:
        began = time.monotonic()
        stack.compose("build", "--quiet")
        built = time.monotonic() - began
        tell(f"image: {stack.inspect('inference-worker')['Size'] / 1e6:.0f} MB, built in {built:.0f} s")
        tell(f"two workers ready after {stack.up():.1f} s")
        yield stack


@pytest.fixture(scope="module")
def audience(stack: Stack) -> Iterator[Audience]:
    """Who asks and who checks, through the published port of the broker."""
    audience = Audience(stack)
    yield audience
    audience.close()


@pytest.fixture
def pair(stack: Stack, audience: Audience) -> list[str]:
    """Two workers with six partitions each, whatever the last test left."""
    stack.up()
    audience.wait_for_shares(6, 6)
    return stack.workers()


def test_a_worker_is_nobody_and_writes_nothing(stack: Stack, pair: list[str]) -> None:
    """The container runs as a number that is not root, without capabilities, on a read-only file system."""
    found = stack.inspect(pair[0])

    assert found["Config"]["User"].split(":")[0].isdigit()
    assert found["Config"]["User"].split(":")[0] != "0"
    assert found["HostConfig"]["ReadonlyRootfs"]
    assert found["HostConfig"]["CapDrop"] == ["ALL"]
    assert found["HostConfig"]["CapAdd"] is None


@pytest.mark.usefixtures("pair")
def test_every_request_is_answered_once(audience: Audience) -> None:
    """What is published from outside is answered by two workers, rightly, in order and once."""
    before = audience.verdict().repeats

    with audience.publishing():
        audience.wait_for_progress()

    audience.verdict().expect_clean(repeats=before)


@pytest.mark.usefixtures("pair")
def test_a_first_try_needs_no_client(stack: Stack) -> None:
    """The publisher's profile publishes random requests, waits for their answers, and shows some."""
    published = stack.compose("run", "--rm", "-T", "publish")
    consumed = stack.compose("run", "--rm", "-T", "consume", "--last", "5", "--json")

    assert "1,000 ok" in published
    assert "0 missing, 0 repeated" in published
    assert [json.loads(line)["headers"]["status"] for line in consumed.splitlines()] == ["ok"] * 5


def test_a_stopped_worker_finishes_what_it_took(stack: Stack, audience: Audience, pair: list[str]) -> None:
    """`docker stop` under load: exit 0, the other one goes on with all partitions; nothing lost, nothing repeated."""
    before = audience.verdict().repeats

    with audience.publishing():
        audience.wait_for_progress()
        began = time.monotonic()
        exit_code = stack.stop(pair[0])
        gone = time.monotonic() - began
        audience.wait_for_shares(12)
        audience.wait_for_progress()

    verdict = audience.verdict()
    tell(
        f"stopped one: exit {exit_code} after {gone:.1f} s, "
        f"{len(verdict.lost)} lost, {verdict.repeats - before} repeated of {len(audience.acknowledged()):,} so far"
    )
    assert exit_code == 0
    verdict.expect_clean(repeats=before)


def test_a_killed_worker_is_replaced(stack: Stack, audience: Audience, pair: list[str]) -> None:
    """`docker kill` under load: the other one has all partitions soon after the session; nothing lost."""
    before = audience.verdict().repeats

    with audience.publishing():
        audience.wait_for_progress()
        stack.kill(pair[0])
        takeover = audience.wait_for_progress()

    verdict = audience.verdict()
    tell(
        f"killed one: all partitions served again after {takeover:.1f} s, "
        f"{len(verdict.lost)} lost, {verdict.repeats - before} repeated of {len(audience.acknowledged()):,} so far"
    )
    verdict.expect_clean(repeats=before + MOST_REPEATS)
    assert takeover < SESSION + 10.0


@pytest.mark.usefixtures("pair")
def test_four_workers_share_evenly(stack: Stack, audience: Audience) -> None:
    """`--scale worker=4` under load: three partitions each; nothing lost, nothing repeated on the way."""
    before = audience.verdict().repeats

    with audience.publishing():
        seconds = stack.up(4)
        audience.wait_for_shares(3, 3, 3, 3)
        audience.wait_for_progress()

    verdict = audience.verdict()
    tell(
        f"scaled to four: ready after {seconds:.1f} s, "
        f"{len(verdict.lost)} lost, {verdict.repeats - before} repeated of {len(audience.acknowledged()):,} so far"
    )
    verdict.expect_clean(repeats=before)


def test_the_guide_s_lines_do_what_they_say() -> None:
    """From nothing to four workers and back to nothing, as the pages have it."""
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
