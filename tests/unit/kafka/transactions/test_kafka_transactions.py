"""The committer with producers that follow a script: which call follows which trouble."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, repeat
from threading import Event

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.contract.test_sink import stretches
from tests.fakes import Onlooker
from tests.unit.kafka.client.test_unacknowledged import text, topic
from worker.core.failures import BadConfiguration, KafkaFatal, ReplyRefused
from worker.core.ordering.ledger import Stretch
from worker.core.records import Ending, Fields, Message, Partition
from worker.kafka.client.membership import Membership, TransactionalId, resolve_transactional_id
from worker.kafka.cluster.topics import Topics
from worker.kafka.transactions import committer, kafka_transactions
from worker.kafka.transactions.kafka_transactions import KafkaTransactions
from worker.kafka.transactions.transactional_producer import Reaction, Trouble, trouble_of
from worker.settings import KafkaSettings

PATIENCE = 10.0
REQUESTS = Partition("requests", 0)


def trouble(code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> Trouble:
    """The trouble as the client raises it."""
    return trouble_of(KafkaException(KafkaError(code, "the reason", fatal, retriable, abort)))


TIMED_OUT = trouble(KafkaError._TIMED_OUT, retriable=True)
LEFT = trouble(KafkaError.UNKNOWN_MEMBER_ID, abort=True)
UNKNOWN = trouble(KafkaError.INVALID_TXN_STATE, fatal=True)
FENCED = trouble(KafkaError._FENCED, fatal=True)
FIXED = TransactionalId("worker-0", "worker-", is_unique=False, is_stable=True)


class ScriptedProducer:
    """Stands for a `TransactionalProducer`. `script` gives each call's results; without one, all calls succeed."""

    def __init__(self, **script: Iterable[Trouble | Exception]) -> None:
        self._script = {call: iter(results) for call, results in script.items()}
        self.failure: str | None = None
        self.is_final = False
        self.reply: str | None = None  # the topic that requests name, if it refused
        self.opened_at = 0.0
        self.absent: str | None = None  # the message about a topic that is gone
        self.calls: list[str] = []
        self.members: list[object] = []  # the member of each sending of offsets
        self.offsets: list[object] = []

    def begin(self) -> None:
        self.failure = None
        self.opened_at = time.monotonic()

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        if messages[0][2] == b"refused":
            self.failure = "the broker refused a record"

    def serve(self, timeout: float) -> None: ...

    def initialise(self, timeout: float) -> Trouble | None:
        return self._next("initialise")

    def send_offsets(self, offsets: object, member: object, timeout: float) -> Trouble | None:
        self.members.append(member)
        self.offsets.append(offsets)
        return self._next("send_offsets")

    def commit(self, timeout: float) -> Trouble | None:
        return self._next("commit")

    def abort(self, timeout: float) -> Trouble | None:
        return self._next("abort")

    def why_absent(self, timeout: float) -> str | None:
        return self.absent

    def refusal(self, trouble: Trouble | None, why: str) -> KafkaFatal | None:
        is_too_large = trouble is not None and trouble.text == "too large"
        if self.reply is not None:
            return ReplyRefused(why, self.reply)
        return KafkaFatal(why) if self.is_final or is_too_large else None

    def drop(self) -> None:
        self.calls.append("drop")

    def __len__(self) -> int:
        return 0

    def _next(self, call: str) -> Trouble | None:
        self.calls.append(call)
        result = next(self._script.get(call, iter(())), None)
        if isinstance(result, Exception):
            raise result
        return result


