"""State by key: what it costs beside a model without, and how long a partition takes to be restored.

python -m tests.bench.states serve              rows/s and CPU a row of a small model without and with state, in turn
python -m tests.bench.states restore 1000000    seconds and memory for so many states of 256 bytes
python -m tests.bench.states restart 1000000    seconds until a worker is ready, after a clean stop and after a kill
python -m tests.bench.states takeover 1000000   seconds until another replica serves, after a kill and a clean stop
python -m tests.bench.states peers              rows/s of the worker, of a loop key by key, and of Quix Streams
python -m tests.bench.states hot                latencies without and with a key that is a third of all requests
python -m tests.bench.states store 1000000      64 states read and written in the local store, one by one and at once

With `--in-memory 100000` the states are in a directory, too, and so many keys in memory.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from confluent_kafka import Producer
from onnx import helper, numpy_helper

from tests.bench.local_states import LocalStates, layout_of
from tests.bench.loops.task import Task
from tests.bench.measuring.running import PEERS_PYTHON, ROOT
from tests.kafka.broker import any_broker
from tests.kafka.cluster import MORTAL, Cluster, Sent, fresh
from tests.kafka.publisher import SteadyPublisher
from tests.kafka.replica import Replica, cpu_seconds, loop_seconds
from tests.kafka.scene import Scene
from tests.models import gru
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Partition
from worker.kafka import ChangelogRestorer
from worker.settings import Connection, load
from worker.state import KeyStates, StateLayout
from worker.stores import LocalStore
from worker.tools.kafka.reader import Reader

ROWS = ("content-type", b"application/octet-stream")
COMPACTED = {"cleanup.policy": "compact"}
PORTION = 10_000
GUARANTEES = ("exactly_once", "at_least_once")
WINDOW = 8.0  # seconds of a measurement


def without_state(model: bytes, inputs: int = 4, hidden: int = 16) -> bytes:
    """The same network, whose state is always zeros: as dear to run."""
    made = onnx.load_from_string(model)
    graph = made.graph
    graph.input.remove(next(value for value in graph.input if value.name == "h_in"))
    graph.output.remove(next(value for value in graph.output if value.name == "h_out"))
    graph.initializer.append(numpy_helper.from_array(np.zeros((inputs, hidden), np.float32), "zeros"))
    graph.node.insert(0, helper.make_node("MatMul", ["x", "zeros"], ["h_in"]))
    return bytes(made.SerializeToString())


class Pace(NamedTuple):
    """Rows a second; and microseconds of CPU a row, of the worker and of its loop alone."""

    rate: float
    cpu: float
    loop: float


def pace_with(kafka: Cluster, guarantee: str, requests: Sequence[Sent], more: Mapping[str, str] | None) -> Pace:
    """Of a backlog; `more` are settings of a model with state, None for one without."""
    settings = {"BATCHING__MAX_BATCH_SIZE": "64", "DELIVERY__GUARANTEE": guarantee}
    model = without_state(gru()) if more is None else gru()
    with tempfile.TemporaryDirectory() as folder, Scene(kafka, Path(folder), settings, model=model) as scene:
        if more is not None:
            scene.settings |= {"STATE__TENSORS": '{"h_in": "h_out"}', **more}
            scene.settings["KAFKA__CHANGELOG_TOPIC"] = kafka.create_topic("states", partitions=4, config=COMPACTED)
        if more:
            scene.settings["STATE__DIRECTORY"] = f"{folder}/states"
        return pace_of_backlog(scene, requests)


def pace_of_backlog(scene: Scene, requests: Sequence[Sent]) -> Pace:
    """Of a replica, from the half to the end of what lies in the topic before it starts, by its answers."""

    def answered() -> int:
        return sum(scene.kafka.end_offsets(scene.response_topic).values())

    scene.kafka.produce(scene.topic, requests)
    answered()  # the first time takes seconds
    replica = scene.start()
    while (before := answered()) < len(requests) / 2:
        time.sleep(0.1)
    began, cpu, loop = time.monotonic(), cpu_seconds(replica.pid), loop_seconds(replica.pid)
    while answered() < len(requests):
        time.sleep(0.1)
    if not (rows := len(requests) - before):
        raise SystemExit("the worker was done between two looks; give more requests")
    found = Pace(
        rows / (time.monotonic() - began),
        (cpu_seconds(replica.pid) - cpu) / rows * 1e6,
        (loop_seconds(replica.pid) - loop) / rows * 1e6,
    )
    replica.terminate()
    replica.exit_code()
    return found


def serve(kafka: Cluster, guarantees: Sequence[str], rows: int, keys: int, rounds: int, in_memory: int | None) -> None:
    """With and without state in turn."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((rows, 4)).astype("<f4")
    requests = [
        Sent(b"key-%d" % key, value.tobytes(), [ROWS])
        for key, value in zip(rng.integers(0, keys, rows), values, strict=True)
    ]
    kinds: dict[str, Mapping[str, str] | None] = {"without state": None, "state in memory": {}}
    if in_memory is not None:
        kinds["state in a directory"] = {"STATE__KEYS_IN_MEMORY": str(in_memory)}
    for guarantee in guarantees:
        found: dict[str, list[Pace]] = {name: [] for name in kinds}
        for _ in range(rounds):
            for name, paces in found.items():
                paces.append(pace_with(kafka, guarantee, requests, kinds[name]))
        medians = {name: Pace(*map(statistics.median, zip(*paces, strict=True))) for name, paces in found.items()}
        for name, pace in medians.items():
            say(
                f"{guarantee}, {name}: {pace.rate:,.0f}/s, {pace.rate / medians['without state'].rate:.2f}; CPU "
                f"{pace.cpu:.1f} us a row, of which the loop {pace.loop:.1f}"
            )


