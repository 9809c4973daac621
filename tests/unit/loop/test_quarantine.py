"""Who is suspect, whose turn it is, and when it is over."""

from __future__ import annotations

from tests.builders import P0, P1, POLICY, record, request
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Partition, Suspect
from worker.loop.quarantine import MOST_WAITING, Trials

MOST_IN_FLIGHT = 500


def trials_of(until: int = 10, convicted: int | None = None, partition: Partition = P0) -> Trials:
    trials = Trials(POLICY, MOST_IN_FLIGHT)
    trials.suspect([Suspect(partition, 3, convicted, until)])
    return trials


def add(trials: Trials, offset: int, partition: Partition = P0) -> bool:
    place = OffsetLedger().track(record(offset, partition=partition), 1, 4, 0.0)
    return trials.add(record(offset, partition=partition), place)


def tried(trials: Trials) -> list[str]:
    """Ends all trials, in their order."""
    sources = []
    while (trial := trials.current) is not None:
        sources.append(trial.record.source)
        trials.end()
    return sources


def test_the_records_of_a_suspect_are_claimed() -> None:
    """Those of other partitions are not."""
    trials = trials_of(convicted=4)

    assert trials.claims(record(4)) == Suspect(P0, 3, 4, 10)
    assert trials.claims(record(4, partition=P1)) is None


def test_suspicion_ends_with_what_could_have_been_under_way() -> None:
    """A record that came later cannot have ended an earlier process; from it on the partition is as any other."""
    trials = trials_of(until=10)

    assert trials.claims(record(9)) is not None
    assert trials.claims(record(10)) is None
    assert not trials.has_suspects


def test_no_more_is_suspect_than_a_process_holds() -> None:
    """A backlog that grew while the process died again and again is not tried one by one."""
    trials = trials_of(until=1_000_000)

    claimed = [trials.claims(record(at * 1_000)) is not None for at in range(MOST_IN_FLIGHT + 2)]

    assert claimed == [True] * MOST_IN_FLIGHT + [False] * 2


def test_a_partition_that_is_read_again_is_counted_again() -> None:
    """The same records come once more."""
    trials = trials_of(until=1_000_000)
    for at in range(MOST_IN_FLIGHT):
        trials.claims(record(at))
    trials.forget([P0])

    assert trials.claims(record(0)) is not None


def test_records_are_tried_in_the_order_taken() -> None:
    """Whatever their partitions."""
    trials = trials_of()
    trials.suspect([Suspect(P1, 3, None, 10)])

    add(trials, 0)
    add(trials, 5, P1)
    add(trials, 1)

    assert tried(trials) == ["requests/0/0", "requests/1/5", "requests/0/1"]


def test_a_partition_with_many_waiting_is_to_be_withheld_and_released() -> None:
    """It is said once each way: at the bound, and when half of it is tried."""
    trials = trials_of(until=1000)

    added = [add(trials, at) for at in range(MOST_WAITING)]
    ended = [trials.end() for _ in range(MOST_WAITING)]

    assert added == [False] * (MOST_WAITING - 1) + [True]
    assert ended.index(True) == MOST_WAITING // 2 - 1
    assert ended.count(True) == 1


def test_a_partition_that_leaves_takes_its_trials_with_it() -> None:
    """Also the pieces of the one that runs; another partition's stay."""
    trials = trials_of()
    add(trials, 0)
    add(trials, 0, P1)
    trials.run(request(0, rows=9), 0.0)

    trials.forget([P0])

    assert trials.next_group() is None
    assert tried(trials) == ["requests/1/0"]


def test_a_partition_that_is_read_again_stays_suspect() -> None:
    """Forgetting its records is no acquittal; leaving is one."""
    trials = trials_of()

    trials.forget([P0])
    assert trials.has_suspects
    trials.acquit([P0])

    assert not trials.has_suspects


def test_a_request_larger_than_a_batch_is_tried_in_pieces() -> None:
    """One group after the other, until nothing is left."""
    trials = trials_of()
    trials.run(request(0, rows=9), 0.0)

    groups = [trials.next_group() for _ in range(4)]

    assert [group.rows if group else None for group in groups] == [4, 4, 1, None]
