"""The processes of a measurement are deaf to Ctrl-C."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection as Pipe

from worker.tools.processes import Child


def interrupt_itself(pipe: Pipe) -> None:
    """As a terminal interrupts every process of its foreground."""
    os.kill(os.getpid(), signal.SIGINT)
    pipe.send("heard nothing")


def test_a_child_does_not_hear_ctrl_c() -> None:
    """It would end with a traceback, or before its parent has heard. The parent hears it as before."""
    found = signal.getsignal(signal.SIGINT)

    with Child("the child", interrupt_itself) as child:
        assert child.receive() == "heard nothing"
    assert signal.getsignal(signal.SIGINT) is found
