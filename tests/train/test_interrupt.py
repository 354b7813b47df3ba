"""Signals: once is asked, twice is at once; what was set before comes back."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from anygrpo.errors import ConfigError
from anygrpo.train.interrupt import GRACE, INTERRUPTED, GraceOver, grace_seconds, interruptible


class Asked:
    def __init__(self):
        self.stop_reason, self.said = None, []

    def stop(self, reason):
        self.said.append(reason)


def send(number):
    os.kill(os.getpid(), number)
    time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_once_asks_and_twice_raises(number):
    run, before = Asked(), signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as caught, interruptible(run):  # noqa: PT012
        send(number)
        assert run.said == [INTERRUPTED]
        send(number)
    assert type(caught.value) is KeyboardInterrupt
    assert run.said == [INTERRUPTED]
    assert signal.getsignal(number) is before


def test_two_signals_of_one_ctrl_c_ask_twice():
    run = Asked()
    with interruptible(run):
        send(signal.SIGINT)
        send(signal.SIGTERM)
    assert run.said == [INTERRUPTED] * 2


def test_handlers_come_back_and_ignored_signals_stay_ignored():
    known = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        before = [signal.getsignal(s) for s in known]
        with interruptible(Asked()):
            inside = [signal.getsignal(s) for s in known]
        assert [signal.getsignal(s) for s in known] == before
        assert inside[2] == signal.SIG_IGN
        assert inside[0] is inside[1] is not before[0]
    finally:
        signal.signal(signal.SIGHUP, old)


def test_in_another_thread_someone_else_handles_signals():
    found = []

    def work():
        with interruptible(Asked()):
            found.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True]


def test_a_grace_time_gives_the_step_up(monkeypatch):
    monkeypatch.setenv(GRACE, "0.05")
    run = Asked()
    with pytest.raises(GraceOver), interruptible(run):  # noqa: PT012
        send(signal.SIGTERM)
        assert run.said == [INTERRUPTED]
        time.sleep(5)
    # SIGINT has no grace time, and what was begun is cancelled at the end
    with interruptible(run):
        send(signal.SIGINT)
        time.sleep(0.1)
    with interruptible(run):
        send(signal.SIGTERM)
    assert not [t for t in threading.enumerate() if isinstance(t, threading.Timer) and not t.finished.is_set()]
    time.sleep(0.1)


def test_a_second_sigterm_before_the_time_is_a_plain_stop(monkeypatch):
    monkeypatch.setenv(GRACE, "60")
    with pytest.raises(KeyboardInterrupt) as caught, interruptible(Asked()):  # noqa: PT012
        send(signal.SIGTERM)
        timer = next(t for t in threading.enumerate() if isinstance(t, threading.Timer))
        assert timer.daemon
        assert timer.interval == 60
        send(signal.SIGTERM)
    assert type(caught.value) is KeyboardInterrupt


@pytest.mark.parametrize(("text", "seconds"), [("", None), ("1.5", 1.5), ("1", 1.0), ("999999999", 999999999.0)])
def test_grace_seconds(monkeypatch, text, seconds):
    monkeypatch.setenv(GRACE, text)
    assert grace_seconds() == seconds


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1e9", "nan", "inf"])
def test_a_grace_time_that_cannot_be_meant(monkeypatch, text):
    monkeypatch.setenv(GRACE, text)
    with pytest.raises(ConfigError, match=GRACE):
        grace_seconds()
