"""A real Apache Kafka for tests: a given broker, one under Docker, or one under the local JVM.

`JvmBroker` can be stopped, killed and started again on the same port and data, which fault tests need. All bind to
127.0.0.1 alone. By hand: `python -m tests.kafka.broker TOPIC…` starts one, at Kafka's usual port where that is free,
prints the line that sets a worker's address, and stays until Ctrl-C.
"""

from __future__ import annotations

import base64
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.child_server import ChildServer

ADDRESS_VARIABLE = "WORKER_TEST_BOOTSTRAP_SERVERS"
VERSION = "4.3.1"
IMAGE = f"apache/kafka:{VERSION}"
HERE = Path(__file__).parent / "jvm"
JARS = Path(__file__).parents[2] / ".cache" / "kafka" / VERSION

PARTITIONS = 12  # of a topic made by hand, as in docker-compose.yml
USUAL_PORT = 9092  # where people, and pages, look for a Kafka
START_TIMEOUT = 90.0  # 3 s on an idle machine of two cores; a busy one takes many times that
HEAP = "-Xmx512m"
# Without the compiler that optimises, which pays after minutes of load. With the archive of classes (`archive`) a start
# took 1.3 s of CPU time instead of 3.3, and a topic half as much (2026-11-25).
SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)

# For a lone broker that a test suspends. After a silence longer than its session it is taken for dead. A transaction
# that ends while its partitions have no leader loses its end (KAFKA-20734).
NEVER_FENCED: Mapping[str, str] = {"broker.session.timeout.ms": "60000"}

# Seconds of silence after which a broker with `FORGETFUL` has forgotten a transactional id, with a margin.
# After failures in a row a worker pauses for up to 5 s: brokers that forget sooner then refuse each transaction.
FORGOTTEN_AFTER = 6.5
FORGETFUL: Mapping[str, str] = {
    "transactional.id.expiration.ms": "6000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "250",
}

# The settings that a client needs to log in.
Login = Mapping[str, str | int | float | bool]


class NoBrokerError(Exception):
    """This kind of broker cannot be started here; the message says why."""


class Broker(Protocol):
    """A running Kafka."""

    bootstrap_servers: str

    def remove(self) -> None: ...


class GivenBroker:
    """Somebody else's broker, named by WORKER_TEST_BOOTSTRAP_SERVERS. It is used, never stopped."""

    def __init__(self) -> None:
        servers = os.environ.get(ADDRESS_VARIABLE)
        if not servers:
            raise NoBrokerError(f"{ADDRESS_VARIABLE} is not set")
        self.bootstrap_servers = servers
        wait_until_answering(servers)

    def remove(self) -> None:
        """Leave it running."""


class DockerBroker:
    """The official image, if an engine answers and has the image or can get it."""

    def __init__(self) -> None:
        if not _engine_listens():
            raise NoBrokerError("no Docker engine listens")
        try:
            self._start()
        except Exception as error:
            raise NoBrokerError(f"{IMAGE} does not start: {error}") from error
        wait_until_answering(self.bootstrap_servers)

    def _start(self) -> None:
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # its image may not be there
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415  # reads the variable above

        port = free_port()  # inside, too: the broker writes transaction markers to its own advertised address
        self._container = DockerContainer(IMAGE)
        # type: its annotation knows no address; Docker's client takes (address, port)
        self._container.ports = {f"{port}/tcp": ("127.0.0.1", port)}  # type: ignore[dict-item]
        for key, value in {**common_config(), **listeners("0.0.0.0", port, 9093)}.items():  # noqa: S104  # inside the container
            self._container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)
        self._container.start()
        self.bootstrap_servers = f"127.0.0.1:{port}"

    def remove(self) -> None:
        """Remove the container and its data."""
        self._container.stop()


def _engine_listens() -> bool:
    """True if Docker's socket answers. Its own client would leave the socket open without an answer."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        return True
    with socket.socket(socket.AF_UNIX) as engine:
        return engine.connect_ex(host.removeprefix("unix://")) == 0


class Seat(NamedTuple):
    """A node's place in its cluster. `voters`: all of its controllers."""

    node: int
    port: int
    controller_port: int
    voters: str
    cluster_id: str


