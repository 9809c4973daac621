"""Quix Streams with its state: for each message read the state of its key from RocksDB, run the model, write it back.

It offers no other way. Left at their defaults: a checkpoint every 5 s, with the changelog topic that it makes for
itself, and at least once.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from quixstreams import Application, State

from bench.loops.task import Task, step_call


def main() -> None:
    """Run until killed."""
    task = Task.from_command_line()
    run = step_call(task.model)
    app = Application(
        task.bootstrap,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        loglevel="WARNING",
        state_dir=tempfile.mkdtemp(),
    )
    requests = app.topic(task.requests, key_deserializer="bytes", value_deserializer="bytes")
    responses = app.topic(task.responses, key_serializer="bytes", value_serializer="bytes")

    def step(value: bytes, state: State) -> Any:
        before = state.get("h")
        answer, after = run(value, None if before is None else np.array(before, np.float32))
        state.set("h", after.tolist())
        return answer

    app.dataframe(requests).apply(step, stateful=True).to_topic(responses)
    app.run()


if __name__ == "__main__":
    main()
