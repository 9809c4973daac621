"""The broker of these tests does what the tests take for granted."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.kafka.broker import USUAL_PORT, JvmBroker, free_port, jars, usual_port
from tests.kafka.cluster import Cluster, Sent, fresh
from tests.kafka.fixtures import or_skip


def test_what_is_produced_is_read_back_in_order(kafka: Cluster) -> None:
    """Records of one partition come back complete, in order, with key and headers."""
    topic = kafka.create_topic(partitions=2)
    sent = [Sent(b"k%d" % n, b"v%d" % n, [("n", b"%d" % n)], partition=n % 2) for n in range(200)]

    kafka.produce(topic, sent)

    read = kafka.read(topic, 200)
    for partition in (0, 1):
        values = [(r.key, r.value, r.headers) for r in read if r.partition == partition]
        assert values == [(s.key, s.value, s.headers) for s in sent if s.partition == partition]
    assert kafka.end_offsets(topic) == {0: 100, 1: 100}


def test_a_topic_that_nobody_made_does_not_appear(kafka: Cluster) -> None:
    """A mistyped topic is an error, not a new topic."""
    with pytest.raises(AssertionError, match="UNKNOWN_TOPIC_OR_PART"):
        kafka.produce(fresh("mistyped"), [Sent(None, b"v")], {"topic.metadata.propagation.max.ms": "500"})


def test_a_broker_by_hand_takes_the_usual_port_where_it_is_free() -> None:
    """Where something listens there, it takes another."""
    wanted = free_port()

    assert usual_port(wanted) == wanted
    with socket.create_server(("127.0.0.1", wanted)):
        assert usual_port(wanted) != wanted


def test_a_broker_by_hand_says_where_it_is_and_can_be_given_up(tmp_path: Path) -> None:
    """Where the usual port is taken it names another; Ctrl-C while it starts leaves no traceback and no folder."""
    or_skip(jars)
    command = [sys.executable, "-m", "tests.kafka.broker"]
    with ExitStack() as stack:
        with suppress(OSError):  # it is taken already
            stack.enter_context(socket.create_server(("127.0.0.1", USUAL_PORT)))
        environ = {**os.environ, "TMPDIR": str(tmp_path)}
        by_hand = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ))
        assert by_hand.stderr is not None
        said = [by_hand.stderr.readline() for _ in range(2)]
        while not list(tmp_path.glob("kafka-*/data")):  # it has begun
            assert by_hand.poll() is None, by_hand.stderr.read()
            time.sleep(0.01)
        by_hand.send_signal(signal.SIGINT)
        rest = by_hand.stderr.read()

    assert re.fullmatch(r"Port 9092 is taken, so it will listen on port \d+\n", said[1])
    assert rest == "\nStopped before it was up\n"
    assert by_hand.returncode == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_killed_broker_comes_back_with_what_it_acknowledged(own_broker: JvmBroker) -> None:
    """After kill -9 the same port serves the same records."""
    cluster = Cluster(own_broker.bootstrap_servers)
    topic = cluster.create_topic()
    cluster.produce(topic, [Sent(None, b"before")])

    own_broker.kill()
    own_broker.start()

    cluster.produce(topic, [Sent(None, b"after")])
    assert [r.value for r in cluster.read(topic, 2)] == [b"before", b"after"]


@pytest.mark.slow
def test_a_broker_that_has_had_no_group_can_be_asked_for_offsets(own_broker: JvmBroker) -> None:
    """It has no `__consumer_offsets` yet and refuses. In a process of its own: a client could end it (SIGSEGV)."""
    cluster = Cluster(own_broker.bootstrap_servers)
    topic = cluster.create_topic()
    asking = (
        f"from tests.kafka.cluster import *; print(Cluster({cluster.bootstrap_servers!r}).committed('g', {topic!r}))"
    )

    asked = subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True, check=False)

    assert (asked.returncode, asked.stdout) == (0, "{}\n"), asked.stderr
