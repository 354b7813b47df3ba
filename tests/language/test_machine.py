"""What is measured once of a machine, and what it is told."""

import ctypes
import platform

import pytest
import torch

from anygrpo.core import device as machine
from anygrpo.errors import ConfigError


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_glibc_takes_the_settings_of_freed_memory():
    assert machine.keep_freed_memory()


def test_elsewhere_freed_memory_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not machine.keep_freed_memory()


@pytest.mark.parametrize("name", ["cudaa", "cuda:99", "mps"])
def test_a_device_that_is_not_there_is_named(name):
    with pytest.raises(ConfigError, match=f"device = '{name}' cannot be used"):
        machine.device_of(name)


def test_auto_is_a_device_of_this_machine():
    assert machine.device_of("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
