"""The future of one request, which costs little until something waits for it.

Most futures are asked for their result when it is there. What a `concurrent.futures.Future` needs to be waited for, a
condition and two lists, and arrays out of an answer's bytes, are more than half of what a request costs here; so both
are made late:

    what came      is kept as it came, and read by the first who asks, in the asker's thread
    Future's own   attributes are made when something first looks for one, `Future`'s own methods and `wait` among them

Who ends an answer and who makes its attributes may meet. Under the one lock either the end comes first, and the maker
tells `Future` of it, or the attributes do, and the end does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, Self

from inference_client.errors import InferenceError
from inference_client.signature import Result


class Message(Protocol):
    """An answer as Kafka's client hands it over."""

    def error(self) -> Any: ...
    def headers(self) -> Any: ...
    def value(self) -> Any: ...


class Owner(Protocol):
    """The table of requests, as one of them sees it."""

    @property
    def lock(self) -> AbstractContextManager[bool]: ...
    def read(self, message: Message, /) -> Result | InferenceError: ...
    def give_up(self, answer: Answer) -> bool: ...
    def call(self, fn: Callable[[Future[Result]], object], answer: Answer) -> None: ...
    def undelivered(self, answer: Answer, error: Any) -> None: ...


class Cancelled:
    """The end of an answer that was given up."""


CANCELLED: Final = Cancelled()
Outcome = Result | InferenceError | Cancelled


class Answer(Future[Result]):
    """The future of one request. `cancel` gives up its place: its answer, if one comes, counts as late."""

    __slots__ = ("_has_ended", "_is_made", "_message", "_outcome", "_owner", "began", "deadline", "holds", "request_id")

    def __init__(self, owner: Owner, request_id: bytes, began: float, deadline: float) -> None:
        """Future's own is left to `__getattr__`."""
        self.request_id = request_id
        self.began = began
        self.deadline = deadline
        self.holds: object = None  # what must live as long as this
        self._owner = owner
        self._is_made = False
        self._has_ended = False
        self._message: Message | None = None  # what came, until it is read
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
            is_late = is_first and self._has_ended
        if is_late:
            self._tell()  # not under the lock: who holds Future's condition may wait for that
        return object.__getattribute__(self, name)

    def end(self, outcome: Outcome | None, message: Message | None = None) -> None:
        """With an outcome, or with a message that holds it. To be called by who has taken it out of the table."""
        with self._owner.lock:
            self._message = message
            self._outcome = outcome
            self._has_ended = True
            is_made = self._is_made
        if is_made:
            self._tell()

    def _tell(self) -> None:
        """Have `Future` know how it ended, and all who wait."""
        outcome = self._read()
        assert outcome is not None, "it has ended"
        if isinstance(outcome, Cancelled):
            super().cancel()
            self.set_running_or_notify_cancel()
        elif isinstance(outcome, InferenceError):
            self.set_exception(outcome)
        else:
            self.set_result(outcome)

    def _read(self) -> Outcome | None:
        """The outcome, if there is one. Two who ask at the same time may each read it: it says the same."""
        if self._outcome is None and (message := self._message) is not None:
            self._outcome = self._owner.read(message)
            self._message = None
        return self._outcome

    def done(self) -> bool:
        """Whether it has ended."""
        return self._has_ended

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._outcome is CANCELLED

    def result(self, timeout: float | None = None) -> Result:
        """Its arrays, as soon as they are there. Raises its `InferenceError`, `TimeoutError` and `CancelledError`."""
        outcome = self._read()
        return outcome if type(outcome) is dict else super().result(timeout)

    def cancel(self) -> bool:
        """True when it ends, or had ended, as cancelled."""
        return self._owner.give_up(self) or self.cancelled()

    def add_done_callback(self, fn: Callable[[Future[Result]], object]) -> None:
        """Call it on the thread for callbacks, one after the other. One that raises is logged."""
        super().add_done_callback(lambda _: self._owner.call(fn, self))

    def when_done(self, fn: Callable[[Self], object]) -> None:
        """Call it on the thread that ends the future. It must not wait for anything."""
        super().add_done_callback(fn)  # type: ignore[arg-type]  # it is called with this very future

    def on_delivery(self, error: Any, _: object) -> None:
        """Given to the producer, which calls it where a record was not delivered."""
        if error is not None:
            self._owner.undelivered(self, error)
