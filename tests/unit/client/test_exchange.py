"""Each future ends exactly once, whatever happens: answers, errors, repeats, timeouts, failed deliveries, the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError

from inference_client import errors, pending
from inference_client.errors import (
    ClientClosed,
    DeadlineExceeded,
    Full,
    InferenceError,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
)
from inference_client.exchange import LOOK_EVERY
from inference_client.signature import Result
from tests.unit.client.builders import ROW, Nameless, Record, Stage, Y

SOON = 20.0  # seconds for another thread on a busy machine


def test_a_request_says_who_asks_and_how_long_it_waits() -> None:
    """The request carries its key. Each request has its own id, which begins with the client's id."""
    stage = Stage()

    first, second = stage.submit(0.5), stage.submit(2.0)

    (sent, other) = stage.producer.sent
    assert (sent.topic, sent.value, sent.key) == ("requests", ROW.tobytes(), b"k")
    assert sent.headers == {
        "content-type": b"application/octet-stream",
        "datatype": b"FP32",
        "rows": b"1",
        "request-id": first.request_id,
        "timeout-ms": b"500",
    }
    assert other.headers["timeout-ms"] == b"2000"
    assert first.request_id.startswith(b"me-")
    assert first.request_id != second.request_id


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (b"INVALID_ARGUMENT", errors.InvalidArgument),
        (b"NOT_FOUND", errors.NotFound),
        (b"RESOURCE_EXHAUSTED", errors.ResourceExhausted),
        (b"DEADLINE_EXCEEDED", errors.DeadlineExceeded),
        (b"INTERNAL", errors.Internal),
        (b"OF_TOMORROW", errors.InferenceError),
    ],
)
def test_an_error_of_the_worker_is_an_exception_of_its_type(code: bytes, kind: type[InferenceError]) -> None:
    """The exception has code, message and source. An unknown code becomes an exception too."""
    stage = Stage()
    answer = stage.submit()

    stage.arrive(answer, b"error", b'{"error":"no"}', **{"error-code": code})
    stage.turn()

    error = answer.exception(0)
    assert isinstance(error, InferenceError)
    assert type(error) is kind
    assert (error.code, error.message, error.source) == (code.decode(), "no", "requests/0/7")
    assert str(error) == f"{code.decode()}: no (requests/0/7)"


@pytest.mark.parametrize(
    ("status", "body"), [(b"ok", b"123"), (b"error", b"no JSON"), (b"error", b"{}"), (b"error", b"[]"), (b"?", b"")]
)
def test_an_answer_that_cannot_be_read_is_an_error(status: bytes, body: bytes) -> None:
    """The answer's future ends, and the client goes on."""
    stage = Stage()
    answer, next_one = stage.submit(), stage.submit()

    stage.arrive(answer, status, body)
    stage.arrive(next_one)
    stage.turn()

    assert isinstance(answer.exception(0), Internal)
    assert next_one.exception(0) is None


def test_a_header_without_a_name_in_utf_8_stops_nothing() -> None:
    """No worker writes such a header, but others may write to the topic. Answers around it still end their futures."""
    stage = Stage()
    before, behind = stage.submit(), stage.submit()

    stage.arrive(b"another-0")
    stage.arrive(before)
    stage.consumer.arrived.append(Nameless())
    stage.arrive(behind)
    stage.turn()

    assert before.done()
    assert behind.done()
    assert (stage.pending.late, stage.pending.repeats) == (0, 0)


def test_an_answer_is_known_by_its_id_wherever_that_stands() -> None:
    """A worker writes the id last, except for echoed headers. A record with no id or an empty one is no answer."""
    stage = Stage()
    echoed, last = stage.submit(), stage.submit()

    stage.arrive(echoed)
    ok: list[tuple[str, bytes | None]] = [("status", b"ok")]
    stage.consumer.arrived.append(Record([*ok, ("request-id", last.request_id)], Y.tobytes()))
    stage.consumer.arrived.extend([Record(ok, b""), Record([*ok, ("request-id", None)], b"")])
    stage.turn()

    assert [answer.result(0)["y"].tolist() for answer in (echoed, last)] == [Y.tolist()] * 2
    assert (stage.pending.late, stage.pending.repeats) == (0, 0)


