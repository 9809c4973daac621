"""One replay among fakes: what goes, in which transactions, and what is told of the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.fakes import Clock
from tests.unit.tools.dead_letters.builders import DEAD, dead_record
from worker.codecs.request_headers import Envelopes
from worker.codecs.wire_contract import JSON
from worker.core.failures import Code, Incomplete, KafkaFatal
from worker.core.records import Partition, Record
from worker.tools.dead_letters import replay as module
from worker.tools.dead_letters.destinations import Destination
from worker.tools.dead_letters.progress import EVERYTHING, Bookmark, Selection, Trail
from worker.tools.dead_letters.replay import ReplayRun, SendingLimits
from worker.tools.dead_letters.replay_group import Committed, Sending

OTHER = Partition("dead", 1)


class FakeLetters:
    """Gives the records it holds, `at_once` a read; more may lie behind the ends."""

    def __init__(
        self, records: Sequence[Record], ends: Mapping[Partition, int] | None = None, at_once: int = 10
    ) -> None:
        self._records = records
        self._left: list[Record] = []
        self._at_once = at_once
        self.ends: Mapping[Partition, int] = ends or {DEAD: len(records)}

    @property
    def has_reached_ends(self) -> bool:
        return not any(record.offset < self.ends[record.partition] for record in self._left)

    def start_at(self, offsets: Mapping[Partition, int]) -> None:
        self._left = [record for record in self._records if record.offset >= offsets[record.partition]]

    def read(self, timeout: float) -> Sequence[Record]:
        found, self._left = self._left[: self._at_once], self._left[self._at_once :]
        return found


class FakeSender:
    """Remembers each transaction; fails at the one that it is told to."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.transactions: list[tuple[list[Sending], dict[Partition, Committed]]] = []
        self._fails_at = fails_at

    def serve(self) -> None:
        pass

    def send(self, sendings: Sequence[Sending], offsets: Mapping[Partition, Committed]) -> None:
        if len(self.transactions) == self._fails_at:
            raise KafkaFatal("a transaction failed")
        self.transactions.append((list(sendings), dict(offsets)))

    @property
    def sent(self) -> list[Sending]:
        return [sending for sendings, _ in self.transactions for sending in sendings]

    @property
    def committed(self) -> dict[Partition, Committed]:
        return {at: offset for _, offsets in self.transactions for at, offset in offsets.items()}


class FakeTopics:
    """All topics exist with four partitions, but for `gone`."""

    def __init__(self, max_bytes: int = 1000) -> None:
        self._max_bytes = max_bytes

    def find(self, topic: str) -> Destination:
        if topic == "gone":
            return Destination(topic, fault="there is no topic gone")
        return Destination(topic, 4, self._max_bytes)


class Hours(Clock):
    """Time that passes while somebody sleeps."""

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def replay(
    letters: FakeLetters,
    sender: FakeSender,
    *,
    selection: Selection = EVERYTHING,
    to: str | None = None,
    limits: SendingLimits = SendingLimits(),  # noqa: B008 - frozen
    max_bytes: int = 1000,
    is_stop_asked: Callable[[], bool] = lambda: False,
    clock: Hours | None = None,
) -> ReplayRun:
    clock = clock or Hours()
    return ReplayRun(
        letters=letters,
        topics=FakeTopics(max_bytes),
        sender=sender,
        envelopes=Envelopes(JSON),
        trails={at: Trail(Bookmark(), selection, 0) for at in letters.ends},
        to=to,
        limits=limits,
        is_stop_asked=is_stop_asked,
        clock=clock,
        sleep=clock.sleep,
    )


def run(one: ReplayRun) -> list[int]:
    """What it told of its progress."""
    told: list[int] = []
    one.run(told.append)
    return told


def test_every_letter_goes_and_the_offsets_with_it() -> None:
    """One transaction carries both."""
    sender = FakeSender()
    one = replay(FakeLetters([dead_record(at) for at in range(3)]), sender)

    told = run(one)

    ((sendings, offsets),) = sender.transactions
    assert [dict(s.message.headers)["replay-of"] for s in sendings] == [b"requests/2/%d" % at for at in (100, 101, 102)]
    assert offsets == {DEAD: Committed(3, "")}
    assert one.counts.sent == {("requests", "INVALID_ARGUMENT"): 3}
    assert told[-1] == 3


