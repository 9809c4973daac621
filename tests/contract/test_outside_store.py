"""Readers and writers of an outside store: the fake, and the thread that talks to a real server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from tests.builders import STATE
from tests.chunks import P0
from tests.fakes import Clock, FakeOutsideStore
from tests.kafka.certificates import Authority
from tests.states import state
from tests.stores.running import RunningStore
from worker.core.failures import BadConfiguration
from worker.core.ordering.ledger import Line, Places, Stretch
from worker.core.records import Partition
from worker.delivery.stored_states import Writes
from worker.state.layout import HEAD_BYTES
from worker.state.outside_states import Asked, Reads
from worker.state.outside_values import Change, OutsideValues
from worker.stores.link import StoreLink
from worker.stores.server import StoreAddress, StoreAway, StoreServer, Write, examine_store

PREFIX = "group-state:"
TIMEOUT = 20.0


class Outside(Reads, Writes, Protocol):
    """Reads and writes an outside store."""


class Pair:
    """An outside store, and a function that lets it make progress."""

    def __init__(self, outside: Outside, wait: Callable[[], object]) -> None:
        self.outside, self._wait = outside, wait

    def written(self, *changes: tuple[bytes, bytes]) -> None:
        """Write changes, one place each, and wait for the acknowledgements."""
        places = [stretch() for _ in changes]
        for at, (key, value) in zip(places, changes, strict=True):
            self.outside.write([Change(key, value, is_forgotten=False)], at)
        found: list[Stretch] = []
        while len(found) < len(places):
            self._wait()
            found += self.outside.written()
        assert found == places

    def values(self, *keys: bytes) -> Sequence[bytes | None]:
        asked = Asked(P0, 1, keys)
        self.outside.ask([asked])
        while not (came := self.outside.read()):
            self._wait()
        ((which, values),) = came
        assert which is asked
        return values


def stretch() -> Stretch:
    return Stretch(Places(Line(P0), [0], [1], [1], [None], 0.0), 0, 1)


def stored(offset: int, value: float, partition: Partition = P0, used: int = -1) -> bytes:
    rows = STATE.written(np.array([offset]), np.array([used]), np.zeros(1), [np.array([[value]], "<f4")])
    return OutsideValues.written(partition, rows[0])


def link_to(store: RunningStore, **more: object) -> StoreLink:
    return StoreLink(StoreServer(StoreAddress(store.url, **more), PREFIX), ttl=None, forgotten_for=60)  # type: ignore[arg-type]  # of any type


def is_away(link: StoreLink) -> bool:
    return link.trouble is not None


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    with RunningStore(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(params=["fake", "real"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    if request.param == "fake":
        clock = Clock()
        yield Pair(FakeOutsideStore(clock), lambda: clock.wait(0.01))
        return
    running: RunningStore = request.getfixturevalue("store")
    running.client().flushall()
    link = link_to(running)
    yield Pair(link, lambda: time.sleep(0.001))
    link.close(1.0)


def test_what_is_written_is_read(pair: Pair) -> None:
    """Values come in the order of the keys asked for; an unknown key has no value."""
    pair.written((b"a", stored(1, 10)), (b"\0\xff", stored(2, 20)), (b"", stored(3, 30)))

    assert pair.values(b"", b"never", b"a", b"\0\xff") == [stored(3, 30), None, stored(1, 10), stored(2, 20)]


def test_a_value_is_taken_only_if_its_offset_is_later(pair: Pair) -> None:
    """So a replica that stood still overwrites nothing, and a repeated write changes nothing."""
    pair.written((b"k", stored(5, 10)))
    for offset in (4, 5, -1):
        pair.written((b"k", stored(offset, 99)))
        assert pair.values(b"k") == [stored(5, 10)]

    pair.written((b"k", stored(2**40, 11)))

    assert pair.values(b"k") == [stored(2**40, 11)]


def test_what_is_no_state_is_written_over(store: RunningStore) -> None:
    """Another client's value of any kind, even a list, does not end the worker."""
    link, client = link_to(store), store.client()
    pair = Pair(link, lambda: time.sleep(0.001))
    for name, value in {"a": b"x", "b": b"\xff" * 40, "c": stored(5, 1)[:20]}.items():
        client.set(f"{PREFIX}{name}", value)
    client.delete(f"{PREFIX}d")
    client.rpush(f"{PREFIX}d", b"of a list")

    pair.written(*((key, stored(1, 1)) for key in (b"a", b"b", b"c", b"d")))

    assert pair.values(b"a", b"b", b"c", b"d") == [stored(1, 1)] * 4
    link.close(1.0)


