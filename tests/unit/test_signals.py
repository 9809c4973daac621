"""The wish to stop, as the loop and the watchdog see it."""

from __future__ import annotations

import hashlib
import os
import signal
from threading import Event, Thread

from worker.signals import STOPPING, StopSignals, stop_signals


def test_the_first_signal_asks_to_stop_and_the_second_to_hurry() -> None:
    """SIGINT and SIGTERM count alike; other signals are left alone."""
    found = signal.signal(signal.SIGUSR1, lambda *_: None)
    with stop_signals() as signals:
        seen = [(signals.stop_asked, signals.hurry_asked, signals.stop_sent)]
        for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
            seen.append((signals.stop_asked, signals.hurry_asked, signals.stop_sent))
    signal.signal(signal.SIGUSR1, found)

    assert seen == [(False, False, False), (False, False, False), (True, False, True), (True, True, True)]


def test_a_hang_up_asks_to_stop_and_never_to_hurry() -> None:
    """Kernel and shell both send one when a terminal closes, and a service manager may add one to SIGTERM."""
    with stop_signals() as signals:
        signal.raise_signal(signal.SIGHUP)
        seen = [(signals.stop_asked, signals.hurry_asked, signals.stop_sent)]
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGTERM):
            signal.raise_signal(number)
            seen.append((signals.stop_asked, signals.hurry_asked, signals.stop_sent))

    assert seen == [(True, False, True), (True, False, True), (True, False, True), (True, True, True)]


def test_a_hang_up_that_is_ignored_stays_ignored() -> None:
    """nohup keeps a command alive in this way when its terminal ends."""
    found = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_signals() as signals:
        signal.raise_signal(signal.SIGHUP)
        seen = (signals.stop_asked, signals.stop_sent)
    after = signal.signal(signal.SIGHUP, found)

    assert seen == (False, False)
    assert after is signal.SIG_IGN


def asked_from_outside() -> tuple[bool, bool]:
    """`stop_sent` and `stop_asked` as another thread sees them right after SIGTERM."""
    seen: list[tuple[bool, bool]] = []
    is_about_to_call = Event()

    def ask(signals: StopSignals) -> None:
        is_about_to_call.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        while not signals.stop_sent:
            pass
        seen.append((signals.stop_sent, signals.stop_asked))

    with stop_signals() as signals:
        asker = Thread(target=ask, args=[signals])
        asker.start()
        is_about_to_call.set()
        hashlib.pbkdf2_hmac(
            "sha256", b"", b"", 1_000_000
        )  # native, and longer than a busy machine keeps a thread waiting
        asker.join()
        assert signals.stop_asked
    return seen[0]


def test_the_wish_is_known_while_the_main_thread_is_in_a_native_call() -> None:
    """No handler runs there. A signal may come a moment before the call, so the test tries again."""
    assert (True, False) in (asked_from_outside() for _ in range(20))


def test_what_was_there_before_is_put_back() -> None:
    """This includes handlers, and the file descriptor to which the interpreter writes signals."""
    before = [signal.getsignal(number) for number in STOPPING]
    with stop_signals():
        assert [signal.getsignal(number) for number in STOPPING] != before

    assert [signal.getsignal(number) for number in STOPPING] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert StopSignals().stop_sent is False