class Stage:
    """Transactions over the given producers, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._opened: list[KafkaTransactions] = []

    def opened(
        self,
        *producers: ScriptedProducer,
        name: TransactionalId = FIXED,
        timeout_ms: int = 10_000,
        watcher: Onlooker | None = None,
        member: Callable[[], object] = lambda: "member",
    ) -> KafkaTransactions:
        coming = iter(producers)
        self._monkeypatch.setattr(kafka_transactions, "TransactionalProducer", lambda *_: next(coming))
        kafka = KafkaSettings(
            bootstrap_servers="127.0.0.1:1", request_topics=("requests",), response_topic="answers", group_id="g"
        )
        topics = Topics({"answers": 1}, {"answers": 1_000}, Membership("consumer", "test"))
        logger = logging.getLogger("kafka")
        made = KafkaTransactions(kafka, topics, name, timeout_ms, member, logger, watcher)
        self._opened.append(made)
        return made

    def sleep(self, seconds: float) -> None:
        """Advance only the clock."""
        monotonic = time.monotonic
        self._monkeypatch.setattr("worker.kafka.transactions.committer.time.monotonic", lambda: monotonic() + seconds)

    def hurry(self) -> None:
        """Make a call count as lost soon."""
        self._monkeypatch.setattr(committer, "OFFSETS_TIMEOUT", 0.01)
        self._monkeypatch.setattr(committer, "STUCK_AFTER", 0.03)
        self._monkeypatch.setattr(committer, "LOOK", 0.01)

    def close(self) -> None:
        for one in self._opened:
            one.close(PATIENCE)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage(monkeypatch)
    yield stage
    stage.close()


def commit(opened: KafkaTransactions, value: bytes = b"v") -> Ending:
    """Commit one answer in its own transaction."""
    opened.begin()
    (stretch,) = stretches(1)
    opened.send([Message("answers", b"k", value, [], 0)], stretch)
    opened.commit({REQUESTS: 1})
    ending = opened.ended(PATIENCE)
    assert ending is not None
    return ending


FORGOTTEN = trouble(KafkaError.INVALID_PRODUCER_ID_MAPPING, abort=True)
BEGUN, COMMITTED = ["initialise"], ["send_offsets", "commit"]


@pytest.mark.parametrize(
    ("scripts", "value", "failure", "calls"),
    [
        pytest.param(
            [{"initialise": [TIMED_OUT], "commit": [TIMED_OUT, TIMED_OUT]}],
            b"v",
            None,
            [["initialise", *BEGUN, "send_offsets", *["commit"] * 3, *COMMITTED]],
            id="what may be repeated is repeated",
        ),
        pytest.param(
            [{"send_offsets": [TIMED_OUT]}, {}],
            b"v",
            TIMED_OUT.text,
            [[*BEGUN, "send_offsets", "drop"], [*BEGUN, *COMMITTED]],
            id="offsets are not sent again: the client might not come back from the second call",
        ),
        pytest.param(
            [{"send_offsets": [LEFT]}],
            b"v",
            LEFT.text,
            [[*BEGUN, "send_offsets", "abort", *COMMITTED]],
            id="a membership that is over spoils one transaction, not the producer",
        ),
        pytest.param(
            [{"commit": [UNKNOWN]}, {"initialise": [TIMED_OUT]}],
            b"v",
            UNKNOWN.text,
            [[*BEGUN, *COMMITTED, "drop"], ["initialise", *BEGUN, *COMMITTED]],
            id="the outcome is in doubt until another producer has taken the id over",
        ),
        pytest.param(
            [{}, {}],
            b"refused",
            "the broker refused a record",
            [[*BEGUN, "abort", "drop"], [*BEGUN, *COMMITTED]],
            id="what the client counted wrong behind a refused message goes with it",
        ),
        pytest.param(
            [{"abort": [UNKNOWN]}, {}],
            b"refused",
            "the broker refused a record",
            [[*BEGUN, "abort", "drop"], [*BEGUN, *COMMITTED]],
            id="whatever an abort left open ends with the id's next owner",
        ),
        *(
            pytest.param(
                [{call: repeat(FORGOTTEN)}, {}],
                b"refused" if call == "abort" else b"v",
                "the broker refused a record" if call == "abort" else FORGOTTEN.text,
                [[*BEGUN, *before, call, "drop"], [*BEGUN, *COMMITTED]],
                id=f"a producer that the broker has forgotten is not used again after {call}",
            )
            for call, before in (("send_offsets", []), ("commit", ["send_offsets"]), ("abort", []))
        ),
    ],
)
def test_each_trouble_has_its_way_out(
    stage: Stage,
    scripts: list[dict[str, Iterable[Trouble]]],
    value: bytes,
    failure: str | None,
    calls: list[list[str]],
) -> None:
    """The transaction ends as said, and the next one is committed."""
    producers = [ScriptedProducer(**script) for script in scripts]
    opened = stage.opened(*producers)
    opened.wait_until_ready(PATIENCE)

    ending = commit(opened, value)
    assert commit(opened).failure is None

    assert ending.failure == failure
    assert [producer.calls for producer in producers] == calls


@pytest.mark.parametrize("name", [resolve_transactional_id(None, "g"), resolve_transactional_id(None, "g", "one")])
def test_an_id_that_is_no_other_s_is_taken_again_though_it_was_fenced_at_once(
    stage: Stage, name: TransactionalId
) -> None:
    """This holds even during the takeover. The group refuses a second process under a static member's name."""
    first, second, third = ScriptedProducer(commit=[FENCED]), ScriptedProducer(initialise=[FENCED]), ScriptedProducer()
    opened = stage.opened(first, second, third, name=name)
    opened.wait_until_ready(PATIENCE)

    assert commit(opened).failure == FENCED.text
    assert commit(opened).failure is None

    assert third.calls == [*BEGUN, *COMMITTED]


