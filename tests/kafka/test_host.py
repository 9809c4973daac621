"""The process that has the model dies, hangs or takes too much memory: one record pays for it, and no other waits.

The worker stays in its group all the while. Its host never outlives it.
"""

from __future__ import annotations

import json
import os
import platform
import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.kafka.checker import Answer
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.replica import Replica, is_alive
from tests.kafka.scene import (
    RAW_HEADER,
    Scene,
    quick_at_least_once,
    quick_exactly_once,
    wait_until_running,
)
from tests.kafka.spins import spin
from tests.models import greedy, killed_at_start, least_divided, save, spinner

LEAST = -(2**63)
traps = pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors divide without a trap")
LIMIT = 384 << 20  # bytes of a host's memory: the model needs a fifth of it
HOSTILE = {
    "MODEL__PATH": str(Path(__file__).parents[1] / "python_models" / "hostile.py"),
    "MODEL__DEVICE": "auto",  # a model in Python chooses its own
}
# The begin of a row for the hostile model, and the answer to its record.
HARMS = {
    666: ("INTERNAL", b"SIGSEGV"),
    667: ("INTERNAL", b"3"),
    668: ("INTERNAL", b"RUN_TIMEOUT_S"),
    669: ("INTERNAL", b"RUN_TIMEOUT_S"),
    670: ("RESOURCE_EXHAUSTED", b"memory"),
    671: ("INVALID_ARGUMENT", b"671"),
    672: ("INTERNAL", b"672"),
    673: ("INTERNAL", b"SIGSEGV"),
    674: ("INTERNAL", b"RecursionError"),
}
GONE_WITHIN = 5.0  # seconds until a host has ended with its worker; the kernel needs none


def number(value: int, key: bytes = b"k", partition: int = -1) -> Sent:
    """A request of one INT64."""
    return Sent(key, np.int64(value).tobytes(), [RAW_HEADER], partition)


def row(first: float, key: bytes = b"k") -> Sent:
    """A request of four FP32 for the hostile model."""
    return Sent(key, np.array([first, 1, 2, 3], np.float32).tobytes(), [RAW_HEADER])


def record(n: int, key: bytes, **asked: int) -> Sent:
    """A record for the hostile functions."""
    return Sent(key, json.dumps({"n": n, **asked}).encode(), [])


