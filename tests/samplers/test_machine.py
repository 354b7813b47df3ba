"""What is measured once of a machine, and what it is told."""

import ctypes
import platform

import pytest

from anygrpo.samplers import machine


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_glibc_takes_the_settings_of_freed_memory():
    assert machine.keep_freed_memory()


def test_elsewhere_freed_memory_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not machine.keep_freed_memory()