@pytest.mark.parametrize("is_reported", [True, False])
def test_an_answer_that_its_topic_will_never_take_ends_the_worker(stage: Stage, *, is_reported: bool) -> None:
    """The message's report or the commit's own error says so. The transaction is aborted, so no reader waits."""
    too_large = trouble(KafkaError.MSG_SIZE_TOO_LARGE, abort=True)._replace(text="too large")
    producer, other = ScriptedProducer(commit=[] if is_reported else [too_large]), ScriptedProducer()
    producer.is_final = is_reported
    opened = stage.opened(producer, other)
    opened.wait_until_ready(PATIENCE)

    with pytest.raises(KafkaFatal, match="the broker refused a record" if is_reported else "too large"):
        commit(opened, b"refused" if is_reported else b"v")

    assert "abort" in producer.calls
    assert other.calls == []  # its transaction may never end in that topic, and hold up the id


def test_a_reply_topic_that_refuses_an_answer_is_named(stage: Stage) -> None:
    """The loop's thread learns the name: the next process may have to do without that topic."""
    producer = ScriptedProducer()
    producer.reply = "replies"
    opened = stage.opened(producer, ScriptedProducer())
    opened.wait_until_ready(PATIENCE)

    with pytest.raises(ReplyRefused, match="the broker refused a record") as raised:
        commit(opened, b"refused")

    assert raised.value.topic == "replies"


def test_each_transaction_is_committed_by_the_member_of_that_moment(stage: Stage) -> None:
    """Each rebalance moves the group to another epoch, and offsets of an earlier epoch are refused."""
    producer, epochs = ScriptedProducer(), count(1)
    opened = stage.opened(producer, member=lambda: next(epochs))
    opened.wait_until_ready(PATIENCE)

    for _ in range(3):
        assert commit(opened).failure is None

    assert producer.members == [1, 2, 3]
    assert producer.offsets == [[TopicPartition("requests", 0, 1)]] * 3


def test_what_is_open_at_the_end_is_taken_back(stage: Stage) -> None:
    """Otherwise readers would wait for it until its timeout."""
    producer = ScriptedProducer()
    opened = stage.opened(producer)
    opened.wait_until_ready(PATIENCE)
    opened.begin()

    opened.close(PATIENCE)

    assert producer.calls == ["initialise", "abort", "drop"]


def test_a_commit_without_an_end_ends_with_the_worker(stage: Stage) -> None:
    """The broker is away, and aborts an unfinished transaction by itself."""
    producer = ScriptedProducer(commit=repeat(TIMED_OUT))
    opened = stage.opened(producer)
    opened.wait_until_ready(PATIENCE)
    opened.begin()
    opened.commit({REQUESTS: 1})

    opened.close(0.05)
    opened._committer._thread.join(PATIENCE / 2)

    assert not opened._committer._thread.is_alive()
    assert producer.calls[-1] == "drop"


