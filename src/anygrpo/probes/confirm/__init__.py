"""From suspicion to proof: the experiment that a doctor's "likely" or "ask" names, run on the run it was said of."""

from anygrpo.probes.confirm.confirm import Confirmed, confirm

__all__ = ["Confirmed", "confirm"]
