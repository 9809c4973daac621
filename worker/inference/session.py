"""A session as the rest of this room sees it: ONNX Runtime's, or a model in Python that looks like one.

No module of this room imports ONNX Runtime before a model needs it: that takes 16 MB (2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.inference.facts import Device

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"
CUDA_DRIVER = "libcuda.so"  # what a model in Python has in the place of a provider, if it runs on a GPU

# The exceptions of a run. ONNX Runtime's own have no common base except this one, and a model in Python raises any.
RUN_ERRORS = (Exception,)


class Session(Protocol):
    """The methods of `onnxruntime.InferenceSession` that are called here. Several threads may call `run` at once."""

    def get_inputs(self) -> Sequence[Any]:
        """The inputs, each with a `name`, a `type` such as `tensor(float)`, and a `shape` of sizes, names or None."""

    def get_outputs(self) -> Sequence[Any]: ...
    def get_providers(self) -> Sequence[str]: ...

    def run(self, names: Sequence[str], feeds: Mapping[str, Array], options: Any, /) -> Sequence[Array]:
        """These outputs, in order. Raises one of `RUN_ERRORS`."""


class RunFailed(Exception):
    """A run failed, and its session knows how the failure is to be answered."""

    def __init__(self, message: str, failure: RunFailure) -> None:
        super().__init__(message)
        self.failure = failure


class WrongOutput(RunFailed):
    """A run gave something else than the model declares, whatever the input was."""

    def __init__(self, message: str) -> None:
        super().__init__(message, RunFailure(message))


class Opened(NamedTuple):
    """A session, and where it runs."""

    session: Session
    device: Device


def is_accelerated(session: Session) -> bool:
    """True if the session runs on CUDA, by itself, under TensorRT or in Python."""
    return not {CUDA, TENSORRT, CUDA_DRIVER}.isdisjoint(session.get_providers())


def operators(session: Session, provider: str | None = None) -> Sequence[str]:
    """The operator of each node that this provider runs (None: any provider); empty if the session does not tell.

    Nodes of functions and branches are among them, as far as the session has kept them.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return ()
    try:
        parts = session.get_provider_graph_assignment_info()
    except RUN_ERRORS:
        return ()
    return [node.op_type for part in parts if provider in (None, part.ep_name) for node in part.get_nodes()]
