"""The loops `hand_loop` and `one_by_one`, on a device and for any network that is measured here.

python -m bench.gpu.loops NAME DEVICE NETWORK PRECISION BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH RATE
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Message

from bench.gpu.networks import NETWORKS, Network
from bench.gpu.sessions import opened
from bench.loops.by_hand import Answers, run_loop
from bench.loops.task import Task


def model_call(network: Network, model: str, device: str, batch: int) -> Answers:
    """Returns a call that answers messages with one inference. It is warm with one row and with a batch."""
    session = opened(Path(model), device)

    def run(messages: Sequence[Message]) -> Sequence[bytes]:
        outputs = session.run(None, dict(network.form.batch([message.value() or b"" for message in messages])))
        return [b"".join(output[at].tobytes() for output in outputs) for at in range(len(messages))]

    for rows in (1, batch):
        session.run(None, dict(network.feeds(rows)))
    return run


def main() -> None:
    """Run one of the loops until killed."""
    name, device, called, precision = sys.argv[1:5]
    task = Task.from_command_line()
    network = next(each for each in NETWORKS if (each.name, each.precision) == (called, precision))
    run_loop(name, task, model_call(network, task.model, device, task.batch))


if __name__ == "__main__":
    main()
