"""The message where a request topic has more partitions than its changelog: keys have moved without their states."""

from __future__ import annotations


def keys_have_moved(changelog: str, topic: str, partitions: int) -> str:
    """`partitions`: of the request topic, now."""
    return (
        f"WORKER_KAFKA__CHANGELOG_TOPIC: {topic} has {partitions} partitions now, and {changelog} has fewer: keys have "
        "moved with the new partitions, and their states are in the old ones; stop all workers and move the states, as "
        "`inference-worker check` says. What has been answered to moved keys since the partitions were added may be of "
        "a fresh state"
    )
