"""States in a store outside with a millisecond's way to it: one by one, side by side, and for a batch at once.

`calls`: what reads and writes 10,000 states of 256 bytes takes. `serve`: the whole worker, beside its changelog.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import redis

from tests.bench.states import COMPACTED, ROWS, pace_of_backlog, say
from tests.kafka.broker import any_broker
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.network import Proxy
from tests.kafka.scene import Scene
from tests.models import gru
from tests.stores.running import RunningStore
from worker.core.records import Partition
from worker.state.outside_values import source_of
from worker.stores.server import StoreAddress, StoreServer, Write

ROUND_TRIP = 0.001  # seconds that are added
BATCH, THREADS = 64, 16
KEYS = [b"key-%d" % number for number in range(10_000)]

BATCHES = [KEYS[at : at + BATCH] for at in range(0, len(KEYS), BATCH)]


def _delay(port: int, told: Connection) -> None:
    with Proxy() as proxy:
        proxy.forward_to(f"127.0.0.1:{port}")
        proxy.slow_down(ROUND_TRIP / 2)
        told.send(proxy.address)
        told.recv()


@contextmanager
def far(port: int) -> Iterator[str]:
    """The address of a way to this port that takes longer; in a process of its own."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_delay, args=(port, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def calls(rounds: int) -> None:
    """Every state read and written once, in seconds."""
    found: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        RunningStore(Path(folder)) as store,
        far(store.port) as address,
        ThreadPoolExecutor(THREADS) as threads,
    ):
        host, port = address.split(":")
        client = redis.Redis(host, int(port), protocol=2)
        server = StoreServer(StoreAddress(f"redis://{address}/0"), "")
        offset = 0

        def one(key: bytes) -> None:
            client.get(key)
            client.set(key, value(offset))

        def batch(keys: Sequence[bytes]) -> None:
            server.exchange([], keys)
            server.exchange([Write(key, value(offset), 0) for key in keys], [])

        acts: dict[str, Callable[[], object]] = {
            "one by one": lambda: list(map(one, KEYS)),
            f"one by one in {THREADS} threads": lambda: list(threads.map(one, KEYS)),
            f"batches of {BATCH}": lambda: list(map(batch, BATCHES)),
        }
        for _ in range(rounds):
            for name, act in acts.items():
                offset += 1
                began = time.perf_counter()
                act()
                found.setdefault(name, []).append(time.perf_counter() - began)
    slowest = statistics.median(found["one by one"])
    for name, seconds in found.items():
        took = statistics.median(seconds)
        say(f"{name}: {took:.2f} s, {took / len(KEYS) * 1e6:.0f} us a key, {slowest / took:.1f} x")


def value(offset: int) -> bytes:
    return source_of(Partition("requests", 0)) + bytes(8) + offset.to_bytes(8, "little") + bytes(8 + 256)


def serve(rows: int, rounds: int) -> None:
    """Rows a second from a backlog, at least once: states in a changelog, in a store, and in one further away."""
    rng = np.random.default_rng(0)
    drawn = zip(rng.integers(0, len(KEYS), rows), rng.standard_normal((rows, 4)).astype("<f4"), strict=True)
    requests = [Sent(KEYS[key], row.tobytes(), [ROWS]) for key, row in drawn]
    found: dict[str, list[float]] = {}
    broker = any_broker()
    try:
        kafka = Cluster(broker.bootstrap_servers)
        kafka.wait_until_coordinating()
        for _ in range(rounds):
            with (
                tempfile.TemporaryDirectory() as folder,
                RunningStore(Path(folder)) as store,
                far(store.port) as address,
            ):
                topic = kafka.create_topic("states", partitions=4, config=COMPACTED)
                kinds = {
                    "changelog": {"KAFKA__CHANGELOG_TOPIC": topic},
                    "store": {"STATE__STORE": store.url},
                    "store 1 ms away": {"STATE__STORE": f"redis://{address}/1"},
                    "store 1 ms away, 1,024 keys in memory": {
                        "STATE__STORE": f"redis://{address}/2",
                        "STATE__KEYS_IN_MEMORY": "1024",
                    },
                }
                for name, settings in kinds.items():
                    found.setdefault(name, []).append(rate(kafka, requests, settings))
    finally:
        broker.remove()
    for name, rates in found.items():
        say(f"{name}: {statistics.median(rates):,.0f}/s of {', '.join(f'{one:,.0f}' for one in rates)}")


def rate(kafka: Cluster, requests: Sequence[Sent], more: dict[str, str]) -> float:
    """Rows a second of a backlog."""
    settings = {"BATCHING__MAX_BATCH_SIZE": str(BATCH), "STATE__TENSORS": '{"h_in": "h_out"}', **more}
    settings["DELIVERY__GUARANTEE"] = "at_least_once"
    with tempfile.TemporaryDirectory() as folder, Scene(kafka, Path(folder), settings, model=gru()) as scene:
        return pace_of_backlog(scene, requests).rate


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.outside_store", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("what", choices=["calls", "serve"])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.what == "calls":
        calls(asked.rounds)
    else:
        serve(asked.rows, asked.rounds)


if __name__ == "__main__":
    main()
