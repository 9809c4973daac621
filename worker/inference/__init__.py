"""The model and the threads that run it. Nothing else imports onnxruntime."""

import os

# From 1.29 on ONNX Runtime sends its maker usage data over HTTPS, with the names of the model's file and graph, and
# keeps an identifier in the user's directory. It decides this once, at its import; 0 in the environment allows it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from worker.inference.declared_signature import Declared
from worker.inference.lanes import BRIEF, InferenceLanes, RunnableModel
from worker.inference.model import Model
from worker.inference.model_file import digest_of
from worker.inference.model_loading import example_of, inspect, load, load_as_set
from worker.inference.row_independence import Independence, independence

__all__ = [
    "BRIEF",
    "Declared",
    "Independence",
    "InferenceLanes",
    "Model",
    "RunnableModel",
    "digest_of",
    "example_of",
    "independence",
    "inspect",
    "load",
    "load_as_set",
]
