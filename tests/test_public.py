"""The public names exist, and importing the package is quick and light."""

from __future__ import annotations

import subprocess
import sys

import pytest

import anygrpo


@pytest.mark.parametrize("name", anygrpo.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(anygrpo, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        _ = anygrpo.nothing


def test_importing_the_package_loads_no_torch():
    code = "import sys, anygrpo; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
