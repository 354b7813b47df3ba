"""The doctor: proves, suspects, or says that it cannot tell.

Reads anybody's training log; imports neither torch nor numpy.

from anygrpo.doctor import diagnose_log, read
diagnose_log(read("trainer_state.json")).first
"""

from anygrpo.doctor.diagnose import Diagnosis, diagnose, diagnose_log
from anygrpo.doctor.findings import Change, Finding
from anygrpo.doctor.live import LiveDoctor
from anygrpo.doctor.log import Log
from anygrpo.doctor.readers import read

__all__ = ["Change", "Diagnosis", "Finding", "LiveDoctor", "Log", "diagnose", "diagnose_log", "read"]
