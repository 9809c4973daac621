"""Each dead letter is sent back once, whatever filters are used in whatever order, and none is out of reach."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.dead_letters.builders import letter
from worker.codecs.dead_letters import Letter
from worker.codecs.replays import EVERYTHING, Bookmark, Selection, Trail, request_topic
from worker.core.failures import Code

CODES = [Code.INTERNAL, Code.NOT_FOUND, Code.INVALID_ARGUMENT]
TOPICS = ["a", "b", "c"]

LETTERS = st.lists(
    st.tuples(st.sampled_from(CODES), st.sampled_from(TOPICS), st.integers(0, 9)), min_size=1, max_size=30
)
SELECTIONS = st.builds(
    Selection,
    st.none() | st.sampled_from([str(code) for code in CODES]),
    st.none() | st.integers(0, 9),
    st.none() | st.sampled_from(TOPICS),
)
# One run: which letters, which topics are missing, how many letters at most, how many lie in the topic by then.
RUNS = st.lists(
    st.tuples(SELECTIONS, st.sets(st.sampled_from(TOPICS)), st.none() | st.integers(1, 5), st.integers(1, 30)),
    max_size=8,
)


def run(
    found: list[Letter], bookmark: Bookmark, wanted: Selection, missing: set[str], limit: int | None
) -> tuple[list[int], Bookmark]:
    """The offsets sent, and the bookmark as the next run finds it."""
    trail = Trail(bookmark, wanted, bookmark.start(wanted))
    sent: list[int] = []
    for one in found[trail.next_offset :]:
        if limit is not None and len(sent) >= limit:
            break
        if trail.wants(one):
            if request_topic(one) in missing:
                trail.left(one)
            else:
                sent.append(one.record.offset)
        trail.passed(one.record.offset)
    kept = trail.bookmark
    return sent, Bookmark.read(kept.next_offset, kept.notes())


@given(LETTERS, RUNS)
def test_each_letter_goes_once_whatever_was_asked_for(
    kinds: list[tuple[Code, str, int]], runs: list[tuple[Selection, set[str], int | None, int]]
) -> None:
    """Filtered, limited and partly failing runs over a growing topic, then one for all that is left."""
    found = [letter(at, code=code, request_topic=topic, time_ms=ms) for at, (code, topic, ms) in enumerate(kinds)]
    bookmark = Bookmark()
    sent: Counter[int] = Counter()

    for wanted, missing, limit, there in runs:
        offsets, bookmark = run(found[:there], bookmark, wanted, missing, limit)
        assert all(wanted.takes(found[at]) for at in offsets)
        sent.update(offsets)
    offsets, bookmark = run(found, bookmark, EVERYTHING, set(), None)
    sent.update(offsets)

    assert sent == Counter(range(len(found)))
    assert bookmark == Bookmark(len(found))


@given(LETTERS, RUNS, SELECTIONS)
def test_a_run_without_a_limit_sends_all_that_it_was_asked_for(
    kinds: list[tuple[Code, str, int]], runs: list[tuple[Selection, set[str], int | None, int]], wanted: Selection
) -> None:
    """Whatever went before: nothing that is selected and has a topic to go to stays behind."""
    found = [letter(at, code=code, request_topic=topic, time_ms=ms) for at, (code, topic, ms) in enumerate(kinds)]
    bookmark = Bookmark()
    sent: set[int] = set()
    for asked, missing, limit, there in [*runs, (wanted, set[str](), None, len(found))]:
        offsets, bookmark = run(found[:there], bookmark, asked, missing, limit)
        sent.update(offsets)

    assert {at for at, one in enumerate(found) if wanted.takes(one)} <= sent


@given(SELECTIONS, SELECTIONS, st.sets(st.sampled_from(TOPICS)), st.sets(st.sampled_from(TOPICS)), LETTERS)
def test_a_selection_that_covers_another_takes_all_of_it(
    one: Selection, other: Selection, less: set[str], other_less: set[str], kinds: list[tuple[Code, str, int]]
) -> None:
    """What counts as done for the one is done for the other."""
    for topic in less:
        one = one.but(topic)
    for topic in other_less:
        other = other.but(topic)
    found = [letter(at, code=code, request_topic=topic, time_ms=ms) for at, (code, topic, ms) in enumerate(kinds)]

    if one.covers(other):
        assert all(one.takes(each) for each in found if other.takes(each))
    assert one.covers(one)
    assert EVERYTHING.covers(one)
