"""The process: the console script, and `python -m worker`."""

import signal


def main() -> None:
    """The command line. Until a command begins, Ctrl-C ends the process in silence, as it does any other program.

    An exception would come out of whatever module is imported just then, as a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from worker.cli import main as command_line  # noqa: PLC0415 - see above

    command_line()


if __name__ == "__main__":
    main()
