"""Lets any Python program ask a model that an inference-worker serves from Kafka.

with InferenceClient("localhost:9092", requests="requests", answers="answers") as client:
    probabilities = client.submit({"pixels": row}, key="customer-17").result()["probabilities"]

Where the topics hold records, with `records=Records()`, it sends a dict and gets one.
"""

from inference_client.answer import Answer
from inference_client.asynchronous import AsyncInferenceClient
from inference_client.client import Closed, InferenceClient
from inference_client.errors import (
    ClientClosed,
    DeadlineExceeded,
    Full,
    InferenceError,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from inference_client.records import Records
from inference_client.signature import Inputs, Result, Signature, TensorSpec

__all__ = [
    "Answer",
    "AsyncInferenceClient",
    "ClientClosed",
    "Closed",
    "DeadlineExceeded",
    "Full",
    "InferenceClient",
    "InferenceError",
    "Inputs",
    "Internal",
    "InvalidArgument",
    "NotFound",
    "Records",
    "ResourceExhausted",
    "Result",
    "Signature",
    "TensorSpec",
    "Unavailable",
]