def peers(kafka: Cluster, rows: int, keys: int, rounds: int, units: int) -> None:
    """At least once, from a backlog: answers a second after the first thousand, for `WINDOW` seconds at most."""
    rng = np.random.default_rng(0)
    drawn = zip(rng.integers(0, keys, rows), rng.standard_normal((rows, 4)).astype("<f4"), strict=True)
    requests = [Sent(b"key-%d" % key, value.tobytes(), [ROWS]) for key, value in drawn]
    programs = {
        "worker": None,
        "worker, states on disk": None,
        "a loop, key by key": [sys.executable, "-m", "tests.bench.loops.key_by_key"],
        "Quix Streams": [str(PEERS_PYTHON), "-m", "tests.bench.peers.quix_state"],
    }
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            settings = {"DELIVERY__GUARANTEE": "at_least_once", "STATE__TENSORS": '{"h_in": "h_out"}'}
            settings["BATCHING__MAX_BATCH_SIZE"] = "64"
            with (
                tempfile.TemporaryDirectory() as folder,
                Scene(kafka, Path(folder), settings, model=gru(4, units)) as scene,
            ):
                kafka.produce(scene.topic, requests)
                if program is None:
                    scene.settings["KAFKA__CHANGELOG_TOPIC"] = kafka.create_topic(
                        "states", partitions=4, config=COMPACTED
                    )
                    if name != "worker":
                        scene.settings |= {"STATE__DIRECTORY": f"{folder}/states", "STATE__KEYS_IN_MEMORY": "1024"}
                    with scene.start():
                        found[name].append(rate(kafka, scene.response_topic, rows))
                    continue
                words = Task(
                    kafka.bootstrap_servers,
                    scene.topic,
                    scene.response_topic,
                    fresh("peer"),
                    scene.settings["MODEL__PATH"],
                    1,
                )
                process = subprocess.Popen([*program, *words.words()], cwd=ROOT)  # noqa: S603  # ours
                try:
                    found[name].append(rate(kafka, scene.response_topic, rows))
                finally:
                    process.kill()
                    process.wait()
    ours = statistics.median(found["worker"])
    for name, rates in found.items():
        say(f"{name}: {statistics.median(rates):,.0f}/s; the worker is {ours / statistics.median(rates):.1f} x")


