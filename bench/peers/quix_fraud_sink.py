"""Quix Streams on payments in JSON, with its batching sink: a checkpoint's messages of a partition in batches.

Set: a checkpoint at every 5,000 messages, so that one is worth its cost. The sink has its own producer and waits for
its deliveries before the checkpoint commits: at least once.
"""

from __future__ import annotations

import orjson

from bench.loops.payments import scores
from bench.loops.task import Task
from bench.peers.quix_sink import serve


def main() -> None:
    """Run until killed."""
    task = Task.from_command_line()
    answers = scores(task.model)
    serve(task, lambda payments: list(map(orjson.dumps, answers(payments))), "json")


if __name__ == "__main__":
    main()
