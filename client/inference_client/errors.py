"""The errors of requests without a result: one type for each code of the wire contract, and the client's own types.

A type exists because a caller does something different: mend the request, wait and try again, or give up.
"""

from __future__ import annotations


class InferenceError(Exception):
    """A request without a result. `code` is the worker's error code, `source` the request's `topic/partition/offset`.

    `source` None: the error is from this client, and no worker has answered.
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
    """The model does not take such a request. If it is sent again it fails again."""

    code = "INVALID_ARGUMENT"


class NotFound(InferenceError):
    """The request names a model or version that is not served."""

    code = "NOT_FOUND"


class ResourceExhausted(InferenceError):
    """The request has more bytes or rows than are taken at once."""

    code = "RESOURCE_EXHAUSTED"


class Full(ResourceExhausted):
    """The client's limit of requests under way is reached, and it was told not to wait. Try again later."""


class DeadlineExceeded(InferenceError, TimeoutError):
    """No answer came in time. If `source` is None, it is not known whether the model has run."""

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
    """The error that a worker answered. A code that this client does not know gives an `InferenceError`."""
    return _BY_CODE.get(code, InferenceError)(message, source, code)
