"""`inference-worker dead-letters replay`: sends rejected requests back to their topics, at least once.

A replay reads only the letters that the topic holds when it begins. So it ends even if its own requests are rejected
again. It sends one portion after the other, and a portion is done when it is acknowledged:

    read a portion ──▶ publish it ──▶ flush: all of it acknowledged ──▶ commit the next offsets ──▶ …

The group `<dead-letter topic>-replay` keeps the offsets, one for each partition. After a kill the next replay goes on
from there: no letter is lost, and a portion may be sent twice. A filter leaves letters out, and one offset cannot say
which. So a replay with a filter begins where the filter does, and commits nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from confluent_kafka import Consumer, KafkaException, TopicPartition
from rich.console import Console

from worker.codecs.dead_letters import Letter
from worker.codecs.request_headers import Envelopes
from worker.core.failures import BadConfiguration, Incomplete, KafkaFatal
from worker.core.records import Partition
from worker.kafka.client.command_clients import ANSWER_TIMEOUT, client_log, open_client
from worker.kafka.client.errors import words_of
from worker.kafka.producer.sink import ANY_PARTITION
from worker.kafka.reader import Reader
from worker.settings import TOPIC_NAME, Connection
from worker.terminal.command_line import check_readers
from worker.terminal.terminal import agreed, aside, console, count, is_person_there, print_json, printable, say
from worker.tools.closing import Closing
from worker.tools.dead_letters.letters import LetterFilter, filter_of, letters, original, request_topic, topic_of
from worker.tools.dead_letters.options import ReplayOrder
from worker.tools.kafka.publisher import PATIENCE, Publisher

PORTION = 500  # letters sent between two commits: the most that a replay repeats after a kill
_NAMED, _SHOWN = 100, 5  # places of unsent letters named for each reason: in JSON, and on a screen
_ROOM_WITHIN = 0.05  # seconds of one wait for room in the producer


class Counts:
    """Counts letters that were or would be sent, by topic and code, and unsent ones by reason, with their places."""

    def __init__(self) -> None:
        self.sent = Counter[tuple[str, str]]()
        self.unsent = Counter[str]()
        self.places = defaultdict[str, list[str]](list)

    def leave(self, letter: Letter, reason: str) -> None:
        self.unsent[reason] += 1
        if len(self.places[reason]) < _NAMED:
            self.places[reason].append(str(letter.position))

    def as_json(self) -> dict[str, object]:
        return {
            "sent": [{"topic": to, "code": code, "count": sent} for (to, code), sent in self.sent.most_common()],
            "unsent": [{"reason": why, "count": n, "places": self.places[why]} for why, n in self.unsent.items()],
        }

    def show(self, screen: Console, verb: str, topic: str) -> None:
        say(screen, f"{verb} {count(self.sent.total(), 'dead letter')} of {topic} back", "bold")
        width = max((len(f"{n:,}") for n in (*self.sent.values(), *self.unsent.values())), default=0) + 2
        for (to, code), sent in self.sent.most_common():
            say(screen, f"{sent:{width},}  {printable(code) or '(no code)'}, to {printable(to)}")
        for why, unsent in self.unsent.items():
            more = " …" if unsent > _SHOWN else ""
            places = ", ".join(self.places[why][:_SHOWN])
            say(screen, f"{unsent:{width},}  {printable(f'not sent: {why}: {places}{more}')}")


class Publishers:
    """The publishers into the request topics. Each is opened when a letter first needs it."""

    def __init__(self, open_publisher: Callable[[str], Publisher], forbidden: str, to: str | None) -> None:
        """`open_publisher` raises `BadConfiguration` if it cannot open one. `forbidden` is the dead-letter topic.

        `to` is the topic for all letters; None: each goes to the topic it came from.
        """
        self._open = open_publisher
        self._forbidden = forbidden
        self._to = to
        self.opened: dict[str, Publisher] = {}
        self._closed: dict[str, str] = {}

    def topic_of(self, letter: Letter) -> str:
        return self._to or request_topic(letter)

    def for_letter(self, letter: Letter) -> Publisher | str:
        """Returns the publisher for this letter, or why it has none."""
        return letter.loss or self.for_topic(self.topic_of(letter))

    def for_topic(self, topic: str) -> Publisher | str:
        if topic not in self.opened and topic not in self._closed:
            try:
                self.opened[topic] = self._look(topic)
            except BadConfiguration as error:
                self._closed[topic] = str(error)
        return self.opened.get(topic) or self._closed[topic]

    def partition_of(self, letter: Letter, publisher: Publisher) -> int:
        """Returns the request's old partition, which keeps the order; with another topic, the partition of its key."""
        number = letter.origin.partition if letter.origin else letter.record.partition.number
        if self._to is None and number < publisher.partitions:
            return number
        return ANY_PARTITION if letter.record.key else number % publisher.partitions

    def _look(self, topic: str) -> Publisher:
        if not topic:
            raise BadConfiguration("the dead letter does not say where it came from; give --to")
        # A header may have given the name, and its writer could make us write to a topic that only we may write to.
        if topic.startswith("__") or topic == self._forbidden:
            raise BadConfiguration(f"no request comes from {topic}")
        if not re.fullmatch(TOPIC_NAME, topic):
            raise BadConfiguration(f"no topic is called {topic!r}")
        return self._open(topic)