def rate(kafka: Cluster, topic: str, most: int) -> float:
    """Answers a second that come to a topic."""
    began, first = 0.0, 0
    while True:
        time.sleep(0.05)
        now, count = time.monotonic(), sum(kafka.end_offsets(topic).values())
        if not began and count > 1000:
            began, first = now, count
        elif began and (count >= most or now > began + WINDOW):
            return (count - first) / (now - began)


def hot(kafka: Cluster, seconds: float) -> None:
    """From a request's timestamp to its answer's, of the keys that are not hot, in milliseconds."""
    row = np.ones(4, "<f4").tobytes()
    for order in ("partition", "key"):
        for rate_, share in ((rate_, share) for rate_ in (500, 1000, 2000) for share in (0, 3)):
            settings = {"DELIVERY__GUARANTEE": "at_least_once", "DELIVERY__ORDER": order}
            settings |= {"STATE__TENSORS": '{"h_in": "h_out"}', "BATCHING__MAX_BATCH_SIZE": "64"}
            with tempfile.TemporaryDirectory() as folder, Scene(kafka, Path(folder), settings, model=gru()) as scene:
                scene.settings["KAFKA__CHANGELOG_TOPIC"] = kafka.create_topic("states", partitions=4, config=COMPACTED)
                replica = scene.replica()
                chance = np.random.default_rng(0).integers(0, 10_000, 1 << 16)

                def make(
                    number: int, share: int = share, chance: np.ndarray = chance, scene: Scene = scene
                ) -> tuple[str, Sent]:
                    is_hot = share and number % share == 0
                    return scene.topic, Sent(
                        b"hot" if is_hot else b"key-%d" % chance[number % len(chance)], row, [ROWS]
                    )

                load = SteadyPublisher(kafka, make, rate_)
                time.sleep(seconds)
                asked = len(load.stop())
                while sum(scene.committed().values()) < asked:
                    time.sleep(0.1)
                found = latencies(kafka, scene)
                replica.terminate()
                replica.exit_code()
            p50, p99 = np.percentile(found, (50, 99))
            which = "a third are of one key" if share else "no key is hot"
            say(f"order {order}, {rate_:,}/s, {which}: others p50 {p50:.0f} ms, p99 {p99:.0f} ms")


def latencies(kafka: Cluster, scene: Scene) -> list[int]:
    """Of all requests whose key is not hot but those of the first second."""
    connection = Connection(bootstrap_servers=kafka.bootstrap_servers)
    times: list[dict[str, int]] = []
    for topic in (scene.topic, scene.response_topic):
        with Reader(connection, topic) as reader:
            found: dict[str, int] = {}
            for record in reader.up_to_ends(reader.beginnings):
                headers = dict(record.headers)
                name = (headers["source"] or b"").decode() if "source" in headers else record.source
                if record.key != b"hot":
                    found[name] = record.timestamp_ms or 0
            times.append(found)
    asked, answered = times
    first = min(asked.values())
    return [answered[name] - at for name, at in asked.items() if at > first + 1000]