def seats(count: int) -> Sequence[Seat]:
    """The places of a new cluster of so many nodes, each a broker and a controller."""
    ports = [(free_port(), free_port()) for _ in range(count)]
    voters = ",".join(f"{node}@127.0.0.1:{controller}" for node, (_, controller) in enumerate(ports, 1))
    # Behind a letter: an id that begins with "-" is taken for an option.
    cluster_id = "K" + base64.urlsafe_b64encode(os.urandom(16)).decode()[1:22]
    return [Seat(node, port, controller, voters, cluster_id) for node, (port, controller) in enumerate(ports, 1)]


class JvmBroker(ChildServer):
    """Apache Kafka.

    `config` comes on top of `jvm/server.properties`; `login` is what a client needs where that asks for one. `doors`
    are more listeners, security protocols by name (`addresses` tells where they are, `advertised` what their clients
    are told instead); `format_options` go to the StorageTool, which makes users. Alone unless it has a `seat` among
    others.
    """

    java_options: Sequence[str] = ()  # benchmarks want all of the JVM; `tests/conftest.py` says what tests want

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        login: Login | None = None,
        *,
        doors: Mapping[str, str] | None = None,
        advertised: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
        seat: Seat | None = None,
    ) -> None:
        self._seat = seat or seats(1)[0]
        self._login = login
        self._classpath = f"{self._jars()}/*"
        super().__init__("kafka-")
        self.bootstrap_servers = f"127.0.0.1:{self._seat.port}"
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in doors or ()}
        own = {**listeners("127.0.0.1", self._seat.port, self._seat.controller_port), "log.dirs": str(self.data)}
        own |= {"node.id": str(self._seat.node), "controller.quorum.voters": self._seat.voters}
        for name, address in self.addresses.items():
            own["listeners"] += f",{name}://{address}"
            own["advertised.listeners"] += f",{name}://{(advertised or {}).get(name, address)}"
            own["listener.security.protocol.map"] += f",{name}:{(doors or {})[name]}"
        self._properties = self._folder / "server.properties"
        lines = [f"{key}={value}" for key, value in {**common_config(), **own, **(config or {})}.items()]
        self._properties.write_text("\n".join(lines))
        try:
            self._format(format_options)
        except (NoBrokerError, KeyboardInterrupt):
            self.remove()
            raise

    def start(self) -> Self:
        """Start, or start again with its port and data; returns when it answers."""
        self.launch()
        return self.wait_until_answering()

    def launch(self) -> None:
        """Start, and do not wait: the first of several nodes answers when others are there."""
        self._launch([*self._java("kafka.Kafka"), str(self._properties)])

    def wait_until_answering(self) -> Self:
        """Wait until the broker answers; remove it and raise `NoBrokerError` if it does not."""
        try:
            wait_until_answering(self.bootstrap_servers, self._why_dead, self._login)
        except (NoBrokerError, KeyboardInterrupt):
            self.remove()
            raise
        return self

    @property
    def data(self) -> Path:
        """The folder of its topics, with a folder for each partition."""
        return self._folder / "data"

    def _format(self, options: Sequence[str]) -> None:
        command = [*self._java("kafka.tools.StorageTool"), "format", "-t", self._seat.cluster_id]
        command += ["-c", str(self._properties), *options]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_TIMEOUT)
        if result.returncode:
            raise NoBrokerError(f"StorageTool failed: {result.stdout}{result.stderr}")

    @staticmethod
    def _jars() -> Path:
        return jars()

    def _java(self, main: str) -> list[str]:
        options = [HEAP, "-XX:+UseSerialGC", *self.java_options, self._classes(main)]
        return ["java", *options, "-cp", self._classpath, main]

    @staticmethod
    def _classes(main: str) -> str:
        return f"-XX:SharedArchiveFile={archive(main)}"  # one that is missing, or another JVM's, is passed over

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} {self.bootstrap_servers}>"


class _Archiving(JvmBroker):
    """The first broker on this machine: it writes the archives that later ones start from."""

    @staticmethod
    def _jars() -> Path:
        return JARS

    @staticmethod
    def _classes(main: str) -> str:
        return f"-XX:ArchiveClassesAtExit={archive(main)}"


def archive(main: str) -> Path:
    """The classes of this program as the JVM maps them into memory."""
    return JARS.with_name(f"{VERSION}-{main}.jsa")


