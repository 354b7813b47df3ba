"""Peak resident memory: this program's own, whoever started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from anygrpo.bench import meter
from anygrpo.core import resident
from anygrpo.train import measure


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the kernel gives no VmHWM here")
def test_the_memory_of_the_process_that_started_this_one_is_not_counted():
    held = bytearray(b"x") * (400 << 20)  # written, so resident
    code = (
        "from anygrpo.core.resident import peak_bytes\n"
        "before = peak_bytes()\nheld = bytearray(b'x') * (100 << 20)\nprint(before, peak_bytes())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    before, after = map(int, out.split())
    assert before < 200 << 20 < len(held)
    assert 90 << 20 < after - before < 150 << 20
    assert resident.peak_bytes() > len(held)


def test_the_kernels_number_is_taken_where_it_stands(monkeypatch, tmp_path):
    status = tmp_path / "status"
    monkeypatch.setattr(resident, "_STATUS", status)
    monkeypatch.setattr(resident.resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=3 * 2**20))
    monkeypatch.setattr(resident.sys, "platform", "linux")  # kibibytes
    status.write_text("Name:\tpython\nVmPeak:\t 9000000 kB\nVmHWM:\t 2097152 kB\nVmRSS:\t 100 kB\n")
    assert resident.peak_bytes() == 2 * 2**30
    assert measure.resident_gb() == 2.0
    assert meter.peak_gb("cpu") == 2 * 2**30 / 1e9
    status.write_text("Name:\tpython\n")  # a kernel without it
    assert resident.peak_bytes() == 3 * 2**30
    status.unlink()
    assert measure.resident_gb() == 3.0
    monkeypatch.setattr(resident.sys, "platform", "darwin")  # bytes
    assert resident.peak_bytes() == 3 * 2**20