def surveyed(found: Iterable[Letter], publishers: Publishers, limit: int | None) -> Counts:
    """Counts what a replay of these letters would send."""
    counts = Counts()
    for letter in found:
        publisher = publishers.for_letter(letter)
        if isinstance(publisher, str):
            counts.leave(letter, publisher)
        else:
            counts.sent[publishers.topic_of(letter), letter.code] += 1
        if counts.sent.total() == limit:
            break
    return counts


class Replay:
    """One replay. Owns the counts, and the letters that are handed over and not yet acknowledged."""

    def __init__(
        self, publishers: Publishers, envelopes: Envelopes, commit: Callable[[Mapping[Partition, int]], None]
    ) -> None:
        """`commit` takes the next offsets of finished letters. `envelopes` reads headers as the workers do."""
        self.counts = Counts()
        self._publishers = publishers
        self._envelopes = envelopes
        self._commit = commit
        self._next: dict[Partition, int] = {}
        self._pending = 0

    def run(
        self,
        found: Iterable[Letter],
        ends: Callable[[], Mapping[Partition, int]],
        wanted: LetterFilter,
        limit: int | None = None,
    ) -> None:
        """Send every wanted letter, or as many as the limit. Raises `Stop` if Kafka takes no more.

        `ends`: the next offsets after all readable letters. Markers of transactions may lie between letters and ends.
        """
        sent = 0
        for letter in found:
            self._next[letter.record.partition] = letter.record.offset + 1
            sent += wanted.takes(letter) and self._send(letter)
            if sent == limit:
                break
            if self._pending >= PORTION:
                self._settle()
        else:
            self._next |= ends()
        self._settle()

    def _send(self, letter: Letter) -> bool:
        """Hand over one letter's request. Returns False if it cannot be sent."""
        publisher = self._publishers.for_letter(letter)
        if isinstance(publisher, str):
            self.counts.leave(letter, publisher)
            return False
        message = original(letter, self._publishers.topic_of(letter), self._envelopes)
        told, partition = partial(self._told, letter, publisher), self._publishers.partition_of(letter, publisher)
        while not publisher.publish(message.value, message.key, message.headers, told, partition):
            publisher.poll(_ROOM_WITHIN)
        self._pending += 1
        return True

    def _told(self, letter: Letter, publisher: Publisher, place: object) -> None:
        """Count the broker's answer. `place` is None if it refused the record."""
        if place is None:
            self.counts.leave(letter, str(publisher.refusal))
        else:
            self.counts.sent[self._publishers.topic_of(letter), letter.code] += 1

    def _settle(self) -> None:
        """Wait until the broker has answered for everything handed over, then commit it."""
        for publisher in self._publishers.opened.values():
            if publisher.flush(PATIENCE):
                raise KafkaFatal(f"no broker acknowledged what was sent within {PATIENCE:g} s; run this again")
        self._pending = 0
        self._commit(self._next)


