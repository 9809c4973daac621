"""Records that end the process which runs them: after four deaths each is answered and its partition goes on.

The cause is a division that the processor refuses (SIGFPE), or an inference that never ends.
"""

from __future__ import annotations

import platform
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.kafka.cluster import TIMEOUT, Cluster, Sent
from tests.kafka.replica import Replica
from tests.kafka.scene import RAW_HEADER, Scene, both_guarantees, quick_exactly_once
from tests.kafka.spins import spin
from tests.models import least_divided, spinner

LEAST = -(2**63)
traps = pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors divide without a trap")
DEATHS = 4  # three might be bad luck with machines; the fourth time the record runs alone
# A static member that comes back gets its partitions at once, like a restarted pod of a StatefulSet.
COMES_BACK = {
    "KAFKA__GROUP_PROTOCOL": "classic",
    "KAFKA__SESSION_TIMEOUT_MS": "6000",
    "KAFKA__GROUP_INSTANCE_ID": "the-one",
}
REPEATS = 200  # answers not yet committed when it died


def divide_by(number: int, partition: int) -> Sent:
    """A request to divide the least number by this one. Dividing by -1 ends the process."""
    return Sent(b"k%d" % number, np.int64(number).tobytes(), [RAW_HEADER], partition)


def run_until_answered(scene: Scene, settings: Mapping[str, str] | None = None) -> list[int]:
    """Start one replica after the other until every request has its answer; return the exit codes of the dead."""
    codes: list[int] = []
    deadline = time.monotonic() + 2 * TIMEOUT
    replica = scene.start(settings)
    while not is_answered(scene):
        assert time.monotonic() < deadline, f"not answered after deaths {codes}:\n{replica.log}"
        if not replica.is_running:
            codes.append(replica.exit_code())
            replica = scene.start(settings)
        scene.auditor.wait_for(scene.acknowledged, 0.1)
    expect_clean_end(replica)
    return codes


def is_answered(scene: Scene) -> bool:
    """True if every request has an answer."""
    return set(scene.acknowledged) <= {found.source for found in scene.auditor.answers}


def expect_clean_end(replica: Replica) -> None:
    """Fail the test unless the replica ends with 0."""
    replica.terminate()
    assert replica.exit_code() == 0, replica.log


@traps
@quick_exactly_once
def test_a_record_that_kills_the_process_is_convicted(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """After four deaths it is answered INTERNAL and dead-lettered without a run; all others get their quotients."""
    requests = [divide_by(number, partition) for partition in (0, 1) for number in range(1, 41)]
    requests.insert(20, divide_by(-1, 0))
    with Scene(kafka, tmp_path, COMES_BACK, guarantee=guarantee, model=least_divided(), partitions=2) as scene:
        scene.publish(requests)

        codes = run_until_answered(scene)

        expect_deaths(codes, -signal.SIGFPE)
        scene.expect_kept(repeats=len(codes) * REPEATS)
        expect_convicted(scene, b"k-1")
        expect_quotients(scene)


def expect_deaths(codes: Sequence[int], code: int) -> None:
    """Fail the test unless all died with this code, often enough. A death right at the start may go uncounted."""
    assert set(codes) == {code}
    assert DEATHS <= len(codes) <= DEATHS + 2, codes


def expect_convicted(scene: Scene, key: bytes) -> None:
    """Fail the test unless this request has an INTERNAL error and is the one dead letter."""
    errors = [(found.key, found.headers["error-code"]) for found in scene.auditor.answers if found.is_error]
    assert errors == [(key, "INTERNAL")]
    assert [letter.key for letter in scene.dead_letters(1)] == [key]


def expect_quotients(scene: Scene) -> None:
    """Fail the test unless each answer that is no error is the quotient."""
    for found in scene.auditor.answers:
        assert found.source is not None
        if not found.is_error:
            divisor = int(np.frombuffer(scene.acknowledged[found.source].value or b"", "<i8")[0])
            assert np.frombuffer(found.value or b"", "<i8")[0] == -(-LEAST // divisor), found


@pytest.mark.slow
@both_guarantees
def test_a_record_that_hangs_is_convicted(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """The watchdog ends the worker (3) each time; after four times the record is no longer run."""
    settings = {**COMES_BACK, "MODEL__RUN_TIMEOUT_S": "1"}
    hangs = spin(1e6)._replace(key=b"hangs")
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=spinner(), partitions=1) as scene:
        scene.publish([*[spin(0.0001)] * 30, hangs, *[spin(0.0001)] * 30])

        codes = run_until_answered(scene)

        expect_deaths(codes, 3)
        scene.expect_kept(repeats=len(codes) * REPEATS)
        expect_convicted(scene, b"hangs")


@pytest.mark.slow
@traps
@both_guarantees
def test_two_killers_in_a_row_are_convicted_one_after_the_other(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Each costs its deaths in a group of the new protocol, and the records around them are answered."""
    requests = [divide_by(number, 0) for number in range(1, 21)]
    requests[10:10] = [divide_by(-1, 0), divide_by(-1, 0)]
    with Scene(kafka, tmp_path, guarantee=guarantee, model=least_divided(), partitions=1) as scene:
        scene.publish(requests)

        codes = run_until_answered(scene)

        assert set(codes) == {-signal.SIGFPE}
        assert DEATHS < len(codes) <= 2 * (DEATHS + 1), codes
        scene.expect_kept(repeats=len(codes) * REPEATS)
        assert [found.key for found in scene.auditor.answers if found.is_error] == [b"k-1"] * 2
        expect_quotients(scene)


@quick_exactly_once
def test_a_record_whose_worker_was_killed_is_not_convicted(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Three workers are killed from outside while it runs: the fourth runs it alone and answers it."""
    with Scene(kafka, tmp_path, COMES_BACK, guarantee=guarantee, model=spinner(), partitions=1) as scene:
        scene.publish([spin(1.0)._replace(key=b"k%d" % number) for number in range(3)])
        for _ in range(DEATHS - 1):
            replica = scene.start().wait_until_ready()
            wait_until_running(replica)
            replica.kill()

        assert run_until_answered(scene) == []

        scene.expect_kept()
        assert not [found for found in scene.auditor.answers if found.is_error]


def wait_until_running(replica: Replica) -> None:
    """Wait until an inference runs."""
    deadline = time.monotonic() + TIMEOUT
    while not replica.metric("inference_worker_inference_running_seconds"):
        assert time.monotonic() < deadline, "nothing runs"
        time.sleep(0.05)
