"""How a stand-by notices that it is in its group."""

from __future__ import annotations

from worker.kafka.consumer.rebalances import StandBy

UP, AWAY = "up", "query-coord"


def test_a_stand_by_is_in_once_its_coordinator_was_up_twice() -> None:
    """Once may be before the first heartbeat; told it is only once."""
    stand_by = StandBy()

    assert [stand_by.heard(said) for said in (AWAY, UP, AWAY, UP, UP, UP)] == [False, False, False, False, True, False]


def test_a_member_with_partitions_is_no_stand_by() -> None:
    """Its callback has told already."""
    stand_by = StandBy()

    stand_by.is_known()

    assert not any(stand_by.heard(UP) for _ in range(3))


def test_a_member_that_was_lost_joins_again() -> None:
    """Being in the group is not for ever."""
    stand_by = StandBy()
    stand_by.is_known()

    stand_by.lost()

    assert [stand_by.heard(UP) for _ in range(2)] == [False, True]


def test_statistics_before_the_group_say_nothing() -> None:
    """The client speaks before it knows of a group."""
    assert not StandBy().heard("")
