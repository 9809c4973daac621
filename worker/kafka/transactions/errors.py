"""The meaning of an error inside a transaction, and what to do about it. Pure.

| the client says | it means | what follows |
|---|---|---|
| retriable | nothing was decided yet | the same call again |
| requires abort | nothing of the transaction will be durable | it is taken back; the producer goes on |
| fatal, anything else, or no end in the transaction's timeout | the outcome is not known | another producer, same id |
| the broker has forgotten the producer (`_FORGOTTEN`) | nothing of it will be durable any more | the same |

Fenced (`_FENCED`, fatal in every call that follows) may mean that the coordinator took our transaction back after its
timeout, that another process has taken our id, or both (seen 2026, Kafka 4.3 with librdkafka 2.16: in produce,
`send_offsets_to_transaction`, `commit_transaction` and `abort_transaction`, whichever comes first). What tells them
apart is for how long our transaction was open: the coordinator takes none back before its timeout.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from confluent_kafka import KafkaError

from worker.kafka.client.errors import kafka_error, refusal
from worker.kafka.client.transactional_id import TransactionalId
from worker.kafka.cluster.access import missing, needed_for_transactions
from worker.settings import Connection

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})  # noqa: SLF001 - librdkafka's own codes begin with an underscore

# After `transactional.id.expiration.ms` without a transaction. Where the group's offsets are refused first, the client
# wants an abort, and goes on with the forgotten producer: each transaction without an answer in it failed for ever
# (seen 2026, librdkafka 2.16).
_FORGOTTEN = frozenset({KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID})

# By these the group's coordinator shuts us out for good. Other codes may just as well be about an answer's topic.
_REFUSED = frozenset({KafkaError.FENCED_INSTANCE_ID, KafkaError.GROUP_AUTHORIZATION_FAILED})

# The share of its timeout for which a transaction must have been open before we believe that the coordinator took it
# back. Less than all of it, for its clock is not ours.
BELIEVED_SHARE = 0.9


class Reaction(Enum):
    AGAIN = "the same call again"
    ABORT = "abort the transaction"
    RENEW = "another producer"


class Trouble(NamedTuple):
    """How a call failed. `error` None: the client did not say it in its own words."""

    reaction: Reaction
    text: str
    error: KafkaError | None

    @property
    def is_fenced(self) -> bool:
        return self.error is not None and self.error.code() in _FENCED


def trouble_of(failure: Exception) -> Trouble:
    """The meaning of an exception that the client raised."""
    error = kafka_error(failure)
    if error is None:
        return Trouble(Reaction.RENEW, repr(failure), None)
    return Trouble(_reaction(error), error.str(), error)


def is_owner_alive(*, open_for: float, timeout: float, is_unique: bool) -> bool:
    """Whether a fenced producer was shut out by another that lives: then there is no going on beside it.

    `open_for` seconds its transaction was open, of `timeout`; `is_unique`: no other process may go on under its id.
    """
    return not is_unique and open_for < BELIEVED_SHARE * timeout


def why_refused(trouble: Trouble | None) -> str | None:
    """Why the group is closed to us until an operator acts; None when it is not."""
    if trouble is None or trouble.error is None or trouble.error.code() not in _REFUSED:
        return None
    return refusal(trouble.error)


def why_fenced(name: TransactionalId, trouble: Trouble) -> str:
    """Why there is no going on beside the one who shut us out, and what to do."""
    return (
        f"another process uses the transactional id {name.text}: {trouble.text}; if it is another replica, give "
        "each its own, WORKER_DELIVERY__TRANSACTIONAL_ID; if it is this one's predecessor, which stood still and woke "
        "up, end that and start again"
    )


def why_closed(kafka: Connection, name: TransactionalId, timeout_ms: int, trouble: Trouble) -> str:
    """Why the broker opens no transactions for us, and what to do."""
    code = None if trouble.error is None else trouble.error.code()
    if trouble.is_fenced:
        return why_fenced(name, trouble)
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return missing(kafka, needed_for_transactions(name), "write").text
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"WORKER_DELIVERY__TRANSACTION_TIMEOUT_MS: {timeout_ms} is more than the broker's "
            "transaction.max.timeout.ms; lower it"
        )
    return f"Kafka opens no transactions for {name.text}: {trouble.text}; start again"


def _reaction(error: KafkaError) -> Reaction:
    if error.fatal() or error.code() in _FORGOTTEN:
        return Reaction.RENEW
    if error.retriable():
        return Reaction.AGAIN
    return Reaction.ABORT if error.txn_requires_abort() else Reaction.RENEW
