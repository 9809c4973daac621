"""What a reader outside the group makes of a partition that stands."""

from __future__ import annotations

import pytest

from tests.unit.kafka.consumer.test_batch_end import Spoiled
from tests.unit.kafka.scripted import statistics
from worker.core.records import Partition
from worker.kafka.consumer import batch_end
from worker.kafka.consumer.stall_watch import LOOKS, Damage, StallWatch

P = Partition("requests", 0)


def after(watch: StallWatch, seconds: int, stable: int = 100) -> list[Damage]:
    """What is damaged, after a client has stood at 13 for so long."""
    found: list[Damage] = []
    for second in range(seconds):
        watch.config["stats_cb"](statistics(P, 13, stable=stable, answers=second))
        found += watch.damages(watch.stalls())
    return found


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Spoiled:
    """Of 30 records the client cannot parse 13 to 19."""
    spoiled = Spoiled(30, (0, 29, None), spoiled=range(13, 20))
    monkeypatch.setattr(batch_end, "time", spoiled)
    return spoiled


def test_records_that_cannot_be_parsed_are_found_when_the_client_has_stood_for_a_while(log: Spoiled) -> None:
    """Not sooner: each look costs a client."""
    assert after(StallWatch(log, log.monotonic), LOOKS) == []
    assert after(StallWatch(log, log.monotonic), LOOKS + 1) == [Damage(P, 13, 19)]


def test_records_that_another_client_is_shown_are_not_damaged(log: Spoiled) -> None:
    """They come, only late; it is looked again."""
    log.spoiled = ()

    assert after(StallWatch(log, log.monotonic), 2 * LOOKS + 1) == []
    assert log.looks == 2


def test_nothing_behind_an_open_transaction_is_looked_at(log: Spoiled) -> None:
    """It may not be read yet."""
    watch = StallWatch(log, log.monotonic)

    assert after(watch, 3 * LOOKS, stable=13) == []
    assert log.looks == 0


def test_what_the_client_told_counts_once(log: Spoiled) -> None:
    """However often it is asked about before it tells again."""
    watch = StallWatch(log, log.monotonic)
    after(watch, LOOKS)
    watch.config["stats_cb"](statistics(P, 13, answers=99))

    assert [bool(watch.stalls()) for _ in range(3)] == [True, False, False]
