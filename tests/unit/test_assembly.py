"""Each setting reaches the part that obeys it: a worker assembled from settings that all differ from the defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from tests import models
from tests.logs import capture_logs
from tests.unit.test_settings import LEAST
from worker import app, assembled_states, assembly, telemetry
from worker.assembled_model import begin_model
from worker.assembly import MOST_POLLED
from worker.codecs.codec import Codec
from worker.codecs.wire_contract import Wire
from worker.core.batching.back_pressure import Bounds
from worker.core.batching.batcher import BatchPolicy
from worker.core.chunk import Finished
from worker.core.failures import BadConfiguration, RunFailure, TooManyRejections
from worker.core.ordering.order_by_key import KeyedLedger
from worker.core.records import CommitResult, Partition, Record
from worker.core.tensors.signature import Signature
from worker.delivery.at_least_once import AtLeastOnce
from worker.delivery.exactly_once import ExactlyOnce
from worker.delivery.last_states import EachState, LastStates
from worker.inference.model import Model
from worker.inference.thread_lane import BRIEF, ThreadLane
from worker.kafka.client.membership import Membership
from worker.kafka.cluster.topics import Topics
from worker.loop.conduct import Conduct
from worker.loop.stateless import Stateless
from worker.loop.worker import Worker
from worker.settings import load
from worker.signals import StopSignals
from worker.state import ByKey
from worker.state.key_slots import KeySlots

ANSWERS_TAKE, REPLIES_TAKE, LETTERS_TAKE, STATES_TAKE = 300_000, 250_000, 200_000, 100_000
SET = {
    "WORKER_KAFKA__REPLY_TOPICS": "replies",
    "WORKER_KAFKA__DEAD_LETTER_TOPIC": "letters",
    "WORKER_KAFKA__DEFAULT_CONTENT_TYPE": "application/octet-stream",
    "WORKER_KAFKA__MAX_REQUEST_BYTES": "70000",
    "WORKER_KAFKA__NULL_VALUE": "skip",
    "WORKER_KAFKA__ROWS_HEADERS": "required",
    "WORKER_KAFKA__CONFIG": '{"max.poll.interval.ms": "20000"}',
    "WORKER_MODEL__HOST": "thread",
    "WORKER_MODEL__NON_FINITE_INPUT": "allow",
    "WORKER_MODEL__NON_FINITE_OUTPUT": "error",
    "WORKER_MODEL__RUN_TIMEOUT_S": "90",
    "WORKER_BATCHING__MAX_BATCH_SIZE": "48",
    "WORKER_BATCHING__MAX_BATCH_BYTES": "500000",
    "WORKER_BATCHING__MAX_BATCH_TOKENS": "300",
    "WORKER_BATCHING__LINGER_MS": "7",
    "WORKER_BATCHING__TIMEOUT_MS": "1500",
    "WORKER_BATCHING__MAX_INFLIGHT_RECORDS": "1001",
    "WORKER_BATCHING__MAX_INFLIGHT_BYTES": "3000003",
    "WORKER_BATCHING__MAX_REQUEST_ROWS": "77",
    "WORKER_DELIVERY__COMMIT_INTERVAL_MS": "350",
    "WORKER_DELIVERY__DRAIN_TIMEOUT_S": "9",
    "WORKER_DELIVERY__REJECTION_LIMIT": "11",
}


class Part:
    """Stands for a part that talks to Kafka, and remembers the arguments that it was made with."""

    def __init__(self, *made_of: Any, on_error: object = None, most_partitions: int | None = None) -> None:
        self.made_of = made_of
        self.most_partitions = most_partitions
        self.on_error = on_error
        self.waited = self.closed = 0

    def member(self) -> object:
        return "this member"

    def wait_until_ready(self) -> None:
        self.waited += 1

    def close(self, timeout: float) -> int:
        self.closed += 1
        return 0


class Source(Part):
    def hear_of_login(self, error: object) -> None: ...


class Sink(Part):
    def send(self) -> None: ...

    def poll(self) -> None: ...

    def push(self) -> None: ...


class Transactions(Part):
    def begin(self) -> None: ...

    def ended(self) -> None: ...

    def serve(self) -> None: ...


def topics_that_take(answers: int) -> Topics:
    limits = {"answers": answers, "replies": REPLIES_TAKE, "letters": LETTERS_TAKE, "group-state": STATES_TAKE}
    partitions = {"requests": 3, "answers": 4, "replies": 5, "letters": 2, "group-state": 3}
    return Topics(partitions, limits, Membership("consumer", "test"))


class Assembled:
    """A worker with these settings and without a Kafka."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> None:
        for name, stand_in in (("KafkaSource", Source), ("KafkaSink", Sink), ("KafkaTransactions", Transactions)):
            patch.setattr(assembly, name, stand_in)
        patch.setattr(assembled_states, "changelog_facts", lambda *_: None)  # no broker is there to be asked
        patch.setattr(assembly, "Codec", self._codec)
        model = {"WORKER_MODEL__PATH": str(models.save(models.mlp(), folder))}
        self.settings = load(None, {**LEAST, **model, **environ})
        self.events = telemetry.WorkerEvents(1)
        self.closing = ExitStack()
        topics = topics_that_take(ANSWERS_TAKE)
        self.worker: Worker = assembly.assemble(
            self.settings,
            topics,
            begin_model(self.settings, self.events, self.closing),
            signals=StopSignals(),
            events=self.events,
            tracing=None,
            closing=self.closing,
        )
        worker = self.worker
        nouns = [worker._admission, worker._dispatch, worker._outcomes, worker]
        self.held: dict[str, Any] = {name: part for noun in nouns for name, part in vars(noun).items()}
        (stacker,) = self.held["_stackers"].values()
        self.signature: Signature = stacker.signature

    @property
    def conduct(self) -> Conduct:
        return cast("Conduct", self.held["_conduct"])

    @property
    def policy(self) -> BatchPolicy:
        (policy,) = self.held["_batcher"]._policies.values()
        return cast("BatchPolicy", policy)

    def _codec(self, signatures: list[Signature], wire: Wire, *others: Any) -> Codec:
        self.wire = wire
        return Codec(signatures, wire, *others)

    @property
    def outlet(self) -> Any:
        delivery = vars(self.held["_delivery"])
        return delivery.get("_sink") or delivery.get("_transactions")


