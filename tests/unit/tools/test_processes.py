"""The processes of a measurement ignore Ctrl-C."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection as Pipe

from worker.tools.processes import Child


def interrupt_itself(pipe: Pipe) -> None:
    """Send SIGINT to this process, as a terminal does to its foreground processes."""
    os.kill(os.getpid(), signal.SIGINT)
    pipe.send("heard nothing")


def test_a_child_does_not_hear_ctrl_c() -> None:
    """It would end with a traceback, or before its parent noticed. The parent still gets Ctrl-C."""
    found = signal.getsignal(signal.SIGINT)

    with Child("the child", interrupt_itself) as child:
        assert child.receive() == "heard nothing"
    assert signal.getsignal(signal.SIGINT) is found
