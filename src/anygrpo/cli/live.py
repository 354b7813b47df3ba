"""What stands beside a training run: the doctor while it runs, the report when it ends."""

from __future__ import annotations

from typing import Any

from anygrpo.train.run import Run


def attach_doctor(run: Run) -> Any:
    """Observe the run with the live doctor, in the mode its recipe says. None where it is off."""
    return None


def finish(run: Run, doctor: Any) -> None:
    """doctor.json and report.html in the run folder."""
