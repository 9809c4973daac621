"""What the worker is compared with: the loop that one writes in an afternoon, and the least that can be done at all.

    python -m tests.bench.contenders hand_loop|pass_through BOOTSTRAP REQUESTS RESPONSES GROUP MODEL

Both run until they are killed. Neither knows bad input, order across failures, or how to stop.
"""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime
from confluent_kafka import Consumer, Producer

BATCH = 64
ANSWER = bytes(64)  # as long as the model's answer to one row: 16 floats


def hand_loop(consumer: Consumer, producer: Producer, responses: str, model: str) -> None:
    """consume(64) → run → produce → flush → commit: safe, because nothing overlaps."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    while True:
        messages = consumer.consume(BATCH, 0.1)
        if not messages:
            continue
        rows = np.frombuffer(b"".join(m.value() or b"" for m in messages), "<f4").reshape(len(messages), -1)
        results = session.run(None, {name: rows})[0]
        for message, result in zip(messages, results, strict=True):
            producer.produce(responses, result.tobytes(), message.key())
        producer.flush()
        consumer.commit(asynchronous=False)


def pass_through(consumer: Consumer, producer: Producer, responses: str, _model: str) -> None:
    """Consume, produce something: no inference, no look at reports, no commit."""
    while True:
        for message in consumer.consume(1000, 0.1):
            while True:
                try:
                    producer.produce(responses, ANSWER, message.key())
                except BufferError:
                    producer.poll(0.01)
                else:
                    break
        producer.poll(0)


def main(name: str, bootstrap: str, requests: str, responses: str, group: str, model: str) -> None:
    """Run one of them until killed."""
    servers = {"bootstrap.servers": bootstrap}
    own = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer(servers | own)
    consumer.subscribe([requests])
    producer = Producer(servers | {"enable.idempotence": True, "partitioner": "murmur2_random"})
    {"hand_loop": hand_loop, "pass_through": pass_through}[name](consumer, producer, responses, model)


if __name__ == "__main__":
    main(*sys.argv[1:])
