"""Each dead letter is sent back once, whatever filters are used in whatever order, and none is out of reach."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.meeting import meeting, met
from tests.unit.tools.dead_letters.builders import letter
from worker.core.failures import Code
from worker.tools.dead_letters.progress import EVERYTHING, Bookmark, Selection, Trail, request_topic

CODES = [Code.INTERNAL, Code.NOT_FOUND, Code.INVALID_ARGUMENT]
TOPICS = ["a", "b", "c"]

LETTERS = st.lists(st.tuples(st.sampled_from(CODES), st.sampled_from(TOPICS)), min_size=4, max_size=30)
Kind = tuple[Code, str]
SELECTIONS = st.builds(
    Selection, st.none() | st.sampled_from([str(code) for code in CODES]), st.none() | st.sampled_from(TOPICS)
)


class Run(NamedTuple):
    """Which letters, which topics are missing, how many letters at most; how many lie in the topic by then, how many of
    these retention has removed, and where the time begins that is asked for.
    """

    wanted: Selection
    missing: set[str]
    limit: int | None
    there: int
    gone: int
    since: int = 0


RUNS = st.lists(
    st.builds(
        Run,
        SELECTIONS,
        st.sets(st.sampled_from(TOPICS)),
        st.none() | st.integers(1, 3),
        st.integers(1, 30),
        st.just(0) | st.integers(0, 30),
        st.just(0) | st.integers(0, 30),
    )
    | st.integers(1, 3).map(lambda limit: Run(EVERYTHING, set(), limit, 30, 0))  # which nothing else keeps from it
    | st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda missing: Run(EVERYTHING, missing, None, 30, 0)),
    max_size=8,
)


class Topic:
    """The letters, by their offsets. They come, and the oldest go; neither is taken back."""

    def __init__(self, kinds: list[Kind]) -> None:
        self.letters = [letter(at, code=code, request_topic=to) for at, (code, to) in enumerate(kinds)]
        self.there = self.gone = 0
        self.bookmark = Bookmark()
        self.sent: Counter[int] = Counter()

    def run(self, asked: Run) -> list[int]:
        """The offsets sent. What is remembered is kept as Kafka keeps it."""
        self.there = max(self.there, min(asked.there, len(self.letters)))
        self.gone = max(self.gone, min(asked.gone, self.there))
        bookmark = self.bookmark.moved(EVERYTHING, 0, self.gone)
        first = min(self.there, max(self.gone, asked.since))  # as a broker says
        trail = Trail(bookmark, asked.wanted, bookmark.start(asked.wanted, first))
        met("retention has removed some that were not sent", is_so=any(at not in self.sent for at in range(self.gone)))
        met("what was done before is passed over", is_so=bool(bookmark.done) and self.there > self.gone)
        sent = self._walk(trail, asked)
        self.sent.update(sent)
        self.bookmark = Bookmark.read(trail.bookmark.next_offset, trail.bookmark.notes())
        return sent

    def _walk(self, trail: Trail, asked: Run) -> list[int]:
        sent: list[int] = []
        for one in self.letters[trail.next_offset : self.there]:
            if asked.limit is not None and len(sent) >= asked.limit:
                met("a limit is reached")
                return sent
            is_left = trail.wants(one) and request_topic(one) in asked.missing
            met("a letter's topic is missing", is_so=is_left)
            sent += [one.record.offset] if trail.wants(one) and not is_left else []
            trail.passed(one, is_left=is_left)
        trail.ended(self.there)
        return sent


CASES = (
    "a limit is reached",
    "a letter's topic is missing",
    "retention has removed some that were not sent",
    "what was done before is passed over",
)


@meeting(*CASES)
@given(LETTERS, RUNS)
def test_each_letter_goes_once_whatever_was_asked_for(kinds: list[Kind], runs: list[Run]) -> None:
    """Filtered, limited and partly failing runs over a topic that grows and forgets, then one for all that is left."""
    topic = Topic(kinds)

    for asked in runs:
        assert all(at >= asked.since and asked.wanted.takes(topic.letters[at]) for at in topic.run(asked))
    topic.run(Run(EVERYTHING, set(), None, len(kinds), 0))

    assert max(topic.sent.values(), default=0) <= 1
    assert {*range(topic.gone, len(kinds))} <= topic.sent.keys()
    assert topic.bookmark == Bookmark(len(kinds))


@meeting(*CASES)
@given(LETTERS, RUNS, SELECTIONS)
def test_a_run_without_a_limit_sends_all_that_it_was_asked_for(
    kinds: list[Kind], runs: list[Run], wanted: Selection
) -> None:
    """Whatever went before: nothing that is there, is selected and has a topic to go to stays behind."""
    topic = Topic(kinds)

    for asked in [*runs, Run(wanted, set(), None, len(kinds), 0)]:
        topic.run(asked)

    assert {at for at in range(topic.gone, len(kinds)) if wanted.takes(topic.letters[at])} <= topic.sent.keys()


@meeting(*CASES)
@given(LETTERS, RUNS)
def test_nothing_is_remembered_that_says_nothing(kinds: list[Kind], runs: list[Run]) -> None:
    """No line for letters that retention has removed, for none at all, or for what a wider one says."""
    topic = Topic(kinds)

    for asked in runs:
        topic.run(asked)
        done = topic.bookmark.done
        stretches = [(known, *stretch) for known, each in done.items() for stretch in each]
        assert all(begin < end and end > max(topic.bookmark.next_offset, topic.gone) for _, begin, end in stretches)
        assert not any(
            (known, begin, end) != (other, first, last) and known.covers(other) and begin <= first and last <= end
            for known, begin, end in stretches
            for other, first, last in stretches
        )


@meeting("one covers another that it is not", "it takes some of what it covers", "neither covers the other")
@given(SELECTIONS, SELECTIONS, LETTERS)
def test_a_selection_that_covers_another_takes_all_of_it(one: Selection, other: Selection, kinds: list[Kind]) -> None:
    """What counts as done for the one is done for the other."""
    found = [letter(at, code=code, request_topic=topic) for at, (code, topic) in enumerate(kinds)]

    met("one covers another that it is not", is_so=one.covers(other) and one != other)
    met("it takes some of what it covers", is_so=one.covers(other) and any(other.takes(each) for each in found))
    met("neither covers the other", is_so=not one.covers(other) and not other.covers(one))
    if one.covers(other):
        assert all(one.takes(each) for each in found if other.takes(each))
    assert one.covers(one)
    assert EVERYTHING.covers(one)
