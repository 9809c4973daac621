"""The broker of these tests does what the tests take for granted."""

import pytest

from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import Cluster, Sent, fresh


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