@pytest.mark.parametrize("script", [repeat(TIMED_OUT), [LEFT]])
def test_a_transaction_that_fails_names_a_topic_that_is_gone(stage: Stage, script: Iterable[Trouble]) -> None:
    """The client only says that messages were left or late, not why."""
    producer = ScriptedProducer(commit=script)
    producer.absent = "topic answers was deleted"
    opened = stage.opened(producer, ScriptedProducer(), timeout_ms=1)
    opened.wait_until_ready(PATIENCE)

    assert commit(opened).failure == "topic answers was deleted"


def test_a_fenced_producer_ends_the_worker_for_good(stage: Stage) -> None:
    """No other producer is opened, and every further question gets that answer."""
    opened = stage.opened(ScriptedProducer(commit=[FENCED]))
    opened.wait_until_ready(PATIENCE)

    with pytest.raises(KafkaFatal, match="another process uses the transactional id worker-0"):
        commit(opened)
    with pytest.raises(KafkaFatal, match="another process uses"):
        opened.ended(0.0)


def test_a_committer_that_dies_is_told(stage: Stage) -> None:
    """Nothing waits for ever for a dead thread."""
    opened = stage.opened(ScriptedProducer(commit=[ZeroDivisionError("a mistake")]))
    opened.wait_until_ready(PATIENCE)

    with pytest.raises(KafkaFatal, match="the committer died of ZeroDivisionError"):
        commit(opened)


class StuckProducer(ScriptedProducer):
    """A producer whose `send_offsets` returns only when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = Event()
        self.is_dropped = Event()

    def send_offsets(self, offsets: object, member: object, timeout: float) -> Trouble | None:
        self.let_go.wait(PATIENCE)
        return super().send_offsets(offsets, member, timeout)

    def drop(self) -> None:
        self.is_dropped.set()


def stuck_in(stage: Stage, stuck: StuckProducer, *others: ScriptedProducer) -> KafkaTransactions:
    """A transaction whose end does not return."""
    stage.hurry()
    opened = stage.opened(stuck, *others)
    opened.wait_until_ready(PATIENCE)
    opened.begin()
    opened.commit({REQUESTS: 1})
    return opened


def told(opened: KafkaTransactions) -> Ending:
    """Look for the ending again and again, as the loop does."""
    while (ending := opened.ended(0.001)) is None:
        pass
    return ending


def test_a_call_that_does_not_come_back_is_given_up(stage: Stage) -> None:
    """Another producer with that id goes on; the broker decides how far the lost one came."""
    other = ScriptedProducer()
    opened = stuck_in(stage, StuckProducer(), other)

    ending = told(opened)

    assert ending.failure == "the Kafka client did not come back from send_offsets_to_transaction"
    assert commit(opened).failure is None
    assert other.calls == ["initialise", "send_offsets", "commit"]


def test_a_lost_call_that_comes_back_ends_its_client(stage: Stage) -> None:
    """It commits nothing more."""
    stuck = StuckProducer()
    told(stuck_in(stage, stuck, ScriptedProducer()))

    stuck.let_go.set()

    assert stuck.is_dropped.wait(PATIENCE)
    assert stuck.calls == ["initialise", "send_offsets"]


def test_a_process_that_stood_still_abandons_no_committer(stage: Stage) -> None:
    """Only time between looks counts as waiting: an hour's sleep is one look."""
    stuck = StuckProducer()
    opened = stuck_in(stage, stuck)

    assert opened.ended(0.0) is None
    stage.sleep(3600.0)
    assert opened.ended(0.0) is None

    stuck.let_go.set()
    ending = opened.ended(PATIENCE)
    assert ending is not None
    assert ending.failure is None


