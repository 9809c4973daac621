"""How long a replica that gets all partitions would read their states back: begun here, and reckoned from there.

It is the longest that a start may take: what a clean stop may have left in `STATE__DIRECTORY` is not looked at, for it
is another machine's, or a running worker's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from worker.core.failures import Incomplete
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Partition
from worker.kafka import ChangelogRestorer
from worker.kafka.client.command_clients import NO_LOG
from worker.settings import Settings
from worker.state import KeyStates, StateLayout
from worker.terminal.terminal import progress

# Seconds until the brokers have told how much there is: the restorer asks four things, for 5 each at most, and again.
PATIENCE = 30.0
TRIED_FOR = 5.0  # seconds; then the rest is reckoned
_WAIT = 0.005
_CLOSE_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class RestoreFacts:
    """`records` of the changelog, and the `seconds` to read them back; `is_reckoned`: from those of the first ones."""

    partitions: int
    records: int
    seconds: float
    is_reckoned: bool


def restore_estimate(settings: Settings, layout: StateLayout, partitions: int) -> RestoreFacts:
    """Read states back as a worker does, in memory. Raises `Stop` for what would end it, or what takes too long."""
    kafka = settings.kafka
    assert kafka.changelog_topic is not None
    is_exact = settings.delivery.guarantee == "exactly_once"
    restorer = ChangelogRestorer(kafka, kafka.changelog_topic, layout, NO_LOG, is_exact=is_exact, date=time.time)
    states = KeyStates(layout, OffsetLedger(), restorer)
    began = time.monotonic()
    try:
        states.assigned([Partition(kafka.request_topics[0], number) for number in range(partitions)])
        while not restorer.total and states.restoring:
            if time.monotonic() >= began + PATIENCE:
                raise _untold(kafka.changelog_topic)
            _restore_some(states)
        with progress("reading states back", restorer.total) as advance:
            while states.restoring and time.monotonic() < began + TRIED_FOR:
                _restore_some(states)
                advance(restorer.total - restorer.left)
        left = states.left_to_restore
    finally:
        restorer.close(_CLOSE_TIMEOUT)
    took = time.monotonic() - began
    done = restorer.total - left
    return RestoreFacts(partitions, restorer.total, took * restorer.total / max(1, done) if left else took, bool(left))


def _untold(changelog: str) -> Incomplete:
    return Incomplete(
        f"--restore-estimate: the brokers have not told for {PATIENCE:g} s where {changelog} ends; does each of its "
        "partitions have a leader?"
    )


def _restore_some(states: KeyStates) -> None:
    if not states.restore_some():
        time.sleep(_WAIT)