class ReplayOffsets(Closing):
    """The offsets of a group that nothing joins. Owns a consumer that fetches nothing."""

    def __init__(self, kafka: Connection, group: str) -> None:
        self._group = group
        promised = {"group.id": group, "enable.auto.commit": False}
        self._consumer = open_client(Consumer, kafka, {}, promised, client_log())

    def starts(self, reader: Reader) -> Mapping[Partition, int]:
        """Returns the offset where the group goes on, for each partition. Raises `BadConfiguration`."""
        try:
            found = self._consumer.committed([TopicPartition(*at) for at in reader.ends], ANSWER_TIMEOUT)
        except KafkaException as error:
            raise self._closed(words_of(error)) from error
        for at in found:
            if at.error is not None:
                raise self._closed(at.error.str())
        known = {Partition(at.topic, at.partition): at.offset for at in found}
        begins, ends = reader.beginnings, reader.ends  # an offset outside is from an earlier topic of that name
        return {at: known[at] if begin <= known[at] <= ends[at] else begin for at, begin in begins.items()}

    def _closed(self, why: str) -> BadConfiguration:
        return BadConfiguration(f"the offsets of group {self._group} cannot be read: {why}; grant READ on the group")

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit these offsets for the group. Raises `KafkaFatal`."""
        positions = [TopicPartition(*at, next_offset) for at, next_offset in offsets.items()]
        try:
            self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            raise KafkaFatal(
                f"group {self._group} takes no offsets: {words_of(error)}; grant READ on the group, and run this "
                "again: what was sent since the last ones goes twice"
            ) from error

    def close(self) -> None:
        self._consumer.close()


def replay(order: ReplayOrder) -> int:
    """Run a replay. Returns 0 if all letters that were asked for were sent.

    Raises `Incomplete` if some were not, or if a person says no; `BadConfiguration`, also if there is no person to ask;
    `KafkaFatal` if Kafka takes no more.
    """
    kafka, topic = topic_of(order)
    wanted, publishers = filter_of(order), Publishers(partial(Publisher, kafka), topic, order.to)
    if not (order.yes or order.dry_run or is_person_there()):
        raise BadConfiguration(
            "every reader of these topics gets what a replay sends, so it asks first, and no terminal is here to "
            "answer; give --yes, or --dry-run to see what would be sent"
        )
    if order.to is not None:
        check_readers("--to", order.to, kafka, "response_topic")
        if isinstance(fault := publishers.for_topic(order.to), str):
            raise BadConfiguration(f"--to {order.to}: {fault}")
    with Reader(kafka, topic) as reader, ReplayOffsets(kafka, f"{topic}-replay") as offsets:
        has_filter = wanted != LetterFilter()
        starts = wanted.starts(reader) if has_filter else offsets.starts(reader)
        if not order.yes or order.dry_run:
            counts = surveyed(filter(wanted.takes, letters(reader, starts, topic)), publishers, order.limit)
            _report(order, topic, counts, is_done=False)
            if order.dry_run:
                return 0
            if counts.sent and not agreed("Send them?"):
                raise Incomplete("nothing was sent")
        commit = (lambda _: None) if has_filter else offsets.commit
        run = Replay(publishers, Envelopes(kafka.default_content_type), commit)
        try:
            run.run(letters(reader, starts, topic), lambda: reader.read_ends, wanted, order.limit)
        finally:
            _report(order, topic, run.counts, is_done=True)
        if unsent := run.counts.unsent.total():
            raise Incomplete(f"{unsent:,} of the dead letters asked for were not sent back")
        reader.expect_whole()
    return 0


def _report(order: ReplayOrder, topic: str, counts: Counts, *, is_done: bool) -> None:
    if order.as_json and (order.dry_run or is_done):
        print_json({"dry_run": order.dry_run, **counts.as_json()})
    else:
        screen = console() if order.dry_run or is_done else aside()
        counts.show(screen, "Sent" if is_done else "Would send", topic)