def test_a_request_without_an_answer_ends_with_its_time() -> None:
    """The shorter ends first. The error asks for a worker. A later answer is late once, then a repeat."""
    stage = Stage()
    long, short = stage.submit(10.0), stage.submit(1.0)

    stage.turn(0.99)
    assert not short.done()
    stage.turn(0.01)
    error = short.exception(0)
    stage.arrive(short)
    stage.arrive(short)
    stage.turn()

    assert isinstance(error, DeadlineExceeded)
    assert isinstance(error, TimeoutError)
    assert "no answer in 1 s: does a worker run that reads requests and answers to answers," in error.message
    assert error.source is None
    assert (stage.pending.late, stage.pending.repeats) == (1, 1)
    assert not long.done()


def test_what_kafka_complained_of_is_told_with_the_timeout() -> None:
    """A complaint counts during the request, and before it if no answer has come since: Kafka tells some only once."""
    stage = Stage()
    stage.consumer.arrived.append(Record((), failure=KafkaError(KafkaError._TRANSPORT)))
    stage.turn()
    stage.turn(1.0)
    after = stage.submit(1.0)
    stage.turn(1.0)
    stage.arrive(stage.submit())
    stage.turn()
    calm = stage.submit(1.0)
    stage.turn(1.0)
    troubled = stage.submit(1.0)
    stage.trouble.hear(KafkaError(KafkaError._TRANSPORT))
    stage.turn(1.0)

    assert "No answer has come since Kafka's client said, 2 s ago: Local: Broker transport" in str(after.exception(0))
    assert "Kafka" not in str(calm.exception(0))
    assert "Meanwhile Kafka's client said: Local: Broker transport" in str(troubled.exception(0))


def test_a_complaint_that_says_why_is_not_lost() -> None:
    """If all brokers are down, that has a cause; a group error means nothing, since the client joins no group."""
    stage = Stage()
    late = stage.submit(1.0)

    for code in (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN, KafkaError.GROUP_AUTHORIZATION_FAILED):
        stage.trouble.hear(KafkaError(code))
    stage.turn(1.0)

    assert str(late.exception(0)).endswith("Meanwhile Kafka's client said: Local: Authentication failure")


def test_what_is_wrong_with_the_topics_is_asked_when_a_request_is_late() -> None:
    """It is asked once a second at most; the error has the result in the place of the missing worker."""
    stage = Stage()
    stage.arrive(stage.submit())
    stage.turn(LOOK_EVERY)
    assert stage.asked == 0
    stage.amiss = "the topic answers does not exist any more."

    late = [stage.submit(seconds) for seconds in (1.0, 1.0, 1.5, 2.5)]
    for _ in range(5):
        stage.turn(0.5)

    said = {str(answer.exception(0)).partition(": no answer in ")[2] for answer in late}
    assert said == {f"{seconds} s: the topic answers does not exist any more." for seconds in ("1", "1.5", "2.5")}
    assert stage.asked == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._MSG_TIMED_OUT, Unavailable),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Unavailable),
        (KafkaError.POLICY_VIOLATION, Unavailable),
        (KafkaError.MSG_SIZE_TOO_LARGE, ResourceExhausted),
        (KafkaError.INVALID_RECORD, InvalidArgument),
        (KafkaError.INVALID_TIMESTAMP, Unavailable),
    ],
)
def test_a_request_that_was_not_delivered_ends_so(code: int, kind: type[InferenceError]) -> None:
    """The request may have reached the topic: a later answer counts as late."""
    stage = Stage()
    answer = stage.submit()

    stage.producer.fail(stage.producer.sent[0], code)
    stage.turn()
    stage.producer.sent[0].on_delivery(None, None)
    stage.producer.fail(stage.producer.sent[0], code)
    stage.arrive(answer)
    stage.turn()

    assert type(answer.exception(0)) is kind
    assert stage.pending.late == 1