def any_broker() -> Broker:
    """The first kind that starts: given, Docker, JVM. Raises `NoBrokerError` with all the reasons."""
    reasons = []
    for kind in (GivenBroker, DockerBroker, lambda: JvmBroker().start()):
        try:
            return kind()
        except NoBrokerError as reason:
            reasons.append(str(reason))
    raise NoBrokerError("; ".join(reasons))


def jars(pom: Path = HERE / "pom.xml", folder: Path = JARS) -> Path:
    """The folder of Kafka's jars, or another POM's, fetched by Maven once for all test runs; Kafka's with archives.

    Raises `NoBrokerError`.
    """
    with fetching(folder):
        if not folder.is_dir():
            _fetch(pom, folder)
        if folder == JARS and not archive("kafka.Kafka").is_file():
            with _Archiving() as broker:
                broker.stop()
    return folder


@contextmanager
def fetching(folder: Path) -> Iterator[None]:
    """Two test runs may want a folder of Maven's files at once: one comes after the other. Raises `NoBrokerError`."""
    needed = ("java",) if folder.is_dir() else ("java", "mvn")
    if missing := [tool for tool in needed if shutil.which(tool) is None]:
        raise NoBrokerError(f"no {' and no '.join(missing)} on the PATH")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(pom: Path, folder: Path) -> None:
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={part}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if result.returncode:
        raise NoBrokerError(f"Maven could not fetch {pom.parent.name}'s jars: {result.stdout[-500:]}")
    part.rename(folder)


def common_config() -> dict[str, str]:
    """`jvm/server.properties` as a dict."""
    lines = (HERE / "server.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def listeners(host: str, port: int, controller_port: int) -> dict[str, str]:
    """One node's listeners, and the address that it tells its clients."""
    return {
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
    }


def free_port() -> int:
    """A port of 127.0.0.1 that is free now, and still free when its owner listens again after a restart.

    It lies below the ports that the system gives to outgoing connections (Linux: from 32,768). A client that keeps
    trying one of those while it has no listener gets that port itself in the end, and the owner cannot listen any more.
    """
    while True:
        wanted = random.SystemRandom().randrange(10_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", wanted)):
            return wanted


def wait_until_answering(
    bootstrap_servers: str, why_dead: Callable[[], str | None] = lambda: None, login: Login | None = None
) -> None:
    """Wait until the broker lists itself. Raises `NoBrokerError` when it is dead or too late."""
    config: Login = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 200}
    admin = AdminClient({**config, **(login or {})})
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if reason := why_dead():
            raise NoBrokerError(reason)
        try:
            if admin.list_topics(timeout=0.5).brokers:
                return
        except KafkaException:
            continue
    raise NoBrokerError(f"no Kafka answers at {bootstrap_servers}")


def usual_port(wanted: int = USUAL_PORT) -> int:
    """The wanted port, or another if something listens there."""
    with suppress(OSError), socket.create_server(("127.0.0.1", wanted)):
        return wanted
    return free_port()


def main() -> None:
    """Start a broker with the topics that are named, and stay until Ctrl-C."""
    try:
        _serve(sys.argv[1:])
    except NoBrokerError as reason:
        sys.exit(f"No Kafka: {reason}; Java 17 or later is needed, and Maven for the first time")
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped before it was up\n")
        sys.exit(128 + signal.SIGINT)


def _serve(topics: Sequence[str]) -> None:
    began = time.monotonic()
    sys.stderr.write(f"Starting Kafka {VERSION}; the first time, Maven fetches it (43 MB)\n")
    if (port := usual_port()) != USUAL_PORT:
        sys.stderr.write(f"Port {USUAL_PORT} is taken, so it will listen on port {port}\n")
    with JvmBroker(seat=seats(1)[0]._replace(port=port)) as broker:
        if topics:
            _create(broker, topics)
        took = time.monotonic() - began
        sys.stderr.write(f"It is up after {took:.1f} s; Ctrl-C stops it, and its topics go with it\n")
        sys.stdout.write(f"export WORKER_KAFKA__BOOTSTRAP_SERVERS={broker.bootstrap_servers}\n")
        sys.stdout.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
        broker.stop()


def _create(broker: Broker, topics: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, num_partitions=PARTITIONS) for name in topics]).values():
        made.result(START_TIMEOUT)


if __name__ == "__main__":
    main()
