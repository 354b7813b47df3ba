"""Readers: any log a person may have, found out by content, as a `Log` of plain numbers."""

from anygrpo.doctor.readers.detect import read, read_all

__all__ = ["read", "read_all"]
