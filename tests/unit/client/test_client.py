"""Where a client is not made: before anything is asked of Kafka, and behind it."""

from __future__ import annotations

import _thread
import gc
import threading

import pytest

from inference_client import InferenceClient, client
from inference_client.exchange import Clients
from tests.unit.client.builders import Stage


@pytest.mark.parametrize(("maker", "module"), [("gevent", "gevent.thread"), ("eventlet", "eventlet.green.thread")])
def test_green_threads_are_refused(monkeypatch: pytest.MonkeyPatch, maker: str, module: str) -> None:
    """The client's own would wait for Kafka, and let no other run: the program stood still as soon as it was made."""

    def start_new_thread() -> None: ...

    start_new_thread.__module__ = module
    monkeypatch.setattr(_thread, "start_new_thread", start_new_thread)

    with pytest.raises(RuntimeError, match=f"{maker} has replaced the system's threads"):
        InferenceClient("localhost:1", requests="r", answers="a", timeout=0.1)


@pytest.mark.filterwarnings("error")
def test_where_no_thread_can_be_started_nothing_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may allow no more. Nor does the client that was not made complain when it is forgotten."""

    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    stage = Stage()
    monkeypatch.setattr(client, "connect", lambda *_: Clients(stage.producer, stage.consumer))
    monkeypatch.setattr(client, "Thread", Refused)

    with pytest.raises(RuntimeError, match="can't start new thread"):
        InferenceClient("localhost:1", requests="r", answers="a")
    gc.collect()

    assert stage.consumer.is_closed
