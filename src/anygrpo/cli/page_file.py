"""A file that a command was told to write, or the sentence that it cannot be."""

from __future__ import annotations

from pathlib import Path

from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


def written(path: str, text: str, flag: str = "--html") -> None:
    """Raises: ConfigError where the file of `flag` cannot be written."""
    try:
        Path(path).write_text(text, "utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(
            Text(f"cannot write {path}: {error.strerror}", f"无法写入 {path}：{error.strerror}"),
            Text(f"choose another {flag} file", f"请换一个 {flag} 文件"),
        ) from None