def test_more_than_one_round_trip_takes_comes_all_the_same(store: RunningStore) -> None:
    """They come in order, in portions; a key that is written several times ends with its last value."""
    link = link_to(store)
    pair = Pair(link, lambda: time.sleep(0.001))
    keys = [b"many-%d" % n for n in range(10_000)]

    pair.written(*((key, stored(n, n)) for n, key in enumerate(keys)), *((b"hot", stored(n, n)) for n in range(5000)))

    assert pair.values(*keys, b"hot") == [*(stored(n, n) for n in range(10_000)), stored(4999, 4999)]
    link.close(1.0)


def test_what_was_forgotten_stays_for_a_while(store: RunningStore) -> None:
    """It stays as a value without tensors; a state with a TTL goes in time, and a state without one stays."""
    link = StoreLink(StoreServer(StoreAddress(store.url), PREFIX), ttl=500, forgotten_for=60)
    head = state(1, offset=3)[:HEAD_BYTES]
    gone, kept = Change(b"gone", OutsideValues(STATE).forgotten(P0, head), is_forgotten=True), stored(1, 1)
    link.write([gone, Change(b"kept", kept, is_forgotten=False)], stretch())
    while not link.written():
        time.sleep(0.001)

    client = store.client()

    assert 0 < client.ttl(f"{PREFIX}gone") <= 60 < client.ttl(f"{PREFIX}kept") <= 500
    link.close(1.0)


def test_a_server_that_stops_is_waited_for(tmp_path: Path) -> None:
    """When it is back, with the data from its disk, it does all that was asked meanwhile."""
    with RunningStore(tmp_path) as own:
        link = link_to(own)
        pair = Pair(link, lambda: time.sleep(0.001))
        pair.written((b"k", stored(1, 10)))
        own.stop()
        link.write([Change(b"k", stored(2, 11), is_forgotten=False)], stretch())
        deadline = time.monotonic() + TIMEOUT
        while not is_away(link):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert link.away_since is not None
        assert str(own.port) in (link.trouble or "")

        own.start()

        while not link.written():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert pair.values(b"k") == [stored(2, 11)]
        assert not is_away(link)
        link.close(1.0)