@pytest.fixture(scope="module")
def assembled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Assembled]:
    with pytest.MonkeyPatch.context() as patch:
        made = Assembled(tmp_path_factory.mktemp("model"), patch, SET)
        yield made
        made.closing.close()


@pytest.fixture
def assemble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Assembled]]:
    """Assembles further workers, with changed settings."""
    with ExitStack() as made:

        def another(**changes: str) -> Assembled:
            found = Assembled(tmp_path, monkeypatch, {**SET, **{f"WORKER_{k}": v for k, v in changes.items()}})
            made.enter_context(found.closing)
            return found

        yield another


def test_batches_are_as_large_and_wait_as_long_as_was_set(assembled: Assembled) -> None:
    """This includes rows, bytes, tokens, and the linger in seconds."""
    assert assembled.policy == BatchPolicy(48, 500_000, 0.007, 300, assembled.signature.buckets)
    assert assembled.held["_batcher"].linger == 0.007


def test_a_model_of_so_many_rows_fills_batches_of_no_more(assemble: Callable[..., Assembled], tmp_path: Path) -> None:
    """Smaller batches take equal memory and time, so neither tokens nor a lack of memory make them smaller."""
    fixed = models.save(models.for_rows(16, models.mlp()), tmp_path, "fixed")

    made = assemble(MODEL__PATH=str(fixed), MODEL__FIXED_BATCH="pad")

    assert (made.policy.max_rows, made.policy.is_fixed) == (16, True)


