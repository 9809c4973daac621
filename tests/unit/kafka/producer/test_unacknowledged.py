"""What a producer's statistics say of topics that take nothing; the numbers are a real client's (librdkafka 2.16).

119 messages for two partitions below their `min.insync.replicas`, after 50 that were taken: the client sends them all
again each second, and its partitions count none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from worker.kafka.producer.unacknowledged import ProducerStatistics, Unacknowledged

NOTHING = (0, 0, 0)
# txmsgs and acked_msgid of both partitions: the last second in which all was well, and those after it.
WELL = [(24, 24), (26, 26)]
BELOW = [
    [(140, 24), (148, 26)],
    [(256, 24), (270, 26)],
    [(314, 24), (331, 26)],
    [(372, 24), (392, 26)],
    [(430, 24), (453, 26)],
]
AGAIN = [(488, 82), (514, 87)]  # the other broker is back


def topic(sent: Sequence[tuple[int, int]], queued: tuple[int, int, int] = NOTHING) -> dict[str, object]:
    """Its partitions, each with so many messages that wait for company, to be sent, and for their acknowledgement."""
    counts = dict(zip(("msgq_cnt", "xmit_msgq_cnt", "msgs_inflight"), queued, strict=True))
    told = {str(number): {"txmsgs": all_, "acked_msgid": acked, **counts} for number, (all_, acked) in enumerate(sent)}
    nameless = {"txmsgs": 0, "acked_msgid": 0, **dict.fromkeys(counts, 0)}
    return {"partitions": {**told, "-1": nameless}}


def text(
    messages: int, *, client: str = "rdkafka#producer-1", connection: str = "UP", **topics: dict[str, object]
) -> str:
    """One text: `messages` are all that the client has."""
    brokers = {"a:9092/1": {"state": connection}}
    return json.dumps({"name": client, "msg_cnt": messages, "brokers": brokers, "topics": topics})


def below(outstanding: Unacknowledged, connection: str = "UP") -> list[ProducerStatistics]:
    """What is read while the topic is below its minimum."""
    outstanding.read(text(0, answers=topic(WELL)))
    return [outstanding.read(text(119, connection=connection, answers=topic(sent))) for sent in BELOW]


def test_a_message_is_undelivered_until_it_is_acknowledged() -> None:
    """Whether it waits for company, to be sent, or for its acknowledgement."""
    said = text(14, answers=topic([(4, 0), (4, 0)], (1, 2, 4)), rejected=topic([(0, 0)]))

    assert Unacknowledged().read(said) == (1, {"answers": 14, "rejected": 0}, {}, 1, 14, 0.0)


def test_the_first_statistics_say_little() -> None:
    """The client speaks before it knows of a broker or a topic."""
    assert Unacknowledged().read("{}") == (0, {}, {}, 0, 0, 0.0)


def test_what_waits_to_be_sent_again_is_undelivered() -> None:
    """In each second, though no partition counts it; and no more when it is acknowledged."""
    outstanding = Unacknowledged()

    seen = below(outstanding)

    assert [each.undelivered for each in seen] == [{"answers": 119}] * len(BELOW)
    assert outstanding.read(text(0, answers=topic(AGAIN)))[:3] == (1, {"answers": 0}, {})


def test_what_a_silent_broker_was_sent_is_undelivered_until_it_is_sent_again() -> None:
    """A minute on its way, in the end counted nowhere, as long as the next connection takes."""
    outstanding = Unacknowledged()
    sent = [(90, 50), (92, 52)]  # the last acknowledgements came in the same second
    on_its_way = text(80, answers=topic(sent, (0, 0, 40)))

    seen = [outstanding.read(each) for each in (on_its_way, on_its_way, text(80, answers=topic(sent)))]

    assert [each.undelivered for each in seen] == [{"answers": 80}] * 3


def test_what_is_counted_by_its_partition_is_not_counted_twice() -> None:
    """At times some of it is under way."""
    outstanding = Unacknowledged()
    below(outstanding)

    seen = outstanding.read(text(119, answers=topic(BELOW[-1], (0, 30, 20))))

    assert seen.undelivered == {"answers": 119}


def test_a_topic_that_takes_is_not_charged_with_what_another_does_not() -> None:
    """What waits for its report is in no partition's count either."""
    outstanding = Unacknowledged()
    outstanding.read(text(0, answers=topic(WELL), rejected=topic([(5, 5)])))

    seen = outstanding.read(text(20, answers=topic(BELOW[0]), rejected=topic([(9, 9)])))

    assert seen.undelivered == {"answers": 20, "rejected": 0}


