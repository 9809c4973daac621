"""The entry point of the console script, and of `python -m worker`."""

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line. Until a command begins, Ctrl-C ends the process without a message, like any program.

    Otherwise the module that is imported at that moment would raise an exception, with a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from worker.cli import main as command_line  # noqa: PLC0415 - see above

    code: object = 1
    try:
        command_line()
    except SystemExit as ended:
        code = ended.code
    except Exception:  # noqa: BLE001  # a defect: Python's own end would print it, too
        sys.excepthook(*sys.exc_info())
    _end(code if isinstance(code, int) else 1)


def _end(code: int) -> NoReturn:
    """End the process without the interpreter's own end, at which a Kafka client may still be there.

    C's `exit` clears OpenSSL's memory. If a client's thread is in the middle of a TLS handshake, that ends in SIGSEGV:
    two of 160 ends did, with four or eight clients (2026-11). Before that, Python would destroy clients, which may wait
    a minute for a broker that refuses our login (measured 2026), and would kill a lane in native code (SIGABRT).
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
