"""What to say where the request topic has got more partitions than the changelog: keys have moved, their states not."""

from __future__ import annotations


def keys_have_moved(changelog: str, topic: str, partitions: int) -> str:
    """`partitions`: of the request topic, now."""
    return (
        f"WORKER_KAFKA__CHANGELOG_TOPIC: {topic} has {partitions} partitions now, and {changelog} has fewer: keys have "
        "moved with the new partitions, and their states are in the old ones; stop all workers and move the states, as "
        "`inference-worker check` says. What has been answered to moved keys since the partitions were added may be of "
        "a fresh state"
    )
