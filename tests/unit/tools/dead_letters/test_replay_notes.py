"""What a replay remembers stays short: it has four kilobytes, and a replay that runs every hour runs for years."""

from __future__ import annotations

from tests.unit.tools.dead_letters.builders import letter
from worker.core.failures import Code
from worker.tools.dead_letters.progress import EVERYTHING, MAX_NOTES, Bookmark, Selection, Trail

HOUR = 3600_000
A_YEAR = 24 * 365


def run(bookmark: Bookmark, wanted: Selection, times: list[int], first: int) -> Bookmark:
    """One replay over letters of these times; the first of them, at offset `first`, is the first that is new enough."""
    trail = Trail(bookmark, wanted, max(bookmark.start(wanted), first))
    for offset in range(trail.next_offset, len(times)):
        trail.passed(letter(offset, time_ms=times[offset]))
    return trail.bookmark


def test_a_replay_of_the_last_two_hours_every_hour_is_one_note() -> None:
    """Each begins where the one before ended and passes nothing over, so that takes it along."""
    times = [-HOUR]  # one that is always too old, so that the offset cannot say it all
    bookmark = Bookmark()

    for hour in range(1, A_YEAR):
        times += [hour * HOUR - 2, hour * HOUR - 1]
        bookmark = run(bookmark, Selection(since_ms=(hour - 2) * HOUR), times, first=max(1, len(times) - 4))

    assert bookmark == Bookmark(0, {Selection(since_ms=-HOUR): len(times)})


def test_a_replay_that_leaves_out_letters_each_time_is_kept_short_by_retention() -> None:
    """It asks for less than has come since: what it left out has to be known until it is gone."""
    kept = 24 * 3
    times: list[int] = []
    bookmark = Bookmark()

    for hour in range(1, A_YEAR):
        times += [hour * HOUR - HOUR // 2, hour * HOUR - 1]
        bookmark = bookmark.moved(EVERYTHING, len(times) - kept)
        bookmark = run(bookmark, Selection(since_ms=hour * HOUR - HOUR // 4), times, first=len(times) - 1)

        assert len(bookmark.done) <= kept / 2 + 1
        assert len(bookmark.notes()) <= MAX_NOTES


def test_a_filter_that_leaves_nothing_out_needs_no_note() -> None:
    """All letters are of that code: the offset says it."""
    trail = Trail(Bookmark(), Selection("INTERNAL"), 0)

    for offset in range(3):
        trail.passed(letter(offset, code=Code.INTERNAL))

    assert trail.bookmark == Bookmark(3)


def test_a_wider_filter_ends_before_the_first_of_its_letters_that_is_passed_over() -> None:
    """Until there it is taken along."""
    topic = Selection(request_topic="a")
    trail = Trail(Bookmark(0, {topic: 5}), Selection("INTERNAL", request_topic="a"), 5)

    for offset, (code, to) in enumerate([(Code.INTERNAL, "a"), (Code.NOT_FOUND, "b"), (Code.NOT_FOUND, "a")], 5):
        trail.passed(letter(offset, code=code, request_topic=to))

    assert trail.bookmark == Bookmark(0, {topic: 7, Selection("INTERNAL", request_topic="a"): 8})


def test_a_wider_filter_that_ended_before_this_run_begins_stays_there() -> None:
    """Nobody has seen what lies between."""
    topic = Selection(request_topic="a")
    trail = Trail(Bookmark(0, {topic: 4}), Selection(since_ms=7, request_topic="a"), 5)

    trail.passed(letter(5, request_topic="a"))

    assert trail.bookmark == Bookmark(0, {topic: 4, Selection(since_ms=7, request_topic="a"): 6})


def test_letters_that_are_gone_are_done() -> None:
    """What was remembered of them is forgotten."""
    bookmark = Bookmark(10, {Selection("INTERNAL"): 40, Selection("NOT_FOUND"): 60})

    assert bookmark.moved(EVERYTHING, 40) == Bookmark(40, {Selection("NOT_FOUND"): 60})
    assert bookmark.moved(EVERYTHING, 5) == bookmark


def test_what_is_left_of_a_filter_by_topic_without_the_topic_is_not_noted() -> None:
    """It takes no letter."""
    trail = Trail(Bookmark(), Selection(request_topic="gone"), 0)

    trail.passed(letter(0, request_topic="gone"))
    trail.left(letter(1, request_topic="gone"))
    trail.passed(letter(1, request_topic="gone"))

    assert trail.bookmark == Bookmark(1)


def test_a_hundred_filters_fit() -> None:
    """By a time each, at offsets of seven digits; the most that one partition can be made to remember of that kind."""
    times = {Selection(since_ms=1_763_725_000_000 + hour * HOUR): 1_000_000 + hour for hour in range(108)}
    most = dict(list(times.items())[:107])

    assert len(Bookmark(0, most).notes()) <= MAX_NOTES < len(Bookmark(0, times).notes())
