"""Answers of endpoints kept on disk by content: what was asked, of which model, with which parameters."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from anygrpo.errors import DataError
from anygrpo.spoken import Text

BUSY_SECONDS = 30.0
"""How long one process waits for another that writes to the same file."""


def key_of(content: Any) -> str:
    """sha256 of `content` as JSON with sorted keys: equal questions, equal keys, in whatever order of their parts."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Cache:
    """A SQLite file of key -> JSON value, for several threads and processes. A lost or damaged row is a question asked
    again, never an error; a file that is no database is one.

    Example:
        >>> cache = Cache(None)
        >>> cache.put("k", {"text": "5"})
        >>> cache.get("k")
        {'text': '5'}
    """

    def __init__(self, path: str | Path | None) -> None:
        """Raises: DataError where `path` cannot be made, or is a file of another kind. None: kept in memory."""
        self._lock = threading.Lock()
        try:
            if path is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path or ":memory:", timeout=BUSY_SECONDS, check_same_thread=False)
            if path is not None:
                self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, value TEXT, made REAL)")
            self._file.commit()
        except (OSError, sqlite3.Error) as error:
            raise DataError(
                Text(f"the cache {path} cannot be used: {error}", f"缓存 {path} 不能使用：{error}"),
                Text("name another file, or remove it", "请换一个文件，或删除它"),
            ) from None

    def get(self, key: str) -> Any | None:
        """The value, or None."""
        with self._lock, contextlib.suppress(sqlite3.Error, ValueError, TypeError, RecursionError):
            row = self._file.execute("SELECT value FROM answers WHERE key = ?", (key,)).fetchone()
            return None if row is None else json.loads(row[0])
        return None

    def put(self, key: str, value: Any) -> None:
        """Keep a value. A full disk costs the row, not the run."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            row = (key, json.dumps(value, ensure_ascii=False), time.time())
            self._file.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", row)
            self._file.commit()

    def close(self) -> None:
        with self._lock:
            self._file.close()
