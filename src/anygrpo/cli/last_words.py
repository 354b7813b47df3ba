"""What is said of an end that none of our errors explains: a signal, a missing package, a fault in somebody's code."""

from __future__ import annotations

import signal
import sys

from anygrpo.cli.ending import Ended
from anygrpo.core.user_code import users_place
from anygrpo.errors import ConfigError, not_installed
from anygrpo.spoken import say


def how_it_ended(error: KeyboardInterrupt) -> str:
    by = signal.Signals(error.number).name if isinstance(error, Ended) else ""
    return say(f"ended by {by}", f"因 {by} 结束") if by else str(error) or say("interrupted", "已中断")


def unexpected(error: BaseException) -> int:
    """Say what is not one of our errors: a package that is not installed, a fault in the user's code, or in ours."""
    missing = not_installed(error) if isinstance(error, ImportError) else None
    if missing is not None:
        print(f"anygrpo: {missing}", file=sys.stderr)
        return missing.exit_code
    if (where := users_place(error)) is not None:
        what, cure = where, say("mend it there", "请在那里修正")
    else:
        what, cure = say("internal error", "内部错误"), say("run again with --debug", "请加 --debug 再运行一次")
    print(f"anygrpo: {what}: {type(error).__name__}: {error}\n  -> {cure}", file=sys.stderr)
    return ConfigError.exit_code if where is not None else 1
