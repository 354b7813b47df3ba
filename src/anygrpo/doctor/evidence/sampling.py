"""Settings that several rules of sampling prescribe."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Change


def clip_high(run: Columns, value: float) -> tuple[Change, ...]:
    """The upper clip at `value`; nothing where the log shows that no ratio reaches one, so that none can matter."""
    clipped = run.get("clip/fraction")
    return () if clipped and max(clipped.values) == 0 else (Change("clip_high", value),)