def around(bad: Sequence[Sent], good: int = 100) -> list[Sent]:
    """The bad requests in the middle of partition 0, with good divisors before and after, and in partition 1."""
    requests = [number(n, b"k%d" % n, partition) for partition in (0, 1) for n in range(1, good + 1)]
    requests[good // 2 : good // 2] = [sent._replace(partition=0) for sent in bad]
    return requests


@contextmanager
def undisturbed(scene: Scene, replica: Replica) -> Iterator[None]:
    """Fail the test unless the replica keeps its partitions meanwhile, does not exit, and then ends with 0."""
    before = rebalances(replica)
    yield
    assert replica.is_running, replica.log
    assert rebalances(replica) == before, replica.log
    scene.expect_kept()
    host = replica.host
    replica.terminate()
    assert replica.exit_code() == 0, replica.log
    expect_gone(host)


def rebalances(replica: Replica) -> int:
    """The number of times that it said that its partitions changed."""
    return sum(replica.whole_log.count(f"partitions_{how}") for how in ("assigned", "revoked", "lost"))


def expect_gone(*hosts: int) -> None:
    """Fail the test unless these processes end in time."""
    deadline = time.monotonic() + GONE_WITHIN
    while alive := [host for host in hosts if is_alive(host)]:
        assert time.monotonic() < deadline, f"{alive} outlived the worker"
        time.sleep(0.01)


def expect_refused(scene: Scene, keys: Sequence[bytes], why: bytes, code: str = "INTERNAL") -> None:
    """Fail the test unless these requests alone got an error, with this code and text, and a dead letter each."""
    errors = [found for found in scene.answers() if found.is_error]
    assert sorted(found.key or b"" for found in errors) == sorted(keys)
    for found in errors:
        assert found.headers["error-code"] == code
        assert why in (found.value or b""), found.value
    assert sorted(letter.key or b"" for letter in scene.dead_letters(len(keys))) == sorted(keys)


def expect_quotients(scene: Scene, answers: Sequence[Answer]) -> None:
    """Fail the test unless each answer that is no error is the quotient."""
    for found in answers:
        assert found.source is not None
        if not found.is_error:
            divisor = int(np.frombuffer(scene.acknowledged[found.source].value or b"", "<i8")[0])
            assert np.frombuffer(found.value or b"", "<i8")[0] == -(-LEAST // divisor), found


@traps
@quick_exactly_once
def test_a_record_that_crashes_the_model_is_answered_and_nobody_else_notices(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """It gets INTERNAL with the signal's name, and a dead letter. All others get their quotients from a new host."""
    with Scene(kafka, tmp_path, guarantee=guarantee, model=least_divided(), partitions=2) as scene:
        replica = scene.replica()
        first = replica.host
        with undisturbed(scene, replica):
            scene.publish(around([number(-1, b"bad")]))

            expect_refused(scene, [b"bad"], b"SIGFPE")
            expect_quotients(scene, scene.auditor.answers)
            assert not is_alive(first)


@quick_exactly_once
def test_a_record_that_hangs_is_answered_and_nobody_else_notices(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """Its host is killed after RUN_TIMEOUT_S, and the record's error names that limit."""
    requests = [spin(0.0001)._replace(key=b"k%d" % n) for n in range(60)]
    requests.insert(30, spin(1e6)._replace(key=b"hangs"))
    with Scene(
        kafka, tmp_path, {"MODEL__RUN_TIMEOUT_S": "1"}, guarantee=guarantee, model=spinner(), partitions=1
    ) as scene:
        replica = scene.replica()
        with undisturbed(scene, replica):
            scene.publish(requests)

            expect_refused(scene, [b"hangs"], b"RUN_TIMEOUT_S")


@quick_exactly_once
def test_a_record_that_takes_all_memory_is_answered_and_nobody_else_notices(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """MODEL__MEMORY_LIMIT stops it in the host: the worker's container is never short of memory."""
    settings = {"MODEL__MEMORY_LIMIT": str(LIMIT)}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=greedy(), partitions=2) as scene:
        replica = scene.replica()
        with undisturbed(scene, replica):
            scene.publish(around([number(2 * LIMIT, b"greedy")]))

            expect_refused(scene, [b"greedy"], b"memory", code="RESOURCE_EXHAUSTED")


@quick_exactly_once
@pytest.mark.parametrize("kills", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_hosts_killed_every_second_cost_no_answer(kafka: Cluster, tmp_path: Path, guarantee: str, kills: int) -> None:
    """Two workers on one machine under load: nothing is lost, wrong, out of order, refused or repeated."""
    with Scene(kafka, tmp_path, guarantee=guarantee) as scene:
        replicas = scene.replicas(2)
        before = [rebalances(replica) for replica in replicas]
        with scene.publishing(rate=500.0) as load:
            for _ in range(kills):
                started = [replica.whole_log.count("model_host_started") for replica in replicas]
                for replica in replicas:
                    replica.kill_host()
                time.sleep(random.uniform(0.0, 1.0))
                for replica, count in zip(replicas, started, strict=True):  # three that never begin are a broken model
                    replica.wait_until_logged_more("model_host_started", count)
            scene.wait_for_progress(20)
            load.stop()

        scene.expect_kept()
        scene.expect_right_values()
        assert not [found for found in scene.auditor.answers if found.is_error]
        assert [rebalances(replica) for replica in replicas] == before
        for replica in replicas:
            host = replica.host
            replica.terminate()
            assert replica.exit_code() == 0, replica.log
            expect_gone(host)


@quick_at_least_once
def test_every_harm_that_a_python_model_does_costs_one_record(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """It crashes, exits, hangs with and without the interpreter's lock, is greedy, or raises: all in one batch."""
    settings = {**HOSTILE, "MODEL__RUN_TIMEOUT_S": "2", "MODEL__MEMORY_LIMIT": str(LIMIT)}
    requests = [row(float(n), b"k%d" % n) for n in range(24)]
    for at, harm in enumerate(HARMS):
        requests.insert(3 * at, row(harm, b"%d" % harm))
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, partitions=1) as scene:
        replica = scene.replica()
        with undisturbed(scene, replica):
            scene.publish(requests)

            errors = {found.key: found for found in scene.answers() if found.is_error}
            assert {int(key or b""): found.headers["error-code"] for key, found in errors.items()} == {
                harm: code for harm, (code, _) in HARMS.items()
            }
            for harm, (_, why) in HARMS.items():
                assert why in (errors[b"%d" % harm].value or b""), errors[b"%d" % harm].value
            for found in scene.auditor.answers:
                if not found.is_error and found.source is not None:
                    asked = np.frombuffer(scene.acknowledged[found.source].value or b"", "<f4")
                    assert (np.frombuffer(found.value or b"", "<f4") == 2 * asked).all()


@quick_exactly_once
def test_every_harm_that_functions_of_records_do_costs_one_record(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """They do it before the model runs or after, in one batch with records that get their answers."""
    functions = str(Path(HOSTILE["MODEL__PATH"]).with_name("hostile_functions.py"))
    limits = {"MODEL__RUN_TIMEOUT_S": "2", "MODEL__MEMORY_LIMIT": str(LIMIT)}
    requests = [record(n, b"k%d" % n) for n in range(24)]
    for at, harm in enumerate(HARMS):
        requests.insert(3 * at, record(harm, b"%d" % harm, **{"inputs" if at % 2 else "answer": harm}))
    settings = {**HOSTILE, **limits, "RECORDS__FUNCTIONS": functions}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, partitions=1) as scene:
        replica = scene.replica()
        with undisturbed(scene, replica):
            scene.publish(requests)

            found = {answer.key: answer for answer in scene.answers()}
            for harm, (code, why) in HARMS.items():
                error = found.pop(b"%d" % harm)
                assert error.headers["error-code"] == code
                assert why in (error.value or b""), error.value
            assert {key: json.loads(answer.value or b"") for key, answer in found.items()} == {
                b"k%d" % n: {"n": n, "twice": 2.0 * n} for n in range(24)
            }


@pytest.mark.parametrize("harm", [None, 668, 669])
def test_no_host_outlives_a_killed_worker(kafka: Cluster, tmp_path: Path, harm: float | None) -> None:
    """kill -9 leaves no process behind, whether the host waits or hangs, also with the interpreter's lock."""
    with Scene(kafka, tmp_path, HOSTILE, partitions=1) as scene:
        replica = scene.replica()
        host = replica.host
        if harm is not None:
            scene.publish([row(harm)])
            wait_until_running(replica)

        replica.kill()

        expect_gone(host)
        scene.acknowledged.clear()


@traps
def test_a_model_that_crashes_in_its_first_warm_up_ends_the_worker(kafka: Cluster, tmp_path: Path) -> None:
    """The worker never begins, and says which signal ended the host."""
    with Scene(kafka, tmp_path, model=killed_at_start(), partitions=1) as scene:
        replica = scene.start()

        assert replica.exit_code() == 5, replica.log
        assert "SIGFPE" in replica.log
        assert "Traceback" not in replica.log


@traps
@quick_exactly_once
def test_a_model_that_does_not_start_again_ends_the_worker(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Exit 5 after three hosts that died in their warm-up. What came meanwhile stays unanswered and uncommitted."""
    with Scene(kafka, tmp_path, guarantee=guarantee, model=least_divided(), partitions=1) as scene:
        replica = scene.replica()
        scene.publish([number(n) for n in range(1, 21)])
        scene.answers()
        scene.expect_all_committed()

        save(killed_at_start(), tmp_path)
        replica.kill_host()
        scene.publish([number(n) for n in range(1, 21)])

        assert replica.exit_code() == 5, replica.log
        assert "SIGFPE" in replica.log
        assert len(scene.auditor.answers) == 20
        assert scene.committed() == {0: 20}
        save(least_divided(), tmp_path)
        scene.replica()
        scene.expect_kept()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_whole_group_of_processes_is_a_clean_stop(
    kafka: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C, a service manager and a closed terminal reach the host as well: its running batch is answered."""
    with Scene(kafka, tmp_path, model=spinner(), partitions=1) as scene:
        replica = scene.replica()
        host = replica.host
        scene.publish([spin(1.0)])
        wait_until_running(replica)

        replica.signal_all(number)

        assert replica.exit_code() == 0, replica.log
        scene.expect_kept()
        assert not [found for found in scene.auditor.answers if found.is_error]
        expect_gone(host)


@quick_at_least_once
def test_a_host_that_stands_still_is_replaced(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """SIGSTOP to the host alone: its run counts as hung after RUN_TIMEOUT_S, and the next one answers it."""
    settings = {"MODEL__RUN_TIMEOUT_S": "2"}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=spinner(), partitions=1) as scene:
        replica = scene.replica()
        with undisturbed(scene, replica):
            os.kill(replica.host, signal.SIGSTOP)
            scene.publish([spin(0.001)._replace(key=b"k%d" % n) for n in range(5)])

            assert not [found for found in scene.answers() if found.is_error]
