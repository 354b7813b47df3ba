"""Threads at a turnstile: one at a time, the lowest number first, and an end for all."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from anygrpo.core.turnstile import Stopped, Turnstile


def waiting(turnstile, count):
    """Until so many threads wait."""
    end = time.monotonic() + 10
    while len(turnstile._waiting) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_the_lowest_number_goes_next():
    turnstile, order = Turnstile(), []

    def work(number):
        with turnstile.inside(number):
            order.append(number)

    with ThreadPoolExecutor(4) as threads, turnstile.inside(0):
        for number in (7, 3, 9, -1):
            threads.submit(work, number)
        waiting(turnstile, 4)
    assert order == [-1, 3, 7, 9]


def test_one_works_at_a_time():
    turnstile, inside, most = Turnstile(), [], []

    def work(number):
        with turnstile.inside(number):
            for _ in range(50):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)
                turnstile.give_way()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert max(most) == 1
    assert len(most) == 200


def test_way_is_given_to_lower_numbers_alone():
    turnstile, order = Turnstile(), []

    def work(number):
        with turnstile.inside(number):
            order.append(number)

    with ThreadPoolExecutor(2) as threads, turnstile.inside(5):
        threads.submit(work, 2)
        threads.submit(work, 8)
        waiting(turnstile, 2)
        turnstile.give_way()
        order.append(5)
    assert order == [2, 5, 8]


def test_others_work_while_one_waits_outside():
    turnstile, came = Turnstile(), threading.Event()

    def work():
        with turnstile.inside(9):
            came.set()

    with ThreadPoolExecutor(1) as threads, turnstile.inside(0):
        threads.submit(work)
        with turnstile.outside():
            assert came.wait(10)


def test_stop_ends_those_that_wait_and_whoever_gives_way():
    turnstile, ended = Turnstile(), []

    def work():
        try:
            with turnstile.inside(1):
                pass
        except Stopped:
            ended.append("waits")

    def give_way_once_stopped(threads):
        with turnstile.inside(0):
            threads.submit(work)
            waiting(turnstile, 1)
            turnstile.stop()
            turnstile.give_way()

    with ThreadPoolExecutor(1) as threads, pytest.raises(Stopped):
        give_way_once_stopped(threads)
    assert ended == ["waits"]
    with pytest.raises(Stopped), turnstile.inside(2):
        pass


def test_an_error_inside_lets_the_next_one_in():
    turnstile = Turnstile()
    with pytest.raises(ValueError, match="broken"), turnstile.inside(0):
        raise ValueError("broken")
    with turnstile.inside(1):
        pass