def test_states_lie_where_it_was_set(assemble: Callable[..., Assembled], tmp_path: Path) -> None:
    """So many keys have their states in memory, the others in the directory, which no other replica may use."""
    path = models.save(models.gru(), tmp_path, "gru")
    set_so = {
        "MODEL__PATH": str(path),
        "STATE__TENSORS": '{"h_in": "h_out"}',
        "STATE__DIRECTORY": str(tmp_path / "states"),
        "STATE__KEYS_IN_MEMORY": "5000",
    }

    states = assemble(**set_so).held["_states"]

    assert isinstance(states._slots, KeySlots)
    assert states._slots._most == 5000
    with pytest.raises(BadConfiguration, match="another worker's, which runs"):
        assemble(**set_so)


def test_a_key_is_as_long_as_the_changelog_takes_with_its_state(
    assemble: Callable[..., Assembled], tmp_path: Path
) -> None:
    """A longer key would fail each transaction. A state too large for any key keeps the worker from starting."""
    small, large = (
        models.save(models.identities({"": "FP32", "_h": "FP32"}, (size,)), tmp_path, f"of_{size}")
        for size in (16, 25_000)
    )
    set_so = {"STATE__TENSORS": '{"x_h": "y_h"}'}

    made = assemble(MODEL__PATH=str(small), **set_so)

    assert made.wire.max_key_bytes == STATES_TAKE - 100 - (24 + 16 * 4)
    with pytest.raises(BadConfiguration, match="100,024 bytes, and topic group-state takes records of 100,000"):
        assemble(MODEL__PATH=str(large), **set_so)


@pytest.mark.parametrize("is_accelerated", [False, True])
def test_only_a_model_on_the_cpu_runs_on_the_loops_own_thread(
    assemble: Callable[..., Assembled], monkeypatch: pytest.MonkeyPatch, *, is_accelerated: bool
) -> None:
    """The loop does not wait for another device."""
    monkeypatch.setattr(Model, "is_accelerated", is_accelerated)

    usual = assemble().held["_lanes"]._usual

    assert usual._brief == (0.0 if is_accelerated else BRIEF)


