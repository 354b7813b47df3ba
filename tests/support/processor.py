"""Tests whose sense is the processor's own numbers, or several processes, on a machine that has a GPU.

After one backward pass on such a machine torch can train in no forked child, and a fresh process would take the GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GPU = Path("/dev/nvidiactl").exists()
"""Whether there is a GPU; to ask torch would import it for tests that need none."""


@contextmanager
def processor_alone() -> Iterator[None]:
    """Inside, neither this process finds a GPU nor any that it starts; what is on the GPU already stays usable."""
    if not GPU:
        yield
        return
    import torch

    found, known = torch.cuda.is_available, os.environ.get("CUDA_VISIBLE_DEVICES")
    found()  # the driver reads the variable once in each process: in this one before it is changed
    os.environ["CUDA_VISIBLE_DEVICES"], torch.cuda.is_available = "", lambda: False
    try:
        yield
    finally:
        torch.cuda.is_available = found
        if known is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = known
