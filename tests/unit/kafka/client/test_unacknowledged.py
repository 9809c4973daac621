"""Topics that take no messages, found in a producer's statistics; the figures are those of a real client (2.16)."""

from __future__ import annotations

import json
import logging

import pytest

from tests.fakes import Clock, Onlooker
from worker.kafka.client.errors import ClientLog
from worker.kafka.client.statistics import SILENCE, Unacknowledged


def topic(*partitions: tuple[int, int]) -> dict[str, object]:
    """Statistics of a topic: each partition's number of messages, and the last one of the acknowledged prefix."""
    counts = [*enumerate(partitions), (-1, (0, 0))]
    return {"partitions": {str(at): {"msgs": msgs, "acked_msgid": acked} for at, (msgs, acked) in counts}}


def text(messages: int, **topics: dict[str, object]) -> str:
    """A statistics text; `messages` counts all that the client holds."""
    return json.dumps({"msg_cnt": messages, "brokers": {"a:9092/1": {"state": "UP"}}, "topics": topics})


class Heard:
    """A watched producer whose statistics come when the test says so."""

    def __init__(self) -> None:
        self.clock, self.onlooker = Clock(), Onlooker()
        self._unacknowledged = Unacknowledged(
            self.onlooker, ClientLog(logging.getLogger("kafka"), self.clock), self.clock
        )

    def after(self, seconds: float, text: str) -> int | None:
        self.clock.now += seconds
        return self._unacknowledged.heard(text)


def test_a_message_is_undelivered_until_it_is_acknowledged() -> None:
    """A refused message that waits to be sent again counts too, though the client counts it in no partition's queue."""
    heard = Heard()

    brokers = heard.after(1, text(14, answers=topic((9, 4), (9, 0)), rejected=topic((5, 5))))

    assert brokers == 1
    assert heard.onlooker.undelivered == {"answers": 14, "rejected": 0}
    assert heard.onlooker.connections == 1


def test_a_producer_without_acknowledgements_names_its_topics(caplog: pytest.LogCaptureFixture) -> None:
    """A line comes every half minute."""
    heard = Heard()
    for _ in range(int(2 * SILENCE)):
        heard.after(1, text(119, answers=topic((119, 0)), rejected=topic((5, 5))))

    (told,) = caplog.messages
    assert "no message was acknowledged for 30 s, and some wait for answers: " in told
    heard.after(1, text(119, answers=topic((119, 0)), rejected=topic((5, 5))))
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("acknowledged", [1, 119])
def test_an_acknowledgement_ends_the_silence(caplog: pytest.LogCaptureFixture, acknowledged: int) -> None:
    """A slow topic still takes messages, and a topic that owes nothing may be silent for hours."""
    heard = Heard()
    heard.after(1, text(119, answers=topic((119, 0))))
    heard.after(SILENCE - 1, text(119 - acknowledged, answers=topic((119, acknowledged))))
    heard.after(SILENCE - 1, text(119 - acknowledged, answers=topic((119, acknowledged))))

    assert not caplog.messages


def test_statistics_that_cannot_be_read_are_told_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """An exception would come out of any call that serves the client."""
    assert Heard().after(1, '{"topics": {"answers": {}}}') is None

    assert caplog.messages == ["the producer's statistics are not understood: KeyError('partitions')"]


def test_without_a_watcher_nothing_is_read() -> None:
    """A command that tries whether the broker opens transactions has no watcher."""
    assert Unacknowledged(None, ClientLog(logging.getLogger("kafka"))).heard("no JSON") is None
