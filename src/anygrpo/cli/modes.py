"""What each mode of `anygrpo doctor` makes use of: a flag that would be ignored is refused by name."""

from __future__ import annotations

import argparse

from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

TAKES: dict[str, tuple[str, ...]] = {
    "rules": ("json",),
    "samples": ("json",),
    "confirm": ("paths", "suspect", "budget", "json"),
    "follow": ("paths", "mapping", "config", "on_serious", "every"),
    "": ("paths", "mapping", "config", "save_map", "plan", "json", "html", "fail_on"),
}
"""Mode -> what it makes use of, beside its own flag and --lang."""
FLAGS = ("mapping", "config", "save_map", "plan", "confirm", "suspect", "budget", "samples", "follow", "on_serious",
         "every", "json", "html", "fail_on", "rules", "paths")  # fmt: skip


def mode_of(args: argparse.Namespace) -> str:
    """What is asked for: a key of `TAKES`.

    Raises:
        ConfigError: a flag was given that this mode would not use.
    """
    given = [
        name for name in FLAGS if (value := getattr(args, name)) is not None and value is not False and value != []
    ]
    mode = next((m for m in TAKES if m in given), "confirm" if "suspect" in given else "")
    if unused := [name for name in given if name != mode and name not in TAKES[mode]]:
        named = ", ".join(flag(name) for name in unused)
        if mode:
            cure = Text(
                f"leave it out, or call doctor again without {flag(mode)}", f"去掉它，或不带 {flag(mode)} 再运行一次"
            )
            raise ConfigError(Text(f"{flag(mode)} makes no use of {named}", f"{flag(mode)} 用不到 {named}"), cure)
        owner = next(m for m in ("follow", "confirm") if unused[0] in TAKES[m])
        raise ConfigError(
            Text(f"{named} without {flag(owner)}", f"给了 {named}，却没有 {flag(owner)}"),
            Text(f"add {flag(owner)}, or leave it out", f"加上 {flag(owner)}，或去掉它"),
        )
    return mode


def flag(name: str) -> str:
    return {"paths": "PATH", "mapping": "--map"}.get(name, "--" + name.replace("_", "-"))
