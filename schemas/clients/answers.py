import json

import numpy as np
from confluent_kafka import Consumer, KafkaException
from inference_pb2 import InferenceError, ModelInferResponse

PROTOBUF, OCTETS = "application/x-protobuf", "application/octet-stream"


def output(headers, value):
    """The only output, flat."""
    if headers["content-type"] == PROTOBUF:
        return np.frombuffer(ModelInferResponse.FromString(value).raw_output_contents[0], "<f4")
    if headers["content-type"] == OCTETS:
        head = int(headers.get("Inference-Header-Content-Length", 0))  # value[:head] is JSON and names the tensors
        return np.frombuffer(value[head:], "<f4")
    return json.loads(value)["outputs"][0]["data"]


def error(headers, value):
    is_protobuf = headers["content-type"] == PROTOBUF
    message = InferenceError.FromString(value).error if is_protobuf else json.loads(value)["error"]
    return f"{headers['error-code']}: {message}"


consumer = Consumer({"bootstrap.servers": "localhost:9092", "group.id": "readers", "auto.offset.reset": "earliest"})
consumer.subscribe(["answers"])
highest = {}  # keep it where you keep the results: a restarted reader needs it too
while True:
    answer = consumer.poll(1.0)
    if answer is None:
        continue
    if answer.error():
        raise KafkaException(answer.error())
    headers = {name: value.decode(errors="replace") for name, value in answer.headers()}
    partition, _, offset = headers["source"].rpartition("/")
    seen = answer.partition(), partition
    if int(offset) <= highest.get(seen, -1):
        continue  # a repeat
    highest[seen] = int(offset)
    name = headers.get("request-id", headers["source"])
    if headers["status"] == "ok":
        print(name, *output(headers, answer.value()))
    else:
        print(name, error(headers, answer.value()))
