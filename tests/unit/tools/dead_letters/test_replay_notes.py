"""What a replay remembers stays short: it has four kilobytes, and a replay that runs every hour runs for years."""

from __future__ import annotations

from tests.unit.tools.dead_letters.builders import letter
from worker.tools.dead_letters.progress import EVERYTHING, MAX_NOTES, Bookmark, Selection, Trail

A_YEAR = 24 * 365


def run(bookmark: Bookmark, wanted: Selection, first: int, end: int) -> Bookmark:
    """One replay that was asked for what lies from `first` on, and found letters up to `end`."""
    trail = Trail(bookmark, wanted, bookmark.start(wanted, first))
    for offset in range(trail.next_offset, end):
        trail.passed(letter(offset))
    return trail.bookmark


def test_a_replay_of_the_last_two_hours_every_hour_is_one_note() -> None:
    """Each begins where the one before ended."""
    bookmark = Bookmark()

    for hour in range(1, A_YEAR):  # two letters an hour come behind one that is always too old
        bookmark = run(bookmark, EVERYTHING, max(1, 2 * hour - 4), 2 * hour)

    assert bookmark == Bookmark(0, {EVERYTHING: ((1, 2 * A_YEAR - 2),)})


def test_a_replay_that_leaves_out_letters_each_time_is_kept_short_by_retention() -> None:
    """It asks for less than has come since: what it left out has to be known until it is gone."""
    kept = 24 * 3
    bookmark = Bookmark()

    for hour in range(1, A_YEAR):
        bookmark = bookmark.moved(EVERYTHING, 0, 2 * hour - kept)
        bookmark = run(bookmark, EVERYTHING, 2 * hour - 1, 2 * hour)

        assert len(bookmark.done.get(EVERYTHING, ())) <= kept / 2 + 1
        assert len(bookmark.notes()) <= MAX_NOTES


def test_letters_that_are_gone_are_done() -> None:
    """What was remembered of them is forgotten."""
    bookmark = Bookmark(10, {Selection("INTERNAL"): ((10, 40),), Selection("NOT_FOUND"): ((10, 60),)})

    assert bookmark.moved(EVERYTHING, 0, 40) == Bookmark(40, {Selection("NOT_FOUND"): ((10, 60),)})
    assert bookmark.moved(EVERYTHING, 0, 5) == bookmark


def test_a_stretch_within_one_of_a_wider_filter_is_not_noted() -> None:
    """It would say nothing."""
    bookmark = Bookmark().moved(Selection("INTERNAL", "a"), 3, 7).moved(Selection("INTERNAL", "a"), 20, 30)

    assert bookmark.moved(Selection("INTERNAL"), 2, 9).done == {
        Selection("INTERNAL", "a"): ((20, 30),),
        Selection("INTERNAL"): ((2, 9),),
    }


def test_what_is_left_of_a_filter_by_topic_without_the_topic_is_not_noted() -> None:
    """It takes no letter."""
    trail = Trail(Bookmark(), Selection(request_topic="gone"), 0)

    trail.passed(letter(0, request_topic="gone"))
    trail.passed(letter(1, request_topic="gone"), is_left=True)
    trail.passed(letter(2, request_topic="gone"))

    assert trail.bookmark == Bookmark(0, {Selection(request_topic="gone"): ((0, 1),)})


def test_two_hundred_stretches_fit() -> None:
    """At offsets of seven digits; the most that one partition can be made to remember of that kind."""
    most = tuple((1_000_000 + 9 * at, 1_000_005 + 9 * at) for at in range(226))

    assert len(Bookmark(0, {EVERYTHING: most}).notes()) <= MAX_NOTES
    assert len(Bookmark(0, {EVERYTHING: (*most, (2_000_000, 2_000_005))}).notes()) > MAX_NOTES
