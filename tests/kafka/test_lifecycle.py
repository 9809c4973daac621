"""A worker starts, refuses to start, and ends with the right exit codes, in time, and visibly for an operator."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kafka.broker import JvmBroker, free_port
from tests.kafka.cluster import MORTAL, NEVER_DEAD, TIMEOUT, Cluster, Sent, fresh
from tests.kafka.replica import Replica, cpu_seconds
from tests.kafka.scene import RAW_HEADER, Scene, quick_at_least_once, quick_exactly_once, raw, wait_until_running
from tests.kafka.spins import spin, turns
from tests.models import fixed_batch, identity, save, slow_lookup, spinner


@pytest.mark.parametrize(
    ("protocol", "guarantee", "brief"),
    [
        ("consumer", "at_least_once", 0),
        ("consumer", "exactly_once", 200),
        ("classic", "at_least_once", 200),
        pytest.param("classic", "exactly_once", 0, marks=pytest.mark.slow),
    ],
)
def test_a_hung_inference_ends_the_worker_which_leaves_its_group(
    kafka: Cluster, tmp_path: Path, protocol: str, guarantee: str, brief: int
) -> None:
    """Where the model is in its process: exit 3 after RUN_TIMEOUT_S, and the hung request is neither answered nor
    committed; earlier ones are. Other members need not wait for its session. It hangs in a lane, or on the loop's
    thread after brief inferences.
    """
    settings = {"MODEL__HOST": "thread", "MODEL__RUN_TIMEOUT_S": "2", "KAFKA__GROUP_PROTOCOL": protocol}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=spinner(), partitions=1) as scene:
        replica = scene.replica()
        scene.publish([spin(1e-5)] * brief)
        scene.answers()

        began = time.monotonic()
        scene.publish([spin(1e6)])

        assert replica.exit_code() == 3, replica.log
        assert time.monotonic() - began > 2.0
        scene.wait_for_members(0, NEVER_DEAD - 15.0)
        assert sum(scene.committed().values()) == brief
        assert len(scene.auditor.answers) == brief


@quick_at_least_once
def test_a_stop_is_heard_while_a_warm_up_hangs(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """It holds nothing yet and ends at once with 0. Until then it counts as alive, whatever RUN_TIMEOUT_S says."""
    settings = {"MODEL__RUN_TIMEOUT_S": "1"}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=slow_lookup(10**12), partitions=1) as scene:
        replica = scene.start()
        while "cluster_examined" not in replica.log:
            time.sleep(0.05)
        host = replica.host
        spent = cpu_seconds(host)
        while cpu_seconds(host) < spent + 2.0:
            time.sleep(0.05)
        assert replica.status("/healthz") == 200

        replica.terminate()

        assert replica.exit_code() == 0, replica.log
        assert "asked to before it began; nothing was taken" in replica.log


def test_a_stop_is_heard_while_no_broker_answers(tmp_path: Path) -> None:
    """Without the stop the start would ask for 15 s, and end with 2."""
    settings = {
        "KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}",
        "KAFKA__REQUEST_TOPICS": "requests",
        "KAFKA__RESPONSE_TOPIC": "answers",
        "KAFKA__GROUP_ID": "group",
        "MODEL__PATH": str(save(identity(), tmp_path)),
    }
    with Replica(settings, tmp_path) as replica:
        while replica.status("/healthz") != 200:
            time.sleep(0.05)

        replica.terminate()

        assert replica.exit_code() == 0, replica.log


@quick_at_least_once
def test_a_long_bisect_is_no_hang(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Dozens of runs together take longer than the timeout: each run is short, so the watchdog is content."""
    settings = {"MODEL__RUN_TIMEOUT_S": "2", "BATCHING__LINGER_MS": "200"}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=slow_lookup(turns(0.1)), partitions=1) as scene:
        replica = scene.replica()
        ids = [11 if n % 4 == 3 else n % 4 for n in range(32)]

        began = time.monotonic()
        scene.publish([Sent(b"k", np.int64(i).tobytes(), [RAW_HEADER]) for i in ids])

        scene.verdict(2 * TIMEOUT).expect_clean()
        assert time.monotonic() - began > 2.0, "the bisect was too short to prove anything"
        assert [found.is_error for found in scene.answers()] == [i == 11 for i in ids]
        assert replica.is_running