def test_what_its_thread_dies_of_is_raised_in_the_loop(store: RunningStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect in it is raised, too: else the loop would wait for ever."""
    server = StoreServer(StoreAddress(store.url), PREFIX)
    monkeypatch.setattr(server, "exchange", lambda *_: None)  # a wrong result, from which it can take no value
    link = StoreLink(server, ttl=None, forgotten_for=1)

    link.ask([Asked(P0, 1, [b"k"])])
    while "store" in [thread.name for thread in threading.enumerate()]:
        time.sleep(0.01)

    with pytest.raises(TypeError):
        link.read()
    link.close(1.0)


@pytest.mark.parametrize(
    ("command", "login", "cure"),
    [
        (
            ("ACL", "SETUSER", "lesser", "reset", "on", ">secret", "~*", "+@all"),
            ("lesser", "mistaken"),
            "STORE_PASSWORD",
        ),
        (("ACL", "SETUSER", "lesser", "reset", "on", ">secret", "~*", "+ping"), ("lesser", "secret"), "grant"),
    ],
)
def test_a_server_that_refuses_us_ends_the_worker(
    store: RunningStore, command: Sequence[str], login: tuple[str | None, str | None], cure: str
) -> None:
    """The error says what to do, and does not show the password."""
    store.client().flushall()
    store.client().execute_command(*command)  # type: ignore[no-untyped-call]  # has no types
    server = StoreServer(StoreAddress(store.url, *login), PREFIX)

    with pytest.raises(BadConfiguration, match=cure) as refused:
        server.exchange([Write(b"k", stored(1, 1), 0)], [])

    assert "mistaken" not in str(refused.value)
    assert "secret" not in str(refused.value)
    server.close()


def test_a_server_without_memory_is_away(store: RunningStore) -> None:
    """The error says what to do; nothing is evicted."""
    client, server = store.client(), StoreServer(StoreAddress(store.url), PREFIX)
    client.flushall()
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(StoreAway, match="maxmemory"):
            server.exchange([Write(b"k", stored(1, 1), 0)], [])
    finally:
        client.config_set("maxmemory", "0")
    server.exchange([Write(b"k", stored(1, 1), 0)], [])
    server.close()


def test_a_replica_is_refused_at_start_and_waited_for_later(store: RunningStore, tmp_path: Path) -> None:
    """A failover turns a primary into a replica: its name soon leads to the new primary."""
    with RunningStore(tmp_path, "--replicaof", "127.0.0.1", str(store.port)) as replica:
        server = StoreServer(StoreAddress(replica.url), PREFIX)
        with pytest.raises(BadConfiguration, match="primary"):
            examine_store(server)
        with pytest.raises(StoreAway, match="read only"):
            server.exchange([Write(b"k", stored(1, 1), 0)], [])
        server.close()


def test_what_an_operator_should_change_is_said(store: RunningStore, tmp_path: Path) -> None:
    """A server that is persistent and evicts nothing is fine."""
    server = StoreServer(StoreAddress(store.url), PREFIX)
    facts = examine_store(server)
    assert facts.warnings == ()
    assert facts.version.split()[0] in {"Redis", "Valkey"}
    server.close()

    options = ("--appendonly", "no", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with RunningStore(tmp_path, *options) as careless:
        server = StoreServer(StoreAddress(careless.url), PREFIX)
        evicts, loses = examine_store(server).warnings
        assert "noeviction" in evicts
        assert "appendonly" in loses
        server.close()


def test_an_address_that_leads_nowhere_is_refused_at_start() -> None:
    """The error has the address without its login."""
    server = StoreServer(StoreAddress("redis://127.0.0.1:1/0", "user", "secret"), PREFIX)
    with pytest.raises(BadConfiguration, match=r"127\.0\.0\.1:1.*reached") as refused:
        examine_store(server)
    assert "secret" not in str(refused.value)

    with pytest.raises(BadConfiguration, match="rediss://"):
        StoreServer(StoreAddress("redis://host:port/0"), PREFIX)


def test_tls_is_checked(tmp_path: Path) -> None:
    """Only a server of the named authority is trusted."""
    authority = Authority(tmp_path, "authority")
    certificate = authority.issue("server")
    files = ("--tls-cert-file", certificate.certificate, "--tls-key-file", certificate.key, "--tls-ca-cert-file")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = (*map(str, files), str(authority.path), "--tls-port", str(port), "--tls-auth-clients", "no")
    with RunningStore(tmp_path, *options):
        trusted = StoreServer(StoreAddress(f"rediss://127.0.0.1:{port}/0", ca=authority.path), PREFIX)
        assert trusted.exchange([Write(b"k", stored(1, 1), 0)], [b"k"]) == [stored(1, 1)]
        trusted.close()
        doubted = StoreServer(StoreAddress(f"rediss://127.0.0.1:{port}/0"), PREFIX)
        with pytest.raises(BadConfiguration, match="STORE_CA_LOCATION"):
            doubted.exchange([], [b"k"])
