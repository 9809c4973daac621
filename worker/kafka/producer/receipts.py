"""How the loop learns which answers are durable, without a call of Python for each.

The client keeps the callback of a message until it knows what became of that message: called, if it was refused, and
then let go. All messages of a place share one callback, a `Receipt`. So when the client lets go of the last reference,
all of them are durable, or the refusal of one was told before.

    produce × n ──▶ the client holds n references ──report by report, in `poll`──▶ none is left: the place is durable

Polling with a report of each message to Python took 1.7 µs of the loop for each, with the message object that the
client makes for it, and takes 0.8 like this (profiles). It rests on the client's own reference counts and CPython's:
`tests/contract/test_sink.py` has what must hold.
"""

from __future__ import annotations

from confluent_kafka import KafkaError
from confluent_kafka import Message as Report

from worker.core.failures import KafkaFatal, TopicTakesLess
from worker.core.records import Place
from worker.kafka.producer.destination import Destinations, is_too_large, why_refused


class Receipts:
    """Places all of whose messages are durable, once each; and why a message never will be, if so."""

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations
        self.refusal: KafkaFatal | None = None
        self._complete: list[Place] = []

    def complete(self, place: Place) -> None:
        """The client has let go of the place's receipt."""
        self._complete.append(place)

    def refuse(self, place: Place, why: str, topic: str | None, error: KafkaError | None) -> None:
        """Like all that a report calls, it raises nothing. `error` None: the client did not say it in its own words."""
        text = (
            f"{why}; nothing past {place.line.partition}/{place.offset} is committed: mend the topic or its access, "
            "and start again"
        )
        if self._destinations.is_shut(topic, error):
            self.fail(TopicTakesLess(text, topic))
        else:
            self.fail(TopicTakesLess(text) if error is not None and is_too_large(error) else KafkaFatal(text))

    def fail(self, failure: KafkaFatal) -> None:
        """Nothing more will be durable. Keep the first reason."""
        self.refusal = self.refusal or failure

    def take(self) -> list[Place]:
        """What is complete since the last call. Means nothing once there is a refusal."""
        complete, self._complete = self._complete, []
        return complete


class Receipt:
    """What the client calls for a message of this place that is refused, and holds for all that it has not reported."""

    __slots__ = ("_place", "_receipts")

    def __init__(self, place: Place, receipts: Receipts) -> None:
        self._place = place
        self._receipts = receipts

    def __call__(self, error: KafkaError | None, report: Report) -> None:
        """Runs inside the producer, and never raises. Successes are not told (`delivery.report.only.error`)."""
        if error is not None:
            self.refuse(why_refused(report.topic(), error), report.topic(), error)

    def refuse(self, why: str, topic: str | None, error: KafkaError | None) -> None:
        """One of the place's messages will never be durable."""
        self._receipts.refuse(self._place, why, topic, error)

    def __del__(self) -> None:
        self._receipts.complete(self._place)