def expect_running_inferences_to_finish(
    kafka: Cluster, folder: Path, guarantee: str, tell: Callable[[Replica], None]
) -> None:
    """Fail the test unless three requests, taken before `tell`, are answered and committed; exit 0."""
    settings = {"DELIVERY__DRAIN_TIMEOUT_S": "60"}  # 2.4 s of a core
    with Scene(kafka, folder, settings, guarantee=guarantee, model=spinner(), partitions=1) as scene:
        replica = scene.replica()
        scene.publish([spin(0.8)] * 3)
        replica.wait_until_taken(3)

        tell(replica)

        assert replica.exit_code(2 * TIMEOUT) == 0, replica.log
        assert len(scene.answers()) == 3
        scene.expect_all_committed(timeout=0.0)


@quick_exactly_once
def test_sigterm_lets_a_running_inference_finish(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Taken requests are answered and committed; exit 0."""
    expect_running_inferences_to_finish(kafka, tmp_path, guarantee, Replica.terminate)


@quick_exactly_once
def test_a_terminal_that_closes_lets_a_running_inference_finish(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Kernel and shell each send a signal, and neither counts as the second one that hurries."""

    def close_terminal(replica: Replica) -> None:
        replica.hang_up()
        replica.wait_until_logged("stop_asked")
        replica.hang_up()

    expect_running_inferences_to_finish(kafka, tmp_path, guarantee, close_terminal)


@quick_at_least_once
def test_a_second_sigterm_ends_the_worker_at_once(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """The exit code is not 0, the inference has not ended, and nothing unanswered is committed."""
    settings = {"DELIVERY__DRAIN_TIMEOUT_S": "600"}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=spinner(), partitions=1) as scene:
        replica = scene.replica()
        scene.publish([spin(1000.0)])
        wait_until_running(replica)
        replica.terminate()
        replica.wait_until_logged("stop_asked")
        assert replica.is_running

        replica.terminate()

        assert replica.exit_code() == 3, replica.log
        assert not any(scene.committed().values()), "it is marked where it begins, and no further"


@quick_exactly_once
def test_a_drain_that_takes_too_long_is_given_up(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Exit 3 at DRAIN_TIMEOUT_S, with nothing unanswered committed."""
    with Scene(
        kafka, tmp_path, {"DELIVERY__DRAIN_TIMEOUT_S": "1"}, guarantee=guarantee, model=spinner(), partitions=1
    ) as scene:
        replica = scene.replica()
        scene.publish([spin(1000.0)])
        wait_until_running(replica)

        began = time.monotonic()
        replica.terminate()

        assert replica.exit_code() == 3, replica.log
        assert time.monotonic() - began >= 1.0
        assert not any(scene.committed().values()), "it is marked where it begins, and no further"


@quick_at_least_once
def test_an_idle_worker_stops_at_once(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """SIGTERM without records in flight: exit 0 without any wait, and it leaves the group."""
    settings = {"DELIVERY__DRAIN_TIMEOUT_S": "600"}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, partitions=1) as scene:
        replica = scene.replica()

        replica.terminate()

        assert replica.exit_code() == 0, replica.log
        scene.wait_for_members(0)


@quick_at_least_once
def test_sigterm_before_it_is_ready_stops_it_too(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """A worker stopped after any step of its start ends soon, without a traceback, and loses nothing."""
    with Scene(kafka, tmp_path, guarantee=guarantee, model=slow_lookup(turns(0.1)), partitions=1) as scene:
        scene.publish([Sent(b"k", np.int64(n % 4).tobytes(), [RAW_HEADER]) for n in range(40)])
        for step in ("", "http_listening", "cluster_examined", "model_warmed", "partitions_assigned"):
            replica = scene.start()
            time.sleep(0.2)  # the first step, loading modules, logs nothing
            replica.wait_until_logged(step)

            replica.terminate()

            assert replica.exit_code() in (0, -15, 143), replica.log
            assert "Traceback" not in replica.log
        scene.start()

        scene.verdict().expect_clean()


def test_a_worker_can_be_stopped_while_the_broker_is_away(hurt_broker: JvmBroker, tmp_path: Path) -> None:
    """SIGTERM ends it by the drain's deadline; the next worker answers the rest, and nothing is lost."""
    settings = {"DELIVERY__DRAIN_TIMEOUT_S": "2"}
    with Scene(Cluster(hurt_broker.bootstrap_servers), tmp_path, settings, partitions=1, session=MORTAL) as scene:
        replica = scene.replica()
        with scene.publishing(1000.0) as load:
            scene.wait_for_progress(100)
            hurt_broker.kill()
            time.sleep(0.5)

            replica.terminate()
            code = replica.exit_code()

            assert code in (0, 3), replica.log
            hurt_broker.start()
            scene.replica()
            load.stop()

        scene.verdict().expect_clean(repeats=2000)
        scene.expect_right_values()


@quick_exactly_once
def test_so_many_rejections_in_a_row_stop_the_worker_when_asked(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """With REJECTION_LIMIT=5 the fifth rejection in a row ends it: exit 6."""
    with Scene(kafka, tmp_path, {"DELIVERY__REJECTION_LIMIT": "5"}, guarantee=guarantee, partitions=1) as scene:
        replica = scene.replica()

        scene.publish([raw(0, key=b"k"), *[Sent(b"k", b"odd", [RAW_HEADER])] * 5])

        assert replica.exit_code() == 6, replica.log


def test_a_mistake_in_the_settings_is_one_clear_line(kafka: Cluster, tmp_path: Path) -> None:
    """Exit 2 before it joins the group, with a line that names the mistake, and no traceback."""
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"this is no model")
    wrong = {
        "absent": {"KAFKA__DEAD_LETTER_TOPIC": fresh("absent")},
        "absent.onnx": {"MODEL__PATH": str(tmp_path / "absent.onnx")},
        "junk.onnx": {"MODEL__PATH": str(junk)},
        "dynamic": {"MODEL__PATH": str(save(fixed_batch(), tmp_path, "fixed"))},
        "sha": {"MODEL__SHA256": "0" * 64},
        "max_batch_size": {"BATCHING__MAX_BATCH_SIZE": "many"},
        "no.such.key": {"KAFKA__CONFIG": '{"no.such.key": "1"}'},
    }
    with Scene(kafka, tmp_path, partitions=1) as scene:
        replicas = {says: scene.start(settings) for says, settings in wrong.items()}

        for says, replica in replicas.items():
            assert replica.exit_code(60.0) == 2, replica.log
            lines = [line for line in replica.log.splitlines() if line.startswith("inference-worker: ")]
            assert len(lines) == 1, replica.log
            assert says in lines[0].lower(), replica.log
            assert "Traceback" not in replica.log


def _any_total(replica: Replica, count: int) -> bool:
    """True once some counter stands at `count`; the snapshot of the metrics may come late."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        families = text_string_to_metric_families(replica.text("/metrics"))
        if any(s.value == count for family in families if family.type == "counter" for s in family.samples):
            return True
        time.sleep(0.05)
    return False


def test_logs_and_metrics_tell_how_it_works_and_nothing_that_a_request_held(kafka: Cluster, tmp_path: Path) -> None:
    """Metrics have Prometheus's format and move; payloads, keys and header values stay out of both, even at DEBUG."""
    headers = [RAW_HEADER, ("correlation-id", b"hidden-correlation"), ("hidden-name", b"1")]
    bad = Sent(b"hidden-key", b'{"hidden-payload": ', [("content-type", b"application/json"), *headers[1:]])
    with Scene(kafka, tmp_path, {"TELEMETRY__LOG_LEVEL": "DEBUG"}, partitions=1) as scene:
        replica = scene.replica()

        scene.publish([*[Sent(b"hidden-key", raw(0).value, headers)] * 500, bad])
        scene.verdict().expect_clean()

        assert (replica.status("/healthz"), replica.status("/readyz")) == (200, 200)
        assert replica.status("/nothing") == 404
        assert _any_total(replica, 501), replica.text("/metrics")
        metrics = replica.text("/metrics")
        replica.terminate()
        assert replica.exit_code() == 0
        assert "hidden" not in metrics
        assert "hidden" not in replica.log
