"""What an error inside of a transaction means: which call comes next, and when the worker must end."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from worker.kafka.client.transactional_id import TransactionalId
from worker.kafka.transactions.errors import (
    Reaction,
    Trouble,
    is_owner_alive,
    trouble_of,
    why_closed,
    why_fenced,
    why_refused,
)
from worker.settings import Connection

NAME = TransactionalId("worker-0", "worker-", is_unique=False, is_stable=True)


def trouble(code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> Trouble:
    """As the client raises it."""
    return trouble_of(KafkaException(KafkaError(code, "the reason", fatal, retriable, abort)))


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
    """What is fatal wins over what may be repeated. A producer that the broker has forgotten is never used again."""
    assert found.reaction is reaction


def test_a_broken_producer_says_why_by_its_cause() -> None:
    """It raises a SystemError around the client's own exception."""
    error = SystemError("returned a result with an exception set")
    error.__cause__ = KafkaException(KafkaError(KafkaError._FENCED, "fenced by another", True))

    found = trouble_of(error)

    assert found.is_fenced
    assert found.text == "fenced by another"


@pytest.mark.parametrize(
    ("open_for", "is_unique", "is_alive"),
    [(0.2, False, True), (8.9, False, True), (9.1, False, False), (30.0, False, False), (0.2, True, False)],
)
def test_only_another_process_takes_an_id_before_its_time(open_for: float, is_unique: bool, is_alive: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """The broker takes a transaction back after its timeout, and no other process has a random id."""
    assert is_owner_alive(open_for=open_for, timeout=10.0, is_unique=is_unique) is is_alive


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        (KafkaError.FENCED_INSTANCE_ID, "WORKER_KAFKA__GROUP_INSTANCE_ID; each needs its own"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "grant this client READ on the group"),
    ],
)
def test_a_group_that_is_closed_to_us_ends_the_worker(code: int, cure: str) -> None:
    """To be shut out of the group is no reason to try again."""
    assert (why_refused(trouble(code, abort=True)) or "").endswith(cure)


@pytest.mark.parametrize(
    "found", [None, trouble(KafkaError.UNKNOWN_MEMBER_ID, abort=True), trouble_of(ValueError("no metadata"))]
)
def test_a_membership_that_passed_ends_nothing(found: Trouble | None) -> None:
    """Partitions move on; what was in the transaction is read again by their next owner."""
    assert why_refused(found) is None


def test_a_shared_id_is_named_with_its_setting() -> None:
    """The operator learns which id, who may have it, and what to do about either."""
    said = why_fenced(NAME, trouble(KafkaError._FENCED, fatal=True))

    assert said == (
        "another process uses the transactional id worker-0: the reason; if it is another replica, give each its "
        "own, WORKER_DELIVERY__TRANSACTIONAL_ID; if it is this one's predecessor, which stood still and woke up, end "
        "that and start again"
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "may not write transactional ids that begin with worker-"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "TRANSACTION_TIMEOUT_MS: 10000 is more than the broker's"),
        (KafkaError.PRODUCER_FENCED, "another process uses the transactional id worker-0"),
        (KafkaError.UNSUPPORTED_VERSION, "Kafka opens no transactions for worker-0: the reason; start again"),
    ],
)
def test_a_broker_that_opens_no_transactions_is_quoted_with_the_cure(code: int, said: str) -> None:
    """Each reason has its own sentence."""
    kafka = Connection.model_validate({"bootstrap_servers": "127.0.0.1:9092"})

    assert said in why_closed(kafka, NAME, 10_000, trouble(code, fatal=True))