def test_a_model_that_fails_in_its_lane_ends_the_start(
    assemble: Callable[..., Assembled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran in the thread that loaded it, and CUDA sets itself up for each thread."""
    monkeypatch.setattr(Model, "is_accelerated", True)
    failed = Finished(None, None, RunFailure("no memory"), 0.1)
    monkeypatch.setattr(ThreadLane, "finished", lambda *_: [failed])

    with pytest.raises(BadConfiguration, match=r"its lane: no memory$"):
        assemble()


def test_as_much_is_in_flight_as_was_set(assembled: Assembled) -> None:
    """The bounds are for records, rows and bytes taken, batches and lanes."""
    intake = assembled.held["_intake"]

    assert intake._bounds == Bounds(1001, 131_072, 3_000_003)
    assert intake._most_polled == MOST_POLLED
    assert assembled.conduct.polled_beside_runs == 2 * 48


def test_as_many_lanes_run_as_were_set(assemble: Callable[..., Assembled]) -> None:
    """One more batch waits for them."""
    assembled = assemble(MODEL__HOST="process", BATCHING__LANES="3")

    assert (assembled.conduct.lanes, assembled.conduct.inflight_batches) == (3, 4)
    assert assembled.conduct.polled_beside_runs == 4 * 48
    assert assembled.held["_lanes"]._lanes == 3


def test_a_stop_takes_as_long_as_was_set(assembled: Assembled) -> None:
    """A revoke gets at most a fifth of the time after which the group gives up a silent member."""
    assert assembled.conduct.drain_timeout == 9.0
    assert assembled.conduct.revoke_timeout == 4.0


def test_rejections_that_are_written_count_towards_the_limit(assembled: Assembled) -> None:
    """The codec counts them, and the loop checks the limit."""
    codec = assembled.held["_codec"]
    [(_, refused)] = codec.read([Record(Partition("requests", 0), 0, None, b"odd", (), None)]).rejections
    for _ in range(11):
        codec.messages([refused])

    with pytest.raises(TooManyRejections, match="11 records in a row"):
        assembled.held["_rejections"].check()


def test_requests_are_read_and_answered_as_was_set(assembled: Assembled) -> None:
    """The wire contract has the deployment's choices, and the limits of the topics."""
    assert assembled.wire == Wire(
        response_topic="answers",
        group_id="group",
        dead_letter_topic="letters",
        default_content_type="application/octet-stream",
        default_timeout=1.5,
        max_request_bytes=70_000,
        max_answer_bytes=ANSWERS_TAKE,
        max_dead_letter_bytes=LETTERS_TAKE,
        null_value="skip",
        must_state_rows=True,
        non_finite_output="error",
        reply_topics={"answers": 4, "replies": 5},
        reply_bytes={"replies": REPLIES_TAKE},
    )
    assert assembled.signature.max_rows == 77


@pytest.mark.parametrize("wanted", ["reject", "allow"])
@pytest.mark.parametrize("given", ["error", "allow"])
def test_what_is_not_finite_is_treated_as_was_set(assemble: Callable[..., Assembled], wanted: str, given: str) -> None:
    """Inputs and outputs have separate settings."""
    made = assemble(MODEL__NON_FINITE_INPUT=wanted, MODEL__NON_FINITE_OUTPUT=given)
    (stacker,) = made.held["_stackers"].values()

    assert stacker.refuse_non_finite_input == (wanted == "reject")
    assert stacker.refuse_non_finite_output == (given == "error")


def test_the_metrics_say_what_was_set(assembled: Assembled) -> None:
    """Operators compare a worker's load with these limits."""
    metrics = telemetry.metrics
    numbers = assembled.events._numbers.copied()

    limits = [metrics.LANES, metrics.RECORDS_LIMIT, metrics.ROWS_LIMIT, metrics.BYTES_LIMIT, metrics.RUN_LIMIT]

    assert [numbers[limit][()] for limit in limits] == [1, 1001, 131_072, 3_000_003, 90]
    assert numbers[metrics.MAX_BATCH_ROWS][()] == 48


def test_at_least_once_commits_as_often_as_was_set(assembled: Assembled) -> None:
    """It commits through the sink, which is closed when the worker ends."""
    delivery = assembled.held["_delivery"]

    assert isinstance(delivery, AtLeastOnce)
    assert isinstance(assembled.outlet, Sink)
    assert delivery._commit_interval == 0.35
    assert delivery._offsets is assembled.held["_source"]


def test_exactly_once_has_the_id_and_the_time_that_were_set(assemble: Callable[..., Assembled]) -> None:
    """It asks the consumer for its member, and serves when the broker knows the id."""
    made = assemble(
        DELIVERY__GUARANTEE="exactly_once",
        DELIVERY__TRANSACTIONAL_ID="scorer-7",
        DELIVERY__TRANSACTION_TIMEOUT_MS="45000",
    )
    delivery, (kafka, _, name, timeout_ms, member, *_) = made.held["_delivery"], made.outlet.made_of

    assert isinstance(delivery, ExactlyOnce)
    assert isinstance(made.outlet, Transactions)
    assert (kafka, name.text, timeout_ms) == (made.settings.kafka, "scorer-7", 45_000)
    assert member == made.held["_source"].member
    assert made.outlet.waited == 1
    assert delivery._commit_interval == 0.35


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_what_sends_answers_is_closed_in_the_end(assemble: Callable[..., Assembled], guarantee: str) -> None:
    """Sent answers get a moment to arrive, and an open transaction is aborted."""
    made = assemble(DELIVERY__GUARANTEE=guarantee)

    made.closing.close()

    assert made.outlet.closed == 1


def test_answers_leave_in_the_order_that_was_set(assemble: Callable[..., Assembled]) -> None:
    """The ledger keeps it."""
    assert isinstance(assemble(DELIVERY__ORDER="key").held["_ledger"], KeyedLedger)


@pytest.mark.parametrize(("guarantee", "around"), [("at_least_once", EachState), ("exactly_once", LastStates)])
def test_a_model_with_state_has_the_parts_of_its_states(
    assemble: Callable[..., Assembled], tmp_path: Path, guarantee: str, around: type
) -> None:
    """Its records keep their order and wait for their keys, and its states leave with the answers. Others need none."""
    path = models.save(models.gru(), tmp_path, "gru")

    made = assemble(MODEL__PATH=str(path), STATE__TENSORS='{"h_in": "h_out"}', DELIVERY__GUARANTEE=guarantee)
    plain = assemble()

    assert (made.wire.has_state, plain.wire.has_state) == (True, False)
    assert isinstance(made.held["_stage"], ByKey)
    assert isinstance(made.outlet, around)
    assert plain.held["_stage"] is plain.held["_batcher"]
    assert isinstance(plain.held["_states"], Stateless)


def test_a_linger_is_learned_within_its_budget(assemble: Callable[..., Assembled]) -> None:
    """It is learned only if set so."""
    learned = assemble(BATCHING__LINGER_MS="auto", BATCHING__LATENCY_BUDGET_MS="40").held["_batcher"]._auto
    free = assemble(BATCHING__LINGER_MS="auto").held["_batcher"]._auto

    assert (learned._budget, free._budget) == (0.04, inf)
    assert assemble().held["_batcher"]._auto is None


@pytest.mark.parametrize(
    ("host", "set_to", "run", "turn"),
    [("process", "90", None, 60.0), ("thread", "5", 5.0, 60.0), ("thread", "90", 90.0, 95.0)],
)
def test_the_watchdog_waits_for_what_was_set(
    monkeypatch: pytest.MonkeyPatch, host: str, set_to: str, run: float | None, turn: float
) -> None:
    """The limits are for an inference here, a turn with one in it, and a drain with the time to leave the group."""
    limits: list[telemetry.TimeLimits] = []

    def watch(found: telemetry.TimeLimits, **_: object) -> None:
        limits.append(found)
        raise KeyboardInterrupt

    monkeypatch.setattr(telemetry, "Watchdog", watch)
    monkeypatch.setattr(app, "sys", SimpleNamespace(setswitchinterval=lambda _: None))
    monkeypatch.setattr(telemetry, "configure", lambda *_: None)
    settings = load(None, {**LEAST, **SET, "WORKER_MODEL__HOST": host, "WORKER_MODEL__RUN_TIMEOUT_S": set_to})

    with pytest.raises(KeyboardInterrupt):
        app.run(settings)

    assert limits == [telemetry.TimeLimits(turn=turn, run=run, stop=9.0 + app.CLOSE_TIMEOUT)]


def test_a_worker_that_a_defect_ends_has_told_its_last_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells them after all is closed, in addition to the traceback."""

    def assembled(*_: object, events: telemetry.WorkerEvents, closing: ExitStack, **__: object) -> object:
        closing.callback(events.committed, CommitResult({}, {Partition("requests", 0): "no coordinator"}))
        return Mock(run=Mock(side_effect=ZeroDivisionError))

    monkeypatch.setattr(app, "examine", lambda *_, **__: topics_that_take(ANSWERS_TAKE))
    monkeypatch.setattr(assembly, "assemble", assembled)
    monkeypatch.setattr(telemetry, "configure", lambda *_: None)
    monkeypatch.setattr(app, "sys", SimpleNamespace(setswitchinterval=lambda _: None))
    monkeypatch.setattr(app, "gc", Mock())

    with capture_logs() as log, pytest.raises(ZeroDivisionError):
        app.run(load(None, {**LEAST, **SET}))

    assert log[-1]["event"] == "commits_failed"


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_the_cluster_is_examined_for_the_promise_that_was_set(monkeypatch: pytest.MonkeyPatch, guarantee: str) -> None:
    """Transactions need brokers that support them."""
    asked: list[bool] = []
    monkeypatch.setattr(app, "examine", lambda *_, with_transactions, **__: asked.append(with_transactions))

    app._examined_topics(load(None, {**LEAST, "WORKER_DELIVERY__GUARANTEE": guarantee}), telemetry.WorkerEvents(32))

    assert asked == [guarantee == "exactly_once"]