def restore(kafka: Cluster, count: int, in_memory: int | None) -> None:
    """One partition with so many keys."""
    layout = layout_of(64)
    requests, changelog = kafka.create_topic("requests"), kafka.create_topic("states", config=COMPACTED)
    write_states(kafka, changelog, layout, count)
    settings = load(
        None,
        {
            "WORKER_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "WORKER_KAFKA__REQUEST_TOPICS": requests,
            "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
            "WORKER_KAFKA__GROUP_ID": fresh("group"),
            "WORKER_MODEL__PATH": "model.onnx",
        },
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    restorer = ChangelogRestorer(
        settings.kafka, changelog, layout, logging.getLogger(__name__), is_exact=True, date=time.time
    )
    folder = tempfile.TemporaryDirectory()
    store = None if in_memory is None else LocalStore(Path(folder.name))
    states = KeyStates(
        layout, OffsetLedger(), restorer, store=store, most_in_memory=in_memory or 0, clock=time.monotonic
    )
    began, longest = time.monotonic(), 0.0
    states.assigned([Partition(requests, 0)])
    while states.restoring:
        turn = time.monotonic()
        if not states.restore_some():
            time.sleep(0.001)
        longest = max(longest, time.monotonic() - turn)
    seconds = time.monotonic() - began
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    say(f"{states.keys:,} states in {seconds:.1f} s, {memory:,} MiB; the longest turn took {longest * 1000:.0f} ms")
    restorer.close(1.0)
    folder.cleanup()


def restart(kafka: Cluster, count: int, in_memory: int | None) -> None:
    """Four partitions, in one worker: first with nothing at hand, then after a clean stop, then after a kill."""
    layout = layout_of(64)
    settings = {"STATE__TENSORS": '{"h_in": "h_out"}', "DELIVERY__GUARANTEE": "exactly_once"}
    with tempfile.TemporaryDirectory() as folder, Scene(kafka, Path(folder), settings, model=gru(4, 64)) as scene:
        changelog = kafka.create_topic("states", partitions=4, config=COMPACTED)
        write_states(kafka, changelog, layout, count, partitions=4)
        scene.settings |= {"KAFKA__CHANGELOG_TOPIC": changelog, "STATE__DIRECTORY": f"{folder}/states"}
        scene.settings |= {"STATE__KEYS_IN_MEMORY": str(in_memory or count), "DELIVERY__DRAIN_TIMEOUT_S": "120"}
        for name in ("nothing at hand", "after a clean stop", "after a kill"):
            began = time.monotonic()
            replica = scene.start()
            while replica.log.count("states_restored") < 4 or replica.status("/readyz") != 200:
                time.sleep(0.01)
            ready = time.monotonic() - began
            restored = [json.loads(line) for line in replica.log.splitlines() if "states_restored" in line]
            seconds = max(float(found["seconds"]) for found in restored)
            memory = replica.held.memory // 2**20
            say(f"{count:,} states, {name}: restored in {seconds:.2f} s, ready after {ready:.2f} s, {memory:,} MiB")
            if name == "nothing at hand":
                replica.terminate()
                replica.exit_code()
                say(next(line for line in replica.log.splitlines() if "kept" in line))
            else:
                replica.kill()


def takeover(kafka: Cluster, count: int) -> None:
    """Two replicas with two partitions each, all states in memory; one ends. A silent member is waited for 3 s."""
    layout = layout_of(64)
    settings = {"STATE__TENSORS": '{"h_in": "h_out"}', "DELIVERY__GUARANTEE": "exactly_once"}
    with (
        tempfile.TemporaryDirectory() as folder,
        Scene(kafka, Path(folder), settings, model=gru(4, 64), session=MORTAL) as scene,
    ):
        scene.settings["KAFKA__CHANGELOG_TOPIC"] = changelog = kafka.create_topic(
            "states", partitions=4, config=COMPACTED
        )
        write_states(kafka, changelog, layout, count, partitions=4)
        survivor = scene.replica()
        for name in ("a kill", "a clean stop"):
            other = scene.start()
            scene.wait_for_members(2)
            wait_until_restored(other, 2)
            before = len(survivor.log)
            began = time.time()
            other.kill() if name == "a kill" else other.terminate()
            wait_until_restored(survivor, 2, before)
            news = [json.loads(line) for line in survivor.log[before:].splitlines()]
            moved, restored = (
                max(datetime.fromisoformat(said["at"]).timestamp() for said in news if said["event"] == event) - began
                for event in ("partitions_assigned", "states_restored")
            )
            say(
                f"{count:,} states, {name}: the partitions are another's after {moved:.2f} s, their "
                f"{count // 2:,} states there {restored - moved:.2f} s later"
            )


def wait_until_restored(replica: Replica, partitions: int, since: int = 0) -> None:
    """Until its log says so of that many."""
    while replica.log[since:].count("states_restored") < partitions:
        time.sleep(0.02)


def store(count: int, batches: int = 300) -> None:
    """States of 256 bytes; each batch has 64 keys of its own."""
    rows, rng, partition = 64, np.random.default_rng(0), Partition("requests", 0)
    keys, values = [b"key-%d" % key for key in range(count)], rng.standard_normal((PORTION, 64)).astype("<f4")
    with tempfile.TemporaryDirectory() as folder:
        local = LocalStates(Path(folder), 64)
        for start in range(0, count, PORTION):
            local.write(partition, some := keys[start : start + PORTION], values[: len(some)])
        drawn = [[keys[at] for at in rng.choice(count, rows, replace=False)] for _ in range(batches)]

        def one_by_one(some: Sequence[bytes]) -> None:
            for key in some:
                local.write(partition, [key], values[:1])

        acts: dict[str, Callable[[Sequence[bytes]], object]] = {
            "read one by one": lambda some: [local.read(partition, [key]) for key in some],
            "read at once": lambda some: local.read(partition, some),
            "written one by one": one_by_one,
            "written at once": lambda some: local.write(partition, some, values[:rows]),
        }
        for name, act in acts.items():
            began = time.perf_counter()
            for some in drawn:
                act(some)
            say(f"{rows} of {count:,} {name}: {(time.perf_counter() - began) / batches * 1000:.2f} ms")
        local.close()


def write_states(kafka: Cluster, changelog: str, layout: StateLayout, count: int, partitions: int = 1) -> None:
    """A state for each of so many keys."""
    producer = Producer({**kafka.login, "linger.ms": "20"})
    rng = np.random.default_rng(0)
    for start in range(0, count, PORTION):
        offsets = np.arange(start, min(start + PORTION, count))
        tensors = rng.standard_normal((len(offsets), 64)).astype("<f4")
        ones = np.ones(len(offsets), np.int64)
        for offset, value in zip(offsets.tolist(), layout.written(offsets, ones, ones, [tensors]), strict=True):
            while True:
                try:
                    producer.produce(changelog, value, b"key-%d" % offset, offset % partitions)
                except BufferError:
                    producer.poll(0.05)
                else:
                    break
        producer.poll(0)
    producer.flush()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.states", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["serve", "restore", "restart", "takeover", "store", "hot", "peers"])
    parser.add_argument("count", type=int, nargs="?", default=1_000_000, help="requests, or states")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--units", type=int, default=16, help="of the GRU, for peers")
    parser.add_argument("--guarantee", choices=GUARANTEES, action="append", help="both, unless given")
    parser.add_argument("--in-memory", type=int, metavar="KEYS", help="all, unless given")
    asked = parser.parse_args()
    if asked.what == "store":
        store(asked.count)
        return
    broker = any_broker()
    try:
        kafka = Cluster(broker.bootstrap_servers)
        kafka.wait_until_coordinating()
        if asked.what == "hot":
            hot(kafka, seconds=8.0)
        elif asked.what == "peers":
            peers(kafka, asked.count, asked.keys, asked.rounds, asked.units)
        elif asked.what == "restore":
            restore(kafka, asked.count, asked.in_memory)
        elif asked.what == "takeover":
            takeover(kafka, asked.count)
        elif asked.what == "restart":
            restart(kafka, asked.count, asked.in_memory)
        else:
            serve(kafka, asked.guarantee or GUARANTEES, asked.count, asked.keys, asked.rounds, asked.in_memory)
    finally:
        broker.remove()


if __name__ == "__main__":
    main()
