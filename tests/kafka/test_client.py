"""The client library on a real Kafka with real workers: a program gets its results, whatever dies in between."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from typer.testing import CliRunner

from inference_client import (
    AsyncInferenceClient,
    DeadlineExceeded,
    InferenceClient,
    InvalidArgument,
    NotFound,
    Records,
    Unavailable,
)
from tests.kafka.apicurio import Apicurio
from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import MORTAL, TIMEOUT, Cluster, Sent
from tests.kafka.replica import Replica
from tests.kafka.scene import MODEL, RAW_HEADER, ROWS, WIDTH, Scene, quick_exactly_once
from worker import cli

METADATA: Mapping[str, Any] = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, WIDTH]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
}


def expected(rows: int) -> np.ndarray:
    """ONNX Runtime's own result for the first `rows` rows."""
    (found,) = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"]).run(None, {"x": ROWS[:rows]})
    return np.asarray(found)


def client_of(scene: Scene, **options: Any) -> InferenceClient:
    """A client with the model's signature, unless `options` say otherwise."""
    options = {"signature": METADATA, "timeout": TIMEOUT, **options}
    return InferenceClient(scene.kafka.bootstrap_servers, requests=scene.topic, answers=scene.response_topic, **options)


@pytest.fixture(scope="module")
def scene(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The topics of these tests."""
    with Scene(kafka, tmp_path_factory.mktemp("client")) as scene:
        yield scene


@pytest.fixture(scope="module", autouse=True)
def worker(scene: Scene) -> Replica:
    """The worker that serves them."""
    return scene.replica()


@pytest.mark.parametrize("reply_partition", [None, "any", 3])
@pytest.mark.parametrize("known", [METADATA, None])
def test_results_are_those_of_the_model(scene: Scene, known: Any, reply_partition: Any) -> None:
    """They come in order, with a signature or without, from all partitions or from one; `close` finds nothing left."""
    with client_of(scene, signature=known, reply_partition=reply_partition) as client:
        rows = ({"x": row[None]} for row in ROWS[:2000])
        found = [result["y"] for result in client.map(rows, key=lambda row: row["x"].tobytes()[:4], in_flight=500)]
        closed = client.close()

    np.testing.assert_allclose(np.concatenate(found), expected(2000), rtol=1e-4, atol=1e-5)
    assert (closed.ended, closed.cancelled, client.late, client.repeats) == (0, 0, 0, 0)


def test_errors_come_as_exceptions(scene: Scene, worker: Replica) -> None:
    """Exceptions have the worker's types and the request's place; the client goes on."""
    with client_of(scene, signature=None) as client:
        with pytest.raises(InvalidArgument, match="expected datatype FP32, got 'FP64'") as caught:
            client.infer({"x": ROWS[:1].astype("f8")})
        assert str(caught.value.source).startswith(f"{scene.topic}/")
        worker.suspend()
        with pytest.raises(DeadlineExceeded):
            client.infer({"x": ROWS[:1]}, timeout=0.2)
        worker.resume()
        with pytest.raises(ValueError, match="at most the client's own"):
            client.submit({"x": ROWS[:1]}, timeout=TIMEOUT + 1)
        assert not isinstance(caught.value, NotFound)
        assert client.infer({"x": ROWS[:1]})["y"].shape == (1, 4)


def test_records_are_answered_with_records(kafka: Cluster, tmp_path: Path) -> None:
    """Each dictionary gets the answer to it, in order, and a wrong one gets the path of its field. So with asyncio."""
    settings = {"RECORDS__ANSWER": '{"y": "y", "keep": ["id"]}'}
    record = {"id": 500, "x": ROWS[500].tolist()}
    with Scene(kafka, tmp_path, settings) as scene:
        scene.replica()
        with client_of(scene, signature=None, records=Records()) as client:
            found = list(client.map(({"id": at, "x": row} for at, row in enumerate(ROWS[:500])), in_flight=100))
            with pytest.raises(InvalidArgument, match=r"x\[3\]: expected a number, got a text"):
                client.infer({**record, "x": ["a" if at == 3 else 0.5 for at in range(WIDTH)]})

        async def asked() -> Any:
            async with AsyncInferenceClient(
                kafka.bootstrap_servers, requests=scene.topic, answers=scene.response_topic, records=Records()
            ) as client:
                return await client.infer(record)

        found.append(asyncio.run(asked()))

    assert [answer["id"] for answer in found] == [*range(501)]
    np.testing.assert_allclose([answer["y"] for answer in found], expected(501), rtol=1e-4, atol=1e-5)


def test_a_registrys_own_serializers_write_and_read_records(kafka: Cluster, registry: Apicurio, tmp_path: Path) -> None:
    """The client gets dictionaries and errors, and `consume` shows both as JSON."""
    settings = {
        "RECORDS__ENCODING": "registry",
        "RECORDS__ANSWER": '{"y": "y", "keep": ["id"]}',
        "REGISTRY__URL": registry.url,
    }
    numbers = {"type": "array", "items": ["double", "null"]}
    fields = [{"name": "id", "type": "long"}, {"name": "x", "type": numbers}]
    schema = json.dumps({"type": "record", "name": "Payment", "fields": fields})
    with Scene(kafka, tmp_path, settings) as scene, SchemaRegistryClient({"url": registry.url}) as theirs:
        write, read = AvroSerializer(theirs, schema), AvroDeserializer(theirs)
        of, back = (SerializationContext(topic, MessageField.VALUE) for topic in (scene.topic, scene.response_topic))
        records = Records(write=lambda record: write(record, of), read=lambda value: read(value, back))
        records.write({"id": 0, "x": []})  # registers the schema, which the worker needs at its start
        scene.replica()
        with client_of(scene, signature=None, records=records) as client:
            found = list(client.map({"id": at, "x": row.tolist()} for at, row in enumerate(ROWS[:100])))
            with pytest.raises(InvalidArgument, match=r"x\[1\]: expected a number, got null"):
                client.infer({"id": 100, "x": [0.5, None, *ROWS[0, 2:].tolist()]})
        environ = {f"WORKER_{name}": value for name, value in scene.settings.items()}
        shown = CliRunner().invoke(cli.app, ["consume", "--from-beginning", "--json"], env=environ)

    documents = [json.loads(line) for line in shown.stdout.splitlines()]
    answers = {each["record"]["id"]: each["record"] for each in documents if "record" in each}
    assert [answer["id"] for answer in found] == [*range(100)]
    np.testing.assert_allclose([answer["y"] for answer in found], expected(100), rtol=1e-4, atol=1e-5)
    assert answers == {answer["id"]: answer for answer in found}
    assert [each["error"] for each in documents if "error" in each] == ["x[1]: expected a number, got null"]


@pytest.mark.parametrize("role", ["requests", "answers"])
def test_a_topic_that_is_deleted_is_named(kafka: Cluster, role: str) -> None:
    """Kafka's clients do not report it: the producer waits for the topic to come back, the consumer for records."""
    topics = {name: kafka.create_topic(name) for name in ("requests", "answers")}
    with InferenceClient(kafka.bootstrap_servers, requests=topics["requests"], answers=topics["answers"]) as client:
        kafka.delete_topic(topics[role])
        kafka.wait_until_gone(topics[role])

        with pytest.raises(DeadlineExceeded, match=f"in 1 s: the topic {topics[role]} does not exist any more"):
            client.infer({"x": ROWS[:1]}, timeout=1.0)


@pytest.mark.parametrize("role", ["request", "answer"])
def test_a_topic_that_is_not_there_is_said(scene: Scene, role: str) -> None:
    """The error names the topic and the command that makes it, after the wait for a topic that is just being made."""
    topics = {"requests": scene.topic, "answers": scene.response_topic, f"{role}s": "nowhere"}

    with pytest.raises(Unavailable, match=f"{role} topic nowhere does not exist, asked for 2 s; .* check --create-"):
        InferenceClient(scene.kafka.bootstrap_servers, timeout=2.0, **topics)  # type: ignore[arg-type]  # of any name


def test_a_worker_answers_a_place_that_cannot_be_as_any_mistake(scene: Scene) -> None:
    """The worker goes on, and so do its other requesters."""
    answers = scene.kafka.end_offsets(scene.response_topic)
    bad = [[("reply-partition", b"99")], [("reply-topic", b"elsewhere")], [("kafka_replyPartition", b"\0\0\0\x63")]]
    scene.kafka.produce(scene.topic, [Sent(b"k", ROWS[0].tobytes(), [RAW_HEADER, *headers]) for headers in bad])

    with client_of(scene) as client:
        assert client.infer(ROWS[0])["y"].shape == (1, 4)
        deadline = time.monotonic() + TIMEOUT
        while sum(scene.kafka.end_offsets(scene.response_topic).values()) < sum(answers.values()) + 4:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_answers_go_to_a_topic_that_is_allowed(kafka: Cluster, tmp_path: Path) -> None:
    """The response topic's readers do not get them; Spring's headers work, too."""
    replies = kafka.create_topic("replies", partitions=2)
    with Scene(kafka, tmp_path, {"KAFKA__REPLY_TOPICS": replies}) as scene:
        scene.replica()
        with InferenceClient(
            kafka.bootstrap_servers, requests=scene.topic, answers=replies, signature=METADATA, reply_partition=1
        ) as client:
            found = client.infer(ROWS[:5])["y"]
        spring = [("kafka_replyTopic", replies.encode()), ("kafka_replyPartition", b"\0\0\0\0")]
        kafka.produce(scene.topic, [Sent(b"k", ROWS[0].tobytes(), [RAW_HEADER, *spring])])

        assert sorted(read.partition for read in kafka.read(replies, 2)) == [0, 1]
        assert sum(kafka.end_offsets(scene.response_topic).values()) == 0
    np.testing.assert_allclose(found, expected(5), rtol=1e-4, atol=1e-5)


def test_tasks_share_a_client_and_the_loop_goes_on(scene: Scene) -> None:
    """There are more tasks than places; a cancelled task gives up its place, and the loop ticks meanwhile."""

    async def main() -> tuple[np.ndarray, float]:
        slowest = 0.0

        async def tick() -> None:
            nonlocal slowest
            while True:
                began = time.monotonic()
                await asyncio.sleep(0.01)
                slowest = max(slowest, time.monotonic() - began)

        async with AsyncInferenceClient(
            scene.kafka.bootstrap_servers,
            requests=scene.topic,
            answers=scene.response_topic,
            signature=METADATA,
            in_flight=50,
        ) as client:
            ticking = asyncio.create_task(tick())
            given_up = asyncio.create_task(client.infer(ROWS[0]))
            await asyncio.sleep(0)
            given_up.cancel()
            found = await asyncio.gather(*(client.infer(row) for row in ROWS[:500]))
            ticking.cancel()
            assert client.client.under_way == 0
        return np.concatenate([result["y"] for result in found]), slowest

    found, slowest = asyncio.run(main())

    np.testing.assert_allclose(found, expected(500), rtol=1e-4, atol=1e-5)
    assert slowest < 10.0  # a blocked loop would stand still for as long as a request takes to time out: 30 s


@quick_exactly_once
def test_a_worker_that_is_killed_costs_no_future(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Killed twice under load and replaced: each result is right, and exactly once nothing is repeated."""
    with Scene(kafka, tmp_path, guarantee=guarantee, session=MORTAL) as scene:
        first, _ = scene.replicas(2)
        with client_of(scene, timeout=2 * TIMEOUT, in_flight=2000, reply_partition="any") as client:
            futures = [client.submit(row, key=b"%d" % (at % 97)) for at, row in enumerate(ROWS[:1500])]
            first.kill()
            futures += [client.submit(row, key=b"%d" % (at % 97)) for at, row in enumerate(ROWS[1500:3000])]
            scene.start().wait_until_ready()
            found = np.concatenate([future.result(3 * TIMEOUT)["y"] for future in futures])

    np.testing.assert_allclose(found, expected(3000), rtol=1e-4, atol=1e-5)
    assert client.late == 0
    assert guarantee == "at_least_once" or client.repeats == 0


def test_a_broker_that_is_restarted_costs_no_future(hurt_broker: JvmBroker, tmp_path: Path) -> None:
    """Requests wait in the client until the broker is back; if that takes too long they time out."""
    kafka = Cluster(hurt_broker.bootstrap_servers)
    kafka.wait_until_coordinating()
    with Scene(kafka, tmp_path, session=MORTAL) as scene:
        scene.replica()
        with client_of(scene, timeout=2 * TIMEOUT) as client:
            before = [client.submit(row) for row in ROWS[:200]]
            hurt_broker.kill()
            during = [client.submit(row) for row in ROWS[200:400]]
            short = client.submit(ROWS[0], timeout=0.5)
            assert isinstance(short.exception(TIMEOUT), DeadlineExceeded)
            hurt_broker.start()
            found = np.concatenate([future.result(3 * TIMEOUT)["y"] for future in before + during])

    np.testing.assert_allclose(found, expected(400), rtol=1e-4, atol=1e-5)


def test_partitions_that_are_added_to_the_answers_are_read(kafka: Cluster) -> None:
    """A worker started since then uses the new partitions; here the test answers."""
    requests, answers = kafka.create_topic("requests", partitions=1), kafka.create_topic("answers", partitions=1)
    with InferenceClient(
        kafka.bootstrap_servers, requests=requests, answers=answers, signature=METADATA, timeout=TIMEOUT
    ) as client:
        future = client.submit(ROWS[0])
        (request,) = kafka.read(requests, 1)
        admin = AdminClient(dict(kafka.login))
        admin.create_partitions([NewPartitions(answers, 3)])[answers].result(TIMEOUT)
        while len(admin.list_topics(answers, timeout=TIMEOUT).topics[answers].partitions) < 3:
            time.sleep(0.02)  # the controller has them; the broker hears of it a moment later and refuses the record
        headers = [("status", b"ok"), ("request-id", dict(request.headers)["request-id"])]
        kafka.produce(answers, [Sent(None, bytes(16), headers, partition=2)])

        assert future.result(TIMEOUT)["y"].tolist() == [[0.0, 0.0, 0.0, 0.0]]


PROGRAM = """
import os, sys, threading
import numpy as np
from inference_client import *
client = InferenceClient({bootstrap!r}, requests={requests!r}, answers={answers!r}, timeout=60.0)
future = client.submit({{"x": np.zeros((1, {width}), "f4")}})
"""


def program(scene: Scene, rest: str, interrupt: bool = False) -> tuple[int, str]:  # noqa: FBT001  # a test's own
    """Run a program with a client and a future; return its exit code and output."""
    start = PROGRAM.format(
        bootstrap=scene.kafka.bootstrap_servers, requests=scene.topic, answers=scene.response_topic, width=WIDTH
    )
    command = [sys.executable, "-c", start + textwrap.dedent(rest)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        if interrupt:
            assert running.stdout is not None
            assert running.stdout.readline() == "waits\n"
            running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=TIMEOUT)
    finally:
        running.kill()
        running.wait()
    return running.returncode, out


@pytest.fixture(scope="module")
def idle(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Topics without a worker."""
    with Scene(kafka, tmp_path_factory.mktemp("idle")) as scene:
        yield scene


def test_a_program_may_be_interrupted_while_it_waits(idle: Scene) -> None:
    """Ctrl-C in `result` leaves the `with` block at once."""
    code, out = program(
        idle,
        """
        try:
            with client:
                print("waits", flush=True)
                future.result()
        except KeyboardInterrupt:
            print("cancelled" if future.cancelled() else "lost")
        """,
        interrupt=True,
    )

    assert (code, out) == (0, "cancelled\n")


def test_a_forked_process_needs_a_client_of_its_own(idle: Scene) -> None:
    """The parent's client says so in the child; closing it there does nothing, and the parent keeps its futures."""
    code, out = program(
        idle,
        """
        child = os.fork()
        if child == 0:
            try:
                client.submit({"x": [[0.0]]})
            except ClientClosed as error:
                print("which this one was forked from" in str(error), client.close(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(future.done(), client.close(cancel=True))
        """,
    )

    assert code == 0
    assert out.splitlines() == ["True Closed(ended=0, cancelled=0)", "False Closed(ended=0, cancelled=1)"]


def test_a_forgotten_client_ends_its_thread(scene: Scene) -> None:
    """The thread ends only after the client's futures."""
    future = client_of(scene).submit(ROWS[0])

    assert future.result(TIMEOUT)["y"].shape == (1, 4)
    del future
    deadline = time.monotonic() + TIMEOUT
    while any(thread.name == "inference-client" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
