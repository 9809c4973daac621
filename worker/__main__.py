"""The entry point of the console script, and of `python -m worker`."""

import signal


def main() -> None:
    """Run the command line. Until a command begins, Ctrl-C ends the process without a message, like any program.

    Otherwise the module that is imported at that moment would raise an exception, with a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from worker.cli import main as command_line  # noqa: PLC0415 - see above

    command_line()


if __name__ == "__main__":
    main()
