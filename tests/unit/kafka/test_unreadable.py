"""When a record that cannot be read is given up."""

from worker.core.records import Partition
from worker.kafka.unreadable import Unreadable

P = Partition("requests", 0)
Q = Partition("requests", 1)


def test_a_record_is_given_up_the_third_time() -> None:
    """Twice it may have been the network."""
    unreadable = Unreadable()

    assert [unreadable.failed(P, 7) for _ in range(3)] == [(7, False), (7, False), (7, True)]


def test_the_rest_of_a_damaged_batch_is_given_up_at_once() -> None:
    """The client reports every record of a batch by the batch's first offset."""
    unreadable = Unreadable()
    for _ in range(3):
        unreadable.failed(P, 7)

    assert [unreadable.failed(P, 7) for _ in range(3)] == [(8, True), (9, True), (10, True)]


def test_another_damaged_batch_is_tried_again() -> None:
    """What was between them could be read."""
    unreadable = Unreadable()
    for _ in range(3):
        unreadable.failed(P, 7)

    assert unreadable.failed(P, 20) == (20, False)


def test_partitions_do_not_share_their_failures() -> None:
    """One damaged disk convicts nobody else's records."""
    unreadable = Unreadable()
    for _ in range(3):
        unreadable.failed(P, 7)

    assert unreadable.failed(Q, 7) == (7, False)


def test_a_partition_that_left_is_judged_anew() -> None:
    """It comes back from the last commit, which is behind what was given up."""
    unreadable = Unreadable()
    for _ in range(3):
        unreadable.failed(P, 7)

    unreadable.forget([P, Q])

    assert unreadable.failed(P, 5) == (5, False)
