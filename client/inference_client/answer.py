"""The future of one request, which costs little until something waits for it.

Most futures are asked for their result when it is there already. A `concurrent.futures.Future` needs a condition and
two lists so that a thread can wait for it. To make them for each request would be a good part of its cost here. So
`Future`'s own attributes are made at their first use, for example by `Future`'s own methods or by `wait`.

One thread may end an answer while another makes its attributes. One lock orders them, and whichever thread comes
second tells `Future` of the end. Many answers that end together take the lock once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, Self

from inference_client.errors import InferenceError
from inference_client.signature import Result


class Owner(Protocol):
    """The table of requests, as an answer in it sees it."""

    @property
    def lock(self) -> AbstractContextManager[bool]: ...
    def check_process(self) -> None: ...
    def give_up(self, answer: Answer) -> bool: ...
    def call(self, fn: Callable[[Future[Result]], object], answer: Answer) -> None: ...
    def undelivered(self, answer: Answer, error: Any) -> None: ...


class Cancelled:
    """The outcome of an answer that was given up."""


CANCELLED: Final = Cancelled()
Outcome = Result | InferenceError | Cancelled


class Answer(Future[Result]):
    """The future of one request. `cancel` gives up its place: its answer, if one comes, counts as late."""

    __slots__ = ("_is_made", "_outcome", "_owner", "began", "deadline", "holds", "request_id")

    def __init__(self, owner: Owner, request_id: bytes, began: float, deadline: float) -> None:
        """Leaves the attributes of `Future` to `__getattr__`."""
        self.request_id = request_id
        self.began = began
        self.deadline = deadline
        self.holds: object = None  # an object that must live as long as this answer
        self._owner = owner
        self._is_made = False
        self._outcome: Outcome | None = None

    def __getattr__(self, name: str) -> Any:
        """Make the attributes of `Future`: Python calls this for a missing attribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        with self._owner.lock:
            is_first = not self._is_made
            if is_first:
                super().__init__()
                self._is_made = True
            is_late = is_first and self.done()
        if is_late:
            self.tell()  # not under the lock: a thread that holds Future's condition may wait for the lock
        return object.__getattribute__(self, name)

    def end(self, outcome: Outcome) -> None:
        """End the answer with this outcome. Only the thread that took it out of the table calls this."""
        with self._owner.lock:
            is_made = self.end_locked(outcome)
        if is_made:
            self.tell()

    def end_locked(self, outcome: Outcome) -> bool:
        """Do the part of `end` that needs the lock. If this returns True, call `tell` after the lock is released."""
        self._outcome = outcome
        return self._is_made

    def tell(self) -> None:
        """Tell `Future`, and all threads that wait, how the answer ended."""
        outcome = self._outcome
        assert outcome is not None, "it has ended"
        if isinstance(outcome, Cancelled):
            super().cancel()
            self.set_running_or_notify_cancel()
        elif isinstance(outcome, InferenceError):
            self.set_exception(outcome)
        else:
            self.set_result(outcome)

    def done(self) -> bool:
        """True if the answer has ended."""
        return self._outcome is not None

    def cancelled(self) -> bool:
        """True if the answer was given up."""
        return self._outcome is CANCELLED

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the arrays. Raises the answer's `InferenceError`, `TimeoutError` and `CancelledError`.

        Raises `ClientClosed` for an open answer in a child of the process that asked: nothing ends the answer there.
        """
        outcome = self._outcome
        if type(outcome) is dict:
            return outcome
        if outcome is None:
            self._owner.check_process()
        return super().result(timeout)

    def cancel(self) -> bool:
        """Give up the answer. True if it ends, or had ended, as cancelled."""
        return self._owner.give_up(self) or self.cancelled()

    def add_done_callback(self, fn: Callable[[Future[Result]], object]) -> None:
        """Call `fn` on the thread for callbacks, one after the other. If `fn` raises, that is logged."""
        super().add_done_callback(lambda _: self._owner.call(fn, self))

    def when_done(self, fn: Callable[[Self], object]) -> None:
        """Call `fn` on the thread that ends the future. It must not wait for anything."""
        super().add_done_callback(fn)  # type: ignore[arg-type]  # it is called with this very future

    def __call__(self, error: Any, _: object) -> None:
        """Called by the producer if the record was not delivered: it holds the answer itself, not a method of it."""
        if error is not None:
            self._owner.undelivered(self, error)
