"""The future of one request, which costs little until something waits for it.

Most futures are asked for their result when it is there. What a `concurrent.futures.Future` needs to be waited for, a
condition and two lists, would be a good part of what a request costs here; so `Future`'s own attributes are made when
something first looks for one, its own methods and `wait` among them.

Who ends an answer and who makes its attributes may meet. Under the one lock either the end comes first, and the maker
tells `Future` of it, or the attributes do, and the end does: of many answers at once the lock is taken once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, Self

from inference_client.errors import InferenceError
from inference_client.signature import Result


class Owner(Protocol):
    """The table of requests, as one of them sees it."""

    @property
    def lock(self) -> AbstractContextManager[bool]: ...
    def check_process(self) -> None: ...
    def give_up(self, answer: Answer) -> bool: ...
    def call(self, fn: Callable[[Future[Result]], object], answer: Answer) -> None: ...
    def undelivered(self, answer: Answer, error: Any) -> None: ...


class Cancelled:
    """The end of an answer that was given up."""


CANCELLED: Final = Cancelled()
Outcome = Result | InferenceError | Cancelled


class Answer(Future[Result]):
    """The future of one request. `cancel` gives up its place: its answer, if one comes, counts as late."""

    __slots__ = ("_is_made", "_outcome", "_owner", "began", "deadline", "holds", "request_id")

    def __init__(self, owner: Owner, request_id: bytes, began: float, deadline: float) -> None:
        """Future's own is left to `__getattr__`."""
        self.request_id = request_id
        self.began = began
        self.deadline = deadline
        self.holds: object = None  # what must live as long as this
        self._owner = owner
        self._is_made = False
        self._outcome: Outcome | None = None

    def __getattr__(self, name: str) -> Any:
        """Make Future's attributes: this is called for what is not there."""
        if name.startswith("__"):
            raise AttributeError(name)
        with self._owner.lock:
            is_first = not self._is_made
            if is_first:
                super().__init__()
                self._is_made = True
            is_late = is_first and self.done()
        if is_late:
            self.tell()  # not under the lock: who holds Future's condition may wait for that
        return object.__getattribute__(self, name)

    def end(self, outcome: Outcome) -> None:
        """With this. To be called by who has taken it out of the table."""
        with self._owner.lock:
            is_made = self.ends(outcome)
        if is_made:
            self.tell()

    def ends(self, outcome: Outcome) -> bool:
        """The part of `end` that is done under the lock. Whether to `tell`, without it."""
        self._outcome = outcome
        return self._is_made

    def tell(self) -> None:
        """Have `Future` know how it ended, and all who wait."""
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
        """Whether it has ended."""
        return self._outcome is not None

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._outcome is CANCELLED

    def result(self, timeout: float | None = None) -> Result:
        """Its arrays, as soon as they are there. Raises its `InferenceError`, `TimeoutError` and `CancelledError`.

        And `ClientClosed` in a child of the process that asked, if it is open: nothing ends it there.
        """
        outcome = self._outcome
        if type(outcome) is dict:
            return outcome
        if outcome is None:
            self._owner.check_process()
        return super().result(timeout)

    def cancel(self) -> bool:
        """True when it ends, or had ended, as cancelled."""
        return self._owner.give_up(self) or self.cancelled()

    def add_done_callback(self, fn: Callable[[Future[Result]], object]) -> None:
        """Call it on the thread for callbacks, one after the other. One that raises is logged."""
        super().add_done_callback(lambda _: self._owner.call(fn, self))

    def when_done(self, fn: Callable[[Self], object]) -> None:
        """Call it on the thread that ends the future. It must not wait for anything."""
        super().add_done_callback(fn)  # type: ignore[arg-type]  # it is called with this very future

    def __call__(self, error: Any, _: object) -> None:
        """What the producer calls where the record was not delivered: it is given the answer, and no method of it."""
        if error is not None:
            self._owner.undelivered(self, error)