def test_a_future_that_is_open_at_a_fork_raises_in_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has no thread that could end it. Futures that had ended keep their results."""
    stage = Stage()
    ended, is_open = stage.submit(), stage.submit()
    stage.arrive(ended)
    stage.turn()

    monkeypatch.setattr(pending, "_forks", pending._forks)
    pending._count_fork()

    assert ended.result()["y"].tolist() == Y.tolist()
    with pytest.raises(ClientClosed, match="which this one was forked from; make a new one here"):
        is_open.result()


def test_a_record_that_the_producer_refuses_is_an_error_at_once() -> None:
    """The request takes no place."""
    stage = Stage()
    stage.producer.failure = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)

    with pytest.raises(ResourceExhausted, match=r"message\.max\.bytes"):
        stage.submit()

    assert len(stage.pending) == 0


@pytest.mark.parametrize("key", [17, np.int64(17), bytearray(b"17")])
def test_a_key_of_another_type_is_refused(key: Any) -> None:
    """A numpy number would be sent as its eight bytes, and no other publisher does that."""
    stage = Stage()

    with pytest.raises(TypeError, match=f"key must be str, bytes or None, got {type(key).__name__}"):
        stage.exchange.submit(stage.encoder.encode({"x": ROW}), key, 1.0)

    assert (len(stage.pending), stage.producer.sent) == (0, [])


def test_a_client_that_is_full_says_so_if_told_to() -> None:
    """The client takes a request again when one has ended."""
    stage = Stage(most=2)
    first, _ = stage.submit(), stage.submit()

    with pytest.raises(Full, match="2 requests are under way"):
        stage.submit()
    stage.arrive(first)
    stage.turn()

    assert not stage.submit().done()


def test_a_caller_waits_for_a_place() -> None:
    """The caller's own thread waits until a place is free."""
    stage = Stage(most=1, waits=True)
    first = stage.submit()
    found: list[Future[Result]] = []
    caller = threading.Thread(target=lambda: found.append(stage.submit(SOON)))
    caller.start()

    while not stage.pending._waiting:
        pass
    assert not found
    stage.arrive(first)
    stage.turn()
    caller.join(SOON)

    assert [answer.done() for answer in found] == [False]


def test_a_caller_waits_for_a_place_no_longer_than_for_its_answer() -> None:
    """Then the caller gets an error that says so."""
    stage = Stage(most=1, waits=True)
    stage.submit()

    with pytest.raises(DeadlineExceeded, match="none ended"):
        stage.submit(0.001)


def test_a_caller_waits_for_room_in_the_producer() -> None:
    """The header then holds the time that is left."""
    stage = Stage(room=0, waits=True)
    asked = 0

    def clock() -> float:
        nonlocal asked
        asked += 1
        if asked == 4:
            stage.producer.room = 1
        return 100.0 + 0.1 * asked

    stage.exchange._clock = clock

    stage.submit(1.0)

    assert int(stage.producer.sent[0].headers["timeout-ms"]) < 1000
    stage.producer.room = 0
    with pytest.raises(Full, match="producer's queue"):
        stage.submit(1.0)


def test_a_future_that_is_cancelled_frees_its_place() -> None:
    """Waiters are told, and its answer counts as late. A future that has ended cannot be cancelled."""
    stage = Stage(most=1)
    answer = stage.submit()

    assert answer.cancel()
    assert answer.cancel()
    assert wait([answer], 0).done == {answer}
    stage.arrive(answer)
    stage.turn()
    ended = stage.submit()
    stage.arrive(ended)
    stage.turn()

    assert stage.pending.late == 1
    assert not ended.cancel()
    with pytest.raises(CancelledError):
        answer.result(0)


