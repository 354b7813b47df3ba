"""What a command prints, without what could steer the terminal: names and texts in files are input like any other."""

from __future__ import annotations

import os
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
    """A text stream that writes what is harmless; all else is the stream's own.

    Attributes:
        goes_on: a stream that breaks (a reader that ended, a full disk) is dropped, and what writes goes on without it.
    """

    goes_on = False

    def __init__(self, stream: Any) -> None:
        self._stream = open(os.devnull, "w") if stream is None else stream  # noqa: SIM115  # closed before we began

    def write(self, text: str) -> int:
        with self._dropped_where_it_breaks():
            shown = text if text.isprintable() else harmless(text)
            try:
                self._stream.write(shown)
            except UnicodeEncodeError:  # a terminal of ASCII alone
                self._stream.write(shown.encode(self._stream.encoding, "replace").decode(self._stream.encoding))
        return len(text)

    def flush(self) -> None:
        with self._dropped_where_it_breaks():
            self._stream.flush()

    @contextmanager
    def _dropped_where_it_breaks(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            if not self.goes_on:
                raise
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())  # what it still holds goes nowhere too
            os.close(null)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def screened() -> Iterator[None]:
    """Inside, sys.stdout and sys.stderr are screens."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Screen(out), Screen(err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