def test_topics_that_take_nothing_side_by_side_have_it_all() -> None:
    """The split is unknown, and none of them is said to be well."""
    seen = Unacknowledged().read(text(20, answers=topic([(40, 0)]), rejected=topic([(7, 0)])))

    assert seen.undelivered == {"answers": 20, "rejected": 20}


def test_reports_that_wait_are_no_undelivered_messages() -> None:
    """Where every partition acknowledges."""
    outstanding = Unacknowledged()
    outstanding.read(text(0, answers=topic(WELL)))

    assert outstanding.read(text(7, answers=topic([(34, 34), (36, 36)]))).undelivered == {"answers": 0}


def test_a_topic_that_takes_nothing_of_what_it_is_sent_again_is_named() -> None:
    """Once it has gone on for four seconds, with how many of its partitions do so."""
    assert [each.refusing for each in below(Unacknowledged())] == [{}, {}, {}, {"answers": 2}, {"answers": 2}]


def test_it_is_not_named_in_a_second_in_which_nothing_was_sent() -> None:
    """Then the broker may be away, which another figure shows; what waits for it counts."""
    outstanding = Unacknowledged()
    below(outstanding)

    assert outstanding.read(text(119, answers=topic(BELOW[-1])))[:3] == (1, {"answers": 119}, {})


def test_it_is_not_named_while_no_broker_is_there() -> None:
    """Another figure shows that."""
    assert [each.refusing for each in below(Unacknowledged(), "TRY_CONNECT")] == [{}] * len(BELOW)


def test_a_slow_topic_is_not_one_that_is_sent_all_again() -> None:
    """What waits for its acknowledgement is counted by its partition."""
    outstanding = Unacknowledged()

    seen = [outstanding.read(text(sent, answers=topic([(sent, 0)], (0, 0, sent)))) for sent in range(1, 9)]

    assert [each.refusing for each in seen] == [{}] * 8
    assert seen[-1].undelivered == {"answers": 8}


def test_an_acknowledgement_begins_the_count_anew() -> None:
    """A topic that takes now and then is slow, and not shut."""
    outstanding = Unacknowledged()
    below(outstanding)
    outstanding.read(text(50, answers=topic(AGAIN)))

    seen = outstanding.read(text(50, answers=topic([(500, 82), (520, 87)])))

    assert seen[:3] == (1, {"answers": 50}, {})


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(text(0, answers=topic(BELOW[-1])), id="the client drops what is too old"),
        pytest.param(text(0, client="rdkafka#producer-2"), id="another client waits for the id"),
        pytest.param(text(0, client="rdkafka#producer-2", answers=topic([(0, 0)] * 2)), id="which knows the topic"),
    ],
)
def test_what_a_transaction_s_producer_gave_up_waits_until_its_transaction_has_ended(later: str) -> None:
    """Nothing is left to send meanwhile, and no request of the transaction has its answer."""
    outstanding = Unacknowledged()
    below(outstanding)

    assert [outstanding.read(later).undelivered for _ in range(3)] == [{"answers": 119}] * 3

    outstanding.forget()

    assert not outstanding.read(later).undelivered.get("answers")


def test_another_client_is_not_charged_with_what_its_predecessor_sent() -> None:
    """It counts from nothing, and may have sent more or less by the next second."""
    outstanding = Unacknowledged()
    below(outstanding)
    outstanding.forget()

    assert outstanding.read(text(3, client="rdkafka#producer-2", answers=topic([(900, 900)]))).undelivered == {
        "answers": 0
    }
    assert outstanding.read(text(3, client="rdkafka#producer-3", answers=topic([(5, 0)]))).undelivered == {"answers": 3}


def test_a_topic_that_takes_again_owes_nothing_that_was_given_up() -> None:
    """Its requests were answered anew."""
    outstanding = Unacknowledged()
    below(outstanding)
    outstanding.read(text(0, client="rdkafka#producer-2"))

    seen = outstanding.read(text(0, client="rdkafka#producer-2", answers=topic([(119, 119)])))

    assert seen.undelivered == {"answers": 0}


def test_what_is_left_of_a_transaction_that_ended_is_not_given_up() -> None:
    """Its last messages were under way in one text, and taken back with it by the next."""
    outstanding = Unacknowledged()
    outstanding.read(text(50, answers=topic([(50, 0)], (0, 0, 50))))
    outstanding.forget()

    assert outstanding.read(text(0, answers=topic([(60, 0)]))).undelivered == {"answers": 0}