def test_what_is_not_acknowledged_is_told_by_the_loop_s_thread(stage: Stage) -> None:
    """The client's callback runs in whichever thread serves it."""
    onlooker = Onlooker()
    opened = stage.opened(ScriptedProducer(), watcher=onlooker)
    opened.wait_until_ready(PATIENCE)

    opened._on_statistics(text(5, answers=topic((9, 4))))
    assert onlooker.undelivered == {}
    opened.begin()
    opened.serve(0)

    assert (onlooker.undelivered, onlooker.connections) == ({"answers": 5}, 1)


@pytest.mark.parametrize(
    ("found", "reaction"),
    [
        (trouble(KafkaError._TIMED_OUT, retriable=True), Reaction.AGAIN),
        (trouble(KafkaError.UNKNOWN_MEMBER_ID, abort=True), Reaction.ABORT),
        (trouble(KafkaError.STALE_MEMBER_EPOCH, abort=True), Reaction.ABORT),
        (trouble(KafkaError.MSG_SIZE_TOO_LARGE, abort=True), Reaction.ABORT),
        (trouble(KafkaError._FENCED, fatal=True), Reaction.RENEW),
        (trouble(KafkaError.INVALID_TXN_STATE, fatal=True), Reaction.RENEW),
        (trouble(KafkaError.INVALID_PRODUCER_EPOCH, fatal=True, retriable=True, abort=True), Reaction.RENEW),
        (trouble(KafkaError.INVALID_PRODUCER_ID_MAPPING, abort=True), Reaction.RENEW),
        (trouble(KafkaError.UNKNOWN_PRODUCER_ID, abort=True), Reaction.RENEW),
        (trouble(KafkaError._STATE), Reaction.RENEW),
        (trouble_of(ValueError("no metadata")), Reaction.RENEW),
    ],
)
def test_each_class_of_error_has_one_reaction(found: Trouble, reaction: Reaction) -> None:
    """A fatal error wins over a retriable one. A producer that the broker has forgotten is never used again."""
    assert found.reaction is reaction


@pytest.mark.parametrize(
    ("name", "open_for", "is_alive"),
    [(FIXED, 8.0, True), (FIXED, 9.1, False), (FIXED, 30.0, False), (resolve_transactional_id(None, "g"), 0.2, False)],
)
def test_only_another_process_takes_an_id_before_its_time(
    stage: Stage, name: TransactionalId, open_for: float, *, is_alive: bool
) -> None:
    """The broker aborts a transaction after its timeout, and no other process has a random id."""
    opened = stage.opened(ScriptedProducer(commit=[FENCED]), ScriptedProducer(), name=name)
    opened.wait_until_ready(PATIENCE)
    opened.begin()
    stage.sleep(open_for)
    opened.commit({REQUESTS: 1})

    if is_alive:
        with pytest.raises(KafkaFatal, match="give each replica its own, WORKER_DELIVERY__TRANSACTIONAL_ID"):
            opened.ended(PATIENCE)
    else:
        ending = opened.ended(PATIENCE)
        assert ending is not None
        assert ending.failure is not None


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "may not write transactional ids that begin with worker-"),
        (KafkaError.PRODUCER_FENCED, "another process uses the transactional id worker-0"),
        (KafkaError.UNSUPPORTED_VERSION, "Kafka opens no transactions for worker-0: the reason; start again"),
    ],
)
def test_a_broker_that_opens_no_transactions_is_quoted_with_the_cure(stage: Stage, code: int, said: str) -> None:
    """At the start the configuration is wrong; later, Kafka has changed."""
    closed = ScriptedProducer(initialise=[trouble(code, fatal=True)])
    with pytest.raises(BadConfiguration, match=re.escape(said)):
        stage.opened(closed).wait_until_ready(PATIENCE)

    closed = ScriptedProducer(initialise=[trouble(code, fatal=True)])
    opened = stage.opened(ScriptedProducer(commit=[UNKNOWN]), closed)
    opened.wait_until_ready(PATIENCE)
    with pytest.raises(KafkaFatal, match=re.escape(said)):
        commit(opened)
