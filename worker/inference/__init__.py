"""The model and the threads that run it. Nothing else imports onnxruntime."""

from worker.inference.lanes import InferenceLanes
from worker.inference.model import Model, load

__all__ = ["InferenceLanes", "Model", "load"]
