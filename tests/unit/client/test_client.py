"""Where a client is not made, before anything is asked of Kafka."""

from __future__ import annotations

import _thread

import pytest

from inference_client import InferenceClient


@pytest.mark.parametrize(("maker", "module"), [("gevent", "gevent.thread"), ("eventlet", "eventlet.green.thread")])
def test_green_threads_are_refused(monkeypatch: pytest.MonkeyPatch, maker: str, module: str) -> None:
    """The client's own would wait for Kafka, and let no other run: the program stood still as soon as it was made."""

    def start_new_thread() -> None: ...

    start_new_thread.__module__ = module
    monkeypatch.setattr(_thread, "start_new_thread", start_new_thread)

    with pytest.raises(RuntimeError, match=f"{maker} has replaced the system's threads"):
        InferenceClient("localhost:1", requests="r", answers="a", timeout=0.1)
