import json

import numpy as np
from confluent_kafka import KafkaException, Producer
from inference_pb2 import ModelInferRequest

config = {"bootstrap.servers": "localhost:9092", "partitioner": "murmur2_random", "enable.idempotence": True}
producer = Producer(config)
row = np.array([[0.1, 0.2, 0.3]], "<f4")
x = {"name": "x", "shape": [1, 3], "datatype": "FP32"}


def publish(request_id, content_type, value, headers={}):
    headers = {"content-type": content_type, "request-id": request_id, **headers}
    producer.produce("requests", value, key="user-7", headers=headers, on_delivery=check)


def check(error, message):
    if error:
        raise KafkaException(error)


# JSON
publish("json", "application/json", json.dumps({"inputs": [{**x, "data": [0.1, 0.2, 0.3]}]}))

# rows
publish("rows", "application/octet-stream", row.tobytes(), {"datatype": "FP32", "rows": "1"})

# binary-data form
head = json.dumps({"inputs": [{**x, "parameters": {"binary_data_size": row.nbytes}}]}).encode()
length = {"Inference-Header-Content-Length": str(len(head))}
publish("binary", "application/octet-stream", head + row.tobytes(), length)

# protobuf
request = ModelInferRequest(inputs=[x], raw_input_contents=[row.tobytes()])
publish("protobuf", "application/x-protobuf", request.SerializeToString())

# two bad ones
publish("bad-json", "application/json", '{"inputs": []}')
publish("bad-protobuf", "application/x-protobuf", ModelInferRequest(inputs=[x]).SerializeToString())

producer.flush()
