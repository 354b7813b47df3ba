"""Makes `golden` and `advantage_helpers` importable beside these tests, and keeps torch on one thread."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