def test_ids_of_lapsed_requests_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client forgets the oldest ids; their answers count as repeats."""
    monkeypatch.setattr(pending, "_MOST_LAPSED", 2)
    stage = Stage()
    lapsed = [stage.submit(1.0) for _ in range(3)]
    stage.turn(1.0)

    for answer in lapsed:
        stage.arrive(answer)
    stage.turn()

    assert (stage.pending.late, stage.pending.repeats) == (2, 1)


def called_back(stage: Stage, *callbacks: Callable[[Future[Result]], object]) -> None:
    answer = stage.submit()
    for callback in callbacks:
        answer.add_done_callback(callback)
    stage.arrive(answer)
    stage.turn()


def test_a_callback_that_waits_for_another_answer_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Each callback runs on a separate thread. One that raises is logged, and the next is called."""
    stage = Stage()
    other, got, over = stage.submit(), list[Result](), threading.Event()

    def exits(_: object) -> None:
        raise SystemExit

    called_back(stage, lambda _: got.append(other.result(SOON)), exits, lambda _: over.set())
    stage.arrive(other)
    stage.turn()

    assert over.wait(SOON)
    assert got[0]["y"].tolist() == [[0.5, 0.25]]
    assert "a callback of an answer failed" in caplog.text


def test_the_thread_for_callbacks_ends_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client without callbacks to call keeps no thread for them."""
    monkeypatch.setattr(pending, "_IDLE", 0.001)
    stage = Stage()

    for _ in range(3):
        over = threading.Event()
        called_back(stage, lambda _, over=over: over.set())  # type: ignore[misc]  # a default is no argument
        assert over.wait(SOON)
        while stage.pending._caller is not None:
            pass


def test_new_partitions_of_the_answers_are_read_from_their_beginning() -> None:
    """The client looks for new partitions every few seconds. If the broker does not say, it asks again."""
    counts = iter([None, 2, 4])
    stage = Stage(partitions_now=lambda _: next(counts))

    stage.turn(LOOK_EVERY - 1.0)
    for _ in range(3):
        stage.turn(LOOK_EVERY)

    assert [(at.partition, at.offset) for at in stage.consumer.assigned] == [(0, 7), (1, 7), (2, -2), (3, -2)]


def run(stage: Stage) -> None:
    """Run the thread's whole life, for an exchange that was told to stop or that fails."""
    thread = threading.Thread(target=stage.exchange.run)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive()


def test_the_end_cancels_what_is_under_way() -> None:
    """The client also closes its Kafka clients, and refuses new requests."""
    stage = Stage()
    answer = stage.submit()

    stage.exchange.stop()
    run(stage)

    assert wait([answer], 0).done == {answer}
    assert answer.cancelled()
    assert (stage.exchange.cancelled, stage.producer.is_purged, stage.consumer.is_closed) == (1, True, True)
    with pytest.raises(ClientClosed):
        stage.submit()


class Fatal(KafkaError):
    """An error after which a Kafka client takes nothing more."""

    def fatal(self) -> bool:
        return True


@pytest.mark.parametrize("is_raised", [True, False])
def test_a_client_of_kafka_that_fails_ends_all_futures(*, is_raised: bool) -> None:
    """The Kafka client raises the error or reports it. Futures get the error, and later requests raise it at once."""
    stage = Stage()
    answer = stage.submit()
    if is_raised:
        stage.consumer.failure = RuntimeError("Fatal error: fenced")
    else:
        stage.trouble.hear(Fatal(KafkaError.UNKNOWN, "fenced"))
        stage.trouble.hear(Fatal(KafkaError.UNKNOWN, "again"))

    run(stage)

    assert isinstance(answer.exception(0), Unavailable)
    with pytest.raises(Unavailable, match="fenced"):
        stage.submit()


def test_callers_that_wait_for_a_place_hear_of_the_end() -> None:
    """No caller waits until its own timeout."""
    stage = Stage(most=1, waits=True)
    stage.submit()
    raised: list[BaseException] = []

    def ask() -> None:
        with pytest.raises(ClientClosed) as caught:
            stage.submit(SOON)
        raised.append(caught.value)

    caller = threading.Thread(target=ask)
    caller.start()
    while not stage.pending._waiting:
        pass
    stage.pending.close()
    caller.join(SOON)

    assert len(raised) == 1
    assert repr(stage.pending) == "<Pending 1 of 1 late=0 repeats=0>"


def test_who_closes_waits_for_the_last_answer() -> None:
    """The caller sets the longest wait."""
    stage = Stage()
    answer = stage.submit()
    stage.pending.close()

    assert not stage.pending.wait_until_empty(0.0)
    stage.arrive(answer)
    stage.turn()

    assert stage.pending.wait_until_empty(0.0)
