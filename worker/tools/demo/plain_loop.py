"""The loop that people write without a framework: poll some requests, run one inference, answer, commit.

The demo measures it next to the worker: `python plain_loop.py BROKERS MODEL`. A request that is not JSON ends it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnxruntime
import orjson
from confluent_kafka import Consumer, Producer

AT_ONCE = 64


def main(brokers: str, model: str) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # like the worker
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    reading = {"group.id": "loop", "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 2}
    consumer = Consumer({"bootstrap.servers": brokers, **reading})
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random"})
    consumer.subscribe(["requests"], on_assign=_tell_ready)
    while True:
        messages = [message for message in consumer.consume(AT_ONCE, 0.02) if message.error() is None]
        if not messages:
            continue
        rows = [orjson.loads(message.value() or b"")["inputs"][0]["data"] for message in messages]
        (answers,) = session.run(None, {"pixels": np.array(rows, np.float32)})
        for message, row in zip(messages, answers.tolist(), strict=True):
            output = {"name": "probabilities", "datatype": "FP32", "shape": [1, len(row)], "data": row}
            producer.produce("answers", orjson.dumps({"outputs": [output]}), message.key(), headers=[("status", b"ok")])
        producer.flush()
        consumer.commit(asynchronous=False)


def _tell_ready(*_: Any) -> None:
    sys.stderr.write("partitions_assigned\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
