"""FastStream's batch subscriber, on confluent-kafka.

Set: batches of the asked size, answers published as a batch, uvloop as in its own command line, no log line per
message. Left at their defaults: `AckPolicy.ACK_FIRST`, so offsets are committed in the background before the work is
done; `linger_ms=0`, because it waits for the delivery of each batch before it takes the next.
"""

from __future__ import annotations

import uvloop
from faststream import FastStream
from faststream.confluent import KafkaBroker, KafkaMessage
from faststream.confluent.response import KafkaResponse

from bench.loops.task import Task, joined, model_call


def main() -> None:
    """Run until killed."""
    task = Task.from_command_line()
    run = model_call(task.model, task.batch)
    broker = KafkaBroker(task.bootstrap, enable_idempotence=True, logger=None)

    @broker.subscriber(
        *task.requests.split(","),
        group_id=task.group,
        auto_offset_reset="earliest",
        batch=True,
        max_records=task.batch,
    )
    async def answer(message: KafkaMessage) -> None:
        messages = message.raw_message
        results = run(joined([m.value() for m in messages]))
        answers = [KafkaResponse(y.tobytes(), key=m.key()) for m, y in zip(messages, results, strict=True)]
        await broker.publish_batch(*answers, topic=task.responses)

    uvloop.run(FastStream(broker, logger=None).run())


if __name__ == "__main__":
    main()
