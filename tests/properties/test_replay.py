"""A replay that is killed at any point, any number of times, loses no letter."""

from __future__ import annotations

from collections import Counter
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from tests.meeting import meeting, met
from tests.unit.tools.dead_letters.builders import FakePublisher, letter
from worker.codecs.dead_letters import Letter
from worker.codecs.request_headers import Envelopes
from worker.codecs.wire_contract import JSON
from worker.core.records import Headers, Partition
from worker.tools.dead_letters import replay as module
from worker.tools.dead_letters.letters import LetterFilter
from worker.tools.dead_letters.replay import Publishers, Replay
from worker.tools.kafka.publisher import Publisher

TOPICS = ["a", "b"]
PORTION = 3


class Killed(BaseException):
    """The process was killed."""


class Life:
    """One process: the number of its steps before it is killed, and of sent letters that then still arrive."""

    def __init__(self, steps: int | None, arriving: int = 0) -> None:
        self._steps = steps
        self._arriving = arriving
        self._publishers: list[MortalPublisher] = []

    def step(self) -> None:
        if self._steps == 0:
            for publisher in self._publishers:
                publisher.arrive(self._arriving)
            raise Killed
        self._steps = None if self._steps is None else self._steps - 1

    def open_publisher(self, log: Counter[bytes], topic: str) -> Publisher:
        self._publishers.append(MortalPublisher(self, log, topic))
        return cast("Publisher", self._publishers[-1])


class MortalPublisher(FakePublisher):
    """Takes a step for each record handed over, and for each acknowledgement."""

    def __init__(self, life: Life, log: Counter[bytes], topic: str) -> None:
        super().__init__(topic)
        self._life = life
        self._log = log

    def publish(self, value: bytes | None, key: bytes | None, headers: Headers, told: object, partition: int) -> bool:
        self._life.step()
        return super().publish(value, key, headers, told, partition)  # type: ignore[arg-type]  # handed on

    def flush(self, timeout: float) -> int:
        while self.waiting:
            sent, told = self.waiting.pop(0)
            self._log[sent.value or b""] += 1
            self._life.step()
            told("a place")
        return 0

    def arrive(self, count: int) -> None:
        """Let the first `count` letters under way arrive; the rest never do."""
        self._log.update(sent.value or b"" for sent, _ in self.waiting[:count])


# Hypothesis seldom makes long lists of itself, and a short one has no second commit.
LETTERS = st.integers(0, 25).flatmap(
    lambda count: st.lists(st.tuples(st.integers(0, 2), st.sampled_from(TOPICS)), min_size=count, max_size=count)
)
KILLS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=5)


def letters_of(kinds: list[tuple[int, str]]) -> list[Letter]:
    """Letters with these partitions and request topics; each has a value of its own."""
    offsets, made = Counter[int](), list[Letter]()
    for number, topic in kinds:
        at = Partition("dead", number)
        made.append(letter(offsets[number], request_topic=topic, value=b"%d" % len(made), partition=at))
        offsets[number] += 1
    return made


@meeting(
    "killed with some acknowledged and not committed", "killed between two commits", "killed before the first commit"
)
@given(LETTERS, KILLS)
def test_a_replay_killed_anywhere_loses_nothing(kinds: list[tuple[int, str]], kills: list[tuple[int, int]]) -> None:
    """Each life begins at the last commit; at most one portion goes twice for each kill."""
    module.PORTION, before = PORTION, module.PORTION
    topic, log, committed = letters_of(kinds), Counter[bytes](), dict[Partition, int]()
    ends = {at: 1 + max(one.record.offset for one in topic if one.record.partition == at) for at in partitions(topic)}

    try:
        for life in [*(Life(*kill) for kill in kills), Life(None)]:
            sent_before, commits = log.total(), 0

            def commit(offsets: dict[Partition, int], life: Life = life) -> None:
                nonlocal commits
                life.step()
                committed.update(offsets)
                commits += 1

            publishers = Publishers(lambda name, life=life: life.open_publisher(log, name), "dead", None)  # type: ignore[misc]  # bound
            left = [one for one in topic if one.record.offset >= committed.get(one.record.partition, 0)]
            try:
                Replay(publishers, Envelopes(JSON), commit).run(left, lambda: ends, LetterFilter())  # type: ignore[arg-type]  # a dict
            except Killed:
                met("killed before the first commit", is_so=not commits and bool(left))
                met("killed between two commits", is_so=bool(commits) and committed != ends)
                met("killed with some acknowledged and not committed", is_so=log.total() > sent_before and not commits)
    finally:
        module.PORTION = before

    assert log.keys() == {one.record.value for one in topic}
    assert committed == ends
    assert log.total() - len(log) <= PORTION * len(kills)


def partitions(topic: list[Letter]) -> set[Partition]:
    return {one.record.partition for one in topic}
