"""What a command prints, without what could steer the terminal: names and texts in files are input like any other."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OURS = r"\x1b\[[0-9;]*[mABCDGJK]|\x1b\[\?25[lh]"
"""What progress bars and tables of libraries write: colours, lines cleared, the cursor moved or hidden."""
_STEERING = re.compile(
    rf"(?P<ours>{OURS})"
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # titles, clipboards, links, device strings: to their end
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # everything else that begins so: reports, modes, scrolling
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
    r"|[\ud800-\udfff]"  # bytes of a file's name that are no text: no stream can write them
    r"|[\u202a-\u202e\u2066-\u2069]",  # the direction of what follows: a name that reads as another
    re.DOTALL,
)


def harmless(text: str) -> str:
    """The text without control sequences, but for `OURS`, line ends and tabs."""
    return _STEERING.sub(lambda m: m["ours"] or "", text)


class Screen:
    """A text stream that writes what is harmless; all else is the stream's own."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(text if text.isprintable() else harmless(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def screened() -> Iterator[None]:
    """Inside, sys.stdout and sys.stderr are screens."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Screen(out), Screen(err)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
