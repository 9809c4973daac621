"""The processes of a measurement: deaf to Ctrl-C themselves, and no reason for their parent to be."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing import active_children
from multiprocessing.connection import Connection as Pipe

import pytest

from worker.signals import STOPPING
from worker.tools.bench.children import Child


class Interrupted:
    """Given to a child: the signal comes while it is handed over."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[[], str], tuple[()]]:
        signal.raise_signal(self._number)
        return str, ()


def say_what_is_given(pipe: Pipe, given: str) -> None:
    """Whole, it is handed over."""
    pipe.send(given)


def interrupt_itself(pipe: Pipe) -> None:
    """As a terminal interrupts every process of its foreground."""
    os.kill(os.getpid(), signal.SIGINT)
    pipe.send("heard nothing")


@pytest.mark.parametrize("number", STOPPING)
def test_what_stops_a_parent_while_a_child_starts_is_heard_afterwards(number: int) -> None:
    """A start may take a second; who presses Ctrl-C once waits for the end, and a child cut off has a traceback."""
    started: list[str] = []  # when it is heard
    found = signal.signal(number, lambda *_: started.extend(child.name for child in active_children()))

    with Child("the child", say_what_is_given, Interrupted(number)) as child:
        at_start = started.copy()
        given = child.receive()
    handler = signal.signal(number, found)

    assert (at_start, given) == (["the child"], "")
    assert callable(handler)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_child_does_not_hear_ctrl_c() -> None:
    """It would end with a traceback, or before its parent has heard."""
    with Child("the child", interrupt_itself) as child:
        assert child.receive() == "heard nothing"
