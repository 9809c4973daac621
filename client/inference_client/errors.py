"""Why a request has no result: one type for each code of the wire contract, and those that only a client knows.

A type exists because a caller does something different: mend the request, wait and try again, or give up.
"""

from __future__ import annotations


class InferenceError(Exception):
    """No result. `code` is the worker's word for it, `source` the request's `topic/partition/offset`.

    `source` None: this client says so, and no worker has answered.
    """

    code = "UNKNOWN"

    def __init__(self, message: str, source: str | None = None, code: str | None = None) -> None:
        super().__init__(message, source, code)
        self.message = message
        self.source = source
        self.code = code or type(self).code

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" ({self.source})" if self.source else "")


class InvalidArgument(InferenceError, ValueError):
    """The request is not what the model takes. The same request will fail again."""

    code = "INVALID_ARGUMENT"


class NotFound(InferenceError):
    """It names a model or version that is not served."""

    code = "NOT_FOUND"


class ResourceExhausted(InferenceError):
    """More bytes or rows than are taken at once."""

    code = "RESOURCE_EXHAUSTED"


class Full(ResourceExhausted):
    """So many requests are under way as the client was told, and it was told not to wait. Try again later."""


class DeadlineExceeded(InferenceError, TimeoutError):
    """No answer in time. Whether the model has run is not known where `source` is None."""

    code = "DEADLINE_EXCEEDED"


class Internal(InferenceError):
    """The model failed on this request, or its answer cannot be read."""

    code = "INTERNAL"


class Unavailable(InferenceError):
    """Kafka did not take the request, or it is not known whether it did."""

    code = "UNAVAILABLE"


class ClientClosed(RuntimeError):
    """The client was closed, or belongs to the process that this one was forked from."""


_BY_CODE: dict[str, type[InferenceError]] = {
    kind.code: kind for kind in (InvalidArgument, NotFound, ResourceExhausted, DeadlineExceeded, Internal, Unavailable)
}


def error_of(code: str, message: str, source: str | None) -> InferenceError:
    """What a worker answered. A code that is new to this client is an `InferenceError`."""
    return _BY_CODE.get(code, InferenceError)(message, source, code)
