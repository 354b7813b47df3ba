"""Settings for all tests: one thread, no network, signals as in a terminal."""

from __future__ import annotations

import os
import signal
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
if not Path("/dev/nvidiactl").exists():  # Triton reads it once, when it is first imported, by whichever test
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Started by nohup or in the background, the tests would hand an ignored signal on to every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