def test_what_arrives_meanwhile_waits() -> None:
    """A request that is rejected again comes back as a letter: a replay that took it would never end."""
    sender = FakeSender()

    run(replay(FakeLetters([dead_record(at) for at in range(5)], ends={DEAD: 3}), sender))

    assert len(sender.sent) == 3
    assert sender.committed == {DEAD: Committed(3, "")}


def test_an_end_behind_the_last_letter_is_reached() -> None:
    """Markers of transactions take offsets and are no letters."""
    sender = FakeSender()

    run(replay(FakeLetters([dead_record(0)], ends={DEAD: 2}), sender))

    assert sender.committed == {DEAD: Committed(2, "")}


def test_transactions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By records and by bytes: readers wait for the one that was open when a replay was killed."""
    monkeypatch.setattr(module, "MOST_RECORDS", 4)
    by_records, by_bytes = FakeSender(), FakeSender()

    run(replay(FakeLetters([dead_record(at) for at in range(10)]), by_records))
    monkeypatch.setattr(module, "MOST_BYTES", 1)
    run(replay(FakeLetters([dead_record(at) for at in range(3)]), by_bytes))

    assert [len(sendings) for sendings, _ in by_records.transactions] == [4, 4, 2]
    assert [len(sendings) for sendings, _ in by_bytes.transactions] == [1, 1, 1]


def test_nothing_to_do_is_no_transaction() -> None:
    """Not even an empty one."""
    sender = FakeSender()

    run(replay(FakeLetters([], ends={DEAD: 0}), sender))

    assert sender.transactions == []


def test_a_limit_is_exact_and_the_rest_is_left() -> None:
    """The offset stands behind the last letter that went."""
    sender = FakeSender()

    run(replay(FakeLetters([dead_record(at) for at in range(10)]), sender, limits=SendingLimits(limit=4)))

    assert len(sender.sent) == 4
    assert sender.committed == {DEAD: Committed(4, "")}


def test_a_stop_ends_it_between_two_transactions() -> None:
    """What was sent stays sent, and is known."""
    sender = FakeSender()
    one = replay(
        FakeLetters([dead_record(at) for at in range(10)], at_once=2),
        sender,
        is_stop_asked=lambda: len(sender.transactions) >= 1,
        limits=SendingLimits(rate=2),
    )

    run(one)

    assert one.counts.is_stopped
    assert one.counts.sent.total() == len(sender.sent) == 2
    assert sender.committed == {DEAD: Committed(2, "")}


def test_a_rate_is_kept() -> None:
    """Ten letters at four a second take two seconds and a half."""
    clock = Hours()
    began = clock.now

    run(
        replay(
            FakeLetters([dead_record(at) for at in range(10)]), FakeSender(), limits=SendingLimits(rate=4), clock=clock
        )
    )

    assert clock.now - began == pytest.approx(2.5)


def test_time_without_letters_is_no_credit_for_a_burst() -> None:
    """However long the unwanted ones before them took to read, those asked for go at the rate."""
    clock, times = Hours(), list[float]()

    class Slow(FakeLetters):
        def read(self, timeout: float) -> Sequence[Record]:
            clock.now += 10.0
            return super().read(timeout)

    class Dated(FakeSender):
        def send(self, sendings: Sequence[Sending], offsets: Mapping[Partition, Committed]) -> None:
            times.extend([clock.now] * len(sendings))
            super().send(sendings, offsets)

    codes = [Code.NOT_FOUND] * 100 + [Code.INTERNAL] * 100
    letters = Slow([dead_record(at, code=code) for at, code in enumerate(codes)], at_once=50)

    run(replay(letters, Dated(), selection=Selection("INTERNAL"), limits=SendingLimits(rate=5), clock=clock))

    assert len(times) == 100
    assert all(later - earlier >= 1 for earlier, later in zip(times, times[5:], strict=False))


def test_a_failed_transaction_is_not_counted() -> None:
    """The counts say what was sent, and nothing that may have been."""
    sender = FakeSender(fails_at=1)
    one = replay(FakeLetters([dead_record(at) for at in range(4)]), sender, limits=SendingLimits(rate=2))

    with pytest.raises(KafkaFatal):
        run(one)

    assert one.counts.sent.total() == 2


def test_a_letter_without_its_value_is_named_and_passed() -> None:
    """No later replay could send it."""
    sender = FakeSender()
    one = replay(FakeLetters([dead_record(0), dead_record(1, value=b"x" * 5000, limit=2000)]), sender)

    run(one)

    ((reason, lost),) = one.counts.lost.items()
    assert reason == "the request's value did not fit into the dead letter"
    assert (lost.letters, lost.places) == (1, ["dead/0/1"])
    assert sender.committed == {DEAD: Committed(2, "")}


def test_a_letter_too_large_for_its_topic_is_named() -> None:
    """It would make Kafka refuse the whole transaction, again and again."""
    sender = FakeSender()
    one = replay(FakeLetters([dead_record(0, value=b"x" * 2000), dead_record(1)]), sender)

    run(one)

    assert one.counts.lost["topic requests does not take records so large"].places == ["dead/0/0"]
    assert len(sender.sent) == 1


def test_a_letter_too_large_for_another_topic_waits_for_its_own() -> None:
    """With those behind it, for order's sake."""
    first = FakeSender()
    records = [dead_record(0), dead_record(1, value=b"x" * 2000), dead_record(2)]
    elsewhere = replay(FakeLetters(records), first, to="elsewhere")

    run(elsewhere)

    assert elsewhere.counts.left["topic elsewhere does not take records so large"].places == ["dead/0/1"]
    assert elsewhere.counts.left["they come behind one that is left"].places == ["dead/0/2"]
    assert elsewhere.counts.lost == {}
    assert len(first.sent) == 1
    assert first.committed == {DEAD: Committed(1, "")}


def test_a_topic_that_is_missing_holds_nobody_up() -> None:
    """Its letters are named and wait for a later replay; the others go."""
    records = [dead_record(at, request_topic="gone" if at == 1 else "requests") for at in range(4)]
    sender = FakeSender()
    one = replay(FakeLetters(records), sender)

    run(one)

    assert one.counts.left["there is no topic gone"].places == ["dead/0/1"]
    assert len(sender.sent) == 3
    assert sender.committed == {DEAD: Committed(1, '[{"request_topic":"requests","done":[[0,4]]}]')}


def test_a_letter_of_unknown_origin_needs_a_topic() -> None:
    """With `--to` it goes there; without, it waits."""
    stranger = Record(DEAD, 0, None, b"v", (), None)
    waits, goes = FakeSender(), FakeSender()
    one = replay(FakeLetters([stranger]), waits)

    run(one)
    run(replay(FakeLetters([stranger]), goes, to="elsewhere"))

    assert waits.sent == []
    assert [left.letters for left in one.counts.left.values()] == [1]
    assert [(sending.message.topic, sending.partition) for sending in goes.sent] == [("elsewhere", 0)]


def test_a_request_goes_to_the_partition_it_came_from() -> None:
    """However its publisher had chosen that; in another topic its key decides, or without one its old partition."""
    own, elsewhere = FakeSender(), FakeSender()
    records = [dead_record(0, key=b"k"), dead_record(1, key=None)]

    run(replay(FakeLetters(records), own))
    run(replay(FakeLetters(records), elsewhere, to="elsewhere"))

    assert [sending.partition for sending in own.sent] == [2, 2]
    assert [sending.partition for sending in elsewhere.sent] == [-1, 2]


def test_only_the_letters_asked_for_go() -> None:
    """Those passed over stay in reach: the offset does not move past them."""
    codes = [Code.INTERNAL, Code.NOT_FOUND, Code.INTERNAL]
    records = [dead_record(at, code=code) for at, code in enumerate(codes)]
    sender = FakeSender()

    run(replay(FakeLetters(records), sender, selection=Selection("INTERNAL")))

    assert len(sender.sent) == 2
    assert sender.committed == {DEAD: Committed(0, '[{"code":"INTERNAL","done":[[0,3]]}]')}


def test_more_filters_than_kafka_remembers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything of that transaction is sent."""
    monkeypatch.setattr(module, "MAX_NOTES", 10)
    sender = FakeSender()
    letters = [dead_record(0), dead_record(1, code=Code.INTERNAL)]

    with pytest.raises(Incomplete, match="another --group"):
        run(replay(FakeLetters(letters), sender, selection=Selection("INTERNAL")))

    assert sender.transactions == []


def test_partitions_move_by_themselves() -> None:
    """Each has an offset of its own."""
    records = [dead_record(0), dead_record(0, partition=OTHER), dead_record(1, partition=OTHER)]
    sender = FakeSender()

    run(replay(FakeLetters(records, ends={DEAD: 1, OTHER: 2}), sender))

    assert sender.committed == {DEAD: Committed(1, ""), OTHER: Committed(2, "")}
